"""How much one plugin ref may have kept of endpoints: attributes by endpoint, held against two bounds. Pure.

An answer that would go beyond a bound is refused whole, and changes nothing. What counts is what values say, not what they
cost in memory: that is at most a few times as much.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Final

from hotbay_sdk.protocol.messages import CONTROL_FRAME_BYTES

from hotbay.datalayer.attributes import MAX_ATTRIBUTE_BYTES, AttributeValue
from hotbay.errors import PluginFault

__all__ = ["MAX_ENDPOINT_BYTES", "MAX_REF_BYTES", "POLL_IDLE_S", "AttributeBudget", "reply_limit"]

MAX_ENDPOINT_BYTES: Final = 256 << 10
"""Of one ref and one endpoint: four values of the largest size, or thousands of numbers."""
MAX_REF_BYTES: Final = 64 << 20
"""Of one ref: 6 KiB for each of as many endpoints as there may be."""
POLL_IDLE_S: Final = 3600.0
"""An endpoint that was not polled for so long is gone: what was known of it makes room."""

_NUMBER_BYTES: Final = 16
"""What a number counts, or the head of a text, a list or a map."""
_REPLY_BYTES: Final = 4096
"""Of every reply: room for what is not declared, so that it is named and not only refused for its length."""


def reply_limit(declared: Mapping[str, str]) -> int:
    """Longest reply with attributes of one endpoint, of the kinds that a type declares."""
    each = (
        _size(name) + (MAX_ATTRIBUTE_BYTES if kind == "value" else _NUMBER_BYTES) for name, kind in declared.items()
    )
    return min(CONTROL_FRAME_BYTES, _REPLY_BYTES + sum(each))


@dataclass(slots=True)
class _Entry:
    """What is kept of one endpoint: bytes by attribute."""

    touched_s: float
    total: int = 0
    sizes: dict[str, int] = field(default_factory=dict)


class AttributeBudget:
    """Of one ref. `now` is monotonic seconds; what was not spoken of for `idle_s` makes room when there is none."""

    def __init__(self, now: Callable[[], float], *, idle_s: float = inf) -> None:
        self.total_bytes = 0
        self._now = now
        self._idle_s = idle_s
        self._entries: OrderedDict[str, _Entry] = OrderedDict()

    def take(self, found: Mapping[str, Mapping[str, AttributeValue | None]]) -> None:
        """Attributes by endpoint id that are to be kept. Raises `PluginFault` BAD_RESULT; then nothing has changed."""
        now_s = self._now()
        changed = {endpoint_id: self._after(endpoint_id, values, now_s) for endpoint_id, values in found.items()}
        for endpoint_id, entry in changed.items():
            if entry.total > MAX_ENDPOINT_BYTES:
                raise _too_much(MAX_ENDPOINT_BYTES, f"of endpoint {endpoint_id[:80]!r}", entry.total)
        before = sum(self._entries[it].total for it in changed if it in self._entries)
        wanted = sum(entry.total for entry in changed.values()) - before
        self._make_room(wanted, now_s, changed)
        if wanted > 0 and self.total_bytes + wanted > MAX_REF_BYTES:
            raise _too_much(MAX_REF_BYTES, "of all endpoints", self.total_bytes + wanted)
        for endpoint_id, entry in changed.items():
            self._forget(endpoint_id)
            if entry.sizes:
                self._entries[endpoint_id] = entry
                self.total_bytes += entry.total

    def forget(self, endpoint_id: str) -> None:
        """The endpoint is gone, and what was known of it."""
        self._forget(endpoint_id)

    def _after(self, endpoint_id: str, values: Mapping[str, AttributeValue | None], now_s: float) -> _Entry:
        known = self._entries.get(endpoint_id)
        sizes = dict(known.sizes) if known is not None else {}
        for name, value in values.items():
            if value is None:
                sizes.pop(name, None)
            else:
                sizes[name] = _size(name) + _size(value)
        return _Entry(now_s, sum(sizes.values()), sizes)

    def _make_room(self, wanted: int, now_s: float, changed: Mapping[str, object]) -> None:
        while self._entries and self.total_bytes + wanted > MAX_REF_BYTES:
            endpoint_id, oldest = next(iter(self._entries.items()))
            if endpoint_id in changed or now_s - oldest.touched_s < self._idle_s:
                return
            self._forget(endpoint_id)

    def _forget(self, endpoint_id: str) -> None:
        entry = self._entries.pop(endpoint_id, None)
        if entry is not None:
            self.total_bytes -= entry.total


def _size(value: AttributeValue) -> int:
    """Bytes that a value counts. Its depth and its size were checked."""
    if isinstance(value, str):
        return _NUMBER_BYTES + (len(value) if value.isascii() else len(value.encode()))
    if isinstance(value, bytes):
        return _NUMBER_BYTES + len(value)
    if isinstance(value, list):
        return _NUMBER_BYTES + sum(map(_size, value))
    if isinstance(value, dict):
        return _NUMBER_BYTES + sum(_size(name) + _size(item) for name, item in value.items())
    return _NUMBER_BYTES


def _too_much(bound: int, of: str, found: int) -> PluginFault:
    return PluginFault("BAD_RESULT", f"expected attributes {of} of at most {bound} bytes in all, found {found}")
