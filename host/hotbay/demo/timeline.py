"""Which generation of which plugin answered when, put together from one status page after another. Pure.

A life begins when a page first shows its generation with a process, and ends when a page shows another one or none.
Both are seen later than they happen, by as much as the pages are apart.
"""

from dataclasses import dataclass, replace

from hotbay.demo.gauges import HostStatus, PluginStatus

__all__ = ["Life", "Timeline"]


@dataclass(frozen=True, slots=True)
class Life:
    """One generation of one plugin; times in seconds from the beginning of the load, `to_s` None while it lives."""

    plugin: str
    generation: int
    version: str
    rev: int
    digest: str
    pid: int
    from_s: float
    to_s: float | None = None


class Timeline:
    """Takes pages in the order of time."""

    def __init__(self) -> None:
        self._lives: list[Life] = []
        self._live: dict[str, int] = {}

    @property
    def lives(self) -> tuple[Life, ...]:
        """All lives that were seen, in the order in which they began."""
        return tuple(self._lives)

    def note(self, at_s: float, status: HostStatus) -> list[str]:
        """Take one page; returns what has changed since the last one, as sentences."""
        return [event for plugin in status.plugins for event in self._note(at_s, plugin)]

    def _note(self, at_s: float, status: PluginStatus) -> list[str]:
        index = self._live.get(status.plugin)
        old = None if index is None else self._lives[index]
        if old is not None and status.pid == old.pid and status.generation == old.generation:
            return []
        if old is not None and index is not None:
            self._lives[index] = replace(old, to_s=at_s)
            del self._live[status.plugin]
        if status.pid is None:
            return [f"{status.plugin}: generation {old.generation} is gone"] if old is not None else []
        new = Life(status.plugin, status.generation, status.version, status.rev, status.digest, status.pid, from_s=at_s)
        self._live[status.plugin] = len(self._lives)
        self._lives.append(new)
        what = f"{status.plugin}: generation {new.generation} ({new.version} rev {new.rev}, pid {new.pid})"
        if old is None:
            return [f"{what} answers"]
        return [f"{what} took over from generation {old.generation} ({old.version} rev {old.rev})"]
