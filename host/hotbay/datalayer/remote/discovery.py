"""A discovery in plugin processes: follows the run of the version that is live, and lets the next one take over.

Runs are started and ended here; which of them counts is decided by `succession`. The run of a version that was replaced
is followed, and its process kept by a lease, until the new one's has told everything; only then does the old one end. All
that is found is told to the notifier by the one task of `run`, in the order in which the plugin told it. A plugin that
tells faster than `RECORDS_PER_S` for long waits: it gets credit for what was taken.
"""

import logging
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final, Protocol

import anyio
from hotbay_sdk.protocol import Method

from hotbay.datalayer.endpoint import EndpointMetadata
from hotbay.datalayer.remote.calls import CallOutcomes, Generations
from hotbay.datalayer.remote.records import Record, RecordReader
from hotbay.datalayer.remote.succession import Drop, Put, Replace, Run, Step, Succession
from hotbay.errors import HostError, PluginFault, Problem
from hotbay.rpc.allowance import Allowance
from hotbay.rpc.client import PluginClient
from hotbay.rpc.leases import LiveRef

__all__ = ["Notifier", "RemoteDiscovery"]

logger = logging.getLogger(__name__)

MAX_ENDPOINTS: Final = 10_000
"""Of one run: as many as a feed may have."""
RECORDS_AT_ONCE: Final = 20_000
RECORDS_PER_S: Final = 2_000.0
"""What a plugin may tell: a whole pool twice, and then what a pool that changes all the time needs many times over."""
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

    def __init__(self, live: LiveRef, run: Run, name: str, news: Callable[[], None]) -> None:
        self.live = live
        self.run = run
        self.ended: HostError | None = None
        self.is_over = False
        self.records: deque[Record] = deque()
        self._reader = RecordReader(name)
        self._news = news
        self._is_leased = True
        live.generation.acquire()
        client: PluginClient = live.generation.client
        try:
            self._flow = client.follow(Method.DISCOVER, [list(live.handle)], came=news, done=self._on_end)
        except HostError:
            self.release()
            raise
        live.generation.on_leaving(news)

    def _on_end(self, outcome: object) -> None:
        self.is_over = True
        self.ended = outcome if isinstance(outcome, HostError) else None
        self._news()

    def next_record(self) -> Record | None:
        """The next record that has come. Raises `PluginFault` for what is none."""
        if not self.records:
            self.records.extend(self._reader.feed(self._flow.take()))
        return self.records.popleft() if self.records else None

    def release(self) -> None:
        """Let the process go; what it still tells is followed."""
        if self._is_leased:
            self._is_leased = False
            self.live.generation.release()

    def close(self) -> None:
        """Hear it no more."""
        self._flow.cancel()
        self.release()


class RemoteDiscovery:
    """An `EndpointDiscovery`; one object is one run of the host's, over any number of processes.

    Args:
        ref: the plugin ref.
        generations: where it is answered.
        outcomes: told of every run that ended by itself.
        now: monotonic seconds.
    """

    def __init__(
        self,
        ref: str,
        generations: Generations,
        outcomes: CallOutcomes,
        *,
        now: Callable[[], float] = anyio.current_time,
    ) -> None:
        self.name = f"discovery '{ref}'"
        self.ready = anyio.Event()
        self.refused = 0
        """Endpoints that could not be used, so often as they were told."""
        self._ref = ref
        self._generations = generations
        self._outcomes = outcomes
        self._now = now
        self._succession = Succession()
        self._followed: _Stream | None = None
        self._coming: _Stream | None = None
        self._news = anyio.Event()
        self._allowance = Allowance(RECORDS_AT_ONCE, RECORDS_PER_S, now)
        self._failures = 0
        self._settles_at_s = float("inf")
        self._again_at_s = 0.0
        self._failed_at: LiveRef | None = None
        self._reported: tuple[Problem, ...] = ()

    async def run(self, notifier: Notifier) -> None:
        """Tell what exists until cancelled."""
        unwatch = self._generations.watch(self._note)
        try:
            while True:
                self._news = anyio.Event()
                self._follow_current()
                wait_s = self._hear(notifier)
                with anyio.move_on_after(wait_s):
                    await self._news.wait()
        finally:
            unwatch()
            for stream in (self._followed, self._coming):
                if stream is not None:
                    stream.close()
            self._followed = self._coming = None

    def _note(self) -> None:
        self._news.set()

    # -- runs ------------------------------------------------------------------------------------

    def _follow_current(self) -> None:
        """Have a run at the process that is live, and none but it and the one that it is to succeed."""
        live = self._generations.current(self._ref)
        self._let_go(live)
        if live is None or (live == self._failed_at and self._now() < self._again_at_s):
            return
        if self._followed is not None and self._followed.live == live:
            # A rollback: the version before is heard again, and never was not.
            self._drop_coming()
        elif self._coming is None or self._coming.live != live:
            self._drop_coming()
            self._begin(live)

    def _let_go(self, live: LiveRef | None) -> None:
        """Hold no process back that is told to go and has no successor: it may have to go before one can come."""
        if live is None:
            for stream in (self._followed, self._coming):
                if stream is not None and stream.live.generation.leaving:
                    stream.release()

    def _begin(self, live: LiveRef) -> None:
        try:
            self._coming = _Stream(live, self._succession.begin(), self.name, self._note)
        except HostError as error:
            self._failed(live, error)

    def _drop_coming(self) -> None:
        if self._coming is not None:
            self._coming.close()
            self._coming = None

    def _failed(self, live: LiveRef, error: HostError | None) -> None:
        """A run ended though nobody wanted it to: begin another one later, each time later."""
        pause_s = min(MAX_AGAIN_S, FIRST_AGAIN_S * 2.0 ** min(self._failures, 20))
        self._failures += 1
        self._failed_at = live
        self._again_at_s = self._now() + pause_s
        code, text = (error.code, error.message) if error is not None else ("PLUGIN_ERROR", "discover returned")
        logger.warning("discovery_run_ended ref=%s code=%s again_s=%g: %s", self._ref, code, pause_s, text)
        self._outcomes.called(live.generation.number, "discover", self._ref, duration_s=0.0, code=code, complaint=text)

    # -- what they tell --------------------------------------------------------------------------

    def _hear(self, notifier: Notifier) -> float:
        """Take what has come; how long to wait for more news at most."""
        wait_s = max(0.0, self._again_at_s - self._now()) or float("inf")
        if self._now() >= self._settles_at_s:
            self._settles_at_s = float("inf")
            self._carry_out(self._succession.settle(), notifier)
        wait_s = min(wait_s, max(0.0, self._settles_at_s - self._now()))
        for stream in (self._followed, self._coming):
            if stream is not None:
                wait_s = min(wait_s, self._hear_stream(stream, notifier))
        self._report(notifier)
        return wait_s

    def _hear_stream(self, stream: _Stream, notifier: Notifier) -> float:
        try:
            while True:
                if not self._allowance.take():
                    return PAUSE_S
                record = stream.next_record()
                if record is None:
                    break
                self._take(stream, record, notifier)
        except PluginFault as error:
            self._end(stream, error)
            return 0.0
        if stream.is_over:
            self._end(stream, stream.ended)
            return 0.0
        return float("inf")

    def _take(self, stream: _Stream, record: Record, notifier: Notifier) -> None:
        step = self._succession.take(stream.run, record, notifier.held)
        if len(stream.run.named) > MAX_ENDPOINTS:
            raise PluginFault("BAD_RESULT", f"{self.name} names more than {MAX_ENDPOINTS} endpoints")
        self._carry_out(step, notifier)
        if isinstance(step, Replace):
            self._took_over(stream)

    def _carry_out(self, step: Step | None, notifier: Notifier) -> None:
        match step:
            case Put(endpoint):
                notifier.upsert(endpoint)
            case Drop(endpoint_id):
                notifier.delete(endpoint_id)
            case Replace(endpoints):
                notifier.replace(endpoints)

    def _took_over(self, stream: _Stream) -> None:
        if self._followed is not None:
            self._followed.close()
        self._followed, self._coming = stream, None
        self._failures = 0
        self._settles_at_s = self._now() + SETTLE_S
        self.ready.set()
        logger.info("discovery_followed ref=%s by=%s", self._ref, stream.live.generation.client.label)

    def _end(self, stream: _Stream, error: HostError | None) -> None:
        """A run is over. What it told stays; whether it was to end is seen by what is live."""
        stream.close()
        if stream is self._followed:
            self._followed = None
        else:
            self._coming = None
        if stream.live == self._generations.current(self._ref):
            self._failed(stream.live, error)
        self._note()

    def _report(self, notifier: Notifier) -> None:
        run = self._succession.in_force or (self._coming.run if self._coming is not None else None)
        problems = tuple(run.problems.values()) if run is not None else ()
        if problems != self._reported:
            self._reported = problems
            notifier.report(problems)
