"""Methods, error codes, and the bodies of frames: what the two ends say to each other.

Pure. Every `from_wire` checks shape and bounds of a value that the peer sent and raises
`MalformedMessageError`; nothing is looked up by a name from the wire but in the tables here.
"""

from __future__ import annotations

from hotbay_sdk.protocol.declarations import IntEnum, NamedTuple, StrEnum
from hotbay_sdk.protocol.frames import MAX_FRAME_BYTES

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
NO_DEADLINE_US: Final = 0


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
    CHECK_READY = 36


class MethodSpec(NamedTuple):
    """What the protocol says of a method. `deadline_ms` is the default that the host sets."""

    method: Method
    name: str
    link: Link
    deadline_ms: int
    one_way: bool
    request_bytes: int
    reply_bytes: int


METHODS: Final[Mapping[int, MethodSpec]] = {
    spec.method: spec
    for spec in (
        MethodSpec(Method.RUN, "run", Link.CALL, 50, False, MAX_FRAME_BYTES, HOT_FRAME_BYTES),
        MethodSpec(Method.PICK, "pick", Link.CALL, 50, False, MAX_FRAME_BYTES, HOT_FRAME_BYTES),
        MethodSpec(Method.PRODUCE, "produce", Link.CALL, 400, False, MAX_FRAME_BYTES, HOT_FRAME_BYTES),
        MethodSpec(Method.PROFILE_PICK, "profile_pick", Link.CALL, 50, False, MAX_FRAME_BYTES, CONTROL_FRAME_BYTES),
        MethodSpec(
            Method.PROFILE_PROCESS, "profile_process", Link.CALL, 50, False, MAX_FRAME_BYTES, CONTROL_FRAME_BYTES
        ),
        MethodSpec(Method.PRE_REQUEST, "pre_request", Link.CALL, 50, True, MAX_FRAME_BYTES, 0),
        MethodSpec(Method.CONFIGURE, "configure", Link.CONTROL, 30_000, False, MAX_FRAME_BYTES, CONTROL_FRAME_BYTES),
        MethodSpec(Method.CHECK_READY, "check_ready", Link.CONTROL, 1000, False, MAX_FRAME_BYTES, CONTROL_FRAME_BYTES),
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


class Hello(NamedTuple):
    """The plugin's SDK introduces itself. `protocol` is the closed range of versions that it speaks."""

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
        versions = body.get("protocol")
        if not isinstance(versions, list) or len(versions) != 2:
            raise MalformedMessageError("protocol is [lowest, highest]")
        low, high = versions
        if type(low) is not int or type(high) is not int or not 0 < low <= high:
            raise MalformedMessageError("protocol is [lowest, highest], integers from 1 up")
        return cls((low, high), _str(body, "sdk"), _str(body, "language"), _strs(body, "features"))


class Welcome(NamedTuple):
    """The host's answer: the version both will speak and what the process needs to begin."""

    protocol: int
    generation: int
    seed: int
    log_level: str = "info"
    features: tuple[str, ...] = ()

    def to_wire(self) -> dict[str, Value]:
        """Map of the WELCOME frame."""
        return {
            "protocol": self.protocol,
            "generation": self.generation,
            "seed": self.seed,
            "log_level": self.log_level,
            "features": list(self.features),
        }

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
        )


class TypeDeclaration(NamedTuple):
    """What READY says of one plugin type.

    `points`: names of the extension points it answers. `reads`: endpoint columns and request fields
    that cross to it; others never do. `consumes`/`produces`: names of data columns, `KEY.field`.
    `rowwise`: each endpoint's score depends on that endpoint alone.
    """

    type: str
    points: tuple[str, ...]
    reads: tuple[str, ...] = ()
    consumes: tuple[str, ...] = ()
    produces: tuple[str, ...] = ()
    rowwise: bool = False
    concurrency: int = 1

    def to_wire(self) -> dict[str, Value]:
        """Map of one entry of READY's `types`."""
        return {
            "type": self.type,
            "points": list(self.points),
            "reads": list(self.reads),
            "consumes": list(self.consumes),
            "produces": list(self.produces),
            "rowwise": self.rowwise,
            "concurrency": self.concurrency,
        }

    @classmethod
    def from_wire(cls, value: Value) -> TypeDeclaration:
        """Read one entry of READY's `types`."""
        body = _map(value, "a type")
        _expect(isinstance(body.get("rowwise", False), bool), "rowwise is true or false")
        return cls(
            type=_str(body, "type"),
            points=_strs(body, "points"),
            reads=_strs(body, "reads"),
            consumes=_strs(body, "consumes"),
            produces=_strs(body, "produces"),
            rowwise=body.get("rowwise") is True,
            concurrency=_int(body, "concurrency", 1),
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
