"""Compiles the scheduling configuration and the live generations into one immutable plan. Pure.

Consecutive steps that one process answers are one call; a filter in another process than the one
before it waits for that one, scorers of different processes go out together.
"""

from collections.abc import Iterable, Sequence
from math import isfinite
from typing import Final

from hotbay.errors import InputError, Place, Problem
from hotbay.rpc.leases import Generation
from hotbay.scheduling.binding import ALLOWED_POLICIES, Binding, BindingOptions, Point, Policy, bind
from hotbay.scheduling.builtin import PICKERS, max_score
from hotbay.scheduling.calls import PickCall, ProduceCall, ProfilePickCall, ProfileProcessCall, RemoteCall
from hotbay.scheduling.fields import is_table, unknown_reads, wire_columns, wire_fields
from hotbay.scheduling.plan import (
    Handler,
    Learner,
    Picker,
    Plan,
    PlanInput,
    Profile,
    ProfileEntryPlan,
    ProfileInput,
    RefPlan,
)
from hotbay.scheduling.producers import layers, shared_columns
from hotbay.scheduling.registry import DEFAULT_HANDLER, DEFAULT_PICKER
from hotbay.scheduling.run_call import RunCall
from hotbay.scheduling.sent_tables import FEATURE as SIDE_TABLES_FEATURE

NO_OPTIONS: Final = BindingOptions()
MAX_PICKS: Final = 16
MAX_WEIGHT: Final = 1e30
"""Totals are float32: sums of larger weights would leave its range and compare as nothing."""


def compile_plan(number: int, given: PlanInput) -> Plan:
    """Compile; raises `InputError` with every problem found."""
    return _Compiler(number, given).compile()


class _Compiler:
    def __init__(self, number: int, given: PlanInput) -> None:
        self._number = number
        self._given = given
        self._refs = {ref.name: ref for ref in given.refs}
        self._problems: list[Problem] = []

    def compile(self) -> Plan:
        self._check_reads()
        profiles = self._given.profiles or (self._default_profile(),)
        handler_ref = self._handler_ref(len(profiles))
        compiled = {p.name: self._profile(p) for p in profiles}
        handler = self._handler(handler_ref, tuple(compiled))
        producers, producers_absent = self._producers()
        self._raise_if_any()
        learners = tuple(self._learners())
        absent = [*producers_absent, *(b for p in compiled.values() for b in p.absent)]
        if handler.absent:
            absent.append(handler.binding)
        fail_closed = [binding for binding in absent if binding.policy is Policy.FAIL_CLOSED]
        # Without a handler to ask, the first profile is the one that runs: what it will be refused for is known now.
        certain = (*next(iter(compiled.values())).absent, handler.binding) if handler.pick is None else ()
        generations = {r.generation.number: r.generation for r in self._given.refs if r.generation is not None}
        dormant = {ref.name: ref.plugin_id for ref in self._given.refs if ref.dormant and ref.generation is None}
        return Plan(
            number=self._number,
            profiles=compiled,
            handler=handler,
            producers=producers,
            absent=(*producers_absent, *(binding for binding in certain if binding in fail_closed)),
            learners=learners,
            generations=tuple(generations.values()),
            fail_closed_absent=tuple(sorted({binding.ref for binding in fail_closed} - dormant.keys())),
            dormant=self._dormant(profiles),
            numbers=frozenset(generations),
        )

    def _dormant(self, profiles: Sequence[ProfileInput]) -> tuple[str, ...]:
        """Ids of dormant plugins that requests need. What only filters or scores is needed where a profile names it."""
        named = {entry.ref for profile in profiles for entry in profile.entries}
        everywhere = (Point.PICK, Point.PROFILE_HANDLER, Point.PRODUCE, Point.PRE_REQUEST)
        return tuple(
            dict.fromkeys(
                ref.plugin_id
                for ref in self._given.refs
                if ref.dormant
                and ref.generation is None
                and ref.plugin_id is not None
                and (
                    ref.name in named
                    or (ref.declaration is None and not ref.data)
                    or any(ref.has(point) for point in everywhere)
                )
            )
        )

    def _raise_if_any(self) -> None:
        if self._problems:
            raise InputError(tuple(dict.fromkeys(self._problems)))

    def _problem(self, code: str, message: str, place: Place | None, hint: str = "") -> None:
        self._problems.append(Problem(code, message, place=place, hint=hint))

    def _bind(self, ref: RefPlan, point: Point, weight: float = 1.0) -> Binding:
        options = self._given.options.get(ref.name, NO_OPTIONS)
        points = [p for p in Point if ref.has(p)]
        # A ref that was never READY has no known points: what fits it shows when it is.
        if (
            points
            and options.on_failure is not None
            and not any(options.on_failure in ALLOWED_POLICIES[p] for p in points)
        ):
            self._problem(
                "CONFIG_INVALID",
                f"bindings.{ref.name}.on_failure: '{options.on_failure}' does not fit a {point}",
                ref.place,
                hint=f"use one of {', '.join(sorted(ALLOWED_POLICIES[point]))}",
            )
        return bind(ref.name, ref.type, point, options, weight)

    def _check_reads(self) -> None:
        for ref in self._given.refs:
            unknown = unknown_reads(ref.declaration.reads) if ref.declaration else ()
            if unknown:
                self._problem(
                    "INVALID_PACKAGE",
                    f"type '{ref.type}' reads {', '.join(unknown)}, which this host does not have",
                    ref.place,
                )
            tables = tuple(filter(is_table, ref.declaration.reads)) if ref.declaration else ()
            if tables and ref.generation is not None and SIDE_TABLES_FEATURE not in ref.generation.features:
                self._problem(
                    "INVALID_PACKAGE",
                    f"type '{ref.type}' reads {', '.join(tables)}, and its process does not say that it takes side tables: "
                    f"expected {SIDE_TABLES_FEATURE} in HELLO's features",
                    ref.place,
                    hint="pack it with the SDK of this host, or take these out of reads",
                )

    def _default_profile(self) -> ProfileInput:
        wanted = (Point.FILTER, Point.SCORE, Point.PICK)
        entries = tuple(
            ProfileEntryPlan(ref.name, None, ref.place)
            for ref in self._given.refs
            if any(ref.has(point) for point in wanted)
            or (ref.plugin_id is not None and ref.declaration is None and not ref.data)
        )
        return ProfileInput("default", entries)

    # -- profiles --------------------------------------------------------------------------------

    def _profile(self, profile: ProfileInput) -> Profile:
        filters: list[RefPlan] = []
        scorers: list[tuple[RefPlan, float]] = []
        pickers: list[RefPlan] = []
        absent: list[Binding] = []
        for entry in profile.entries:
            ref = self._refs.get(entry.ref)
            if ref is None:
                self._problem(
                    "UNDEFINED_REF",
                    f"profile '{profile.name}' names '{entry.ref}'",
                    entry.place,
                    hint="declare it under plugins",
                )
                continue
            weight = self._weight(profile, entry)
            if ref.plugin_id is not None and ref.generation is None:
                absent += self._absent(profile, entry, ref, weight)
                continue
            self._sort_entry(profile, entry, ref, weight, filters, scorers, pickers)
        picker = self._picker(profile, pickers)
        if picker.absent:
            absent.append(picker.binding)
        return Profile(
            name=profile.name,
            stages=self._stages(filters, scorers),
            picker=picker,
            absent=tuple(absent),
            weight_sum=sum(weight for _, weight in scorers),
        )

    def _weight(self, profile: ProfileInput, entry: ProfileEntryPlan) -> float:
        weight = 1.0 if entry.weight is None else entry.weight
        if not (isfinite(weight) and 0.0 <= weight <= MAX_WEIGHT):
            self._problem(
                "CONFIG_INVALID",
                f"profile '{profile.name}': weight {weight:g} of '{entry.ref}'",
                entry.place,
                hint=f"a weight is a number from 0 to {MAX_WEIGHT:g}",
            )
            return 1.0
        return weight

    def _sort_entry(
        self,
        profile: ProfileInput,
        entry: ProfileEntryPlan,
        ref: RefPlan,
        weight: float,
        filters: list[RefPlan],
        scorers: list[tuple[RefPlan, float]],
        pickers: list[RefPlan],
    ) -> None:
        if ref.has(Point.FILTER):
            filters.append(ref)
        if ref.has(Point.SCORE):
            scorers.append((ref, weight))
        if ref.has(Point.PICK):
            pickers.append(ref)
        self._check_entry(profile, entry, ref)

    def _check_entry(self, profile: ProfileInput, entry: ProfileEntryPlan, ref: RefPlan) -> None:
        if not any(ref.has(p) for p in (Point.FILTER, Point.SCORE, Point.PICK, Point.PROFILE_HANDLER)):
            self._problem(
                "CONFIG_INVALID",
                f"profile '{profile.name}': '{ref.name}' of type '{ref.type}' is no filter, scorer or picker",
                entry.place,
                hint="producers, learners and types of the data layer act by being listed under plugins; take the line out "
                "of the profile",
            )

    def _absent(self, profile: ProfileInput, entry: ProfileEntryPlan, ref: RefPlan, weight: float) -> list[Binding]:
        """Bindings of a ref without a process. Without a declaration its point is unknown: it counts as a scorer."""
        if ref.declaration is None:
            return [self._bind(ref, Point.SCORE, weight)]
        self._check_entry(profile, entry, ref)
        return [self._bind(ref, p, weight) for p in (Point.FILTER, Point.SCORE, Point.PICK) if ref.has(p)]

    def _picker(self, profile: ProfileInput, pickers: Sequence[RefPlan]) -> Picker:
        if len(pickers) > 1:
            names = " and ".join(f"'{p.name}'" for p in pickers)
            self._problem(
                "CONFIG_INVALID",
                f"profile '{profile.name}' has two pickers: {names}",
                pickers[1].place,
                hint="keep one picker in a profile",
            )
        ref = pickers[0] if pickers else next((r for r in self._given.refs if r.has(Point.PICK)), None)
        if ref is None:
            return Picker(bind(DEFAULT_PICKER, DEFAULT_PICKER, Point.PICK, NO_OPTIONS), max_score, 1)
        binding = self._bind(ref, Point.PICK)
        count = self._pick_count(ref)
        if ref.plugin_id is None:
            return Picker(binding, PICKERS[ref.type], count)
        if ref.generation is None:
            return Picker(binding, max_score, count, absent=True)
        columns, fields = self._needs([ref])
        return Picker(
            binding,
            max_score,
            count,
            PickCall(ref.generation, binding, columns=columns, fields=fields, count=count),
        )

    def _pick_count(self, ref: RefPlan) -> int:
        """`maxNumOfEndpoints`, at most 16: a destination header with more helps nobody. Below 1 means 1."""
        unknown = [name for name in ref.parameters if name != "maxNumOfEndpoints"]
        value = ref.parameters.get("maxNumOfEndpoints", 1)
        if ref.plugin_id is None and unknown:
            self._problem(
                "CONFIG_INVALID",
                f"plugins '{ref.name}': unknown parameter '{unknown[0]}'",
                ref.place,
                hint="a picker takes maxNumOfEndpoints",
            )
        if type(value) is not int:
            self._problem("CONFIG_INVALID", f"plugins '{ref.name}': maxNumOfEndpoints is an integer", ref.place)
            return 1
        return min(max(1, value), MAX_PICKS)

    def _stages(
        self, filters: Sequence[RefPlan], scorers: Sequence[tuple[RefPlan, float]]
    ) -> tuple[tuple[RemoteCall, ...], ...]:
        groups: list[tuple[Generation, list[RefPlan]]] = []
        for ref in filters:
            if ref.generation is not None and groups and groups[-1][0] is ref.generation:
                groups[-1][1].append(ref)
            elif ref.generation is not None:
                groups.append((ref.generation, [ref]))
        scored: dict[int, tuple[Generation, list[tuple[RefPlan, float]]]] = {}
        for ref, weight in scorers:
            if ref.generation is not None:
                scored.setdefault(ref.generation.number, (ref.generation, []))[1].append((ref, weight))
        stages: list[tuple[RemoteCall, ...]] = []
        for index, (generation, refs) in enumerate(groups):
            last = index == len(groups) - 1
            fused = scored.pop(generation.number, (generation, []))[1] if last else []
            stages.append((self._run(generation, refs, fused),))
        if scored:
            stages.append(tuple(self._run(generation, [], refs) for generation, refs in scored.values()))
        return tuple(stages)

    def _run(
        self, generation: Generation, filters: Sequence[RefPlan], scorers: Sequence[tuple[RefPlan, float]]
    ) -> RunCall:
        refs = [*filters, *(ref for ref, _ in scorers)]
        columns, fields = self._needs(refs)
        return RunCall(
            generation,
            [self._bind(ref, Point.FILTER) for ref in filters],
            [self._bind(ref, Point.SCORE, weight) for ref, weight in scorers],
            columns=columns,
            fields=fields,
            consumed=_unique(name for ref in refs if ref.declaration for name in ref.declaration.consumes),
        )

    def _needs(self, refs: Sequence[RefPlan]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Columns of the whole process (so that one transfer per epoch serves all its calls), fields of `refs`."""
        generation = refs[0].generation
        of_process = [r for r in self._given.refs if r.generation is generation and r.declaration is not None]
        columns = wire_columns(c for r in of_process if r.declaration for c in r.declaration.reads)
        fields = _unique(name for ref in refs for name in self._fields(ref))
        return columns, fields

    def _fields(self, ref: RefPlan) -> tuple[str, ...]:
        if ref.declaration is None or ref.generation is None:
            return ()
        return wire_fields(ref.declaration.reads, ref.generation.block_tokens.get(ref.name))

    # -- handler, producers, learners ------------------------------------------------------------

    def _handler_ref(self, profiles: int) -> RefPlan | None:
        handlers = [ref for ref in self._given.refs if ref.has(Point.PROFILE_HANDLER)]
        if len(handlers) > 1:
            names = " and ".join(f"'{h.name}'" for h in handlers)
            self._problem(
                "CONFIG_INVALID", f"multiple profile handlers found: {names}", handlers[1].place, hint="keep one"
            )
        handler = handlers[0] if handlers else None
        if handler is None and profiles > 1 and self._all_declared():
            self._problem(
                "CONFIG_INVALID",
                "no profile handler configured, and there are several profiles",
                None,
                hint="list a profile handler under plugins",
            )
        if handler is not None and handler.plugin_id is None and profiles > 1:
            self._problem(
                "CONFIG_INVALID",
                f"{handler.type} cannot choose among {profiles} profiles",
                handler.place,
                hint="use a profile handler that can, or one profile",
            )
        return handler

    def _all_declared(self) -> bool:
        """Whether every plugin has said what it is: until then, one that is still to start may be the handler."""
        return all(ref.declaration is not None for ref in self._given.refs if ref.plugin_id is not None)

    def _handler(self, ref: RefPlan | None, profiles: tuple[str, ...]) -> Handler:
        if ref is None:
            return Handler(bind(DEFAULT_HANDLER, DEFAULT_HANDLER, Point.PROFILE_HANDLER, NO_OPTIONS))
        binding = self._bind(ref, Point.PROFILE_HANDLER)
        if ref.plugin_id is None:
            return Handler(binding)
        if ref.generation is None:
            return Handler(binding, absent=True)
        fields = self._fields(ref)
        return Handler(
            binding,
            ProfilePickCall(ref.generation, binding, fields=fields, profiles=profiles),
            ProfileProcessCall(ref.generation, binding, fields=fields),
        )

    def _producers(self) -> tuple[tuple[tuple[RemoteCall, ...], ...], list[Binding]]:
        producers = [r for r in self._given.refs if r.has(Point.PRODUCE)]
        self._problems += shared_columns(producers)
        layered = layers(producers)
        if isinstance(layered, Problem):
            self._problems.append(layered)
            layered = []
        called = [[ref for ref in layer if ref.generation is not None] for layer in layered]
        stages = tuple(tuple(self._produce(ref) for ref in layer) for layer in called if layer)
        return stages, [self._bind(r, Point.PRODUCE) for r in producers if r.generation is None]

    def _produce(self, ref: RefPlan) -> ProduceCall:
        if ref.generation is None or ref.declaration is None:
            raise AssertionError("a producer call needs a process")
        columns, fields = self._needs([ref])
        return ProduceCall(
            ref.generation,
            self._bind(ref, Point.PRODUCE),
            columns=columns,
            fields=fields,
            consumed=ref.declaration.consumes,
            produces=ref.declaration.produces,
        )

    def _learners(self) -> Iterable[Learner]:
        for ref in self._given.refs:
            if ref.has(Point.PRE_REQUEST) and ref.generation is not None:
                handle = (ref.generation.number, ref.generation.handles[ref.name])
                columns, fields = self._needs([ref])
                yield Learner(self._bind(ref, Point.PRE_REQUEST), ref.generation, handle, fields, columns)


def _unique(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))
