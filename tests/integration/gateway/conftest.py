"""A gateway on a real socket between raw clients and model servers whose behaviour a test writes.

Waiting is for events with a deadline, never for time to pass.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from random import Random

import orjson
import pytest
from hotbay.datalayer.endpoint import EndpointMetadata
from hotbay.datalayer.health.patience import Awaited
from hotbay.datalayer.health.reports import Attempt
from hotbay.gateway.http import Gateway
from hotbay.gateway.limits import GatewayLimits
from hotbay.gateway.outcome import Outcome
from hotbay.gateway.parsers.table import DEFAULT_PARSERS
from hotbay.gateway.seams import Look, as_decided
from hotbay.models.rules import NO_RULES, ModelRules
from hotbay.observe.metrics import Metrics
from hotbay.resolving.resolver import SYSTEM, Resolver
from hotbay.scheduling.decision import Picked, Rejected
from hotbay.scheduling.request import InferenceRequest
from hotbay.scheduling.response_facts import NO_WANTS, ResponseFacts
from hotbay_sdk.protocol.verdicts import Parsed

DEADLINE_S = 5.0
CHAT = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}


@pytest.fixture(params=["uvloop", "asyncio"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, bool]]:
    return "asyncio", {"use_uvloop": request.param == "uvloop"}


@dataclass
class Received:
    """A request as the model server read it."""

    line: str
    headers: dict[str, str]
    body: bytes

    def json(self) -> dict[str, object]:
        return orjson.loads(self.body)


@dataclass
class Stream:
    """The model server's end of a connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def write(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def chunk(self, data: bytes) -> None:
        await self.write(b"%x\r\n%b\r\n" % (len(data), data))

    async def begin_sse(self) -> None:
        await self.write(SSE_HEAD)

    async def event(self, text: str) -> None:
        await self.chunk(sse_event(text))

    async def end_sse(self) -> None:
        await self.chunk(sse_event("", finish="stop"))
        await self.chunk(b"data: [DONE]\n\n")
        await self.write(b"0\r\n\r\n")

    async def json(self, value: object, status: str = "200 OK") -> None:
        await self.write(json_response(value, status.encode()))

    async def closed_by_peer(self) -> None:
        """Return when the gateway closes this connection."""
        try:
            while await self.reader.read(65536):
                pass
        except ConnectionError:
            pass


Behaviour = Callable[[Received, Stream], Awaitable[bool]]
SSE_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def sse_event(text: str, *, finish: str | None = None) -> bytes:
    delta = {"role": "assistant", "content": text} if finish is None else {}
    choice = {"index": 0, "delta": delta, "text": text, "finish_reason": finish}
    event = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
    return b"data: " + orjson.dumps(event) + b"\n\n"


def json_response(value: object, status: bytes = b"200 OK") -> bytes:
    body = orjson.dumps(value)
    head = b"HTTP/1.1 %b\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % (status, len(body))
    return head + body


COMPLETION = {
    "id": "c",
    "object": "chat.completion",
    "created": 1,
    "model": "m",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "hi"}, "text": "hi", "finish_reason": "stop"}],
}
MODELS = {"object": "list", "data": [{"id": "m", "object": "model", "created": 1, "owned_by": "x"}]}


async def openai_like(request: Received, stream: Stream) -> bool:
    """Answers as a model server does; keeps the connection."""
    if request.line.startswith("GET /v1/models"):
        await stream.json(MODELS)
    elif request.json().get("stream"):
        await stream.begin_sse()
        for word in ("one", " two", " three"):
            await stream.event(word)
        await stream.end_sse()
    else:
        await stream.json(COMPLETION)
    return True


async def llamacpp_like(request: Received, stream: Stream) -> bool:
    """As llama.cpp: closes after every stream without having announced it."""
    await openai_like(request, stream)
    return not (request.body and request.json().get("stream"))


BEHAVIOURS = {"openai": openai_like, "llamacpp": llamacpp_like}


class ModelServer:
    """A model server on a socket of its own."""

    def __init__(self, behaviour: Behaviour | str, name: str) -> None:
        self.behaviour = BEHAVIOURS[behaviour] if isinstance(behaviour, str) else behaviour
        self.name = name
        self.requests: list[Received] = []
        self.connects = 0
        self.open = 0
        self.arrived = asyncio.Queue[Received]()
        self._changed = asyncio.Event()
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    @property
    def endpoint(self) -> EndpointMetadata:
        return EndpointMetadata(f"default/{self.name}", self.name, "127.0.0.1", self.port)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connects += 1
        self._count_open(1)
        try:
            while await self._serve(Stream(reader, writer)):
                pass
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            # Cancelled by `stop`: streams of Python 3.11 log an error for a handler that ends so.
            pass
        finally:
            self._tasks.discard(task)
            self._count_open(-1)
            writer.close()

    def _count_open(self, by: int) -> None:
        self.open += by
        self._changed.set()

    async def wait_open(self, count: int) -> None:
        """Wait until exactly `count` connections are open."""
        async with asyncio.timeout(DEADLINE_S):
            while self.open != count:
                self._changed.clear()
                await self._changed.wait()

    async def _serve(self, stream: Stream) -> bool:
        head = (await stream.reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        line, *fields = head.rstrip("\r\n").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (field.partition(":") for field in fields)}
        body = await stream.reader.readexactly(int(headers.get("content-length", "0")))
        received = Received(line, headers, body)
        self.requests.append(received)
        self.arrived.put_nowait(received)
        return await self.behaviour(received, stream)

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


class CountingLedger:
    """Counts like the real one and notices an end without a start."""

    def __init__(self) -> None:
        self.in_flight: Counter[str] = Counter()
        self.tokens: Counter[str] = Counter()
        self.starts = 0
        self.ends = 0

    def started(self, endpoint_id: str, tokens: int | None) -> None:
        self.starts += 1
        self.in_flight[endpoint_id] += 1
        self.tokens[endpoint_id] += tokens or 0

    def relieved(self, endpoint_id: str, tokens: int) -> None:
        assert self.tokens[endpoint_id] >= tokens
        self.tokens[endpoint_id] -= tokens

    def finished(self, endpoint_id: str, tokens: int | None) -> None:
        self.ends += 1
        assert self.in_flight[endpoint_id] > 0, f"{endpoint_id} was settled twice"
        assert self.tokens[endpoint_id] >= (tokens or 0)
        self.in_flight[endpoint_id] -= 1
        self.tokens[endpoint_id] -= tokens or 0


class RoundRobin:
    """A router without plugins. `rejection` refuses everything; `held` collects instead of answering.

    `chooses` decides in its place; None from it is no answer.
    """

    def __init__(self, endpoints: list[EndpointMetadata]) -> None:
        self.endpoints = endpoints
        self.requests: list[InferenceRequest] = []
        self.cancelled: list[str] = []
        self.ends: list[tuple[str, bool, bool]] = []
        self.sent_to: list[tuple[str, str]] = []
        self.sent_requests: dict[tuple[str, str], tuple[InferenceRequest, Picked]] = {}
        self.rejection: Rejected | None = None
        self.held: asyncio.Queue[Callable[[Picked | Rejected], None]] | None = None
        self.chooses: Callable[[InferenceRequest], EndpointMetadata | Rejected | None] | None = None

    def decide(self, request: InferenceRequest, done: Callable[[Picked | Rejected], None]) -> None:
        self.requests.append(request)
        if self.chooses is not None:
            chosen = self.chooses(request)
            if chosen is not None:
                done(chosen if isinstance(chosen, Rejected) else Picked(chosen))
        elif self.held is not None:
            self.held.put_nowait(done)
        else:
            done(self.decision())

    def cancel(self, request: InferenceRequest) -> None:
        self.cancelled.append(request.id)

    def sent(self, request: InferenceRequest, decision: Picked, endpoint_id: str) -> None:
        told = (request.id, endpoint_id)
        assert told not in self.sent_to, f"{told} was told twice"
        self.sent_to.append(told)
        self.sent_requests[told] = request, decision

    def outcome(self, decision: Picked, *, failed: bool, ttft_s: float | None) -> None:
        assert ttft_s is None or ttft_s >= 0
        self.ends.append((decision.endpoint.name, failed, ttft_s is not None))

    def decision(self) -> Picked | Rejected:
        if self.rejection is not None:
            return self.rejection
        first = (len(self.requests) - 1) % len(self.endpoints)
        order = self.endpoints[first:] + self.endpoints[:first]
        return Picked(order[0], tuple(order[1:]), "default", ())


class Hearer:
    """Told what becomes of requests; notices what comes after an end, and ends of what was sent nowhere or never came."""

    def __init__(self, router: RoundRobin) -> None:
        self.hears_responses = NO_WANTS
        self.withdrawn: list[tuple[str, str]] = []
        self.heads: list[tuple[str, int, dict[str, str]]] = []
        self.told: list[tuple[str, ResponseFacts]] = []
        self.ends: list[tuple[str, ResponseFacts]] = []
        self.ended: list[tuple[str, str]] = []
        self._router = router

    def withdraw(self, request: InferenceRequest, decision: Picked, endpoint_id: str) -> None:
        key = (request.id, endpoint_id)
        assert self._is_as_sent(request, decision, endpoint_id)
        assert key not in self.withdrawn
        self.withdrawn.append(key)

    def response_headers(
        self, request: InferenceRequest, decision: Picked, endpoint_id: str, status: int, headers: dict[str, str]
    ) -> None:
        self.heads.append((endpoint_id, status, dict(headers)))

    def response_body(
        self, request: InferenceRequest, decision: Picked, endpoint_id: str, facts: ResponseFacts
    ) -> None:
        key = (request.id, endpoint_id)
        assert key not in self.ended, f"{key} has ended"
        assert key not in self._router.sent_to or self._is_as_sent(request, decision, endpoint_id)
        if facts.end:
            self.ended.append(key)
            self.ends.append((endpoint_id, facts))
        self.told.append((endpoint_id, facts))

    def _is_as_sent(self, request: InferenceRequest, decision: Picked, endpoint_id: str) -> bool:
        """What is told of a request is told of the object that was sent, and of its decision."""
        asked, picked = self._router.sent_requests[request.id, endpoint_id]
        return asked is request and picked is decision

    def check(self) -> None:
        """Nothing that was sent is without an end."""
        if self.hears_responses.body:
            assert set(self._router.sent_to) <= set(self.ended)


class Parsers:
    """Parsers of a test: (path suffix, ref), and what those of packages answer; None is no answer."""

    def __init__(self) -> None:
        self.parsers: tuple[tuple[str, str], ...] = DEFAULT_PARSERS
        self.parses: Callable[[str, dict[str, str], bytes], Parsed | Rejected | None] | None = None
        self.waiting: list[Callable[[Parsed | Rejected], None]] = []

    def parse(
        self,
        ref: str,
        path: str,
        headers: dict[str, str],
        body: bytes,
        done: Callable[[Parsed | Rejected], None],
    ) -> None:
        assert self.parses is not None
        answer = self.parses(path, headers, body)
        if answer is None:
            self.waiting.append(done)
        else:
            done(answer)


class CountingAttempts:
    """Told how each endpoint does, and notices what is told twice or never."""

    def __init__(self) -> None:
        self.told: list[tuple[str, Attempt]] = []
        self.ttfts_s: list[float] = []
        self.silences: list[tuple[Awaited, int, float]] = []
        self._pieces: Counter[str] = Counter()
        self._begun = 0
        self._open: dict[int, str] = {}
        self._answered: dict[int, str] = {}

    def begin(self, endpoint_id: str) -> int:
        self._begun += 1
        self._open[self._begun] = endpoint_id
        return self._begun

    def ended(self, endpoint_id: str, era: int, attempt: Attempt, ttft_s: float | None = None) -> None:
        if attempt is Attempt.BROKEN:
            assert self._answered.pop(era) == endpoint_id
        else:
            assert self._open.pop(era) == endpoint_id
            self._answered[era] = endpoint_id
        self.told.append((endpoint_id, attempt))
        if ttft_s is not None:
            self.ttfts_s.append(ttft_s)

    def silent(
        self, endpoint_id: str, era: int, attempt: Attempt, pieces: int, awaited: Awaited, waited_s: float
    ) -> None:
        self.silences.append((awaited, pieces, waited_s))
        self.ended(endpoint_id, era, attempt)

    def heard(self, endpoint_id: str) -> None:
        self._pieces[endpoint_id] += 1

    def pieces(self, endpoint_id: str) -> int:
        return self._pieces[endpoint_id]

    @property
    def open_count(self) -> int:
        return len(self._open)


@dataclass
class Ends:
    """What the completion hook was told."""

    outcomes: asyncio.Queue[tuple[str, Outcome, bool]] = field(default_factory=asyncio.Queue)

    def __call__(
        self,
        request: InferenceRequest,
        picked: Picked,
        endpoint: EndpointMetadata,
        outcome: Outcome,
        *,
        first_byte: bool,
    ) -> None:
        self.outcomes.put_nowait((endpoint.id, outcome, first_byte))

    async def next(self) -> tuple[str, Outcome, bool]:
        async with asyncio.timeout(DEADLINE_S):
            return await self.outcomes.get()


@dataclass
class Answered:
    """A response as a raw client read it."""

    status: int
    headers: dict[str, str]
    body: bytes
    raw_head: bytes
    chunks: list[bytes]

    def json(self) -> dict[str, object]:
        return orjson.loads(self.body)

    @property
    def code(self) -> str:
        return self.json()["error"]["code"]


class RawClient:
    """A client that writes bytes and reads one response at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def post(self, path: str, value: object, headers: bytes = b"") -> None:
        body = value if isinstance(value, bytes) else orjson.dumps(value)
        await self.send(
            b"POST %b HTTP/1.1\r\nHost: gw\r\nContent-Length: %d\r\n%b\r\n%b"
            % (path.encode(), len(body), headers, body)
        )

    async def chat(self, *, headers: bytes = b"", **extra: object) -> None:
        await self.post("/v1/chat/completions", {**CHAT, **extra}, headers)

    async def head(self) -> tuple[int, dict[str, str], bytes]:
        async with asyncio.timeout(DEADLINE_S):
            raw = await self.reader.readuntil(b"\r\n\r\n")
        line, *fields = raw.decode("latin-1").rstrip("\r\n").split("\r\n")
        headers: dict[str, str] = {}
        for name, _, value in (each.partition(": ") for each in fields):
            assert name not in headers, f"{name} came twice"
            headers[name] = value
        return int(line.split(" ")[1]), headers, raw

    async def chunk(self) -> bytes:
        async with asyncio.timeout(DEADLINE_S):
            size = int((await self.reader.readuntil(b"\r\n")).decode(), 16)
            data = await self.reader.readexactly(size)
            assert await self.reader.readexactly(2) == b"\r\n"
        return data

    async def answer(self) -> Answered:
        status, headers, raw = await self.head()
        chunks: list[bytes] = []
        async with asyncio.timeout(DEADLINE_S):
            if "content-length" in headers:
                assert "transfer-encoding" not in headers
                chunks.append(await self.reader.readexactly(int(headers["content-length"])))
            elif headers.get("transfer-encoding") == "chunked":
                while data := await self.chunk():
                    chunks.append(data)
            elif status not in (204, 304):
                chunks.append(await self.reader.read())
        return Answered(status, headers, b"".join(chunks), raw, chunks)

    async def rest(self) -> bytes:
        """Everything until the gateway closes; a reset counts as a close."""
        received = b""
        async with asyncio.timeout(DEADLINE_S):
            try:
                while data := await self.reader.read(65536):
                    received += data
            except ConnectionError:
                pass
        return received

    def close(self) -> None:
        self.writer.close()


@dataclass
class Bay:
    """A gateway with everything around it."""

    gateway: Gateway
    router: RoundRobin
    ledger: CountingLedger
    attempts: CountingAttempts
    metrics: Metrics
    ends: Ends
    servers: list[ModelServer]
    address: tuple[str, int]
    reasons: list[str]
    hearer: Hearer
    parsers: Parsers
    models: ModelRules = NO_RULES
    clients: list[RawClient] = field(default_factory=list)
    look: Look = as_decided

    def take_away(self, *names: str) -> None:
        """From now on these are gone, whatever is decided."""
        self.look = lambda one: None if one.name in names else one

    async def client(self) -> RawClient:
        client = RawClient(*await asyncio.open_connection(*self.address))
        self.clients.append(client)
        return client

    async def until(self, condition: Callable[[], bool]) -> None:
        """Let the loop run until the condition holds: what happens inside the gateway signals nobody."""
        async with asyncio.timeout(DEADLINE_S):
            while not condition():  # noqa: ASYNC110 - gives way to the loop, sleeps no time
                await asyncio.sleep(0)

    @property
    def url(self) -> str:
        return f"http://{self.address[0]}:{self.address[1]}"


@asynccontextmanager
async def _bay(*behaviours: Behaviour | str, limits: GatewayLimits, resolver: Resolver) -> AsyncIterator[Bay]:
    async with AsyncExitStack() as stack:
        servers = [ModelServer(behaviour, f"s{number}") for number, behaviour in enumerate(behaviours)]
        for server in servers:
            await server.start()
            stack.push_async_callback(server.stop)
        endpoints = [server.endpoint for server in servers]
        router, ledger, metrics, ends = RoundRobin(endpoints), CountingLedger(), Metrics(), Ends()
        attempts, hearer, parsers = CountingAttempts(), Hearer(router), Parsers()
        reasons: list[str] = []
        gateway = Gateway(
            router,
            ledger,
            metrics=metrics,
            endpoints=lambda: endpoints,
            not_ready=lambda: reasons,
            completed=ends,
            attempts=attempts,
            look=lambda one: bay.look(one),
            limits=limits,
            random=Random(1),
            resolver=resolver,
            hearing=hearer,
            parsing=parsers,
            models=lambda: bay.models,
        )
        address = await gateway.listen("127.0.0.1", 0)
        stack.push_async_callback(gateway.close)
        bay = Bay(gateway, router, ledger, attempts, metrics, ends, servers, address, reasons, hearer, parsers)
        yield bay
        for client in bay.clients:
            client.close()
        await gateway.close()
        assert ledger.starts - gateway.unsettled_picks == ledger.ends
        assert attempts.open_count == gateway.unsettled_picks
        assert gateway.pool.open_count == 0
        hearer.check()
        assert metrics.requests_in_flight == 0


@pytest.fixture
async def start(anyio_backend: object) -> AsyncIterator[Callable[..., Awaitable[Bay]]]:
    """Start a gateway in front of model servers with the given behaviours."""
    async with AsyncExitStack() as stack:

        async def start_bay(
            *behaviours: Behaviour | str, limits: GatewayLimits | None = None, resolver: Resolver = SYSTEM
        ) -> Bay:
            limits = limits or GatewayLimits(tick_s=0.02)
            return await stack.enter_async_context(_bay(*(behaviours or ("openai",)), limits=limits, resolver=resolver))

        yield start_bay


@pytest.fixture
def bay_server() -> Callable[[Behaviour | str], ModelServer]:
    """Make a model server of its own; who does starts and stops it."""
    return lambda behaviour: ModelServer(behaviour, "own")
