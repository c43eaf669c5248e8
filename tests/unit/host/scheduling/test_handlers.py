"""Profile handlers: those in processes, their results and errors, and the host's own; what drained filters mean."""

from collections.abc import Callable, Mapping, Sequence

import pytest
from hotbay.datalayer.endpoint import EndpointMetadata, Metrics
from hotbay.errors import Problem
from hotbay.scheduling.binding import BindingOptions, Policy
from hotbay.scheduling.builtin_handlers import header_choice, primary_port
from hotbay.scheduling.decision import BUSY, INELIGIBLE, Picked, Rejected, joined
from hotbay.scheduling.request import InferenceRequest
from hotbay_sdk import (
    Context,
    DataProducer,
    Endpoint,
    Endpoints,
    Filter,
    Picker,
    Plugin,
    ProfileHandler,
    Request,
    Scorer,
)

IDLE = Metrics(waiting=0.0)
CLOSED = BindingOptions(on_failure=Policy.FAIL_CLOSED)
Results = Mapping[str, Sequence[str] | None]


def handler(
    pick: Callable[[Results], Sequence[str]],
    process: Callable[[Results], tuple[str, Results] | None] | None = None,
    **declared: object,
) -> Plugin:
    """A handler `h` of two functions; by default the first profile with a result is the primary one."""
    plugin = Plugin("handlers")

    @plugin.type("h", **declared)
    class Handler(ProfileHandler):
        def pick(
            self, request: Request, profiles: Sequence[str], results: Results, endpoints: Endpoints
        ) -> Sequence[str]:
            return pick(results)

        def process(self, request: Request, results: Results, endpoints: Endpoints) -> tuple[str, Results] | None:
            if process is not None:
                return process(results)
            return next(name for name, them in results.items() if them), results

    return plugin


def dropping() -> Plugin:
    """Filters `busy` and `gone`, that drop the endpoints of their parameter, or all; `only` scores those of its own with 1."""
    plugin = Plugin("dropping")
    for name, drained in (("busy", "busy"), ("gone", "ineligible")):

        class Drop(Filter):
            def __init__(self, context: Context, parameters: dict[str, str]) -> None:
                self._drops = parameters.get("drops")

            def keep(self, request: Request, endpoint: Endpoint) -> bool:
                return self._drops is not None and endpoint.id.removeprefix("default/") not in self._drops

        plugin.type(name, parameters=lambda given: dict(given), drained=drained)(Drop)

    @plugin.type("only", parameters=lambda given: dict(given))
    class Only(Scorer):
        def __init__(self, context: Context, parameters: dict[str, str]) -> None:
            self._likes = parameters.get("likes", "")

        def score(self, request: Request, endpoint: Endpoint) -> float:
            return float(endpoint.id.removeprefix("default/") in self._likes)

    return plugin


# -- S42: handlers that never finish ---------------------------------------------------------------


def test_s42_handler_that_asks_for_the_same_profile_for_ever_is_a_profile_loop(in_loop: Callable) -> None:
    rounds: list[Results] = []

    def again(results: Results) -> Sequence[str]:
        rounds.append(results)
        return ["x"]

    async def body(bay) -> None:
        bay.endpoints(a=IDLE)
        bay.plugin(handler(again), [("h", "h", {})])
        bay.publish(profiles={"x": [], "y": []})
        [answer] = await bay.decide()
        assert (answer.status, answer.reason) == (500, "profile-loop")
        assert answer.message.startswith("PROFILE_LOOP: profile handler 'h'")
        assert len(rounds) == 9, "eight rounds ran; the ninth was not begun"
        assert isinstance((await bay.decide())[0], Rejected), "and the host goes on"

    in_loop(body)


def test_handler_may_ask_eight_times(in_loop: Callable) -> None:
    names = [f"p{n}" for n in range(8)]

    async def body(bay) -> None:
        bay.endpoints(a=IDLE)
        bay.plugin(handler(lambda results: names[len(results) : len(results) + 1]), [("h", "h", {})])
        bay.publish(profiles={name: [] for name in names})
        [answer] = await bay.decide()
        assert list(answer.results) == names

    in_loop(body)


def test_s42_handler_that_names_an_unknown_profile_is_told_so(in_loop: Callable) -> None:
    async def body(bay) -> None:
        bay.endpoints(a=IDLE)
        bay.plugin(handler(lambda results: [] if results else ["x", "z\n"]), [("h", "h", {})])
        bay.publish(profiles={"x": [], "y": []})
        [answer] = await bay.decide()
        assert (answer.status, answer.reason) == (500, "unknown-profile")
        assert answer.message == "UNKNOWN_PROFILE: profile handler 'h' asked for 'z\\n', there is x, y"
        assert bay.tally.errors == [("profile_handler", "h", "BAD_RESULT")]

    in_loop(body)


# -- results ---------------------------------------------------------------------------------------


def test_results_of_all_profiles_and_the_handlers_own_go_on(in_loop: Callable) -> None:
    def process(results: Results) -> tuple[str, Results]:
        assert results == {"x": ["default/a"], "y": None}
        return "x", {"x": ["default/b", "default/a"], "y": None}

    async def body(bay) -> None:
        bay.endpoints(a=IDLE, b=IDLE)
        bay.plugin(dropping(), [("la", "only", {"likes": "a"}), ("none", "busy", {})])
        bay.plugin(handler(lambda results: [] if results else ["x", "y"], process), [("h", "h", {})])
        bay.publish(profiles={"x": ["la"], "y": ["none"]})
        [answer] = await bay.decide()
        assert (answer.endpoint.name, [e.name for e in answer.fallbacks], answer.profile) == ("b", ["a"], "x")
        assert {name: them and [e.name for e in them] for name, them in answer.results.items()} == {
            "x": ["b", "a"],
            "y": None,
        }

    in_loop(body)


@pytest.mark.parametrize("bad", [None, "x", [7], ["x"] * 65], ids=["nil", "text", "number", "too-many"])
def test_choice_that_is_no_list_of_names_is_a_bad_result_and_the_first_profile_holds(
    in_loop: Callable, bad: object
) -> None:
    async def body(bay) -> None:
        bay.endpoints(a=IDLE)
        client = bay.plugin(handler(lambda results: [] if results else ["y"]), [("h", "h", {})])
        bay.publish(profiles={"x": [], "y": []})
        client.tamper = lambda result: bad
        [answer] = await bay.decide()
        assert (answer.profile, answer.degraded) == ("x", (("h", "BAD_RESULT"),))

    in_loop(body)


def test_handler_that_names_an_endpoint_twice_names_it_once(in_loop: Callable) -> None:
    async def body(bay) -> None:
        bay.endpoints(a=IDLE)
        twice = {"x": ["default/a", "default/a"]}
        bay.plugin(handler(lambda results: [] if results else ["x"], lambda results: ("x", twice)), [("h", "h", {})])
        bay.publish(profiles={"x": [], "y": []})
        [answer] = await bay.decide()
        assert (answer.endpoint.name, answer.fallbacks) == ("a", ())

    in_loop(body)


def test_handler_that_asks_for_nothing_leaves_the_request_without_a_profile(in_loop: Callable) -> None:
    async def body(bay) -> None:
        bay.endpoints(a=IDLE)
        bay.plugin(handler(lambda results: []), [("h", "h", {})])
        bay.publish(profiles={"x": [], "y": []})
        [answer] = await bay.decide()
        assert (answer.status, answer.reason) == (500, "no-profile")

    in_loop(body)


@pytest.mark.parametrize(
    "bad",
    [
        {"primary": "x", "results": {"x": ["default/ghost"]}},
        {"primary": "x", "results": {"x": ["default/a"], "z": ["default/a"]}},
        {"primary": "x", "results": {"x": ["default/a"], "z": None}},
        {"primary": "y", "results": {"x": ["default/a"]}},
        {"primary": "x", "results": {"x": []}},
        {"primary": "x", "results": {"x": [7]}},
        {"primary": "x"},
        {"primary": "x", "results": {"x": ["default/a"] * 17}},
        {"primary": 7, "results": {"x": ["default/a"]}},
    ],
    ids=[
        "foreign-endpoint",
        "profile-that-did-not-run",
        "nil-of-one-that-did-not-run",
        "no-result",
        "empty",
        "number",
        "no-results",
        "too-many",
        "no-name",
    ],
)
def test_results_that_cannot_be_are_a_bad_result_and_the_first_profile_holds(in_loop: Callable, bad: object) -> None:
    async def body(bay) -> None:
        bay.endpoints(a=IDLE)
        client = bay.plugin(handler(lambda results: [] if results else ["x"]), [("h", "h", {})])
        bay.publish(profiles={"x": [], "y": []})
        client.tamper = lambda result: bad if isinstance(result, dict) else result
        [answer] = await bay.decide()
        assert (answer.endpoint.name, answer.profile, answer.degraded) == ("a", "x", (("h", "BAD_RESULT"),))

    in_loop(body)


def test_handler_sees_columns_and_data_of_the_endpoints(in_loop: Callable) -> None:
    seen: list[object] = []
    plugin = Plugin("handlers")

    @plugin.type("h", reads=["endpoint.waiting"], consumes=["Hits.rows"])
    class Handler(ProfileHandler):
        def pick(
            self, request: Request, profiles: Sequence[str], results: Results, endpoints: Endpoints
        ) -> Sequence[str]:
            waiting, hits = endpoints.column("endpoint.waiting"), endpoints.data("Hits.rows")
            seen.append((list(endpoints.ids), list(waiting), *hits.tolist()))
            return [] if results else ["x"]

        def process(self, request: Request, results: Results, endpoints: Endpoints) -> tuple[str, Results]:
            seen.append(endpoints.data("Hits.rows").tolist()[0])
            return "x", results

    @plugin.type("p", produces={"Hits.rows": "row"})
    class Makes(DataProducer):
        def produce(self, request: Request, endpoints: Endpoints) -> Mapping[str, object]:
            return {"Hits.rows": [7.0, 8.0]}

    async def body(bay) -> None:
        bay.endpoints(a=Metrics(waiting=1.0), b=Metrics(waiting=2.0))
        bay.plugin(plugin, [("h", "h", {}), ("p", "p", {})])
        bay.publish(profiles={"x": [], "y": []})
        assert isinstance((await bay.decide())[0], Picked)
        first = (["default/a", "default/b"], [1.0, 2.0], [7.0, 8.0])
        assert seen == [first, first, [7.0, 8.0]]

    in_loop(body)


def test_peer_is_what_the_profile_before_chose(in_loop: Callable) -> None:
    peers: list[tuple[str, str]] = []
    plugin = Plugin("peers")

    @plugin.type("peer", reads=["request.peer"])
    class Peer(Scorer):
        def __init__(self, context: Context) -> None:
            self._name = context.name

        def score(self, request: Request, endpoint: Endpoint) -> float:
            peers.append((self._name, request.peer))
            return 0.0

    async def body(bay) -> None:
        bay.endpoints(a=IDLE)
        bay.plugin(plugin, [(name, "peer", {}) for name in ("p1", "p2")])
        bay.plugin(handler(lambda results: [] if results else ["x", "y"]), [("h", "h", {})])
        bay.publish(profiles={"x": ["p1"], "y": ["p2"]})
        await bay.decide()
        assert peers == [("p1", ""), ("p2", "default/a")]

    in_loop(body)


# -- drained filters -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("refs", "status", "reason"),
    [
        (["busy"], 429, "rejected-saturated"),
        (["gone"], 503, "rejected-no-endpoints"),
        (["gone-a", "busy"], 429, "rejected-saturated"),
        (["busy-a", "gone"], 503, "rejected-no-endpoints"),
        (["busy", "gone"], 429, "rejected-saturated"),
        (["gone", "busy"], 503, "rejected-no-endpoints"),
        (["busy-a", "gone-b"], 503, "rejected-no-endpoints"),
    ],
    ids=lambda value: "+".join(value) if isinstance(value, list) else str(value),
)
def test_s01_filter_that_emptied_the_set_decides_status_and_reason(
    in_loop: Callable, refs: list[str], status: int, reason: str
) -> None:
    async def body(bay) -> None:
        bay.endpoints(a=IDLE, b=IDLE)
        parts = [ref.partition("-") for ref in refs]
        bay.plugin(
            dropping(),
            [(ref, kind, {"drops": drops} if drops else {}) for ref, (kind, _, drops) in zip(refs, parts, strict=True)],
        )
        bay.publish(*refs)
        [answer] = await bay.decide()
        assert (answer.status, answer.reason) == (status, reason)
        assert answer.message

    in_loop(body)


def test_filters_that_mean_the_same_are_asked_together_and_others_apart(in_loop: Callable) -> None:
    async def body(bay) -> None:
        kinds = {"b1": "busy", "b2": "busy", "g1": "gone", "g2": "gone", "b3": "busy", "s": "only"}
        bay.plugin(dropping(), [(name, kind, {}) for name, kind in kinds.items()])
        stages = bay.compile(*kinds).profiles["default"].stages
        assert [[b.ref for b in call.bindings] for [call] in stages] == [["b1", "b2"], ["g1", "g2"], ["b3", "s"]]

    in_loop(body)


def test_s02_ep07_empty_pool_is_503_for_each_of_twenty(in_loop: Callable) -> None:
    async def body(bay) -> None:
        client = bay.plugin(dropping(), [("f", "busy", {})])
        bay.publish("f")
        answers = await bay.decide(20)
        assert {(a.status, a.reason) for a in answers} == {(503, "rejected-no-endpoints")}
        assert client.arguments == [], "nobody is asked about nothing"

    in_loop(body)


# -- EP14: errors together -------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "status"), [("busy", 429), ("gone", 503)])
def test_ep14_profile_and_handler_fail_and_the_typed_code_survives(in_loop: Callable, kind: str, status: int) -> None:
    def choose(results: Results) -> Sequence[str]:
        if results:
            raise ValueError("no")
        return ["x"]

    async def body(bay) -> None:
        bay.endpoints(a=IDLE)
        bay.plugin(dropping(), [("f", kind, {})])
        bay.plugin(handler(choose), [("h", "h", {})])
        bay.publish(profiles={"x": ["f"], "y": ["f"]})
        [answer] = await bay.decide()
        expected = BUSY if kind == "busy" else INELIGIBLE
        assert (answer.status, answer.reason) == (status, expected.reason)
        assert answer.message == f"{expected.message}; profile handler 'h' failed (PLUGIN_ERROR)"

    in_loop(body)


def test_ep14_handler_bound_fail_closed_keeps_the_profiles_code(in_loop: Callable) -> None:
    def process(results: Results) -> tuple[str, Results]:
        raise ValueError("no")

    async def body(bay) -> None:
        bay.endpoints(a=IDLE)
        bay.plugin(dropping(), [("f", "busy", {})])
        bay.plugin(handler(lambda results: [] if results else ["x", "y"], process), [("h", "h", {})])
        bay.publish(profiles={"x": ["f"], "y": []}, options={"h": CLOSED})
        [answer] = await bay.decide()
        assert (answer.status, answer.reason) == (429, "rejected-saturated")
        assert answer.message.startswith(BUSY.message + "; plugin 'h' gave no usable answer (PLUGIN_ERROR)")
        bay.publish(profiles={"x": [], "y": []}, options={"h": CLOSED})
        [alone] = await bay.decide()
        assert (alone.status, alone.reason) == (503, "plugin-unavailable")

    in_loop(body)


def test_ep14_profile_that_fails_beside_one_that_does_not_refuses_nothing(in_loop: Callable) -> None:
    async def body(bay) -> None:
        bay.endpoints(a=IDLE)
        bay.plugin(dropping(), [("f", "busy", {})])
        bay.plugin(handler(lambda results: [] if results else ["x", "y"]), [("h", "h", {})])
        bay.publish(profiles={"x": ["f"], "y": []})
        [answer] = await bay.decide()
        assert (answer.profile, answer.results["x"]) == ("y", None)

    in_loop(body)


def _fails(results: Results) -> tuple[str, Results]:
    raise ValueError("no")


@pytest.mark.parametrize(("kind", "expected"), [("busy", BUSY), ("gone", INELIGIBLE)], ids=["busy", "gone"])
def test_ep14_handler_that_fails_beside_a_drained_profile_is_not_fallen_back_from(
    in_loop: Callable, kind: str, expected: Rejected
) -> None:
    async def body(bay) -> None:
        bay.endpoints(a=IDLE)
        bay.plugin(dropping(), [("f", kind, {})])
        bay.plugin(handler(lambda results: [] if results else ["x", "y"], _fails), [("h", "h", {})])
        bay.publish(profiles={"x": [], "y": ["f"]})
        [answer] = await bay.decide()
        assert (answer.status, answer.reason) == (expected.status, expected.reason), "x alone is not what was asked for"
        assert answer.message == f"{expected.message}; profile handler 'h' failed (PLUGIN_ERROR)"
        bay.publish(profiles={"x": [], "y": []})
        [whole] = await bay.decide()
        assert (whole.profile, whole.degraded) == ("x", (("h", "PLUGIN_ERROR"),)), (
            "nothing drained: the first one holds"
        )

    in_loop(body)


@pytest.mark.parametrize(("kind", "expected"), [("busy", BUSY), ("gone", INELIGIBLE)], ids=["busy", "gone"])
def test_ep14_handler_that_finds_no_result_refuses_as_the_drained_profiles_and_stays_asked(
    in_loop: Callable, kind: str, expected: Rejected
) -> None:
    def process(results: Results) -> tuple[str, Results] | None:
        return ("y", results) if results["y"] else None

    async def body(bay) -> None:
        bay.endpoints(a=IDLE)
        bay.plugin(dropping(), [("f", kind, {})])
        bay.plugin(handler(lambda results: [] if results else ["x", "y"], process), [("h", "h", {})])
        bay.publish(profiles={"x": [], "y": ["f"]})
        for _ in range(6):
            [answer] = await bay.decide()
            assert (answer.status, answer.reason) == (expected.status, expected.reason)
            assert answer.message == f"{expected.message}; profile handler 'h' found no result to go on with"
        assert bay.tally.errors == [], "it is no fault of the handler"
        bay.publish(profiles={"x": [], "y": []})
        [answer] = await bay.decide()
        assert (answer.profile, answer.degraded) == ("y", ())

    in_loop(body)


def test_handler_that_finds_no_result_although_every_profile_has_one_is_503(in_loop: Callable) -> None:
    async def body(bay) -> None:
        bay.endpoints(a=IDLE)
        bay.plugin(handler(lambda results: [] if results else ["x", "y"], lambda results: None), [("h", "h", {})])
        bay.publish(profiles={"x": [], "y": []})
        [answer] = await bay.decide()
        assert (answer.status, answer.reason) == (503, "rejected-no-endpoints")
        assert answer.message == "profile handler 'h' found no result to go on with"

    in_loop(body)


def test_ep14_refusals_of_several_profiles_are_one_with_the_first_ones_code() -> None:
    assert joined({}, "x") is None
    together = joined({"p": INELIGIBLE, "q": BUSY}, "and more")
    assert together is not None
    assert (together.status, together.reason) == (503, "rejected-no-endpoints")
    assert together.message == f"profile 'p': {INELIGIBLE.message}; profile 'q': {BUSY.message}; and more"
    assert len(joined({"p": BUSY}, "x" * 5000).message) == 2000  # type: ignore[union-attr]  # there is one


def test_s06_picker_in_a_process_that_names_none_or_a_filtered_row_is_fallen_back_from(in_loop: Callable) -> None:
    plugin = Plugin("picky")

    @plugin.type("picky")
    class Picky(Picker):
        def pick(self, request: Request, candidates: Sequence, n: int) -> list:
            return []

    async def body(bay) -> None:
        bay.endpoints(a=IDLE, b=IDLE)
        bay.plugin(dropping(), [("f", "busy", {"drops": "a"})])
        client = bay.plugin(plugin, [("p", "picky", {})])
        bay.publish("f", "p")
        assert await bay.names(1) == ["b"]
        client.tamper = lambda result: [[[0]], []]
        assert await bay.names(1) == ["b"], "row 0 was filtered out"

    in_loop(body)


# -- the host's own --------------------------------------------------------------------------------


def asking(**headers: str) -> InferenceRequest:
    return InferenceRequest(id="r", model="m", path="/", headers=headers, body=b"", payload={})


@pytest.mark.parametrize(
    ("parameters", "headers", "chosen"),
    [
        ({}, {}, "decode"),
        ({}, {"epp-profile": "other"}, "other"),
        ({"headerName": "X-Way"}, {"x-way": "other", "epp-profile": "decode"}, "other"),
        ({"defaultProfile": "other"}, {}, "other"),
        ({}, {"epp-profile": "ghost"}, None),
        ({"defaultProfile": "ghost"}, {}, None),
    ],
)
def test_header_handler_runs_the_one_profile_that_is_named(
    parameters: dict[str, object], headers: dict[str, str], chosen: str | None
) -> None:
    choose = header_choice(parameters, ["decode", "other"], "h", None)
    assert callable(choose)
    found = choose(asking(**headers), set())
    assert found == ((chosen,) if chosen else Rejected(400, "unknown-profile", found.message))  # type: ignore[union-attr]
    assert choose(asking(**headers), {"decode"}) == ()


@pytest.mark.parametrize(
    "parameters", [{"header": "x"}, {"headerName": 1}, {"headerName": ""}, {"defaultProfile": None}]
)
def test_header_handlers_parameters_are_checked(parameters: dict[str, object]) -> None:
    problem = header_choice(parameters, ["decode"], "h", None)
    assert isinstance(problem, Problem)
    assert "plugins 'h'" in problem.message
    assert problem.hint


def test_header_handler_chooses_among_profiles_in_a_plan(in_loop: Callable) -> None:
    async def body(bay) -> None:
        bay.endpoints(a=IDLE, b=IDLE)
        bay.plugin(dropping(), [("la", "only", {"likes": "a"}), ("lb", "only", {"likes": "b"})])
        bay.builtin("header-profile-handler", headerName="Way", defaultProfile="x")
        bay.publish(profiles={"x": ["la"], "y": ["lb"]})
        [plain] = await bay.decide()
        [named] = await bay.decide(headers={"way": "y"})
        [wrong] = await bay.decide(headers={"way": "z"})
        assert [(p.endpoint.name, p.profile) for p in (plain, named)] == [("a", "x"), ("b", "y")]
        assert (wrong.status, wrong.reason) == (400, "unknown-profile")

    in_loop(body)


@pytest.mark.parametrize(("parameters", "port"), [({}, 8000), ({"primaryPort": 1}, 1), ({"primaryPort": 65535}, 65535)])
def test_primary_port(parameters: dict[str, object], port: int) -> None:
    assert primary_port(parameters, "h", None) == port


@pytest.mark.parametrize("parameters", [{"port": 1}, *({"primaryPort": p} for p in (0, 65536, True, "8000"))], ids=str)
def test_primary_port_is_checked(parameters: dict[str, object]) -> None:
    assert isinstance(primary_port(parameters, "h", None), Problem)


def test_data_parallel_handler_names_the_rank_and_the_primary_port(in_loop: Callable) -> None:
    async def body(bay) -> None:
        bay.store.upsert(EndpointMetadata("default/r1", "r1", "::1", 8201))
        bay.store.publish(0.0)
        bay.builtin("data-parallel-profile-handler", primaryPort=8200)
        bay.publish()
        [answer] = await bay.decide()
        assert (answer.endpoint.name, answer.port) == ("r1", 8200)
        assert answer.request_headers == {"x-data-parallel-host-port": "[::1]:8201"}

    in_loop(body)
