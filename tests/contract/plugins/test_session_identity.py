"""`session-id-producer` and `agent-identity`: whose a request is, from its headers."""

import pytest
from hotbay_sdk import ParameterError
from hotbay_sdk.testing import PluginHarness
from hotbay_session import plugin
from hotbay_session.identity import AGENT_HEADERS, cookie_of
from hypothesis import given
from hypothesis import strategies as st

PRODUCER, AGENT = "session-id-producer", "agent-identity"
COLUMN = "SessionID.id"


def session_of(parameters: dict[str, object] | None, headers: dict[str, str]) -> str | None:
    with PluginHarness(plugin) as harness:
        harness.configure("ref", PRODUCER, parameters)
        return harness.produce("ref", {"a": {}}, [{"headers": headers}])[COLUMN][0][0]


@pytest.mark.parametrize(
    ("parameters", "headers", "session"),
    [
        (None, {"x-session-id": "s1"}, "s1"),
        ({}, {"x-session-id": " s1 "}, "s1"),
        (None, {}, None),
        (None, {"x-session-id": ""}, None),
        ({"headerName": "X-Mine"}, {"x-mine": "s2", "x-session-id": "s1"}, "s2"),
        ({"cookieName": "sid"}, {"cookie": "a=b; sid=s3; c=d"}, "s3"),
        ({"cookieName": "sid"}, {"cookie": 'sid="s3"'}, "s3"),
        ({"cookieName": "sid"}, {"cookie": "xsid=1; SID=2; sid"}, None),
        ({"cookieName": "sid"}, {}, None),
    ],
    ids=["default", "blanks", "none", "empty", "header", "cookie", "quoted", "other cookies", "no cookies"],
)
def test_the_session_is_read_from_its_place(
    parameters: dict[str, object] | None, headers: dict[str, str], session: str | None
) -> None:
    assert session_of(parameters, headers) == session


def test_a_batch_is_told_request_by_request_and_reads_one_header_alone() -> None:
    with PluginHarness(plugin) as harness:
        harness.configure("ref", PRODUCER)
        requests = [{"headers": {"x-session-id": "s1"}}, {}, {"headers": {"x-session-id": "s2"}}]
        assert harness.produce("ref", {"a": {}}, requests) == {COLUMN: [["s1"], [None], ["s2"]]}
        assert harness.facts("ref").reads == ("request.headers[x-session-id]",)


@pytest.mark.parametrize(("length", "known"), [(4096, True), (4097, False)])
@pytest.mark.parametrize(
    ("parameters", "header", "before"),
    [({}, "x-session-id", ""), ({"cookieName": "sid"}, "cookie", "sid=")],
    ids=["header", "cookie"],
)
def test_a_session_that_is_longer_than_a_text_may_be_is_none_and_others_of_its_batch_are_told(
    parameters: dict[str, object], header: str, before: str, length: int, known: bool
) -> None:
    with PluginHarness(plugin) as harness:
        harness.configure("ref", PRODUCER, parameters)
        # In UTF-8 an o with two dots takes two bytes.
        values = ("\u00f6" * (length // 2) + "x" * (length % 2), "s2")
        requests = [{"headers": {header: before + value}} for value in values]
        made = harness.produce("ref", {"a": {}}, requests)[COLUMN]
    assert [bool(text) for (text,) in made] == [known, True]


@pytest.mark.parametrize(
    ("parameters", "path"),
    [
        ({"headerName": "a", "cookieName": "b"}, "cookieName"),
        ({"headerName": "a b"}, "headerName"),
        ({"cookieName": "a=b"}, "cookieName"),
        ({"header": "a"}, "header"),
    ],
)
def test_bad_parameters_of_the_producer_are_refused(parameters: dict[str, object], path: str) -> None:
    with PluginHarness(plugin) as harness, pytest.raises(ParameterError) as caught:
        harness.configure("ref", PRODUCER, parameters)
    assert caught.value.path == path


names = st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=1, max_size=3)


@given(st.lists(st.tuples(names, names), max_size=5), names)
def test_the_first_cookie_of_the_name_counts(cookies: list[tuple[str, str]], name: str) -> None:
    header = "; ".join(f"{key}={value}" for key, value in cookies)
    assert cookie_of(header, name) == next((value for key, value in cookies if key == name), "")


@given(st.text(), st.text(min_size=1))
def test_any_header_gives_a_text(header: str, name: str) -> None:
    assert isinstance(cookie_of(header, name), str)


def identity_of(headers: dict[str, str], **parameters: object) -> object:
    with PluginHarness(plugin) as harness:
        harness.configure("ref", AGENT, parameters)
        (answer,) = harness.request_headers("ref", [{"headers": headers}])
        return answer


@pytest.mark.parametrize("name", AGENT_HEADERS)
def test_the_headers_of_known_agents_name_them(name: str) -> None:
    assert identity_of({name: "me"}) == {"agent-identity": "me"}


def test_the_first_header_that_is_not_empty_counts() -> None:
    headers = {"x-claude-code-session-id": " ", "x-session-affinity": "second", "session_id": "last"}
    assert identity_of(headers) == {"agent-identity": "second"}
    assert identity_of({**headers, "x-own": "own"}, additionalSessionHeaders=["X-Own"]) == {"agent-identity": "own"}
    assert identity_of({"x-own": "own"}) == identity_of({}) == {}


@pytest.mark.parametrize(("length", "known"), [(4096, True), (4097, False)])
def test_an_identity_is_no_longer_than_an_attribute_may_be(length: int, known: bool) -> None:
    assert bool(identity_of({"session-id": "x" * length})) is known


@pytest.mark.parametrize(
    ("parameters", "path"),
    [
        ({"additionalSessionHeaders": ["x", ""]}, "additionalSessionHeaders[1]"),
        ({"additionalSessionHeaders": "x"}, "additionalSessionHeaders"),
        ({"headers": []}, "headers"),
    ],
)
def test_bad_parameters_of_the_identity_are_refused(parameters: dict[str, object], path: str) -> None:
    with PluginHarness(plugin) as harness, pytest.raises(ParameterError) as caught:
        harness.configure("ref", AGENT, parameters)
    assert caught.value.path == path
