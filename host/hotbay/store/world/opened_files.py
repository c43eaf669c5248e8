"""Whether a world's files are still the ones that were opened.

A file that was deleted or replaced while it is open takes everything that is written to it, and nobody finds it again:
neither SQLite nor the file system says so. Asking is two looks at names. Everything here blocks.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Self

from hotbay.errors import CapacityError
from hotbay.store.world.sqlite_errors import NEW_WORLD_LACKS

__all__ = ["OpenedFiles"]

_Identity = tuple[int, int] | None


@dataclass(frozen=True, slots=True)
class OpenedFiles:
    """The file of a world and the log beside it, as (device, inode) of each."""

    path: Path
    opened: tuple[_Identity, ...]

    @classmethod
    def now(cls, path: Path) -> Self:
        """What lies under the names at this moment."""
        return cls(path, tuple(map(_identity, _names(path))))

    def check(self) -> None:
        """Raises `CapacityError` UNAVAILABLE when something else lies there by now, or nothing."""
        for name, before in zip(_names(self.path), self.opened, strict=True):
            found = _identity(name)
            if found != before:
                raise _lost(name, "deleted" if found is None else "replaced")


def _names(path: Path) -> tuple[Path, Path]:
    return path, path.with_name(f"{path.name}-wal")


def _identity(path: Path) -> _Identity:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _lost(name: Path, how: str) -> CapacityError:
    return CapacityError(
        "UNAVAILABLE",
        f"{name} was {how} while the host runs: nothing can be recorded any more",
        hint="running plugins keep serving. Put the file back if it was moved; otherwise restart the host, for which a copy of "
        f"the world can be put there first. Without a copy {NEW_WORLD_LACKS}",
    )
