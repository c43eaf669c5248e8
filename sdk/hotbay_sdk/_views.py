"""The typed views through which authors read a call's columns.

A view copies nothing: columns are read-only memory over the process's own bytes, out of the frame or copied before the
call. Only what a type
declares can be read; anything else raises `UndeclaredReadError`.
"""

from __future__ import annotations

from itertools import compress

from hotbay_sdk import _bits
from hotbay_sdk.protocol.calls import PROMPT_HASHES, UNKNOWN_CODE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from types import MappingProxyType
    from typing import Any

    from hotbay_sdk._columns import Columns, DataColumns, Fields
    from hotbay_sdk.protocol.values import Value
else:
    MappingProxyType = type(type.__dict__)  # as `types` itself finds it

_NOTHING: Mapping[str, Any] = MappingProxyType({})


class Request:
    """One inference request, read-only. Fields that the type does not declare raise `UndeclaredReadError`.

    A declared field that a request does not carry is None, or empty where its type has an empty value.
    """

    __slots__ = ("_data", "_fields", "_index")

    def __init__(self, fields: Fields, data: DataColumns, index: int) -> None:
        self._fields = fields
        self._data = data
        self._index = index

    def _text(self, name: str) -> str:
        value = self._fields[name][self._index]
        return value if isinstance(value, str) else ""

    @property
    def id(self) -> str:
        """The request's id (`request.id`)."""
        return self._text("request.id")

    @property
    def model(self) -> str:
        """The model that the client named (`request.model`)."""
        return self._text("request.model")

    @property
    def target_model(self) -> str:
        """The model after rewriting (`request.target_model`)."""
        return self._text("request.target_model")

    @property
    def prompt(self) -> str:
        """The prompt as one text (`request.prompt`)."""
        return self._text("request.prompt")

    @property
    def messages(self) -> list[Value]:
        """The chat messages as the client sent them, empty for a completion (`request.messages`)."""
        value = self._fields["request.messages"][self._index]
        return value if isinstance(value, list) else []

    @property
    def prompt_hashes(self) -> memoryview:
        """Chained hashes of the prompt's blocks, format `Q` (`request.prompt_hashes`).

        The block size is the instance's attribute `block_tokens`.
        """
        value = self._fields[PROMPT_HASHES][self._index]
        return memoryview(value if isinstance(value, bytes) else b"").cast("Q")

    @property
    def tokens_estimate(self) -> int:
        """Estimated tokens of the prompt, 0 where unknown (`request.tokens_estimate`)."""
        return self._whole("request.tokens_estimate")

    @property
    def objective(self) -> str:
        """The name of the request's objective (`request.objective`)."""
        return self._text("request.objective")

    @property
    def priority(self) -> int:
        """Above 0 is more important, below 0 may be shed (`request.priority`)."""
        return self._whole("request.priority")

    @property
    def fairness_id(self) -> str:
        """Whose share the request counts against (`request.fairness_id`)."""
        return self._text("request.fairness_id")

    @property
    def session(self) -> str:
        """The session that the request belongs to (`request.session`)."""
        return self._text("request.session")

    @property
    def lora(self) -> str:
        """The LoRA adapter that the request names (`request.lora`)."""
        return self._text("request.lora")

    @property
    def size(self) -> int:
        """Bytes of the request's body (`request.size`)."""
        return self._whole("request.size")

    @property
    def path(self) -> str:
        """The path that the client asked for, without a query (`request.path`)."""
        return self._text("request.path")

    @property
    def stream(self) -> bool:
        """Whether the answer is to come in pieces (`request.stream`)."""
        return self._fields["request.stream"][self._index] is True

    @property
    def max_tokens(self) -> int:
        """Most tokens that the answer may have, 0 where the client does not say (`request.max_tokens`)."""
        return self._whole("request.max_tokens")

    @property
    def cache_salt(self) -> str:
        """What keeps its prompt's blocks apart from other clients' (`request.cache_salt`)."""
        return self._text("request.cache_salt")

    @property
    def peer(self) -> str:
        """Id of the first endpoint of the profile that ran before in this cycle, empty for the first (`request.peer`)."""
        return self._text("request.peer")

    def _whole(self, name: str) -> int:
        value = self._fields[name][self._index]
        return value if isinstance(value, int) else 0

    def attribute(self, name: str) -> str | int | float | None:
        """What a processor of request headers set, None where none did (`request.attributes[NAME]`, per attribute)."""
        value = self._fields[f"request.attributes[{name}]"][self._index]
        return value if isinstance(value, (str, int, float)) else None

    def header(self, name: str) -> str | None:
        """The value of a header, None where the request has none (`request.headers[NAME]`, per header).

        Args:
            name: the header's name in any case.
        """
        value = self._fields[f"request.headers[{name.lower()}]"][self._index]
        return value if isinstance(value, str) else None

    def data(self, name: str) -> float:
        """This request's value of a consumed data column of scope request; NaN where it was not produced.

        Args:
            name: the column, as `Key.field`.
        """
        column = self._data[name]
        value: float = column[self._index] if column.ndim == 1 else column[self._index, 0]
        return value

    def text(self, name: str) -> str:
        """This request's value of a consumed data column of scope text; empty where none was produced.

        Args:
            name: the column, as `Key.field`.
        """
        return self._data.texts(name)[self._index] or ""


class Endpoints:
    """The endpoint view of a call: E rows, of which each request has its own candidates.

    Iterating gives an `Endpoint` for every row that is a candidate of at least one request, in row
    order; `len` is E, free rows included. Arrays have one item per row. Everything is read-only and
    stays as it is for as long as it is referenced. Items of memory views are typed as Any: numpy's own
    annotations take no `memoryview[float]`.
    """

    __slots__ = ("_columns", "_data", "_flags", "_ids", "_index", "_masks", "epoch")

    def __init__(
        self,
        epoch: int,
        ids: Sequence[str],
        columns: Columns,
        data: DataColumns,
        masks: Sequence[int],
        *,
        flags: dict[int, bytes],
        index: int = 0,
    ) -> None:
        self.epoch = epoch
        self._ids = ids
        self._columns = columns
        self._data = data
        self._masks = masks
        self._index = index
        self._flags = flags

    def _for_request(self, index: int) -> Endpoints:
        return Endpoints(
            self.epoch,
            self._ids,
            self._columns,
            self._data,
            (self._masks[index],),
            flags=self._flags,
            index=self._index + index,
        )

    def _flags_of(self, mask: int) -> bytes:
        flags = self._flags.get(mask)
        if flags is None:
            flags = self._flags[mask] = _bits.to_flags(mask, len(self._ids))
        return flags

    def __len__(self) -> int:
        return len(self._ids)

    def __iter__(self) -> Iterator[Endpoint]:
        union = 0
        for mask in self._masks:
            union |= mask
        for row in compress(range(len(self._ids)), self._flags_of(union)):
            yield Endpoint(self, row)

    @property
    def ids(self) -> Sequence[str]:
        """Endpoint ids by row; an empty one is a free row, never a candidate."""
        return self._ids

    def column(self, name: str) -> memoryview[Any]:
        """A declared endpoint column by row: format `f` (unknown = NaN) or `q` (unknown = -1).

        `numpy.asarray` takes it without a copy. An attribute's column has the format that its producer declared; one
        that nobody produces is `f`.

        Args:
            name: such as `endpoint.waiting` or `attribute.NAME`.

        Raises:
            UndeclaredReadError: the type does not list it in `reads`.
        """
        return self._columns[name]

    def table(self, name: str) -> tuple[Sequence[Any], memoryview[Any]]:
        """A declared side table: its different values, and one code a row, format `I`.

        A code is the place of the row's value; 0xFFFFFFFF stands for a free row and for what is not known. Values are
        texts or maps, as those of `Endpoint`. What depends on the value alone is worked out once for each value.

        Args:
            name: such as `endpoint.labels`.

        Raises:
            UndeclaredReadError: the type does not list it in `reads`.
            ValueError: there is no side table of this name.
        """
        table = self._columns.table(name)
        return table.values, table.codes

    def mask(self, index: int = 0) -> bytes:
        """Candidate rows of one request of the call: one byte per row, 1 for a candidate, else 0.

        Args:
            index: the request's position in the call.
        """
        return self._flags_of(self._masks[index])

    def rows(self, index: int = 0) -> Sequence[int]:
        """Row numbers of one request's candidates, ascending."""
        return list(compress(range(len(self._ids)), self.mask(index)))

    def data(self, name: str) -> memoryview[Any]:
        """A consumed data column of all requests of the call, format `f`, NaN where it was not produced.

        Shape (B, E) for a column of scope row, (B,) for one of scope request. With one endpoint both
        have the same bytes, and the shape is (B, 1).

        Args:
            name: the column, as `Key.field`.

        Raises:
            UndeclaredReadError: the type does not list it in `consumes`.
        """
        column = self._data[name]
        rows, count, first = len(self._ids), len(self._masks), self._index
        if column.ndim == 1:
            return column[first : first + count]
        flat = column.cast("B")[4 * first * rows : 4 * (first + count) * rows]
        return flat.cast("f", (count, rows))

    def data_row(self, name: str, index: int = 0) -> memoryview[Any]:
        """One request's row of a consumed data column of scope row: E items, format `f`."""
        rows = len(self._ids)
        start = (self._index + index) * rows
        flat = self._data[name].cast("B").cast("f")
        return flat[start : start + rows]


class Endpoint:
    """One row of the endpoint view, for one request. Unknown values are NaN, whole numbers -1, texts and maps empty."""

    __slots__ = ("_columns", "_endpoints", "row")

    def __init__(self, endpoints: Endpoints, row: int) -> None:
        self._endpoints = endpoints
        self._columns = endpoints._columns
        self.row = row

    @property
    def id(self) -> str:
        """The endpoint's id, `namespace/name`."""
        return self._endpoints.ids[self.row]

    def column(self, name: str) -> float:
        """This endpoint's value of a declared column: a whole number, -1 if unknown, where the column is of int64.

        Args:
            name: such as `endpoint.waiting` or `attribute.NAME`.
        """
        return self._columns[name][self.row]

    def data(self, name: str) -> float:
        """This endpoint's value of a consumed data column, for the request that is being answered.

        Args:
            name: the column, as `Key.field`.
        """
        endpoints = self._endpoints
        column = endpoints._data[name]
        value: float = column[endpoints._index, self.row] if column.ndim == 2 else column[endpoints._index]
        return value

    @property
    def waiting(self) -> float:
        """Requests that wait in the engine's queue."""
        return self._columns["endpoint.waiting"][self.row]

    @property
    def running(self) -> float:
        """Requests that the engine runs."""
        return self._columns["endpoint.running"][self.row]

    @property
    def in_flight(self) -> float:
        """Requests that the host has sent and that have not ended."""
        return self._columns["endpoint.in_flight"][self.row]

    @property
    def max_active_models(self) -> float:
        """LoRA adapters that the engine can hold at once."""
        return self._columns["endpoint.max_active_models"][self.row]

    @property
    def kv_usage(self) -> float:
        """Share of the KV cache that is in use, 0 to 1."""
        return self._columns["endpoint.kv_usage"][self.row]

    @property
    def kv_capacity_tokens(self) -> int:
        """Tokens that fit into the KV cache."""
        return int(self._columns["endpoint.kv_capacity_tokens"][self.row])

    @property
    def in_flight_tokens(self) -> int:
        """Estimated tokens of the requests in flight."""
        return int(self._columns["endpoint.in_flight_tokens"][self.row])

    @property
    def block_size(self) -> int:
        """Tokens of a KV cache block."""
        return int(self._columns["endpoint.block_size"][self.row])

    @property
    def num_blocks(self) -> int:
        """Blocks of the KV cache."""
        return int(self._columns["endpoint.num_blocks"][self.row])

    @property
    def age_waiting(self) -> float:
        """Seconds since `waiting` was updated."""
        return self._columns["endpoint.age_waiting"][self.row]

    @property
    def age_running(self) -> float:
        """Seconds since `running` was updated."""
        return self._columns["endpoint.age_running"][self.row]

    @property
    def age_kv_usage(self) -> float:
        """Seconds since `kv_usage` was updated."""
        return self._columns["endpoint.age_kv_usage"][self.row]

    @property
    def age_lora(self) -> float:
        """Seconds since the LoRA state was updated."""
        return self._columns["endpoint.age_lora"][self.row]

    @property
    def healthy(self) -> float:
        """1 for a healthy endpoint, 0 for one that fails."""
        return self._columns["endpoint.healthy"][self.row]

    @property
    def weight(self) -> float:
        """The operator's weight of the endpoint."""
        return self._columns["endpoint.weight"][self.row]

    @property
    def slow_start(self) -> float:
        """Share of full traffic that a new endpoint should get, 0 to 1."""
        return self._columns["endpoint.slow_start"][self.row]

    def _known(self, name: str) -> Any:
        table = self._columns.table(name)
        code = table.codes[self.row]
        return None if code == UNKNOWN_CODE else table.values[code]

    def _text(self, name: str) -> str:
        text: str | None = self._known(name)
        return text or ""

    def _models(self, name: str) -> Mapping[str, int]:
        models: Mapping[str, int] | None = self._known(name)
        return _NOTHING if models is None else models

    @property
    def labels(self) -> Mapping[str, str]:
        """What discovery says of the endpoint, by name (`endpoint.labels`)."""
        labels: Mapping[str, str] | None = self._known("endpoint.labels")
        return _NOTHING if labels is None else labels

    @property
    def active_models(self) -> Mapping[str, int]:
        """LoRA adapters that the engine has loaded, with requests of each where it says (`endpoint.active_models`).

        Empty also where it is not known: in `Endpoints.table` that has a code of its own.
        """
        return self._models("endpoint.active_models")

    @property
    def waiting_models(self) -> Mapping[str, int]:
        """LoRA adapters that requests wait for, as `active_models` (`endpoint.waiting_models`)."""
        return self._models("endpoint.waiting_models")

    @property
    def model(self) -> str:
        """The model that the engine serves, empty where it is not known (`endpoint.model`)."""
        return self._text("endpoint.model")

    @property
    def engine(self) -> str:
        """Which engine it is, as metrics pages tell: `vllm` for example; empty where it is not known (`endpoint.engine`)."""
        return self._text("endpoint.engine")

    @property
    def role(self) -> str:
        """Its label `llm-d.ai/role`, such as `prefill` or `decode`, empty where it has none (`endpoint.role`)."""
        return self._text("endpoint.role")

    @property
    def address(self) -> str:
        """Where it listens, as `host:port`, an IPv6 address in brackets (`endpoint.address`)."""
        return self._text("endpoint.address")


class ScoredEndpoint(Endpoint):
    """A candidate of a pick with its weighted total. `score` is finite; higher is better."""

    __slots__ = ("score",)

    def __init__(self, endpoints: Endpoints, row: int, score: float) -> None:
        super().__init__(endpoints, row)
        self.score = score
