"""The name of the hand-over's socket, when something else has it."""

import logging
import socket
from collections.abc import Sequence
from pathlib import Path

import anyio
import pytest
from hotbay.errors import Problem
from hotbay.handover.server import HandoverServer
from hotbay.handover.successor import find_predecessor

pytestmark = pytest.mark.anyio


class NobodyComes:
    def sockets(self) -> Sequence[socket.socket]:
        return ()

    async def freeze(self) -> None: ...
    async def thaw(self) -> None: ...
    def leave(self, passing: object) -> None: ...


@pytest.mark.parametrize("kind", ["directory", "file"])
async def test_what_is_no_socket_is_left_alone_and_told(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "handover.sock"
    if kind == "directory":
        path.mkdir()
    else:
        path.write_text("somebody's")
    told: list[Problem] = []
    with anyio.fail_after(10):
        await HandoverServer(path, NobodyComes(), off=told.append).run()
    (problem,) = told
    assert str(path) in problem.message
    assert f"it is a {kind}, and no socket" in problem.message
    assert "move it away" in problem.hint
    assert path.exists()


async def test_socket_that_a_dead_host_left_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "handover.sock"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    told: list[Problem] = []
    with anyio.fail_after(10):
        async with anyio.create_task_group() as group:
            await group.start(HandoverServer(path, NobodyComes(), off=told.append).run)
            with socket.socket(socket.AF_UNIX) as successor:
                successor.connect(str(path))
            group.cancel_scope.cancel()
    assert told == []


async def test_successor_says_that_it_cannot_ask(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "handover.sock").mkdir()
    with caplog.at_level(logging.WARNING, "hotbay.handover"):
        assert await find_predecessor(tmp_path / "handover.sock") is None
    assert "is a directory, and no socket" in caplog.text
