"""Areas that a process is passed: taken whole or not at all, and no descriptor is left either way."""

import os
from array import array
from mmap import mmap

import pytest
from hotbay_sdk import Plugin, Scorer
from hotbay_sdk._areas import Areas
from hotbay_sdk._dispatch import Dispatcher
from hotbay_sdk.protocol import CallError, ErrorCode, MalformedMessageError, Method
from hotbay_sdk.protocol.areas import plan_area


def an_area(number: int, capacity: int = 4) -> int:
    """A descriptor of one that is empty."""
    layout = plan_area(number, [("endpoint.waiting", "f")], capacity)
    return a_file(layout.head() + bytes(layout.slots * layout.slot_bytes))


def a_file(content: bytes) -> int:
    descriptor = os.memfd_create("area", os.MFD_CLOEXEC)
    os.write(descriptor, content)
    return descriptor


def is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


def test_areas_come_and_go_by_their_numbers() -> None:
    areas = Areas()
    passed = (an_area(3), an_area(4))
    assert areas.take([[3, 4], []], passed) is None
    assert [areas[n].layout.area for n in (3, 4)] == [3, 4]
    assert not any(map(is_open, passed))
    assert areas.take([[5], [3, 77]], (an_area(5),)) is None
    assert sorted(areas) == [4, 5]


def test_scores_are_written_to_the_region_that_a_call_names() -> None:
    areas = Areas()
    passed = (an_area(1), a_file(bytes(64)))
    memory = mmap(passed[1], 64)
    assert areas.take([[1, 2], [], [2]], passed) is None
    assert sorted(areas) == [1]
    assert areas.write([2, 16, 12], [b"abcd", b"efgh", b"ijkl"]) == 12
    assert memory[:] == bytes(16) + b"abcdefghijkl" + bytes(36)
    # Up to the last byte, and not beyond.
    assert areas.write([2, 60, 4], [b"last"]) == 4
    assert areas.write([2, 61, 4], [b"over"]) is None
    assert areas.write([2, -4, 4], [b"over"]) is None
    # Scores of another length, and an area that is no output, or not there.
    assert areas.write([2, 0, 8], [b"abcd"]) is None
    assert areas.write([1, 0, 4], [b"abcd"]) is None
    assert areas.write([3, 0, 4], [b"abcd"]) is None
    assert memory[:] == bytes(16) + b"abcdefghijkl" + bytes(32) + b"last"
    assert areas.take([[], [2]], ()) is None
    assert areas.write([2, 16, 4], [b"gone"]) is None


@pytest.mark.parametrize("where", [[], [1, 2], "region", [1, 2, None], [True, 0, 4]])
def test_what_is_no_region_is_refused(where: list) -> None:
    with pytest.raises(MalformedMessageError):
        Areas().write(where, [b"abcd"])


@pytest.mark.parametrize("scores", [[[0.5, 1.0]], array("f", [0.5, 1.0])], ids=["lists", "an array"])
def test_a_run_answers_with_the_length_of_what_it_wrote(scores: object) -> None:
    plugin = Plugin("p")

    @plugin.type("t")
    class Scores(Scorer):
        def score_batch(self, requests: object, endpoints: object) -> object:
            return scores

    dispatcher = Dispatcher(generation=1)
    dispatcher.provide(plugin)
    create = [{"handle": [1, 1], "name": "t", "type": "t", "parameters": {}}]
    dispatcher.control_call(Method.CONFIGURE, [{"create": create, "drop": []}])
    expected = array("f", [0.5, 1.0]).tobytes()
    args = [[[2, [1, 1]]], [5, 2, 1, ["a", "b"], {}], None, [1, [], None, {}, {}]]
    # Without a region, before an area is there, with one, and with one of another length.
    assert dispatcher.call(Method.RUN, args) == [None, expected, []]
    assert dispatcher.call(Method.RUN, [*args, [2, 8, 8]]) == [None, expected, []]
    descriptor = a_file(bytes(32))
    memory = mmap(descriptor, 32)
    assert dispatcher.share([[2], [], [2]], (descriptor,)) is None
    assert dispatcher.call(Method.RUN, [*args, [2, 8, 8]]) == [None, 8, []]
    assert memory[:] == bytes(8) + expected + bytes(16)
    assert dispatcher.call(Method.RUN, [*args, [2, 0, 4]]) == [None, expected, []]
    refused = dispatcher.call(Method.RUN, [*args, [2, 0, 4], None])
    assert isinstance(refused, CallError)
    assert refused.code is ErrorCode.PROTOCOL_VIOLATION


@pytest.mark.parametrize(
    ("args", "contents", "code"),
    [
        ([[1, 2], []], [b"x" * 4096], ErrorCode.PROTOCOL_VIOLATION),
        ([[1], []], [b"x" * 4096], ErrorCode.PROTOCOL_VIOLATION),
        ([[1], []], [b""], ErrorCode.PROTOCOL_VIOLATION),
        ([[1]], [b"x" * 4096], ErrorCode.PROTOCOL_VIOLATION),
        ([None, []], [], ErrorCode.PROTOCOL_VIOLATION),
        ([["1"], []], [b"x" * 4096], ErrorCode.PROTOCOL_VIOLATION),
        ([[1], [], [1]], [b""], ErrorCode.PROTOCOL_VIOLATION),
        ([[1], [], 1], [b"x" * 4096], ErrorCode.PROTOCOL_VIOLATION),
        ([[1], [], [1], []], [b"x" * 4096], ErrorCode.PROTOCOL_VIOLATION),
    ],
    ids=[
        "fewer passed",
        "no area",
        "empty",
        "one argument",
        "no list",
        "no number",
        "empty output",
        "no list to write",
        "4",
    ],
)
def test_what_cannot_be_taken_changes_nothing(args: list, contents: list[bytes], code: ErrorCode) -> None:
    areas = Areas()
    assert areas.take([[9], []], (an_area(9),)) is None
    passed = tuple(map(a_file, contents))
    answer = areas.take(args, passed)
    assert isinstance(answer, CallError)
    assert answer.code is code
    assert sorted(areas) == [9]
    assert not any(map(is_open, passed))


def test_what_cannot_be_mapped_is_unavailable() -> None:
    read_end, write_end = os.pipe()
    answer = Areas().take([[1], []], (read_end,))
    os.close(write_end)
    assert isinstance(answer, CallError)
    assert answer.code is ErrorCode.UNAVAILABLE
    assert not is_open(read_end)


def test_a_view_of_an_area_that_was_never_passed_asks_for_columns() -> None:
    dispatcher = Dispatcher(generation=1)
    assert dispatcher.share([[1], []], (an_area(1),)) is None
    view = [5, 1, 1, ["a"], None, [[2, 0, 5]]]
    answer = dispatcher.call(3, [[], view, None, [1, [], None, {}, {}]])
    assert isinstance(answer, CallError)
    assert answer.details == {"missing": "columns"}
