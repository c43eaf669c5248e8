"""One call that goes on until it is cancelled, `discover` or `source_watch`, and what it told so far.

Its data are records: a length (u32, big endian) and one value. What is not of that form breaks a rule where it is read.
"""

import struct
from typing import Final

import anyio
from hotbay_sdk.protocol import ErrorReceived, Value, ValueRefusedError
from hotbay_sdk.protocol.messages import ENDLESS_MS
from hotbay_sdk.protocol.values import unpack_checked

from hotbay.conformance.data_calls import DataProbe
from hotbay.conformance.link import Link
from hotbay.conformance.peer import Conversation
from hotbay.conformance.verdict import BrokenRuleError, expect

__all__ = ["Telling"]

READY_WITHIN_S: Final = 15.0
"""A run that has not said by then that it told everything counts as a failed call."""
ENDED_WITHIN_S: Final = 10.0
"""From its cancel to its answer."""
MAX_RECORD_BYTES: Final = 64 * 1024
_LENGTH: Final = struct.Struct(">I")
_DEFAULT_NAMESPACE: Final = "default"


class Telling:
    """See the module. `begin`, and `cancel` in the end."""

    def __init__(self, talk: Conversation, probe: DataProbe, stream: int) -> None:
        self.probe = probe
        self.records: list[Value] = []
        self._talk = talk
        self._stream = stream
        self._read = 0

    @classmethod
    async def begin(cls, talk: Conversation, probe: DataProbe) -> "Telling":
        """Make the call, and give no credit beyond the first."""
        (args,) = probe.calls()
        stream, frame = talk.peer.control.connection.start_call(probe.method, args, deadline_us=ENDLESS_MS * 1000)
        await talk.peer.control.write(frame)
        return cls(talk, probe, stream)

    @property
    def _link(self) -> Link:
        return self._talk.peer.control

    @property
    def what(self) -> str:
        """The run, for people."""
        return f"{self.probe.point} of {self.probe.declaration.type}"

    async def until_ready(self) -> None:
        """Take what it tells until it says that this was all, giving credit as it comes."""
        within_s = min(READY_WITHIN_S, self._talk.peer.patience.ready_s)
        with anyio.move_on_after(within_s):
            while not self._is_ready():
                if self._link.is_answered(self._stream):
                    raise BrokenRuleError(await self._end_before_ready())
                await self._link.give_credit()
                await self._link.more(within_s * 2)
            return
        raise BrokenRuleError(f"{self.what} did not say ready within {within_s:g} s")

    async def _end_before_ready(self) -> str:
        answer = await self._link.answer(self._stream)
        found = (
            f"{answer.error.code}: {answer.error.message[:400]}" if isinstance(answer, ErrorReceived) else "a result"
        )
        return f"{self.what} ended before it said ready, with {found}"

    def _is_ready(self) -> bool:
        """Read what came; whether everything was told."""
        data = self._link.data.get(self._stream, b"")
        while len(data) - self._read >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(data, self._read)
            expect(length <= MAX_RECORD_BYTES, f"{self.what}: a record of {length} bytes, at most {MAX_RECORD_BYTES}")
            begin = self._read + _LENGTH.size
            if len(data) - begin < length:
                break
            self._read = begin + length
            try:
                self.records.append(unpack_checked(bytes(data[begin : self._read])))
            except ValueRefusedError as error:
                raise BrokenRuleError(f"{self.what}: a record is no value: {error}") from error
        return ["ready"] in self.records

    @property
    def known(self) -> frozenset[str]:
        """What is there by what it told, by its id or key."""
        found: dict[str, None] = {}
        for record in self.records:
            if isinstance(record, list) and len(record) == 2:
                verb, thing = record
                if verb == "upsert" and isinstance(thing, dict):
                    found[_name(thing)] = None
                elif verb == "delete":
                    found.pop(str(thing), None)
        return frozenset(found)

    async def cancel(self) -> None:
        """Want no more: it is answered in time, exactly once; a run that has ended by itself was."""
        frame = self._link.connection.cancel(self._stream, "conformance")
        if frame:
            await self._link.write(frame)
        within_s = min(ENDED_WITHIN_S, self._talk.peer.patience.exit_s)
        with anyio.move_on_after(within_s):
            while not self._link.is_answered(self._stream):
                await self._link.give_credit()
                await self._link.more(within_s * 2)
            await self._link.answer(self._stream)
            return
        raise BrokenRuleError(f"{self.what} was cancelled, and had no answer after {within_s:g} s")


def _name(thing: dict[str, Value]) -> str:
    """The id of an endpoint, or the key of an object."""
    if isinstance(thing.get("id"), str):
        return str(thing["id"])
    metadata = thing.get("metadata")
    named = metadata if isinstance(metadata, dict) else thing
    namespace = named.get("namespace", "" if named is metadata else _DEFAULT_NAMESPACE)
    return f"{namespace!s}/{named.get('name')!s}" if namespace else str(named.get("name"))
