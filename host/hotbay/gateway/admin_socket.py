"""The admin interface's Unix socket: who may connect, and the two ends.

The file is made aside with mode 0600 and renamed to its name, so that there is no moment in which others may connect,
and so that a successor takes the name over while its predecessor still answers. The kernel names the user at the other
end: the host's own and root are let in. Paths are reached through their folder's descriptor, because the kernel takes
no more than 107 bytes for a socket's name.
"""

import errno
import os
import socket
import stat
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hotbay.errors import InputError, Problem

__all__ = ["BoundSocket", "bind_private", "connect_private", "peer_uid", "reachable"]

_BACKLOG: Final = 64
_CREDENTIALS: Final = struct.Struct("3i")
_TIMEVAL: Final = struct.Struct("@ll")


@dataclass(frozen=True, slots=True)
class BoundSocket:
    """A listening socket, and the file that is its name."""

    listener: socket.socket
    path: Path
    inode: int

    def close(self) -> None:
        """Stop listening, and remove the file unless another host has taken the name over."""
        self.listener.close()
        try:
            if self.path.lstat().st_ino == self.inode:
                self.path.unlink()
        except FileNotFoundError:
            pass


def bind_private(path: Path) -> BoundSocket:
    """Listen at `path` for this user alone, in place of a socket that is there. Blocks.

    Raises:
        InputError: the path cannot be used, or something else than a socket is there.
    """
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        if path.exists() and not stat.S_ISSOCK(path.lstat().st_mode):
            raise _unusable(path, "something else than a socket is there")
        with reachable(path.with_name(f".{path.name}.{os.getpid()}")) as aside:
            Path(aside).unlink(missing_ok=True)
            listener.bind(aside)
            Path(aside).chmod(0o600)
            listener.listen(_BACKLOG)
            inode = Path(aside).lstat().st_ino
            Path(aside).rename(path)
    except OSError as error:
        listener.close()
        raise _unusable(path, error.strerror or str(error)) from error
    except InputError:
        listener.close()
        raise
    listener.setblocking(False)
    return BoundSocket(listener, path, inode)


def connect_private(path: Path, timeout_s: float) -> socket.socket:
    """Connect to a host's socket, whose queue may be full for a moment. Blocks.

    Raises `OSError` when nobody answers there: `BlockingIOError` when the queue stays full.
    """
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        # The kernel waits for room in the queue (unix(7)) only where the socket blocks; a timeout of Python's does not.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _TIMEVAL.pack(*_timeval(timeout_s)))
        with reachable(path) as name:
            _connect(connection, name, time.monotonic() + timeout_s)
        connection.settimeout(timeout_s)
    except OSError:
        connection.close()
        raise
    return connection


def _connect(connection: socket.socket, name: str, deadline: float) -> None:
    """Connect, and again when a signal cut the wait for room short: Python takes the socket for connected then."""
    while True:
        connection.connect(name)
        try:
            connection.getpeername()
        except OSError as error:
            if error.errno != errno.ENOTCONN:
                raise
            if time.monotonic() >= deadline:
                raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN)) from error
        else:
            return


def _timeval(seconds: float) -> tuple[int, int]:
    return int(seconds), int(seconds % 1 * 1_000_000)


def peer_uid(connection: socket.socket) -> int:
    """The user at the other end, as the kernel saw it when it connected."""
    given = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    _, uid, _ = _CREDENTIALS.unpack(given)
    return int(uid)


@contextmanager
def reachable(path: Path) -> Iterator[str]:
    """A short name of `path` that holds inside the block."""
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


def _unusable(path: Path, why: str) -> InputError:
    hint = "set listen.admin to a path in a folder that the host's user may write"
    return InputError([Problem("CONFIG_INVALID", f"cannot listen at {path}: {why}", path="listen.admin", hint=hint)])
