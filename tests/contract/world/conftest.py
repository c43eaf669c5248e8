"""The engines under test. Another engine joins by another entry in `ENGINES`."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Final

import pytest
from hotbay.store.world.engine import World
from hotbay.store.world.memory import MemoryWorld
from hotbay.store.world.sqlite import SqliteWorld

Opener = Callable[[Path], Awaitable[World]]


async def open_memory(_: Path) -> World:
    return MemoryWorld()


async def open_sqlite(folder: Path) -> World:
    return await SqliteWorld.open(folder / "world.db")


ENGINES: Final[Mapping[str, Opener]] = {"memory": open_memory, "sqlite": open_sqlite}


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(params=sorted(ENGINES))
def open_world(request: pytest.FixtureRequest) -> Opener:
    return ENGINES[request.param]


@pytest.fixture
async def world(open_world: Opener, tmp_path: Path) -> AsyncIterator[World]:
    opened = await open_world(tmp_path)
    yield opened
    await opened.close()
