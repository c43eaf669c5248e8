"""Rules of the calls around the scheduling cycle (protocol: Around the cycle)."""

from typing import Final

from hotbay_sdk.protocol import ErrorCode, ErrorReceived, Method, Value

from hotbay.conformance.calls import GENERATION, PROFILES, Shape
from hotbay.conformance.link import Answer
from hotbay.conformance.peer import LONG_US, Conversation, reply
from hotbay.conformance.request_calls import TOLD_POINTS, RequestProbe, misfit, unfit_facts
from hotbay.conformance.stage import Rule, Stage
from hotbay.conformance.verdict import BrokenRuleError, InapplicableError, expect

__all__ = ["RULES"]

UNCONFIGURED: Final = 999_999
SHAPES: Final = (Shape(), Shape(requests=3, rows=9), Shape(requests=2, rows=9, candidates=b"\x03\x01"))


async def declarations_fit(stage: Stage) -> None:
    for declaration in (await stage.shared()).declared:
        wrong = misfit(declaration)
        expect(not wrong, f"READY: type {declaration.type} declares {wrong}")


async def instances_say_what_their_types_allow(stage: Stage) -> None:
    talk = await stage.shared()
    made = 0
    refusal = ""
    for declaration in talk.declared:
        _, facts, refused = await talk.made(declaration.type)
        refusal = refusal or refused
        if facts is not None:
            made += 1
            wrong = unfit_facts(declaration, facts)
            expect(not wrong, f"configure: an instance of {declaration.type} {wrong}")
    if not made:
        raise InapplicableError(refusal)


async def results_have_their_form(stage: Stage) -> None:
    talk = await stage.shared()
    probes = [probe for probe in await talk.request_probes() if probe.answers]
    if not probes:
        raise InapplicableError("no type of this package answers calls around the cycle")
    for probe in probes:
        for shape in SHAPES:
            fitting = Shape(probe.batch(shape.requests), shape.rows, shape.candidates)
            probe.check(await _ask(talk, probe, fitting), fitting)


async def profiles_are_merged(stage: Stage) -> None:
    talk = await stage.shared()
    probes = [probe for probe in await talk.request_probes() if probe.point == "profile_handler"]
    if not probes:
        raise InapplicableError("no type of this package is a profile handler")
    looked_at = 0
    for probe in probes:
        args = probe.arguments(Shape(), talk.epoch())[:3]
        results: dict[str, Value] = {name: ["default/0"] for name in PROFILES}
        link = talk.peer.calls
        stream, frame = link.connection.start_call(Method.PROFILE_PROCESS, [*args, results], deadline_us=LONG_US)
        await link.write(frame)
        answer = await link.answer(stream)
        if isinstance(answer, ErrorReceived) and answer.error.code is ErrorCode.PLUGIN_ERROR:
            continue
        looked_at += 1
        merged = reply(answer, f"profile_process of {probe.declaration.type}")
        if merged is None:
            continue
        found = merged.get("results") if isinstance(merged, dict) else None
        primary = merged.get("primary") if isinstance(merged, dict) else None
        good = isinstance(found, dict) and isinstance(primary, str) and isinstance(found.get(primary), list)
        expect(
            good,
            f"profile_process of {probe.declaration.type}: neither nil nor {{primary, results}} whose primary has a result",
        )
    if not looked_at:
        raise InapplicableError(
            f"every profile handler of this package raised at the results of {' and '.join(PROFILES)}"
        )


async def what_is_told_is_not_answered(stage: Stage) -> None:
    talk = await stage.shared()
    probes = [probe for probe in await talk.request_probes() if probe.point in TOLD_POINTS]
    if not probes:
        raise InapplicableError("no type of this package is told of requests or responses")
    link = talk.peer.calls
    before = len(link.frames)
    for probe in probes:
        args = probe.arguments(Shape(2, 3), talk.epoch())
        told: list[list[Value]] = [args] if not probe.answers else []
        if probe.point == "pre_request":
            told.append([*args, True])
        for arguments in told:
            await link.write(link.connection.send_notice(probe.method, arguments))
    await talk.still_serves()
    await link.unasked()
    expect(len(link.frames) == before + 1, "a one-way call was answered")


async def bad_handles_are_refused(stage: Stage) -> None:
    talk = await stage.shared()
    probes = [probe for probe in await talk.request_probes() if probe.answers or probe.point == "dump_state"]
    if not probes:
        raise InapplicableError("no type of this package answers calls around the cycle")
    for probe in probes:
        code = await _refusal(talk, probe.with_handle([GENERATION + 1, 1]))
        stale = code is ErrorCode.STALE_HANDLE
        expect(stale, f"{probe.point}, a handle of generation {GENERATION + 1}: expected STALE_HANDLE, found {code}")
        await _refusal(talk, probe.with_handle([GENERATION, UNCONFIGURED]))
        others = [other for other in probes if probe.point not in other.declaration.points]
        for other in others[:1]:
            await _refusal(talk, probe.with_handle(other.handle))


async def state_is_shown(stage: Stage) -> None:
    talk = await stage.shared()
    probes = [probe for probe in await talk.request_probes() if probe.point == "dump_state"]
    if not probes:
        raise InapplicableError("no type of this package shows its state")
    for probe in probes:
        probe.check(await _ask(talk, probe, Shape()), Shape())
    await talk.still_serves()


async def _refusal(talk: Conversation, probe: RequestProbe) -> ErrorCode:
    answer = await _ask(talk, probe, Shape())
    if not isinstance(answer, ErrorReceived):
        raise BrokenRuleError(f"{probe.method.name.lower()} with handle {probe.handle!r} was served")
    return answer.error.code


async def _ask(talk: Conversation, probe: RequestProbe, shape: Shape) -> Answer:
    link = talk.peer.control if probe.point == "dump_state" else talk.peer.calls
    args = probe.arguments(shape, talk.epoch())
    stream, frame = link.connection.start_call(
        probe.method, args, deadline_us=LONG_US, reply_limit_bytes=probe.reply_limit
    )
    await link.write(frame)
    return await link.answer(stream)


RULES: Final = (
    Rule("points.declared", "types declare what belongs to their points", declarations_fit),
    Rule("points.facts", "instances say of themselves what their types allow", instances_say_what_their_types_allow),
    Rule("points.results", "calls around the cycle are answered in their form", results_have_their_form),
    Rule("points.profiles", "merged results name a primary profile that has one", profiles_are_merged),
    Rule("points.told", "what is told of requests and responses is not answered", what_is_told_is_not_answered),
    Rule("points.handles", "stale and unknown handles, and those of other points, are errors", bad_handles_are_refused),
    Rule("points.state", "a ref's state is a value, and no longer than 256 KiB", state_is_shown),
)
