"""Calls of the data layer to one plugin ref, wherever it is answered now: leased, bounded, checked, counted.

Every call holds a lease on its generation, so that one which retires answers it first. What a call came to is told to
the counters that trials and guards look at: a version whose extractors fail is taken back like one whose scorers do.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Final, Protocol, TypeVar

import anyio
from hotbay_sdk.protocol import Method, TypeDeclaration, Value

from hotbay.errors import CapacityError, HostError, PluginFault
from hotbay.rpc.faults import UnsendableError
from hotbay.rpc.leases import LiveRef

__all__ = ["DEADLINE_S", "CallOutcomes", "Deliveries", "Generations", "RefCalls"]

logger = logging.getLogger(__name__)

DEADLINE_S: Final = 0.95
"""Within the second that a poll gives each of its extractors: what is late is the plugin's failure, and told as such."""
MAX_IN_FLIGHT: Final = 256
"""Calls of one ref without an answer: a thousand endpoints that are polled at once come one after the other."""
HOLD_S: Final = 60.0
"""How long an event waits for a process to be there again: longer than a crash loop's first pauses, and not for ever."""
MAX_DELIVERIES: Final = 3
"""Processes that may die of one event before it is given up: it would take the next one with it, too."""

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


class RefCalls:
    """Calls of one point of one ref.

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
        self._in_flight = 0

    async def ask(self, method: Method, arguments: Arguments, read: Callable[[Value, LiveRef], _T]) -> _T:
        """One call to the process that is live now, its answer read. Calls may overlap. Raises `HostError`."""
        live = self.generations.current(self.ref)
        if live is None:
            raise self.unavailable()
        return await self.ask_at(live, method, arguments, read)

    async def ask_at(
        self, live: LiveRef, method: Method, arguments: Arguments, read: Callable[[Value, LiveRef], _T]
    ) -> _T:
        """The same, to one process. `read` raises `HostError` for an answer that cannot be taken."""
        if self._in_flight >= MAX_IN_FLIGHT:
            raise CapacityError("RESOURCE_EXHAUSTED", f"'{self.ref}' has {MAX_IN_FLIGHT} calls without an answer")
        began_s = self._now()
        self._in_flight += 1
        live.generation.acquire()
        try:
            self._check(live)
            made = [list(live.handle), *arguments(live)]
            found = await live.generation.client.control_call(method, made, deadline_s=self._deadline_s)
            result = read(found, live)
        except UnsendableError:
            # What the host has to say does not fit into a frame: no fault of the plugin.
            raise
        except HostError as error:
            self._tell(live, began_s, error)
            raise
        finally:
            live.generation.release()
            self._in_flight -= 1
        self._tell(live, began_s, None)
        return result

    def _check(self, live: LiveRef) -> None:
        """A type is what its process says, which was not there yet when the configuration was read."""
        declared = live.declaration
        if self.point not in declared.points or self._payload not in ("", declared.data.payload):
            raise PluginFault(
                "INVALID_PACKAGE",
                f"'{self.ref}' stands where {self.point} of {self._payload or 'anything'} is asked for; its type "
                f"'{declared.type}' answers {', '.join(declared.points)} of {declared.data.payload or 'nothing'}",
                hint="refer to it where dataLayer names what it answers",
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


class Deliveries:
    """Events of one ref: numbered from 1, one at a time in the order in which they came, each answered once.

    An event in flight at a process that retires is answered by it. One that a process did not answer because it ended
    goes to its successor under the same number, until `MAX_DELIVERIES` processes have ended with it. While no process
    is there events wait for `hold_s`; then they fail at once, until there is one again.
    """

    def __init__(self, calls: RefCalls, *, hold_s: float = HOLD_S) -> None:
        self.number = 0
        """Of the event that was taken up last."""
        self.given_up = 0
        """Events that no process answered."""
        self._calls = calls
        self._hold_s = hold_s
        self._turn = anyio.Lock()
        self._is_out = False

    async def deliver(self, method: Method, event: object, read: Callable[[Value, LiveRef], _T]) -> _T:
        """Have one event answered. Calls may overlap and wait their turn. Raises `HostError` when it was not.

        What the plugin itself raises counts as its answer.
        """
        async with self._turn:
            self.number += 1
            number, deaths = self.number, 0
            while True:
                live = await self._process()
                try:
                    return await self._calls.ask_at(live, method, lambda _: [number, event], read)
                except HostError as error:
                    if not self._went(live, error):
                        raise
                    # It may have come as far as the author's code: then it may be the event that ended it.
                    deaths += error.code != "STALE_HANDLE"
                    if deaths >= MAX_DELIVERIES:
                        self.given_up += 1
                        logger.warning("event_given_up ref=%s number=%d: %s", self._calls.ref, number, error.message)
                        raise

    def _went(self, live: LiveRef, error: HostError) -> bool:
        """Whether it got no answer because what was asked is there no more."""
        if live.generation.client.fault is not None:
            return True
        return error.code == "STALE_HANDLE" and self._calls.generations.current(self._calls.ref) != live

    async def _process(self) -> LiveRef:
        """The process to ask, waited for."""
        calls = self._calls
        live = calls.generations.current(calls.ref)
        if live is None and not self._is_out:
            with anyio.move_on_after(self._hold_s):
                live = await calls.process()
        self._is_out = live is None
        if live is None:
            self.given_up += 1
            raise calls.unavailable()
        return live
