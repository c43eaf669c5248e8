"""The scheduling configuration in force, joined with the live generations: what is compiled into plans.

Owned by the event loop. Validates aside, then changes: a configuration or a generation whose plan does
not compile leaves everything as it was.
"""

import json
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final

from hotbay_sdk.protocol import TypeDeclaration

from hotbay.config.picker_config import PickerConfig, PluginEntry
from hotbay.errors import HostError, InputError, Place, Problem
from hotbay.rollout.refs import RefSpec
from hotbay.rpc.leases import Generation, LiveRef
from hotbay.scheduling.arms import AnswerPair, CanaryPlan, Shadow
from hotbay.scheduling.binding import BindingOptions
from hotbay.scheduling.compiler import compile_plan
from hotbay.scheduling.plan import Plan, PlanInput, ProfileEntryPlan, ProfileInput, RefPlan
from hotbay.scheduling.producers import missing_producers
from hotbay.scheduling.registry import DEFAULT_PRODUCERS, TypeIndex
from hotbay.scheduling.router import Router
from hotbay.store.digests import digest_of

logger = logging.getLogger(__name__)

NO_KEYS: Final[Mapping[str, str]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class ResolvedRef:
    """A configured ref and the package that provides its type; None for a host built-in.

    `plugin_id` is the plugin's id, with `/key` where the ref has an instance of its own. `data`: the data layer names it, or its
    package says that it sees no request.
    """

    name: str
    type: str
    plugin_id: str | None
    parameters: Mapping[str, object]
    place: Place | None = None
    data: bool = False


@dataclass(frozen=True, slots=True)
class Scheduling:
    """A scheduling configuration whose types are all resolved."""

    refs: tuple[ResolvedRef, ...]
    profiles: tuple[ProfileInput, ...]
    options: Mapping[str, BindingOptions] = field(default_factory=dict)


def resolve(
    config: PickerConfig,
    index: TypeIndex,
    options: Mapping[str, BindingOptions],
    *,
    keys: Mapping[str, str] = NO_KEYS,
    unusable: Sequence[Problem] = (),
    asked: Collection[str] = (),
) -> Scheduling:
    """Find the package of every type. `keys` gives refs an instance of their own, by the key's name.

    Raises `InputError` with all that is unknown or unused; a type that nothing provides is told together with the
    sources that were `asked`, and with their `unusable` packages, one of which may be meant.
    """
    problems: list[Problem] = []
    refs: list[ResolvedRef] = []
    data = config.data_layer.refs
    where = f"; sources asked: {', '.join(sorted(asked)) or 'none'}"
    for entry in config.plugins:
        provider = index.resolve(entry.type, entry.place)
        if isinstance(provider, Problem):
            problems.append(replace(provider, message=provider.message + where))
        else:
            is_data = entry.name in data or (provider is not None and (provider, entry.type) in index.data)
            refs.append(replace(_resolved(entry, provider, keys.get(entry.name, "")), data=is_data))
    if any(problem.code == "UNKNOWN_TYPE" for problem in problems):
        problems += unusable
    names = {entry.name for entry in config.plugins}
    problems += [
        Problem(
            "UNDEFINED_REF",
            f"bindings names '{name}', which is no plugin ref",
            path=f"bindings.{name}",
            expected=" or ".join(sorted(names)),
            found=name,
            hint="use the ref's name as under plugins",
        )
        for name in options
        if name not in names
    ]
    if problems:
        raise InputError(problems)
    profiles = tuple(
        ProfileInput(p.name, tuple(ProfileEntryPlan(e.ref, e.weight, e.place) for e in p.plugins))
        for p in config.profiles
    )
    return Scheduling(tuple(refs), profiles, options)


def _resolved(entry: PluginEntry, provider: str | None, key: str) -> ResolvedRef:
    name = f"{provider}/{key}" if provider is not None and key else provider
    return ResolvedRef(entry.name, entry.type, name, entry.parameters, entry.place)


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
        self._started_with: dict[str, tuple[str, str]] = {}
        self._plans = 0
        self._canary: CanaryShare | None = None
        self._shadow: ShadowSample | None = None
        self._warm: dict[str, tuple[Generation, ...]] = {}
        self._asleep: frozenset[str] = frozenset()
        self._watchers: list[Callable[[], None]] = []
        self.incoming: Scheduling | None = None

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

    def live(self, plugin_id: str) -> Generation | None:
        """The generation that gets the calls, or got them last."""
        return self._live.get(plugin_id)

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

        A plugin that only the incoming configuration needs gets what that one says.
        """
        for given in (scheduling or self._scheduling, self.incoming):
            refs = self._refs(given) if given is not None else ()
            found = tuple(RefSpec(r.name, r.type, r.parameters, r.place) for r in refs if r.plugin_id == plugin_id)
            if found or scheduling is not None:
                return found
        return ()

    def restart_key(self, plugin_id: str) -> str:
        """What of the plugin's parameters its processes are started with: it changes with those that need another one."""
        known, given = self._started_with.get(plugin_id, ("", "")), self._given(plugin_id)
        return known[1] if given == known[0] else given

    def _given(self, plugin_id: str) -> str:
        """Digest of the parameters that need another process: all of them, before the plugin said which do."""
        declared = self._declarations.get(plugin_id)
        given = [
            [ref.name, ref.type, ref.parameters]
            for ref in self._refs(self._scheduling)
            if ref.plugin_id == plugin_id
            and (declared is None or (ref.type in declared and declared[ref.type].needs_restart))
        ]
        return digest_of(json.dumps(given, sort_keys=True, default=str).encode()) if given else ""

    def learn_types(self, plugin_id: str, types: Mapping[str, TypeDeclaration]) -> bool:
        """Note what a plugin's types declare. True when default producers come or go because of it."""
        before, key = self._all_refs(), self.restart_key(plugin_id)
        self._declarations[plugin_id] = types
        # The same parameters go on being what its processes were started with, whichever of them are looked at now.
        self._started_with[plugin_id] = (self._given(plugin_id), key)
        return self._all_refs() != before

    def check(self, plugin_id: str, candidate: Generation) -> Plan:
        """The plan with the candidate in place of the live generation. Raises `InputError`."""
        return self._compile(self._scheduling, {**self._live, plugin_id: candidate})

    def part_of(self, plugin_id: str, candidate: Generation) -> "Part":
        """What requests would have to do with the candidate. Raises `InputError` when the plan does not compile with it."""
        plan = self.check(plugin_id, candidate)
        asked = any(call.generation is candidate for call in plan.calls.values())
        return Part(asked, asked or any(learner.generation is candidate for learner in plan.learners))

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
        plan = self._compile(scheduling, self._live)
        before = self._scheduling, self._index
        self._scheduling, self._index = scheduling, index
        try:
            self._send(plan)
        except InputError:
            self._scheduling, self._index = before
            raise

    def reindex(self, index: TypeIndex) -> None:
        """Take a new index of what the sources offer."""
        self._index = index

    def _compile(self, scheduling: Scheduling, live: Mapping[str, Generation]) -> Plan:
        self._plans += 1
        refs = tuple(_ref_plans(self._refs(scheduling), live, self._declarations, self._asleep))
        return compile_plan(self._plans, PlanInput(refs, scheduling.profiles, scheduling.options))

    def _all_refs(self) -> tuple[ResolvedRef, ...]:
        return self._refs(self._scheduling) + (self._refs(self.incoming) if self.incoming is not None else ())

    def _refs(self, scheduling: Scheduling) -> tuple[ResolvedRef, ...]:
        """The configured refs, and the producers that something of them consumes and nothing of them is."""
        refs = scheduling.refs
        while True:
            plans = tuple(_ref_plans(refs, {}, self._declarations, frozenset()))
            names = missing_producers(plans, DEFAULT_PRODUCERS)
            found = [(name, self._index.resolve(name, None)) for name in names]
            made = tuple(ResolvedRef(name, name, by, {}) for name, by in found if isinstance(by, str))
            if not made:
                return refs
            refs += made


def _ref_plans(
    refs: Sequence[ResolvedRef],
    live: Mapping[str, Generation],
    known: Mapping[str, Mapping[str, TypeDeclaration]],
    asleep: frozenset[str],
) -> Iterable[RefPlan]:
    for ref in refs:
        generation = live.get(ref.plugin_id) if ref.plugin_id is not None else None
        if generation is not None and ref.name not in generation.handles:
            generation = None
        declared = generation.types if generation is not None else known.get(ref.plugin_id or "", {})
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
        )
