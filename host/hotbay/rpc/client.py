"""Drives one plugin process over its two links: reader callbacks on the running loop, no task per call.

Invariants: every call made ends in exactly one call of its `done`, in time, late, or when the process
is gone; a call's `freed` follows when the plugin answered or is gone; a process that hangs is given up
after a grace period; after `close` nothing of this object is registered with the loop.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from hotbay_sdk.protocol import FrameType, Value, ValueRefusedError

from hotbay.errors import CapacityError, HostError
from hotbay.rpc.calling import Calls
from hotbay.rpc.control_calls import ControlCalls
from hotbay.rpc.data import DataLink
from hotbay.rpc.faults import unsendable
from hotbay.rpc.handshakes import Handshakes
from hotbay.rpc.host_calls import HostCall
from hotbay.rpc.host_desk import HostCallDesk
from hotbay.rpc.liveness import Patience
from hotbay.rpc.suspicion import Suspicion
from hotbay.rpc.unasked import Unasked
from hotbay.rpc.wire import Channel, Outcome

DEFAULT_PATIENCE: Final = Patience()


class PluginClient:
    """Calls one plugin process. Lives on the loop that made it; not for use from other threads.

    Attributes:
        control_call, follow, share, export_state: calls of the control link, see `ControlCalls`.

    Args:
        channel: the links.
        label: `plugin id#generation`, for logs and errors.
        on_lost: called at most once, with why the process is of no use any more: a link ended, the plugin broke
            the protocol, or it hangs. The owner then stops the process and calls `close`.
        on_goaway: called at most once, when the plugin asks to be replaced. It goes on answering; the owner starts
            the replacement first.
        patience: how long a process may hang.
        on_host_call: answers what the plugin asks of its host, see `host_calls`; without it every call is UNAVAILABLE.
        ask_stacks: makes a process that hangs write its stacks into its log, whatever it does; called at most once,
            shortly before `on_lost`.
    """

    def __init__(
        self,
        channel: Channel,
        *,
        label: str,
        on_lost: Callable[[HostError], None],
        on_goaway: Callable[[str], None] | None = None,
        patience: Patience = DEFAULT_PATIENCE,
        on_host_call: Callable[[HostCall], None] | None = None,
        ask_stacks: Callable[[], None] | None = None,
    ) -> None:
        self._label = label
        self._on_lost = on_lost
        self._calls = Calls(
            channel, label, stuck_s=patience.stuck_s, stuck=lambda: self._suspicion.stuck(), lost=self._lost
        )
        # Bound once: a hot call is made through as many steps as if this object kept its calls itself.
        self._start = self._calls.start
        self._hot = self._calls.hot
        self._control = self._calls.control
        data = DataLink(self._control)
        self._control_calls = ControlCalls(self._calls, data, label)
        self.control_call = self._control_calls.call
        self.follow = self._control_calls.follow
        self.share = self._control_calls.share
        self.export_state = self._control_calls.export_state
        self._handshakes = Handshakes()
        self._suspicion = Suspicion(self._calls, label, patience, ask_stacks=ask_stacks, lost=self._lost)
        waits = self._calls.waits_for
        self._desk = HostCallDesk(self._control, label, on_call=on_host_call, waits=waits, lost=self._lost)
        self._unasked = Unasked(
            self._calls,
            label,
            data=data,
            desk=self._desk,
            handshakes=self._handshakes,
            suspicion=self._suspicion,
            lost=self._lost,
            on_goaway=on_goaway,
        )
        self._calls.rare = self._unasked.take

    @property
    def fault(self) -> HostError | None:
        """Why the process can no longer be called, once it cannot."""
        return self._calls.fault

    @property
    def outstanding(self) -> int:
        """Hot calls without an answer, cancelled ones included."""
        return self._hot.connection.outstanding

    @property
    def late_answers(self) -> int:
        """Answers that came after their deadline and were dropped."""
        return self._hot.connection.late_answers

    @property
    def stray_answers(self) -> int:
        """Answers to calls that were never made or were answered before; dropped."""
        return self._unasked.strays.count

    @property
    def late_host_calls(self) -> int:
        """Host calls out of hot calls that were over; refused."""
        return self._desk.late_calls

    @property
    def figures(self) -> Mapping[str, int | float]:
        """What the process last said of itself: calls in flight, age of the oldest, memory, CPU. Its own word."""
        return self._suspicion.figures

    @property
    def label(self) -> str:
        """`plugin id#generation`, for logs."""
        return self._label

    def start_call(
        self,
        method: int,
        args: Sequence[object],
        *,
        deadline_s: float,
        done: Callable[[Outcome], None],
        freed: Callable[[], None] | None = None,
        reply_limit_bytes: int | None = None,
        epoch: int = 0,
        parent: int = 0,
    ) -> int:
        """Make a hot call; return its stream. `done` gets the result or a `HostError`, exactly once, never before this returns.

        `parent` is the stream of the host call that the plugin waits for and that causes this one: the plugin then
        serves it while it waits, where any other call waits its turn.

        `freed` is called once when the plugin answered (in time or late) or is gone: until then it is busy with the
        call. Neither may raise. Raises `HostError` when the call could not be made; then neither is called.
        """
        return self._start(self._hot, method, args, deadline_s, done, freed, reply_limit_bytes, epoch, parent)

    def cancel(self, stream: int) -> None:
        """Tell the plugin that nobody wants a hot call's answer. `done` gets CANCELLED when it gave the call up."""
        self._calls.cancel(self._hot, stream, "cancelled")

    def notify(self, method: int, args: Sequence[object], *, epoch: int = 0) -> None:
        """Send a one-way call. Raises `HostError` when it cannot be sent."""
        self._calls.check_usable(self._hot)
        try:
            frame = self._hot.connection.send_notice(method, args, epoch=epoch)
        except ValueRefusedError as error:
            raise unsendable(error) from error
        self._hot.write(frame)

    async def send_state(self, data: bytes, deadline_s: float) -> None:
        """See `ControlCalls.send_state`. Raises UNAVAILABLE where HELLO does not name the feature."""
        features = self._handshakes.features
        if features is not None and "state" not in features:
            raise CapacityError("UNAVAILABLE", f"{self._label} speaks no state hand-over: its SDK is older")
        await self._control_calls.send_state(data, deadline_s)

    def send_handshake(self, frame_type: FrameType, body: Mapping[str, Value]) -> None:
        """Send GO or WELCOME. Raises the fault that ended the process."""
        if self.fault is not None:
            raise self.fault
        self._control.write(self._control.connection.send_handshake(frame_type, body))

    async def handshake(self, frame_type: FrameType) -> Value:
        """Wait for the plugin's ARMED, HELLO or READY. Raises the fault that ended the process instead."""
        if self.fault is not None:
            raise self.fault
        return await self._handshakes.wait(frame_type)

    def goaway(self, message: str) -> None:
        """Tell the plugin that no calls follow: it ends what is in flight and exits."""
        if self.fault is None:
            self._control.write(self._control.connection.send_goaway("RETIRED", message))

    def close(self, fault: HostError) -> None:
        """End both links: what the process left is read first, then every waiting caller gets `fault`. Idempotent."""
        self._calls.drain()
        if self._calls.fault is None:
            self._calls.fault = fault
        fault = self._calls.fault
        self._suspicion.stop()
        self._handshakes.fail(fault)
        self._desk.close()
        self._calls.close(fault)

    def _lost(self, fault: HostError) -> None:
        if self._calls.fault is not None:
            return
        self._calls.fault = fault
        self._suspicion.stop()
        self._handshakes.fail(fault)
        self._on_lost(fault)
