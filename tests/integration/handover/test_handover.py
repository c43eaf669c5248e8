"""The two ends of a handover over a real socket file."""

import socket
from pathlib import Path

import anyio
import pytest
from hotbay.errors import CapacityError
from hotbay.handover.server import HandoverServer
from hotbay.handover.successor import find_predecessor
from hotbay.passing import PassingOn

WAIT_S = 20.0


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, bool]]:
    return "asyncio", {"use_uvloop": True}


class Giving:
    """A host that can be asked for its place, and notes what it was asked."""

    def __init__(self, *, refuses: bool = False) -> None:
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.said: list[str] = []
        self.refuses = refuses
        self.told = anyio.Event()

    def sockets(self) -> list[socket.socket]:
        return [self.listening]

    async def freeze(self) -> None:
        if self.refuses:
            raise CapacityError("UNAVAILABLE", "busy")
        self.said.append("freeze")

    async def thaw(self) -> None:
        self.said.append("thaw")
        self.told.set()

    def leave(self, passing: PassingOn) -> None:
        self.said.append("leave")
        self.told.set()


@pytest.fixture
async def giving(tmp_path: Path):
    host = Giving()
    server = HandoverServer(tmp_path / "handover.sock", host)
    async with anyio.create_task_group() as group:
        await group.start(server.run)
        yield host
        group.cancel_scope.cancel()
    host.listening.close()


@pytest.mark.anyio
async def test_successor_gets_the_sockets_and_the_host_leaves_when_it_serves(giving: Giving, tmp_path: Path):
    successor = await find_predecessor(tmp_path / "handover.sock")
    assert successor is not None
    (taken,) = successor.sockets
    assert taken.getsockname() == giving.listening.getsockname()
    await successor.freeze()
    assert giving.said == ["freeze"]
    await successor.serving()
    await successor.aclose()
    with anyio.fail_after(WAIT_S):
        await giving.told.wait()
    assert giving.said == ["freeze", "leave"]
    taken.close()


@pytest.mark.anyio
async def test_host_goes_on_when_the_successor_goes_before_it_serves(giving: Giving, tmp_path: Path):
    successor = await find_predecessor(tmp_path / "handover.sock")
    assert successor is not None
    await successor.freeze()
    await successor.aclose()
    with anyio.fail_after(WAIT_S):
        await giving.told.wait()
    assert giving.said == ["freeze", "thaw"]
    for taken in successor.sockets:
        taken.close()


@pytest.mark.anyio
async def test_second_successor_is_told_while_one_is_on_its_way(giving: Giving, tmp_path: Path):
    first = await find_predecessor(tmp_path / "handover.sock")
    assert first is not None
    with pytest.raises(CapacityError, match="no listening socket"):
        await find_predecessor(tmp_path / "handover.sock")
    await first.freeze()
    await first.serving()
    await first.aclose()
    for taken in first.sockets:
        taken.close()


@pytest.mark.anyio
async def test_nobody_there_is_no_predecessor(tmp_path: Path):
    assert await find_predecessor(tmp_path / "handover.sock") is None


@pytest.mark.anyio
async def test_socket_file_of_a_successor_is_left_alone(tmp_path: Path):
    path = tmp_path / "handover.sock"
    old, new = Giving(), Giving()
    async with anyio.create_task_group() as group:
        async with anyio.create_task_group() as first:
            await first.start(HandoverServer(path, old).run)
            assert path.stat().st_mode & 0o777 == 0o600
            await group.start(HandoverServer(path, new).run)
            first.cancel_scope.cancel()
        assert path.exists()
        group.cancel_scope.cancel()
    for host in (old, new):
        host.listening.close()
    assert not path.exists()
