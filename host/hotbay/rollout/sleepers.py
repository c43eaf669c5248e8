"""Which plugins sleep until a request needs them, and when those that idle fall asleep again.

A plugin with a parser does not sleep: what would wake it is a request that nobody has read.
A plugin that a request woke counts as asleep, for the plan, until it answers or its start failed: requests wait for
it meanwhile.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

import anyio

from hotbay.rollout.routine import Routine
from hotbay.rollout.services import Services
from hotbay.rollout.state import Phase
from hotbay.rollout.turn import RESTING

__all__ = ["Sleepers"]

LOOK_S: Final = 0.25


@dataclass(slots=True)
class _Use:
    calls: int
    since_s: float


class Sleepers:
    """See the module. `routines` gives name and routine of all."""

    def __init__(self, services: Services, routines: Callable[[], Iterable[tuple[str, Routine]]]) -> None:
        self._services = services
        self._routines = routines
        self._awake: set[str] = set()
        self._uses: dict[str, _Use] = {}

    def is_asleep(self, name: str) -> bool:
        """Whether no process of the plugin is to run now."""
        return self._may_sleep(name) and name not in self._awake

    def _may_sleep(self, name: str) -> bool:
        return self._services.settings(name).first_use and not self._services.deployment.parses(name)

    def wake(self, name: str) -> bool:
        """A request needs the plugin. True when that is news."""
        if not self.is_asleep(name):
            return False
        self._awake.add(name)
        return True

    def show(self) -> None:
        """Let the plan say who has to be woken."""
        asleep = [name for name, routine in self._routines() if self._has_to_be_waited_for(name, routine)]
        self._services.deployment.sleep(asleep)

    def _has_to_be_waited_for(self, name: str, routine: Routine) -> bool:
        if not self._may_sleep(name) or routine.state.live is not None:
            return False
        phase = routine.state.phase
        return self.is_asleep(name) or phase not in RESTING or phase is Phase.FETCHING

    async def run(self, fell_asleep: Callable[[str], None]) -> None:
        """Watch what idles; `fell_asleep` is told of those that were not called for their time."""
        while True:
            await anyio.sleep(LOOK_S)
            for name, routine in tuple(self._routines()):
                if name in self._awake and self._idles(name, routine):
                    self._awake.discard(name)
                    self._uses.pop(name, None)
                    fell_asleep(name)

    def _idles(self, name: str, routine: Routine) -> bool:
        idle_s, live = self._services.settings(name).idle_s, self._services.deployment.live(name)
        if idle_s is None or not self._may_sleep(name) or live is None or routine.state.live is None:
            return False
        statistics = self._services.measures.statistics(live.number)
        calls, now = statistics.calls if statistics is not None else 0, self._services.now()
        use = self._uses.get(name)
        if use is None or use.calls != calls or live.leases:
            self._uses[name] = _Use(calls, now)
            return False
        return now - use.since_s >= idle_s
