"""One batch as the arguments of a hot call, and what came back in an author's terms. Pure.

Only what the type declares crosses, as with a host.
"""

import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from hotbay_sdk.protocol import CallError, MalformedMessageError, TypeDeclaration, Value
from hotbay_sdk.protocol.calls import InstanceFacts, declared_column, mask_bytes, written_column
from hotbay_sdk.protocol.tables import LABELS, ROLE, ROLE_LABEL, RowValue, encode_table

from hotbay.authoring.inputs import TOTAL, EndpointRow
from hotbay.errors import PluginFault
from hotbay.scheduling.fields import (
    NO_FACTS,
    instance_needs,
    instance_reads,
    is_possible_column,
    is_table,
    request_field,
    wire_fields,
)
from hotbay.scheduling.request import InferenceRequest

__all__ = ["Batch", "Row", "picked", "produced", "row_errors", "scored", "survivors"]

Row: TypeAlias = "dict[str, float] | list[str] | dict[str, object]"

EPOCH: Final = 1


@dataclass(frozen=True, slots=True)
class Batch:
    """B requests over E endpoints. `candidates` are ids; None means every endpoint; `kinds` are
    those of the attributes that types of the package make, `facts` what the instance says of itself."""

    declaration: TypeDeclaration
    endpoints: Sequence[EndpointRow]
    requests: Sequence[InferenceRequest]
    candidates: frozenset[str] | None = None
    kinds: Mapping[str, str] = field(default_factory=dict)
    facts: InstanceFacts = NO_FACTS

    @property
    def reads(self) -> tuple[str, ...]:
        """What crosses to the instance."""
        return instance_reads(self.declaration, self.facts)

    @property
    def ids(self) -> list[str]:
        return [row.id for row in self.endpoints]

    @property
    def members(self) -> list[str]:
        """Ids of the candidates, in the order of their rows."""
        return [name for name in self.ids if self.candidates is None or name in self.candidates]

    def view(self) -> list[Value]:
        columns: dict[str, Value] = {}
        for name in filter(is_possible_column, self.reads):
            given = [row.figures.get(name) for row in self.endpoints]
            written = written_column(name, given, self.kinds)
            if written is not None:
                columns[written[0]] = _packed(written[1], given)
        ids: list[Value] = [*self.ids]
        view: list[Value] = [EPOCH, len(ids), EPOCH, ids, columns]
        tables: dict[str, Value] = {
            name: encode_table(name, [_row_value(row, name) for row in self.endpoints])
            for name in filter(is_table, self.reads)
        }
        return [*view, None, [EPOCH, tables]] if tables else view

    def mask(self) -> bytes | None:
        """One row of bits for all requests."""
        if self.candidates is None:
            return None
        bits = sum(1 << index for index, name in enumerate(self.ids) if name in self.candidates)
        return bits.to_bytes(mask_bytes(len(self.endpoints)), "little")

    def totals(self) -> bytes:
        return _packed("f", [row.figures.get(TOTAL, 0.0) for row in self.endpoints]) * len(self.requests)

    def request_columns(self) -> list[Value]:
        fields: dict[str, Value] = {
            name: [request_field(request, name) for request in self.requests]
            for name in wire_fields(self.reads, self.facts.block_tokens)
        }
        data: dict[str, Value] = {
            name: _packed("f", [row.figures.get(name) for row in self.endpoints]) * len(self.requests)
            for needs in instance_needs(self.declaration, self.facts)
            for name in needs
            if any(name in row.figures for row in self.endpoints)
        }
        return [len(self.requests), [], None, fields, data]


def _row_value(row: EndpointRow, name: str) -> RowValue | None:
    """What a host would say: labels are always known, and the role is one of them."""
    if name == ROLE and name not in row.facts:
        labels = row.facts.get(LABELS, {})
        return str(labels.get(ROLE_LABEL, "")) if isinstance(labels, Mapping) else ""
    return row.facts.get(name, {} if name == LABELS else None)


def _packed(code: str, values: Sequence[float | None]) -> bytes:
    if code == "q":
        return struct.pack(f"<{len(values)}q", *(-1 if value is None else int(value) for value in values))
    return struct.pack(f"<{len(values)}f", *(math.nan if value is None else value for value in values))


def scored(result: Value, batch: Batch) -> list[dict[str, float]]:
    """Scores of the candidates by id, as the plugin gave them, a map for each request."""
    rows = len(batch.endpoints)
    values = _floats(_part(result, 1), len(batch.requests) * rows, "scores")
    members = set(batch.members)
    return [
        {name: value for name, value in zip(batch.ids, values[at : at + rows], strict=True) if name in members}
        for at in range(0, len(values), rows)
    ]


def survivors(result: Value, batch: Batch) -> list[list[str]]:
    """Ids of the candidates that a filter keeps."""
    width = mask_bytes(len(batch.endpoints))
    bits = _part(result, 0)
    if not isinstance(bits, bytes) or len(bits) != width * len(batch.requests):
        raise PluginFault("BAD_RESULT", f"bits of {width * len(batch.requests)} bytes expected")
    members = set(batch.members)
    masks = [int.from_bytes(bits[at : at + width], "little") for at in range(0, len(bits), width)]
    return [[n for row, n in enumerate(batch.ids) if mask >> row & 1 and n in members] for mask in masks]


def picked(result: Value, batch: Batch) -> list[list[str]]:
    """Ids that a picker chose, best first."""
    rows = _part(result, 0)
    if not isinstance(rows, list) or len(rows) != len(batch.requests):
        raise PluginFault("BAD_RESULT", "one list of row numbers for each request expected")
    ids = batch.ids
    found = []
    for chosen in rows:
        if not isinstance(chosen, list) or not all(type(r) is int and 0 <= r < len(ids) for r in chosen):
            raise PluginFault("BAD_RESULT", "row numbers expected")
        found.append([ids[row] for row in chosen if isinstance(row, int)])
    return found


def produced(result: Value, batch: Batch) -> list[dict[str, object]]:
    """Columns of each request: a number by id, or one number or text for a column of scope request or text."""
    data = _part(result, 0)
    if not isinstance(data, Mapping):
        raise PluginFault("BAD_RESULT", "a map of columns expected")
    size, rows = len(batch.requests), len(batch.endpoints)
    found: list[dict[str, object]] = [{} for _ in range(size)]
    for name, packed in data.items():
        column, scope = declared_column(name)
        if scope == "text":
            texts = _texts(packed, size, name)
            for index in range(size):
                found[index][column] = texts[index]
            continue
        values = _floats(packed, size if scope == "request" else size * rows, name)
        for index in range(size):
            one = values[index * rows : (index + 1) * rows]
            found[index][column] = values[index] if scope == "request" else dict(zip(batch.ids, one, strict=True))
    return found


def _texts(column: Value, count: int, what: str) -> Sequence[object]:
    if not isinstance(column, list) or len(column) != count:
        raise PluginFault("BAD_RESULT", f"{what}: {count} texts expected")
    if not all(item is None or isinstance(item, str) for item in column):
        raise PluginFault("BAD_RESULT", f"{what}: texts or nil expected")
    return column


def row_errors(result: Value) -> list[tuple[int, CallError]]:
    """Errors of single requests, −1 for all of them. Raises `PluginFault` BAD_RESULT."""
    errors = result[-1] if isinstance(result, list) and result else None
    if not isinstance(errors, list):
        raise PluginFault("BAD_RESULT", "the result ends with no list of errors")
    found = []
    for entry in errors:
        if not isinstance(entry, list) or len(entry) != 3 or type(entry[1]) is not int:
            raise PluginFault("BAD_RESULT", "an error is [step, request, error]")
        try:
            found.append((entry[1], CallError.from_wire(entry[2])))
        except MalformedMessageError as error:
            raise PluginFault("BAD_RESULT", f"an error of the result: {error}") from error
    return found


def _part(result: Value, index: int) -> Value:
    if not isinstance(result, list) or len(result) <= index:
        raise PluginFault("BAD_RESULT", "the result is no array of its parts")
    return result[index]


def _floats(packed: Value, count: int, what: str) -> tuple[float, ...]:
    if not isinstance(packed, bytes) or len(packed) != 4 * count:
        found = len(packed) if isinstance(packed, bytes) else type(packed).__name__
        raise PluginFault("BAD_RESULT", f"{what}: {4 * count} bytes expected, found {found}")
    return struct.unpack(f"<{count}f", packed)
