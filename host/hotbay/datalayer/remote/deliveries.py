"""Events to one plugin ref: numbered, one at a time, in order, each answered at most once by whichever process is there."""

import logging
from collections.abc import Callable
from typing import Final, TypeVar

import anyio
from hotbay_sdk.protocol import Method, Value

from hotbay.datalayer.remote.calls import RefCalls
from hotbay.errors import CapacityError, HostError
from hotbay.rpc.leases import LiveRef

__all__ = ["EVENT_STEP_S", "MAX_DELIVERIES", "MAX_WAITING", "Deliveries"]

logger = logging.getLogger(__name__)

MAX_DELIVERIES: Final = 3
"""Processes that may die of one event before it is given up: it would take the next one with it, too."""
MAX_WAITING: Final = 256
"""Events of one ref that wait for their turn; what comes then is given up at once."""
MAX_REFUSALS: Final = 15
REFUSED_PAUSE_S: Final = 1.0
"""An event that a process has no room for is offered again, so often and after so long: nothing says when there is room, and a
process that reads nothing is replaced before."""
EVENT_STEP_S: Final = float("inf")
"""What an event takes: each process has its deadline for it, and while there is none it waits. Only its own plugin's events
wait behind it, and these are bounded before they come here."""

_T = TypeVar("_T")


class Deliveries:
    """Events of one ref: numbered from 1, one at a time in the order in which they came, each answered at most once.

    An event in flight at a process that retires is answered by it. One that a process did not answer because it ended
    goes to its successor under the same number, until `MAX_DELIVERIES` processes have ended with it: an author may see it
    more than once. While no process is there, or it has no room, an event waits. At most `MAX_WAITING` wait for their turn.
    """

    def __init__(self, calls: RefCalls) -> None:
        self.number = 0
        """Of the event that was taken up last."""
        self._calls = calls
        self._turn = anyio.Lock()
        self._waiting = 0

    async def deliver(self, method: Method, event: object, read: Callable[[Value, LiveRef], _T]) -> _T:
        """Have one event answered. Calls may overlap and wait their turn. Raises `HostError` when it was not: who calls counts it.

        What the plugin itself raises counts as its answer.
        """
        if self._waiting >= MAX_WAITING:
            raise CapacityError("RESOURCE_EXHAUSTED", f"'{self._calls.ref}' has {MAX_WAITING} events before this one")
        self._waiting += 1
        try:
            async with self._turn:
                self.number += 1
                return await self._deliver(self.number, method, event, read)
        finally:
            self._waiting -= 1

    async def _deliver(self, number: int, method: Method, event: object, read: Callable[[Value, LiveRef], _T]) -> _T:
        deaths = refusals = 0
        while True:
            live = await self._calls.process()
            try:
                return await self._calls.ask_at(live, method, lambda _: [number, event], read)
            except HostError as error:
                if _was_refused(error) and refusals < MAX_REFUSALS:
                    refusals += 1
                    await anyio.sleep(REFUSED_PAUSE_S)
                    continue
                if not self._went(live, error):
                    raise
                # It may have come as far as the author's code: then it may be the event that ended it.
                deaths += error.code != "STALE_HANDLE"
                if deaths >= MAX_DELIVERIES:
                    logger.warning("event_given_up ref=%s number=%d: %s", self._calls.ref, number, error.message)
                    raise

    def _went(self, live: LiveRef, error: HostError) -> bool:
        """Whether it got no answer because what was asked is there no more.

        A process that is ending may have answered before: then the error is its answer, and not why it ended.
        """
        if error is live.generation.client.fault:
            return True
        return error.code == "STALE_HANDLE" and self._calls.generations.current(self._calls.ref) != live


def _was_refused(error: HostError) -> bool:
    """Whether there was no room for the call, at the host or in the process, so that the author's code saw nothing of it."""
    return error.code == "RESOURCE_EXHAUSTED" and error.details.get("executed", "no") == "no"
