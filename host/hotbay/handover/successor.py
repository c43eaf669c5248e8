"""The successor's end: finds the host of a state directory, takes its sockets and, once it let go of it, its state."""

import contextlib
import logging
import socket
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import anyio
import anyio.abc

from hotbay.errors import CapacityError
from hotbay.gateway.admin_socket import reachable
from hotbay.handover.ends import LINE_BYTES, line, other_kind
from hotbay.passing import passed_on
from hotbay.store.state_dir import StateDirectory

logger = logging.getLogger(__name__)

__all__ = ["Successor", "find_predecessor", "take_state"]

STEP_TIMEOUT_S: Final = 30.0
"""For one answer of the other end; what a host does before it answers `frozen` takes a second or two."""
GONE_WITHIN_S: Final = 5.0
"""For the kernel to take from a host that was killed what it held."""
_GONE_RETRY_S: Final = 0.05
_SOCKETS_MAX: Final = 8


@dataclass(slots=True)
class Successor:
    """The successor's end, once it has the sockets."""

    sockets: Sequence[socket.socket]
    _stream: anyio.abc.UNIXSocketStream

    async def freeze(self) -> bool:
        """Have the host let go of the state directory. False when it ended the connection: it is dead, or goes on.

        Raises CapacityError when it does not answer.
        """
        with anyio.move_on_after(STEP_TIMEOUT_S):
            try:
                await self._stream.send(b"freeze\n")
                return await line(self._stream) == "frozen"
            except anyio.BrokenResourceError:
                return False
        raise _not_given_away("it does not answer")

    async def serving(self) -> None:
        """Tell the host that this one accepts requests now; if it is there no more, this one serves all the same."""
        try:
            await self._stream.send(b"serving\n")
        except anyio.BrokenResourceError:
            logger.warning("predecessor_gone: it ended before it could be told")

    def connections(self) -> AsyncIterator[socket.socket]:
        """After `serving`: the host's client connections, each as soon as it is idle, until the host ends."""
        return passed_on(self._stream)

    async def aclose(self) -> None:
        """Give up, or done: without `serving` before, the host goes on as if nothing had been. Closes the sockets."""
        for listening in self.sockets:
            listening.close()
        await self._stream.aclose()


async def take_state(root: Path, predecessor: Successor | None) -> StateDirectory:
    """The state directory, once its host let go of it or is dead. Raises `HostError`: as `StateDirectory.open`, or CapacityError
    when the host keeps it.
    """
    if predecessor is None or await predecessor.freeze():
        return StateDirectory.open(root)
    logger.warning("predecessor_gone: it ended the connection before it gave its place away")
    with anyio.move_on_after(GONE_WITHIN_S):
        while True:
            try:
                return StateDirectory.open(root)
            except CapacityError as error:
                logger.debug("still_held root=%s: %s", root, error)
            await anyio.sleep(_GONE_RETRY_S)
    raise _not_given_away("it keeps the state directory")


def _not_given_away(why: str) -> CapacityError:
    return CapacityError(
        "UNAVAILABLE",
        f"the running host did not give its place away: {why}",
        hint="see its log; stop it to start another one",
    )


async def find_predecessor(path: Path) -> Successor | None:
    """Connect to the host of this state directory; None when none can be reached: the directory's lock says the rest."""
    if (other := other_kind(path)) is not None:
        logger.warning(
            "no_predecessor path=%s: %s; move it away and restart the host that runs, if one does", path, other
        )
        return None
    try:
        with reachable(path) as name:
            stream = await anyio.connect_unix(name)
    except OSError as error:
        logger.debug("no_predecessor path=%s: %s", path, error)
        return None
    received: tuple[bytes, list[int]] = (b"", [])
    with anyio.move_on_after(STEP_TIMEOUT_S), contextlib.suppress(anyio.EndOfStream, anyio.BrokenResourceError):
        received = await stream.receive_fds(LINE_BYTES, _SOCKETS_MAX)
    sockets = [socket.socket(fileno=descriptor) for descriptor in received[1]]
    if not sockets:
        await stream.aclose()
        raise CapacityError(
            "UNAVAILABLE",
            "the running host handed no listening socket over",
            hint="another successor may be on its way; see the log of the running host",
        )
    return Successor(sockets, stream)
