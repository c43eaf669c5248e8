"""Parameters of the types, by the reference's names. Strict: every defect is a `ParameterError` with the field's path."""

from dataclasses import dataclass, field
from typing import Final, Literal

from hotbay_sdk import ParameterError

ENDPOINT_HEADER: Final = "x-session-token"
DEFAULT_SESSION_HEADER: Final = "x-session-id"


def checked_header(path: str, name: str) -> str:
    """A header's name, in lower case."""
    lowered = name.strip().lower()
    if not lowered or any(not ("!" <= char <= "~") or char in '()<>@,;:\\"/[]?={}' for char in lowered):
        raise ParameterError(path, f"expected a header's name, found {name!r:.80}")
    return lowered


@dataclass(frozen=True, slots=True)
class EncodedEndpointHeaderConfig:
    """Of the strategy `encoded_endpoint_header`."""

    header: str = ENDPOINT_HEADER

    def __post_init__(self) -> None:
        checked_header("header", self.header)


@dataclass(frozen=True, slots=True)
class Source:
    """Where a session's id comes from: a header, or an attribute, which a producer of that name may have made."""

    header: str = ""
    attribute: str = ""
    producer: str = ""

    def __post_init__(self) -> None:
        if bool(self.header) is bool(self.attribute):
            raise ParameterError("", "expected exactly one of header and attribute")
        if self.producer and not self.attribute:
            raise ParameterError("producer", "names who makes an attribute, and there is none")
        if self.header:
            checked_header("header", self.header)


@dataclass(frozen=True, slots=True)
class SessionIdConfig:
    """Of the strategy `session_id`. Seconds; the first source that is not empty counts."""

    sources: tuple[Source, ...] = (Source(header=DEFAULT_SESSION_HEADER),)
    evictionTtlSeconds: float = 300.0
    evictionSweepSeconds: float = 10.0

    def __post_init__(self) -> None:
        if not self.sources:
            raise ParameterError("sources", "expected at least one source, found none")
        for name in ("evictionTtlSeconds", "evictionSweepSeconds"):
            if getattr(self, name) <= 0:
                raise ParameterError(name, f"expected more than 0 seconds, found {getattr(self, name)}")


@dataclass(frozen=True, slots=True)
class AffinityParameters:
    """`profileName` is the profile whose endpoint the session keeps; empty: the primary one."""

    strategy: Literal["encoded_endpoint_header", "session_id"] = "encoded_endpoint_header"
    profileName: str = ""
    encodedEndpointHeaderConfig: EncodedEndpointHeaderConfig = field(default_factory=EncodedEndpointHeaderConfig)
    sessionIdConfig: SessionIdConfig = field(default_factory=SessionIdConfig)


@dataclass(frozen=True, slots=True)
class SessionIdProducerParameters:
    """One of both; neither is `x-session-id`, which is how it is made where nobody configures it."""

    headerName: str = ""
    cookieName: str = ""

    def __post_init__(self) -> None:
        if self.headerName and self.cookieName:
            raise ParameterError("cookieName", "expected exactly one of headerName and cookieName, found both")
        if self.headerName:
            checked_header("headerName", self.headerName)
        if self.cookieName and any(char in '=;, \t"' for char in self.cookieName):
            raise ParameterError("cookieName", f"expected a cookie's name, found {self.cookieName!r:.80}")


@dataclass(frozen=True, slots=True)
class AgentIdentityParameters:
    """Headers that are asked before those that are known."""

    additionalSessionHeaders: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for number, name in enumerate(self.additionalSessionHeaders):
            checked_header(f"additionalSessionHeaders[{number}]", name)
