"""Which extractors stand behind which sources: as configured, as registered, and as types of packages turn out to be.

What the host has itself is made before anything runs. What the type of a package is, its process says when it is READY, and
may say otherwise in another version: a source that waits for it is bound once it is known and right, stays bound, and
until then a problem says what is waited for, or what is wrong and where. Nothing that is bound goes because of what is
learned, but for what a package asked for and asks for no more.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import anyio.to_thread

from hotbay.config.data_types import TypeForm
from hotbay.config.data_uses import ExtractorUse, SourceUse, check_uses, with_forms
from hotbay.config.wording import path_text
from hotbay.datalayer.source import AnyExtractor, DataSource
from hotbay.datalayer.sources.builtin import make_extractor, make_source
from hotbay.datalayer.sources.registrar import (
    Binding,
    PendingRegistration,
    PendingRegistrations,
    Registrant,
    Resolution,
)
from hotbay.errors import InputError, Problem

__all__ = ["Bindings", "NoTypes", "TypeProvider"]


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


class Bindings:
    """See the module. `make` once, then `learn` whenever more may be known.

    Args:
        uses: of a configuration that was read, and is valid.
        provider: makes what is not the host's; without one, what the host does not have is provided by nobody.
        registrants: who depends on sources beside the configured ones.
    """

    def __init__(
        self,
        uses: Sequence[SourceUse] = (),
        provider: TypeProvider | None = None,
        registrants: Iterable[Registrant] = (),
    ) -> None:
        self.problems: tuple[Problem, ...] = ()
        self._uses = tuple(uses)
        self._may_wait = provider is not None
        self._provider: TypeProvider = provider or NoTypes()
        self._registrants = tuple(registrants)
        self._registered: list[PendingRegistration] = []
        self._made: dict[str, Binding] = {}

    @property
    def waits(self) -> bool:
        """Whether a source that is named is not bound."""
        return any(use.name not in self._made for use in self._uses)

    async def make(self, directory: Path, interval_s: float) -> Resolution:
        """Make what is known. Relative paths are relative to `directory`; `interval_s` is of metrics where none is written.

        Raises:
            InputError: a file cannot be used, a type is provided by nobody, or what was made does not go together.
        """
        problems: list[Problem] = []
        for use in self._uses:
            source = await anyio.to_thread.run_sync(_make_source, use, directory, interval_s)
            source = source or self._provider.source(use)
            if source is not None:
                problems += self._bind(use, source)
            elif use.form is not None or not self._may_wait:
                problems.append(_unprovided(use))
        if problems:
            raise InputError(problems)
        pending = _Noted(self._registered)
        for registrant in self._registrants:
            registrant.register_dependencies(pending)
        resolution = pending.resolve(tuple(self._made.values()))
        self.problems = (*resolution.warnings, *(_waiting(use) for use in self._uses if use.name not in self._made))
        return resolution

    def learn(self) -> Resolution:
        """Bind what is known by now, and say in `problems` what is not, or is not right."""
        uses = with_forms(self._uses, self._provider.forms(self._uses))
        bound = [use for use in uses if use.name in self._made]
        problems = list(check_uses(bound))
        for use in uses:
            if use.name in self._made:
                continue
            if use.form is None:
                problems.append(_waiting(use))
                continue
            wrong = [problem for problem in check_uses([*bound, use]) if problem not in problems]
            if not wrong:
                source = self._provider.source(use)
                wrong = [_unprovided(use)] if source is None else self._bind(use, source)
            if use.name in self._made:
                bound.append(use)
            problems += wrong
        resolution = self._resolve(problems)
        self.problems = (*resolution.warnings, *problems)
        return resolution

    def _bind(self, use: SourceUse, source: DataSource) -> list[Problem]:
        problems, extractors = [], []
        for one in use.extractors:
            extractor = make_extractor(one) or self._provider.extractor(one, use)
            if extractor is None:
                problems.append(_unprovided(one))
            else:
                extractors.append(extractor)
        if not problems:
            self._made[use.name] = Binding(source, tuple(extractors))
        return problems

    def _resolve(self, problems: list[Problem]) -> Resolution:
        """With the wishes of packages, each as long as it goes together with those before it."""
        bindings = [self._made[use.name] for use in self._uses if use.name in self._made]
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


def _make_source(use: SourceUse, directory: Path, interval_s: float) -> DataSource | None:
    return make_source(use, directory=directory, interval_s=interval_s)


def _waiting(use: SourceUse) -> Problem:
    message = f"the source '{use.name}' waits for its package: what the type '{use.type}' is, it says when it is READY"
    hint = "see `hotbay status`: the plugin is starting, or does not start"
    return Problem("UNAVAILABLE", message, use.place, path_text(use.path), hint=hint)


def _unprovided(use: SourceUse | ExtractorUse) -> Problem:
    message = f"the type '{use.type}' of '{use.name}' is provided by no package that can stand in the data layer"
    return Problem(
        "UNKNOWN_TYPE", message, use.place, hint="add a package that provides it, or take the reference away"
    )
