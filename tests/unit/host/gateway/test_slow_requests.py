"""A request has an end in time, however steadily its bytes come: on the data port and on the admin socket."""

import asyncio
import socket
from collections.abc import Callable

import anyio
import pytest
from hotbay.gateway.admin_peer import AdminPeer, PeerGoneError
from hotbay.gateway.limits import GatewayLimits
from hotbay.gateway.outcome import Outcome
from hotbay.gateway.request_reader import RequestReader, WireRequest
from hotbay.gateway.server import ClientConnection
from hotbay.gateway.turn import Turn
from hotbay.observe.metrics import Metrics

pytestmark = pytest.mark.anyio
LIMITS = GatewayLimits(body_s=60.0, body_rate_bytes_per_s=100)
HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nHost: h\r\nContent-Length: 100000\r\n\r\n"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class FakeClients:
    """A gateway with one connection, which answers nothing but refusals."""

    def __init__(self) -> None:
        self.limits = LIMITS
        self.metrics = Metrics()
        self.draining = False
        self.choose_id: Callable[[bytes | None], str] = lambda _given: "id"
        self.begun: list[Turn] = []

    def begin(self, turn: Turn, /) -> None:
        self.begun.append(turn)

    def joined(self, connection: ClientConnection, /) -> bool:
        return True

    def left(self, connection: ClientConnection, /) -> None: ...


class FakeTransport(asyncio.Transport):
    """Keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += bytes(data)

    def can_write_eof(self) -> bool:
        return False

    def is_closing(self) -> bool:
        return False


class Dripping:
    """A client that sends `piece` every `every_s` seconds, by a clock of its own."""

    def __init__(self) -> None:
        self.now = 0.0
        self.transport = FakeTransport()
        self.clients = FakeClients()
        self.connection = ClientConnection(self.clients)
        self.connection._clock = lambda: self.now
        self.connection.connection_made(self.transport)

    def send(self, data: bytes) -> None:
        self.connection.data_received(data)

    def drip(self, piece: bytes, every_s: float, *, until_s: float) -> bool:
        """Whether the request is still awaited then."""
        while self.now < until_s and not self.transport.written:
            self.now += every_s
            self.connection.look_at_clock(self.now)
            self.send(piece)
        return not self.transport.written


async def test_body_that_drips_below_the_least_rate_is_refused() -> None:
    client = Dripping()
    client.send(HEAD)
    assert not client.drip(b"x", 30.0, until_s=3600.0)
    assert client.transport.written.startswith(b"HTTP/1.1 408 ")
    assert client.now <= 90.0, "some bytes in each of its silences do not help it"


async def test_body_that_comes_as_fast_as_the_least_rate_is_awaited_to_its_end() -> None:
    client = Dripping()
    client.send(HEAD)
    assert client.drip(b"x" * 3000, 30.0, until_s=960.0)
    client.send(b"x" * 4000)
    (turn,) = client.clients.begun
    assert len(turn.wire.body) == 100_000


async def test_body_that_falls_silent_is_refused_although_it_was_fast_before() -> None:
    client = Dripping()
    client.send(HEAD + b"x" * 99_000)
    client.now = 59.0
    client.connection.look_at_clock(client.now)
    assert client.transport.written == b""
    client.now = 60.0
    client.connection.look_at_clock(client.now)
    assert client.transport.written.startswith(b"HTTP/1.1 408 ")


async def test_next_body_on_the_same_connection_has_its_own_time() -> None:
    client = Dripping()
    client.send(HEAD)
    assert client.drip(b"x" * 3000, 30.0, until_s=960.0)
    client.send(b"x" * 4000 + HEAD)
    (turn,) = client.clients.begun
    client.connection._turn = None
    turn.finish(200, Outcome.FINISHED)
    client.connection.turn_done(keep_alive=True)
    assert client.drip(b"x", 25.0, until_s=client.now + 50.0)
    assert not client.drip(b"x", 25.0, until_s=client.now + 50.0)


class EchoingReader(RequestReader):
    """Has the other end send its next byte whenever one was read: as steady as a client can be."""

    def __init__(self, client: socket.socket, drip: bytes) -> None:
        super().__init__(1 << 20, 1 << 30)
        self._client, self._drip = client, drip

    def feed(self, data: bytes) -> list[WireRequest]:
        found = super().feed(data)
        self._client.send(self._drip)
        return found


@pytest.mark.parametrize(
    ("begin", "drip"),
    [
        (b"GET /status HTTP/1.1\r\nhost: x\r\nx: ", b"x"),
        (b"POST /gc HTTP/1.1\r\nhost: x\r\ncontent-length: 1000000000\r\n\r\n", b" "),
        (b"\r\n", b"\r\n"),
    ],
    ids=["head", "body", "between"],
)
async def test_admin_client_that_drips_is_let_go(begin: bytes, drip: bytes) -> None:
    host, client = socket.socketpair()
    with host, client:
        host.setblocking(False)
        client.send(begin)
        peer = AdminPeer(host, EchoingReader(client, drip), read_s=0.2, write_s=1.0)
        with anyio.fail_after(10), pytest.raises(PeerGoneError, match="no request came in time"):
            await peer.request()
