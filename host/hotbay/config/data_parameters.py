"""Parameters of the data sources and extractors that are built into the host, each as strict as a plugin of its own would be.

Decides what their `parameters` say. Relative paths stay as written: they are relative to the folder of the file, which the
caller knows. `READERS` is the whole list. Pure.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeAlias

from hotbay.config.data_types import BUILTIN_FORMS, ObjectKind
from hotbay.config.documents import refuse
from hotbay.config.engine_parameters import EngineParameters, read_engine_parameters
from hotbay.config.forms import Form
from hotbay.config.picker_config import PickerConfig, PluginEntry
from hotbay.config.quantities import QuantityError, parse_duration_s
from hotbay.config.wording import Path, Value

__all__ = [
    "DCGM_PORT",
    "READERS",
    "SHORTEST_INTERVAL_S",
    "TLS_FIELDS",
    "DataTypeParameters",
    "MetricsSource",
    "ObjectDirectory",
    "Tls",
    "read_core_extractor",
    "read_metrics_source",
    "read_no_parameters",
    "read_object_directory",
    "read_tls",
]

SHORTEST_INTERVAL_S: Final = 0.05
"""The reference's base tick, and its minimum."""
_MAX_PORT: Final = 65535
# A zero in front means another base to some readers.
_PORT: Final = re.compile(r"[1-9][0-9]{0,4}\Z")
# It is written into a request line as it is.
_PATH: Final = re.compile(r"/[!-~]{0,1023}\Z")
_HTTP_FIELDS: Final = ("scheme", "path", "port", "interval")
_TLS_FILES: Final = ("caCertPath", "clientCertPath", "clientKeyPath")
TLS_FIELDS: Final = ("insecureSkipVerify", *_TLS_FILES)


@dataclass(frozen=True, slots=True)
class Tls:
    """How a server is proved and what is shown to it; paths are PEM files, "" = none.

    `ca_cert_path` stands in place of the system's authorities; the client's certificate and key come together. With
    `insecure_skip_verify` the authorities do not matter.
    """

    insecure_skip_verify: bool = False
    ca_cert_path: str = ""
    client_cert_path: str = ""
    client_key_path: str = ""


@dataclass(frozen=True, slots=True)
class MetricsSource:
    """How a page is fetched from each endpoint; `port` and `interval_s` are None when nothing is written."""

    path: str = "/metrics"
    port: int | None = None
    interval_s: float | None = None
    scheme: str = "http"
    tls: Tls = Tls()


@dataclass(frozen=True, slots=True)
class ObjectDirectory:
    """A folder of YAML documents, and the kind of objects in it that matters."""

    path: str
    kind: ObjectKind


DataTypeParameters: TypeAlias = MetricsSource | ObjectDirectory | EngineParameters | None


def read_metrics_source(
    config: PickerConfig, entry: PluginEntry, *, path: str = "/metrics", port: int | None = None
) -> MetricsSource:
    """Read the parameters of a source that fetches by HTTP; `path` and `port` are what holds when none is written.

    Raises:
        InputError: with every problem found.
    """
    form, at = Form(config.document), (*entry.path, "parameters")
    fields = form.fields(dict(entry.parameters), at, (*_HTTP_FIELDS, *TLS_FIELDS))
    scheme = fields.get("scheme", "http")
    if scheme not in ("http", "https"):
        form.expected((*at, "scheme"), "http or https", scheme)
    written = form.text(fields.get("path", path), (*at, "path"))
    if written is not None and not _PATH.match(written):
        form.expected((*at, "path"), "a path of printable characters that starts with /", written)
    port = _port(form, fields["port"], (*at, "port")) if "port" in fields else port
    interval_s = _interval_s(form, fields["interval"], (*at, "interval")) if "interval" in fields else None
    tls = read_tls(form, fields, at)
    refuse(form.problems)
    return MetricsSource(written or path, port, interval_s, str(scheme), tls)


def read_tls(form: Form, fields: Mapping[str, Value], at: Path) -> Tls:
    """Read the TLS_FIELDS among `fields`; what is wrong with them is in the form."""
    skip = form.boolean(fields["insecureSkipVerify"], (*at, "insecureSkipVerify")) if TLS_FIELDS[0] in fields else False
    ca, certificate, key = (form.text(fields[name], (*at, name)) if name in fields else "" for name in _TLS_FILES)
    if bool(certificate) != bool(key) and None not in (certificate, key):
        one, other = _TLS_FILES[1:] if certificate else reversed(_TLS_FILES[1:])
        form.report((*at, one), "CONFIG_INVALID", f"needs `{other}` beside it", expected=f"`{other}`")
    return Tls(bool(skip), ca or "", certificate or "", key or "")


def read_object_directory(config: PickerConfig, entry: PluginEntry) -> ObjectDirectory:
    """Read the parameters of an `object-directory-source` instance.

    Raises:
        InputError: with every problem found.
    """
    form, at = Form(config.document), (*entry.path, "parameters")
    fields = form.fields(dict(entry.parameters), at, ("path", "apiVersion", "kind"))
    path = form.text(fields.get("path"), (*at, "path"))
    version = form.text(fields.get("apiVersion"), (*at, "apiVersion"))
    word = form.text(fields.get("kind"), (*at, "kind"))
    kind = None
    if version is not None and word is not None:
        try:
            kind = ObjectKind.parse(version, word)
        except ValueError as error:
            form.report(at, "CONFIG_INVALID", f"no kind of objects: {error}")
    refuse(form.problems)
    assert path is not None, "its absence was refused"
    assert kind is not None, "its absence was refused"
    return ObjectDirectory(path, kind)


def read_core_extractor(config: PickerConfig, entry: PluginEntry) -> EngineParameters:
    """Read the parameters of a `core-metrics-extractor` instance.

    Raises:
        InputError: with every problem found.
    """
    form = Form(config.document)
    parameters = read_engine_parameters(form, dict(entry.parameters), (*entry.path, "parameters"))
    refuse(form.problems)
    return parameters


def read_no_parameters(config: PickerConfig, entry: PluginEntry) -> None:
    """Check that an instance of a type without parameters has none.

    Raises:
        InputError: with every problem found.
    """
    form = Form(config.document)
    form.fields(dict(entry.parameters), (*entry.path, "parameters"), ())
    refuse(form.problems)


DCGM_PORT: Final = 9400
"""Where NVIDIA's exporter listens unless it is told otherwise."""

READERS: Final[Mapping[str, Callable[[PickerConfig, PluginEntry], DataTypeParameters]]] = {
    **dict.fromkeys(BUILTIN_FORMS, read_no_parameters),
    "core-metrics-extractor": read_core_extractor,
    "metrics-data-source": read_metrics_source,
    "models-data-source": partial(read_metrics_source, path="/v1/models"),
    "dcgm-data-source": partial(read_metrics_source, port=DCGM_PORT),
    "object-directory-source": read_object_directory,
}
"""Type -> what reads its parameters, or raises `InputError` with every problem found."""


def _port(form: Form, value: Value, path: Path) -> int | None:
    """Return a port; the reference writes ports as numbers or as texts."""
    digits = value if isinstance(value, str) else str(value) if type(value) is int else ""
    if _PORT.match(digits) and int(digits) <= _MAX_PORT:
        return int(digits)
    form.expected(path, f"a port from 1 to {_MAX_PORT}", value)
    return None


def _interval_s(form: Form, value: Value, path: Path) -> float | None:
    try:
        interval_s = parse_duration_s(value)
    except QuantityError as e:
        form.expected(path, e.expected, value)
        return None
    if interval_s < SHORTEST_INTERVAL_S:
        form.expected(path, "an interval of at least 50ms", value)
    return interval_s
