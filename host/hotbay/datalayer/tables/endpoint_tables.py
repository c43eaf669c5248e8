"""Rows, figures and attributes of all endpoints together, and what of them the next snapshot has to show anew.

Pure; one caller's thread, but for the attributes of an endpoint. Invariants: an endpoint has its row in every table or in
none; a freed row holds unknown values until the next newcomer takes it; whatever changes what a snapshot shows is noted
here, in the step in which it changes.
"""

import math
from collections.abc import Mapping

from hotbay.datalayer.attributes import AttributeValue, CheckedAttributes
from hotbay.datalayer.endpoint import Endpoint, EndpointMetadata, Metrics
from hotbay.datalayer.ledger import Ledger
from hotbay.datalayer.tables.attribute_columns import AttributeColumns
from hotbay.datalayer.tables.figures import HEALTHY, SLOW_START, WEIGHT, endpoint_columns, take_report
from hotbay.datalayer.tables.freshness import Freshness, healthiness, scraped_health
from hotbay.datalayer.tables.publication import Part, Parts, next_snapshot
from hotbay.datalayer.tables.rows import Row, RowTable
from hotbay.datalayer.tables.snapshot import Snapshot

__all__ = ["EndpointTables"]


class EndpointTables:
    """See the module. `rows` is to be read alone."""

    def __init__(self) -> None:
        self.rows = RowTable()
        self._figures = endpoint_columns()
        self._attributes = AttributeColumns()
        self._changed: set[Part] = set()

    # Rows.

    def add(self, discovered: EndpointMetadata, shown: EndpointMetadata) -> Row:
        """Give a row to an endpoint that has none; nothing is known of it."""
        row = self.rows.add(discovered, Endpoint(shown, attributes=self._attributes.attributes_of(shown.id)))
        self._figures.reserve(len(self.rows))
        self._attributes.reserve(len(self.rows))
        self._figures.write(WEIGHT, row.number, shown.weight)
        self._figures.write(SLOW_START, row.number, 1.0)
        self._changed.update(("members", "live", "facts", "figures"))
        return row

    def remove(self, endpoint_id: str) -> Row | None:
        """Free the row of an endpoint, and return what was in it; None when it has none."""
        row = self.rows.remove(endpoint_id)
        if row is not None:
            self._forget_columns(row)
            self._changed.update(("members", "live", "facts", "figures"))
        return row

    def show(self, row: Row, shown: EndpointMetadata) -> None:
        """The endpoint's metadata are these now; of one that is reached elsewhere nothing is known any more."""
        before, row.endpoint.metadata = row.endpoint.metadata, shown
        if before.reached_at != shown.reached_at:
            row.begin_anew()
            self._forget_columns(row)
            self._write(SLOW_START, row, 1.0)
            self._changed.update(("facts", "figures"))
        self._write(WEIGHT, row, shown.weight)
        self._changed.update(("members", "live"))

    def _forget_columns(self, row: Row) -> None:
        self._figures.forget(row.number)
        self._attributes.forget(row.number)

    # What is known.

    def take_report(self, row: Row, report: Metrics, now: float) -> None:
        """Take over what a page reported."""
        figures, facts = take_report(self._figures, row, report, now)
        if figures:
            self._changed.add("figures")
        if facts:
            self._changed.add("facts")

    def judge(self, row: Row, failures: int) -> None:
        """Show how healthy the endpoint is, by what scrapes and requests said; so many failed scrapes make it unhealthy."""
        status = row.status
        scraped = scraped_health(
            has_succeeded=status.last_success_at is not None,
            consecutive_errors=status.consecutive_errors,
            failures=failures,
        )
        self._write(HEALTHY, row, healthiness(scraped, row.served_health))

    def set_availability(self, row: Row, *, healthy: float, slow_start: float, admits: bool) -> None:
        """Take over what requests say, each from 0 to 1, or NaN for `healthy`; `judge` shows the first."""
        assert math.isnan(healthy) or 0.0 <= healthy <= 1.0, healthy
        assert 0.0 <= slow_start <= 1.0, slow_start
        row.served_health = healthy
        self._write(SLOW_START, row, slow_start)
        if row.admits != admits:
            row.admits = admits
            self._changed.add("live")

    def age_anew(self) -> None:
        """Figures count for another time than before."""
        self._changed.add("figures")

    def put_attributes(self, row: Row, values: Mapping[str, AttributeValue | None], now: float) -> None:
        """Keep all of `values` in one step; None removes a key. Raises AttributeRefusedError; then nothing has changed."""
        checked = CheckedAttributes(values)
        row.endpoint.attributes.update(checked)
        if self._attributes.renewed(row, checked.given, now):
            self._changed.add("figures")

    def declare_attributes(self, columns: Mapping[str, str]) -> None:
        """Have exactly these attributes as columns. Raises ValueError; then nothing has changed."""
        if self._attributes.declare(columns, self.rows):
            self._changed.add("figures")

    def _write(self, column: str, row: Row, value: float) -> None:
        if self._figures.write(column, row.number, value):
            self._changed.add("figures")

    # Publication.

    def has_news(self) -> bool:
        """Whether a snapshot would show anything new besides ages and what is in flight."""
        if self._attributes.take_news(self.rows):
            self._changed.add("figures")
        return bool(self._changed)

    def next_snapshot(self, last: Snapshot, ledger: Ledger, now: float, freshness: Freshness) -> Snapshot:
        """Return the snapshot that follows `last`, after `has_news` was asked."""
        self.rows.drop_trailing_free_rows()
        figures = self._figures.freeze(len(self.rows), now, freshness)
        attributes = self._attributes.freeze(self.rows, now, freshness)
        parts = Parts(self.rows, figures, attributes, ledger, frozenset(self._changed))
        snapshot = next_snapshot(last, parts, now)
        self._changed.clear()
        return snapshot
