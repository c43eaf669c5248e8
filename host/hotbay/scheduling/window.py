"""Natural batches to one process, method and set of types: some are out, one fills, and what comes back is applied.

So many batches are out at once as the types take overlapping calls: one, unless all of them declare more. What arrives
while no more may go out goes together in the next; no timer makes a request wait. A batch that passed its deadline
keeps its place until the late answer comes; once no place is left but such, the window is shut, and requests
meanwhile take the failure policy at once. Invariants: every cycle submitted is advanced exactly once, or had ended; a
window is shut only while the plugin holds a call, and the client gives a plugin up that holds one for
ever; nothing that a request carries fails another request; every request of a batch is counted once, cancelled batches
not at all.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final, Protocol

from hotbay_sdk.protocol import ErrorCode, Method, Value, ValueRefusedError

from hotbay.datalayer.tables.snapshot import Snapshot
from hotbay.errors import HostError
from hotbay.rpc.faults import UnsendableError
from hotbay.rpc.leases import Generation
from hotbay.rpc.limits import Answer, Breaker
from hotbay.rpc.wire import Outcome
from hotbay.scheduling.batch import BadResultError, complaint_text, first_error
from hotbay.scheduling.calls import RemoteCall
from hotbay.scheduling.copies import CycleCopy
from hotbay.scheduling.cycle import Cycle
from hotbay.scheduling.explain import noted
from hotbay.scheduling.outputs import Region
from hotbay.scheduling.statistics import BREAKER_OPEN, HOST_ERROR, CallCounters

logger = logging.getLogger(__name__)

MAX_WAITING: Final = 4096
"""Cycles that may wait for one window: far above what 64 per batch and a 50 ms deadline can build up."""
MAX_BODIES_BYTES: Final = 2 * 1024 * 1024
"""Bodies of one batch whose requests cross with prompt or messages: encoded they stay far below a frame's 16 MiB."""

Asker = Cycle | CycleCopy
"""Who asks: a cycle, or the copy of one whose answer is only compared."""


class Advance(Protocol):
    """How a window tells the router that one call of a cycle is answered."""

    def __call__(self, cycle: Asker) -> None:
        """The cycle has one outstanding call less. Never raises."""


class Watcher(Protocol):
    """Who compares answers."""

    def answered(self, call: RemoteCall, cycles: Sequence[Asker], result: Value) -> None:
        """A batch has its answer, and its requests went on. Never raises."""


class Views(Protocol):
    """What a process already knows of the endpoints."""

    def view(self, snapshot: Snapshot, reads: tuple[str, ...]) -> list[object]:
        """The view argument of the next call."""

    def forget_view(self) -> None:
        """Send everything again."""

    def region(self, scores_bytes: int) -> Region | None:
        """Where the process is to write the next call's scores."""


class Flight:
    """A batch that is out, and the client's callback for it: a slotted object is cheaper than closures here."""

    __slots__ = (
        "_window",
        "again",
        "answered",
        "batch",
        "cancelled",
        "cycles",
        "freed",
        "late",
        "region",
        "sent_s",
        "stream",
    )

    def __init__(self, window: "Window", batch: list[tuple[Asker, RemoteCall]], cycles: list[Asker]) -> None:
        self._window = window
        self.batch = batch
        self.cycles = cycles
        self.again = False
        """Sent a second time, with the whole view."""
        self.cancelled = False
        self.late = False
        self.freed = False
        self.answered = False
        self.stream = 0
        self.sent_s = 0.0
        self.region: Region | None = None
        """Where the plugin writes its scores: nobody else's until the plugin is done, and what it wrote is taken."""

    def __call__(self, outcome: Outcome) -> None:
        self._window.answer(self, outcome)
        self.answered = True
        if self.freed:
            self.give_back()

    def free(self) -> None:
        """The plugin is done with it, in time or late."""
        self._window.freed(self)
        if self.answered:
            self.give_back()

    def give_back(self) -> None:
        """Let other calls have the region."""
        if self.region is not None:
            self.region.give_back()
            self.region = None


class Window:
    """At most `width` outstanding batches and one filling, of one process, method and set of types."""

    __slots__ = (
        "_advance",
        "_breaker",
        "_counters",
        "_flushing",
        "_generation",
        "_late",
        "_loop",
        "_out",
        "_queue",
        "_singly",
        "_timer",
        "_views",
        "_width",
        "watcher",
    )

    def __init__(
        self,
        generation: Generation,
        views: Views,
        method: int,
        width: int,
        *,
        counters: CallCounters,
        advance: Advance,
    ) -> None:
        self._generation = generation
        self._views = views
        self._width = width
        self._counters = counters
        self._timer = counters.call_timer(generation.origin.plugin_id, Method(method).name.lower())
        self._advance = advance
        self.watcher: Watcher | None = None
        self._loop = asyncio.get_running_loop()
        self._breaker = Breaker()
        self._queue: deque[tuple[Asker, RemoteCall]] = deque()
        self._out: list[Flight] = []
        self._late = 0
        self._flushing = False
        self._singly = 0

    def submit(self, cycle: Asker, call: RemoteCall) -> bool:
        """Queue the call; false when the failure policies answered at once."""
        reason = self._refusal()
        if reason is not None:
            call.fail(cycle, reason, self._counters)
            self._counters.refused_at(self._loop.time())
            return False
        self._queue.append((cycle, call))
        self._flush_soon()
        return True

    @property
    def is_broken(self) -> bool:
        """Whether calls are refused because they kept failing."""
        return self._breaker.open

    def abandoned(self) -> None:
        """Some cycle has ended before its answer: cancel the outstanding batches for which nobody waits any more."""
        for flight in self._out:
            if not flight.late and not flight.cancelled and all(cycle.ended for cycle in flight.cycles):
                flight.cancelled = True
                self._generation.client.cancel(flight.stream)

    def _refusal(self) -> str | None:
        fault = self._generation.client.fault
        if fault is not None:
            return fault.code
        now = self._loop.time()
        if self._late >= self._width:
            self._breaker.record(Answer.MISS, now=now)
            return str(ErrorCode.DEADLINE_EXCEEDED)
        if len(self._queue) >= MAX_WAITING:
            return str(ErrorCode.RESOURCE_EXHAUSTED)
        # One probe at a time: what comes while it is out does not wait for it. What is late may never come.
        if self._breaker.open and (len(self._out) > self._late or self._queue or not self._breaker.allows(now)):
            return BREAKER_OPEN
        return None

    # -- sending ---------------------------------------------------------------------------------

    def _flush_soon(self) -> None:
        if not self._flushing and len(self._out) < self._width:
            self._flushing = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flushing = False
        while self._queue and len(self._out) < self._width:
            batch = self._next_batch()
            if batch:
                self._send(batch)

    def _next_batch(self) -> list[tuple[Asker, RemoteCall]]:
        """Take the first cycle that still waits, and those that share its call and snapshot, up to the call's limits."""
        queue = self._queue
        while queue and queue[0][0].ended:
            queue.popleft()
        if not queue:
            return []
        call, snapshot = queue[0][1], queue[0][0].snapshot
        limit = call.batch_limit(snapshot.rows)
        if self._singly:
            self._singly, limit = self._singly - 1, 1
        batch: list[tuple[Asker, RemoteCall]] = []
        others: list[tuple[Asker, RemoteCall]] = []
        bodies_bytes = 0
        while queue and len(batch) < limit:
            entry = queue.popleft()
            cycle = entry[0]
            if cycle.ended:
                continue
            if entry[1] is not call or cycle.snapshot is not snapshot:
                others.append(entry)
                continue
            bodies_bytes += cycle.request.size
            if call.bulky and batch and bodies_bytes > MAX_BODIES_BYTES:
                others.append(entry)
                break
            batch.append(entry)
        queue.extendleft(reversed(others))
        return batch

    def _send(self, batch: list[tuple[Asker, RemoteCall]], *, again: bool = False) -> None:
        flight = Flight(self, batch, [cycle for cycle, _ in batch])
        flight.again = again
        try:
            self._start(flight, batch[0][1])
        except (UnsendableError, ValueRefusedError):
            self._send_singly(batch, str(ErrorCode.FRAME_TOO_LARGE))
        except HostError as error:
            self._fail(batch, error.code, Answer.MISS)
        except Exception:
            # Named boundary: columns are made of what clients sent.
            logger.exception("call_not_encoded", extra={"plugin": self._generation.client.label})
            self._send_singly(batch, HOST_ERROR)
        else:
            flight.sent_s = time.perf_counter()
            self._out.append(flight)

    def _start(self, flight: Flight, call: RemoteCall) -> None:
        cycles, snapshot = flight.cycles, flight.cycles[0].snapshot
        view = self._views.view(snapshot, call.columns) if call.sends_view else []
        args, limit = call.encode(cycles, view)
        flight.region = self._views.region(call.scores_bytes(len(cycles), snapshot.rows))
        if flight.region is not None:
            args.append(flight.region.place)
        try:
            flight.stream = self._generation.client.start_call(
                call.method,
                args,
                deadline_s=call.deadline_s,
                done=flight,
                freed=flight.free,
                reply_limit_bytes=limit,
                epoch=snapshot.epoch,
            )
        finally:
            if not flight.stream:
                flight.give_back()

    def _send_singly(self, batch: list[tuple[Asker, RemoteCall]], reason: str) -> None:
        """A request of the batch cannot cross: send each alone; one that is alone takes the failure policy."""
        if len(batch) > 1:
            self._views.forget_view()
            self._queue.extendleft(reversed(batch))
            self._singly = len(batch)
        else:
            self._fail(batch, reason, None)

    def freed(self, flight: Flight) -> None:
        """The plugin is done with a batch, in time or late."""
        flight.freed = True
        self._out.remove(flight)
        if flight.late:
            self._late -= 1
            self._counters.late_answers += self._generation.client.fault is None
            self._breaker.revived(self._loop.time())
        if self._queue:
            self._flush_soon()

    # -- answers ---------------------------------------------------------------------------------

    def answer(self, flight: Flight, outcome: Outcome) -> None:
        """Take the outcome of a batch."""
        if not isinstance(outcome, HostError):
            self._apply(flight, outcome)
        elif outcome.code == ErrorCode.CANCELLED and flight.cancelled:
            self._views.forget_view()
        elif not flight.again and outcome.details.get("missing") in _VIEW_PARTS:
            # A call before this one was refused before the process took the view that came with it.
            self._views.forget_view()
            self._send(flight.batch, again=True)
        else:
            # A plugin that answers DEADLINE_EXCEEDED by itself is no longer busy: nothing would open the window again.
            flight.late = not flight.freed and outcome.code == ErrorCode.DEADLINE_EXCEEDED
            self._late += flight.late
            self._counters.complaint = complaint_text(outcome.code, outcome.message)
            self._fail(flight.batch, outcome.code, Answer.BAD if flight.freed else Answer.MISS, flight.sent_s)
            if self._late >= self._width:
                self._fail_queue(outcome.code)

    def _apply(self, flight: Flight, result: Value) -> None:
        call, cycles = flight.batch[0][1], flight.cycles
        if flight.region is not None:
            result = flight.region.taken(result)
        try:
            good = call.apply(cycles, result, self._counters)
        except BadResultError as error:
            label = self._generation.client.label
            logger.warning("plugin_bad_result", extra={"plugin": label, "error": str(error)})
            self._counters.complaint = complaint_text(str(ErrorCode.BAD_RESULT), str(error))
            self._fail(flight.batch, str(ErrorCode.BAD_RESULT), Answer.BAD, flight.sent_s)
            return
        except Exception:
            # Named boundary: the result is whatever a plugin made it.
            logger.exception("result_not_applied", extra={"plugin": self._generation.client.label})
            self._fail(flight.batch, HOST_ERROR, Answer.BAD, flight.sent_s)
            return
        duration_s = time.perf_counter() - flight.sent_s
        self._counters.answered(len(cycles), duration_s)
        if not self._counters.quiet:
            self._timer(duration_s)
        self._counters.complaint = first_error(result) or self._counters.complaint
        self._record(Answer.GOOD if good else Answer.BAD)
        number, note = self._generation.number, noted(call.facts, len(cycles), result, flight.sent_s, duration_s)
        for index, cycle in enumerate(cycles):
            cycle.answered.append(number)
            cycle.notes.append((note, index))
            self._advance(cycle)
        if self.watcher is not None:
            self.watcher.answered(call, cycles, result)

    def _fail(
        self,
        batch: Sequence[tuple[Asker, RemoteCall]],
        reason: str,
        answer: Answer | None,
        sent_s: float | None = None,
    ) -> None:
        """Let the failure policies answer a batch. `answer` None: what a request carries is at fault, not the plugin.

        `sent_s` None: it never went out.
        """
        self._views.forget_view()
        if answer is not None:
            duration_s = 0.0 if sent_s is None else time.perf_counter() - sent_s
            self._counters.failed(duration_s)
            if not self._counters.quiet:
                self._timer(duration_s)
            self._record(answer, reason)
        self._fail_each(batch, reason, blame=answer is not None)

    def _record(self, answer: Answer, reason: str = "some of its answers were errors") -> None:
        was_open = self._breaker.open
        self._breaker.record(answer, now=self._loop.time())
        if self._breaker.open and not was_open:
            label = self._generation.client.label
            logger.warning("breaker_open plugin=%s reason=%s", label, reason, extra={"plugin": label})
            self._fail_queue(BREAKER_OPEN)

    def _fail_queue(self, reason: str) -> None:
        queue, self._queue = self._queue, deque()
        self._singly = 0
        self._fail_each(queue, reason, blame=True)

    def _fail_each(self, entries: Iterable[tuple[Asker, RemoteCall]], reason: str, *, blame: bool) -> None:
        for cycle, call in entries:
            if not cycle.ended:
                call.fail(cycle, reason, self._counters)
                if blame:
                    self._counters.unanswered()
                else:
                    self._counters.forgive()
                self._advance(cycle)


_VIEW_PARTS: Final = ("ids", "columns", "tables")
