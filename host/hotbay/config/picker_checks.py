"""What is wrong with a configuration, as far as types are known before they run: who may stand where, and what is not allowed. Pure.

Works on a completed configuration, see `system_defaults`. What a type of an unknown kind is, its process says: nothing is
reported of it here. Data that types consume stand in no manifest; circles of producers are found when they are READY.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from hotbay.config.picker_model import PickerConfig, PluginEntry, PriorityBand, ProfileEntry, RefEntry
from hotbay.config.ref_graph import construction_problems
from hotbay.config.system_defaults import DEFAULT_HANDLER, FactsOf
from hotbay.config.type_facts import (
    FAIRNESS,
    FILTER,
    ORDERING,
    PARSE,
    PICK,
    PROFILE_HANDLER,
    SATURATION,
    SCORE,
    USAGE_LIMIT,
    TypeFacts,
)
from hotbay.config.wording import Path, nearest, path_text, quoted
from hotbay.errors import Place, Problem

__all__ = ["ALLOW_EXPERIMENTAL", "Checked", "check_picker"]

ALLOW_EXPERIMENTAL: Final = (
    "write `scheduling: {allow_experimental: true}` in the HostConfig, or run with --allow-experimental-plugins"
)


@dataclass(frozen=True, slots=True)
class Checked:
    """What was found; with `problems` the configuration cannot be used."""

    problems: tuple[Problem, ...]
    warnings: tuple[Problem, ...]


def check_picker(config: PickerConfig, facts: FactsOf, *, allow_experimental: bool | None) -> Checked:
    """Check a completed configuration.

    Args:
        config: the configuration.
        facts: what is known of a type.
        allow_experimental: whether types that are not beta or stable may be used; None where nobody can say: then they are
            warned of.
    """
    checks = _Checks(config, facts)
    experimental = [] if allow_experimental else list(checks.experimental())
    problems = [
        *construction_problems(config, facts),
        *checks.profiles(),
        *checks.handlers(),
        *checks.references(),
        *(experimental if allow_experimental is False else ()),
    ]
    warnings = [*checks.remarks(), *(experimental if allow_experimental is None else ())]
    return Checked(tuple(dict.fromkeys(problems)), tuple(warnings))


class _Checks:
    def __init__(self, config: PickerConfig, facts: FactsOf) -> None:
        self._config = config
        self._facts = facts
        self._plugins = {entry.name: entry for entry in config.plugins}

    def _of(self, name: str) -> TypeFacts | None:
        """What is known of the plugin; None when its points are not."""
        entry = self._plugins.get(name)
        facts = self._facts(entry.type) if entry is not None else None
        return facts if facts is not None and facts.points else None

    def _answers(self, name: str, *points: str) -> bool:
        facts = self._of(name)
        return facts is not None and facts.answers(*points)

    # -- profiles and handlers -------------------------------------------------------------------

    def profiles(self) -> Iterator[Problem]:
        for profile in self._config.profiles:
            pickers = [entry for entry in profile.plugins if self._answers(entry.ref, PICK)]
            if len({entry.ref for entry in pickers}) > 1 or len(pickers) > 1:
                yield self._two_pickers(profile, pickers)
            for entry in profile.plugins:
                facts = self._of(entry.ref)
                if facts is not None and not facts.answers(FILTER, SCORE, PICK, PROFILE_HANDLER):
                    yield self._no_part(profile, entry, facts)

    def _two_pickers(self, profile: ProfileEntry, pickers: Sequence[RefEntry]) -> Problem:
        names = " and ".join(quoted(entry.ref) for entry in pickers)
        message = (
            f"profile {quoted(profile.name)} has {len(pickers)} pickers, {names}: already have a registered picker"
        )
        hint = "keep one picker in a profile"
        if profile.place is None:
            hint = "without schedulingProfiles all plugins make up one profile: write profiles, or keep one picker"
        return Problem("CONFIG_INVALID", message, pickers[1].place, path_text(pickers[1].path), hint=hint)

    def _no_part(self, profile: ProfileEntry, entry: RefEntry, facts: TypeFacts) -> Problem:
        kind = self._plugins[entry.ref].type
        return Problem(
            "CONFIG_INVALID",
            f"profile {quoted(profile.name)} names {quoted(entry.ref)} of type {quoted(kind)}, which has no part in profiles",
            entry.place,
            path_text(entry.path),
            "a filter, scorer or picker",
            ", ".join(sorted(facts.points)),
            "other plugins act by being listed under `plugins`: take the line out of the profile",
        )

    def handlers(self) -> Iterator[Problem]:
        handlers = [entry for entry in self._config.plugins if self._answers(entry.name, PROFILE_HANDLER)]
        profiles = self._config.profiles
        if len(handlers) > 1:
            names = " and ".join(quoted(entry.name) for entry in handlers)
            yield _at(handlers[1], f"multiple profile handlers found: {names}", hint="keep one")
        elif not handlers and len(profiles) > 1 and all(self._of(name) is not None for name in self._plugins):
            message = f"no profile handler configured, and there are {len(profiles)} profiles"
            hint = "list a profile handler under `plugins`, such as header-profile-handler"
            place, path = self._config.place("schedulingProfiles"), "schedulingProfiles"
            yield Problem("CONFIG_INVALID", message, place, path, hint=hint)
        elif len(profiles) > 1 and len(handlers) == 1 and handlers[0].type == DEFAULT_HANDLER:
            message = f"{DEFAULT_HANDLER} cannot support multiple profiles, and there are {len(profiles)}"
            yield _at(handlers[0], message, hint="use a profile handler that chooses, or one profile")

    # -- references outside of profiles ----------------------------------------------------------

    def references(self) -> Iterator[Problem]:
        flow = self._config.flow_control
        if flow.saturation_detector is not None:
            yield from self._kind(flow.saturation_detector, "saturation detector", SATURATION)
        for entry in self._config.parsers:
            yield from self._parser(entry)
        if self._config.queues:
            yield from self._policies(flow.all_bands, flow.usage_limit)

    def _parser(self, entry: RefEntry) -> Iterator[Problem]:
        if entry.ref in self._plugins:
            yield from self._kind(entry, "parser plugin", PARSE)
            return
        guess = nearest(entry.ref, self._plugins)
        hint = f"did you mean {quoted(guess)}?" if guess else "declare it under `plugins`, or name a type of parser"
        message = f"references undefined plugin {quoted(entry.ref)}, and no type of parser is called that"
        path = (*entry.path, "pluginRef")
        yield Problem("UNDEFINED_REF", message, self._config.document.place(path), path_text(path), hint=hint)

    def _policies(self, bands: Iterable[PriorityBand], usage_limit: RefEntry | None) -> Iterator[Problem]:
        for band in bands:
            if band.fairness is not None:
                yield from self._kind(band.fairness, "fairness policy", FAIRNESS)
            if band.ordering is not None:
                yield from self._kind(band.ordering, "ordering policy", ORDERING)
        if usage_limit is not None:
            yield from self._kind(usage_limit, "usage limit policy", USAGE_LIMIT)

    def _kind(self, entry: RefEntry, what: str, point: str) -> Iterator[Problem]:
        facts = self._of(entry.ref)
        if facts is not None and not facts.answers(point):
            path: Path = entry.path
            place: Place | None = self._config.document.place(path) if path else None
            article = "no"
            message = (
                f"the plugin {quoted(entry.ref)} of type {quoted(self._plugins[entry.ref].type)} is {article} {what}"
            )
            found = ", ".join(sorted(facts.points))
            yield Problem("CONFIG_INVALID", message, place, path_text(path), f"a {what}", found)

    # -- stability and remarks -------------------------------------------------------------------

    def experimental(self) -> Iterator[Problem]:
        for entry in self._config.plugins:
            facts = self._facts(entry.type)
            if facts is None or not facts.is_alpha:
                continue
            said = "is alpha" if facts.stability is not None else "does not say how stable it is, which counts as alpha"
            made = "" if entry.place is not None else " (made by itself)"
            message = f"plugin {quoted(entry.name)}{made}: the type {quoted(entry.type)} {said}"
            yield _at(entry, message, hint=ALLOW_EXPERIMENTAL)

    def remarks(self) -> Iterator[Problem]:
        """What is accepted and does nothing."""
        used = {entry.ref for profile in self._config.profiles for entry in profile.plugins}
        used |= self._config.data_layer.refs | {entry.ref for entry in self._config.parsers}
        for profile in self._config.profiles:
            yield from self._profile_remarks(profile)
        for entry in self._config.plugins:
            facts = self._of(entry.name)
            if (
                facts is not None
                and entry.place is not None
                and entry.name not in used
                and facts.points <= _IN_PROFILES
            ):
                yield _at(entry, f"the plugin {quoted(entry.name)} is used by no profile", code="NO_EFFECT")

    def _profile_remarks(self, profile: ProfileEntry) -> Iterator[Problem]:
        for entry in profile.plugins:
            facts = self._of(entry.ref)
            if facts is not None and facts.answers(PROFILE_HANDLER) and not facts.answers(FILTER, SCORE, PICK):
                message = (
                    f"a profile handler acts by being listed under `plugins`: {quoted(entry.ref)} does nothing here"
                )
                yield Problem("NO_EFFECT", message, entry.place, path_text(entry.path))
        weights = [entry.weight for entry in profile.plugins if self._answers(entry.ref, SCORE)]
        if weights and all(weight == 0 for weight in weights):
            message = (
                f"all scorers of profile {quoted(profile.name)} have the weight 0: any endpoint is as good as another"
            )
            yield Problem("NO_EFFECT", message, profile.place, path_text(profile.path))


_IN_PROFILES: Final = frozenset({FILTER, SCORE, PICK})


def _at(entry: PluginEntry, message: str, *, hint: str = "", code: str = "CONFIG_INVALID") -> Problem:
    return Problem(code, message, entry.place, path_text(entry.path), hint=hint)
