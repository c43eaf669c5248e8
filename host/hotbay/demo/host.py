"""The demo's host: `hotbay run` as a process of its own, looked at through its pages like by any operator.

It is a process of its own so that the clients' work does not slow the gateway down, and so that the plugins that are
killed are those of a host that knows nothing of the demo.
"""

import http.client
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar
from urllib.parse import urlsplit

import anyio
import anyio.to_thread

from hotbay.demo.background import Background
from hotbay.demo.configuration import ADMIN, STATE
from hotbay.demo.gauges import Counters, GaugeError, HostStatus, read_counters, read_status
from hotbay.errors import CapacityError
from hotbay.gateway.admin_connection import AdminConnection

__all__ = ["HostProcess"]

W = TypeVar("W")

READY_TIMEOUT_S: Final = 90.0
"""Three environments are built and three interpreters started on a machine that may have one free core."""

STOP_GRACE_S: Final = 15.0
PAGE_TIMEOUT_S: Final = 10.0
_LOOK_INTERVAL_S: Final = 0.05
_SERVES: Final = re.compile(r"hotbay serves on (http://\S+)")
_TETHER: Final = str(Path(__file__).with_name("tether.py"))


class HostProcess:
    """One running host. `url` is known once `wait_ready` has returned."""

    def __init__(self, process: Background, admin: Path) -> None:
        self.url = ""
        self._admin = admin
        self._process = process

    @classmethod
    def start(cls, config: Path, log: Path, *, home: Path, parent: int) -> "HostProcess":
        """Start the process and return at once. It keeps everything below `home` and dies with `parent`."""
        command = [sys.executable, _TETHER, str(parent), sys.executable, "-m", "hotbay.cli", "run", "-c", str(config)]
        environment = {"LANG": "C.UTF-8", "PATH": "/usr/bin:/bin", "HOME": str(home), "OMP_NUM_THREADS": "1"}
        return cls(Background.start(command, log, environment), config.parent / STATE / ADMIN)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def log_tail(self) -> str:
        return self._process.log_tail

    async def wait_ready(self, timeout_s: float = READY_TIMEOUT_S) -> HostStatus:
        """Return when it serves and every plugin answers.

        Raises:
            CapacityError: it ended, or was not ready in time; says what it waits for.
        """
        status: HostStatus | None = None
        with anyio.move_on_after(timeout_s):
            while not self.url:
                self._find_url()
                await anyio.sleep(_LOOK_INTERVAL_S)
            while True:
                status = await self.status()
                if status.whole:
                    return status
                await anyio.sleep(_LOOK_INTERVAL_S)
        raise self._failure(f"was not ready within {timeout_s:g} s", status)

    def _find_url(self) -> None:
        if not self._process.running:
            raise self._failure("ended")
        found = _SERVES.search(self._process.log.read_text(errors="replace"))
        if found is not None:
            self.url = found[1]

    async def status(self) -> HostStatus:
        """The status page now. Raises `CapacityError` when the host does not answer."""
        return read_status(await self._page("/status", _fetch_status, self._admin))

    async def counters(self) -> Counters:
        """The metrics page now. Raises `CapacityError` when the host does not answer."""
        return read_counters(await self._page("/metrics", _fetch, self.url))

    async def _page(self, path: str, fetch: Callable[[W, str], bytes], at: W) -> bytes:
        try:
            return await anyio.to_thread.run_sync(fetch, at, path)
        except (OSError, http.client.HTTPException, GaugeError) as error:
            raise self._failure(f"does not answer {path}: {error!r}") from error

    async def stop(self) -> None:
        """SIGTERM, a grace for draining, SIGKILL. May be called again."""
        await self._process.stop(STOP_GRACE_S)

    def _failure(self, what: str, status: HostStatus | None = None) -> CapacityError:
        waits = [f"{p.plugin} is {p.phase} ({p.last_error})" for p in status.plugins if p.pid is None] if status else []
        waits += list(status.problems) if status else []
        why = "; ".join(waits) or self.log_tail or "it wrote nothing to its log"
        return CapacityError(
            "UNAVAILABLE",
            f"the demo's host (pid {self.pid}) {what}: {why}",
            hint="On a busy machine, try again; otherwise look for the first error above.",
        )


def _fetch(url: str, path: str) -> bytes:
    parts = urlsplit(url)
    return _read(http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=PAGE_TIMEOUT_S), path)


def _fetch_status(admin: Path, path: str) -> bytes:
    return _read(AdminConnection(admin, PAGE_TIMEOUT_S), path)


def _read(connection: http.client.HTTPConnection, path: str) -> bytes:
    try:
        connection.request("GET", path)
        return connection.getresponse().read()
    finally:
        connection.close()
