"""What is known of an endpoint beyond figures: values by key, safe to write and to read from any thread.

Decides which values may be kept. Invariants: nobody but the map holds a kept value, so nothing that a caller does to
what it put, or to what it got, changes the map; values that `update` put together are seen together or not at all.
"""

import re
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias, TypeVar

from hotbay_sdk.protocol.values import Encoder, unpack

from hotbay.config.wording import path_text, quoted

__all__ = [
    "MAX_ATTRIBUTE_BYTES",
    "MAX_ATTRIBUTE_DEPTH",
    "AttributeMap",
    "AttributeRefusedError",
    "AttributeValue",
    "CheckedAttributes",
    "DynamicAttribute",
    "check_attribute_key",
]

AttributeValue: TypeAlias = bool | int | float | str | bytes | list["AttributeValue"] | dict[str, "AttributeValue"]
"""What an attribute may be: exactly these types, no subclasses of them. Whole numbers from -2^63 to 2^64 - 1."""

MAX_ATTRIBUTE_BYTES: Final = 64 << 10
"""Of one value as msgpack: it crosses to plugins and from them."""

MAX_ATTRIBUTE_DEPTH: Final = 32
"""Lists and maps within each other, as deep as a value of the wire."""

_KEY: Final = re.compile(r"[A-Za-z0-9_.:/-]{1,128}")
_MIN_INT: Final = -(1 << 63)
_MAX_INT: Final = (1 << 64) - 1
_KINDS: Final = "a boolean, a number, text, bytes, or a list or map of these"

_MAP_BYTES: Final = 512
_ENTRY_BYTES: Final = 128
"""Measured in CPython 3.11, rounded up: an empty map with its lock, and an entry with its key and a number."""

_Kind = TypeVar("_Kind", bool, int, float, str, bytes, list["AttributeValue"], dict[str, "AttributeValue"])
_Path: TypeAlias = tuple[str | int, ...]


class AttributeRefusedError(ValueError):
    """A key or a value that an AttributeMap does not keep. `path` says where it stands, as in `gpu.clocks[2]`."""

    def __init__(self, path: str, expected: str, found: str) -> None:
        super().__init__(f"attribute {path}: expected {expected}, found {found}")
        self.path = path
        self.expected = expected
        self.found = found


@dataclass(frozen=True, slots=True)
class DynamicAttribute:
    """A value that is asked for when it is read. Exists in the host only.

    Args:
        getter: returns the value of now, or None when there is none. Does not block and does not raise; calls may
            come from any thread and may overlap. It may read and write the map that it stands in.
    """

    getter: Callable[[], AttributeValue | None]


@dataclass(frozen=True, slots=True)
class _Packed:
    """A list or a map, as msgpack: bytes cannot be changed, and each reading makes a copy of its own."""

    body: bytes


_Static: TypeAlias = bool | int | float | str | bytes | _Packed
_Kept: TypeAlias = _Static | DynamicAttribute


class CheckedAttributes(Mapping[str, AttributeValue | None]):
    """Values that an `AttributeMap` keeps as they are: copied and checked once, however many maps they go into.

    Reading one gives a copy of it, None for a key that is to be removed. It never changes.

    Args:
        values: by key; checked ones are taken over.

    Raises:
        AttributeRefusedError: one of them may not be kept.
    """

    __slots__ = ("_kept",)

    def __init__(self, values: Mapping[str, AttributeValue | None]) -> None:
        if isinstance(values, CheckedAttributes):
            self._kept: Mapping[str, _Static | None] = values._kept
            return
        for key in values:
            check_attribute_key(key)
        self._kept = {key: None if value is None else _kept(value, key) for key, value in values.items()}

    def __getitem__(self, key: str) -> AttributeValue | None:
        kept = self._kept[key]
        return _value(kept.body) if isinstance(kept, _Packed) else kept

    def __iter__(self) -> Iterator[str]:
        return iter(self._kept)

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def given(self) -> tuple[str, ...]:
        """The keys that have a value."""
        return tuple(key for key, kept in self._kept.items() if kept is not None)


class AttributeMap:
    """Attributes of one endpoint by key. Every method may be called from any thread, and calls may overlap.

    Args:
        changed: called in the thread that changes something, under the map's lock: it must not call the map. Not
            called again before `settle`.
    """

    def __init__(self, changed: Callable[[], None] | None = None) -> None:
        self._lock = threading.Lock()
        self._kept: dict[str, _Kept] = {}
        self._changed = changed
        self._told = False

    def put(self, key: str, value: AttributeValue | DynamicAttribute | None) -> None:
        """Keep a copy of `value` under `key`; None is ignored.

        Raises:
            AttributeRefusedError: the key or the value may not be kept; the map is as it was.
        """
        if value is None:
            return
        check_attribute_key(key)
        kept = value if isinstance(value, DynamicAttribute) else _kept(value, key)
        with self._lock:
            self._kept[key] = kept
            self._tell()

    def update(self, values: Mapping[str, AttributeValue | None]) -> None:
        """Put all of `values` in one step; a key whose value is None is removed.

        Raises:
            AttributeRefusedError: one of them may not be kept; the map is as it was.
        """
        checked = CheckedAttributes(values)
        with self._lock:
            for key, value in checked._kept.items():
                if value is None:
                    self._kept.pop(key, None)
                else:
                    self._kept[key] = value
            self._tell()

    def get(self, key: str) -> AttributeValue | None:
        """Return a copy of the value, None when there is none; a dynamic one is asked for now.

        Raises:
            AttributeRefusedError: what a dynamic attribute gave may not be kept.
        """
        kept = self._kept.get(key)
        if isinstance(kept, DynamicAttribute):
            value = kept.getter()
            kept = None if value is None else _kept(value, key)
        return _value(kept.body) if isinstance(kept, _Packed) else kept

    def read(self, key: str, kind: type[_Kind]) -> _Kind | None:
        """Return a copy of the value when its type is exactly `kind`, else None: a boolean is no int."""
        value = self.get(key)
        return value if isinstance(value, kind) and type(value) is kind else None

    def keys(self) -> tuple[str, ...]:
        """Return the keys, sorted."""
        with self._lock:
            return tuple(sorted(self._kept))

    def checked(self) -> CheckedAttributes:
        """Return all values but dynamic ones, for another map to take over."""
        checked = CheckedAttributes({})
        with self._lock:
            checked._kept = {key: kept for key, kept in self._kept.items() if not isinstance(kept, DynamicAttribute)}
        return checked

    def clone(self) -> "AttributeMap":
        """Return a map of its own with the same values, dynamic ones included; nobody is told of its changes."""
        clone = AttributeMap()
        with self._lock:
            clone._kept = dict(self._kept)
        return clone

    def size_bytes(self) -> int:
        """What it holds, in bytes: texts, packed lists and maps, and what an entry and the map cost besides."""
        with self._lock:
            return _MAP_BYTES + sum(_ENTRY_BYTES + len(key) + _body_bytes(kept) for key, kept in self._kept.items())

    def is_dynamic(self, key: str) -> bool:
        """Whether the value is asked for at each reading."""
        return isinstance(self._kept.get(key), DynamicAttribute)

    def held_bytes(self, key: str) -> int:
        """Size of a text, or of a packed list or map; 0 of a number, of a dynamic value and of nothing."""
        kept = self._kept.get(key)
        return 0 if kept is None else _body_bytes(kept)

    def settle(self) -> None:
        """Tell of the next change again. Whoever then reads misses none."""
        with self._lock:
            self._told = False

    def _tell(self) -> None:
        if self._changed is not None and not self._told:
            self._told = True
            self._changed()


def check_attribute_key(key: str) -> None:
    """Raise AttributeRefusedError unless `key` is 1 to 128 characters of A-Z, a-z, 0-9 and `_ . : / -`."""
    if _KEY.fullmatch(key) is None:
        expected = "a key of 1 to 128 characters of A-Z, a-z, 0-9 and _.:/-"
        raise AttributeRefusedError(quoted(key), expected, f"{len(key)} characters" if len(key) > 128 else quoted(key))


def _kept(value: AttributeValue, key: str) -> _Static:
    _check(value, (key,), MAX_ATTRIBUTE_BYTES)
    if isinstance(value, (bool, int, float)):
        return value
    body = Encoder().pack(value)
    if len(body) > MAX_ATTRIBUTE_BYTES:
        raise _too_large((key,))
    return value if isinstance(value, (str, bytes)) else _Packed(body)


def _body_bytes(kept: _Kept) -> int:
    if isinstance(kept, _Packed):
        return len(kept.body)
    if isinstance(kept, str):
        return len(kept.encode())
    return len(kept) if isinstance(kept, bytes) else 0


def _check(value: object, path: _Path, room: int) -> int:
    """Refuse what may not be kept; return the room that is left of `room` bytes when each costs its least."""
    kind = type(value)
    if kind is list or kind is dict:
        room = _check_items(value, path, room)  # type: ignore[arg-type]  # `kind` is its exact type, which mypy does not narrow by
    elif kind is str:
        room -= _text_bytes(value, path)  # type: ignore[arg-type]  # as above
    elif kind is bytes:
        room -= len(value)  # type: ignore[arg-type]  # as above
    elif kind is int:
        if not _MIN_INT <= value <= _MAX_INT:  # type: ignore[operator]  # as above
            raise AttributeRefusedError(path_text(path), "a whole number from -2^63 to 2^64 - 1", "one beyond that")
    elif kind is not bool and kind is not float:
        raise AttributeRefusedError(path_text(path), _KINDS, f"a value of type {kind.__name__}")
    if room < 1:
        raise _too_large(path)
    return room - 1


def _check_items(value: list[object] | dict[object, object], path: _Path, room: int) -> int:
    if len(path) > MAX_ATTRIBUTE_DEPTH:
        raise AttributeRefusedError(path_text(path), f"at most {MAX_ATTRIBUTE_DEPTH} levels", "one more")
    if isinstance(value, list):
        for index, item in enumerate(value):
            room = _check(item, (*path, index), room)
        return room
    for name, item in value.items():
        if type(name) is not str:
            raise AttributeRefusedError(path_text(path), "keys that are text", f"one of type {type(name).__name__}")
        room = _check(item, (*path, name), room - 1 - _text_bytes(name, path))
    return room


def _text_bytes(text: str, path: _Path) -> int:
    if text.isascii():
        return len(text)
    try:
        return len(text.encode())
    except UnicodeEncodeError as error:
        raise AttributeRefusedError(path_text(path), "text that UTF-8 can carry", "a lone surrogate") from error


def _too_large(path: _Path) -> AttributeRefusedError:
    return AttributeRefusedError(path_text(path[:1]), f"at most {MAX_ATTRIBUTE_BYTES} bytes as msgpack", "more")


def _value(body: bytes) -> AttributeValue:
    return unpack(body)  # type: ignore[return-value]  # `_check` let no None in
