"""A client on real pipes and a real socket, with the plugin's ends in the test's hands."""

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable

import pytest
from hotbay.errors import HostError
from hotbay.rpc.client import PluginClient
from hotbay.rpc.liveness import Patience
from hotbay_sdk.protocol import Connection, Event, Role

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

    def __init__(self, patience: Patience) -> None:
        self.channel = Channel()
        self.connection = Connection(Role.PLUGIN)
        self.control = Connection(Role.PLUGIN)
        self.lost: list[HostError] = []
        self.lost_event = asyncio.Event()
        self.goaways: list[str] = []
        self.client = PluginClient(
            self.channel, label="peer#1", on_lost=self._on_lost, on_goaway=self.goaways.append, patience=patience
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

    def run(body: Callable[[Peer], Awaitable[None]], patience: Patience | None = None) -> None:
        async def main() -> None:
            peer = Peer(patience or Patience())
            try:
                await body(peer)
            finally:
                peer.client.close(HostError("CRASHED", "the test ends"))
                peer.channel.close()

        asyncio.run(main())

    return run
