"""Side tables of snapshots: what is known of endpoints beyond numbers, as it crosses to plugins. Pure; one caller's thread.

Snapshots that do not differ in it share one object, so that its version changes only when something in it does. A table is
encoded when a process that reads it is first called with it. Invariants: an object is never changed but for what it has
encoded; a table that did not change between two versions is the same list in both, if the earlier one was encoded.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from hotbay_sdk.protocol import MAX_FRAME_BYTES, Value, ValueRefusedError
from hotbay_sdk.protocol.tables import LABELS, ROLE, ROLE_LABEL, RowValue, encode_table
from hotbay_sdk.protocol.values import Encoder

__all__ = ["NO_TABLES", "EncodedTable", "EndpointFacts", "SideTables"]

Labels: TypeAlias = tuple[Mapping[str, str] | None, ...]
Addresses: TypeAlias = tuple[str | None, ...]

_ADDRESS: Final = "endpoint.address"


@dataclass(frozen=True, slots=True)
class EndpointFacts:
    """What is known of an endpoint beyond numbers; None = not known. Models by name as in Metrics."""

    engine: str | None = None
    model: str | None = None
    active_models: Mapping[str, int] | None = None
    waiting_models: Mapping[str, int] | None = None

    @property
    def models_in_use(self) -> frozenset[str] | None:
        """Adapters that take room of `max_active_models`: one that is active and waited for takes it once."""
        if self.active_models is None or self.waiting_models is None:
            return None
        return frozenset(self.active_models) | frozenset(self.waiting_models)


Facts: TypeAlias = tuple[EndpointFacts | None, ...]


@dataclass(frozen=True, slots=True, eq=False)
class EncodedTable:
    """One table: [values, codes] as it crosses, its length in bytes, and the rows of which it was made.

    Of one that no frame can carry the length is a byte more than a frame's.
    """

    wire: list[Value]
    size_bytes: int
    source: Labels | Facts | Addresses


class SideTables:
    """What snapshots of one version say.

    Args:
        version: grows with every change; 0 is that of the empty snapshot.
        labels: by row, None for a free row.
        facts: by row, None for a free row.
        before: what was encoded of earlier versions.
        addresses: by row, `host:port`, None for a free row.
    """

    __slots__ = ("_before", "_encoded", "addresses", "facts", "labels", "version")

    def __init__(
        self,
        version: int,
        labels: Labels,
        facts: Facts,
        before: Mapping[str, EncodedTable],
        addresses: Addresses = (),
    ) -> None:
        self.version = version
        self.labels = labels
        self.facts = facts
        self.addresses = addresses
        self._before = before
        self._encoded: dict[str, EncodedTable] = {}

    def after(self, labels: Labels, facts: Facts, addresses: Addresses = ()) -> "SideTables":
        """The tables of the snapshot that follows: these where nothing differs."""
        if labels == self.labels:
            labels = self.labels
        if facts == self.facts:
            facts = self.facts
        if addresses == self.addresses:
            addresses = self.addresses
        if labels is self.labels and facts is self.facts and addresses is self.addresses:
            return self
        return SideTables(self.version + 1, labels, facts, {**self._before, **self._encoded}, addresses)

    def encoded(self, name: str) -> EncodedTable:
        """A table of `SIDE_TABLES`."""
        found = self._encoded.get(name)
        if found is None:
            found = self._encoded[name] = self._encode(name)
        return found

    def _encode(self, name: str) -> EncodedTable:
        source = self._source(name)
        before = self._before.get(name)
        if before is not None and before.source is source:
            return before
        wire = encode_table(name, self._rows(name))
        if before is not None and before.wire == wire:
            return EncodedTable(before.wire, before.size_bytes, source)
        return EncodedTable(wire, _size_bytes(wire), source)

    def _source(self, name: str) -> Labels | Facts | Addresses:
        if name == _ADDRESS:
            return self.addresses
        return self.labels if name in (LABELS, ROLE) else self.facts

    def _rows(self, name: str) -> Iterable[RowValue | None]:
        if name == LABELS:
            return self.labels
        if name == _ADDRESS:
            return self.addresses
        if name == ROLE:
            return (None if labels is None else labels.get(ROLE_LABEL, "") for labels in self.labels)
        return self._known(name.removeprefix("endpoint."))

    def _known(self, fact: str) -> Iterator[RowValue | None]:
        return (None if facts is None else getattr(facts, fact) for facts in self.facts)


def _size_bytes(wire: list[Value]) -> int:
    try:
        return len(Encoder().pack(wire))
    except ValueRefusedError:
        return MAX_FRAME_BYTES + 1


NO_TABLES: Final = SideTables(0, (), (), {})
"""Those of no endpoints."""
