"""Runs the extractors of a source, and writes what they find; each failure is counted and stays where it is.

The host's own run one after the other, and each sees what those before it found; those in other processes are asked beside each
other. Every extractor has a time of its own. The named boundary around extractors: whatever one raises, and whatever of its
result the store refuses, is its failure alone.
"""

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar

import anyio

from hotbay.datalayer.endpoint import Metrics
from hotbay.datalayer.source import (
    STEP_TIMEOUT_S,
    AnyExtractor,
    Counts,
    Extractor,
    NotAskedError,
    step_timeout_s,
)
from hotbay.datalayer.store import EndpointStore

__all__ = ["OWN", "Extraction", "Guard"]

logger = logging.getLogger(__name__)

OWN: Final = ""
"""The lane of the host's own extractors: no plugin has this name."""

_LOG_INTERVAL_S: Final = 10.0
"""What fails at the rate of polling still writes few lines: six a minute for each extractor."""

_T = TypeVar("_T")


class Guard:
    """Runs single steps of extractors behind one source. Calls may overlap."""

    def __init__(self, source: str, *, counts: Counts, step_s: float = STEP_TIMEOUT_S) -> None:
        self._source = source
        self._counts = counts
        self._step_s = step_s
        self._logged_at: dict[str, float] = {}

    async def run(
        self, extractor: AnyExtractor, step: Callable[[], Awaitable[_T]], write: Callable[[_T], None], *, what: str = ""
    ) -> bool:
        """Await the step within its time and write what it returned; False when it failed, which is counted and logged.

        `what` says in the log what it was about. An extractor that was not asked has not failed, and is counted apart.
        """
        name = extractor.name
        try:
            with anyio.fail_after(step_timeout_s(extractor, self._step_s)):
                found = await step()
            write(found)
        except NotAskedError:
            self._counts.extract_skipped(self._source, name, "busy")
        except Exception:
            # The boundary around extractors: see the module.
            self._counts.extract_failed(self._source, name)
            now_s = anyio.current_time()
            if now_s - self._logged_at.get(name, float("-inf")) >= _LOG_INTERVAL_S:
                self._logged_at[name] = now_s
                logger.exception("extract_failed source=%s extractor=%s%s", self._source, name, what)
            return False
        return True


class Extraction:
    """The extractors of one polling source, in the order in which they run. Calls for different endpoints may overlap.

    Args:
        source: the source's name.
        extractors: all of them read the source's payload.
        store: who is told.
        now: monotonic seconds, of the store's times.
        counts: where failures are counted.
        step_s: time of one extractor.
    """

    def __init__(
        self,
        source: str,
        extractors: Sequence[Extractor],
        *,
        store: EndpointStore,
        now: Callable[[], float],
        counts: Counts,
        step_s: float = STEP_TIMEOUT_S,
    ) -> None:
        self.extractors = tuple(extractors)
        """May be others from the next payload on; of who is none of them any more nothing is written."""
        self._store = store
        self._now = now
        self._guard = Guard(source, counts=counts, step_s=step_s)

    @property
    def lanes(self) -> tuple[str, ...]:
        """Who need not wait for whom: `OWN` for the host's own, if there are any, and the name of each in another process."""
        elsewhere = tuple(one.name for one in self.extractors if _is_elsewhere(one))
        return elsewhere if len(elsewhere) == len(self.extractors) else (OWN, *elsewhere)

    async def run(
        self, payload: object, endpoint_id: str, is_wanted: Callable[[], bool], *, lane: str | None = None
    ) -> None:
        """Run all extractors on a payload, or those of a lane: first the host's own, in order, then the others together.

        Nothing is written once `is_wanted` says no, or the endpoint is gone.
        """
        elsewhere: list[Extractor] = []
        for extractor in self.extractors:
            is_elsewhere = _is_elsewhere(extractor)
            if lane is not None and lane != (extractor.name if is_elsewhere else OWN):
                continue
            if is_elsewhere:
                elsewhere.append(extractor)
            else:
                await self._extract(extractor, payload, endpoint_id, is_wanted)
        if len(elsewhere) == 1:
            await self._extract(elsewhere[0], payload, endpoint_id, is_wanted)
        elif elsewhere:
            async with anyio.create_task_group() as group:
                for extractor in elsewhere:
                    group.start_soon(self._extract, extractor, payload, endpoint_id, is_wanted)

    async def _extract(
        self, extractor: Extractor, payload: object, endpoint_id: str, is_wanted: Callable[[], bool]
    ) -> None:
        endpoint = self._store.endpoint(endpoint_id)
        if endpoint is None or not is_wanted() or extractor not in self.extractors:
            return

        def write(found: object) -> None:
            if not is_wanted() or extractor not in self.extractors:
                return
            if isinstance(found, Metrics):
                self._store.update_metrics(endpoint_id, found, self._now())
            else:
                self._store.put_attributes(endpoint_id, found, self._now())  # type: ignore[arg-type]  # refused there

        await self._guard.run(extractor, lambda: extractor.extract(payload, endpoint), write)


def _is_elsewhere(extractor: Extractor) -> bool:
    """Whether it is in a process of its own: it has a time of its own then, and reads nothing but the payload."""
    return getattr(extractor, "step_s", None) is not None
