"""The endpoints: metadata, last known metrics and attributes, and the publication of snapshots.

Pure: time is an argument (monotonic seconds) and nothing waits. One caller's thread only, but for the attributes of an
endpoint. Invariants: an endpoint keeps its row for its whole life; a freed row holds unknown values until the lowest
free row is given to the next newcomer; of an endpoint that moves to another address nothing is known, as of one that
comes; a published snapshot is never changed; the operator's word stands over
discovery's, whichever comes first.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from hotbay.datalayer.attributes import AttributeValue
from hotbay.datalayer.endpoint import Delete, Endpoint, EndpointEvent, EndpointMetadata, EndpointState, Metrics, Upsert
from hotbay.datalayer.ledger import Ledger
from hotbay.datalayer.operator_labels import as_labelled
from hotbay.datalayer.tables.attribute_columns import AttributeColumns
from hotbay.datalayer.tables.figures import HEALTHY, SLOW_START, WEIGHT, endpoint_columns, take_report
from hotbay.datalayer.tables.freshness import Freshness, healthiness, scraped_health
from hotbay.datalayer.tables.publication import Part, Parts, next_snapshot
from hotbay.datalayer.tables.rows import Row, RowTable, ScrapeStatus
from hotbay.datalayer.tables.snapshot import EMPTY_SNAPSHOT, EndpointFacts, Snapshot

__all__ = ["AGE_RESOLUTION_S", "EndpointStore"]

AGE_RESOLUTION_S: Final = 0.1
"""Ages alone, and what turns stale by them, cause a publication only this often: every epoch costs the
plugins' per-epoch caches."""


@dataclass(frozen=True, slots=True)
class _Override:
    state: EndpointState | None
    weight: float | None


class EndpointStore:
    """Owner of all endpoint state. `snapshot` is the last publication; `ledger` counts what is in flight.

    Args:
        freshness: when figures are stale, and what is shown then; may be replaced at any time.
    """

    def __init__(self, freshness: Freshness | None = None) -> None:
        self.ledger = Ledger()
        self.snapshot: Snapshot = EMPTY_SNAPSHOT
        self._freshness = Freshness() if freshness is None else freshness
        self._table = RowTable()
        self._columns = endpoint_columns()
        self._attributes = AttributeColumns()
        self._overrides: dict[str, _Override] = {}
        self._listeners: list[Callable[[EndpointEvent], None]] = []
        self._changed: set[Part] = set()

    # Endpoints.

    def __len__(self) -> int:
        return self._table.count

    def __contains__(self, endpoint_id: str) -> bool:
        return self._table.get(endpoint_id) is not None

    def get(self, endpoint_id: str) -> EndpointMetadata | None:
        """The endpoint as it is now, None when it is gone."""
        row = self._table.get(endpoint_id)
        return row.endpoint.metadata if row else None

    def look(self, decided: EndpointMetadata) -> EndpointMetadata | None:
        """An endpoint that was decided for as it is now, None when it is gone or cordoned: what is asked before a request
        is sent, because the decision is as old as its snapshot.
        """
        now = self.get(decided.id)
        return now if now is not None and now.state is EndpointState.ACTIVE else None

    def discovered(self, endpoint_id: str) -> EndpointMetadata | None:
        """The endpoint as discovery knows it, without the operator's word; None when it is gone."""
        row = self._table.get(endpoint_id)
        return row.discovered if row else None

    def endpoint(self, endpoint_id: str) -> Endpoint | None:
        """The live object of an endpoint, the same for its whole life; None when it is gone.

        Its attributes may be put from any thread; metadata and metrics are the store's to change.
        """
        row = self._table.get(endpoint_id)
        return row.endpoint if row else None

    def endpoints(self) -> tuple[EndpointMetadata, ...]:
        """All endpoints by row."""
        return tuple(row.endpoint.metadata for row in self._table.taken)

    def subscribe(self, listener: Callable[[EndpointEvent], None]) -> Callable[[], None]:
        """Call `listener` after each change, in order; the function returned ends that."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def upsert(self, endpoint: EndpointMetadata) -> bool:
        """Add an endpoint or replace its metadata; False when nothing differs, and then nothing happens."""
        endpoint = as_labelled(endpoint)
        row = self._table.get(endpoint.id)
        if row is None:
            self._add(endpoint)
            return True
        row.discovered = endpoint
        return self._show(row)

    def delete(self, endpoint_id: str) -> bool:
        """Remove an endpoint and free its row; False when there is none. The operator's word stays for its return."""
        row = self._table.remove(endpoint_id)
        if row is None:
            return False
        self._columns.forget(row.number)
        self._attributes.forget(row.number)
        self.ledger.unbind(endpoint_id)
        self._changed.update(("members", "live", "facts", "figures"))
        self._announce(Delete(row.endpoint.metadata))
        return True

    def reconcile(self, wanted: Iterable[EndpointMetadata]) -> tuple[EndpointEvent, ...]:
        """Make the store hold exactly `wanted` and return what changed: upserts first, then deletes.

        That order keeps a pool whose members are all replaced from being empty in between.
        """
        events: list[EndpointEvent] = []
        kept: set[str] = set()
        unsubscribe = self.subscribe(events.append)
        try:
            for endpoint in wanted:
                kept.add(endpoint.id)
                self.upsert(endpoint)
            for endpoint in self.endpoints():
                if endpoint.id not in kept:
                    self.delete(endpoint.id)
        finally:
            unsubscribe()
        return tuple(events)

    # What the operator and the health of requests say.

    def override(self, endpoint_id: str, *, state: EndpointState | None, weight: float | None) -> None:
        """Put the operator's word over discovery's, None for none; it is kept for an endpoint that is not there."""
        if state is None and weight is None:
            self._overrides.pop(endpoint_id, None)
        else:
            self._overrides[endpoint_id] = _Override(state, weight)
        row = self._table.get(endpoint_id)
        if row is not None:
            self._show(row)

    def set_availability(self, endpoint_id: str, *, healthy: float, slow_start: float, admits: bool) -> bool:
        """Take over what serving requests says of an endpoint. False when it is gone.

        Args:
            endpoint_id: whose.
            healthy: 0 to 1, NaN for not known; `endpoint.healthy` is the worse of this and what scraping says.
            slow_start: share of its load that it may have now, 0 to 1.
            admits: false takes it out of the rows that may be picked.
        """
        row = self._table.get(endpoint_id)
        if row is None:
            return False
        assert math.isnan(healthy) or 0.0 <= healthy <= 1.0, healthy
        assert 0.0 <= slow_start <= 1.0, slow_start
        row.served_health = healthy
        self._judge(row)
        self._write(SLOW_START, row, slow_start)
        if row.admits != admits:
            row.admits = admits
            self._changed.add("live")
        return True

    # What is known about them.

    @property
    def freshness(self) -> Freshness:
        """When figures are stale, and what is shown then."""
        return self._freshness

    @freshness.setter
    def freshness(self, freshness: Freshness) -> None:
        self._freshness = freshness
        for row in self._table.taken:
            self._judge(row)
        self._changed.add("figures")

    def update_metrics(self, endpoint_id: str, metrics: Metrics, now: float) -> bool:
        """Take over what a page reported; fields that it did not report stay and age. False when the endpoint is gone."""
        row = self._table.get(endpoint_id)
        if row is None:
            return False
        figures, facts = take_report(self._columns, row, metrics, now)
        if figures:
            self._changed.add("figures")
        if facts:
            self._changed.add("facts")
        status = row.status
        row.status = status.succeeded(now)
        if status.consecutive_errors or status.last_success_at is None:
            self._judge(row)
        return True

    def record_scrape_failure(self, endpoint_id: str, reason: str) -> bool:
        """Count a failed scrape; values stay and age. False when the endpoint is gone."""
        row = self._table.get(endpoint_id)
        if row is None:
            return False
        row.status = row.status.failed(reason)
        self._judge(row)
        return True

    def record_lacks(self, endpoint_id: str, lacks: tuple[str, ...]) -> None:
        """The endpoint's pages lack this, or have it wrong, until something else is said; () for nothing."""
        row = self._table.get(endpoint_id)
        if row is not None and row.status.lacks != lacks:
            row.status = replace(row.status, lacks=lacks)

    def scrape_status(self, endpoint_id: str) -> ScrapeStatus | None:
        """How scraping goes, None when the endpoint is gone."""
        row = self._table.get(endpoint_id)
        return row.status if row else None

    def put_attributes(self, endpoint_id: str, values: Mapping[str, AttributeValue | None], now: float) -> bool:
        """Keep all of `values` in one step; None removes a key. False when the endpoint is gone.

        Raises:
            AttributeRefusedError: one of them may not be kept; nothing has changed.
        """
        row = self._table.get(endpoint_id)
        if row is None:
            return False
        row.endpoint.attributes.update(values)
        if self._attributes.renewed(row, (name for name, value in values.items() if value is not None), now):
            self._changed.add("figures")
        return True

    def declare_attributes(self, columns: Mapping[str, str]) -> None:
        """Have exactly these attributes as columns `attribute.NAME`, name -> `f32` or `i64`, from the next snapshot on.

        Raises:
            ValueError: a name that no attribute can have, or another format; nothing has changed.
        """
        if self._attributes.declare(columns, self._table):
            self._changed.add("figures")

    # Publication.

    def publish(self, now: float) -> Snapshot:
        """Publish a new snapshot if anything changed or ages moved by AGE_RESOLUTION_S; return the current one."""
        if self._attributes.take_news(self._table):
            self._changed.add("figures")
        aged = self._table.count > 0 and now - self.snapshot.at >= AGE_RESOLUTION_S
        if not (self._changed or self.ledger.changed or aged):
            return self.snapshot
        self._table.drop_trailing_free_rows()
        figures = self._columns.freeze(len(self._table), now, self._freshness)
        attributes = self._attributes.freeze(self._table, now, self._freshness)
        parts = Parts(self._table, figures, attributes, self.ledger, frozenset(self._changed))
        self.snapshot = next_snapshot(self.snapshot, parts, now)
        self._changed.clear()
        self.ledger.changed = False
        return self.snapshot

    # Rows.

    def _add(self, discovered: EndpointMetadata) -> None:
        shown = self._overridden(discovered)
        row = self._table.add(discovered, Endpoint(shown, attributes=self._attributes.attributes_of(shown.id)))
        self._columns.reserve(len(self._table))
        self._attributes.reserve(len(self._table))
        self._columns.write(WEIGHT, row.number, shown.weight)
        self._columns.write(SLOW_START, row.number, 1.0)
        self.ledger.bind(shown.id, row.number)
        self._changed.update(("members", "live", "facts", "figures"))
        self._announce(Upsert(shown))

    def _show(self, row: Row) -> bool:
        """Make the row's endpoint what discovery and the operator say; false when it is that already."""
        shown = self._overridden(row.discovered)
        before = row.endpoint.metadata
        if before == shown:
            return False
        row.endpoint.metadata = shown
        if before.reached_at != shown.reached_at:
            self._forget(row)
        self._write(WEIGHT, row, shown.weight)
        self._changed.update(("members", "live"))
        self._announce(Upsert(shown))
        return True

    def _forget(self, row: Row) -> None:
        """Another server has the id: what the one before said, and what was said of it, is not true of this one."""
        row.facts, row.status, row.report, row.renewed = EndpointFacts(), ScrapeStatus(), None, frozenset()
        row.served_health, row.admits = math.nan, True
        row.put_at.clear()
        row.endpoint.metrics = Metrics()
        row.endpoint.attributes.update(dict.fromkeys(row.endpoint.attributes.keys()))
        self._columns.forget(row.number)
        self._attributes.forget(row.number)
        self._write(SLOW_START, row, 1.0)
        self._changed.update(("facts", "figures"))

    def _overridden(self, discovered: EndpointMetadata) -> EndpointMetadata:
        word = self._overrides.get(discovered.id)
        if word is None:
            return discovered
        return replace(
            discovered,
            state=discovered.state if word.state is None else word.state,
            weight=discovered.weight if word.weight is None else word.weight,
        )

    def _judge(self, row: Row) -> None:
        status = row.status
        scraped = scraped_health(
            has_succeeded=status.last_success_at is not None,
            consecutive_errors=status.consecutive_errors,
            failures=self._freshness.failures,
        )
        self._write(HEALTHY, row, healthiness(scraped, row.served_health))

    def _write(self, column: str, row: Row, value: float) -> None:
        if self._columns.write(column, row.number, value):
            self._changed.add("figures")

    def _announce(self, event: EndpointEvent) -> None:
        for listener in tuple(self._listeners):
            listener(event)
