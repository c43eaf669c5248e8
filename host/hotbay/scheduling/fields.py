"""Request fields by the names that plugin types declare, and which of a type's reads are fields, columns or side tables. Pure."""

from collections.abc import Callable, Iterable, Mapping
from typing import Final, cast

from hotbay_sdk.protocol import Value, check_value
from hotbay_sdk.protocol.calls import ATTRIBUTE_PREFIX, COLUMN_FORMATS, PROMPT_HASHES, REQUEST_FIELDS, SIDE_TABLES
from hotbay_sdk.protocol.handshake import is_attribute_name

from hotbay.scheduling.request import BYTES_PER_TOKEN, InferenceRequest

_HEADER_PREFIX: Final = "request.headers["
_HASHES_PREFIX: Final = PROMPT_HASHES + "/"

_GETTERS: Final[Mapping[str, Callable[[InferenceRequest], Value]]] = {
    "request.id": lambda r: r.id,
    "request.model": lambda r: r.model,
    "request.target_model": lambda r: r.target_model,
    "request.prompt": lambda r: r.prompt_text(),
    "request.messages": lambda r: _messages(r),
    "request.tokens_estimate": lambda r: len(r.prompt_text().encode()) // BYTES_PER_TOKEN,
    "request.objective": lambda r: r.headers.get("x-llm-d-inference-objective"),
    "request.priority": lambda r: r.priority,
    "request.fairness_id": lambda r: r.fairness_id,
    "request.session": lambda r: r.headers.get("x-session-id"),
    "request.lora": lambda r: None,
    "request.size": lambda r: r.size,
}


def _messages(request: InferenceRequest) -> Value:
    """The messages as the client sent them; `ValueRefusedError` if they nest deeper than a value of the wire may."""
    messages = request.payload.get("messages")
    # The decoder of requests goes to 1024; a plugin's own decoder gives up just before, and its process with it.
    check_value(messages, "messages")
    return cast("Value", messages)


def request_field(request: InferenceRequest, name: str) -> Value:
    """Value of a declared field; `name` was checked by `unknown_reads`. Raises `ValueRefusedError`."""
    getter = _GETTERS.get(name)
    if getter is not None:
        return getter(request)
    if name.startswith(_HASHES_PREFIX):
        return request.prompt_hashes(int(name[len(_HASHES_PREFIX) :]))
    return request.headers.get(name[len(_HEADER_PREFIX) : -1])


def is_possible_column(name: str) -> bool:
    """Whether a declared read is a column that this host has, or that of an attribute with a name that it can have."""
    return name in COLUMN_FORMATS or (
        name.startswith(ATTRIBUTE_PREFIX) and is_attribute_name(name[len(ATTRIBUTE_PREFIX) :])
    )


def is_table(name: str) -> bool:
    """Whether a declared read is a side table of endpoints."""
    return name in SIDE_TABLES


def wire_columns(reads: Iterable[str]) -> tuple[str, ...]:
    """Endpoint columns and side tables of `reads`, in the order in which calls name them."""
    return tuple(sorted({name for name in reads if is_possible_column(name) or is_table(name)}))


def unknown_reads(reads: tuple[str, ...]) -> tuple[str, ...]:
    """Declared reads that are neither columns and side tables of endpoints nor request fields."""
    return tuple(name for name in reads if not is_possible_column(name) and not is_table(name) and not _is_field(name))


def _is_field(name: str) -> bool:
    header = name.startswith(_HEADER_PREFIX) and name.endswith("]") and len(name) > len(_HEADER_PREFIX) + 1
    return name in REQUEST_FIELDS or header


def wire_fields(reads: tuple[str, ...], block_tokens: int | None) -> tuple[str, ...]:
    """Request fields of `reads` as they are asked for; prompt hashes carry the block size of the instance."""
    fields: list[str] = []
    for name in reads:
        if name == PROMPT_HASHES:
            if block_tokens:
                fields.append(f"{_HASHES_PREFIX}{block_tokens}")
        elif _is_field(name):
            fields.append(name.lower() if name.startswith(_HEADER_PREFIX) else name)
    return tuple(fields)
