"""What authors' methods returned, checked and packed for the wire. Pure.

Everything wrong is a `BadResultError` that names what was expected and what was found, before a
byte is written. Numbers become little-endian float32; what is no number becomes NaN, which the
host counts.
"""

from __future__ import annotations

import sys
from array import array

from hotbay_sdk import _bits
from hotbay_sdk._errors import BadResultError
from hotbay_sdk._views import Endpoint
from hotbay_sdk.protocol.calls import MAX_TEXT_BYTES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

_NAN = float("nan")
_NO_NUMBERS = (bool, str, bytes, bytearray, type(None))
_FLAG_FORMATS = ("?", "b", "B")


def number(value: object) -> float:
    """`value` as a float, NaN for what is no number: None, text, a bool, or anything without a float value."""
    kind = type(value)
    if kind is float:
        return value  # type: ignore[return-value]  # checked by identity, the fastest way
    if kind in _NO_NUMBERS or kind.__name__ in ("bool_", "bool"):
        return _NAN
    try:
        return float(value)  # type: ignore[arg-type]  # whatever float does not take raises
    except (TypeError, ValueError, OverflowError):
        return _NAN


def pack_numbers(values: array[float]) -> bytes:
    """The bytes of an `array("f")` in the wire's byte order."""
    if sys.byteorder == "big":
        values = array("f", values)
        values.byteswap()
    return values.tobytes()


def scores_row(values: Sequence[object], rows: Sequence[int], count: int) -> bytes:
    """One request's row of `count` float32: `values` at `rows`, zero elsewhere."""
    row = array("f", bytes(4 * count))
    for position, value in zip(rows, values, strict=True):
        row[position] = number(value)
    return pack_numbers(row)


def matrix(result: object, size: int, rows: int, what: str) -> list[bytes]:
    """B rows of E float32 from what a batch method returned; `what` names the method in errors."""
    view = _as_buffer(result)
    if view is not None and (view.ndim == 2 or (view.ndim == 1 and view.shape == (size * rows,))):
        if view.ndim == 2 and view.shape != (size, rows):
            raise BadResultError(
                f"{what} returned an array of shape {view.shape}, expected ({size}, {rows}): requests × endpoints"
            )
        packed = _floats(view, what)
        width = 4 * rows
        return [packed[start : start + width] for start in range(0, size * width, width)]
    items = _items(result, what)
    if len(items) != size:
        raise BadResultError(f"{what} returned {len(items)} rows, expected {size}: one for each request")
    packed_rows: list[bytes] = []
    last: object = None
    for index, item in enumerate(items):
        # Authors repeat one row where requests share it: it is packed once.
        repeated = bool(index) and item is last
        packed_rows.append(packed_rows[-1] if repeated else vector(item, rows, f"{what}, row {index},", "endpoint"))
        last = item
    return packed_rows


def vector(result: object, count: int, what: str, each: str) -> bytes:
    """`count` float32 from one row or column; `each` says what there is one value of."""
    view = _as_buffer(result)
    if view is not None:
        if view.shape != (count,):
            found = f"shape {view.shape}" if view.ndim != 1 else f"{len(view)} values"
            raise BadResultError(f"{what} has {found}, expected {count}: one for each {each}")
        return _floats(view, what)
    items = _items(result, what)
    if len(items) != count:
        raise BadResultError(f"{what} has {len(items)} values, expected {count}: one for each {each}")
    return pack_numbers(array("f", map(number, items)))


def texts(result: object, count: int, what: str) -> list[str | None]:
    """`count` texts of at most 4 KiB, or Nones: one for each request."""
    items = _items(result, what)
    if len(items) != count:
        raise BadResultError(f"{what} has {len(items)} values, expected {count}: one for each request")
    found: list[str | None] = []
    for item in items:
        if item is not None and type(item) is not str:
            raise BadResultError(f"{what} holds a {type(item).__name__}, expected text or None")
        if item is not None and len(item.encode("utf-8", "replace")) > MAX_TEXT_BYTES:
            raise BadResultError(f"{what} holds a text of {len(item)} characters, at most {MAX_TEXT_BYTES} bytes cross")
        found.append(item)
    return found


def flag_rows(result: object, size: int, rows: int, what: str) -> list[int]:
    """B candidate sets from what `keep_batch` returned."""
    view = _as_buffer(result)
    if view is not None and view.ndim == 2:
        if view.shape != (size, rows):
            raise BadResultError(
                f"{what} returned an array of shape {view.shape}, expected ({size}, {rows}): requests × endpoints"
            )
        if view.format in _FLAG_FORMATS:
            flat = view.tobytes()
            return [_bits.from_flags(flat[start : start + rows]) for start in range(0, size * rows, rows)]
        items: Sequence[object] = _listed(view, what)
    else:
        items = _items(result, what)
    if len(items) != size:
        raise BadResultError(f"{what} returned {len(items)} rows, expected {size}: one for each request")
    return [_flag_row(item, rows, f"{what}, row {index},") for index, item in enumerate(items)]


def _flag_row(item: object, rows: int, what: str) -> int:
    view = _as_buffer(item, raw=True)
    if view is not None and view.ndim == 1 and view.format in _FLAG_FORMATS:
        flags = view.tobytes()
    else:
        items = _items(item, what)
        if items and isinstance(items[0], str):
            raise BadResultError(f"{what} holds texts, expected true or false for each endpoint, and no ids")
        flags = bytes(map(bool, items))
    if len(flags) != rows:
        raise BadResultError(f"{what} has {len(flags)} values, expected {rows}: one for each endpoint")
    return _bits.from_flags(flags)


def flag(result: object, what: str) -> bool:
    """What `keep` or `screen` returned. None is refused: a forgotten `return` must not drop every endpoint."""
    if result is None:
        raise BadResultError(f"{what} returned None, expected true or false")
    return bool(result)


def picked_rows(result: object, mask: int, n: int) -> list[int]:
    """Row numbers from what `pick` returned: candidates only, each once, at most `n`."""
    rows: dict[int, None] = {}
    for item in _items(result, "pick"):
        row: object = item.row if isinstance(item, Endpoint) else item
        if isinstance(row, bool) or not hasattr(row, "__index__"):
            raise BadResultError(f"pick returned a {type(item).__name__}, expected candidates or their row numbers")
        number_of_row = row.__index__()
        if number_of_row >= 0 and mask >> number_of_row & 1:
            rows[number_of_row] = None
    return list(rows)[:n]


def names(result: object, what: str) -> list[str]:
    """A list of text from what an author returned."""
    if isinstance(result, (str, bytes)):
        raise BadResultError(f"{what} returned one {type(result).__name__}, expected a list of names")
    found: list[str] = []
    for item in _items(result, what):
        if type(item) is not str:
            raise BadResultError(f"{what} returned a list with a {type(item).__name__}, expected names")
        found.append(item)
    return found


def processed(result: object) -> dict[str, object] | None:
    """{primary, results} from what `process` returned; None, there is nothing to go on with."""
    if result is None:
        return None
    if not isinstance(result, tuple) or len(result) != 2:
        raise BadResultError(f"process returned a {type(result).__name__}, expected (primary, results) or None")
    primary, results = result
    if type(primary) is not str or not isinstance(results, dict):
        raise BadResultError(
            f"process returned ({type(primary).__name__}, {type(results).__name__}), expected (name, results by profile)"
        )
    merged: dict[str, object] = {}
    for profile, ids in results.items():
        if type(profile) is not str:
            raise BadResultError(
                f"process returned results with a key of type {type(profile).__name__}, expected names"
            )
        merged[profile] = None if ids is None else names(ids, f"process, profile {ascii(profile)[:80]},")
    if merged.get(primary) is None:
        raise BadResultError(f"process named the primary profile {ascii(primary)[:80]}, which has no result")
    return {"primary": primary, "results": merged}


def _as_buffer(value: object, *, raw: bool = False) -> memoryview | None:
    if isinstance(value, (list, tuple)) or (not raw and isinstance(value, (bytes, bytearray))):
        return None
    try:
        return memoryview(value)  # type: ignore[arg-type]  # what has no buffer raises
    except TypeError:
        return None


def _floats(view: memoryview, what: str) -> bytes:
    if view.format == "f" and view.c_contiguous:
        return view.tobytes() if sys.byteorder == "little" else pack_numbers(array("f", view.cast("B").cast("f")))
    if view.format == "d" and view.c_contiguous:
        return pack_numbers(array("f", view.cast("B").cast("d")))
    return pack_numbers(array("f", map(number, _flat(_listed(view, what), view.ndim))))


def _listed(view: memoryview, what: str) -> list[object]:
    try:
        listed: object = view.tolist()
    except NotImplementedError as error:
        # Formats that memory views do not read, such as float16; numpy does.
        to_list = getattr(view.obj, "tolist", None)
        if to_list is None:
            raise BadResultError(f"{what} returned an array of format {view.format}, expected float32") from error
        listed = to_list()
    return listed if isinstance(listed, list) else [listed]


def _flat(items: list[object], dimensions: int) -> list[object]:
    if dimensions == 1:
        return items
    return [value for row in items if isinstance(row, list) for value in row]


def _items(value: object, what: str) -> Sequence[object]:
    if isinstance(value, (list, tuple)):
        return value
    if not isinstance(value, (str, bytes, bytearray, dict, set, frozenset)):
        to_list = getattr(value, "tolist", None)
        listed: Any = to_list() if to_list is not None else value
        if isinstance(listed, (list, tuple)):
            return listed
        if hasattr(listed, "__len__") and hasattr(listed, "__iter__"):
            return list(listed)
    raise BadResultError(f"{what} returned a {type(value).__name__}, expected an array or a list")
