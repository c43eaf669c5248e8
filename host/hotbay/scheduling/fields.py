"""Request fields by the names that plugin types declare, and which of a type's reads are fields, columns or side tables. Pure."""

from collections.abc import Callable, Iterable, Mapping
from typing import Final, cast

from hotbay_sdk.protocol import TypeDeclaration, Value, check_value
from hotbay_sdk.protocol.calls import (
    ANY_COLUMN,
    ATTRIBUTE_PREFIX,
    COLUMN_FORMATS,
    HEADER_READ,
    PROMPT_HASHES,
    REQUEST_ATTRIBUTE_READ,
    REQUEST_FIELDS,
    RESPONSE_HEADER_READ,
    SIDE_TABLES,
    WILDCARD_READS,
    InstanceFacts,
    wildcard_of,
)
from hotbay_sdk.protocol.handshake import is_attribute_name

from hotbay.scheduling.request import InferenceRequest

PEER: Final = "request.peer"
"""What the profile that ran before chose first: a field of the cycle, empty where there is no cycle."""
NO_FACTS: Final = InstanceFacts()

_HASHES_PREFIX: Final = PROMPT_HASHES + "/"

_GETTERS: Final[Mapping[str, Callable[[InferenceRequest], Value]]] = {
    "request.id": lambda r: r.id,
    "request.model": lambda r: r.model,
    "request.target_model": lambda r: r.target_model,
    "request.prompt": lambda r: r.prompt_text(),
    "request.messages": lambda r: _messages(r),
    "request.tokens_estimate": lambda r: r.tokens_estimate,
    "request.objective": lambda r: r.headers.get("x-llm-d-inference-objective"),
    "request.priority": lambda r: r.priority,
    "request.fairness_id": lambda r: r.flow_id,
    "request.session": lambda r: r.headers.get("x-session-id"),
    "request.lora": lambda r: r.lora or None,
    "request.size": lambda r: r.size,
    "request.path": lambda r: r.path,
    "request.stream": lambda r: r.stream,
    "request.max_tokens": lambda r: r.max_tokens,
    "request.cache_salt": lambda r: r.cache_salt or None,
    PEER: lambda r: "",
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
    if name.startswith(REQUEST_ATTRIBUTE_READ):
        return request.attributes.get(name[len(REQUEST_ATTRIBUTE_READ) : -1])
    return request.headers.get(name[len(HEADER_READ) : -1])


def is_possible_column(name: str) -> bool:
    """Whether a declared read is a column that this host has, or that of an attribute with a name that it can have."""
    return name in COLUMN_FORMATS or (
        name.startswith(ATTRIBUTE_PREFIX) and is_attribute_name(name[len(ATTRIBUTE_PREFIX) :])
    )


def is_table(name: str) -> bool:
    """Whether a declared read is a side table of endpoints."""
    return name in SIDE_TABLES


def instance_reads(declaration: TypeDeclaration, facts: InstanceFacts) -> tuple[str, ...]:
    """What crosses to an instance: what its type reads, and what it reads itself; wildcards cross nothing."""
    if not facts.reads and WILDCARD_READS.isdisjoint(declaration.reads):
        return declaration.reads
    return _unique(name for name in (*declaration.reads, *facts.reads) if name not in WILDCARD_READS)


def instance_needs(declaration: TypeDeclaration, facts: InstanceFacts) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Data columns that an instance consumes: those that it needs, and those that may be missing."""
    needed = _unique(name for name in (*declaration.consumes, *facts.consumes) if name != ANY_COLUMN)
    optional = _unique(name for name in (*declaration.optional, *facts.optional) if name != ANY_COLUMN)
    return needed, tuple(name for name in optional if name not in needed)


def not_allowed(declaration: TypeDeclaration, facts: InstanceFacts) -> tuple[str, ...]:
    """What an instance reads or consumes that neither its type's lists nor their wildcards allow."""
    allowed = frozenset(declaration.reads)
    reads = [name for name in facts.reads if name not in allowed and wildcard_of(name) not in allowed]
    columns = frozenset((*declaration.consumes, *declaration.optional))
    consumed = [name for name in (*facts.consumes, *facts.optional) if name not in columns]
    return (*reads, *(() if ANY_COLUMN in columns else consumed))


def wire_columns(reads: Iterable[str]) -> tuple[str, ...]:
    """Endpoint columns and side tables of `reads`, in the order in which calls name them."""
    return tuple(sorted({name for name in reads if _crosses_as_column(name)}))


def _crosses_as_column(name: str) -> bool:
    return name not in WILDCARD_READS and (is_possible_column(name) or is_table(name))


def unknown_reads(reads: Iterable[str]) -> tuple[str, ...]:
    """Declared reads that are neither columns and side tables of endpoints, nor fields of requests, nor headers of responses."""
    return tuple(name for name in reads if not _is_known(name))


def _is_known(name: str) -> bool:
    return (
        name in WILDCARD_READS
        or is_possible_column(name)
        or is_table(name)
        or _is_field(name)
        or _named(name, RESPONSE_HEADER_READ)
    )


def _named(name: str, prefix: str) -> bool:
    return name.startswith(prefix) and name.endswith("]") and len(name) > len(prefix) + 1


def _is_field(name: str) -> bool:
    if name in WILDCARD_READS:
        return False
    return name in REQUEST_FIELDS or _named(name, HEADER_READ) or _named(name, REQUEST_ATTRIBUTE_READ)


def wire_fields(reads: Iterable[str], block_tokens: int | None) -> tuple[str, ...]:
    """Request fields of `reads` as they are asked for; prompt hashes carry the block size of the instance."""
    fields: list[str] = []
    for name in reads:
        if name == PROMPT_HASHES:
            if block_tokens:
                fields.append(f"{_HASHES_PREFIX}{block_tokens}")
        elif _is_field(name):
            fields.append(name.lower() if name.startswith(HEADER_READ) else name)
    return tuple(fields)


def request_headers_of(reads: Iterable[str]) -> frozenset[str]:
    """Names of the request headers among `reads`, in lower case."""
    return frozenset(
        name[len(HEADER_READ) : -1].lower() for name in reads if _is_field(name) and _named(name, HEADER_READ)
    )


def response_headers_of(reads: Iterable[str]) -> frozenset[str]:
    """Names of the response headers among `reads`, in lower case."""
    return frozenset(
        name[len(RESPONSE_HEADER_READ) : -1].lower()
        for name in reads
        if _named(name, RESPONSE_HEADER_READ) and name not in WILDCARD_READS
    )


def _unique(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))
