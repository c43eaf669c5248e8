"""A whole host in the test's loop, with plugin packages made in place and model servers that answer at once.

A package is a hand-made wheel of one module beside the SDK's and msgpack's real wheels; nothing is built. Waiting is
for a condition of the host's status with a deadline, never for time to pass.
"""

import asyncio
import base64
import gc
import hashlib
import io
import os
import re
import signal
import subprocess
import sys
import threading
import time
import zipfile
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import orjson
import pytest
from hotbay.app import Host, Serving
from hotbay.config.host_config import load_host_config
from hotbay.config.picker_config import load_picker_config
from hotbay.packages.layout import blob_path, read_layout, write_layout
from hotbay.packages.manifest import Blob, Channel, Manifest, ProtocolRange, host_platform
from hotbay.store.digests import digest_of

ROOT = Path(__file__).resolve().parents[3]
MODULE = "plugin_under_test"
CHAT = orjson.dumps({"model": "m", "messages": [{"role": "user", "content": "hello"}]})
POLL_S = 0.01
WAIT_S = 10.0
"""Deadline of waits for what takes a second or two on a machine of its own."""

SCORER = """
import os, signal, sys, time
from hotbay_sdk import Filter, ParameterError, Plugin, Scorer
{start}
plugin = Plugin("sample")

@plugin.type("{type}"{declaration})
class Prefers({base}):
    def __init__(self, context, parameters=None):
        self.calls = 0
        {init}

    def {method}(self, requests, endpoints):
        self.calls += 1
        {score}
        best = ["default/{endpoint}" == name for name in endpoints.ids]
        return [[float(is_best) for is_best in best] for _ in requests]
"""

PICKER = """
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
- {name: sample, type: sample-scorer}
schedulingProfiles:
- name: default
  plugins: [{pluginRef: sample}]
"""


@dataclass(frozen=True)
class Text:
    """What tests write: sources of plugins, and the configuration that runs the one called `sample`."""

    picker: str = PICKER

    @staticmethod
    def scorer(
        endpoint: str,
        *,
        start: str = "",
        init: str = "pass",
        score: str = "pass",
        type: str = "sample-scorer",  # noqa: A002 - the word of the format
        declaration: str = "",
        is_filter: bool = False,
    ) -> str:
        """A scorer that sends everything to one endpoint: which version decided shows at the model servers.

        `start` runs at import, `init` and `score` in the methods. `is_filter`: a filter that keeps that endpoint alone,
        for decisions that fall together: the picker spreads those beyond what a score says.
        """
        return SCORER.format(
            endpoint=endpoint, start=start, init=init, score=score, type=type, declaration=declaration,
            base="Filter" if is_filter else "Scorer", method="keep_batch" if is_filter else "score_batch",
        )  # fmt: skip


@pytest.fixture
def text() -> Text:
    return Text()


# -- packages ------------------------------------------------------------------------------------


def wheel_bytes(distribution: str, version: str, files: Mapping[str, str]) -> bytes:
    """A pure wheel, equal for equal arguments."""
    info = f"{distribution}-{version}.dist-info"
    content = {name: text.encode() for name, text in files.items()}
    content[f"{info}/METADATA"] = f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n".encode()
    content[f"{info}/WHEEL"] = b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    record = "".join(
        f"{name},sha256={base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b'=').decode()},{len(data)}\n"
        for name, data in content.items()
    )
    content[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n".encode()
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, data in content.items():
            archive.writestr(zipfile.ZipInfo(name), data)
    return buffer.getvalue()


@dataclass(frozen=True)
class Packages:
    """Makes package folders. `real` are the wheels that every plugin needs."""

    folder: Path
    real: Mapping[str, Path]

    def make(
        self,
        out: Path,
        source: str,
        *,
        id: str = "sample",  # noqa: A002 - the manifest's own word
        rev: int = 1,
        types: tuple[str, ...] = ("sample-scorer",),
        platform: str | None = None,
        sdk: Mapping[str, str] | None = None,
    ) -> Manifest:
        """Write a package of one module; `sdk` puts other files in the place of the SDK."""
        version = f"{rev}.0.0"
        wheels = {name: path for name, path in self.real.items() if sdk is None or not name.startswith("hotbay_sdk-")}
        own = {f"hotbay_plugin_{id.replace('-', '_')}": {f"{MODULE}.py": source}}
        if sdk is not None:
            own["hotbay_sdk"] = dict(sdk)
        self.folder.mkdir(exist_ok=True)
        for distribution, files in own.items():
            path = self.folder / f"{distribution}-{version}-py3-none-any.whl"
            path.write_bytes(wheel_bytes(distribution, version, files))
            wheels[path.name] = path
        manifest = Manifest(
            id=id,
            publisher="tests",
            rev=rev,
            version=version,
            platform=platform or host_platform(),
            entrypoint=f"{MODULE}:plugin",
            types=types,
            protocol=ProtocolRange(first=1, last=1),
            blobs=tuple(_blob(name, path) for name, path in sorted(wheels.items())),
            channel=Channel.DEV,
        )
        write_layout(out, manifest, wheels)
        return manifest


def _blob(name: str, path: Path) -> Blob:
    content = path.read_bytes()
    return Blob(name=name, digest=digest_of(content), size=len(content))


@pytest.fixture(scope="session")
def real_wheels() -> dict[str, Path]:
    """The wheels that the Makefile puts into every first-party package."""
    layout = ROOT / "build" / "packages" / "standard"
    (manifest,) = read_layout(layout)
    return {
        blob.name: blob_path(layout, blob.digest)
        for blob in manifest.blobs
        if blob.name.startswith(("hotbay_sdk-", "msgpack-"))
    }


@pytest.fixture
def packages(tmp_path: Path, real_wheels: dict[str, Path]) -> Packages:
    return Packages(tmp_path / "wheels", real_wheels)


# -- model servers and clients -------------------------------------------------------------------


class ModelServer:
    """Answers every chat request at once, in the OpenAI form, with its own name as the text.

    A request with `"stream": true` gets its head and first event at once and the end when `finish` is set.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.answered = 0
        self.finish = asyncio.Event()
        self.streams = 0
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            while True:
                await self._answer(*await read_message(reader), writer)
        self._tasks.discard(task)
        writer.close()

    async def _answer(self, head: bytes, body: bytes, writer: asyncio.StreamWriter) -> None:
        if head.startswith(b"GET /metrics"):
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 0\r\n\r\n")
            return
        if orjson.loads(body).get("stream"):
            self.streams += 1
            event = b"data: {}\n\n"
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
            writer.write(b"%x\r\n%b\r\n" % (len(event), event))
            await self.finish.wait()
            writer.write(b"%x\r\n%b\r\n0\r\n\r\n" % (len(event), event))
        else:
            message = {"role": "assistant", "content": self.name}
            answer = orjson.dumps({"object": "chat.completion", "choices": [{"index": 0, "message": message}]})
            writer.write(
                b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
                % (len(answer), answer)
            )
        self.answered += 1


async def read_message(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    """One HTTP message whose body, if any, has a length."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = re.search(rb"content-length: *(\d+)", head, re.IGNORECASE)
    return head, await reader.readexactly(int(length[1])) if length else b""


@dataclass(frozen=True)
class Answered:
    """One request as its client saw it. Times are monotonic."""

    sent_s: float
    done_s: float
    status: int
    text: str
    reason: str = ""


class Client:
    """Sends requests over connections that are kept and reused, as many as are needed at once."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._address = address
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def chat(self) -> Answered:
        return await self.send(b"POST /v1/chat/completions", CHAT)

    async def send(self, line: bytes, body: bytes = b"") -> Answered:
        """Whatever goes wrong is an answer too: status 0 and the error as its text."""
        sent_s = time.monotonic()
        try:
            reader, writer = self._idle.pop() if self._idle else await asyncio.open_connection(*self._address)
            writer.write(b"%b HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%b" % (line, len(body), body))
            head, content = await read_message(reader)
        except (OSError, asyncio.IncompleteReadError) as error:
            return Answered(sent_s, time.monotonic(), 0, repr(error))
        self._idle.append((reader, writer))
        status = int(head.split(b" ", 2)[1])
        page = orjson.loads(content) if content.startswith(b"{") else {}
        if status == 200 and "choices" in page:
            return Answered(sent_s, time.monotonic(), status, page["choices"][0]["message"]["content"])
        found = re.search(rb"x-hotbay-reason: *(\S+)", head, re.IGNORECASE)
        reason = found[1].decode() if found else ""
        return Answered(sent_s, time.monotonic(), status, content.decode(errors="replace"), reason)

    def close(self) -> None:
        for _, writer in self._idle:
            writer.close()
        self._idle.clear()


class Load:
    """Requests at a steady rate while it is entered. `answers` are in order of their end."""

    def __init__(self, client: Client, rate_per_s: float) -> None:
        self._client = client
        self._interval_s = 1 / rate_per_s
        self._stop = anyio.Event()
        self.answers: list[Answered] = []
        self.sent = 0

    @property
    def failed(self) -> list[Answered]:
        return [answer for answer in self.answers if answer.status != 200]

    def texts(self) -> Counter[str]:
        return Counter(answer.text for answer in self.answers)

    async def more(self, count: int) -> None:
        """Wait until so many more requests than now were answered."""
        wanted = len(self.answers) + count
        with anyio.fail_after(WAIT_S + count * self._interval_s * 5):
            while len(self.answers) < wanted:
                await anyio.sleep(POLL_S)

    async def _one(self) -> None:
        self.answers.append(await self._client.chat())

    async def run(self) -> None:
        async with anyio.create_task_group() as group:
            due_s = time.monotonic()
            while not self._stop.is_set():
                group.start_soon(self._one)
                self.sent += 1
                due_s += self._interval_s
                with anyio.move_on_after(max(0.0, due_s - time.monotonic())):
                    await self._stop.wait()

    def stop(self) -> None:
        self._stop.set()


# -- the host ------------------------------------------------------------------------------------


@dataclass
class Bay:
    """A running host with everything around it."""

    host: Host
    serving: Serving
    servers: list[ModelServer]
    source: Path
    packages: Packages
    stop: anyio.Event
    picker_directory: Path
    client: Client = field(init=False)

    def __post_init__(self) -> None:
        self.client = Client(self.serving.address)

    def status(self) -> dict[str, object]:
        return dict(self.serving.status())

    def plugin(self, name: str = "sample") -> dict:
        """The status row of a plugin."""
        return next(row for row in self.status()["plugins"] if row["plugin"] == name)

    def live(self, name: str = "sample") -> dict:
        """What runs of a plugin: rev, digest, generation, pid."""
        return self.plugin(name)["live"]

    def error(self, name: str = "sample") -> dict:
        return self.plugin(name)["last_error"]

    def degraded(self) -> dict[tuple[str, ...], int]:
        return dict(self.serving.metrics.degradations.items())

    def degraded_count(self) -> int:
        return sum(self.degraded().values())

    def plugin_errors(self) -> dict[tuple[str, ...], int]:
        return dict(self.serving.metrics.plugin_errors.items())

    async def wait_for(self, holds: Callable[[], object], *, within_s: float = WAIT_S) -> None:
        """Wait until `holds`; at the deadline fail with the status in the message."""
        deadline_s = time.monotonic() + within_s
        while not holds():
            assert time.monotonic() < deadline_s, orjson.dumps(self.status(), option=orjson.OPT_INDENT_2).decode()
            await anyio.sleep(POLL_S)

    async def ready(self, *, within_s: float = 30.0) -> None:
        await self.wait_for(lambda: self.status()["ready"], within_s=within_s)

    async def rev_is_live(self, rev: int, name: str = "sample", *, within_s: float = WAIT_S) -> None:
        await self.wait_for(lambda: (self.live(name) or {}).get("rev") == rev, within_s=within_s)

    def publish(self, source: str, *, folder: str | None = None, **manifest: object) -> Manifest:
        """Put a package into the watched folder, whole; `manifest` as for `Packages.make`."""
        name = f"{manifest.get('id', 'sample')}-{manifest.get('rev', 1)}"
        return self.packages.make(self.source / (folder or name), source, **manifest)

    @asynccontextmanager
    async def load(self, rate_per_s: float) -> AsyncIterator[Load]:
        load = Load(self.client, rate_per_s)
        async with anyio.create_task_group() as group:
            group.start_soon(load.run)
            try:
                yield load
            finally:
                load.stop()

    def plugin_pids(self) -> set[int]:
        """Processes of plugins that run now; tools of the host are none."""
        return {pid for pid in children_of(os.getpid()) if "stage0.py" in _command_line(pid)}


def host_text(servers: list[ModelServer], source: Path, state: Path, extra: str) -> str:
    endpoints = "".join(f"- {{name: {s.name}, url: 'http://127.0.0.1:{s.port}'}}\n" for s in servers)
    defaults = "" if "scrape:" in extra else "scrape: {interval: 1s}\n"
    return (
        "apiVersion: hotbay/v1alpha1\nkind: HostConfig\n"
        f"state_dir: {state}\nlisten: {{http: '127.0.0.1:0'}}\n"
        f"sources: [{{name: test, directory: {source}}}]\n"
        f"endpoints:\n{endpoints}{defaults}{extra}\n"
    )


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, bool]]:
    return "asyncio", {"use_uvloop": True}


@pytest.fixture
async def servers(anyio_backend: object) -> AsyncIterator[list[ModelServer]]:
    """Two model servers, `v1` and `v2`."""
    async with AsyncExitStack() as stack:
        started = [ModelServer("v1"), ModelServer("v2")]
        for server in started:
            await server.start()
            stack.push_async_callback(server.stop)
        yield started


@pytest.fixture
def host(tmp_path: Path, servers: list[ModelServer], packages: Packages):
    """host(picker, config=""): runs a host over the folder `packages` as a context; ready unless `ready=False`."""
    source = tmp_path / "packages"
    source.mkdir()

    @asynccontextmanager
    async def start(picker: str = PICKER, *, config: str = "", ready: bool = True) -> AsyncIterator[Bay]:
        given = host_text(servers, source, tmp_path / "state", config)
        host_config = load_host_config(given, file="host.yaml", base_directory=tmp_path, environment={}, is_root=False)
        host = Host(host_config, load_picker_config(picker, file="picker.yaml"), picker_directory=tmp_path)
        stop, began = anyio.Event(), anyio.Event()
        at: list[Serving] = []

        def serving(where: Serving) -> None:
            at.append(where)
            began.set()

        async with anyio.create_task_group() as group:
            group.start_soon(host.run, serving, stop)
            with anyio.fail_after(WAIT_S):
                await began.wait()
            bay = Bay(host, at[0], servers, source, packages, stop, tmp_path)
            try:
                if ready:
                    await bay.ready()
                yield bay
            finally:
                bay.client.close()
                stop.set()

    return start


def children_of(pid: int) -> set[int]:
    """Processes whose parent is `pid`, zombies too."""
    found: set[int] = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                if int((entry / "stat").read_text().rpartition(")")[2].split()[1]) == pid:
                    found.add(int(entry.name))
    return found


def _command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    except OSError:
        return ""


@pytest.fixture(name="is_alive")
def is_alive_fixture() -> Callable[[int], bool]:
    return is_alive


def is_alive(pid: int) -> bool:
    """Whether the process exists in a state other than Z."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
