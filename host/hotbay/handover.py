"""How a host hands its place to a successor on the same machine, with no moment at which nobody accepts requests.

Two ends of one connection over a socket file in the state directory, open to the host's own user alone:

====================  ====================================================================================
successor             host
====================  ====================================================================================
connects              sends its listening sockets, which both have from here on
`freeze`              starts no rollout any more, closes its world, gives the lock of the state directory back
\\                     `frozen`; goes on answering with what is live
opens the state,
brings everything up,
begins to accept
`serving`             stops accepting, ends what it has begun, exits with 0
serves them           sends its clients' connections, each as soon as it is idle
====================  ====================================================================================

Invariants: a connection that ends before `serving` leaves the host as it was: it takes the lock again, as soon as the
successor's process lets go of it, and thaws. A host that dies on the way leaves its place to its successor, which has the
sockets from the first moment on. Nothing that a successor does or leaves undone ends the host. What waits in
the accept queue belongs to the socket and is answered by whoever still has it: nothing is reset. A connection that a
client keeps for its next request changes hosts; it is never closed while that request may be on its way.
"""

import contextlib
import errno
import logging
import os
import socket
import stat
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, Protocol

import anyio
import anyio.abc

from hotbay.errors import CapacityError, HostError, Problem
from hotbay.gateway.admin_socket import peer_uid, reachable
from hotbay.observe.background import Background
from hotbay.passing import PassingOn, passed_on
from hotbay.store.state_dir import StateDirectory

logger = logging.getLogger(__name__)

__all__ = ["HandoverServer", "Predecessor", "Successor", "find_predecessor", "take_state"]

STEP_TIMEOUT_S: Final = 30.0
"""For one answer of the other end; what a host does before it answers `frozen` takes a second or two."""
ASKED_WITHIN_S: Final = 2.0
"""For a successor to ask for the place: it does so at once, and who asks for nothing keeps others away until then."""
GONE_WITHIN_S: Final = 5.0
"""For the kernel to take from a host that was killed what it held."""
_GONE_RETRY_S: Final = 0.05
RETRY_S: Final = 0.5
"""Until the state directory is asked for again: a successor that was killed still holds it for a moment, and one that
was replaced by a third host for longer."""
# After an accept that failed for want of descriptors: it fails again at once until one is free.
_ACCEPT_PAUSE_S: Final = 0.2
START_TIMEOUT_S: Final = 300.0
"""For a successor to serve: it starts every plugin first, and may have environments to build."""
_LINE_BYTES: Final = 64
_SOCKETS_MAX: Final = 8


class Predecessor(Protocol):
    """The host that gives its place away."""

    def sockets(self) -> Sequence[socket.socket]:
        """What it listens on."""

    async def freeze(self) -> None:
        """Let go of the state directory. Raises `HostError` when it cannot; `thaw` takes back what was done of it."""

    async def thaw(self) -> None:
        """Take the state directory again. Raises `HostError` while it cannot; safe to repeat."""

    def leave(self, passing: PassingOn) -> None:
        """Somebody else serves, and takes idle client connections: stop accepting, drain, `passing.finish`, exit."""


class HandoverServer:
    """The host's end. `run` until cancelled; successors come one at a time. `off` is told why none can take over."""

    def __init__(
        self,
        path: Path,
        host: Predecessor,
        *,
        off: Callable[[Problem], None] = lambda _problem: None,
        background: Background | None = None,
    ) -> None:
        self._path = path
        self._host = host
        self._off = off
        self._background = background or Background()
        self._busy = anyio.Lock()

    async def run(self, *, task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Listen, and serve whoever comes. Where that is not possible the host goes on, and says so in its log."""
        try:
            listener = await self._listen()
            inode = self._path.stat().st_ino
        except OSError as error:
            why = f"no successor can take over at {self._path}: {error.strerror or error}"
            logger.error("handover_off %s", why)  # noqa: TRY400 - the error says all
            hint = "move it away, or let the host's user write its folder, and restart the host"
            self._off(Problem("UNAVAILABLE", why, hint=hint))
            task_status.started()
            return
        task_status.started()
        try:
            async with listener:
                await self._background.keep("handover", partial(self._accept, listener))
        finally:
            # The successor has put its own socket there by now.
            with contextlib.suppress(FileNotFoundError):
                if self._path.stat().st_ino == inode:
                    self._path.unlink()

    async def _listen(self) -> anyio.abc.SocketListener:
        """In place of what a dead host left; anything else that lies there is somebody's, and stays."""
        if (other := _other_kind(self._path)) is not None:
            raise OSError(errno.EEXIST, other)
        self._path.unlink(missing_ok=True)
        with reachable(self._path) as name:
            return await anyio.create_unix_listener(name, mode=0o600)

    async def _accept(self, listener: anyio.abc.SocketListener) -> None:
        async with anyio.create_task_group() as group:
            while True:
                try:
                    stream = await listener.accept()
                except anyio.BrokenResourceError as error:
                    logger.warning("handover_accept_failed: %s", error.__cause__)
                    await anyio.sleep(_ACCEPT_PAUSE_S)
                else:
                    group.start_soon(self._background.guard, "handover", partial(self._meet, stream))

    async def _meet(self, stream: anyio.abc.SocketStream) -> None:
        assert isinstance(stream, anyio.abc.UNIXSocketStream), "the listener is one of a socket file"
        async with stream:
            if self._busy.locked() or not _is_same_user(stream):
                logger.warning("handover_refused")
                return
            async with self._busy:
                with contextlib.suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
                    await self._give_way(stream)

    async def _give_way(self, stream: anyio.abc.UNIXSocketStream) -> None:
        await stream.send_fds(b"sockets\n", [listening.fileno() for listening in self._host.sockets()])
        asked = ""
        with anyio.move_on_after(ASKED_WITHIN_S):
            asked = await _line(stream)
        if asked != "freeze":
            logger.warning("handover_refused: the other end asked for nothing")
            return
        logger.info("handover_begun")
        try:
            await self._host.freeze()
        except HostError as error:
            logger.warning("handover_failed code=%s: %s; this host goes on", error.code, error.message)
            await self._thaw()
            return
        except Exception:
            # The boundary of a successor's visit tells it; the host must not stay half frozen.
            await self._thaw()
            raise
        serving = False
        with anyio.move_on_after(START_TIMEOUT_S):
            with contextlib.suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
                await stream.send(b"frozen\n")
                serving = await _line(stream) == "serving"
        if serving:
            logger.info("handover_done")
            passing = PassingOn(stream)
            self._host.leave(passing)
            await passing.run()
        else:
            logger.warning("handover_failed: the successor went before it served, or takes too long; this host goes on")
            await self._thaw()

    async def _thaw(self) -> None:
        """Until it succeeds: meanwhile the host answers with what is live, and starts nothing."""
        await self._background.keep("handover", self._thaw_again)

    async def _thaw_again(self) -> None:
        told = ""
        while True:
            try:
                await self._host.thaw()
            except HostError as error:
                if error.message != told:
                    told = error.message
                    logger.error("still_frozen code=%s: %s; it is tried again by itself", error.code, told)  # noqa: TRY400 - the error says all
                await anyio.sleep(RETRY_S)
            else:
                return


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
                return await _line(self._stream) == "frozen"
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
    if (other := _other_kind(path)) is not None:
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
        received = await stream.receive_fds(_LINE_BYTES, _SOCKETS_MAX)
    sockets = [socket.socket(fileno=descriptor) for descriptor in received[1]]
    if not sockets:
        await stream.aclose()
        raise CapacityError(
            "UNAVAILABLE",
            "the running host handed no listening socket over",
            hint="another successor may be on its way; see the log of the running host",
        )
    return Successor(sockets, stream)


async def _line(stream: anyio.abc.UNIXSocketStream) -> str:
    """One line of the other end; empty when it has gone."""
    received = b""
    while not received.endswith(b"\n") and len(received) < _LINE_BYTES:
        try:
            received += await stream.receive(_LINE_BYTES)
        except (anyio.EndOfStream, anyio.BrokenResourceError):
            return ""
    return received.decode("ascii", "replace").strip()


def _other_kind(path: Path) -> str | None:
    """What lies there in place of a socket; None when nothing else does."""
    try:
        mode = path.lstat().st_mode
    except OSError:
        return None
    if stat.S_ISSOCK(mode):
        return None
    kind = "directory" if stat.S_ISDIR(mode) else "file" if stat.S_ISREG(mode) else "special file"
    return f"it is a {kind}, and no socket"


def _is_same_user(stream: anyio.abc.SocketStream) -> bool:
    raw = stream.extra(anyio.abc.SocketAttribute.raw_socket)  # noqa: S610  # anyio, no Django
    return peer_uid(raw) in (os.geteuid(), 0)
