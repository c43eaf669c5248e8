"""Methods, error codes, and the bodies of frames: what the two ends say to each other.

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
"""Limit of a hot call's request and reply."""
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
    PRE_REQUEST = 12
    CONFIGURE = 30
    EXPORT_STATE = 31
    IMPORT_STATE = 32
    DUMP_STATE = 35
    CHECK_READY = 36
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


class Streams(StrEnum):
    """Which way a method's data travels in DATA frames, beside its arguments and its result."""

    NONE = "none"
    REQUEST = "request"
    REPLY = "reply"


class MethodSpec(NamedTuple):
    """What the protocol says of a method. `deadline_ms` is the default that the caller sets."""

    method: Method
    name: str
    link: Link
    deadline_ms: int
    one_way: bool
    request_bytes: int
    reply_bytes: int
    streams: Streams = Streams.NONE
    by_host: bool = True


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
    return MethodSpec(method, name, link, deadline_ms, one_way, MAX_FRAME_BYTES, reply_bytes, streams)


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
        _by_host(Method.PRE_REQUEST, Link.CALL, 50, 0, one_way=True),
        _by_host(Method.CONFIGURE, Link.CONTROL, 30_000, CONTROL_FRAME_BYTES),
        _by_host(Method.EXPORT_STATE, Link.CONTROL, 30_000, 64 * 1024, streams=Streams.REPLY),
        _by_host(Method.IMPORT_STATE, Link.CONTROL, 30_000, 1024, streams=Streams.REQUEST),
        _by_host(Method.DUMP_STATE, Link.CONTROL, 500, 64 * 1024),
        _by_host(Method.CHECK_READY, Link.CONTROL, 1000, CONTROL_FRAME_BYTES),
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


def _expect(condition: bool, what: str) -> None:
    if not condition:
        raise MalformedMessageError(what)


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


def _map(value: Value, what: str) -> dict[str, Value]:
    if not isinstance(value, dict):
        raise MalformedMessageError(f"{what} is a map")
    return value


def _int(body: Mapping[str, Value], key: str, default: int | None = None) -> int:
    value = body.get(key, default)
    if type(value) is not int or value < 0:
        raise MalformedMessageError(f"{key} is an integer from 0 up")
    return value


def _str(body: Mapping[str, Value], key: str, default: str | None = None) -> str:
    value = body.get(key, default)
    if not isinstance(value, str):
        raise MalformedMessageError(f"{key} is text")
    return value


def _strs(body: Mapping[str, Value], key: str) -> tuple[str, ...]:
    value = body.get(key, [])
    if not isinstance(value, list) or len(value) > MAX_NAMES:
        raise MalformedMessageError(f"{key} is a list of at most {MAX_NAMES} names")
    names: list[str] = []
    for item in value:
        if not isinstance(item, str) or not 0 < len(item) <= MAX_NAME_CHARS:
            raise MalformedMessageError(f"{key} holds names of 1 to {MAX_NAME_CHARS} characters")
        names.append(item)
    return tuple(names)


def _bool(body: Mapping[str, Value], key: str) -> bool:
    value = body.get(key, False)
    if not isinstance(value, bool):
        raise MalformedMessageError(f"{key} is true or false")
    return value


def _versions(value: Value) -> tuple[int, ...]:
    if not isinstance(value, list) or len(value) > MAX_NAMES:
        raise MalformedMessageError(f"state_versions is a list of at most {MAX_NAMES} numbers")
    versions: list[int] = []
    for item in value:
        if type(item) is not int or not 0 < item < 2**31:
            raise MalformedMessageError("a state version is a number from 1 up")
        versions.append(item)
    return tuple(versions)


MAX_CONCURRENCY: Final = 64
"""Most overlapping calls that a type may take: each is a thread of its process."""
MAX_NAMES: Final = 256
MAX_NAME_CHARS: Final = 253


class Armed(NamedTuple):
    """Stage 0's word, before any code of the package ran: what isolation it enforced."""

    incarnation: str
    enforced: tuple[str, ...]

    def to_wire(self) -> dict[str, Value]:
        """Map of the ARMED frame."""
        return {"incarnation": self.incarnation, "enforced": list(self.enforced)}

    @classmethod
    def from_wire(cls, value: Value) -> Armed:
        """Read an ARMED body."""
        body = _map(value, "ARMED")
        return cls(_str(body, "incarnation"), _strs(body, "enforced"))


NO_RANGE: Final = (0, 0)
"""The range of a HELLO that names none which can be read: no host's version is in it."""


class Hello(NamedTuple):
    """The plugin's SDK introduces itself. `protocol` is the closed range of versions that it speaks, or `NO_RANGE`."""

    protocol: tuple[int, int]
    sdk: str
    language: str
    features: tuple[str, ...] = ()

    def to_wire(self) -> dict[str, Value]:
        """Map of the HELLO frame."""
        return {
            "protocol": list(self.protocol),
            "sdk": self.sdk,
            "language": self.language,
            "features": list(self.features),
        }

    @classmethod
    def from_wire(cls, value: Value) -> Hello:
        """Read a HELLO body."""
        body = _map(value, "HELLO")
        return cls(
            _range(body.get("protocol")),
            _str(body, "sdk", ""),
            _str(body, "language", ""),
            _strs(body, "features"),
        )


def _range(value: Value) -> tuple[int, int]:
    """A peer of another version may write it in any form: that is no violation, it is another version."""
    if isinstance(value, list) and len(value) == 2:
        low, high = value
        if type(low) is int and type(high) is int and 0 < low <= high:
            return low, high
    return NO_RANGE


class Welcome(NamedTuple):
    """The host's answer: the version both will speak and what the process needs to begin.

    `state`: the state of a predecessor follows in a call of `import_state`.
    """

    protocol: int
    generation: int
    seed: int
    log_level: str = "info"
    features: tuple[str, ...] = ()
    state: bool = False

    def to_wire(self) -> dict[str, Value]:
        """Map of the WELCOME frame."""
        body: dict[str, Value] = {
            "protocol": self.protocol,
            "generation": self.generation,
            "seed": self.seed,
            "log_level": self.log_level,
            "features": list(self.features),
        }
        return {**body, "state": True} if self.state else body

    @classmethod
    def from_wire(cls, value: Value) -> Welcome:
        """Read a WELCOME body."""
        body = _map(value, "WELCOME")
        return cls(
            protocol=_int(body, "protocol"),
            generation=_int(body, "generation"),
            seed=_int(body, "seed"),
            log_level=_str(body, "log_level", "info"),
            features=_strs(body, "features"),
            state=_bool(body, "state"),
        )


class TypeDeclaration(NamedTuple):
    """What READY says of one plugin type.

    `points`: names of the extension points it answers. `reads`: endpoint columns and request fields
    that cross to it; others never do. `consumes`/`produces`: names of data columns, `KEY.field`.
    `rowwise`: each endpoint's score depends on that endpoint alone. `concurrency`: calls to it that may
    overlap. `state_versions`: forms of state that it can give to a successor and take from a
    predecessor. `needs_restart`: other parameters need another process.
    """

    type: str
    points: tuple[str, ...]
    reads: tuple[str, ...] = ()
    consumes: tuple[str, ...] = ()
    produces: tuple[str, ...] = ()
    rowwise: bool = False
    concurrency: int = 1
    state_versions: tuple[int, ...] = ()
    needs_restart: bool = False

    def to_wire(self) -> dict[str, Value]:
        """Map of one entry of READY's `types`. What is as by default and came later than the rest is left out."""
        body: dict[str, Value] = {
            "type": self.type,
            "points": list(self.points),
            "reads": list(self.reads),
            "consumes": list(self.consumes),
            "produces": list(self.produces),
            "rowwise": self.rowwise,
            "concurrency": self.concurrency,
        }
        if self.state_versions:
            body["state_versions"] = list(self.state_versions)
        if self.needs_restart:
            body["needs_restart"] = True
        return body

    @classmethod
    def from_wire(cls, value: Value) -> TypeDeclaration:
        """Read one entry of READY's `types`."""
        body = _map(value, "a type")
        concurrency = _int(body, "concurrency", 1)
        _expect(0 < concurrency <= MAX_CONCURRENCY, f"concurrency is 1 to {MAX_CONCURRENCY}")
        return cls(
            type=_str(body, "type"),
            points=_strs(body, "points"),
            reads=_strs(body, "reads"),
            consumes=_strs(body, "consumes"),
            produces=_strs(body, "produces"),
            rowwise=_bool(body, "rowwise"),
            concurrency=concurrency,
            state_versions=_versions(body.get("state_versions", [])),
            needs_restart=_bool(body, "needs_restart"),
        )


class Ready(NamedTuple):
    """The plugin's code is imported and can be configured."""

    types: tuple[TypeDeclaration, ...]
    sdk: str

    def to_wire(self) -> dict[str, Value]:
        """Map of the READY frame."""
        return {"types": [t.to_wire() for t in self.types], "sdk": self.sdk}

    @classmethod
    def from_wire(cls, value: Value) -> Ready:
        """Read a READY body."""
        body = _map(value, "READY")
        types = body.get("types")
        if not isinstance(types, list) or len(types) > MAX_NAMES:
            raise MalformedMessageError(f"types is a list of at most {MAX_NAMES}")
        return cls(tuple(TypeDeclaration.from_wire(t) for t in types), _str(body, "sdk", ""))
