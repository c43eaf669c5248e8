"""What an EndpointPickerConfig says, as values. Pure.

Invariants of a `PickerConfig`: names of plugins are unique; weights are finite and not negative; everything is in the order
of the file. Two are equal when they say the same, wherever in their files it stands.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from hotbay.config.documents import Document
from hotbay.config.wording import Path, Value
from hotbay.errors import Place, Problem

__all__ = [
    "BAND_MAX_BYTES",
    "BAND_MAX_REQUESTS",
    "REQUEST_TTL_S",
    "DataLayer",
    "FlowControl",
    "PickerConfig",
    "PluginEntry",
    "PriorityBand",
    "ProfileEntry",
    "RefEntry",
    "SourceEntry",
]

REQUEST_TTL_S: Final = 60.0
BAND_MAX_BYTES: Final = 1_000_000_000
BAND_MAX_REQUESTS: Final = 5000


@dataclass(frozen=True, slots=True)
class PluginEntry:
    """An instance to make: its name (by default its type), type, and parameters as written.

    `place` is None for one that nobody wrote.
    """

    name: str
    type: str
    parameters: Mapping[str, Value]
    place: Place | None = field(default=None, compare=False)
    path: Path = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class RefEntry:
    """A use of an instance. `weight` is None when none is written, `place` when nobody wrote the entry."""

    ref: str
    weight: float | None = None
    place: Place | None = field(default=None, compare=False)
    path: Path = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class ProfileEntry:
    """A named list of uses, in the order of the file."""

    name: str
    plugins: tuple[RefEntry, ...]
    place: Place | None = field(default=None, compare=False)
    path: Path = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class SourceEntry:
    """A data source with its extractors."""

    source: RefEntry
    extractors: tuple[RefEntry, ...]


@dataclass(frozen=True, slots=True)
class DataLayer:
    """Where endpoints and their data come from, beside the defaults."""

    inject_defaults: bool = True
    sources: tuple[SourceEntry, ...] = ()
    discovery: RefEntry | None = None

    @property
    def refs(self) -> frozenset[str]:
        """Names of the plugins that it refers to."""
        found = [self.discovery] if self.discovery is not None else []
        for source in self.sources:
            found += (source.source, *source.extractors)
        return frozenset(entry.ref for entry in found)


@dataclass(frozen=True, slots=True)
class PriorityBand:
    """Bounds and policies of requests of one priority; of a default band the priority has no meaning."""

    priority: int = 0
    max_bytes: int = BAND_MAX_BYTES
    max_requests: int = BAND_MAX_REQUESTS
    fairness: RefEntry | None = None
    ordering: RefEntry | None = None
    place: Place | None = field(default=None, compare=False)
    path: Path = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class FlowControl:
    """`flowControl` as read. 0 bytes or requests are no limit; a lifetime of 0 s never ends."""

    max_bytes: int = 0
    max_requests: int = 0
    request_ttl_s: float = REQUEST_TTL_S
    no_endpoint_ttl_s: float = REQUEST_TTL_S
    default_band: PriorityBand = PriorityBand()
    negative_band: PriorityBand = PriorityBand()
    bands: tuple[PriorityBand, ...] = ()
    usage_limit: RefEntry | None = None
    saturation_detector: RefEntry | None = None
    enable_eviction: bool = False

    @property
    def all_bands(self) -> tuple[PriorityBand, ...]:
        """The default ones first."""
        return (self.default_band, self.negative_band, *self.bands)

    @property
    def policies(self) -> Iterator[RefEntry]:
        """The references to policies that are written."""
        for band in self.all_bands:
            yield from (ref for ref in (band.fairness, band.ordering) if ref is not None)
        if self.usage_limit is not None:
            yield self.usage_limit


@dataclass(frozen=True, slots=True)
class PickerConfig:
    """What an EndpointPickerConfig says. `profiles`, `parsers` are empty when none are written."""

    plugins: tuple[PluginEntry, ...]
    profiles: tuple[ProfileEntry, ...]
    data_layer: DataLayer
    feature_gates: Mapping[str, bool]
    warnings: tuple[Problem, ...] = field(compare=False)
    document: Document = field(compare=False, repr=False)
    flow_control: FlowControl = FlowControl()
    parsers: tuple[RefEntry, ...] = ()

    @property
    def queues(self) -> bool:
        """Whether the gate of flow control is open: only then anything of `flow_control` but the detector counts."""
        return self.feature_gates.get("flowControl", False)

    def plugin(self, name: str) -> PluginEntry | None:
        """Return the instance of that name."""
        return next((plugin for plugin in self.plugins if plugin.name == name), None)

    def place(self, *path: str | int) -> Place:
        """Return where the key at `path` stands, e.g. ``*entry.path, "parameters", "threshold"``."""
        return self.document.key_place(path)
