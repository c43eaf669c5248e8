"""EndpointPickerConfig: which plugins take part in scheduling, in which profiles, with which weights.

Decides what a text of that kind says; knows no plugin type. A file that works with the reference
implementation works here unchanged, but for what joins replicas of a router: that is refused as NOT_SUPPORTED instead of
being ignored. What nobody wrote is filled in by `system_defaults`, which knows types. Pure.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from hotbay.config.documents import read_document, refuse
from hotbay.config.flow_control import read_detector, read_flow_control
from hotbay.config.forms import Form
from hotbay.config.go_values import parse_go_duration_s
from hotbay.config.picker_fields import DATA_LAYER, ENTRY, GATES, PLUGIN, PROFILE, REF, REQUEST_HANDLER, SOURCE, TOP
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
from hotbay.config.picker_refs import RefReader
from hotbay.config.quantities import QuantityError
from hotbay.config.wording import Path, Value, not_supported, quoted

__all__ = [
    "API_VERSION",
    "DEFAULT_FILE",
    "DEFAULT_TEXT",
    "DEPRECATED_API_VERSION",
    "KIND",
    "DataLayer",
    "FlowControl",
    "PickerConfig",
    "PluginEntry",
    "PriorityBand",
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

_GATE_VALUES: Final = {"1": True, "t": True, "true": True, "0": False, "f": False, "false": False}

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
_NO_QUEUES: Final = "queueing itself comes with a later release: requests are scheduled as they arrive"
_NO_REPLICAS: Final = "replicas of the router do not share state yet"


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
        self._refs = RefReader(form, self._plugins)

    def read(self) -> PickerConfig:
        form = self._form
        top = form.fields(form.document.value, (), TOP, renamed=_RENAMED)
        if isinstance(form.document.value, dict):
            self._head(top)
        gates = self._gates(top.get("featureGates"))
        self._read_plugins(top.get("plugins"))
        profiles = self._read_profiles(top.get("schedulingProfiles"))
        data_layer = self._read_data_layer(top.get("dataLayer", {}))
        flow = self._flow_control(top, is_open=gates["flowControl"])
        parsers = self._parsers(top)
        plugins = tuple(self._plugins.values())
        warnings = tuple(form.warnings)
        return PickerConfig(plugins, profiles, data_layer, gates, warnings, form.document, flow, parsers)

    def _head(self, top: Mapping[str, Value]) -> None:
        for key, due in (("apiVersion", (API_VERSION, DEPRECATED_API_VERSION)), ("kind", (KIND,))):
            if key not in top:
                self._form.report((key,), "CONFIG_INVALID", f"'{key}' is missing", expected=due[0])
            elif top[key] not in due:
                self._form.expected((key,), due[0], top[key])
        if top.get("apiVersion") == DEPRECATED_API_VERSION:
            self._form.warn(("apiVersion",), "DEPRECATED", "deprecated apiVersion", hint=f"write {API_VERSION}")

    def _gates(self, value: Value) -> Mapping[str, bool]:
        gates = dict(GATES)
        for path, item in self._form.items(value, ("featureGates",)):
            text = self._form.text(item, path)
            if text is None:
                continue
            name, has_value, setting = text.partition("=")
            name, setting = name.strip(), setting.strip().lower() if has_value else "true"
            if name not in GATES:
                self._form.report(
                    path,
                    "CONFIG_INVALID",
                    f"feature gate {quoted(name)} is unknown or unregistered",
                    hint=f"known: {', '.join(sorted(GATES))}",
                )
            elif setting not in _GATE_VALUES:
                message = f"{quoted(setting)} is not a valid value for the feature gate {name!r}"
                self._form.report(path, "CONFIG_INVALID", message, expected="true or false")
            else:
                gates[name] = _GATE_VALUES[setting]
        if gates["flowControl"]:
            message = "flow control is read and checked, and its policies are made, but nothing waits"
            self._form.warn(("featureGates",), "NOT_SUPPORTED", message, hint=_NO_QUEUES)
        return gates

    def _read_plugins(self, value: Value) -> None:
        top = self._form.document.value
        before = len(self._form.problems)
        for path, item in self._form.items(value, ("plugins",)):
            fields = self._form.fields(item, path, PLUGIN, renamed=_RENAMED_IN_PLUGIN)
            name = self._form.name(fields["name"], (*path, "name")) if "name" in fields else None
            entry = self._plugin(fields, path, name) if isinstance(item, dict) else None
            if entry:
                self._add_plugin(entry, is_named=name is not None)
        # Where names are missing for a reason that was reported, undefined references would be noise.
        is_misspelt = isinstance(top, dict) and any(_RENAMED.get(key) == "plugins" for key in top)
        self._refs.checked = len(self._form.problems) == before and not is_misspelt

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
            lines = self._lines(first.path, entry.path)
            message = f"duplicate plugin name {quoted(entry.name)}, {lines}"
            hint = "choose another name" if is_named else "without a name the type is the name: add `name`"
            self._form.report(entry.path, "DUPLICATE_NAME", message, hint=hint)

    def _lines(self, first: Path, second: Path) -> str:
        one, other = (self._form.document.place(path).line for path in (first, second))
        return f"on lines {one} and {other}"

    def _read_profiles(self, value: Value) -> tuple[ProfileEntry, ...]:
        profiles: dict[str, ProfileEntry] = {}
        for path, item in self._form.items(value, ("schedulingProfiles",)):
            fields = self._form.fields(item, path, PROFILE, renamed={"plugin_refs": "plugins"})
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
                message = f"duplicate profile name {quoted(name)}, {self._lines(first.path, path)}"
                self._form.report(path, "DUPLICATE_NAME", message, hint="choose another name")
        return tuple(profiles.values())

    def _entry(self, value: Value, path: Path, profile: str) -> RefEntry | None:
        before = len(self._form.problems)
        fields = self._form.fields(value, path, ENTRY, renamed=_RENAMED_IN_ENTRY)
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
        return self._refs.of_fields(fields, path, weight)

    def _inline(self, entry: PluginEntry, weight: float | None, profile: str) -> RefEntry:
        """Name an instance written inside a profile ``profile/type``, with ``#2`` and so on for further ones."""
        name = base = f"{profile}/{entry.type}"
        number = 1
        while name in self._plugins:
            number += 1
            name = f"{base}#{number}"
        self._plugins[name] = replace(entry, name=name)
        return RefEntry(name, weight, entry.place, entry.path)

    def _read_data_layer(self, value: Value) -> DataLayer:
        path: Path = ("dataLayer",)
        fields = self._form.fields(value, path, DATA_LAYER)
        inject = True
        if "injectDefaults" in fields:
            inject = self._form.boolean(fields["injectDefaults"], (*path, "injectDefaults")) is not False
        sources = [self._source(item, at) for at, item in self._form.items(fields.get("sources"), (*path, "sources"))]
        discovery = None
        if "discovery" in fields:
            discovery = self._refs.entry(fields["discovery"], (*path, "discovery"), REF, renamed={})
        self._replicas(fields, path)
        return DataLayer(inject, tuple(s for s in sources if s), discovery)

    def _replicas(self, fields: Mapping[str, Value], path: Path) -> None:
        """What joins replicas of a router: an interval alone asks for nothing, the rest cannot be had yet."""
        form = self._form
        if "peerDiscovery" in fields:
            at = (*path, "peerDiscovery")
            if self._refs.entry(fields["peerDiscovery"], at, REF, renamed={}) is not None:
                form.problems.append(not_supported(at, form.document.key_place(at), _NO_REPLICAS))
        if "crossReplicaSyncerPluginRef" in fields:
            at = (*path, "crossReplicaSyncerPluginRef")
            if self._refs.named(fields["crossReplicaSyncerPluginRef"], at) is not None:
                form.problems.append(not_supported(at, form.document.key_place(at), _NO_REPLICAS))
        if "crossReplicaSyncInterval" in fields:
            at = (*path, "crossReplicaSyncInterval")
            try:
                parse_go_duration_s(fields["crossReplicaSyncInterval"])
            except QuantityError as error:
                form.expected(at, error.expected, fields["crossReplicaSyncInterval"])
            else:
                form.warn(at, "NO_EFFECT", "has no effect without a crossReplicaSyncerPluginRef", hint=_NO_REPLICAS)

    def _source(self, value: Value, path: Path) -> SourceEntry | None:
        fields = self._form.fields(value, path, SOURCE, renamed=_RENAMED_IN_ENTRY)
        extractors = [
            self._refs.entry(item, at, REF, renamed=_RENAMED_IN_ENTRY)
            for at, item in self._form.items(fields.get("extractors"), (*path, "extractors"))
        ]
        source = self._refs.of_fields(fields, path)
        return SourceEntry(source, tuple(e for e in extractors if e)) if source else None

    def _flow_control(self, top: Mapping[str, Value], *, is_open: bool) -> FlowControl:
        flow = read_flow_control(top.get("flowControl", {}), self._form, self._refs, is_open=is_open)
        written = top.get("flowControl")
        if not is_open and isinstance(written, dict) and written.keys() - {"saturationDetector"}:
            hint = "only its saturationDetector counts; write `featureGates: [flowControl]` to open the gate"
            self._form.warn(("flowControl",), "NO_EFFECT", "is ignored while the gate flowControl is off", hint=hint)
        if "saturationDetector" not in top:
            return flow
        old = read_detector(top["saturationDetector"], ("saturationDetector",), self._refs)
        has_new = isinstance(written, dict) and written.get("saturationDetector") is not None
        self._moved("saturationDetector", "flowControl.saturationDetector", has_new=has_new)
        return flow if has_new else replace(flow, saturation_detector=old)

    def _parsers(self, top: Mapping[str, Value]) -> tuple[RefEntry, ...]:
        """References to parsers. Whether they name one is known with the types: a type's name stands for a parser, too."""
        path: Path = ("requestHandler", "parsers")
        fields = self._form.fields(top.get("requestHandler", {}), ("requestHandler",), REQUEST_HANDLER)
        parsers = [self._parser(item, at) for at, item in self._form.items(fields.get("parsers"), path)]
        if "parser" not in top:
            return tuple(entry for entry in parsers if entry)
        old = self._parser(top["parser"], ("parser",))
        self._moved("parser", "requestHandler.parsers", has_new=bool(parsers))
        return tuple(entry for entry in parsers or [old] if entry)

    def _parser(self, value: Value, path: Path) -> RefEntry | None:
        checked, self._refs.checked = self._refs.checked, False
        try:
            return self._refs.entry(value, path, REF, renamed={})
        finally:
            self._refs.checked = checked

    def _moved(self, old: str, new: str, *, has_new: bool) -> None:
        message = (
            f"deprecated, and has no effect beside {new}" if has_new else "deprecated: it belongs to another place"
        )
        self._form.warn((old,), "DEPRECATED", message, hint=f"write it under {new}")
