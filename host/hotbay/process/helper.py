"""A helper process of the host's own: Python over a module of the host, spoken to over its standard input and output.

It ends with the host: by the kernel's parent-death signal, which it sets for itself, and at the end of its input. Its
standard error is the host's. Invariants: started from the main thread, because that signal fires when the thread that
forked ends; reaped by this object only; the descriptors here are the host's ends, non-blocking and inherited by nothing.
"""

import asyncio
import os
import signal
import subprocess
import sys
import threading
from typing import Final

import anyio

__all__ = ["Helper"]

_KILL_TIMEOUT_S: Final = 5.0
"""How long a process may take to go after SIGKILL; longer means that the kernel holds it."""


class Helper:
    """One running or ended helper. `write_fd` is its input, `read_fd` its output; `close` ends it. For the loop's thread.

    The module's main function gets the number of the parent's process as its one argument.
    """

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self.pid = process.pid
        self.write_fd = process.stdin.fileno()
        self.read_fd = process.stdout.fileno()
        self._process = process
        for fd in (self.write_fd, self.read_fd):
            os.set_blocking(fd, False)

    @classmethod
    def start(cls, module: str) -> "Helper":
        """Start it and return at once. Raises `OSError` when the machine has no process or descriptor to give."""
        assert threading.current_thread() is threading.main_thread(), "helpers are started from the main thread"
        process = subprocess.Popen(  # noqa: S603 - no shell; the interpreter that runs the host, and a module of it
            [sys.executable, "-m", module, str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
        )
        return cls(process)

    async def close(self, grace_s: float) -> str:
        """Close its input, wait, kill it if it does not go; how it ended. Shielded. Call once, with no reader on its ends."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with anyio.CancelScope(shield=True):
            self._process.stdin.close()
            self._process.stdout.close()
            if not await self._ended_within(grace_s):
                self._process.send_signal(signal.SIGKILL)
                await self._ended_within(_KILL_TIMEOUT_S)
        code = self._process.poll()
        if code is None:
            return "not at all"
        return f"exit code {code}" if code >= 0 else f"signal {-code}"

    async def _ended_within(self, timeout_s: float) -> bool:
        if self._process.poll() is not None:
            return True
        loop, ended = asyncio.get_running_loop(), asyncio.Event()
        descriptor = os.pidfd_open(self.pid)
        loop.add_reader(descriptor, ended.set)
        try:
            with anyio.move_on_after(timeout_s):
                await ended.wait()
        finally:
            loop.remove_reader(descriptor)
            os.close(descriptor)
        return self._process.poll() is not None
