"""What tests of whole hosts share: plugin packages made in place, model servers that answer at once, clients and load.

A package is a hand-made wheel of one module beside the SDK's and msgpack's real wheels; nothing is built. Waiting is
for a condition with a deadline, never for time to pass.
"""

import asyncio
import base64
import hashlib
import io
import re
import time
import zipfile
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

import anyio
import orjson
import pytest
from hotbay.packages.layout import blob_path, read_layout, write_layout
from hotbay.packages.manifest import Blob, Channel, Manifest, ProtocolRange, TypeFactsEntry, host_platform
from hotbay.store.digests import digest_of

ROOT = Path(__file__).resolve().parents[2]
MODULE = "plugin_under_test"
CHAT = orjson.dumps({"model": "m", "messages": [{"role": "user", "content": "hello"}]})
POLL_S = 0.01
WAIT_S = 30.0
"""Deadline of waits for what takes a second or two on a machine of its own: others may work on it too."""
SLICE_S = 0.002
"""What is due within so long is sent at once: the load is not to cost more than what it loads."""
MOST_OUT = 512
"""Requests of a load that are out at once: hundreds of times what half of a machine's rate needs."""
KEPT_S = 30.0
"""How long a client keeps a quiet connection: the host closes it after 75 s, and a request that crosses that is lost."""

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
        version: str | None = None,
        sdk: Mapping[str, str] | None = None,
        capabilities: tuple[str, ...] = (),
        one_shot: bool = False,
        data_types: tuple[str, ...] = (),
        type_facts: Mapping[str, TypeFactsEntry] | None = None,
    ) -> Manifest:
        """Write a package of one module; `sdk` puts other files in the place of the SDK.

        Its types are stable and say nothing else of themselves, unless `type_facts` does.
        """
        version = version or f"{rev}.0.0"
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
            capabilities=capabilities,
            one_shot=one_shot,
            data_types=data_types,
            type_facts=dict.fromkeys(types, TypeFactsEntry(stability="stable")) if type_facts is None else type_facts,
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


# -- waiting -------------------------------------------------------------------------------------


async def wait_until(
    holds: Callable[[], object], *, within_s: float = WAIT_S, told: Callable[[], object] = str
) -> None:
    """Wait until `holds`; at the deadline fail with what is `told`."""
    deadline_s = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < deadline_s, told()
        await anyio.sleep(POLL_S)


@pytest.fixture
def until() -> Callable[..., Awaitable[None]]:
    return wait_until


# -- model servers and clients -------------------------------------------------------------------


class ModelServer:
    """Answers every chat request at once, in the OpenAI form, with its own name as the text. `page` is its metrics page.

    A request with `"stream": true` gets its head and first event at once and the end when `finish` is set.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.answered = 0
        self.page = b""
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
            kind = b"text/plain"
            writer.write(
                b"HTTP/1.1 200 OK\r\ncontent-type: %b\r\ncontent-length: %d\r\n\r\n%b"
                % (kind, len(self.page), self.page)
            )
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
        self.address = address
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter, float]] = []

    async def chat(self) -> Answered:
        return await self.send(b"POST /v1/chat/completions", CHAT)

    async def send(self, line: bytes, body: bytes = b"") -> Answered:
        """Whatever goes wrong is an answer too: status 0 and the error as its text."""
        sent_s = time.monotonic()
        try:
            # As every HTTP client does: a kept connection that the server has closed, or may be closing, is not used again.
            while self._idle and (self._idle[-1][0].at_eof() or self._idle[-1][2] < sent_s - KEPT_S):
                self._idle.pop()[1].close()
            reader, writer = self._idle.pop()[:2] if self._idle else await asyncio.open_connection(*self.address)
        except OSError as error:
            return Answered(sent_s, time.monotonic(), 0, repr(error))
        try:
            writer.write(b"%b HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%b" % (line, len(body), body))
            head, content = await read_message(reader)
        except (OSError, asyncio.IncompleteReadError) as error:
            writer.close()
            return Answered(sent_s, time.monotonic(), 0, repr(error))
        self._idle.append((reader, writer, time.monotonic()))
        status = int(head.split(b" ", 2)[1])
        page = orjson.loads(content) if content.startswith(b"{") else {}
        if status == 200 and "choices" in page:
            return Answered(sent_s, time.monotonic(), status, page["choices"][0]["message"]["content"])
        found = re.search(rb"x-hotbay-reason: *(\S+)", head, re.IGNORECASE)
        reason = found[1].decode() if found else ""
        return Answered(sent_s, time.monotonic(), status, content.decode(errors="replace"), reason)

    def close(self) -> None:
        for _, writer, _ in self._idle:
            writer.close()
        self._idle.clear()


class Load:
    """Requests at a steady rate while it is entered. `answers` are in order of their end.

    At most `MOST_OUT` are out at once; what is due beyond is sent when there is room, and `behind` counts it. A machine that
    stands still for seconds leaves a backlog then, and no storm of connections under which nothing of it would recover.
    """

    def __init__(self, client: Client, rate_per_s: float) -> None:
        self._client = client
        self._interval_s = 1 / rate_per_s
        self._stop = anyio.Event()
        self.answers: list[Answered] = []
        self.sent = 0
        self.behind = 0

    @property
    def failed(self) -> list[Answered]:
        return [answer for answer in self.answers if answer.status != 200]

    def texts(self) -> Counter[str]:
        return Counter(answer.text for answer in self.answers)

    async def more(self, count: int) -> None:
        """Wait until so many more requests than now were answered."""
        wanted = len(self.answers) + count
        await wait_until(lambda: len(self.answers) >= wanted, within_s=WAIT_S + count * self._interval_s * 5)

    async def _one(self) -> None:
        self.answers.append(await self._client.chat())

    async def run(self) -> None:
        async with anyio.create_task_group() as group:
            due_s = time.monotonic()
            while not self._stop.is_set():
                while due_s <= time.monotonic() and self.sent - len(self.answers) < MOST_OUT:
                    group.start_soon(self._one)
                    self.sent += 1
                    due_s += self._interval_s
                self.behind = max(0, int((time.monotonic() - due_s) / self._interval_s))
                with anyio.move_on_after(max(SLICE_S, due_s - time.monotonic())):
                    await self._stop.wait()

    def stop(self) -> None:
        self._stop.set()


@pytest.fixture
async def servers(anyio_backend: object) -> AsyncIterator[list[ModelServer]]:
    """Two model servers, `v1` and `v2`."""
    async with AsyncExitStack() as stack:
        started = [ModelServer("v1"), ModelServer("v2")]
        for server in started:
            await server.start()
            stack.push_async_callback(server.stop)
        yield started


# -- processes -----------------------------------------------------------------------------------


def children_of(pid: int) -> set[int]:
    """Processes whose parent is `pid`, zombies too."""
    found: set[int] = set()
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            # A thread may end between the listing and the look.
            with suppress(ProcessLookupError):
                found.update(map(int, (task / "children").read_text().split()))
    return found


def plugins_of(pid: int) -> set[int]:
    """Processes of plugins among them; tools of the host are none."""
    return {child for child in children_of(pid) if "stage0.py" in _command_line(child)}


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


@dataclass(frozen=True)
class Tools:
    """For fixtures of folders below, which cannot import this file."""

    client: type[Client] = Client
    load: type[Load] = Load
    until: Callable[..., Awaitable[None]] = wait_until
    plugins_of: Callable[[int], set[int]] = plugins_of


@pytest.fixture
def tools() -> Tools:
    return Tools()
