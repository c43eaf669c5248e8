"""Successors that fail at every point: the host goes on as it was, with all that it had."""

import logging
import resource
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

import anyio
import anyio.to_thread
import pytest
from hotbay.app import Host
from hotbay.config.host_config import HostConfig, load_host_config
from hotbay.config.picker_config import load_picker_config
from hotbay.depot import platforms_of
from hotbay.errors import CapacityError, InputError
from hotbay.gateway.admin_connection import AdminConnection
from hotbay.gateway.admin_socket import reachable
from hotbay.handover import server as handover_server
from hotbay.handover import successor as handover_successor
from hotbay.handover.server import HandoverServer
from hotbay.handover.successor import Successor, find_predecessor, take_state
from hotbay.passing import PassingOn
from hotbay.serving import Serving
from hotbay.store.state_dir import StateDirectory
from hotbay.store.world.engine import Put
from hotbay.store.world.records import Floor

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(60)]
WAIT_S = 30.0
PICKER = """
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins: []
schedulingProfiles:
- name: default
  plugins: []
"""
Until = Callable[..., Awaitable[None]]


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, bool]]:
    return "asyncio", {"use_uvloop": True}


class Giving:
    """A host that refuses to freeze, or to thaw, as often as it is told to."""

    def __init__(self, *, freezes: bool = True, thaw_failures: int = 0) -> None:
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.said: list[str] = []
        self.thawed = anyio.Event()
        self.left = anyio.Event()
        self.server = anyio.CancelScope()
        self._freezes = freezes
        self._thaw_failures = thaw_failures

    def sockets(self) -> list[socket.socket]:
        return [self.listening]

    async def freeze(self) -> None:
        self.said.append("freeze")
        if not self._freezes:
            raise CapacityError("RESOURCE_EXHAUSTED", "the disk is full")

    async def thaw(self) -> None:
        self.said.append("thaw")
        if self._thaw_failures:
            self._thaw_failures -= 1
            raise CapacityError("UNAVAILABLE", "somebody has the lock")
        self.thawed.set()

    def leave(self, passing: PassingOn) -> None:
        self.left.set()


@asynccontextmanager
async def offering(giving: Giving, path: Path) -> AsyncIterator[None]:
    async with anyio.create_task_group() as group:

        async def serve(*, task_status: anyio.abc.TaskStatus[None]) -> None:
            with giving.server:
                await HandoverServer(path, giving).run(task_status=task_status)

        await group.start(serve)
        yield
        group.cancel_scope.cancel()
    giving.listening.close()


async def successor_at(path: Path) -> Successor:
    found = await find_predecessor(path)
    assert found is not None
    return found


def close(successor: Successor) -> None:
    for taken in successor.sockets:
        taken.close()


async def handed_over(giving: Giving, path: Path) -> None:
    """A handover that ends well."""
    successor = await successor_at(path)
    await successor.freeze()
    await successor.serving()
    await successor.aclose()
    with anyio.fail_after(WAIT_S):
        await giving.left.wait()
    close(successor)


async def given_up(successor: Successor) -> None:
    """A handover whose successor goes after the host froze."""
    await successor.freeze()
    await successor.aclose()
    close(successor)


async def test_host_that_cannot_freeze_takes_back_what_was_done_and_goes_on(tmp_path: Path) -> None:
    giving, path = Giving(freezes=False), tmp_path / "handover.sock"
    async with offering(giving, path):
        successor = await successor_at(path)
        assert await successor.freeze() is False
        with anyio.fail_after(WAIT_S):
            await giving.thawed.wait()
        await successor.aclose()
        close(successor)
        giving._freezes = True
        await handed_over(giving, path)


async def test_host_that_cannot_thaw_yet_tries_again(tmp_path: Path) -> None:
    giving, path = Giving(thaw_failures=2), tmp_path / "handover.sock"
    async with offering(giving, path):
        await given_up(await successor_at(path))
        with anyio.fail_after(WAIT_S):
            await giving.thawed.wait()
        assert giving.said == ["freeze", "thaw", "thaw", "thaw"]
        await handed_over(giving, path)


async def test_successor_serves_when_its_predecessor_died_meanwhile(tmp_path: Path) -> None:
    giving, path = Giving(), tmp_path / "handover.sock"
    async with offering(giving, path):
        successor = await successor_at(path)
        await successor.freeze()
    await successor.serving()
    await successor.aclose()
    close(successor)


async def test_successor_whose_predecessor_died_before_it_froze_takes_the_state(tmp_path: Path) -> None:
    giving, path = Giving(), tmp_path / "handover.sock"
    async with offering(giving, path):
        successor = await successor_at(path)
    (await take_state(tmp_path / "state", successor)).close()
    await successor.aclose()
    close(successor)


async def test_successor_of_a_host_that_does_not_give_its_place_away_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handover_successor, "GONE_WITHIN_S", 0.2)
    giving, path = Giving(freezes=False), tmp_path / "handover.sock"
    held = StateDirectory.open(tmp_path / "state")
    async with offering(giving, path):
        successor = await successor_at(path)
        with pytest.raises(CapacityError, match="did not give its place away: it keeps the state directory") as told:
            await take_state(tmp_path / "state", successor)
        assert "goes on serving" not in told.value.hint
        await successor.aclose()
        close(successor)
    held.close()


async def test_successor_waits_for_the_lock_of_a_host_that_is_dying(tmp_path: Path) -> None:
    giving, path = Giving(), tmp_path / "handover.sock"
    held = StateDirectory.open(tmp_path / "state")
    async with offering(giving, path):
        successor = await successor_at(path)
    with listening_for("still_held") as asked, anyio.fail_after(WAIT_S):
        async with anyio.create_task_group() as group:

            async def die() -> None:
                await asked.wait()
                held.close()

            group.start_soon(die)
            (await take_state(tmp_path / "state", successor)).close()
    await successor.aclose()
    close(successor)


async def test_who_connects_and_asks_for_nothing_keeps_nobody_away_for_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handover_server, "ASKED_WITHIN_S", 0.05)
    giving, path = Giving(), tmp_path / "handover.sock"
    async with offering(giving, path):
        with listening_for("handover_refused") as refused:
            silent = await successor_at(path)
            with anyio.fail_after(WAIT_S):
                await refused.wait()
        await handed_over(giving, path)
        await silent.aclose()
        close(silent)
    assert giving.said == ["freeze"]


class Rings(logging.Handler):
    """Sets an event when a message begins so."""

    def __init__(self, begins: str) -> None:
        super().__init__()
        self.rung = anyio.Event()
        self._begins = begins

    def emit(self, record: logging.LogRecord) -> None:
        if record.getMessage().startswith(self._begins):
            self.rung.set()


@contextmanager
def listening_for(begins: str) -> Iterator[anyio.Event]:
    handler, logger = Rings(begins), logging.getLogger("hotbay.handover")
    logger.addHandler(handler)
    level = logger.level
    logger.setLevel(logging.DEBUG)
    try:
        yield handler.rung
    finally:
        logger.setLevel(level)
        logger.removeHandler(handler)


async def test_host_without_a_descriptor_left_goes_on_and_gives_way_later(tmp_path: Path) -> None:
    giving, path = Giving(), tmp_path / "handover.sock"
    async with offering(giving, path):
        with listening_for("handover_accept_failed") as refused, socket.socket(socket.AF_UNIX) as early:
            limits = resource.getrlimit(resource.RLIMIT_NOFILE)
            with reachable(path) as name:
                resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
                try:
                    early.connect(name)
                    with anyio.fail_after(WAIT_S):
                        await refused.wait()
                finally:
                    resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        # The one that waited in the queue has left: it is met, and found gone.
        while True:
            try:
                await handed_over(giving, path)
                break
            except CapacityError:
                continue


async def test_host_goes_on_when_the_socket_cannot_be_there(tmp_path: Path) -> None:
    giving, path = Giving(), tmp_path / "handover.sock"
    path.mkdir()
    async with offering(giving, path):
        assert await find_predecessor(path) is None
    assert path.is_dir()


# -- whole hosts -----------------------------------------------------------------------------------


def config(folder: Path, extra: str = "") -> HostConfig:
    text = (
        "apiVersion: hotbay/v1alpha1\nkind: HostConfig\n"
        f"state_dir: {folder / 'state'}\nlisten: {{http: '127.0.0.1:0'}}\nsources: []\n"
        f"endpoints: [{{name: e, url: 'http://127.0.0.1:9'}}]\n{extra}"
    )
    return load_host_config(text, file="host.yaml", base_directory=folder, environment={}, is_root=False)


def host_of(folder: Path, extra: str = "", *, take_over: bool = False) -> Host:
    picker = load_picker_config(PICKER, file="picker.yaml")
    return Host(config(folder, extra), picker, picker_directory=folder, take_over=take_over)


@asynccontextmanager
async def running(folder: Path, extra: str = "") -> AsyncIterator[Host]:
    """A host that serves and can be asked for its place."""
    host, stop, serves = host_of(folder, extra), anyio.Event(), anyio.Event()

    def serving(_where: Serving) -> None:
        serves.set()

    async with anyio.create_task_group() as group:
        group.start_soon(host.run, serving, stop)
        with anyio.fail_after(WAIT_S):
            await serves.wait()
        yield host
        stop.set()


async def first_successor(folder: Path) -> Successor:
    """The successor's end, as soon as the host offers its place."""
    found = None
    with anyio.fail_after(WAIT_S):
        while found is None:
            found = await find_predecessor(folder / "state" / "handover.sock")
    return found


async def run_until_it_took_over(folder: Path) -> None:
    """A successor that is stopped before it serves. Refused until the host offers its place."""
    stop = anyio.Event()
    stop.set()
    with anyio.fail_after(WAIT_S):
        while True:
            with suppress(CapacityError):
                await host_of(folder, take_over=True).run(lambda _where: None, stop)
                return


def ask(folder: Path, method: str, target: str) -> tuple[int, bytes]:
    connection = AdminConnection(folder / "state" / "admin.sock", WAIT_S)
    try:
        connection.request(method, target)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def ask_status(folder: Path) -> int:
    return ask(folder, "GET", "/status")[0]


def holds_state(host: Host) -> bool:
    depot = host._depot
    return depot is not None and depot.state._is_locked


async def test_admin_socket_of_the_host_outlives_a_successor_that_ends_before_it_serves(
    tmp_path: Path, until: Until
) -> None:
    async with running(tmp_path) as host:
        await run_until_it_took_over(tmp_path)
        await until(lambda: holds_state(host))
        assert await anyio.to_thread.run_sync(ask_status, tmp_path) == 200


async def test_commands_given_while_a_successor_takes_over_are_refused_until_it_is_gone(
    tmp_path: Path, until: Until
) -> None:
    async with running(tmp_path) as host:
        successor = await first_successor(tmp_path)
        await successor.freeze()
        status, page = await anyio.to_thread.run_sync(ask, tmp_path, "POST", "/gc")
        assert status == 503
        assert b"a successor is taking over" in page
        await successor.aclose()
        await until(lambda: holds_state(host) and host._supervisor is not None and not host._supervisor.is_frozen)
        assert (await anyio.to_thread.run_sync(ask, tmp_path, "POST", "/gc"))[0] == 200


async def test_host_survives_a_lock_that_is_held_when_the_successor_is_gone(tmp_path: Path, until: Until) -> None:
    async with running(tmp_path) as host:
        successor = await first_successor(tmp_path)
        await successor.freeze()
        held = StateDirectory.open(tmp_path / "state")
        with listening_for("still_frozen") as told:
            await successor.aclose()
            with anyio.fail_after(WAIT_S):
                await told.wait()
        close(successor)
        assert not holds_state(host)
        held.close()
        await until(lambda: holds_state(host))
        assert await anyio.to_thread.run_sync(ask_status, tmp_path) == 200


async def test_successor_serves_in_place_of_a_host_that_was_killed_while_it_froze(tmp_path: Path) -> None:
    giving, stop, serves = Giving(), anyio.Event(), anyio.Event()
    (tmp_path / "state").mkdir()
    at: list[Serving] = []

    def serving(where: Serving) -> None:
        at.append(where)
        serves.set()

    async with offering(giving, tmp_path / "state" / "handover.sock"):
        freezing = anyio.Event()

        async def freeze() -> None:
            freezing.set()
            await anyio.sleep_forever()

        giving.freeze = freeze  # type: ignore[method-assign]
        async with anyio.create_task_group() as group:
            group.start_soon(host_of(tmp_path, take_over=True).run, serving, stop)
            with anyio.fail_after(WAIT_S):
                await freezing.wait()
                giving.server.cancel()
                await serves.wait()
            assert at[0].address == giving.listening.getsockname()
            assert await anyio.to_thread.run_sync(ask_status, tmp_path) == 200
            stop.set()


async def test_world_in_memory_is_kept_through_a_handover_that_fails(tmp_path: Path, until: Until) -> None:
    async with running(tmp_path, "world: {engine: memory}\n") as host:
        world = host._depot.world if host._depot is not None else None
        assert world is not None
        await world.transact(lambda _view: [Put(Floor("a", 7))])
        revision = world.view.revision
        await given_up(await first_successor(tmp_path))
        await until(lambda: holds_state(host))
        assert world.view.get(Floor, "a") == Floor("a", 7)
        await world.transact(lambda _view: [Put(Floor("b", 1))])
        assert world.view.revision > revision


async def test_platform_that_no_host_runs_any_more_is_the_configurations_fault(tmp_path: Path) -> None:
    async with running(tmp_path) as host:
        depot = host._depot
        assert depot is not None
        assert depot.interpreter_of(platforms_of(host._config)[0])
        with pytest.raises(InputError, match="no interpreter runs other-platform here"):
            depot.interpreter_of("other-platform")
