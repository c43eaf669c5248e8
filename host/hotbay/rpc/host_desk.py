"""Takes the calls of one plugin process to its host and gives the answers back. Knows nothing of what is asked.

Each call is answered exactly once, cancelled ones at once. Descriptors of an answer are the wire's once it has the frame
that they go with; until then they are closed here, whatever happens. A call out of a hot call that is over is refused and
counted: what comes late must not act. A host's answers wait in the queue of the wire, so a plugin that does not
read them loses the link.
"""

import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack

from hotbay_sdk.protocol import (
    CallError,
    CallReceived,
    CallRefused,
    ErrorCode,
    Executed,
    Value,
    ValueRefusedError,
)

from hotbay.errors import HostError, PluginFault
from hotbay.rpc.host_calls import HostCall
from hotbay.rpc.wire import Passage, Wire


class HostCallDesk:
    """The host calls of one process.

    Args:
        wire: the control link.
        label: of the process.
        on_call: answers calls; None grants none.
        waits: whether somebody waits for the hot call of a stream.
        lost: ends the process for a violation.
    """

    def __init__(
        self,
        wire: Wire,
        label: str,
        *,
        on_call: Callable[[HostCall], None] | None,
        waits: Callable[[int], bool],
        lost: Callable[[HostError], None],
    ) -> None:
        self._wire = wire
        self._label = label
        self._on_call = on_call
        self._waits = waits
        self._lost = lost
        self._open: dict[int, HostCall] = {}
        self.late_calls = 0
        """Calls that were refused because the hot call in whose handler they were made was over."""

    def take(self, event: CallReceived, now_s: float) -> bool:
        """Serve a call; false if it was refused out of hand."""
        if self._overrun():
            return False
        meta = event.meta
        if self._on_call is None:
            self._send(event.stream, CallError(ErrorCode.UNAVAILABLE, "this host grants no host calls"), ())
            return False
        if meta.parent and not self._waits(meta.parent):
            self.late_calls += 1
            late = CallError(ErrorCode.CANCELLED, f"call {meta.parent}, which asks, is over", executed=Executed.NO)
            self._send(event.stream, late, ())
            return False
        call = HostCall(
            event.stream,
            meta.method,
            event.args,
            parent=meta.parent,
            deadline_s=now_s + meta.deadline_us / 1e6,
            answer=self._answer,
        )
        self._open[event.stream] = call
        self._on_call(call)
        return not call.refused

    def refuse(self, event: CallRefused) -> None:
        """Answer a call that the connection did not take."""
        if not self._overrun():
            self._send(event.stream, event.error, ())

    def cancel(self, stream: int) -> None:
        """The plugin gave a call up: its handler's answer will be dropped."""
        call = self._open.get(stream)
        if call is not None:
            call.fail(PluginFault("CANCELLED", "cancelled by the plugin"))
            call.cancelled = True

    def close(self) -> None:
        """The process is gone: what handlers still answer is dropped."""
        for call in self._open.values():
            call.cancelled = True
        self._open.clear()

    def _overrun(self) -> bool:
        if self._wire.full:
            self._lost(PluginFault("PROTOCOL_VIOLATION", f"{self._label} calls its host and does not read the answers"))
            return True
        return False

    def _answer(self, call: HostCall, outcome: "Value | CallError", descriptors: Sequence[int]) -> None:
        if self._open.pop(call.stream, None) is None:
            Passage(b"", descriptors).close()
            return
        self._send(call.stream, outcome, descriptors)

    def _send(self, stream: int, outcome: "Value | CallError", descriptors: Sequence[int]) -> None:
        with ExitStack() as unsent:
            for descriptor in descriptors:
                unsent.callback(os.close, descriptor)
            frame, passes = self._frame(stream, outcome, passes=bool(descriptors))
            if passes:
                self._wire.write_passing(frame, descriptors)
                unsent.pop_all()
            else:
                self._wire.write(frame)

    def _frame(self, stream: int, outcome: "Value | CallError", *, passes: bool) -> tuple[bytes, bool]:
        """The answer's frame, and whether descriptors go with it."""
        connection = self._wire.connection
        if isinstance(outcome, CallError):
            return connection.send_error(stream, outcome), False
        try:
            return connection.send_reply(stream, outcome, descriptors=passes), passes
        except ValueRefusedError as error:
            refusal = CallError(ErrorCode.FRAME_TOO_LARGE, f"the answer cannot cross: {error}", executed=Executed.YES)
            return connection.send_error(stream, refusal), False
