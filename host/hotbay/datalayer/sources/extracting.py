"""Runs the extractors of a source, one after the other, and writes what they find; each failure is counted and stays where it is.

Every extractor has a time of its own. The named boundary around extractors: whatever one raises, and whatever of its result the
store refuses, is its failure alone.
"""

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar

import anyio

from hotbay.datalayer.endpoint import Metrics
from hotbay.datalayer.source import STEP_TIMEOUT_S, AnyExtractor, Counts, Extractor, step_timeout_s
from hotbay.datalayer.store import EndpointStore

__all__ = ["Extraction", "Guard"]

logger = logging.getLogger(__name__)

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
        self, extractor: AnyExtractor, step: Callable[[], Awaitable[_T]], write: Callable[[_T], None]
    ) -> bool:
        """Await the step within its time and write what it returned; False when it failed, which is counted and logged."""
        try:
            with anyio.fail_after(step_timeout_s(extractor, self._step_s)):
                found = await step()
            write(found)
        except Exception:
            # The boundary around extractors: see the module.
            name = extractor.name
            self._counts.extract_failed(self._source, name)
            now_s = anyio.current_time()
            if now_s - self._logged_at.get(name, float("-inf")) >= _LOG_INTERVAL_S:
                self._logged_at[name] = now_s
                logger.exception("extract_failed source=%s extractor=%s", self._source, name)
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
        """May be others from the next payload on."""
        self._store = store
        self._now = now
        self._guard = Guard(source, counts=counts, step_s=step_s)

    async def run(self, payload: object, endpoint_id: str, is_wanted: Callable[[], bool]) -> None:
        """Run all extractors on a payload. Nothing is written once `is_wanted` says no, or the endpoint is gone."""
        for extractor in self.extractors:
            endpoint = self._store.endpoint(endpoint_id)
            if endpoint is None or not is_wanted():
                return

            def write(found: object, endpoint_id: str = endpoint_id) -> None:
                if not is_wanted():
                    return
                if isinstance(found, Metrics):
                    self._store.update_metrics(endpoint_id, found, self._now())
                else:
                    self._store.put_attributes(endpoint_id, found, self._now())  # type: ignore[arg-type]  # refused there

            await self._guard.run(extractor, lambda: extractor.extract(payload, endpoint), write)  # noqa: B023
