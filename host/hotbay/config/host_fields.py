"""The kinds of fields that HostConfig is made of: how a plain value of a document becomes a typed one.

Pure. Each kind takes exactly one spelling of a value; whatever else stands there is refused with what was
expected. Values that the format knows and this release does not carry out are refused as that.
"""

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Final
from urllib.parse import SplitResult, urlsplit

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo, WithJsonSchema, model_validator
from pydantic_core import PydanticCustomError

from hotbay.config.addresses import AUTHORITY_FORM, HOST_FORM, host_and_port, is_authority, is_host
from hotbay.config.quantities import QuantityError, parse_duration_s, parse_size_bytes
from hotbay.config.wording import described

NOT_SUPPORTED: Final = "not_supported"
REFUSED: Final = "refused"

_REV_LIMIT: Final = 2**64
_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")
_DEFAULT_HTTP_PORT: Final = 80


class Section(BaseModel):
    """A mapping of the document: strict, frozen, no unknown keys; a null stands for an absent key.

    `later` names the fields that the format knows and this release does not carry out, with a remark.
    """

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid", allow_inf_nan=False)
    later: ClassVar[Mapping[str, str]] = {}

    @model_validator(mode="before")
    @classmethod
    def _null_is_absent(cls, value: object) -> object:
        if not isinstance(value, dict):
            return value
        known = {field.alias or name for name, field in cls.model_fields.items()} | set(cls.later)
        return {key: item for key, item in value.items() if item is not None or key not in known}


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a HostConfig is read in: the folder of its file, and the process's environment."""

    base_directory: Path
    environment: Mapping[str, str]
    is_root: bool


@dataclass(frozen=True, slots=True)
class ListenAddress:
    """Where to listen. Port 0 lets the system choose."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class UnixAddress:
    """A socket file; a relative path is relative to the state directory."""

    path: Path

    def __str__(self) -> str:
        return f"unix:{self.path}"


@dataclass(frozen=True, slots=True)
class EndpointUrl:
    """A model server: scheme, host name or address, port; no path."""

    scheme: str
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.scheme}://{ListenAddress(self.host, self.port)}"


def refusal(expected: str, found: object, *, hint: str = "", kind: str = REFUSED) -> PydanticCustomError:
    """Make the error of a value that is not what is due; `loading` words it with its place."""
    context = {"expected": expected, "found": described(found), "hint": hint}
    return PydanticCustomError(kind, "not {expected}", context)


def only(later: Mapping[str, str]) -> BeforeValidator:
    """Refuse the values that a later release carries out, each with its remark; leave others to the type."""

    def check(value: object) -> object:
        if isinstance(value, str) and value in later:
            raise refusal("", value, hint=later[value], kind=NOT_SUPPORTED)
        return value

    return BeforeValidator(check)


def _duration(value: object) -> float:
    try:
        return parse_duration_s(value)
    except QuantityError as e:
        raise refusal(e.expected, value) from e


def _size(value: object) -> int:
    try:
        return parse_size_bytes(value)
    except QuantityError as e:
        raise refusal(e.expected, value) from e


def _address(value: object) -> ListenAddress:
    expected = "HOST:PORT such as 127.0.0.1:8080"
    if not isinstance(value, str):
        raise refusal(expected, value, hint="put it in quotes")
    if value.startswith("unix:"):
        raise refusal("", value, hint="listen on HOST:PORT", kind=NOT_SUPPORTED)
    found = host_and_port(value)
    if found is None:
        raise refusal(expected, value)
    return ListenAddress(*found)


def _admin_address(value: object) -> UnixAddress:
    expected = "unix:PATH such as unix:admin.sock"
    if not isinstance(value, str) or not value.startswith("unix:") or len(value) == len("unix:") or "\0" in value:
        raise refusal(expected, value)
    return UnixAddress(Path(value.removeprefix("unix:")))


def _pin(value: object) -> int | str:
    """Read a pin: a revision, or the digest of a manifest."""
    if type(value) is int and 0 <= value < _REV_LIMIT:
        return value
    if isinstance(value, str) and _DIGEST.fullmatch(value):
        return value
    raise refusal("a revision such as 7, or a digest such as sha256:<64 hex digits>", value)


def _remote_url(value: object) -> str:
    """Check the address of a package source; a plain one only on this machine, or who is between can send anything."""
    expected = "https://HOST/PATH, or http:// for a loopback address"
    if not isinstance(value, str):
        raise refusal(expected, value)
    try:
        parts = urlsplit(value)
        parts.port  # noqa: B018  # read for the error that a bad port raises
    except ValueError as e:
        raise refusal(expected, value) from e
    host = parts.hostname or ""
    if parts.scheme not in ("http", "https") or not is_host(host) or "@" in parts.netloc or parts.fragment:
        raise refusal(expected, value, hint="credentials go into `auth`" if "@" in parts.netloc else "")
    if parts.scheme == "http" and not _is_loopback(host):
        raise refusal(expected, value, hint="over plain http anybody on the way can send other bytes")
    return value


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _endpoint_url(value: object) -> EndpointUrl:
    expected = "http://HOST:PORT"
    if not isinstance(value, str):
        raise refusal(expected, value)
    if value.startswith("https://"):
        raise refusal("", value, hint="endpoints are reached over http", kind=NOT_SUPPORTED)
    try:
        parts = urlsplit(value)
        port = parts.port
    except ValueError as e:
        raise refusal(expected, value) from e
    if not _is_plain_endpoint(parts) or port == 0:
        raise refusal(expected, value, hint="no path, user or query")
    return EndpointUrl(parts.scheme, parts.hostname or "", _DEFAULT_HTTP_PORT if port is None else port)


def _is_plain_endpoint(parts: SplitResult) -> bool:
    extra = parts.path not in ("", "/") or parts.query or parts.fragment or "@" in parts.netloc
    return parts.scheme == "http" and not extra and is_host(parts.hostname or "")


def _authority(value: object) -> str:
    if not isinstance(value, str) or not is_authority(value):
        raise refusal(AUTHORITY_FORM, value)
    return value


def _host(value: object) -> str:
    if not isinstance(value, str) or not is_host(value):
        raise refusal(HOST_FORM, value)
    return value


def _directory_path(value: object, info: ValidationInfo) -> Path:
    if not isinstance(value, str) or not value or "\0" in value:
        raise refusal("a path", value)
    if value.startswith("~"):
        raise refusal("a path", value, hint="~ is not expanded: write the whole path")
    surroundings = info.context
    assert isinstance(surroundings, Surroundings), "HostConfig is validated with its surroundings as context"
    return surroundings.base_directory / value


Name = Annotated[str, Field(min_length=1, max_length=253, pattern=r"^[^\x00-\x1f\x7f]+$")]
Token = Annotated[str, Field(min_length=1, max_length=128, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
FilePath = Annotated[Path, BeforeValidator(_directory_path), WithJsonSchema({"type": "string"})]
Duration = Annotated[float, BeforeValidator(_duration), WithJsonSchema({"type": "string", "examples": ["30s"]})]
PositiveDuration = Annotated[
    float, Field(gt=0), BeforeValidator(_duration), WithJsonSchema({"type": "string", "examples": ["30s"]})
]
Size = Annotated[int, Field(gt=0), BeforeValidator(_size), WithJsonSchema({"type": "string", "examples": ["16MiB"]})]
Address = Annotated[
    ListenAddress, BeforeValidator(_address), WithJsonSchema({"type": "string", "examples": ["127.0.0.1:8080"]})
]
Url = Annotated[
    EndpointUrl, BeforeValidator(_endpoint_url), WithJsonSchema({"type": "string", "examples": ["http://10.0.0.1:80"]})
]
Authority = Annotated[
    str, BeforeValidator(_authority), WithJsonSchema({"type": "string", "examples": ["10.0.0.1:9400"]})
]
Host = Annotated[str, BeforeValidator(_host), WithJsonSchema({"type": "string", "examples": ["10.0.0.1"]})]
AdminAddress = Annotated[
    UnixAddress, BeforeValidator(_admin_address), WithJsonSchema({"type": "string", "examples": ["unix:admin.sock"]})
]
PinValue = Annotated[
    int | str, BeforeValidator(_pin), WithJsonSchema({"type": ["integer", "string"], "examples": [7, "sha256:…"]})
]
RemoteUrl = Annotated[
    str,
    BeforeValidator(_remote_url),
    WithJsonSchema({"type": "string", "examples": ["https://plugins.example/stable"]}),
]
DigestText = Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")]
Label = Annotated[str, Field(max_length=63, pattern=r"^([a-z0-9]([a-z0-9-]*[a-z0-9])?)?$")]
