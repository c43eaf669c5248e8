"""The adapter between cycles and one generation: natural batches, deadlines, breaker, view cache, notices.

One window per process and method: one batch is out, one fills; what arrives while a batch is out goes
together in the next. No timer makes a request wait. A window whose batch passed its deadline stays
shut until the late answer comes; meanwhile requests take the failure policy at once.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from typing import Final, Protocol

from hotbay_sdk.protocol import ErrorCode, Method

from hotbay.datalayer.snapshot import Snapshot
from hotbay.errors import HostError
from hotbay.rpc.client import Outcome
from hotbay.rpc.leases import Generation
from hotbay.rpc.limits import Breaker
from hotbay.scheduling.batch import BadResultError, Tally, request_columns
from hotbay.scheduling.calls import MAX_BATCH, RemoteCall
from hotbay.scheduling.cycle import Cycle
from hotbay.scheduling.plan import Learner

logger = logging.getLogger(__name__)

MAX_WAITING: Final = 4096
"""Cycles that may wait for one window: far above what 64 per batch and a 50 ms deadline can build up."""


class Advance(Protocol):
    """How a window tells the router that one call of a cycle is answered."""

    def __call__(self, cycle: Cycle) -> None:
        """The cycle has one outstanding call less."""


class Remote:
    """All windows of one generation, and what its process already knows of the endpoints."""

    __slots__ = ("_advance", "_loop", "_notices", "_sent", "_tally", "_windows", "generation")

    def __init__(self, generation: Generation, *, tally: Tally, advance: Advance) -> None:
        self.generation = generation
        self._tally = tally
        self._advance = advance
        self._loop = asyncio.get_running_loop()
        self._windows: dict[int, Window] = {}
        self._sent: tuple[int, int, tuple[str, ...]] = (-1, -1, ())
        self._notices: dict[str, tuple[Learner, list[tuple[Cycle, list[str]]]]] = {}

    def window(self, method: int) -> "Window":
        """The window of a method, made at its first use."""
        window = self._windows.get(method)
        if window is None:
            window = self._windows[method] = Window(self, self._tally, self._advance)
        return window

    def submit(self, cycle: Cycle, call: RemoteCall) -> bool:
        """Queue a call; false when it failed at once and the failure policies have answered."""
        return self.window(call.method).submit(cycle, call)

    def view(self, snapshot: Snapshot, columns: tuple[str, ...]) -> list[object]:
        """The view argument: ids and columns only when this process does not hold them yet."""
        epoch, membership, held = self._sent
        ids = None if membership == snapshot.membership else list(snapshot.ids)
        values = None
        if columns and (epoch != snapshot.epoch or held != columns):
            values = {name: snapshot.column_bytes(name) for name in columns}
        # A view of another epoch takes the place of the one that is held, columns and all, also when it brings none.
        kept = held if epoch == snapshot.epoch else ()
        self._sent = (snapshot.epoch, snapshot.membership, columns or kept)
        return [snapshot.epoch, snapshot.rows, snapshot.membership, ids, values]

    def forget_view(self) -> None:
        """A call failed: what the process holds is not certain, send everything again."""
        self._sent = (-1, -1, ())

    def learn(self, learner: Learner, cycle: Cycle, targets: list[str]) -> None:
        """Tell a learner of a decision, together with the others of this tick."""
        if not self._notices:
            self._loop.call_soon(self._send_notices)
        self._notices.setdefault(learner.binding.ref, (learner, []))[1].append((cycle, targets))

    def _send_notices(self) -> None:
        notices, self._notices = self._notices, {}
        for learner, entries in notices.values():
            for start in range(0, len(entries), MAX_BATCH):
                self._send_notice(learner, entries[start : start + MAX_BATCH])

    def _send_notice(self, learner: Learner, entries: Sequence[tuple[Cycle, list[str]]]) -> None:
        snapshot = entries[-1][0].snapshot
        requests = request_columns([cycle for cycle, _ in entries], learner.fields, ())
        targets = [ids for _, ids in entries]
        try:
            view = self.view(snapshot, ())
            self.generation.client.notify(
                Method.PRE_REQUEST, [learner.handle, view, requests, targets], epoch=snapshot.epoch
            )
        except HostError as error:
            self.forget_view()
            self._tally.plugin_error(learner.binding.point, learner.binding.ref, error.code)


class Window:
    """One outstanding batch and one filling, of one process and method."""

    __slots__ = ("_advance", "_breaker", "_busy", "_flushing", "_late", "_loop", "_queue", "_remote", "_tally")

    def __init__(self, remote: Remote, tally: Tally, advance: Advance) -> None:
        self._remote = remote
        self._tally = tally
        self._advance = advance
        self._loop = asyncio.get_running_loop()
        self._breaker = Breaker()
        self._queue: deque[tuple[Cycle, RemoteCall]] = deque()
        self._busy = False
        self._late = False
        self._flushing = False

    def submit(self, cycle: Cycle, call: RemoteCall) -> bool:
        """Queue the call; false when the failure policies answered at once."""
        reason = self._refusal()
        if reason is not None:
            call.fail(cycle, reason, self._tally)
            return False
        self._queue.append((cycle, call))
        if not self._busy and not self._flushing:
            self._flushing = True
            self._loop.call_soon(self._flush)
        return True

    def _refusal(self) -> str | None:
        fault = self._remote.generation.client.fault
        if fault is not None:
            return fault.code
        if self._late:
            return str(ErrorCode.DEADLINE_EXCEEDED)
        if len(self._queue) >= MAX_WAITING:
            return str(ErrorCode.RESOURCE_EXHAUSTED)
        if not self._queue and not self._busy and not self._breaker.allows(self._loop.time()):
            return "BREAKER_OPEN"
        return None

    def _flush(self) -> None:
        self._flushing = False
        while self._queue and not self._busy:
            self._send(self._next_batch())

    def _next_batch(self) -> list[tuple[Cycle, RemoteCall]]:
        """Take the cycles at the head that share call and snapshot, up to the call's limit."""
        queue = self._queue
        cycle, call = queue[0]
        snapshot = cycle.snapshot
        limit = call.batch_limit(snapshot.rows)
        batch: list[tuple[Cycle, RemoteCall]] = []
        while queue and len(batch) < limit and queue[0][1] is call and queue[0][0].snapshot is snapshot:
            batch.append(queue.popleft())
        return batch

    def _send(self, batch: list[tuple[Cycle, RemoteCall]]) -> None:
        call = batch[0][1]
        cycles = [cycle for cycle, _ in batch]
        snapshot = cycles[0].snapshot
        try:
            args, limit = call.encode(cycles, self._remote.view(snapshot, call.columns))
            self._busy = True
            self._remote.generation.client.start_call(
                call.method,
                args,
                deadline_s=call.deadline_s,
                done=_Answer(self, call, cycles),
                freed=self._freed,
                reply_limit_bytes=limit,
                epoch=snapshot.epoch,
            )
        except HostError as error:
            self._busy = False
            self._fail(call, cycles, error)

    def _freed(self) -> None:
        """The plugin is done with the outstanding batch, in time or late."""
        self._busy = False
        self._late = False
        if self._queue and not self._flushing:
            self._flushing = True
            self._loop.call_soon(self._flush)

    def answer(self, call: RemoteCall, cycles: list[Cycle], outcome: Outcome) -> None:
        """Take the outcome of a batch."""
        if isinstance(outcome, HostError):
            if outcome.code == ErrorCode.DEADLINE_EXCEEDED:
                self._late = True
            self._fail(call, cycles, outcome)
            if self._late:
                self._fail_queue(outcome)
            return
        try:
            good = call.apply(cycles, outcome, self._tally)
        except BadResultError as error:
            logger.warning(
                "plugin_bad_result", extra={"plugin": self._remote.generation.client.label, "error": str(error)}
            )
            self._fail(call, cycles, HostError(str(ErrorCode.BAD_RESULT), str(error)))
            return
        self._breaker.record(ok=good, now=self._loop.time())
        for cycle in cycles:
            self._advance(cycle)

    def _fail(self, call: RemoteCall, cycles: Sequence[Cycle], error: HostError) -> None:
        self._remote.forget_view()
        self._breaker.record(ok=False, now=self._loop.time())
        for cycle in cycles:
            call.fail(cycle, error.code, self._tally)
            self._advance(cycle)

    def _fail_queue(self, error: HostError) -> None:
        queue, self._queue = self._queue, deque()
        for cycle, call in queue:
            call.fail(cycle, error.code, self._tally)
            self._advance(cycle)


class _Answer:
    """Callback of one batch; a slotted object is cheaper than a closure here."""

    __slots__ = ("_call", "_cycles", "_window")

    def __init__(self, window: Window, call: RemoteCall, cycles: list[Cycle]) -> None:
        self._window = window
        self._call = call
        self._cycles = cycles

    def __call__(self, outcome: Outcome) -> None:
        self._window.answer(self._call, self._cycles, outcome)
