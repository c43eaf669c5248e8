"""Parameters of the data-layer types that are built into the host: file discovery and the metrics source.

Decides what their `parameters` say, as strictly as a plugin of its own would, and which types may stand where in
`dataLayer`. Relative paths stay as written: they are relative to the folder of the file, which the caller knows. Pure.
"""

import re
from dataclasses import dataclass
from typing import Final

from hotbay.config.documents import refuse
from hotbay.config.forms import Form
from hotbay.config.picker_config import PickerConfig, PluginEntry, RefEntry
from hotbay.config.quantities import QuantityError, parse_duration_s
from hotbay.config.wording import Path, Value, not_supported

__all__ = [
    "DataParameters",
    "FileDiscovery",
    "MetricsSource",
    "read_data_layer",
    "read_file_discovery",
    "read_metrics_source",
]

_SHORTEST_INTERVAL_S: Final = 0.05
_MAX_PORT: Final = 65535
# It is written into a request line as it is.
_PATH: Final = re.compile(r"/[!-~]{0,1023}\Z")
_DISCOVERY: Final = "file-discovery"
_METRICS: Final = "metrics-data-source"
_EXTRACTOR: Final = "core-metrics-extractor"
_NO_OTHERS: Final = "other sources and extractors come with a later release"
_NO_TLS: Final = "endpoints are scraped over http"
_TLS_FIELDS: Final = ("insecureSkipVerify", "caCertPath", "clientCertPath", "clientKeyPath")


@dataclass(frozen=True, slots=True)
class FileDiscovery:
    """Where the file of endpoints is, and whether changes of it are followed."""

    path: str
    watch_file: bool


@dataclass(frozen=True, slots=True)
class MetricsSource:
    """How metrics are fetched; `port` and `interval_s` are None when nothing is written."""

    path: str = "/metrics"
    port: int | None = None
    interval_s: float | None = None


@dataclass(frozen=True, slots=True)
class DataParameters:
    """All that a configuration says about the data layer; None where it says nothing."""

    discovery: FileDiscovery | None
    metrics: MetricsSource | None


def read_data_layer(config: PickerConfig) -> DataParameters:
    """Read what `dataLayer` refers to.

    Raises:
        InputError: with every problem found: a type that cannot stand where it does, or parameters that are wrong.
    """
    form, layer = Form(config.document), config.data_layer
    if not layer.inject_defaults:
        form.problems.append(
            not_supported(("dataLayer", "injectDefaults"), config.place("dataLayer", "injectDefaults"), _NO_OTHERS)
        )
    discovery = _entry_of(form, config, layer.discovery, _DISCOVERY)
    sources = [_entry_of(form, config, source.source, _METRICS) for source in layer.sources]
    for source in layer.sources:
        for extractor in source.extractors:
            _entry_of(form, config, extractor, _EXTRACTOR)
    for source in layer.sources[1:]:
        form.problems.append(not_supported(source.source.path, source.source.place, "one source of metrics is read"))
    refuse(form.problems)
    metrics = next((entry for entry in sources if entry is not None), None)
    return DataParameters(
        None if discovery is None else read_file_discovery(config, discovery),
        None if metrics is None else read_metrics_source(config, metrics),
    )


def _entry_of(form: Form, config: PickerConfig, reference: RefEntry | None, kind: str) -> PluginEntry | None:
    """The plugin that the data layer refers to, which has to be of the one type that can stand there."""
    entry = config.plugin(reference.ref) if reference is not None else None
    if reference is not None and entry is not None and entry.type != kind:
        form.expected((*reference.path, "pluginRef"), f"a plugin of type {kind}", entry.type, hint=_NO_OTHERS)
    return entry


def read_file_discovery(config: PickerConfig, entry: PluginEntry) -> FileDiscovery:
    """Read the parameters of a `file-discovery` instance.

    Raises:
        InputError: with every problem found.
    """
    form, at = Form(config.document), (*entry.path, "parameters")
    fields = form.fields(dict(entry.parameters), at, ("path", "watchFile"))
    path = form.text(fields.get("path"), (*at, "path"))
    watch_file = form.boolean(fields["watchFile"], (*at, "watchFile")) if "watchFile" in fields else False
    refuse(form.problems)
    assert path is not None, "its absence was refused"
    return FileDiscovery(path, bool(watch_file))


def read_metrics_source(config: PickerConfig, entry: PluginEntry) -> MetricsSource:
    """Read the parameters of a `metrics-data-source` instance.

    Raises:
        InputError: with every problem found.
    """
    form, at = Form(config.document), (*entry.path, "parameters")
    known = ("scheme", "path", "port", "interval")
    fields = form.fields(dict(entry.parameters), at, known, later=dict.fromkeys(_TLS_FIELDS, _NO_TLS))
    if fields.get("scheme", "http") != "http":
        form.expected((*at, "scheme"), "http", fields["scheme"], hint=_NO_TLS)
    path = form.text(fields.get("path", "/metrics"), (*at, "path")) or ""
    if not _PATH.match(path) and not form.problems:
        form.expected((*at, "path"), "a path of printable characters that starts with /", path)
    port = _port(form, fields["port"], (*at, "port")) if "port" in fields else None
    interval_s = _interval_s(form, fields["interval"], (*at, "interval")) if "interval" in fields else None
    refuse(form.problems)
    return MetricsSource(path, port, interval_s)


def _port(form: Form, value: Value, path: Path) -> int | None:
    """Return a port; the reference writes ports as numbers or as texts."""
    digits = value if isinstance(value, str) else str(value) if type(value) is int else ""
    if digits.isascii() and digits.isdigit() and len(digits) <= 5 and 0 < int(digits) <= _MAX_PORT:
        return int(digits)
    form.expected(path, f"a port from 1 to {_MAX_PORT}", value)
    return None


def _interval_s(form: Form, value: Value, path: Path) -> float | None:
    try:
        interval_s = parse_duration_s(value)
    except QuantityError as e:
        form.expected(path, e.expected, value)
        return None
    if interval_s < _SHORTEST_INTERVAL_S:
        form.expected(path, "an interval of at least 50ms", value)
    return interval_s
