"""Golden vectors of protocol version 1, to which every implementation in any language can be held.

`vectors/*.json` are lists of vectors. `frame` is the frame's bytes as [hex, comment] pairs, to be read by
people and joined by programs; `descriptors` says how many come with its first byte; `{"$bytes": hex}` stands for a bytes value. `sender` is who writes the frame, on
a fresh link, or after the call that `answers` names was made. A vector has either the `message` that the frame
says, which must come out of the bytes and go into the same bytes, or the `outcome` that it has with its
receiver. The vectors were written against the specification, not with this implementation.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hotbay_sdk._batch import take_view
from hotbay_sdk._columns import Columns
from hotbay_sdk._errors import CallFailedError
from hotbay_sdk.protocol import (
    METHODS,
    Armed,
    CallError,
    CallMeta,
    CallReceived,
    CallRefused,
    CancelReceived,
    Connection,
    CreditReceived,
    DataEnded,
    DataReceived,
    DescriptorsReceived,
    ErrorCode,
    ErrorReceived,
    Event,
    FrameSkipped,
    FrameType,
    GoAwayReceived,
    HandshakeReceived,
    Hello,
    LogReceived,
    Method,
    NoticeReceived,
    PingReceived,
    PongReceived,
    Ready,
    ReplyReceived,
    Role,
    StrayAnswer,
    ViolationFound,
    Welcome,
)
from hotbay_sdk.protocol.calls import SIDE_TABLES, UNKNOWN_CODE, Requests, View
from hotbay_sdk.protocol.tables import encode_table
from hotbay_sdk.protocol.verdicts import (
    Parsed,
    Verdict,
    read_attributes,
    read_edits,
    read_parsed,
    read_verdict,
)

FOLDER = Path(__file__).parent / "vectors"
METHOD_IDS = {spec.name: int(spec.method) for spec in METHODS.values()}
BODIES = {"ARMED": Armed, "HELLO": Hello, "WELCOME": Welcome, "READY": Ready}

PASSING = {"share"}
"""Calls with which descriptors go."""

Vector = dict[str, Any]


def plain(value: Any) -> Any:
    """A value as it crosses the wire, from its form in JSON."""
    if isinstance(value, dict):
        if "$bytes" in value:
            return bytes.fromhex(value["$bytes"])
        return {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, list) else value


VECTORS: dict[str, Vector] = {
    vector["name"]: {key: item if key == "frame" else plain(item) for key, item in vector.items()}
    for path in sorted(FOLDER.glob("*.json"))
    for vector in json.loads(path.read_text(encoding="utf-8"))
}
SPOKEN = [name for name, vector in VECTORS.items() if "message" in vector]
REFUSED = [name for name, vector in VECTORS.items() if "outcome" in vector]


def frame_of(vector: Vector) -> bytes:
    return b"".join(bytes.fromhex(text) for text, _comment in vector["frame"])


def ends(vector: Vector) -> tuple[Connection, Connection]:
    """(sender, receiver), with the call made that the vector answers."""
    host, plugin = Connection(Role.HOST), Connection(Role.PLUGIN)
    if "answers" in vector:
        call = VECTORS[vector["answers"]]
        caller, callee = (host, plugin) if call["sender"] == "host" else (plugin, host)
        if "descriptors" in call:
            callee.take_descriptors(tuple(range(call["descriptors"])))
        callee.feed(send(caller, call["message"]))
    return (host, plugin) if vector["sender"] == "host" else (plugin, host)


def stream_of(vector: Vector) -> int:
    """The first stream of the end that makes the call."""
    caller = VECTORS[vector["answers"]]["sender"] if "answers" in vector else vector["sender"]
    return 1 if caller == "host" else 2


def call_options(message: Vector) -> Vector:
    return {field: message[field] for field in CallMeta._fields[1:]}


def number(message: Vector) -> int:
    return METHOD_IDS[message["method"]]


SENDERS: dict[str, Callable[[Connection, Vector], bytes]] = {
    "handshake": lambda end, m: end.send_handshake(FrameType[m["type"]], m["body"]),
    "call": lambda end, m: end.start_call(number(m), m["args"], **call_options(m), descriptors=m["method"] in PASSING)[
        1
    ],
    "notice": lambda end, m: end.send_notice(number(m), m["args"], epoch=m["epoch"]),
    "reply": lambda end, m: end.send_reply(next(iter(end._incoming)), m["result"]),
    "error": lambda end, m: end.send_error(m["stream"], CallError.from_wire(m["error"])),
    "cancel": lambda end, m: end.cancel(m["stream"], m["reason"]),
    "ping": lambda end, m: end.send_ping(m["token"]),
    "pong": lambda end, m: end.send_pong(m["token"], m["facts"]),
    "goaway": lambda end, m: end.send_goaway(m["code"], m["message"]),
    "log": lambda end, m: end.send_log(m["record"]),
    "data": lambda end, m: end.data.send(m["stream"], m["data"]),
    "end": lambda end, m: end.data.send_end(m["stream"]),
    "credit": lambda end, m: credited(end, m["stream"], m["count"]),
}


def credited(end: Connection, stream: int, count: int) -> bytes:
    """The CREDIT frame of a receiver that consumed `count` bytes."""
    return end.data.consumed(stream, count)


EVENTS: dict[str, Callable[[Vector, int], Event]] = {
    "handshake": lambda m, _: HandshakeReceived(FrameType[m["type"]], m["body"]),
    "call": lambda m, stream: CallReceived(stream, CallMeta(number(m), **call_options(m)), m["args"]),
    "notice": lambda m, _: NoticeReceived(CallMeta(number(m), 0, None, None, 0, 0, m["epoch"]), m["args"]),
    "reply": lambda m, stream: ReplyReceived(stream, m["result"]),
    "error": lambda m, _: ErrorReceived(m["stream"], CallError.from_wire(m["error"])),
    "cancel": lambda m, _: CancelReceived(m["stream"], m["reason"]),
    "ping": lambda m, _: PingReceived(m["token"]),
    "pong": lambda m, _: PongReceived(m["token"], m["facts"]),
    "goaway": lambda m, _: GoAwayReceived(0, m["code"], m["message"]),
    "log": lambda m, _: LogReceived(m["record"]),
    "data": lambda m, _: DataReceived(m["stream"], m["data"]),
    "end": lambda m, _: DataEnded(m["stream"]),
    "credit": lambda m, _: CreditReceived(m["stream"]),
}


def send(end: Connection, message: Vector) -> bytes:
    return SENDERS[message["kind"]](end, message)


@pytest.mark.parametrize("name", SPOKEN)
def test_a_message_is_written_as_the_vector_says(name: str) -> None:
    vector = VECTORS[name]
    sender, _ = ends(vector)
    assert send(sender, vector["message"]).hex(" ") == frame_of(vector).hex(" ")


@pytest.mark.parametrize("name", SPOKEN)
def test_the_bytes_of_a_vector_are_read_as_its_message(name: str) -> None:
    vector = VECTORS[name]
    _, receiver = ends(vector)
    expected = [EVENTS[vector["message"]["kind"]](vector["message"], stream_of(vector))]
    if "descriptors" in vector:
        passed = tuple(range(vector["descriptors"]))
        receiver.take_descriptors(passed)
        expected.insert(0, DescriptorsReceived(stream_of(vector), passed))
    assert receiver.feed(frame_of(vector)) == expected


OUTCOMES: dict[str, type[Event]] = {
    "skipped": FrameSkipped,
    "stray": StrayAnswer,
    "failed": ErrorReceived,
    "refused": CallRefused,
    "violation": ViolationFound,
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_frame_that_is_not_served_has_the_outcome_of_its_vector(name: str) -> None:
    vector = VECTORS[name]
    _, receiver = ends(vector)
    (event,) = receiver.feed(frame_of(vector))
    outcome = OUTCOMES[vector["outcome"]]
    assert isinstance(event, outcome)
    if isinstance(event, ViolationFound):
        assert (event.code, vector["says"] in event.message) == (ErrorCode(vector["code"]), True)
    elif isinstance(event, ErrorReceived | CallRefused):
        assert (event.error.code, vector["says"] in event.error.message) == (ErrorCode(vector["code"]), True)


def test_the_comments_name_the_length_that_a_frame_has() -> None:
    for name in SPOKEN:
        frame = VECTORS[name]["frame"]
        assert frame[5][1] == f"length {sum(len(bytes.fromhex(text)) for text, _ in frame[6:])}", name


@pytest.mark.parametrize("name", [name for name in SPOKEN if VECTORS[name]["message"].get("type") in BODIES])
def test_handshake_bodies_are_those_of_the_messages(name: str) -> None:
    message = VECTORS[name]["message"]
    assert BODIES[message["type"]].from_wire(message["body"]).to_wire() == message["body"]


def test_views_and_requests_are_read_from_the_arguments() -> None:
    _, view, _, requests = VECTORS["run"]["message"]["args"]
    assert View.from_wire(view).ids == ["default/a", "", "default/b"]
    assert Requests.from_wire(requests).fields == {"request.model": ["m"]}
    assert View.from_wire(view).areas is None
    assert View.from_wire(VECTORS["run_shared"]["message"]["args"][1]).areas == [[3, 2, 9], [4, 0, 7]]


def test_side_tables_are_read_from_the_views_that_name_them() -> None:
    held = None
    rows = []
    for name in ("run_tables", "run_tables_added", "run_tables_held"):
        held = take_view(VECTORS[name]["message"]["args"][1], held)
        assert held.tables is not None
        read = Columns({}, held.rows, frozenset(SIDE_TABLES), "t", held.tables)
        table = read.table("endpoint.active_models")
        assert len(held.tables.by_name) == len(SIDE_TABLES)
        rows.append([None if code == UNKNOWN_CODE else dict(table.values[code]) for code in table.codes])
    assert rows == [[{"x": 2}, None, {}], [{"x": 3}, None, {}], [{"x": 3}, None, {}]]
    with pytest.raises(CallFailedError) as failed:
        take_view(VECTORS["run_tables_held"]["message"]["args"][1], None)
    assert failed.value.error.details == {"missing": "tables"}


def test_the_vector_of_all_side_tables_is_what_is_encoded() -> None:
    told = View.from_wire(VECTORS["run_tables"]["message"]["args"][1]).tables
    assert told is not None
    labels = {"zone": "a"}
    rows = {
        "endpoint.labels": [labels, None, labels],
        "endpoint.active_models": [{"x": 2}, None, {}],
        "endpoint.waiting_models": [None, None, None],
        "endpoint.model": ["m", None, "m"],
        "endpoint.engine": ["vllm", None, "sglang"],
        "endpoint.role": ["", None, ""],
        "endpoint.address": ["h:1", None, "h:2"],
    }
    assert told == [4, {name: encode_table(name, rows[name]) for name in SIDE_TABLES}]


def test_results_of_calls_around_the_cycle_are_read_as_both_ends_read_them() -> None:
    def result(name: str) -> Any:
        return VECTORS[f"{name}_reply"]["message"]["result"]

    assert [read_verdict(item) for item in result("admit")[0]] == [
        None,
        Verdict("resource-exhausted", "too-busy", "come back later"),
    ]
    attributes, nothing, denied = map(read_attributes, result("request_headers")[0])
    assert (attributes, nothing) == ({"tier": "gold", "weight": 2, "share": 0.5}, {})
    assert denied == Verdict("forbidden", "denied", "")
    assert read_parsed(result("parse")) == Parsed("m", "hello", None, True, 16)
    assert read_parsed(result("parse_denied")) == Verdict("bad-request", "empty-body", "the body is empty")
    headers = frozenset({"x-prefiller-host-port", "x-old"}), frozenset({"x-session-token"})
    edits = read_edits(result("pre_request_edits")[0][0], request=headers[0], response=headers[1])
    assert edits is not None
    assert (set(edits.request), set(edits.response)) == headers


def test_every_frame_type_and_every_method_has_a_vector() -> None:
    types = {frame_of(vector)[1] for vector in VECTORS.values() if len(vector["frame"]) > 1}
    assert types >= set(FrameType)
    methods = {name: vector["message"].get("method") for name, vector in VECTORS.items() if "message" in vector}
    assert set(methods.values()) >= set(METHOD_IDS)
    answered = {methods[v["answers"]] for v in VECTORS.values() if v.get("message", {}).get("kind") == "reply"}
    assert answered >= {spec.name for spec in METHODS.values() if spec.answered}
    told = {methods[name] for name, vector in VECTORS.items() if vector.get("message", {}).get("kind") == "notice"}
    assert told == {spec.name for spec in METHODS.values() if spec.one_way}


def test_method_ids_are_constants_of_the_version() -> None:
    assert {method.name: int(method) for method in Method} == {
        "RUN": 3,
        "PICK": 4,
        "PRODUCE": 5,
        "PROFILE_PICK": 6,
        "PROFILE_PROCESS": 7,
        "SCREEN": 8,
        "ADMIT": 9,
        "REQUEST_HEADERS": 10,
        "PARSE": 11,
        "PRE_REQUEST": 12,
        "RESPONSE_HEADERS": 13,
        "RESPONSE_BODY": 14,
        "SATURATION": 15,
        "POLL_EXTRACT": 20,
        "EVENT_EXTRACT": 21,
        "SOURCE_NOTIFY": 22,
        "DISCOVER": 23,
        "SOURCE_WATCH": 24,
        "SOURCE_POLL": 25,
        "CONFIGURE": 30,
        "EXPORT_STATE": 31,
        "IMPORT_STATE": 32,
        "DUMP_STATE": 35,
        "CHECK_READY": 36,
        "SHARE": 37,
        "LOG": 50,
        "METRIC": 51,
        "STORAGE_GET": 52,
        "STORAGE_PUT": 53,
        "SECRET": 54,
        "DIAL": 55,
        "ENDPOINTS": 56,
        "RECYCLE": 57,
        "NOW": 58,
        "RANDOM": 59,
    }
