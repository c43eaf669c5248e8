"""The main thread's half of a plugin process: hot calls from one pipe, answers to another.

Reads block, and handlers of types that take one call at a time run in the reading thread, one after the other: a
hand-over would cost more than the call. Types that take overlapping calls have threads. A call that is already late,
or cancelled, is refused before any of the author's code runs for it. Time counts from when the process read the call.

While a handler of the reading thread waits for its host, or asks whether it is cancelled, the thread goes on
reading. A call that names a host call as its parent is run by the thread that waits for that host call, at most
`MAX_DEPTH` deep; every other call waits its turn.
"""

from __future__ import annotations

import os
import select
from _thread import allocate_lock, get_ident
from time import monotonic

from hotbay_sdk import _lazy
from hotbay_sdk._calls import MAX_DEPTH, RunningCall, Waiter
from hotbay_sdk._dispatch import Dispatcher, answer
from hotbay_sdk.protocol.connection import Connection
from hotbay_sdk.protocol.control import Role
from hotbay_sdk.protocol.events import CallReceived, CallRefused, CancelReceived, NoticeReceived, ViolationFound
from hotbay_sdk.protocol.messages import METHODS, CallError, ErrorCode, Executed, Link

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from hotbay_sdk._workers import WorkerPool
    from hotbay_sdk.protocol.events import Event

_HOT = frozenset(method for method, spec in METHODS.items() if spec.link is Link.CALL and spec.answered)
READ_BYTES = 64 * 1024
"""One read; the allocator keeps blocks below 128 KiB, so that a read costs no page faults."""


class LeavingError(Exception):
    """The serving loop ends: the host wants no more."""


class CallServer:
    """The main thread's half: hot calls from one descriptor, answers to another. Made and served in one thread.

    Args:
        dispatcher: runs the calls.
        call_in: where calls arrive.
        call_out: where they are answered.
        waits_for: who waits for a host call, by its stream; nested calls go to them.
    """

    def __init__(
        self, dispatcher: Dispatcher, call_in: int, call_out: int, waits_for: Callable[[int], Waiter | None]
    ) -> None:
        self._dispatcher = dispatcher
        self._in = call_in
        self._out = call_out
        self._waits_for = waits_for
        self._connection = Connection(Role.PLUGIN)
        self._owning = allocate_lock()
        self._main = get_ident()
        self._waiting: list[tuple[CallReceived | NoticeReceived, float]] = []
        self._cancelled: set[int] = set()
        self._running: dict[int, RunningCall] = {}
        self._pool: WorkerPool | None = None
        self._wake_read, self._wake_write = os.pipe()
        self._readable = select.poll()
        self._readable.register(call_in, select.POLLIN)
        self._readable.register(self._wake_read, select.POLLIN)
        self._drain_asked = False
        self._ended = False
        self._current: CallReceived | None = None
        self._received = 0.0

    @property
    def in_flight(self) -> int:
        """Calls that were read and not answered."""
        return self._connection.serving

    @property
    def busy_since(self) -> float | None:
        """When the call that the reading thread runs was read."""
        return None if self._current is None else self._received

    def table(self) -> list[Mapping[str, int]]:
        """The hot calls that run now: stream, method, and what is left of their deadlines. From any thread."""
        now, calls, current = monotonic(), list(self._running.values()), self._current
        if current is not None and self._main not in self._running:
            calls.append(self._made(current))
        return [
            {"stream": call.stream, "method": call.method, "left_ms": int((call.deadline - now) * 1e3)}
            for call in calls
        ]

    def drain(self) -> None:
        """From any thread: end once every call that was sent is answered."""
        self._drain_asked = True
        self.wake()

    def wake(self) -> None:
        """From any thread: let the reading thread look around."""
        os.write(self._wake_write, b"\0")

    def serve(self) -> None:
        """Answer calls until the link ends or is drained; raises SystemExit if the author's code does."""
        try:
            while True:
                self._read(block=not self._waiting)
                if self._waiting:
                    self._handle(*self._waiting.pop(0))
        except LeavingError:
            if self._pool is not None:
                self._pool.finish()

    # -- for the host calls of the author's code -------------------------------------------------

    def running(self) -> RunningCall | None:
        """The hot call that the current thread runs."""
        thread = get_ident()
        found = self._running.get(thread)
        if found is None and thread == self._main and self._current is not None:
            # Made when it is asked for: most calls of the reading thread never are.
            found = self._running[thread] = self._made(self._current)
        return found

    def _made(self, event: CallReceived) -> RunningCall:
        return RunningCall(event.stream, event.meta.method, self._received + event.meta.deadline_us / 1e6)

    def cancelled(self) -> bool:
        """Whether nobody waits for the hot call of the current thread any more, as far as the host has said."""
        running = self.running()
        if running is None:
            return False
        if not running.over and get_ident() == self._main:
            self._take_once(0)
        return running.over or self._ended

    def waiter(self) -> Waiter:
        """A wait of the current thread."""
        return Waiter(self.wake if get_ident() == self._main else None)

    def wait(self, waiter: Waiter, running: RunningCall | None, deadline: float) -> None:
        """Wait in the current thread until it is done, `running` is cancelled or `deadline` has passed."""
        if get_ident() != self._main:
            waiter.wait(running, deadline)
            return
        while not waiter.done and not (running is not None and running.cancelled) and not self._ended:
            left_s = deadline - monotonic()
            if left_s <= 0:
                return
            self._take_once(int(left_s * 1e3) + 1)
            waiter.run_jobs()

    # -- reading ---------------------------------------------------------------------------------

    def _read(self, *, block: bool) -> None:
        """Take what has arrived; with `block`, wait for a call to run here."""
        while True:
            count = self._take_once(None if block and not self._drain_asked else 0)
            if self._ended:
                raise LeavingError
            if count == 0:
                if not block:
                    return
                if self._drain_asked:
                    raise LeavingError
            elif self._waiting:
                # Only a full read may have left the cancel of a waiting call behind it in the pipe.
                block = False
                if count < READ_BYTES:
                    return

    def _take_once(self, timeout_ms: int | None) -> int:
        """Read once, waiting so long for something; the bytes read, 0 for none or at the end."""
        arrived = False
        for descriptor, _ in self._readable.poll(timeout_ms):
            if descriptor == self._in:
                arrived = True
            else:
                os.read(self._wake_read, READ_BYTES)
        if not arrived:
            return 0
        data = os.read(self._in, READ_BYTES)
        if not data:
            self._ended = True
            return 0
        now = monotonic()
        with self._owning:
            events = self._connection.feed(data)
        for event in events:
            self._take(event, now)
        return len(data)

    def _take(self, event: Event, now: float) -> None:
        if isinstance(event, (CallReceived, NoticeReceived)):
            if self._dispatcher.overlapping or event.meta.parent:
                self._hand_over(event, now)
            else:
                self._waiting.append((event, now))
        elif isinstance(event, CancelReceived):
            self._cancel(event.stream)
        elif isinstance(event, CallRefused):
            self._refuse(event.stream, event.error)
        elif isinstance(event, ViolationFound):
            raise SystemExit(f"the host broke the protocol on the call link: {event.message}")

    def _hand_over(self, event: CallReceived | NoticeReceived, now: float) -> None:
        """Give a call to the thread that waits for its parent, or to a thread of its types, or let it wait its turn."""
        waiter = self._waits_for(event.meta.parent) if event.meta.parent else None
        if waiter is not None and isinstance(event, CallReceived):
            waiter.give(lambda: self._run_nested(event, now))
            return
        threads = self._dispatcher.overlaps(event)
        if threads is None:
            self._waiting.append((event, now))
            return
        if self._pool is None:
            self._pool = _lazy.worker_pool(self._run_in_worker)
        self._pool.submit(*threads, event, now)

    def _cancel(self, stream: int) -> None:
        for top in list(self._running.values()):
            running: RunningCall | None = top
            while running is not None:
                if running.stream == stream:
                    running.cancel()
                    return
                running = running.below
        if self._current is not None and self._current.stream == stream:
            # Only the reading thread comes here, so the call is its own.
            running = self.running()
            assert running is not None, "the reading thread runs a call"
            running.cancel()
        else:
            self._cancelled.add(stream)

    # -- running ---------------------------------------------------------------------------------

    def _handle(self, event: CallReceived | NoticeReceived, received: float) -> None:
        """Run a call in the reading thread."""
        if isinstance(event, NoticeReceived):
            self._notice(event, self._dispatcher.call)
            return
        meta = event.meta
        left_s = received + meta.deadline_us / 1e6 - monotonic()
        if left_s <= 0 or event.stream in self._cancelled or meta.method not in _HOT:
            self._refuse(event.stream, self._refusal(event, left_s))
            return
        self._received = received
        self._current = event
        result = self._dispatcher.call(meta.method, event.args, timeout_s=left_s)
        self._current = None
        if self._running:
            self._running.pop(self._main, None)
        with self._owning:
            self._write(answer(self._connection, event.stream, result))

    def _run_in_worker(self, event: CallReceived | NoticeReceived, received: float) -> None:
        self._run(event, received, self._dispatcher.overlapping_call)

    def _run_nested(self, event: CallReceived, received: float) -> None:
        below = self.running()
        if below is not None and below.depth >= MAX_DEPTH:
            text = f"{MAX_DEPTH} nested calls stand on this thread"
            self._refuse(event.stream, CallError(ErrorCode.REENTRANCY_LIMIT, text, executed=Executed.NO))
            return
        self._run(event, received, self._dispatcher.nested_call)

    def _run(self, event: CallReceived | NoticeReceived, received: float, run: Callable[..., object]) -> None:
        """Run a call in any thread, on top of the one that waits there, if one does."""
        if isinstance(event, NoticeReceived):
            self._notice(event, run)
            return
        meta = event.meta
        deadline = received + meta.deadline_us / 1e6
        left_s = deadline - monotonic()
        if left_s <= 0 or event.stream in self._cancelled or meta.method not in _HOT:
            self._refuse(event.stream, self._refusal(event, left_s))
            return
        thread, below = get_ident(), self.running()
        self._running[thread] = RunningCall(event.stream, meta.method, deadline, below)
        result = run(meta.method, event.args, timeout_s=left_s)
        if below is None:
            del self._running[thread]
        else:
            self._running[thread] = below
        with self._owning:
            self._write(answer(self._connection, event.stream, result))

    def _notice(self, event: NoticeReceived, run: Callable[..., object]) -> None:
        spec = METHODS.get(event.meta.method)
        if spec is not None and spec.one_way:
            run(event.meta.method, event.args)

    def _refusal(self, event: CallReceived, left_s: float) -> CallError:
        """Why a call is answered before any of the author's code runs for it."""
        if event.stream in self._cancelled:
            self._cancelled.discard(event.stream)
            return CallError(ErrorCode.CANCELLED, "cancelled before it was started", executed=Executed.NO)
        if left_s <= 0:
            return CallError(
                ErrorCode.DEADLINE_EXCEEDED,
                f"its deadline passed {-left_s * 1e3:.1f} ms before it could be started",
                executed=Executed.NO,
            )
        return CallError(
            ErrorCode.PROTOCOL_VIOLATION, f"method {event.meta.method} is no call of this link", executed=Executed.NO
        )

    def _refuse(self, stream: int, error: CallError) -> None:
        with self._owning:
            self._write(self._connection.send_error(stream, error))

    def _write(self, data: bytes) -> None:
        try:
            written = os.write(self._out, data)
            while written < len(data):
                data = data[written:]
                written = os.write(self._out, data)
        except BrokenPipeError:
            # Whoever writes: the reading thread sees the end of the calls as well.
            self._ended = True
