"""Producers of the host itself: their parameters, what they make for others, how requests count, and what is cached already."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hotbay.datalayer.endpoint import EndpointMetadata, Metrics
from hotbay.errors import InputError, Problem
from hotbay.rollout.deployment import Deployment
from hotbay.rollout.refs import CreatedRef, RefSpec
from hotbay.rollout.resolution import ResolvedRef, Scheduling
from hotbay.scheduling.builtin_producers import (
    MAX_OUTPUT_RATIO,
    PrefixMatch,
    TokenCounting,
    check_token_producer,
    token_counting,
)
from hotbay.scheduling.decision import Picked
from hotbay.scheduling.plan import RefPlan
from hotbay.scheduling.preference import is_conditional
from hotbay.scheduling.producers import missing_producers
from hotbay.scheduling.registry import TypeIndex
from hotbay.scheduling.request import InferenceRequest
from hotbay_sdk import DataProducer, Edits, Endpoints, PickedTargets, Plugin, PreRequest, Request, Scorer
from hotbay_sdk.protocol.handshake import TypeDeclaration

IDLE = Metrics(waiting=0.0)
MATCH = PrefixMatch("p/m", "p/b")
FORTY = {"model": "m", "prompt": "x" * 160}


def request(payload: Mapping[str, object]) -> InferenceRequest:
    return InferenceRequest("r", "m", "/v1/completions", {}, b"{}", payload)


# -- parameters ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parameters", "counting"),
    [
        ({}, TokenCounting()),
        ({"addEstimatedOutputTokens": True}, TokenCounting(1.5)),
        ({"outputRatio": 3}, TokenCounting()),
        ({"addEstimatedOutputTokens": True, "outputRatio": 0}, TokenCounting(0.0)),
        ({"addEstimatedOutputTokens": True, "outputRatio": MAX_OUTPUT_RATIO}, TokenCounting(MAX_OUTPUT_RATIO)),
        ({"syncCrossReplicaState": False, "release": "end"}, TokenCounting()),
        ({"release": "first-token"}, TokenCounting(releases=True)),
    ],
    ids=["none", "answers", "ratio-alone", "ratio-0", "most", "end", "first-token"],
)
def test_parameters_say_how_requests_count(parameters: Mapping[str, object], counting: TokenCounting) -> None:
    assert token_counting(parameters, "load", None) == counting


@pytest.mark.parametrize(
    ("parameters", "says"),
    [
        ({"ratio": 1}, "unknown parameter 'ratio'"),
        ({"addEstimatedOutputTokens": 1}, "addEstimatedOutputTokens is 1"),
        ({"syncCrossReplicaState": "yes"}, "syncCrossReplicaState is 'yes'"),
        ({"outputRatio": -0.1}, "outputRatio is -0.1"),
        ({"outputRatio": MAX_OUTPUT_RATIO * 1.1}, "outputRatio is 1.1e+06"),
        ({"outputRatio": float("nan")}, "outputRatio is nan"),
        ({"outputRatio": True}, "outputRatio is True"),
        ({"release": "start"}, "release is 'start'"),
    ],
    ids=["unknown", "flag", "sync", "negative", "too-much", "nan", "bool", "release"],
)
def test_wrong_parameter_is_named(parameters: Mapping[str, object], says: str) -> None:
    found = token_counting(parameters, "load", None)
    assert isinstance(found, Problem)
    assert f"plugins 'load': {says}" in str(found)


@pytest.mark.parametrize("parameters", [{}, {"estimate": None}, {"estimate": {"image": {"mode": "static"}}}], ids=str)
def test_token_producer_takes_what_the_reference_says_of_estimates(parameters: Mapping[str, object]) -> None:
    assert check_token_producer(parameters, "tokens", None) is None


@pytest.mark.parametrize(
    ("parameters", "says"),
    [
        ({"vllm": {"url": "http://x"}}, "'vllm' names a service that renders prompts"),
        ({"modelName": "m"}, "'modelName' names a service that renders prompts"),
        ({"udsTokenizerConfig": {}}, "'udsTokenizerConfig' names a service"),
        ({"estimates": {}}, "unknown parameter 'estimates'"),
        ({"estimate": 4}, "estimate is 4"),
    ],
    ids=["vllm", "model", "socket", "unknown", "number"],
)
def test_token_producer_says_what_is_not_there(parameters: Mapping[str, object], says: str) -> None:
    assert says in str(check_token_producer(parameters, "tokens", None))


def test_parameters_are_checked_when_a_plan_is_made(in_loop: Callable) -> None:
    async def body(bay) -> None:
        bay.builtin("tokenizer", vllm={})
        bay.builtin("inflight-load-producer", release="never")
        with pytest.raises(InputError) as caught:
            bay.compile()
        assert [line for line in ("'vllm'", "release is 'never'") if line not in str(caught.value)] == []

    in_loop(body)


def test_two_ways_to_count_are_refused_and_one_way_twice_is_not(in_loop: Callable) -> None:
    async def body(bay) -> None:
        for name, release in (("one", "end"), ("two", "end")):
            bay.refs.append(RefPlan(name, "inflight-load-producer", None, None, None, {"release": release}))
        assert bay.compile().counts_tokens == TokenCounting()
        bay.refs.append(RefPlan("three", "inflight-load-producer", None, None, None, {"release": "first-token"}))
        with pytest.raises(InputError, match="'one' and 'three' count tokens differently"):
            bay.compile()

    in_loop(body)


# -- how a request counts --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("matched", "block", "tokens"),
    [
        ([2.0, 0.0], 16.0, 8),
        ([0.0, 2.0], 16.0, 40),
        ([3.0, 0.0], 16.0, 0),
        ([float("nan"), 0.0], 16.0, 40),
        ([float("inf"), 0.0], 16.0, 40),
        ([-1.0, 0.0], 16.0, 40),
        ([2.0, 0.0], float("inf"), 40),
        ([2.0, 0.0], None, 40),
        (None, 16.0, 40),
    ],
    ids=["some", "elsewhere", "all", "nan", "inf", "negative", "block-inf", "no-block", "no-match"],
)
def test_request_counts_its_prompt_less_what_is_cached_there(
    matched: list[float] | None, block: float | None, tokens: int
) -> None:
    data: dict = {} if matched is None else {"p/m": np.array(matched, np.float32)}
    data |= {} if block is None else {"p/b": block}
    assert TokenCounting(match=MATCH).of(request(FORTY), data, [0]) == (tokens, 0, ())


def test_answer_counts_by_the_whole_prompt_and_fallbacks_by_what_is_cached_there() -> None:
    data = {"p/m": np.array([2, 0, 1], np.float32), "p/b": 16.0}
    assert TokenCounting(0.5, match=MATCH).of(request(FORTY), data, [0, 1, 2]) == (28, 20, (60, 44))


def test_decision_says_what_each_of_its_endpoints_counts_and_keeps_that_when_it_is_narrowed() -> None:
    a, b, c = (EndpointMetadata(f"default/{name}", name, "10.0.0.1", 1) for name in "abc")
    decision = Picked(a, (b, c), tokens=1, tokens_elsewhere=(2, 3))
    assert [decision.tokens_at(one.id) for one in (a, b, c)] == [1, 2, 3]
    left = decision.narrowed([c, b])
    assert [left.tokens_at(one.id) for one in (c, b)] == [3, 2]
    assert Picked(a, (b,)).narrowed([b]) == Picked(b)


def matcher() -> Plugin:
    """A producer of what is cached: a block of 4 tokens at `a`, unless the request says otherwise."""
    plugin = Plugin("matcher")

    @plugin.type(
        "matcher",
        reads=["request.headers[x-fails]"],
        produces={"PrefixCacheMatchInfo.matched_blocks": "row", "PrefixCacheMatchInfo.block_size_tokens": "request"},
    )
    class Matcher(DataProducer):
        def produce_batch(self, requests: Sequence[Request], endpoints: Endpoints) -> Mapping[str, object]:
            if any(one.header("x-fails") for one in requests):
                raise ValueError("no")
            row = [float(name == "default/a") for name in endpoints.ids]
            return {
                "PrefixCacheMatchInfo.matched_blocks": [row] * len(requests),
                "PrefixCacheMatchInfo.block_size_tokens": [4.0] * len(requests),
            }

    return plugin


def prefers(name: str, reads: Sequence[str] = ()) -> Plugin:
    plugin = Plugin(f"prefers-{name}")

    @plugin.type(f"prefers-{name}", reads=list(reads))
    class Prefers(Scorer):
        def score_batch(self, requests: Sequence[Request], endpoints: Endpoints) -> object:
            return [[float(one == f"default/{name}") for one in endpoints.ids]] * len(requests)

    return plugin


@pytest.mark.parametrize(("name", "tokens"), [("a", 36), ("b", 40)])
def test_decision_counts_tokens_where_somebody_reads_them(in_loop: Callable, name: str, tokens: int) -> None:
    async def body(bay) -> None:
        bay.endpoints(a=IDLE, b=IDLE)
        bay.plugin(matcher(), [("m", "matcher", {})])
        bay.plugin(prefers(name, ["endpoint.in_flight_tokens"]), [("p", f"prefers-{name}", {})])
        bay.publish("p")
        [answer] = await bay.decide(payloads=[FORTY])
        assert (answer.endpoint.name, answer.tokens, answer.releases_tokens) == (name, tokens, False)

    in_loop(body)


def test_nothing_is_counted_where_nobody_reads_tokens_and_no_instance_is_configured(in_loop: Callable) -> None:
    async def body(bay) -> None:
        bay.endpoints(a=IDLE)
        bay.plugin(prefers("a", ["endpoint.in_flight"]), [("p", "prefers-a", {})])
        bay.publish("p")
        assert (bay.router.plan.counts_tokens, bay.router.plan.gives, bay.router.plan.before) == (None, (), ())
        [answer] = await bay.decide()
        assert answer.tokens is None
        bay.builtin("inflight-load-producer", release="first-token", addEstimatedOutputTokens=True)
        bay.publish("p")
        [answer] = await bay.decide(payloads=[FORTY])
        assert (answer.tokens, answer.answer_tokens, answer.releases_tokens) == (100, 60, True)

    in_loop(body)


# -- what the host makes ---------------------------------------------------------------------------


def reader(column: str, seen: list[object]) -> Plugin:
    plugin = Plugin("reader")

    @plugin.type("reader", consumes=[column])
    class Reader(Scorer):
        def score_batch(self, requests: Sequence[Request], endpoints: Endpoints) -> object:
            for one in requests:
                seen.append(one.text(column) if column.startswith("Token") else endpoints.data(column).tolist()[0])
            return [[0.0] * len(endpoints.ids)] * len(requests)

    return plugin


@pytest.mark.parametrize("type_name", ["token-producer", "tokenizer"])
@pytest.mark.parametrize(
    ("prompt", "text"),
    [
        ([1, 22, 333], "1 22 333"),
        ([[1, 2], [3]], "1 2\0003"),
        ("1 2 3", ""),
        ([[1], "x"], ""),
        ([], ""),
    ],
    ids=["ids", "two", "text", "mixed", "none"],
)
def test_token_ids_cross_as_they_were_given(in_loop: Callable, type_name: str, prompt: object, text: str) -> None:
    async def body(bay) -> None:
        seen: list[object] = []
        bay.endpoints(a=IDLE)
        bay.builtin(type_name)
        bay.plugin(reader("TokenizedPrompt.token_ids", seen), [("r", "reader", {})])
        bay.publish("r")
        await bay.decide(payloads=[{"model": "m", "prompt": prompt}])
        assert seen == [text]

    in_loop(body)


def test_load_crosses_as_the_ledger_has_it(in_loop: Callable) -> None:
    async def body(bay) -> None:
        seen: list[object] = []
        bay.endpoints(a=IDLE, b=IDLE)
        bay.store.ledger.started("default/a", 7)
        bay.store.ledger.started("default/b")
        bay.store.publish(1.0)
        bay.builtin("inflight-load-producer")
        for column in ("InFlightLoad.requests", "InFlightLoad.tokens"):
            bay.plugin(reader(column, seen), [("r", "reader", {})])
            bay.publish("r")
            await bay.decide()
        assert seen[0] == [1.0, 1.0]
        assert str(seen[1]) == "[7.0, nan]"

    in_loop(body)


@pytest.mark.parametrize("configured", [(), ("token-producer",), ("tokenizer",)], ids=["none", "it", "alias"])
def test_token_producer_is_made_for_who_needs_it_unless_there_is_one(configured: tuple[str, ...]) -> None:
    needs = TypeDeclaration(type="r", points=("score",), consumes=("TokenizedPrompt.token_ids",))
    refs = [RefPlan("r", "r", "p", None, needs, {}), *(RefPlan(n, n, None, None, None, {}) for n in configured)]
    defaults = TypeIndex.build([], {}).default_producers(allow_experimental=False).types
    assert missing_producers(refs, defaults) == (() if configured else ("token-producer",))


# -- headers of who sets them and is not there -----------------------------------------------------


def setter(name: str, raises: str = "") -> Plugin:
    plugin = Plugin(f"sets-{name}")

    @plugin.type(f"sets-{name}")
    class Sets(PreRequest):
        sets_request_headers = ("x-to", "x-more")

        def pre_request(self, request: Request, picked: PickedTargets, endpoints: Endpoints) -> Edits:
            if raises:
                raise ValueError(raises)
            return Edits({"x-to": name})

    return plugin


def test_headers_of_a_setter_that_fails_or_is_gone_do_not_go_on(in_loop: Callable) -> None:
    async def body(bay) -> None:
        bay.endpoints(a=IDLE)
        bay.plugin(setter("failing", "no"), [("f", "sets-failing", {})])
        bay.publish()
        [failed] = await bay.decide()
        bay.refs = [replace(ref, generation=None, facts=ref.generation.facts[ref.name]) for ref in bay.refs]
        bay.publish()
        [gone] = await bay.decide()
        assert failed.request_headers == gone.request_headers == {"x-to": None, "x-more": None}
        assert failed.candidates == (failed.endpoint,)
        bay.plugin(setter("there"), [("t", "sets-there", {})])
        bay.publish()
        [other] = await bay.decide()
        assert other.request_headers == {"x-to": "there", "x-more": None}

    in_loop(body)


def test_what_an_instance_said_is_known_after_its_process_left_the_plan(in_loop: Callable) -> None:
    async def body(bay) -> None:
        bay.endpoints(a=IDLE)
        bay.plugin(setter("there"), [("t", "sets-there", {})])
        generation = bay.generations["sets-there"]
        index = TypeIndex.build([("p", ["sets-there"])], {})
        deployment = Deployment(bay.router, Scheduling((ResolvedRef("t", "sets-there", "p", {}),), ()), index)
        deployment.cut_over("p", generation)
        deployment.learn_types("p", generation.types)
        deployment.learn_facts("p", [CreatedRef(RefSpec("t", "sets-there", {}), 1, None, generation.facts["t"])])
        [there] = await bay.decide()
        assert (there.request_headers, bay.router.plan.withheld) == ({"x-to": "there"}, frozenset())
        deployment.remove("p")
        [gone] = await bay.decide()
        assert gone.request_headers == {"x-to": None, "x-more": None}

    in_loop(body)


def test_removed_headers_hold_for_fallbacks_and_set_ones_do_not() -> None:
    a, b = (EndpointMetadata(f"default/{name}", name, "10.0.0.1", 1) for name in "ab")
    assert Picked(a, (b,), request_headers={"x": None}).candidates == (a, b)
    assert Picked(a, (b,), request_headers={"x": None, "y": "1"}).candidates == (a,)
    assert Picked(a, (b,), response_headers={"x": "1"}).candidates == (a,)


# -- conditional decode ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "conditional"),
    [
        ("if-available", True),
        ("return=minimal, If-Available; x=1", True),
        ("if-available=1", True),
        ("return=minimal", False),
        ("not-if-available", False),
        ("x; if-available", False),
        ("", False),
    ],
)
def test_preference_is_one_of_a_list(value: str, conditional: bool) -> None:
    assert is_conditional({"prefer": value}) is conditional
    assert not is_conditional({"preferred": value})


@pytest.mark.parametrize(
    ("name", "headers", "refused"),
    [
        ("a", {"prefer": "if-available"}, False),
        ("b", {"prefer": "if-available"}, True),
        ("b", {}, False),
        ("a", {"prefer": "if-available", "x-fails": "1"}, True),
    ],
    ids=["cached", "not-cached", "not-asked", "nobody-knows"],
)
def test_request_that_wants_its_prefix_cached_is_refused_where_it_is_not(
    in_loop: Callable, name: str, headers: Mapping[str, str], refused: bool
) -> None:
    async def body(bay) -> None:
        bay.endpoints(a=IDLE, b=IDLE)
        bay.plugin(matcher(), [("m", "matcher", {})])
        bay.plugin(prefers(name), [("p", f"prefers-{name}", {})])
        bay.publish("p")
        [answer] = await bay.decide(headers=dict(headers))
        assert (answer if isinstance(answer, Picked) else (answer.status, answer.reason)) == (
            (412, "precondition-failed") if refused else answer
        )
        assert isinstance(answer, Picked) is not refused
        await asyncio.sleep(0)

    in_loop(body)


def test_request_that_wants_its_prefix_cached_is_refused_where_nobody_tells(in_loop: Callable) -> None:
    async def body(bay) -> None:
        bay.endpoints(a=IDLE)
        bay.publish()
        [answer] = await bay.decide(headers={"prefer": "if-available"})
        assert (answer.status, answer.reason) == (412, "precondition-failed")

    in_loop(body)
