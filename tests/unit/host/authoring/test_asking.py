"""What a file stands for in calls of the data layer, and how their answers are read."""

from pathlib import Path

import pytest
from hotbay.authoring.asking import DROPPED, Asked, asked_of
from hotbay.config.file_content import FileContent
from hotbay.errors import InputError, PluginFault
from hotbay_sdk.protocol import Method, TypeDeclaration
from hotbay_sdk.protocol.handshake import DataDeclaration

POOL = "endpoints:\n- {name: a, address: 10.0.0.1, port: 8000}\n- {name: b, address: 10.0.0.2, port: 8000}\n"
POD = "apiVersion: v1\nkind: Pod\nmetadata: {name: a, namespace: n}\n"


def asked(point: str, payload: str, content: str | None, **more: object) -> list[Asked]:
    data = DataDeclaration(payload, **more)  # type: ignore[arg-type]  # of tests
    found = None if content is None else FileContent(Path("given"), content.encode())
    return [*asked_of(TypeDeclaration("mine", (point,), data=data), point, found, file="given")]


def test_a_page_is_one_call_and_its_answer_is_held_against_the_declaration() -> None:
    (one,) = asked("extract", "metrics", "depth 3\nother 1\n", families=("depth",), attributes={"depth": "f32"})
    assert one.method is Method.POLL_EXTRACT
    endpoint, page = one.args
    assert isinstance(endpoint, dict)
    assert endpoint["id"] == "default/a"
    assert page == {"depth": [[{}, 3.0]]}
    assert one.read({"depth": 3}) == {"depth": 3.0}
    with pytest.raises(PluginFault, match="attributes that the type declares"):
        one.read({"other": 1})


def test_each_endpoint_of_a_file_is_an_event_with_a_number_of_its_own() -> None:
    first, second = asked("extract", "endpoint", POOL, attributes={"seen": "i64"})
    assert (first.method, first.args[0], second.args[0]) == (Method.EVENT_EXTRACT, 1, 2)
    assert first.read({"default/a": {"seen": 1}}) == {"default/a": {"seen": 1}}


@pytest.mark.parametrize(
    ("payload", "content", "of"), [("endpoint", POOL, "endpoint"), ("object:/v1/Pod", POD, "object")]
)
def test_a_source_is_told_of_what_came_and_may_drop_it(payload: str, content: str, of: str) -> None:
    one = asked("source", payload, content)[0]
    assert one.method is Method.SOURCE_NOTIFY
    number, event = one.args
    assert number == 1
    assert isinstance(event, dict)
    assert event["type"] == "add_or_update"
    assert one.read(event) == event
    assert one.read(None) == DROPPED
    with pytest.raises(PluginFault, match="expected an event"):
        one.read({"type": "delete", of: None})


def test_who_polls_is_asked_for_each_endpoint() -> None:
    polls = asked("poll", "metrics", POOL)
    assert [one.method for one in polls] == [Method.SOURCE_POLL] * 2
    ((endpoint,),) = (one.args for one in polls[1:])
    assert isinstance(endpoint, dict)
    assert endpoint["address"] == "10.0.0.2"
    assert polls[0].read(b"a 1\n") == "a 1\n"
    with pytest.raises(PluginFault, match="as payload"):
        polls[0].read(["a 1"])


@pytest.mark.parametrize(
    ("point", "payload", "content", "wrong"),
    [
        ("extract", "metrics", None, "Give --payload FILE: what a source brings"),
        ("source", "endpoint", None, "each is told as one that came"),
        ("poll", "json", None, "mine is called with endpoints"),
        ("poll", "json", "endpoints: []\n", "there is no endpoint in it"),
        ("source", "object:/v1/Pod", POD.replace("Pod", "Node"), "nothing in it is of the payload object:/v1/Pod"),
        ("extract", "json", "{", "this is not of the payload json"),
    ],
)
def test_a_file_of_no_use_is_told(point: str, payload: str, content: str | None, wrong: str) -> None:
    with pytest.raises(InputError, match=wrong):
        asked(point, payload, content)
