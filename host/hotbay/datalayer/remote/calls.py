"""Calls of the data layer to one plugin ref, wherever it is answered now: leased, bounded, checked, counted.

Every call holds a lease on its generation, so that one which retires answers it first. What a call came to is told to
the counters that trials and guards look at: a version whose extractors fail is taken back like one whose scorers do. What is
the host's or the operator's doing is not: no more polls are put to a process than it works at, the others wait their turn, and
those that wait too long are skipped and counted apart. Events are delivered by `deliveries`.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Protocol, TypeVar

import anyio
from hotbay_sdk.protocol import Method, TypeDeclaration, Value

from hotbay.datalayer.source import NotAskedError
from hotbay.errors import CapacityError, HostError, InputError, PluginFault, Problem
from hotbay.rpc.faults import UnsendableError
from hotbay.rpc.leases import LiveRef

__all__ = ["DEADLINE_S", "CallOutcomes", "Generations", "RefCalls", "SkippedError"]

DEADLINE_S: Final = 0.95
"""What the plugin has for one call: what is late is its failure, and told as such."""
PER_THREAD: Final = 2
"""Polls that are put to a type for each call that it takes at once: one that it works at, and one that is there when it ends.
A call's deadline begins when it is sent: were more queued in the process, the plugin would be late for the host's haste."""
TURN_S: Final = 1.0
"""How long a poll waits for its turn: by then another page has come."""
POLL_STEP_S: Final = TURN_S + DEADLINE_S + 0.5
"""What a poll of a plugin's extractor takes at most, with some room: it ends by its own bounds."""

_T = TypeVar("_T")
Arguments = Callable[[LiveRef], Sequence[object]]


class Generations(Protocol):
    """Where refs are answered now."""

    def current(self, ref: str) -> LiveRef | None:
        """Where the ref is answered now; None while no process that answers, and stays, has it."""

    def declared(self, ref: str) -> TypeDeclaration | None:
        """What the ref's type declared when a process of it was READY last, whether one runs or not; wakes nobody."""

    def watch(self, changed: Callable[[], None]) -> Callable[[], None]:
        """Call `changed` after every change, which may do nothing but note it; what is returned ends it."""


class CallOutcomes(Protocol):
    """What calls came to, for metrics and for trials."""

    def called(
        self, generation: int, point: str, ref: str, *, duration_s: float, code: str = "", complaint: str = ""
    ) -> None:
        """One call has ended; with `code` it failed. An unknown generation is nobody's."""


class SkippedError(CapacityError, NotAskedError):
    """A poll was not made: the type takes fewer at once than come. No failure of anybody."""


class RefCalls:
    """Calls of one point of one ref. `skipped` are polls that were not made because too many others were.

    Args:
        ref: its name in the operator's configuration.
        point: for the counters.
        generations: where it is answered.
        outcomes: told of every call that was made.
        payload: what the type has to declare; empty where that does not matter.
        now: monotonic seconds.
        deadline_s: of every call.
    """

    def __init__(
        self,
        ref: str,
        point: str,
        generations: Generations,
        outcomes: CallOutcomes,
        *,
        payload: str = "",
        now: Callable[[], float] = anyio.current_time,
        deadline_s: float = DEADLINE_S,
    ) -> None:
        self.ref = ref
        self.point = point
        self.generations = generations
        self._outcomes = outcomes
        self._payload = payload
        self._now = now
        self._deadline_s = deadline_s
        self.skipped = 0
        self._in_flight = 0
        self._turns: deque[anyio.Event] = deque()
        self._has_fit = False

    async def ask(
        self,
        method: Method,
        arguments: Arguments,
        read: Callable[[Value, LiveRef], _T],
        *,
        limit: Callable[[LiveRef], int] | None = None,
    ) -> _T:
        """One poll of the process that is live now, its answer read. Calls may overlap, and then wait their turn.

        `limit` says the longest reply in bytes. Raises `SkippedError` when its turn did not come, and `HostError`.
        """
        live = self.generations.current(self.ref)
        if live is None:
            raise self.unavailable()
        if not await self._take_turn(live):
            self.skipped += 1
            raise SkippedError("RESOURCE_EXHAUSTED", f"'{self.ref}' takes fewer polls than come: one was skipped")
        try:
            live = self.generations.current(self.ref)
            if live is None:
                raise self.unavailable()
            return await self.ask_at(live, method, arguments, read, limit=limit)
        finally:
            self._end_turn()

    async def _take_turn(self, live: LiveRef) -> bool:
        """Wait until the process works at few enough polls of this ref; whether it was soon enough."""
        if not self._turns and self._in_flight < PER_THREAD * live.declaration.concurrency:
            self._in_flight += 1
            return True
        turn, is_mine = anyio.Event(), False
        self._turns.append(turn)
        try:
            with anyio.move_on_after(TURN_S):
                await turn.wait()
            is_mine = turn.is_set()
        finally:
            if not is_mine and turn.is_set():
                self._end_turn()
            elif not is_mine:
                self._turns.remove(turn)
        return is_mine

    def _end_turn(self) -> None:
        self._in_flight -= 1
        declared = self.generations.declared(self.ref)
        most = PER_THREAD * (declared.concurrency if declared is not None else 1)
        while self._turns and self._in_flight < most:
            # Counted here: who asks before the waiting one wakes up finds the place taken.
            self._in_flight += 1
            self._turns.popleft().set()

    async def ask_at(
        self,
        live: LiveRef,
        method: Method,
        arguments: Arguments,
        read: Callable[[Value, LiveRef], _T],
        *,
        limit: Callable[[LiveRef], int] | None = None,
    ) -> _T:
        """One call to one process, at once. `read` raises `HostError` for an answer that cannot be taken."""
        self._check_reference(live)
        began_s = self._now()
        live.generation.acquire()
        try:
            self._check(live)
            made = [list(live.handle), *arguments(live)]
            found = await live.generation.client.control_call(
                method,
                made,
                deadline_s=self._deadline_s,
                reply_limit_bytes=limit(live) if limit is not None else None,
            )
            result = read(found, live)
        except UnsendableError:
            # What the host has to say does not fit into a frame: no fault of the plugin.
            raise
        except HostError as error:
            self._tell(live, began_s, error)
            raise
        finally:
            live.generation.release()
        self._tell(live, began_s, None)
        return result

    def _check_reference(self, live: LiveRef) -> None:
        """A type is what its process says, which was not there yet when the configuration was read.

        One that never was what is asked for here is referred to in the wrong place: the operator's fault, and counted as
        nobody's. Raises `InputError`.
        """
        if self._fits(live.declaration):
            self._has_fit = True
        elif not self._has_fit:
            hint = "refer to it where dataLayer names what it answers"
            raise InputError([Problem("CONFIG_INVALID", self._misfit(live.declaration), hint=hint)])

    def _check(self, live: LiveRef) -> None:
        """A version that is not what the ones before it were fails each call."""
        if not self._fits(live.declaration):
            hint = "a type goes on answering what it answered: give another one another name"
            raise PluginFault("INVALID_PACKAGE", self._misfit(live.declaration), hint=hint)

    def _fits(self, declared: TypeDeclaration) -> bool:
        return self.point in declared.points and self._payload in ("", declared.data.payload)

    def _misfit(self, declared: TypeDeclaration) -> str:
        return (
            f"'{self.ref}' stands where {self.point} of {self._payload or 'anything'} is asked for; its type "
            f"'{declared.type}' answers {', '.join(declared.points)} of {declared.data.payload or 'nothing'}"
        )

    async def process(self) -> LiveRef:
        """Where the ref is answered, as soon as it is."""
        while True:
            changed = anyio.Event()
            unwatch = self.generations.watch(changed.set)
            try:
                live = self.generations.current(self.ref)
                if live is not None:
                    return live
                await changed.wait()
            finally:
                unwatch()

    def unavailable(self) -> CapacityError:
        """The error while no process answers."""
        return CapacityError(
            "UNAVAILABLE",
            f"no process answers the plugin ref '{self.ref}' now",
            hint="see `hotbay status`: the plugin is starting, or does not start",
        )

    def _tell(self, live: LiveRef, began_s: float, error: HostError | None) -> None:
        self._outcomes.called(
            live.generation.number,
            self.point,
            self.ref,
            duration_s=self._now() - began_s,
            code="" if error is None else error.code,
            complaint="" if error is None else error.message,
        )
