"""The scheduling cycle through the router: order, totals, masks, batches, failure policies."""

import asyncio
import math
from collections import Counter
from collections.abc import Callable, Sequence

import pytest
from hotbay.datalayer.endpoint import Metrics
from hotbay.scheduling.binding import BindingOptions, Policy
from hotbay.scheduling.decision import Picked, Rejected
from hotbay_sdk import (
    Context,
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

IDLE = Metrics(waiting=0.0)


def table_scorer(plugin_id: str = "tables") -> Plugin:
    plugin = Plugin(plugin_id)

    @plugin.type("table-scorer", parameters=lambda given: dict(given))
    class TableScorer(Scorer):
        def __init__(self, context: Context, parameters: dict[str, object]) -> None:
            self._scores = parameters

        def score(self, request: Request, endpoint: Endpoint) -> object:
            return self._scores.get(endpoint.id.removeprefix("default/"), 0.0)

    return plugin


def tracing_filters(trace: list[tuple[str, list[str]]]) -> Plugin:
    plugin = Plugin("filters")

    @plugin.type("drop", parameters=lambda given: dict(given))
    class Drop(Filter):
        def __init__(self, context: Context, parameters: dict[str, object]) -> None:
            self._name = context.name
            self._drops = parameters.get("drops", "")
            self._seen: list[str] = []

        def keep_batch(self, requests: Sequence[Request], endpoints: Endpoints) -> list[list[bool]]:
            candidates = [i for i, ok in zip(endpoints.ids, endpoints.mask(0), strict=True) if ok]
            trace.append((self._name, [c.removeprefix("default/") for c in candidates]))
            return [[i != f"default/{self._drops}" for i in endpoints.ids] for _ in requests]

    return plugin


def test_totals_are_weighted_sums_and_never_normalised_ep01_ep02(in_loop: Callable) -> None:
    async def body(bay) -> None:
        bay.endpoints(a=IDLE, b=IDLE)
        bay.plugin(table_scorer(), [("s1", "table-scorer", {"a": 0.3}), ("s2", "table-scorer", {"a": 0.8, "b": 1.0})])
        seen = []
        cycle_totals = bay.router._finish

        def spy(cycle) -> None:
            seen.append(cycle.totals.tolist())
            cycle_totals(cycle)

        bay.router._finish = spy
        bay.publish(("s1", 60.0), ("s2", 40.0))
        await bay.decide()
        assert seen[0] == pytest.approx([0.3 * 60 + 0.8 * 40, 40.0], rel=1e-5)

    in_loop(body)


def test_raw_scores_are_clamped_and_counted_ep04(in_loop: Callable) -> None:
    async def body(bay) -> None:
        bay.endpoints(a=IDLE, b=IDLE, c=IDLE)
        bay.plugin(table_scorer(), [("s", "table-scorer", {"a": -0.5, "b": 1.5, "c": 0.5})])
        bay.publish("s")
        assert set(await bay.names(1)) == {"b"}
        assert bay.tally.invalid == {"s": 2}

    in_loop(body)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, "0.5", None, True, 1e308])
def test_s03_an_invalid_score_counts_zero_and_the_good_one_wins(in_loop: Callable, bad: object) -> None:
    async def body(bay) -> None:
        bay.endpoints(a=IDLE, b=IDLE)
        bay.plugin(table_scorer(), [("s", "table-scorer", {"a": bad, "b": 0.9})])
        bay.publish("s")
        picked = Counter([(await bay.names(1))[0] for _ in range(100)])
        # inf and 1e308 are above 1: clamped to it (1e308 is inf as float32, and inf counts 0).
        assert picked == {"b": 100}
        assert bay.tally.invalid["s"] == 100
        assert bay.tally.degradations == []

    in_loop(body)


def test_s03_all_invalid_scores_make_a_uniform_pick_and_a_bad_result(in_loop: Callable) -> None:
    async def body(bay) -> None:
        bay.endpoints(a=IDLE, b=IDLE, c=IDLE)
        bay.plugin(table_scorer(), [("s", "table-scorer", {"a": math.nan, "b": math.nan, "c": math.nan})])
        bay.publish("s")
        picked = Counter([(await bay.names(1))[0] for _ in range(300)])
        assert all(60 <= picked[name] <= 140 for name in "abc"), picked
        assert {reason for _, reason in bay.tally.degradations} <= {"BAD_RESULT", "BREAKER_OPEN"}
        assert len(bay.tally.degradations) == 300

    in_loop(body)


def test_s07_ties_spread_evenly(in_loop: Callable) -> None:
    async def body(bay) -> None:
        bay.endpoints(a=IDLE, b=IDLE, c=IDLE)
        bay.builtin("max-score-picker")
        bay.publish("max-score-picker")
        picked: Counter[str] = Counter()
        for _ in range(3000):
            picked.update(await bay.names(1))
        assert all(850 <= picked[name] <= 1150 for name in "abc"), picked

    in_loop(body)


def test_filters_run_in_order_and_each_sees_what_is_left_ep13(in_loop: Callable) -> None:
    async def body(bay) -> None:
        trace: list[tuple[str, list[str]]] = []
        bay.endpoints(a=IDLE, b=IDLE, c=IDLE, d=IDLE)
        bay.plugin(tracing_filters(trace), [(n.upper(), "drop", {"drops": n}) for n in "abc"])
        bay.publish("A", "B", "C")
        assert await bay.names(1) == ["d"]
        assert trace == [("A", list("abcd")), ("B", list("bcd")), ("C", list("cd"))]

    in_loop(body)


def test_scorers_see_only_what_filters_of_another_process_kept(in_loop: Callable) -> None:
    async def body(bay) -> None:
        trace: list[tuple[str, list[str]]] = []
        bay.endpoints(a=IDLE, b=IDLE)
        bay.plugin(tracing_filters(trace), [("F", "drop", {"drops": "a"})])
        bay.plugin(table_scorer(), [("s", "table-scorer", {"a": 1.0, "b": 0.1})])
        bay.publish("F", "s")
        assert await bay.names(1) == ["b"]
        client = bay.clients["tables"]
        assert client.arguments[0][2] == b"\x02"

    in_loop(body)


def test_emptied_set_is_busy_and_an_empty_pool_is_unavailable(in_loop: Callable) -> None:
    async def body(bay) -> None:
        trace: list[tuple[str, list[str]]] = []
        bay.plugin(tracing_filters(trace), [("F", "drop", {"drops": "a"})])
        bay.publish("F")
        [answer] = await bay.decide()
        assert answer == Rejected(503, "rejected-no-endpoints", answer.message)
        bay.endpoints(a=IDLE)
        [answer] = await bay.decide()
        assert isinstance(answer, Rejected)
        assert (answer.status, answer.reason) == (429, "rejected-saturated")

    in_loop(body)


def test_without_a_plan_requests_are_refused(in_loop: Callable) -> None:
    async def body(bay) -> None:
        bay.endpoints(a=IDLE)
        [answer] = await bay.decide()
        assert isinstance(answer, Rejected)
        assert (answer.status, answer.reason) == (503, "not-ready")

    in_loop(body)


def test_requests_that_arrive_while_a_batch_is_out_go_together(in_loop: Callable) -> None:
    async def body(bay) -> None:
        bay.endpoints(a=IDLE, b=IDLE)
        client = bay.plugin(table_scorer(), [("s", "table-scorer", {"a": 0.5, "b": 0.5})])
        bay.publish("s")
        assert len(await bay.decide(200)) == 200
        assert client.batches == [64, 64, 64, 8]

    in_loop(body)


def test_a_batch_does_not_herd_onto_one_endpoint(in_loop: Callable) -> None:
    async def body(bay) -> None:
        bay.endpoints(a=IDLE, b=IDLE)
        bay.plugin(table_scorer(), [("s", "table-scorer", {"a": 0.52, "b": 0.5})])
        bay.publish("s")
        picked = Counter(await bay.names(60))
        assert abs(picked["a"] - picked["b"]) <= 2
        assert await bay.names(1) == ["a"]

    in_loop(body)


def test_columns_travel_once_per_epoch(in_loop: Callable) -> None:
    plugin = Plugin("reader")

    @plugin.type("waiting-scorer", reads=["endpoint.waiting"])
    class WaitingScorer(Scorer):
        def score(self, request: Request, endpoint: Endpoint) -> float:
            return 1.0 - endpoint.waiting / 10

    async def body(bay) -> None:
        bay.endpoints(a=Metrics(waiting=9.0), b=Metrics(waiting=1.0))
        client = bay.plugin(plugin, [("w", "waiting-scorer", {})])
        bay.publish("w")
        assert [await bay.names(1) for _ in range(2)] == [["b"], ["b"]]
        bay.endpoints(a=Metrics(waiting=0.0), b=Metrics(waiting=1.0))
        assert await bay.names(1) == ["a"]
        views = [args[1] for args in client.arguments]
        assert [view[3] is not None for view in views] == [True, False, False]
        assert [view[4] is not None for view in views] == [True, False, True]

    in_loop(body)


# -- failures ------------------------------------------------------------------------------------


def test_a_dead_scorer_is_neutral_and_counted(in_loop: Callable) -> None:
    async def body(bay) -> None:
        bay.endpoints(a=IDLE, b=IDLE)
        client = bay.plugin(table_scorer("one"), [("s1", "table-scorer", {"a": 1.0})])
        bay.plugin(table_scorer("two"), [("s2", "table-scorer", {"b": 0.5})])
        bay.publish("s1", "s2")
        assert await bay.names(1) == ["a"]
        client.die()
        [answer] = await bay.decide()
        assert isinstance(answer, Picked)
        assert (answer.endpoint.name, answer.degraded) == ("b", (("s1", "CRASHED"),))
        assert bay.tally.degradations == [("s1", "CRASHED")]
        assert ("score", "s1", "CRASHED") in bay.tally.errors

    in_loop(body)


def test_calls_in_flight_at_a_death_are_answered_by_the_policy(in_loop: Callable) -> None:
    async def body(bay) -> None:
        bay.endpoints(a=IDLE, b=IDLE)
        client = bay.plugin(table_scorer(), [("s", "table-scorer", {"a": 1.0})])
        bay.publish("s")
        client.hold = True
        waiting = bay.start(100)
        await _turns(3)
        assert not any(f.done() for f in waiting)
        client.die()
        await _turns(3)
        assert all(isinstance(f.result(), Picked) for f in waiting)
        assert len(bay.tally.degradations) == 100

    in_loop(body)


def test_a_late_window_stays_shut_until_the_late_answer(in_loop: Callable) -> None:
    async def body(bay) -> None:
        bay.endpoints(a=IDLE, b=IDLE)
        client = bay.plugin(table_scorer(), [("s", "table-scorer", {"a": 1.0})])
        bay.publish("s")
        client.hold = True
        first = bay.start(1)
        await _turns(3)
        client.time_out()
        assert first[0].result().degraded == (("s", "DEADLINE_EXCEEDED"),)
        [during] = await bay.decide()
        assert during.degraded == (("s", "DEADLINE_EXCEEDED"),)
        client.hold = False
        client.release()
        [after] = await bay.decide()
        assert (after.endpoint.name, after.degraded) == ("a", ())
        assert client.batches == [1, 1]

    in_loop(body)


def test_fail_closed_rejects_and_other_policies_do_not(in_loop: Callable) -> None:
    async def body(bay) -> None:
        bay.endpoints(a=IDLE)
        client = bay.plugin(table_scorer(), [("s", "table-scorer", {"a": 1.0})])
        bay.publish("s", options={"s": BindingOptions(on_failure=Policy.FAIL_CLOSED)})
        client.die()
        [answer] = await bay.decide()
        assert isinstance(answer, Rejected)
        assert (answer.status, answer.reason) == (503, "plugin-unavailable")
        assert "'s'" in answer.message

    in_loop(body)


def test_neutral_score_stands_in_with_its_weight(in_loop: Callable) -> None:
    async def body(bay) -> None:
        bay.endpoints(a=IDLE)
        client = bay.plugin(table_scorer(), [("s", "table-scorer", {"a": 1.0})])
        totals = []
        finish = bay.router._finish
        bay.router._finish = lambda cycle: (totals.append(cycle.totals.tolist()), finish(cycle))
        bay.publish(("s", 2.0), options={"s": BindingOptions(neutral=0.5)})
        client.die()
        await bay.decide()
        assert totals == [[1.0]]

    in_loop(body)


def test_last_good_scores_stand_in_until_the_endpoints_change(in_loop: Callable) -> None:
    async def body(bay) -> None:
        bay.endpoints(a=IDLE, b=IDLE)
        client = bay.plugin(table_scorer(), [("s", "table-scorer", {"b": 1.0})])
        bay.publish("s", options={"s": BindingOptions(on_failure=Policy.LAST_GOOD)})
        assert await bay.names(1) == ["b"]
        client.die()
        answers = [(await bay.decide())[0] for _ in range(20)]
        assert {(a.endpoint.name, a.degraded) for a in answers} == {("b", (("s", "CRASHED"),))}
        bay.endpoints(a=IDLE, b=IDLE, c=IDLE)
        picked = Counter([(await bay.names(1))[0] for _ in range(60)])
        assert set(picked) == {"a", "b", "c"}

    in_loop(body)


@pytest.mark.parametrize(
    "tamper",
    [
        lambda r: None,
        lambda r: [r[0], r[1][:-1], r[2]],
        lambda r: [r[0], r[1] + b"\0\0\0\0", r[2]],
        lambda r: [r[0], "text", r[2]],
        lambda r: [r[0], r[1], [[7, 0, {}]]],
        lambda r: [r[0], r[1], "errors"],
        lambda r: {"scores": r[1]},
    ],
)
def test_a_result_of_the_wrong_shape_degrades_and_changes_nothing(in_loop: Callable, tamper: Callable) -> None:
    async def body(bay) -> None:
        bay.endpoints(a=IDLE, b=IDLE)
        client = bay.plugin(table_scorer("bad"), [("bad", "table-scorer", {"a": 1.0})])
        bay.plugin(table_scorer("good"), [("good", "table-scorer", {"b": 0.5})])
        bay.publish("bad", "good")
        client.tamper = tamper
        [answer] = await bay.decide()
        assert (answer.endpoint.name, answer.degraded) == ("b", (("bad", "BAD_RESULT"),))

    in_loop(body)


def test_one_bad_row_fails_one_request(in_loop: Callable) -> None:
    plugin = Plugin("picky")

    @plugin.type("picky-scorer", reads=["request.id"])
    class PickyScorer(Scorer):
        def score(self, request: Request, endpoint: Endpoint) -> float:
            if request.id == "r3":
                raise ValueError("not this one")
            return 1.0 if endpoint.id == "default/a" else 0.0

    async def body(bay) -> None:
        bay.endpoints(a=IDLE, b=IDLE)
        bay.plugin(plugin, [("p", "picky-scorer", {})])
        bay.publish("p")
        answers = await bay.decide(5)
        assert [a.degraded for a in answers] == [(), (), (), (("p", "PLUGIN_ERROR"),), ()]

    in_loop(body)


def test_breaker_opens_after_misses_and_probes_close_it(in_loop: Callable) -> None:
    async def body(bay) -> None:
        bay.endpoints(a=IDLE, b=IDLE)
        client = bay.plugin(table_scorer(), [("s", "table-scorer", {"a": 1.0})])
        bay.publish("s")
        client.tamper = lambda r: None
        for _ in range(6):
            await bay.decide()
        assert len(client.batches) < 6
        assert bay.tally.degradations[-1] == ("s", "BREAKER_OPEN")

    in_loop(body)


# -- other extension points ----------------------------------------------------------------------


def test_picker_in_a_process_picks_and_a_wrong_pick_falls_back(in_loop: Callable) -> None:
    plugin = Plugin("pickers")

    @plugin.type("last-picker")
    class LastPicker(Picker):
        def pick(self, request: Request, candidates: Sequence, n: int) -> Sequence:
            return [min(candidates, key=lambda c: c.score)]

    async def body(bay) -> None:
        bay.endpoints(a=IDLE, b=IDLE)
        bay.plugin(table_scorer(), [("s", "table-scorer", {"a": 1.0, "b": 0.2})])
        client = bay.plugin(plugin, [("p", "last-picker", {})])
        bay.publish("s", "p")
        assert await bay.names(1) == ["b"]
        client.tamper = lambda r: [[[99]], []]
        [answer] = await bay.decide()
        assert (answer.endpoint.name, answer.degraded) == ("a", (("p", "BAD_RESULT"),))

    in_loop(body)


def test_several_endpoints_are_best_first_ep10(in_loop: Callable) -> None:
    async def body(bay) -> None:
        bay.endpoints(a=IDLE, b=IDLE, c=IDLE)
        bay.plugin(table_scorer(), [("s", "table-scorer", {"a": 0.2, "b": 0.25, "c": 0.3})])
        bay.builtin("max-score-picker", maxNumOfEndpoints=4)
        bay.publish("s", "max-score-picker")
        [answer] = await bay.decide()
        assert [answer.endpoint.name, *(e.name for e in answer.fallbacks)] == ["c", "b", "a"]

    in_loop(body)


def test_profile_handler_chooses_and_a_dead_one_falls_back(in_loop: Callable) -> None:
    plugin = Plugin("handlers")

    @plugin.type("header-handler", reads=["request.headers[profile]"])
    class HeaderHandler(ProfileHandler):
        def pick(
            self, request: Request, profiles: Sequence[str], results: object, endpoints: Endpoints
        ) -> Sequence[str]:
            return [] if results else [request.header("profile") or "x"]

        def process(self, request: Request, results: dict, endpoints: Endpoints) -> tuple[str, dict]:
            return next(iter(results)), results

    async def body(bay) -> None:
        bay.endpoints(a=IDLE, b=IDLE)
        bay.plugin(table_scorer(), [("sx", "table-scorer", {"a": 1.0}), ("sy", "table-scorer", {"b": 1.0})])
        client = bay.plugin(plugin, [("h", "header-handler", {})])
        bay.publish(profiles={"x": ["sx"], "y": ["sy"]})
        [answer] = await bay.decide(headers={"profile": "y"})
        assert (answer.endpoint.name, answer.profile) == ("b", "y")
        client.die()
        [answer] = await bay.decide(headers={"profile": "y"})
        assert (answer.endpoint.name, answer.profile) == ("a", "x")
        assert set(answer.degraded) == {("h", "CRASHED")}

    in_loop(body)


@pytest.mark.parametrize("names", ["ab", "b"])
def test_produced_data_reaches_its_consumer_through_the_host(in_loop: Callable, names: str) -> None:
    plugin = Plugin("data")

    @plugin.type("maker", produces={"Luck.rows": "row", "Luck.total": "request"})
    class Maker(DataProducer):
        def produce(self, request: Request, endpoints: Endpoints) -> dict[str, object]:
            return {"Luck.rows": [1.0 if i == "default/b" else 0.0 for i in endpoints.ids], "Luck.total": 2.0}

    taker = Plugin("takers")

    @taker.type("taker", consumes=["Luck.rows", "Luck.total"])
    class Taker(Scorer):
        def score_batch(self, requests: Sequence[Request], endpoints: Endpoints) -> list[list[float]]:
            rows, totals = endpoints.data("Luck.rows"), endpoints.data("Luck.total")
            count = len(endpoints.ids)
            flat = list(rows.cast("B").cast("f")) if rows.ndim > 1 else list(rows)
            return [[flat[b * count + e] / totals[b] for e in range(count)] for b in range(len(requests))]

    async def body(bay) -> None:
        bay.endpoints(**dict.fromkeys(names, IDLE))
        bay.plugin(plugin, [("m", "maker", {})])
        bay.plugin(taker, [("t", "taker", {})])
        bay.publish("t")
        answers = await bay.decide(3)
        assert {(a.endpoint.name, a.degraded) for a in answers} == {("b", ())}

    in_loop(body)


def test_learners_are_told_of_picks_together(in_loop: Callable) -> None:
    told: list[tuple[str, list[str]]] = []
    plugin = Plugin("learners")

    @plugin.type("learner", reads=["request.id"])
    class Learner(PreRequest):
        def pre_request(self, request: Request, picked: PickedTargets, endpoints: Endpoints) -> None:
            told.append((request.id, list(picked.targets)))

    async def body(bay) -> None:
        bay.endpoints(a=IDLE)
        bay.plugin(plugin, [("l", "learner", {})])
        bay.builtin("max-score-picker")
        bay.publish("max-score-picker")
        await bay.decide(3)
        await _turns(3)
        assert told == [(f"r{n}", ["default/a"]) for n in range(3)]

    in_loop(body)


def test_learners_are_told_where_a_request_is_sent_and_nothing_of_a_pick_that_is_not_used(in_loop: Callable) -> None:
    told: list[tuple[str, list[str]]] = []
    plugin = Plugin("learners")

    @plugin.type("learner", reads=["request.id", "request.prompt"])
    class Learner(PreRequest):
        def pre_request(self, request: Request, picked: PickedTargets, endpoints: Endpoints) -> None:
            told.append((request.id, [*picked.targets, request.prompt, *endpoints.ids]))

    async def body(bay) -> None:
        bay.endpoints(a=IDLE, b=IDLE)
        bay.plugin(plugin, [("l", "learner", {})])
        bay.builtin("max-score-picker")
        bay.publish("max-score-picker")
        bay.sends = False
        (first,) = await bay.decide()
        # No connection to it comes about.
        (second,) = await bay.decide(avoid=[first.endpoint.id])
        await _turns(3)
        assert (told, {first.endpoint.name, second.endpoint.name}) == ([], {"a", "b"})
        bay.router.sent(bay.requests[-1], second, second.endpoint.id)
        await _turns(3)
        assert told == [("r0", [second.endpoint.id, "hello", "default/a", "default/b"])]

    in_loop(body)


def test_u24_a_plan_taken_before_a_swap_is_served_to_its_end(in_loop: Callable) -> None:
    async def body(bay) -> None:
        bay.endpoints(a=IDLE, b=IDLE)
        old = bay.plugin(table_scorer(), [("s", "table-scorer", {"a": 1.0})])
        old_generation = bay.generations["tables"]
        bay.publish("s")
        old.hold = True
        before = bay.start(10)
        await _turns(3)
        bay.plugin(table_scorer(), [("s", "table-scorer", {"b": 1.0})], number=2)
        bay.publish("s")
        assert old_generation.leases == 10
        assert await bay.names(1) == ["b"]
        old.hold = False
        old.release()
        await _turns(5)
        assert [f.result().degraded for f in before] == [()] * 10
        assert Counter(f.result().endpoint.name for f in before)["a"] >= 5
        assert old_generation.leases == 0

    in_loop(body)


async def _turns(count: int) -> None:
    """Let the loop take some turns: what is due now happens."""
    for _ in range(count):
        await asyncio.sleep(0)
