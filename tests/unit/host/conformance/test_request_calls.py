"""Calls around the cycle: their arguments, and what is wrong with declarations and facts, on both sides of right."""

import pytest
from hotbay.conformance.calls import Shape
from hotbay.conformance.request_calls import REQUEST_POINTS, RequestProbe, misfit, unfit_facts
from hotbay.conformance.verdict import BrokenRuleError
from hotbay_sdk.protocol import CallError, ErrorCode, ErrorReceived, LateAnswerDropped, ReplyReceived, TypeDeclaration
from hotbay_sdk.protocol.calls import InstanceFacts

SETS = InstanceFacts(request_headers=("x-a",), response_headers=("x-b",))


def probe(point: str, facts: InstanceFacts = InstanceFacts(), **declared: object) -> RequestProbe:  # noqa: B008  # a constant
    return RequestProbe(TypeDeclaration("t", (point,), **declared), point, [7, 1], facts)  # type: ignore[arg-type]  # names of fields


@pytest.mark.parametrize("point", REQUEST_POINTS)
def test_every_point_is_called_with_its_handle_first(point: str) -> None:
    args = probe(point).arguments(Shape(2, 3), 5)
    assert args[0] == [7, 1]
    lengths = {"screen": 4, "admit": 4, "request_headers": 2, "parse": 4, "saturation": 2, "profile_handler": 5}
    assert len(args) == {**lengths, "pre_request": 4, "response_headers": 3, "response_body": 3, "dump_state": 1}[point]


def test_a_parser_is_called_on_a_path_that_it_claims() -> None:
    assert probe("parse", claims=("/v1/x",)).arguments(Shape(), 1)[1] == "/v1/x"


@pytest.mark.parametrize(
    ("facts", "edits", "taken"),
    [
        (SETS, [{"request": {"x-a": "1"}, "response": {"x-b": ""}}], True),
        (SETS, [{"request": {"x-a": None}}], True),
        (SETS, [None], True),
        (SETS, [{"request": {"x-b": "1"}}], False),
        (SETS, [{"response": {"x-b": None}}], False),
        (SETS, [{"request": {"x-a": "a\nb"}}], False),
        (SETS, [], False),
        (SETS, [{"other": {}}], False),
    ],
)
def test_edits_are_of_headers_that_the_instance_names(facts: InstanceFacts, edits: list, taken: bool) -> None:
    answer = ReplyReceived(1, [edits, []])
    if taken:
        probe("pre_request", facts).check(answer, Shape())
    else:
        with pytest.raises(BrokenRuleError):
            probe("pre_request", facts).check(answer, Shape())


def test_only_what_sets_headers_answers_pre_request() -> None:
    assert probe("pre_request", SETS).answers
    assert not probe("pre_request").answers
    assert not probe("response_body").answers


def test_errors_of_the_authors_code_are_no_break_and_others_are() -> None:
    raised = ErrorReceived(1, CallError(ErrorCode.PLUGIN_ERROR, "no"))
    probe("pre_request", SETS).check(raised, Shape())
    probe("dump_state").check(raised, Shape())
    for answer in (ErrorReceived(1, CallError(ErrorCode.UNAVAILABLE, "no")), LateAnswerDropped(1)):
        with pytest.raises(BrokenRuleError):
            probe("pre_request", SETS).check(answer, Shape())


@pytest.mark.parametrize(
    ("points", "declared", "wrong"),
    [
        (("filter",), {"drained": "ineligible"}, ""),
        (("score",), {"drained": "ineligible"}, "drained"),
        (("parse",), {"claims": ("/v1/x",)}, ""),
        (("parse",), {"claims": ("v1",)}, "'v1'"),
        (("score",), {"claims": ("/v1/x",)}, "claims"),
        (("response_body",), {"every_chunk": True}, ""),
        (("pre_request",), {"every_chunk": True}, "every_chunk"),
        (("score",), {"consumes": ("K.a", "K/p.a", "*"), "optional": ("K/p-1.a",)}, ""),
        (("score",), {"consumes": ("K",)}, "'K'"),
        (("score",), {"optional": ("K/a",)}, "'K/a'"),
        (("produce",), {"produces": ("K/p.a",)}, "'K/p.a'"),
        (("produce",), {"produces": ("K.a",)}, ""),
    ],
)
def test_declarations_on_both_sides(points: tuple[str, ...], declared: dict, wrong: str) -> None:
    found = misfit(TypeDeclaration("t", points, **declared))
    assert wrong in found if wrong else found == ""


@pytest.mark.parametrize(
    ("facts", "wrong"),
    [
        (InstanceFacts(reads=("request.headers[x-a]", "attribute.load"), consumes=("K.b",)), ""),
        (InstanceFacts(reads=("request.attributes[a]",)), "reads 'request.attributes[a]'"),
        (InstanceFacts(reads=("endpoint.waiting",)), "reads 'endpoint.waiting'"),
        (InstanceFacts(optional=("K",)), "consumes 'K'"),
        (InstanceFacts(request_headers=("X-A",)), "sets the header 'X-A'"),
        (InstanceFacts(request_headers=("x-a", "host")), "sets the header 'host', which only the host sets"),
        (InstanceFacts(response_headers=("te",)), "sets the header 'te', which only the host sets"),
        (SETS, ""),
    ],
)
def test_facts_on_both_sides(facts: InstanceFacts, wrong: str) -> None:
    declared = TypeDeclaration("t", ("pre_request",), ("request.headers[*]", "attribute.*"), ("*",))
    found = unfit_facts(declared, facts)
    assert wrong in found if wrong else found == ""


def test_only_a_pre_request_sets_headers_and_only_a_wildcard_allows_columns() -> None:
    declared = TypeDeclaration("t", ("score",), consumes=("K.a",))
    assert unfit_facts(declared, SETS) == "sets headers, and does not answer pre_request"
    assert unfit_facts(declared, InstanceFacts(consumes=("K.a",))) == ""
    assert "K.b" in unfit_facts(declared, InstanceFacts(consumes=("K.b",)))
