"""`session-affinity-scorer` and `-filter`: a session's requests go where the one before them went, in both strategies."""

import base64
from collections.abc import Mapping, Sequence

import pytest
from hotbay_sdk import Edits, ParameterError
from hotbay_sdk.testing import PluginHarness
from hotbay_session import plugin
from hotbay_session.affinity import decoded, encoded
from hypothesis import given
from hypothesis import strategies as st

SCORER, FILTER = "session-affinity-scorer", "session-affinity-filter"
BOTH = (SCORER, FILTER)
Pods = Mapping[str, Mapping[str, float]]
PODS: Pods = {"default/a": {}, "default/b": {}, "default/c": {}}
BY_ID = {"strategy": "session_id"}


def token(endpoint: str) -> str:
    return base64.b64encode(endpoint.encode()).decode()


def chosen(
    harness: PluginHarness,
    type_name: str,
    headers: Mapping[str, str],
    *,
    request_id: str = "r",
    pods: Pods = PODS,
    candidates: Sequence[str] | None = None,
    **fields: object,
) -> list[str]:
    """Endpoints that the type prefers, last part of their ids; all candidates for no preference."""
    request = {"id": request_id, "headers": headers, **fields}
    everyone = list(pods if candidates is None else candidates)
    if type_name == FILTER:
        (kept,) = harness.keep("ref", pods, [request], candidates=candidates)
    else:
        (scores,) = harness.score("ref", pods, [request], candidates=candidates)
        assert set(scores.values()) <= {0.0, 1.0}
        kept = [name for name, score in scores.items() if score] or everyone
    return [name.rpartition("/")[2] for name in kept]


def send(
    harness: PluginHarness,
    endpoint: str,
    headers: Mapping[str, str],
    *,
    request_id: str = "r",
    pods: Pods = PODS,
    **more: object,
) -> Edits | None:
    return harness.pre_request("ref", pods, [endpoint], {"id": request_id, "headers": headers}, **more)


def made(type_name: str, parameters: Mapping[str, object] | None = None) -> PluginHarness:
    harness = PluginHarness(plugin)
    harness.configure("ref", type_name, parameters)
    return harness


ALL, A, B, C = ["a", "b", "c"], ["a"], ["b"], ["c"]
MINE = {"x-session-id": "s1"}


# -- encoded_endpoint_header -----------------------------------------------------------------------


@pytest.mark.parametrize("type_name", BOTH)
@pytest.mark.parametrize(
    ("value", "kept"),
    [
        (token("default/b"), B),
        (token("default/gone"), ALL),
        (None, ALL),
        ("", ALL),
        ("not base64!", ALL),
        (base64.b64encode(b"\xff\xfe").decode(), ALL),
        (token("default/b") + "\n", ALL),
        (token("default/b") * 200, ALL),
    ],
    ids=["there", "gone", "none", "empty", "no token", "no text", "more than a token", "long"],
)
def test_the_token_names_the_endpoint(type_name: str, value: str | None, kept: list[str]) -> None:
    with made(type_name) as harness:
        assert chosen(harness, type_name, {} if value is None else {"x-session-token": value}) == kept


@pytest.mark.parametrize("type_name", BOTH)
def test_s40_the_token_of_an_endpoint_that_is_no_candidate_is_passed_over_and_a_new_one_returned(
    type_name: str,
) -> None:
    headers = {"x-session-token": token("default/a")}
    with made(type_name) as harness:
        assert chosen(harness, type_name, headers, candidates=["default/b", "default/c"]) == ["b", "c"]
        assert send(harness, "default/c", headers) == Edits(response={"x-session-token": token("default/c")})


@pytest.mark.parametrize("type_name", BOTH)
def test_the_response_brings_the_token_of_the_profile(type_name: str) -> None:
    parameters = {"profileName": "prefill", "encodedEndpointHeaderConfig": {"header": "X-Prefill"}}
    results = {"decode": ["default/a"], "prefill": ["default/b", "default/c"]}
    with made(type_name, parameters) as harness:
        assert harness.facts("ref").response_headers == ("x-prefill",)
        assert harness.facts("ref").reads == ("request.headers[x-prefill]",)
        edits = send(harness, "default/a", {}, profile="decode", results=results)
        assert edits == Edits(response={"x-prefill": token("default/b")})
        assert send(harness, "default/a", {}, results={"decode": ["default/a"], "prefill": None}) is None


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=200))
def test_tokens_are_read_back_and_anything_else_is_none(text: str) -> None:
    assert decoded(encoded(text)) == text
    assert isinstance(decoded(text), str)


# -- session_id ------------------------------------------------------------------------------------


@pytest.mark.parametrize("type_name", BOTH)
def test_a_session_goes_where_its_first_request_went(type_name: str) -> None:
    with made(type_name, BY_ID) as harness:
        assert chosen(harness, type_name, MINE) == ALL
        assert send(harness, "default/b", MINE) is None
        assert chosen(harness, type_name, MINE) == B
        assert chosen(harness, type_name, {"x-session-id": "s2"}) == ALL
        assert chosen(harness, type_name, {}) == ALL
        assert harness.facts("ref").response_headers == ()


@pytest.mark.parametrize("type_name", BOTH)
def test_rating_and_keeping_bind_nothing(type_name: str) -> None:
    with made(type_name, BY_ID) as harness:
        for _ in range(3):
            assert chosen(harness, type_name, MINE, candidates=["default/b"]) == B
        assert chosen(harness, type_name, MINE) == ALL


@pytest.mark.parametrize("type_name", BOTH)
def test_a_session_that_was_outweighed_once_does_not_move(type_name: str) -> None:
    with made(type_name, BY_ID) as harness:
        send(harness, "default/a", MINE)
        chosen(harness, type_name, MINE, request_id="r2")
        send(harness, "default/c", MINE, request_id="r2")
        assert chosen(harness, type_name, MINE) == A


@pytest.mark.parametrize("type_name", BOTH)
def test_s40_a_session_moves_when_its_endpoint_was_no_candidate(type_name: str) -> None:
    with made(type_name, BY_ID) as harness:
        send(harness, "default/a", MINE)
        rest = ["default/b", "default/c"]
        assert chosen(harness, type_name, MINE, request_id="r2", candidates=rest) == ["b", "c"]
        send(harness, "default/c", MINE, request_id="r2")
        assert chosen(harness, type_name, MINE) == C


@pytest.mark.parametrize("type_name", BOTH)
def test_s40_a_session_of_an_endpoint_that_went_is_free(type_name: str) -> None:
    without = {name: {} for name in PODS if name != "default/a"}
    with made(type_name, BY_ID) as harness:
        send(harness, "default/a", MINE)
        assert chosen(harness, type_name, MINE, pods=without) == ["b", "c"]
        send(harness, "default/b", MINE, pods=without)
        assert chosen(harness, type_name, MINE) == B


@pytest.mark.parametrize("type_name", BOTH)
def test_s40_a_session_whose_endpoint_fails_is_free(type_name: str) -> None:
    with made(type_name, BY_ID) as harness:
        send(harness, "default/a", MINE)
        harness.withdrawn("ref", PODS, ["default/b"], {"headers": MINE})
        assert chosen(harness, type_name, MINE) == A
        harness.withdrawn("ref", PODS, ["default/a"], {"headers": MINE})
        assert chosen(harness, type_name, MINE) == ALL
        send(harness, "default/c", MINE)
        assert chosen(harness, type_name, MINE) == C


def test_an_endpoint_that_any_profile_has_as_a_candidate_keeps_its_session() -> None:
    with made(SCORER, BY_ID) as harness:
        send(harness, "default/a", MINE)
        chosen(harness, SCORER, MINE, request_id="r2")
        chosen(harness, SCORER, MINE, request_id="r2", candidates=["default/b"])
        send(harness, "default/b", MINE, request_id="r2")
        assert chosen(harness, SCORER, MINE) == A


@pytest.mark.parametrize("type_name", BOTH)
def test_the_profile_says_whose_endpoint_is_kept(type_name: str) -> None:
    results = {"decode": ["default/a"], "prefill": ["default/b"]}
    with made(type_name, {**BY_ID, "profileName": "prefill"}) as harness:
        send(harness, "default/a", MINE, results={"decode": ["default/a"]})
        assert chosen(harness, type_name, MINE) == ALL
        send(harness, "default/a", MINE, results=results)
        assert chosen(harness, type_name, MINE) == B


def test_the_first_source_that_is_not_empty_counts() -> None:
    sources = [
        {"header": "X-One"},
        {"attribute": "agent-identity"},
        {"attribute": "SessionID"},
        {"attribute": "k", "producer": "p"},
    ]
    with made(SCORER, {**BY_ID, "sessionIdConfig": {"sources": sources}}) as harness:
        facts = harness.facts("ref")
        assert facts.reads == ("request.headers[x-one]", "request.attributes[agent-identity]")
        assert facts.consumes == ("SessionID.id", "k/p.id")
        plain = {"id": "r", "headers": {"x-one": "s"}, "attributes": {"agent-identity": "agent"}}
        harness.pre_request("ref", PODS, ["default/b"], plain)
        harness.pre_request("ref", PODS, ["default/c"], {**plain, "headers": {}})
        assert chosen(harness, SCORER, {"x-one": "s"}, attributes={"agent-identity": "agent"}) == B
        assert chosen(harness, SCORER, {"x-one": ""}, attributes={"agent-identity": "agent"}) == C
        data = {"SessionID.id/text": ["column"], "k/p.id/text": ["other"]}
        harness.pre_request("ref", PODS, ["default/a"], {"id": "q"}, data=data)
        (scores,) = harness.score("ref", PODS, [{"id": "q"}], data={"SessionID.id/text": ["column"]})
        assert scores == {"default/a": 1, "default/b": 0, "default/c": 0}
        (scores,) = harness.score("ref", PODS, [{"id": "q"}], data={"k/p.id/text": ["other"]})
        assert set(scores.values()) == {0}


@pytest.mark.parametrize("type_name", BOTH)
def test_bindings_move_to_the_next_version(type_name: str) -> None:
    with made(type_name, BY_ID) as harness, PluginHarness(plugin) as successor:
        send(harness, "default/b", MINE)
        successor.import_state(harness.export_state())
        successor.configure("ref", type_name, BY_ID)
        assert successor.state_of("ref") == "imported"
        assert chosen(successor, type_name, MINE) == B
        assert successor.dump_state("ref") == {
            "strategy": "session_id",
            "sessions": 1,
            "endpoints": 1,
            "sessions_by_endpoint": {"default/b": 1},
        }


@pytest.mark.parametrize("type_name", BOTH)
def test_the_strategy_that_keeps_nothing_hands_on_nothing(type_name: str) -> None:
    with made(type_name) as harness, PluginHarness(plugin) as successor:
        successor.import_state(harness.export_state())
        successor.configure("ref", type_name)
        assert successor.state_of("ref") == "imported"
        assert successor.dump_state("ref") == {"strategy": "encoded_endpoint_header"}


def test_a_batch_is_rated_request_by_request() -> None:
    with made(SCORER) as harness:
        headers = [{"x-session-token": token(f"default/{name}")} for name in "cxa"]
        scores = harness.score("ref", PODS, [{"id": str(n), "headers": each} for n, each in enumerate(headers)])
    assert [list(row.values()) for row in scores] == [[0, 0, 1], [0, 0, 0], [1, 0, 0]]


@pytest.mark.parametrize(
    ("parameters", "path"),
    [
        ({"strategy": "cookie"}, "strategy"),
        ({"header": "x"}, "header"),
        ({"encodedEndpointHeaderConfig": {"header": ""}}, "encodedEndpointHeaderConfig.header"),
        ({"encodedEndpointHeaderConfig": {"header": "a b"}}, "encodedEndpointHeaderConfig.header"),
        ({"sessionIdConfig": {"sources": []}}, "sessionIdConfig.sources"),
        ({"sessionIdConfig": {"sources": [{}]}}, "sessionIdConfig.sources[0]"),
        (
            {"sessionIdConfig": {"sources": [{"header": "x"}, {"header": "x", "attribute": "y"}]}},
            "sessionIdConfig.sources[1]",
        ),
        (
            {"sessionIdConfig": {"sources": [{"header": "x", "producer": "y"}]}},
            "sessionIdConfig.sources[0].producer",
        ),
        ({"sessionIdConfig": {"evictionTtlSeconds": 0}}, "sessionIdConfig.evictionTtlSeconds"),
        ({"sessionIdConfig": {"evictionSweepSeconds": -1}}, "sessionIdConfig.evictionSweepSeconds"),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
@pytest.mark.parametrize("type_name", BOTH)
def test_bad_parameters_are_refused(type_name: str, parameters: dict[str, object], path: str) -> None:
    with PluginHarness(plugin) as harness, pytest.raises(ParameterError) as caught:
        harness.configure("ref", type_name, parameters)
    assert caught.value.path == path
