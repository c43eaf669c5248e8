"""Calls of the process to its host, from any of its threads, over the control link.

One lock owns the link's connection and its socket, so frames of several threads never interleave. A thread that
waits for an answer runs the nested calls that name its call as their parent. A forked child has no host.
"""

from __future__ import annotations

import os
from _thread import allocate_lock, get_ident
from time import monotonic

from hotbay_sdk._calls import RunningCall, Waiter
from hotbay_sdk._context import Host
from hotbay_sdk._errors import HostCallError
from hotbay_sdk._leaving import leave
from hotbay_sdk.protocol.connection import Connection
from hotbay_sdk.protocol.control import CallLimitError
from hotbay_sdk.protocol.events import ErrorReceived
from hotbay_sdk.protocol.messages import METHODS, CallError, ErrorCode
from hotbay_sdk.protocol.values import ValueRefusedError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _socket import socket as Socket
    from collections.abc import Callable
    from concurrent.futures import Future

    from hotbay_sdk._call_link import CallServer
    from hotbay_sdk.protocol.events import ReplyReceived
    from hotbay_sdk.protocol.values import Value

UNTIL_CANCELLED_S = 86_400.0
"""Bound of a wait that the deadlines of what is waited for end."""


class HostCalls(Host):
    """The plugin's end of the control link as far as it sends. `server` runs the hot calls and is set at start.

    `beside` are calls of the data layer, by the thread that runs each.
    """

    server: CallServer

    def __init__(self, control: Socket, connection: Connection) -> None:
        self._control = control
        self._waiters: dict[int, Waiter] = {}
        self._refused: dict[int, CallError] = {}
        self._pid = os.getpid()
        self.beside: dict[int, RunningCall] = {}
        self.connection = connection
        self.owning = allocate_lock()

    def send(self, make: Callable[[], bytes]) -> None:
        """Make a frame and write it, from any thread. A host that is gone ends the process."""
        with self.owning:
            self.write(make())

    def write(self, frame: bytes) -> None:
        """Write a frame while `owning` is held."""
        try:
            self._control.sendall(frame)
        except ConnectionError:
            leave(0, "")

    # -- what instances ask ----------------------------------------------------------------------

    def cancelled(self) -> bool:
        """Whether nobody waits for the call that this thread runs any more."""
        beside = self.beside.get(get_ident()) if self.beside else None
        return self.server.cancelled() if beside is None else beside.over

    def call_with_descriptors(self, method: int, *args: object) -> tuple[Value, tuple[int, ...]]:
        """Make a host call; its result, and the descriptors that came with it. Raises `HostCallError`."""
        if os.getpid() != self._pid:
            raise HostCallError(str(ErrorCode.UNAVAILABLE), "a forked process has no link to the host")
        refused = self._refused.get(method)
        if refused is not None:
            raise HostCallError(str(refused.code), refused.message)
        running = self.server.running()
        deadline = monotonic() + METHODS[method].deadline_ms / 1e3
        if running is not None:
            if running.over:
                raise _over()
            deadline = min(deadline, running.deadline)
        waiter = self.server.waiter()
        stream = self._begin(method, args, running, waiter, deadline)
        self._await(waiter, running, deadline)
        if not waiter.done:
            self._give_up(stream, "cancelled" if running is not None and running.over else "deadline")
        if not waiter.done:
            if running is not None and running.over:
                raise _over()
            raise HostCallError(str(ErrorCode.DEADLINE_EXCEEDED), "the host did not answer in time")
        outcome = waiter.outcome
        if isinstance(outcome, CallError):
            if outcome.code is ErrorCode.UNAVAILABLE and "grant" in outcome.details:
                # Grants hold for the life of a process: a handler that asks each time costs its host nothing.
                self._refused[method] = outcome
            raise HostCallError(str(outcome.code), outcome.message)
        return outcome  # type: ignore[return-value]  # what `settle` gave

    def outcomes(self, future: Future[list[object]]) -> list[object] | None:
        """Wait for what async methods make; None when the hot call that waits was cancelled."""
        waiter = self.server.waiter()
        future.add_done_callback(lambda _: waiter.finish(None))
        self._await(waiter, self.server.running(), monotonic() + UNTIL_CANCELLED_S)
        return future.result() if waiter.done else None

    def _begin(
        self, method: int, args: tuple[object, ...], running: RunningCall | None, waiter: Waiter, deadline: float
    ) -> int:
        deadline_us = max(1, int((deadline - monotonic()) * 1e6))
        parent = 0 if running is None else running.stream
        with self.owning:
            try:
                stream, frame = self.connection.start_call(method, args, deadline_us=deadline_us, parent=parent)
            except CallLimitError as error:
                raise HostCallError(str(ErrorCode.RESOURCE_EXHAUSTED), str(error)) from error
            except ValueRefusedError as error:
                raise HostCallError(str(ErrorCode.BAD_RESULT), f"an argument cannot cross: {error}") from error
            self._waiters[stream] = waiter
            self.write(frame)
        return stream

    def _await(self, waiter: Waiter, running: RunningCall | None, deadline: float) -> None:
        if running is None:
            self.server.wait(waiter, None, deadline)
            return
        before, running.on_cancel = running.on_cancel, waiter.interrupt
        try:
            self.server.wait(waiter, running, deadline)
        finally:
            running.on_cancel = before

    def _give_up(self, stream: int, reason: str) -> None:
        """Cancel a call, unless its answer came just now."""
        with self.owning:
            if self._waiters.pop(stream, None) is not None:
                self.write(self.connection.cancel(stream, reason))

    # -- what the control thread finds -----------------------------------------------------------

    def settle(self, event: ReplyReceived | ErrorReceived, descriptors: tuple[int, ...]) -> None:
        """Give an answer to the thread that waits for it."""
        with self.owning:
            waiter = self._waiters.pop(event.stream, None)
            if waiter is not None:
                waiter.finish(event.error if isinstance(event, ErrorReceived) else (event.result, descriptors))
                return
        close_all(descriptors)

    def waits_for(self, stream: int) -> Waiter | None:
        """Who waits for the host call that a nested call names as its parent."""
        return self._waiters.get(stream)


def close_all(descriptors: tuple[int, ...]) -> None:
    """Close descriptors that nobody wants."""
    for descriptor in descriptors:
        os.close(descriptor)


def _over() -> HostCallError:
    return HostCallError(str(ErrorCode.CANCELLED), "the call that asks is over: nobody waits for its answer")
