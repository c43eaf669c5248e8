"""The endpoints: metadata, last known metrics and attributes, and the publication of snapshots.

Pure: time is an argument (monotonic seconds) and nothing waits. One caller's thread only, but for the attributes of an
endpoint. Invariants: an endpoint keeps its row for its whole life; a freed row holds unknown values until the lowest
free row is given to the next newcomer; of an endpoint that moves to another address nothing is known, as of one that
comes; a published snapshot is never changed; the operator's word stands over
discovery's, whichever comes first.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from hotbay.datalayer.attributes import AttributeValue
from hotbay.datalayer.endpoint import Delete, Endpoint, EndpointEvent, EndpointMetadata, EndpointState, Metrics, Upsert
from hotbay.datalayer.ledger import Ledger
from hotbay.datalayer.operator_labels import as_labelled
from hotbay.datalayer.operator_words import OperatorWords
from hotbay.datalayer.tables.endpoint_tables import EndpointTables
from hotbay.datalayer.tables.freshness import Freshness
from hotbay.datalayer.tables.rows import Row, ScrapeStatus
from hotbay.datalayer.tables.snapshot import EMPTY_SNAPSHOT, Snapshot

__all__ = ["AGE_RESOLUTION_S", "EndpointStore"]

AGE_RESOLUTION_S: Final = 0.1
"""Ages alone, and what turns stale by them, cause a publication only this often: every epoch costs the
plugins' per-epoch caches."""


class EndpointStore:
    """Owner of all endpoint state. `snapshot` is the last publication; `ledger` counts what is in flight.

    Args:
        freshness: when figures are stale, and what is shown then; may be replaced at any time.
    """

    def __init__(self, freshness: Freshness | None = None) -> None:
        self.ledger = Ledger()
        self.snapshot: Snapshot = EMPTY_SNAPSHOT
        self._freshness = Freshness() if freshness is None else freshness
        self._tables = EndpointTables()
        self._words = OperatorWords()
        self._listeners: list[Callable[[EndpointEvent], None]] = []

    # Endpoints.

    def __len__(self) -> int:
        return self._tables.rows.count

    def __contains__(self, endpoint_id: str) -> bool:
        return self._tables.rows.get(endpoint_id) is not None

    def get(self, endpoint_id: str) -> EndpointMetadata | None:
        """The endpoint as it is now, None when it is gone."""
        row = self._tables.rows.get(endpoint_id)
        return row.endpoint.metadata if row else None

    def look(self, decided: EndpointMetadata) -> EndpointMetadata | None:
        """An endpoint that was decided for as it is now, None when it is gone or cordoned: what is asked before a request
        is sent, because the decision is as old as its snapshot.
        """
        now = self.get(decided.id)
        return now if now is not None and now.state is EndpointState.ACTIVE else None

    def discovered(self, endpoint_id: str) -> EndpointMetadata | None:
        """The endpoint as discovery knows it, without the operator's word; None when it is gone."""
        row = self._tables.rows.get(endpoint_id)
        return row.discovered if row else None

    def endpoint(self, endpoint_id: str) -> Endpoint | None:
        """The live object of an endpoint, the same for its whole life; None when it is gone.

        Its attributes may be put from any thread; metadata and metrics are the store's to change.
        """
        row = self._tables.rows.get(endpoint_id)
        return row.endpoint if row else None

    def endpoints(self) -> tuple[EndpointMetadata, ...]:
        """All endpoints by row."""
        return tuple(row.endpoint.metadata for row in self._tables.rows.taken)

    def subscribe(self, listener: Callable[[EndpointEvent], None]) -> Callable[[], None]:
        """Call `listener` after each change, in order; the function returned ends that."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def upsert(self, endpoint: EndpointMetadata) -> bool:
        """Add an endpoint or replace its metadata; False when nothing differs, and then nothing happens."""
        endpoint = as_labelled(endpoint)
        row = self._tables.rows.get(endpoint.id)
        if row is not None:
            row.discovered = endpoint
            return self._show(row)
        shown = self._words.over(endpoint)
        row = self._tables.add(endpoint, shown)
        self.ledger.bind(shown.id, row.number)
        self._announce(Upsert(shown))
        return True

    def delete(self, endpoint_id: str) -> bool:
        """Remove an endpoint and free its row; False when there is none. The operator's word stays for its return."""
        row = self._tables.remove(endpoint_id)
        if row is None:
            return False
        self.ledger.unbind(endpoint_id)
        self._announce(Delete(row.endpoint.metadata))
        return True

    # What the operator and the health of requests say.

    def override(self, endpoint_id: str, *, state: EndpointState | None, weight: float | None) -> None:
        """Put the operator's word over discovery's, None for none; it is kept for an endpoint that is not there."""
        self._words.say(endpoint_id, state, weight)
        row = self._tables.rows.get(endpoint_id)
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
        row = self._tables.rows.get(endpoint_id)
        if row is None:
            return False
        self._tables.set_availability(row, healthy=healthy, slow_start=slow_start, admits=admits)
        self._judge(row)
        return True

    # What is known about them.

    @property
    def freshness(self) -> Freshness:
        """When figures are stale, and what is shown then."""
        return self._freshness

    @freshness.setter
    def freshness(self, freshness: Freshness) -> None:
        self._freshness = freshness
        for row in self._tables.rows.taken:
            self._judge(row)
        self._tables.age_anew()

    def update_metrics(self, endpoint_id: str, metrics: Metrics, now: float) -> bool:
        """Take over what a page reported; fields that it did not report stay and age. False when the endpoint is gone."""
        row = self._tables.rows.get(endpoint_id)
        if row is None:
            return False
        self._tables.take_report(row, metrics, now)
        status = row.status
        row.status = status.succeeded(now)
        if status.consecutive_errors or status.last_success_at is None:
            self._judge(row)
        return True

    def record_scrape_failure(self, endpoint_id: str, reason: str) -> bool:
        """Count a failed scrape; values stay and age. False when the endpoint is gone."""
        row = self._tables.rows.get(endpoint_id)
        if row is None:
            return False
        row.status = row.status.failed(reason)
        self._judge(row)
        return True

    def record_lacks(self, endpoint_id: str, lacks: tuple[str, ...]) -> None:
        """The endpoint's pages lack this, or have it wrong, until something else is said; () for nothing."""
        row = self._tables.rows.get(endpoint_id)
        if row is not None and row.status.lacks != lacks:
            row.status = replace(row.status, lacks=lacks)

    def scrape_status(self, endpoint_id: str) -> ScrapeStatus | None:
        """How scraping goes, None when the endpoint is gone."""
        row = self._tables.rows.get(endpoint_id)
        return row.status if row else None

    def put_attributes(self, endpoint_id: str, values: Mapping[str, AttributeValue | None], now: float) -> bool:
        """Keep all of `values` in one step; None removes a key. False when the endpoint is gone.

        Raises:
            AttributeRefusedError: one of them may not be kept; nothing has changed.
        """
        row = self._tables.rows.get(endpoint_id)
        if row is None:
            return False
        self._tables.put_attributes(row, values, now)
        return True

    def declare_attributes(self, columns: Mapping[str, str]) -> None:
        """Have exactly these attributes as columns `attribute.NAME`, name -> `f32` or `i64`, from the next snapshot on.

        Raises:
            ValueError: a name that no attribute can have, or another format; nothing has changed.
        """
        self._tables.declare_attributes(columns)

    # Publication.

    def publish(self, now: float) -> Snapshot:
        """Publish a new snapshot if anything changed or ages moved by AGE_RESOLUTION_S; return the current one."""
        aged = self._tables.rows.count > 0 and now - self.snapshot.at >= AGE_RESOLUTION_S
        if self._tables.has_news() or self.ledger.changed or aged:
            self.snapshot = self._tables.next_snapshot(self.snapshot, self.ledger, now, self._freshness)
            self.ledger.changed = False
        return self.snapshot

    def _show(self, row: Row) -> bool:
        """Make the row's endpoint what discovery and the operator say; false when it is that already."""
        shown = self._words.over(row.discovered)
        if row.endpoint.metadata == shown:
            return False
        self._tables.show(row, shown)
        self._announce(Upsert(shown))
        return True

    def _judge(self, row: Row) -> None:
        self._tables.judge(row, self._freshness.failures)

    def _announce(self, event: EndpointEvent) -> None:
        for listener in tuple(self._listeners):
            listener(event)
