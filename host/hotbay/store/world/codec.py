"""Records as bytes and back. Pure.

The form is a JSON object of the record's fields in ASCII: `bytes` as base64, tuples as lists, everything else as it is.
What is read back is checked against the fields' types, so a damaged row is an error here and not a surprise later:
fields that are missing, unknown, or of another type are refused. Encoding and decoding give an equal record.
"""

import base64
import binascii
import json
import types
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Final, Union, get_args, get_origin, get_type_hints

from hotbay.store.digests import Digest, parse_digest
from hotbay.store.world.records import (
    Completion,
    Disabled,
    Floor,
    Grant,
    History,
    Locked,
    ManifestRef,
    Pin,
    Quarantine,
    Record,
)

__all__ = ["RECORD_KINDS", "decode", "encode"]

RECORD_KINDS: Final[Mapping[str, type[Record]]] = {
    kind.kind: kind for kind in (Completion, Disabled, Floor, Grant, History, Locked, ManifestRef, Pin, Quarantine)
}
"""Every kind of record by its name."""


def encode(record: Record) -> bytes:
    """The record's bytes; equal records give equal bytes. Raises ValueError for a number that is none (NaN)."""
    values = {name: _plain(getattr(record, name)) for name in _FIELDS[record.kind]}
    return json.dumps(values, sort_keys=True, separators=(",", ":"), allow_nan=False).encode("ascii")


def decode(kind: str, content: bytes) -> Record:
    """The record of these bytes. Raises ValueError that says what is wrong with them."""
    record_type = RECORD_KINDS.get(kind)
    if record_type is None:
        raise ValueError(f"unknown kind of record {kind[:80]!r}")
    found = json.loads(content)
    hints = _FIELDS[kind]
    if not isinstance(found, dict) or found.keys() != hints.keys():
        raise ValueError(f"a {kind} has the fields {', '.join(hints)}")
    values = {name: _typed(hint, found[name], f"{kind}.{name}") for name, hint in hints.items()}
    build: Callable[..., Record] = record_type
    return build(**values)


def _hints(record_type: type[Record]) -> Mapping[str, object]:
    hints = get_type_hints(record_type)
    return {field.name: hints[field.name] for field in fields(record_type)}


_FIELDS: Final = {kind: _hints(record_type) for kind, record_type in RECORD_KINDS.items()}


def _plain(value: object) -> object:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value


def _typed(hint: object, value: object, where: str) -> object:
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        (inner,) = (option for option in get_args(hint) if option is not type(None))
        return None if value is None else _typed(inner, value, where)
    if origin is tuple:
        return _tuple(get_args(hint), value, where)
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if hint in (Digest, bytes, str):
        return _text(hint, value, where)
    # `bool` is a subclass of `int`, so the exact type is asked for.
    if type(value) is not hint:
        raise ValueError(f"{where}: {str(value)[:80]!r} has the wrong type")
    return value


def _tuple(items: tuple[object, ...], value: object, where: str) -> tuple[object, ...]:
    if not isinstance(value, list):
        raise ValueError(f"{where} is no list")
    if items[-1] is Ellipsis:
        return tuple(_typed(items[0], item, where) for item in value)
    if len(value) != len(items):
        raise ValueError(f"{where}: an entry has {len(value)} parts")
    return tuple(_typed(hint, item, where) for hint, item in zip(items, value, strict=True))


def _text(hint: object, value: object, where: str) -> object:
    if not isinstance(value, str):
        raise ValueError(f"{where} is no text")
    if hint is Digest:
        return parse_digest(value)
    if hint is str:
        return value
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"{where} is no base64") from error
