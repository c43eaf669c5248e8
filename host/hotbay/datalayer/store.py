"""The endpoints, row by row: metadata, last known metrics with a time per field, and the publication of snapshots.

Pure: time is an argument (monotonic seconds) and nothing waits. One caller's thread only. Invariants: an endpoint
keeps its row for its whole life; a freed row holds unknown values until the lowest free row is given to the next
newcomer; a published snapshot is never changed.
"""

import heapq
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final, TypeVar

import numpy as np
import numpy.typing as npt

from hotbay.datalayer.endpoint import Delete, EndpointEvent, EndpointMetadata, EndpointState, Metrics, Upsert
from hotbay.datalayer.ledger import Ledger
from hotbay.datalayer.snapshot import EMPTY_SNAPSHOT, Column, EndpointFacts, Snapshot

__all__ = ["AGE_RESOLUTION_S", "EndpointStore", "ScrapeStatus"]

AGE_RESOLUTION_S: Final = 0.1
"""Ages alone cause a publication only this often: every epoch costs the plugins' per-epoch caches."""

_FLOATS: Final = ("waiting", "running", "kv_usage", "max_active_models")
_INTEGERS: Final = ("kv_capacity_tokens", "block_size", "num_blocks")
_AGED: Final = ("waiting", "running", "kv_usage", "lora")
_FIRST_ROWS: Final = 16

_Scalar = TypeVar("_Scalar", bound=np.generic)


@dataclass(frozen=True, slots=True)
class ScrapeStatus:
    """How scraping an endpoint goes; times are monotonic seconds."""

    scrapes: int = 0
    errors: int = 0
    consecutive_errors: int = 0
    last_success_at: float | None = None
    last_error: str = ""


@dataclass(slots=True)
class _Row:
    endpoint: EndpointMetadata
    facts: EndpointFacts
    status: ScrapeStatus


class EndpointStore:
    """Owner of all endpoint state. `snapshot` is the last publication; `ledger` counts what is in flight."""

    def __init__(self) -> None:
        self.ledger = Ledger()
        self.snapshot: Snapshot = EMPTY_SNAPSHOT
        self._rows: list[_Row | None] = []
        self._row_of: dict[str, int] = {}
        self._free: list[int] = []
        self._listeners: list[Callable[[EndpointEvent], None]] = []
        self._floats = {name: np.full(_FIRST_ROWS, np.nan, np.float32) for name in (*_FLOATS, "healthy")}
        self._integers = {name: np.full(_FIRST_ROWS, -1, np.int64) for name in _INTEGERS}
        self._updated_at = {name: np.full(_FIRST_ROWS, np.nan, np.float64) for name in _AGED}
        self._metadata_changed = False
        self._metrics_changed = False

    # Endpoints.

    def __len__(self) -> int:
        return len(self._row_of)

    def __contains__(self, endpoint_id: str) -> bool:
        return endpoint_id in self._row_of

    def get(self, endpoint_id: str) -> EndpointMetadata | None:
        """The endpoint as it is now, None when it is gone: what a dispatcher asks before it connects."""
        row = self._row(endpoint_id)
        return row.endpoint if row else None

    def endpoints(self) -> tuple[EndpointMetadata, ...]:
        """All endpoints by row."""
        return tuple(row.endpoint for row in self._rows if row)

    def subscribe(self, listener: Callable[[EndpointEvent], None]) -> Callable[[], None]:
        """Call `listener` after each change, in order; the function returned ends that."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def upsert(self, endpoint: EndpointMetadata) -> bool:
        """Add an endpoint or replace its metadata; False when nothing differs, and then nothing happens."""
        number = self._row_of.get(endpoint.id)
        if number is None:
            self._add(endpoint)
        else:
            row = self._rows[number]
            assert row is not None
            if row.endpoint == endpoint:
                return False
            row.endpoint = endpoint
        self._metadata_changed = True
        self._announce(Upsert(endpoint))
        return True

    def delete(self, endpoint_id: str) -> bool:
        """Remove an endpoint and free its row; False when there is none."""
        number = self._row_of.pop(endpoint_id, None)
        if number is None:
            return False
        row = self._rows[number]
        assert row is not None
        self._rows[number] = None
        self._forget(number)
        heapq.heappush(self._free, number)
        self.ledger.unbind(endpoint_id)
        self._metadata_changed = self._metrics_changed = True
        self._announce(Delete(row.endpoint))
        return True

    def reconcile(self, wanted: Iterable[EndpointMetadata]) -> tuple[EndpointEvent, ...]:
        """Make the store hold exactly `wanted` and return what changed: upserts first, then deletes.

        That order keeps a pool whose members are all replaced from being empty in between.
        """
        events: list[EndpointEvent] = []
        kept: set[str] = set()
        for endpoint in wanted:
            kept.add(endpoint.id)
            if self.upsert(endpoint):
                events.append(Upsert(endpoint))
        for endpoint in self.endpoints():
            if endpoint.id not in kept:
                self.delete(endpoint.id)
                events.append(Delete(endpoint))
        return tuple(events)

    # What is known about them.

    def update_metrics(self, endpoint_id: str, metrics: Metrics, now: float) -> bool:
        """Take over what a page reported; fields that it did not report stay and age. False when the endpoint is gone."""
        number = self._row_of.get(endpoint_id)
        if number is None:
            return False
        row = self._rows[number]
        assert row is not None
        for name in _FLOATS:
            value = getattr(metrics, name)
            if value is not None:
                self._floats[name][number] = value
        for name in _INTEGERS:
            value = getattr(metrics, name)
            if value is not None:
                self._integers[name][number] = value
        for name in _AGED:
            if (metrics.active_models if name == "lora" else getattr(metrics, name)) is not None:
                self._updated_at[name][number] = now
        row.facts = _merged(row.facts, metrics)
        status = row.status
        row.status = replace(status, scrapes=status.scrapes + 1, consecutive_errors=0, last_success_at=now)
        self._metrics_changed = True
        return True

    def record_scrape_failure(self, endpoint_id: str, reason: str) -> bool:
        """Count a failed scrape; values stay and age. False when the endpoint is gone."""
        row = self._row(endpoint_id)
        if row is None:
            return False
        status = row.status
        row.status = replace(
            status,
            scrapes=status.scrapes + 1,
            errors=status.errors + 1,
            consecutive_errors=status.consecutive_errors + 1,
            last_error=reason,
        )
        return True

    def scrape_status(self, endpoint_id: str) -> ScrapeStatus | None:
        """How scraping goes, None when the endpoint is gone."""
        row = self._row(endpoint_id)
        return row.status if row else None

    # Publication.

    def publish(self, now: float) -> Snapshot:
        """Publish a new snapshot if anything changed or ages moved by AGE_RESOLUTION_S; return the current one."""
        last = self.snapshot
        aged = bool(self._row_of) and now - last.at >= AGE_RESOLUTION_S
        if not (self._metadata_changed or self._metrics_changed or self.ledger.changed or aged):
            return last
        resized = self._metadata_changed or last is EMPTY_SNAPSHOT
        self._drop_trailing_free_rows()
        rows = len(self._rows)
        columns: dict[str, Column] = dict(last.columns)
        if resized:
            columns.update(self._weight_columns())
        if resized or self._metrics_changed:
            columns.update(self._metric_columns(rows))
        if resized or self.ledger.changed:
            columns.update(self._ledger_columns())
        columns.update(self._age_columns(rows, now))
        self.snapshot = self._freeze(columns, now)
        self._metadata_changed = self._metrics_changed = self.ledger.changed = False
        return self.snapshot

    def _freeze(self, columns: dict[str, Column], now: float) -> Snapshot:
        last = self.snapshot
        for column in columns.values():
            column.flags.writeable = False
        kept_bytes = {name: packed for name, packed in last.bytes_cache.items() if columns[name] is last.columns[name]}
        facts = tuple(row.facts if row else None for row in self._rows) if self._metrics_changed else last.facts
        if not self._metadata_changed:
            return replace(
                last,
                epoch=last.epoch + 1,
                at=now,
                facts=facts,
                columns=MappingProxyType(columns),
                bytes_cache=kept_bytes,
            )
        ids = tuple(row.endpoint.id if row else "" for row in self._rows)
        live = np.array(
            [row is not None and row.endpoint.state is EndpointState.ACTIVE for row in self._rows], np.bool_
        )
        live.flags.writeable = False
        return Snapshot(
            epoch=last.epoch + 1,
            membership=last.membership + (ids != last.ids),
            rows=len(ids),
            at=now,
            ids=ids,
            row_of=MappingProxyType(dict(self._row_of)),
            endpoints=tuple(row.endpoint if row else None for row in self._rows),
            facts=tuple(row.facts if row else None for row in self._rows),
            live=live,
            columns=MappingProxyType(columns),
            bytes_cache=kept_bytes,
        )

    def _metric_columns(self, rows: int) -> dict[str, Column]:
        columns: dict[str, Column] = {f"endpoint.{name}": array[:rows].copy() for name, array in self._floats.items()}
        columns.update({f"endpoint.{name}": array[:rows].copy() for name, array in self._integers.items()})
        return columns

    def _age_columns(self, rows: int, now: float) -> dict[str, Column]:
        return {
            f"endpoint.age_{name}": np.maximum(now - updated_at[:rows], 0.0).astype(np.float32)
            for name, updated_at in self._updated_at.items()
        }

    def _weight_columns(self) -> dict[str, Column]:
        weights = np.array([row.endpoint.weight if row else np.nan for row in self._rows], np.float32)
        # Nothing ramps an endpoint up yet: whoever is there has its full share.
        ramped = np.array([1.0 if row else np.nan for row in self._rows], np.float32)
        return {"endpoint.weight": weights, "endpoint.slow_start": ramped}

    def _ledger_columns(self) -> dict[str, Column]:
        requests = np.zeros(len(self._rows), np.float32)
        tokens = np.zeros(len(self._rows), np.int64)
        for number, row in enumerate(self._rows):
            if row is None:
                requests[number], tokens[number] = np.nan, -1
            elif entry := self.ledger.entry(row.endpoint.id):
                requests[number], tokens[number] = entry.requests, entry.known_tokens
        return {"endpoint.in_flight": requests, "endpoint.in_flight_tokens": tokens}

    # Rows.

    def _row(self, endpoint_id: str) -> _Row | None:
        number = self._row_of.get(endpoint_id)
        return None if number is None else self._rows[number]

    def _add(self, endpoint: EndpointMetadata) -> None:
        row = _Row(endpoint, EndpointFacts(), ScrapeStatus())
        if self._free:
            number = heapq.heappop(self._free)
            self._rows[number] = row
        else:
            number = len(self._rows)
            self._rows.append(row)
            self._reserve(number + 1)
        self._row_of[endpoint.id] = number
        self.ledger.bind(endpoint.id, number)

    def _forget(self, number: int) -> None:
        for floats in self._floats.values():
            floats[number] = np.nan
        for integers in self._integers.values():
            integers[number] = -1
        for times in self._updated_at.values():
            times[number] = np.nan

    def _drop_trailing_free_rows(self) -> None:
        rows = len(self._rows)
        while rows and self._rows[rows - 1] is None:
            rows -= 1
        if rows < len(self._rows):
            del self._rows[rows:]
            self._free = [number for number in self._free if number < rows]
            heapq.heapify(self._free)

    def _reserve(self, rows: int) -> None:
        have = len(self._floats["waiting"])
        if rows <= have:
            return
        size = max(rows, 2 * have)
        self._floats = {name: _grown(array, size, np.nan) for name, array in self._floats.items()}
        self._integers = {name: _grown(array, size, -1) for name, array in self._integers.items()}
        self._updated_at = {name: _grown(array, size, np.nan) for name, array in self._updated_at.items()}

    def _announce(self, event: EndpointEvent) -> None:
        for listener in tuple(self._listeners):
            listener(event)


def _grown(array: npt.NDArray[_Scalar], size: int, fill: float) -> npt.NDArray[_Scalar]:
    grown = np.full(size, fill, array.dtype)
    grown[: len(array)] = array
    return grown


def _merged(facts: EndpointFacts, metrics: Metrics) -> EndpointFacts:
    merged = EndpointFacts(
        engine=metrics.engine if metrics.engine is not None else facts.engine,
        model=metrics.model if metrics.model is not None else facts.model,
        active_models=metrics.active_models if metrics.active_models is not None else facts.active_models,
        waiting_models=metrics.waiting_models if metrics.waiting_models is not None else facts.waiting_models,
    )
    return facts if merged == facts else merged
