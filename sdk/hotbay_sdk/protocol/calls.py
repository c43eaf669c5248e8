"""Arguments of the hot calls, as both ends see them.

Arrays cross as little-endian bytes: scores and data columns float32, masks as bits (bit 0 of byte 0
is row 0). B is the number of requests of a batch, E the number of rows of the endpoint view.

=================  ==========================================================  =============================
method             arguments                                                   result
=================  ==========================================================  =============================
run                steps, view, candidates, requests                           [bits, scores, errors]
pick               handle, view, candidates, totals, requests, n               [rows, errors]
produce            handle, view, candidates, requests                          [data, errors]
profile_pick       handle, requests (B = 1), profile names, results so far     names
profile_process    handle, requests (B = 1), results                           {primary, results}
pre_request        handle, view, requests, targets                             (one-way)
configure          {create: [{handle, name, type, parameters}], drop: [handle]}  {instances, errors}
=================  ==========================================================  =============================

`steps` is a list of [point, handle]: filters first, then scorers. Filters narrow the candidates for
what follows in the same call. `bits` is B x ceil(E/8) bytes, nil without a filter step; `scores` is
S x B x E float32 of the S scorer steps, in their order. `candidates` is nil (every row), one row of
bits shared by the batch, or B rows. `errors` is a list of [step, request, error map], request -1 for
the whole batch; scores of a failed request are zero, and a failed filter
narrows nothing. `totals` is B x E float32. `rows` of a pick is one
list of row numbers per request, best first, at most n. `data` maps a declared column name to
B x E float32; a column of scope request is named `NAME/request` and is B float32, so that one endpoint
is no special case. `targets` is one list of endpoint ids per
request. A `results` map is profile name -> list of endpoint ids, or nil for a profile that failed.
`instances` maps a handle's number, as text, to {block_tokens: n or nil}.
"""

from __future__ import annotations

from hotbay_sdk.protocol.declarations import NamedTuple
from hotbay_sdk.protocol.messages import MalformedMessageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

    from hotbay_sdk.protocol.values import Value

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
    }
)
"""Request fields that a type may declare to read; `request.headers[NAME]` is declared per header."""

PROMPT_HASHES: Final = "request.prompt_hashes"
"""Chained block hashes as little-endian uint64 bytes. On the wire the field's name carries the block size in
tokens of the instance that asked, as in `request.prompt_hashes/64`."""


REQUEST_SCOPE = "/request"
"""Ends the wire name of a data column that has one number per request instead of one per row."""


class View(NamedTuple):
    """The endpoint view that a call refers to.

    `ids` and `columns` are nil when the process already holds those of this membership and epoch.
    A row whose id is "" is free: it is never a candidate.
    """

    epoch: int
    rows: int
    membership: int
    ids: list[str] | None
    columns: dict[str, bytes] | None

    @classmethod
    def from_wire(cls, value: Value) -> View:
        """Read the argument on the plugin's end."""
        if not isinstance(value, list) or len(value) != len(cls._fields):
            raise MalformedMessageError(f"a view is an array of {len(cls._fields)}")
        return cls(*value)  # type: ignore[arg-type]  # the plugin trusts its host for the items' types


class Requests(NamedTuple):
    """The batch, column by column. Every list has `size` items; `fields` holds declared fields only."""

    size: int
    deadlines_us: list[int]
    traces: list[str] | None
    fields: dict[str, list[Value]]
    data: dict[str, bytes]

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
