"""What an author gives to one call: requests, endpoints with their figures, parameters. Pure.

A request is the body of an OpenAI request, as a client would send it: what a plugin sees of it is computed as the host
computes it. A list of bodies is a batch. Endpoints are a map from id to figures, and a figure is named as an endpoint
column, with or without `endpoint.`, `attribute.NAME`, as a data column (`Key.field`), or `total`: what scorers gave, for a picker.
Beside figures stand `labels` and the other side tables.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, cast

import orjson
from hotbay_sdk.protocol.calls import ATTRIBUTE_PREFIX, COLUMN_FORMATS, SIDE_TABLES
from hotbay_sdk.protocol.tables import MAX_COUNT, RowValue

from hotbay.config.documents import Document, load_document, refuse
from hotbay.config.wording import described, nearest
from hotbay.errors import InputError, Place, Problem
from hotbay.scheduling.fields import is_possible_column, is_table
from hotbay.scheduling.request import InferenceRequest

TOTAL: Final = "total"
_PREFIX: Final = "endpoint."
_PATH: Final = "/v1/chat/completions"
DEFAULT_REQUEST: Final = '{"model": "model", "messages": [{"role": "user", "content": "hello"}]}'

__all__ = [
    "DEFAULT_REQUEST",
    "TOTAL",
    "EndpointRow",
    "read_endpoints",
    "read_parameters",
    "read_requests",
    "read_type_parameters",
]


@dataclass(frozen=True, slots=True)
class EndpointRow:
    """One endpoint; what is not among its figures, or its facts, which are those of side tables, is unknown."""

    id: str
    figures: Mapping[str, float]
    facts: Mapping[str, RowValue] = field(default_factory=dict)


def read_requests(text: str, *, file: str, headers: Mapping[str, str]) -> tuple[InferenceRequest, ...]:
    """The batch that a document describes. Raises `InputError`."""
    document = load_document(text, file=file)
    bodies = document.value if isinstance(document.value, list) else [document.value]
    problems = [
        _problem(document, (index,) if isinstance(document.value, list) else (), "a request's body is a map", body)
        for index, body in enumerate(bodies)
        if not isinstance(body, dict)
    ]
    if not bodies:
        problems.append(_problem(document, (), "a batch has at least one request", bodies))
    refuse(problems)
    return tuple(
        _request(f"call-{index}", body, headers) for index, body in enumerate(bodies) if isinstance(body, dict)
    )


def _request(name: str, payload: Mapping[str, object], headers: Mapping[str, str]) -> InferenceRequest:
    model = payload.get("model")
    return InferenceRequest(
        id=name,
        model=model if isinstance(model, str) and model else "model",
        path=_PATH,
        headers={key.lower(): value for key, value in headers.items()},
        body=orjson.dumps(payload),
        payload=payload,
    )


def read_endpoints(
    text: str, *, file: str, data: Sequence[str], kinds: Mapping[str, str] = MappingProxyType({})
) -> tuple[EndpointRow, ...]:
    """Endpoints in the order of the document, which is that of the rows. `data` are the data columns that may be given,
    `kinds` those of the attributes that types of the package make.

    Raises `InputError` with every problem.
    """
    document = load_document(text, file=file)
    if not isinstance(document.value, dict) or not document.value:
        hint = "Write a line for each endpoint, such as `default/a: {waiting: 3, kv_usage: 0.5}`."
        raise InputError([_problem(document, (), "endpoints are a map from id to figures", document.value, hint)])
    problems: list[Problem] = []
    made = {f"{ATTRIBUTE_PREFIX}{name}" for name, kind in kinds.items() if kind == "i64"}
    counts = frozenset(name for name, code in COLUMN_FORMATS.items() if code == "q") | made
    rows = tuple(_row(document, name, figures, data, counts, problems) for name, figures in document.value.items())
    refuse(problems)
    return rows


def _row(
    document: Document,
    name: str,
    given: object,
    data: Sequence[str],
    counts: frozenset[str],
    problems: list[Problem],
) -> EndpointRow:
    figures: dict[str, float] = {}
    facts: dict[str, RowValue] = {}
    if given is not None and not isinstance(given, dict):
        problems.append(_problem(document, (name,), "figures are a map from name to number", given))
        given = None
    for key, value in (given or {}).items():
        column = key if is_possible_column(key) or is_table(key) or key == TOTAL or key in data else _PREFIX + key
        if is_table(column):
            fact = _fact(document, (name, key), SIDE_TABLES[column], value, problems)
            facts |= {} if fact is None else {column: fact}
        elif not is_possible_column(column) and column not in data and column != TOTAL:
            problems.append(_unknown(document, (name, key), data))
        elif value is None:
            continue
        elif isinstance(value, bool) or not isinstance(value, int | float):
            problems.append(_problem(document, (name, key), "a figure is a number, or null for unknown", value))
        elif column in counts and (value != int(value) or abs(value) >= 2**63):
            problems.append(_problem(document, (name, key), "a count is a whole number", value))
        else:
            figures[column] = value
    return EndpointRow(name, figures, facts)


_FORMS: Final = {
    "text": "a text, or null for unknown",
    "texts": "a map from name to text, or null for none: quote what YAML reads otherwise",
    "counts": "a map from adapter to number of requests, or null for unknown",
}
"""Kind of a side table's value → how it is written."""


def _fact(
    document: Document, path: tuple[str, str], kind: str, value: object, problems: list[Problem]
) -> RowValue | None:
    """One row of a side table; None where it is not known, or no value of its kind, which is a problem."""
    if value is None or _is_fact(kind, value):
        return cast("RowValue | None", value)
    problems.append(_problem(document, path, f"{path[1]} is {_FORMS[kind]}", value))
    return None


def _is_fact(kind: str, value: object) -> bool:
    if kind == "text" or not isinstance(value, dict):
        return kind == "text" and isinstance(value, str)
    if kind == "texts":
        return all(isinstance(text, str) for text in value.values())
    return all(type(count) is int and 0 <= count <= MAX_COUNT for count in value.values())


def _unknown(document: Document, path: tuple[str, str], data: Sequence[str]) -> Problem:
    named = (name.removeprefix(_PREFIX) for name in (*COLUMN_FORMATS, *SIDE_TABLES))
    known = [*named, "attribute.NAME", *data, TOTAL]
    near = nearest(path[1], known)
    hint = f"Did you mean {near}?" if near else f"Known are {', '.join(known)}."
    return Problem("UNKNOWN_FIELD", "no figure of an endpoint", document.key_place(path), ".".join(path), hint=hint)


def read_parameters(text: str, *, file: str) -> dict[str, object]:
    """The operator's map of parameters. Raises `InputError`."""
    document = load_document(text, file=file)
    if document.value is None:
        return {}
    if not isinstance(document.value, dict):
        raise InputError([_problem(document, (), "parameters are a map", document.value)])
    return dict(document.value)


def read_type_parameters(text: str, *, file: str) -> dict[str, dict[str, object]]:
    """Parameters of several types, by the type's name. Raises `InputError`."""
    document = load_document(text, file=file)
    value = document.value if document.value is not None else {}
    hint = "Write a line for each type, such as `my-scorer: {limit: 3}`."
    if not isinstance(value, dict):
        raise InputError([_problem(document, (), "parameters are a map from type to a map", value, hint)])
    refuse(
        _problem(document, (name,), "a type's parameters are a map", given, hint)
        for name, given in value.items()
        if not isinstance(given, dict)
    )
    return {name: dict(given) for name, given in value.items() if isinstance(given, dict)}


def _problem(document: Document, path: Sequence[str | int], message: str, found: object, hint: str = "") -> Problem:
    place: Place = document.place(path)
    return Problem("CONFIG_INVALID", message, place, ".".join(map(str, path)), found=described(found), hint=hint)
