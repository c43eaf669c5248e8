"""A scheduling configuration whose types are resolved: completed, checked, each plugin with the package that provides it. Pure."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import Final

from hotbay.config.picker_checks import check_picker
from hotbay.config.picker_config import PickerConfig, PluginEntry
from hotbay.config.ref_graph import named_refs, ordered
from hotbay.config.system_defaults import complete
from hotbay.config.wording import Path
from hotbay.errors import InputError, Place, Problem
from hotbay.rollout.refs import RefSpec
from hotbay.scheduling.binding import BindingOptions
from hotbay.scheduling.plan import ProfileEntryPlan, ProfileInput
from hotbay.scheduling.registry import TypeIndex

__all__ = ["NO_KEYS", "Allowance", "ResolvedRef", "Scheduling", "resolve", "specs"]

NO_KEYS: Final[Mapping[str, str]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class ResolvedRef:
    """A configured ref and the package that provides its type; None for a host built-in.

    `plugin_id` is the plugin's id, with `/key` where the ref has an instance of its own. `data`: the data layer names it, or its
    package says that it sees no request. `needs` names refs that its parameters name; `at` says where a path inside its
    parameters stands.
    """

    name: str
    type: str
    plugin_id: str | None
    parameters: Mapping[str, object]
    place: Place | None = None
    data: bool = False
    needs: tuple[str, ...] = ()
    at: Callable[[Path], Place] | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Scheduling:
    """A scheduling configuration whose types are all resolved.

    `detector` is the ref whose word on saturation sheds requests. `parsers`: in the order in which they claim paths; None: all
    refs that are some. `ranking` says which package's a type is where several provide it; None: the one that the index was
    made with. `allow_experimental`: whether alpha types may be made by themselves.
    """

    refs: tuple[ResolvedRef, ...]
    profiles: tuple[ProfileInput, ...]
    options: Mapping[str, BindingOptions] = field(default_factory=dict)
    detector: str | None = None
    parsers: tuple[str, ...] | None = None
    warnings: tuple[Problem, ...] = field(default=(), compare=False)
    ranking: Mapping[str, str] | None = None
    allow_experimental: bool = False


@dataclass(frozen=True, slots=True)
class Allowance:
    """What of a scheduling configuration the rest of the host's decides.

    `allow_experimental`: whether alpha types may be used. `has_objectives`: whether any request can be one that is shed:
    without them no detector is made by default, whose process would have nothing to do.
    """

    allow_experimental: bool = False
    has_objectives: bool = False


def resolve(
    config: PickerConfig,
    index: TypeIndex,
    options: Mapping[str, BindingOptions],
    *,
    keys: Mapping[str, str] = NO_KEYS,
    unusable: Sequence[Problem] = (),
    asked: Collection[str] = (),
    allowance: Allowance | None = None,
) -> Scheduling:
    """Complete the configuration, and find the package of every type. `keys` gives refs an instance of their own, by the key's name.

    Raises `InputError` with all that is unknown, misplaced, not allowed or unused; a type that nothing provides is told
    together with the sources that were `asked`, and with their `unusable` packages, one of which may be meant.
    """
    allowance = allowance or Allowance()
    config = _completed(config, index, allowance)
    checked = check_picker(config, index.facts, allow_experimental=allowance.allow_experimental)
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
            refs.append(replace(_resolved(config, entry, provider, keys.get(entry.name, "")), data=is_data))
    if any(problem.code == "UNKNOWN_TYPE" for problem in problems):
        problems += unusable
    known = {ref.name: index.facts(ref.type) for ref in refs}
    refs = [replace(ref, needs=_needs(ref, facts.refs)) if (facts := known[ref.name]) else ref for ref in refs]
    problems += [*checked.problems, *_unnamed_options(config, options)]
    if problems:
        raise InputError(problems)
    profiles = tuple(
        ProfileInput(p.name, tuple(ProfileEntryPlan(e.ref, e.weight, e.place) for e in p.plugins))
        for p in config.profiles
    )
    detector, parsers = config.flow_control.saturation_detector, tuple(entry.ref for entry in config.parsers)
    return Scheduling(
        tuple(refs),
        profiles,
        options,
        detector=detector.ref if detector is not None else None,
        parsers=parsers or None,
        warnings=checked.warnings,
        ranking=index.ranking,
        allow_experimental=allowance.allow_experimental,
    )


def _completed(config: PickerConfig, index: TypeIndex, allowance: Allowance) -> PickerConfig:
    completed = complete(config, index.facts)
    flow = completed.flow_control
    made = completed.plugin(flow.saturation_detector.ref) if flow.saturation_detector is not None else None
    is_asked_for = config.flow_control.saturation_detector is not None or config.queues or allowance.has_objectives
    if made is None or made.place is not None or is_asked_for:
        return completed
    plugins = tuple(entry for entry in completed.plugins if entry is not made)
    return replace(completed, plugins=plugins, flow_control=replace(flow, saturation_detector=None))


def _unnamed_options(config: PickerConfig, options: Mapping[str, BindingOptions]) -> Iterable[Problem]:
    names = {entry.name for entry in config.plugins}
    for name in options:
        if name not in names:
            yield Problem(
                "UNDEFINED_REF",
                f"bindings names '{name}', which is no plugin ref",
                path=f"bindings.{name}",
                expected=" or ".join(sorted(names)),
                found=name,
                hint="use the ref's name as under plugins",
            )


def _resolved(config: PickerConfig, entry: PluginEntry, provider: str | None, key: str) -> ResolvedRef:
    name = f"{provider}/{key}" if provider is not None and key else provider
    at = partial(_place, config, entry) if entry.place is not None else None
    return ResolvedRef(entry.name, entry.type, name, entry.parameters, entry.place, at=at)


def _place(config: PickerConfig, entry: PluginEntry, path: Path) -> Place:
    """Where a path inside the entry's parameters stands; for one that is not there, its nearest parent."""
    return config.document.place((*entry.path, "parameters", *path))


def _needs(ref: ResolvedRef, paths: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for _, name in named_refs(ref.parameters, paths)))


def specs(refs: Sequence[ResolvedRef]) -> tuple[RefSpec, ...]:
    """What to make inside one process, in its order. Circles were refused before."""
    by_name = {ref.name: ref for ref in refs}
    made: dict[str, RefSpec] = {}
    for name in ordered(tuple(by_name), {ref.name: ref.needs for ref in refs}):
        ref = by_name[name]
        needs = tuple(made[needed] for needed in ref.needs if needed in made)
        made[name] = RefSpec(ref.name, ref.type, ref.parameters, ref.place, needs=needs, at=ref.at)
    return tuple(made.values())
