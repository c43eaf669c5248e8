"""Values that may cross the wire, and their bounds.

nil, bool, int64/uint64, float64, UTF-8 str, bytes, arrays, and maps with str keys, nested at most
`MAX_DEPTH` deep. Everything else is refused by the sender before a byte is written, and by a
receiver that does not trust its peer. Pure.
"""

from __future__ import annotations

from msgpack.exceptions import UnpackException

from hotbay_sdk.protocol.frames import MAX_FRAME_BYTES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final, NoReturn, TypeAlias

try:
    from msgpack._cmsgpack import Packer, Unpacker, unpackb
except ImportError as error:
    raise ImportError(
        f"hotbay needs the C extension of msgpack ({error}): install a wheel of msgpack that was built for this Python"
    ) from error

MAX_DEPTH: Final = 32
_MIN_INT: Final = -(2**63)
_MAX_INT: Final = 2**64 - 1

Value: TypeAlias = "bool | int | float | str | bytes | list[Value] | dict[str, Value] | None"

_PLAIN: Final = frozenset({type(None), bool, float, bytes})
"""Types whose every value may cross."""

_Trail: TypeAlias = "tuple[_Trail, int | str] | str"
"""Where a value sits, rendered only when it is refused: most values are not."""

KEPT_BUFFER_BYTES: Final = 1024 * 1024
"""An encoder whose buffer a message has stretched beyond this is replaced, so that one long prompt does not
hold its memory for the life of the link."""

FIRST_BUFFER_BYTES: Final = 4 * 1024
"""What an encoder begins with; msgpack's own 256 KiB would be paid for every link of every plugin."""

SCAN_FROM_BYTES: Final = 1024
"""Bodies from here on are scanned before they are decoded. The decoder allocates what an array header claims,
up to the body's length per level of nesting: within a body of this size that is 3 MB, within a control frame 80."""


class ValueRefusedError(ValueError):
    """A value that may not cross the wire. `path` says where it sits, `found` what it is."""

    def __init__(self, path: str, found: str) -> None:
        super().__init__(f"{path or 'value'}: {found}")
        self.path = path
        self.found = found


def check_value(value: object, path: str = "") -> None:
    """Raise `ValueRefusedError` unless `value` is one that may cross the wire. `path` names the value itself."""
    if type(value) not in _PLAIN:
        _check(value, path, 0)


def _check(value: object, trail: _Trail, depth: int) -> None:
    kind = type(value)
    if kind is str:
        _check_text(value, trail)  # type: ignore[arg-type]  # `kind` is its exact type, which mypy does not narrow by
    elif kind is int:
        if not _MIN_INT <= value <= _MAX_INT:  # type: ignore[operator]  # as above
            _refuse(trail, "an integer outside int64 and uint64")
    elif depth >= MAX_DEPTH:
        _refuse(trail, f"nested deeper than {MAX_DEPTH}")
    elif kind is list or kind is tuple:
        for index, item in enumerate(value):  # type: ignore[arg-type,var-annotated]  # as above
            if type(item) not in _PLAIN:
                _check(item, (trail, index), depth + 1)
    elif kind is dict:
        _check_map(value, trail, depth)  # type: ignore[arg-type]  # as above
    else:
        _refuse(trail, f"a value of type {kind.__name__}")


def _check_map(value: dict[object, object], trail: _Trail, depth: int) -> None:
    for key, item in value.items():
        if type(key) is not str:
            _refuse(trail, f"a map key of type {type(key).__name__}, keys are str")
        _check_text(key, trail)
        if type(item) not in _PLAIN:
            _check(item, (trail, key), depth + 1)


def _check_text(text: str, trail: _Trail) -> None:
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise ValueRefusedError(_path(trail), "text with a lone surrogate") from error


def _refuse(trail: _Trail, found: str) -> NoReturn:
    raise ValueRefusedError(_path(trail), found)


def _path(trail: _Trail) -> str:
    if isinstance(trail, str):
        return trail
    parent, step = trail
    before = _path(parent)
    if isinstance(step, int):
        return f"{before}[{step}]"
    return f"{before}.{step}" if before else step


class Encoder:
    """Values to bodies, over a kept buffer. Belongs to one link and is no more thread-safe than it."""

    __slots__ = ("_packer",)

    def __init__(self) -> None:
        self._packer = _new_packer()

    def pack(self, value: object) -> bytes:
        """Encode a value built by our own code.

        Raises `ValueRefusedError` for types that msgpack lacks, and for more than a frame can carry.
        """
        try:
            packed: bytes = self._packer.pack(value)
        except (TypeError, ValueError, OverflowError) as error:
            raise ValueRefusedError("", str(error)[:200]) from error
        if len(packed) > KEPT_BUFFER_BYTES:
            self._packer = _new_packer()
            if len(packed) > MAX_FRAME_BYTES:
                raise ValueRefusedError("", f"{len(packed)} bytes, a frame carries at most {MAX_FRAME_BYTES}")
        return packed

    def pack_checked(self, value: object) -> bytes:
        """Encode a value that an author's code made, after `check_value`."""
        check_value(value)
        return self.pack(value)


def unpack(body: bytes) -> Value:
    """Decode a body from a trusted peer; raises `ValueRefusedError` on any defect of the encoding.

    msgpack bounds every length by the body's own size, and nesting by 1,024.
    """
    try:
        value: Value = unpackb(body, max_ext_len=0, ext_hook=_refuse_extension)
    except (ValueError, TypeError, RecursionError, MemoryError, UnpackException) as error:
        raise ValueRefusedError("", f"not one msgpack value: {type(error).__name__} {str(error)[:120]}") from error
    return value


def unpack_checked(body: bytes) -> Value:
    """Decode a body from a peer that nobody trusts; raises `ValueRefusedError` also for what may not cross."""
    if len(body) >= SCAN_FROM_BYTES:
        _scan(body)
    value = unpack(body)
    check_value(value)
    return value


def _scan(body: bytes) -> None:
    """Walk the body without making objects: a count that it does not honour must allocate nothing."""
    scanner = Unpacker(read_size=len(body), max_buffer_size=len(body))
    scanner.feed(body)
    try:
        scanner.skip()
    except (ValueError, UnpackException) as error:
        raise ValueRefusedError("", f"not one msgpack value: {type(error).__name__} {str(error)[:120]}") from error


def _new_packer() -> Packer:
    return Packer(autoreset=True, use_bin_type=True, buf_size=FIRST_BUFFER_BYTES)


def _refuse_extension(code: int, data: bytes) -> NoReturn:
    raise ValueError(f"an extension value of type {code} and {len(data)} bytes")
