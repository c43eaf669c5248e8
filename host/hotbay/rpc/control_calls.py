"""Calls of the control link that somebody waits for, or follows: with what they pass, bring and carry beside their arguments."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from hotbay_sdk.protocol import METHODS, Method, Value

from hotbay.errors import CapacityError, HostError
from hotbay.rpc.calling import Calls
from hotbay.rpc.data import DataLink, Flow
from hotbay.rpc.memfd import duplicated
from hotbay.rpc.wire import ENDLESS_S, Outcome, Passage

__all__ = ["ControlCalls"]


class ControlCalls:
    """Of one process. Lives on the loop's thread. `label` is the process's."""

    def __init__(self, calls: Calls, data: DataLink, label: str) -> None:
        self._calls = calls
        self._data = data
        self._label = label
        self._loop = asyncio.get_running_loop()

    def share(
        self, areas: Mapping[int, int], drop: Sequence[int], done: Callable[[Outcome], None], *, writable: bool = False
    ) -> None:
        """Pass at most four areas, number → descriptor, which stay the caller's, and name areas to let go of.

        `done` gets nil once the process has them, or a `HostError`. `writable`: it writes them. Raises `HostError`, OSError.
        """
        passed, deadline_s = duplicated(tuple(areas.values())), METHODS[Method.SHARE].deadline_ms / 1e3
        try:
            args = [list(areas), list(drop), *([list(areas)] if writable else [])]
            self._calls.start(self._calls.control, Method.SHARE, args, deadline_s, done, passed=passed)
        except HostError:
            Passage(b"", passed).close()
            raise

    async def call(
        self, method: int, args: Sequence[object], *, deadline_s: float, reply_limit_bytes: int | None = None
    ) -> Value:
        """Call and wait. Raises `HostError`.

        A reply that is longer than `reply_limit_bytes`, the method's limit by default, is not kept: FRAME_TOO_LARGE.
        """
        stream, future = self._begin(method, args, deadline_s, reply_limit_bytes)
        return await self._outcome(stream, future)

    def follow(
        self, method: int, args: Sequence[object], *, came: Callable[[], None], done: Callable[[Outcome], None]
    ) -> Flow:
        """Make a call that goes on until it is cancelled, and whose data is taken as it comes.

        `came` is called when there is something to `take`; the plugin gets credit for what was taken, and sends no more
        than 64 KiB beyond. `done` gets the outcome once, when the plugin ended by itself or is gone, or gave the call up
        after `Flow.cancel`; what came before can still be taken then. A plugin that does not give it up hangs. Neither may
        raise. Raises `HostError` when the call could not be made.
        """

        def ended(outcome: Outcome) -> None:
            self._data.end(stream)
            done(outcome)

        stream = self._calls.start(self._calls.control, method, args, ENDLESS_S, ended)
        return self._data.follow(stream, came, partial(self._calls.give_up, stream))

    async def export_state(
        self, *, budget_bytes: int, deadline_s: float, versions: Mapping[str, Sequence[int]] | None = None
    ) -> bytes:
        """What the refs of this process hand to those of a successor; empty if no type has state.

        Args:
            budget_bytes: more than this is refused, and the export cancelled.
            deadline_s: seconds for the whole.
            versions: type → versions of state that the successor knows; each type then exports the newest that both
                know. None: its newest.

        Raises `HostError`. Hot calls go on meanwhile.
        """
        wanted = None if versions is None else {name: list(known) for name, known in versions.items()}
        stream, future = self._begin(Method.EXPORT_STATE, [budget_bytes, wanted], deadline_s)
        collection = self._data.collect(stream, budget_bytes, lambda: self._over_budget(stream, future, budget_bytes))
        try:
            await self._outcome(stream, future)
        finally:
            self._data.end(stream)
        return collection.taken(self._label)

    async def send_state(self, data: bytes, deadline_s: float) -> None:
        """Give the process its predecessor's state: after WELCOME, which says so, and before its refs are made.

        Raises `HostError`: the process then starts cold, and is otherwise as usable as before. Whether a ref
        imported its part is said by `configure`.
        """
        stream, future = self._begin(Method.IMPORT_STATE, [len(data)], deadline_s)
        self._data.send(stream, data)
        try:
            await self._outcome(stream, future)
        finally:
            self._data.end(stream)

    def _begin(
        self, method: int, args: Sequence[object], deadline_s: float, reply_limit_bytes: int | None = None
    ) -> tuple[int, "asyncio.Future[Outcome]"]:
        future: asyncio.Future[Outcome] = self._loop.create_future()

        def done(outcome: Outcome) -> None:
            if not future.done():
                future.set_result(outcome)

        return self._calls.start(self._calls.control, method, args, deadline_s, done, None, reply_limit_bytes), future

    async def _outcome(self, stream: int, future: "asyncio.Future[Outcome]") -> Value:
        try:
            outcome = await future
        except asyncio.CancelledError:
            self._calls.cancel(self._calls.control, stream, "cancelled")
            raise
        if isinstance(outcome, HostError):
            raise outcome
        return outcome

    def _over_budget(self, stream: int, future: "asyncio.Future[Outcome]", budget_bytes: int) -> None:
        self._calls.cancel(self._calls.control, stream, "over budget")
        if not future.done():
            message = f"{self._label} has more state than the {budget_bytes} bytes of its budget"
            future.set_result(CapacityError("RESOURCE_EXHAUSTED", message))
