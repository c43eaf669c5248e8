"""Bodies of frames: what is written is read again, and what is malformed is told as such."""

import contextlib

import pytest
from hotbay_sdk.protocol import (
    METHODS,
    Armed,
    CallError,
    DataDeclaration,
    ErrorCode,
    Executed,
    Hello,
    MalformedMessageError,
    Method,
    Ready,
    TypeDeclaration,
    Value,
    Welcome,
)
from hotbay_sdk.protocol.frames import MAX_FRAME_BYTES
from hotbay_sdk.protocol.handshake import (
    ATTRIBUTE_KINDS,
    DRAINED,
    MAX_ATTRIBUTE_CHARS,
    MAX_ATTRIBUTES,
    MAX_INTERVAL_MS,
    MAX_NAME_CHARS,
    MAX_NAMES,
    MAX_PAYLOAD_CHARS,
    MIN_INTERVAL_MS,
    NO_DATA,
    NO_RANGE,
)
from hotbay_sdk.protocol.messages import MAX_MESSAGE_BYTES, MAX_TRACEBACK_BYTES
from hypothesis import given
from hypothesis import strategies as st

names = st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=10), max_size=4).map(tuple)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=10)
wholes = st.integers(0, 2**63)
state_versions = st.lists(st.integers(1, 9), max_size=3).map(tuple)
attribute_names = st.text("az09_.:/-", min_size=1, max_size=6)
data_declarations = st.builds(
    DataDeclaration,
    texts,
    names,
    st.dictionaries(attribute_names, st.sampled_from(ATTRIBUTE_KINDS), max_size=3),
    texts,
)
declarations = st.builds(
    TypeDeclaration,
    texts,
    names,
    names,
    names,
    names,
    st.booleans(),
    st.integers(1, 64),
    state_versions,
    st.booleans(),
    data_declarations,
    names,
    st.sampled_from(DRAINED),
    names,
    st.booleans(),
)
messages = st.one_of(
    st.builds(Armed, texts, names),
    st.builds(Hello, st.tuples(st.integers(1, 3), st.integers(3, 5)), texts, texts, names),
    st.builds(Welcome, wholes, wholes, wholes, texts, names, st.booleans()),
    st.builds(Ready, st.lists(declarations, max_size=3).map(tuple), texts),
    st.builds(
        CallError,
        st.sampled_from(list(ErrorCode)),
        texts,
        st.booleans(),
        st.sampled_from(list(Executed)),
        st.dictionaries(texts, st.integers() | texts),
    ),
)
PARSERS = (Armed, Hello, Welcome, TypeDeclaration, Ready, CallError)
keys = st.sampled_from(sorted({field for record in (*PARSERS, DataDeclaration) for field in record._fields}))
values: st.SearchStrategy[Value] = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 2**64 - 1) | st.floats() | st.text(max_size=5) | st.binary(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=6),
    max_leaves=12,
)


@given(messages)
def test_messages_round_trip(message: Armed | Hello | Welcome | Ready | CallError) -> None:
    assert type(message).from_wire(message.to_wire()) == message


@given(st.sampled_from(PARSERS), values)
def test_any_value_is_read_or_told_to_be_malformed(parser: type[Armed], value: Value) -> None:
    with contextlib.suppress(MalformedMessageError):
        parser.from_wire(value)


@given(messages, st.data())
def test_a_message_with_one_field_changed_is_read_or_told_to_be_malformed(message: Armed, data: st.DataObject) -> None:
    body = message.to_wire()
    body[data.draw(st.sampled_from(sorted(body)))] = data.draw(values)
    with contextlib.suppress(MalformedMessageError):
        type(message).from_wire(body)


def test_an_unknown_code_is_a_plugin_error_that_keeps_its_spelling() -> None:
    error = CallError.from_wire({"code": "ODD" * 100})
    assert error.code is ErrorCode.PLUGIN_ERROR
    assert error.details == {"code": ("ODD" * 100)[:64]}
    assert error.executed is Executed.MAYBE


@pytest.mark.parametrize(("field", "limit"), [("message", MAX_MESSAGE_BYTES), ("traceback", MAX_TRACEBACK_BYTES)])
@pytest.mark.parametrize("letter", ["x", "é", "€", "😀"])
def test_texts_of_an_error_are_cut_to_their_limits_by_either_end(field: str, limit: int, letter: str) -> None:
    fits = letter * (limit // len(letter.encode()))
    for text, expected in ((fits, fits), (fits + letter, fits)):
        sent = CallError(ErrorCode.CRASHED, "")._replace(**{field: text}).to_wire()
        assert sent[field] == expected
        read = CallError.from_wire({"code": "CRASHED", field: text})
        assert getattr(read, field) == expected


def test_lone_surrogates_of_an_error_are_replaced() -> None:
    assert CallError(ErrorCode.CRASHED, "a\ud800b").to_wire()["message"] == "a?b"


@pytest.mark.parametrize(
    ("names", "taken"),
    [
        (["x"] * MAX_NAMES, True),
        (["x"] * (MAX_NAMES + 1), False),
        (["x" * MAX_NAME_CHARS], True),
        (["x" * (MAX_NAME_CHARS + 1)], False),
        ([""], False),
        ([1], False),
    ],
)
def test_lists_of_names_are_bounded_on_both_sides(names: list[Value], taken: bool) -> None:
    body: dict[str, Value] = {"incarnation": "a", "enforced": names}
    if taken:
        assert Armed.from_wire(body).enforced == tuple(names)
    else:
        with pytest.raises(MalformedMessageError):
            Armed.from_wire(body)


@pytest.mark.parametrize("count", [MAX_NAMES, MAX_NAMES + 1])
def test_types_of_a_plugin_are_bounded_on_both_sides(count: int) -> None:
    body: dict[str, Value] = {"types": [{"type": "a"}] * count}
    if count == MAX_NAMES:
        assert len(Ready.from_wire(body).types) == count
    else:
        with pytest.raises(MalformedMessageError):
            Ready.from_wire(body)


@pytest.mark.parametrize("versions", [[], [1], [2, 1], [0, 1], [0, 0], [1, 1, 1], [1.0, 2], [True, 1], "12", 0, None])
def test_r17_range_of_versions_that_cannot_be_read_holds_no_hosts(versions: Value) -> None:
    assert Hello.from_wire({"protocol": versions, "sdk": "", "language": ""}).protocol == NO_RANGE


def test_r17_hello_without_optionals_and_with_extras_is_read() -> None:
    assert Hello.from_wire({"protocol": [1, 99], "later": [1]}) == Hello((1, 99), "", "")
    assert Hello.from_wire({}).protocol == NO_RANGE


@pytest.mark.parametrize(("concurrency", "taken"), [(0, False), (1, True), (64, True), (65, False)])
def test_concurrency_of_a_type_is_bounded_on_both_sides(concurrency: int, taken: bool) -> None:
    if taken:
        assert TypeDeclaration.from_wire({"type": "a", "concurrency": concurrency}).concurrency == concurrency
    else:
        with pytest.raises(MalformedMessageError):
            TypeDeclaration.from_wire({"type": "a", "concurrency": concurrency})


@pytest.mark.parametrize(
    ("versions", "taken"), [([1, 2**31 - 1], True), ([2**31], False), ([0], False), (["1"], False), ("1", False)]
)
def test_state_versions_of_a_type_are_checked(versions: Value, taken: bool) -> None:
    body: dict[str, Value] = {"type": "a", "state_versions": versions}
    if taken:
        assert TypeDeclaration.from_wire(body).state_versions == (1, 2**31 - 1)
    else:
        with pytest.raises(MalformedMessageError):
            TypeDeclaration.from_wire(body)


def test_every_method_has_a_deadline_and_limits_that_a_frame_can_carry() -> None:
    assert set(METHODS) == set(Method)
    for spec in METHODS.values():
        assert spec.deadline_ms > 0
        assert 0 < spec.request_bytes <= MAX_FRAME_BYTES
        assert (spec.reply_bytes > 0) is spec.answered
        assert spec.answered or spec.one_way
        assert spec.reply_bytes <= MAX_FRAME_BYTES


def test_a_type_of_an_older_peer_declares_nothing_of_the_data_layer() -> None:
    declared = TypeDeclaration.from_wire({"type": "a", "points": ["score"]})
    assert declared.data == NO_DATA
    assert (
        not {"payload", "families", "attributes", "default_source", "interval_ms", "data"} & declared.to_wire().keys()
    )


@pytest.mark.parametrize(
    ("fields", "taken"),
    [
        ({"attributes": {f"a{n}": "f32" for n in range(MAX_ATTRIBUTES)}}, True),
        ({"attributes": {f"a{n}": "f32" for n in range(MAX_ATTRIBUTES + 1)}}, False),
        ({"attributes": {"a" * MAX_ATTRIBUTE_CHARS: "i64"}}, True),
        ({"attributes": {"a" * (MAX_ATTRIBUTE_CHARS + 1): "i64"}}, False),
        ({"attributes": {"aZ0_.:/-": "value"}}, True),
        ({"attributes": {"": "value"}}, False),
        ({"attributes": {"ä": "value"}}, False),
        ({"attributes": {"a b": "value"}}, False),
        ({"attributes": {"a": "f64"}}, False),
        ({"attributes": ["a"]}, False),
        ({"payload": "x" * MAX_PAYLOAD_CHARS}, True),
        ({"payload": "x" * (MAX_PAYLOAD_CHARS + 1)}, False),
        ({"payload": 1}, False),
        ({"families": [""]}, False),
        ({"default_source": "x" * MAX_NAME_CHARS}, True),
        ({"default_source": "x" * (MAX_NAME_CHARS + 1)}, False),
        ({"interval_ms": MIN_INTERVAL_MS}, True),
        ({"interval_ms": MIN_INTERVAL_MS - 1}, False),
        ({"interval_ms": MAX_INTERVAL_MS}, True),
        ({"interval_ms": MAX_INTERVAL_MS + 1}, False),
        ({"interval_ms": 1000.0}, False),
        ({"interval_ms": -1000}, False),
    ],
)
def test_what_a_type_of_the_data_layer_declares_is_bounded_on_both_sides(fields: dict[str, Value], taken: bool) -> None:
    body: dict[str, Value] = {"type": "a", "points": ["extract"], **fields}
    if taken:
        assert TypeDeclaration.from_wire(body).to_wire().items() >= fields.items()
    else:
        with pytest.raises(MalformedMessageError):
            TypeDeclaration.from_wire(body)
