"""Durations as operators write them: `200ms`, `1m30s`. Pure."""

import re
from typing import Final

from hotbay_sdk import ParameterError

_UNITS_S: Final = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_PART: Final = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h)")


def seconds(text: str, path: str) -> float:
    """Seconds, above 0. Raises `ParameterError` at `path`."""
    parts = _PART.findall(text)
    total = sum(float(number) * _UNITS_S[unit] for number, unit in parts)
    if "".join(number + unit for number, unit in parts) != text or not total > 0:
        raise ParameterError(path, f"expected a duration above 0, as 200ms or 1m30s, found {text[:80]!a}")
    return total
