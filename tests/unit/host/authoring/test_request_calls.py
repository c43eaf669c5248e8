"""Calls around the cycle, as `hotbay call` makes and reads them."""

import pytest
from hotbay.authoring.arguments import Batch
from hotbay.authoring.inputs import EndpointRow, read_requests
from hotbay.authoring.request_calls import (
    ANSWERED_POINTS,
    TOLD_POINTS,
    answered_rows,
    arguments_of,
    parse_arguments,
    read_answer,
    shown_parsed,
)
from hotbay.errors import PluginFault
from hotbay_sdk.protocol import TypeDeclaration, Value
from hotbay_sdk.protocol.calls import InstanceFacts

HANDLE = [1, 4]
FACTS = InstanceFacts(reads=("request.headers[x-b]",), request_headers=("x-a",))


def batch(point: str, **declared: object) -> Batch:
    requests = read_requests(
        "[{model: m, prompt: p}, {model: n, prompt: q}]", file="f", headers={"X-B": "1", "X-C": "2"}
    )
    declaration = TypeDeclaration("t", (point,), ("request.headers[*]",), **declared)  # type: ignore[arg-type]  # names of fields
    return Batch(declaration, (EndpointRow("a", {}), EndpointRow("b", {})), requests, facts=FACTS)


@pytest.mark.parametrize(
    ("point", "count"),
    [
        ("screen", 4),
        ("admit", 4),
        ("request_headers", 2),
        ("saturation", 2),
        ("pre_request", 4),
        ("response_headers", 3),
        ("response_body", 3),
    ],
)
def test_every_point_has_its_arguments(point: str, count: int) -> None:
    assert {*ANSWERED_POINTS, *TOLD_POINTS} >= {point}
    args = arguments_of(point, HANDLE, batch(point))
    assert (args[0], len(args)) == (HANDLE, count)
    if count > 2:
        assert args[-1] is not None
        assert isinstance(args[-1], list)


def test_what_an_instance_reads_crosses_beside_what_its_type_does() -> None:
    _, requests = arguments_of("request_headers", HANDLE, batch("request_headers"))
    assert isinstance(requests, list)
    assert requests[3] == {"request.headers[x-b]": ["1", "1"]}


@pytest.mark.parametrize(("claims", "path"), [((), "/v1/chat/completions"), (("/v1/x", "/v1/y"), "/v1/x")])
def test_a_parser_is_given_each_body_and_the_headers_that_it_reads(claims: tuple[str, ...], path: str) -> None:
    first, second = parse_arguments(HANDLE, batch("parse", claims=claims))
    assert first == [HANDLE, path, {"x-b": "1"}, b'{"model":"m","prompt":"p"}']
    assert second[3] == b'{"model":"n","prompt":"q"}'


@pytest.mark.parametrize(
    ("point", "result", "rows"),
    [
        ("screen", [b"\x01\x03", []], [["a"], ["a", "b"]]),
        (
            "admit",
            [[None, ["unavailable", "", "no"]], []],
            [
                {"admitted": True},
                {"status": 503, "code": "unavailable", "reason": "rejected-no-endpoints", "message": "no"},
            ],
        ),
        ("request_headers", [[None, {"attributes": {"a": 1}}], []], [{}, {"a": 1}]),
        ("pre_request", [[None, {"request": {"x-a": None}}], []], [{}, {"request": {"x-a": None}, "response": {}}]),
        ("saturation", 0.5, [{"saturation": 0.5}]),
    ],
)
def test_answers_are_shown_in_an_authors_words(point: str, result: Value, rows: list[object]) -> None:
    assert answered_rows(point, result, batch(point)) == rows


@pytest.mark.parametrize(
    ("point", "result"),
    [
        ("screen", [b"\x01", []]),
        ("admit", [[None], []]),
        ("admit", [["no", None], []]),
        ("request_headers", 3),
        ("pre_request", [[{"request": {"x-z": "1"}}, None], []]),
        ("saturation", -1.0),
        ("saturation", "full"),
    ],
)
def test_answers_of_another_form_are_faults_of_the_plugin(point: str, result: Value) -> None:
    with pytest.raises(PluginFault):
        answered_rows(point, result, batch(point))


def test_a_parsed_request_is_shown_whole_and_a_denial_with_its_status() -> None:
    assert shown_parsed({"model": "m", "stream": True}) == {
        "model": "m",
        "prompt": None,
        "messages": None,
        "stream": True,
        "max_tokens": None,
        "skip_response": False,
    }
    assert shown_parsed({"deny": ["not-found", "", ""]}) == {
        "status": 404,
        "code": "not-found",
        "reason": "denied",
        "message": "",
    }
    with pytest.raises(PluginFault, match="model is a name"):
        read_answer(shown_parsed, {})
