"""What both ends share: the lines that they say, and what may lie where the socket is."""

import stat
from pathlib import Path
from typing import Final

import anyio
import anyio.abc

__all__ = ["HANDOVER_SOCKET", "LINE_BYTES", "line", "other_kind"]

HANDOVER_SOCKET: Final = "handover.sock"
"""In the state directory."""
LINE_BYTES: Final = 64


async def line(stream: anyio.abc.UNIXSocketStream) -> str:
    """One line of the other end; empty when it has gone."""
    received = b""
    while not received.endswith(b"\n") and len(received) < LINE_BYTES:
        try:
            received += await stream.receive(LINE_BYTES)
        except (anyio.EndOfStream, anyio.BrokenResourceError):
            return ""
    return received.decode("ascii", "replace").strip()


def other_kind(path: Path) -> str | None:
    """What lies there in place of a socket; None when nothing else does."""
    try:
        mode = path.lstat().st_mode
    except OSError:
        return None
    if stat.S_ISSOCK(mode):
        return None
    kind = "directory" if stat.S_ISDIR(mode) else "file" if stat.S_ISREG(mode) else "special file"
    return f"it is a {kind}, and no socket"
