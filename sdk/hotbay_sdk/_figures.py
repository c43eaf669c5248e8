"""What a test says of endpoints and requests, as arguments of a call: what is declared, and nothing else."""

import math
from array import array
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from hotbay_sdk._plugin import Scope
from hotbay_sdk.protocol.calls import (
    HEADER_READ,
    PROMPT_HASHES,
    REQUEST_ATTRIBUTE_READ,
    REQUEST_FIELDS,
    SIDE_TABLES,
    declared_column,
    is_column_read,
    is_request_read,
    mask_bytes,
    written_column,
)
from hotbay_sdk.protocol.tables import LABELS, ROLE, ROLE_LABEL, RowValue, encode_table

__all__ = ["DataFigures", "EndpointFigures", "RequestFields", "kept_ids", "requests_of", "view_of"]

RequestFields: TypeAlias = Mapping[str, object]
"""Field → value; `model` is short for `request.model`. `headers` is a map of lower-case names, `attributes` one of what processors
of request headers set, `prompt_hashes` a list of integers."""

DataFigures: TypeAlias = Mapping[str, Sequence[float] | Sequence[str | None]]
"""Consumed column → B·E numbers; B numbers under `NAME/request`, B texts under `NAME/text`."""

DEADLINE_S = 10.0

EndpointFigures: TypeAlias = Mapping[str, Mapping[str, float | str | Mapping[str, str] | Mapping[str, int]]]
"""Endpoint id → column or side table → value; `waiting` is short for `endpoint.waiting`. What is left out is unknown, but
labels, which are empty, and `role`, which is the label's. An attribute, `attribute.NAME`, is of the kind that a type of the package
declares, and of float32 where none makes it."""


def view_of(epoch: int, endpoints: EndpointFigures, scope: Scope, kinds: Mapping[str, str]) -> list[object]:
    """The view of a call to one instance; `kinds` are those of its package's attributes.

    Raises ValueError for what is no value of its column or table.
    """
    columns: dict[str, bytes] = {}
    for column in filter(is_column_read, scope.reads):
        given = [_figure(i, column, _given(figures, column)) for i, figures in endpoints.items()]
        written = written_column(column, given, kinds)
        if written is not None:
            columns[written[0]] = _packed(column, written[1], endpoints, given)
    view: list[object] = [epoch, len(endpoints), epoch, list(endpoints), columns]
    if not scope.tables:
        return view
    tables = {
        name: encode_table(name, [_row_value(i, name, figures) for i, figures in endpoints.items()])
        for name in sorted(scope.tables)
    }
    return [*view, None, [epoch, tables]]


def _given(figures: Mapping[str, object], name: str) -> object:
    return figures.get(name.removeprefix("endpoint."), figures.get(name))


def _figure(endpoint_id: str, column: str, given: object) -> float | None:
    if given is None or isinstance(given, (int, float)):
        return given
    raise ValueError(f"{endpoint_id}: {column} is a number, found {type(given).__name__}")


def _row_value(endpoint_id: str, name: str, figures: Mapping[str, object]) -> RowValue | None:
    """One row of a side table, as a host has it of what is given."""
    given = _given(figures, name)
    if given is None and name == LABELS:
        return {}
    if given is None and name == ROLE:
        labels = _given(figures, LABELS)
        return str(labels.get(ROLE_LABEL, "")) if isinstance(labels, Mapping) else ""
    kind: type = str if SIDE_TABLES[name] == "text" else Mapping
    if given is None or isinstance(given, kind):
        return given  # type: ignore[return-value]  # what a map holds is the test's affair
    raise ValueError(f"{endpoint_id}: {name} is a {kind.__name__}, found {type(given).__name__}")


def _packed(column: str, code: str, ids: Iterable[str], figures: Sequence[float | None]) -> bytes:
    if code == "q":
        for endpoint_id, figure in zip(ids, figures, strict=True):
            if figure is not None and not (-(2**63) <= figure < 2**63 and float(figure).is_integer()):
                raise ValueError(f"{endpoint_id}: {column} is a whole number of 64 bits, found {figure}")
        return array("q", [-1 if figure is None else int(figure) for figure in figures]).tobytes()
    return array("f", [math.nan if figure is None else figure for figure in figures]).tobytes()


def requests_of(
    requests: Sequence[RequestFields], data: DataFigures | None, scope: Scope, block_tokens: int | None
) -> list[object]:
    """The batch of a call to one instance. Raises ValueError for what is no field of a request."""
    for request in requests:
        for name in request:
            if (
                name not in ("headers", "attributes")
                and f"request.{name.removeprefix('request.')}" not in REQUEST_FIELDS
            ):
                raise ValueError(f"{name} is no field of a request")
    fields: dict[str, list[object]] = {}
    for name in filter(is_request_read, scope.reads):
        wire_name = f"{name}/{block_tokens}" if name == PROMPT_HASHES else name
        fields[wire_name] = [_field(request, name) for request in requests]
    sent: dict[str, object] = {}
    for name, values in (data or {}).items():
        declared, kind = declared_column(name)
        if declared in scope.consumes:
            sent[name] = list(values) if kind == "text" else array("f", values).tobytes()  # type: ignore[type-var]  # numbers
    return [len(requests), [int(DEADLINE_S * 1e6)] * len(requests), None, fields, sent]


def _field(request: RequestFields, name: str) -> object:
    for prefix, key in ((HEADER_READ, "headers"), (REQUEST_ATTRIBUTE_READ, "attributes")):
        if name.startswith(prefix):
            values = request.get(key)
            return values.get(name[len(prefix) : -1]) if isinstance(values, Mapping) else None
    value = request.get(name.removeprefix("request."), request.get(name))
    if name == PROMPT_HASHES and isinstance(value, (list, tuple)):
        return array("Q", value).tobytes()
    return value


def kept_ids(bits: bytes, endpoints: Iterable[str]) -> list[list[str]]:
    """What bits of a reply keep of the endpoints, a list of ids for each request."""
    ids = list(endpoints)
    width = mask_bytes(len(ids))
    masks = [int.from_bytes(bits[start : start + width], "little") for start in range(0, len(bits), width or 1)]
    return [[i for row, i in enumerate(ids) if mask >> row & 1] for mask in masks]
