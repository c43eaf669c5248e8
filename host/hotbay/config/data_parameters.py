"""Parameters of the data-layer types that are built into the host: file discovery and the metrics source.

Decides what their `parameters` say, as strictly as a plugin of its own would. Relative paths stay as
written: they are relative to the folder of the file, which the caller knows. Pure.
"""

from dataclasses import dataclass
from typing import Final

from hotbay.config.documents import refuse
from hotbay.config.forms import Form
from hotbay.config.picker_config import PickerConfig, PluginEntry
from hotbay.config.quantities import QuantityError, parse_duration_s
from hotbay.config.wording import Path, Value

__all__ = ["FileDiscovery", "MetricsSource", "read_file_discovery", "read_metrics_source"]

_SHORTEST_INTERVAL_S: Final = 0.05
_MAX_PORT: Final = 65535
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

    path: str
    port: int | None
    interval_s: float | None


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
    if not path.startswith("/") and not form.problems:
        form.expected((*at, "path"), "a path that starts with /", path)
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
