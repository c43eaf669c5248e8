"""Asks polling sources for data of each endpoint and hands it to their extractors, in the order in which they were bound.

A collector is one endpoint's set of tasks, one for each source: first soon after the start, spread so that endpoints that come
together are not asked together, then on a grid of whole ticks; grid points that
pass during a slow poll are skipped, so that a source has one poll of an endpoint under way and delays neither other endpoints
nor other sources. The poll and each extractor have a time of their own. A failed poll is counted and leaves what is known as it
is; a failed extractor is counted and concerns nobody else. Once a collector is retired nothing of it is written, and once it
has stopped none of its tasks runs.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import anyio
from anyio.abc import TaskGroup

from hotbay.config.data_parameters import SHORTEST_INTERVAL_S
from hotbay.datalayer.endpoint import EndpointMetadata
from hotbay.datalayer.scraping.schedule import start_window_s
from hotbay.datalayer.source import (
    STEP_TIMEOUT_S,
    Counts,
    Extractor,
    NotAskedError,
    PollingSource,
    ReadsForExtractors,
    SourceError,
    step_timeout_s,
)
from hotbay.datalayer.sources.extracting import Extraction
from hotbay.datalayer.store import EndpointStore
from hotbay.observe.background import Background

__all__ = ["CollectorExistsError", "PolledSource", "SourceCollectors", "base_tick_s", "whole_ticks"]

logger = logging.getLogger(__name__)

_LOG_INTERVAL_S: Final = 10.0
"""An endpoint that fails at the rate of polling still writes few lines: six a minute for each source."""


def base_tick_s(default_s: float, intervals_s: Sequence[float]) -> float:
    """The tick that intervals are multiples of: the smallest of all, and not below 50 ms (reference, 6.3)."""
    return max(SHORTEST_INTERVAL_S, min((default_s, *intervals_s)))


def whole_ticks(interval_s: float, tick_s: float) -> int:
    """An interval in ticks, at least one, halves rounded away from zero: 125 ms are 3 ticks of 50 ms (reference, 6.3).

    Counted in microseconds, as 2.5 of something that is no binary fraction may be a little less.
    """
    interval, tick = round(interval_s * 1e6), max(1, round(tick_s * 1e6))
    return max(1, (2 * interval + tick) // (2 * tick))


class CollectorExistsError(Exception):
    """An endpoint would be collected twice."""


@dataclass(frozen=True, slots=True)
class PolledSource:
    """A source with its extractors, in the order in which they run."""

    source: PollingSource
    extractors: tuple[Extractor, ...] = ()


@dataclass(slots=True, eq=False)
class _Collector:
    endpoint: EndpointMetadata
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    stopped: anyio.Event = field(default_factory=anyio.Event)
    retired: bool = False
    logged_at: dict[str, float] = field(default_factory=dict)


class SourceCollectors:
    """The collectors of all endpoints, by id. All methods are for the event loop's thread.

    Args:
        store: who is told, and who knows whether an endpoint is still there.
        polled: sources with their extractors.
        tick_s: see `base_tick_s`.
        now: monotonic seconds, of the store's times.
        counts: where failures are counted.
        background: what nobody foresaw stays with one source of one endpoint.
        step_s: time of one poll, and of one extractor, unless it has a time of its own.
        phase: from 0 to below 1: the share of the interval by which an endpoint's grid is shifted, and of the time within
            which all first polls begin: so that endpoints that came together are not asked together.
    """

    def __init__(
        self,
        store: EndpointStore,
        polled: Sequence[PolledSource],
        *,
        tick_s: float,
        now: Callable[[], float],
        counts: Counts,
        background: Background,
        step_s: float = STEP_TIMEOUT_S,
        phase: Callable[[str], float] = lambda _endpoint_id: 0.0,
    ) -> None:
        self._polled = tuple(polled)
        self._tick_s = tick_s
        self._counts = counts
        self._background = background
        self._step_s = step_s
        self._phase = phase
        self._collectors: dict[str, _Collector] = {}
        self._extractions = {
            one.source.name: Extraction(
                one.source.name, one.extractors, store=store, now=now, counts=counts, step_s=step_s
            )
            for one in self._polled
        }
        for one in self._polled:
            _tell_readers(one.source, one.extractors)

    def rebind(self, source: str, extractors: Sequence[Extractor]) -> None:
        """Run these for the source from the next payload on. Raises KeyError for a source that is not polled here."""
        self._extractions[source].extractors = tuple(extractors)
        for one in self._polled:
            if one.source.name == source:
                _tell_readers(one.source, extractors)

    def __contains__(self, endpoint_id: str) -> bool:
        return endpoint_id in self._collectors

    def start(self, group: TaskGroup, endpoint: EndpointMetadata) -> None:
        """Start an endpoint's collector in `group`. Raises `CollectorExistsError` when the endpoint has one."""
        if endpoint.id in self._collectors:
            raise CollectorExistsError(f"the endpoint {endpoint.id} has a collector: stop that one first")
        collector = self._collectors[endpoint.id] = _Collector(endpoint)
        group.start_soon(self._collect, collector, name=f"collect {endpoint.id}")

    def update(self, endpoint: EndpointMetadata) -> None:
        """Later polls are of this metadata; for a change that does not touch where it is polled."""
        self._collectors[endpoint.id].endpoint = endpoint

    def retire(self, endpoint_id: str) -> None:
        """From now on the endpoint's collector writes nothing, whatever is under way; it goes on until it is stopped."""
        if endpoint_id in self._collectors:
            self._collectors[endpoint_id].retired = True

    async def stop(self, endpoint_id: str) -> None:
        """End the endpoint's collector, if any, and return when none of its tasks runs. Not cut off by a cancellation."""
        collector = self._collectors.get(endpoint_id)
        if collector is None:
            return
        collector.retired = True
        collector.scope.cancel()
        with anyio.CancelScope(shield=True):
            await collector.stopped.wait()

    async def _collect(self, collector: _Collector) -> None:
        endpoint_id = collector.endpoint.id
        try:
            with collector.scope:
                async with anyio.create_task_group() as group:
                    for polled in self._polled:
                        work = partial(self._poll_for_ever, collector, polled)
                        group.start_soon(self._background.keep, "data source", work)
                    # An endpoint has its collector whether anything is polled or not.
                    await anyio.sleep_forever()
        finally:
            for polled in self._polled:
                polled.source.forget(endpoint_id)
            del self._collectors[endpoint_id]
            collector.stopped.set()

    async def _poll_for_ever(self, collector: _Collector, polled: PolledSource) -> None:
        interval_s = self._interval_s(polled.source)
        phase = self._phase(collector.endpoint.id)
        began_s = anyio.current_time() + phase * interval_s
        await anyio.sleep(phase * start_window_s(interval_s, len(self._collectors)))
        await self._poll(collector, polled)
        point = 0
        while True:
            wanted_s = self._interval_s(polled.source)
            if wanted_s != interval_s:
                # Another version of a package may want another one: a grid of its own begins.
                interval_s, began_s, point = wanted_s, anyio.current_time(), 0
            # The grid is computed from its beginning, so that errors do not add up.
            point = max(point + 1, int((anyio.current_time() - began_s) / interval_s) + 1)
            await anyio.sleep_until(began_s + point * interval_s)
            await self._poll(collector, polled)

    def _interval_s(self, source: PollingSource) -> float:
        return whole_ticks(source.interval_s, self._tick_s) * self._tick_s

    async def _poll(self, collector: _Collector, polled: PolledSource) -> None:
        source, endpoint = polled.source, collector.endpoint
        step_s = step_timeout_s(source, self._step_s)
        try:
            with anyio.fail_after(step_s):
                payload = await source.poll(endpoint)
        except NotAskedError:
            self._counts.poll_skipped(source.name)
            return
        except SourceError as error:
            self._failed(collector, source, error.reason, str(error))
            return
        except TimeoutError:
            self._failed(collector, source, "timeout", f"nothing within {step_s:g} s")
            return
        wanted = partial(_is_wanted, collector)
        await self._extractions[source.name].run(payload, endpoint.id, wanted)

    def _failed(self, collector: _Collector, source: PollingSource, reason: str, message: str) -> None:
        if collector.retired:
            return
        self._counts.poll_failed(source.name)
        if self._may_log(collector, source.name):
            where = collector.endpoint.id
            logger.warning("poll_failed endpoint=%s source=%s reason=%s: %s", where, source.name, reason, message)

    def _may_log(self, collector: _Collector, what: str) -> bool:
        now_s = anyio.current_time()
        if now_s - collector.logged_at.get(what, float("-inf")) < _LOG_INTERVAL_S:
            return False
        collector.logged_at[what] = now_s
        return True


def _tell_readers(source: PollingSource, extractors: Sequence[Extractor]) -> None:
    if isinstance(source, ReadsForExtractors):
        source.read_for(extractors)


def _is_wanted(collector: _Collector) -> bool:
    return not collector.retired
