"""Rules of calls, handles, configuration, errors and liveness (protocol: Calls, Methods, Liveness)."""

from typing import Final

from hotbay_sdk.protocol import ErrorCode, ErrorReceived, Executed, FrameType, Method, ReplyReceived, Value
from hotbay_sdk.protocol.control import MAX_STREAM
from hotbay_sdk.protocol.messages import MAX_MESSAGE_BYTES, MAX_TRACEBACK_BYTES
from hotbay_sdk.protocol.values import unpack_checked

from hotbay.conformance.calls import GENERATION, UNKNOWN_METHOD, Probe, Shape
from hotbay.conformance.frame_rules import pong
from hotbay.conformance.link import Answer
from hotbay.conformance.peer import LONG_US, Conversation
from hotbay.conformance.stage import Rule, Stage
from hotbay.conformance.verdict import BrokenRuleError, InapplicableError, expect

__all__ = ["RULES"]

MANY: Final = 64
UNCONFIGURED: Final = 999_999
UNKNOWN_TYPE: Final = "conformance-no-such-type"
_ODD_ARGUMENTS: Final[tuple[list[Value], ...]] = ([], ["x" * 20_000], [{"deep": [[[[]]]]}])
FIGURES: Final = ("in_flight", "oldest_ms", "rss_bytes", "cpu_ms")


async def every_call_has_one_answer(stage: Stage) -> None:
    talk = await stage.shared()
    probe = await talk.probe()
    shapes = [Shape(requests=probe.batch(1 + index % 3)) for index in range(MANY)]
    made = [talk.call(probe, shape) for shape in shapes]
    await talk.peer.calls.write(b"".join(frame for _, frame in made))
    for (stream, _), shape in zip(made, shapes, strict=True):
        probe.check(await talk.peer.calls.answer(stream), shape)
    await talk.peer.calls.unasked()


async def ids_may_jump(stage: Stage) -> None:
    talk = await stage.talk()
    probe = await talk.probe()
    for stream in (2**20 + 1, 2**30 + 1, MAX_STREAM):
        talk.peer.calls.connection.jump_to(stream)
        made, frame = talk.call(probe, Shape())
        expect(made == stream, "the run's own stream ids are wrong")
        await talk.peer.calls.write(frame)
        probe.check(await talk.peer.calls.answer(stream), Shape())


async def results_have_their_shape(stage: Stage) -> None:
    talk = await stage.shared()
    probe = await talk.probe()
    for requests in {1, probe.batch(2), probe.batch(5)}:
        for rows in (1, 8, 9):
            await talk.ask(probe, Shape(requests, rows))
    if probe.sees_endpoints:
        await talk.ask(probe, Shape(2, 9, free_row=True))


async def candidates_have_three_forms(stage: Stage) -> None:
    talk = await stage.shared()
    probe = await talk.probe()
    probe.needs_endpoints()
    for candidates in (None, b"\x03\x01", b"\x03\x01\x01\x00\x00\x00"):
        await talk.ask(probe, Shape(3, 9, candidates))


async def unknown_methods_are_refused(stage: Stage) -> None:
    talk = await stage.shared()
    for link in talk.peer.links:
        stream, frame = link.connection.start_call(
            UNKNOWN_METHOD, [[1, "x"], None], deadline_us=LONG_US, reply_limit_bytes=1 << 20
        )
        await link.write(frame)
        answer = await link.answer(stream)
        expect(isinstance(answer, ErrorReceived), f"method {UNKNOWN_METHOD} was answered with a result")
    await talk.still_serves()


async def late_calls_are_refused(stage: Stage) -> None:
    talk = await stage.shared()
    probe = await talk.probe()
    stream, frame = talk.call(probe, Shape(), deadline_us=1)
    await talk.peer.calls.write(frame)
    error = _error(await talk.peer.calls.answer(stream), "a call whose deadline is 1 µs")
    expect(error.error.code is ErrorCode.DEADLINE_EXCEEDED, f"expected DEADLINE_EXCEEDED, found {error.error.code}")
    expect(error.error.executed is Executed.NO, f"a call that came too late says executed: {error.error.executed}")


async def one_way_calls_are_not_answered(stage: Stage) -> None:
    talk = await stage.shared()
    probe = await talk.probe()
    link = talk.peer.calls
    before = len(link.frames)
    args = probe.arguments(Shape(), talk.epoch())
    await link.write(link.connection.send_notice(UNKNOWN_METHOD, []))
    await link.write(link.connection.send_notice(probe.method, args))
    stale: list[Value] = [
        [GENERATION, UNCONFIGURED],
        probe.view(Shape(), talk.epoch()),
        [1, [], None, {}, {}],
        [[["a"], "", {}]],
    ]
    await link.write(link.connection.send_notice(Method.PRE_REQUEST, stale))
    await talk.ask(probe, Shape())
    await link.unasked()
    expect(len(link.frames) == before + 1, "a one-way call was answered")


async def what_is_not_held_is_asked_for(stage: Stage) -> None:
    talk = await stage.shared()
    probe = await talk.probe()
    probe.needs_view()
    view = probe.view(Shape(), talk.epoch())
    await _missing(talk, probe, [*view[:3], None, None, *view[5:]], "ids")
    if probe.columns:
        view = probe.view(Shape(), talk.epoch())
        await _missing(talk, probe, [*view[:4], None, *view[5:]], "columns")
    await talk.ask(probe, Shape())


async def tables_are_completed_or_asked_for(stage: Stage) -> None:
    talk = await stage.shared()
    probe = await talk.probe()
    probe.needs_view()
    if not probe.tables:
        raise InapplicableError("no type that is called reads side tables")
    epoch, later = talk.epoch(), talk.epoch()
    whole = probe.view(Shape(), epoch)
    ids, columns, told = whole[3], whole[4], whole[6]
    assert isinstance(told, list)
    tables = told[1]
    await _missing(talk, probe, [epoch, 2, epoch, ids, columns, None, [epoch, None]], "tables")
    await _missing(talk, probe, [epoch, 2, epoch, ids, columns, None, [epoch, tables, later]], "tables")
    views: tuple[list[Value], ...] = (
        whole,
        [epoch, 2, epoch, None, None, None, [epoch, None]],
        [later, 2, epoch, None, columns, None, [later, {}, epoch]],
        [later, 2, epoch, None, None, None, [later, None]],
    )
    for view in views:
        stream, frame = talk.peer.calls.connection.start_call(
            probe.method, probe.arguments(Shape(), 0, view), deadline_us=LONG_US
        )
        await talk.peer.calls.write(frame)
        probe.check(await talk.peer.calls.answer(stream), Shape())


async def _missing(talk: Conversation, probe: Probe, view: Value, what: str) -> None:
    link = talk.peer.calls
    stream, frame = link.connection.start_call(probe.method, probe.arguments(Shape(), 0, view), deadline_us=LONG_US)
    await link.write(frame)
    error = _error(await link.answer(stream), f"a view without {what} that the peer never had").error
    found = error.details.get("missing")
    expect(error.code is ErrorCode.UNAVAILABLE, f"missing {what}: expected UNAVAILABLE, found {error.code}")
    expect(found == what, f"UNAVAILABLE's details: expected missing: {what}, found {found!r}")


async def other_generations_are_stale(stage: Stage) -> None:
    code = await _code_of(await stage.shared(), [GENERATION + 1, 1])
    expect(
        code is ErrorCode.STALE_HANDLE, f"a handle of generation {GENERATION + 1}: expected STALE_HANDLE, found {code}"
    )


async def unconfigured_handles_are_refused(stage: Stage) -> None:
    await _code_of(await stage.shared(), [GENERATION, UNCONFIGURED])


async def dropped_handles_are_refused(stage: Stage) -> None:
    talk = await stage.shared()
    probe = await talk.new_probe()
    if not probe.point:
        raise InapplicableError("no type of this package is called with a handle and answers")
    await talk.ask(probe, Shape())
    await talk.configure(drop=[probe.handle])
    await _code_of(talk, probe.handle)


async def _code_of(talk: Conversation, handle: Value) -> ErrorCode:
    """The code of the error that a call with a bad handle is answered with, as a whole or for its step."""
    probe = (await talk.probe()).with_handle(handle)
    if not probe.point:
        raise InapplicableError("no type of this package is called with a handle and answers")
    stream, frame = talk.call(probe, Shape())
    await talk.peer.calls.write(frame)
    answer = await talk.peer.calls.answer(stream)
    if isinstance(answer, ErrorReceived):
        return answer.error.code
    result = answer.result if isinstance(answer, ReplyReceived) else None
    last = result[-1] if isinstance(result, list) and result else None
    found = (
        probe.check_errors(last, Shape())
        if isinstance(last, list) and isinstance(result, list) and len(result) > 1
        else []
    )
    if not found:
        raise BrokenRuleError(f"a call of handle {handle!r} was served")
    return found[0].code


async def unknown_types_cannot_be_made(stage: Stage) -> None:
    talk = await stage.shared()
    handle, entry = talk.entry(UNKNOWN_TYPE)
    _, errors = await talk.configure([entry])
    expect(len(errors) == 1, f"an unknown type: expected one error, found {len(errors)}")
    error = errors[0]
    good = isinstance(error, dict) and error.get("handle") == handle
    good = good and isinstance(error, dict) and all(isinstance(error.get(key), str) for key in ("path", "message"))
    expect(good, f"an error of configure is {{handle, path, message}} and names its handle, found {str(error)[:200]}")


async def creating_is_all_or_nothing(stage: Stage) -> None:
    talk = await stage.shared()
    probe = await talk.probe()
    handle, entry = talk.entry(probe.declaration.type)
    _, errors = await talk.configure([entry, talk.entry(UNKNOWN_TYPE)[1]])
    expect(errors, "an unknown type beside a good one: expected an error, found none")
    if probe.point:
        await _code_of(talk, handle)
    await talk.still_serves()


async def pings_are_answered(stage: Stage) -> None:
    link = (await stage.shared()).peer.control
    for token in (0, 1, 2**31, 2**63 - 1):
        await link.write(link.connection.send_ping(token))
        facts = (await pong(link, token, f"PING {token}")).facts
        if not isinstance(facts, dict):
            raise BrokenRuleError("PONG is [token, {figures}]")
        wrong = [name for name in FIGURES if type(facts.get(name)) not in (int, float)]
        expect(not wrong, f"PONG gives no number for {', '.join(wrong)}")


async def a_dump_is_answered(stage: Stage) -> None:
    talk = await stage.shared()
    stream, frame = talk.peer.control.connection.start_call(Method.DUMP_STATE, [], deadline_us=LONG_US)
    await talk.peer.control.write(frame)
    await talk.peer.control.answer(stream)
    await talk.still_serves()


async def errors_have_their_form(stage: Stage) -> None:
    talk = await stage.shared()
    for link in talk.peer.links:
        for args in _ODD_ARGUMENTS:
            stream, frame = link.connection.start_call(
                UNKNOWN_METHOD, args, deadline_us=LONG_US, reply_limit_bytes=1 << 20
            )
            await link.write(frame)
            await link.answer(stream)
            (body,) = (frame.body for frame in link.frames if frame.type == FrameType.ERR and frame.stream == stream)
            _check_error(unpack_checked(body))


def _check_error(value: Value) -> None:
    if not isinstance(value, dict):
        raise BrokenRuleError("the body of ERR is a map")
    codes = {str(code) for code in ErrorCode}
    message, trace = value.get("message"), value.get("traceback")
    expect(value.get("code") in codes, f"ERR: code {str(value.get('code'))[:64]!r} is none of this version")
    expect(isinstance(message, str), "ERR: message is text")
    expect(isinstance(value.get("retryable"), bool), "ERR: retryable is true or false")
    expect(value.get("executed") in ("yes", "no", "maybe"), f"ERR: executed is {str(value.get('executed'))[:64]!r}")
    expect(isinstance(value.get("details"), dict), "ERR: details are a map")
    assert isinstance(message, str)
    size = len(message.encode())
    expect(size <= MAX_MESSAGE_BYTES, f"ERR: a message of {size} bytes, the limit is {MAX_MESSAGE_BYTES}")
    size = len(trace.encode()) if isinstance(trace, str) else 0
    expect(size <= MAX_TRACEBACK_BYTES, f"ERR: a traceback of {size} bytes, the limit is {MAX_TRACEBACK_BYTES}")


def _error(answer: Answer, what: str) -> ErrorReceived:
    if not isinstance(answer, ErrorReceived):
        raise BrokenRuleError(f"{what} was not refused")
    return answer


RULES: Final = (
    Rule("calls.answers", "every call gets exactly one answer, its own", every_call_has_one_answer),
    Rule("calls.ids", "stream ids may jump, and reach 2^31 - 1", ids_may_jump),
    Rule("calls.shape", "results have the shape of their batch", results_have_their_shape),
    Rule("calls.candidates", "candidates may be nil, one row for all, or a row each", candidates_have_three_forms),
    Rule("calls.unknown", "a method that does not exist is an error, and no more", unknown_methods_are_refused),
    Rule("calls.late", "a call that is late already is not begun", late_calls_are_refused),
    Rule("calls.one-way", "one-way calls are not answered, whatever they say", one_way_calls_are_not_answered),
    Rule("calls.missing", "what a process does not hold of a view it asks for", what_is_not_held_is_asked_for),
    Rule(
        "calls.tables",
        "side tables are completed, or asked for when they are not held",
        tables_are_completed_or_asked_for,
    ),
    Rule("handles.stale", "a handle of another generation is STALE_HANDLE", other_generations_are_stale),
    Rule("handles.unknown", "a handle that was never made is an error", unconfigured_handles_are_refused),
    Rule("handles.dropped", "a dropped handle is an error", dropped_handles_are_refused),
    Rule("configure.unknown", "an unknown type is an error of its handle", unknown_types_cannot_be_made),
    Rule("configure.all", "create makes all or nothing", creating_is_all_or_nothing),
    Rule("errors.form", "errors have their fields, and keep their lengths", errors_have_their_form),
    Rule("liveness.ping", "PING is answered with its token and four figures", pings_are_answered),
    Rule("liveness.dump", "dump_state is answered, and the process goes on", a_dump_is_answered),
)
