"""The host's end: gives its place to the successor that asks for it, and takes it back from one that fails."""

import contextlib
import errno
import logging
import os
import socket
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final, Protocol

import anyio
import anyio.abc

from hotbay.errors import HostError, Problem
from hotbay.gateway.admin_socket import peer_uid, reachable
from hotbay.handover.ends import line, other_kind
from hotbay.observe.background import Background
from hotbay.passing import PassingOn

logger = logging.getLogger(__name__)

__all__ = ["HandoverServer", "Predecessor"]

ASKED_WITHIN_S: Final = 2.0
"""For a successor to ask for the place: it does so at once, and who asks for nothing keeps others away until then."""
RETRY_S: Final = 0.5
"""Until the state directory is asked for again: a successor that was killed still holds it for a moment, and one that
was replaced by a third host for longer."""
# After an accept that failed for want of descriptors: it fails again at once until one is free.
_ACCEPT_PAUSE_S: Final = 0.2
START_TIMEOUT_S: Final = 300.0
"""For a successor to serve: it starts every plugin first, and may have environments to build."""


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
        if (other := other_kind(self._path)) is not None:
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
            asked = await line(stream)
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
                serving = await line(stream) == "serving"
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


def _is_same_user(stream: anyio.abc.SocketStream) -> bool:
    raw = stream.extra(anyio.abc.SocketAttribute.raw_socket)  # noqa: S610  # anyio, no Django
    return peer_uid(raw) in (os.geteuid(), 0)
