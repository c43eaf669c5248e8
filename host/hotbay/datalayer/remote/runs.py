"""Runs of a plugin that tells what exists, over one process after the other: begins and ends them, and hears those that count.

Which of them counts is decided by `succession`. The run of a version that was replaced is followed, and its process kept by a
lease, until the new one's has told everything; only then does the old one end. All that is found is told to the listener by
the one task of `run`, in the order in which the plugin told it, and no more while it has no room: the plugin gets credit for
what was taken. One that tells faster than its allowance for long waits, too. However much has come, the loop has its turn after
each `RECORDS_A_TURN`. A run that does not tell everything in time is told of and counts as failing, again and again; until
then its process is marked as `untold`, and takes nobody's place for good. No process is asked for another run before it
gave up the one before.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Generic, Protocol

import anyio
import anyio.lowlevel
from hotbay_sdk.protocol import Method

from hotbay.datalayer.discovery.session import MAX_ENDPOINTS
from hotbay.datalayer.remote.calls import CallOutcomes, Generations
from hotbay.datalayer.remote.records import ItemT, RecordOf, Refused
from hotbay.datalayer.remote.run_stream import Reader, RunStream
from hotbay.datalayer.remote.succession import Drop, Put, Replace, Step, Succession
from hotbay.errors import HostError, PluginFault, Problem
from hotbay.rpc.allowance import Allowance
from hotbay.rpc.leases import Generation, LiveRef

__all__ = ["Listener", "RunKind", "Runs"]

logger = logging.getLogger(__name__)

RECORDS_AT_ONCE: Final = 20_000
RECORDS_PER_S: Final = 500.0
"""What a run may tell: all that there may be twice, and then what changes all the time needs many times over. Long records
count as several, and so do those that are refused."""
READY_S: Final = 15.0
"""What a run may take until it has told everything, before it counts as failing: a list takes seconds."""
RECORDS_A_TURN: Final = 50
"""What is read and put in force before others have their turn: a record takes a tenth of a millisecond."""
PAUSE_S: Final = 0.1
"""What a run that told too much waits before more of it is taken."""
SETTLE_S: Final = 10.0
"""How long after a take-over the version before has the last word on what it spoke of meanwhile: by then the new one, which
looks every few seconds, has looked again."""
FIRST_AGAIN_S: Final = 0.5
MAX_AGAIN_S: Final = 30.0
"""Pauses before a run that ended at a process which goes on is begun again."""


class Listener(Protocol[ItemT]):
    """Where it is told what exists; one task calls. `has_room` false: it is told no more for now of the run that is heard.

    At most `most` items may exist. `upsert` and `replace` raise `PluginFault` for what may not be, and change nothing then.
    """

    @property
    def held(self) -> Mapping[str, ItemT]: ...
    @property
    def most(self) -> int: ...
    @property
    def has_room(self) -> bool: ...
    def upsert(self, item: ItemT) -> None: ...
    def delete(self, item_id: str) -> None: ...
    def replace(self, items: "tuple[ItemT, ...]") -> None: ...
    def report(self, problems: "tuple[Problem, ...]") -> None: ...


@dataclass(frozen=True, slots=True)
class RunKind(Generic[ItemT]):
    """What is called, and how it is spoken of.

    Args:
        method: the call that goes on.
        point: its extension point, for counters.
        name: of what tells, in problems: `source 'pods'`.
        items: what it tells of, in the plural.
        reader: makes the reader of one run.
        check: raises `HostError` for a process that is not to be asked.
        refused: told of what cannot be used, which is then no failed call; None: it is one.
    """

    method: Method
    point: str
    name: str
    items: str
    reader: Callable[[], Reader[ItemT]]
    check: Callable[[LiveRef], None]
    refused: Callable[[Problem], None] | None = None


class Runs(Generic[ItemT]):
    """See the module; `run` once at a time, over any number of processes.

    Args:
        ref: the plugin ref.
        kind: what its runs are.
        generations: where it is answered.
        outcomes: told of every run that ended by itself, does not tell everything, or names something that cannot be used.
        now: monotonic seconds.
    """

    def __init__(
        self,
        ref: str,
        kind: RunKind[ItemT],
        generations: Generations,
        outcomes: CallOutcomes,
        *,
        now: Callable[[], float] = anyio.current_time,
    ) -> None:
        self._ref = ref
        self._kind = kind
        self._generations = generations
        self._outcomes = outcomes
        self._now = now
        self._succession: Succession[ItemT] = Succession()
        self._followed: RunStream[ItemT] | None = None
        self._coming: RunStream[ItemT] | None = None
        self._ending: list[RunStream[ItemT]] = []
        self._marked: Generation | None = None
        self._news = anyio.Event()
        self._failures = 0
        self._settles_at_s = float("inf")
        self._again_at_s = 0.0
        self._failed_at: LiveRef | None = None
        self._late: tuple[Problem, ...] = ()
        self._reported: tuple[Problem, ...] = ()

    async def run(self, listener: Listener[ItemT]) -> None:
        """Tell what exists until cancelled."""
        unwatch = self._generations.watch(self.note)
        try:
            while True:
                self._news = anyio.Event()
                now_s = self._now()
                self._follow_current(now_s)
                wait_s = self._hear(listener, now_s)
                if wait_s <= 0:
                    await anyio.lowlevel.checkpoint()
                    continue
                with anyio.move_on_after(wait_s):
                    await self._news.wait()
        finally:
            unwatch()
            self._mark(None)
            for stream in (self._followed, self._coming):
                if stream is not None:
                    self._close(stream)
            self._followed = self._coming = None

    def note(self) -> None:
        """Something is to be looked at: the listener has room again."""
        self._news.set()

    # -- runs ------------------------------------------------------------------------------------

    def _follow_current(self, now_s: float) -> None:
        """Have a run at the process that is live, and none but it and the one that it is to succeed."""
        live = self._generations.current(self._ref)
        self._let_go(live)
        if live is None or (live == self._failed_at and now_s < self._again_at_s):
            return
        if self._followed is not None and self._followed.live == live:
            # A rollback: the version before is heard again, and never was not.
            self._drop_coming()
        elif self._coming is None or self._coming.live != live:
            self._drop_coming()
            self._begin(live, now_s)

    def _let_go(self, live: LiveRef | None) -> None:
        """Hold no process back that is told to go and has no successor: it may have to go before one can come."""
        if live is None:
            for stream in (self._followed, self._coming):
                if stream is not None and stream.live.generation.leaving:
                    stream.release()

    def _begin(self, live: LiveRef, now_s: float) -> None:
        self._mark(live.generation)
        self._ending = [one for one in self._ending if not one.is_over]
        if any(one.live.generation is live.generation for one in self._ending):
            # The author's code is in it still, and is told so; who does not leave it is stopped as hanging.
            return
        allowance = Allowance(RECORDS_AT_ONCE, RECORDS_PER_S, self._now)
        kind = self._kind
        try:
            kind.check(live)
            run = self._succession.begin()
            self._coming = RunStream(live, kind.method, run, kind.reader(), allowance, self.note)
        except HostError as error:
            self._failed(live, error)
        else:
            self._coming.due_s = now_s + READY_S

    def _mark(self, generation: Generation | None) -> None:
        """Nobody but this process is followed as soon as it has told everything, and it has not; None: it has, or nobody is."""
        if self._marked is not None:
            self._marked.untold.discard(self._ref)
        self._marked = generation
        if generation is not None:
            generation.untold.add(self._ref)

    def _close(self, stream: RunStream[ItemT]) -> None:
        if not stream.is_over:
            self._ending.append(stream)
        stream.close()

    def _drop_coming(self) -> None:
        if self._coming is not None:
            self._close(self._coming)
            self._coming = None
            self._late = ()
            self._mark(None)

    def _failed(self, live: LiveRef, error: HostError | None) -> None:
        """A run ended though nobody wanted it to: begin another one later, each time later."""
        pause_s = min(MAX_AGAIN_S, FIRST_AGAIN_S * 2.0 ** min(self._failures, 20))
        self._failures += 1
        self._failed_at = live
        self._again_at_s = self._now() + pause_s
        point = self._kind.point
        code, text = (error.code, error.message) if error is not None else ("PLUGIN_ERROR", f"{point} returned")
        logger.warning("run_ended point=%s ref=%s code=%s again_s=%g: %s", point, self._ref, code, pause_s, text)
        self._count(live, code, text)

    def _count(self, live: LiveRef, code: str, text: str) -> None:
        number, point = live.generation.number, self._kind.point
        self._outcomes.called(number, point, self._ref, duration_s=0.0, code=code, complaint=text)

    # -- what they tell --------------------------------------------------------------------------

    def _hear(self, listener: Listener[ItemT], now_s: float) -> float:
        """Take what has come; how long to wait for more news at most."""
        wait_s = max(0.0, self._again_at_s - now_s) or float("inf")
        if now_s >= self._settles_at_s:
            self._settle(listener)
        if self._followed is not None:
            wait_s = min(wait_s, self._hear_stream(self._followed, listener))
        if self._coming is not None:
            wait_s = min(wait_s, self._hear_stream(self._coming, listener))
        self._look_late(now_s)
        self._report(listener)
        due_s = self._coming.due_s if self._coming is not None else float("inf")
        return min(wait_s, max(0.0, min(self._settles_at_s, due_s) - now_s))

    def _settle(self, listener: Listener[ItemT]) -> None:
        self._settles_at_s = float("inf")
        try:
            self._carry_out(self._succession.settle(), listener)
        except PluginFault as error:
            followed = self._followed
            if followed is not None:
                self._end(followed, error)
            else:
                logger.warning("run_not_settled point=%s ref=%s: %s", self._kind.point, self._ref, error.message)

    def _look_late(self, now_s: float) -> None:
        """Count and tell of a run that has not told everything in time, once for each such time."""
        coming = self._coming
        if coming is None or now_s < coming.due_s:
            return
        coming.due_s = now_s + READY_S
        kind, label = self._kind, coming.live.generation.client.label
        message = f"{kind.name}: {label} has not told everything within {READY_S:g} s: what was told before it holds"
        hint = f"`{kind.point}` has to call `ready` once it has told all {kind.items} that there are, also when there are none"
        self._late = (Problem("DEADLINE_EXCEEDED", message, hint=hint),)
        logger.warning("run_not_told point=%s ref=%s by=%s", kind.point, self._ref, label)
        self._count(coming.live, "DEADLINE_EXCEEDED", message)

    def _hear_stream(self, stream: RunStream[ItemT], listener: Listener[ItemT]) -> float:
        try:
            for _ in range(RECORDS_A_TURN):
                if stream.run is self._succession.in_force and not listener.has_room:
                    return float("inf")
                if not stream.allowance.take():
                    return PAUSE_S
                record = stream.next_record()
                if record is None:
                    stream.allowance.give_back()
                    break
                self._take(stream, record, listener)
            else:
                return 0.0
        except PluginFault as error:
            self._end(stream, error)
            return 0.0
        if stream.is_over:
            self._end(stream, stream.ended)
            return 0.0
        return float("inf")

    def _take(self, stream: RunStream[ItemT], record: RecordOf[ItemT], listener: Listener[ItemT]) -> None:
        step = self._succession.take(stream.run, record, listener.held, most=listener.most)
        if len(stream.run.named) > MAX_ENDPOINTS:
            raise PluginFault("BAD_RESULT", f"{self._kind.name} names more than {MAX_ENDPOINTS} {self._kind.items}")
        if isinstance(record, Refused) and self._kind.refused is not None:
            self._kind.refused(record.problem)
        elif isinstance(record, Refused):
            self._count(stream.live, "BAD_RESULT", str(record.problem))
        if isinstance(step, Replace):
            self._take_over(stream, step, listener)
        else:
            self._carry_out(step, listener)

    def _carry_out(self, step: Step[ItemT] | None, listener: Listener[ItemT]) -> None:
        match step:
            case Put(item):
                listener.upsert(item)
            case Drop(item_id):
                listener.delete(item_id)
            case Replace(items):
                listener.replace(items)

    def _take_over(self, stream: RunStream[ItemT], step: Replace[ItemT], listener: Listener[ItemT]) -> None:
        # Where it is refused, the run before is in force as it was.
        self._carry_out(step, listener)
        self._succession.follow(stream.run)
        if self._followed is not None:
            self._close(self._followed)
        self._followed, self._coming, self._late = stream, None, ()
        self._mark(None)
        self._failures = 0
        self._settles_at_s = self._now() + SETTLE_S
        label = stream.live.generation.client.label
        logger.info("run_followed point=%s ref=%s by=%s", self._kind.point, self._ref, label)

    def _end(self, stream: RunStream[ItemT], error: HostError | None) -> None:
        """A run is over. What it told stays; whether it was to end is seen by what is live."""
        self._close(stream)
        if stream is self._followed:
            self._followed = None
        else:
            self._coming = None
        if stream.live == self._generations.current(self._ref):
            # It is followed again, and has told nothing then.
            self._mark(stream.live.generation)
            self._failed(stream.live, error)
        self.note()

    def _report(self, listener: Listener[ItemT]) -> None:
        run = self._succession.in_force or (self._coming.run if self._coming is not None else None)
        problems = (*self._late, *(run.problems.values() if run is not None else ()))
        if problems != self._reported:
            self._reported = problems
            listener.report(problems)
