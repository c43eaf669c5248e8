"""What `dataLayer` says once its references are followed: the discovery, and each source with its extractors.

Decides which plugins may stand where, adds the default source and extractor, and has each type that the host has itself read
its parameters. A type of a package is passed on: what it is, its process says. Pure.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, TypeVar

from hotbay.config.data_parameters import DCGM_PORT, READERS, DataTypeParameters, MetricsSource, ObjectDirectory, Tls
from hotbay.config.data_types import BUILTIN_FORMS, Point, TypeForm
from hotbay.config.data_uses import ExtractorUse, SourceUse, check_uses
from hotbay.config.discovery_parameters import DISCOVERIES, DiscoveryParameters
from hotbay.config.documents import refuse
from hotbay.config.engine_parameters import EngineParameters
from hotbay.config.forms import Form
from hotbay.config.picker_config import PickerConfig, PluginEntry, RefEntry, SourceEntry
from hotbay.config.wording import quoted
from hotbay.errors import InputError, Problem

__all__ = [
    "DATA_TYPES",
    "DEFAULT_EXTRACTOR",
    "DEFAULT_SOURCE",
    "DataParameters",
    "Provided",
    "default_use",
    "read_data_layer",
]

DEFAULT_SOURCE: Final = "metrics-data-source"
DEFAULT_EXTRACTOR: Final = "core-metrics-extractor"
DATA_TYPES: Final = frozenset({*BUILTIN_FORMS, *DISCOVERIES})
"""Types of the data layer that are built into the host."""

_WITHOUT_PARAMETERS: Final[Mapping[str, MetricsSource]] = {
    DEFAULT_SOURCE: MetricsSource(),
    "models-data-source": MetricsSource(path="/v1/models"),
    "dcgm-data-source": MetricsSource(port=DCGM_PORT),
}
_NOTHING: Final = TypeForm(frozenset())
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Provided:
    """A discovery that a package provides; its parameters are its own affair."""

    entry: PluginEntry


@dataclass(frozen=True, slots=True)
class DataParameters:
    """All that a configuration says about the data layer. `discovery` is None where it says nothing of it."""

    discovery: DiscoveryParameters | Provided | None
    sources: tuple[SourceUse, ...]
    warnings: tuple[Problem, ...] = field(default=(), compare=False)


def read_data_layer(
    config: PickerConfig, *, others: Collection[str] = (), forms: Mapping[str, TypeForm] | None = None
) -> DataParameters:
    """Read what `dataLayer` refers to.

    Args:
        config: the whole configuration.
        others: types that are known to be something else, such as scorers.
        forms: what types of packages are known to be; those of the host are known anyway.

    Raises:
        InputError: with every problem found: a type that cannot stand where it does, or parameters that are wrong.
    """
    return _Reading(config, frozenset(others) | DISCOVERIES.keys(), {**(forms or {}), **BUILTIN_FORMS}).read()


def default_use(type_name: str) -> SourceUse | None:
    """A source of the type as it is without parameters, named by its type; None for a type that cannot do without."""
    parameters = _WITHOUT_PARAMETERS.get(type_name)
    if parameters is None:
        return None
    return SourceUse(type_name, type_name, BUILTIN_FORMS[type_name], parameters, injected=True)


class _Reading:
    def __init__(self, config: PickerConfig, others: Collection[str], forms: Mapping[str, TypeForm]) -> None:
        self._config = config
        self._form = Form(config.document)
        self._others = others
        self._forms = forms

    def read(self) -> DataParameters:
        discovery = self._discovery(self._config.data_layer.discovery)
        written = self._config.data_layer.sources
        uses = [use for source in written if (use := self._source(source)) is not None]
        if self._injects(written):
            uses.append(self._default())
        elif not written:
            message = "the data layer has no sources"
            hint = "name at least one under `dataLayer.sources`, or leave `injectDefaults` out"
            self._form.report(("dataLayer", "injectDefaults"), "CONFIG_INVALID", message, hint=hint)
        self._form.problems.extend(check_uses(uses))
        refuse(self._form.problems)
        for use in uses:
            self._warn(use)
        return DataParameters(discovery, tuple(uses), tuple(self._form.warnings))

    def _injects(self, written: tuple[SourceEntry, ...]) -> bool:
        """The reference tests the name and not the type."""
        named = any(source.source.ref == DEFAULT_SOURCE for source in written)
        return self._config.data_layer.inject_defaults and not named

    def _default(self) -> SourceUse:
        """The default source with its extractor; instances that have these names are used as they are configured."""
        name, inner = DEFAULT_SOURCE, DEFAULT_EXTRACTOR
        source, extractor = self._config.plugin(name), self._config.plugin(inner)
        made = ExtractorUse(inner, inner, BUILTIN_FORMS[inner], EngineParameters())
        if extractor is not None:
            place, path = extractor.place, extractor.path
            read = self._parameters(extractor)
            made = ExtractorUse(inner, extractor.type, self._form_of(extractor), read, place, path)
        if source is None:
            return SourceUse(name, name, BUILTIN_FORMS[name], MetricsSource(), (made,), injected=True)
        parameters, form = self._parameters(source), self._form_of(source)
        return SourceUse(name, source.type, form, parameters, (made,), True, source.place, source.path)

    def _discovery(self, reference: RefEntry | None) -> DiscoveryParameters | Provided | None:
        entry = self._config.plugin(reference.ref) if reference is not None else None
        if reference is None or entry is None:
            return None
        if entry.type in DISCOVERIES:
            return self._read(DISCOVERIES[entry.type], entry)
        form = self._form_of(entry)
        if form is not None and Point.DISCOVER not in form.points:
            message = f"the plugin {quoted(entry.name)} is no discovery"
            known = f"a discovery: {', '.join(sorted(DISCOVERIES))}, or one of a package"
            path = (*reference.path, "pluginRef")
            self._form.report(path, "CONFIG_INVALID", message, expected=known, found=entry.type)
        return Provided(entry)

    def _source(self, source: SourceEntry) -> SourceUse | None:
        extractors = []
        for reference in source.extractors:
            entry = self._config.plugin(reference.ref)
            if entry is not None:
                read = self._parameters(entry)
                path = (*reference.path, "pluginRef")
                place = self._config.document.place(path)
                extractors.append(ExtractorUse(entry.name, entry.type, self._form_of(entry), read, place, path))
        reference, entry = source.source, self._config.plugin(source.source.ref)
        if entry is None:
            return None
        parameters, form = self._parameters(entry), self._form_of(entry)
        if isinstance(parameters, ObjectDirectory):
            form = TypeForm(frozenset({Point.SOURCE}), (parameters.kind.payload,))
        path = (*reference.path, "pluginRef")
        place = self._config.document.place(path)
        return SourceUse(entry.name, entry.type, form, parameters, tuple(extractors), False, place, path)

    def _form_of(self, entry: PluginEntry) -> TypeForm | None:
        return _NOTHING if entry.type in self._others else self._forms.get(entry.type)

    def _parameters(self, entry: PluginEntry) -> DataTypeParameters:
        reader = READERS.get(entry.type)
        return None if reader is None else self._read(reader, entry)

    def _read(self, reader: Callable[[PickerConfig, PluginEntry], _T], entry: PluginEntry) -> _T | None:
        try:
            return reader(self._config, entry)
        except InputError as error:
            # An instance may be referred to more than once; what is wrong with it is told once.
            known = self._form.problems
            known.extend(problem for problem in error.problems if problem not in known)
            return None

    def _warn(self, use: SourceUse) -> None:
        entry = self._config.plugin(use.name)
        if entry is None or not isinstance(use.parameters, MetricsSource):
            return
        at, tls = (*entry.path, "parameters"), use.parameters.tls
        if use.parameters.scheme == "http" and replace(tls, insecure_skip_verify=False) != Tls():
            hint = "write `scheme: https` if the connection is to be protected"
            self._form.warn(at, "CONFIG_INVALID", "certificates have no effect with `scheme: http`", hint=hint)
        elif tls.insecure_skip_verify and tls.ca_cert_path:
            hint = "drop `insecureSkipVerify` to have the server proved"
            self._form.warn(at, "CONFIG_INVALID", "caCertPath has no effect beside insecureSkipVerify", hint=hint)
        if use.type == DEFAULT_SOURCE and use.name != DEFAULT_SOURCE and self._injects(self._config.data_layer.sources):
            hint = f"if one is meant, name it {DEFAULT_SOURCE}, or write `injectDefaults: false`"
            message = (
                f"metrics of each endpoint are fetched twice, by {quoted(use.name)} and by the default source: "
                f"only a source that is called {DEFAULT_SOURCE} takes its place, whatever its type"
            )
            self._form.warn(entry.path, "CONFIG_INVALID", message, hint=hint)
