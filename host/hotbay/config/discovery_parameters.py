"""Parameters of the discoveries that are built into the host, each as strict as a plugin of its own would be.

`DISCOVERIES` is the whole list: a type is known as a discovery by standing in it. Relative paths stay as written: they are
relative to the folder of the file, which the caller knows. Pure.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias, cast

from hotbay.config.data_parameters import TLS_FIELDS, Tls, read_tls
from hotbay.config.discovery_fields import CREDENTIAL_FIELDS, Credentials, DiscoveryFields
from hotbay.config.documents import Document, refuse
from hotbay.config.forms import Form
from hotbay.config.picker_config import PickerConfig, PluginEntry
from hotbay.config.wording import Path, Value

__all__ = [
    "DISCOVERIES",
    "DiscoveryParameters",
    "DnsDiscovery",
    "FileDiscovery",
    "HttpSdDiscovery",
    "StaticDiscovery",
    "read_dns_discovery",
    "read_file_discovery",
    "read_http_sd_discovery",
    "read_static_discovery",
]

_MAX_NAMES: Final = 64
"""Of one discovery: each is asked for by itself at every look."""
_SHORTEST_LOOK_S: Final = 1.0
"""Between two looks: a name server or registry has other clients, and a change is in force within a second anyway."""
_LONGEST_LOOK_S: Final = 24 * 3600.0
_LONGEST_TIMEOUT_S: Final = 300.0
RecordType: TypeAlias = Literal["A", "AAAA", "SRV"]
OnEmpty: TypeAlias = Literal["keep", "clear"]


@dataclass(frozen=True, slots=True)
class FileDiscovery:
    """Where the file of endpoints is, and whether changes of it are followed."""

    path: str
    watch_file: bool


@dataclass(frozen=True, slots=True)
class StaticDiscovery:
    """Endpoints that stand in the configuration itself: `entries`, which `document` has at `at`.

    They have the form of an endpoint file's, which the data layer knows and checks.
    """

    entries: Value
    document: Document = field(compare=False, repr=False)
    at: Path = field(compare=False)


@dataclass(frozen=True, slots=True)
class DnsDiscovery:
    """Names to ask for, and how.

    Args:
        names: each is asked for as it is, as a full name.
        type: of the records.
        port: of every endpoint; None for SRV, whose records have one.
        servers: (address, port) of name servers; none stands for /etc/resolv.conf.
        shortest_s: the next look is never sooner, whatever a record's TTL says,
        longest_s: and never later.
        timeout_s: for the answer to one name, all servers and attempts together.
        on_empty: what an answer without records means once there have been some.
        namespace: of the endpoints' ids.
        labels: of every endpoint.
    """

    names: tuple[str, ...]
    type: RecordType = "A"
    port: int | None = None
    servers: tuple[tuple[str, int], ...] = ()
    shortest_s: float = 5.0
    longest_s: float = 60.0
    timeout_s: float = 5.0
    on_empty: OnEmpty = "keep"
    namespace: str = "default"
    labels: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class HttpSdDiscovery:
    """Where the document is, how often it is asked for, how long an answer may take, and who asks."""

    url: str
    interval_s: float = 30.0
    timeout_s: float = 10.0
    namespace: str = "default"
    tls: Tls = field(default_factory=Tls)
    credentials: Credentials | None = None


DiscoveryParameters: TypeAlias = FileDiscovery | StaticDiscovery | DnsDiscovery | HttpSdDiscovery


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


def read_static_discovery(config: PickerConfig, entry: PluginEntry) -> StaticDiscovery:
    """Read the parameters of a `static-discovery` instance; its entries are only looked at from afar.

    Raises:
        InputError: with every problem found.
    """
    form, at = Form(config.document), (*entry.path, "parameters")
    fields = form.fields(dict(entry.parameters), at, ("endpoints",))
    entries = fields.get("endpoints")
    if not isinstance(entries, list):
        form.expected((*at, "endpoints"), "a list of endpoints", entries)
    refuse(form.problems)
    return StaticDiscovery(entries, config.document, at)


def read_dns_discovery(config: PickerConfig, entry: PluginEntry) -> DnsDiscovery:
    """Read the parameters of a `dns-discovery` instance.

    Raises:
        InputError: with every problem found.
    """
    reader = DiscoveryFields(config, entry)
    known = ("names", "type", "port", "servers", "minInterval", "maxInterval", "timeout")
    fields = reader.fields((*known, "onEmpty", "namespace", "labels"))
    kind = reader.one_of("type", ("A", "AAAA", "SRV"))
    names = reader.each("names", _MAX_NAMES, reader.host_name)
    if not fields.get("names"):
        reader.expected("names", f"a list of 1 to {_MAX_NAMES} names", fields.get("names"))
    port = reader.port("port") if "port" in fields else None
    if (kind == "SRV") == ("port" in fields):
        expected = "no port: SRV records have their own" if kind == "SRV" else "the port of the endpoints"
        reader.expected("port", expected, fields.get("port"))
    shortest_s = reader.duration_s("minInterval", 5.0, _SHORTEST_LOOK_S, _LONGEST_LOOK_S)
    # Who writes only the shortest means that it holds, even above the other one's default.
    longest_s = reader.duration_s("maxInterval", max(60.0, shortest_s), _SHORTEST_LOOK_S, _LONGEST_LOOK_S)
    if longest_s < shortest_s:
        reader.expected("maxInterval", "at least minInterval", fields.get("maxInterval"))
    parameters = DnsDiscovery(
        names=names,
        type=cast("RecordType", kind),
        port=port,
        servers=reader.each("servers", 8, reader.server),
        shortest_s=shortest_s,
        longest_s=longest_s,
        timeout_s=reader.duration_s("timeout", 5.0, 0.1, _LONGEST_TIMEOUT_S),
        on_empty=cast("OnEmpty", reader.one_of("onEmpty", ("keep", "clear"))),
        namespace=reader.namespace(),
        labels=reader.labels(),
    )
    refuse(reader.form.problems)
    return parameters


def read_http_sd_discovery(config: PickerConfig, entry: PluginEntry) -> HttpSdDiscovery:
    """Read the parameters of a `http-sd-discovery` instance.

    Raises:
        InputError: with every problem found.
    """
    reader = DiscoveryFields(config, entry)
    fields = reader.fields(("url", "interval", "timeout", "namespace", *CREDENTIAL_FIELDS, *TLS_FIELDS))
    url = reader.url()
    tls = read_tls(reader.form, fields, reader.at)
    if url.startswith("http:") and tls != Tls():
        reader.expected("url", "https, for which the certificates are", url)
    parameters = HttpSdDiscovery(
        url=url,
        interval_s=reader.duration_s("interval", 30.0, _SHORTEST_LOOK_S, _LONGEST_LOOK_S),
        timeout_s=reader.duration_s("timeout", 10.0, 0.1, _LONGEST_TIMEOUT_S),
        namespace=reader.namespace(),
        tls=tls,
        credentials=reader.credentials(url),
    )
    refuse(reader.form.problems)
    return parameters


DISCOVERIES: Final[Mapping[str, Callable[[PickerConfig, PluginEntry], DiscoveryParameters]]] = {
    "dns-discovery": read_dns_discovery,
    "file-discovery": read_file_discovery,
    "http-sd-discovery": read_http_sd_discovery,
    "static-discovery": read_static_discovery,
}
"""Type of a discovery -> what reads its parameters, or raises `InputError` with every problem found."""
