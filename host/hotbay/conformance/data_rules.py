"""Rules of the calls of the data layer that are answered at once (protocol: The data layer)."""

from typing import Final

from hotbay_sdk.protocol import ErrorCode, ErrorReceived, Executed, Value

from hotbay.conformance.calls import GENERATION
from hotbay.conformance.data_calls import DataProbe, data_points, misfit
from hotbay.conformance.link import Answer
from hotbay.conformance.peer import LONG_US, Conversation
from hotbay.conformance.stage import Rule, Stage
from hotbay.conformance.verdict import BrokenRuleError, InapplicableError, expect

__all__ = ["RULES"]

RACES: Final = 20
UNCONFIGURED: Final = 999_999


async def declarations_fit(stage: Stage) -> None:
    found = [*data_points((await stage.shared()).declared)]
    if not found:
        raise InapplicableError("no type of this package is of the data layer")
    for declaration, point in found:
        wrong = misfit(declaration, point)
        expect(not wrong, f"READY: type {declaration.type} answers {point} and declares {wrong}")


async def polls_give_attributes(stage: Stage) -> None:
    await _answered_in_form(stage, "extract", takes_events=False)


async def events_give_attributes(stage: Stage) -> None:
    await _answered_in_form(stage, "extract", takes_events=True)


async def sources_give_events_back(stage: Stage) -> None:
    await _answered_in_form(stage, "source", takes_events=True)


async def sources_bring_their_payload(stage: Stage) -> None:
    await _answered_in_form(stage, "poll", takes_events=False)


async def _answered_in_form(stage: Stage, point: str, *, takes_events: bool) -> None:
    talk = await stage.shared()
    probes = [it for it in await talk.data_probes(point) if it.takes_events is takes_events]
    answered = 0
    for probe in probes:
        for args in probe.calls():
            answered += probe.check(await _ask(talk, probe, args), args)
    if not answered:
        which = f"answers {point} of {'events' if takes_events else 'polls'}"
        raise InapplicableError(f"no type {which}, or its code raised at what this run gives it")


async def _ask(talk: Conversation, probe: DataProbe, args: list[Value], *, deadline_us: int = LONG_US) -> Answer:
    link = talk.peer.control
    stream, frame = _begun(talk, probe, args, deadline_us=deadline_us)
    await link.write(frame)
    return await link.answer(stream)


def _begun(talk: Conversation, probe: DataProbe, args: list[Value], *, deadline_us: int = LONG_US) -> tuple[int, bytes]:
    # A limit of its own would take the place of what begins a stream of data.
    limit = None if probe.runs else probe.reply_limit
    return talk.peer.control.connection.start_call(probe.method, args, deadline_us=deadline_us, reply_limit_bytes=limit)


async def bad_handles_are_refused(stage: Stage) -> None:
    talk = await stage.shared()
    probes = await talk.data_probes()
    if not probes:
        raise InapplicableError("no type of this package is of the data layer")
    for probe in probes:
        code = await _refusal(talk, probe.with_handle([GENERATION + 1, 1]))
        stale = code is ErrorCode.STALE_HANDLE
        expect(stale, f"{probe.point}, a handle of generation {GENERATION + 1}: expected STALE_HANDLE, found {code}")
        await _refusal(talk, probe.with_handle([GENERATION, UNCONFIGURED]))
        others = [other for other in probes if probe.point not in other.declaration.points]
        for other in others[:1]:
            await _refusal(talk, probe.with_handle(other.handle))


async def _refusal(talk: Conversation, probe: DataProbe) -> ErrorCode:
    answer = await _ask(talk, probe, probe.calls()[0])
    if not isinstance(answer, ErrorReceived):
        raise BrokenRuleError(f"{probe.method.name.lower()} with handle {probe.handle!r} was served")
    return answer.error.code


async def dropped_handles_are_refused(stage: Stage) -> None:
    talk = await stage.shared()
    probes = await talk.new_data_probes()
    if not probes:
        raise InapplicableError("no type of this package is of the data layer")
    await talk.configure(drop=[probe.handle for probe in probes])
    for probe in probes:
        await _refusal(talk, probe)


async def late_calls_are_not_begun(stage: Stage) -> None:
    talk = await stage.shared()
    probe = await _one_that_answers(talk)
    answer = await _ask(talk, probe, probe.calls()[0], deadline_us=1)
    if not isinstance(answer, ErrorReceived):
        raise BrokenRuleError("a call whose deadline is 1 µs was not refused")
    error = answer.error
    expect(error.code is ErrorCode.DEADLINE_EXCEEDED, f"expected DEADLINE_EXCEEDED, found {error.code}")
    expect(error.executed is Executed.NO, f"a call that came too late says executed: {error.executed}")


async def cancelled_calls_have_one_answer(stage: Stage) -> None:
    talk = await stage.shared()
    probe = await _one_that_answers(talk)
    link = talk.peer.control
    args = probe.calls()[0]
    for race in range(RACES):
        stream, frame = _begun(talk, probe, args)
        cancel = link.connection.cancel(stream, "conformance")
        cut = race % len(cancel)
        await link.write_taken([[frame + cancel], [frame, cancel], [frame, cancel[:cut], cancel[cut:]]][race % 3])
        await link.answer(stream)
    probe.check(await _ask(talk, probe, args), args)
    await link.unasked()


async def _one_that_answers(talk: Conversation) -> DataProbe:
    for probe in await talk.data_probes():
        if not probe.runs:
            return probe
    raise InapplicableError("no type of this package is asked by the data layer")


RULES: Final = (
    Rule("data.declared", "types of the data layer declare what their points need", declarations_fit),
    Rule("data.extract", "a poll's extractor gives declared attributes alone, of their kinds", polls_give_attributes),
    Rule("data.events", "an extractor of events gives attributes by endpoint, of their kinds", events_give_attributes),
    Rule("data.notify", "a source gives an event back as one of the same thing, or nil", sources_give_events_back),
    Rule("data.poll", "what polls by itself brings what its payload says", sources_bring_their_payload),
    Rule("data.handles", "stale and unknown handles, and those of other points, are errors", bad_handles_are_refused),
    Rule("data.dropped", "a dropped handle is an error to the data layer, too", dropped_handles_are_refused),
    Rule("data.late", "a call of the data layer that is late already is not begun", late_calls_are_not_begun),
    Rule("data.cancel", "a cancelled call of the data layer gets one answer", cancelled_calls_have_one_answer),
)
