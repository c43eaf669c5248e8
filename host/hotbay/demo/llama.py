"""Starts and stops real llama.cpp servers, each a process of its own in a session of its own.

A server is ready when it said so on its standard output and `/health` answered 200. What it writes to standard error
goes to a file, so that no pipe of it ever fills up.
"""

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import anyio

from hotbay.demo.background import Background
from hotbay.errors import CapacityError

__all__ = ["LlamaServer", "LlamaSpec"]

READY_TIMEOUT_S: Final = 60.0
"""A large model on a busy machine; a tiny one takes a tenth of a second."""

_STOP_GRACE_S: Final = 2.0
_HEALTH_INTERVAL_S: Final = 0.02
_HEALTHY: Final = (b"HTTP/1.1 200", b"HTTP/1.0 200")
_ENVIRONMENT: Final = {"LANG": "C.UTF-8", "PATH": "/usr/bin", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


@dataclass(frozen=True, slots=True)
class LlamaSpec:
    """What to serve and how. Port 0 takes a free one; `log` gets the server's standard error.

    `nice` is added to the process's niceness, 0 to 19.
    """

    model: Path
    log: Path
    alias: str = "hotbay-demo"
    port: int = 0
    slots: int = 8
    slot_context: int = 4096
    threads: int = 1
    nice: int = 0


class LlamaServer:
    """One running server. `url` is known once `wait_ready` has returned."""

    def __init__(self, process: Background, spec: LlamaSpec) -> None:
        self.spec = spec
        self.url = ""
        self._process = process

    @classmethod
    def start(cls, spec: LlamaSpec) -> "LlamaServer":
        """Start the process and return at once. Call from the main thread: the server dies with the starting thread."""
        command = [
            *(sys.executable, "-m", "hotbay.demo.llama_server", "--parent", str(os.getpid())),
            *("--model", str(spec.model), "--alias", spec.alias, "--port", str(spec.port)),
            *("--slots", str(spec.slots), "--slot-context", str(spec.slot_context), "--threads", str(spec.threads)),
            *("--nice", str(spec.nice)),
        ]
        return cls(Background.start(command, spec.log, _ENVIRONMENT), spec)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the process has not been seen to end."""
        return self._process.running

    async def wait_ready(self, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Return when requests are answered.

        Raises:
            CapacityError: it ended, or was not ready in time; carries the end of its log.
        """
        try:
            with anyio.fail_after(timeout_s):
                line = await self._process.first_line()
                if not line:
                    raise self._failure("ended before it listened")
                self.url = str(json.loads(line)["url"])
                while not await _is_healthy(self.url):  # noqa: ASYNC110  # another process has no event to wait for
                    await anyio.sleep(_HEALTH_INTERVAL_S)
        except TimeoutError as error:
            raise self._failure(f"not ready within {timeout_s:g} s") from error

    def kill(self) -> None:
        """SIGKILL it, as a crash would; `stop` still has to be called."""
        self._process.kill()

    async def stop(self) -> None:
        """SIGTERM, a grace, SIGKILL; returns when the process is reaped. May be called again."""
        await self._process.stop(_STOP_GRACE_S)

    def _failure(self, what: str) -> CapacityError:
        tail = self._process.log_tail
        return CapacityError(
            "UNAVAILABLE",
            f"llama.cpp server (pid {self.pid}) {what}: {tail or 'it wrote nothing to its log'}",
            hint=f"Read {self.spec.log}; check that {self.spec.model} loads and that memory is free.",
            details={"pid": self.pid, "exit": self._process.exit_code},
        )


async def _is_healthy(url: str) -> bool:
    host, _, port = url.removeprefix("http://").rstrip("/").rpartition(":")
    try:
        stream = await anyio.connect_tcp(host, int(port))
    except OSError:
        return False
    async with stream:
        await stream.send(f"GET /health HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
        try:
            return (await stream.receive(64)).startswith(_HEALTHY)
        except (anyio.EndOfStream, anyio.BrokenResourceError):
            return False
