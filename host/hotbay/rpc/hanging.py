"""What is asked of a process that hangs before it is given up: where it hangs, for the person who has to find out.

First its control thread is asked for the stacks, which it writes into the log, and for its table of calls. One that does not
answer, because C code holds the interpreter, gets a signal whose handler writes the stacks. Then it is given up,
with an answer or without.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final

from hotbay_sdk.protocol import Value

from hotbay.errors import HostError, PluginFault
from hotbay.rpc.wire import Outcome

logger = logging.getLogger(__name__)

BUNDLE_S: Final = 0.5
"""What the answer may take, and after the signal the writing of the stacks."""
MAX_CALLS: Final = 32
"""Calls that are told of."""


class HangBundle:
    """Gives one process up, at most once.

    Args:
        label: of the process.
        ask: sends DUMP_STATE and gives what is answered; raises `HostError` when it cannot be sent.
        ask_stacks: sends the signal, where there is somebody who can.
        in_flight: the host's own table of calls without an answer.
        figures: what the process said of itself last.
        lost: ends the process.
    """

    def __init__(
        self,
        label: str,
        *,
        ask: Callable[[Callable[[Outcome], None]], None],
        ask_stacks: Callable[[], None] | None,
        in_flight: Callable[[], Sequence[Mapping[str, object]]],
        figures: Callable[[], Mapping[str, int | float]],
        lost: Callable[[HostError], None],
    ) -> None:
        self._label = label
        self._loop = asyncio.get_running_loop()
        self._ask = ask
        self._ask_stacks = ask_stacks
        self._in_flight = in_flight
        self._figures = figures
        self._lost = lost
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, what: str) -> None:
        """Ask, then give the process up because of `what`. Idempotent."""
        if self._timer is None:
            self._timer = self._loop.call_later(BUNDLE_S, self._force, what)
            # A link that cannot be written is no reason to wait: the signal still is.
            with suppress(HostError):
                self._ask(lambda outcome: self._answered(what, outcome))

    def stop(self) -> None:
        """Ask no more; the process is gone."""
        if self._timer is not None:
            self._timer.cancel()

    def _answered(self, what: str, outcome: Outcome) -> None:
        if not isinstance(outcome, HostError):
            self._give_up(what, outcome)

    def _force(self, what: str) -> None:
        if self._ask_stacks is None:
            self._give_up(what, None)
            return
        self._ask_stacks()
        self._timer = self._loop.call_later(BUNDLE_S, self._give_up, what, None)

    def _give_up(self, what: str, said: Value) -> None:
        calls = list(self._in_flight())[:MAX_CALLS]
        logger.warning("plugin_hangs plugin=%s reason=%r in_flight=%s said=%.2000r", self._label, what, calls, said)
        self._lost(
            PluginFault(
                "DEADLINE_EXCEEDED",
                f"{self._label} {what}",
                hint="a handler of the plugin hangs, the stacks are in its log; the process is replaced",
                details={**self._figures(), "calls": calls},
            )
        )
