"""The operator's files beside what is in force: the lock file, and a change of the configuration that waits for `apply`.

- A lock that the world holds stays in force while its file cannot be used. Then the problem is told, and `plan`, `apply`
  and a reload say what is wrong with the file. Of a file that a refused configuration named nothing is told later.
- A start obeys a first lock at once, and none where the configuration names none. After it a lock that a configuration
  adds, changes or names no more waits for `apply`, whatever put that configuration in force.
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
from hotbay.store.world.engine import World, WorldView
from hotbay.store.world.records import Locked, ManifestRef

logger = logging.getLogger(__name__)

__all__ = ["HeldBack", "OperatorFiles"]


async def _nothing() -> None: ...


@dataclass(frozen=True, slots=True)
class HeldBack:
    """A change of the configuration that waits: the names of what differs, and what puts it in force.

    `refused`: why that did not work when it was tried last.
    """

    changes: Sequence[str]
    apply: Callable[[], Awaitable[None]]
    refused: HostError | None = None


class OperatorFiles:
    """See the module. `lock_file` names the lock file of the configuration in force, None without one. For the loop's thread.

    `look` is called before what waits is shown or applied: whoever follows the files looks at them then and holds back
    what they say, because a save is noticed a moment after it was made. `next_start` names what of the configuration in force acts
    at the next start only. `view` is the world as it is, once there is one.
    """

    def __init__(self, lock_file: Callable[[], Path | None]) -> None:
        self.look: Callable[[], Awaitable[None]] = _nothing
        self.next_start: Callable[[], Sequence[str]] = tuple
        self.view: Callable[[], WorldView | None] = lambda: None
        self._lock_file = lock_file
        self._lock_refused: tuple[Path, tuple[Problem, ...]] | None = None
        self._lock_read: tuple[Path, Sequence[Locked]] | None = None
        self._refused: tuple[Problem, ...] = ()
        self._held_back: HeldBack | HostError | None = None

    @property
    def problems(self) -> tuple[Problem, ...]:
        """What is wrong with the lock file in force, as it was when somebody last looked, and with a reload; each once."""
        refused = self._lock_refused
        locks = refused[1] if refused is not None and refused[0] == self._lock_file() else ()
        told = {(problem.code, problem.place) for problem in locks}
        waits = self.lock_waits
        refusals = (problem for problem in self._refused if (problem.code, problem.place) not in told)
        return (*refusals, *locks, *([waits] if waits is not None else []))

    def refuse(self, problems: Sequence[Problem]) -> None:
        """What is wrong with the configuration files as they are now, in place of what was before."""
        self._refused = tuple(problems)

    # -- the lock --------------------------------------------------------------------------------

    @property
    def lock_waits(self) -> Problem | None:
        """What the configuration in force says of a lock and is not in force, by the file as it was read last."""
        path, read, view = self._lock_file(), self._lock_read, self.view()
        if view is None:
            return None
        if path is None:
            if not view.all(Locked):
                return None
            message = "the lock stays in force, though the configuration names none any more"
            return Problem("LOCK_WAITS", message, hint="`hotbay apply` ends it")
        if read is None or read[0] != path or not lock_changes(view, read[1]):
            return None
        message = f"what {path} says is not in force yet"
        return Problem(
            "LOCK_WAITS", message, hint="`hotbay plan` shows what it changes, `hotbay apply` puts it in force"
        )

    def lock_lines(self) -> Sequence[Locked] | None:
        """What the lock file says; None without one. Blocks for a small file. Raises `InputError`."""
        return self.read_lock(self._lock_file())

    def read_lock(self, path: Path | None) -> Sequence[Locked] | None:
        """As `lock_lines`, of a file that a configuration about to come into force names."""
        if path is None:
            return None
        try:
            content = read_content(path)
            view = self.view()
            known = {ref.digest: ref for ref in view.all(ManifestRef)} if view is not None else {}
            text = content.text(hint="`hotbay lock --out FILE` writes one")
            lines = read_lock(text, file=str(content.path), known=known.get)
        except InputError as error:
            if path == self._lock_file():
                told = "; the lock that was applied last stays in force"
                problems = tuple(replace(problem, message=problem.message + told) for problem in error.problems)
                self._lock_refused = path, problems
            raise
        if self._lock_refused is not None and self._lock_refused[0] == path:
            self._lock_refused = None
        self._lock_read = path, lines
        return lines

    async def obey_lock(self, world: World) -> None:
        """At a start: the lock that the world holds, or else the file's; none where the configuration names no file.

        Raises `InputError` for a file that cannot be used only where the world holds none.
        """
        try:
            lines = self.lock_lines()
        except InputError as error:
            if not world.view.all(Locked):
                raise
            logger.warning("lock_file_refused last_applied=kept: %s", error)
            return
        wanted = lines or ()
        if not wanted or not world.view.all(Locked):
            await world.transact(lambda view: lock_changes(view, wanted))

    # -- the configuration -----------------------------------------------------------------------

    def hold_back(self, held: HeldBack | HostError | None) -> None:
        """What the files say now and what is not in force, in place of what waited before."""
        self._held_back = held

    async def waiting(self) -> Sequence[str]:
        """The names of what would change. Raises what is wrong with the files."""
        await self.look()
        if isinstance(self._held_back, HostError):
            raise self._held_back
        if self._held_back is not None and self._held_back.refused is not None:
            raise self._held_back.refused
        return self._held_back.changes if self._held_back is not None else ()

    async def apply(self) -> Sequence[str]:
        """Put what waits in force; return the names of what changed. Raises `HostError`, with all waiting on."""
        await self.look()
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
