"""Natural batches to one process and method: one batch is out, one fills, and what comes back is applied.

What arrives while a batch is out goes together in the next; no timer makes a request wait. A window
whose batch passed its deadline stays shut until the late answer comes, and requests meanwhile take the
failure policy at once. Invariants: every cycle submitted is advanced exactly once, or had ended; a
window is shut only while the plugin holds a call, and the client gives a plugin up that holds one for
ever; nothing that a request carries fails another request.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from typing import Final, Protocol

from hotbay_sdk.protocol import ErrorCode, Value, ValueRefusedError

from hotbay.datalayer.snapshot import Snapshot
from hotbay.errors import HostError
from hotbay.rpc.client import UnsendableError
from hotbay.rpc.leases import Generation
from hotbay.rpc.limits import Answer, Breaker
from hotbay.rpc.wire import Outcome
from hotbay.scheduling.batch import BadResultError, Tally
from hotbay.scheduling.calls import RemoteCall
from hotbay.scheduling.cycle import Cycle

logger = logging.getLogger(__name__)

MAX_WAITING: Final = 4096
"""Cycles that may wait for one window: far above what 64 per batch and a 50 ms deadline can build up."""
MAX_BODIES_BYTES: Final = 2 * 1024 * 1024
"""Bodies of one batch whose requests cross with prompt or messages: encoded they stay far below a frame's 16 MiB."""

BREAKER_OPEN: Final = "BREAKER_OPEN"
HOST_ERROR: Final = "HOST_ERROR"
"""Reason of a degradation that is a defect of this host: the log has the traceback."""


class Advance(Protocol):
    """How a window tells the router that one call of a cycle is answered."""

    def __call__(self, cycle: Cycle) -> None:
        """The cycle has one outstanding call less. Never raises."""


class Views(Protocol):
    """What a process already knows of the endpoints."""

    def view(self, snapshot: Snapshot, columns: tuple[str, ...]) -> list[object]:
        """The view argument of the next call."""

    def forget_view(self) -> None:
        """Send everything again."""


class Window:
    """One outstanding batch and one filling, of one process and method."""

    __slots__ = (
        "_advance",
        "_breaker",
        "_busy",
        "_cancelled",
        "_flushing",
        "_generation",
        "_late",
        "_loop",
        "_out",
        "_queue",
        "_singly",
        "_stream",
        "_tally",
        "_views",
    )

    def __init__(self, generation: Generation, views: Views, *, tally: Tally, advance: Advance) -> None:
        self._generation = generation
        self._views = views
        self._tally = tally
        self._advance = advance
        self._loop = asyncio.get_running_loop()
        self._breaker = Breaker()
        self._queue: deque[tuple[Cycle, RemoteCall]] = deque()
        self._out: Sequence[Cycle] = ()
        self._stream = 0
        self._busy = False
        self._late = False
        self._cancelled = False
        self._flushing = False
        self._singly = 0

    def submit(self, cycle: Cycle, call: RemoteCall) -> bool:
        """Queue the call; false when the failure policies answered at once."""
        reason = self._refusal()
        if reason is not None:
            call.fail(cycle, reason, self._tally)
            return False
        self._queue.append((cycle, call))
        self._flush_soon()
        return True

    def abandoned(self) -> None:
        """Some cycle has ended before its answer: cancel the outstanding batch if nobody waits for it any more."""
        if self._busy and not self._late and not self._cancelled and all(cycle.ended for cycle in self._out):
            self._cancelled = True
            self._generation.client.cancel(self._stream)

    def _refusal(self) -> str | None:
        fault = self._generation.client.fault
        if fault is not None:
            return fault.code
        now = self._loop.time()
        if self._late:
            self._breaker.record(Answer.MISS, now=now)
            return str(ErrorCode.DEADLINE_EXCEEDED)
        if len(self._queue) >= MAX_WAITING:
            return str(ErrorCode.RESOURCE_EXHAUSTED)
        # One probe at a time: what comes while it is out does not wait for it.
        if self._breaker.open and (self._busy or self._queue or not self._breaker.allows(now)):
            return BREAKER_OPEN
        return None

    # -- sending ---------------------------------------------------------------------------------

    def _flush_soon(self) -> None:
        if not self._busy and not self._flushing:
            self._flushing = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flushing = False
        while self._queue and not self._busy:
            batch = self._next_batch()
            if batch:
                self._send(batch)

    def _next_batch(self) -> list[tuple[Cycle, RemoteCall]]:
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
        batch: list[tuple[Cycle, RemoteCall]] = []
        others: list[tuple[Cycle, RemoteCall]] = []
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

    def _send(self, batch: list[tuple[Cycle, RemoteCall]], *, again: bool = False) -> None:
        call = batch[0][1]
        cycles = [cycle for cycle, _ in batch]
        snapshot = cycles[0].snapshot
        try:
            view = self._views.view(snapshot, call.columns) if call.sends_view else []
            args, limit = call.encode(cycles, view)
            self._stream = self._generation.client.start_call(
                call.method,
                args,
                deadline_s=call.deadline_s,
                done=_Answer(self, batch, again=again),
                freed=self._freed,
                reply_limit_bytes=limit,
                epoch=snapshot.epoch,
            )
        except (UnsendableError, ValueRefusedError):
            self._send_singly(batch, str(ErrorCode.FRAME_TOO_LARGE))
        except HostError as error:
            self._fail(batch, error.code, Answer.MISS)
        except Exception:
            # Named boundary: columns are made of what clients sent.
            logger.exception("call_not_encoded", extra={"plugin": self._generation.client.label})
            self._send_singly(batch, HOST_ERROR)
        else:
            self._busy = True
            self._cancelled = False
            self._out = cycles

    def _send_singly(self, batch: list[tuple[Cycle, RemoteCall]], reason: str) -> None:
        """A request of the batch cannot cross: send each alone; one that is alone takes the failure policy."""
        if len(batch) > 1:
            self._views.forget_view()
            self._queue.extendleft(reversed(batch))
            self._singly = len(batch)
        else:
            self._fail(batch, reason, None)

    def _freed(self) -> None:
        """The plugin is done with the outstanding batch, in time or late."""
        self._busy = False
        if self._late:
            self._late = False
            self._breaker.revived(self._loop.time())
        if self._queue:
            self._flush_soon()

    # -- answers ---------------------------------------------------------------------------------

    def answer(self, batch: list[tuple[Cycle, RemoteCall]], outcome: Outcome, *, again: bool) -> None:
        """Take the outcome of a batch. `again`: it was sent a second time, with the whole view."""
        self._out = ()
        if not isinstance(outcome, HostError):
            self._apply(batch, outcome)
        elif outcome.code == ErrorCode.CANCELLED and self._cancelled:
            self._views.forget_view()
        elif not again and outcome.details.get("missing") in _VIEW_PARTS:
            # A call before this one was refused before the process took the view that came with it.
            self._views.forget_view()
            self._send(batch, again=True)
        else:
            # A plugin that answers DEADLINE_EXCEEDED by itself is no longer busy: nothing would open the window again.
            self._late = self._busy and outcome.code == ErrorCode.DEADLINE_EXCEEDED
            self._fail(batch, outcome.code, Answer.MISS if self._busy else Answer.BAD)
            if self._late:
                self._fail_queue(outcome.code)

    def _apply(self, batch: list[tuple[Cycle, RemoteCall]], result: Value) -> None:
        call = batch[0][1]
        cycles = [cycle for cycle, _ in batch]
        try:
            good = call.apply(cycles, result, self._tally)
        except BadResultError as error:
            label = self._generation.client.label
            logger.warning("plugin_bad_result", extra={"plugin": label, "error": str(error)})
            self._fail(batch, str(ErrorCode.BAD_RESULT), Answer.BAD)
            return
        except Exception:
            # Named boundary: the result is whatever a plugin made it.
            logger.exception("result_not_applied", extra={"plugin": self._generation.client.label})
            self._fail(batch, HOST_ERROR, Answer.BAD)
            return
        self._record(Answer.GOOD if good else Answer.BAD)
        for cycle in cycles:
            self._advance(cycle)

    def _fail(self, batch: Sequence[tuple[Cycle, RemoteCall]], reason: str, answer: Answer | None) -> None:
        self._views.forget_view()
        if answer is not None:
            self._record(answer, reason)
        for cycle, call in batch:
            if not cycle.ended:
                call.fail(cycle, reason, self._tally)
                self._advance(cycle)

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
        for cycle, call in queue:
            if not cycle.ended:
                call.fail(cycle, reason, self._tally)
                self._advance(cycle)


_VIEW_PARTS: Final = ("ids", "columns")


class _Answer:
    """Callback of one batch; a slotted object is cheaper than a closure here."""

    __slots__ = ("_again", "_batch", "_window")

    def __init__(self, window: Window, batch: list[tuple[Cycle, RemoteCall]], *, again: bool) -> None:
        self._window = window
        self._batch = batch
        self._again = again

    def __call__(self, outcome: Outcome) -> None:
        self._window.answer(self._batch, outcome, again=self._again)
