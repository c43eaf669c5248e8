"""Threads for types that take overlapping calls; imported for packages that have one.

Each such type has as many threads as its concurrency says, started as calls come; so have several that one call is for,
as many as the smallest says. A call takes a slot of each of its types, so that never more overlap, whatever runs them.
Does without `threading`: imported first in another thread than the main one, it takes that one for it, and the process
waits for it at its end.
"""

from __future__ import annotations

from _queue import Empty, SimpleQueue
from _thread import start_new_thread
from time import monotonic

from hotbay_sdk._leaving import exit_code, leave

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from hotbay_sdk.protocol.events import CallReceived, NoticeReceived

    Run = Callable[[CallReceived | NoticeReceived, float], None]

FINISH_S = 10.0
"""How long a process that goes waits for its running calls: as long as the host waits for it."""


class _Crew:
    """The threads of one type, or of several at once."""

    __slots__ = ("ended", "jobs", "most", "threads")

    def __init__(self, most: int) -> None:
        self.most = most
        self.threads = 0
        self.jobs: SimpleQueue[tuple[CallReceived | NoticeReceived, float] | None] = SimpleQueue()
        self.ended: SimpleQueue[None] = SimpleQueue()


class WorkerPool:
    """Runs calls by `run` in threads of their types. `submit` is for one thread alone; `finish` follows the last one."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._crews: dict[str, _Crew] = {}

    def submit(self, name: str, most: int, event: CallReceived | NoticeReceived, received: float) -> None:
        """Let one of the `most` threads of this name answer the call."""
        crew = self._crews.get(name)
        if crew is None:
            crew = self._crews[name] = _Crew(most)
        crew.jobs.put((event, received))
        if crew.threads < crew.most:
            crew.threads += 1
            start_new_thread(self._work, (crew,))

    def finish(self) -> None:
        """Answer what was submitted, then end the threads; waits for a bounded time."""
        for crew in self._crews.values():
            for _ in range(crew.threads):
                crew.jobs.put(None)
        deadline = monotonic() + FINISH_S
        for crew in self._crews.values():
            for _ in range(crew.threads):
                try:
                    crew.ended.get(timeout=max(0.0, deadline - monotonic()))
                except Empty:
                    return

    def _work(self, crew: _Crew) -> None:
        while True:
            job = crew.jobs.get()
            if job is None:
                crew.ended.put(None)
                return
            try:
                self._run(*job)
            except SystemExit as leaving:
                leave(exit_code(leaving), "")
