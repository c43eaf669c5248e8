"""Whether one process hangs: pings that it leaves unanswered, calls that it sits on; and what is asked of it before it goes."""

from collections.abc import Callable, Mapping
from functools import partial

from hotbay_sdk.protocol import Method, Value

from hotbay.errors import HostError
from hotbay.rpc.calling import Calls
from hotbay.rpc.hanging import BUNDLE_S, HangBundle
from hotbay.rpc.liveness import Liveness, Patience
from hotbay.rpc.wire import Outcome, calls_in_flight

__all__ = ["Suspicion"]


class Suspicion:
    """Watches from `start` to `stop`. `lost` is told once of a process that hangs.

    `ask_stacks` makes a process that answers nothing write its stacks, where there is somebody who can.
    """

    def __init__(
        self,
        calls: Calls,
        label: str,
        patience: Patience,
        *,
        ask_stacks: Callable[[], None] | None,
        lost: Callable[[HostError], None],
    ) -> None:
        self._calls = calls
        self._patience = patience
        self._bundle = HangBundle(
            label,
            ask=self._ask_where,
            ask_stacks=ask_stacks,
            in_flight=partial(calls_in_flight, (calls.hot, calls.control)),
            figures=lambda: self.figures,
            lost=lost,
        )
        self._liveness = Liveness(patience, send=self._ping, pending_s=calls.pending_s, silent=self._on_silent)

    @property
    def figures(self) -> Mapping[str, int | float]:
        """What the process last said of itself: calls in flight, age of the oldest, memory, CPU. Its own word."""
        return self._liveness.figures

    def start(self) -> None:
        """Begin with the pings. Once."""
        self._liveness.start()

    def answered(self, token: int, facts: Value) -> None:
        """A ping was answered."""
        self._liveness.answered(token, facts)

    def stop(self) -> None:
        """The process is gone, or is being ended."""
        self._liveness.stop()
        self._bundle.stop()

    def stuck(self) -> None:
        """It still sits on a call, long after the call's deadline or end."""
        self._hangs(f"still had not answered a call {self._patience.stuck_s:g} s after its deadline or its end")

    def _on_silent(self) -> None:
        self._hangs(f"answered no ping for {self._patience.ping_s:g} s")

    def _hangs(self, what: str) -> None:
        if self._calls.fault is None:
            self._bundle.begin(what)

    def _ask_where(self, answered: Callable[[Outcome], None]) -> None:
        self._calls.start(self._calls.control, Method.DUMP_STATE, [], BUNDLE_S, answered)

    def _ping(self, token: int) -> None:
        control = self._calls.control
        if not control.full:
            control.write(control.connection.send_ping(token))
