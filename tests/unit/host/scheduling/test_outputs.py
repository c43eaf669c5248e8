"""Scores in memory that a process writes: whatever is answered, late or lent when, each call gets the scores of its own."""

import asyncio
import mmap
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from hotbay.datalayer.endpoint import Metrics
from hotbay.errors import HostError, PluginFault
from hotbay.rpc.leases import Generation, Origin
from hotbay.rpc.memfd import SharedArea
from hotbay.scheduling.explain import CallFacts
from hotbay.scheduling.outputs import (
    FEATURE,
    LEAST_REGION_BYTES,
    MAX_PASSED_BYTES,
    MAX_REGION_BYTES,
    OUTPUT_FROM_BYTES,
    REGIONS,
    OutputAreas,
    Region,
)
from hotbay.scheduling.statistics import CallCounters
from hotbay.scheduling.window import Flight, Window
from hotbay_sdk import Endpoints, Plugin, Request, Scorer
from hotbay_sdk.protocol import Method
from hypothesis import given, settings
from hypothesis import strategies as st

FROM_BYTES = 16
SIZES = (8, FROM_BYTES, 100, LEAST_REGION_BYTES, LEAST_REGION_BYTES + 1)
"""One that travels, three for the first area, one for the second."""


class Kernel:
    """Makes areas of plain memory, and knows which of them the host still has."""

    def __init__(self) -> None:
        self.memory: dict[int, mmap.mmap] = {}
        self.open: set[int] = set()
        self.refuses = False

    def make(self, name: str, size_bytes: int) -> SharedArea:
        if self.refuses:
            raise OSError("Too many open files")
        return _PlainArea(self, size_bytes)


class _PlainArea(SharedArea):
    __slots__ = ("_kernel",)

    def __init__(self, kernel: Kernel, size_bytes: int) -> None:
        super().__init__(mmap.mmap(-1, size_bytes), len(kernel.memory))
        self._kernel = kernel
        # What a process maps stays when the host lets go of its own map.
        kernel.memory[self.descriptor] = self.memory
        kernel.open.add(self.descriptor)

    def close(self) -> None:
        self._kernel.open.discard(self.descriptor)
        self.descriptor = -1


class Out:
    """A call that the process has."""

    def __init__(self, number: int, args: Sequence[Any], flight: Flight) -> None:
        self.pattern = bytes([1 + number % 255])
        self.size_bytes = args[0]
        self.place = args[1] if len(args) > 1 else None
        self.flight = flight
        self.replied = False
        self.expired = False


class Process:
    """The client's interface and the plugin; it acknowledges, writes and answers when it is told to."""

    label = "p#1"

    def __init__(self, kernel: Kernel) -> None:
        self.fault: HostError | None = None
        self.calls: list[Out] = []
        self.in_regions = 0
        self.shares: list[tuple[dict[int, int], list[int]]] = []
        self.areas: dict[int, mmap.mmap] = {}
        self._kernel = kernel
        self._done: Callable[[object], None] | None = None
        self._begun = 0

    def share(
        self, areas: dict[int, int], drop: Sequence[int], done: Callable[[object], None], *, writable: bool = False
    ) -> None:
        assert self._done is None, "one message at a time"
        assert writable
        self.shares.append((dict(areas), list(drop)))
        self._done = done

    def acknowledge(self, outcome: HostError | None = None) -> None:
        if self._done is not None:
            added, dropped = self.shares[-1]
            self.areas |= {number: self._kernel.memory[descriptor] for number, descriptor in added.items()}
            for number in dropped:
                del self.areas[number]
            done, self._done = self._done, None
            done(outcome)

    def start_call(self, method: int, args: Sequence[Any], *, done: Flight, freed: object, **others: object) -> int:
        self._begun += 1
        self.calls.append(Out(self._begun, args, done))
        self.in_regions += self.calls[-1].place is not None
        return 2 * self._begun - 1

    def write(self, call: Out) -> None:
        """As an author's code does: also when nobody waits for it any more."""
        if call.place is not None and call.place[0] in self.areas:
            area, at, size_bytes = call.place
            self.areas[area][at : at + size_bytes] = call.pattern * size_bytes

    def reply(self, call: Out) -> None:
        """Write, and send a reply that the host has not read yet."""
        self.write(call)
        call.replied = True

    def read(self, call: Out) -> None:
        """The host reads the reply, late or in time. Whoever else is not done has written meanwhile."""
        self.calls.remove(call)
        for other in self.calls:
            if not other.replied:
                self.write(other)
        there = call.place is not None and call.place[0] in self.areas
        scores = call.size_bytes if there else call.pattern * call.size_bytes
        call.flight.free()
        if not call.expired:
            call.flight([None, scores, []])

    def expire(self, call: Out) -> None:
        call.expired = True
        call.flight(PluginFault("DEADLINE_EXCEEDED", "too late"))

    def die(self) -> None:
        self.fault = PluginFault("CRASHED", "killed")
        calls, self.calls = self.calls, []
        for call in calls:
            if not call.expired:
                call.flight(self.fault)
            call.flight.free()


class Call:
    """A call of nothing but scores."""

    method = Method.RUN
    facts = CallFacts(Method.RUN, (), "", "p", "1.0.0", 1)
    columns = ()
    deadline_s = 1.0
    sends_view = False
    bulky = False

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        self.scores: object = None
        self.failed = ""

    def batch_limit(self, rows: int) -> int:
        return 1

    def scores_bytes(self, requests: int, rows: int) -> int:
        return self.size_bytes

    def encode(self, cycles: object, view: object) -> tuple[list[object], None]:
        return [self.size_bytes], None

    def apply(self, cycles: object, result: Any, tally: object) -> bool:
        self.scores = result[1]
        return True

    def fail(self, cycle: object, reason: str, tally: object) -> None:
        self.failed = reason


class Tally:
    def invalid_scores(self, ref: str, count: int) -> None: ...

    def plugin_error(self, point: str, ref: str, code: str) -> None: ...

    def call_timer(self, plugin: str, point: str) -> Callable[[float], None]:
        return lambda duration_s: None


class World:
    """One process; each call goes out through a window of its own, so none waits for another.

    `careless`: regions come back when the host gives a call up, as they must not.
    """

    def __init__(self, *, features: frozenset[str] = frozenset({FEATURE}), careless: bool = False) -> None:
        self.kernel = Kernel()
        self.process = Process(self.kernel)
        self.generation = Generation(1, Origin("p", "1.0.0", 1, "sha256:0"), self.process, {}, 1, features=features)  # type: ignore[arg-type]
        self._numbers = 0
        self.outputs = self.published()
        self.careless = careless

    def published(self) -> OutputAreas:
        """What a publication that uses the process makes for it, when the one before did not."""
        return OutputAreas(self.generation, self._number, self.kernel.make, from_bytes=FROM_BYTES)

    def _number(self) -> int:
        self._numbers += 1
        return self._numbers

    def region(self, scores_bytes: int) -> Region | None:
        return self.outputs.region(scores_bytes)

    def forget_view(self) -> None:
        """Nothing is held."""

    async def begin(self, size_bytes: int) -> tuple[Call, Out] | None:
        call: Any = Call(size_bytes)
        cycle: Any = SimpleNamespace(ended=False, snapshot=SimpleNamespace(rows=1, epoch=1), answered=[], notes=[])
        cycle.request = SimpleNamespace(size=1)
        views: Any = self
        window = Window(
            self.generation, views, Method.RUN, 1, counters=CallCounters(Tally()), advance=lambda cycle: None
        )
        before = len(self.process.calls)
        window.submit(cycle, call)
        await asyncio.sleep(0)
        return (call, self.process.calls[-1]) if len(self.process.calls) > before else None

    def expire(self, out: Out) -> None:
        self.process.expire(out)
        if self.careless:
            out.flight.give_back()

    async def ready(self, size_bytes: int) -> None:
        """Have an area for such scores."""
        begun = await self.begin(size_bytes)
        assert begun is not None
        self.process.acknowledge()
        self.process.reply(begun[1])
        self.process.read(begun[1])


def wrong(call: Call, out: Out) -> bool:
    return call.scores != out.pattern * out.size_bytes


Step = tuple[str, int]

STEPS = st.tuples(
    st.sampled_from(["begin", "begin", "begin", "expire", "write", "reply", "read", "acknowledge"]), st.integers(0, 7)
)


async def run(world: World, steps: Sequence[Step]) -> int:
    """Take the steps and finish every call, the newest first; how many got other scores than their own."""
    begun: dict[Out, Call] = {}
    wrongs, process = 0, world.process
    for kind, number in [*steps, *([("reply", -1), ("read", -1)] * len(steps))]:
        if kind == "begin":
            if (made := await world.begin(SIZES[number % len(SIZES)])) is not None:
                begun[made[1]] = made[0]
            continue
        if kind == "acknowledge":
            process.acknowledge()
            continue
        fit = {
            "expire": lambda out: not out.expired,
            "write": lambda out: not out.replied,
            "reply": lambda out: not out.replied,
            "read": lambda out: out.replied,
        }[kind]
        among = [out for out in process.calls if fit(out)]
        if not among:
            continue
        out = among[number % len(among)]
        if kind == "expire":
            world.expire(out)
        elif kind == "read":
            process.read(out)
            wrongs += not out.expired and wrong(begun[out], out)
        else:
            {"write": process.write, "reply": process.reply}[kind](out)
    return wrongs


@settings(max_examples=100)
@given(st.lists(STEPS, min_size=12, max_size=40))
def test_any_order_of_answers_late_answers_and_reuse_gives_each_call_its_own_scores(steps: list[Step]) -> None:
    async def body() -> None:
        world = World()
        await world.ready(FROM_BYTES)
        assert await run(world, steps) == 0
        assert world.process.calls == []
        world.process.acknowledge()
        # One area that is named, and nothing of those before it.
        assert len(world.kernel.open) <= 1
        world.outputs.close()
        assert world.kernel.open == set()

    asyncio.run(body())


REUSE: Sequence[Step] = [("begin", 1), ("expire", 0), ("begin", 1), ("reply", 1), ("write", 0), ("read", 0)]
"""A call is given up, another one is answered, and before the host reads it the first one's author goes on writing."""


@pytest.mark.parametrize("careless", [False, True])
def test_a_region_that_came_back_too_early_would_show_as_a_wrong_result(careless: bool) -> None:
    async def body() -> None:
        world = World(careless=careless)
        await world.ready(FROM_BYTES)
        assert await run(world, REUSE) == careless

    asyncio.run(body())


@pytest.mark.parametrize(("size_bytes", "travels"), [(OUTPUT_FROM_BYTES - 1, True), (OUTPUT_FROM_BYTES, False)])
def test_short_scores_travel(size_bytes: int, travels: bool) -> None:
    world = World()
    outputs = OutputAreas(world.generation, lambda: 1, world.kernel.make)
    assert outputs.region(size_bytes) is None
    world.process.acknowledge()
    assert (outputs.region(size_bytes) is None) is travels


@pytest.mark.parametrize(("size_bytes", "travels"), [(MAX_REGION_BYTES + 1, True), (MAX_REGION_BYTES, False)])
def test_memory_is_bounded_whatever_a_reply_may_be(size_bytes: int, travels: bool) -> None:
    world = World()
    assert world.outputs.region(size_bytes) is None
    world.process.acknowledge()
    assert (world.outputs.region(size_bytes) is None) is travels
    assert [len(memory) for memory in world.kernel.memory.values()] == [REGIONS * MAX_REGION_BYTES] * (not travels)


def test_nothing_is_named_before_it_is_acknowledged_and_no_more_than_there_is() -> None:
    world = World()
    assert [world.outputs.region(64) for _ in range(5)] == [None] * 5
    assert len(world.process.shares) == 1
    world.process.acknowledge()
    lent = [world.outputs.region(64) for _ in range(REGIONS + 1)]
    assert lent[-1] is None
    places = [region.place for region in lent if region is not None]
    assert sorted(places) == [[1, n * LEAST_REGION_BYTES, 64] for n in range(REGIONS)]
    assert lent[0] is not None
    lent[0].give_back()
    again = world.outputs.region(32)
    assert again is not None
    assert again.place == [1, places[0][1], 32]


def test_a_larger_reply_gets_a_larger_area_and_the_one_before_goes_when_its_last_call_is_done() -> None:
    world = World()
    world.outputs.region(64)
    world.process.acknowledge()
    lent = world.outputs.region(64)
    assert lent is not None
    assert world.outputs.region(LEAST_REGION_BYTES + 1) is None
    assert world.process.shares[-1][1] == [1]
    # Between the two, nothing is named.
    assert world.outputs.region(64) is None
    world.process.acknowledge()
    assert world.kernel.open == {0, 1}
    lent.give_back()
    assert world.kernel.open == {1}
    larger = world.outputs.region(LEAST_REGION_BYTES + 1)
    assert larger is not None
    assert larger.place[0] == 2


def test_a_peer_without_the_feature_one_that_refuses_and_a_kernel_that_cannot_are_answered_in_replies() -> None:
    old, refusing, unable = World(features=frozenset({"shared_snapshots"})), World(), World()
    unable.kernel.refuses = True
    for world in (old, refusing, unable):
        assert world.outputs.region(64) is None
    refusing.process.acknowledge(PluginFault("DEADLINE_EXCEEDED", "no answer"))
    for world, asked in ((old, 0), (refusing, 1), (unable, 0)):
        assert world.outputs.region(64) is None
        assert len(world.process.shares) == asked
        assert world.kernel.open == set()


def test_a_process_that_dies_or_leaves_gives_everything_back() -> None:
    async def body() -> None:
        world = World()
        await world.ready(64)
        for _ in range(3):
            await world.begin(64)
        expired, _, _ = world.process.calls
        world.expire(expired)
        assert world.process.in_regions == 3
        world.outputs.close()
        assert world.kernel.open == {0}
        assert world.outputs.region(64) is None
        world.process.die()
        assert world.kernel.open == set()

    asyncio.run(body())


def test_an_acknowledgement_that_comes_after_the_end_keeps_nothing() -> None:
    world = World()
    world.outputs.region(64)
    world.outputs.close()
    world.process.acknowledge()
    assert world.kernel.open == set()
    assert world.outputs.region(64) is None
    world.process.acknowledge()
    assert world.process.areas == {}


def test_a_shadow_that_comes_and_goes_leaves_the_process_no_area() -> None:
    world = World()
    for _ in range(5):
        outputs = world.published()
        assert outputs.region(64) is None
        world.process.acknowledge()
        assert outputs.region(64) is not None
        outputs.close()
        outputs.close()
        world.process.acknowledge()
        assert world.process.areas == {}
    assert [drop for added, drop in world.process.shares if not added] == [[1], [2], [3], [4], [5]]


@pytest.mark.parametrize("size_bytes", [LEAST_REGION_BYTES, MAX_REGION_BYTES])
def test_a_process_is_passed_so_much_memory_and_no_more_however_often_its_shadow_comes_and_goes(
    size_bytes: int,
) -> None:
    world = World()
    most = MAX_PASSED_BYTES // (REGIONS * size_bytes)
    lent = []
    for _ in range(most + 3):
        outputs = world.published()
        assert outputs.region(size_bytes) is None
        world.process.acknowledge()
        lent.append(outputs.region(size_bytes) is not None)
        outputs.close()
        world.process.acknowledge()
    assert lent == [True] * most + [False] * 3
    # Those whose regions never come back are all that the host still has.
    assert len(world.kernel.open) == most
    assert sum(len(world.kernel.memory[n]) for n in world.kernel.memory) == MAX_PASSED_BYTES


def test_a_process_that_is_on_its_way_out_is_told_nothing_more() -> None:
    for leave in (lambda world: world.generation.leave(), lambda world: world.process.die()):
        world = World()
        world.outputs.region(64)
        world.process.acknowledge()
        leave(world)
        world.outputs.close()
        assert (len(world.process.shares), world.kernel.open) == (1, set())


def test_what_is_written_after_the_answer_alters_nothing() -> None:
    async def body() -> None:
        world = World()
        await world.ready(64)
        begun = await world.begin(64)
        assert begun is not None
        call, out = begun
        world.process.reply(out)
        world.process.read(out)
        written, out.pattern = out.pattern, b"\xff"
        world.process.write(out)
        assert call.scores == written * 64

    asyncio.run(body())


# -- what a plugin may answer ----------------------------------------------------------------------


def a_region(size_bytes: int) -> Region:
    world = World()
    world.outputs.region(size_bytes)
    world.process.acknowledge()
    region = world.outputs.region(size_bytes)
    assert region is not None
    return region


@pytest.mark.parametrize("stated", [63, 65, -64, None, True, "64", [64], b"1234"])
def test_another_length_than_was_asked_for_is_no_result(stated: Any) -> None:
    assert a_region(64).taken([None, stated, []]) == [None, stated, []]


@pytest.mark.parametrize("result", [None, [], [None, 64], {"scores": 64}, 64, [None, bytes(64), []]])
def test_a_result_without_a_length_is_left_to_who_checks_it(result: Any) -> None:
    assert a_region(64).taken(result) is result


# -- with the SDK at the other end -----------------------------------------------------------------

ROWS = OUTPUT_FROM_BYTES // 4
BEST = 4001


def scorer() -> Plugin:
    plugin = Plugin("scoring")

    @plugin.type("waits", reads=["endpoint.waiting"])
    class Waits(Scorer):
        def score_batch(self, requests: Sequence[Request], endpoints: Endpoints) -> object:
            return [[value / 8 for value in endpoints.column("endpoint.waiting")]] * len(requests)

    return plugin


def scoring(bay: Any, rows: int) -> Any:
    """A process that prefers one endpoint of many; it has no area yet."""
    bay.endpoints(**{f"e{row}": Metrics(waiting=4.0 if row == BEST else 1.0) for row in range(rows)})
    client = bay.plugin(scorer(), [("waits", "waits", {})])
    bay.generations["scoring"].features = frozenset({FEATURE})
    bay.publish("waits")
    return client


@pytest.mark.parametrize(("rows", "stated"), [(ROWS - 1, bytes), (ROWS, int)])
def test_scores_of_a_large_pool_lie_in_memory_and_decide_as_those_of_a_reply(
    in_loop: Any, rows: int, stated: type
) -> None:
    async def body(bay: Any) -> None:
        client = scoring(bay, rows)
        found: list[type] = []
        client.tamper = lambda result: found.append(type(result[1])) or result
        for count in (1, 1, 1, 5, 5):
            picks = await bay.decide(count)
            assert [pick.endpoint.name for pick in picks] == [f"e{BEST}"] * count
            assert not any(pick.degraded for pick in picks)
        # Before the acknowledgement, with the area, with the same; five requests want a larger one first.
        assert found == [bytes, stated, stated, bytes, int]
        bay.router.close()

    in_loop(body)


@pytest.mark.parametrize("tampered", [lambda n: n - 4, lambda n: n + 4, lambda n: None, lambda n: True, lambda n: -n])
def test_another_length_is_a_bad_result(in_loop: Any, tampered: Callable[[int], object]) -> None:
    async def body(bay: Any) -> None:
        client = scoring(bay, ROWS)
        await bay.decide()
        client.tamper = lambda result: [result[0], tampered(result[1]), result[2]]
        await bay.decide()
        assert bay.tally.errors == [("score", "waits", "BAD_RESULT")]
        client.tamper = None
        # Its region came back: as many as there are, and one more.
        for _ in range(REGIONS + 1):
            assert await bay.names() == [f"e{BEST}"]
        bay.router.close()

    in_loop(body)


def test_what_lies_in_memory_is_mended_as_scores_of_a_reply(in_loop: Any) -> None:
    async def body(bay: Any) -> None:
        client = scoring(bay, ROWS)
        await bay.decide()
        bay.store.update_metrics(f"default/e{BEST}", Metrics(waiting=float("inf")), 1.0)
        bay.store.update_metrics("default/e7", Metrics(waiting=80.0), 1.0)
        bay.store.publish(1.0)
        found: list[object] = []
        client.tamper = lambda result: found.append(result[1]) or result
        assert await bay.names() == ["e7"]
        assert found == [4 * ROWS]
        assert bay.tally.invalid == {"waits": 2}
        bay.router.close()

    in_loop(body)
