"""Well-formed calls of every point, and the shapes of results on both sides of right."""

import struct

import pytest
from hotbay.conformance.calls import POINT_METHODS, Probe, Shape, choose
from hotbay.conformance.verdict import BrokenRuleError, InapplicableError
from hotbay_sdk.protocol import (
    CallError,
    ErrorCode,
    ErrorReceived,
    LateAnswerDropped,
    ReplyReceived,
    TypeDeclaration,
    Value,
)
from hypothesis import given
from hypothesis import strategies as st

ERROR = CallError(ErrorCode.PLUGIN_ERROR, "no").to_wire()


def probe(point: str, **declared: tuple[str, ...]) -> Probe:
    return Probe(TypeDeclaration("t", (point,), **declared), point, [7, 1], None)  # type: ignore[arg-type]  # names of fields


def good(point: str, shape: Shape) -> Value:
    """A result of the right shape."""
    numbers = struct.pack("<f", 0.5) * (shape.requests * shape.rows)
    results: dict[str, Value] = {
        "score": [None, numbers, []],
        "filter": [bytes(shape.requests * ((shape.rows + 7) // 8)), b"", []],
        "pick": [[[0]] * shape.requests, []],
        "produce": [{"K.a": numbers, "K.b/request": numbers[: 4 * shape.requests]}, []],
        "profile_handler": ["default"],
        "screen": [bytes(shape.requests * ((shape.rows + 7) // 8)), []],
        "admit": [[None, *[["forbidden", "", "no"]] * (shape.requests - 1)], []],
        "request_headers": [[None, *[{"attributes": {"a": 1}}] * (shape.requests - 1)], []],
        "saturation": 0.5,
        "parse": {"model": "m", "prompt": None, "stream": False},
    }
    return results[point]


@given(st.sampled_from(sorted(POINT_METHODS)), st.integers(1, 4), st.integers(1, 20))
def test_results_of_the_right_shape_are_taken(point: str, requests: int, rows: int) -> None:
    shape = Shape(requests, rows)
    produces = ("K.a", "K.b") if point == "produce" else ()
    probe(point, produces=produces).check(ReplyReceived(1, good(point, shape)), shape)


@pytest.mark.parametrize(
    ("point", "result"),
    [
        ("score", None),
        ("score", [None, b""]),
        ("score", [None, bytes(4), []]),
        ("score", [None, None, []]),
        ("score", [b"\0", bytes(8), []]),
        ("score", [None, bytes(8), None]),
        ("score", [None, bytes(8), [[0, 0]]]),
        ("score", [None, bytes(8), [[1, 0, ERROR]]]),
        ("score", [None, bytes(8), [[0, 1, ERROR]]]),
        ("score", [None, bytes(8), [[0, 0, 3]]]),
        ("filter", [None, b"", []]),
        ("filter", [b"\0\0", b"", []]),
        ("filter", [b"\0", bytes(8), []]),
        ("pick", [[[2]], []]),
        ("pick", [[[0, 0]], []]),
        ("pick", [[[True]], []]),
        ("pick", [[[0]], [], []]),
        ("pick", [[], []]),
        ("produce", [{}, []]),
        ("produce", [{"K.a": bytes(4)}, []]),
        ("produce", [[], []]),
        ("profile_handler", "default"),
        ("profile_handler", [3]),
        ("screen", [b"", []]),
        ("screen", [b"\0"]),
        ("admit", [[], []]),
        ("admit", [["no"], []]),
        ("admit", [[["teapot", "", ""]], []]),
        ("admit", [[["forbidden", "No Way", ""]], []]),
        ("request_headers", [[{"attributes": {"a": [1]}}], []]),
        ("request_headers", [[{"other": 1}], []]),
        ("request_headers", [[{"deny": None}], []]),
        ("saturation", 1),
        ("saturation", -0.5),
        ("saturation", float("nan")),
        ("parse", {}),
        ("parse", {"model": ""}),
        ("parse", {"model": "m", "prompt": 3}),
        ("parse", {"deny": ["forbidden", "", 3]}),
    ],
)
def test_results_of_another_shape_are_broken(point: str, result: Value) -> None:
    produces = ("K.a",) if point == "produce" else ()
    with pytest.raises(BrokenRuleError):
        probe(point, produces=produces).check(ReplyReceived(1, result), Shape(1, 2))


def test_errors_of_single_requests_are_no_break_of_the_protocol() -> None:
    result: Value = [None, bytes(8), [[0, -1, ERROR], [0, 0, ERROR]]]
    probe("score").check(ReplyReceived(1, result), Shape(1, 2))


def test_what_raised_in_a_call_that_has_no_errors_of_single_requests_is_no_break() -> None:
    for point in ("profile_handler", "saturation", "parse"):
        probe(point).check(ErrorReceived(1, CallError(ErrorCode.PLUGIN_ERROR, "no")), Shape())
        with pytest.raises(BrokenRuleError):
            probe(point).check(ErrorReceived(1, CallError(ErrorCode.UNAVAILABLE, "no")), Shape())


def test_a_call_that_fails_as_a_whole_or_is_late_is_broken() -> None:
    for answer in (ErrorReceived(1, CallError(ErrorCode.PLUGIN_ERROR, "no")), LateAnswerDropped(1)):
        with pytest.raises(BrokenRuleError):
            probe("score").check(answer, Shape())


def test_a_type_that_only_listens_is_probed_by_an_error() -> None:
    listener = TypeDeclaration("t", ("pre_request",))
    declaration, point = choose((listener,))
    assert (declaration, point) == (listener, "")
    silent = Probe(listener, point, [7, 0], None)
    silent.check(ErrorReceived(1, CallError(ErrorCode.PROTOCOL_VIOLATION, "no")), Shape())
    with pytest.raises(BrokenRuleError):
        silent.check(ReplyReceived(1, None), Shape())
    with pytest.raises(InapplicableError):
        silent.needs_endpoints()
    with pytest.raises(InapplicableError):
        silent.needs_view()
    probe("saturation").needs_view()
    probe("profile_handler").needs_view()


def test_a_type_that_scores_is_preferred() -> None:
    picker, scorer = TypeDeclaration("p", ("pick",)), TypeDeclaration("s", ("filter", "score"))
    assert choose((picker, scorer)) == (scorer, "score")


def test_declared_columns_fields_and_data_cross_and_no_others() -> None:
    reads = ("endpoint.waiting", "endpoint.num_blocks", "request.prompt", "request.prompt_hashes")
    declared = TypeDeclaration("t", ("score",), reads, ("K.a",))
    steps, view, candidates, requests = Probe(declared, "score", [7, 1], 16).arguments(Shape(2, 3, free_row=True), 5)
    assert steps == [[2, [7, 1]]]
    assert candidates is None
    assert isinstance(view, list)
    assert isinstance(requests, list)
    assert view[:4] == [5, 3, 5, ["default/0", "default/1", ""]]
    assert isinstance(view[4], dict)
    assert {name: len(raw) for name, raw in view[4].items()} == {"endpoint.waiting": 12, "endpoint.num_blocks": 24}
    assert isinstance(requests[3], dict)
    assert set(requests[3]) == {"request.prompt", "request.prompt_hashes/16"}
    assert isinstance(requests[4], dict)
    assert {name: len(raw) for name, raw in requests[4].items()} == {"K.a": 24}


def test_attributes_are_columns_of_the_view_and_no_fields_of_requests() -> None:
    reads = ("attribute.gpu.load", "attribute.odd/i64", "endpoint.block_size", "request.model")
    _, view, _, requests = probe("score", reads=reads).arguments(Shape(1, 3), 5)
    assert isinstance(view, list)
    assert isinstance(requests, list)
    assert view[4] == {
        "attribute.gpu.load": struct.pack("<3f", 0.5, 0.5, 0.5),
        "endpoint.block_size": struct.pack("<3q", 16, 16, 16),
    }
    assert requests[3] == {"request.model": ["model"]}


def test_side_tables_are_tables_of_the_view_and_neither_columns_nor_fields() -> None:
    reads = ("endpoint.labels", "endpoint.waiting_models", "endpoint.role", "request.model")
    _, view, _, requests = probe("score", reads=reads).arguments(Shape(1, 3, free_row=True), 5)
    assert isinstance(view, list)
    assert isinstance(requests, list)
    assert (view[:3], view[4:6]) == ([5, 3, 5], [{}, None])
    codes = struct.pack("<3I", 0, 0, 0xFFFFFFFF)
    assert view[6] == [
        5,
        {
            "endpoint.labels": [[{"llm-d.ai/role": "decode", "team": "a"}], codes],
            "endpoint.waiting_models": [[[["adapter", 2]]], codes],
            "endpoint.role": [["decode"], codes],
        },
    ]
    assert requests[3] == {"request.model": ["model"]}
