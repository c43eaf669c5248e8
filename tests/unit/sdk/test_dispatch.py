"""Calls against configured instances: masks, faults of authors, handles, and what the process holds between calls."""

import datetime
import struct
from array import array

import numpy as np
import pytest
from hotbay_sdk import DataProducer, Filter, Picker, Plugin, PreRequest, ProfileHandler, Scorer
from hotbay_sdk._dispatch import Dispatcher, answer
from hotbay_sdk.protocol import CallError, Connection, ErrorCode, ErrorReceived, Executed, Method, ReplyReceived, Role
from hotbay_sdk.protocol.calls import POINT_FILTER, POINT_SCORE
from hotbay_sdk.protocol.messages import MAX_MESSAGE_BYTES

GENERATION = 7
IDS = ["a", "b", "", "d"]


class Process:
    """A dispatcher with a host's end of the link, all in memory."""

    def __init__(self) -> None:
        self.plugin = Plugin("test")
        self.dispatcher = Dispatcher(generation=GENERATION, seed=1)
        self.dispatcher.provide(self.plugin)
        self.host = Connection(Role.HOST)
        self.end = Connection(Role.PLUGIN)
        self.handles: dict[str, list[int]] = {}

    def call(self, method, args):
        _, frame = self.host.start_call(method, args, deadline_us=1_000_000)
        (event,) = self.end.feed(frame)
        if method in (Method.CONFIGURE, Method.CHECK_READY):
            result = self.dispatcher.control_call(method, event.args)
        else:
            result = self.dispatcher.call(method, event.args, timeout_s=1.0)
        (reply,) = self.host.feed(answer(self.end, event.stream, result))
        return reply.result if isinstance(reply, ReplyReceived) else reply.error

    def configure(self, *names, parameters=None):
        create = []
        for name in names:
            handle = self.handles[name] = [GENERATION, len(self.handles) + 1]
            create.append({"handle": handle, "name": name, "type": name, "parameters": parameters or {}})
        return self.call(Method.CONFIGURE, [{"create": create, "drop": []}])

    def run(self, steps, *, candidates=None, size=1, fields=None, data=None, view=None):
        wire_steps = [[point, self.handles[name]] for point, name in steps]
        return self.call(
            Method.RUN, [wire_steps, view or a_view(), candidates, [size, [], None, fields or {}, data or {}]]
        )


def a_view(*, epoch=1, membership=1, ids=IDS, columns=None):
    waiting = struct.pack(f"<{len(ids)}f", *range(len(ids)))
    return [epoch, len(ids), membership, list(ids), {"endpoint.waiting": waiting} if columns is None else columns]


def floats(packed):
    return list(struct.unpack(f"<{len(packed) // 4}f", packed))


@pytest.fixture
def process():
    made = Process()
    yield made
    made.dispatcher.close()


# -- run: scores and filters -----------------------------------------------------------------------


@pytest.fixture
def waiting(process):
    @process.plugin.type("waiting", reads=["endpoint.waiting"])
    class Waiting(Scorer):
        def score(self, request, endpoint):
            return 1 + endpoint.waiting

    @process.plugin.type("ones")
    class Ones(Scorer):
        def score_batch(self, requests, endpoints):
            return np.ones((len(requests), len(endpoints)), dtype=np.float32)

    @process.plugin.type("not-a")
    class NotA(Filter):
        def keep(self, request, endpoint):
            return endpoint.id != "a"

    process.configure("waiting", "ones", "not-a")
    return process


def test_scores_cover_live_rows_only(waiting):
    bits, scores, errors = waiting.run([(POINT_SCORE, "waiting"), (POINT_SCORE, "ones")])
    assert bits is None
    assert floats(scores) == [1, 2, 0, 4, 1, 1, 0, 1]
    assert errors == []


def test_filter_narrows_what_follows_in_the_call(waiting):
    bits, scores, errors = waiting.run([(POINT_FILTER, "not-a"), (POINT_SCORE, "waiting"), (POINT_SCORE, "ones")])
    assert bits == bytes([0b1010])
    assert floats(scores) == [0, 2, 0, 4, 0, 1, 0, 1]
    assert errors == []


@pytest.mark.parametrize(
    ("candidates", "expected"),
    [
        (None, [1, 1, 0, 1] * 2),
        (bytes([0b0011]), [1, 1, 0, 0] * 2),
        (bytes([0b0001, 0b1110]), [1, 0, 0, 0, 0, 1, 0, 1]),
        ([bytes([0b1000])], [0, 0, 0, 1] * 2),
    ],
    ids=["nil", "shared", "each", "list"],
)
def test_candidates_mask_batch_results(waiting, candidates, expected):
    _, scores, errors = waiting.run([(POINT_SCORE, "ones")], candidates=candidates, size=2)
    assert floats(scores) == expected
    assert errors == []


@pytest.mark.parametrize(("size", "ids"), [(0, IDS), (2, [])], ids=["no requests", "no endpoints"])
def test_empty_call_runs_no_code(waiting, size, ids):
    bits, scores, errors = waiting.run(
        [(POINT_FILTER, "not-a"), (POINT_SCORE, "ones")], size=size, view=a_view(ids=ids)
    )
    assert (bits, scores, errors) == (b"", b"", [])


def test_row_error_leaves_the_other_requests(process):
    @process.plugin.type("picky", reads=["request.model"])
    class Picky(Scorer):
        def score(self, request, endpoint):
            if request.model == "bad":
                raise LookupError("no such model")
            return 1.0

    process.configure("picky")
    _, scores, errors = process.run([(POINT_SCORE, "picky")], size=3, fields={"request.model": ["x", "bad", "y"]})
    assert floats(scores) == [1, 1, 0, 1, 0, 0, 0, 0, 1, 1, 0, 1]
    assert errors == [[0, 1, {"code": "PLUGIN_ERROR", "message": "LookupError: no such model"}]]


def test_failed_filter_does_not_narrow(process):
    @process.plugin.type("raises")
    class Raises(Filter):
        def keep(self, request, endpoint):
            raise RuntimeError

    @process.plugin.type("first")
    class First(Filter):
        def keep_batch(self, requests, endpoints):
            return [[row == 0 for row in range(len(endpoints))] for _ in requests]

    process.configure("raises", "first")
    bits, _, errors = process.run([(POINT_FILTER, "raises"), (POINT_FILTER, "first")])
    assert bits == bytes([0b0001])
    assert [(step, request) for step, request, _ in errors] == [(0, 0)]


@pytest.mark.parametrize(
    ("result", "text"),
    [([[1.0]], "1 values, expected 4"), ([], "0 rows, expected 1"), (np.ones((2, 4)), "(2, 4), expected (1, 4)")],
    ids=["row too short", "row missing", "shape"],
)
def test_wrong_length_of_a_batch_is_bad_result_of_its_step(process, result, text):
    @process.plugin.type("wrong")
    class Wrong(Scorer):
        def score_batch(self, requests, endpoints):
            return result

    process.configure("wrong")
    _, scores, errors = process.run([(POINT_SCORE, "wrong")])
    assert scores == bytes(16)
    ((step, request, error),) = errors
    assert (step, request, error["code"]) == (0, -1, "BAD_RESULT")
    assert text in error["message"]


def test_errors_stay_within_the_replys_limit(process):
    @process.plugin.type("loud")
    class Loud(Scorer):
        def score(self, request, endpoint):
            raise ValueError("x" * 5_000_000)

    process.configure("loud")
    _, _, errors = process.run([(POINT_SCORE, "loud"), (POINT_SCORE, "loud")], size=64)
    assert len(errors) == 128
    packed = Connection(Role.PLUGIN).send_log({"errors": errors})
    assert len(packed) <= 64 + 256 * 64


def test_undeclared_read_names_what_to_declare(process):
    @process.plugin.type("curious")
    class Curious(Scorer):
        def score(self, request, endpoint):
            return endpoint.waiting

    process.configure("curious")
    _, _, errors = process.run([(POINT_SCORE, "curious")])
    assert 'reads=["endpoint.waiting"]' in errors[0][2]["message"]


# -- R18, R19 --------------------------------------------------------------------------------------


class Evil(Exception):
    def __str__(self):
        raise self

    __repr__ = __str__


class Sly(Exception):
    def __str__(self):
        return 3  # type: ignore[return-value]


class Base(BaseException):
    pass


FAULTS = {
    "bytes": lambda: ValueError(b"\xff\x00"),
    "surrogate": lambda: ValueError("\ud800"),
    "5 MiB": lambda: ValueError("ä" * (5 * 1024 * 1024)),
    "failing str": Evil,
    "lying str": Sly,
    "base": Base,
    "interrupt": KeyboardInterrupt,
    "nested": lambda: ExceptionGroup("g", [ValueError(b"1"), Evil()]),
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_r18_any_exception_becomes_a_small_plugin_error(process, fault):
    @process.plugin.type("handler")
    class Handler(ProfileHandler):
        def pick(self, request, profiles, results, endpoints):
            if profiles == ["raise"]:
                raise fault()
            return profiles

        def process(self, request, results, endpoints):
            return "", {}

    process.configure("handler")
    requests = [1, [], None, {}, {}]
    error = process.call(Method.PROFILE_PICK, [process.handles["handler"], a_view(), requests, ["raise"], {}])
    assert isinstance(error, CallError)
    assert (error.code, error.executed) == (ErrorCode.PLUGIN_ERROR, Executed.YES)
    assert error.message.startswith(type(fault()).__name__)
    assert len(error.message.encode()) <= MAX_MESSAGE_BYTES
    assert "raise fault()" in error.traceback
    assert process.call(Method.PROFILE_PICK, [process.handles["handler"], a_view(), requests, ["ok"], {}]) == ["ok"]
    assert process.end.table_sizes["incoming"] == 0


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_r18_any_exception_of_a_scorer_is_noted_and_the_next_call_works(process, fault):
    @process.plugin.type("scorer", reads=["request.model"])
    class Raising(Scorer):
        def score(self, request, endpoint):
            if request.model:
                raise fault()
            return 1.0

    process.configure("scorer")
    _, _, errors = process.run([(POINT_SCORE, "scorer")], fields={"request.model": ["x"]})
    assert errors[0][2]["code"] == "PLUGIN_ERROR"
    _, scores, errors = process.run([(POINT_SCORE, "scorer")], fields={"request.model": [""]})
    assert (floats(scores), errors) == ([1, 1, 0, 1], [])


def test_system_exit_of_an_author_passes(process):
    @process.plugin.type("leaver")
    class Leaver(Scorer):
        def score(self, request, endpoint):
            raise SystemExit(3)

    process.configure("leaver")
    with pytest.raises(SystemExit):
        process.run([(POINT_SCORE, "leaver")])


REFUSED = {
    "int keys": {1: "a"},
    "set": {"a"},
    "datetime": [datetime.datetime(2025, 1, 1, tzinfo=datetime.UTC)],
    "2**64": [2**64],
    "surrogate": ["\ud800"],
    "text": "abc",
    "none": None,
}


@pytest.mark.parametrize("value", REFUSED.values(), ids=REFUSED)
def test_r19_refused_values_are_bad_result_before_a_byte_is_written(process, value):
    @process.plugin.type("handler")
    class Handler(ProfileHandler):
        def pick(self, request, profiles, results, endpoints):
            return value

        def process(self, request, results, endpoints):
            return "p", {"p": ["a"]}

    process.configure("handler")
    error = process.call(Method.PROFILE_PICK, [process.handles["handler"], a_view(), [1, [], None, {}, {}], ["p"], {}])
    assert isinstance(error, CallError)
    assert (error.code, error.executed) == (ErrorCode.BAD_RESULT, Executed.YES)
    processed = process.call(
        Method.PROFILE_PROCESS, [process.handles["handler"], a_view(), [1, [], None, {}, {}], {"p": ["a"]}]
    )
    assert processed == {"primary": "p", "results": {"p": ["a"]}}


def test_process_may_find_nothing_to_go_on_with(process):
    @process.plugin.type("handler")
    class Handler(ProfileHandler):
        def pick(self, request, profiles, results, endpoints):
            return []

        def process(self, request, results, endpoints):
            return None

    process.configure("handler")
    args = [process.handles["handler"], a_view(), [1, [], None, {}, {}], {"p": None}]
    assert process.call(Method.PROFILE_PROCESS, args) is None


@pytest.mark.parametrize(
    "value",
    ["p", ("p",), ("p", {}), ("p", {"p": None}), (1, {}), ("p", {"p": [1]}), ("p", {1: []}), ("p", {"p": "ab"})],
    ids=repr,
)
def test_r19_process_result_of_another_shape_is_bad_result(process, value):
    @process.plugin.type("handler")
    class Handler(ProfileHandler):
        def pick(self, request, profiles, results, endpoints):
            return []

        def process(self, request, results, endpoints):
            return value

    process.configure("handler")
    error = process.call(Method.PROFILE_PROCESS, [process.handles["handler"], a_view(), [1, [], None, {}, {}], {}])
    assert isinstance(error, CallError)
    assert error.code is ErrorCode.BAD_RESULT


# -- pick, produce, pre_request ----------------------------------------------------------------------


def test_picker_sees_scored_candidates_in_row_order(process):
    seen = []

    @process.plugin.type("best")
    class Best(Picker):
        def pick(self, request, candidates, n):
            seen.append([(c.id, c.score) for c in candidates])
            return sorted(candidates, key=lambda c: -c.score)[:n]

    process.configure("best")
    totals = struct.pack("<8f", 1, 3, 9, 2, 0, 0, 0, 5)
    args = [process.handles["best"], a_view(), bytes([0b1111, 0b0000]), totals, [2, [], None, {}, {}], 2]
    rows, errors = process.call(Method.PICK, args)
    assert rows == [[1, 3], []]
    assert errors == []
    assert seen == [[("a", 1.0), ("b", 3.0), ("d", 2.0)]]


def test_produced_columns_are_packed_by_scope(process):
    @process.plugin.type("maker", produces={"M.row": "row", "M.whole": "request"})
    class Maker(DataProducer):
        def produce(self, request, endpoints):
            return {"M.row": [5.0] * len(endpoints), "M.whole": 2}

    process.configure("maker")
    args = [process.handles["maker"], a_view(), None, [2, [], None, {}, {}]]
    data, errors = process.call(Method.PRODUCE, args)
    assert {name: floats(packed) for name, packed in data.items()} == {
        "M.row": [5, 5, 0, 5] * 2,
        "M.whole/request": [2, 2],
    }
    assert errors == []


@pytest.mark.parametrize(
    ("result", "text"),
    [
        ({"M.row": [1.0] * 4}, "declared are M.row, M.whole"),
        ({"M.row": [1.0], "M.whole": 1}, "1 values, expected 4"),
        (None, "NoneType"),
    ],
)
def test_columns_of_another_shape_are_bad_result(process, result, text):
    @process.plugin.type("maker", produces={"M.row": "row", "M.whole": "request"})
    class Maker(DataProducer):
        def produce(self, request, endpoints):
            return result

    process.configure("maker")
    data, errors = process.call(Method.PRODUCE, [process.handles["maker"], a_view(), None, [1, [], None, {}, {}]])
    assert data == {"M.row": bytes(16), "M.whole/request": bytes(4)}
    assert errors[0][2]["code"] == "BAD_RESULT"
    assert text in errors[0][2]["message"]


def test_consumed_data_reads_by_row_and_by_request(process):
    @process.plugin.type("user", consumes=["M.row", "M.whole", "M.absent"])
    class User(Scorer):
        def score(self, request, endpoint):
            assert endpoint.data("M.absent") != endpoint.data("M.absent")
            return endpoint.data("M.row") + request.data("M.whole")

    process.configure("user")
    data = {"M.row": array("f", range(8)).tobytes(), "M.whole/request": array("f", [100, 200]).tobytes()}
    _, scores, errors = process.run([(POINT_SCORE, "user")], size=2, data=data)
    assert errors == []
    assert floats(scores) == [100, 101, 0, 103, 204, 205, 0, 207]


def test_pre_request_fault_is_logged(process, capsys):
    @process.plugin.type("learner")
    class Learner(PreRequest):
        def pre_request(self, request, picked, endpoints):
            raise ValueError(f"{picked.targets} {picked.profile} {picked.results}")

    process.configure("learner")
    args = [process.handles["learner"], a_view(), [1, [], None, {}, {}], [[["a"], "p", {"p": ["a"]}]]]
    edits, errors = process.dispatcher.call(Method.PRE_REQUEST, args)
    assert (edits, errors[0][:2]) == ([None], [0, 0])
    assert "ERROR learner: ValueError: ['a'] p {'p': ['a']}" in capsys.readouterr().err


# -- handles and the held view -----------------------------------------------------------------------


@pytest.mark.parametrize("handle", [[GENERATION - 1, 1], [GENERATION, 99]], ids=["other generation", "unknown"])
def test_stale_handle_runs_nothing(waiting, handle):
    error = waiting.call(Method.RUN, [[[POINT_SCORE, handle]], a_view(), None, [1, [], None, {}, {}]])
    assert (error.code, error.executed) == (ErrorCode.STALE_HANDLE, Executed.NO)


def test_view_is_held_between_calls(waiting):
    waiting.run([(POINT_SCORE, "waiting")])
    _, scores, _ = waiting.run([(POINT_SCORE, "waiting")], view=[1, 4, 1, None, None])
    assert floats(scores) == [1, 2, 0, 4]


def test_ids_are_held_when_only_columns_change(waiting):
    waiting.run([(POINT_SCORE, "waiting")])
    columns = {"endpoint.waiting": struct.pack("<4f", 9, 9, 9, 9)}
    _, scores, _ = waiting.run([(POINT_SCORE, "waiting")], view=[2, 4, 1, None, columns])
    assert floats(scores) == [10, 10, 0, 10]


@pytest.mark.parametrize(
    ("view", "missing"), [([1, 4, 2, None, None], "ids"), ([2, 4, 1, None, None], "columns")], ids=["ids", "columns"]
)
def test_view_that_is_not_held_is_asked_for(waiting, view, missing):
    waiting.run([(POINT_SCORE, "waiting")])
    error = waiting.run([(POINT_SCORE, "waiting")], view=view)
    assert (error.code, error.retryable, error.executed) == (ErrorCode.UNAVAILABLE, True, Executed.NO)
    assert error.details["missing"] == missing


def test_column_that_the_host_lacks_is_unknown(waiting):
    _, scores, _ = waiting.run([(POINT_SCORE, "waiting")], view=a_view(columns={}))
    assert all(score != score for score in floats(scores)[:2])


@pytest.mark.parametrize(
    "args",
    [
        [],
        [[], [], None, [1, [], None, {}, {}]],
        [[[9, [GENERATION, 1]]], a_view(), None, [1, [], None, {}, {}]],
        [[], a_view(columns={"endpoint.waiting": b"123"}), None, [1, [], None, {}, {}]],
        [[], a_view(), None, [2, [], None, {"request.model": ["x"]}, {}]],
        [[], a_view(), [b"\x01"] * 3, [2, [], None, {}, {}]],
    ],
    ids=["no arguments", "no view", "unknown point", "short column", "short field", "masks"],
)
def test_malformed_call_is_refused(waiting, args):
    error = waiting.call(Method.RUN, args)
    assert (error.code, error.executed) == (ErrorCode.PROTOCOL_VIOLATION, Executed.NO)


def test_no_reply_is_left_open(process):
    process.configure()
    (reply,) = [process.call(Method.CHECK_READY, [])]
    assert reply == {"ready": True, "waiting": []}
    assert not isinstance(reply, ErrorReceived)
    assert set(process.end.table_sizes.values()) == {0}
