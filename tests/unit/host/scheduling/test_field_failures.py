"""Failures that others met in the field, at the scheduler: late writes, stale handles, counts across a swap."""

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from math import isnan

import pytest
from hotbay.datalayer.endpoint import EndpointMetadata, Metrics
from hotbay.datalayer.tables.freshness import Freshness, StalePolicy
from hotbay.scheduling.decision import Picked, Rejected
from hotbay_sdk import Context, DataProducer, Endpoint, Endpoints, Plugin, Request, Scorer

IDLE = Metrics(waiting=0.0)


async def turns(count: int) -> None:
    """Let the loop take some turns: what is due now happens."""
    for _ in range(count):
        await asyncio.sleep(0)


def test_r24_write_of_a_producer_that_was_late_is_refused_and_counted(in_loop: Callable) -> None:
    """Budget 100 ms, answer at 300 ms: both are the test's to let happen, nothing is waited for."""
    producer, taker = Plugin("producers"), Plugin("takers")
    seen: list[float] = []

    @producer.type("late", reads=["request.id"], produces={"Count.rows": "row"})
    class Late(DataProducer):
        def produce(self, request: Request, endpoints: Endpoints) -> dict[str, object]:
            return {"Count.rows": [-7.0] * len(endpoints.ids)}

    @taker.type("taker", consumes=["Count.rows"])
    class Taker(Scorer):
        def score_batch(self, requests: list[Request], endpoints: Endpoints) -> list[list[float]]:
            seen.extend(endpoints.data("Count.rows").cast("B").cast("f"))
            return [[1.0] * len(endpoints.ids) for _ in requests]

    async def body(bay) -> None:
        bay.endpoints(a=IDLE)
        late = bay.plugin(producer, [("late", "late", {})])
        bay.plugin(taker, [("taker", "taker", {})])
        bay.publish("taker")
        late.hold = True
        futures = bay.start(1)
        await turns(3)
        late.time_out()
        (decided,) = await asyncio.wait_for(asyncio.gather(*futures), 5)
        assert decided.degraded == (("late", "DEADLINE_EXCEEDED"),)
        late.hold = False
        late.release()
        await turns(3)
        assert [isnan(value) for value in seen] == [True]
        found = bay.router.statistics(bay.generations["producers"].number)
        assert (found.calls, found.deadline_misses, found.late_answers) == (1, 1, 1)
        # The next request is another cycle: what was written late is in no one's data.
        assert (await bay.decide())[0].degraded == ()
        assert seen[1:] == [-7.0]

    in_loop(body)


def configured(plugin_id: str = "tenants") -> Plugin:
    """Scores the endpoint that its parameter names."""
    plugin = Plugin(plugin_id)

    @plugin.type("own", reads=["request.id"], parameters=lambda given: dict(given))
    class Own(Scorer):
        def __init__(self, context: Context, parameters: dict[str, object]) -> None:
            self._mine = f"default/{parameters['p']}"

        def score(self, request: Request, endpoint: Endpoint) -> float:
            return 1.0 if endpoint.id == self._mine else 0.0

    return plugin


def test_l21_ref_is_answered_with_its_own_parameters_through_ten_crashes(in_loop: Callable) -> None:
    """5 instances of one type, 10 kills with calls under way; 100 requests per kill in place of 100 a second each.

    A new process numbers its instances anew, and here in another order: a handle that outlives its process would find
    somebody else's instance.
    """
    names = [f"p{n}" for n in range(1, 6)]

    async def body(bay) -> None:
        bay.endpoints(**dict.fromkeys(names, IDLE))
        decided: list[tuple[str, object]] = []
        for life in range(10):
            order = names[life % 5 :] + names[: life % 5]
            client = bay.plugin(configured(), [(f"ref-{p}", "own", {"p": p}) for p in order])
            for p in names:
                bay.publish(f"ref-{p}")
                client.hold = False
                decided += [(p, d) for d in await bay.decide(10)]
                client.hold = True
                under_way = bay.start(10)
                await turns(2)
                if p == names[-1]:
                    client.die()
                else:
                    client.release()
                decided += [(p, d) for d in await asyncio.wait_for(asyncio.gather(*under_way), 5)]
        answered = [(p, d) for p, d in decided if not d.degraded]
        assert len(decided) == 1000
        assert len(answered) == 900
        # The first of a batch goes where its own parameters say; the others may be spread.
        assert all(d.endpoint.name == p for p, d in answered[::10])
        assert {d.degraded for _, d in decided if d.degraded} <= {
            ((f"ref-{names[-1]}", "CRASHED"),),
        }

    in_loop(body)


def test_l21_handle_of_another_generation_is_refused_by_the_process_and_never_looked_up(in_loop: Callable) -> None:
    async def body(bay) -> None:
        bay.endpoints(p1=IDLE, p2=IDLE)
        bay.plugin(configured(), [("ref-p1", "own", {"p": "p1"})])
        old = bay.generations["tenants"]
        bay.publish("ref-p1")
        # The number that meant p1 means p2 in the next process; the old plan reaches that process by mistake.
        old.client = bay.plugin(configured(), [("ref-p2", "own", {"p": "p2"})])
        assert old.handles["ref-p1"] == bay.generations["tenants"].handles["ref-p2"] == 1
        decided = await bay.decide(3)
        assert {d.degraded for d in decided} == {(("ref-p1", "STALE_HANDLE"),)}

    in_loop(body)


def test_u32_requests_of_the_version_before_end_without_taking_a_count_below_zero(in_loop: Callable) -> None:
    """In flight with v1 are 50; a swap; the 50 end. The counts are the host's: v2 sees 50, and less with each end."""

    def in_flight(plugin_id: str, seen: list[float]) -> Plugin:
        plugin = Plugin(plugin_id)

        @plugin.type("in-flight", reads=["endpoint.in_flight"])
        class InFlight(Scorer):
            def score(self, request: Request, endpoint: Endpoint) -> float:
                seen.append(endpoint.in_flight)
                return 1.0 / (1.0 + endpoint.in_flight)

        return plugin

    async def body(bay) -> None:
        bay.endpoints(a=IDLE)
        first: list[float] = []
        second: list[float] = []
        bay.plugin(in_flight("counting", first), [("s", "in-flight", {})])
        bay.publish("s")
        for _ in range(50):
            (picked,) = await bay.decide()
            bay.store.ledger.started(picked.endpoint.id)
            bay.store.publish(0.0)
        assert first == [float(n) for n in range(50)]
        bay.plugin(in_flight("counting", second), [("s", "in-flight", {})])
        bay.publish("s")
        for _ in range(50):
            await bay.decide()
            bay.store.ledger.finished("default/a")
            bay.store.publish(0.0)
        await bay.decide()
        assert second == [float(n) for n in range(50, -1, -1)]

    in_loop(body)


def test_u24_request_that_took_its_plan_before_the_swap_is_served_while_old_handles_drain(in_loop: Callable) -> None:
    async def body(bay) -> None:
        bay.endpoints(p1=IDLE, p2=IDLE)
        old = bay.plugin(configured(), [("ref", "own", {"p": "p1"})])
        generation = bay.generations["tenants"]
        bay.publish("ref")
        old.hold = True
        before = bay.start(1)
        await turns(2)
        bay.plugin(configured(), [("ref", "own", {"p": "p2"})])
        bay.publish("ref")
        after = await bay.decide(1)
        old.release()
        (first,) = await asyncio.wait_for(asyncio.gather(*before), 5)
        bay.router.retire(generation.number)
        assert Counter((d.endpoint.name, d.degraded) for d in (first, *after)) == {("p1", ()): 1, ("p2", ()): 1}
        # Even a plan that still names the retired one answers: by its failure policies.
        stale = replace(bay.refs[0], generation=generation)
        bay.refs = [stale]
        plan = bay.compile("ref")
        bay.router.publish(plan)
        bay.router.retire(generation.number)
        assert (await bay.decide())[0].degraded == (("ref", "UNAVAILABLE"),)

    in_loop(body)


def by_queue() -> Plugin:
    """Rates as the author guide has it: the emptier the queue the better, and what is unknown in the middle."""
    plugin = Plugin("by-queue")

    @plugin.type("queue", reads=["endpoint.waiting"])
    class Queue(Scorer):
        def score(self, request: Request, endpoint: Endpoint) -> float:
            return 0.5 if isnan(endpoint.waiting) else max(0.0, 1.0 - endpoint.waiting / 10)

    return plugin


@pytest.mark.parametrize(("policy", "frozen"), [(StalePolicy.UNKNOWN, 0), (StalePolicy.IGNORE, 20)])
def test_s11_frozen_figures_draw_nobody_unless_the_operator_says_so(
    in_loop: Callable, policy: StalePolicy, frozen: int
) -> None:
    """A stands still at queue 0 for longer than the limit, B is renewed at queue 3. Alone, A serves either way."""

    async def body(bay) -> None:
        bay.store.freshness = Freshness(policy=policy)
        bay.endpoints(a=IDLE, b=IDLE)
        bay.plugin(by_queue(), [("queue", "queue", {})])
        bay.publish("queue")
        bay.store.update_metrics("default/b", Metrics(waiting=3.0), 2.1)
        assert bay.store.publish(2.1).stale["waiting"] == 1
        names = Counter([(await bay.names())[0] for _ in range(20)])
        assert names == Counter(a=frozen, b=20 - frozen)
        bay.store.delete("default/b")
        bay.store.publish(60.0)
        assert await bay.names(5) == ["a"] * 5

    in_loop(body)


def test_s20_endpoints_that_come_and_go_during_a_cycle_cost_no_decision(in_loop: Callable) -> None:
    """5000 cycles; between any two turns of the loop one of four endpoints goes or comes back."""
    churned = [EndpointMetadata(f"default/e{n}", f"e{n}", "10.0.0.1", 8000) for n in range(4)]

    async def body(bay) -> None:
        bay.endpoints(stays=IDLE, **{e.name: IDLE for e in churned})
        bay.plugin(by_queue(), [("queue", "queue", {})])
        bay.publish("queue")
        loop, turn, decided = asyncio.get_running_loop(), 0, 0
        seen: set[str] = set()

        def churn() -> None:
            nonlocal turn, churning
            endpoint = churned[turn % 4]
            if endpoint.id in bay.store:
                bay.store.delete(endpoint.id)
            else:
                bay.store.upsert(endpoint)
                bay.store.update_metrics(endpoint.id, Metrics(waiting=float(turn % 7)), 0.0)
            bay.store.publish(0.0)
            turn += 1
            churning = loop.call_soon(churn)

        churning = loop.call_soon(churn)
        for _ in range(100):
            known = {"stays"}
            futures = []
            for _ in range(50):
                known |= {e.name for e in bay.store.snapshot.endpoints if e}
                futures += bay.start(1)
            for picked in await asyncio.wait_for(asyncio.gather(*futures), 5):
                assert not isinstance(picked, Rejected)
                assert isinstance(picked, Picked)
                assert picked.endpoint.name in known
                assert picked.degraded == ()
                seen.add(picked.endpoint.name)
                decided += 1
        churning.cancel()
        assert decided == 5000
        assert turn > 100
        assert len(seen) == 5

    in_loop(body)
