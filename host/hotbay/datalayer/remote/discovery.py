"""A discovery in plugin processes: follows the run of the version that is live, and lets the next one take over.

Runs are started and ended here; which of them counts is decided by `succession`. The run of a version that was replaced
is followed, and its process kept by a lease, until the new one's has told everything; only then does the old one end. All
that is found is told to the notifier by the one task of `run`, in the order in which the plugin told it. A run that
tells faster than `RECORDS_PER_S` for long waits: it gets credit for what was taken. However much has come, the loop has
its turn after each `RECORDS_A_TURN`. A run that does not tell everything in time is told of and counts as failing, again and
again; until then its process is marked as `untold`, and takes nobody's place for good. No process is asked for another run
before it gave up the one before.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Final, Protocol

import anyio
import anyio.lowlevel
from hotbay_sdk.protocol import Method

from hotbay.datalayer.discovery.session import MAX_ENDPOINTS, TooManyEndpointsError
from hotbay.datalayer.endpoint import EndpointMetadata
from hotbay.datalayer.remote.calls import CallOutcomes, Generations
from hotbay.datalayer.remote.records import Own, Record, RecordReader
from hotbay.datalayer.remote.succession import Drop, Put, Replace, Run, Step, Succession
from hotbay.errors import HostError, PluginFault, Problem
from hotbay.rpc.allowance import Allowance
from hotbay.rpc.client import PluginClient
from hotbay.rpc.leases import Generation, LiveRef

__all__ = ["Notifier", "RemoteDiscovery"]

logger = logging.getLogger(__name__)

RECORDS_AT_ONCE: Final = 20_000
RECORDS_PER_S: Final = 500.0
"""What a run may tell: a whole pool twice, and then what a pool that changes all the time needs many times over. Long
records count as several, and so do those that are refused."""
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


class Notifier(Protocol):
    """Where it is told what exists; one task calls."""

    @property
    def held(self) -> Mapping[str, EndpointMetadata]: ...
    def upsert(self, endpoint: EndpointMetadata) -> None: ...
    def delete(self, endpoint_id: str) -> None: ...
    def replace(self, endpoints: "tuple[EndpointMetadata, ...]") -> None: ...
    def report(self, problems: "tuple[Problem, ...]") -> None: ...


class _Stream:
    """One run at one process. `news` is told when something came or it ended, or its process is told to go."""

    def __init__(
        self, live: LiveRef, run: Run, reader: RecordReader, allowance: Allowance, news: Callable[[], None]
    ) -> None:
        self.live = live
        self.run = run
        self.allowance = allowance
        self.due_s = float("inf")
        """When it counts as failing because it has not told everything."""
        self.ended: HostError | None = None
        self.is_over = False
        self._records: Iterator[Record] = iter(())
        self._reader = reader
        self._news = news
        self._is_leased = True
        live.generation.acquire()
        client: PluginClient = live.generation.client
        try:
            self._flow = client.follow(Method.DISCOVER, [list(live.handle)], came=news, done=self._on_end)
        except HostError:
            self.release()
            raise
        self._unsubscribe = live.generation.on_leaving(news)

    def _on_end(self, outcome: object) -> None:
        self.is_over = True
        self.ended = outcome if isinstance(outcome, HostError) else None
        self._news()

    def next_record(self) -> Record | None:
        """The next record that has come, read now. Raises `PluginFault` for what is none."""
        record = next(self._records, None)
        if record is None:
            self._records = self._reader.feed(self._flow.take())
            record = next(self._records, None)
        if record is not None:
            self.allowance.owe(self._reader.cost - 1)
        return record

    def release(self) -> None:
        """Let the process go; what it still tells is followed."""
        if self._is_leased:
            self._is_leased = False
            self.live.generation.release()

    def close(self) -> None:
        """Hear it no more. It is over when its process gave it up."""
        self._unsubscribe()
        self._flow.cancel()
        self.release()


class RemoteDiscovery:
    """An `EndpointDiscovery`; one object is one run of the host's, over any number of processes.

    Args:
        ref: the plugin ref.
        generations: where it is answered.
        outcomes: told of every run that ended by itself, or does not tell everything.
        now: monotonic seconds.
        own: whether an address and a port are the host's own.
    """

    def __init__(
        self,
        ref: str,
        generations: Generations,
        outcomes: CallOutcomes,
        *,
        now: Callable[[], float] = anyio.current_time,
        own: Own = lambda _address, _port: False,
    ) -> None:
        self.name = f"discovery '{ref}'"
        self.ready = anyio.Event()
        self._ref = ref
        self._generations = generations
        self._outcomes = outcomes
        self._now = now
        self._own = own
        self._succession = Succession()
        self._followed: _Stream | None = None
        self._coming: _Stream | None = None
        self._ending: list[_Stream] = []
        self._marked: Generation | None = None
        self._news = anyio.Event()
        self._failures = 0
        self._settles_at_s = float("inf")
        self._again_at_s = 0.0
        self._failed_at: LiveRef | None = None
        self._late: tuple[Problem, ...] = ()
        self._reported: tuple[Problem, ...] = ()

    async def run(self, notifier: Notifier) -> None:
        """Tell what exists until cancelled."""
        unwatch = self._generations.watch(self._note)
        try:
            while True:
                self._news = anyio.Event()
                now_s = self._now()
                self._follow_current(now_s)
                wait_s = self._hear(notifier, now_s)
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

    def _note(self) -> None:
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
        reader, allowance = RecordReader(self.name, self._own), Allowance(RECORDS_AT_ONCE, RECORDS_PER_S, self._now)
        try:
            self._coming = _Stream(live, self._succession.begin(), reader, allowance, self._note)
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

    def _close(self, stream: _Stream) -> None:
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
        code, text = (error.code, error.message) if error is not None else ("PLUGIN_ERROR", "discover returned")
        logger.warning("discovery_run_ended ref=%s code=%s again_s=%g: %s", self._ref, code, pause_s, text)
        self._count(live, code, text)

    def _count(self, live: LiveRef, code: str, text: str) -> None:
        self._outcomes.called(live.generation.number, "discover", self._ref, duration_s=0.0, code=code, complaint=text)

    # -- what they tell --------------------------------------------------------------------------

    def _hear(self, notifier: Notifier, now_s: float) -> float:
        """Take what has come; how long to wait for more news at most."""
        wait_s = max(0.0, self._again_at_s - now_s) or float("inf")
        if now_s >= self._settles_at_s:
            self._settles_at_s = float("inf")
            self._carry_out(self._succession.settle(), notifier)
        for stream in (self._followed, self._coming):
            if stream is not None:
                wait_s = min(wait_s, self._hear_stream(stream, notifier))
        self._look_late(now_s)
        self._report(notifier)
        due_s = self._coming.due_s if self._coming is not None else float("inf")
        return min(wait_s, max(0.0, min(self._settles_at_s, due_s) - now_s))

    def _look_late(self, now_s: float) -> None:
        """Count and tell of a run that has not told everything in time, once for each such time."""
        coming = self._coming
        if coming is None or now_s < coming.due_s:
            return
        coming.due_s = now_s + READY_S
        client = coming.live.generation.client
        message = (
            f"{self.name}: {client.label} has not told everything within {READY_S:g} s: what was told before it holds"
        )
        hint = "`discover` has to call `ready` once it has told all endpoints that there are, also when there are none"
        self._late = (Problem("DEADLINE_EXCEEDED", message, hint=hint),)
        logger.warning("discovery_not_told ref=%s by=%s", self._ref, client.label)
        self._count(coming.live, "DEADLINE_EXCEEDED", message)

    def _hear_stream(self, stream: _Stream, notifier: Notifier) -> float:
        try:
            for _ in range(RECORDS_A_TURN):
                if not stream.allowance.take():
                    return PAUSE_S
                record = stream.next_record()
                if record is None:
                    break
                self._take(stream, record, notifier)
            else:
                return 0.0
        except PluginFault as error:
            self._end(stream, error)
            return 0.0
        except TooManyEndpointsError as error:
            self._end(stream, PluginFault("BAD_RESULT", f"{self.name}: {error}"))
            return 0.0
        if stream.is_over:
            self._end(stream, stream.ended)
            return 0.0
        return float("inf")

    def _take(self, stream: _Stream, record: Record, notifier: Notifier) -> None:
        step = self._succession.take(stream.run, record, notifier.held)
        if len(stream.run.named) > MAX_ENDPOINTS:
            raise PluginFault("BAD_RESULT", f"{self.name} names more than {MAX_ENDPOINTS} endpoints")
        if isinstance(step, Replace):
            self._take_over(stream, step, notifier)
        else:
            self._carry_out(step, notifier)

    def _carry_out(self, step: Step | None, notifier: Notifier) -> None:
        match step:
            case Put(endpoint):
                notifier.upsert(endpoint)
            case Drop(endpoint_id):
                notifier.delete(endpoint_id)
            case Replace(endpoints):
                notifier.replace(endpoints)

    def _take_over(self, stream: _Stream, step: Replace, notifier: Notifier) -> None:
        if not self.ready.is_set() and len({*notifier.held, *(one.id for one in step.endpoints)}) > MAX_ENDPOINTS:
            # What runs of the host's before this one left goes first where there is no room for both.
            self.ready.set()
        self._carry_out(step, notifier)
        if self._followed is not None:
            self._close(self._followed)
        self._followed, self._coming, self._late = stream, None, ()
        self._mark(None)
        self._failures = 0
        self._settles_at_s = self._now() + SETTLE_S
        self.ready.set()
        logger.info("discovery_followed ref=%s by=%s", self._ref, stream.live.generation.client.label)

    def _end(self, stream: _Stream, error: HostError | None) -> None:
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
        self._note()

    def _report(self, notifier: Notifier) -> None:
        run = self._succession.in_force or (self._coming.run if self._coming is not None else None)
        problems = (*self._late, *(run.problems.values() if run is not None else ()))
        if problems != self._reported:
            self._reported = problems
            notifier.report(problems)
