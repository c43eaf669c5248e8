"""Reads `flowControl`. Pure.

Its form is checked in any case. What its values mean is checked with the gate alone, as the reference does: without it only the
detector counts.
"""

from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from hotbay.config.forms import Form
from hotbay.config.go_values import parse_go_duration_s, parse_quantity
from hotbay.config.picker_fields import BAND, FLOW_CONTROL, REF
from hotbay.config.picker_model import (
    BAND_MAX_BYTES,
    BAND_MAX_REQUESTS,
    REQUEST_TTL_S,
    FlowControl,
    PriorityBand,
    RefEntry,
)
from hotbay.config.picker_refs import RefReader
from hotbay.config.quantities import QuantityError
from hotbay.config.wording import Path, Value, described

__all__ = [
    "DEFAULT_DETECTOR",
    "DEFAULT_FAIRNESS",
    "DEFAULT_ORDERING",
    "DEFAULT_USAGE_LIMIT",
    "read_detector",
    "read_flow_control",
]

DEFAULT_DETECTOR: Final = "utilization-detector"
DEFAULT_FAIRNESS: Final = "global-strict-fairness-policy"
DEFAULT_ORDERING: Final = "fcfs-ordering-policy"
DEFAULT_USAGE_LIMIT: Final = "static-usage-limit-policy"
_MADE: Final = frozenset({DEFAULT_FAIRNESS, DEFAULT_ORDERING, DEFAULT_USAGE_LIMIT})
"""Policies that are made by themselves, also where a reference names them."""
_PATH: Final[Path] = ("flowControl",)
_T = TypeVar("_T", int, float)


def read_flow_control(value: Value, form: Form, refs: RefReader, *, is_open: bool) -> FlowControl:
    """Read what stands under `flowControl`. `is_open`: whether the gate is."""
    return _Reader(form, refs, is_open).read(value)


def read_detector(value: Value, path: Path, refs: RefReader) -> RefEntry | None:
    """Read a reference to a saturation detector; the default one need not be declared."""
    return refs.entry(value, path, REF, made=(DEFAULT_DETECTOR,), renamed={})


class _Reader:
    def __init__(self, form: Form, refs: RefReader, is_open: bool) -> None:
        self._form = form
        self._refs = refs
        self._is_open = is_open

    def read(self, value: Value) -> FlowControl:
        fields = self._form.fields(value, _PATH, FLOW_CONTROL)
        ttl = self._duration(fields, "defaultRequestTTL")
        no_endpoint = self._duration(fields, "noEndpointRequestTTL")
        if no_endpoint is None:
            no_endpoint = ttl
        eviction = fields.get("enableEviction", False)
        detector = None
        if "saturationDetector" in fields:
            detector = read_detector(fields["saturationDetector"], (*_PATH, "saturationDetector"), self._refs)
        return FlowControl(
            max_bytes=self._quantity(fields, _PATH, "maxBytes", 0),
            max_requests=self._quantity(fields, _PATH, "maxRequests", 0),
            request_ttl_s=REQUEST_TTL_S if ttl is None else ttl,
            no_endpoint_ttl_s=REQUEST_TTL_S if no_endpoint is None else no_endpoint,
            default_band=self._template(fields, "defaultPriorityBand"),
            negative_band=self._template(fields, "defaultNegativePriorityBand"),
            bands=self._bands(fields.get("priorityBands")),
            usage_limit=self._policy(fields, _PATH, "usageLimitPolicyPluginRef"),
            saturation_detector=detector,
            enable_eviction=self._form.boolean(eviction, (*_PATH, "enableEviction")) is True,
        )

    def _template(self, fields: Mapping[str, Value], key: str) -> PriorityBand:
        return self._band(fields[key], (*_PATH, key)) if key in fields else PriorityBand()

    def _bands(self, value: Value) -> tuple[PriorityBand, ...]:
        bands: dict[int, PriorityBand] = {}
        for path, item in self._form.items(value, (*_PATH, "priorityBands")):
            band = self._band(item, path)
            first = bands.setdefault(band.priority, band)
            if first is not band and self._is_open:
                lines = " and ".join(str(it.place.line) for it in (first, band) if it.place is not None)
                message = f"duplicate priority {band.priority}, on lines {lines}"
                self._form.report(path, "DUPLICATE_NAME", message, hint="keep one band of a priority")
        return tuple(bands.values())

    def _band(self, value: Value, path: Path) -> PriorityBand:
        fields = self._form.fields(value, path, BAND)
        priority = fields.get("priority", 0)
        if type(priority) is not int:
            self._form.expected((*path, "priority"), "an integer", priority)
            priority = 0
        return PriorityBand(
            priority,
            self._quantity(fields, path, "maxBytes", BAND_MAX_BYTES) or BAND_MAX_BYTES,
            self._quantity(fields, path, "maxRequests", BAND_MAX_REQUESTS) or BAND_MAX_REQUESTS,
            self._policy(fields, path, "fairnessPolicyRef"),
            self._policy(fields, path, "orderingPolicyRef"),
            self._form.document.place(path),
            path,
        )

    def _policy(self, fields: Mapping[str, Value], path: Path, key: str) -> RefEntry | None:
        """A reference by name; none without the gate, which is where nobody follows it."""
        if fields.get(key, "") == "":
            return None
        at = (*path, key)
        if not self._is_open:
            self._form.name(fields[key], at)
            return None
        name = self._refs.named(fields[key], at, made=_MADE)
        return None if name is None else RefEntry(name, None, self._form.document.place(at), at)

    def _quantity(self, fields: Mapping[str, Value], path: Path, key: str, absent: int) -> int:
        return self._number(parse_quantity, fields[key], (*path, key), absent) if key in fields else absent

    def _duration(self, fields: Mapping[str, Value], key: str) -> float | None:
        return self._number(parse_go_duration_s, fields[key], (*_PATH, key), 0.0) if key in fields else None

    def _number(self, parse: Callable[[object], _T], value: Value, path: Path, absent: _T) -> _T:
        try:
            found = parse(value)
        except QuantityError as error:
            self._form.expected(path, error.expected, value)
            return absent
        if found < 0 and self._is_open:
            message = f"{path[-1]} must be non-negative"
            self._form.report(path, "CONFIG_INVALID", message, expected="0 or more", found=described(value))
        return found
