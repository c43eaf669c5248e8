"""A client on real pipes and a real socket, with the plugin's ends in the test's hands or in a real process."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import textwrap
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import hotbay_sdk
import msgpack
import pytest
from hotbay.errors import HostError
from hotbay.rpc.client import PluginClient
from hotbay.rpc.host_calls import HostCall
from hotbay.rpc.liveness import Patience
from hotbay_sdk.protocol import Connection, Event, FrameType, Method, Ready, Role, Welcome
from hotbay_sdk.protocol.calls import POINT_SCORE

TIMEOUT_S = 5.0


class Channel:
    """Both sides of one process's links, without the process."""

    def __init__(self) -> None:
        self.peer_call_in, self.call_out_fd = os.pipe()
        self.call_in_fd, self.peer_call_out = os.pipe()
        self.control, self.peer_control = socket.socketpair()
        for fd in (self.call_out_fd, self.call_in_fd, self.peer_call_in):
            os.set_blocking(fd, False)
        self.control.setblocking(False)
        self.peer_control.setblocking(False)

    def close(self) -> None:
        for fd in (self.call_out_fd, self.call_in_fd):
            os.close(fd)
        self.stop_reading()
        self.hang_up()
        self.control.close()
        self.peer_control.close()

    def stop_reading(self) -> None:
        """The plugin's end of the calls goes."""
        if self.peer_call_in >= 0:
            os.close(self.peer_call_in)
            self.peer_call_in = -1

    def hang_up(self) -> None:
        """The plugin's end of the answers goes."""
        if self.peer_call_out >= 0:
            os.close(self.peer_call_out)
            self.peer_call_out = -1


class Peer:
    """What a plugin process would do, step by step."""

    def __init__(self, patience: Patience, **options: Any) -> None:
        self.channel = Channel()
        self.connection = Connection(Role.PLUGIN)
        self.control = Connection(Role.PLUGIN)
        self.lost: list[HostError] = []
        self.lost_event = asyncio.Event()
        self.goaways: list[str] = []
        self.client = PluginClient(
            self.channel,
            label="peer#1",
            on_lost=self._on_lost,
            on_goaway=self.goaways.append,
            patience=patience,
            **options,
        )

    def _on_lost(self, fault: HostError) -> None:
        self.lost.append(fault)
        self.lost_event.set()

    def read(self) -> list[Event]:
        """Take what the host wrote on the call link, if anything."""
        try:
            return self.connection.feed(os.read(self.channel.peer_call_in, 1 << 20))
        except BlockingIOError:
            return []

    def write(self, data: bytes) -> None:
        """Write raw bytes as answers."""
        os.write(self.channel.peer_call_out, data)

    async def read_control(self) -> list[Event]:
        """Wait for what the host writes on the control link."""
        loop = asyncio.get_running_loop()
        data = await asyncio.wait_for(loop.sock_recv(self.channel.peer_control, 1 << 20), TIMEOUT_S)
        return self.control.feed(data)

    def write_control(self, data: bytes) -> None:
        """Write raw bytes on the control link."""
        self.channel.peer_control.sendall(data)

    async def gone(self) -> HostError:
        """Wait until the client gave the peer up."""
        await asyncio.wait_for(self.lost_event.wait(), TIMEOUT_S)
        return self.lost[0]


@pytest.fixture
def with_peer() -> Callable[..., None]:
    """Runs an async body with a peer; afterwards nothing of it is left on the loop."""

    def run(body: Callable[[Peer], Awaitable[None]], patience: Patience | None = None, **options: Any) -> None:
        async def main() -> None:
            peer = Peer(patience or Patience(), **options)
            try:
                await body(peer)
            finally:
                peer.client.close(HostError("CRASHED", "the test ends"))
                peer.channel.close()

        asyncio.run(main())

    return run


class HeldCalls:
    """Host calls that a test answers itself."""

    def __init__(self) -> None:
        self.calls: list[HostCall] = []
        self._event: asyncio.Event | None = None

    def take(self, call: HostCall) -> None:
        self.calls.append(call)
        if self._event is not None:
            self._event.set()

    async def until(self, count: int) -> list[HostCall]:
        """Wait until so many came."""
        async with asyncio.timeout(TIMEOUT_S):
            while len(self.calls) < count:
                self._event = asyncio.Event()
                await self._event.wait()
        return self.calls


@pytest.fixture
def held() -> HeldCalls:
    """Takes host calls and does not answer them."""
    return HeldCalls()


# -- a real process ------------------------------------------------------------------------------

LIFE_S = 30.0
VIEW = [1, 1, 1, ["a"], {}]


class Process:
    """A process that runs `_serve.main` on a plugin's source, and the client that calls it."""

    def __init__(self, folder: Path, source: str, generation: int, **options: Any) -> None:
        (folder / "served.py").write_text(textwrap.dedent(source))
        call_in, self.call_out_fd = os.pipe()
        self.call_in_fd, call_out = os.pipe()
        self.control, theirs = socket.socketpair()
        for fd in (self.call_in_fd, self.call_out_fd):
            os.set_blocking(fd, False)
        self.control.setblocking(False)
        paths = [str(folder), str(Path(hotbay_sdk.__file__).parents[1]), str(Path(msgpack.__file__).parents[1])]
        inherited = (call_in, call_out, theirs.fileno())
        code = f"import sys; sys.path[:0] = {paths}; from hotbay_sdk._serve import main; main('served:plugin', *{inherited})"
        self.log_path = folder / f"log.{generation}"
        with self.log_path.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", code],
                pass_fds=inherited,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=folder,
                start_new_session=True,
            )
        for descriptor in (call_in, call_out):
            os.close(descriptor)
        theirs.close()
        self.generation = generation
        self.lost: list[HostError] = []
        self.lost_event = asyncio.Event()
        self.goaways: list[str] = []
        self.types: Mapping[str, Any] = {}
        self.client = PluginClient(
            self,
            label=f"served#{generation}",
            on_lost=self._on_lost,
            on_goaway=self.goaways.append,
            ask_stacks=lambda: self.process.send_signal(signal.SIGQUIT),
            **options,
        )

    def _on_lost(self, fault: HostError) -> None:
        self.lost.append(fault)
        self.lost_event.set()

    @property
    def log(self) -> str:
        return self.log_path.read_text(errors="replace")

    async def start(self, state: bytes | None = None) -> "Process":
        """HELLO to READY; with `state`, between the two."""
        async with asyncio.timeout(LIFE_S):
            await self.client.handshake(FrameType.HELLO)
            welcome = Welcome(1, self.generation, 7, state=state is not None)
            self.client.send_handshake(FrameType.WELCOME, welcome.to_wire())
            if state is not None:
                await self.client.send_state(state, LIFE_S)
            ready = Ready.from_wire(await self.client.handshake(FrameType.READY))
        self.types = {declared.type: declared for declared in ready.types}
        return self

    async def configure(self, refs: Sequence[tuple[int, str, str, Mapping[str, object]]]) -> Any:
        create = [
            {"handle": [self.generation, number], "name": name, "type": kind, "parameters": parameters}
            for number, name, kind, parameters in refs
        ]
        return await self.client.control_call(Method.CONFIGURE, [{"create": create, "drop": []}], deadline_s=LIFE_S)

    def begin_score(
        self,
        model: str = "",
        *,
        number: int = 1,
        generation: int | None = None,
        deadline_s: float = LIFE_S,
        parent: int = 0,
        freed: Callable[[], None] | None = None,
    ) -> tuple[int, "asyncio.Future[Any]"]:
        """Begin a call of one scorer over one endpoint; the stream and the future of its outcome."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        handle = [self.generation if generation is None else generation, number]
        requests = [1, [], None, {"request.model": [model]}, {}]
        stream = self.client.start_call(
            Method.RUN,
            [[[POINT_SCORE, handle]], VIEW, None, requests],
            deadline_s=deadline_s,
            done=lambda outcome: future.done() or future.set_result(outcome),
            freed=freed,
            parent=parent,
        )
        return stream, future

    async def score(self, model: str = "", **options: Any) -> Any:
        """The outcome of a call of one scorer: the reply, or the `HostError`."""
        return await asyncio.wait_for(self.begin_score(model, **options)[1], LIFE_S)

    async def gone(self) -> HostError:
        await asyncio.wait_for(self.lost_event.wait(), LIFE_S)
        return self.lost[0]

    async def logged(self, text: str) -> None:
        """Wait for a text in the plugin's log, which is written by another process."""
        deadline = asyncio.get_running_loop().time() + LIFE_S
        while text not in self.log:
            assert asyncio.get_running_loop().time() < deadline, self.log
            await asyncio.sleep(0.005)

    def close(self) -> None:
        self.client.close(HostError("CRASHED", "the test ends"))
        self.control.close()
        for fd in (self.call_in_fd, self.call_out_fd):
            os.close(fd)
        self.process.kill()
        self.process.wait(LIFE_S)


Start = Callable[..., Process]


@pytest.fixture
def with_process(tmp_path: Path) -> Callable[..., None]:
    """Runs an async body with a function that starts processes; afterwards none of them is left."""

    def run(body: Callable[[Start], Awaitable[None]]) -> None:
        async def main() -> None:
            processes: list[Process] = []

            def start(source: str, *, generation: int = 1, **options: Any) -> Process:
                folder = tmp_path / f"process{len(processes)}"
                folder.mkdir()
                processes.append(Process(folder, source, generation, **options))
                return processes[-1]

            try:
                await body(start)
            finally:
                for process in processes:
                    process.close()

        asyncio.run(main())

    return run
