"""What the rules of the data layer take for a good answer, on both sides of every limit."""

import pytest
from hotbay.conformance.data_calls import DataProbe, data_points, misfit
from hotbay.conformance.verdict import BrokenRuleError
from hotbay_sdk.protocol import CallError, ErrorCode, ErrorReceived, Method, ReplyReceived, TypeDeclaration, Value
from hotbay_sdk.protocol.handshake import DataDeclaration

MANY = {"all": "value", "depth": "f32", "number": "i64"}


def declared(
    point: str, payload: str = "", attributes: dict[str, str] | None = None, **more: object
) -> TypeDeclaration:
    data = DataDeclaration(payload, attributes=attributes or {}, **more)  # type: ignore[arg-type]  # of tests
    return TypeDeclaration("a-type", (point,), data=data)


def probe(point: str, payload: str = "", attributes: dict[str, str] | None = None) -> DataProbe:
    return DataProbe(declared(point, payload, attributes), point, [7, 1])


def judged(asked: DataProbe, result: Value) -> bool:
    return asked.check(ReplyReceived(1, result), asked.calls()[0])


POLLED = probe("extract", "metrics", MANY)
TOLD = probe("extract", "endpoint", MANY)


@pytest.mark.parametrize(
    "result",
    [
        {},
        {"depth": None, "all": None},
        {"depth": 1, "number": -(2**63)},
        {"depth": 1.5, "number": 2**63 - 1},
        {"all": {"a": [1, b"x", "y", True]}},
        {"all": "x" * 65_536},
    ],
)
def test_attributes_of_the_declared_kinds_are_taken(result: Value) -> None:
    assert judged(POLLED, result)


@pytest.mark.parametrize(
    ("result", "reason"),
    [
        (None, "expected a map of attributes, found nil"),
        ({"other": 1}, "attribute 'other', and the type declares all, depth, number"),
        ({"depth": True}, "bool as attribute depth of kind f32"),
        ({"depth": "1"}, "str as attribute depth of kind f32"),
        ({"number": 1.0}, "float as attribute number of kind i64"),
        ({"number": 2**63}, "int as attribute number of kind i64"),
        ({"all": "x" * 65_537}, "attribute all of 65537 bytes"),
        ({"all": {"a": [None]}}, "attribute all has nil inside"),
    ],
)
def test_other_attributes_break_the_rule(result: Value, reason: str) -> None:
    with pytest.raises(BrokenRuleError, match=reason):
        judged(POLLED, result)


@pytest.mark.parametrize(("each", "is_good"), [(65_532, True), (65_533, False)])
def test_attributes_of_one_endpoint_have_a_size_together(each: int, is_good: bool) -> None:
    # Names of four letters, so that each counts four bytes more.
    names = [f"val{n}" for n in range(4)]
    asked = probe("extract", "json", dict.fromkeys(names, "value"))
    result: Value = dict.fromkeys(names, "x" * each)
    if is_good:
        assert judged(asked, result)
    else:
        with pytest.raises(BrokenRuleError, match="at most 262144 are kept of one endpoint"):
            judged(asked, result)


@pytest.mark.parametrize(
    ("result", "reason"),
    [
        ({"number": 1}, "endpoint 'number': expected a map of attributes, found int"),
        ([], "expected a map from endpoint ids to attributes, found list"),
        ({"": {}}, "an endpoint id of 0 characters"),
        ({"x" * 513: {}}, "an endpoint id of 513 characters"),
        ({str(n): {} for n in range(10_001)}, "10001 endpoints, at most 10000"),
    ],
)
def test_what_an_extractor_of_events_may_not_say(result: Value, reason: str) -> None:
    with pytest.raises(BrokenRuleError, match=reason):
        judged(TOLD, result)


@pytest.mark.parametrize("result", [{"x" * 512: {"number": 1}}, {str(n): {} for n in range(10_000)}])
def test_what_it_may(result: Value) -> None:
    assert judged(TOLD, result)


def test_a_source_gives_back_an_event_of_the_same_thing_or_nothing() -> None:
    asked = probe("source", "endpoint")
    (_, number, event), *_ = asked.calls()
    assert number == 5
    assert isinstance(event, dict)
    assert judged(asked, None)
    assert judged(asked, event | {"type": "delete"})
    for wrong, reason in (
        (event | {"type": "moved"}, "an event of type 'moved'"),
        (event | {"endpoint": None}, "the event has no endpoint"),
        (event | {"endpoint": {"id": "default/other"}}, "an event of another endpoint"),
        (event | {"endpoint": {"id": "default/conformance", "labels": {"a": 1}}}, "labels are a map of texts"),
        (True, "expected the event or nil, found bool"),
    ):
        with pytest.raises(BrokenRuleError, match=reason):
            judged(asked, wrong)


@pytest.mark.parametrize(
    ("payload", "good", "bad"),
    [
        ("text", "x", b"x"),
        ("bytes", b"x", "x"),
        ("metrics", b"a 1\n", ["a 1"]),
        ("models", [{"id": "m"}, {"id": "a", "parent": "m"}], [{"parent": "m"}]),
        ("json", None, ...),
    ],
)
def test_what_polls_brings_its_payload(payload: str, good: Value, bad: Value) -> None:
    asked = probe("poll", payload)
    assert judged(asked, good)
    if bad is not ...:
        with pytest.raises(BrokenRuleError, match=payload):
            judged(asked, bad)


def test_an_error_of_the_authors_is_no_broken_rule_and_any_other_is() -> None:
    args = POLLED.calls()[0]
    assert not POLLED.check(ErrorReceived(1, CallError(ErrorCode.PLUGIN_ERROR, "KeyError")), args)
    with pytest.raises(BrokenRuleError, match="failed with BAD_RESULT"):
        POLLED.check(ErrorReceived(1, CallError(ErrorCode.BAD_RESULT, "not declared")), args)


@pytest.mark.parametrize(
    ("point", "payload", "method"),
    [
        ("extract", "metrics", Method.POLL_EXTRACT),
        ("extract", "endpoint", Method.EVENT_EXTRACT),
        ("extract", "object:/v1/Pod", Method.EVENT_EXTRACT),
        ("source", "object:apps/v1/Deployment", Method.SOURCE_NOTIFY),
        ("discover", "", Method.DISCOVER),
        ("watch", "object:/v1/Pod", Method.SOURCE_WATCH),
        ("poll", "json", Method.SOURCE_POLL),
    ],
)
def test_each_point_is_called_by_its_method_with_its_handle(point: str, payload: str, method: Method) -> None:
    made = declared(point, payload, MANY if point == "extract" else None)
    assert misfit(made, point) == ""
    assert [*data_points([made])] == [(made, point)]
    asked = DataProbe(made, point, [7, 1])
    assert asked.method is method
    assert all(args[0] == [7, 1] for args in asked.calls())


@pytest.mark.parametrize(
    ("point", "payload"),
    [
        ("extract", "pages"),
        ("extract", ""),
        ("source", "metrics"),
        ("source", "object:v1/Pod"),
        ("watch", "endpoint"),
        ("watch", "object:a/b/"),
        ("poll", "endpoint"),
    ],
)
def test_payloads_of_no_use_to_a_point_are_told(point: str, payload: str) -> None:
    assert misfit(declared(point, payload, MANY), point) == f"payload {payload!r}"


def test_families_are_of_metrics_and_an_extractor_has_attributes() -> None:
    assert misfit(declared("extract", "metrics"), "extract") == "no attributes"
    assert "families" in misfit(declared("extract", "json", MANY, families=("a",)), "extract")
    assert misfit(declared("extract", "metrics", MANY, families=("a",)), "extract") == ""


def test_a_reply_is_bound_by_what_was_declared() -> None:
    numbers = probe("extract", "metrics", {"four": "f32"})
    assert numbers.reply_limit == 4096 + 4 + 16 + 16
    assert probe("extract", "metrics", {"four": "value"}).reply_limit == 4096 + 4 + 16 + 65_536
    assert probe("extract", "json", dict.fromkeys("abcde", "value")).reply_limit == 256 * 1024
    assert probe("poll", "text").reply_limit > probe("poll", "json").reply_limit == 256 * 1024
