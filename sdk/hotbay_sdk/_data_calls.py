"""Calls of the data layer in a process: threads beside those of the hot calls; imported with the first such call.

Types that take one call at a time are asked by one thread, which shares the guard of hot calls, so that no two calls of
theirs overlap; the others by as many threads as they take. Every `discover` and `watch` has a thread of its own, and what
it tells goes out as the host gives credit. Order: one thread writes the data of one stream.
"""

from __future__ import annotations

from _queue import Empty, SimpleQueue
from _thread import allocate_lock, get_ident, start_new_thread
from time import monotonic

from hotbay_sdk._calls import RunningCall
from hotbay_sdk._discovery import follow_run
from hotbay_sdk._dispatch import Dispatcher, answer
from hotbay_sdk._leaving import exit_code, leave
from hotbay_sdk._workers import WorkerPool
from hotbay_sdk.protocol.events import CallReceived
from hotbay_sdk.protocol.messages import RUN_METHODS, CallError, ErrorCode, Executed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from hotbay_sdk._host_calls import HostCalls
    from hotbay_sdk._instances import Instance
    from hotbay_sdk.protocol.events import NoticeReceived

FINISH_S = 1.0
"""How long a process that goes waits for its runs, which were told that they are over."""
_OVER = CallError(ErrorCode.CANCELLED, "cancelled before it was started", executed=Executed.NO)
_ALONE = ("", 1)
"""Name and number of the threads of types that take one call at a time."""


class DataCalls:
    """See the module. `submit`, `cancel`, `credited` and `stop` are for the control thread, `finish` for the main one."""

    def __init__(self, dispatcher: Dispatcher, host: HostCalls) -> None:
        self._dispatcher = dispatcher
        self._host = host
        self._pool = WorkerPool(self._run)
        self._calls: dict[int, RunningCall] = {}
        self._runs: dict[int, _Run] = {}
        self._turns = allocate_lock()

    def submit(self, event: CallReceived) -> None:
        """Answer a call in a thread of its types."""
        received = monotonic()
        call = RunningCall(event.stream, event.meta.method, received + event.meta.deadline_us / 1e6)
        self._calls[event.stream] = call
        if event.meta.method in RUN_METHODS:
            run = self._runs[event.stream] = _Run(call, self._host)
            start_new_thread(self._follow, (event, run))
            return
        name, most = self._dispatcher.overlaps(event) or _ALONE
        self._pool.submit(name, most, event, received)

    def cancel(self, stream: int) -> bool:
        """Nobody waits for a call any more; false when it is none of these."""
        call = self._calls.get(stream)
        if call is None:
            return False
        call.cancel()
        return True

    def credited(self, stream: int) -> bool:
        """The host took data: of one stream, or, as 0, of the link. Whether it is one of these."""
        for known, run in list(self._runs.items()):
            if stream in (0, known):
                run.wake()
        return stream in self._calls

    def table(self) -> list[dict[str, int]]:
        """The calls that were read and not answered. From any thread."""
        now = monotonic()
        return [
            {"stream": call.stream, "method": call.method, "left_ms": int((call.deadline - now) * 1e3)}
            for call in list(self._calls.values())
        ]

    def stop(self) -> None:
        """No more calls come: tell the runs."""
        for run in list(self._runs.values()):
            run.call.cancel()

    def finish(self) -> None:
        """Answer what was submitted; waits for a bounded time."""
        self._pool.finish()
        deadline = monotonic() + FINISH_S
        for run in list(self._runs.values()):
            run.await_end(deadline)

    # -- in their threads ------------------------------------------------------------------------

    def _run(self, event: CallReceived | NoticeReceived, received: float) -> None:
        assert isinstance(event, CallReceived), "the control link has no one-way calls of the data layer"
        call = self._calls[event.stream]
        left_s = call.deadline - monotonic()
        if call.cancelled:
            result: object = CallError(ErrorCode.CANCELLED, "cancelled before it was started", executed=Executed.NO)
        elif left_s <= 0:
            text = f"its deadline passed {-left_s * 1e3:.1f} ms before it could be started"
            result = CallError(ErrorCode.DEADLINE_EXCEEDED, text, executed=Executed.NO)
        else:
            result = self._answer(event, call, left_s)
        del self._calls[event.stream]
        self._host.send(lambda: answer(self._host.connection, event.stream, result))

    def _answer(self, event: CallReceived, call: RunningCall, left_s: float) -> object:
        dispatcher, thread = self._dispatcher, get_ident()
        run = dispatcher.call if dispatcher.overlaps(event) is None else dispatcher.overlapping_call
        self._host.beside[thread] = call
        try:
            return run(event.meta.method, event.args, timeout_s=left_s)
        finally:
            del self._host.beside[thread]

    def _follow(self, event: CallReceived, run: _Run) -> None:
        thread, stream, point = get_ident(), event.stream, RUN_METHODS[event.meta.method]
        self._host.beside[thread] = run.call
        try:
            instance = self._dispatcher.begin_run(event.args, point, run.call)
            if isinstance(instance, CallError):
                result: object = instance
            else:
                result = self._take_turn(instance, point, run)
        except SystemExit as leaving:
            leave(exit_code(leaving), "")
        del self._host.beside[thread], self._calls[stream], self._runs[stream]
        self._host.send(lambda: run.last_frames(result))
        run.ended.put(None)

    def _take_turn(self, instance: Instance, point: str, run: _Run) -> object:
        """Run the method once the run before is over. A host that begins anew may be faster than the author's code."""
        runs = instance.runs
        result = follow_run(instance, point, run) if run.await_turn(runs) else _OVER
        with self._turns:
            was_first = _first(runs, run.call) is run.call
            runs.remove(run.call)
            following = _first(runs, run.call)
            if was_first and following is not None:
                # It has done nothing yet but wait: of another one this would interrupt what its author does.
                following.notify()
        return result


def _first(runs: Sequence[RunningCall], like: RunningCall) -> RunningCall | None:
    """The run of the same method that came first: it has its turn."""
    return next((run for run in list(runs) if run.method == like.method), None)


class _Run:
    """The way of one `discover` or `watch` to the host, for the thread that runs it; `wake` and `call.cancel` come from others."""

    def __init__(self, call: RunningCall, host: HostCalls) -> None:
        self.call = call
        self.ended: SimpleQueue[None] = SimpleQueue()
        self._host = host
        self._data = host.connection.data
        self._news: SimpleQueue[None] = SimpleQueue()
        call.on_cancel = self.wake

    @property
    def over(self) -> bool:
        return self.call.over

    def wake(self) -> None:
        self._news.put(None)

    def await_turn(self, runs: Sequence[RunningCall]) -> bool:
        """Wait until it is the first of `runs` of its method; false when it is over before."""
        while not self.call.over:
            if _first(runs, self.call) is self.call:
                return True
            self._news.get()
        return False

    def send(self, data: bytes) -> None:
        """Send data as there is credit; nothing of it when the run is over."""
        stream, position = self.call.stream, 0
        while position < len(data) and not self.call.over:
            with self._host.owning:
                piece = data[position : position + self._data.room(stream)]
                if piece:
                    self._host.write(self._data.send(stream, piece))
            position += len(piece)
            if not piece:
                self._news.get()

    def wait(self, seconds: float) -> bool:
        """Wait until the run is over, at most so long; whether it is."""
        deadline = monotonic() + seconds
        while not self.call.over:
            left_s = deadline - monotonic()
            if left_s <= 0:
                return False
            try:
                self._news.get(timeout=left_s)
            except Empty:
                return self.call.over
        return True

    def last_frames(self, result: object) -> bytes:
        """The end of the data, where it is whole, and the answer."""
        stream, connection = self.call.stream, self._host.connection
        whole = not isinstance(result, CallError) and self._data.sending(stream)
        return (self._data.send_end(stream) if whole else b"") + answer(connection, stream, result)

    def await_end(self, deadline: float) -> None:
        """Wait for the thread, until `deadline`."""
        try:
            self.ended.get(timeout=max(0.0, deadline - monotonic()))
        except Empty:
            return
