"""What can be told of decisions afterwards: steps, totals, picks, policies; and how much of it is kept."""

import asyncio
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hotbay.datalayer.endpoint import EndpointState, Metrics
from hotbay.scheduling.binding import BindingOptions, Policy
from hotbay.scheduling.decision import Rejected
from hotbay.scheduling.explain import LEAST_BYTES, ROW_BYTES, PlanFacts, Trace, Traces
from hotbay.scheduling.explained import Explained, Step
from hotbay.scheduling.request import InferenceRequest
from hotbay.scheduling.router import Router
from hotbay_sdk import (
    Admitter,
    Context,
    DataProducer,
    Denial,
    Edits,
    Endpoint,
    Endpoints,
    Filter,
    PickedTargets,
    Picker,
    Plugin,
    PreRequest,
    ProfileHandler,
    Request,
    RequestHeaderProcessor,
    SaturationDetector,
    Scorer,
    Screener,
)
from hypothesis import given
from hypothesis import strategies as st

IDLE = Metrics(waiting=0.0)


def everything() -> Plugin:
    """A type of each point that decides something."""
    plugin = Plugin("all")

    @plugin.type("headers")
    class Headers(RequestHeaderProcessor):
        def request_headers(self, request: Request) -> Mapping[str, str]:
            return {"who": "secret"}

    @plugin.type("detector")
    class Detector(SaturationDetector):
        def saturation(self, endpoints: Endpoints) -> float:
            return 0.5

    @plugin.type("screen")
    class Screen(Screener):
        def screen(self, request: Request, endpoint: Endpoint) -> bool:
            return endpoint.id != "default/d"

    @plugin.type("make", produces={"Made.x": "request"})
    class Make(DataProducer):
        def produce(self, request: Request, endpoints: Endpoints) -> Mapping[str, object]:
            return {"Made.x": 1.0}

    @plugin.type("admit")
    class Admit(Admitter):
        def admit(self, request: Request, endpoints: Endpoints) -> Denial | None:
            return None

    profile_types(plugin)
    return plugin


def profile_types(plugin: Plugin) -> None:
    """Those that take part in profiles, and after."""

    @plugin.type("drop", parameters=lambda given: dict(given))
    class Drop(Filter):
        def __init__(self, context: Context, parameters: dict[str, str]) -> None:
            self._drops = parameters["drops"]

        def keep(self, request: Request, endpoint: Endpoint) -> bool:
            return endpoint.id != f"default/{self._drops}"

    @plugin.type("table", parameters=lambda given: dict(given))
    class Table(Scorer):
        def __init__(self, context: Context, parameters: dict[str, float]) -> None:
            self._scores = parameters

        def score(self, request: Request, endpoint: Endpoint) -> float:
            if "raises" in self._scores:
                raise ValueError("no")
            return self._scores.get(endpoint.id.removeprefix("default/"), 0.0)

    @plugin.type("edit")
    class Edit(PreRequest):
        sets_request_headers = ("x-to",)

        def pre_request(self, request: Request, picked: PickedTargets, endpoints: Endpoints) -> Edits:
            return Edits({"x-to": "secret"})

    @plugin.type("handler")
    class Handler(ProfileHandler):
        def pick(self, request: Request, profiles: Sequence[str], results: object, endpoints: Endpoints) -> list[str]:
            return [] if results else ["x"]

        def process(self, request: Request, results: dict, endpoints: Endpoints) -> tuple[str, dict]:
            return "x", results


def step_of(explained: Explained, ref: str) -> Step:
    [step] = [step for step in explained.steps if ref in step.refs]
    return step


def test_every_step_of_a_decision_is_told_in_order(in_loop: Callable) -> None:
    async def body(bay) -> None:
        bay.endpoints(a=IDLE, b=IDLE, c=IDLE, d=IDLE)
        kinds = ["headers", "detector", "screen", "make", "admit", "edit", "handler"]
        refs = [(kind, kind, {}) for kind in kinds]
        refs += [("f1", "drop", {"drops": "a"}), ("s1", "table", {"b": 0.5, "c": 7.0, "a": -2.0})]
        bay.plugin(everything(), refs)
        bay.publish(profiles={"x": ["f1", "s1"]}, detector="detector")
        [answer] = await bay.decide(priority=-1)
        told = bay.router.explain("r0")
        assert [(str(s.point), s.said) for s in told.steps if s.said] == [
            ("request_headers", "who"),
            ("saturation", "0.5"),
            ("produce", "Made.x/request"),
            ("admit", "admitted"),
            ("profile_handler", "x"),
            ("profile_handler", "x"),
            ("pre_request", "x-to"),
        ]
        assert "secret" not in str(told.steps)
        assert step_of(told, "screen").survivors == ("default/a", "default/b", "default/c")
        assert step_of(told, "f1").survivors == ("default/b", "default/c")
        scored = step_of(told, "s1")
        assert scored.scores == {"default/a": 0.0, "default/b": 0.5, "default/c": 7.0, "default/d": 0.0}
        assert scored.weighted == {"default/a": 0.0, "default/b": 0.5, "default/c": 1.0, "default/d": 0.0}
        assert (scored.profile, scored.plugin, scored.version, scored.generation, scored.batch) == (
            "x",
            "all",
            "1.0.0",
            1,
            1,
        )
        assert told.candidates == ("default/a", "default/b", "default/c")
        [run] = told.profiles
        assert (run.profile, run.candidates, run.picked) == ("x", ("default/b", "default/c"), ("default/c",))
        assert run.totals == {"default/b": 0.5, "default/c": 1.0}
        assert (told.picked, told.decision, told.degraded) == (("default/c",), answer, ())
        assert dict(told.generations) == {"all": 1}
        assert (told.plan, told.request) == (bay.router.plan.number, "r0")
        assert all(0 <= s.started_us <= told.duration_us for s in told.steps)
        assert all(0 < s.duration_us < told.duration_us for s in told.steps)

    in_loop(body)


def test_weights_count_and_policies_that_decided_are_named(in_loop: Callable) -> None:
    async def body(bay) -> None:
        bay.endpoints(a=IDLE, b=IDLE)
        bay.plugin(everything(), [("s1", "table", {"a": 0.25}), ("s2", "table", {"raises": 1.0})])
        options = {"s2": BindingOptions(on_failure=Policy.NEUTRAL, neutral=0.5)}
        bay.publish(("s1", 4.0), ("s2", 2.0), options=options)
        await bay.decide()
        told = bay.router.explain("r0")
        assert step_of(told, "s1").weighted == {"default/a": 1.0, "default/b": 0.0}
        failed = step_of(told, "s2")
        assert (failed.error, failed.scores, failed.weighted) == ("PLUGIN_ERROR", None, None)
        assert told.degraded == (("s2", "PLUGIN_ERROR", "neutral"),)
        assert told.profiles[0].totals == {"default/a": 2.0, "default/b": 1.0}

    in_loop(body)


def test_earlier_picks_of_a_batch_show_in_the_totals(in_loop: Callable) -> None:
    async def body(bay) -> None:
        bay.endpoints(a=IDLE, b=IDLE)
        bay.plugin(everything(), [("s1", "table", {"a": 0.5, "b": 0.4999})])
        bay.publish("s1")
        assert await bay.names(2) == ["a", "b"]
        first, second = bay.router.explain("r0"), bay.router.explain("r1")
        assert first.profiles[0].totals["default/a"] == pytest.approx(0.5)
        assert second.profiles[0].totals["default/a"] == pytest.approx(0.45)
        assert step_of(second, "s1").weighted["default/a"] == pytest.approx(0.5)
        assert step_of(second, "s1").batch == 2

    in_loop(body)


def test_refusal_is_explained_too_and_the_latest_decision_counts(in_loop: Callable) -> None:
    async def body(bay) -> None:
        bay.endpoints(a=IDLE)
        bay.plugin(everything(), [("f1", "drop", {"drops": "a"})])
        bay.publish("f1")
        await bay.decide()
        told = bay.router.explain("r0")
        assert isinstance(told.decision, Rejected)
        assert (told.picked, told.profiles[0].picked, step_of(told, "f1").survivors) == ((), None, ())
        bay.builtin("max-score-picker")
        bay.publish("max-score-picker")
        await bay.decide()
        assert bay.router.explain("r0").picked == ("default/a",)
        assert bay.router.explain("ghost") is None

    in_loop(body)


def test_failed_admitter_and_a_picker_in_a_process_are_steps_too(in_loop: Callable) -> None:
    plugin = Plugin("more")

    @plugin.type("first")
    class First(Picker):
        def pick(self, request: Request, candidates: Sequence, n: int) -> list:
            return [0]

    @plugin.type("broken")
    class Broken(Admitter):
        def admit(self, request: Request, endpoints: Endpoints) -> Denial | None:
            raise ValueError("no")

    async def body(bay) -> None:
        bay.endpoints(a=IDLE, b=IDLE)
        bay.plugin(plugin, [("p", "first", {}), ("x", "broken", {})])
        bay.publish("p", options={"x": BindingOptions(on_failure=Policy.SKIP)})
        await bay.decide()
        told = bay.router.explain("r0")
        assert [(str(s.point), s.error, s.said) for s in told.steps] == [
            ("admit", "PLUGIN_ERROR", ""),
            ("pick", "", ""),
        ]
        assert told.degraded == (("x", "PLUGIN_ERROR", "skip"),)
        assert told.profiles[0].totals == {}
        assert told.profiles[0].picked == ("default/a",)

    in_loop(body)


def test_what_a_plugin_says_that_is_not_finite_is_shown_as_it_came(in_loop: Callable) -> None:
    async def body(bay) -> None:
        bay.endpoints(a=IDLE, b=IDLE)
        bay.plugin(everything(), [("s1", "table", {"a": math.nan, "b": math.inf})])
        bay.publish("s1")
        await bay.decide()
        step = step_of(bay.router.explain("r0"), "s1")
        assert step.error == ""
        assert math.isnan(step.scores["default/a"])
        assert step.weighted == {"default/a": 0.0, "default/b": 0.0}

    in_loop(body)


def test_nothing_of_a_request_or_a_plan_is_held_by_what_is_kept(in_loop: Callable) -> None:
    async def body(bay) -> None:
        bay.endpoints(a=IDLE)
        bay.plugin(everything(), [("s1", "table", {"a": 0.5})])
        bay.publish("s1")
        await bay.decide()
        await asyncio.sleep(0)
        [fields] = bay.router._traces._kept
        trace = Trace(*fields)
        held = {type(item).__name__ for item in (*trace, *(note for note, _ in trace.notes))}
        assert not held & {"Cycle", "InferenceRequest", "Snapshot", "Plan", "Generation", "RunCall"}
        facts = trace.notes[0][0].facts
        assert not {type(item).__name__ for item in facts} & {"Generation", "RunCall"}

    in_loop(body)


def decided(name: str, rows: int, notes: Sequence[object] = ()) -> Any:
    """A cycle that came to a decision, as far as it is kept."""
    return SimpleNamespace(
        request=SimpleNamespace(id=name, avoid=frozenset()),
        probe=None,
        snapshot=SimpleNamespace(rows=rows, epoch=1, ids=(), live=np.zeros(0, np.bool_)),
        plan=SimpleNamespace(facts=PlanFacts(1, {}, 100)),
        candidates=SimpleNamespace(base=np.zeros(0, np.bool_)),
        begun_s=0.0,
        ended_s=1.0,
        notes=[*notes],
        ran=[],
        degraded=[],
        decision=Rejected(503, "x", "y"),
    )


@given(pools=st.lists(st.integers(0, 60), max_size=40), count=st.integers(1, 8), most=st.integers(0, 30_000))
def test_newest_decisions_are_kept_within_both_bounds(pools: list[int], count: int, most: int) -> None:
    traces = Traces(max_count=count, max_bytes=most)
    sizes = [LEAST_BYTES + 100 * rows for rows in pools]
    for number, rows in enumerate(pools):
        traces.keep([decided(f"r{number}", rows)])
        assert len(traces) <= count
        assert traces.size_bytes <= most
    there = [number for number in range(len(sizes)) if traces.find(f"r{number}") is not None]
    assert there == list(range(len(sizes) - len(there), len(sizes)))
    before = len(sizes) - len(there) - 1
    if before >= 0:
        assert len(there) == count or sum(sizes[before:]) > most, "no more fits"
    assert traces.size_bytes == sum(sizes[before + 1 :])


@given(kept=st.integers(0, 12), count=st.integers(0, 12), most=st.integers(0, 30_000))
def test_bounds_that_change_act_at_once_and_from_then_on(kept: int, count: int, most: int) -> None:
    traces = Traces()
    traces.keep([decided(f"r{number}", 10) for number in range(kept)])
    traces.bound(max_count=count, max_bytes=most)
    size = LEAST_BYTES + 1000
    fitting = min(kept, count, most // size)
    assert (len(traces), traces.size_bytes) == (fitting, fitting * size)
    assert [it.request for it in traces.latest(100)] == [f"r{n}" for n in range(kept - fitting, kept)]
    assert (traces.oldest_s is None) == (fitting == 0)
    traces.keep([decided("new", 10)])
    assert len(traces) == min(fitting + 1, count, most // size)


def test_newest_of_one_request_or_of_any_the_newest_last() -> None:
    traces = Traces()
    for name in ("a", "b", "a", "c"):
        traces.keep([decided(name, 1)])
    assert [it.request for it in traces.latest(3)] == ["b", "a", "c"]
    assert [it.request for it in traces.latest(10, "a")] == ["a", "a"]
    assert [*traces.latest(1, "ghost")] == []


def test_caller_who_is_told_can_ask_at_once_why(in_loop: Callable) -> None:
    async def body(bay) -> None:
        bay.endpoints(a=IDLE)
        bay.plugin(everything(), [("s1", "table", {"a": 0.5})])
        bay.publish("s1")
        told: list[object] = []
        request = InferenceRequest("r9", "m", "/v1/completions", {}, b"x", {"prompt": "x"})
        done = asyncio.Event()

        def decided(decision: object) -> None:
            told.append((bay.router.explain("r9").decision is decision, decision))
            done.set()

        bay.router.decide(request, decided)
        await done.wait()
        assert told[0][0]
        await asyncio.sleep(0)
        assert len(bay.router.decisions) == 1, "it is kept once"

    in_loop(body)


class Admission:
    """Says who was ejected, and who is to be tried."""

    def __init__(self, ejected: Sequence[str], due: str | None) -> None:
        self.ejected = ejected
        self._due = due

    def probe(self) -> str | None:
        due, self._due = self._due, None
        return due

    def unused(self, endpoint_id: str) -> None:
        """It is as it was."""


def test_every_other_endpoint_is_told_with_what_kept_it_out(in_loop: Callable) -> None:
    async def body(bay) -> None:
        bay.router = Router(bay.store, bay.tally, seed=1, admission=Admission(["default/e", "default/p"], "default/p"))
        bay.endpoints(a=IDLE, b=IDLE, c=IDLE, d=IDLE, e=IDLE, p=IDLE)
        for one in "ep":
            bay.store.set_availability(f"default/{one}", healthy=0.0, slow_start=1.0, admits=False)
        bay.store.override("default/c", state=EndpointState.CORDONED, weight=None)
        bay.store.publish(1.0)
        bay.plugin(everything(), [("screen", "screen", {}), ("s1", "table", {"a": 1.0})])
        bay.builtin("max-score-picker")
        bay.publish("s1", "max-score-picker")
        await bay.decide(ids=["first"])
        told = bay.router.explain("first")
        assert (told.probe, told.picked[0]) == ("default/p", "default/p")
        assert dict(told.others) == {"default/c": "cordoned", "default/d": "screened", "default/e": "ejected"}
        assert told.candidates == ("default/a", "default/b", "default/p")
        assert told.pickers == {"default": ("max-score-picker", "max-score-picker")}
        await bay.decide(ids=["again"], avoid=["default/a"])
        told = bay.router.explain("again")
        assert (told.others["default/a"], told.others["default/p"], told.probe) == ("tried before", "ejected", "")

    in_loop(body)


def test_bytes_of_a_decision_grow_with_endpoints_and_scorers(in_loop: Callable) -> None:
    async def body(bay) -> None:
        bay.endpoints(**{f"e{n}": IDLE for n in range(10)})
        bay.plugin(everything(), [("s1", "table", {}), ("s2", "table", {})])
        bay.publish("s1", "s2")
        await bay.decide()
        await asyncio.sleep(0)
        assert bay.router._traces.size_bytes == LEAST_BYTES + 10 * (ROW_BYTES + 2 * 4)

    in_loop(body)


def held_bytes(value: object) -> int:
    """Of a value and all in it."""
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    names = map(sys.getsizeof, value) if isinstance(value, dict) else ()
    return sys.getsizeof(value) + sum(names) + sum(map(held_bytes, inside))


BLOAT = "x" * 250_000
BLAMED = [[0, -1, {"code": "PLUGIN_ERROR", "x": BLOAT}]]
BLOATED = {
    "error": (lambda answer: [answer[0], BLAMED], "admit"),
    "verdict": (lambda answer: [[BLOAT], []], "admit"),
    "verdicts": (lambda answer: [[[{}] * 100_000], []], "admit"),
    "attributes": (lambda answer: [[{"attributes": {BLOAT: 1}}], []], "headers"),
    "screen": (lambda answer: [answer[0], BLAMED], "screen"),
    "produce": (lambda answer: [answer[0], BLAMED], "make"),
    "names": (lambda answer: ["x", BLOAT], "handler"),
    "primary": (lambda answer: {**answer, "y": BLOAT} if isinstance(answer, dict) else answer, "handler"),
    "score": (lambda answer: [answer[0], answer[1], [[0, -1, {"code": "PLUGIN_ERROR", "x": "x" * 3000}]]], "s1"),
    "edits": (lambda answer: [[{"set_request": {"x-to": BLOAT}}], []], "edit"),
}


@pytest.mark.parametrize("kind", list(BLOATED))
def test_what_is_kept_of_an_answer_is_counted_and_what_is_too_long_is_not_kept(in_loop: Callable, kind: str) -> None:
    tamper, ref = BLOATED[kind]

    async def body(bay) -> None:
        bay.endpoints(a=IDLE)
        kinds = {"s1": ("s1", "table", {"a": 1.0})}
        client = bay.plugin(everything(), [kinds.get(ref, (ref, ref, {}))])
        profile = ["s1"] if ref == "s1" else []
        bay.publish(profiles={"x": profile} if ref != "handler" else {"x": [], "z": []})
        client.tamper = tamper
        await bay.decide()
        await asyncio.sleep(0)
        [trace] = bay.router.decisions.latest(1)
        assert trace.notes, "it answered"
        held = sum(held_bytes(note.result) for note, _ in trace.notes)
        assert held < 150_000
        assert held <= bay.router.decisions.size_bytes
        assert any(ref in step.refs for step in bay.router.explain("r0").steps)

    in_loop(body)


@pytest.mark.parametrize(
    ("ref", "answer"),
    [("admit", []), ("admit", [{"who": "secret"}]), ("admit", 7), ("headers", []), ("headers", {"deny": {"x": 1}}), ("edit", [[]])],
    ids=["no-code", "map-for-a-code", "number", "list", "map-for-a-denial", "lists"],
)  # fmt: skip
def test_answer_that_could_not_be_used_is_told_without_what_it_says(
    in_loop: Callable, ref: str, answer: object
) -> None:
    async def body(bay) -> None:
        bay.endpoints(a=IDLE)
        client = bay.plugin(everything(), [(ref, ref, {})])
        bay.publish()
        client.tamper = lambda result: [[answer], []]
        await bay.decide()
        step = step_of(bay.router.explain("r0"), ref)
        assert "secret" not in step.said
        if ref == "admit":
            assert step.said == "unreadable"

    in_loop(body)


@given(sizes=st.lists(st.integers(1, 5000), max_size=20), most=st.integers(2000, 30_000))
def test_answer_that_requests_of_a_batch_share_counts_once(sizes: Sequence[int], most: int) -> None:
    traces = Traces(max_bytes=most)
    for number, size in enumerate(sizes):
        note = SimpleNamespace(uncounted_bytes=size)
        mates = [decided(f"r{number}", 0, notes=[(note, 0)]), decided(f"s{number}", 0, notes=[(note, 1)])]
        traces.keep(mates)
    whole = [LEAST_BYTES + extra for size in sizes for extra in (size, 0)]
    kept = whole[len(whole) - len(traces) :]
    assert traces.size_bytes == sum(kept) <= most
    assert len(kept) == len(whole) or sum(kept) + whole[-len(kept) - 1] > most
