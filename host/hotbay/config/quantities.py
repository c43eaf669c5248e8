"""Durations and sizes as people write them: ``30s``, ``250ms``, ``1m30s``; ``16MiB``, ``64KiB``.

Pure. A number without a unit is refused, but for 0: nobody should have to know whether 30 are seconds or
milliseconds. Values are converted once, here, to seconds and bytes.
"""

import re
from typing import Final

from hotbay.config.wording import described

__all__ = ["QuantityError", "parse_duration_s", "parse_size_bytes"]

_DURATION_EXAMPLE: Final = "a duration such as 30s, 250ms or 5m"
_SIZE_EXAMPLE: Final = "a size such as 16MiB or 64KiB"
# A year: longer is a mistake, and no clock arithmetic overflows below it.
_LONGEST_S: Final = 366 * 24 * 3600.0
_LARGEST_BYTES: Final = 1 << 50
_LONGEST_TEXT: Final = 40

_SECONDS: Final = {"us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_BYTES: Final = {
    "B": 1,
    "kB": 1000,
    "MB": 1000**2,
    "GB": 1000**3,
    "KiB": 1 << 10,
    "MiB": 1 << 20,
    "GiB": 1 << 30,
    "TiB": 1 << 40,
}
_NUMBER: Final = r"[0-9]+(?:\.[0-9]+)?"
_DURATION_PART: Final = re.compile(rf"({_NUMBER})(us|µs|ms|s|m|h)")
_DURATION: Final = re.compile(rf"(?:{_DURATION_PART.pattern})+\Z")
_SIZE: Final = re.compile(rf"({_NUMBER}) ?({'|'.join(_BYTES)})\Z")


class QuantityError(ValueError):
    """A value is no quantity of the kind that is due; `expected` and `found` word it."""

    def __init__(self, expected: str, found: str) -> None:
        super().__init__(f"expected {expected}, found {found}")
        self.expected = expected
        self.found = found


def parse_duration_s(value: object) -> float:
    """Return seconds, 0 or more; parts add up as in ``1m30s``."""
    if _is_zero(value):
        return 0.0
    if not isinstance(value, str) or len(value) > _LONGEST_TEXT or not _DURATION.match(value):
        raise QuantityError(_DURATION_EXAMPLE, described(value))
    seconds = sum(float(number) * _SECONDS[unit] for number, unit in _DURATION_PART.findall(value))
    if seconds > _LONGEST_S:
        raise QuantityError("a duration of at most a year", described(value))
    return seconds


def parse_size_bytes(value: object) -> int:
    """Return whole bytes, 0 or more. ``KiB``, ``MiB`` … are powers of 1024, ``kB``, ``MB`` … of 1000."""
    if _is_zero(value):
        return 0
    found = _SIZE.match(value) if isinstance(value, str) and len(value) <= _LONGEST_TEXT else None
    if not found:
        raise QuantityError(_SIZE_EXAMPLE, described(value))
    size_bytes = float(found[1]) * _BYTES[found[2]]
    if size_bytes > _LARGEST_BYTES or size_bytes != int(size_bytes):
        raise QuantityError("a size of whole bytes below 1024 TiB", described(value))
    return int(size_bytes)


def _is_zero(value: object) -> bool:
    return value == "0" or (value == 0 and type(value) is int)
