"""Notices a process that gives no sign of life: pings on the control link, one at a time.

The plugin's control thread answers them whatever its handlers do, so a busy plugin answers and a stuck
one does not. A C loop that holds the GIL looks stuck for as long as it runs: patience is longer than
that, and waits once more for the calls that are still within their deadlines.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from hotbay_sdk.protocol import Value

FIGURES: Final = ("in_flight", "oldest_ms", "rss_bytes", "cpu_ms")
"""What a PONG says of the process; anything else in it is dropped."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a process may be silent before it is suspect and replaced, in seconds.

    Args:
        stuck_s: what a hot call may go on for after its deadline: it answers nobody else meanwhile.
        ping_interval_s: from an answer to the next ping.
        ping_s: what an answer to a ping may take. C code was seen to hold the GIL for 20 s.
    """

    stuck_s: float = 10.0
    ping_interval_s: float = 5.0
    ping_s: float = 30.0


class Liveness:
    """Pings from `start` to `stop`. `send(token)` writes a ping, `pending_s()` is the time that calls still have."""

    __slots__ = (
        "_awaiting",
        "_extended",
        "_loop",
        "_patience",
        "_pending_s",
        "_send",
        "_silent",
        "_timer",
        "_token",
        "figures",
    )

    def __init__(
        self,
        patience: Patience,
        *,
        send: Callable[[int], None],
        pending_s: Callable[[], float],
        silent: Callable[[], None],
    ) -> None:
        self.figures: Mapping[str, int | float] = {}
        self._patience = patience
        self._send = send
        self._pending_s = pending_s
        self._silent = silent
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._token = 0
        self._awaiting = False
        self._extended = False

    def start(self) -> None:
        """Begin with a ping at once. Once only."""
        if self._timer is None and self._token == 0:
            self._ping()

    def stop(self) -> None:
        """Send no more pings and expect no answer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def answered(self, token: int, facts: Value) -> None:
        """Take a PONG; one that answers no outstanding ping is dropped."""
        if token != self._token or not self._awaiting or self._timer is None:
            return
        self._awaiting = False
        if isinstance(facts, dict):
            found = {name: facts.get(name) for name in FIGURES}
            self.figures = {name: value for name, value in found.items() if isinstance(value, int | float)}
        self._timer.cancel()
        self._timer = self._loop.call_later(self._patience.ping_interval_s, self._ping)

    def _ping(self) -> None:
        self._token += 1
        self._awaiting = True
        self._extended = False
        self._timer = self._loop.call_later(self._patience.ping_s, self._expired)
        self._send(self._token)

    def _expired(self) -> None:
        pending_s = self._pending_s()
        if pending_s > 0 and not self._extended:
            self._extended = True
            self._timer = self._loop.call_later(pending_s, self._expired)
            return
        self._timer = None
        self._silent()
