"""A hot call while it runs, and the waiting for what other threads finish. Knows neither links nor authors' code."""

from __future__ import annotations

from _queue import Empty, SimpleQueue
from time import monotonic

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

MAX_DEPTH = 20
"""Nested calls that may stand on one thread: host calls plugin calls host, and so on."""


class RunningCall:
    """A hot call on the thread that runs it. `below` is the call that waits on the same thread meanwhile."""

    __slots__ = ("below", "cancelled", "deadline", "depth", "method", "on_cancel", "stream")

    def __init__(self, stream: int, method: int, deadline: float, below: RunningCall | None = None) -> None:
        self.stream = stream
        self.method = method
        self.deadline = deadline
        self.below = below
        self.depth: int = 0 if below is None else below.depth + 1
        self.cancelled = False
        self.on_cancel: Callable[[], None] | None = None

    @property
    def over(self) -> bool:
        """Whether nobody waits for it any more: it, or a call that caused it, is cancelled or past its deadline."""
        return self.cancelled or monotonic() >= self.deadline or (self.below is not None and self.below.over)

    def cancel(self) -> None:
        """Nobody waits for it; tell what it waits for. From any thread."""
        self.cancelled = True
        self.notify()

    def notify(self) -> None:
        """Have what it waits for look again. From any thread."""
        told = self.on_cancel
        if told is not None:
            told()


class Waiter:
    """One thread's wait for one outcome. Other threads `finish` it, `interrupt` it or give it nested jobs.

    `wake` is called when there is news, for a waiter that waits at a descriptor instead of here.
    """

    __slots__ = ("_inbox", "_wake", "done", "outcome")

    def __init__(self, wake: Callable[[], None] | None = None) -> None:
        self.done = False
        self.outcome: object = None
        self._inbox: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._wake = wake

    def finish(self, outcome: object) -> None:
        """Give the outcome. From any thread, once."""
        self.outcome = outcome
        self.done = True
        self.interrupt()

    def interrupt(self) -> None:
        """Let the waiting thread look again. From any thread."""
        self._inbox.put(None)
        if self._wake is not None:
            self._wake()

    def give(self, job: Callable[[], None]) -> None:
        """Let the waiting thread run a job. From any thread."""
        self._inbox.put(job)
        if self._wake is not None:
            self._wake()

    def run_jobs(self) -> None:
        """Run what was given, without waiting."""
        while True:
            try:
                job = self._inbox.get_nowait()
            except Empty:
                return
            if job is not None:
                job()

    def wait(self, call: RunningCall | None, deadline: float) -> None:
        """Wait until it is done, `call` is cancelled or `deadline` has passed, running jobs meanwhile."""
        while not self.done and not (call is not None and call.cancelled):
            left_s = deadline - monotonic()
            if left_s <= 0:
                return
            try:
                job = self._inbox.get(timeout=left_s)
            except Empty:
                return
            if job is not None:
                job()
