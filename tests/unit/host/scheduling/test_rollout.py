"""Two generations of one plugin side by side: canary arms, shadows, mirrors, and that no cycle mixes generations."""

import asyncio
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import pytest
from hotbay.datalayer.endpoint import Metrics
from hotbay.rpc.leases import Generation
from hotbay.scheduling.arms import AnswerPair, CanaryPlan, Shadow, in_canary
from hotbay.scheduling.binding import BindingOptions, Point, Policy
from hotbay.scheduling.decision import Arm, Picked, Rejected
from hotbay.scheduling.plan import Plan
from hotbay.scheduling.shadowing import MAX_PAIRS
from hotbay_sdk import (
    DataProducer,
    Endpoint,
    Endpoints,
    Filter,
    PickedTargets,
    Picker,
    Plugin,
    PreRequest,
    ProfileHandler,
    Request,
    Scorer,
)
from hypothesis import given, settings
from hypothesis import strategies as st

IDLE = Metrics(waiting=0.0)
REFS = [(name, name, {}) for name in ("filter", "scorer", "picker", "learner", "producer", "handler")]


async def turns(count: int) -> None:
    """Let the loop take some turns: what is due now happens."""
    for _ in range(count):
        await asyncio.sleep(0)


class Version:
    """One version of a plugin with a type for every point. It prefers `best`, and keeps who asked it for what."""

    def __init__(
        self, best: str = "a", *, kept: Sequence[str] = ("a", "b", "c"), broken: bool = False, makes: float = 9.0
    ) -> None:
        self.best = f"default/{best}"
        self.kept = {f"default/{name}" for name in kept}
        self.broken = broken
        self.makes = makes
        self.asked: dict[str, set[str]] = {}
        self.told: list[tuple[str, str]] = []
        self.seen: set[float] = set()

    def note(self, request: Request, point: str) -> None:
        self.asked.setdefault(request.id, set()).add(point)
        if self.broken:
            raise RuntimeError("this version is broken")

    def plugin(self) -> Plugin:
        made, version = Plugin("versioned"), self
        reads = ["request.id", "endpoint.waiting"]

        @made.type("filter", reads=reads)
        class Keeps(Filter):
            def keep(self, request: Request, endpoint: Endpoint) -> bool:
                version.note(request, "filter")
                return endpoint.id in version.kept

        @made.type("scorer", reads=reads, optional=["Made.number"])
        class Scores(Scorer):
            def score_batch(self, requests: Sequence[Request], endpoints: Endpoints) -> list[list[float]]:
                numbers = endpoints.data("Made.number")
                version.seen.update([] if numbers is None else numbers.cast("B").cast("f"))
                for request in requests:
                    version.note(request, "scorer")
                return [[1.0 if name == version.best else 0.25 for name in endpoints.ids] for _ in requests]

        @made.type("picker", reads=["request.id"])
        class Picks(Picker):
            def pick(self, request: Request, candidates: Sequence, n: int) -> list:
                version.note(request, "picker")
                return sorted(candidates, key=lambda c: -c.score)[:n]

        @made.type("producer", reads=["request.id"], produces={"Made.number": "row"})
        class Produces(DataProducer):
            def produce(self, request: Request, endpoints: Endpoints) -> Mapping[str, object]:
                version.note(request, "producer")
                return {"Made.number": [version.makes] * len(endpoints.ids)}

        @made.type("handler", reads=["request.id"])
        class Handles(ProfileHandler):
            def pick(
                self, request: Request, profiles: Sequence[str], results: Mapping, endpoints: Endpoints
            ) -> Sequence[str]:
                version.note(request, "handler")
                return [] if results else list(profiles)

            def process(self, request: Request, results: Mapping, endpoints: Endpoints) -> tuple[str, Mapping]:
                version.note(request, "handler")
                return next(iter(results)), results

        @made.type("learner", reads=reads)
        class Learns(PreRequest):
            def pre_request(self, request: Request, picked: PickedTargets, endpoints: Endpoints) -> None:
                version.told.append((request.id, picked.targets[0]))

        return made


def start(bay, version: Version, refs: Sequence = REFS, *entries: str) -> tuple[Plan, Generation]:
    """Start a process of a version; the plan with it, and its generation."""
    client = bay.plugin(version.plugin(), refs)
    generation = bay.generations["versioned"]
    assert generation.client is client
    return bay.compile(*(entries or ("filter", "scorer", "picker"))), generation


# -- canary --------------------------------------------------------------------------------------


def test_share_goes_to_the_canary_by_a_stable_hash(in_loop: Callable) -> None:
    async def body(bay) -> None:
        bay.endpoints(a=IDLE, b=IDLE)
        old, new = Version("a"), Version("b")
        plan, _ = start(bay, old, [("scorer", "scorer", {})], "scorer")
        tried, _ = start(bay, new, [("scorer", "scorer", {})], "scorer")
        bay.router.publish(plan, canary=CanaryPlan(tried, 0.1, "versioned#2"))
        ids = [f"request-{n}" for n in range(5000)]
        first = [d for n in range(0, 5000, 500) for d in await bay.decide(500, ids=ids[n : n + 500])]
        again = [d for n in range(0, 5000, 500) for d in await bay.decide(500, ids=ids[n : n + 500])]
        chosen = [decision.arm for decision in first]
        assert chosen == [decision.arm for decision in again]
        assert chosen == [Arm("versioned#2", canary=in_canary(i, "versioned#2", 0.1)) for i in ids]
        canary = sum(arm.canary for arm in chosen)
        # Four standard deviations of 5000 draws at 0.1.
        assert abs(canary - 500) < 4 * math.sqrt(5000 * 0.1 * 0.9)
        assert set(new.asked) == {i for i, arm in zip(ids, chosen, strict=True) if arm.canary}
        assert set(old.asked) == set(ids) - set(new.asked)

    in_loop(body)


@pytest.mark.parametrize(("share", "canaries"), [(0.0, 0), (1.0, 40)])
def test_share_of_none_and_of_all(in_loop: Callable, share: float, canaries: int) -> None:
    async def body(bay) -> None:
        bay.endpoints(a=IDLE)
        plan, _ = start(bay, Version())
        bay.router.publish(plan, canary=CanaryPlan(start(bay, Version())[0], share, "s"))
        decided = await bay.decide(40, ids=[str(n) for n in range(40)])
        assert sum(d.arm.canary for d in decided) == canaries

    in_loop(body)


@given(st.text(max_size=20), st.text(max_size=8), st.floats(0.0, 1.0), st.floats(0.0, 1.0))
def test_larger_share_keeps_whom_a_smaller_one_had(request_id: str, salt: str, one: float, other: float) -> None:
    smaller, larger = sorted((one, other))
    assert in_canary(request_id, salt, larger) or not in_canary(request_id, salt, smaller)


def test_request_that_goes_elsewhere_counts_once_for_its_arm(in_loop: Callable) -> None:
    async def body(bay) -> None:
        bay.endpoints(a=IDLE, b=IDLE)
        plan, _ = start(bay, Version())
        bay.router.publish(plan, canary=CanaryPlan(start(bay, Version())[0], 1.0, "s"))
        (first,) = await bay.decide()
        (second,) = await bay.decide(avoid=[first.endpoint.id])
        assert second.endpoint != first.endpoint
        bay.router.outcome(second, failed=False, ttft_s=None)
        arms = bay.router.arms("s")
        assert (arms.canary.requests, arms.canary.ended) == (1, 1)

    in_loop(body)


def test_arms_count_requests_refusals_degradations_and_reported_ends(in_loop: Callable) -> None:
    async def body(bay) -> None:
        bay.endpoints(a=IDLE, b=IDLE)
        plan, _ = start(bay, Version())
        canary = CanaryPlan(start(bay, Version(kept=()))[0], 0.5, "s")
        bay.router.publish(plan, canary=canary)
        assert bay.router.arms("other") is None
        decided = await bay.decide(60, ids=[str(n) for n in range(60)])
        refused = [d for d in decided if isinstance(d, Rejected)]
        picked = [d for d in decided if isinstance(d, Picked)]
        assert {d.arm for d in refused} == {Arm("s", canary=True)}
        for number, decision in enumerate(picked):
            bay.router.outcome(decision, failed=number < 3, ttft_s=0.01 if number else None)
        bay.router.publish(plan, canary=canary)  # another plugin's change: the statistics go on
        arms = bay.router.arms("s")
        assert (arms.canary.requests, arms.canary.refused) == (len(refused), len(refused))
        assert (arms.live.requests, arms.live.refused, arms.live.degraded) == (len(picked), 0, 0)
        assert (arms.live.ended, arms.live.upstream_errors) == (len(picked), 3)
        assert (arms.live.ttft.count, arms.live.decisions.count) == (len(picked) - 1, len(picked))
        bay.router.publish(plan, canary=replace(canary, salt="t"))
        bay.router.outcome(picked[0], failed=True, ttft_s=None)  # of the rollout before
        assert bay.router.arms("s") is None
        assert bay.router.arms("t").live.ended == 0

    in_loop(body)


def test_without_a_canary_decisions_bear_no_arm_and_their_ends_are_nobodys(in_loop: Callable) -> None:
    async def body(bay) -> None:
        bay.endpoints(a=IDLE)
        bay.router.publish(start(bay, Version())[0])
        (decision,) = await bay.decide()
        assert decision.arm is None
        bay.router.outcome(decision, failed=True, ttft_s=None)

    in_loop(body)


def test_canary_that_breaks_costs_its_arm_no_request_and_the_other_nothing(in_loop: Callable) -> None:
    async def body(bay) -> None:
        bay.endpoints(a=IDLE, b=IDLE)
        plan, live = start(bay, Version())
        tried, candidate = start(bay, Version(broken=True))
        bay.router.publish(plan, canary=CanaryPlan(tried, 0.5, "s"))
        decided = await bay.decide(40, ids=[str(n) for n in range(40)])
        assert all(isinstance(d, Picked) for d in decided)
        assert all(bool(d.degraded) is d.arm.canary for d in decided)
        assert bay.router.statistics(live.number).failures == 0
        assert bay.router.statistics(candidate.number).failures > 0
        assert bay.router.arms("s").canary.degraded == bay.router.arms("s").canary.requests

    in_loop(body)


def test_last_good_scores_of_a_canary_stay_its_own(in_loop: Callable) -> None:
    options = {"scorer": BindingOptions(on_failure=Policy.LAST_GOOD)}
    refs = [("scorer", "scorer", {})]

    async def body(bay) -> None:
        bay.endpoints(a=IDLE, b=IDLE)
        client = bay.plugin(Version("a").plugin(), refs)
        plan = bay.compile("scorer", options=options)
        bay.plugin(Version("b").plugin(), refs)
        canary = CanaryPlan(bay.compile("scorer", options=options), 1.0, "s")
        bay.router.publish(plan)
        await bay.decide(1)
        bay.router.publish(plan, canary=canary)
        assert await bay.names(5) == ["b"] * 5
        client.die()
        bay.router.publish(plan)
        assert await bay.names(5) == ["a"] * 5

    in_loop(body)


# -- no cycle mixes ------------------------------------------------------------------------------


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("ask"), st.integers(1, 5)),
        st.tuples(
            st.sampled_from(["canary", "cut", "back", "turn", "hold", "free", "die", "quiesce", "resume"]), st.just(0)
        ),
    ),
    max_size=24,
)


class History:
    """Publications of a rollout in any order, while requests come."""

    def __init__(self, bay) -> None:
        self.bay = bay
        bay.endpoints(a=IDLE, b=IDLE)
        self.versions = [Version()]
        self.live = self.previous = self.candidate = start(bay, self.versions[0])
        self.futures: list[asyncio.Future] = []
        bay.router.publish(self.live[0])

    def ask(self, count: int) -> None:
        self.futures += self.bay.start(count, ids=[f"q{len(self.futures) + n}" for n in range(count)])

    def canary(self) -> None:
        self.versions.append(Version("b"))
        self.candidate = start(self.bay, self.versions[-1])
        canary = CanaryPlan(self.candidate[0], 0.5, str(len(self.versions)))
        mirrors = {self.live[1].number: [self.candidate[1]], self.candidate[1].number: [self.live[1]]}
        self.bay.router.publish(self.live[0], canary=canary, mirrors=mirrors)

    def switch(self, to: tuple[Plan, Generation]) -> None:
        self.previous, self.live = self.live, to
        self.bay.router.publish(self.live[0], mirrors={self.live[1].number: [self.previous[1]]})

    def free(self) -> None:
        for each in self.bay.started:
            each.client.hold = False
            each.client.release()

    def resume(self) -> None:
        for each in self.bay.started:
            self.bay.router.resume(each.number)

    async def run(self, steps: Sequence[tuple[str, int]]) -> None:
        acts: Mapping[str, Callable[[], object]] = {
            "canary": self.canary,
            "cut": lambda: self.switch(self.candidate),
            "back": lambda: self.switch(self.previous),
            "hold": lambda: setattr(self.live[1].client, "hold", True),
            "free": self.free,
            "die": lambda: self.candidate[1].client.die(),
            "quiesce": lambda: self.bay.router.quiesce(self.live[1].number, within_s=60.0),
            "resume": self.resume,
        }
        for step, count in steps:
            if step == "turn":
                await turns(2)
            elif step == "ask":
                self.ask(count)
            else:
                acts[step]()
        self.resume()
        self.free()
        await asyncio.wait_for(asyncio.gather(*self.futures), 5)
        await turns(3)


@settings(max_examples=60)
@given(STEPS)
def test_every_request_is_answered_by_one_generation_whatever_is_published_meanwhile(
    make_bay: Callable, steps: list[tuple[str, int]]
) -> None:
    async def body() -> None:
        history = History(make_bay())
        await history.run(steps)
        for number, future in enumerate(history.futures):
            assert isinstance(future.result(), Picked)
            assert sum(f"q{number}" in version.asked for version in history.versions) <= 1
        assert history.bay.router.mixed == history.bay.router.deciding == history.bay.router.held == 0
        assert all(each.leases == 0 for each in history.bay.started)

    asyncio.run(body())


def test_u24_cycle_that_is_half_way_at_the_swap_gets_its_other_calls_from_its_own_generation(in_loop: Callable) -> None:
    async def body(bay) -> None:
        bay.endpoints(a=IDLE, b=IDLE)
        old, new = Version("a"), Version("b")
        plan, generation = start(bay, old)
        bay.router.publish(plan)
        generation.client.hold = True
        (future,) = bay.start(1, ids=["q"])
        await turns(3)
        bay.router.publish(start(bay, new)[0])
        generation.client.hold = False
        generation.client.release()
        decided = await asyncio.wait_for(future, 5)
        assert (decided.endpoint.name, decided.degraded) == ("a", ())
        assert old.asked == {"q": {"producer", "handler", "filter", "scorer", "picker"}}
        assert new.asked == {}

    in_loop(body)


def test_cycle_that_was_answered_by_a_generation_of_another_plan_is_counted(make_bay: Callable) -> None:
    async def body() -> None:
        bay = make_bay()
        bay.endpoints(a=IDLE)
        plan, _ = start(bay, Version())
        bay.router.publish(replace(plan, numbers=frozenset()))
        await bay.decide(3)
        assert bay.router.mixed == bay.tally.mixed == 3

    asyncio.run(body())


# -- shadow --------------------------------------------------------------------------------------


def shadowed(
    bay, old: Version, new: Version, *, sample: float = 1.0, refs: Sequence = REFS
) -> tuple[list[AnswerPair], Generation, Generation]:
    """Publish the old version with the new one as its shadow; what is compared, and both generations."""
    entries = [name for name, _, _ in refs if name in ("filter", "scorer", "picker")]
    plan, live = start(bay, old, refs, *entries)
    tried, candidate = start(bay, new, refs, *entries)
    pairs: list[AnswerPair] = []
    bay.router.publish(plan, shadows=[Shadow(live, candidate, tried, sample, pairs.append)])
    return pairs, live, candidate


def test_shadow_compares_every_kind_of_answer_and_decides_nothing(in_loop: Callable) -> None:
    async def body(bay) -> None:
        bay.endpoints(a=IDLE, b=IDLE, c=IDLE)
        old, new = Version("a", makes=9.0), Version("b", kept=("b", "c"), makes=4.0)
        pairs, _, _ = shadowed(bay, old, new)
        decided = await bay.decide(1, ids=["q"])
        await turns(10)
        assert [d.endpoint.name for d in decided] == ["a"]
        assert decided[0].degraded == ()
        assert old.asked == new.asked == {"q": {"producer", "handler", "filter", "scorer", "picker"}}
        found = {(pair.point, pair.ref): pair for pair in pairs}
        kept = found[Point.FILTER, "filter"]
        assert (kept.live.tolist(), kept.candidate.tolist()) == ([True, True, True], [False, True, True])
        scores = found[Point.SCORE, "scorer"]
        assert scores.live.tolist() == [1.0, 0.25, 0.25]
        # Its own filter came before its own scorer, in one call: what it dropped scores nothing.
        assert scores.candidate.tolist() == [0.0, 1.0, 0.25]
        picks = found[Point.PICK, "picker"]
        # The picker is asked with the same totals.
        assert (picks.live, picks.candidate, picks.totals.tolist()) == ((0,), (0,), [1.0, 0.25, 0.25])
        assert found[Point.PRODUCE, "producer/Made.number"].candidate.tolist() == [4.0] * 3
        # Both scored by what the live producer made.
        assert old.seen == new.seen == {9.0}
        # Asked which profiles to run, and which of them is the primary one.
        assert [p.live for p in pairs if p.point is Point.PROFILE_HANDLER].count(("default",)) == 2

    in_loop(body)


def test_shadow_whose_handler_finds_no_result_is_compared_and_decides_nothing(in_loop: Callable) -> None:
    async def body(bay) -> None:
        bay.endpoints(a=IDLE)
        pairs, _, candidate = shadowed(bay, Version(), Version())
        candidate.client.tamper = lambda result: None if isinstance(result, dict) else result
        [decided] = await bay.decide(1, ids=["q"])
        await turns(10)
        assert (decided.endpoint.name, decided.degraded) == ("a", ())
        assert (("default",), ()) in [(p.live, p.candidate) for p in pairs if p.point is Point.PROFILE_HANDLER]

    in_loop(body)


def test_shadow_is_told_of_no_host_tally_but_counted_as_the_candidates(in_loop: Callable) -> None:
    async def body(bay) -> None:
        bay.endpoints(a=IDLE)
        pairs, live, candidate = shadowed(bay, Version(), Version(broken=True))
        decided = await bay.decide(20, ids=[str(n) for n in range(20)])
        await turns(20)
        assert pairs == []
        assert {d.degraded for d in decided} == {()}
        assert bay.tally.errors == bay.tally.degradations == []
        assert sum(bay.tally.timed.values()) == bay.router.statistics(live.number).batches
        assert bay.router.statistics(live.number).failures == 0
        assert bay.router.statistics(candidate.number).failures > 0

    in_loop(body)


def test_shadow_takes_its_sample_of_the_calls(in_loop: Callable) -> None:
    async def body(bay) -> None:
        bay.endpoints(a=IDLE)
        pairs, live, candidate = shadowed(bay, Version(), Version(), sample=0.1, refs=[("scorer", "scorer", {})])
        for _ in range(40):
            await bay.decide(50)
        await turns(5)
        # Four standard deviations of 2000 draws at 0.1.
        assert abs(len(pairs) - 200) < 4 * math.sqrt(2000 * 0.1 * 0.9)
        assert bay.router.statistics(candidate.number).calls == len(pairs)
        assert bay.router.statistics(live.number).calls == 2000

    in_loop(body)


def test_candidate_that_hangs_or_dies_delays_no_request(in_loop: Callable) -> None:
    async def body(bay) -> None:
        bay.endpoints(a=IDLE, b=IDLE)
        pairs, _, candidate = shadowed(bay, Version("a", kept="a"), Version("b"), refs=REFS[:2])
        candidate.client.hold = True
        assert await bay.names(4 * MAX_PAIRS) == ["a"] * (4 * MAX_PAIRS)
        copier = next(iter(bay.router._copiers.values()))
        assert len(copier._pairs) == len(copier._copies) == MAX_PAIRS
        candidate.client.time_out()
        assert await bay.names(10) == ["a"] * 10
        candidate.client.die()
        assert await bay.names(10) == ["a"] * 10
        assert pairs == []
        assert bay.router.statistics(candidate.number).failures > 0

    in_loop(body)


def test_listener_that_raises_is_logged_and_costs_nothing(in_loop: Callable, caplog: pytest.LogCaptureFixture) -> None:
    def listen(pair: AnswerPair) -> None:
        raise RuntimeError("listener")

    async def body(bay) -> None:
        bay.endpoints(a=IDLE)
        plan, live = start(bay, Version())
        tried, candidate = start(bay, Version())
        bay.router.publish(plan, shadows=[Shadow(live, candidate, tried, 1.0, listen)])
        assert await bay.names(3) == ["a"] * 3
        await turns(10)

    in_loop(body)
    assert "comparison_failed" in caplog.text


@pytest.mark.parametrize(
    "tamper",
    [
        lambda r: [[[7]], []],  # no row of the snapshot
        lambda r: [[[-1]], []],
        lambda r: [["a"], []],
        lambda r: [[[0]], [[0, 0, {"code": "PLUGIN_ERROR"}]]],
    ],
)
def test_pick_that_no_decision_would_take_is_not_compared(in_loop: Callable, tamper: Callable) -> None:
    async def body(bay) -> None:
        bay.endpoints(a=IDLE)
        pairs, _, candidate = shadowed(bay, Version(), Version(), refs=[("picker", "picker", {})])
        candidate.client.tamper = tamper
        assert await bay.names(1) == ["a"]
        await turns(5)
        assert pairs == []
        assert bay.router.statistics(candidate.number).failures == 1

    in_loop(body)


def test_row_that_failed_is_compared_for_none_of_its_steps(in_loop: Callable) -> None:
    async def body(bay) -> None:
        bay.endpoints(a=IDLE)
        pairs, _, candidate = shadowed(bay, Version(), Version(), refs=REFS[:2])
        candidate.client.tamper = lambda r: [r[0], r[1], [[0, 0, {"code": "PLUGIN_ERROR"}]]]
        await bay.decide(1)
        candidate.client.tamper = lambda r: [r[0], r[1], [[1, -1, {"code": "PLUGIN_ERROR"}]]]
        await bay.decide(1)
        await turns(5)
        assert [pair.point for pair in pairs] == [Point.SCORE, Point.FILTER]

    in_loop(body)


def test_data_of_a_request_is_compared_unless_its_producer_failed(in_loop: Callable) -> None:
    def counting(number: float) -> Plugin:
        plugin = Plugin("counting")

        @plugin.type("counter", produces={"Made.total": "request", "Made.number": "row"})
        class Counts(DataProducer):
            def produce(self, request: Request, endpoints: Endpoints) -> Mapping[str, object]:
                return {"Made.total": number, "Made.number": [number] * len(endpoints.ids)}

        return plugin

    async def body(bay) -> None:
        bay.endpoints(a=IDLE, b=IDLE)
        bay.builtin("max-score-picker")
        plans, generations = [], []
        for number in (1.0, 2.0):
            bay.plugin(counting(number), [("c", "counter", {})])
            plans.append(bay.compile("max-score-picker"))
            generations.append(bay.generations["counting"])
        pairs: list[AnswerPair] = []
        bay.router.publish(plans[0], shadows=[Shadow(*generations, plans[1], 1.0, pairs.append)])
        await bay.decide(1)
        await turns(5)
        found = {pair.ref: (pair.live, pair.candidate) for pair in pairs}
        assert found["c/Made.total"] == (1.0, 2.0)
        assert [column.tolist() for column in found["c/Made.number"]] == [[1.0, 1.0], [2.0, 2.0]]
        generations[1].client.tamper = lambda result: [result[0], [[0, 0, {"code": "PLUGIN_ERROR"}]]]
        await bay.decide(1)
        await turns(5)
        assert len(pairs) == 2

    in_loop(body)


def test_defect_of_the_candidates_side_costs_the_copied_request_nothing(
    in_loop: Callable, caplog: pytest.LogCaptureFixture
) -> None:
    def submit(cycle: object, call: object) -> bool:
        raise KeyError("defect")

    async def body(bay) -> None:
        bay.endpoints(a=IDLE)
        shadowed(bay, Version(), Version())
        next(iter(bay.router._copiers.values()))._submit = submit
        assert await bay.names(2) == ["a"] * 2

    in_loop(body)
    assert "copy_failed" in caplog.text


def test_call_that_the_candidate_would_not_make_is_not_copied(in_loop: Callable) -> None:
    async def body(bay) -> None:
        bay.endpoints(a=IDLE)
        plan, live = start(bay, Version(), [("scorer", "scorer", {})], "scorer")
        bay.refs = []
        tried, candidate = start(bay, Version(), [("filter", "filter", {})], "filter")
        pairs: list[AnswerPair] = []
        bay.router.publish(plan, shadows=[Shadow(live, candidate, tried, 1.0, pairs.append)])
        await bay.decide(5)
        await turns(5)
        assert pairs == []
        assert bay.router.statistics(candidate.number).calls == 0

    in_loop(body)


def test_shadow_of_a_generation_that_is_in_no_plan_is_none(in_loop: Callable) -> None:
    async def body(bay) -> None:
        bay.endpoints(a=IDLE)
        _, gone = start(bay, Version())
        plan, candidate = start(bay, Version())
        bay.router.publish(plan, shadows=[Shadow(gone, candidate, plan, 1.0, lambda pair: None)])
        assert await bay.names(2) == ["a"] * 2

    in_loop(body)


# -- mirrors -------------------------------------------------------------------------------------


def test_learners_of_both_generations_are_told_from_the_hand_over_until_one_retires(in_loop: Callable) -> None:
    async def body(bay) -> None:
        bay.endpoints(a=IDLE, b=IDLE)
        old, new = Version("a"), Version("b")
        plan, live = start(bay, old)
        tried, candidate = start(bay, new)
        both = {live.number: [candidate], candidate.number: [live]}
        bay.router.publish(plan, mirrors=both)
        await bay.decide(2, ids=["q0", "q1"])
        bay.router.publish(plan, canary=CanaryPlan(tried, 1.0, "s"), mirrors=both)
        await bay.decide(1, ids=["q2"])
        bay.router.publish(tried, mirrors=both)
        await bay.decide(1, ids=["q3"])
        await turns(5)
        assert (
            old.told == new.told == [("q0", "default/a"), ("q1", "default/a"), ("q2", "default/b"), ("q3", "default/b")]
        )
        bay.router.publish(tried)
        bay.router.retire(live.number)
        await bay.decide(1, ids=["q4"])
        await turns(5)
        assert (len(old.told), len(new.told)) == (4, 5)

    in_loop(body)


def test_what_is_sent_after_a_cut_over_is_told_to_who_is_live_then(in_loop: Callable) -> None:
    async def body(bay) -> None:
        bay.endpoints(a=IDLE)
        old, new = Version(), Version()
        plan, live = start(bay, old)
        tried, _ = start(bay, new)
        bay.router.publish(plan)
        bay.sends = False
        (before,) = await bay.decide(1, ids=["q0"])
        bay.router.publish(plan, canary=CanaryPlan(tried, 1.0, "s"))
        (during,) = await bay.decide(1, ids=["q1"])
        bay.router.sent(bay.requests[0], before, before.endpoint.id)
        bay.router.sent(bay.requests[1], during, during.endpoint.id)
        await turns(5)
        # Each by the side of the trial on which it was decided.
        assert (old.told, new.told) == ([("q0", "default/a")], [("q1", "default/a")])
        bay.router.publish(tried)
        bay.router.retire(live.number)
        bay.router.sent(bay.requests[0], before, "default/elsewhere")
        bay.router.sent(bay.requests[1], during, "default/elsewhere")
        await turns(5)
        assert (len(old.told), new.told[1:]) == (1, [("q0", "default/elsewhere"), ("q1", "default/elsewhere")])

    in_loop(body)


def test_mirror_that_died_or_learns_nothing_there_costs_nothing(in_loop: Callable) -> None:
    async def body(bay) -> None:
        bay.endpoints(a=IDLE)
        old = Version()
        plan, live = start(bay, old)
        _, deaf = start(bay, Version(), [("scorer", "scorer", {})], "scorer")
        _, dead = start(bay, Version())
        dead.client.die()
        bay.router.publish(plan, mirrors={live.number: [deaf, dead]})
        await bay.decide(2)
        await turns(5)
        assert len(old.told) == 2
        assert bay.router.statistics(dead.number).calls == 0

    in_loop(body)


# -- statistics ----------------------------------------------------------------------------------


def test_statistics_live_from_the_first_publication_to_the_retirement(in_loop: Callable) -> None:
    async def body(bay) -> None:
        bay.endpoints(a=IDLE)
        plan, live = start(bay, Version(), [("scorer", "scorer", {})], "scorer")
        assert bay.router.statistics(live.number) is None
        bay.router.publish(plan)
        await bay.decide(3)
        other, _ = start(bay, Version(), [("scorer", "scorer", {})], "scorer")
        bay.router.publish(other)
        await bay.decide(2)
        bay.router.publish(plan)  # back
        await bay.decide(4)
        found = bay.router.statistics(live.number)
        assert (found.calls, found.batches, found.failures, found.latencies.count) == (7, 2, 0, 2)
        assert 0 < found.p99_s < 5
        bay.router.publish(other)
        bay.router.retire(live.number)
        assert bay.router.statistics(live.number) is None

    in_loop(body)


def test_statistics_of_a_candidate_that_died_are_dropped_though_plans_name_it_once_more(in_loop: Callable) -> None:
    async def body(bay) -> None:
        bay.endpoints(a=IDLE)
        plan, live = start(bay, Version(), [("scorer", "scorer", {})], "scorer")
        bay.router.publish(plan)
        for _ in range(20):
            tried, candidate = start(bay, Version(), [("scorer", "scorer", {})], "scorer")
            shadows = [Shadow(live, candidate, tried, 1.0, lambda pair: None)]
            both = {live.number: [candidate], candidate.number: [live]}
            bay.router.publish(plan, shadows=shadows, mirrors=both)
            assert await bay.names(2) == ["a"] * 2
            assert bay.router.statistics(candidate.number).calls == 2
            candidate.client.die()
            bay.router.retire(candidate.number)
            # Its end is told in steps: the trial is over, then it is beside the live one no more.
            bay.router.publish(plan, shadows=shadows, mirrors=both)
            assert await bay.names(2) == ["a"] * 2
            bay.router.publish(plan, mirrors=both)
            bay.router.publish(plan)
            assert bay.router.statistics(candidate.number) is None
        assert bay.router.statistics(live.number).calls == 80
        assert len(bay.router._counters) == 1
        assert len(bay.router._retired) == 0

    in_loop(body)


def test_failed_calls_are_counted_once_each_by_their_kind(in_loop: Callable) -> None:
    async def body(bay) -> None:
        bay.endpoints(a=IDLE)
        refs = [(name, "scorer", {}) for name in ("s1", "s2", "s3")]
        plan, live = start(bay, Version(), refs, "s1", "s2", "s3")
        bay.router.publish(plan)
        client = live.client
        client.tamper = lambda result: None
        await bay.decide(2)
        client.tamper = None
        client.hold = True
        first = bay.start(3)
        await turns(3)
        client.time_out()
        late = await bay.decide(5)
        assert {reason for d in late for _, reason in d.degraded} == {"DEADLINE_EXCEEDED"}
        client.hold = False
        client.release()
        await asyncio.gather(*first)
        found = bay.router.statistics(live.number)
        assert (found.calls, found.bad_results, found.deadline_misses) == (10, 2, 8)
        assert (found.errors, found.refused, found.late_answers) == (0, 0, 1)
        # One answer was bad, one late, and five requests were refused in the same moment.
        assert (found.batches, found.failed_batches) == (3, 3)
        client.die()
        await bay.decide(2)
        assert bay.router.statistics(live.number).since(found).errors == 2

    in_loop(body)
