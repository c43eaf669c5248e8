"""The operator's files beside what is in force: the lock file, and a change of the configuration that waits for `apply`.

- A lock that the world holds stays in force while its file cannot be used. Then the problem is told, and `plan`, `apply`
  and a reload say what is wrong with the file.
- What waits is what the files say now. One that is wrong waits as its error, in place of a valid change that it
  followed: what is applied is never older than what the operator saved last.
"""

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from hotbay.config.reload import read_content
from hotbay.errors import HostError, InputError, Problem
from hotbay.rollout.adoption import ReplacedError
from hotbay.rollout.lock_document import lock_changes, read_lock
from hotbay.store.world.engine import World
from hotbay.store.world.records import Locked

logger = logging.getLogger(__name__)

__all__ = ["HeldBack", "OperatorFiles"]


@dataclass(frozen=True, slots=True)
class HeldBack:
    """A change of the configuration that waits: the names of what differs, and what puts it in force."""

    changes: Sequence[str]
    apply: Callable[[], Awaitable[None]]


class OperatorFiles:
    """See the module. `lock_file` names the lock file of the configuration in force, None without one. For the loop's thread.

    `look` is called before what waits is shown or applied: whoever follows the files looks at them then and holds back
    what they say, because a save is noticed a moment after it was made.
    """

    def __init__(self, lock_file: Callable[[], Path | None]) -> None:
        self.look: Callable[[], None] = lambda: None
        self._lock_file = lock_file
        self._lock_problems: tuple[Problem, ...] = ()
        self._held_back: HeldBack | HostError | None = None

    @property
    def problems(self) -> tuple[Problem, ...]:
        """What is wrong with the lock file, as it was when somebody last looked."""
        return self._lock_problems

    # -- the lock --------------------------------------------------------------------------------

    def lock_lines(self) -> Sequence[Locked] | None:
        """What the lock file says; None without one. Blocks for a small file. Raises `InputError`."""
        return self.read_lock(self._lock_file())

    def read_lock(self, path: Path | None) -> Sequence[Locked] | None:
        """As `lock_lines`, of a file that a configuration about to come into force names."""
        if path is None:
            self._lock_problems = ()
            return None
        try:
            content = read_content(path)
            lines = read_lock(content.text(hint="`hotbay lock --out FILE` writes one"), file=str(content.path))
        except InputError as error:
            self._lock_problems = tuple(
                replace(problem, message=f"{problem.message}; the lock that was applied last stays in force")
                for problem in error.problems
            )
            raise
        self._lock_problems = ()
        return lines

    async def obey_lock(self, world: World) -> None:
        """At a start: the lock that the world holds, or else the file's.

        Raises `InputError` for a file that cannot be used only where the world holds none.
        """
        try:
            lines = self.lock_lines()
        except InputError as error:
            if not world.view.all(Locked):
                raise
            logger.warning("lock_file_refused last_applied=kept: %s", error)
            return
        await self.first_lock(world, lines)

    async def first_lock(self, world: World, lines: Sequence[Locked] | None) -> None:
        """A state directory that never had a lock obeys the lock file at once; later changes of it wait to be applied.

        Without a lock file none is in force.
        """
        wanted = lines or ()
        if wanted and world.view.all(Locked):
            return
        await world.transact(lambda view: lock_changes(view, wanted))

    # -- the configuration -----------------------------------------------------------------------

    def hold_back(self, held: HeldBack | HostError | None) -> None:
        """What the files say now and what is not in force, in place of what waited before."""
        self._held_back = held

    def waiting(self) -> Sequence[str]:
        """The names of what would change. Raises what is wrong with the files."""
        self.look()
        if isinstance(self._held_back, HostError):
            raise self._held_back
        return self._held_back.changes if self._held_back is not None else ()

    async def apply(self) -> Sequence[str]:
        """Put what waits in force; return the names of what changed. Raises `HostError`, with all waiting on."""
        self.look()
        held, self._held_back = self._held_back, None
        try:
            if isinstance(held, HostError):
                raise held
            if held is None:
                return ()
            await held.apply()
        except ReplacedError:
            # It is not to be applied over the one that took its place.
            raise
        except BaseException:
            # One that came meanwhile is newer.
            self._held_back = self._held_back or held
            raise
        return held.changes
