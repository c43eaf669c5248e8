"""Verdicts, attributes, parsed requests, edits: both sides of every limit, and no value that is not read or refused."""

from contextlib import suppress

import pytest
from hotbay_sdk.protocol.calls import InstanceFacts, column_name, declared_column, wildcard_of, wire_column
from hotbay_sdk.protocol.messages import MAX_MESSAGE_BYTES, MalformedMessageError
from hotbay_sdk.protocol.values import Value
from hotbay_sdk.protocol.verdicts import (
    DENY_CODES,
    MAX_ATTRIBUTE_BYTES,
    MAX_HEADER_VALUE_BYTES,
    MAX_MODEL_CHARS,
    MAX_REASON_CHARS,
    MAX_REQUEST_ATTRIBUTES,
    HeaderEdits,
    Parsed,
    Verdict,
    default_reason,
    is_header_name,
    is_header_value,
    is_reason,
    read_attributes,
    read_edits,
    read_parsed,
    read_verdict,
)
from hypothesis import given
from hypothesis import strategies as st

KEYS = ["attributes", "deny", "model", "prompt", "messages", "stream", "max_tokens", "request", "response", "x-a", "a"]
values: st.SearchStrategy[Value] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 2**64 - 1)
    | st.floats()
    | st.sampled_from([*DENY_CODES, "", "a-1", "x\n"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4),
    max_leaves=10,
)
HEADERS = frozenset({"x-a"})


@given(values)
def test_every_value_is_read_or_refused(value: Value) -> None:
    def edits(value: Value) -> object:
        return read_edits(value, request=HEADERS, response=HEADERS)

    for read in (read_verdict, read_attributes, read_parsed, InstanceFacts.from_wire, edits):
        with suppress(MalformedMessageError):
            read(value)


@given(st.sampled_from(sorted(DENY_CODES)), st.from_regex(r"[a-z0-9-]{1,64}", fullmatch=True), st.text(max_size=50))
def test_a_verdict_is_read_as_it_was_said(code: str, reason: str, message: str) -> None:
    verdict = read_verdict([code, reason, message])
    assert verdict == Verdict(code, reason, message)
    assert verdict.status == DENY_CODES[code]
    assert read_verdict([code, "", message]) == Verdict(code, default_reason(code), message)


def test_reasons_that_are_not_said_are_those_of_their_codes() -> None:
    assert {code: default_reason(code) for code in DENY_CODES} == {
        **dict.fromkeys(DENY_CODES, "denied"),
        "resource-exhausted": "rejected-saturated",
        "unavailable": "rejected-no-endpoints",
    }
    assert sorted(DENY_CODES.values()) == [400, 401, 403, 404, 412, 429, 500, 503]


@pytest.mark.parametrize(
    ("reason", "taken"),
    [
        ("a" * MAX_REASON_CHARS, True),
        ("a" * (MAX_REASON_CHARS + 1), False),
        ("a-0", True),
        ("A", False),
        ("a b", False),
        ("ä", False),
        ("", False),
    ],
)
def test_reasons_are_of_few_signs(reason: str, taken: bool) -> None:
    assert is_reason(reason) is taken


def test_a_message_is_bounded_on_both_sides() -> None:
    assert read_verdict(["internal", "", "ä" * (MAX_MESSAGE_BYTES // 2)])
    with pytest.raises(MalformedMessageError, match="at most 4096 bytes"):
        read_verdict(["internal", "", "ä" * (MAX_MESSAGE_BYTES // 2) + "b"])


@pytest.mark.parametrize(
    ("attributes", "taken"),
    [
        ({f"a{n}": n for n in range(MAX_REQUEST_ATTRIBUTES)}, True),
        ({f"a{n}": n for n in range(MAX_REQUEST_ATTRIBUTES + 1)}, False),
        ({"a": "x" * MAX_ATTRIBUTE_BYTES}, True),
        ({"a": "x" * (MAX_ATTRIBUTE_BYTES + 1)}, False),
        ({"a": 2**63 - 1}, True),
        ({"a": 2**63}, False),
        ({"a": True}, False),
        ({"a": None}, False),
        ({"a b": 1}, False),
        ({"llm-d.ai/role": 0.5}, True),
    ],
)
def test_attributes_are_bounded_on_both_sides(attributes: dict[str, Value], taken: bool) -> None:
    if taken:
        assert read_attributes({"attributes": attributes}) == attributes
    else:
        with pytest.raises(MalformedMessageError):
            read_attributes({"attributes": attributes})


parsed_requests = st.builds(
    Parsed,
    st.text(min_size=1, max_size=5),
    st.none() | st.text(max_size=5),
    st.none() | st.lists(st.just({"role": "user"}), max_size=2),
    st.booleans(),
    st.none() | st.integers(0, 2**63 - 1),
    st.booleans(),
)


@given(parsed_requests)
def test_a_parsed_request_is_read_as_it_was_said(parsed: Parsed) -> None:
    assert read_parsed(parsed.to_wire()) == parsed


@pytest.mark.parametrize(
    ("changed", "taken"),
    [
        ({"model": "m" * MAX_MODEL_CHARS}, True),
        ({"model": "m" * (MAX_MODEL_CHARS + 1)}, False),
        ({"max_tokens": -1}, False),
        ({"max_tokens": 2**63}, False),
        ({"max_tokens": True}, False),
        ({"stream": 1}, False),
        ({"messages": "hello"}, False),
    ],
)
def test_parsed_requests_are_bounded_on_both_sides(changed: dict[str, Value], taken: bool) -> None:
    body = {**Parsed("m").to_wire(), **changed}
    if taken:
        assert read_parsed(body)
    else:
        with pytest.raises(MalformedMessageError):
            read_parsed(body)


@pytest.mark.parametrize(
    ("name", "taken"),
    [("x-a", True), ("X-A", False), ("x a", False), ("", False), ("x" * 128, True), ("x" * 129, False), ("ä", False)],
)
def test_names_of_headers(name: str, taken: bool) -> None:
    assert is_header_name(name) is taken


@pytest.mark.parametrize(
    ("value", "taken"),
    [
        ("", True),
        ("a b\tc", True),
        ("a\r\nx-b: c", False),
        ("a\0", False),
        ("a\x7f", False),
        (" a", False),
        ("a" * MAX_HEADER_VALUE_BYTES, True),
        ("a" * (MAX_HEADER_VALUE_BYTES + 1), False),
        (b"a", False),
    ],
)
def test_values_of_headers_hold_nothing_that_ends_them(value: object, taken: bool) -> None:
    assert is_header_value(value) is taken


def test_edits_are_of_the_headers_that_were_named() -> None:
    assert read_edits({"request": {"x-a": None}}, request=HEADERS, response=frozenset()) == HeaderEdits(
        {"x-a": None}, {}
    )
    with pytest.raises(MalformedMessageError, match="sets_response_headers does not name it"):
        read_edits({"response": {"x-a": "1"}}, request=HEADERS, response=frozenset())
    with pytest.raises(MalformedMessageError, match="a header of the response is text"):
        read_edits({"response": {"x-a": None}}, request=HEADERS, response=HEADERS)


@pytest.mark.parametrize(
    ("name", "column"),
    [
        ("Key.field", ("Key", "", "field")),
        ("Key.a.b", ("Key", "", "a.b")),
        ("Key/mine.field", ("Key", "mine", "field")),
        ("Key/my.own/one.field", ("Key", "my.own/one", "field")),
        ("Key", None),
        ("Key.", None),
        (".field", None),
        ("Key/field", None),
        ("Key/.field", None),
        ("/mine.field", None),
        ("K.e/mine.field", None),
        ("*", None),
    ],
)
def test_names_of_data_columns(name: str, column: tuple[str, str, str] | None) -> None:
    assert column_name(name) == column


@given(
    st.from_regex(r"[A-Z]\w{0,5}(/[\w.-]{1,6})?\.[a-z]{1,4}", fullmatch=True),
    st.sampled_from(["row", "request", "text"]),
)
def test_the_name_on_the_wire_says_the_scope(name: str, scope: str) -> None:
    assert declared_column(wire_column(name, scope)) == (name, scope)


@pytest.mark.parametrize(
    ("name", "wildcard"),
    [
        ("request.headers[x-a]", "request.headers[*]"),
        ("request.attributes[tier]", "request.attributes[*]"),
        ("response.headers[x-a]", "response.headers[*]"),
        ("attribute.load", "attribute.*"),
        ("endpoint.waiting", None),
        ("request.prompt", None),
    ],
)
def test_wildcards(name: str, wildcard: str | None) -> None:
    assert wildcard_of(name) == wildcard


facts = st.builds(
    InstanceFacts,
    st.none() | st.integers(1, 99),
    *[st.lists(st.text(min_size=1, max_size=4), max_size=3).map(tuple)] * 5,
)


@given(facts)
def test_facts_of_instances_are_read_as_they_were_said(said: InstanceFacts) -> None:
    body = said.to_wire()
    assert InstanceFacts.from_wire(body) == said
    assert set(body) == {"block_tokens", *(name for name in InstanceFacts._fields[1:] if getattr(said, name))}
