"""A whole host with plugin processes between clients that set headers and model servers that remember what they got."""

import asyncio
import os
import re
import signal
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import orjson
import pytest
from hotbay.app import Host
from hotbay.config.host_config import load_host_config
from hotbay.config.picker_config import load_picker_config
from hotbay.rollout.dumping import StateDumps
from hotbay.serving import Serving

WAIT_S = 30.0
"""Deadline of waits for what takes a second or two on a machine of its own: others may work on it too."""
USAGE = {"prompt_tokens": 3, "completion_tokens": 5}


@dataclass
class Server:
    """Answers each request with its own name, `x-cost: 7` and a usage.

    A stream begins when `begin` is set, as it is at first, and goes on until its client leaves.
    """

    name: str
    port: int = 0
    heads: list[Mapping[str, str]] = field(default_factory=list)
    begin: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.begin.set()

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            while True:
                line, headers, body = await read_message(reader)
                if line.startswith("GET"):
                    writer.write(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n")
                    continue
                self.heads.append(headers)
                await self._answer(writer, streams=b'"stream":true' in body)
        writer.close()

    async def _answer(self, writer: asyncio.StreamWriter, *, streams: bool) -> None:
        if streams:
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
            await self.begin.wait()
            writer.write(b"a\r\ndata: {}\n\n\r\n")
            return
        body = orjson.dumps({"name": self.name, "usage": USAGE})
        writer.write(b"HTTP/1.1 200 OK\r\nx-cost: 7\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))


async def read_message(reader: asyncio.StreamReader) -> tuple[str, dict[str, str], bytes]:
    """First line, headers and body of a message that has a length, or none."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    line, *fields = head.rstrip("\r\n").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (one.partition(":") for one in fields)}
    length = re.fullmatch(r"\d+", headers.get("content-length", "0"))
    return line, headers, await reader.readexactly(int(length[0]) if length else 0)


@dataclass(frozen=True)
class Answer:
    """What came back: `name` is the server's; `reason` why it was refused."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def name(self) -> str:
        return str(orjson.loads(self.body).get("name"))

    @property
    def reason(self) -> tuple[int, str]:
        assert self.headers["x-hotbay-reason"] == self.headers["x-llm-d-request-dropped-reason"]
        return self.status, self.headers["x-hotbay-reason"]


@dataclass
class Bay:
    """A host that serves."""

    host: Host
    serving: Serving
    servers: dict[str, Server]
    tools: Any

    async def post(self, value: object = None, path: str = "/v1/chat/completions", **headers: str) -> Answer:
        """One request over a connection of its own; `_` in names of headers is a hyphen."""
        reader, writer = await self.begin(value, path, **headers)
        line, found, body = await read_message(reader)
        writer.close()
        return Answer(int(line.split(" ")[1]), found, body)

    async def begin(
        self, value: object = None, path: str = "/v1/chat/completions", **headers: str
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Send a request and wait for nothing."""
        value = {"model": "m", "messages": [{"role": "user", "content": "hi"}]} if value is None else value
        body = value if isinstance(value, bytes) else orjson.dumps(value)
        head = "".join(f"{name.replace('_', '-')}: {text}\r\n" for name, text in headers.items()).encode()
        reader, writer = await asyncio.open_connection(*self.serving.address)
        writer.write(
            b"POST %b HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n%b\r\n%b" % (path.encode(), len(body), head, body)
        )
        return reader, writer

    @staticmethod
    def kill(pid: int) -> None:
        """As the kernel does."""
        os.kill(pid, signal.SIGKILL)

    @property
    def status(self) -> Mapping[str, Any]:
        return dict(self.serving.status())

    async def state(self, ref: str) -> Any:
        """What a ref shows of its state."""
        page = await StateDumps(self.host._supervisor.deployment, {}).dump(ref)
        return page["plugins"][0]["state"]  # type: ignore[index]  # the page of one ref

    async def until_state(self, ref: str, holds: Callable[[Any], object]) -> Any:
        with anyio.fail_after(WAIT_S):
            # What a process keeps signals nobody.
            while not holds(state := await self.state(ref)):  # noqa: ASYNC110
                await anyio.sleep(0.01)
        return state

    async def until(self, holds: Callable[[], object]) -> None:
        await self.tools.until(holds, told=lambda: orjson.dumps(self.status, option=orjson.OPT_INDENT_2).decode())


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, bool]]:
    return "asyncio", {"use_uvloop": True}


@pytest.fixture
def run_host(tmp_path: Path, packages: Any, tools: Any):
    """run_host({id: (source, types)}, picker, config): a host over packages made of these, before servers v1 and v2."""

    @asynccontextmanager
    async def run(
        made: Mapping[str, tuple[str, tuple[str, ...]]], picker: str, config: str = "", *, ready: bool = True
    ) -> AsyncIterator[Bay]:
        source = tmp_path / "packages"
        for package, (text, types) in made.items():
            packages.make(source / package, text, id=package, types=types)
        async with AsyncExitStack() as stack:
            servers = {name: Server(name) for name in ("v1", "v2")}
            for server in servers.values():
                listening = await asyncio.start_server(server.accept, "127.0.0.1", 0)
                stack.callback(listening.close)
                server.port = listening.sockets[0].getsockname()[1]
            bay = await stack.enter_async_context(_running(tmp_path, source, servers, picker, config, tools))
            if ready:
                await bay.until(lambda: bay.status["ready"])
            yield bay

    return run


@asynccontextmanager
async def _running(
    folder: Path, source: Path, servers: dict[str, Server], picker: str, config: str, tools: Any
) -> AsyncIterator[Bay]:
    endpoints = "".join(f"- {{name: {s.name}, url: 'http://127.0.0.1:{s.port}'}}\n" for s in servers.values())
    text = (
        f"apiVersion: hotbay/v1alpha1\nkind: HostConfig\nstate_dir: {folder}/state\nlisten: {{http: '127.0.0.1:0'}}\n"
        f"sources: [{{name: test, directory: {source}}}]\nscrape: {{interval: 1s}}\n"
        f"swap: {{shadow: off, canary: off, guard: off}}\nendpoints:\n{endpoints}{config}"
    )
    read = load_host_config(text, file="host.yaml", base_directory=folder, environment={}, is_root=False)
    host = Host(read, load_picker_config(picker, file="picker.yaml"), picker_directory=folder)
    stop, began = anyio.Event(), anyio.Event()
    at: list[Serving] = []

    def serving(where: Serving) -> None:
        at.append(where)
        began.set()

    async with anyio.create_task_group() as group:
        group.start_soon(host.run, serving, stop)
        try:
            with anyio.fail_after(WAIT_S):
                await began.wait()
            yield Bay(host, at[0], servers, tools)
        finally:
            stop.set()
