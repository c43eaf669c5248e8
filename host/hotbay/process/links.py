"""Makes the pipes and the socket between host and child, both ends of each.

Invariants: no end is descriptor 0, 1 or 2, even of a host that was started without them; nothing is
inherited but by `pass_fds`; the host's ends never block, the child's do.
"""

import fcntl
import os
import socket
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Final

from hotbay.process.launch import ChannelDescriptors

PIPE_BYTES: Final = 256 * 1024
"""Asked for, not relied upon: an unprivileged user's pipes are bounded in sum."""
_FIRST_FREE_FD: Final = 3


@dataclass(frozen=True, slots=True)
class HostEnds:
    """What the host keeps. `call_in` and the two outputs are read, `call_out` is written."""

    call_in: int
    call_out: int
    control: socket.socket
    stdout: int
    stderr: int


@dataclass(frozen=True, slots=True)
class ChildEnds:
    """What the child gets."""

    channel: ChannelDescriptors
    stdout: int
    stderr: int


def open_links(host_side: ExitStack, child_side: ExitStack) -> tuple[HostEnds, ChildEnds]:
    """Make all links; each end is closed by the stack of its side. Raises OSError."""
    child_in, call_out = _pipe(child_side, host_side)
    call_in, child_out = _pipe(host_side, child_side)
    stdout, child_stdout = _pipe(host_side, child_side)
    stderr, child_stderr = _pipe(host_side, child_side)
    control, child_control = (_above_standard_socket(s) for s in socket.socketpair())
    host_side.callback(control.close)
    child_side.callback(child_control.close)
    for fd in (call_in, call_out, control.fileno(), stdout, stderr):
        os.set_blocking(fd, False)
    for fd in (call_in, call_out):
        with suppress(PermissionError):
            fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    return (
        HostEnds(call_in, call_out, control, stdout, stderr),
        ChildEnds(ChannelDescriptors(child_in, child_out, child_control.fileno()), child_stdout, child_stderr),
    )


def _pipe(read_side: ExitStack, write_side: ExitStack) -> tuple[int, int]:
    read_end, write_end = (_above_standard(fd) for fd in os.pipe())
    read_side.callback(os.close, read_end)
    write_side.callback(os.close, write_end)
    return read_end, write_end


def _above_standard(fd: int) -> int:
    if fd >= _FIRST_FREE_FD:
        return fd
    moved = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _FIRST_FREE_FD)
    os.close(fd)
    return moved


def _above_standard_socket(end: socket.socket) -> socket.socket:
    return socket.socket(fileno=_above_standard(end.detach()))
