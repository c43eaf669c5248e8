"""A connection between two turns of the loop."""

import asyncio

import pytest
from hotbay.datalayer.fetching.buffers import Buffers
from hotbay.datalayer.fetching.connection import Connection

pytestmark = pytest.mark.anyio

HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Transport(asyncio.Transport):
    """Keeps what was written, and how reading was paused and resumed."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.calls: list[str] = []

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += data

    def pause_reading(self) -> None:
        self.calls.append("pause")

    def resume_reading(self) -> None:
        self.calls.append("resume")

    def abort(self) -> None:
        self.calls.append("abort")


def arrive(connection: Connection, data: bytes) -> None:
    """As a loop does it: into the buffer that it is lent, as much as there is room for."""
    while data:
        space = connection.get_buffer(-1)
        count = min(len(space), len(data))
        space[:count] = data[:count]
        connection.buffer_updated(count)
        data = data[count:]


class Thread:
    """A thread that runs `step_s` between two looks at what it has run."""

    def __init__(self, step_s: float) -> None:
        self.step_s = step_s
        self._ran_s = 0.0

    def __call__(self) -> float:
        self._ran_s += self.step_s
        return self._ran_s


async def test_the_loop_has_its_turn_after_a_step_that_took_long_and_the_answer_goes_on() -> None:
    thread = Thread(0.0019)
    connection, transport = Connection(Buffers(), thread), Transport()
    connection.connection_made(transport)
    async with asyncio.TaskGroup() as tasks:
        asked = tasks.create_task(connection.exchange(b"GET /", 30.0, 30.0))
        await asyncio.sleep(0)
        assert transport.written == b"GET /"
        arrive(connection, HEAD + b"1000\r\n" + b"#" * 4096 + b"\r\n")
        assert not transport.calls
        thread.step_s = 0.0021
        arrive(connection, b"1\r\n#\r\n" * 2000)
        assert transport.calls == ["pause"]
        await asyncio.sleep(0)
        assert transport.calls == ["pause", "resume"]
        arrive(connection, b"0\r\n\r\n")
    assert len(asked.result().body) == 4096 + 2000
    assert connection.take_spent_s() == pytest.approx(0.0019 + 2 * 0.0021)
    assert connection.take_spent_s() == 0.0


async def test_no_step_is_longer_than_its_bound_however_much_room_there_is() -> None:
    connection, transport = Connection(Buffers()), Transport()
    connection.connection_made(transport)
    async with asyncio.TaskGroup() as tasks:
        asked = tasks.create_task(connection.exchange(b"GET /", 30.0, 30.0))
        await asyncio.sleep(0)
        arrive(connection, b"HTTP/1.1 200 OK\r\nContent-Length: 3000000\r\n\r\n")
        assert len(connection.get_buffer(-1)) == 128 * 1024
        arrive(connection, b"#" * 3_000_000)
    assert len(asked.result().body) == 3_000_000


async def test_a_connection_that_was_closed_while_it_paused_is_left_alone() -> None:
    connection, transport = Connection(Buffers(), Thread(1.0)), Transport()
    connection.connection_made(transport)
    async with asyncio.TaskGroup() as tasks:
        asked = tasks.create_task(connection.exchange(b"GET /", 30.0, 30.0))
        await asyncio.sleep(0)
        arrive(connection, HEAD + b"1\r\n#\r\n" * 2000)
        asked.cancel()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert transport.calls[0] == "pause"
    assert transport.calls[-1] == "abort", "nothing is resumed after it"
