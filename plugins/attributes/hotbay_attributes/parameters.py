"""Parameters of `endpoint-attribute-filter` and `endpoint-attribute-scorer`: from the operator's map to checked values.

Pure and strict. Every defect is a `ParameterError` with the field's path. What belongs to an algorithm may stand in a map of
its own, as the reference writes it (`algorithm.threshold.value`, `algorithm.normalization.fixedRange`), or beside the
algorithm's type (`algorithm.value`, `algorithm.fixedRange`).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from hotbay_sdk import ParameterError

from hotbay_attributes.figures import OPERATORS

MAX_ATTRIBUTE_CHARS: Final = 128
_SIGNS: Final = "_.:/-"
LOWER_IS_BETTER: Final = "linear_lower_is_better"
HIGHER_IS_BETTER: Final = "linear_higher_is_better"


@dataclass(frozen=True, slots=True)
class FilterParameters:
    """`comparison`: one of OPERATORS. `missing_passes`: what becomes of endpoints without the attribute."""

    attribute: str
    comparison: str
    threshold: float
    missing_passes: bool = True
    falls_back: bool = False


@dataclass(frozen=True, slots=True)
class ScorerParameters:
    """`fixed_range`: least and greatest figure; None takes those of the candidates."""

    attribute: str
    lower_is_better: bool
    fixed_range: tuple[float, float] | None = None


def parse_filter(raw: Mapping[str, object]) -> FilterParameters:
    """Parameters of `endpoint-attribute-filter`."""
    _refuse_unknown(raw, ("attribute", "producer", "onMissing", "fallbackOnEmpty", "algorithm"), "")
    attribute = _attribute(raw, ("attribute",))
    falls_back = raw.get("fallbackOnEmpty", False)
    if not isinstance(falls_back, bool):
        raise ParameterError("fallbackOnEmpty", f"expected true or false, found {_shown(falls_back)}")
    missing = _one_of(raw.get("onMissing", "Pass"), ("Pass", "Fail"), "onMissing")
    algorithm = _map(raw, "algorithm", "")
    _one_of(algorithm.get("type"), ("threshold",), "algorithm.type")
    spread = _beside(algorithm, "threshold", ("operator", "value"))
    comparison = _one_of(spread.fields.get("operator"), tuple(OPERATORS), f"{spread.path}.operator")
    threshold = _number(spread.fields.get("value"), f"{spread.path}.value")
    return FilterParameters(attribute, comparison, threshold, missing == "Pass", falls_back)


def parse_scorer(raw: Mapping[str, object]) -> ScorerParameters:
    """Parameters of `endpoint-attribute-scorer`."""
    _refuse_unknown(raw, ("attribute", "attributeKey", "producer", "algorithm"), "")
    attribute = _attribute(raw, ("attribute", "attributeKey"))
    algorithm = _map(raw, "algorithm", "")
    kind = _one_of(algorithm.get("type"), (LOWER_IS_BETTER, HIGHER_IS_BETTER), "algorithm.type")
    spread = _beside(algorithm, "normalization", ("fixedRange", "adaptiveRange"))
    if len(spread.fields) > 1:
        raise ParameterError(f"{spread.path}.adaptiveRange", "excludes fixedRange, which is given too")
    if "adaptiveRange" in spread.fields:
        path = f"{spread.path}.adaptiveRange"
        _refuse_unknown(_map(spread.fields, "adaptiveRange", spread.path), (), path)
    fixed = _range(spread) if "fixedRange" in spread.fields else None
    return ScorerParameters(attribute, kind == LOWER_IS_BETTER, fixed)


@dataclass(frozen=True, slots=True)
class _Part:
    """Fields of an algorithm, and the path of the map in which they stand."""

    fields: Mapping[str, object]
    path: str


def _beside(algorithm: Mapping[str, object], name: str, fields: Sequence[str]) -> _Part:
    """The fields, in the map `name` of the algorithm or beside its type."""
    _refuse_unknown(algorithm, ("type", name, *fields), "algorithm")
    if name not in algorithm:
        return _Part({field: algorithm[field] for field in fields if field in algorithm}, "algorithm")
    for field in fields:
        if field in algorithm:
            raise ParameterError(f"algorithm.{field}", f"excludes algorithm.{name}, which is given too")
    part = _Part(_map(algorithm, name, "algorithm"), f"algorithm.{name}")
    _refuse_unknown(part.fields, fields, part.path)
    return part


def _range(part: _Part) -> tuple[float, float]:
    path = f"{part.path}.fixedRange"
    fields = _map(part.fields, "fixedRange", part.path)
    _refuse_unknown(fields, ("min", "max"), path)
    # A bound that is left out is 0, as in the reference.
    lowest, highest = (_number(fields.get(name, 0), f"{path}.{name}") for name in ("min", "max"))
    if lowest >= highest:
        raise ParameterError(path, f"expected min below max, found {lowest:g} and {highest:g}")
    return lowest, highest


def _attribute(raw: Mapping[str, object], spellings: Sequence[str]) -> str:
    """The attribute's name. `producer` is taken for the reference's files: attributes have one name space here."""
    producer = raw.get("producer", "")
    if not isinstance(producer, str):
        raise ParameterError("producer", f"expected text, found {_shown(producer)}")
    given = [spelling for spelling in spellings if spelling in raw]
    if len(given) > 1:
        raise ParameterError(given[1], f"is another spelling of {given[0]}, which is given too")
    if not given:
        raise ParameterError(spellings[0], "missing, expected the name of an attribute")
    name = raw[given[0]]
    good = isinstance(name, str) and 0 < len(name) <= MAX_ATTRIBUTE_CHARS and name.isascii()
    if not isinstance(name, str) or not good or not all(sign.isalnum() or sign in _SIGNS for sign in name):
        form = f"1 to {MAX_ATTRIBUTE_CHARS} letters, digits and {' '.join(_SIGNS)}"
        raise ParameterError(given[0], f"expected the name of an attribute, {form}, found {_shown(name)}")
    return name


def _refuse_unknown(raw: Mapping[str, object], known: Sequence[str], path: str) -> None:
    for name in raw:
        if name not in known:
            expected = f"expected one of {', '.join(known)}" if known else "none is known here"
            raise ParameterError(_join(path, str(name)), f"unknown field, {expected}")


def _map(raw: Mapping[str, object], name: str, path: str) -> Mapping[str, object]:
    value = raw.get(name)
    if not isinstance(value, Mapping):
        raise ParameterError(_join(path, name), f"expected a map, found {_shown(value)}")
    return value


def _one_of(value: object, choices: Sequence[str], path: str) -> str:
    if not isinstance(value, str) or value not in choices:
        raise ParameterError(path, f"expected {' or '.join(choices)}, found {_shown(value)}")
    return value


def _number(value: object, path: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise ParameterError(path, f"expected a finite number, found {_shown(value)}")
    return float(value)


def _shown(value: object) -> str:
    return "nothing" if value is None else ascii(value)[:80]


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
