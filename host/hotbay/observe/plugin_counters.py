"""What plugins count for themselves: a bounded number of counters and series for each. Pure.

Not thread-safe. Invariants: a plugin has at most `MAX_NAMES` names and `MAX_SERIES` series, beside one name `other`
without labels, which takes what goes beyond; no plugin's counting costs another one a series; counters only grow.
"""

import sys
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

__all__ = ["MAX_NAMES", "MAX_SERIES", "OTHER", "CounterSeries", "PluginCounters"]

MAX_NAMES: Final = 32
MAX_SERIES: Final = 256
"""Of one plugin. A page of a hundred plugins that use them all is 2 MB."""
OTHER: Final = "other"

_Key = tuple[str, tuple[tuple[str, str], ...]]


class CounterSeries(NamedTuple):
    """One counter of a plugin with one set of its own labels, sorted by key."""

    plugin: str
    name: str
    labels: tuple[tuple[str, str], ...]
    value: float


class PluginCounters:
    """See the module."""

    def __init__(self) -> None:
        self._counts: dict[str, dict[_Key, float]] = {}
        self._names: dict[str, set[str]] = {}

    def add(self, plugin: str, name: str, amount: float, labels: Mapping[str, str]) -> None:
        """Let a counter grow by a finite number from 0 up."""
        counts = self._counts.setdefault(plugin, {})
        names = self._names.setdefault(plugin, set())
        key: _Key = (name, tuple(sorted(labels.items())))
        if key not in counts:
            if len(counts) >= MAX_SERIES or (name not in names and len(names) >= MAX_NAMES):
                key = (OTHER, ())
            else:
                names.add(name)
        counts[key] = min(counts.get(key, 0.0) + amount, sys.float_info.max)

    def items(self) -> Iterator[CounterSeries]:
        """All series, sorted."""
        for plugin, counts in sorted(self._counts.items()):
            for (name, labels), value in sorted(counts.items()):
                yield CounterSeries(plugin, name, labels, value)
