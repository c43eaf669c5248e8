"""The reference's own cases of a cycle, and field failures of scoring, at their numbers; see also test_router and test_handlers."""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hotbay.datalayer.endpoint import Metrics
from hotbay.scheduling.decision import Picked
from hotbay_sdk import Context, Endpoint, Endpoints, Filter, Plugin, Request, Scorer

IDLE = Metrics(waiting=0.0)


def tables(plugin_id: str = "tables") -> Plugin:
    """`table` scores as its parameters say, `drop` filters out the endpoint of its parameter."""
    plugin = Plugin(plugin_id)

    @plugin.type("table", parameters=lambda given: dict(given))
    class Table(Scorer):
        def __init__(self, context: Context, parameters: dict[str, object]) -> None:
            self._scores = parameters

        def score(self, request: Request, endpoint: Endpoint) -> object:
            return self._scores.get(endpoint.id.removeprefix("default/"), 0.0)

    @plugin.type("drop", parameters=lambda given: dict(given))
    class Drop(Filter):
        def __init__(self, context: Context, parameters: dict[str, object]) -> None:
            self._drops = parameters["drops"]

        def keep_batch(self, requests: Sequence[Request], endpoints: Endpoints) -> object:
            return [[i != f"default/{self._drops}" for i in endpoints.ids] for _ in requests]

    return plugin


async def totals_of(bay) -> dict[str, float]:
    """Decide once; the totals by which was picked, by name."""
    await bay.decide()
    [run] = bay.router.explain(bay.requests[-1].id).profiles
    return {name.removeprefix("default/"): total for name, total in run.totals.items()}


@pytest.mark.parametrize(
    ("scores", "weights", "total"),
    [((0.3, 0.8), (1.0, 1.0), 1.1), ((0.3, 0.8), (60.0, 40.0), 50.0)],
    ids=["ep01", "ep02"],
)
def test_ep01_ep02_totals_are_sums_of_weighted_scores(
    in_loop: Callable, scores: Sequence[float], weights: Sequence[float], total: float
) -> None:
    async def body(bay) -> None:
        bay.endpoints(a=IDLE)
        bay.plugin(tables(), [(f"s{n}", "table", {"a": score}) for n, score in enumerate(scores)])
        bay.publish(*((f"s{n}", weight) for n, weight in enumerate(weights)))
        assert await totals_of(bay) == {"a": pytest.approx(total, rel=1e-6)}

    in_loop(body)


def test_ep04_s05_scores_out_of_range_are_clamped_and_counted(in_loop: Callable) -> None:
    async def body(bay) -> None:
        bay.endpoints(a=IDLE, b=IDLE, c=IDLE, d=IDLE, e=IDLE)
        bay.plugin(tables(), [("s", "table", {"a": -0.5, "b": 1.5, "c": 0.0, "d": 1.0, "e": 0.5})])
        bay.publish("s")
        assert await totals_of(bay) == {"a": 0.0, "b": 1.0, "c": 0.0, "d": 1.0, "e": 0.5}
        assert bay.tally.invalid == {"s": 2}

    in_loop(body)


def test_s05_one_plugin_cannot_dominate(in_loop: Callable) -> None:
    async def body(bay) -> None:
        bay.endpoints(a=IDLE, b=IDLE)
        bay.plugin(tables(), [("wild", "table", {"a": 7.0, "b": -5.0}), ("calm", "table", {"b": 1.0})])
        bay.publish("wild", ("calm", 1.5))
        assert await bay.names(1) == ["b"]
        assert bay.tally.invalid == {"wild": 2}

    in_loop(body)


def test_ep05_scorer_without_a_weight_has_weight_1(in_loop: Callable) -> None:
    async def body(bay) -> None:
        bay.endpoints(a=IDLE)
        bay.plugin(tables(), [("s", "table", {"a": 0.5})])
        bay.publish("s")
        assert await totals_of(bay) == {"a": 0.5}

    in_loop(body)


def test_ep08_ep10_max_score_names_the_best_first(in_loop: Callable) -> None:
    async def body(bay) -> None:
        bay.endpoints(a=IDLE, b=IDLE, c=IDLE)
        bay.plugin(tables(), [("s", "table", {"a": 0.20, "b": 0.25, "c": 0.30})])
        bay.builtin("max-score-picker", maxNumOfEndpoints=4)
        bay.publish("s", "max-score-picker")
        [answer] = await bay.decide()
        assert isinstance(answer, Picked)
        assert [answer.endpoint.name, *(e.name for e in answer.fallbacks)] == ["c", "b", "a"]

    in_loop(body)


def test_ep11_weighted_random_picks_in_proportion(in_loop: Callable) -> None:
    """1000 draws of the reference's 10000, which the built-in's own test makes: its bounds hold as well."""

    async def body(bay) -> None:
        bay.endpoints(a=IDLE, b=IDLE)
        bay.plugin(tables(), [("s", "table", {"a": 0.1, "b": 0.9})])
        bay.builtin("weighted-random-picker")
        bay.publish("s", "weighted-random-picker")
        picked = Counter([(await bay.names(1))[0] for _ in range(1000)])
        assert picked["a"] / 1000 == pytest.approx(0.1, abs=0.05)

    in_loop(body)


def test_s06_scores_of_the_wrong_number_are_refused_and_a_filtered_endpoint_is_never_picked(in_loop: Callable) -> None:
    async def body(bay) -> None:
        bay.endpoints(a=IDLE, b=IDLE)
        client = bay.plugin(tables(), [("f", "drop", {"drops": "a"}), ("s", "table", {"a": 1.0})])
        bay.publish("f", "s")
        assert set(await bay.names(20)) == {"b"}, "the best score is of one that was filtered out"
        for numbers in ([], [1.0], [1.0] * 3, [1.0] * 2002):
            bay.publish("f", "s")
            client.tamper = lambda result, numbers=numbers: [result[0], np.array(numbers, "<f4").tobytes(), result[2]]
            [answer] = await bay.decide()
            assert {reason for _, reason in answer.degraded} <= {"BAD_RESULT", "BREAKER_OPEN"}
            assert answer.degraded
        client.tamper = None

    in_loop(body)


def test_s10_sums_that_differ_by_float_noise_split_evenly(in_loop: Callable) -> None:
    async def body(bay) -> None:
        bay.endpoints(a=IDLE, b=IDLE)
        # Two processes: their sums are added up one after the other, as IEEE 754 has it on every machine.
        bay.plugin(tables(), [("s1", "table", {"a": 0.7, "b": 0.1})])
        bay.plugin(tables("others"), [("s2", "table", {"b": 0.6})])
        bay.publish("s1", "s2")
        totals = await totals_of(bay)
        assert totals["a"] != totals["b"], "float32 does not add the parts up to the sum"
        picked = Counter([(await bay.names(1))[0] for _ in range(2000)])
        assert picked["a"] / 2000 == pytest.approx(0.5, abs=0.05)

    in_loop(body)


def test_weights_that_are_all_0_make_a_uniform_pick(in_loop: Callable) -> None:
    async def body(bay) -> None:
        bay.endpoints(a=IDLE, b=IDLE, c=IDLE)
        bay.plugin(tables(), [("s", "table", {"a": 1.0}), ("t", "table", {"b": 0.5})])
        bay.publish(("s", 0.0), ("t", 0.0))
        picked = Counter([(await bay.names(1))[0] for _ in range(900)])
        assert all(230 <= picked[name] <= 370 for name in "abc"), picked

    in_loop(body)


@pytest.mark.parametrize("names", ["a", "abc"])
def test_s19_equal_scores_or_one_endpoint_alone_give_finite_totals(in_loop: Callable, names: str) -> None:
    async def body(bay) -> None:
        bay.endpoints(**dict.fromkeys(names, IDLE))
        bay.plugin(tables(), [("s", "table", dict.fromkeys(names, 1.0))])
        bay.publish("s")
        assert await totals_of(bay) == dict.fromkeys(names, 1.0)

    in_loop(body)


def test_s44_slow_scorer_costs_its_deadline_three_times_and_then_nothing_until_it_is_fast_again(
    in_loop: Callable,
) -> None:
    """Its deadline passes when the test says so: what a decision takes is a row of the benchmarks."""

    async def body(bay) -> None:
        bay.endpoints(a=IDLE, b=IDLE)
        client = bay.plugin(tables(), [("s", "table", {"a": 1.0})])
        bay.publish("s")
        client.hold = True
        [slow] = bay.start(1)
        for _ in range(3):
            await asyncio.sleep(0)
        client.time_out()
        first = await asyncio.wait_for(slow, 5)
        assert first.degraded == (("s", "DEADLINE_EXCEEDED"),)
        others = await bay.decide(100)
        assert {reason for other in others for _, reason in other.degraded} <= {"DEADLINE_EXCEEDED", "BREAKER_OPEN"}
        assert all(isinstance(other, Picked) for other in others), "each is decided at once, without it"
        assert bay.router.broken()
        client.hold = False
        client.release()
        for _ in range(3):
            await asyncio.sleep(0)
        [again] = await bay.decide()
        assert (again.endpoint.name, again.degraded) == ("a", ())
        assert bay.router.broken() == []

    in_loop(body)
