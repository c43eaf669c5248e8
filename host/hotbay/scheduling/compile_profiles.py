"""Compiles one profile: its filters and scorers into calls, and its picker. Pure.

Consecutive steps that one process answers are one call; a filter in another process than the one
before it waits for that one, scorers of different processes go out together. Filters that mean something else by leaving
nothing are not asked together, because then it could not be told which of them did.
"""

from collections.abc import Iterable, Sequence
from math import isfinite
from typing import Final

from hotbay.rpc.leases import Generation
from hotbay.scheduling.batch_picks import SCRAPED
from hotbay.scheduling.binding import Binding, Point, bind
from hotbay.scheduling.builtin import PICKERS, TIE, max_score
from hotbay.scheduling.calls import PickCall, RemoteCall
from hotbay.scheduling.compiling import NO_OPTIONS, Compiling
from hotbay.scheduling.decision import BUSY, INELIGIBLE, Rejected
from hotbay.scheduling.plan import Picker, Profile, ProfileEntryPlan, ProfileInput, RefPlan
from hotbay.scheduling.registry import DEFAULT_PICKER
from hotbay.scheduling.run_call import RunCall

__all__ = ["MAX_PICKS", "MAX_WEIGHT", "compile_profile", "default_profile"]

MAX_PICKS: Final = 16
MAX_WEIGHT: Final = 1e30
"""Totals are float32: sums of larger weights would leave its range and compare as nothing."""

Weighted = tuple[RefPlan, float]


def default_profile(refs: Iterable[RefPlan]) -> ProfileInput:
    """The profile of a configuration that has none: every filter, scorer and picker, in configuration order."""
    wanted = (Point.FILTER, Point.SCORE, Point.PICK)
    entries = tuple(
        ProfileEntryPlan(ref.name, None, ref.place)
        for ref in refs
        if any(ref.has(point) for point in wanted) or (not ref.is_known and not ref.data)
    )
    return ProfileInput("default", entries)


def compile_profile(context: Compiling, profile: ProfileInput) -> Profile:
    """Compile; problems are noted in the context."""
    return _ProfileCompiler(context, profile).compile()


def _reads_scraped(ref: RefPlan) -> bool:
    return ref.declaration is not None and not SCRAPED.isdisjoint(ref.declaration.reads)


class _ProfileCompiler:
    def __init__(self, context: Compiling, profile: ProfileInput) -> None:
        self._context = context
        self._profile = profile
        self._filters: list[RefPlan] = []
        self._scorers: list[Weighted] = []
        self._pickers: list[RefPlan] = []
        self._absent: list[Binding] = []

    def compile(self) -> Profile:
        for entry in self._profile.entries:
            self._take(entry)
        picker = self._picker()
        if picker.absent:
            self._absent.append(picker.binding)
        weight_sum = sum(weight for _, weight in self._scorers)
        return Profile(
            name=self._profile.name,
            stages=self._stages(),
            picker=picker,
            absent=tuple(self._absent),
            weight_sum=weight_sum,
            scraped_weight=sum(weight for ref, weight in self._scorers if _reads_scraped(ref)),
            tie=TIE * weight_sum,
        )

    def _take(self, entry: ProfileEntryPlan) -> None:
        context, profile = self._context, self._profile
        ref = context.refs.get(entry.ref)
        if ref is None:
            context.problem(
                "UNDEFINED_REF",
                f"profile '{profile.name}' names '{entry.ref}'",
                entry.place,
                hint="declare it under plugins",
            )
            return
        weight = self._weight(entry)
        if ref.plugin_id is not None and ref.generation is None:
            self._absent += self._uses(entry, ref, weight)
            return
        if ref.has(Point.FILTER):
            self._filters.append(ref)
        if ref.has(Point.SCORE):
            self._scorers.append((ref, weight))
        if ref.has(Point.PICK):
            self._pickers.append(ref)
        self._check_entry(entry, ref)

    def _weight(self, entry: ProfileEntryPlan) -> float:
        weight = 1.0 if entry.weight is None else entry.weight
        if not (isfinite(weight) and 0.0 <= weight <= MAX_WEIGHT):
            self._context.problem(
                "CONFIG_INVALID",
                f"profile '{self._profile.name}': weight {weight:g} of '{entry.ref}'",
                entry.place,
                hint=f"a weight is a number from 0 to {MAX_WEIGHT:g}",
            )
            return 1.0
        return weight

    def _check_entry(self, entry: ProfileEntryPlan, ref: RefPlan) -> None:
        if not any(ref.has(p) for p in (Point.FILTER, Point.SCORE, Point.PICK, Point.PROFILE_HANDLER)):
            self._context.problem(
                "CONFIG_INVALID",
                f"profile '{self._profile.name}': '{ref.name}' of type '{ref.type}' is no filter, scorer or picker",
                entry.place,
                hint="producers, learners and types of the data layer act by being listed under plugins; take the line out "
                "of the profile",
            )

    def _uses(self, entry: ProfileEntryPlan, ref: RefPlan, weight: float) -> list[Binding]:
        """Bindings of a ref without a process. Where nobody said what its points are it counts as a scorer."""
        bind_to = self._context.bind
        if not ref.is_known:
            return [bind_to(ref, Point.SCORE, weight)]
        self._check_entry(entry, ref)
        return [bind_to(ref, p, weight) for p in (Point.FILTER, Point.SCORE, Point.PICK) if ref.has(p)]

    # -- picker ----------------------------------------------------------------------------------

    def _picker(self) -> Picker:
        context, pickers = self._context, self._pickers
        if len(pickers) > 1:
            names = " and ".join(f"'{p.name}'" for p in pickers)
            context.problem(
                "CONFIG_INVALID",
                f"profile '{self._profile.name}' has two pickers: {names}",
                pickers[1].place,
                hint="keep one picker in a profile",
            )
        ref = pickers[0] if pickers else next((r for r in context.given.refs if r.has(Point.PICK)), None)
        if ref is None:
            return Picker(bind(DEFAULT_PICKER, DEFAULT_PICKER, Point.PICK, NO_OPTIONS), max_score, 1)
        binding = context.bind(ref, Point.PICK)
        count = self._pick_count(ref)
        if ref.plugin_id is None:
            return Picker(binding, PICKERS[ref.type], count)
        if ref.generation is None:
            return Picker(binding, max_score, count, absent=True)
        needs = context.needs([ref])
        call = PickCall(
            ref.generation,
            binding,
            columns=needs.columns,
            fields=needs.fields,
            consumed=needs.consumed,
            count=count,
            profile=self._profile.name,
        )
        return Picker(binding, max_score, count, call)

    def _pick_count(self, ref: RefPlan) -> int:
        """`maxNumOfEndpoints`, at most 16: a destination header with more helps nobody. Below 1 means 1."""
        unknown = [name for name in ref.parameters if name != "maxNumOfEndpoints"]
        value = ref.parameters.get("maxNumOfEndpoints", 1)
        if ref.plugin_id is None and unknown:
            self._context.problem(
                "CONFIG_INVALID",
                f"plugins '{ref.name}': unknown parameter '{unknown[0]}'",
                ref.place,
                hint="a picker takes maxNumOfEndpoints",
            )
        if type(value) is not int:
            self._context.problem("CONFIG_INVALID", f"plugins '{ref.name}': maxNumOfEndpoints is an integer", ref.place)
            return 1
        return min(max(1, value), MAX_PICKS)

    # -- calls -----------------------------------------------------------------------------------

    def _stages(self) -> tuple[tuple[RemoteCall, ...], ...]:
        groups = self._filter_groups()
        scored: dict[int, tuple[Generation, list[Weighted]]] = {}
        for ref, weight in self._scorers:
            generation = _generation(ref)
            scored.setdefault(generation.number, (generation, []))[1].append((ref, weight))
        stages: list[tuple[RemoteCall, ...]] = []
        for index, (generation, refs) in enumerate(groups):
            last = index == len(groups) - 1
            fused = scored.pop(generation.number, (generation, []))[1] if last else []
            stages.append((self._run(generation, refs, fused),))
        if scored:
            stages.append(tuple(self._run(generation, [], refs) for generation, refs in scored.values()))
        return tuple(stages)

    def _filter_groups(self) -> list[tuple[Generation, list[RefPlan]]]:
        """Consecutive filters that one process answers, and that mean the same by leaving nothing."""
        groups: list[tuple[Generation, list[RefPlan]]] = []
        for ref in self._filters:
            generation = _generation(ref)
            if groups and groups[-1][0] is generation and _drained(groups[-1][1][0]) is _drained(ref):
                groups[-1][1].append(ref)
            else:
                groups.append((generation, [ref]))
        return groups

    def _run(self, generation: Generation, filters: Sequence[RefPlan], scorers: Sequence[Weighted]) -> RunCall:
        needs = self._context.needs([*filters, *(ref for ref, _ in scorers)])
        return RunCall(
            generation,
            [self._context.bind(ref, Point.FILTER) for ref in filters],
            [self._context.bind(ref, Point.SCORE, weight) for ref, weight in scorers],
            columns=needs.columns,
            fields=needs.fields,
            consumed=needs.consumed,
            profile=self._profile.name,
            drained=_drained(filters[0]) if filters else BUSY,
        )


def _generation(ref: RefPlan) -> Generation:
    assert ref.generation is not None, "what has no process is absent"
    return ref.generation


def _drained(ref: RefPlan) -> Rejected:
    return INELIGIBLE if ref.declaration is not None and ref.declaration.drained == "ineligible" else BUSY
