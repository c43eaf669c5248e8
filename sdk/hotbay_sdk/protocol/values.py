"""Values that may cross the wire, and their bounds.

nil, bool, int64/uint64, float64, UTF-8 str, bytes, arrays, and maps with str keys, nested at most
`MAX_DEPTH` deep. Everything else is refused by the sender before a byte is written, and by a
receiver that does not trust its peer. Pure.
"""

from typing import Final, TypeAlias

import msgpack

MAX_DEPTH: Final = 32
_MIN_INT: Final = -(2**63)
_MAX_INT: Final = 2**64 - 1

Value: TypeAlias = "None | bool | int | float | str | bytes | list[Value] | dict[str, Value]"


class ValueRefusedError(ValueError):
    """A value that may not cross the wire. `path` says where it sits, `found` what it is."""

    def __init__(self, path: str, found: str) -> None:
        super().__init__(f"{path or 'value'}: {found}")
        self.path = path
        self.found = found


def check_value(value: object, path: str = "", depth: int = 0) -> None:
    """Raise `ValueRefusedError` unless `value` is one that may cross the wire."""
    kind = type(value)
    if value is None or kind is bool or kind is float or kind is bytes:
        return
    if isinstance(value, str) and kind is str:
        _check_text(value, path)
    elif isinstance(value, int) and kind is int:
        if not _MIN_INT <= value <= _MAX_INT:
            raise ValueRefusedError(path, "an integer outside int64 and uint64")
    elif depth >= MAX_DEPTH:
        raise ValueRefusedError(path, f"nested deeper than {MAX_DEPTH}")
    elif isinstance(value, (list, tuple)) and kind in (list, tuple):
        for index, item in enumerate(value):
            check_value(item, f"{path}[{index}]", depth + 1)
    elif isinstance(value, dict) and kind is dict:
        for key, item in value.items():
            if type(key) is not str:
                raise ValueRefusedError(path, f"a map key of type {type(key).__name__}, keys are str")
            _check_text(key, path)
            check_value(item, f"{path}.{key}" if path else key, depth + 1)
    else:
        raise ValueRefusedError(path, f"a value of type {kind.__name__}")


def _check_text(text: str, path: str) -> None:
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise ValueRefusedError(path, "text with a lone surrogate") from error


def pack(value: object) -> bytes:
    """Encode a value built by our own code. Raises `ValueRefusedError` for types that msgpack lacks."""
    try:
        packed: bytes = msgpack.packb(value, use_bin_type=True)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueRefusedError("", str(error)[:200]) from error
    return packed


def pack_checked(value: object) -> bytes:
    """Encode a value that an author's code made, after `check_value`."""
    check_value(value)
    return pack(value)


def unpack(body: bytes) -> Value:
    """Decode a body, every length bounded by the body's own size; raises `ValueRefusedError` on any defect."""
    bound = len(body)
    try:
        value: Value = msgpack.unpackb(
            body,
            raw=False,
            strict_map_key=True,
            use_list=True,
            max_str_len=bound,
            max_bin_len=bound,
            max_array_len=bound,
            max_map_len=bound,
            max_ext_len=0,
        )
    except (ValueError, TypeError, RecursionError, msgpack.exceptions.UnpackException) as error:
        raise ValueRefusedError("", f"not one msgpack value: {type(error).__name__} {str(error)[:120]}") from error
    return value
