"""A plugin environment without the SDK: a fake `hotbay_sdk._serve` that speaks just enough of the links.

The fake is stage 0's other half as interfaces go: after GO it says HELLO, imports the entry point's module
(the source that a test gives) and calls the named function with the three descriptors.
"""

import contextlib
import json
import logging
import os
import signal
import sys
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio
import anyio.abc
import hotbay_sdk
import msgpack
import pytest
from hotbay.process.child import Child
from hotbay.process.launch import STAGE0, LaunchSpec
from hotbay.process.log import LogSink
from hotbay.process.proc import process_ids
from hotbay_sdk.protocol import FrameType, encode_frame
from hotbay_sdk.protocol.frames import MAX_FRAME_BYTES, Frame, FrameReader

WAIT_S = 5.0
"""Five times the second that the field failures allow: other work shares the machine."""

FAKE_SERVE = """
import importlib, json, os, struct

HEADER = struct.Struct(">BBBBII")

def write_frame(fd, kind, body, stream=0):
    data = HEADER.pack(0xF5, kind, 0, 1, stream, len(body)) + body
    while data:
        data = data[os.write(fd, data):]

def read_exactly(fd, count):
    data = b""
    while len(data) < count:
        piece = os.read(fd, count - len(data))
        if not piece:
            os._exit(0)
        data += piece
    return data

def read_frame(fd):
    header = HEADER.unpack(read_exactly(fd, HEADER.size))
    return header[4], read_exactly(fd, header[5])

def say(control, value):
    write_frame(control, 16, json.dumps(value).encode())

def answer_calls(call_in, call_out, handler):
    while True:
        stream, body = read_frame(call_in)
        write_frame(call_out, 7, handler(body), stream)

def main(entrypoint, call_in, call_out, control):
    module, _, name = entrypoint.partition(":")
    write_frame(control, 3, b"")
    getattr(importlib.import_module(module), name)(call_in, call_out, control)
    os._exit(0)
"""


class FrameSource:
    """Reads frames of one link; anything that is no frame fails the test that reads it."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._reader = FrameReader(lambda *_: MAX_FRAME_BYTES)
        self._frames: deque[Frame] = deque()

    async def next(self) -> Frame | None:
        """Return the next frame, or None at the end of the link."""
        with anyio.fail_after(WAIT_S):
            while not self._frames:
                await anyio.wait_readable(self._fd)
                data = os.read(self._fd, 65536)
                if not data:
                    return None
                for item in self._reader.feed(data):
                    assert isinstance(item, Frame), item
                    self._frames.append(item)
        return self._frames.popleft()


@dataclass
class Running:
    """A started child with both links."""

    child: Child
    log: LogSink
    control: FrameSource
    replies: FrameSource

    async def expect(self, kind: FrameType) -> Frame:
        """Read the next control frame, which must be of this type."""
        frame = await self.control.next()
        assert frame is not None, self.log.tail(4000)
        assert frame.type == kind
        return frame

    def go(self) -> None:
        self.child.control.send(encode_frame(FrameType.GO, 0, b"\x80"))

    async def hello(self) -> None:
        """Take the child through ARMED, GO and HELLO."""
        await self.expect(FrameType.ARMED)
        self.go()
        await self.expect(FrameType.HELLO)

    async def said(self) -> object:
        """Return the next value that the plugin's code said."""
        return json.loads((await self.expect(FrameType.EVENT)).body)

    async def call(self, body: bytes) -> bytes:
        """One call there and back."""
        os.write(self.child.call_out_fd, encode_frame(FrameType.REQ, 1, body))
        frame = await self.replies.next()
        assert frame is not None, self.log.tail(4000)
        return frame.body

    async def ended(self) -> None:
        with anyio.fail_after(WAIT_S):
            await self.child.wait()


StartPlugin = Callable[..., Awaitable[Running]]


@pytest.fixture(params=["uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, object]]:
    return ("asyncio", {"use_uvloop": request.param == "uvloop"})


@pytest.fixture
def make_spec(tmp_path: Path) -> Callable[..., LaunchSpec]:
    """Build the spec of a plugin whose module is `source`."""

    def make(source: str = "", **changes: object) -> LaunchSpec:
        environment = tmp_path / "environment"
        (environment / "hotbay_sdk").mkdir(parents=True, exist_ok=True)
        (environment / "hotbay_sdk" / "__init__.py").touch()
        (environment / "hotbay_sdk" / "_serve.py").write_text(FAKE_SERVE)
        (environment / "plugin_under_test.py").write_text(source)
        fields: dict[str, object] = {
            "interpreter": sys.executable,
            "stage0": STAGE0,
            "environment": str(environment),
            "entrypoint": "plugin_under_test:main",
            "working_directory": str(tmp_path),
            "level": "none",
            "label": "faulty#1",
            **changes,
        }
        return LaunchSpec(**fields)  # type: ignore[arg-type]  # a wrong name fails at once

    return make


@pytest.fixture
def real_environment(tmp_path: Path) -> Callable[[str], Path]:
    """Make an environment with the real SDK, in which the plugin's module is `source`."""

    def make(source: str) -> Path:
        environment = tmp_path / "real_environment"
        environment.mkdir()
        found = {Path(module.__path__[0]).parent for module in (hotbay_sdk, msgpack)}
        (environment / "found.pth").write_text("\n".join(map(str, sorted(found))))
        (environment / "plugin_under_test.py").write_text(source)
        return environment

    return make


@asynccontextmanager
async def running(spec: LaunchSpec) -> AsyncIterator[Running]:
    """Start a child; stop it and close its links at the end."""
    log = LogSink(spec.label)
    child = Child.start(spec, log)
    try:
        yield Running(child, log, FrameSource(child.control.fileno()), FrameSource(child.call_in_fd))
    finally:
        await child.stop(0)
        child.close()


@pytest.fixture
async def start_plugin(make_spec: Callable[..., LaunchSpec]) -> AsyncIterator[StartPlugin]:
    """Start plugins from their source; all are gone when the test ends."""
    async with AsyncExitStack() as stack:

        async def start(source: str = "", **changes: object) -> Running:
            return await stack.enter_async_context(running(make_spec(source, **changes)))

        yield start


class LogWatch(logging.Handler):
    """Lets a test wait for a line of a plugin's log."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.records: list[logging.LogRecord] = []
        self._changed = anyio.Event()

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)
        self.lines.append(record.getMessage())
        self._changed.set()

    async def line(self, text: str, *, within_s: float = WAIT_S) -> str:
        """Return the first line that contains `text`."""
        with anyio.fail_after(within_s):
            while True:
                found = next((line for line in self.lines if text in line), None)
                if found is not None:
                    return found
                self._changed = anyio.Event()
                await self._changed.wait()


@pytest.fixture
async def plugin_log() -> AsyncIterator[LogWatch]:
    watch = LogWatch()
    plugin_logger = logging.getLogger("hotbay.plugin.faulty")
    plugin_logger.addHandler(watch)
    before = plugin_logger.level
    plugin_logger.setLevel(logging.INFO)
    yield watch
    plugin_logger.removeHandler(watch)
    plugin_logger.setLevel(before)


@pytest.fixture
def pidfds() -> Iterator[Callable[[int], int]]:
    """Open pidfds of processes that are not ours; what still runs at the end is killed."""
    opened: list[int] = []

    def open_one(pid: int) -> int:
        opened.append(os.pidfd_open(pid))
        return opened[-1]

    yield open_one
    for pidfd in opened:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        os.close(pidfd)


@pytest.fixture
def named_after(tmp_path: Path) -> Iterator[Callable[[Path], set[int]]]:
    """Processes with a folder in their command line; zombies have none. What a failed test leaves of them is killed."""

    def find(folder: Path) -> set[int]:
        found = set()
        for pid in process_ids():
            with contextlib.suppress(OSError):
                if str(folder).encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
                    found.add(pid)
        return found - {os.getpid()}

    yield find
    for pid in find(tmp_path):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@pytest.fixture
def program() -> Callable[..., AbstractAsyncContextManager[anyio.abc.Process]]:
    """Run one of this folder's scripts as a context, or another command that starts with `prefix`."""

    @asynccontextmanager
    async def run(script: str, *arguments: object, prefix: Sequence[str] = ()) -> AsyncIterator[anyio.abc.Process]:
        command = [*prefix, sys.executable, str(Path(__file__).with_name(script)), *map(str, arguments)]
        process = await anyio.open_process(command, stderr=None)
        try:
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.aclose()

    return run
