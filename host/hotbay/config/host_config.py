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

from hotbay.config.documents import Document, read_document, refuse, refused
from hotbay.config.host_fields import (
    Address,
    Duration,
    FilePath,
    ListenAddress,
    Name,
    PositiveDuration,
    Section,
    Size,
    Surroundings,
    Token,
    Url,
    only,
)
from hotbay.config.model_problems import problems_of
from hotbay.config.wording import Path, not_supported, path_text, quoted
from hotbay.errors import Place, Problem

__all__ = [
    "API_VERSION",
    "KIND",
    "Binding",
    "Budget",
    "EndpointEntry",
    "HostConfig",
    "Isolation",
    "Limits",
    "Listen",
    "Logging",
    "PackageEntry",
    "Restart",
    "Scheduling",
    "Scrape",
    "Source",
    "Supervise",
    "Swap",
    "Trust",
    "host_config_schema",
    "load_host_config",
]

API_VERSION: Final = "hotbay/v1alpha1"
KIND: Final = "HostConfig"
BUNDLED: Final = "bundled"

_LEVEL_NONE_ONLY = only(
    dict.fromkeys(
        ("strict", "standard"),
        "isolation levels come with a later release: write `level: none`, and run only plugins that you trust",
    )
)


class Listen(Section):
    """Where the host listens. Metrics share the port of `http`."""

    later: ClassVar[Mapping[str, str]] = {"admin": "the admin interface comes with a later release"}

    http: Address = ListenAddress("127.0.0.1", 8080)
    metrics: Literal["same"] = "same"


class Scheduling(Section):
    """Where the EndpointPickerConfig is: in a file of its own, or here as text. Neither: the default one."""

    file: FilePath | None = None
    text: str | None = None


class EndpointEntry(Section):
    """A model server given by hand."""

    url: Url
    name: Token | None = None
    labels: Mapping[str, str] = {}
    weight: float = Field(default=1.0, ge=0, le=1)
    state: Literal["active", "cordoned"] = "active"

    @property
    def effective_name(self) -> str:
        """The name, or else one made from the URL, unique among endpoints."""
        return self.name or f"{self.url.host.replace(':', '-')}-{self.url.port}"


class Source(Section):
    """A folder of packages. The source `bundled` without a folder is what comes with the host."""

    later: ClassVar[Mapping[str, str]] = {
        "oci_layout": "use `directory` with a layout folder inside",
        "http": "remote sources come with a later release",
        "registry": "remote sources come with a later release",
    }

    name: Token
    directory: Annotated[FilePath | None, Field(validate_default=False)] = None
    dev: bool = True
    fetch: Literal["watch", "once", "off"] = "watch"

    @model_validator(mode="before")
    @classmethod
    def _empty_directory_is_absent(cls, value: object) -> object:
        if isinstance(value, dict) and value.get("directory") == "":
            return {key: item for key, item in value.items() if key != "directory"}
        return value


class PackageEntry(Section):
    """What is different for one package."""

    later: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("publisher", "channel", "pin", "tenant", "key", "replicas", "standby", "grants", "concurrency"),
        "it comes with a later release",
    )

    id: Token
    start: Annotated[Literal["eager"], only({"first-use": "write `start: eager`, which is the default"})] = "eager"
    isolation: Annotated[Literal["none"] | None, _LEVEL_NONE_ONLY] = None
    hello_s: PositiveDuration = Field(default=5.0, alias="hello")
    ready_s: PositiveDuration = Field(default=30.0, alias="ready")


class Binding(Section):
    """What the EndpointPickerConfig has no place for, by plugin ref: failure policy and deadline."""

    on_failure: Literal["skip", "neutral", "last_good", "fallback", "fail_closed"] | None = None
    neutral: float = Field(default=0.0, ge=0, le=1)
    deadline_s: PositiveDuration | None = Field(default=None, alias="deadline")


class Swap(Section):
    """How a new version takes over from the live one."""

    later: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("mode", "shadow", "canary", "guard", "approve"), "a new version is cut over as soon as it is ready"
    )

    drain_s: Duration = Field(default=30.0, alias="drain")


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


class Limits(Section):
    """Bounds on what the host takes in."""

    later: ClassVar[Mapping[str, str]] = {"fetch_concurrency": "packages are read from folders, one after another"}

    body_bytes: Size = Field(default=16 << 20, alias="body")
    header_bytes: Size = Field(default=64 << 10, alias="header")
    package_bytes: Size = Field(default=200 << 20, alias="package")


class Logging(Section):
    """The host's own log; lines of plugins carry its form too."""

    later: ClassVar[Mapping[str, str]] = {"levels": "one level holds for all loggers"}

    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["json", "text"] = "json"
    access: bool = True


class Scrape(Section):
    """How often the metrics of endpoints are fetched."""

    interval_s: Duration = Field(default=0.05, alias="interval", ge=0.05)


_LATER: Final = "it comes with a later release"


class HostConfig(Section):
    """All of a host's configuration; every key is optional."""

    later: ClassVar[Mapping[str, str]] = {
        "world": "state is kept in files under `state_dir`",
        "hosts": "plugins run on the host's own interpreter",
        "tenants": _LATER,
    }

    api_version: Literal["hotbay/v1alpha1"] = Field(default=API_VERSION, alias="apiVersion")
    kind: Literal["HostConfig"] = KIND
    state_dir: FilePath = Field(description="without it XDG_STATE_HOME or HOME has to be set")
    listen: Listen = Listen()
    reload: Annotated[Literal["watch"], only({"manual": "valid changes apply at once: write `reload: watch`"})] = (
        "watch"
    )
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
        *_duplicates("packages", [package.id for package in config.packages], document),
    ]
    if config.scheduling.file and config.scheduling.text is not None:
        path = ("scheduling", "text")
        message = "`file` and `text` exclude each other"
        problems.append(Problem("CONFIG_INVALID", message, document.key_place(path), path_text(path)))
    for index, source in enumerate(config.sources):
        problems.extend(_source_conflicts(source, ("sources", index), document))
    return problems


def _source_conflicts(source: Source, path: Path, document: Document) -> Iterator[Problem]:
    if source.directory is None and source.name != BUNDLED:
        message = f"a source other than {BUNDLED!r} needs a `directory`"
        yield Problem("CONFIG_INVALID", message, document.place(path), path_text(path))
    if not source.dev:
        hint = "no signature is checked: write `dev: true`, and use only folders that you trust"
        yield not_supported((*path, "dev"), document.key_place((*path, "dev")), hint)


def _duplicates(section: str, names: Sequence[str], document: Document) -> Iterator[Problem]:
    first: dict[str, int] = {}
    for index, name in enumerate(names):
        if first.setdefault(name, index) == index:
            continue
        lines = document.place((section, first[name])).line, document.place((section, index)).line
        message = f"the name {quoted(name)} is given twice, on lines {lines[0]} and {lines[1]}"
        yield Problem("DUPLICATE_NAME", message, document.place((section, index)), path_text((section, index)))
