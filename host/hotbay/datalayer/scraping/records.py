"""What becomes of pages and failures in the host: the store, the totals and the log, wherever pages were fetched.

A failed question leaves values as they were, to age. An endpoint that fails at the rate of scraping writes few lines,
and what its pages lack is written once, and told to the store. Of many endpoints at once the first MOST_LINES in a second are
written, and one summary of the others once that second is over and something is heard. What a page said is stored in any case, whatever it lacks. Not thread-safe.
"""

import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from hotbay.datalayer.attributes import AttributeValue
from hotbay.datalayer.endpoint import EndpointMetadata, Metrics
from hotbay.datalayer.pages.engines import EngineSet
from hotbay.datalayer.pages.extraction import MetricsPage

__all__ = ["MOST_LINES", "ScrapeCounts", "ScrapeRecords", "ScrapedStore", "log_widened"]

logger = logging.getLogger(__name__)

_LOG_INTERVAL_S: Final = 10.0
"""Six lines a minute of one endpoint and one for its end."""

MOST_LINES: Final = 20
"""Lines of one kind in WINDOW_S, over all endpoints: a discovery may name thousands that are all wrong for one reason."""
WINDOW_S: Final = 1.0


class ScrapedStore(Protocol):
    """What is told to a store."""

    def update_metrics(self, endpoint_id: str, metrics: Metrics, now: float) -> bool: ...

    def record_scrape_failure(self, endpoint_id: str, reason: str) -> bool: ...

    def put_attributes(self, endpoint_id: str, values: Mapping[str, AttributeValue | None], now: float) -> bool: ...

    def record_lacks(self, endpoint_id: str, lacks: tuple[str, ...]) -> None: ...


@dataclass(slots=True)
class ScrapeCounts:
    """Totals over all endpoints; `errors` by reason. `incomplete` are pages that lack a field or have a wrong one."""

    scrapes: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    incomplete: int = 0
    bad_lines: int = 0
    duplicates: int = 0
    connects: int = 0


@dataclass(slots=True)
class _Told:
    """What the log knows of one endpoint."""

    failing: bool = False
    reported: frozenset[str] = frozenset()
    lacks: bool = False
    logged_at: float = float("-inf")
    page: MetricsPage | None = None


@dataclass(slots=True)
class _Lines:
    """Lines of one kind: those of a window over MOST_LINES are counted by reason, and told together after it."""

    event: str
    level: int = logging.WARNING
    began_s: float = float("-inf")
    count: int = 0
    held: Counter[str] = field(default_factory=Counter)

    def may(self, reason: str, now: float) -> bool:
        """Whether one may be written now, `now` being monotonic seconds; it is counted if not."""
        self.tell(now)
        if now - self.began_s >= WINDOW_S:
            self.began_s, self.count = now, 0
        self.count += 1
        if self.count > MOST_LINES:
            self.held[reason] += 1
        return self.count <= MOST_LINES

    def tell(self, now: float) -> None:
        """Write what was held back if its window is over."""
        if self.held and now - self.began_s >= WINDOW_S:
            reasons = ",".join(f"{reason}:{count}" for reason, count in self.held.most_common())
            logger.log(self.level, "%s_more count=%d reasons=%s", self.event, self.held.total(), reasons)
            self.held.clear()


class ScrapeRecords:
    """A `Sink`.

    Args:
        store: is told values and failures.
        engines: for the names of what a page lacks.
        where: an endpoint's `host:port`, for the log.
        clock: monotonic seconds.
        on_page: told each page after it was stored, for other extractors; must not wait.
    """

    def __init__(
        self,
        store: ScrapedStore,
        engines: EngineSet,
        where: Callable[[EndpointMetadata], str],
        *,
        clock: Callable[[], float] = time.monotonic,
        on_page: Callable[[EndpointMetadata, MetricsPage], None] = lambda _endpoint, _page: None,
    ) -> None:
        self.counts = ScrapeCounts()
        self._store = store
        self._engines = engines
        self._where = where
        self._clock = clock
        self._on_page = on_page
        self._told: dict[str, _Told] = {}
        self._failed = _Lines("scrape_failed")
        self._incomplete = _Lines("scrape_incomplete")
        self._recovered = _Lines("scrape_recovered", logging.INFO)

    def arrived(self, endpoint: EndpointMetadata, page: MetricsPage, at: float | None = None) -> None:
        """A page came, `at` monotonic seconds or now."""
        counts = self.counts
        counts.scrapes += 1
        counts.bad_lines += page.bad_lines
        counts.duplicates += page.duplicates
        counts.incomplete += bool(page.missing or page.invalid)
        at = self._clock() if at is None else at
        self._tell_held()
        if self._store.update_metrics(endpoint.id, page.metrics, at):
            if page.attributes:
                self._store.put_attributes(endpoint.id, page.attributes, at)
            self._report(endpoint, page)
            self._on_page(endpoint, page)

    def failed(self, endpoint: EndpointMetadata, reason: str, message: str) -> None:
        """No page came."""
        self.counts.scrapes += 1
        self.counts.errors[reason] += 1
        self._tell_held()
        if not self._store.record_scrape_failure(endpoint.id, message):
            return
        told = self._told_of(endpoint)
        if self._may_log(told) and self._failed.may(reason, self._clock()):
            logger.warning(
                "scrape_failed endpoint=%s from=%s reason=%s: %s", endpoint.id, self._where(endpoint), reason, message
            )
        told.failing = True

    def superseded(self, reason: str, count: int) -> None:
        """So many outcomes are too old to tell more of: pages, or failures where there is a reason."""
        self.counts.scrapes += count
        if reason:
            self.counts.errors[reason] += count

    def forget(self, endpoint_id: str) -> None:
        """The endpoint is gone: what the log was told of it does not matter to its successor."""
        self._tell_held()
        self._told.pop(endpoint_id, None)

    def _told_of(self, endpoint: EndpointMetadata) -> _Told:
        return self._told.setdefault(endpoint.id, _Told())

    def _report(self, endpoint: EndpointMetadata, page: MetricsPage) -> None:
        told = self._told_of(endpoint)
        if told.failing and self._may_log(told) and self._recovered.may("answered", self._clock()):
            logger.info("scrape_recovered endpoint=%s", endpoint.id)
        told.failing = False
        if page is told.page:
            return
        told.page = page
        wrong = frozenset(f"missing {self._engines.metric(page.engine, name)}" for name in page.missing)
        wrong |= frozenset(f"invalid {self._engines.metric(page.engine, name)}" for name in page.invalid)
        if wrong or told.lacks:
            # Again each time: of an endpoint that moved the store has forgotten it.
            told.lacks = bool(wrong)
            self._store.record_lacks(endpoint.id, tuple(sorted(wrong)))
        if not wrong <= told.reported:
            if self._incomplete.may(page.engine, self._clock()):
                logger.warning(
                    "scrape_incomplete endpoint=%s engine=%s: %s",
                    endpoint.id,
                    page.metrics.engine,
                    ", ".join(sorted(wrong - told.reported)),
                )
            told.reported |= wrong

    def _tell_held(self) -> None:
        # The clock is read only where there is something to tell.
        for lines in (self._failed, self._incomplete, self._recovered):
            if lines.held:
                lines.tell(self._clock())

    def _may_log(self, told: _Told) -> bool:
        now = self._clock()
        if now - told.logged_at < _LOG_INTERVAL_S:
            return False
        told.logged_at = now
        return True


def log_widened(interval_s: float, factor: float) -> None:
    """One line for each change of the interval that pressure makes."""
    if factor > 1.0:
        logger.warning(
            "scrape_interval_widened interval_s=%.3g asked_s=%g: the loop has no time for more", interval_s * factor,
            interval_s,
        )  # fmt: skip
    else:
        logger.info("scrape_interval_restored interval_s=%g", interval_s)
