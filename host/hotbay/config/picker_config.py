"""EndpointPickerConfig: which plugins take part in scheduling, in which profiles, with which weights.

Decides what a text of that kind says; knows no plugin type. A file that works with the reference
implementation works here unchanged, but for sections that this release does not carry out: those are
refused as NOT_SUPPORTED instead of being ignored.

Invariants of a `PickerConfig`: names of plugins are unique; each reference names one of them; weights are
finite and not negative; everything is in the order of the file. Two are equal when they say the same,
wherever in their files it stands. Pure.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from hotbay.config.documents import Document, read_document, refuse
from hotbay.config.forms import Form
from hotbay.config.wording import Path, Value, nearest, quoted
from hotbay.errors import Place, Problem

__all__ = [
    "API_VERSION",
    "DEFAULT_FILE",
    "DEFAULT_TEXT",
    "DEPRECATED_API_VERSION",
    "KIND",
    "DataLayer",
    "PickerConfig",
    "PluginEntry",
    "ProfileEntry",
    "RefEntry",
    "SourceEntry",
    "load_picker_config",
]

API_VERSION: Final = "llm-d.ai/v1alpha1"
DEPRECATED_API_VERSION: Final = "inference.networking.x-k8s.io/v1alpha1"
KIND: Final = "EndpointPickerConfig"

DEFAULT_FILE: Final = "<built-in default>"
DEFAULT_TEXT: Final = """\
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
- type: queue-scorer
- type: kv-cache-utilization-scorer
- type: prefix-cache-scorer
schedulingProfiles:
- name: default
  plugins:
  - {pluginRef: queue-scorer, weight: 2}
  - {pluginRef: kv-cache-utilization-scorer, weight: 2}
  - {pluginRef: prefix-cache-scorer, weight: 3}
"""

_GATES: Final = {"flowControl": False, "haPopulateNonLeaderDatastore": True}
_GATE_VALUES: Final = {"1": True, "t": True, "true": True, "0": False, "f": False, "false": False}

_FIELDS: Final = (
    "apiVersion",
    "kind",
    "featureGates",
    "plugins",
    "schedulingProfiles",
    "dataLayer",
    "requestHandler",
)
_RENAMED: Final = {
    "plugin_references": "plugins",
    "pluginReferences": "plugins",
    "scheduling_profiles": "schedulingProfiles",
    "endpointPickingProfiles": "schedulingProfiles",
    "endpoint_picking_profiles": "schedulingProfiles",
    "feature_gates": "featureGates",
    "data_layer": "dataLayer",
    "discovery": "dataLayer.discovery",
}
_RENAMED_IN_PLUGIN: Final = {"args": "parameters", "params": "parameters", "config": "parameters"}
_RENAMED_IN_ENTRY: Final = {"plugin_ref": "pluginRef", "pluginReference": "pluginRef", "args": "parameters"}
_NO_FLOW_CONTROL: Final = "flow control comes with a later release: requests are scheduled as they arrive"
_NO_PARSERS: Final = "parsers are fixed: the OpenAI form is understood"
_NO_REPLICAS: Final = "replicas of the router do not share state yet"
_LATER: Final = {"flowControl": _NO_FLOW_CONTROL, "saturationDetector": _NO_FLOW_CONTROL, "parser": _NO_PARSERS}
_LATER_IN_DATA_LAYER: Final = dict.fromkeys(
    ("peerDiscovery", "crossReplicaSyncerPluginRef", "crossReplicaSyncInterval"), _NO_REPLICAS
)


@dataclass(frozen=True, slots=True)
class PluginEntry:
    """An instance to make: its name (by default its type), type, and parameters as written."""

    name: str
    type: str
    parameters: Mapping[str, Value]
    place: Place = field(compare=False)
    path: Path = field(compare=False)


@dataclass(frozen=True, slots=True)
class RefEntry:
    """A use of an instance. `weight` is None when none is written."""

    ref: str
    weight: float | None
    place: Place = field(compare=False)
    path: Path = field(compare=False)


@dataclass(frozen=True, slots=True)
class ProfileEntry:
    """A named list of uses, in the order of the file."""

    name: str
    plugins: tuple[RefEntry, ...]
    place: Place = field(compare=False)
    path: Path = field(compare=False)


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
class PickerConfig:
    """What an EndpointPickerConfig says. `profiles` is empty when none are written."""

    plugins: tuple[PluginEntry, ...]
    profiles: tuple[ProfileEntry, ...]
    data_layer: DataLayer
    feature_gates: Mapping[str, bool]
    warnings: tuple[Problem, ...] = field(compare=False)
    document: Document = field(compare=False, repr=False)

    def plugin(self, name: str) -> PluginEntry | None:
        """Return the instance of that name."""
        return next((plugin for plugin in self.plugins if plugin.name == name), None)

    def place(self, *path: str | int) -> Place:
        """Return where the key at `path` stands, e.g. ``*entry.path, "parameters", "threshold"``."""
        return self.document.key_place(path)


def load_picker_config(text: str, *, file: str) -> PickerConfig:
    """Read an EndpointPickerConfig, YAML or JSON. An empty text gives the built-in default.

    Args:
        text: the document.
        file: the name that places carry.

    Raises:
        InputError: with every problem found.
    """
    reading = read_document(text, file=file)
    if reading.document.value is None and not reading.problems:
        reading = read_document(DEFAULT_TEXT, file=DEFAULT_FILE)
    form = Form(reading.document)
    config = _Reader(form).read()
    refuse([*reading.problems, *form.problems])
    return config


class _Reader:
    """Reads the sections in order; the names of plugins come first, references are checked against them."""

    def __init__(self, form: Form) -> None:
        self._form = form
        self._plugins: dict[str, PluginEntry] = {}
        self._refs_are_checked = True

    def read(self) -> PickerConfig:
        form = self._form
        top = form.fields(form.document.value, (), _FIELDS, renamed=_RENAMED, later=_LATER)
        if isinstance(form.document.value, dict):
            self._head(top)
        gates = self._gates(top.get("featureGates"))
        self._read_plugins(top.get("plugins"))
        profiles = self._read_profiles(top.get("schedulingProfiles"))
        data_layer = self._read_data_layer(top.get("dataLayer", {}))
        form.fields(top.get("requestHandler", {}), ("requestHandler",), (), later={"parsers": _NO_PARSERS})
        return PickerConfig(
            tuple(self._plugins.values()), profiles, data_layer, gates, tuple(form.warnings), form.document
        )

    def _head(self, top: Mapping[str, Value]) -> None:
        for key, due in (("apiVersion", (API_VERSION, DEPRECATED_API_VERSION)), ("kind", (KIND,))):
            if key not in top:
                self._form.report((key,), "CONFIG_INVALID", f"'{key}' is missing", expected=due[0])
            elif top[key] not in due:
                self._form.expected((key,), due[0], top[key])
        if top.get("apiVersion") == DEPRECATED_API_VERSION:
            self._form.warn(("apiVersion",), "DEPRECATED", "deprecated apiVersion", hint=f"write {API_VERSION}")

    def _gates(self, value: Value) -> Mapping[str, bool]:
        gates = dict(_GATES)
        for path, item in self._form.items(value, ("featureGates",)):
            text = self._form.text(item, path)
            if text is None:
                continue
            name, has_value, setting = text.partition("=")
            name, setting = name.strip(), setting.strip().lower() if has_value else "true"
            if name not in _GATES:
                self._form.report(
                    path,
                    "CONFIG_INVALID",
                    f"feature gate {quoted(name)} is unknown or unregistered",
                    hint=f"known: {', '.join(sorted(_GATES))}",
                )
            elif setting not in _GATE_VALUES:
                message = f"{quoted(setting)} is not a valid value for the feature gate {name!r}"
                self._form.report(path, "CONFIG_INVALID", message, expected="true or false")
            else:
                gates[name] = _GATE_VALUES[setting]
        if gates["flowControl"]:
            self._form.warn(("featureGates",), "NOT_SUPPORTED", "the gate flowControl has no effect in this release")
        return gates

    def _read_plugins(self, value: Value) -> None:
        top = self._form.document.value
        before = len(self._form.problems)
        for path, item in self._form.items(value, ("plugins",)):
            fields = self._form.fields(item, path, ("name", "type", "parameters"), renamed=_RENAMED_IN_PLUGIN)
            name = self._form.name(fields["name"], (*path, "name")) if "name" in fields else None
            entry = self._plugin(fields, path, name) if isinstance(item, dict) else None
            if entry:
                self._add_plugin(entry, is_named=name is not None)
        # Where names are missing for a reason that was reported, undefined references would be noise.
        is_misspelt = isinstance(top, dict) and any(_RENAMED.get(key) == "plugins" for key in top)
        self._refs_are_checked = len(self._form.problems) == before and not is_misspelt

    def _plugin(self, fields: Mapping[str, Value], path: Path, name: str | None) -> PluginEntry | None:
        parameters = fields.get("parameters", {})
        if not isinstance(parameters, dict):
            self._form.expected((*path, "parameters"), "a mapping", parameters)
            parameters = {}
        if fields.get("type", "") == "":
            shown = f"plugin {quoted(name)}" if name else "this plugin"
            self._form.report(path, "CONFIG_INVALID", f"{shown} is missing a type", hint="add `type`")
            return None
        kind = self._form.name(fields["type"], (*path, "type"))
        return PluginEntry(name or kind, kind, parameters, self._form.document.place(path), path) if kind else None

    def _add_plugin(self, entry: PluginEntry, *, is_named: bool) -> None:
        first = self._plugins.setdefault(entry.name, entry)
        if first is not entry:
            message = f"duplicate plugin name {quoted(entry.name)}, on lines {first.place.line} and {entry.place.line}"
            hint = "choose another name" if is_named else "without a name the type is the name: add `name`"
            self._form.report(entry.path, "DUPLICATE_NAME", message, hint=hint)

    def _read_profiles(self, value: Value) -> tuple[ProfileEntry, ...]:
        profiles: dict[str, ProfileEntry] = {}
        for path, item in self._form.items(value, ("schedulingProfiles",)):
            fields = self._form.fields(item, path, ("name", "plugins"), renamed={"plugin_refs": "plugins"})
            if isinstance(item, dict) and fields.get("name", "") == "":
                self._form.report(path, "CONFIG_INVALID", "this profile is missing a name", hint="add `name`")
            name = self._form.name(fields["name"], (*path, "name")) if fields.get("name") else None
            refs = [
                self._entry(item, at, name or "")
                for at, item in self._form.items(fields.get("plugins"), (*path, "plugins"))
            ]
            if name is None:
                continue
            profile = ProfileEntry(name, tuple(r for r in refs if r), self._form.document.place(path), path)
            first = profiles.setdefault(name, profile)
            if first is not profile:
                lines = f"on lines {first.place.line} and {profile.place.line}"
                message = f"duplicate profile name {quoted(name)}, {lines}"
                self._form.report(path, "DUPLICATE_NAME", message, hint="choose another name")
        return tuple(profiles.values())

    def _entry(self, value: Value, path: Path, profile: str) -> RefEntry | None:
        known = ("pluginRef", "weight", "type", "parameters")
        before = len(self._form.problems)
        fields = self._form.fields(value, path, known, renamed=_RENAMED_IN_ENTRY)
        weight = None
        if "weight" in fields:
            weight = self._form.number(fields["weight"], (*path, "weight"), minimum=0)
        inline = [key for key in ("type", "parameters") if key in fields]
        if "pluginRef" in fields and inline:
            message = f"`pluginRef` and `{inline[0]}` exclude each other"
            self._form.report(path, "CONFIG_INVALID", message, hint="an entry with `type` is an instance of its own")
            return None
        if inline:
            entry = self._plugin(fields, path, None)
            return self._inline(entry, weight, profile) if entry else None
        if "pluginRef" not in fields and len(self._form.problems) > before:
            # Most likely its misspelling was just reported.
            return None
        return self._ref(fields, path, weight)

    def _inline(self, entry: PluginEntry, weight: float | None, profile: str) -> RefEntry:
        """Name an instance written inside a profile ``profile/type``, with ``#2`` and so on for further ones."""
        name = base = f"{profile}/{entry.type}"
        number = 1
        while name in self._plugins:
            number += 1
            name = f"{base}#{number}"
        self._plugins[name] = PluginEntry(name, entry.type, entry.parameters, entry.place, entry.path)
        return RefEntry(name, weight, entry.place, entry.path)

    def _ref(self, fields: Mapping[str, Value], path: Path, weight: float | None = None) -> RefEntry | None:
        if fields.get("pluginRef", "") == "":
            hint = "name one of `plugins`"
            self._form.report(path, "CONFIG_INVALID", "this entry is missing a 'pluginRef'", hint=hint)
            return None
        ref = self._form.name(fields["pluginRef"], (*path, "pluginRef"))
        if ref is None:
            return None
        if ref not in self._plugins and self._refs_are_checked:
            guess = nearest(ref, self._plugins)
            hint = f"did you mean {quoted(guess)}?" if guess else "declare it under `plugins`"
            message = f"references undefined plugin {quoted(ref)}"
            self._form.report((*path, "pluginRef"), "UNDEFINED_REF", message, hint=hint)
        return RefEntry(ref, weight, self._form.document.place(path), path)

    def _read_data_layer(self, value: Value) -> DataLayer:
        path: Path = ("dataLayer",)
        known = ("injectDefaults", "sources", "discovery")
        fields = self._form.fields(value, path, known, later=_LATER_IN_DATA_LAYER)
        inject = True
        if "injectDefaults" in fields:
            inject = self._form.boolean(fields["injectDefaults"], (*path, "injectDefaults")) is not False
        sources = [self._source(item, at) for at, item in self._form.items(fields.get("sources"), (*path, "sources"))]
        discovery = None
        if "discovery" in fields:
            at = (*path, "discovery")
            discovery = self._ref(self._form.fields(fields["discovery"], at, ("pluginRef",)), at)
        return DataLayer(inject, tuple(s for s in sources if s), discovery)

    def _source(self, value: Value, path: Path) -> SourceEntry | None:
        fields = self._form.fields(value, path, ("pluginRef", "extractors"), renamed=_RENAMED_IN_ENTRY)
        extractors = [
            self._ref(self._form.fields(item, at, ("pluginRef",), renamed=_RENAMED_IN_ENTRY), at)
            for at, item in self._form.items(fields.get("extractors"), (*path, "extractors"))
        ]
        source = self._ref(fields, path)
        return SourceEntry(source, tuple(e for e in extractors if e)) if source else None
