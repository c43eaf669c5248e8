"""The scheduling configuration in force, joined with the live generations: what is compiled into plans.

Owned by the event loop. Validates aside, then changes: a configuration or a generation whose plan does
not compile leaves everything as it was.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from hotbay_sdk.protocol import TypeDeclaration

from hotbay.config.picker_config import PickerConfig, PluginEntry
from hotbay.errors import InputError, Place, Problem
from hotbay.rollout.instance import RefSpec
from hotbay.rpc.leases import Generation
from hotbay.scheduling.binding import BindingOptions
from hotbay.scheduling.compiler import compile_plan
from hotbay.scheduling.plan import Plan, PlanInput, ProfileEntryPlan, ProfileInput, RefPlan
from hotbay.scheduling.producers import missing_producers
from hotbay.scheduling.registry import DEFAULT_PRODUCERS, TypeIndex
from hotbay.scheduling.router import Router


@dataclass(frozen=True, slots=True)
class ResolvedRef:
    """A configured ref and the package that provides its type; None for a host built-in."""

    name: str
    type: str
    plugin_id: str | None
    parameters: Mapping[str, object]
    place: Place | None = None


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
    unusable: Sequence[Problem] = (),
) -> Scheduling:
    """Find the package of every type.

    Raises `InputError` with all that is unknown or unused; a type that nothing provides is told together with the
    `unusable` packages of the sources, one of which may be meant.
    """
    problems: list[Problem] = []
    refs: list[ResolvedRef] = []
    for entry in config.plugins:
        provider = index.resolve(entry.type, entry.place)
        if isinstance(provider, Problem):
            problems.append(provider)
        else:
            refs.append(_resolved(entry, provider))
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


def _resolved(entry: PluginEntry, provider: str | None) -> ResolvedRef:
    return ResolvedRef(entry.name, entry.type, provider, entry.parameters, entry.place)


class Deployment:
    """Joins configuration and generations; publishes plans through the router.

    `incoming` is a configuration that is about to be adopted: its packages are wanted, nothing else of it acts.
    """

    def __init__(self, router: Router, scheduling: Scheduling, index: TypeIndex) -> None:
        self._router = router
        self._scheduling = scheduling
        self._index = index
        self._live: dict[str, Generation] = {}
        self._declarations: dict[str, Mapping[str, TypeDeclaration]] = {}
        self._plans = 0
        self.incoming: Scheduling | None = None

    @property
    def scheduling(self) -> Scheduling:
        """The configuration in force."""
        return self._scheduling

    @property
    def wanted(self) -> tuple[str, ...]:
        """Plugin ids that the configuration needs, in its order, producers made by default included."""
        return tuple(dict.fromkeys(ref.plugin_id for ref in self._all_refs() if ref.plugin_id is not None))

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

    def learn_types(self, plugin_id: str, types: Mapping[str, TypeDeclaration]) -> bool:
        """Note what a plugin's types declare. True when default producers come or go because of it."""
        before = self._all_refs()
        self._declarations[plugin_id] = types
        return self._all_refs() != before

    def check(self, plugin_id: str, candidate: Generation) -> Plan:
        """The plan with the candidate in place of the live generation. Raises `InputError`."""
        return self._compile(self._scheduling, {**self._live, plugin_id: candidate})

    def cut_over(self, plugin_id: str, candidate: Generation) -> Generation | None:
        """Publish the plan with the candidate; return the generation that it replaced. Raises `InputError`."""
        plan = self.check(plugin_id, candidate)
        previous = self._live.get(plugin_id)
        self._live[plugin_id] = candidate
        self._router.publish(plan)
        return previous

    def publish(self) -> None:
        """Publish the plan of what is live now. Raises `InputError`."""
        self._router.publish(self._compile(self._scheduling, self._live))

    def remove(self, plugin_id: str) -> None:
        """Take a plugin's generation out of the plan; its bindings, if any, apply their failure policies."""
        if self._live.pop(plugin_id, None) is not None:
            self.publish()

    def adopt(self, scheduling: Scheduling, index: TypeIndex) -> None:
        """Publish another configuration, whose refs were created in the live processes before. Raises `InputError`."""
        plan = self._compile(scheduling, self._live)
        self._scheduling, self._index = scheduling, index
        self._router.publish(plan)

    def reindex(self, index: TypeIndex) -> None:
        """Take a new index of what the sources offer."""
        self._index = index

    def _compile(self, scheduling: Scheduling, live: Mapping[str, Generation]) -> Plan:
        self._plans += 1
        refs = tuple(_ref_plans(self._refs(scheduling), live, self._declarations))
        return compile_plan(self._plans, PlanInput(refs, scheduling.profiles, scheduling.options))

    def _all_refs(self) -> tuple[ResolvedRef, ...]:
        return self._refs(self._scheduling) + (self._refs(self.incoming) if self.incoming is not None else ())

    def _refs(self, scheduling: Scheduling) -> tuple[ResolvedRef, ...]:
        """The configured refs, and the producers that something of them consumes and nothing of them is."""
        refs = scheduling.refs
        while True:
            plans = tuple(_ref_plans(refs, {}, self._declarations))
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
) -> Iterable[RefPlan]:
    for ref in refs:
        generation = live.get(ref.plugin_id) if ref.plugin_id is not None else None
        if generation is not None and ref.name not in generation.handles:
            generation = None
        declared = generation.types if generation is not None else known.get(ref.plugin_id or "", {})
        yield RefPlan(ref.name, ref.type, ref.plugin_id, generation, declared.get(ref.type), ref.parameters, ref.place)
