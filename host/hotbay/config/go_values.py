"""Quantities and durations as the reference's own language reads them: ``1Gi``, ``500m``, ``1m30s``, ``-5s``. Pure.

These are the forms of EndpointPickerConfig alone; a HostConfig's are in `quantities`, where a unit is due and a sign is not.
"""

import math
import re
from decimal import Decimal
from typing import Final

from hotbay.config.quantities import QuantityError
from hotbay.config.wording import described

__all__ = ["parse_go_duration_s", "parse_quantity"]

_LONGEST_TEXT: Final = 40
_LARGEST: Final = 1 << 63
_SUFFIXES: Final = {
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    "": Decimal(1),
    **{unit: Decimal(1000) ** power for power, unit in enumerate(("k", "M", "G", "T", "P", "E"), start=1)},
    **{f"{unit}i": Decimal(1024) ** power for power, unit in enumerate(("K", "M", "G", "T", "P", "E"), start=1)},
}
_QUANTITY: Final = re.compile(
    r"([+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+))(?:([eE][+-]?[0-9]{1,3})|([numkMGTPE]|[KMGTPE]i)?)\Z"
)
_QUANTITY_FORM: Final = "a quantity such as 5000, 500k or 1Gi"

_SECONDS: Final = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_PART: Final = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)")
_DURATION: Final = re.compile(rf"[+-]?(?:0|(?:{_PART.pattern})+)\Z")
_DURATION_FORM: Final = "a duration such as 60s, 250ms or 1m30s"
# Go counts nanoseconds in 63 bits.
_LONGEST_S: Final = float(1 << 63) / 1e9


def parse_quantity(value: object) -> int:
    """Whole units of a Kubernetes quantity, of either sign; a fraction counts up to the next one.

    Raises `QuantityError`. A number without quotes is one, too.
    """
    if isinstance(value, bool) or not isinstance(value, int | float | str) or len(str(value)) > _LONGEST_TEXT:
        raise QuantityError(_QUANTITY_FORM, described(value))
    found = _QUANTITY.match(str(value))
    if not found:
        raise QuantityError(_QUANTITY_FORM, described(value))
    number, exponent, suffix = found.groups()
    amount = Decimal(number + (exponent or "")) * _SUFFIXES[suffix or ""]
    if abs(amount) >= _LARGEST:
        raise QuantityError("a quantity below 2^63", described(value))
    return math.ceil(amount)


def parse_go_duration_s(value: object) -> float:
    """Seconds, of either sign. Raises `QuantityError`. Only a text is one: a number has no unit."""
    if not isinstance(value, str) or len(value) > _LONGEST_TEXT or not _DURATION.match(value):
        raise QuantityError(_DURATION_FORM, described(value))
    seconds = sum(float(number) * _SECONDS[unit] for number, unit in _PART.findall(value))
    if seconds >= _LONGEST_S:
        raise QuantityError("a duration of less than 292 years", described(value))
    return -seconds if value.startswith("-") else seconds
