"""What must never happen in the scheduler: a lost request, a lease that stays, a window that is shut for ever,
and one request's content that costs another request its decision."""

import asyncio
from collections.abc import Callable, Mapping, Sequence

import pytest
from hotbay.datalayer.endpoint import Metrics
from hotbay.scheduling.batch import MAX_COMPLAINT_CHARS, complaint_text
from hotbay.scheduling.binding import BindingOptions, Policy
from hotbay.scheduling.calls import ProduceCall
from hotbay.scheduling.decision import Picked, Rejected
from hotbay_sdk import Context, DataProducer, Endpoint, Endpoints, Filter, Plugin, ProfileHandler, Request, Scorer
from hotbay_sdk.protocol import CallError, ErrorCode, Executed

IDLE = Metrics(waiting=0.0)


async def turns(count: int) -> None:
    """Let the loop take some turns: what is due now happens."""
    for _ in range(count):
        await asyncio.sleep(0)


def scorer(name: str, reads: Sequence[str] = (), *, plugin_id: str = "scorers", touch: str = "") -> Plugin:
    """A plugin whose scorer prefers the endpoint named by its parameter `best`, and reads a field."""
    plugin = Plugin(plugin_id)

    @plugin.type(name, reads=list(reads), parameters=lambda given: dict(given))
    class Prefers(Scorer):
        def __init__(self, context: Context, parameters: dict[str, object]) -> None:
            self._best = f"default/{parameters.get('best', 'a')}"

        def score(self, request: Request, endpoint: Endpoint) -> float:
            if touch:
                getattr(request, touch)
            return 1.0 if endpoint.id == self._best else 0.0

    return plugin


def nested(depth: int) -> list[object]:
    value: list[object] = []
    for _ in range(depth):
        value = [value]
    return value


def reasons(answers: Sequence[Picked | Rejected]) -> list[tuple[str, ...]]:
    return [tuple(reason for _, reason in a.degraded) for a in answers if isinstance(a, Picked)]


# -- windows -------------------------------------------------------------------------------------


def test_plugin_that_says_it_was_late_itself_does_not_shut_its_window(in_loop: Callable) -> None:
    async def body(bay) -> None:
        bay.endpoints(a=IDLE, b=IDLE)
        client = bay.plugin(scorer("s"), [("s", "s", {})])
        bay.publish("s")
        client.tamper = lambda r: CallError(ErrorCode.DEADLINE_EXCEEDED, "late before it was started")
        assert reasons(await bay.decide()) == [("DEADLINE_EXCEEDED",)]
        client.tamper = None
        assert reasons(await bay.decide()) == [()]

    in_loop(body)


def test_requests_refused_while_a_window_is_late_count_as_misses_and_the_late_answer_lets_a_probe_out(
    in_loop: Callable,
) -> None:
    async def body(bay) -> None:
        bay.endpoints(a=IDLE, b=IDLE)
        client = bay.plugin(scorer("s"), [("s", "s", {})])
        bay.publish("s")
        client.hold = True
        first = bay.start()
        await turns(3)
        client.time_out()
        assert reasons([await first[0], *await bay.decide(3)]) == [("DEADLINE_EXCEEDED",)] * 4
        client.hold = False
        client.release()
        # The breaker is open: one of these is the probe, the others do not wait for it.
        assert sorted(reasons(await bay.decide(3))) == [(), ("BREAKER_OPEN",), ("BREAKER_OPEN",)]
        assert reasons(await bay.decide(3)) == [()] * 3

    in_loop(body)


def test_open_breaker_fails_what_waits_for_the_window(in_loop: Callable) -> None:
    async def body(bay) -> None:
        bay.endpoints(a=IDLE, b=IDLE)
        client = bay.plugin(scorer("s"), [("s", "s", {})])
        bay.publish("s")
        client.tamper = lambda r: None
        answers = await bay.decide(64 * 6)
        assert reasons(answers).count(("BAD_RESULT",)) == 64 * 4
        assert reasons(answers).count(("BREAKER_OPEN",)) == 64 * 2

    in_loop(body)


def test_plugin_that_is_asked_no_more_is_told_of_with_what_it_said_until_it_answers(in_loop: Callable) -> None:
    plugin, wrong = Plugin("failing"), [True]

    @plugin.type("failing", reads=["request.id"])
    class Failing(Scorer):
        def score(self, request: Request, endpoint: Endpoint) -> float:
            return {}["waiting\n\x1b" + "x" * 999] if wrong[0] else 1.0

    async def body(bay) -> None:
        bay.endpoints(a=IDLE)
        bay.plugin(plugin, [("f", "failing", {})])
        bay.publish("f")
        assert bay.router.broken() == []
        for _ in range(6):
            await bay.decide()
        ((name, complaint),) = bay.router.broken()
        assert name == "failing"
        assert complaint.startswith("PLUGIN_ERROR: KeyError: 'waiting\\n\\x1bxxx")
        assert bay.router.complaint(1) == complaint
        wrong[0] = False
        next(iter(bay.router._remotes[1]._windows.values()))._breaker.revived(0.0)
        await bay.decide()
        assert bay.router.broken() == []

    in_loop(body)


@pytest.mark.parametrize("more", [0, 1])
def test_what_a_plugin_said_is_cut_and_printable(more: int) -> None:
    room = MAX_COMPLAINT_CHARS - len("PLUGIN_ERROR: ")
    assert len(complaint_text("PLUGIN_ERROR", "x" * (room + more))) == MAX_COMPLAINT_CHARS
    assert complaint_text("PLUGIN_ERROR", "a\n\x1b b") == "PLUGIN_ERROR: a \\x1b b"


@pytest.mark.parametrize(
    ("tamper", "said"),
    [
        (lambda r: None, "BAD_RESULT: run: expected [bits, scores, errors]"),
        (lambda r: CallError(ErrorCode.PLUGIN_ERROR, "a\nb"), "PLUGIN_ERROR: scorers#1: a b"),
        (lambda r: [r[0], r[1], [[0, -1, {"code": "X", "message": 7}]]], "PLUGIN_ERROR"),
        (lambda r: [r[0], r[1], [[0, -1, {"code": "PLUGIN_ERROR", "message": "KeyError"}]]], "PLUGIN_ERROR: KeyError"),
        (lambda r: [r[0], b"\x00\x00\xc0\x7f" * 2, []], "BAD_RESULT"),
    ],
)
def test_what_a_plugin_said_of_its_last_failure_is_kept(in_loop: Callable, tamper: Callable, said: str) -> None:
    async def body(bay) -> None:
        bay.endpoints(a=IDLE, b=IDLE)
        client = bay.plugin(scorer("s"), [("s", "s", {})])
        bay.publish("s")
        await bay.decide()
        assert bay.router.complaint(1) == ""
        client.tamper = tamper
        await bay.decide()
        assert bay.router.complaint(1) == said
        assert bay.router.complaint(99) == ""

    in_loop(body)


def test_request_that_makes_a_plugin_raise_does_not_open_the_breaker_for_others(in_loop: Callable) -> None:
    plugin = Plugin("picky")

    @plugin.type("picky", reads=["request.id"])
    class Picky(Scorer):
        def score(self, request: Request, endpoint: Endpoint) -> float:
            return 1 / 0 if request.id == "r3" else 1.0

    async def body(bay) -> None:
        bay.endpoints(a=IDLE)
        bay.plugin(plugin, [("p", "picky", {})])
        bay.publish("p")
        for _ in range(10):
            assert reasons(await bay.decide(5)) == [(), (), (), ("PLUGIN_ERROR",), ()]

    in_loop(body)


def test_calls_of_two_profiles_that_arrive_mixed_go_in_two_batches(in_loop: Callable) -> None:
    plugin = Plugin("handlers")

    @plugin.type("by-id", reads=["request.id"])
    class ById(ProfileHandler):
        def pick(
            self, request: Request, profiles: Sequence[str], results: object, endpoints: Endpoints
        ) -> Sequence[str]:
            return [] if results else ["xy"[int(request.id[1:]) % 2]]

        def process(self, request: Request, results: dict, endpoints: Endpoints) -> tuple[str, dict]:
            return next(iter(results)), results

    async def body(bay) -> None:
        bay.endpoints(a=IDLE, b=IDLE)
        client = bay.plugin(scorer("s"), [("sx", "s", {}), ("sy", "s", {})])
        bay.plugin(plugin, [("h", "by-id", {})])
        bay.publish(profiles={"x": ["sx"], "y": ["sy"]})
        client.hold = True
        futures = bay.start(21)
        await turns(200)
        client.hold = False
        while not all(f.done() for f in futures):
            client.release()
            await turns(3)
        assert sorted(client.batches) == [1, 10, 10]
        assert set(reasons([f.result() for f in futures])) == {()}

    in_loop(body)


def test_view_that_never_arrived_is_sent_again_without_a_degradation(in_loop: Callable) -> None:
    async def body(bay) -> None:
        bay.endpoints(a=IDLE, b=IDLE)
        client = bay.plugin(scorer("s", ["endpoint.waiting"]), [("s", "s", {})])
        bay.publish("s")
        lost = CallError(ErrorCode.UNAVAILABLE, "not held", executed=Executed.NO, details={"missing": "ids"})
        answers = iter([lost])
        client.tamper = lambda r: next(answers, r)
        assert reasons(await bay.decide()) == [()]
        assert [args[1][3] is not None for args in client.arguments] == [True, True]
        client.tamper = lambda r: lost
        assert reasons(await bay.decide()) == [("UNAVAILABLE",)]
        assert len(client.arguments) == 4

    in_loop(body)


def test_handler_in_a_scorers_process_does_not_make_the_host_forget_to_send_ids(in_loop: Callable) -> None:
    plugin = scorer("s", ["endpoint.waiting"], plugin_id="both")

    @plugin.type("first")
    class First(ProfileHandler):
        def pick(
            self, request: Request, profiles: Sequence[str], results: object, endpoints: Endpoints
        ) -> Sequence[str]:
            return [] if results else ["default"]

        def process(self, request: Request, results: dict, endpoints: Endpoints) -> tuple[str, dict]:
            return "default", results

    async def body(bay) -> None:
        bay.endpoints(a=IDLE, b=IDLE)
        client = bay.plugin(plugin, [("s", "s", {}), ("h", "first", {})])
        bay.publish("s")
        assert reasons(await bay.decide()) == [()]
        bay.endpoints(a=IDLE, b=IDLE, c=IDLE)
        assert reasons(await bay.decide()) == [()]
        assert len(client.arguments) == 8, "nothing was sent twice"

    in_loop(body)


# -- what a request carries -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reads", "touch", "payload", "reason"),
    [
        # Deeper than the encoder of prompts goes: no text, and nothing else happens.
        (["request.prompt"], "prompt", {"messages": [{"role": "user", "content": nested(300)}]}, ()),
        # Deeper than a value may; at 1021 the decoder of requests takes it and a plugin's would not.
        (["request.messages"], "messages", {"messages": nested(40)}, ("FRAME_TOO_LARGE",)),
        (["request.messages"], "messages", {"messages": nested(1021)}, ("FRAME_TOO_LARGE",)),
        # Longer than a frame.
        (["request.prompt"], "prompt", {"prompt": "x" * (17 << 20)}, ("FRAME_TOO_LARGE",)),
        # No door of the host lets it in; were there one, this is what it would cost.
        (["request.tokens_estimate"], "", {"prompt": "\ud800"}, ("HOST_ERROR",)),
    ],
)
def test_request_that_cannot_cross_costs_no_other_request_its_plugins(
    in_loop: Callable, reads: list[str], touch: str, payload: Mapping[str, object], reason: tuple[str, ...]
) -> None:
    async def body(bay) -> None:
        bay.endpoints(a=IDLE, b=IDLE)
        bay.plugin(scorer("s", reads, touch=touch), [("s", "s", {"best": "b"})])
        bay.publish("s")
        for _ in range(6):
            answers = await bay.decide(8, payloads=[{"prompt": "p"}, {"prompt": "q"}, payload])
            assert reasons(answers) == [(), (), reason, (), (), (), (), ()]

    in_loop(body)


def test_batch_is_cut_where_long_bodies_would_stretch_its_frame(in_loop: Callable) -> None:
    async def body(bay) -> None:
        bay.endpoints(a=IDLE)
        reading = bay.plugin(scorer("s", ["request.prompt"]), [("s", "s", {})])
        other = bay.plugin(scorer("o", plugin_id="other"), [("o", "o", {})])
        bay.publish("s", "o")
        assert set(reasons(await bay.decide(8, prompt="x" * (1 << 20)))) == {()}
        assert reading.batches == [2, 2, 2, 2]
        assert other.batches == [8]

    in_loop(body)


def test_produced_columns_of_5000_endpoints_stay_within_the_reply_limit(in_loop: Callable) -> None:
    plugin = Plugin("maker")

    @plugin.type("maker", produces={"Luck.rows": "row", "Luck.more": "row"})
    class Maker(DataProducer):
        def produce_batch(self, requests: Sequence[Request], endpoints: Endpoints) -> dict[str, object]:
            rows = [bytes(4 * len(endpoints))] * len(requests)
            return {name: [memoryview(r).cast("f") for r in rows] for name in ("Luck.rows", "Luck.more")}

    async def body(bay) -> None:
        bay.endpoints(**{f"e{n}": IDLE for n in range(5000)})
        bay.plugin(plugin, [("m", "maker", {})])
        bay.builtin("max-score-picker")
        bay.publish("max-score-picker")
        [[call]] = bay.router.plan.producers
        assert isinstance(call, ProduceCall)
        assert call.batch_limit(5000) * 5000 * 4 * 2 <= 1 << 20
        assert set(reasons(await bay.decide(64))) == {()}

    in_loop(body)


def test_producer_that_changes_a_columns_scope_between_batches_loses_no_request(in_loop: Callable) -> None:
    maker, taker = Plugin("maker"), Plugin("taker")

    @maker.type("maker", reads=["request.id"], produces={"Luck.x": "row"})
    class Maker(DataProducer):
        def produce(self, request: Request, endpoints: Endpoints) -> dict[str, object]:
            return {"Luck.x": [0.5] * len(endpoints)}

    @taker.type("taker", consumes=["Luck.x"])
    class Taker(Scorer):
        def score(self, request: Request, endpoint: Endpoint) -> float:
            return 1.0

    async def body(bay) -> None:
        bay.endpoints(a=IDLE, b=IDLE)
        producing = bay.plugin(maker, [("m", "maker", {})])
        taking = bay.plugin(taker, [("t", "taker", {})])
        bay.publish("t")
        whole, rows = {"Luck.x/request": bytes(4)}, {"Luck.x": bytes(8)}
        scopes = iter([whole, rows, whole])
        producing.tamper = lambda r: [next(scopes), []]
        taking.hold = True
        futures = []
        for _ in range(3):
            futures += bay.start()
            await turns(4)
        taking.hold = False
        while not all(f.done() for f in futures):
            taking.release()
            await turns(3)
        assert reasons([f.result() for f in futures]) == [(), (), ()]
        assert taking.batches == [1, 2]

    in_loop(body)


# -- defects of callers and owners ----------------------------------------------------------------


def test_caller_that_raises_costs_no_other_request_and_no_lease(in_loop: Callable, caplog) -> None:
    async def body(bay) -> None:
        bay.endpoints(a=IDLE, b=IDLE)
        bay.plugin(scorer("s"), [("s", "s", {})])
        bay.publish("s")
        before, after = bay.start(3), []

        def raises(decision: object) -> None:
            raise RuntimeError("the caller's own")

        [request] = bay.requests[-1:]
        bay.router.cancel(request)
        bay.router.decide(request, raises)
        after = bay.start(3)
        await asyncio.wait_for(asyncio.gather(*before, *after), 5)
        assert "decision_failed" in caplog.text
        assert reasons(await bay.decide()) == [()]

    in_loop(body)


def test_generation_that_is_retired_under_a_lease_is_replaced_by_its_policies(in_loop: Callable) -> None:
    async def body(bay) -> None:
        bay.endpoints(a=IDLE, b=IDLE)
        first = bay.plugin(scorer("s", plugin_id="one"), [("s", "s", {})])
        bay.plugin(scorer("t", plugin_id="two"), [("p", "t", {})])
        bay.refs[0], bay.refs[1] = bay.refs[1], bay.refs[0]
        bay.publish("s", "p")
        first.hold = True
        [future] = bay.start()
        await turns(3)
        for generation in bay.generations.values():
            bay.router.retire(generation.number)
        bay.endpoints(a=IDLE)
        [late] = await bay.decide()
        assert set(late.degraded) == {("s", "UNAVAILABLE"), ("p", "UNAVAILABLE")}
        first.release()
        await turns(3)
        assert isinstance(future.result(), Picked)

    in_loop(body)


# -- policies -------------------------------------------------------------------------------------


def test_neutral_score_stands_in_also_for_a_scorer_without_a_process(in_loop: Callable) -> None:
    async def body(bay) -> None:
        bay.endpoints(a=IDLE)
        bay.plugin(scorer("s"), [("s", "s", {})])
        totals: list[list[float]] = []
        finish = bay.router._finish
        bay.router._finish = lambda cycle: (totals.append(cycle.totals.tolist()), finish(cycle))
        options = {"s": BindingOptions(neutral=0.5)}
        bay.lose("s")
        bay.publish(("s", 2.0), options=options)
        await bay.decide()
        assert totals == [[1.0]]

    in_loop(body)


def test_last_good_scores_survive_the_plan_without_their_process(in_loop: Callable) -> None:
    async def body(bay) -> None:
        bay.endpoints(a=IDLE, b=IDLE)
        bay.plugin(scorer("s"), [("s", "s", {"best": "b"})])
        options = {"s": BindingOptions(on_failure=Policy.LAST_GOOD)}
        bay.publish("s", options=options)
        assert await bay.names() == ["b"]
        bay.lose("s")
        bay.publish("s", options=options)
        answers = [(await bay.decide())[0] for _ in range(20)]
        assert {(a.endpoint.name, a.degraded) for a in answers} == {("b", (("s", "UNAVAILABLE"),))}
        bay.publish("s")
        assert bay.router._last_good == {}, "no binding wants them any more"

    in_loop(body)


def test_absent_fail_closed_scorer_refuses_before_producers_are_asked(in_loop: Callable) -> None:
    maker = Plugin("maker")

    @maker.type("maker", produces={"Luck.x": "request"})
    class Maker(DataProducer):
        def produce(self, request: Request, endpoints: Endpoints) -> dict[str, object]:
            return {"Luck.x": 1.0}

    async def body(bay) -> None:
        bay.endpoints(a=IDLE)
        producing = bay.plugin(maker, [("m", "maker", {})])
        bay.plugin(scorer("s"), [("s", "s", {})])
        bay.lose("s")
        bay.publish("s", options={"s": BindingOptions(on_failure=Policy.FAIL_CLOSED)})
        [answer] = await bay.decide()
        assert isinstance(answer, Rejected)
        assert producing.batches == []

    in_loop(body)


def test_handler_that_failed_is_counted_once_and_not_asked_again(in_loop: Callable) -> None:
    plugin = Plugin("handlers")

    @plugin.type("h")
    class Handler(ProfileHandler):
        def pick(
            self, request: Request, profiles: Sequence[str], results: object, endpoints: Endpoints
        ) -> Sequence[str]:
            raise ValueError("no")

        def process(self, request: Request, results: dict, endpoints: Endpoints) -> tuple[str, dict]:
            return next(iter(results)), results

    async def body(bay) -> None:
        bay.endpoints(a=IDLE)
        bay.plugin(scorer("s"), [("s", "s", {})])
        client = bay.plugin(plugin, [("h", "h", {})])
        bay.publish(profiles={"x": ["s"], "y": ["s"]})
        [answer] = await bay.decide()
        assert (answer.profile, answer.degraded) == ("x", (("h", "PLUGIN_ERROR"),))
        assert bay.tally.degradations == [("h", "PLUGIN_ERROR")]
        assert len(client.arguments) == 1

    in_loop(body)


def test_ref_with_two_points_is_counted_once_when_its_process_dies(in_loop: Callable) -> None:
    plugin = Plugin("both")

    @plugin.type("both")
    class Both(Filter, Scorer):
        def keep(self, request: Request, endpoint: Endpoint) -> bool:
            return True

        def score(self, request: Request, endpoint: Endpoint) -> float:
            return 1.0

    async def body(bay) -> None:
        bay.endpoints(a=IDLE)
        client = bay.plugin(plugin, [("b", "both", {})])
        bay.publish("b")
        client.die()
        assert reasons(await bay.decide()) == [("CRASHED",)]
        assert bay.tally.degradations == [("b", "CRASHED")]
        assert [point for point, _, _ in bay.tally.errors] == ["filter", "score"]

    in_loop(body)


# -- cancellation ---------------------------------------------------------------------------------


def test_client_that_leaves_is_answered_at_once_and_its_row_dropped(in_loop: Callable) -> None:
    async def body(bay) -> None:
        bay.endpoints(a=IDLE, b=IDLE)
        client = bay.plugin(scorer("s"), [("s", "s", {})])
        bay.publish("s")
        client.hold = True
        out = bay.start(2)
        await turns(3)
        queued = bay.start(2)
        first, second, third, _ = bay.requests
        bay.router.cancel(first)
        bay.router.cancel(third)
        assert [f.done() for f in (*out, *queued)] == [True, False, True, False]
        assert (out[0].result().status, out[0].result().reason) == (499, "client-left")
        assert client.cancelled == [], "somebody waits for the batch"
        bay.router.cancel(second)
        bay.router.cancel(second)
        assert len(client.cancelled) == 1
        assert bay.router.deciding == 1
        client.hold = False
        client.release()
        assert isinstance(await asyncio.wait_for(queued[1], 5), Picked)
        assert client.batches == [2, 1]
        assert bay.tally.degradations == []

    in_loop(body)
