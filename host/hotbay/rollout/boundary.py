"""The tasks of one routine, in a group that it shares with others: what one of them raises stays the routine's own.

This is the named boundary around a routine: a fault of the host's own code in it ends the routine, which begins anew,
and neither the host nor another plugin.
"""

from collections.abc import Awaitable, Callable
from typing import Final, TypeVarTuple, Unpack

import anyio
import anyio.abc

__all__ = ["BROKEN_CODE", "Tasks"]

Ts = TypeVarTuple("Ts")

BROKEN_CODE: Final = "INTERNAL"
"""Of the error that status shows of a routine that broke: as of all faults that are the host's own."""


class Tasks:
    """See the module. `broke` is told what a task raises; it must not raise."""

    def __init__(self, group: anyio.abc.TaskGroup, broke: Callable[[Exception], None]) -> None:
        self._group = group
        self._broke = broke
        self._count = 0
        self._ended = anyio.Event()

    def start_soon(self, work: Callable[[Unpack[Ts]], Awaitable[object]], *args: *Ts) -> None:
        """Run `work` beside all else."""
        self._count += 1
        self._group.start_soon(self._run, lambda: work(*args))

    async def _run(self, work: Callable[[], Awaitable[object]]) -> None:
        try:
            await work()
        except Exception as error:  # noqa: BLE001 - the boundary around one routine: see the module
            self._broke(error)
        finally:
            self._count -= 1
            self._ended.set()

    async def idle(self) -> None:
        """Return when none of them runs any more."""
        while self._count:
            self._ended = anyio.Event()
            await self._ended.wait()
