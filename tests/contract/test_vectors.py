"""Golden vectors of protocol version 1, to which every implementation in any language can be held.

`vectors/*.json` are lists of vectors. `frame` is the frame's bytes as [hex, comment] pairs, to be read by
people and joined by programs; `{"$bytes": hex}` stands for a bytes value. `sender` is who writes the frame, on
a fresh link, or after the call that `answers` names. A vector has either the `message` that the frame
says, which must come out of the bytes and go into the same bytes, or the `outcome` that it has with its
receiver. The vectors were written against the specification, not with this implementation.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hotbay_sdk.protocol import (
    METHODS,
    Armed,
    CallError,
    CallMeta,
    CallReceived,
    CancelReceived,
    Connection,
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
    ViolationFound,
    Welcome,
)
from hotbay_sdk.protocol.calls import Requests, View

FOLDER = Path(__file__).parent / "vectors"
METHOD_IDS = {spec.name: int(spec.method) for spec in METHODS.values()}
BODIES = {"ARMED": Armed, "HELLO": Hello, "WELCOME": Welcome, "READY": Ready}

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
        plugin.feed(send(host, VECTORS[vector["answers"]]["message"]))
    return (host, plugin) if vector["sender"] == "host" else (plugin, host)


def call_options(message: Vector) -> Vector:
    return {field: message[field] for field in CallMeta._fields[1:]}


SENDERS: dict[str, Callable[[Connection, Vector], bytes]] = {
    "handshake": lambda end, m: end.send_handshake(FrameType[m["type"]], m["body"]),
    "call": lambda end, m: end.start_call(METHOD_IDS[m["method"]], m["args"], **call_options(m))[1],
    "notice": lambda end, m: end.send_notice(METHOD_IDS[m["method"]], m["args"], epoch=m["epoch"]),
    "reply": lambda end, m: end.send_reply(1, m["result"]),
    "error": lambda end, m: end.send_error(m["stream"], CallError.from_wire(m["error"])),
    "cancel": lambda end, m: end.cancel(m["stream"], m["reason"]),
    "ping": lambda end, m: end.send_ping(m["token"]),
    "pong": lambda end, m: end.send_pong(m["token"], m["facts"]),
    "goaway": lambda end, m: end.send_goaway(m["code"], m["message"]),
    "log": lambda end, m: end.send_log(m["record"]),
}

EVENTS: dict[str, Callable[[Vector], Event]] = {
    "handshake": lambda m: HandshakeReceived(FrameType[m["type"]], m["body"]),
    "call": lambda m: CallReceived(1, CallMeta(METHOD_IDS[m["method"]], **call_options(m)), m["args"]),
    "notice": lambda m: NoticeReceived(CallMeta(METHOD_IDS[m["method"]], 0, None, None, 0, 0, m["epoch"]), m["args"]),
    "reply": lambda m: ReplyReceived(1, m["result"]),
    "error": lambda m: ErrorReceived(m["stream"], CallError.from_wire(m["error"])),
    "cancel": lambda m: CancelReceived(m["stream"], m["reason"]),
    "ping": lambda m: PingReceived(m["token"]),
    "pong": lambda m: PongReceived(m["token"], m["facts"]),
    "goaway": lambda m: GoAwayReceived(0, m["code"], m["message"]),
    "log": lambda m: LogReceived(m["record"]),
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
    assert receiver.feed(frame_of(vector)) == [EVENTS[vector["message"]["kind"]](vector["message"])]


@pytest.mark.parametrize("name", REFUSED)
def test_a_frame_that_is_not_served_has_the_outcome_of_its_vector(name: str) -> None:
    vector = VECTORS[name]
    _, receiver = ends(vector)
    (event,) = receiver.feed(frame_of(vector))
    if vector["outcome"] == "skipped":
        assert isinstance(event, FrameSkipped)
    else:
        assert isinstance(event, ViolationFound)
        assert event.code is ErrorCode(vector["code"])
        assert vector["says"] in event.message


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


def test_every_frame_type_and_every_method_has_a_vector() -> None:
    types = {frame_of(vector)[1] for vector in VECTORS.values() if len(vector["frame"]) > 1}
    assert types >= set(FrameType)
    methods = {vector["message"].get("method") for vector in VECTORS.values() if "message" in vector}
    assert methods >= set(METHOD_IDS)
    answered = {vector.get("answers") for vector in VECTORS.values()}
    assert answered >= {spec.name for spec in METHODS.values() if not spec.one_way}


def test_method_ids_are_constants_of_the_version() -> None:
    assert {method.name: int(method) for method in Method} == {
        "RUN": 3,
        "PICK": 4,
        "PRODUCE": 5,
        "PROFILE_PICK": 6,
        "PROFILE_PROCESS": 7,
        "PRE_REQUEST": 12,
        "CONFIGURE": 30,
        "CHECK_READY": 36,
    }
