"""What an engine publishes of its KV cache, read from the frames of one message. Pure; trusts nothing that it reads.

The form is vLLM's: [topic, sequence number as 8 bytes (big endian), msgpack of a batch]. A batch is
[time, events, rank], an event an array that begins with its name, or a map whose `type` is its name; newer versions of
vLLM send batches and events as maps, by the names of the fields. Trailing fields that have their default may be missing.
The topic says who speaks: `kv@WHO@MODEL`, or `WHO` alone.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

import msgpack

EngineHash: TypeAlias = int | bytes
"""How an engine names a block of its own; equal names of one engine are equal blocks."""

MAX_MESSAGE_BYTES: Final = 16 * 1024 * 1024
"""Longest message that is read: some 3 million tokens."""
_SEQUENCE_BYTES: Final = 8
_TOPIC_PREFIX: Final = "kv@"
_STORED: Final = (
    *("block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium", "lora_name"),
    *("extra_keys", "group_idx", "kv_cache_spec_kind"),
)
_REMOVED: Final = ("block_hashes", "medium", "group_idx")
_BATCH: Final = ("ts", "events", "data_parallel_rank")


class MalformedEventError(ValueError):
    """The frames are no message of this form; the text says what was expected and what was found."""


@dataclass(frozen=True, slots=True)
class BlockStored:
    """Blocks that are there now, one after another: `tokens` are those of all of them.

    `extra`: of each block what its hash covers beside its tokens, None for nothing; all of it None where the engine does not say.
    """

    hashes: tuple[EngineHash, ...]
    parent: EngineHash | None
    tokens: tuple[int, ...]
    block_tokens: int
    lora: str = ""
    medium: str = ""
    extra: tuple[object, ...] | None = None
    group: int = 0
    kind: str = ""


@dataclass(frozen=True, slots=True)
class BlockRemoved:
    """Blocks that are not there any more."""

    hashes: tuple[EngineHash, ...]
    medium: str = ""
    group: int = 0


@dataclass(frozen=True, slots=True)
class AllBlocksCleared:
    """Nothing is there any more."""


KvEvent: TypeAlias = BlockStored | BlockRemoved | AllBlocksCleared


class Message(NamedTuple):
    """One message. `who` and `model` come from its topic; either may be empty."""

    who: str
    model: str
    sequence: int
    rank: int
    events: tuple[KvEvent, ...]


def read_message(frames: Sequence[bytes]) -> Message:
    """Read the frames of one message; events of names that nobody knows are left out. Raises `MalformedEventError`."""
    if len(frames) != 3 or len(frames[1]) != _SEQUENCE_BYTES:
        sizes = [len(frame) for frame in frames]
        raise MalformedEventError(f"expected topic, {_SEQUENCE_BYTES} bytes and a batch, found frames of {sizes} bytes")
    topic, sequence, payload = frames
    if len(payload) > MAX_MESSAGE_BYTES:
        raise MalformedEventError(f"expected a batch of at most {MAX_MESSAGE_BYTES} bytes, found {len(payload)}")
    try:
        value = msgpack.unpackb(payload, raw=False, strict_map_key=False)
    # A key of a map may be anything, also what cannot be one, and any depth of nesting may come.
    except (ValueError, TypeError, OverflowError, RecursionError, msgpack.exceptions.UnpackException) as error:
        raise MalformedEventError(f"the batch is no msgpack: {error}") from error
    batch = _fields(value, _BATCH, "a batch")
    events = batch.get("events")
    if not isinstance(events, list):
        raise MalformedEventError(f"expected a list of events, found {type(events).__name__}")
    who, model = read_topic(topic)
    return Message(
        who, model, int.from_bytes(sequence, "big"), _whole(batch, "data_parallel_rank"), tuple(_events(events))
    )


def read_topic(topic: bytes) -> tuple[str, str]:
    """Who speaks, and of which model."""
    text = topic.decode("utf-8", "replace")
    if not text.startswith(_TOPIC_PREFIX):
        return text, ""
    who, _, model = text.removeprefix(_TOPIC_PREFIX).partition("@")
    return who, model


def _events(events: Sequence[object]) -> Iterator[KvEvent]:
    for event in events:
        name = _name_of(event)
        if name == "BlockStored":
            yield _stored(_fields(event, _STORED, name, tagged=True))
        elif name == "BlockRemoved":
            fields = _fields(event, _REMOVED, name, tagged=True)
            yield BlockRemoved(_hashes(fields), _text(fields, "medium"), _whole(fields, "group_idx"))
        elif name == "AllBlocksCleared":
            yield AllBlocksCleared()


def _name_of(event: object) -> object:
    if isinstance(event, list) and event:
        return event[0]
    return event.get("type") if isinstance(event, dict) else None


def _fields(value: object, names: Sequence[str], what: str, *, tagged: bool = False) -> Mapping[str, object]:
    """Fields by name, of an array or of a map."""
    if isinstance(value, dict):
        return value
    if isinstance(value, list):
        return dict(zip(names, value[1:] if tagged else value, strict=False))
    raise MalformedEventError(f"expected an array or a map for {what}, found {type(value).__name__}")


def _stored(fields: Mapping[str, object]) -> BlockStored:
    hashes, tokens, size = _hashes(fields), fields.get("token_ids"), fields.get("block_size")
    if type(size) is not int or size < 1:
        found = size if type(size) is int else type(size).__name__
        raise MalformedEventError(f"expected a block_size from 1 up, found {found}")
    if not isinstance(tokens, list) or not all(type(token) is int and 0 <= token < 2**32 for token in tokens):
        raise MalformedEventError("expected token_ids as a list of whole numbers below 2^32")
    if len(tokens) != len(hashes) * size:
        raise MalformedEventError(f"expected {len(hashes)} x {size} token_ids, found {len(tokens)}")
    extra = fields.get("extra_keys")
    if extra is not None and (not isinstance(extra, list) or len(extra) != len(hashes)):
        raise MalformedEventError(f"expected extra_keys for each of {len(hashes)} blocks")
    parent = fields.get("parent_block_hash")
    return BlockStored(
        hashes=hashes,
        parent=None if parent is None else _hash(parent),
        tokens=tuple(tokens),
        block_tokens=size,
        lora=_text(fields, "lora_name"),
        medium=_text(fields, "medium"),
        extra=None if extra is None else tuple(extra),
        group=_whole(fields, "group_idx"),
        kind=_text(fields, "kv_cache_spec_kind"),
    )


def _hashes(fields: Mapping[str, object]) -> tuple[EngineHash, ...]:
    found = fields.get("block_hashes")
    if not isinstance(found, list):
        raise MalformedEventError(f"expected block_hashes as a list, found {type(found).__name__}")
    return tuple(map(_hash, found))


def _hash(value: object) -> EngineHash:
    if type(value) is int or isinstance(value, bytes):
        return value
    raise MalformedEventError(f"expected a block hash as a whole number or bytes, found {type(value).__name__}")


def _text(fields: Mapping[str, object], name: str) -> str:
    value = fields.get(name)
    if value is None or isinstance(value, str):
        return value or ""
    raise MalformedEventError(f"expected {name} as text or nothing, found {type(value).__name__}")


def _whole(fields: Mapping[str, object], name: str) -> int:
    value = fields.get(name)
    if value is None:
        return 0
    if type(value) is not int or value < 0:
        raise MalformedEventError(f"expected {name} as a whole number from 0 up, found {type(value).__name__}")
    return value
