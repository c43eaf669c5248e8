"""`_serve.main` in a real process, driven over its three descriptors by the host's end of the protocol."""

import os
import select
import socket
import struct
import subprocess
import sys
import textwrap
from collections import deque
from pathlib import Path

import hotbay_sdk
import msgpack
import pytest
from hotbay_sdk.protocol import (
    CallError,
    Connection,
    ErrorCode,
    ErrorReceived,
    Event,
    Executed,
    FrameType,
    HandshakeReceived,
    Method,
    PongReceived,
    Ready,
    ReplyReceived,
    Role,
    ViolationFound,
    Welcome,
)
from hotbay_sdk.protocol.calls import POINT_SCORE

pytestmark = pytest.mark.process

WAIT_S = 10.0
GENERATION = 9
VIEW = [1, 2, 1, ["a", "b"], {"endpoint.waiting": struct.pack("<2f", 0, 1)}]

PLUGIN = """
    import os, sys, time
    from hotbay_sdk import Plugin, PreRequest, Scorer

    plugin = Plugin("served")
    print("hello from import", flush=True)

    @plugin.type("scorer", reads=["endpoint.waiting", "request.model"], parameters=lambda raw: raw)
    class Served(Scorer, PreRequest):
        def __init__(self, context, parameters):
            self.context = context
            self.learned = 0.0
            if "exit" in parameters:
                sys.exit(parameters["exit"])
            if "hang" in parameters:
                os.read(os.pipe()[0], 1)

        def score(self, request, endpoint):
            if request.model == "raise":
                raise ValueError(b"\\xff")
            if request.model == "exit":
                sys.exit(7)
            if request.model == "hang":
                os.read(os.pipe()[0], 1)
            if request.model == "busy":
                # Until the file of that name is there: the test decides when.
                while not os.path.exists(request.model + ".done"):
                    os.sched_yield()
            return 1 / (1 + endpoint.waiting) + self.learned

        def pre_request(self, request, picked, endpoints):
            self.learned += 1

        def close(self):
            self.context.logger.info("closed")
"""


class Served:
    """A child that runs `_serve.main`, and the host's ends of its links."""

    def __init__(self, folder: Path, source: str, entrypoint: str = "served:plugin") -> None:
        (folder / "served.py").write_text(textwrap.dedent(source))
        call_in, self.call_write = os.pipe()
        self.call_read, call_out = os.pipe()
        self.control, theirs = socket.socketpair()
        paths = [str(folder), str(Path(hotbay_sdk.__file__).parents[1]), str(Path(msgpack.__file__).parents[1])]
        self.calls, self.slow = Connection(Role.HOST), Connection(Role.HOST)
        self._events: dict[Connection, deque[Event]] = {self.calls: deque(), self.slow: deque()}
        inherited = (call_in, call_out, theirs.fileno())
        code = f"import sys; sys.path[:0] = {paths}; from hotbay_sdk._serve import main; main({entrypoint!r}, *{inherited})"
        self.stderr = (folder / "stderr").open("wb+")
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", code],
            pass_fds=inherited,
            stdin=subprocess.DEVNULL,
            stdout=self.stderr,
            stderr=self.stderr,
            cwd=folder,
        )
        for descriptor in (call_in, call_out):
            os.close(descriptor)
        theirs.close()

    def next(self, connection: Connection) -> Event:
        """The next event of a link, within a deadline."""
        events = self._events[connection]
        descriptor = self.call_read if connection is self.calls else self.control.fileno()
        while not events:
            readable, _, _ = select.select([descriptor], [], [], WAIT_S)
            assert readable, f"nothing came; log: {self.log()}"
            data = os.read(descriptor, 65536)
            assert data, f"the link ended; log: {self.log()}"
            events.extend(connection.feed(data))
        event = events.popleft()
        assert not isinstance(event, ViolationFound), event
        return event

    def handshake(self, *, protocol: int = 1) -> None:
        hello = self.next(self.slow)
        assert isinstance(hello, HandshakeReceived)
        assert hello.type is FrameType.HELLO
        welcome = Welcome(protocol=protocol, generation=GENERATION, seed=1)
        self.control.sendall(self.slow.send_handshake(FrameType.WELCOME, welcome.to_wire()))

    def start(self) -> "Served":
        self.handshake()
        ready = self.next(self.slow)
        assert isinstance(ready, HandshakeReceived)
        assert ready.type is FrameType.READY
        assert [t.type for t in Ready.from_wire(ready.body).types] == ["scorer"]
        return self

    def configure(self, parameters: dict[str, object] | None = None, number: int = 1) -> None:
        entry = {"handle": [GENERATION, number], "name": "ref", "type": "scorer", "parameters": parameters or {}}
        args = [{"create": [entry], "drop": []}]
        _, frame = self.slow.start_call(Method.CONFIGURE, args, deadline_us=5_000_000)
        self.control.sendall(frame)

    def configured(self) -> "Served":
        self.start().configure()
        reply = self.next(self.slow)
        assert isinstance(reply, ReplyReceived)
        assert reply.result == {"instances": {"1": {"block_tokens": None}}, "errors": []}
        return self

    def score(self, model: str = "", *, deadline_us: int = 5_000_000) -> tuple[int, bytes]:
        args = [[[POINT_SCORE, [GENERATION, 1]]], VIEW, None, [1, [], None, {"request.model": [model]}, {}]]
        return self.calls.start_call(Method.RUN, args, deadline_us=deadline_us)

    def answer(self, model: str = "") -> list[object]:
        self.write(self.score(model)[1])
        reply = self.next(self.calls)
        assert isinstance(reply, ReplyReceived), reply
        assert isinstance(reply.result, list)
        return list(reply.result)

    def write(self, data: bytes) -> None:
        assert os.write(self.call_write, data) == len(data)

    def ping(self) -> PongReceived:
        self.control.sendall(self.slow.send_ping(5))
        event = self.next(self.slow)
        assert isinstance(event, PongReceived)
        return event

    def log(self) -> str:
        self.stderr.seek(0)
        return self.stderr.read().decode()

    def exit_code(self) -> int:
        return self.process.wait(WAIT_S)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self.stderr.close()
        self.control.close()
        for descriptor in (self.call_write, self.call_read):
            os.close(descriptor)


@pytest.fixture
def start(tmp_path):
    started: list[Served] = []

    def begin(source: str = PLUGIN, entrypoint: str = "served:plugin") -> Served:
        served = Served(tmp_path, source, entrypoint)
        started.append(served)
        return served

    yield begin
    for served in started:
        served.close()


@pytest.fixture
def served(start):
    return start().configured()


SCORES = struct.pack("<2f", 1, 0.5)


def test_scores_cross_both_ways(served):
    assert served.answer() == [None, SCORES, []]
    assert "hello from import" in served.log()


def test_frames_split_at_every_byte_are_one_call(served):
    _, frame = served.score()
    for byte in frame:
        served.write(bytes([byte]))
    reply = served.next(served.calls)
    assert isinstance(reply, ReplyReceived)
    assert reply.result == [None, SCORES, []]


def test_many_calls_in_one_write_are_answered_in_order(served):
    calls = [served.score() for _ in range(20)]
    served.write(b"".join(frame for _, frame in calls))
    assert [served.next(served.calls).stream for _ in calls] == [stream for stream, _ in calls]


def test_notice_reaches_the_instance_before_the_next_call(served):
    args = [[GENERATION, 1], VIEW, [1, [], None, {"request.model": [""]}, {}], [[["a"], "default", {"default": ["a"]}]]]
    served.write(served.calls.send_notice(Method.PRE_REQUEST, args))
    assert served.answer()[1] == struct.pack("<2f", 2, 1.5)


def test_r18_fault_leaves_the_link_usable(served):
    _, scores, errors = served.answer("raise")
    assert scores == bytes(8)
    assert errors == [[0, 0, {"code": "PLUGIN_ERROR", "message": "ValueError: b'\\xff'"}]]
    assert served.answer() == [None, SCORES, []]
    assert "ERROR ref: ValueError: b'\\xff'" in served.log()


def test_late_call_is_refused_before_it_starts(served, tmp_path):
    _, busy = served.score("busy")
    late, frame = served.score("exit", deadline_us=1)
    served.write(busy + frame)
    (tmp_path / "busy.done").touch()
    assert isinstance(served.next(served.calls), ReplyReceived)
    refused = served.next(served.calls)
    assert isinstance(refused, ErrorReceived)
    assert (refused.stream, refused.error.code) == (late, ErrorCode.DEADLINE_EXCEEDED)
    assert refused.error.executed is Executed.NO


@pytest.mark.parametrize("together", [True, False], ids=["with the call", "after it"])
def test_cancelled_call_is_not_started(served, tmp_path, together):
    _, busy = served.score("busy")
    waiting, frame = served.score("exit")
    # The plugin must answer the cancelled call; the host's own end has settled it and reports a late answer.
    cancel = served.calls.cancel(waiting, "gone")
    if together:
        served.write(busy + frame + cancel)
    else:
        served.write(busy + frame)
        served.write(cancel)
    (tmp_path / "busy.done").touch()
    assert isinstance(served.next(served.calls), ReplyReceived)
    assert served.next(served.calls).stream == waiting
    assert served.calls.late_answers == 1
    assert served.answer() == [None, SCORES, []]


def test_ping_is_answered_while_a_handler_is_busy(served):
    assert served.ping().facts["in_flight"] == 0
    served.write(served.score("hang")[1])
    facts = served.ping().facts
    while not facts["in_flight"]:
        facts = served.ping().facts
    assert facts["in_flight"] == 1
    assert facts["rss_bytes"] > 1_000_000


def test_calls_go_on_while_configure_hangs(served):
    served.configure({"hang": True}, number=2)
    assert served.ping().token == 5
    assert served.answer() == [None, SCORES, []]


@pytest.mark.parametrize("state", ["idle", "handler hangs", "configure hangs"])
def test_end_of_the_control_socket_ends_the_process(served, state):
    if state == "handler hangs":
        served.write(served.score("hang")[1])
    elif state == "configure hangs":
        served.configure({"hang": True}, number=2)
        served.ping()
    served.control.shutdown(socket.SHUT_RDWR)
    assert served.exit_code() == 0


def test_goaway_answers_what_was_sent_and_closes(served, tmp_path):
    calls = [served.score("busy"), served.score()]
    served.write(b"".join(frame for _, frame in calls))
    served.control.sendall(served.slow.send_goaway("RETIRED", "a newer one is live"))
    (tmp_path / "busy.done").touch()
    assert [served.next(served.calls).stream for _ in calls] == [stream for stream, _ in calls]
    assert served.exit_code() == 0
    assert "INFO ref: closed" in served.log()


def test_goaway_ends_an_idle_process(served):
    served.control.sendall(served.slow.send_goaway("RETIRED", ""))
    assert served.exit_code() == 0


def test_end_of_the_call_pipe_ends_the_process(served):
    os.close(served.call_write)
    served.call_write = os.dup(served.call_read)
    assert served.exit_code() == 0


def test_system_exit_in_a_handler_is_the_process_exit(served):
    served.write(served.score("exit")[1])
    assert served.exit_code() == 7


def test_system_exit_in_init_is_the_process_exit(start):
    served = start().start()
    served.configure({"exit": 5})
    assert served.exit_code() == 5


def test_garbage_on_the_call_link_ends_the_process(served):
    served.write(b"GET / HTTP/1.1\r\n")
    assert served.exit_code() == 1
    assert "the host broke the protocol" in served.log()


def test_hot_method_on_the_control_link_is_refused(served):
    args = [[[POINT_SCORE, [GENERATION, 1]]], VIEW, None, [1, [], None, {}, {}]]
    _, frame = served.slow.start_call(Method.RUN, args, deadline_us=5_000_000)
    served.control.sendall(frame)
    refused = served.next(served.slow)
    assert isinstance(refused, ErrorReceived)
    assert refused.error.code is ErrorCode.PROTOCOL_VIOLATION


def refusal(served: Served, *, protocol: int = 1) -> CallError:
    """The error that comes instead of READY; the process ends by itself after it."""
    served.handshake(protocol=protocol)
    event = served.next(served.slow)
    assert isinstance(event, ErrorReceived), event
    assert event.stream == 0
    assert served.exit_code() == 1
    return event.error


def test_import_that_raises_is_told_with_its_frames(start):
    served = start("raise LookupError('no weights here')")
    error = refusal(served)
    assert (error.code, error.message) == (ErrorCode.PLUGIN_ERROR, "LookupError: no weights here")
    assert "served.py" in error.traceback
    assert "LookupError: no weights here" in served.log()


@pytest.mark.parametrize(
    ("entrypoint", "code", "text"),
    [
        ("absent:plugin", ErrorCode.PLUGIN_ERROR, "No module named 'absent'"),
        ("served:nothing", ErrorCode.PLUGIN_ERROR, "has no attribute 'nothing'"),
        ("served:Served", ErrorCode.INVALID_PACKAGE, "served:Served is a type, expected a hotbay_sdk.Plugin"),
        ("served:sys.path", ErrorCode.PLUGIN_ERROR, "AttributeError"),
    ],
)
def test_bad_entry_point_is_told(start, entrypoint, code, text):
    error = refusal(start(entrypoint=entrypoint))
    assert error.code is code
    assert text in error.message


def test_package_without_types_is_told(start):
    error = refusal(start("from hotbay_sdk import Plugin\nplugin = Plugin('empty')"))
    assert (error.code, error.message) == (ErrorCode.INVALID_PACKAGE, "served:plugin declares no plugin type")


def test_protocol_version_of_another_host_is_told(start):
    error = refusal(start(), protocol=2)
    assert (error.code, error.message) == (ErrorCode.PROTOCOL_VERSION, "protocol 2, this SDK speaks 1")


def test_import_that_exits_ends_the_process(start):
    served = start("import sys; sys.exit(6)")
    served.handshake()
    assert served.exit_code() == 6


def test_import_that_hangs_ends_with_the_control_socket(start):
    served = start("import os; os.read(os.pipe()[0], 1)")
    served.handshake()
    assert served.ping().token == 5
    served.control.shutdown(socket.SHUT_RDWR)
    assert served.exit_code() == 0
