"""Types that take overlapping calls: so many batches out at once as they declare, and never more; one that takes long,
or is late, costs the others nothing."""

import asyncio
from collections.abc import Callable, Sequence

import pytest
from hotbay.datalayer.endpoint import Metrics
from hotbay.rpc.limits import OPENS_AT_MISSES
from hotbay.scheduling.arms import AnswerPair, Shadow
from hotbay.scheduling.decision import Picked, Rejected
from hotbay_sdk import Context, Endpoint, Endpoints, Filter, Picker, Plugin, ProfileHandler, Request, Scorer

IDLE = Metrics(waiting=0.0)


async def turns(count: int = 3) -> None:
    """Let the loop take some turns: what is due now happens."""
    for _ in range(count):
        await asyncio.sleep(0)


def overlapping(**types: int) -> Plugin:
    """Scorers, each with the number of its calls that may overlap. They prefer the endpoint that a request asks for."""
    plugin = Plugin("overlapping")
    for name, concurrency in types.items():

        @plugin.type(name, reads=["request.prompt"], concurrency=concurrency)
        class Prefers(Scorer):
            def score(self, request: Request, endpoint: Endpoint) -> float:
                return 1.0 if endpoint.id == f"default/{request.prompt}" else 0.0

    return plugin


def start(bay, plugin: Plugin, *entries: str):
    """Its process, with a ref of each type named like it, in a plan of these; nothing is answered."""
    bay.endpoints(a=IDLE, b=IDLE, c=IDLE)
    client = bay.plugin(plugin, [(d.type, d.type, {}) for d in plugin.declarations])
    bay.publish(*entries)
    client.hold = True
    return client


async def one_by_one(bay, count: int, **fields: object) -> list:
    """Begin decisions, each in a tick of its own."""
    begun = []
    for _ in range(count):
        begun += bay.start(**fields)
        await turns()
    return begun


async def answered(client, futures: Sequence) -> list[Picked | Rejected]:
    client.hold = False
    client.release()
    return list(await asyncio.wait_for(asyncio.gather(*futures), 5))


def reasons(answers: Sequence[Picked | Rejected]) -> list[tuple[str, ...]]:
    return [tuple(reason for _, reason in a.degraded) for a in answers if isinstance(a, Picked)]


# -- how many ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("types", "profile", "out"),
    [
        ({"s": 1}, ["s"], 1),
        ({"s": 3}, ["s"], 3),
        ({"s": 3, "t": 2}, ["s", "t"], 2),
        ({"s": 3, "t": 1}, ["s", "t"], 1),
        ({"s": 3, "t": 1}, ["s"], 3),
    ],
)
def test_as_many_batches_are_out_as_the_smallest_of_the_types_takes(
    in_loop: Callable, types: dict[str, int], profile: list[str], out: int
) -> None:
    async def body(bay) -> None:
        client = start(bay, overlapping(**types), *profile)
        begun = await one_by_one(bay, 6)
        assert client.holding == out
        assert reasons(await answered(client, begun)) == [()] * 6
        # What waited goes together.
        assert client.batches == [*[1] * out, 6 - out]

    in_loop(body)


def test_requests_of_one_tick_are_one_batch_whatever_may_overlap(in_loop: Callable) -> None:
    async def body(bay) -> None:
        client = start(bay, overlapping(s=8), "s")
        begun = bay.start(64 + 5)
        await turns()
        assert client.holding == 2
        await answered(client, begun)
        assert client.batches == [64, 5]

    in_loop(body)


def test_types_of_one_process_keep_their_own_counts(in_loop: Callable) -> None:
    async def body(bay) -> None:
        bay.endpoints(a=IDLE)
        plugin = overlapping(s=2, t=1)

        @plugin.type("by-prompt", reads=["request.prompt"])
        class ByPrompt(ProfileHandler):
            def pick(
                self, request: Request, profiles: Sequence[str], results: object, endpoints: Endpoints
            ) -> list[str]:
                return [] if results else [str(request.prompt)]

            def process(self, request: Request, results: dict, endpoints: Endpoints) -> tuple[str, dict]:
                return next(iter(results)), results

        client = bay.plugin(plugin, [(d.type, d.type, {}) for d in plugin.declarations])
        bay.publish(profiles={"many": ["s"], "one": ["t"]})
        client.keeps = lambda args: isinstance(args[0][0], list)
        begun = await one_by_one(bay, 4, prompt="one")
        await turns(6)
        # The type that takes one call at a time has one out; the other is not held up by it, nor counted with it.
        assert client.holding == 1
        begun += await one_by_one(bay, 4, prompt="many")
        await turns(6)
        assert client.holding == 3
        client.keeps = lambda args: False
        assert reasons(await answered(client, begun)) == [()] * 8

    in_loop(body)


def test_pickers_overlap_as_well(in_loop: Callable) -> None:
    plugin = Plugin("picks")

    @plugin.type("p", concurrency=2)
    class Last(Picker):
        def pick(self, request: Request, candidates: Sequence, n: int) -> list:
            return list(candidates)[-n:]

    async def body(bay) -> None:
        client = start(bay, plugin, "p")
        begun = await one_by_one(bay, 3)
        assert client.holding == 2
        assert [a.endpoint.name for a in await answered(client, begun)] == ["c"] * 3

    in_loop(body)


# -- one that takes long -------------------------------------------------------------------------


def test_r14_one_long_call_holds_up_none_of_a_hundred_short_ones(in_loop: Callable) -> None:
    """1 call that takes as long as all others together, and 100 short ones, each decided before it; ids matched."""

    async def body(bay) -> None:
        client = start(bay, overlapping(s=2), "s")
        client.hold = False
        client.keeps = lambda args: "c" in args[3][3]["request.prompt"]
        [long] = bay.start(prompt="c")
        await turns()
        for number in range(100):
            wanted = "ab"[number % 2]
            [short] = await bay.decide(prompt=wanted)
            assert (short.endpoint.name, short.degraded) == (wanted, ())
        assert not long.done()
        assert client.holding == 1
        client.keeps = lambda args: False
        [last] = await answered(client, [long])
        assert (last.endpoint.name, last.degraded) == ("c", ())
        assert client.batches == [1] * 101

    in_loop(body)


def test_answers_in_another_order_reach_their_own_requests(in_loop: Callable) -> None:
    async def body(bay) -> None:
        client = start(bay, overlapping(s=3), "s")
        begun = [*await one_by_one(bay, 1, prompt="a"), *await one_by_one(bay, 1, prompt="b")]
        begun += await one_by_one(bay, 1, prompt="c")
        for position in (2, 1, 0):
            client.release(newest=True)
            assert [f.done() for f in begun] == [index >= position for index in range(3)]
        assert [f.result().endpoint.name for f in begun] == ["a", "b", "c"]

    in_loop(body)


def test_views_follow_the_order_of_sending_when_endpoints_change_meanwhile(in_loop: Callable) -> None:
    async def body(bay) -> None:
        client = start(bay, overlapping(s=3), "s")
        begun = await one_by_one(bay, 1, prompt="a")
        for names in ("abcd", "ab"):
            bay.endpoints(**dict.fromkeys(names, IDLE))
            begun += await one_by_one(bay, 1, prompt="b")
        answers = await answered(client, begun)
        assert reasons(answers) == [()] * 3
        assert [a.endpoint.name for a in answers] == ["a", "b", "b"]
        assert reasons(await bay.decide(prompt="a")) == [()]

    in_loop(body)


# -- late, refused, given up, gone ---------------------------------------------------------------


def test_late_batch_keeps_its_place_and_the_window_shuts_when_none_is_left(in_loop: Callable) -> None:
    async def body(bay) -> None:
        client = start(bay, overlapping(s=2), "s")
        [first] = await one_by_one(bay, 1)
        client.time_out()
        assert reasons([await first]) == [("DEADLINE_EXCEEDED",)]
        second, third = await one_by_one(bay, 2)
        assert client.holding == 2
        client.release(newest=True)
        await turns()
        assert reasons([await second]) == [()]
        # The other place goes as well: what waits and what comes fails at once.
        [waits] = await one_by_one(bay, 1)
        assert client.holding == 2
        client.time_out()
        answers = [await third, await waits, *await bay.decide()]
        assert reasons(answers) == [("DEADLINE_EXCEEDED",)] * 3
        client.hold = False
        client.release()
        statistics = bay.router.statistics(1)
        assert statistics.late_answers == 2
        # The late answers let a probe out.
        assert reasons(await bay.decide()) == [()]
        assert reasons(await bay.decide(3)) == [()] * 3

    in_loop(body)


def test_open_breaker_probes_past_a_batch_that_stays_late(in_loop: Callable) -> None:
    async def body(bay) -> None:
        client = start(bay, overlapping(s=2), "s")
        [stuck] = await one_by_one(bay, 1, prompt="c")
        client.time_out()
        client.hold = False
        client.keeps = lambda args: "c" in args[3][3]["request.prompt"]
        client.tamper = lambda result: None
        answers = [(await bay.decide(prompt="a"))[0] for _ in range(6)]
        assert reasons([await stuck, *answers])[-1] == ("BREAKER_OPEN",)
        client.tamper = None
        [remote] = bay.router._remotes.values()
        [window] = remote._windows.values()
        window._breaker.revived(0.0)
        # One probe, whoever comes while it is out; nobody waits for it.
        assert sorted(reasons(await bay.decide(3, prompt="a"))) == [(), ("BREAKER_OPEN",), ("BREAKER_OPEN",)]
        assert reasons(await bay.decide(3, prompt="a")) == [()] * 3
        client.keeps = lambda args: False
        client.release()

    in_loop(body)


def test_breaker_that_opens_leaves_what_is_out_and_fails_what_waits(in_loop: Callable) -> None:
    async def body(bay) -> None:
        client = start(bay, overlapping(s=OPENS_AT_MISSES + 1), "s")
        begun = await one_by_one(bay, OPENS_AT_MISSES)
        client.time_out()
        assert reasons([await f for f in begun]) == [("DEADLINE_EXCEEDED",)] * OPENS_AT_MISSES
        assert reasons(await bay.decide()) == [("BREAKER_OPEN",)]
        client.hold = False
        client.release()
        assert reasons(await bay.decide()) == [()]

    in_loop(body)


def test_only_the_batch_that_nobody_waits_for_is_cancelled(in_loop: Callable) -> None:
    async def body(bay) -> None:
        client = start(bay, overlapping(s=3), "s")
        begun = await one_by_one(bay, 3)
        bay.router.cancel(bay.requests[1])
        assert len(client.cancelled) == 1
        bay.router.cancel(bay.requests[2])
        assert len(client.cancelled) == 2, "each once"
        answers = await answered(client, begun)
        assert [isinstance(a, Picked) for a in answers] == [True, False, False]
        assert reasons(answers) == [()]
        assert bay.router.statistics(1).failures == 0
        assert reasons(await bay.decide(2)) == [(), ()]

    in_loop(body)


def test_every_batch_that_is_out_fails_with_its_process(in_loop: Callable) -> None:
    async def body(bay) -> None:
        client = start(bay, overlapping(s=2), "s")
        begun = await one_by_one(bay, 4)
        client.die()
        answers = await asyncio.wait_for(asyncio.gather(*begun), 5)
        assert reasons(answers) == [("CRASHED",)] * 4
        assert bay.router.statistics(1).failures == 4

    in_loop(body)


def test_request_that_cannot_cross_fails_alone_and_the_others_go_one_by_one(in_loop: Callable) -> None:
    plugin = Plugin("overlapping")

    @plugin.type("s", reads=["request.messages"], concurrency=2)
    class Reads(Scorer):
        def score(self, request: Request, endpoint: Endpoint) -> float:
            return 1.0

    async def body(bay) -> None:
        client = start(bay, plugin, "s")
        deep: list[object] = []
        for _ in range(40):
            deep = [deep]
        begun = bay.start(4, payloads=[{"messages": m} for m in ([], deep, [], [])])
        await turns()
        assert client.holding == 2
        assert reasons(await answered(client, begun)) == [(), ("FRAME_TOO_LARGE",), (), ()]
        assert client.batches == [1, 1, 1]

    in_loop(body)


# -- rollouts ------------------------------------------------------------------------------------


def test_copies_to_a_candidate_overlap_and_are_compared_whatever_the_order(in_loop: Callable) -> None:
    async def body(bay) -> None:
        live = start(bay, overlapping(s=3), "s")
        plan, generation = bay.router.plan, bay.generations["overlapping"]
        candidate = bay.plugin(overlapping(s=3), [("s", "s", {})])
        candidate.hold = True
        tried, other = bay.compile("s"), bay.generations["overlapping"]
        pairs: list[AnswerPair] = []
        bay.router.publish(plan, shadows=[Shadow(generation, other, tried, 1.0, pairs.append)])
        begun = [f for name in "abc" for f in await one_by_one(bay, 1, prompt=name)]
        assert (live.holding, candidate.holding) == (3, 3)
        for _ in range(3):
            candidate.release(newest=True)
        assert [a.endpoint.name for a in await answered(live, begun)] == ["a", "b", "c"]
        assert len(pairs) == 3
        assert all((pair.live == pair.candidate).all() for pair in pairs)

    in_loop(body)


def test_what_is_out_ends_while_new_requests_are_held_and_the_leases_drain(in_loop: Callable) -> None:
    async def body(bay) -> None:
        client = start(bay, overlapping(s=2), "s")
        old = bay.generations["overlapping"]
        begun = await one_by_one(bay, 2)
        bay.router.quiesce(old.number, within_s=5.0)
        held = await one_by_one(bay, 2)
        assert (client.holding, bay.router.held) == (2, 2)
        drained: list[bool] = []
        old.on_drained(lambda: drained.append(True))
        client.release(newest=True)
        assert drained == []
        client.release()
        assert drained == [True]
        assert reasons([await f for f in begun]) == [(), ()]
        bay.plugin(overlapping(s=1), [("s", "s", {})])
        bay.publish("s")
        bay.router.resume(old.number)
        assert reasons(await asyncio.wait_for(asyncio.gather(*held), 5)) == [(), ()]

    in_loop(body)


def test_filters_of_the_same_type_in_two_refs_share_its_number(in_loop: Callable) -> None:
    plugin = Plugin("filters")

    @plugin.type("f", concurrency=2, parameters=lambda given: dict(given))
    class Keeps(Filter):
        def __init__(self, context: Context, parameters: dict[str, object]) -> None:
            self._kept = parameters["kept"]

        def keep(self, request: Request, endpoint: Endpoint) -> bool:
            return endpoint.id in self._kept  # type: ignore[operator]

    async def body(bay) -> None:
        bay.endpoints(a=IDLE, b=IDLE, c=IDLE)
        refs = [(name, "f", {"kept": [f"default/{n}" for n in kept]}) for name, kept in (("x", "ab"), ("y", "bc"))]
        client = bay.plugin(plugin, refs)
        bay.publish("x", "y")
        client.hold = True
        begun = await one_by_one(bay, 3)
        assert client.holding == 2
        assert [a.endpoint.name for a in await answered(client, begun)] == ["b"] * 3

    in_loop(body)
