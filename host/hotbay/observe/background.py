"""What runs beside requests for as long as the host does: a fault of the host's own code in it is told, and ends nothing else.

This is the named boundary around such tasks. What one raises is in the log with its traceback, in a counter, and for a
while among the host's problems; the task begins again, later each time. This holds for an `IllegalTransition`, too, which
nothing but such a boundary catches: it is to be known, and requests that have no part in it are not to end for it.
"""

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

import anyio

from hotbay.errors import Problem

logger = logging.getLogger(__name__)

__all__ = ["Background"]

FIRST_S: Final = 0.5
FACTOR: Final = 2.0
MAX_S: Final = 60.0
"""Pauses before a task begins again: a fault that stays costs a traceback a minute."""
STEADY_S: Final = 120.0
"""A task that ran so long before it broke begins again with the first pause."""
SHOWN_S: Final = 600.0
"""How long after the last fault a task is among the host's problems."""


@dataclass(frozen=True, slots=True)
class _Broken:
    count: int
    text: str
    at_s: float


class Background:
    """See the module. `counted` is told the name of a task that broke; `now` is monotonic seconds.

    Names of tasks are few and the same in every run. Calls may overlap, for one name too.
    """

    def __init__(
        self,
        counted: Callable[[str], None] = lambda _task: None,
        *,
        now: Callable[[], float] = anyio.current_time,
        sleep: Callable[[float], Awaitable[None]] = anyio.sleep,
    ) -> None:
        self._counted = counted
        self._now = now
        self._sleep = sleep
        self._broken: dict[str, _Broken] = {}

    async def keep(self, task: str, work: Callable[[], Awaitable[object]]) -> None:
        """Run `work` until it returns; begin it again after it raised."""
        pause_s = FIRST_S
        while True:
            began_s = self._now()
            if await self.guard(task, work):
                return
            if self._now() - began_s >= STEADY_S:
                pause_s = FIRST_S
            await self._sleep(pause_s)
            pause_s = min(pause_s * FACTOR, MAX_S)

    async def guard(self, task: str, work: Callable[[], Awaitable[object]]) -> bool:
        """Run `work` once; False when it raised."""
        try:
            await work()
        except Exception as error:
            # The boundary around background tasks: see the module.
            logger.exception("task_failed task=%s", task)
            self._note(task, error)
            return False
        return True

    def problems(self) -> tuple[Problem, ...]:
        """The tasks that broke lately."""
        now_s = self._now()
        return tuple(
            Problem(
                "INTERNAL",
                f"the host's own task '{task}' failed, {broken.count} times by now, the last time with {broken.text}",
                hint="it was begun again; the host's log has the traceback: report it",
            )
            for task, broken in self._broken.items()
            if now_s - broken.at_s < SHOWN_S
        )

    def _note(self, task: str, error: Exception) -> None:
        before = self._broken.get(task)
        text = f"{type(error).__name__}: {error}"[:200]
        self._broken[task] = _Broken(1 + (before.count if before is not None else 0), text, self._now())
        self._counted(task)
