"""Compiles the scheduling configuration and the live generations into one immutable plan. Pure.

The parts are compiled by `compile_phases` and `compile_profiles`; here are who chooses among profiles, what has to be woken,
and what readiness waits for.
"""

from collections.abc import Sequence
from dataclasses import replace

from hotbay.errors import Problem
from hotbay.scheduling.binding import Binding, Point, Policy, bind
from hotbay.scheduling.builtin_handlers import header_choice, primary_port
from hotbay.scheduling.compile_host import host_part, with_gives
from hotbay.scheduling.compile_phases import Phases
from hotbay.scheduling.compile_profiles import MAX_PICKS, MAX_WEIGHT, compile_profile, default_profile
from hotbay.scheduling.compiling import NO_OPTIONS, Compiling
from hotbay.scheduling.explain import ROW_BYTES, PlanFacts
from hotbay.scheduling.handler_calls import ProfilePickCall, ProfileProcessCall
from hotbay.scheduling.plan import Handler, Plan, PlanInput, ProfileInput, RefPlan
from hotbay.scheduling.registry import DEFAULT_HANDLER
from hotbay.scheduling.run_call import RunCall

__all__ = ["MAX_PICKS", "MAX_WEIGHT", "compile_plan"]

HEADER_HANDLER = "header-profile-handler"
DATA_PARALLEL_HANDLER = "data-parallel-profile-handler"


def compile_plan(number: int, given: PlanInput) -> Plan:
    """Compile; raises `InputError` with every problem found."""
    context = Compiling(given)
    context.check_reads()
    profiles = given.profiles or (default_profile(given.refs),)
    handler_ref = _handler_ref(context, len(profiles))
    compiled = {profile.name: compile_profile(context, profile) for profile in profiles}
    handler = _handler(context, handler_ref, tuple(compiled))
    phases = Phases(context)
    producers = phases.producers()
    before, edits, early = phases.before(producers), phases.edits(), phases.absent()
    (learners, setters), listeners, parsers = phases.learners(edits), phases.listeners(), phases.parsers()
    host = host_part(context)
    context.raise_if_any()
    absent = [*early, *(b for profile in compiled.values() for b in profile.absent)]
    if handler.absent:
        absent.append(handler.binding)
    fail_closed = [binding for binding in absent if binding.policy is Policy.FAIL_CLOSED]
    # Without a handler to ask, the first profile is the one that runs: what it will be refused for is known now.
    certain = () if handler.asks else (*next(iter(compiled.values())).absent, handler.binding)
    generations = {ref.generation.number: ref.generation for ref in given.refs if ref.generation is not None}
    dormant = {ref.name: ref.plugin_id for ref in given.refs if ref.dormant and ref.generation is None}
    parsers_absent = {parser.binding.ref for parser in parsers if parser.generation is None}
    scorers = sum(
        len(call.scorers)
        for profile in compiled.values()
        for stage in profile.stages
        for call in stage
        if isinstance(call, RunCall)
    )
    plan = Plan(
        number=number,
        profiles=compiled,
        handler=handler,
        producers=producers,
        absent=(*early, *(binding for binding in certain if binding in fail_closed)),
        learners=learners,
        generations=tuple(generations.values()),
        fail_closed_absent=tuple(sorted({*(b.ref for b in fail_closed), *parsers_absent} - dormant.keys())),
        dormant=_dormant(given, profiles),
        numbers=frozenset(generations),
        before=with_gives(before, host.gives),
        edits=edits,
        listeners=listeners,
        setters=setters,
        parsers=parsers,
        gives=host.gives,
        counts_tokens=host.counts_tokens,
        match=host.match,
        withheld=host.withheld,
    )
    return replace(plan, facts=_facts(plan, ROW_BYTES + 4 * scorers))


def _facts(plan: Plan, row_bytes: int) -> PlanFacts:
    """What is kept of it to explain decisions."""
    pickers = {name: (p.picker.binding.ref, p.picker.binding.type) for name, p in plan.profiles.items()}
    handler = plan.handler.binding
    return PlanFacts(plan.number, _policies(plan.bindings), row_bytes, pickers, (handler.ref, handler.type))


def _policies(bindings: Sequence[Binding]) -> dict[str, str]:
    """Ref → what decides in place of its answers; several where that depends on the point."""
    found: dict[str, dict[str, None]] = {}
    for binding in bindings:
        found.setdefault(binding.ref, {})[binding.policy] = None
    return {ref: "/".join(policies) for ref, policies in found.items()}


def _dormant(given: PlanInput, profiles: Sequence[ProfileInput]) -> tuple[str, ...]:
    """Ids of dormant plugins that requests need. What only filters or scores is needed where a profile names it."""
    named = {entry.ref for profile in profiles for entry in profile.entries}
    everywhere = [point for point in Point if point not in (Point.FILTER, Point.SCORE)]
    return tuple(
        dict.fromkeys(
            ref.plugin_id
            for ref in given.refs
            if ref.dormant
            and ref.generation is None
            and ref.plugin_id is not None
            and (
                ref.name in named or (not ref.is_known and not ref.data) or any(ref.has(point) for point in everywhere)
            )
        )
    )


def _handler_ref(context: Compiling, profiles: int) -> RefPlan | None:
    handlers = [ref for ref in context.given.refs if ref.has(Point.PROFILE_HANDLER)]
    if len(handlers) > 1:
        names = " and ".join(f"'{h.name}'" for h in handlers)
        context.problem(
            "CONFIG_INVALID", f"multiple profile handlers found: {names}", handlers[1].place, hint="keep one"
        )
    handler = handlers[0] if handlers else None
    if handler is None and profiles > 1 and context.all_declared:
        context.problem(
            "CONFIG_INVALID",
            "no profile handler configured, and there are several profiles",
            None,
            hint="list a profile handler under plugins",
        )
    if handler is not None and handler.plugin_id is None and handler.type != HEADER_HANDLER and profiles > 1:
        context.problem(
            "CONFIG_INVALID",
            f"{handler.type} cannot choose among {profiles} profiles",
            handler.place,
            hint="use a profile handler that can, or one profile",
        )
    return handler


def _handler(context: Compiling, ref: RefPlan | None, profiles: tuple[str, ...]) -> Handler:
    if ref is None:
        return Handler(bind(DEFAULT_HANDLER, DEFAULT_HANDLER, Point.PROFILE_HANDLER, NO_OPTIONS))
    binding = context.bind(ref, Point.PROFILE_HANDLER)
    if ref.plugin_id is None:
        return _builtin_handler(context, ref, profiles)
    if ref.generation is None:
        return Handler(binding, absent=True)
    needs = context.needs([ref])
    columns, fields, consumed = needs
    return Handler(
        binding,
        ProfilePickCall(ref.generation, binding, columns=columns, fields=fields, consumed=consumed, profiles=profiles),
        ProfileProcessCall(ref.generation, binding, columns=columns, fields=fields, consumed=consumed),
        asks=True,
    )


def _builtin_handler(context: Compiling, ref: RefPlan, profiles: tuple[str, ...]) -> Handler:
    binding = context.bind(ref, Point.PROFILE_HANDLER)
    if ref.type == HEADER_HANDLER:
        choose = header_choice(ref.parameters, profiles, ref.name, ref.place)
        if not isinstance(choose, Problem):
            return Handler(binding, choose=choose, asks=True)
        context.problems.append(choose)
    elif ref.type == DATA_PARALLEL_HANDLER:
        port = primary_port(ref.parameters, ref.name, ref.place)
        if not isinstance(port, Problem):
            return Handler(binding, port=port)
        context.problems.append(port)
    return Handler(binding)
