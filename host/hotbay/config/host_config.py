"""HostConfig: what an operator decides about a host, as strict frozen models, and how a text becomes one.

Decides what is accepted, with which defaults; carries nothing out. Every field that is accepted acts;
fields of the format that do not act in this release are refused as NOT_SUPPORTED instead of being ignored.
Relative paths are resolved against the folder of the file. All problems are reported at once, each with
file, line and column. Pure: folder, environment and user are arguments.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path as FileSystemPath
from typing import Annotated, ClassVar, Final, Literal

from pydantic import Field, PrivateAttr, ValidationError, ValidationInfo, model_validator

from hotbay.config.discovery_config import DiscoverySection
from hotbay.config.documents import Document, read_document, refuse, refused
from hotbay.config.explain_config import Explain
from hotbay.config.freshness_config import Freshness
from hotbay.config.health_config import HealthSection
from hotbay.config.host_fields import (
    Address,
    AdminAddress,
    Authority,
    DigestText,
    Duration,
    FilePath,
    Host,
    Label,
    ListenAddress,
    Name,
    PinValue,
    PositiveDuration,
    Section,
    Size,
    Surroundings,
    Token,
    UnixAddress,
    Url,
    only,
)
from hotbay.config.model_problems import problems_of
from hotbay.config.models_config import Models
from hotbay.config.objects_config import Objects
from hotbay.config.source_config import BUNDLED, Source, source_conflicts
from hotbay.config.swap_config import Swap
from hotbay.config.wording import path_text, quoted
from hotbay.errors import Place, Problem

__all__ = [
    "API_VERSION",
    "KIND",
    "Binding",
    "Budget",
    "EndpointEntry",
    "HostConfig",
    "HostEntry",
    "Isolation",
    "Limits",
    "Listen",
    "Logging",
    "PackageEntry",
    "Restart",
    "Scheduling",
    "Scrape",
    "Supervise",
    "Trust",
    "WorldEntry",
    "host_config_schema",
    "load_host_config",
]

API_VERSION: Final = "hotbay/v1alpha1"
KIND: Final = "HostConfig"

_LEVEL_NONE_ONLY = only(
    dict.fromkeys(
        ("strict", "standard"),
        "isolation levels come with a later release: write `level: none`, and run only plugins that you trust",
    )
)


class Listen(Section):
    """Where the host listens. Metrics share the port of `http`; `admin` is for the commands of the same user."""

    http: Address = ListenAddress("127.0.0.1", 8080)
    metrics: Literal["same"] = "same"
    admin: AdminAddress = UnixAddress(FileSystemPath("admin.sock"))


class WorldEntry(Section):
    """Where the host keeps what it knows: in a file below the state directory, or in memory until it ends."""

    later: ClassVar[Mapping[str, str]] = {"root": "there is one world per state directory"}

    engine: Literal["sqlite", "memory"] = "sqlite"
    path: Annotated[str, Field(min_length=1, max_length=255, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")] = "world.db"


class HostEntry(Section):
    """An interpreter that plugins run on, and its platform tag. Without `interpreter`: the host's own."""

    platform: Annotated[str, Field(max_length=128, pattern=r"^[a-z0-9_]+(-[a-z0-9_]+)*$")]
    interpreter: FilePath | None = None


class Scheduling(Section):
    """Where the EndpointPickerConfig is: in a file of its own, or here as text. Neither: the default one.

    `allow_experimental`: types may be used that their packages do not call beta or stable.
    """

    file: FilePath | None = None
    text: str | None = None
    allow_experimental: bool = False


class EndpointEntry(Section):
    """A model server given by hand."""

    url: Url
    name: Token | None = None
    labels: Mapping[str, str] = {}
    weight: float = Field(default=1.0, ge=0, le=1)
    state: Literal["active", "cordoned"] = "active"
    metrics_host: Authority | None = None
    node_address: Host | None = None

    @property
    def effective_name(self) -> str:
        """The name, or else one made from the URL, unique among endpoints."""
        return self.name or f"{self.url.host.replace(':', '-')}-{self.url.port}"


class PackageEntry(Section):
    """What is different for one package."""

    later: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("tenant", "replicas", "concurrency"), "it comes with a later release"
    )

    id: Token
    publisher: Label | None = None
    channel: Literal["release", "dev"] | None = None
    pin: PinValue | None = None
    key: Label = ""
    standby: int = Field(default=0, ge=0, le=1)
    start: Literal["eager", "first-use"] = "eager"
    idle_s: PositiveDuration | None = Field(default=None, alias="idle")
    grants: Annotated[tuple[Label, ...], Field(strict=False)] = ()
    isolation: Annotated[Literal["none"] | None, _LEVEL_NONE_ONLY] = None
    hello_s: PositiveDuration = Field(default=5.0, alias="hello")
    ready_s: PositiveDuration = Field(default=30.0, alias="ready")


class Binding(Section):
    """What the EndpointPickerConfig has no place for, by plugin ref: failure policy, deadline, instance key."""

    on_failure: Literal["skip", "neutral", "last_good", "fallback", "fail_closed"] | None = None
    neutral: float = Field(default=0.0, ge=0, le=1)
    deadline_s: PositiveDuration | None = Field(default=None, alias="deadline")
    key: Label = ""


class Restart(Section):
    """Pauses between restarts of a plugin that ends: the first, and how they grow."""

    first_s: PositiveDuration = Field(default=0.1, alias="first")
    factor: float = Field(default=2.0, ge=1)
    max_s: PositiveDuration = Field(default=30.0, alias="max")


class Budget(Section):
    """How many failures within which time make a package count as broken."""

    failures: int = Field(default=5, ge=1)
    within_s: PositiveDuration = Field(default=600.0, alias="within")


class Supervise(Section):
    """How plugin processes are kept running."""

    restart: Restart = Restart()
    stable_s: Duration = Field(default=60.0, alias="stable")
    budget: Budget = Budget()
    max_parallel_starts: int = Field(default=4, ge=1)
    linger_s: Duration = Field(default=5.0, alias="linger")


class Isolation(Section):
    """What a plugin process is kept from. Only `none` exists in this release; the host warns about it."""

    later: ClassVar[Mapping[str, str]] = {"uid_range": "isolation levels come with a later release"}

    level: Annotated[Literal["none"], _LEVEL_NONE_ONLY] = "none"


class Trust(Section):
    """Whose packages run. No signature is checked in this release, which `unsigned: dev` says."""

    later: ClassVar[Mapping[str, str]] = {"publishers": "signatures come with a later release"}

    unsigned: Annotated[
        Literal["dev"], only({"refuse": "signatures come with a later release: write `unsigned: dev`"})
    ] = "dev"
    denied: Annotated[tuple[DigestText, ...], Field(strict=False)] = ()


class Limits(Section):
    """Bounds on what the host takes in and keeps. `fetch_concurrency` is per package; 0 is no limit."""

    body_bytes: Size = Field(default=16 << 20, alias="body")
    header_bytes: Size = Field(default=64 << 10, alias="header")
    first_byte_s: PositiveDuration = Field(default=300.0, alias="first_byte", ge=0.1, le=86400)
    package_bytes: Size = Field(default=200 << 20, alias="package")
    fetch_concurrency: int = Field(default=4, ge=0, le=64)
    fetch_rate_bytes: Size = Field(default=16 << 10, alias="fetch_rate", description="slowest bytes per second")
    fetch_stall_s: PositiveDuration = Field(default=30.0, alias="fetch_stall")
    fetch_timeout_s: PositiveDuration = Field(default=900.0, alias="fetch_timeout")
    store_bytes: Size | None = Field(default=None, alias="store")
    keep_versions: int = Field(default=3, ge=1, le=1000)


class Logging(Section):
    """The host's own log; lines of plugins carry its form too."""

    later: ClassVar[Mapping[str, str]] = {"levels": "one level holds for all loggers"}

    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["json", "text"] = "json"
    access: bool = True


class Scrape(Section):
    """How often the metrics of endpoints are fetched; `process`: by a process of their own, not on the host's loop."""

    interval_s: Duration = Field(default=0.05, alias="interval", ge=0.05)
    process: bool = False


class HostConfig(Section):
    """All of a host's configuration; every key is optional."""

    later: ClassVar[Mapping[str, str]] = {"tenants": "it comes with a later release"}

    api_version: Literal["hotbay/v1alpha1"] = Field(default=API_VERSION, alias="apiVersion")
    kind: Literal["HostConfig"] = KIND
    state_dir: FilePath = Field(description="without it XDG_STATE_HOME or HOME has to be set")
    world: WorldEntry = WorldEntry()
    hosts: Annotated[tuple[HostEntry, ...], Field(strict=False)] = ()
    listen: Listen = Listen()
    reload: Literal["watch", "manual"] = "watch"
    lock: FilePath | None = None
    scheduling: Scheduling = Scheduling()
    endpoints: Annotated[tuple[EndpointEntry, ...], Field(strict=False)] = ()
    sources: Annotated[tuple[Source, ...], Field(strict=False)] = (Source(name=BUNDLED),)
    packages: Annotated[tuple[PackageEntry, ...], Field(strict=False)] = ()
    types: Mapping[Name, Token] = {}
    bindings: Mapping[Name, Binding] = {}
    swap: Swap = Swap()
    supervise: Supervise = Supervise()
    isolation: Isolation = Isolation()
    trust: Trust = Trust()
    limits: Limits = Limits()
    logging: Logging = Logging()
    scrape: Scrape = Scrape()
    objects: Objects = Objects()
    models: Models = Models()
    discovery: DiscoverySection = DiscoverySection()
    freshness: Freshness = Freshness()
    health: HealthSection = HealthSection()
    explain: Explain = Explain()

    _document: Document = PrivateAttr()

    @model_validator(mode="before")
    @classmethod
    def _default_state_dir(cls, value: object, info: ValidationInfo) -> object:
        if isinstance(value, dict) and value.get("state_dir") is None and isinstance(info.context, Surroundings):
            folder = _state_dir(info.context)
            return value | {"state_dir": folder} if folder else value
        return value

    def place(self, *path: str | int) -> Place:
        """Return where the key at `path` (as written in the file, e.g. ``"bindings", "my-queue"``) stands."""
        return self._document.key_place(path)


def load_host_config(
    text: str, *, file: str, base_directory: FileSystemPath, environment: Mapping[str, str], is_root: bool
) -> HostConfig:
    """Read a HostConfig. An empty text gives the defaults.

    Args:
        text: the document.
        file: the name that places carry.
        base_directory: what relative paths are relative to.
        environment: for XDG_STATE_HOME and HOME, which the default of `state_dir` depends on.
        is_root: whether the host runs as root; then that default is /var/lib/hotbay.

    Raises:
        InputError: with every problem found.
    """
    reading = read_document(text, file=file)
    document = reading.document
    surroundings = Surroundings(base_directory, environment, is_root)
    value = {} if document.value is None else document.value
    try:
        config = HostConfig.model_validate(value, context=surroundings)
    except ValidationError as e:
        raise refused([*reading.problems, *problems_of(e, HostConfig, document)]) from e
    refuse([*reading.problems, *_conflicts(config, document)])
    config._document = document
    return config


def host_config_schema() -> dict[str, object]:
    """Return the JSON Schema of a HostConfig."""
    schema = HostConfig.model_json_schema(by_alias=True)
    # The default of `state_dir` depends on the environment, which a model's default cannot say.
    del schema["required"]
    return schema


def _state_dir(surroundings: Surroundings) -> str | None:
    """Return the default state folder; XDG says that a relative XDG_STATE_HOME is to be ignored."""
    if surroundings.is_root:
        return "/var/lib/hotbay"
    xdg = surroundings.environment.get("XDG_STATE_HOME", "")
    if xdg.startswith("/"):
        return f"{xdg}/hotbay"
    home = surroundings.environment.get("HOME", "")
    return f"{home}/.local/state/hotbay" if home.startswith("/") else None


def _conflicts(config: HostConfig, document: Document) -> list[Problem]:
    """Find what is wrong between fields that are valid each by itself."""
    problems = [
        *_duplicates("endpoints", [entry.effective_name for entry in config.endpoints], document),
        *_duplicates("sources", [source.name for source in config.sources], document),
        *_duplicates("packages", [_package_key(package) for package in config.packages], document),
        *_duplicates("hosts", [host.platform for host in config.hosts], document),
    ]
    if config.scheduling.file and config.scheduling.text is not None:
        path = ("scheduling", "text")
        message = "`file` and `text` exclude each other"
        problems.append(Problem("CONFIG_INVALID", message, document.key_place(path), path_text(path)))
    for index, source in enumerate(config.sources):
        problems.extend(source_conflicts(source, ("sources", index), document))
    return problems


def _package_key(package: PackageEntry) -> str:
    """Name one instance of a package: its id, with the instance key if there is one."""
    return f"{package.id}/{package.key}" if package.key else package.id


def _duplicates(section: str, names: Sequence[str], document: Document) -> Iterator[Problem]:
    first: dict[str, int] = {}
    for index, name in enumerate(names):
        if first.setdefault(name, index) == index:
            continue
        lines = document.place((section, first[name])).line, document.place((section, index)).line
        message = f"the name {quoted(name)} is given twice, on lines {lines[0]} and {lines[1]}"
        yield Problem("DUPLICATE_NAME", message, document.place((section, index)), path_text((section, index)))
