"""Opens the world of a state directory, and tells a file that was lost from one that never was.

A mark beside the file says that a world is kept under its name. Without one, a file that is not there or empty is new. With
one, a file that is gone is begun anew and told, and one that is empty was cut off and is refused. The mark is written after
the file is whole, and says that the file was lost before it is begun anew: a start that is killed at any point leaves what
the next one takes up, and tells of.
"""

import logging
from pathlib import Path
from typing import Final

import anyio.to_thread

from hotbay.errors import Problem
from hotbay.store.files import write_durably
from hotbay.store.world.engine import World
from hotbay.store.world.held import HeldWorld
from hotbay.store.world.memory import MemoryWorld
from hotbay.store.world.sqlite import SqliteWorld
from hotbay.store.world.sqlite_errors import NEW_WORLD_LACKS

logger = logging.getLogger(__name__)

__all__ = ["in_file", "in_memory", "mark_of"]

_KEPT: Final = b"kept\n"
_LOST: Final = b"lost\n"


def in_memory() -> HeldWorld:
    """A world that is in no file: what is in it has no other place than here."""

    async def open_again() -> World:
        return MemoryWorld(world.view)

    world = HeldWorld(MemoryWorld(), open_again)
    return world


async def in_file(path: Path) -> tuple[HeldWorld, tuple[Problem, ...]]:
    """The world of a file, and what to tell of how it was found. Raises as `SqliteWorld.open`, and OSError."""
    mark = mark_of(path)
    before = await anyio.to_thread.run_sync(_read, mark)
    is_lost = before == _LOST or (before is not None and not await anyio.to_thread.run_sync(path.exists))
    if is_lost:
        logger.warning("world_begun_anew path=%s: %s", path, NEW_WORLD_LACKS)
        if before != _LOST:
            await anyio.to_thread.run_sync(write_durably, mark, _LOST)
    engine = await SqliteWorld.open(path, must_exist=before is not None and not is_lost)
    world = HeldWorld(engine, lambda: SqliteWorld.open(path, must_exist=True))
    try:
        if before is None or is_lost:
            await anyio.to_thread.run_sync(write_durably, mark, _KEPT)
    except BaseException:
        await world.close()
        raise
    return world, (_begun_anew(path),) if is_lost else ()


def mark_of(path: Path) -> Path:
    """Where the mark of a world's file is: under a name that nobody means who moves the file away with all beside it."""
    return path.with_name(f".{path.name}.mark")


def _read(mark: Path) -> bytes | None:
    try:
        with mark.open("rb") as opened:
            return opened.read(len(_KEPT) + 1)
    except FileNotFoundError:
        return None


def _begun_anew(path: Path) -> Problem:
    message = f"the world {path} is not there any more: a new one is begun"
    hint = f"if it was lost, put a copy back and restart; without a copy {NEW_WORLD_LACKS}"
    return Problem("CONFIG_INVALID", message, path="world.path", hint=hint)
