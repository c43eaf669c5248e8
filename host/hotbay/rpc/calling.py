"""The calls of both links of one process: made, answered, late, given up, without an answer to the end.

Invariants: every call made ends in exactly one call of its `done`, in time, late, or when the process is gone; its `freed`
follows when the plugin answered or is gone. What comes and answers no call is somebody else's business.
"""

import asyncio
from collections.abc import Callable, Sequence

from hotbay_sdk.protocol import (
    CallLimitError,
    ErrorReceived,
    Event,
    LateAnswerDropped,
    ReplyReceived,
    ValueRefusedError,
)
from hotbay_sdk.protocol.messages import DATA_METHODS

from hotbay.errors import CapacityError, HostError, PluginFault
from hotbay.rpc.faults import fault_from_wire, unsendable
from hotbay.rpc.wire import Call, Channel, Outcome, Wire

__all__ = ["Calls"]


class Calls:
    """See the module. Lives on the loop that made it.

    Attributes:
        hot: the call link.
        control: the control link.
        fault: why the process can no longer be called, once it cannot; set by the owner.
        rare: takes what answers no call; set by the owner before it gives the loop back.

    Args:
        channel: the links.
        label: of the process, for errors.
        stuck_s: how long after its deadline, or its end, a call may go on.
        stuck: told of one that still does.
        lost: takes why a link ended.
    """

    __slots__ = ("_label", "_loop", "_lost", "_stuck", "_stuck_s", "control", "fault", "hot", "rare")

    def __init__(
        self,
        channel: Channel,
        label: str,
        *,
        stuck_s: float,
        stuck: Callable[[], None],
        lost: Callable[[HostError], None],
    ) -> None:
        self._label = label
        self._loop = asyncio.get_running_loop()
        self._stuck_s = stuck_s
        self._stuck = stuck
        self._lost = lost
        self.fault: HostError | None = None
        self.rare: Callable[[Wire, Event], None]
        self.hot = Wire("call", channel.call_in_fd, channel.call_out_fd, self._handle, lost)
        fd = channel.control.fileno()
        self.control = Wire("control", fd, fd, self._handle, lost, passes=channel.control)

    def check_usable(self, wire: Wire) -> None:
        """Raise why nothing can be sent on a link now."""
        if self.fault is not None:
            raise self.fault
        if wire.full:
            raise CapacityError(
                "RESOURCE_EXHAUSTED",
                f"{wire.queued_bytes} bytes wait for {self._label}, which does not read",
                hint="the call was not made; the plugin is replaced when it stays so",
            )

    def start(
        self,
        wire: Wire,
        method: int,
        args: Sequence[object],
        deadline_s: float,
        done: Callable[[Outcome], None],
        freed: Callable[[], None] | None = None,
        reply_limit_bytes: int | None = None,
        epoch: int = 0,
        parent: int = 0,
        passed: Sequence[int] = (),
    ) -> int:
        """Make a call; return its stream. See `PluginClient.start_call`. What is `passed` belongs to the link from here on.

        Raises `HostError` when the call could not be made; then nothing is told, and what is `passed` stays the caller's.
        """
        # Before a stream is taken: a call that is never sent is never answered, and would count as outstanding for ever.
        self.check_usable(wire)
        try:
            stream, frame = wire.connection.start_call(
                method,
                args,
                deadline_us=max(1, int(deadline_s * 1e6)),
                reply_limit_bytes=reply_limit_bytes,
                epoch=epoch,
                parent=parent,
                descriptors=bool(passed),
            )
        except CallLimitError as error:
            raise CapacityError("RESOURCE_EXHAUSTED", str(error)) from error
        except ValueRefusedError as error:
            raise unsendable(error) from error
        # What passes is queued: no write fails before the caller knows that its descriptors are the wire's.
        wire.write_passing(frame, passed) if passed else wire.write(frame)
        if self.fault is not None:
            raise self.fault
        call = wire.calls[stream] = Call(method, done, freed, deadline_s)
        call.timer = self._loop.call_later(deadline_s, self._on_deadline, wire, stream)
        return stream

    def cancel(self, wire: Wire, stream: int, reason: str) -> None:
        """Tell the plugin that nobody wants an answer."""
        frame = wire.connection.cancel(stream, reason)
        if frame and self.fault is None:
            wire.write(frame)

    def give_up(self, stream: int) -> None:
        """Nobody wants a control call any more that has no deadline: from now on it has to end in time like any other."""
        call = self.control.calls.get(stream)
        if call is not None and call.stuck is None and self.fault is None:
            call.stuck = self._loop.call_later(self._stuck_s, self._stuck)
            self.cancel(self.control, stream, "cancelled")

    def waits_for(self, stream: int) -> bool:
        """Whether the caller of a hot call still waits for it."""
        call = self.hot.calls.get(stream)
        return call is not None and call.timer is not None

    def pending_s(self) -> float:
        """Seconds until the last of the calls that have a deadline will have had it; may be below 0."""
        return max(self.hot.last_end_s, self.control.last_end_s) - self._loop.time()

    def drain(self) -> None:
        """Read to the end what a dead process left behind."""
        self.hot.drain()
        self.control.drain()

    def close(self, fault: HostError) -> None:
        """Leave the loop; every waiting caller gets `fault`. Idempotent."""
        for wire in (self.hot, self.control):
            for call in wire.close():
                call.tell(fault)
                call.free()

    def _on_deadline(self, wire: Wire, stream: int) -> None:
        call = wire.calls.get(stream)
        if call is None:
            return
        if wire is self.hot or call.method in DATA_METHODS:
            call.stuck = self._loop.call_later(self._stuck_s, self._stuck)
        self.cancel(wire, stream, "deadline")
        call.tell(
            PluginFault("DEADLINE_EXCEEDED", f"{self._label} gave no answer within {call.deadline_s * 1000:.0f} ms")
        )

    def _handle(self, wire: Wire, events: list[Event]) -> None:
        for event in events:
            if type(event) is ReplyReceived:
                self._settle(wire, event.stream, event.result)
            elif type(event) is ErrorReceived and event.stream == 0:
                self._lost(fault_from_wire(event.error, self._label))
            elif type(event) is ErrorReceived:
                self._settle(wire, event.stream, fault_from_wire(event.error, self._label))
            elif type(event) is LateAnswerDropped:
                self._settle(
                    wire, event.stream, PluginFault("CANCELLED", f"{self._label} was told to give the call up")
                )
            else:
                self.rare(wire, event)

    def _settle(self, wire: Wire, stream: int, outcome: Outcome) -> None:
        call = wire.calls.pop(stream, None)
        if call is not None:
            call.free()
            call.tell(outcome)
