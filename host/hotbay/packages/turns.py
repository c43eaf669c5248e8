"""One fetch of a blob at a time in this process, without one plugin's stalled source holding up another plugin.

Who comes second waits while the first gets on; when that stands still and the second has another source, the first is
sent to the back of the queue. It does not push back, so that two slow sources end as soon as the better one.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import anyio

from hotbay.store.digests import Digest

# Well above a round trip and a disk's hiccup, well below what a person would call stalled.
PATIENCE_S: Final = 2.0

__all__ = ["PATIENCE_S", "DisplacedError", "Turn", "Turns"]


class DisplacedError(Exception):
    """This turn was ended in favour of somebody with another source. Take another one."""


class Turn:
    """The right to fetch one blob."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.scope = anyio.CancelScope()
        self.ended = anyio.Event()
        self.moved_s = anyio.current_time()

    def moved(self) -> None:
        """Note that bytes have come."""
        self.moved_s = anyio.current_time()


class Turns:
    """All turns of one process. For one loop."""

    def __init__(self, *, patience_s: float = PATIENCE_S) -> None:
        self._patience_s = patience_s
        self._taken: dict[Digest, Turn] = {}

    @asynccontextmanager
    async def take(self, digest: Digest, source: str, *, may_displace: bool) -> AsyncIterator[Turn]:
        """Wait for the turn and hold it. Raises `DisplacedError` when it is taken away."""
        turn = Turn(source)
        try:
            await self._enter(digest, turn, may_displace=may_displace)
            with turn.scope:
                yield turn
        finally:
            if self._taken.get(digest) is turn:
                del self._taken[digest]
            turn.ended.set()
        if turn.scope.cancelled_caught:
            raise DisplacedError

    async def _enter(self, digest: Digest, turn: Turn, *, may_displace: bool) -> None:
        while (other := self._taken.get(digest)) is not None:
            if may_displace and other.source != turn.source:
                with anyio.move_on_after(max(0.0, other.moved_s + self._patience_s - anyio.current_time())):
                    await other.ended.wait()
                still = self._taken.get(digest) is other and not other.ended.is_set()
                if not still or anyio.current_time() < other.moved_s + self._patience_s:
                    # It ended, moved on, or somebody else who waited took its place.
                    continue
                # In its place at once: whoever it was comes back and must find it taken.
                self._taken[digest] = turn
                turn.moved()
                other.scope.cancel()
                await other.ended.wait()
                turn.moved()
                return
            await other.ended.wait()
        self._taken[digest] = turn
        turn.moved()
