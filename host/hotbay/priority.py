"""A process that prepares something gives way to those that serve: it has the CPU that they leave, for a while.

Two means, of which a kernel obeys one: the niceness of a process (setpriority(2)), and where sessions are scheduled as
groups that of its session (`/proc/PID/autogroup`, sched(7)). A plugin's process leads a session of its own.

Invariants: nothing is lowered that could not be raised again; a host's own session is never touched. What a process
started while it gave way is raised with it, as far as it is its child still.
"""

import asyncio
import logging
import os
import resource
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

logger = logging.getLogger(__name__)

__all__ = ["GIVES_WAY_S", "GivingWay", "can_give_way", "give_way", "may_raise", "take_part"]

NICENESS: Final = 5
"""A quarter of the CPU beside one process that always wants it: `sched_prio_to_weight` has 335 for it and 1024 for 0.
With 10, which is a tenth, versions did not get in any more on a machine that was busy for minutes."""

_LEAST: Final = 20
_CAP_SYS_NICE: Final = 23
"""linux/capability.h."""
_ALL_USERS: Final = ["0", "0", "4294967295"]
"""The map of the first user namespace (user_namespaces(7))."""


GIVES_WAY_S: Final = 3.0
"""How long at most: on a machine that is busy all the time a version gets in all the same. Less than what a plugin has to
say HELLO."""
_TRY_AGAIN_S: Final = 0.1


class GivingWay:
    """A session leader of this host's that gives way from now on until `end`, for `at_most_s`. For the loop's thread."""

    def __init__(self, pid: int, at_most_s: float = GIVES_WAY_S) -> None:
        self._pid = pid
        self._loop = asyncio.get_running_loop()
        give_way(pid)
        self._timer: asyncio.TimerHandle | None = self._loop.call_later(at_most_s, self.end)

    def end(self) -> None:
        """The process is as all others. Idempotent."""
        if self._timer is None:
            return
        self.forget()
        try:
            take_part(self._pid)
        except BlockingIOError:
            self._timer = self._loop.call_later(_TRY_AGAIN_S, self.end)

    def forget(self) -> None:
        """The process is gone: its number means nobody, or somebody else. Idempotent."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def give_way(pid: int) -> None:
    """Lower a session leader of this host's, as far as `take_part` can undo it. One that is gone is left alone."""
    own = os.getpriority(os.PRIO_PROCESS, 0)
    _set_group(pid, NICENESS)
    if _may_raise(own):
        _set_threads(pid, max(own, NICENESS))


def take_part(pid: int) -> None:
    """Give a process the host's own niceness back.

    Raises `BlockingIOError` when it is to be tried again: a kernel lets a user change one session in 100 ms.
    """
    own = os.getpriority(os.PRIO_PROCESS, 0)
    try:
        for each in _family(pid):
            _set_threads(each, own)
    except PermissionError as error:
        logger.warning("priority_kept_low pid=%s: %s", pid, error.strerror)
    _set_group(pid, 0, is_due=True)


def can_give_way() -> bool:
    """Whether this machine and this user have one of the two means."""
    return Path("/proc/self/autogroup").exists() or _may_raise(os.getpriority(os.PRIO_PROCESS, 0))


def _may_raise(niceness: int) -> bool:
    return may_raise(niceness, resource.getrlimit(resource.RLIMIT_NICE)[0], _effective_capabilities())


def may_raise(niceness: int, limit: int, capabilities: int) -> bool:
    """Whether a process may raise another of its user's to `niceness`: it has the right to, or its limit allows it.

    `limit` is that of RLIMIT_NICE, which counts from 20 downwards (getrlimit(2)); `capabilities` is a bit set.
    """
    if capabilities >> _CAP_SYS_NICE & 1:
        return True
    return limit == resource.RLIM_INFINITY or _LEAST - niceness <= limit


def _effective_capabilities() -> int:
    """None in a user namespace of its own: what it holds there says nothing about niceness."""
    if Path("/proc/self/uid_map").read_text(encoding="ascii").split() != _ALL_USERS:
        return 0
    for line in Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines():
        if line.startswith("CapEff:"):
            return int(line.split()[1], 16)
    return 0


def _family(pid: int) -> Iterator[int]:
    """A process and what it started, as far as that has it for a parent still (`/proc/PID/task/TID/children`)."""
    yield pid
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text(encoding="ascii").split():
                yield from _family(int(child))


def _set_threads(pid: int, niceness: int) -> None:
    """Niceness is of a thread: one that a thread starts meanwhile has that of its maker. Raises `PermissionError`."""
    done: set[int] = set()
    with suppress(FileNotFoundError, ProcessLookupError):
        while left := {int(name.name) for name in Path(f"/proc/{pid}/task").iterdir()} - done:
            for thread in left:
                with suppress(ProcessLookupError):
                    os.setpriority(os.PRIO_PROCESS, thread, niceness)
            done |= left


def _set_group(pid: int, niceness: int, *, is_due: bool = False) -> None:
    group = Path(f"/proc/{pid}/autogroup")
    try:
        # One that has no session of its own yet, or a kernel that schedules by nothing of the kind.
        if _name(group) != _name(Path("/proc/self/autogroup")):
            group.write_text(str(niceness), encoding="ascii")
    except BlockingIOError:
        if is_due:
            raise
    except OSError:
        return


def _name(group: Path) -> str:
    return group.read_text(encoding="ascii").partition(" ")[0]
