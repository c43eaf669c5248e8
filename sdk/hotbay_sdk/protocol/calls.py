"""Arguments of the hot calls, as both ends see them.

Arrays cross as little-endian bytes: scores and data columns float32, masks as bits (bit 0 of byte 0
is row 0). B is the number of requests of a batch, E the number of rows of the endpoint view.

=================  ==========================================================  =============================
method             arguments                                                   result
=================  ==========================================================  =============================
run                steps, view, candidates, requests, region where there is one  [bits, scores, errors]
pick               handle, view, candidates, totals, requests, n               [rows, errors]
produce            handle, view, candidates, requests                          [data, errors]
profile_pick       handle, view, requests (B = 1), profile names, results so far  names
profile_process    handle, view, requests (B = 1), results                     {primary, results}, or nil
screen             handle, view, candidates, requests                          [bits, errors]
admit              handle, view, candidates, requests                          [verdicts, errors]
request_headers    handle, requests                                            [answers, errors]
parse              handle, path, headers, body                                 parsed, or {deny: verdict}
pre_request        handle, view, requests, picks, perhaps withdrawn            [edits, errors], or one-way
response_headers   handle, requests, responses                                 (one-way)
response_body      handle, requests, responses                                 (one-way)
saturation         handle, view                                                a float from 0 up
dump_state         nothing: see messages; or handle                            a table; or any value
configure          {create: [{handle, name, type, parameters}], drop: [handle]}  {instances, errors}
=================  ==========================================================  =============================

`steps` is a list of [point, handle]: filters first, then scorers. Filters narrow the candidates for
what follows in the same call. `bits` is B x ceil(E/8) bytes, nil without a filter step; `scores` is
S x B x E float32 of the S scorer steps, in their order, or the length in bytes of those that were written to
the call's region, [area, offset, bytes]. `candidates` is nil (every row), one row of
bits shared by the batch, or B rows. `errors` is a list of [step, request, error map], request -1 for
the whole batch; scores of a failed request are zero, and a failed filter
narrows nothing. `totals` is B x E float32. `rows` of a pick is one
list of row numbers per request, best first, at most n. `data` maps a declared column name to
B x E float32; a column of scope request is named `NAME/request` and is B float32, so that one endpoint
is no special case, and one of scope text is named `NAME/text` and is a list of B texts or nils. A
consumer gets a column under the name by which it declared it.
A `results` map is profile name -> list of endpoint ids, or nil for a profile that failed. `picks` has one pick a request,
[targets, profile, results]: ids of where it goes, the primary one first, the primary profile, and the results of all.
`withdrawn` is true where these requests ended without a first byte; then nobody is answered. `edits` has one a request, nil or
{request: {header: text or nil}, response: {header: text}}; nil removes a header.
`verdicts`, `answers`, parsed requests and responses: see `verdicts`.
`instances` maps a handle's number, as text, to {block_tokens: n or nil} and what else `InstanceFacts` has.
"""

from __future__ import annotations

from hotbay_sdk.protocol.declarations import NamedTuple
from hotbay_sdk.protocol.messages import MalformedMessageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Final

    from hotbay_sdk.protocol.handshake import TypeDeclaration
    from hotbay_sdk.protocol.values import Value

MAX_NAMES: Final = 256
MAX_READ_CHARS: Final = 512
"""Bounds of the lists of `InstanceFacts`."""

POINT_FILTER: Final = 1
POINT_SCORE: Final = 2

COLUMN_FORMATS: Final = {
    "endpoint.waiting": "f",
    "endpoint.running": "f",
    "endpoint.in_flight": "f",
    "endpoint.max_active_models": "f",
    "endpoint.kv_usage": "f",
    "endpoint.kv_capacity_tokens": "q",
    "endpoint.in_flight_tokens": "q",
    "endpoint.block_size": "q",
    "endpoint.num_blocks": "q",
    "endpoint.age_waiting": "f",
    "endpoint.age_running": "f",
    "endpoint.age_kv_usage": "f",
    "endpoint.age_lora": "f",
    "endpoint.healthy": "f",
    "endpoint.weight": "f",
    "endpoint.slow_start": "f",
}
"""Numeric endpoint columns and their struct formats: f is float32 (unknown = NaN), q is int64 (unknown = -1)."""

ATTRIBUTE_PREFIX: Final = "attribute."
"""Begins the names of columns that hold an attribute of endpoints, as declared by who makes it."""
INT64_SUFFIX: Final = "/i64"
"""Ends the wire name of an attribute's column of int64; one of float32 has the name that types declare. So an
attribute whose own name ends like this never crosses as a column."""

SIDE_TABLES: Final = {
    "endpoint.labels": "texts",
    "endpoint.active_models": "counts",
    "endpoint.waiting_models": "counts",
    "endpoint.model": "text",
    "endpoint.engine": "text",
    "endpoint.role": "text",
    "endpoint.address": "text",
}
"""What is known of endpoints beyond numbers, and the kind of each value: a map of texts, a map of counts, or a text."""

UNKNOWN_CODE: Final = 0xFFFFFFFF
"""The code of a free row, and of one whose value is not known, in a side table."""

ITEM_BYTES: Final = {"f": 4, "q": 8}
"""Bytes of one row of a column, by format."""

REQUEST_FIELDS: Final = frozenset(
    {
        "request.id",
        "request.model",
        "request.target_model",
        "request.prompt",
        "request.messages",
        "request.prompt_hashes",
        "request.tokens_estimate",
        "request.objective",
        "request.priority",
        "request.fairness_id",
        "request.session",
        "request.lora",
        "request.size",
        "request.path",
        "request.stream",
        "request.max_tokens",
        "request.cache_salt",
        "request.peer",
    }
)
"""Request fields that a type may declare to read; `request.headers[NAME]` is declared per header, and
`request.attributes[NAME]` per attribute that processors of request headers set."""

HEADER_READ: Final = "request.headers["
REQUEST_ATTRIBUTE_READ: Final = "request.attributes["
RESPONSE_HEADER_READ: Final = "response.headers["
"""Each begins the names of reads that a name and `]` end. Names of headers are in lower case."""

WILDCARD_READS: Final = frozenset({"request.headers[*]", "request.attributes[*]", "response.headers[*]", "attribute.*"})
"""Reads of a type by which its instances may say what they read, because it depends on their parameters. They cross nothing."""
ANY_COLUMN: Final = "*"
"""The same among what a type consumes."""

PROMPT_HASHES: Final = "request.prompt_hashes"
"""Chained block hashes as little-endian uint64 bytes. On the wire the field's name carries the block size in
tokens of the instance that asked, as in `request.prompt_hashes/64`."""


REQUEST_SCOPE = "/request"
"""Ends the wire name of a data column that has one number per request instead of one per row."""
TEXT_SCOPE = "/text"
"""Ends the wire name of a data column that has one text per request."""
MAX_TEXT_BYTES: Final = 4 * 1024
"""Longest text of such a column that a plugin makes, for both ends: a host keeps it, and every consumer gets a copy."""


def is_column_read(name: str) -> bool:
    """Whether a name that a type reads is that of an endpoint column: any attribute's is, whether a host can have it or not."""
    return name in COLUMN_FORMATS or (name.startswith(ATTRIBUTE_PREFIX) and name not in WILDCARD_READS)


def is_request_read(name: str) -> bool:
    """Whether a name that a type reads is that of a request's field, header or attribute."""
    return name in REQUEST_FIELDS or (
        name.startswith((HEADER_READ, REQUEST_ATTRIBUTE_READ)) and name not in WILDCARD_READS
    )


def wildcard_of(name: str) -> str | None:
    """The wildcard that allows an instance to read `name`; None where no wildcard does."""
    for prefix in (HEADER_READ, REQUEST_ATTRIBUTE_READ, RESPONSE_HEADER_READ):
        if name.startswith(prefix) and name.endswith("]"):
            return f"{prefix}*]"
    return f"{ATTRIBUTE_PREFIX}*" if name.startswith(ATTRIBUTE_PREFIX) else None


def declared_column(wire_name: str) -> tuple[str, str]:
    """Declared name and scope of a data column by its name on the wire."""
    for suffix, scope in ((REQUEST_SCOPE, "request"), (TEXT_SCOPE, "text")):
        if wire_name.endswith(suffix):
            return wire_name.removesuffix(suffix), scope
    return wire_name, "row"


def wire_column(name: str, scope: str) -> str:
    """Name on the wire of a declared data column."""
    return name if scope == "row" else f"{name}/{scope}"


class ColumnName(NamedTuple):
    """A data column as declared: `Key.field`, or `Key/producer.field` where `producer` is the ref that makes it."""

    key: str
    producer: str
    field: str


def column_name(name: str) -> ColumnName | None:
    """Read a declared name; None if it is none. `producer` is "" where none is named: then it may not hold a slash."""
    key, slash, rest = name.partition("/")
    if slash:
        producer, _, field = rest.rpartition(".")
    else:
        key, _, field = name.partition(".")
        producer = ""
    good = key and field and "/" not in field and "." not in (key if slash else "") and bool(producer) is bool(slash)
    return ColumnName(key, producer, field) if good else None


def column_format(wire_name: str) -> str | None:
    """Format of a column by its name on the wire; None for a name of no column that this version knows."""
    if wire_name.startswith(ATTRIBUTE_PREFIX):
        return "q" if wire_name.endswith(INT64_SUFFIX) else "f"
    return COLUMN_FORMATS.get(wire_name)


def written_column(name: str, figures: Iterable[float | None], kinds: Mapping[str, str]) -> tuple[str, str] | None:
    """Wire name and format of a declared column whose figures somebody wrote down, None for one that does not cross.

    `kinds` are those of the attributes that the package itself makes. An attribute's column is of that kind, one that it
    does not make is f32, as it is with most makers, and only there if there is a figure.
    """
    code = COLUMN_FORMATS.get(name)
    if code is not None:
        return name, code
    kind = kinds.get(name.removeprefix(ATTRIBUTE_PREFIX))
    if name.endswith(INT64_SUFFIX) or kind == "value" or (all(figure is None for figure in figures) and kind is None):
        return None
    return (name + INT64_SUFFIX, "q") if kind == "i64" else (name, "f")


def attribute_kinds(declarations: Iterable[TypeDeclaration]) -> dict[str, str]:
    """Attribute → `f32`, `i64` or `value`, of all types of a package; of one that two types make, the first one's."""
    kinds: dict[str, str] = {}
    for declaration in declarations:
        kinds = {**declaration.data.attributes, **kinds}
    return kinds


def declared_name(wire_name: str) -> str:
    """The name by which types declare a column of the wire."""
    return wire_name.removesuffix(INT64_SUFFIX) if wire_name.startswith(ATTRIBUTE_PREFIX) else wire_name


class View(NamedTuple):
    """The endpoint view that a call refers to.

    `ids` and `columns` are nil when the process already holds those of this membership and epoch.
    A row whose id is "" is free: it is never a candidate. `areas`, left out where there are none, is a list of
    [area, slot, stamp]: where the columns lie in memory that the process was passed. `tables`, left out where no type
    of the call reads side tables, is [version, nil] of tables that the process holds, or [version, {name: [values, codes]}],
    with a third item where these are added to tables that it holds: their version.
    """

    epoch: int
    rows: int
    membership: int
    ids: list[str] | None
    columns: dict[str, bytes] | None
    areas: list[list[int]] | None = None
    tables: list[Value] | None = None

    @classmethod
    def from_wire(cls, value: Value) -> View:
        """Read the argument on the plugin's end."""
        if not isinstance(value, list) or len(value) not in _VIEW_LENGTHS:
            raise MalformedMessageError("a view is an array of 5, of 6 with areas, or of 7 with side tables")
        return cls(*value)  # type: ignore[arg-type]  # the plugin trusts its host for the items' types


_VIEW_LENGTHS: Final = (5, 6, 7)


class Requests(NamedTuple):
    """The batch, column by column. Every list has `size` items; `fields` holds declared fields only."""

    size: int
    deadlines_us: list[int]
    traces: list[str] | None
    fields: dict[str, list[Value]]
    data: dict[str, bytes | list[str | None]]

    @classmethod
    def from_wire(cls, value: Value) -> Requests:
        """Read the argument on the plugin's end."""
        if not isinstance(value, list) or len(value) != len(cls._fields):
            raise MalformedMessageError(f"requests are an array of {len(cls._fields)}")
        return cls(*value)  # type: ignore[arg-type]  # the plugin trusts its host for the items' types


def mask_bytes(rows: int) -> int:
    """Bytes of one row of candidate bits."""
    return (rows + 7) // 8


def run_reply_limit(scorers: int, requests: int, rows: int) -> int:
    """Longest body of a `run` reply: wire-protocol 10's 64 + 4·S·B·E + 256·B, and B·E/8 for filter bits."""
    return 64 + 4 * scorers * requests * rows + requests * mask_bytes(rows) + 256 * requests


class InstanceFacts(NamedTuple):
    """What an instance says of itself, because it depends on its parameters; `configure` tells it.

    `reads`, `consumes` and `optional` come beside those of its type. `request_headers` and `response_headers` are those that
    it sets: with any, `pre_request` of it is a call that comes before the request is sent.
    """

    block_tokens: int | None = None
    reads: tuple[str, ...] = ()
    consumes: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    request_headers: tuple[str, ...] = ()
    response_headers: tuple[str, ...] = ()

    def to_wire(self) -> dict[str, Value]:
        """What is empty is left out, but for `block_tokens`."""
        block_tokens, *lists = self
        body: dict[str, Value] = {"block_tokens": block_tokens}
        for name, names in zip(self._fields[1:], lists, strict=True):
            if names:
                body[name] = [*names]
        return body

    @classmethod
    def from_wire(cls, value: Value) -> InstanceFacts:
        """Read what a plugin told. Raises `MalformedMessageError`."""
        if not isinstance(value, dict):
            raise MalformedMessageError("what is told of an instance is a map")
        block_tokens = value.get("block_tokens")
        if block_tokens is not None and (type(block_tokens) is not int or not 0 < block_tokens < 2**31):
            raise MalformedMessageError("block_tokens is a whole number above 0, or nil")
        return cls(block_tokens, *(_names(value, name) for name in cls._fields[1:]))


def _names(told: Mapping[str, Value], what: str) -> tuple[str, ...]:
    names = told.get(what, [])
    if not isinstance(names, list) or len(names) > MAX_NAMES:
        raise MalformedMessageError(f"{what} is a list of at most {MAX_NAMES} names")
    found: list[str] = []
    for name in names:
        if not isinstance(name, str) or not 0 < len(name) <= MAX_READ_CHARS:
            raise MalformedMessageError(f"{what} holds names of 1 to {MAX_READ_CHARS} characters")
        found.append(name)
    return tuple(found)
