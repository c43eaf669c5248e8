"""What a configuration means where it says nothing: the reference's defaults, in the order of the file. Pure.

`complete` writes into a configuration what nobody wrote: the default profile, the profile handler, the picker of a profile, the
weight of a scorer, parsers, the saturation detector, policies of flow control, the default source with its extractor. What is
made has no parameters and no place. What depends on types of which nothing is known is left as it is: it is settled when
their processes are READY. Completing twice is completing once.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Final

from hotbay.config.data_sources import DEFAULT_EXTRACTOR, DEFAULT_SOURCE
from hotbay.config.flow_control import DEFAULT_DETECTOR, DEFAULT_FAIRNESS, DEFAULT_ORDERING, DEFAULT_USAGE_LIMIT
from hotbay.config.picker_model import (
    DataLayer,
    FlowControl,
    PickerConfig,
    PluginEntry,
    PriorityBand,
    ProfileEntry,
    RefEntry,
    SourceEntry,
)
from hotbay.config.type_facts import FILTER, PARSE, PICK, PROFILE_HANDLER, SCORE, TypeFacts

__all__ = ["DEFAULT_HANDLER", "DEFAULT_PARSERS", "DEFAULT_PICKER", "DEFAULT_PROFILE", "FactsOf", "complete"]

FactsOf = Callable[[str], TypeFacts | None]
"""What is known of a type; None of one that nobody provides."""

DEFAULT_PROFILE: Final = "default"
DEFAULT_HANDLER: Final = "single-profile-handler"
DEFAULT_PICKER: Final = "max-score-picker"
DEFAULT_PARSERS: Final = ("openai-parser", "anthropic-parser", "vllmhttp-parser", "passthrough-parser")
DEFAULT_WEIGHT: Final = 1.0


def complete(config: PickerConfig, facts: FactsOf) -> PickerConfig:
    """The configuration with every default written out."""
    return _Completion(config, facts).run()


class _Completion:
    def __init__(self, config: PickerConfig, facts: FactsOf) -> None:
        self._config = config
        self._facts = facts
        self._plugins = {entry.name: entry for entry in config.plugins}
        self._written = tuple(self._plugins.values())

    def run(self) -> PickerConfig:
        profiles = self._profiles()
        parsers = self._parsers()
        flow = self._flow_control(self._config.flow_control)
        data_layer = self._data_layer(self._config.data_layer)
        return replace(
            self._config,
            plugins=tuple(self._plugins.values()),
            profiles=profiles,
            parsers=parsers,
            flow_control=flow,
            data_layer=data_layer,
        )

    # -- what is known ---------------------------------------------------------------------------

    def _answers(self, name: str, *points: str) -> bool:
        entry = self._plugins.get(name)
        facts = self._facts(entry.type) if entry is not None else None
        return facts is not None and facts.answers(*points)

    def _is_unknown(self, entry: PluginEntry) -> bool:
        """Whether it may be anything at all: what stands in the data layer is part of that alone."""
        facts = self._facts(entry.type)
        return (facts is None or not facts.points) and entry.name not in self._config.data_layer.refs

    def _known(self, names: Iterable[str] | None = None) -> bool:
        entries = self._written if names is None else [self._plugins[name] for name in names if name in self._plugins]
        return not any(self._is_unknown(entry) for entry in entries)

    def _make(self, type_name: str) -> RefEntry | None:
        """A use of the instance that is called as its type; made, unless it is there or nobody provides the type."""
        if type_name not in self._plugins:
            if self._facts(type_name) is None:
                return None
            self._plugins[type_name] = PluginEntry(type_name, type_name, {})
        return RefEntry(type_name)

    # -- profiles --------------------------------------------------------------------------------

    def _profiles(self) -> tuple[ProfileEntry, ...]:
        profiles = self._config.profiles
        if not profiles and self._known():
            refs = (RefEntry(entry.name, None, entry.place, entry.path) for entry in self._written)
            profiles = (ProfileEntry(DEFAULT_PROFILE, tuple(r for r in refs if self._takes_part(r.ref))),)
        if len(profiles) == 1 and self._known() and not any(map(self._is_handler, self._plugins)):
            self._make(DEFAULT_HANDLER)
        return tuple(self._profile(profile) for profile in profiles)

    def _takes_part(self, name: str) -> bool:
        return self._answers(name, FILTER, SCORE, PICK)

    def _is_handler(self, name: str) -> bool:
        return self._answers(name, PROFILE_HANDLER)

    def _profile(self, profile: ProfileEntry) -> ProfileEntry:
        refs = tuple(self._weighted(entry) for entry in profile.plugins)
        if not any(self._answers(entry.ref, PICK) for entry in refs) and self._known(entry.ref for entry in refs):
            written = [entry.name for entry in self._written if self._answers(entry.name, PICK)]
            # One that may be a picker comes before any that is made.
            if written or self._known():
                picker = RefEntry(written[0]) if written else self._make(DEFAULT_PICKER)
                refs += (picker,) if picker is not None else ()
        return replace(profile, plugins=refs)

    def _weighted(self, entry: RefEntry) -> RefEntry:
        if entry.weight is None and self._answers(entry.ref, SCORE):
            return replace(entry, weight=DEFAULT_WEIGHT)
        return entry

    # -- requests and data -----------------------------------------------------------------------

    def _parsers(self) -> tuple[RefEntry, ...]:
        """As written; those that are called as a type of parser and not declared are made."""
        written = self._config.parsers or tuple(RefEntry(name) for name in DEFAULT_PARSERS)
        for entry in written:
            facts = self._facts(entry.ref)
            if facts is not None and facts.answers(PARSE):
                self._make(entry.ref)
        return tuple(entry for entry in written if self._config.parsers or entry.ref in self._plugins)

    def _flow_control(self, flow: FlowControl) -> FlowControl:
        detector = flow.saturation_detector
        if detector is None or (detector.ref == DEFAULT_DETECTOR and detector.ref not in self._plugins):
            detector = self._make(DEFAULT_DETECTOR) or detector
        flow = replace(flow, saturation_detector=detector)
        if not self._config.queues:
            return flow
        usage_limit = self._policy(flow.usage_limit, DEFAULT_USAGE_LIMIT)
        return replace(
            flow,
            usage_limit=usage_limit,
            default_band=self._band(flow.default_band),
            negative_band=self._band(flow.negative_band),
            bands=tuple(self._band(band) for band in flow.bands),
        )

    def _band(self, band: PriorityBand) -> PriorityBand:
        fairness = self._policy(band.fairness, DEFAULT_FAIRNESS)
        return replace(band, fairness=fairness, ordering=self._policy(band.ordering, DEFAULT_ORDERING))

    def _policy(self, written: RefEntry | None, default: str) -> RefEntry | None:
        if written is not None and written.ref in self._plugins:
            return written
        made = self._make(default if written is None else written.ref)
        return written or made

    def _data_layer(self, layer: DataLayer) -> DataLayer:
        """The reference tests the name of the source and not its type."""
        if not layer.inject_defaults or any(entry.source.ref == DEFAULT_SOURCE for entry in layer.sources):
            return layer
        source, extractor = self._make(DEFAULT_SOURCE), self._make(DEFAULT_EXTRACTOR)
        if source is None or extractor is None:
            return layer
        return replace(layer, sources=(*layer.sources, SourceEntry(source, (extractor,))))
