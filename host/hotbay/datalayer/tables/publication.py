"""Makes the next snapshot of the last one and of what has changed since. Pure.

What has not changed is the same object in both: a reader sees by identity what it need not look at again.
"""

from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
from hotbay_sdk.protocol.calls import ATTRIBUTE_PREFIX, COLUMN_FORMATS

from hotbay.datalayer.endpoint import EndpointState
from hotbay.datalayer.ledger import Ledger
from hotbay.datalayer.tables.columns import Frozen
from hotbay.datalayer.tables.rows import Row, RowTable
from hotbay.datalayer.tables.snapshot import Column, EndpointFacts, Snapshot

__all__ = ["Part", "Parts", "next_snapshot"]

Part: TypeAlias = Literal["members", "live", "facts", "figures"]
"""What may have changed: ids and metadata, who may be picked, what is known beyond numbers, columns."""

_AGE: Final = "endpoint.age_"


@dataclass(frozen=True, slots=True)
class Parts:
    """What a snapshot is made of; `changed` names what differs from the last one besides what is in flight."""

    table: RowTable
    figures: Frozen
    attributes: Frozen
    ledger: Ledger
    changed: frozenset[Part]


def next_snapshot(last: Snapshot, parts: Parts, now: float) -> Snapshot:
    """Return the snapshot that follows `last`."""
    table, changed = parts.table, parts.changed
    columns = _columns(last, parts)
    facts, live = last.facts, last.live
    if "facts" in changed or "lora" in parts.figures.rehidden:
        hidden = parts.figures.hidden["lora"]
        facts = tuple(None if row is None else _shown(row.facts, hidden=hidden[row.number]) for row in table)
    if "live" in changed:
        live = _live(table)
    endpoints, labels, addresses = last.endpoints, last.tables.labels, last.tables.addresses
    if "members" in changed:
        endpoints = tuple(None if row is None else row.endpoint.metadata for row in table)
        labels = tuple(None if endpoint is None else endpoint.labels for endpoint in endpoints)
        addresses = tuple(None if endpoint is None else endpoint.authority for endpoint in endpoints)
    after = Snapshot(
        epoch=last.epoch + 1,
        membership=last.membership,
        rows=last.rows,
        at=now,
        ids=last.ids,
        row_of=last.row_of,
        endpoints=endpoints,
        facts=facts,
        live=live,
        columns=MappingProxyType(columns),
        stale=MappingProxyType({**parts.figures.stale, **parts.attributes.stale}),
        oldest_stale_s=MappingProxyType({**parts.figures.oldest_stale_s, **parts.attributes.oldest_stale_s}),
        bytes_cache={
            name: packed for name, packed in last.bytes_cache.items() if columns.get(name) is last.columns[name]
        },
        tables=last.tables.after(labels, facts, addresses),
    )
    if "members" not in changed:
        return after
    ids = tuple("" if row is None else row.discovered.id for row in table)
    return replace(
        after,
        membership=last.membership + (ids != last.ids),
        rows=len(ids),
        ids=ids,
        row_of=table.numbers(),
    )


def _columns(last: Snapshot, parts: Parts) -> dict[str, Column]:
    declared = parts.attributes.hidden
    columns = {
        name: column
        for name, column in last.columns.items()
        if name in declared or not name.startswith(ATTRIBUTE_PREFIX)
    }
    columns.update(parts.figures.changed)
    columns.update(parts.attributes.changed)
    columns.update((_AGE + field, age) for field, age in parts.figures.ages.items() if _AGE + field in COLUMN_FORMATS)
    if parts.ledger.changed or "members" in parts.changed:
        columns.update(_in_flight(parts.table, parts.ledger))
    return columns


def _shown(facts: EndpointFacts, *, hidden: np.bool_) -> EndpointFacts:
    if not hidden or (facts.active_models is None and facts.waiting_models is None):
        return facts
    return replace(facts, active_models=None, waiting_models=None)


def _live(table: RowTable) -> npt.NDArray[np.bool_]:
    live = np.array([row is not None and _may_be_picked(row) for row in table], np.bool_)
    live.flags.writeable = False
    return live


def _may_be_picked(row: Row) -> bool:
    return row.admits and row.endpoint.metadata.state is EndpointState.ACTIVE


def _in_flight(table: RowTable, ledger: Ledger) -> dict[str, Column]:
    requests = ledger.by_row[: len(table)].copy()
    tokens = ledger.tokens_by_row[: len(table)].copy()
    if free := table.free:
        requests[free] = np.nan
        tokens[free] = -1
    requests.flags.writeable = tokens.flags.writeable = False
    return {"endpoint.in_flight": requests, "endpoint.in_flight_tokens": tokens}
