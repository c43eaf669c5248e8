"""Processes that answer what a test says, and a host that has any of them live."""

import struct
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import anyio
import anyio.abc
import anyio.lowlevel
import msgpack
import pytest
from hotbay.errors import HostError, PluginFault
from hotbay.rpc.leases import Generation, LiveRef, Origin
from hotbay_sdk.protocol import DataDeclaration, TypeDeclaration

WAIT_S = 10.0
DECLARED = TypeDeclaration("t", ("extract", "source"), data=DataDeclaration("endpoint", (), {"a": "f32", "n": "i64"}))


def crashed() -> PluginFault:
    return PluginFault("CRASHED", "it ended")


class Flow:
    """What one `discover` told and nobody took."""

    def __init__(self, came: Callable[[], None], done: Callable[[object], None]) -> None:
        self.came = came
        self.done = done
        self.cancelled = False
        self.keeps_on = False
        self._data = bytearray()

    def tell(self, *records: object) -> None:
        for record in records:
            body = msgpack.packb(record)
            self._data += struct.pack(">I", len(body)) + body
        if not self.cancelled:
            self.came()

    def tell_bytes(self, data: bytes) -> None:
        self._data += data
        self.came()

    def take(self) -> bytes:
        data = bytes(self._data)
        self._data.clear()
        return data

    def cancel(self) -> None:
        """Give it up, unless it is to keep on until `done` is called."""
        is_first, self.cancelled = not self.cancelled, True
        self._data.clear()
        if is_first and not self.keeps_on:
            self.done(PluginFault("CANCELLED", "it was given up"))


class Client:
    """A process: `answers` are given in turn, or `hold` keeps calls until it is set; `die` ends it."""

    def __init__(self, label: str) -> None:
        self.label = label
        self.fault: HostError | None = None
        self.calls: list[Sequence[Any]] = []
        self.answers: deque[object] = deque()
        self.hold: anyio.Event | None = None
        self.flows: list[Flow] = []
        self.asked = anyio.Event()
        self.reply_limits: list[int | None] = []

    async def control_call(
        self, method: int, args: Sequence[Any], *, deadline_s: float, reply_limit_bytes: int | None = None
    ) -> object:
        self.reply_limits.append(reply_limit_bytes)
        if self.fault is not None:
            raise self.fault
        self.calls.append([method, *args])
        self.asked.set()
        if self.hold is not None:
            await self.hold.wait()
        if self.fault is not None:
            raise self.fault
        answer = self.answers.popleft() if self.answers else {}
        if isinstance(answer, HostError):
            raise answer
        return answer

    def follow(
        self, method: int, args: Sequence[Any], *, came: Callable[[], None], done: Callable[[object], None]
    ) -> Flow:
        if self.fault is not None:
            raise self.fault
        self.flows.append(Flow(came, done))
        return self.flows[-1]

    def die(self) -> None:
        self.fault = crashed()
        if self.hold is not None:
            self.hold.set()
        for flow in self.flows:
            if not flow.cancelled:
                flow.done(self.fault)


@dataclass
class Bay:
    """Where the ref is answered; `now` is the time of a test's own."""

    live: LiveRef | None = None
    watchers: list[Callable[[], None]] = field(default_factory=list)
    outcomes: list[tuple[int, str, str]] = field(default_factory=list)
    now: float = 0.0
    numbers: int = 0
    remembered: TypeDeclaration | None = None

    def current(self, ref: str) -> LiveRef | None:
        live = self.live
        return None if live is None or live.generation.client.fault or live.generation.leaving else live

    def declared(self, ref: str) -> TypeDeclaration | None:
        return self.remembered

    def watch(self, changed: Callable[[], None]) -> Callable[[], None]:
        self.watchers.append(changed)
        return lambda: self.watchers.remove(changed)

    def called(
        self, generation: int, point: str, ref: str, *, duration_s: float, code: str = "", complaint: str = ""
    ) -> None:
        self.outcomes.append((generation, point, code))

    def process(self, declared: TypeDeclaration = DECLARED) -> LiveRef:
        """A process that is not live yet."""
        self.numbers += 1
        client = Client(f"p#{self.numbers}")
        generation = Generation(self.numbers, Origin("p", "1.0.0", 1, "sha256:0"), client, {"t": declared}, 1)  # type: ignore[arg-type]  # a client of the test
        return LiveRef(generation, (self.numbers, 1), declared)

    def go_live(self, live: LiveRef | None) -> None:
        self.live = live
        self.remembered = live.declaration if live is not None else self.remembered
        for changed in tuple(self.watchers):
            changed()

    def swap(self) -> Client:
        """Another process is live; its client."""
        live = self.process()
        self.go_live(live)
        return live.generation.client  # type: ignore[return-value]  # as above


class Asked:
    """Calls under way and what came of them, in the order in which they ended."""

    def __init__(self, group: anyio.abc.TaskGroup) -> None:
        self._group = group
        self.ended: list[object] = []

    def begin(self, ask: Callable[[], Awaitable[object]]) -> None:
        async def run() -> None:
            try:
                self.ended.append(await ask())
            except HostError as error:
                self.ended.append(error.code)

        self._group.start_soon(run)


@pytest.fixture
def asking() -> type[Asked]:
    return Asked


@pytest.fixture
def soon() -> Callable[[Callable[[], object]], Awaitable[None]]:
    """Wait until something holds."""

    async def wait(holds: Callable[[], object]) -> None:
        with anyio.fail_after(WAIT_S):
            while not holds():
                await anyio.lowlevel.checkpoint()

    return wait


@pytest.fixture
def bay() -> Bay:
    return Bay()


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def died() -> PluginFault:
    return crashed()
