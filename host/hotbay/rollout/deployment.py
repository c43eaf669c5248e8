"""The scheduling configuration in force, joined with the live generations: what is compiled into plans.

Owned by the event loop. Validates aside, then changes: a configuration or a generation whose plan does
not compile leaves everything as it was.
"""

import json
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from hotbay_sdk.protocol import TypeDeclaration
from hotbay_sdk.protocol.calls import InstanceFacts

from hotbay.config.type_facts import UNKNOWN
from hotbay.errors import HostError, InputError, Problem
from hotbay.rollout.facts import plugin_of
from hotbay.rollout.refs import CreatedRef, RefSpec
from hotbay.rollout.resolution import ResolvedRef, Scheduling, specs
from hotbay.rpc.leases import Generation, LiveRef
from hotbay.scheduling.arms import AnswerPair, CanaryPlan, Shadow
from hotbay.scheduling.binding import Point
from hotbay.scheduling.compiler import compile_plan
from hotbay.scheduling.fields import NO_FACTS
from hotbay.scheduling.plan import Plan, PlanInput, RefPlan
from hotbay.scheduling.producers import missing_producers
from hotbay.scheduling.registry import DefaultProducers, TypeIndex
from hotbay.scheduling.router import Router
from hotbay.store.digests import digest_of

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CanaryShare:
    """Whose candidate gets which share of the requests, 0 to 1; `salt` names the rollout."""

    plugin_id: str
    candidate: Generation
    share: float
    salt: str


@dataclass(frozen=True, slots=True)
class ShadowSample:
    """Whose candidate gets copies of which share of the live one's calls, 0 to 1."""

    plugin_id: str
    candidate: Generation
    sample: float
    on_comparison: Callable[[AnswerPair], None]


@dataclass(frozen=True, slots=True)
class Part:
    """What requests have to do with a plugin: whether it is `asked` for them, and whether it is asked or `told`.

    One that is neither, as an extractor or a discovery, sees no request however many come.
    """

    asked: bool
    told: bool


class Deployment:
    """Joins configuration and generations; publishes plans through the router, with the trials under way.

    `incoming` is a configuration that is about to be adopted: its packages are wanted, nothing else of it acts.
    `asleep` are plugins that a request wakes. Generations that are warm beside the live one hear what it hears. Who calls
    refs outside of plans, as the data layer does, asks each time where they are answered `current`ly.
    """

    def __init__(self, router: Router, scheduling: Scheduling, index: TypeIndex) -> None:
        self._router = router
        self._scheduling = scheduling
        self._index = index
        self._live: dict[str, Generation] = {}
        self._declarations: dict[str, Mapping[str, TypeDeclaration]] = {}
        self._said: dict[_Made, InstanceFacts] = {}
        self._started_with: dict[str, tuple[str, str]] = {}
        self._plans = 0
        self._canary: CanaryShare | None = None
        self._shadow: ShadowSample | None = None
        self._warm: dict[str, tuple[Generation, ...]] = {}
        self._known: list[_Known] = []
        self._asleep: frozenset[str] = frozenset()
        self._watchers: list[Callable[[], None]] = []
        self.incoming: Scheduling | None = None
        _tell_warnings(scheduling)

    def current(self, ref: str) -> LiveRef | None:
        """Where a ref is answered now; None while no process that answers, and stays, has it. Wakes a plugin that sleeps."""
        for known in self._scheduling.refs:
            if known.name == ref and known.plugin_id in self._asleep and self._router.wake is not None:
                self._router.wake(known.plugin_id)
            generation = self._live.get(known.plugin_id) if known.name == ref and known.plugin_id is not None else None
            if generation is None or generation.leaving or generation.client.fault is not None:
                continue
            number, declared = generation.handles.get(ref), generation.types.get(known.type)
            if number is not None and declared is not None:
                return LiveRef(generation, (generation.number, number), declared)
        return None

    def declared(self, ref: str) -> TypeDeclaration | None:
        """What a ref's type declared when a process of it was READY last, whether one runs or not; wakes nobody."""
        known = next((it for it in self._scheduling.refs if it.name == ref and it.plugin_id is not None), None)
        if known is None or known.plugin_id is None:
            return None
        live = self._live.get(known.plugin_id)
        types = live.types if live is not None else self._declarations.get(known.plugin_id, {})
        return types.get(known.type)

    def watch(self, changed: Callable[[], None]) -> Callable[[], None]:
        """Call `changed` after every change of what is `current`, in the step of who changes it; what is returned ends it."""
        self._watchers.append(changed)
        return lambda: self._watchers.remove(changed)

    def parses(self, plugin_id: str) -> bool:
        """Whether the plugin has a parser of the configuration in force or of the one that comes, as far as is known."""
        declared = self._declarations.get(plugin_id, {})
        for given in (self._scheduling, self.incoming):
            for ref in given.refs if given is not None else ():
                if ref.plugin_id == plugin_id:
                    known = declared.get(ref.type)
                    if Point.PARSE in (self._points(ref) if known is None else known.points):
                        return True
        return False

    def live(self, plugin_id: str) -> Generation | None:
        """The generation that gets the calls, or got them last."""
        return self._live.get(plugin_id)

    def answering(self) -> Iterator[tuple[str, Generation]]:
        """Plugins of the configuration in force, with the generations that get their calls."""
        for plugin_id in self.needed_by(self._scheduling):
            if (live := self._live.get(plugin_id)) is not None:
                yield plugin_id, live

    # -- trials ----------------------------------------------------------------------------------

    def shadow(self, sample: ShadowSample) -> None:
        """Begin to copy calls. Raises `InputError` when the plan does not compile."""
        self._try(shadow=sample, canary=None)

    def canary(self, share: CanaryShare) -> None:
        """Begin to share requests. Raises `InputError` when the plan does not compile."""
        self._try(shadow=None, canary=share)

    def _try(self, *, shadow: ShadowSample | None, canary: CanaryShare | None) -> None:
        before = self._shadow, self._canary
        self._shadow, self._canary = shadow, canary
        try:
            self.publish()
        except HostError:
            self._shadow, self._canary = before
            raise

    def end_trial(self, plugin_id: str) -> None:
        """Copy and share nothing for this plugin any more."""
        on_trial = [t for t in (self._shadow, self._canary) if t is not None and t.plugin_id == plugin_id]
        if on_trial:
            self._shadow = self._canary = None
            self._publish_again()

    def warm(self, plugin_id: str, generations: Sequence[Generation]) -> None:
        """Let exactly these hear what the live one of the plugin is told, and the live one what they are."""
        wanted = tuple(generations)
        if self._warm.get(plugin_id, ()) != wanted:
            self._warm[plugin_id] = wanted
            self._publish_again()

    def sleep(self, plugin_ids: Collection[str]) -> None:
        """Let requests that need one of exactly these wake it first."""
        if self._asleep != frozenset(plugin_ids):
            self._asleep = frozenset(plugin_ids)
            self._publish_again()

    def _publish_again(self) -> None:
        """Publish what compiled before, if anything did: only what is beside the plan changed."""
        if self._router.plan is not None:
            try:
                self.publish()
            except InputError as error:
                logger.warning("plan_refused code=%s: %s", error.code, error)

    @property
    def scheduling(self) -> Scheduling:
        """The configuration in force."""
        return self._scheduling

    @property
    def wanted(self) -> tuple[str, ...]:
        """Plugin ids that the configuration needs, in its order, producers made by default included."""
        return tuple(dict.fromkeys(ref.plugin_id for ref in self._all_refs() if ref.plugin_id is not None))

    def needed_by(self, scheduling: Scheduling) -> tuple[str, ...]:
        """As `wanted`, for one configuration alone."""
        return tuple(dict.fromkeys(ref.plugin_id for ref in self._refs(scheduling) if ref.plugin_id is not None))

    def is_only_incoming(self, plugin_id: str) -> bool:
        """Whether the configuration that is about to be adopted needs the plugin, and the one in force does not."""
        if self.incoming is None or plugin_id in self.needed_by(self._scheduling):
            return False
        return plugin_id in self.needed_by(self.incoming)

    def refs_of(self, plugin_id: str, scheduling: Scheduling | None = None) -> tuple[RefSpec, ...]:
        """What to create inside a process of the plugin, under a configuration: by default the one in force.

        In the order in which to make it: each ref behind those that it needs. One that another of them needs differs when
        that one does, so that both are made anew together.
        A plugin that only the incoming configuration needs gets what that one says.
        """
        for given in (scheduling or self._scheduling, self.incoming):
            refs = self._refs(given) if given is not None else ()
            found = specs([ref for ref in refs if ref.plugin_id == plugin_id])
            if found or scheduling is not None:
                return found
        return ()

    def restart_key(self, plugin_id: str) -> str:
        """What of the plugin's parameters its processes are started with: it changes with those that need another one."""
        known, given = self._started_with.get(plugin_id, ("", "")), self._given(plugin_id)
        return known[1] if given == known[0] else given

    def _given(self, plugin_id: str) -> str:
        """Digest of the parameters that need another process: all of them, before the plugin said which do.

        Those of what such a ref needs are among them: it holds an instance that is made anew with them.
        """
        declared = self._declarations.get(plugin_id)
        given = [
            _with_needs(spec)
            for spec in specs([ref for ref in self._refs(self._scheduling) if ref.plugin_id == plugin_id])
            if declared is None or (spec.type in declared and declared[spec.type].needs_restart)
        ]
        return digest_of(json.dumps(given, sort_keys=True, default=str).encode()) if given else ""

    def learn_types(self, plugin_id: str, types: Mapping[str, TypeDeclaration]) -> bool:
        """Note what a plugin's types declare. True when default producers come or go because of it."""
        before, keys = self._all_refs(), self._restart_keys(plugin_id)
        self._declarations[plugin_id] = types
        self._known.clear()
        self._keep(keys)
        return self._all_refs() != before

    def _restart_keys(self, *more: str) -> Mapping[str, str]:
        return {plugin_id: self.restart_key(plugin_id) for plugin_id in (*self.needed_by(self._scheduling), *more)}

    def _keep(self, keys: Mapping[str, str]) -> None:
        """The same parameters go on being what processes were started with, whichever of them are looked at now."""
        for plugin_id, key in keys.items():
            self._started_with[plugin_id] = (self._given(plugin_id), key)

    def learn_facts(self, plugin_id: str, created: Iterable[CreatedRef]) -> bool:
        """Note what refs that were made say of themselves. True when default producers come or go because of it.

        It holds for these parameters of them, whichever configuration has them.
        """
        before, keys = self._all_refs(), self._restart_keys()
        for ref in created:
            self._said[_made(plugin_id, ref.spec)] = ref.facts
        self._known.clear()
        self._keep(keys)
        after = self._all_refs()
        used = {_made(ref.plugin_id, ref) for ref in after if ref.plugin_id is not None}
        # A configuration that is not in force yet may be the one that they are made for: what is of no use is little.
        if len(self._said) > 2 * len(used) + _MOST_UNUSED_FACTS:
            self._said = {made: facts for made, facts in self._said.items() if made in used}
        return after != before

    def check(self, plugin_id: str, candidate: Generation) -> Plan:
        """The plan with the candidate in place of the live generation. Raises `InputError`."""
        return self._compile(self._scheduling, {**self._live, plugin_id: candidate})

    def part_of(self, plugin_id: str, candidate: Generation) -> "Part":
        """What requests would have to do with the candidate. Raises `InputError` when the plan does not compile with it."""
        plan = self.check(plugin_id, candidate)
        asked = any(call.generation is candidate for call in plan.calls.values())
        return Part(asked, asked or any(learner.generation is candidate for learner in plan.told))

    def cut_over(self, plugin_id: str, candidate: Generation) -> Generation | None:
        """Publish the plan with the candidate; return the generation that it replaced. Raises `InputError`."""
        plan = self.check(plugin_id, candidate)
        previous = self._live.get(plugin_id)
        self._live[plugin_id] = candidate
        self._asleep -= {plugin_id}
        self._send(plan)
        return previous

    def publish(self) -> None:
        """Publish the plan of what is live now. Raises `InputError`."""
        self._send(self._compile(self._scheduling, self._live))

    def _send(self, plan: Plan) -> None:
        self._router.publish(plan, canary=self._canary_plan(), shadows=self._shadows(), mirrors=dict(self._mirrors()))
        self._tell()

    def _tell(self) -> None:
        for changed in tuple(self._watchers):
            changed()

    def _canary_plan(self) -> CanaryPlan | None:
        share = self._canary
        if share is None or self._live.get(share.plugin_id) is share.candidate:
            return None
        return CanaryPlan(self.check(share.plugin_id, share.candidate), share.share, share.salt)

    def _shadows(self) -> tuple[Shadow, ...]:
        sample = self._shadow
        live = self._live.get(sample.plugin_id) if sample is not None else None
        if sample is None or live is None or live is sample.candidate:
            return ()
        plan = self.check(sample.plugin_id, sample.candidate)
        return (Shadow(live, sample.candidate, plan, sample.sample, sample.on_comparison),)

    def _mirrors(self) -> Iterable[tuple[int, tuple[Generation, ...]]]:
        for plugin_id, warm in self._warm.items():
            live = self._live.get(plugin_id)
            group = [g for g in dict.fromkeys((live, *warm)) if g is not None]
            for generation in group if len(group) > 1 else ():
                yield generation.number, tuple(g for g in group if g is not generation)

    def remove(self, plugin_id: str) -> Generation | None:
        """Take a plugin's generation out of the plan; its bindings, if any, apply their failure policies."""
        removed = self._live.pop(plugin_id, None)
        if removed is not None:
            self._publish_again()
            self._tell()
        return removed

    def adopt(self, scheduling: Scheduling, index: TypeIndex) -> None:
        """Publish another configuration, whose refs were created in the live processes before. Raises `InputError`."""
        before = self._scheduling, self._index
        self._scheduling, self._index = scheduling, index
        self._known.clear()
        try:
            self._send(self._compile(scheduling, self._live))
        except InputError:
            self._scheduling, self._index = before
            self._known.clear()
            raise
        _tell_warnings(scheduling)

    def reindex(self, index: TypeIndex) -> None:
        """Take a new index of what the sources offer. What is made by itself stays, whoever else claims its key now."""
        self._index = index.keeping(self._index)
        self._known.clear()

    def _compile(self, scheduling: Scheduling, live: Mapping[str, Generation]) -> Plan:
        self._plans += 1
        defaults = self._of(scheduling).defaults
        refs = tuple(self._ref_plans(self._refs(scheduling, live), live, self._asleep))
        given = PlanInput(
            refs,
            scheduling.profiles,
            scheduling.options,
            detector=scheduling.detector,
            default_producers=defaults.types,
            parsers=scheduling.parsers,
            withheld=defaults.withheld,
        )
        return compile_plan(self._plans, given)

    def _all_refs(self) -> tuple[ResolvedRef, ...]:
        return self._refs(self._scheduling) + (self._refs(self.incoming) if self.incoming is not None else ())

    def _refs(self, scheduling: Scheduling, live: Mapping[str, Generation] | None = None) -> tuple[ResolvedRef, ...]:
        """The configured refs, and the producers that something of them consumes and nothing of them is.

        With `live`, what these generations say counts, and otherwise what was learned of those that were live last.
        """
        known = self._of(scheduling)
        if live is not None:
            return self._completed(known, live)
        if known.refs is None:
            known.refs = self._completed(known, {})
        return known.refs

    def _of(self, scheduling: Scheduling) -> "_Known":
        known = next((it for it in self._known if it.scheduling is scheduling), None)
        if known is None:
            # The configuration that is about to be adopted ranks packages by its own word already.
            ranking = scheduling.ranking
            index = self._index if ranking is None else replace(self._index, ranking=ranking)
            known = _Known(scheduling, index, index.default_producers(allow_experimental=scheduling.allow_experimental))
            self._known = [*self._known[-_MOST_KNOWN + 1 :], known]
        return known

    def _completed(self, known: "_Known", live: Mapping[str, Generation]) -> tuple[ResolvedRef, ...]:
        refs = known.scheduling.refs
        while True:
            plans = tuple(self._ref_plans(refs, live, frozenset()))
            names = missing_producers(plans, known.defaults.types)
            found = [(name, known.index.resolve(name, None)) for name in names]
            made = tuple(ResolvedRef(name, name, by, {}) for name, by in found if not isinstance(by, Problem))
            if not made:
                return refs
            refs += made

    def _ref_plans(
        self, refs: Sequence[ResolvedRef], live: Mapping[str, Generation], asleep: Collection[str]
    ) -> Iterator[RefPlan]:
        for ref in refs:
            generation = live.get(ref.plugin_id) if ref.plugin_id is not None else None
            if generation is not None and ref.name not in generation.handles:
                generation = None
            known = self._declarations.get(ref.plugin_id or "", {})
            declared = generation.types if generation is not None else known
            yield RefPlan(
                ref.name,
                ref.type,
                ref.plugin_id,
                generation,
                declared.get(ref.type),
                ref.parameters,
                ref.place,
                dormant=generation is None and ref.plugin_id in asleep,
                data=ref.data,
                facts=self._facts(ref, generation),
                points=self._points(ref),
            )

    def _points(self, ref: ResolvedRef) -> frozenset[str]:
        """What the manifest says that the ref's type answers; nothing where it does not say."""
        if ref.plugin_id is None:
            return UNKNOWN.points
        return self._index.said.get((plugin_of(ref.plugin_id), ref.type), UNKNOWN).points

    def _facts(self, ref: ResolvedRef, generation: Generation | None) -> InstanceFacts:
        """What a ref says of itself: in the generation, or when it was made last with these parameters."""
        if ref.plugin_id is None:
            return NO_FACTS
        said = self._said.get(_made(ref.plugin_id, ref), NO_FACTS)
        return said if generation is None else generation.facts.get(ref.name, said)


def _tell_warnings(scheduling: Scheduling) -> None:
    for warning in scheduling.warnings:
        logger.warning("configuration_warning: %s", warning)


@dataclass(slots=True)
class _Known:
    """What follows for one configuration from what is known now; thrown away when more is known."""

    scheduling: Scheduling
    index: TypeIndex
    defaults: DefaultProducers
    refs: tuple[ResolvedRef, ...] | None = None


_MOST_KNOWN = 4
"""Configurations: one is in force, one comes, and that one may make way for another."""


def _with_needs(spec: RefSpec) -> list[object]:
    return [spec.name, spec.type, spec.parameters, [_with_needs(needed) for needed in spec.needs]]


_Made = tuple[str, str, str, str]
"""A ref with the parameters that it is made with: plugin id, name, type, and these as JSON."""
_MOST_UNUSED_FACTS = 64


def _made(plugin_id: str, ref: RefSpec | ResolvedRef) -> _Made:
    return plugin_id, ref.name, ref.type, json.dumps(ref.parameters, sort_keys=True, default=str)
