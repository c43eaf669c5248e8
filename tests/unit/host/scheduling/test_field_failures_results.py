"""Field failures of what plugins return, and of plans that change under requests: at the scheduler, at the cases' numbers."""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import pytest
from hotbay.datalayer.endpoint import EndpointMetadata, Metrics
from hotbay.scheduling.decision import Picked, Rejected
from hotbay_sdk import Context, Endpoint, Endpoints, Filter, Plugin, ProfileHandler, Request, Scorer

IDLE = Metrics(waiting=0.0)


def keeps(plugin_id: str) -> Plugin:
    """`keep` is a filter that keeps the endpoint of its parameter alone."""
    plugin = Plugin(plugin_id)

    @plugin.type(f"{plugin_id}-keep", parameters=lambda given: dict(given))
    class Keeps(Filter):
        def __init__(self, context: Context, parameters: dict[str, str]) -> None:
            self._only = f"default/{parameters['only']}"

        def keep_batch(self, requests: Sequence[Request], endpoints: Endpoints) -> list[list[bool]]:
            return [[name == self._only for name in endpoints.ids] for _ in requests]

    return plugin


def scoring(scores: Callable[[Sequence[Request], Endpoints], object], *reads: str) -> Plugin:
    plugin = Plugin("scoring")

    @plugin.type("scoring", reads=list(reads))
    class Scoring(Scorer):
        def score_batch(self, requests: Sequence[Request], endpoints: Endpoints) -> object:
            return scores(requests, endpoints)

    return plugin


# -- S06: scores of others, or of nobody -----------------------------------------------------------


@pytest.mark.parametrize(
    "row",
    [
        {},
        {"default/ghost": 1.0},
        {"default/filtered": 1.0},
        {"default/filtered": 1.0, "default/a": 0.0, "default/b": 0.0},
        [1.0] * 2003,
        [],
        [0.5],
    ],
    ids=["none", "ghost", "filtered", "all-by-name", "2000-extra", "empty", "one-of-three"],
)
def test_s06_row_that_is_not_one_score_each_counts_nothing_and_never_brings_a_filtered_one_back(
    in_loop: Callable, row: object
) -> None:
    async def body(bay) -> None:
        bay.endpoints(filtered=IDLE, a=IDLE, b=IDLE)
        bay.plugin(scoring(lambda requests, endpoints: [row for _ in requests]), [("s", "scoring", {})])
        bay.plugin(keeps_but("filtered"), [("f", "but", {})])
        bay.publish("f", "s")
        picked = await bay.decide()
        assert picked[0].degraded == (("s", "BAD_RESULT"),)
        names = Counter([(await bay.names())[0] for _ in range(100)])
        assert set(names) == {"a", "b"}, "the others are as good as each other, and the filtered one is out"

    in_loop(body)


def keeps_but(dropped: str) -> Plugin:
    plugin = Plugin("but")

    @plugin.type("but")
    class But(Filter):
        def keep(self, request: Request, endpoint: Endpoint) -> bool:
            return endpoint.id != f"default/{dropped}"

    return plugin


def test_s06_score_of_a_filtered_endpoint_is_none_and_one_that_is_missing_counts_0(in_loop: Callable) -> None:
    async def body(bay) -> None:
        bay.endpoints(filtered=IDLE, a=IDLE, b=IDLE)
        ratings = {"default/filtered": 1.0, "default/a": 0.25}
        plugin = scoring(lambda requests, endpoints: [[ratings.get(i) for i in endpoints.ids] for _ in requests])
        bay.plugin(plugin, [("s", "scoring", {})])
        bay.plugin(keeps_but("filtered"), [("f", "but", {})])
        bay.publish("f", "s")
        assert await bay.names() == ["a"]
        (run,) = bay.router.explain("r0").profiles
        assert run.totals == {"default/a": 0.25, "default/b": 0.0}
        assert bay.tally.invalid["s"] >= 1, "what is no number is counted"

    in_loop(body)


# -- S10 -------------------------------------------------------------------------------------------


def test_s10_three_tenths_and_a_tenth_and_two_tenths_are_a_tie(in_loop: Callable) -> None:
    """A gets .3 of one scorer, B .1 of one and .2 of another: 50/50 within 5 %."""
    plugin = Plugin("rating")

    @plugin.type("rate", parameters=lambda given: dict(given))
    class Rates(Scorer):
        def __init__(self, context: Context, parameters: dict[str, float]) -> None:
            self._by_name = parameters

        def score(self, request: Request, endpoint: Endpoint) -> float:
            return self._by_name.get(endpoint.id.removeprefix("default/"), 0.0)

    async def body(bay) -> None:
        bay.endpoints(a=IDLE, b=IDLE)
        ratings = [{"a": 0.3}, {"b": 0.1}, {"b": 0.2}]
        bay.plugin(plugin, [(f"s{number}", "rate", them) for number, them in enumerate(ratings)])
        bay.publish("s0", "s1", "s2")
        picked = Counter([(await bay.names())[0] for _ in range(1000)])
        assert picked["a"] / 1000 == pytest.approx(0.5, abs=0.05)

    in_loop(body)


# -- S49: filters ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "row",
    [
        [True] * 4,
        ["default/a", "default/a"],
        ["default/a", "default/ghost", "default/b", "default/b"],
        ["default/a", "default/a", "default/b"],
        {"default/a"},
        "default/a",
        None,
    ],
    ids=["extra", "twice", "foreign", "as-many-names", "set", "text", "nothing"],
)
def test_s49_filter_that_names_endpoints_or_too_many_is_a_bad_result_and_is_skipped(
    in_loop: Callable, row: object
) -> None:
    plugin = Plugin("naming")

    @plugin.type("naming")
    class Names(Filter):
        def keep_batch(self, requests: Sequence[Request], endpoints: Endpoints) -> object:
            return [row for _ in requests]

    async def body(bay) -> None:
        bay.endpoints(a=IDLE, b=IDLE, c=IDLE)
        bay.plugin(keeps("first"), [("only", "first-keep", {"only": "b"})])
        bay.plugin(plugin, [("naming", "naming", {})])
        bay.publish("only", "naming")
        (picked,) = await bay.decide()
        assert (picked.endpoint.name, picked.degraded) == ("b", (("naming", "BAD_RESULT"),))

    in_loop(body)


def test_s49_what_a_filter_keeps_is_cut_to_what_the_one_before_left(in_loop: Callable) -> None:
    async def body(bay) -> None:
        bay.endpoints(a=IDLE, b=IDLE, c=IDLE)
        bay.plugin(keeps("first"), [("only", "first-keep", {"only": "b"})])
        wide = bay.plugin(keeps("second"), [("wide", "second-keep", {"only": "b"})])
        bay.publish("only", "wide")
        # Whatever the SDK does: bits of every row, and of rows that there are none of.
        wide.tamper = lambda result: [b"\x07", *result[1:]]
        (picked,) = await bay.decide()
        assert (picked.endpoint.name, picked.fallbacks, picked.degraded) == ("b", (), ())
        (run,) = bay.router.explain("r0").profiles
        assert run.candidates == ("default/b",)

    in_loop(body)


def test_s49_edits_of_a_filter_are_refused_and_seen_by_nobody(in_loop: Callable) -> None:
    refused: list[str] = []
    seen: list[tuple[list[str], list[float]]] = []
    plugin = Plugin("editing")

    def attempt(name: str, edit: Callable[[], object]) -> None:
        try:
            edit()
        except (AttributeError, TypeError) as error:
            refused.append(f"{name}: {type(error).__name__}")

    @plugin.type("editing", reads=["endpoint.waiting"])
    class Edits(Filter):
        def keep_batch(self, requests: Sequence[Request], endpoints: Endpoints) -> list[list[bool]]:
            first = next(iter(endpoints))
            attempt("column", lambda: endpoints.column("endpoint.waiting").__setitem__(0, 0.0))
            attempt("figure", lambda: setattr(first, "waiting", 0.0))
            attempt("id", lambda: setattr(first, "id", "default/ghost"))
            attempt("ids", lambda: endpoints.ids.__setitem__(0, "default/ghost"))  # type: ignore[index]  # refused
            return [[True] * len(endpoints) for _ in requests]

    def rating(requests: Sequence[Request], endpoints: Endpoints) -> list[list[float]]:
        waiting = list(endpoints.column("endpoint.waiting"))
        seen.append((list(endpoints.ids), waiting))
        return [[1.0 / (1.0 + value) for value in waiting] for _ in requests]

    @plugin.type("beside", reads=["endpoint.waiting"])
    class Beside(Scorer):
        def score_batch(self, requests: Sequence[Request], endpoints: Endpoints) -> list[list[float]]:
            return rating(requests, endpoints)

    async def body(bay) -> None:
        bay.endpoints(a=Metrics(waiting=9.0), b=Metrics(waiting=1.0))
        bay.plugin(plugin, [("editing", "editing", {}), ("beside", "beside", {})])
        bay.plugin(scoring(rating, "endpoint.waiting"), [("far", "scoring", {})])
        bay.publish("editing", "beside", "far")
        assert await bay.names() == ["b"]
        assert refused == ["column: TypeError", "figure: AttributeError", "id: AttributeError", "ids: AttributeError"]
        assert seen == [(["default/a", "default/b"], [9.0, 1.0])] * 2

    in_loop(body)


# -- S42: handlers, beside requests that are none of their business ---------------------------------


def test_s42_loop_of_one_handler_costs_its_own_requests_alone(in_loop: Callable) -> None:
    """Of a hundred that begin together, every second one has a handler that asks for ever."""
    plugin = Plugin("handlers")

    @plugin.type("handler", reads=["request.headers[way]"])
    class Handler(ProfileHandler):
        def pick(
            self,
            request: Request,
            profiles: Sequence[str],
            results: Mapping[str, Sequence[str] | None],
            endpoints: Endpoints,
        ) -> Sequence[str]:
            way = request.header("way")
            if way == "loop":
                return ["x"]
            return [] if results else ["ghost" if way == "ghost" else "x"]

        def process(
            self, request: Request, results: Mapping[str, Sequence[str] | None], endpoints: Endpoints
        ) -> tuple[str, Mapping[str, Sequence[str] | None]]:
            return "x", results

    async def body(bay) -> None:
        bay.endpoints(a=IDLE)
        bay.plugin(plugin, [("h", "handler", {})])
        bay.publish(profiles={"x": [], "y": []})
        futures = []
        for _ in range(50):
            futures += bay.start(headers={"way": "loop"}) + bay.start(headers={"way": "straight"})
        futures += bay.start(headers={"way": "ghost"})
        answers = await asyncio.wait_for(asyncio.gather(*futures), 5)
        assert {(a.status, a.reason) for a in answers[:-1:2]} == {(500, "profile-loop")}
        assert {a.endpoint.name for a in answers[1::2]} == {"a"}
        assert (answers[-1].status, answers[-1].reason) == (500, "unknown-profile")
        assert bay.router.broken() == []

    in_loop(body)


# -- C28: plans that flip under requests -----------------------------------------------------------


def test_c28_every_decision_is_of_one_plan_however_often_they_flip(in_loop: Callable) -> None:
    """2500 decisions, and a flip between any two turns of the loop: a quarter of the case's, flipping far more often.

    Each plan has filters of two processes that keep the same endpoint; of two plans nothing would be left.
    """

    async def body(bay) -> None:
        bay.endpoints(v1=IDLE, v2=IDLE)
        for process in ("first", "second"):
            refs = [(f"{process}-{only}", f"{process}-keep", {"only": only}) for only in ("v1", "v2")]
            bay.plugin(keeps(process), refs)
        plans = [bay.compile(f"first-{only}", f"second-{only}") for only in ("v1", "v2")]
        loop, flips, kept = asyncio.get_running_loop(), 0, {1: "v1", 2: "v2"}

        def flip() -> None:
            nonlocal flips, flipping
            bay.router.publish(plans[flips % 2])
            flips += 1
            flipping = loop.call_soon(flip)

        bay.router.publish(plans[0])
        flipping = loop.call_soon(flip)
        decided: Counter[int] = Counter()
        for batch in range(50):
            futures = []
            for number in range(50):
                futures += bay.start(ids=[f"{batch}-{number}"])
                if number % 5 == 0:
                    await asyncio.sleep(0)
            for number, picked in enumerate(await asyncio.wait_for(asyncio.gather(*futures), 5)):
                assert isinstance(picked, Picked), picked
                record = bay.router.explain(f"{batch}-{number}")
                assert (picked.endpoint.name, picked.degraded) == (kept[record.plan], ())
                asked = [ref for step in record.steps for ref in step.refs]
                assert asked == [f"first-{kept[record.plan]}", f"second-{kept[record.plan]}"]
                decided[record.plan] += 1
        flipping.cancel()
        assert sum(decided.values()) == 2500
        assert min(decided.values()) > 500, decided
        assert flips > 500

    in_loop(body)


# -- what of an endpoint that went is left ---------------------------------------------------------


def test_s20_pool_that_empties_during_a_cycle_decides_by_its_snapshot_and_the_next_is_503(in_loop: Callable) -> None:
    async def body(bay) -> None:
        bay.endpoints(a=IDLE)
        client = bay.plugin(keeps("first"), [("only", "first-keep", {"only": "a"})])
        bay.publish("only")
        client.hold = True
        (under_way,) = bay.start()
        await asyncio.sleep(0)
        bay.store.delete("default/a")
        bay.store.publish(1.0)
        (after,) = await bay.decide()
        assert (after.status, after.reason) == (503, "rejected-no-endpoints")
        client.hold = False
        client.release()
        picked = await asyncio.wait_for(under_way, 5)
        assert picked.endpoint == EndpointMetadata("default/a", "a", "10.0.0.1", 8000)
        # The front door looks again and comes back without it.
        (again,) = await bay.decide(avoid=["default/a"])
        assert isinstance(again, Rejected)
        assert (again.status, again.reason) == (503, "rejected-no-endpoints")

    in_loop(body)
