"""Drives one plugin process over its two links: reader callbacks on the running loop, no task per call.

Invariants: every call made ends in exactly one call of its `done`, in time, late, or when the process
is gone; a call's `freed` follows when the plugin answered or is gone; a process that hangs is given up
after a grace period; after `close` nothing of this object is registered with the loop.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

from hotbay_sdk.protocol import (
    METHODS,
    CallLimitError,
    CallReceived,
    CallRefused,
    CancelReceived,
    CreditReceived,
    DataDropped,
    DataEnded,
    DataReceived,
    ErrorCode,
    ErrorReceived,
    Event,
    FrameType,
    GoAwayReceived,
    HandshakeReceived,
    LateAnswerDropped,
    Method,
    PongReceived,
    ReplyReceived,
    StrayAnswer,
    Value,
    ValueRefusedError,
    ViolationFound,
)
from hotbay_sdk.protocol import CallError as WireError
from hotbay_sdk.protocol.messages import DATA_METHODS

from hotbay.errors import CapacityError, HostError, PluginFault
from hotbay.rpc.data import DataLink, Flow
from hotbay.rpc.faults import fault_from_wire, unsendable
from hotbay.rpc.handshakes import Handshakes
from hotbay.rpc.hanging import BUNDLE_S, HangBundle
from hotbay.rpc.host_calls import HostCall
from hotbay.rpc.host_desk import HostCallDesk
from hotbay.rpc.liveness import Liveness, Patience
from hotbay.rpc.memfd import duplicated
from hotbay.rpc.strays import Strays
from hotbay.rpc.wire import ENDLESS_S, Call, Channel, Outcome, Passage, Wire, calls_in_flight

logger = logging.getLogger(__name__)

DEFAULT_PATIENCE: Final = Patience()


class PluginClient:
    """Calls one plugin process. Lives on the loop that made it; not for use from other threads.

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
        self._loop = asyncio.get_running_loop()
        self._on_lost = on_lost
        self._on_goaway = on_goaway
        self._patience = patience
        self._fault: HostError | None = None
        self._handshakes = Handshakes()
        self._call = Wire("call", channel.call_in_fd, channel.call_out_fd, self._handle, self._lost)
        fd = channel.control.fileno()
        self._control = Wire("control", fd, fd, self._handle, self._lost, passes=channel.control)
        self._data = DataLink(self._control)
        self._desk = HostCallDesk(self._control, label, on_call=on_host_call, waits=self._waits_for, lost=self._lost)
        self._strays = Strays()
        self._bundle = HangBundle(
            label,
            ask=self._ask_where,
            ask_stacks=ask_stacks,
            in_flight=partial(calls_in_flight, (self._call, self._control)),
            figures=lambda: self._liveness.figures,
            lost=self._lost,
        )
        self._liveness = Liveness(patience, send=self._ping, pending_s=self._pending_s, silent=self._on_silent)

    @property
    def fault(self) -> HostError | None:
        """Why the process can no longer be called, once it cannot."""
        return self._fault

    @property
    def outstanding(self) -> int:
        """Hot calls without an answer, cancelled ones included."""
        return self._call.connection.outstanding

    @property
    def late_answers(self) -> int:
        """Answers that came after their deadline and were dropped."""
        return self._call.connection.late_answers

    @property
    def stray_answers(self) -> int:
        """Answers to calls that were never made or were answered before; dropped."""
        return self._strays.count

    @property
    def late_host_calls(self) -> int:
        """Host calls out of hot calls that were over; refused."""
        return self._desk.late_calls

    @property
    def figures(self) -> Mapping[str, int | float]:
        """What the process last said of itself: calls in flight, age of the oldest, memory, CPU. Its own word."""
        return self._liveness.figures

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
        return self._start(self._call, method, args, deadline_s, done, freed, reply_limit_bytes, epoch, parent)

    def cancel(self, stream: int) -> None:
        """Tell the plugin that nobody wants a hot call's answer. `done` gets CANCELLED when it gave the call up."""
        self._cancel(self._call, stream, "cancelled")

    def notify(self, method: int, args: Sequence[object], *, epoch: int = 0) -> None:
        """Send a one-way call. Raises `HostError` when it cannot be sent."""
        self._check_usable(self._call)
        try:
            frame = self._call.connection.send_notice(method, args, epoch=epoch)
        except ValueRefusedError as error:
            raise unsendable(error) from error
        self._call.write(frame)

    def share(
        self, areas: Mapping[int, int], drop: Sequence[int], done: Callable[[Outcome], None], *, writable: bool = False
    ) -> None:
        """Pass at most four areas, number → descriptor, which stay the caller's, and name areas to let go of.

        `done` gets nil once the process has them, or a `HostError`. `writable`: it writes them. Raises `HostError`, OSError.
        """
        passed, deadline_s = duplicated(tuple(areas.values())), METHODS[Method.SHARE].deadline_ms / 1e3
        try:
            args = [list(areas), list(drop), *([list(areas)] if writable else [])]
            self._start(self._control, Method.SHARE, args, deadline_s, done, None, None, 0, 0, passed)
        except HostError:
            Passage(b"", passed).close()
            raise

    async def control_call(
        self, method: int, args: Sequence[object], *, deadline_s: float, reply_limit_bytes: int | None = None
    ) -> Value:
        """Call on the control link and wait. Raises `HostError`.

        A reply that is longer than `reply_limit_bytes`, the method's limit by default, is not kept: FRAME_TOO_LARGE.
        """
        stream, future = self._begin(method, args, deadline_s, reply_limit_bytes)
        return await self._outcome(stream, future)

    def follow(
        self, method: int, args: Sequence[object], *, came: Callable[[], None], done: Callable[[Outcome], None]
    ) -> Flow:
        """Make a call of the control link that goes on until it is cancelled, and whose data is taken as it comes.

        `came` is called when there is something to `take`; the plugin gets credit for what was taken, and sends no more
        than 64 KiB beyond. `done` gets the outcome once, when the plugin ended by itself or is gone, or gave the call up
        after `Flow.cancel`; what came before can still be taken then. A plugin that does not give it up hangs. Neither may
        raise. Raises `HostError` when the call could not be made.
        """

        def ended(outcome: Outcome) -> None:
            self._data.end(stream)
            done(outcome)

        stream = self._start(self._control, method, args, ENDLESS_S, ended, None, None, 0, 0)
        return self._data.follow(stream, came, partial(self._end_flow, stream))

    async def export_state(
        self, *, budget_bytes: int, deadline_s: float, versions: Mapping[str, Sequence[int]] | None = None
    ) -> bytes:
        """What the refs of this process hand to those of a successor; empty if no type has state.

        Args:
            budget_bytes: more than this is refused, and the export cancelled.
            deadline_s: seconds for the whole.
            versions: type → versions of state that the successor knows; each type then exports the newest that both
                know. None: its newest.

        Raises `HostError`. Hot calls go on meanwhile.
        """
        wanted = None if versions is None else {name: list(known) for name, known in versions.items()}
        stream, future = self._begin(Method.EXPORT_STATE, [budget_bytes, wanted], deadline_s)
        collection = self._data.collect(stream, budget_bytes, lambda: self._over_budget(stream, future, budget_bytes))
        try:
            await self._outcome(stream, future)
        finally:
            self._data.end(stream)
        return collection.taken(self._label)

    async def send_state(self, data: bytes, deadline_s: float) -> None:
        """Give the process its predecessor's state: after WELCOME, which says so, and before its refs are made.

        Raises `HostError`: the process then starts cold, and is otherwise as usable as before. Whether a ref
        imported its part is said by `configure`.
        """
        features = self._handshakes.features
        if features is not None and "state" not in features:
            raise CapacityError("UNAVAILABLE", f"{self._label} speaks no state hand-over: its SDK is older")
        stream, future = self._begin(Method.IMPORT_STATE, [len(data)], deadline_s)
        self._data.send(stream, data)
        try:
            await self._outcome(stream, future)
        finally:
            self._data.end(stream)

    def _begin(
        self, method: int, args: Sequence[object], deadline_s: float, reply_limit_bytes: int | None = None
    ) -> tuple[int, "asyncio.Future[Outcome]"]:
        future: asyncio.Future[Outcome] = self._loop.create_future()

        def done(outcome: Outcome) -> None:
            if not future.done():
                future.set_result(outcome)

        return self._start(self._control, method, args, deadline_s, done, None, reply_limit_bytes, 0, 0), future

    async def _outcome(self, stream: int, future: "asyncio.Future[Outcome]") -> Value:
        try:
            outcome = await future
        except asyncio.CancelledError:
            self._cancel(self._control, stream, "cancelled")
            raise
        if isinstance(outcome, HostError):
            raise outcome
        return outcome

    def _over_budget(self, stream: int, future: "asyncio.Future[Outcome]", budget_bytes: int) -> None:
        self._cancel(self._control, stream, "over budget")
        if not future.done():
            message = f"{self._label} has more state than the {budget_bytes} bytes of its budget"
            future.set_result(CapacityError("RESOURCE_EXHAUSTED", message))

    def send_handshake(self, frame_type: FrameType, body: Mapping[str, Value]) -> None:
        """Send GO or WELCOME. Raises the fault that ended the process."""
        if self._fault is not None:
            raise self._fault
        self._control.write(self._control.connection.send_handshake(frame_type, body))

    async def handshake(self, frame_type: FrameType) -> Value:
        """Wait for the plugin's ARMED, HELLO or READY. Raises the fault that ended the process instead."""
        if self._fault is not None:
            raise self._fault
        return await self._handshakes.wait(frame_type)

    def goaway(self, message: str) -> None:
        """Tell the plugin that no calls follow: it ends what is in flight and exits."""
        if self._fault is None:
            self._control.write(self._control.connection.send_goaway("RETIRED", message))

    def close(self, fault: HostError) -> None:
        """End both links: what the process left is read first, then every waiting caller gets `fault`. Idempotent."""
        self._call.drain()
        self._control.drain()
        if self._fault is None:
            self._fault = fault
        self._stop_watching()
        self._handshakes.fail(self._fault)
        self._desk.close()
        for wire in (self._call, self._control):
            for call in wire.close():
                call.tell(self._fault)
                call.free()

    # -- inside ----------------------------------------------------------------------------------

    def _check_usable(self, wire: Wire) -> None:
        if self._fault is not None:
            raise self._fault
        if wire.full:
            raise CapacityError(
                "RESOURCE_EXHAUSTED",
                f"{wire.queued_bytes} bytes wait for {self._label}, which does not read",
                hint="the call was not made; the plugin is replaced when it stays so",
            )

    def _start(
        self,
        wire: Wire,
        method: int,
        args: Sequence[object],
        deadline_s: float,
        done: Callable[[Outcome], None],
        freed: Callable[[], None] | None,
        reply_limit_bytes: int | None,
        epoch: int,
        parent: int,
        passed: Sequence[int] = (),
    ) -> int:
        # Before a stream is taken: a call that is never sent is never answered, and would count as outstanding for ever.
        self._check_usable(wire)
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
        if self._fault is not None:
            raise self._fault
        call = wire.calls[stream] = Call(method, done, freed, deadline_s)
        call.timer = self._loop.call_later(deadline_s, self._on_deadline, wire, stream)
        return stream

    def _cancel(self, wire: Wire, stream: int, reason: str) -> None:
        frame = wire.connection.cancel(stream, reason)
        if frame and self._fault is None:
            wire.write(frame)

    def _end_flow(self, stream: int) -> None:
        """Nobody wants a call any more that has no deadline: from now on it has to be given up in time like any other."""
        call = self._control.calls.get(stream)
        if call is not None and call.stuck is None and self._fault is None:
            call.stuck = self._loop.call_later(self._patience.stuck_s, self._on_stuck)
            self._cancel(self._control, stream, "cancelled")

    def _on_deadline(self, wire: Wire, stream: int) -> None:
        call = wire.calls.get(stream)
        if call is None:
            return
        if wire is self._call or call.method in DATA_METHODS:
            call.stuck = self._loop.call_later(self._patience.stuck_s, self._on_stuck)
        self._cancel(wire, stream, "deadline")
        call.tell(
            PluginFault("DEADLINE_EXCEEDED", f"{self._label} gave no answer within {call.deadline_s * 1000:.0f} ms")
        )

    def _on_stuck(self) -> None:
        self._hangs(f"still had not answered a call {self._patience.stuck_s:g} s after its deadline or its end")

    def _on_silent(self) -> None:
        self._hangs(f"answered no ping for {self._patience.ping_s:g} s")

    def _hangs(self, what: str) -> None:
        if self._fault is None:
            self._bundle.begin(what)

    def _ask_where(self, answered: Callable[[Outcome], None]) -> None:
        self._start(self._control, Method.DUMP_STATE, [], BUNDLE_S, answered, None, None, 0, 0)

    def _stop_watching(self) -> None:
        self._liveness.stop()
        self._bundle.stop()

    def _ping(self, token: int) -> None:
        if not self._control.full:
            self._control.write(self._control.connection.send_ping(token))

    def _pending_s(self) -> float:
        return max(self._call.last_end_s, self._control.last_end_s) - self._loop.time()

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
                self._handle_rare(wire, event)

    def _settle(self, wire: Wire, stream: int, outcome: Outcome) -> None:
        call = wire.calls.pop(stream, None)
        if call is not None:
            call.free()
            call.tell(outcome)

    def _handle_rare(self, wire: Wire, event: Event) -> None:
        if isinstance(event, DataReceived | DataEnded | DataDropped | CreditReceived):
            wire.unasked += wire is not self._control or not self._data.take(event)
        elif isinstance(event, CallReceived):
            wire.unasked += not self._serve(wire, event)
        elif isinstance(event, CancelReceived):
            self._desk.cancel(event.stream)
        else:
            wire.unasked += 1
            self._handle_unasked(wire, event)

    def _handle_unasked(self, wire: Wire, event: Event) -> None:
        if isinstance(event, HandshakeReceived):
            self._handshakes.take(event)
            if event.type is FrameType.READY and self._fault is None:
                self._liveness.start()
        elif isinstance(event, PongReceived):
            self._liveness.answered(event.token, event.facts)
        elif isinstance(event, GoAwayReceived):
            self._goes_away(event)
        elif isinstance(event, ViolationFound):
            self._lost(PluginFault(str(event.code), f"{self._label} on the {wire.name} link: {event.message}"))
        elif isinstance(event, StrayAnswer):
            if self._strays.too_many(self._loop.time()):
                self._lost(PluginFault("PROTOCOL_VIOLATION", f"{self._label} answers calls that were never made"))
        elif isinstance(event, CallRefused):
            self._refuse(wire, event)
        else:
            logger.debug("frame_ignored", extra={"plugin": self._label, "event": type(event).__name__})

    def _serve(self, wire: Wire, event: CallReceived) -> bool:
        if self._fault is not None:
            return False
        if wire is not self._control:
            error = WireError(ErrorCode.PROTOCOL_VIOLATION, "host calls travel on the control link")
            self._refuse(wire, CallRefused(event.stream, error))
            return False
        return self._desk.take(event, self._loop.time())

    def _refuse(self, wire: Wire, event: CallRefused) -> None:
        if self._fault is not None:
            return
        if wire is self._control:
            self._desk.refuse(event)
        elif not wire.full:
            wire.write(wire.connection.send_error(event.stream, event.error))
        else:
            self._lost(PluginFault("PROTOCOL_VIOLATION", f"{self._label} calls its host and does not read the answers"))

    def _waits_for(self, stream: int) -> bool:
        """Whether the caller of a hot call still waits for it."""
        call = self._call.calls.get(stream)
        return call is not None and call.timer is not None

    def _goes_away(self, event: GoAwayReceived) -> None:
        told, self._on_goaway = self._on_goaway, None
        if told is not None and self._fault is None:
            told(f"{event.code[:64]}: {event.message[:256]}")

    def _lost(self, fault: HostError) -> None:
        if self._fault is not None:
            return
        self._fault = fault
        self._stop_watching()
        self._handshakes.fail(fault)
        self._on_lost(fault)
