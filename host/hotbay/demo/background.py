"""A process that runs beside the demo: in a session of its own, its output in a file, stopped with a grace.

Standard error goes to the log file, so that no pipe of it ever fills up; standard output is a pipe that is read once.
"""

import asyncio
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import anyio

__all__ = ["Background"]

_LINE_BYTES: Final = 4096
_TAIL_CHARACTERS: Final = 2000
_KILL_WAIT_S: Final = 2.0


class Background:
    """One started process."""

    def __init__(self, process: "subprocess.Popen[bytes]", log: Path) -> None:
        self.log = log
        self._process = process

    @classmethod
    def start(cls, command: Sequence[str], log: Path, environment: Mapping[str, str]) -> "Background":
        """Start the process and return at once."""
        with log.open("wb") as opened:
            process = subprocess.Popen(  # noqa: S603  # the interpreter that runs us and modules of ours
                list(command),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=opened,
                start_new_session=True,
                env=dict(environment),
            )
        return cls(process, log)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the process has not been seen to end."""
        return self._process.poll() is None

    @property
    def exit_code(self) -> int | None:
        return self._process.poll()

    @property
    def log_tail(self) -> str:
        """The end of what it wrote to standard error."""
        return self.log.read_text(errors="replace")[-_TAIL_CHARACTERS:].strip()

    async def first_line(self) -> bytes:
        """The first line of standard output; empty when it ended without one. Call once."""
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        line = b""
        while not line.endswith(b"\n") and len(line) < _LINE_BYTES:
            await _readable(descriptor)
            chunk = os.read(descriptor, _LINE_BYTES)
            if not chunk:
                return b""
            line += chunk
        return line

    def kill(self) -> None:
        """SIGKILL it, as a crash would; `stop` still has to be called."""
        if self.running:
            self._process.kill()

    async def stop(self, grace_s: float) -> None:
        """SIGTERM, a grace, SIGKILL; returns when the process is reaped. May be called again."""
        with anyio.CancelScope(shield=True):
            if self.running:
                self._process.terminate()
                if not await self._exited_within(grace_s):
                    with suppress(ProcessLookupError):
                        self._process.send_signal(signal.SIGKILL)
                    await self._exited_within(_KILL_WAIT_S)
        if self._process.stdout is not None:
            self._process.stdout.close()

    async def _exited_within(self, timeout_s: float) -> bool:
        descriptor = os.pidfd_open(self._process.pid)
        try:
            with anyio.move_on_after(timeout_s):
                await _readable(descriptor)
        finally:
            os.close(descriptor)
        return not self.running


async def _readable(descriptor: int) -> None:
    """Wait until the descriptor can be read; anyio's own wait refuses a pidfd under some loops."""
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(descriptor, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(descriptor)
