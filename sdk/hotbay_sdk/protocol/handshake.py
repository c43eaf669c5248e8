"""The bodies of the handshake's frames, and what READY says of a package's types.

Pure. Every `from_wire` checks shape and bounds of a value that the peer sent and raises `MalformedMessageError`.
"""

from __future__ import annotations

from hotbay_sdk.protocol.declarations import NamedTuple
from hotbay_sdk.protocol.messages import MalformedMessageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Final

    from hotbay_sdk.protocol.values import Value


def _expect(condition: bool, what: str) -> None:
    if not condition:
        raise MalformedMessageError(what)


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


MAX_ATTRIBUTES: Final = 64
"""Attributes that one type may declare."""
MAX_ATTRIBUTE_CHARS: Final = 128
MAX_PAYLOAD_CHARS: Final = 512
MIN_INTERVAL_MS: Final = 50
MAX_INTERVAL_MS: Final = 3_600_000
"""From one poll of an endpoint to the next, of a type that polls."""
ATTRIBUTE_KINDS: Final = ("f32", "i64", "value")
"""What an attribute may be: a number that becomes a float32 or an int64 column, or any value, which becomes none."""
_NAME_SIGNS: Final = frozenset("_.:/-")


def is_attribute_name(name: object) -> bool:
    """Whether an attribute may be called so: 1 to 128 ASCII letters, digits and `_ . : / -`."""
    return (
        isinstance(name, str)
        and 0 < len(name) <= MAX_ATTRIBUTE_CHARS
        and name.isascii()
        and all(sign.isalnum() or sign in _NAME_SIGNS for sign in name)
    )


_NO_ATTRIBUTES: Final[Mapping[str, str]] = {}


class DataDeclaration(NamedTuple):
    """What a type of the data layer says beside its points.

    `payload`: what it is given: `metrics`, `models`, `json`, `text` or `bytes` of a poll; `endpoint` or
    `object:GROUP/VERSION/KIND` as events. `families`: names of samples of a metrics page that cross to it. `attributes`:
    name → kind, of `ATTRIBUTE_KINDS`: others are refused. `default_source`: type of the source that feeds it where the
    operator names none. Of a type that watches or polls, `payload` is what it brings, and `interval_ms` how often it is
    polled; 0: as often as the host likes.
    """

    payload: str = ""
    families: tuple[str, ...] = ()
    attributes: Mapping[str, str] = _NO_ATTRIBUTES
    default_source: str = ""
    interval_ms: int = 0

    def to_wire(self) -> dict[str, Value]:
        """What of it is not as by default."""
        body: dict[str, Value] = {}
        if self.payload:
            body["payload"] = self.payload
        if self.families:
            body["families"] = list(self.families)
        if self.attributes:
            body["attributes"] = dict(self.attributes)
        if self.default_source:
            body["default_source"] = self.default_source
        if self.interval_ms:
            body["interval_ms"] = self.interval_ms
        return body

    @classmethod
    def from_wire(cls, body: Mapping[str, Value]) -> DataDeclaration:
        """Read the fields out of a type's map."""
        payload = _str(body, "payload", "")
        _expect(len(payload) <= MAX_PAYLOAD_CHARS, f"payload has at most {MAX_PAYLOAD_CHARS} characters")
        attributes = _map(body.get("attributes", {}), "attributes")
        _expect(len(attributes) <= MAX_ATTRIBUTES, f"attributes are at most {MAX_ATTRIBUTES}")
        kinds: dict[str, str] = {}
        for name, kind in attributes.items():
            _expect(is_attribute_name(name), "an attribute's name is of 1 to 128 letters, digits and _ . : / -")
            _expect(kind in ATTRIBUTE_KINDS, f"the kind of an attribute is one of {', '.join(ATTRIBUTE_KINDS)}")
            kinds[name] = str(kind)
        source = _str(body, "default_source", "")
        _expect(len(source) <= MAX_NAME_CHARS, f"default_source has at most {MAX_NAME_CHARS} characters")
        interval_ms = _int(body, "interval_ms", 0)
        _expect(
            interval_ms == 0 or MIN_INTERVAL_MS <= interval_ms <= MAX_INTERVAL_MS,
            f"interval_ms is {MIN_INTERVAL_MS} to {MAX_INTERVAL_MS}",
        )
        return cls(payload, _strs(body, "families"), kinds, source, interval_ms)


NO_DATA: Final = DataDeclaration()

DRAINED: Final = ("busy", "ineligible")
"""What a filter that leaves no candidate says of the rest: they are busy, or none of them may serve the request."""


class TypeDeclaration(NamedTuple):
    """What READY says of one plugin type.

    `points`: names of the extension points it answers. `reads`: endpoint columns and request fields
    that cross to it; others never do. `consumes`/`produces`: names of data columns, `KEY.field`.
    `optional`: those that may be missing beside them. `drained`: what it means when a filter leaves no
    candidate, of `DRAINED`. `claims`: path suffixes of a parser. `every_chunk`: a processor of response bodies that is told of
    each chunk.
    `rowwise`: each endpoint's score depends on that endpoint alone. `concurrency`: calls to it that may
    overlap. `state_versions`: forms of state that it can give to a successor and take from a
    predecessor. `needs_restart`: other parameters need another process. `data`: of types of the data layer, flat
    among the other fields on the wire.
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
    data: DataDeclaration = NO_DATA
    optional: tuple[str, ...] = ()
    drained: str = "busy"
    claims: tuple[str, ...] = ()
    every_chunk: bool = False

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
        if self.optional:
            body["optional"] = list(self.optional)
        if self.drained != DRAINED[0]:
            body["drained"] = self.drained
        if self.claims:
            body["claims"] = list(self.claims)
        if self.every_chunk:
            body["every_chunk"] = True
        return body | self.data.to_wire()

    @classmethod
    def from_wire(cls, value: Value) -> TypeDeclaration:
        """Read one entry of READY's `types`."""
        body = _map(value, "a type")
        concurrency = _int(body, "concurrency", 1)
        _expect(0 < concurrency <= MAX_CONCURRENCY, f"concurrency is 1 to {MAX_CONCURRENCY}")
        drained = _str(body, "drained", DRAINED[0])
        _expect(drained in DRAINED, f"drained is one of {', '.join(DRAINED)}")
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
            data=DataDeclaration.from_wire(body),
            optional=_strs(body, "optional"),
            drained=drained,
            claims=_strs(body, "claims"),
            every_chunk=_bool(body, "every_chunk"),
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
