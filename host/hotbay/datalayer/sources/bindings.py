"""Which extractors stand behind which sources: as configured, as registered, and as types of packages turn out to be.

What the host has itself is made before anything of a configuration acts. What the type of a package is, its process says when it
is READY: a source that waits for it is bound once it is known and right, and until then a problem says what is waited for, or
what is wrong and where. A later version may say otherwise: what then goes together is bound in the new form, and what does not
stays bound as it was. What a configuration, or a version, has as it was before is the same object, memories and all.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Protocol

import anyio.to_thread

from hotbay.config.data_parameters import DataTypeParameters
from hotbay.config.data_types import TypeForm
from hotbay.config.data_uses import ExtractorUse, SourceUse, check_uses, with_forms
from hotbay.config.engine_parameters import EngineParameters
from hotbay.config.wording import path_text
from hotbay.datalayer.source import AnyExtractor, DataSource
from hotbay.datalayer.sources.builtin import make_extractor, make_source, settled
from hotbay.datalayer.sources.registrar import (
    Binding,
    PendingRegistration,
    PendingRegistrations,
    Registrant,
    Resolution,
    brings,
)
from hotbay.errors import InputError, Problem

__all__ = ["Bindings", "NoTypes", "PreparedSources", "TypeProvider"]


class TypeProvider(Protocol):
    """Makes sources and extractors of types that are not the host's. None = nobody provides the type.

    `forms` is what is known by now of the types that uses name, and `wishes` what the extractors ask for that no use names.
    """

    def source(self, use: SourceUse) -> DataSource | None: ...

    def extractor(self, use: ExtractorUse, source: SourceUse) -> AnyExtractor | None: ...

    def forms(self, uses: Sequence[SourceUse]) -> Mapping[str, TypeForm]: ...

    def wishes(self) -> Sequence[PendingRegistration]: ...


class NoTypes:
    """Nobody provides any type."""

    def source(self, use: SourceUse) -> DataSource | None:
        return None

    def extractor(self, use: ExtractorUse, source: SourceUse) -> AnyExtractor | None:
        return None

    def forms(self, uses: Sequence[SourceUse]) -> Mapping[str, TypeForm]:
        return {}

    def wishes(self) -> Sequence[PendingRegistration]:
        return ()


@dataclass(frozen=True, slots=True)
class PreparedSources:
    """The sources of a configuration that can be used. `own` are those that the host has itself, by name."""

    uses: tuple[SourceUse, ...] = ()
    own: Mapping[str, DataSource] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Made:
    """What was bound, and for which use."""

    use: SourceUse
    binding: Binding


class Bindings:
    """See the module. `take` what was prepared, then `learn` whenever more may be known.

    Args:
        provider: makes what is not the host's; without one, what the host does not have is provided by nobody.
        registrants: who depends on sources beside the configured ones.
    """

    def __init__(self, provider: TypeProvider | None = None, registrants: Iterable[Registrant] = ()) -> None:
        self.problems: tuple[Problem, ...] = ()
        self._may_wait = provider is not None
        self._provider: TypeProvider = provider or NoTypes()
        self._prepared = PreparedSources()
        self._registered: list[PendingRegistration] = []
        self._made: dict[str, _Made] = {}
        self._dropped: Mapping[str, tuple[Problem, ...]] = {}
        self._sources: dict[tuple[str, str, TypeForm], DataSource] = {}
        self._extractors: dict[tuple[str, str, DataTypeParameters, object], AnyExtractor] = {}
        pending = _Noted(self._registered)
        for registrant in registrants:
            registrant.register_dependencies(pending)

    async def prepare(self, uses: Sequence[SourceUse], directory: Path, interval_s: float) -> PreparedSources:
        """Make what the host has itself, for `take`; nothing has changed yet. Calls may overlap.

        Args:
            uses: of a configuration that was read, and is valid.
            directory: what relative paths are relative to.
            interval_s: of metrics where none is written.

        Raises:
            InputError: a file cannot be used, a type is provided by nobody, or what was made does not go together: the
                host's own alone, or with what of packages is bound by now and would stay.
        """
        whole = tuple(settled(use, directory=directory, interval_s=interval_s) for use in uses)
        own: dict[str, DataSource] = {}
        problems: list[Problem] = []
        for use in whole:
            make = partial(make_source, use, directory=directory, interval_s=interval_s)
            try:
                source = await anyio.to_thread.run_sync(make)
            except InputError as error:
                problems += error.problems
                continue
            if source is not None:
                own[use.name] = source
                problems += [_unprovided(one) for one in use.extractors if self._extractor(one, use, source) is None]
            elif use.form is not None or not self._may_wait:
                problems.append(_unprovided(use))
        if problems:
            raise InputError(problems)
        prepared = PreparedSources(whole, own)
        made = self._own(prepared)
        if wrong := self._wrong(whole, made) or self._wrong(whole, made | self._kept(prepared)):
            raise InputError(wrong)
        return prepared

    def take(self, prepared: PreparedSources) -> Resolution:
        """Have another configuration, with what of it is known by now. Raises nothing.

        What of a package was bound since it was prepared, and does not go together with it, is let go of: `problems` says why.
        """
        made, dropped = self._own(prepared), dict[str, tuple[Problem, ...]]()
        for name, known in self._kept(prepared).items():
            wrong = self._wrong(prepared.uses, made | {name: known})
            if wrong:
                dropped[name] = wrong
            else:
                made[name] = known
        self._made, self._dropped, self._prepared = made, dropped, prepared
        self._forget_all_but(prepared.uses)
        return self.learn()

    def _own(self, prepared: PreparedSources) -> dict[str, _Made]:
        """The host's own, by name: what is bound already as long as it is made of the same."""
        own: dict[str, _Made] = {}
        for use in prepared.uses:
            source, known = prepared.own.get(use.name), self._made.get(use.name)
            if source is not None:
                if known is not None and _made_of(known.use) == _made_of(use):
                    source = known.binding.source
                own[use.name] = _Made(use, self._bound(use, source))
        return own

    def _kept(self, prepared: PreparedSources) -> dict[str, _Made]:
        """What of packages is bound and stays as it is, by name."""
        kept: dict[str, _Made] = {}
        for use in prepared.uses:
            known = self._made.get(use.name)
            if known is not None and use.name not in prepared.own and known.use.type == use.type:
                kept[use.name] = _Made(replace(known.use, place=use.place, path=use.path), known.binding)
        return kept

    def _wrong(self, uses: Sequence[SourceUse], made: Mapping[str, _Made]) -> tuple[Problem, ...]:
        """Why this, in the order of the uses, does not go together, or not with what is registered."""
        bound = [made[use.name] for use in uses if use.name in made]
        try:
            _resolved(self._registered, [one.binding for one in bound])
        except InputError as error:
            # In the words of the configuration, and with places, as far as it has words for it.
            return check_uses([one.use for one in bound]) or error.problems
        return ()

    def learn(self) -> Resolution:
        """Bind what is known by now, and say in `problems` what is not, or is not right."""
        uses = with_forms(self._prepared.uses, self._provider.forms(self._prepared.uses))
        problems = list(check_uses([use for use in uses if use.name in self._made]))
        for use in uses:
            if use.name in self._prepared.own:
                continue
            known = self._made.get(use.name)
            if use.form is None:
                problems += [] if known is not None else self._dropped.get(use.name, [_waiting(use)])
            elif known is None or known.use != use:
                problems += [one for one in self._bind_provided(use, uses) if one not in problems]
        resolution = self._resolve(problems)
        self.problems = tuple(problems)
        return resolution

    def _bind_provided(self, use: SourceUse, uses: Sequence[SourceUse]) -> Sequence[Problem]:
        """Bind a source of a package as it is now, if that goes together with what is bound beside it; else say why not."""
        others = [one for one in uses if one.name in self._made and one.name != use.name]
        beside = check_uses(others)
        wrong = [problem for problem in check_uses([*others, use]) if problem not in beside]
        if wrong:
            return wrong
        assert use.form is not None, "what is not known waits"
        key = use.name, use.type, use.form
        source = self._sources.get(key) or self._provider.source(use)
        if source is None:
            return [_unprovided(use)]
        self._sources[key] = source
        lacking = [_unprovided(one) for one in use.extractors if self._extractor(one, use, source) is None]
        if lacking:
            return lacking
        binding = self._bound(use, source)
        made = _Made(use, binding)
        wrong = list(self._wrong(uses, self._made | {use.name: made}))
        if not wrong:
            self._made[use.name] = made
        return wrong

    def _bound(self, use: SourceUse, source: DataSource) -> Binding:
        found = (self._extractor(one, use, source) for one in use.extractors)
        return Binding(source, tuple(one for one in found if one is not None))

    def _extractor(self, use: ExtractorUse, behind: SourceUse, source: DataSource) -> AnyExtractor | None:
        """The extractor of a use: the same as long as the use is, behind whatever brings the same."""
        key = use.name, use.type, use.parameters, brings(source)
        found = self._extractors.get(key) or make_extractor(use) or self._provider.extractor(use, behind)
        if found is not None:
            self._extractors[key] = found
        return found

    def _forget_all_but(self, uses: Sequence[SourceUse]) -> None:
        """What no use has any more as it was begins anew if one has it again; what is bound is known as long as it is."""
        sources = {(use.name, use.type) for use in uses}
        self._sources = {key: source for key, source in self._sources.items() if key[:2] in sources}
        named = {(one.name, one.type, one.parameters) for use in uses for one in use.extractors}
        bound = {id(one) for made in self._made.values() for one in made.binding.extractors}
        self._extractors = {key: one for key, one in self._extractors.items() if key[:3] in named or id(one) in bound}

    def _resolve(self, problems: list[Problem]) -> Resolution:
        """With the wishes of packages, each as long as it goes together with those before it.

        What is bound goes with what is registered: that was seen before it was bound.
        """
        bindings = [self._made[use.name].binding for use in self._prepared.uses if use.name in self._made]
        wishes = list(self._registered)
        resolution = _resolved(wishes, bindings)
        for wish in self._provider.wishes():
            try:
                resolution = _resolved([*wishes, wish], bindings)
            except InputError as error:
                problems += error.problems
            else:
                wishes.append(wish)
        return resolution


class _Noted(PendingRegistrations):
    """Registrations that are noted in a list besides."""

    def __init__(self, noted: list[PendingRegistration]) -> None:
        super().__init__()
        self._noted = noted

    def register(self, pending: PendingRegistration) -> None:
        super().register(pending)
        self._noted.append(pending)


def _resolved(wishes: Sequence[PendingRegistration], bindings: Sequence[Binding]) -> Resolution:
    pending = PendingRegistrations()
    for wish in wishes:
        pending.register(wish)
    return pending.resolve(bindings)


def _made_of(use: SourceUse) -> SourceUse:
    """What of a use its source is made of: all but the extractors, of which it knows the core one, by whose words it reads."""
    core = tuple(one for one in use.extractors if isinstance(one.parameters, EngineParameters))
    return replace(use, extractors=core, injected=False)


def _waiting(use: SourceUse) -> Problem:
    message = f"the source '{use.name}' waits for its package: what the type '{use.type}' is, it says when it is READY"
    hint = "see `hotbay status`: the plugin is starting, or does not start"
    return Problem("UNAVAILABLE", message, use.place, path_text(use.path), hint=hint)


def _unprovided(use: SourceUse | ExtractorUse) -> Problem:
    message = f"the type '{use.type}' of '{use.name}' is provided by no package that can stand in the data layer"
    return Problem(
        "UNKNOWN_TYPE", message, use.place, hint="add a package that provides it, or take the reference away"
    )
