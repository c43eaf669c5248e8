"""A gateway with the real router, store and passive health: draining under streams, ejecting, and coming back."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
from hotbay.datalayer.endpoint import EndpointState
from hotbay.datalayer.health.reports import Attempt
from hotbay.datalayer.health.state import HealthLimits, Phase
from hotbay.datalayer.health.watch import HealthWatch
from hotbay.datalayer.operations.commands import EndpointCommands
from hotbay.datalayer.operations.overrides import OverrideFile
from hotbay.datalayer.store import EndpointStore
from hotbay.gateway.http import Gateway
from hotbay.gateway.limits import GatewayLimits
from hotbay.observe.metrics import Metrics
from hotbay.scheduling.compiler import compile_plan
from hotbay.scheduling.plan import PlanInput
from hotbay.scheduling.router import Router

pytestmark = pytest.mark.anyio

DEADLINE_S = 10.0
STREAMS = 5
T0 = 1000.0
TWO_EJECT = HealthLimits(unreachable=2)


@dataclass
class Site:
    """Everything between clients and model servers, with a clock that a test moves."""

    store: EndpointStore
    health: HealthWatch
    commands: EndpointCommands
    metrics: Metrics
    servers: list[object]
    connect: Callable[[], object]
    router: "Late"
    now: float = T0

    def tick(self, after_s: float = 0.02) -> None:
        self.now += after_s
        self.health.tick(self.now)
        self.store.publish(self.now)

    def in_flight(self, name: str) -> int:
        return self.store.ledger.in_flight(f"default/{name}")


class Late:
    """A router whose decisions arrive when a test says so: the plugins of a cycle take their time."""

    def __init__(self, router: Router) -> None:
        self.is_late = False
        self.decided: asyncio.Queue[Callable[[], None]] = asyncio.Queue()
        self.cancel, self.sent, self.outcome = router.cancel, router.sent, router.outcome
        self._router = router

    def decide(self, request, done) -> None:
        def decided(decision) -> None:
            if self.is_late:
                self.decided.put_nowait(lambda: done(decision))
            else:
                done(decision)

        self._router.decide(request, decided)


@pytest.fixture
async def site(start, tmp_path: Path) -> AsyncIterator[Callable[..., object]]:
    """Start a site with a model server for each behaviour, of which the first `known` are discovered."""
    async with AsyncExitStack() as stack:

        async def start_site(*behaviours: object, known: int | None = None, numbers: HealthLimits = TWO_EJECT) -> Site:
            bay = await start(*behaviours)
            store, metrics = EndpointStore(), Metrics()
            health = HealthWatch(store, metrics, limits=lambda: numbers)
            router = Router(store, metrics, seed=1, admission=health)
            router.publish(compile_plan(1, PlanInput((), (), {})))
            late = Late(router)
            gateway = Gateway(
                late,
                store.ledger,
                metrics=metrics,
                endpoints=lambda: (),
                not_ready=lambda: (),
                attempts=health,
                look=store.look,
                limits=GatewayLimits(tick_s=0.02),
            )
            bay.address = await gateway.listen("127.0.0.1", 0)
            stack.push_async_callback(gateway.close)
            commands = EndpointCommands(store, health, OverrideFile(tmp_path), wall=lambda: 0.0)
            made = Site(store, health, commands, metrics, bay.servers, bay.client, late)
            for server in bay.servers[:known]:
                store.upsert(server.endpoint)
            made.tick()
            return made

        yield start_site


class Held:
    """Streams that go on when a test says so."""

    def __init__(self) -> None:
        self.go_on = asyncio.Event()

    async def __call__(self, request, stream) -> bool:
        await stream.begin_sse()
        await stream.event("one")
        async with asyncio.timeout(DEADLINE_S):
            await self.go_on.wait()
        await stream.event(" two")
        await stream.end_sse()
        return True


async def begun(site: Site, count: int) -> list[object]:
    """So many streams, each with its first chunk."""
    clients = []
    for _ in range(count):
        client = await site.connect()
        await client.chat(stream=True)
        status, _, _ = await client.head()
        assert status == 200
        assert b"one" in await client.chunk()
        clients.append(client)
    return clients


async def ended(client) -> bytes:
    """The rest of a stream that ends as it should."""
    received = b""
    while chunk := await client.chunk():
        received += chunk
    return received


@pytest.mark.parametrize("how", ["cordoned", "removed"])
async def test_s21_taking_an_endpoint_out_under_streams_cuts_none_and_sends_it_nothing_new(site, how):
    held, other = Held(), Held()
    other.go_on.set()
    it = await site(held, other, known=1)
    streams = await begun(it, STREAMS)
    second = it.servers[1]
    it.store.upsert(second.endpoint)
    it.tick()
    if how == "cordoned":
        await it.commands.cordon(["s0"], None, "me")
    else:
        it.store.delete("default/s0")
    it.tick()
    for _ in range(20):
        client = await it.connect()
        await client.chat(stream=True)
        assert (await client.answer()).status == 200
    assert len(it.servers[0].requests) == STREAMS
    assert len(second.requests) == 20
    assert it.in_flight("s0") == STREAMS
    held.go_on.set()
    for stream in streams:
        received = await ended(stream)
        assert b" two" in received
        assert received.endswith(b"data: [DONE]\n\n")
    assert it.in_flight("s0") == 0


@pytest.mark.parametrize("how", ["cordoned", "removed"])
async def test_s20_cycle_that_began_before_an_endpoint_was_taken_out_sends_it_nothing(site, how):
    it = await site("openai", "openai", known=1)
    it.router.is_late = True
    client = await it.connect()
    await client.chat()
    async with asyncio.timeout(DEADLINE_S):
        decided = await it.router.decided.get()
    it.store.upsert(it.servers[1].endpoint)
    if how == "cordoned":
        page = await it.commands.cordon(["s0"], None, "me")
        assert [row["in_flight"] for row in page["endpoints"]] == [0], "which a drain takes for done"
    else:
        it.store.delete("default/s0")
    it.tick()
    it.router.is_late = False
    decided()
    assert it.in_flight("s0") == 0
    answer = await client.answer()
    assert answer.status == 200
    assert answer.headers["x-gateway-destination-endpoint"] == it.servers[1].endpoint.authority
    assert (it.servers[0].connects, len(it.servers[1].requests)) == (0, 1)


async def test_s20_cycle_whose_only_endpoint_is_taken_out_is_503(site):
    it = await site("openai")
    it.router.is_late = True
    client = await it.connect()
    await client.chat()
    async with asyncio.timeout(DEADLINE_S):
        decided = await it.router.decided.get()
    it.store.delete("default/s0")
    it.router.is_late = False
    decided()
    answer = await client.answer()
    assert (answer.status, answer.code) == (503, "rejected-no-endpoints")
    assert it.servers[0].connects == 0


async def test_endpoint_that_refuses_is_ejected_unnoticed_by_clients_and_comes_back_by_one_probe(site):
    it = await site("openai", "openai")
    first = it.servers[0]
    port = first.port
    await first.stop()
    while it.health.health("default/s0").phase is Phase.ADMITTED:
        client = await it.connect()
        await client.chat()
        assert (await client.answer()).status == 200
        it.tick()
    assert it.metrics.ejections.get("unreachable") == 1
    connects = it.metrics.upstream_connect_failures
    for _ in range(10):
        client = await it.connect()
        await client.chat()
        assert (await client.answer()).status == 200
    assert it.metrics.upstream_connect_failures == connects

    # Still dead: one request finds out, and is answered elsewhere.
    it.tick(30.0)
    for _ in range(10):
        client = await it.connect()
        await client.chat()
        assert (await client.answer()).status == 200
        it.tick()
    assert it.metrics.upstream_connect_failures == connects + 1
    assert it.metrics.endpoint_probes.get("failed") == 1

    first.port = port
    await first.start()
    it.tick(60.0)
    client = await it.connect()
    await client.chat()
    assert (await client.answer()).status == 200
    it.tick()
    assert it.health.health("default/s0").phase is Phase.ADMITTED
    assert len(first.requests) == 1
    assert it.metrics.endpoint_probes.get("answered") == 1
    await first.stop()


class Hung:
    """A server that takes requests and sends no byte of a body, until `wakes`; `head`: of a stream it sends the head."""

    def __init__(self, *, head: bool) -> None:
        self.asked: asyncio.Queue[None] = asyncio.Queue()
        self.wakes = False
        self._head = head

    async def __call__(self, request, stream) -> bool:
        if self.wakes:
            await stream.json({})
            return True
        if self._head:
            await stream.begin_sse()
        self.asked.put_nowait(None)
        await stream.closed_by_peer()
        return False


async def given_up(site: Site, hung: Hung, name: str) -> None:
    """A client that is sent to a server that hangs, and leaves."""
    client = await site.connect()
    await client.chat(stream=True)
    async with asyncio.timeout(DEADLINE_S):
        await hung.asked.get()
        client.close()
        while site.in_flight(name):  # noqa: ASYNC110 - gives way to the loop, sleeps no time
            await asyncio.sleep(0)


@pytest.mark.parametrize("head", [False, True])
async def test_server_that_hangs_is_ejected_by_the_clients_that_give_up_and_tried_by_few(site, head):
    hung = Hung(head=head)
    it = await site(hung, "openai", known=1, numbers=HealthLimits(unreachable=2, silent_s=0.0))
    it.store.upsert(it.servers[1].endpoint)
    it.store.override("default/s1", state=EndpointState.CORDONED, weight=None)
    it.tick()
    for _ in range(2):
        await given_up(it, hung, "s0")
    it.store.override("default/s1", state=None, weight=None)
    it.tick()
    it.tick()
    page = await it.commands.endpoints()
    assert [(row["phase"], row["why"]) for row in page["endpoints"]] == [("ejected", "silent"), ("admitted", None)]

    async def answered() -> int:
        client = await it.connect()
        await client.chat()
        return (await client.answer()).status

    # One client finds out that it hangs still; the others are answered by the other server.
    it.tick(30.0)
    await given_up(it, hung, "s0")
    it.tick()
    for _ in range(50):
        assert await answered() == 200
        it.tick(1.0)
    assert it.metrics.endpoint_probes.get("failed") == 1
    assert len(it.servers[0].requests) == 3
    hung.wakes = True
    it.tick(10.0)
    assert await answered() == 200
    it.tick()
    assert it.health.health("default/s0").phase is Phase.ADMITTED


async def test_server_that_streams_to_others_is_not_ejected_by_clients_that_give_up(site):
    class Busy:
        """Its first stream goes on, chunk by chunk; who comes later waits."""

        def __init__(self) -> None:
            self.asked: asyncio.Queue[None] = asyncio.Queue()
            self.more: asyncio.Queue[None] = asyncio.Queue()
            self._streams = False

        async def __call__(self, request, stream) -> bool:
            if self._streams:
                self.asked.put_nowait(None)
                await stream.closed_by_peer()
                return False
            self._streams = True
            await stream.begin_sse()
            await stream.event("one")
            while True:
                await self.more.get()
                await stream.event("more")

    busy = Busy()
    it = await site(busy, numbers=HealthLimits(unreachable=2, silent_s=0.0))
    (first,) = await begun(it, 1)
    for _ in range(5):
        client = await it.connect()
        await client.chat(stream=True)
        async with asyncio.timeout(DEADLINE_S):
            await busy.asked.get()
        busy.more.put_nowait(None)
        assert b"more" in await first.chunk()
        client.close()
        async with asyncio.timeout(DEADLINE_S):
            while it.in_flight("s0") > 1:  # noqa: ASYNC110 - gives way to the loop, sleeps no time
                await asyncio.sleep(0)
    it.tick()
    health = it.health.health("default/s0")
    assert (health.phase, health.run, health.withheld) == (Phase.ADMITTED, 0, None)


async def test_all_that_fail_go_on_being_asked(site):
    async def dead(request, stream):
        return False

    it = await site(dead, dead)
    for _ in range(10):
        client = await it.connect()
        await client.chat()
        assert (await client.answer()).status == 502
        it.tick()
    assert sum(it.health.admits(f"default/s{number}") for number in range(2)) == 1
    assert it.metrics.ejections_withheld.get("unreachable") == 1


async def test_client_that_leaves_its_probe_lets_another_request_try(site):
    async def silent(request, stream):
        if not stopped.is_set():
            asked.set()
            await stream.closed_by_peer()
            return False
        await stream.json({})
        return True

    stopped, asked = asyncio.Event(), asyncio.Event()
    it = await site(silent, "openai")
    era = it.health.begin("default/s0")
    for _ in range(2):
        it.health.ended("default/s0", era, Attempt.UNREACHABLE)
    it.tick()
    it.tick(30.0)
    probing = await it.connect()
    await probing.chat()
    async with asyncio.timeout(DEADLINE_S):
        await asked.wait()
    probing.close()
    async with asyncio.timeout(DEADLINE_S):
        while it.in_flight("s0"):  # noqa: ASYNC110 - gives way to the loop, sleeps no time
            await asyncio.sleep(0)
    it.tick()
    assert it.health.health("default/s0").phase is Phase.HALF_OPEN
    stopped.set()
    it.tick(1.0)
    client = await it.connect()
    await client.chat()
    assert (await client.answer()).status == 200
    it.tick()
    assert it.health.health("default/s0").phase is Phase.ADMITTED
