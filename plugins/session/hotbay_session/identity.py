"""`session-id-producer` and `agent-identity`: whose a request is, from its headers.

The first makes a data column, `SessionID.id`, which is there once the request's data is produced. The second sets an attribute of
the request, `agent-identity`, before anything is decided of it.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from hotbay_sdk import Context, DataProducer, Endpoints, Request, RequestHeaderProcessor

from hotbay_session.package import plugin
from hotbay_session.parameters import (
    DEFAULT_SESSION_HEADER,
    AgentIdentityParameters,
    SessionIdProducerParameters,
    checked_header,
)

SESSION_KEY: Final = "SessionID"
SESSION_ID: Final = f"{SESSION_KEY}.id"
AGENT_IDENTITY: Final = "agent-identity"
AGENT_HEADERS: Final = ("x-claude-code-session-id", "x-session-affinity", "session-id", "session_id")
"""What agents send of themselves, as the reference has it: the first that is not empty counts."""
_LONGEST_IDENTITY_BYTES: Final = 4096
"""The host's bound of an attribute's text, and of a text in a data column: of one that is longer it takes nothing of the batch."""


def session_column(key: str, producer: str) -> str:
    """The column of the session's id that a ref makes; of the only one, or the default one, where `producer` is empty."""
    return f"{key}/{producer}.id" if producer else f"{key}.id"


def _id_of(value: str) -> str:
    """The value, or nothing if it is too long to be an id."""
    return value if len(value.encode(errors="replace")) <= _LONGEST_IDENTITY_BYTES else ""


def cookie_of(header: str | None, name: str) -> str:
    """The value of a cookie of a `Cookie` header, the first of that name; empty where there is none."""
    for pair in (header or "").split(";"):
        found, equals, value = pair.partition("=")
        if equals and found.strip() == name:
            return value.strip().strip('"')
    return ""


@plugin.type(
    "session-id-producer",
    reads=["request.headers[*]"],
    produces={SESSION_ID: "text"},
    parameters=SessionIdProducerParameters,
)
class SessionIdProducer(DataProducer):
    """The session's id, from a header or a cookie."""

    def __init__(self, context: Context, parameters: SessionIdProducerParameters) -> None:
        self._cookie = parameters.cookieName
        name = "cookie" if self._cookie else parameters.headerName or DEFAULT_SESSION_HEADER
        self._header = checked_header("headerName", name)
        self.reads = (f"request.headers[{self._header}]",)

    def produce_batch(self, requests: Sequence[Request], endpoints: Endpoints) -> Mapping[str, object]:
        """One text a request, None where it says nothing or what it says is too long to be an id."""
        return {SESSION_ID: [self._session(request) or None for request in requests]}

    def _session(self, request: Request) -> str:
        value = request.header(self._header)
        return _id_of(cookie_of(value, self._cookie) if self._cookie else (value or "").strip())


@plugin.type("agent-identity", reads=["request.headers[*]"], parameters=AgentIdentityParameters)
class AgentIdentity(RequestHeaderProcessor):
    """Sets the attribute `agent-identity` from the first header of a session that is not empty."""

    def __init__(self, context: Context, parameters: AgentIdentityParameters) -> None:
        more = (checked_header("additionalSessionHeaders", name) for name in parameters.additionalSessionHeaders)
        self._headers = tuple(dict.fromkeys((*more, *AGENT_HEADERS)))
        self.reads = tuple(f"request.headers[{name}]" for name in self._headers)

    def request_headers(self, request: Request) -> Mapping[str, str | int | float] | None:
        """The attribute; none where no header says whose the request is, or what it says is too long to be an id."""
        for name in self._headers:
            value = (request.header(name) or "").strip()
            if value:
                return {AGENT_IDENTITY: value} if _id_of(value) else None
        return None
