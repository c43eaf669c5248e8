"""Which endpoint sits in which row, and what the store knows of it besides figures.

Pure. Invariants: an endpoint keeps its row for its whole life; the lowest free row is given to the next newcomer.
"""

import heapq
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from hotbay.datalayer.endpoint import Endpoint, EndpointMetadata, Metrics
from hotbay.datalayer.tables.snapshot import EndpointFacts

__all__ = ["Row", "RowTable", "ScrapeStatus"]


@dataclass(frozen=True, slots=True)
class ScrapeStatus:
    """How scraping an endpoint goes; times are monotonic seconds. `lacks` says what the last page had not, or had wrong."""

    scrapes: int = 0
    errors: int = 0
    consecutive_errors: int = 0
    last_success_at: float | None = None
    last_error: str = ""
    lacks: tuple[str, ...] = ()

    def succeeded(self, now: float) -> "ScrapeStatus":
        """Return what it is after another scrape that went well."""
        return ScrapeStatus(self.scrapes + 1, self.errors, 0, now, self.last_error, self.lacks)

    def failed(self, reason: str) -> "ScrapeStatus":
        """Return what it is after another scrape that did not."""
        failures = self.consecutive_errors + 1
        return ScrapeStatus(self.scrapes + 1, self.errors + 1, failures, self.last_success_at, reason, self.lacks)


@dataclass(slots=True, eq=False)
class Row:
    """One endpoint.

    Args:
        number: of the row.
        discovered: the endpoint as discovery knows it; `endpoint.metadata` has the operator's word over it.
        endpoint: what is given out.
        facts: side table of snapshots.
        status: how scraping goes.
        served_health: what requests say of its health, 0 to 1, NaN when they say nothing.
        admits: false while it is ejected.
        put_at: when an attribute was last put by key, monotonic seconds.
        report: what the last page reported, whichever source it came from.
        renewed: names of FRESHNESS_FIELDS that it renews.
    """

    number: int
    discovered: EndpointMetadata
    endpoint: Endpoint
    facts: EndpointFacts = field(default_factory=EndpointFacts)
    status: ScrapeStatus = field(default_factory=ScrapeStatus)
    served_health: float = math.nan
    admits: bool = True
    put_at: dict[str, float] = field(default_factory=dict)
    report: Metrics | None = None
    renewed: frozenset[str] = frozenset()

    def begin_anew(self) -> None:
        """Another server has the id: what the one before said, and what was said of it, is not true of this one."""
        self.facts, self.status, self.report, self.renewed = EndpointFacts(), ScrapeStatus(), None, frozenset()
        self.served_health, self.admits = math.nan, True
        self.put_at.clear()
        self.endpoint.metrics = Metrics()
        self.endpoint.attributes.update(dict.fromkeys(self.endpoint.attributes.keys()))


@dataclass(slots=True)
class RowTable:
    """Rows by number and by id."""

    _rows: list[Row | None] = field(default_factory=list)
    _row_of: dict[str, Row] = field(default_factory=dict)
    _free: list[int] = field(default_factory=list)

    def __len__(self) -> int:
        """Number of rows, free ones included."""
        return len(self._rows)

    def __iter__(self) -> Iterator[Row | None]:
        """All rows by number, None for a free one."""
        return iter(self._rows)

    @property
    def count(self) -> int:
        """Number of endpoints."""
        return len(self._row_of)

    @property
    def free(self) -> list[int]:
        """Numbers of free rows, in no order."""
        return list(self._free)

    @property
    def taken(self) -> list[Row]:
        """The rows of endpoints, by number."""
        return [row for row in self._rows if row is not None]

    def get(self, endpoint_id: str) -> Row | None:
        """The row of an endpoint."""
        return self._row_of.get(endpoint_id)

    def numbers(self) -> Mapping[str, int]:
        """Row numbers by id, as they are now."""
        return MappingProxyType({endpoint_id: row.number for endpoint_id, row in self._row_of.items()})

    def add(self, discovered: EndpointMetadata, endpoint: Endpoint) -> Row:
        """Give a row to an endpoint that has none."""
        if self._free:
            row = Row(heapq.heappop(self._free), discovered, endpoint)
            self._rows[row.number] = row
        else:
            row = Row(len(self._rows), discovered, endpoint)
            self._rows.append(row)
        self._row_of[discovered.id] = row
        return row

    def remove(self, endpoint_id: str) -> Row | None:
        """Free the row of an endpoint, and return what was in it."""
        row = self._row_of.pop(endpoint_id, None)
        if row is not None:
            self._rows[row.number] = None
            heapq.heappush(self._free, row.number)
        return row

    def drop_trailing_free_rows(self) -> None:
        """Make the table as short as it can be without moving anybody."""
        rows = len(self._rows)
        while rows and self._rows[rows - 1] is None:
            rows -= 1
        if rows < len(self._rows):
            del self._rows[rows:]
            self._free = [number for number in self._free if number < rows]
            heapq.heapify(self._free)
