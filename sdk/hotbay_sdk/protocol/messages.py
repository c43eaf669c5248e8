"""Methods, error codes, errors and the head of calls: what the two ends say to each other after the handshake.

Pure. Every `from_wire` checks shape and bounds of a value that the peer sent and raises
`MalformedMessageError`; nothing is looked up by a name from the wire but in the tables here.
"""

from __future__ import annotations

from hotbay_sdk.protocol.declarations import IntEnum, NamedTuple, StrEnum
from hotbay_sdk.protocol.frames import MAX_FRAME_BYTES, FrameType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Final

    from hotbay_sdk.protocol.values import Value

MAX_MESSAGE_BYTES: Final = 4 * 1024
"""Longest error text that crosses the wire; the sender cuts, the receiver cuts again."""
MAX_TRACEBACK_BYTES: Final = 16 * 1024
CONTROL_FRAME_BYTES: Final = 256 * 1024
"""Limit of every frame that has no lower or higher limit of its own."""
HOT_FRAME_BYTES: Final = 1024 * 1024 + 16 * 1024
"""Limit of a hot call's request and reply, and of what a poll brings."""
HOST_CALL_BYTES: Final = 128 * 1024
"""Limit of a call, or one-way call, that a plugin makes: decoding costs up to 80 times as much memory."""
PIECE_BYTES: Final = 64 * 1024
"""Longest piece of data that one DATA frame carries."""
FRAME_LIMITS: Final[Mapping[int, int]] = {
    FrameType.ARMED: 64 * 1024,
    FrameType.GO: 64,
    FrameType.HELLO: 64 * 1024,
    FrameType.ERR: 64 * 1024,
    FrameType.DATA: PIECE_BYTES + 5,
    FrameType.END: 16,
    FrameType.CANCEL: 4 * 1024,
    FrameType.CREDIT: 16,
    FrameType.PING: 16,
    FrameType.PONG: 4 * 1024,
    FrameType.GOAWAY: 8 * 1024,
    FrameType.LOG: 16 * 1024,
}
"""Bodies of frames that never need more, in bytes, so that a flood of them stays cheap to read."""
NO_DEADLINE_US: Final = 0
MAX_HOST_CALLS: Final = 64
"""Calls of one plugin process that its host serves at a time; the next is answered with RESOURCE_EXHAUSTED."""


ENDLESS_MS: Final = 365 * 86_400 * 1000
"""Deadline of a call that goes on until it is cancelled: every call has one, and none is to end by it."""


class ErrorCode(StrEnum):
    """Stable codes of faults that concern a plugin; who must act is told by the class in the host."""

    START_FAILED = "START_FAILED"
    HELLO_TIMEOUT = "HELLO_TIMEOUT"
    READY_TIMEOUT = "READY_TIMEOUT"
    PROTOCOL_VERSION = "PROTOCOL_VERSION"
    REFUSED_ISOLATION = "REFUSED_ISOLATION"
    INVALID_PACKAGE = "INVALID_PACKAGE"
    CONFIG_INVALID = "CONFIG_INVALID"
    UNKNOWN_TYPE = "UNKNOWN_TYPE"
    CRASHED = "CRASHED"
    DEADLINE_EXCEEDED = "DEADLINE_EXCEEDED"
    CANCELLED = "CANCELLED"
    PROTOCOL_VIOLATION = "PROTOCOL_VIOLATION"
    FRAME_TOO_LARGE = "FRAME_TOO_LARGE"
    BAD_RESULT = "BAD_RESULT"
    PLUGIN_ERROR = "PLUGIN_ERROR"
    STALE_HANDLE = "STALE_HANDLE"
    REENTRANCY_LIMIT = "REENTRANCY_LIMIT"
    RESOURCE_EXHAUSTED = "RESOURCE_EXHAUSTED"
    UNAVAILABLE = "UNAVAILABLE"


_CODES: Final = {str(code): code for code in ErrorCode}


class Executed(StrEnum):
    """Whether the callee ran the author's code before it failed."""

    YES = "yes"
    NO = "no"
    MAYBE = "maybe"


_EXECUTED: Final = {str(e): e for e in Executed}


class Link(StrEnum):
    """The link a method travels on."""

    CALL = "call"
    CONTROL = "control"


class Method(IntEnum):
    """Method ids of protocol version 1 that this release uses."""

    RUN = 3
    PICK = 4
    PRODUCE = 5
    PROFILE_PICK = 6
    PROFILE_PROCESS = 7
    SCREEN = 8
    ADMIT = 9
    REQUEST_HEADERS = 10
    PARSE = 11
    PRE_REQUEST = 12
    RESPONSE_HEADERS = 13
    RESPONSE_BODY = 14
    SATURATION = 15
    POLL_EXTRACT = 20
    EVENT_EXTRACT = 21
    SOURCE_NOTIFY = 22
    DISCOVER = 23
    SOURCE_WATCH = 24
    SOURCE_POLL = 25
    CONFIGURE = 30
    EXPORT_STATE = 31
    IMPORT_STATE = 32
    DUMP_STATE = 35
    CHECK_READY = 36
    SHARE = 37
    LOG = 50
    METRIC = 51
    STORAGE_GET = 52
    STORAGE_PUT = 53
    SECRET = 54
    DIAL = 55
    ENDPOINTS = 56
    RECYCLE = 57
    NOW = 58
    RANDOM = 59


RUN_METHODS: Final[Mapping[int, str]] = {Method.DISCOVER: "discover", Method.SOURCE_WATCH: "watch"}
"""Calls that go on until they are cancelled, and tell in data what they find: method → point."""

DATA_METHODS: Final = frozenset(
    {Method.POLL_EXTRACT, Method.EVENT_EXTRACT, Method.SOURCE_NOTIFY, Method.SOURCE_POLL, *RUN_METHODS}
)
"""Calls of the data layer, which run beside the hot ones."""


REQUEST_METHODS: Final = frozenset(
    {
        *(
            Method.PROFILE_PICK,
            Method.PROFILE_PROCESS,
            Method.SCREEN,
            Method.ADMIT,
            Method.REQUEST_HEADERS,
            Method.PARSE,
        ),
        *(Method.PRE_REQUEST, Method.RESPONSE_HEADERS, Method.RESPONSE_BODY, Method.SATURATION, Method.DUMP_STATE),
    }
)
"""Calls around the filters, scorers, pickers and producers of a request."""


class Streams(StrEnum):
    """Which way a method's data travels in DATA frames, beside its arguments and its result."""

    NONE = "none"
    REQUEST = "request"
    REPLY = "reply"


class MethodSpec(NamedTuple):
    """What the protocol says of a method. `deadline_ms` is the default that the caller sets.

    `one_way`: it may be told, and nobody waits. `answered`: it may be called. `pre_request` is both.
    """

    method: Method
    name: str
    link: Link
    deadline_ms: int
    one_way: bool
    request_bytes: int
    reply_bytes: int
    streams: Streams = Streams.NONE
    by_host: bool = True
    answered: bool = True


def _by_host(
    method: Method,
    link: Link,
    deadline_ms: int,
    reply_bytes: int,
    *,
    one_way: bool = False,
    streams: Streams = Streams.NONE,
) -> MethodSpec:
    name = method.name.lower()
    answered = reply_bytes > 0
    return MethodSpec(
        method, name, link, deadline_ms, one_way, MAX_FRAME_BYTES, reply_bytes, streams, answered=answered
    )


def _by_plugin(method: Method, reply_bytes: int) -> MethodSpec:
    name = method.name.lower()
    return MethodSpec(method, name, Link.CONTROL, 1000, False, HOST_CALL_BYTES, reply_bytes, by_host=False)


METHODS: Final[Mapping[int, MethodSpec]] = {
    spec.method: spec
    for spec in (
        _by_host(Method.RUN, Link.CALL, 50, HOT_FRAME_BYTES),
        _by_host(Method.PICK, Link.CALL, 50, HOT_FRAME_BYTES),
        _by_host(Method.PRODUCE, Link.CALL, 400, HOT_FRAME_BYTES),
        _by_host(Method.PROFILE_PICK, Link.CALL, 50, CONTROL_FRAME_BYTES),
        _by_host(Method.PROFILE_PROCESS, Link.CALL, 50, CONTROL_FRAME_BYTES),
        _by_host(Method.SCREEN, Link.CALL, 100, HOT_FRAME_BYTES),
        _by_host(Method.ADMIT, Link.CALL, 100, HOT_FRAME_BYTES),
        _by_host(Method.REQUEST_HEADERS, Link.CALL, 100, HOT_FRAME_BYTES),
        _by_host(Method.PARSE, Link.CALL, 1000, HOT_FRAME_BYTES),
        _by_host(Method.PRE_REQUEST, Link.CALL, 50, HOT_FRAME_BYTES, one_way=True),
        _by_host(Method.RESPONSE_HEADERS, Link.CALL, 1000, 0, one_way=True),
        _by_host(Method.RESPONSE_BODY, Link.CALL, 1000, 0, one_way=True),
        _by_host(Method.SATURATION, Link.CALL, 50, 64),
        _by_host(Method.POLL_EXTRACT, Link.CONTROL, 1000, CONTROL_FRAME_BYTES),
        _by_host(Method.EVENT_EXTRACT, Link.CONTROL, 1000, CONTROL_FRAME_BYTES),
        _by_host(Method.SOURCE_NOTIFY, Link.CONTROL, 1000, CONTROL_FRAME_BYTES),
        _by_host(Method.DISCOVER, Link.CONTROL, ENDLESS_MS, 1024, streams=Streams.REPLY),
        _by_host(Method.SOURCE_WATCH, Link.CONTROL, ENDLESS_MS, 1024, streams=Streams.REPLY),
        _by_host(Method.SOURCE_POLL, Link.CONTROL, 1000, HOT_FRAME_BYTES),
        _by_host(Method.CONFIGURE, Link.CONTROL, 30_000, CONTROL_FRAME_BYTES),
        _by_host(Method.EXPORT_STATE, Link.CONTROL, 30_000, 64 * 1024, streams=Streams.REPLY),
        _by_host(Method.IMPORT_STATE, Link.CONTROL, 30_000, 1024, streams=Streams.REQUEST),
        _by_host(Method.DUMP_STATE, Link.CONTROL, 500, CONTROL_FRAME_BYTES + 16 * 1024),
        _by_host(Method.CHECK_READY, Link.CONTROL, 1000, CONTROL_FRAME_BYTES),
        _by_host(Method.SHARE, Link.CONTROL, 5000, 64),
        _by_plugin(Method.LOG, 64),
        _by_plugin(Method.METRIC, 64),
        _by_plugin(Method.STORAGE_GET, HOST_CALL_BYTES),
        _by_plugin(Method.STORAGE_PUT, 64),
        _by_plugin(Method.SECRET, HOST_CALL_BYTES),
        _by_plugin(Method.DIAL, 1024),
        _by_plugin(Method.ENDPOINTS, MAX_FRAME_BYTES),
        _by_plugin(Method.RECYCLE, 64),
        _by_plugin(Method.NOW, 64),
        _by_plugin(Method.RANDOM, HOST_CALL_BYTES),
    )
}
"""Requests come from the host, which the plugin trusts, and carry prompts and columns: only the hard cap binds
them. Replies come from a plugin, which nobody trusts."""


class MalformedMessageError(ValueError):
    """A body whose shape is not what its frame type promises."""


def _cut(text: str, limit_bytes: int) -> str:
    raw = text.encode("utf-8", "replace")
    return text if len(raw) <= limit_bytes and text.isascii() else raw[:limit_bytes].decode("utf-8", "ignore")


_NO_DETAILS: Final[Mapping[str, Value]] = {}


class CallError(NamedTuple):
    """Why a call failed. `retryable`: the same call may succeed on another attempt."""

    code: ErrorCode
    message: str
    retryable: bool = False
    executed: Executed = Executed.MAYBE
    details: Mapping[str, Value] = _NO_DETAILS
    traceback: str = ""

    def to_wire(self) -> dict[str, Value]:
        """The map that crosses the wire; texts are cut to their limits and lone surrogates replaced."""
        return {
            "code": str(self.code),
            "message": _cut(self.message, MAX_MESSAGE_BYTES),
            "retryable": self.retryable,
            "executed": str(self.executed),
            "details": dict(self.details),
            "traceback": _cut(self.traceback, MAX_TRACEBACK_BYTES),
        }

    @classmethod
    def from_wire(cls, value: Value) -> CallError:
        """Read a peer's error. An unknown code becomes PLUGIN_ERROR with the spelling in `details`."""
        if not isinstance(value, dict):
            raise MalformedMessageError("an error is a map")
        code, message, trace = value.get("code"), value.get("message", ""), value.get("traceback", "")
        details = value.get("details", {})
        if not (isinstance(code, str) and isinstance(message, str) and isinstance(trace, str)):
            raise MalformedMessageError("an error's code, message and traceback are text")
        known = _CODES.get(code)
        kept: dict[str, Value] = dict(details) if isinstance(details, dict) else {}
        if known is None:
            kept["code"] = code[:64]
        executed = value.get("executed")
        return cls(
            code=known or ErrorCode.PLUGIN_ERROR,
            message=_cut(message, MAX_MESSAGE_BYTES),
            retryable=value.get("retryable") is True,
            executed=_EXECUTED.get(executed, Executed.MAYBE) if isinstance(executed, str) else Executed.MAYBE,
            details=kept,
            traceback=_cut(trace, MAX_TRACEBACK_BYTES),
        )


class CallMeta(NamedTuple):
    """Head of a REQ or EVENT body, in the order of the wire.

    `deadline_us` counts from receipt; 0 only in one-way events. `epoch` is that of the endpoint
    snapshot which the arguments refer to, 0 where none is.
    """

    method: int
    deadline_us: int
    trace: str | None
    tenant: str | None
    attempt: int
    parent: int
    epoch: int


META_LENGTH: Final = len(CallMeta._fields)


def read_meta(value: Value) -> tuple[CallMeta, list[Value]]:
    """Split a REQ or EVENT body into its meta and its positional arguments."""
    if not isinstance(value, list) or len(value) < META_LENGTH:
        raise MalformedMessageError(f"a call is an array of at least {META_LENGTH} items")
    method, deadline_us, trace, tenant, attempt, parent, epoch, *args = value
    if (
        not (type(method) is type(deadline_us) is type(attempt) is type(parent) is type(epoch) is int)
        # The sign of an OR is negative as soon as one operand's is.
        or (method | deadline_us | attempt | parent | epoch) < 0
    ):
        raise MalformedMessageError("method, deadline, attempt, parent and epoch are integers from 0 up")
    for text in (trace, tenant):
        if text is not None and type(text) is not str:
            raise MalformedMessageError("trace and tenant are text or nil")
    return CallMeta(method, deadline_us, trace, tenant, attempt, parent, epoch), args  # type: ignore[arg-type]  # each field was checked above
