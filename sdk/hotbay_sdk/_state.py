"""The state that the refs of a process hand to those of its successor: its form, and who gives and takes it.

Imported when there is state to give or to take. The form is one of the protocol: records, each a length (u32,
big endian) and one value of the wire. A map {type, name, version} begins the state of a ref, bytes are the next
piece of it, nil says that it is whole. A ref whose state has no nil was not exported to its end and is left out.
"""

from __future__ import annotations

import struct
from time import monotonic, sleep

from hotbay_sdk._errors import CallFailedError, Failed, attempt, describe
from hotbay_sdk._instances import Section
from hotbay_sdk.protocol.messages import CallError, ErrorCode, Executed
from hotbay_sdk.protocol.values import Encoder, ValueRefusedError, unpack

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _thread import LockType
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import Final

    from hotbay_sdk._instances import Instance
    from hotbay_sdk.protocol.values import Value

_LENGTH: Final = struct.Struct(">I")
PIECE_BYTES: Final = 48 * 1024
"""Longest piece of one record: with its length it fits into one frame of data."""
BREATH_S: Final = 0.0002
"""Pause between two pieces, in which a hot call that waits for the instance gets its turn."""


class StateUnreadableError(ValueError):
    """The bytes are not in the form of the protocol."""


def read(data: bytes) -> dict[tuple[str, str], Section]:
    """Sections by (type, ref name). Raises `StateUnreadableError`."""
    found: dict[tuple[str, str], Section] = {}
    section: Section | None = None
    for value in _records(data):
        if isinstance(value, dict):
            key, section = _begun(value)
            found[key] = section
        elif section is None or section.whole:
            raise StateUnreadableError("a piece that belongs to no ref")
        elif value is None:
            section.whole = True
        elif isinstance(value, bytes):
            section.pieces.append(value)
        else:
            raise StateUnreadableError(f"a record of type {type(value).__name__}")
    return found


def _begun(value: dict[str, Value]) -> tuple[tuple[str, str], Section]:
    kind, name, version = value.get("type"), value.get("name"), value.get("version")
    if not isinstance(kind, str) or not isinstance(name, str) or type(version) is not int:
        raise StateUnreadableError("a section names its type, its ref and its version")
    return (kind, name), Section(version)


def _records(data: bytes) -> Iterator[Value]:
    position, end = 0, len(data)
    while position < end:
        if end - position < _LENGTH.size:
            raise StateUnreadableError("ends within a length")
        (length,) = _LENGTH.unpack_from(data, position)
        position += _LENGTH.size
        if length > end - position:
            raise StateUnreadableError(f"a record of {length} bytes, {end - position} are left")
        try:
            yield unpack(data[position : position + length])
        except ValueRefusedError as error:
            raise StateUnreadableError(str(error)) from error
        position += length


class Exporter:
    """Writes the state of refs, piece by piece, through `send`, which blocks while the host takes no more.

    Args:
        send: takes encoded bytes in order; raises `CallFailedError` when nobody wants them any more.
        budget_bytes: what the host takes in all.
        deadline: monotonic time by which it is to be done.
    """

    def __init__(self, send: Callable[[bytes], None], *, budget_bytes: int, deadline: float) -> None:
        self._send = send
        self._left = budget_bytes
        self._deadline = deadline
        self._pack = Encoder().pack

    def run(self, instances: Sequence[Instance], guard: LockType, wanted: Mapping[str, object] | None) -> object:
        """Export every ref whose type has state; the outcome of each by name. Raises `CallFailedError`."""
        outcomes: dict[str, object] = {}
        for instance in instances:
            declared = instance.spec.declaration.state_versions
            if not declared:
                continue
            name = instance.context.name
            version = _version(declared, None if wanted is None else wanted.get(instance.spec.name))
            if version is None:
                outcomes[name] = "failed: no version that both know"
                continue
            failure = self._ref(instance, version, guard)
            outcomes[name] = "exported" if failure is None else f"failed: {failure}"
        return {"refs": outcomes}

    def _ref(self, instance: Instance, version: int, guard: LockType) -> str | None:
        """Export one ref; what its code raised, as text, if it did."""
        self._record({"type": instance.spec.name, "name": instance.context.name, "version": version})
        # A type that takes overlapping calls takes this one beside them.
        held = guard if instance.spec.declaration.concurrency == 1 else None
        made = _guarded(held, instance.object.export_state, version)  # type: ignore[attr-defined]  # declared types have it
        pieces = iter((made,)) if isinstance(made, (bytes, bytearray, memoryview)) else made
        if not isinstance(pieces, Failed):
            pieces = attempt(iter, pieces)
        while not isinstance(pieces, Failed):
            piece = _guarded(held, next, pieces, _END)
            if piece is _END:
                self._record(None)
                return None
            if isinstance(piece, (bytes, bytearray, memoryview)):
                self._piece(bytes(piece))
                sleep(BREATH_S)
            else:
                pieces = (
                    piece
                    if isinstance(piece, Failed)
                    else Failed(TypeError(f"a piece is bytes, not {type(piece).__name__}"))
                )
        instance.context.logger.fault(pieces.fault)
        return describe(pieces.fault)[:200]

    def _piece(self, piece: bytes) -> None:
        for start in range(0, len(piece), PIECE_BYTES):
            self._record(piece[start : start + PIECE_BYTES])

    def _record(self, value: object) -> None:
        body = self._pack(value)
        self._left -= _LENGTH.size + len(body)
        if self._left < 0:
            raise CallFailedError(
                CallError(ErrorCode.RESOURCE_EXHAUSTED, "the state is over the host's budget", executed=Executed.YES)
            )
        if monotonic() >= self._deadline:
            raise CallFailedError(
                CallError(ErrorCode.DEADLINE_EXCEEDED, "the state was not exported in time", executed=Executed.YES)
            )
        self._send(_LENGTH.pack(len(body)) + body)


_END: Final = object()


def _guarded(guard: LockType | None, job: Callable[..., object], *arguments: object) -> object:
    if guard is None:
        return attempt(job, *arguments)
    with guard:
        return attempt(job, *arguments)


def _version(declared: Sequence[int], wanted: object) -> int | None:
    """The newest version that both ends know; without a wish, the newest of ours."""
    known = [v for v in declared if not isinstance(wanted, list) or v in wanted]
    return max(known, default=None)


def imported(instance: Instance, section: Section | None) -> tuple[str, bool]:
    """Give a new instance its predecessor's state.

    Returns:
        "imported", or "cold: " and the reason; and whether its own import may have left the instance half done.
    """
    if section is None:
        return "cold: the predecessor left none for it", False
    if not section.whole:
        return "cold: the predecessor's export broke off", False
    if section.version not in instance.spec.declaration.state_versions:
        return f"cold: the predecessor's is of version {section.version}", False
    took = attempt(instance.object.import_state, section.version, iter(section.pieces))  # type: ignore[attr-defined]  # as above
    if isinstance(took, Failed):
        instance.context.logger.fault(took.fault)
        return f"cold: import_state raised {describe(took.fault)[:200]}", True
    return "imported", False
