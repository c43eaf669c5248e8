"""What comes before the profiles of a request, and the headers that are set after: each point through the router."""

import asyncio
from collections.abc import Callable, Mapping, Sequence

import pytest
from hotbay.datalayer.endpoint import Metrics
from hotbay.rollout.comparison import compare
from hotbay.scheduling.arms import Shadow
from hotbay.scheduling.binding import BindingOptions, Policy
from hotbay.scheduling.decision import Picked, Rejected
from hotbay_sdk import (
    Admitter,
    DataProducer,
    Denial,
    Edits,
    Endpoint,
    Endpoints,
    Filter,
    PickedTargets,
    Plugin,
    PreRequest,
    Request,
    RequestHeaderProcessor,
    SaturationDetector,
    Scorer,
    Screener,
)
from hypothesis import given, settings
from hypothesis import strategies as st

IDLE = Metrics(waiting=0.0)
CLOSED = BindingOptions(on_failure=Policy.FAIL_CLOSED)
SKIP = BindingOptions(on_failure=Policy.SKIP)


def short(ids: Sequence[str]) -> str:
    """Ids of endpoints with names of one letter, as one text."""
    return "".join(sorted(one.removeprefix("default/") for one in ids))


def screeners(**keeps: str) -> Plugin:
    """A screener for each name, that keeps the endpoints whose names are letters of the text."""
    plugin = Plugin("screeners")
    for name, kept in keeps.items():
        plugin.type(name)(type(name, (Screener,), {"screen": _keeps(kept)}))
    return plugin


def _keeps(kept: str) -> Callable[..., bool]:
    def screen(self: object, request: Request, endpoint: Endpoint) -> bool:
        if kept == "!":
            raise ValueError("no")
        return endpoint.id.removeprefix("default/") in kept

    return screen


def seen_by_a_scorer(seen: list[str]) -> Plugin:
    """A scorer that notes its candidates."""
    plugin = Plugin("seen")

    @plugin.type("seen")
    class Seen(Scorer):
        def score_batch(self, requests: Sequence[Request], endpoints: Endpoints) -> object:
            for index in range(len(requests)):
                mask = endpoints.mask(index)
                seen.append(short([i for i, ok in zip(endpoints.ids, mask, strict=True) if ok]))
            return [[0.0] * len(endpoints.ids) for _ in requests]

    return plugin


# -- request headers -------------------------------------------------------------------------------


def test_attributes_are_set_in_order_and_read_by_the_next_and_by_scorers(in_loop: Callable) -> None:
    plugin = Plugin("headers")
    read: list[object] = []

    @plugin.type("first", reads=["request.headers[x-agent]"])
    class First(RequestHeaderProcessor):
        def request_headers(self, request: Request) -> Mapping[str, str | int | float]:
            return {"agent": request.header("x-agent") or "nobody", "size": 3}

    @plugin.type("second", reads=["request.attributes[agent]"])
    class Second(RequestHeaderProcessor):
        def request_headers(self, request: Request) -> Mapping[str, str | int | float]:
            return {"seen": f"{request.attribute('agent')}!"}

    @plugin.type("reader", reads=["request.attributes[seen]", "request.attributes[size]", "request.attributes[none]"])
    class Reader(Scorer):
        def score(self, request: Request, endpoint: Endpoint) -> float:
            read.append((request.attribute("seen"), request.attribute("size"), request.attribute("none")))
            return 0.0

    async def body(bay) -> None:
        bay.endpoints(a=IDLE)
        bay.plugin(plugin, [("h1", "first", {}), ("h2", "second", {}), ("r", "reader", {})])
        bay.publish("r")
        [answer] = await bay.decide(headers={"x-agent": "ann"})
        assert isinstance(answer, Picked)
        assert read == [("ann!", 3, None)]
        assert bay.requests[0].attributes == {"agent": "ann", "size": 3, "seen": "ann!"}

    in_loop(body)


def test_processor_of_headers_denies_with_its_own_code_and_one_that_raises_is_skipped(in_loop: Callable) -> None:
    plugin = Plugin("headers")

    @plugin.type("guard", reads=["request.headers[x-key]"])
    class Guard(RequestHeaderProcessor):
        def request_headers(self, request: Request) -> Denial | None:
            if request.header("x-key") == "raise":
                raise ValueError("no")
            return None if request.header("x-key") else Denial("unauthorized", "no-key", "say who you are")

    async def body(bay) -> None:
        bay.endpoints(a=IDLE)
        bay.plugin(plugin, [("g", "guard", {})])
        bay.publish()
        [denied] = await bay.decide()
        assert denied == Rejected(401, "no-key", "say who you are")
        [raised] = await bay.decide(headers={"x-key": "raise"})
        assert isinstance(raised, Picked)
        assert raised.degraded == (("g", "PLUGIN_ERROR"),)
        bay.publish(options={"g": CLOSED})
        [closed] = await bay.decide(headers={"x-key": "raise"})
        assert (closed.status, closed.reason) == (503, "plugin-unavailable")

    in_loop(body)


# -- saturation ------------------------------------------------------------------------------------


def detector(levels: list[float]) -> Plugin:
    plugin = Plugin("detector")

    @plugin.type("detector")
    class Detector(SaturationDetector):
        def saturation(self, endpoints: Endpoints) -> float:
            if levels[0] < 0:
                raise ValueError("no")
            return levels[0]

    return plugin


@pytest.mark.parametrize(
    ("level", "priority", "shed"),
    [(0.99, -1, False), (1.0, -1, True), (7.5, -1, True), (7.5, 0, False), (7.5, 3, False), (-1.0, -1, False)],
)
def test_only_sheddable_requests_are_shed_and_only_at_saturation(
    in_loop: Callable, level: float, priority: int, shed: bool
) -> None:
    async def body(bay) -> None:
        bay.endpoints(a=IDLE)
        client = bay.plugin(detector([level]), [("d", "detector", {})])
        bay.publish(detector="d")
        [answer] = await bay.decide(priority=priority)
        if shed:
            assert answer == Rejected(429, "rejected-saturated", "system saturated, sheddable request dropped")
        else:
            assert isinstance(answer, Picked)
        assert len(client.arguments) == (priority < 0), "who is not sheddable asks nobody"

    in_loop(body)


def test_without_a_detector_nothing_is_shed(in_loop: Callable) -> None:
    async def body(bay) -> None:
        bay.endpoints(a=IDLE)
        client = bay.plugin(detector([2.0]), [("d", "detector", {})])
        bay.publish()
        assert isinstance((await bay.decide(priority=-5))[0], Picked)
        assert client.arguments == []

    in_loop(body)


def test_requests_of_one_tick_share_one_word_on_saturation(in_loop: Callable) -> None:
    async def body(bay) -> None:
        bay.endpoints(a=IDLE)
        client = bay.plugin(detector([1.0]), [("d", "detector", {})])
        bay.publish(detector="d")
        answers = await bay.decide(5, priority=-1)
        assert {answer.status for answer in answers} == {429}
        assert len(client.arguments) == 1

    in_loop(body)


def test_saturation_that_is_no_number_sheds_nothing_and_is_a_bad_result(in_loop: Callable) -> None:
    async def body(bay) -> None:
        bay.endpoints(a=IDLE)
        client = bay.plugin(detector([1.0]), [("d", "detector", {})])
        bay.publish(detector="d")
        for bad in (float("nan"), float("inf"), -0.5, True, "1", None):
            client.tamper = lambda result, bad=bad: bad
            assert isinstance((await bay.decide(priority=-1))[0], Picked)
        assert {code for _, _, code in bay.tally.errors} <= {"BAD_RESULT", "BREAKER_OPEN"}
        assert bay.tally.errors

    in_loop(body)


# -- screeners -------------------------------------------------------------------------------------


def test_every_screener_sees_all_and_what_all_keep_goes_on(in_loop: Callable) -> None:
    async def body(bay) -> None:
        seen: list[str] = []
        bay.endpoints(a=IDLE, b=IDLE, c=IDLE, d=IDLE)
        client = bay.plugin(screeners(one="abc", two="bcd"), [("s1", "one", {}), ("s2", "two", {})])
        bay.plugin(seen_by_a_scorer(seen), [("seen", "seen", {})])
        bay.publish("seen")
        assert set(await bay.names(1)) <= {"b", "c"}
        assert seen == ["bc"]
        assert [args[2] for args in client.arguments] == [None, None], "every row was a candidate of both"

    in_loop(body)


def test_screened_out_is_503_and_a_screener_that_fails_is_left_out(in_loop: Callable) -> None:
    async def body(bay) -> None:
        bay.endpoints(a=IDLE, b=IDLE)
        bay.plugin(screeners(one="a", two="b"), [("s1", "one", {}), ("s2", "two", {})])
        bay.publish()
        [none] = await bay.decide()
        assert (none.status, none.reason) == (503, "rejected-no-endpoints")
        bay.refs = []
        bay.plugin(screeners(one="a", two="!"), [("s1", "one", {}), ("s2", "two", {})])
        bay.publish()
        [answer] = await bay.decide()
        assert (answer.endpoint.name, answer.degraded) == ("a", (("s2", "PLUGIN_ERROR"),))
        bay.publish(options={"s2": CLOSED})
        [closed] = await bay.decide()
        assert (closed.status, closed.reason) == (503, "plugin-unavailable")

    in_loop(body)


LETTERS = "abcde"


@settings(max_examples=30, deadline=None)
@given(
    kept=st.lists(st.sets(st.sampled_from(LETTERS)), min_size=1, max_size=3),
    order=st.randoms(use_true_random=False),
    filters=st.lists(st.sets(st.sampled_from(LETTERS)), max_size=3),
)
def test_screeners_intersect_in_any_order_and_filters_only_narrow(make_bay, kept, order, filters) -> None:
    async def run(names: Sequence[str]) -> tuple[object, list[str]]:
        bay = make_bay()
        seen: list[str] = []
        bay.endpoints(**dict.fromkeys(LETTERS, IDLE))
        keeps = {f"s{n}": "".join(sorted(them)) for n, them in enumerate(kept)}
        bay.plugin(screeners(**keeps), [(name, name, {}) for name in names])
        plugin = seen_by_a_scorer(seen)
        narrowed = {f"f{n}": "".join(sorted(them)) for n, them in enumerate(filters)}
        for name, text in narrowed.items():
            plugin.type(name)(type(name, (Filter,), {"keep": _keeps(text)}))
        bay.plugin(plugin, [(name, name, {}) for name in (*narrowed, "seen")])
        bay.publish(*narrowed, "seen")
        [answer] = await bay.decide()
        return answer, seen

    names = [f"s{n}" for n in range(len(kept))]
    shuffled = [*names]
    order.shuffle(shuffled)
    screened = set.intersection(*map(set, kept))
    left = screened.intersection(*filters)
    for given_order in (names, shuffled):
        answer, seen = asyncio.run(run(given_order))
        if not screened:
            assert (answer.status, answer.reason) == (503, "rejected-no-endpoints")  # type: ignore[attr-defined]
        elif not left:
            assert (answer.status, answer.reason) == (429, "rejected-saturated")  # type: ignore[attr-defined]
        else:
            assert seen == ["".join(sorted(left))]
            assert isinstance(answer, Picked)
            assert answer.endpoint.name in left


def test_an_ejected_endpoint_that_screeners_keep_is_there_when_nothing_else_is(in_loop: Callable) -> None:
    class Ejected:
        ejected = ("default/b", "default/c")

        def probe(self) -> None:
            return None

        def unused(self, endpoint_id: str) -> None:
            raise AssertionError(endpoint_id)

    async def body(bay) -> None:
        bay.endpoints(a=IDLE, b=IDLE, c=IDLE)
        for name in ("b", "c"):
            bay.store.set_availability(f"default/{name}", healthy=0.0, slow_start=1.0, admits=False)
        bay.store.publish(1.0)
        bay.router._pool = type(bay.router._pool)(Ejected())
        bay.plugin(screeners(one="b"), [("s1", "one", {})])
        bay.publish()
        assert await bay.names(1) == ["b"]

    in_loop(body)


# -- admitters -------------------------------------------------------------------------------------


def admitters(*denials: Denial | None, asked: list[int] | None = None) -> Plugin:
    """Types a0, a1 … that deny as said; None admits."""
    plugin = Plugin("admitters")
    for number, denial in enumerate(denials):

        def admit(
            self: object, request: Request, endpoints: Endpoints, number: int = number, denial: Denial | None = denial
        ) -> Denial | None:
            if asked is not None:
                asked.append(number)
            return denial

        plugin.type(f"a{number}")(type(f"A{number}", (Admitter,), {"admit": admit}))
    return plugin


def test_first_denial_counts_with_its_typed_code_and_the_next_is_not_asked(in_loop: Callable) -> None:
    async def body(bay) -> None:
        asked: list[int] = []
        denials = (None, Denial("resource-exhausted", message="later"), Denial("forbidden"))
        bay.endpoints(a=IDLE)
        bay.plugin(admitters(*denials, asked=asked), [(f"x{n}", f"a{n}", {}) for n in range(3)])
        bay.publish()
        [answer] = await bay.decide()
        assert answer == Rejected(429, "rejected-saturated", "later")
        assert asked == [0, 1]

    in_loop(body)


CODES = {
    "bad-request": (400, "denied"),
    "unauthorized": (401, "denied"),
    "forbidden": (403, "denied"),
    "not-found": (404, "denied"),
    "precondition-failed": (412, "denied"),
    "resource-exhausted": (429, "rejected-saturated"),
    "internal": (500, "denied"),
    "unavailable": (503, "rejected-no-endpoints"),
}


@pytest.mark.parametrize("code", CODES)
def test_code_of_a_denial_is_the_status_of_the_answer(in_loop: Callable, code: str) -> None:
    async def body(bay) -> None:
        bay.endpoints(a=IDLE)
        bay.plugin(admitters(Denial(code)), [("x", "a0", {})])
        bay.publish()
        [answer] = await bay.decide()
        assert (answer.status, answer.reason) == CODES[code]
        assert answer.message

    in_loop(body)


def test_admitter_that_fails_refuses_unless_it_is_bound_skip(in_loop: Callable) -> None:
    async def body(bay) -> None:
        bay.endpoints(a=IDLE)
        client = bay.plugin(admitters(None), [("x", "a0", {})])
        bay.publish()
        for bad in ([[["no-such-code", "", ""]], []], [["yes"], []], [[], []], "yes"):
            client.tamper = lambda result, bad=bad: bad
            [answer] = await bay.decide()
            assert (answer.status, answer.reason) == (503, "plugin-unavailable")
        bay.publish(options={"x": SKIP})
        assert isinstance((await bay.decide())[0], Picked)

    in_loop(body)


def test_absent_admitter_is_waited_for_and_refuses_meanwhile(in_loop: Callable) -> None:
    async def body(bay) -> None:
        bay.endpoints(a=IDLE)
        bay.plugin(admitters(None), [("x", "a0", {})])
        bay.lose("x")
        bay.publish()
        assert bay.router.plan.fail_closed_absent == ("x",)
        [answer] = await bay.decide()
        assert (answer.status, answer.reason) == (503, "plugin-unavailable")

    in_loop(body)


def test_admitters_come_after_producers_and_read_what_these_made(in_loop: Callable) -> None:
    plugin = Plugin("both")

    @plugin.type("maker", produces={"Load.level": "request"})
    class Maker(DataProducer):
        def produce(self, request: Request, endpoints: Endpoints) -> Mapping[str, object]:
            return {"Load.level": 0.75}

    @plugin.type("taker", consumes=["Load.level"])
    class Taker(Admitter):
        def admit(self, request: Request, endpoints: Endpoints) -> Denial | None:
            return Denial(message=f"level {request.data('Load.level'):g}")

    async def body(bay) -> None:
        bay.endpoints(a=IDLE)
        bay.plugin(plugin, [("t", "taker", {}), ("m", "maker", {})])
        bay.publish()
        assert (await bay.decide())[0].message == "level 0.75"

    in_loop(body)


# -- header edits ----------------------------------------------------------------------------------


def setters(told: list[object]) -> Plugin:
    """`setter` sets what its parameters say; `learner` is told."""
    plugin = Plugin("setters")

    @plugin.type("setter", parameters=lambda given: dict(given))
    class Setter(PreRequest):
        def __init__(self, context: object, parameters: dict[str, object]) -> None:
            self._says = parameters
            self.sets_request_headers = parameters.get("request", [])
            self.sets_response_headers = parameters.get("response", [])

        def pre_request(self, request: Request, picked: PickedTargets, endpoints: Endpoints) -> Edits | None:
            told.append(picked)
            if self._says.get("raises"):
                raise ValueError("no")
            value = None if self._says.get("takes") else f"{self._says['value']}:{short(picked.targets)}"
            back = {"x-back": "1"} if self._says.get("response") else {}
            return Edits(dict.fromkeys(self._says.get("request", []), value), back)  # type: ignore[call-overload]  # as a test says

    @plugin.type("learner")
    class Learner(PreRequest):
        def pre_request(self, request: Request, picked: PickedTargets, endpoints: Endpoints) -> None:
            told.append(("learned", *picked))

    return plugin


def test_edits_are_asked_for_before_a_request_is_sent_and_the_later_one_counts(in_loop: Callable) -> None:
    async def body(bay) -> None:
        told: list[object] = []
        bay.endpoints(a=IDLE)
        first = {"request": ["x-to", "x-one"], "response": ["x-back"], "value": "1"}
        client = bay.plugin(
            setters(told),
            [("e1", "setter", first), ("e2", "setter", {"request": ["x-to"], "value": "2"}), ("l", "learner", {})],
        )
        bay.publish()
        bay.sends = False
        [answer] = await bay.decide()
        assert told == [(["default/a"], "default", {"default": ["default/a"]})] * 2
        assert answer.request_headers == {"x-to": "2:a", "x-one": "1:a"}
        assert answer.response_headers == {"x-back": "1"}
        assert client.told == []
        bay.router.sent(bay.requests[0], answer, "default/a")
        await asyncio.sleep(0)
        assert told[2:] == [("learned", ["default/a"], "default", {"default": ["default/a"]})]

    in_loop(body)


def test_header_is_taken_away_and_a_setter_that_fails_changes_nothing_of_what_others_set(in_loop: Callable) -> None:
    async def body(bay) -> None:
        bay.endpoints(a=IDLE)
        bay.plugin(
            setters([]),
            [
                ("e1", "setter", {"request": ["x-to"], "takes": True}),
                ("e2", "setter", {"request": ["x-to"], "value": "2", "raises": True}),
            ],
        )
        bay.publish()
        [answer] = await bay.decide()
        assert answer.request_headers == {"x-to": None}
        assert answer.degraded == (("e2", "PLUGIN_ERROR"),)
        bay.publish(options={"e2": CLOSED})
        [closed] = await bay.decide()
        assert (closed.status, closed.reason) == (503, "plugin-unavailable")

    in_loop(body)


@pytest.mark.parametrize(
    "bad",
    [
        {"request": {"x-other": "1"}},
        {"request": {"x-to": "1\r\nx-evil: 1"}},
        {"request": {"x-to": 1}},
        {"response": {"x-to": "1"}},
        {"more": {}},
        "x",
    ],
    ids=["undeclared", "line-break", "number", "wrong-side", "unknown", "text"],
)
def test_edit_that_was_not_declared_or_is_no_header_is_a_bad_result(in_loop: Callable, bad: object) -> None:
    async def body(bay) -> None:
        bay.endpoints(a=IDLE)
        client = bay.plugin(setters([]), [("e", "setter", {"request": ["x-to"], "value": "1"})])
        bay.publish()
        client.tamper = lambda result: [[bad], []]
        [answer] = await bay.decide()
        assert (dict(answer.request_headers), answer.degraded) == ({"x-to": None}, (("e", "BAD_RESULT"),))

    in_loop(body)


# -- cost ------------------------------------------------------------------------------------------


def test_plan_has_no_stage_for_what_its_configuration_does_not_use(in_loop: Callable) -> None:
    async def body(bay) -> None:
        bay.endpoints(a=IDLE)
        bay.plugin(seen_by_a_scorer([]), [("seen", "seen", {})])
        plan = bay.compile("seen")
        assert (plan.before, plan.edits, plan.told, plan.parsers) == ((), (), (), ())

    in_loop(body)


# -- shadows ---------------------------------------------------------------------------------------


def of_version(number: int) -> Plugin:
    """A type of each point that comes before the profiles; what it says depends on the number, of requests other than r1."""
    plugin = Plugin("versions")

    def fail(request: Request) -> None:
        if request.id == "r1":
            raise ValueError("no")

    @plugin.type("headers", reads=["request.id", "request.headers[x-deny]"])
    class Headers(RequestHeaderProcessor):
        def request_headers(self, request: Request) -> Mapping[str, str | int | float] | Denial:
            fail(request)
            return Denial("forbidden") if request.header("x-deny") == str(number) else {"version": number}

    @plugin.type("screen", reads=["request.id"])
    class Screen(Screener):
        def screen(self, request: Request, endpoint: Endpoint) -> bool:
            fail(request)
            return number == 1 or endpoint.id == "default/a"

    @plugin.type("admit", reads=["request.id"])
    class Admit(Admitter):
        def admit(self, request: Request, endpoints: Endpoints) -> Denial | None:
            fail(request)
            return None if number == 1 else Denial()

    @plugin.type("detect")
    class Detect(SaturationDetector):
        def saturation(self, endpoints: Endpoints) -> float:
            return number / 4

    @plugin.type("edit")
    class Edit(PreRequest):
        sets_request_headers = ("x-to",)

        def pre_request(self, request: Request, picked: PickedTargets, endpoints: Endpoints) -> Edits:
            return Edits({"x-to": str(number)})

    return plugin


def test_shadow_compares_what_is_said_before_the_profiles_and_changes_no_request(in_loop: Callable) -> None:
    async def body(bay) -> None:
        bay.endpoints(a=IDLE, b=IDLE)
        bay.builtin("max-score-picker")
        plans, generations, pairs = [], [], []
        options = {"x": SKIP}
        for number in (1, 2):
            names = ("headers", "screen", "admit", "detect", "edit")
            bay.plugin(of_version(number), [("x" if name == "admit" else name, name, {}) for name in names])
            plans.append(bay.compile("max-score-picker", options=options, detector="detect"))
            generations.append(bay.generations["versions"])
        bay.router.publish(plans[0], shadows=[Shadow(*generations, plans[1], 1.0, pairs.append)])
        [answer] = await bay.decide(priority=-1)
        for _ in range(8):
            await asyncio.sleep(0)
        assert isinstance(answer, Picked)
        assert answer.request_headers == {"x-to": "1"}
        assert bay.requests[0].attributes == {"version": 1}
        found = {str(pair.point): (pair.live, pair.candidate) for pair in pairs}
        assert [mask.tolist() for mask in found.pop("screen")] == [[True, True], [True, False]]
        assert found == {
            "request_headers": (("version=1",), ("version=2",)),
            "saturation": (0.25, 0.5),
            "admit": (("admitted",), ("resource-exhausted",)),
        }
        assert {str(p.point): compare(p).agreement for p in pairs} == {
            "request_headers": 0.0,
            "saturation": 0.0,
            "screen": 0.5,
            "admit": 0.0,
        }
        pairs.clear()
        await bay.decide(2, ids=["r1", "r2"], headers={"x-deny": "2"})
        for _ in range(8):
            await asyncio.sleep(0)
        told = sorted((str(pair.point), pair.candidate) for pair in pairs if str(pair.point) != "screen")
        assert told == [("admit", ("resource-exhausted",)), ("request_headers", ("forbidden",))]

    in_loop(body)


@pytest.mark.parametrize("bad", [None, [None], [b"", []], [b"abc", []], [[], [], []]], ids=str)
def test_screeners_answer_of_the_wrong_form_is_a_bad_result(in_loop: Callable, bad: object) -> None:
    async def body(bay) -> None:
        bay.endpoints(a=IDLE)
        client = bay.plugin(screeners(one="a"), [("s1", "one", {})])
        bay.publish()
        client.tamper = lambda result: bad
        [answer] = await bay.decide()
        assert (answer.endpoint.name, answer.degraded) == ("a", (("s1", "BAD_RESULT"),))

    in_loop(body)


def test_probe_that_is_screened_out_is_nobodys(in_loop: Callable) -> None:
    class Probes:
        ejected = ("default/b",)

        def __init__(self) -> None:
            self.unused_ids: list[str] = []

        def probe(self) -> str:
            return "default/b"

        def unused(self, endpoint_id: str) -> None:
            self.unused_ids.append(endpoint_id)

    async def body(bay) -> None:
        admission = Probes()
        bay.endpoints(a=IDLE, b=IDLE)
        bay.store.set_availability("default/b", healthy=0.0, slow_start=1.0, admits=False)
        bay.store.publish(1.0)
        bay.router._pool = type(bay.router._pool)(admission)
        bay.router._admission = admission
        bay.plugin(screeners(one="a"), [("s1", "one", {})])
        bay.publish()
        assert await bay.names(1) == ["a"]
        assert admission.unused_ids == ["default/b"]

    in_loop(body)
