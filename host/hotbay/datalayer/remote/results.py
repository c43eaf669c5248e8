"""What extractors in plugin processes answer, held against what their types declare. Pure.

A plugin is trusted with nothing: names, kinds and sizes are checked, and a result is taken whole or not at all.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from hotbay_sdk.protocol import Value

from hotbay.datalayer.attributes import AttributeRefusedError, AttributeValue, CheckedAttributes
from hotbay.errors import PluginFault

__all__ = ["MAX_ENDPOINTS_OF_EVENT", "read_attributes", "read_of_endpoints"]

MAX_ENDPOINTS_OF_EVENT: Final = 10_000
"""Endpoints that one event may say something of: as many as a discovery may have."""
MAX_ID_CHARS: Final = 512
_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})
_MIN_INT: Final = -(1 << 63)
_MAX_INT: Final = (1 << 63) - 1


def read_attributes(
    found: Value, declared: Mapping[str, str], taken: Mapping[str, str] = _NOTHING
) -> CheckedAttributes:
    """Attributes of one endpoint. Raises `PluginFault` BAD_RESULT naming the first that cannot be taken.

    Those of `taken` are left out: somebody else makes them, which is the operator's to put right.
    """
    if not isinstance(found, dict):
        raise _bad("a map of attributes", type(found).__name__)
    read = {name: _attribute(name, value, declared) for name, value in found.items() if name not in taken}
    try:
        return CheckedAttributes(read)
    except AttributeRefusedError as error:
        raise PluginFault("BAD_RESULT", str(error)) from error


def read_of_endpoints(
    found: Value, declared: Mapping[str, str], taken: Mapping[str, str] = _NOTHING
) -> dict[str, CheckedAttributes]:
    """Attributes by endpoint id. Raises as `read_attributes`."""
    if not isinstance(found, dict):
        raise _bad("a map from endpoint ids to attributes", type(found).__name__)
    if len(found) > MAX_ENDPOINTS_OF_EVENT:
        raise _bad(f"at most {MAX_ENDPOINTS_OF_EVENT} endpoints", str(len(found)))
    for endpoint_id in found:
        if not 0 < len(endpoint_id) <= MAX_ID_CHARS:
            raise _bad(f"endpoint ids of 1 to {MAX_ID_CHARS} characters", f"one of {len(endpoint_id)}")
    return {endpoint_id: read_attributes(values, declared, taken) for endpoint_id, values in found.items()}


def _attribute(name: str, value: Value, declared: Mapping[str, str]) -> AttributeValue | None:
    kind = declared.get(name)
    if kind is None:
        raise _bad(f"attributes that the type declares: {', '.join(sorted(declared)) or 'none'}", repr(name[:128]))
    if value is None:
        return None
    if kind == "f32":
        if isinstance(value, int | float) and not isinstance(value, bool):
            return float(value)
        raise _bad(f"a number as attribute {name}", type(value).__name__)
    if kind == "i64":
        if type(value) is int and _MIN_INT <= value <= _MAX_INT:
            return value
        raise _bad(f"a whole number of 64 bits as attribute {name}", type(value).__name__)
    # What crossed is of the types that attributes are made of, but for a nil inside, which `CheckedAttributes` refuses.
    return value  # type: ignore[return-value]  # see above


def _bad(expected: str, found: str) -> PluginFault:
    return PluginFault("BAD_RESULT", f"expected {expected}, found {found}")
