"""Which extractor stands behind which source, once what plugins ask for is added to what the operator configured.

Plugins register what they depend on before anything runs; it is resolved after the configuration, in the order of registration.
A pending registration goes to the first source of its type, for notification sources of the same kind of objects; without one its
default source is created, or its policy decides. The operator's extractor of a type wins over one that a plugin asks for, and the
first that asks over later ones. Nothing is changed by what is refused. Pure.
"""

import enum
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol, TypeGuard

from hotbay.config.data_types import Variant
from hotbay.datalayer.source import (
    AnyExtractor,
    DataSource,
    EndpointSource,
    EventExtractor,
    Extractor,
    NotificationSource,
    PollingSource,
)
from hotbay.errors import InputError, Problem

__all__ = [
    "Binding",
    "MissingPolicy",
    "PendingRegistration",
    "PendingRegistrations",
    "Registrant",
    "Registrar",
    "RegistrationError",
    "Resolution",
    "brings",
    "check_bindings",
    "extractors_of_events",
    "extractors_of_payloads",
    "variants",
]


class RegistrationError(Exception):
    """A registration that says too little to be kept."""


class MissingPolicy(enum.StrEnum):
    """What happens when there is no source of the type, and no default for it."""

    FAIL = "fail"
    WARN = "warn"


@dataclass(frozen=True, slots=True)
class PendingRegistration:
    """What a plugin depends on. `default_source` is created when there is none of `source_type`; it is of that type itself.

    Args:
        owner: name of the plugin that asks.
        source_type: plugin type of the source.
        extractor: stands behind it; required.
        default_source: for a notification source, its kind of objects has to be that of the source, too.
        if_missing: matters without `default_source` only.
        listed: a plugin of `source_type` that the configuration has and that no source is made of; for the hint.
    """

    owner: str
    source_type: str
    extractor: AnyExtractor
    default_source: DataSource | None = None
    if_missing: MissingPolicy = MissingPolicy.FAIL
    listed: str = ""


class Registrar(Protocol):
    """Takes what plugins depend on."""

    def register(self, pending: PendingRegistration) -> None:
        """Keep it until it is resolved. Raises `RegistrationError` when it is not valid."""


class Registrant(Protocol):
    """A plugin that depends on sources. Asked once, after it is made and before anything runs."""

    def register_dependencies(self, registrar: Registrar) -> None:
        """Register every dependency."""


@dataclass(frozen=True, slots=True)
class Binding:
    """A source with its extractors, in the order in which they run."""

    source: DataSource
    extractors: tuple[AnyExtractor, ...] = ()


@dataclass(frozen=True, slots=True)
class Resolution:
    """What stands behind what. `warnings` are dependencies that nothing serves; `dropped` are those that are served already."""

    bindings: tuple[Binding, ...]
    warnings: tuple[Problem, ...] = ()
    dropped: tuple[PendingRegistration, ...] = ()


class PendingRegistrations:
    """A `Registrar` that keeps registrations in their order."""

    def __init__(self) -> None:
        self._pending: list[PendingRegistration] = []

    def register(self, pending: PendingRegistration) -> None:
        owner = pending.owner or "a plugin without a name"
        if not pending.owner or not pending.source_type:
            raise RegistrationError(f"{owner}: expected an owner and a type of source, found neither or one")
        if not (_is_polled(pending.extractor) or _is_told(pending.extractor)):
            raise RegistrationError(f"{owner}: expected an extractor for {pending.source_type}, found none")
        default = pending.default_source
        if default is not None and default.type != pending.source_type:
            raise RegistrationError(
                f"{owner}: expected a default source of {pending.source_type}, found {default.type}"
            )
        self._pending.append(pending)

    def resolve(self, configured: Sequence[Binding]) -> Resolution:
        """Add what was registered to what is configured.

        Raises:
            InputError: with every problem found, those of the configured bindings included.
        """
        bindings = list(configured)
        problems: list[Problem] = []
        warnings: list[Problem] = []
        dropped: list[PendingRegistration] = []
        for pending in self._pending:
            place = _place_of(pending, bindings)
            if place is None and pending.default_source is not None:
                bindings.append(Binding(pending.default_source))
                place = len(bindings) - 1
            if place is None:
                (problems if pending.if_missing is MissingPolicy.FAIL else warnings).append(_missing(pending))
            elif any(known.type == pending.extractor.type for known in bindings[place].extractors):
                dropped.append(pending)
            else:
                known = bindings[place]
                bindings[place] = replace(known, extractors=(*known.extractors, pending.extractor))
        problems += check_bindings(bindings)
        if problems:
            raise InputError(problems)
        return Resolution(tuple(bindings), tuple(warnings), tuple(dropped))


def variants(source: DataSource) -> frozenset[Variant]:
    """In which ways a source brings data: one, if it is right."""
    found: Iterable[tuple[Variant, bool]] = (
        (Variant.POLLING, isinstance(source, PollingSource)),
        (Variant.NOTIFICATION, isinstance(source, NotificationSource)),
        (Variant.ENDPOINT, isinstance(source, EndpointSource)),
    )
    return frozenset(variant for variant, holds in found if holds)


def check_bindings(bindings: Sequence[Binding]) -> tuple[Problem, ...]:
    """What is wrong with sources and extractors that have been made: the rules of the configuration (E21), and of variants."""
    problems: list[Problem] = []
    names: set[str] = set()
    kinds: set[object] = set()
    of_type: dict[str, Variant] = {}
    for binding in bindings:
        source = binding.source
        ways = variants(source)
        if source.name in names:
            problems.append(_problem("DUPLICATE_NAME", f"a second source is called '{source.name}'"))
        names.add(source.name)
        if len(ways) != 1:
            found = " and ".join(sorted(ways)) or "nothing"
            problems.append(
                _problem("CONFIG_INVALID", f"the source '{source.name}' has to be of one variant", _WAYS, found)
            )
            continue
        (way,) = ways
        if of_type.setdefault(source.type, way) is not way:
            message = f"the source '{source.name}' is of type '{source.type}' as another"
            problems.append(_problem("CONFIG_INVALID", message, of_type[source.type], way))
        if isinstance(source, NotificationSource):
            if source.kind in kinds:
                problems.append(_problem("DUPLICATE_NAME", f"a second source of {source.kind}: '{source.name}'"))
            kinds.add(source.kind)
        problems += _check_extractors(binding)
    return tuple(problems)


def brings(source: DataSource) -> object:
    """What extractors behind the source read: a type of payloads, a kind of objects, or None for endpoints."""
    if isinstance(source, PollingSource):
        return source.payload
    return source.kind if isinstance(source, NotificationSource) else None


def extractors_of_payloads(binding: Binding) -> tuple[Extractor, ...]:
    """The extractors of a polling source."""
    return tuple(extractor for extractor in binding.extractors if _is_polled(extractor))


def extractors_of_events(binding: Binding) -> tuple[EventExtractor, ...]:
    """The extractors of a source of events."""
    return tuple(extractor for extractor in binding.extractors if _is_told(extractor))


def _check_extractors(binding: Binding) -> Iterable[Problem]:
    types: set[str] = set()
    for extractor in binding.extractors:
        if extractor.type in types:
            message = f"the source '{binding.source.name}' has a second extractor of type '{extractor.type}'"
            yield _problem("DUPLICATE_NAME", message)
        types.add(extractor.type)
        if not _fits(binding.source, extractor):
            message = f"the extractor '{extractor.name}' cannot read what '{binding.source.name}' brings"
            yield _problem("CONFIG_INVALID", message, _brings(binding.source), _reads(extractor))


def _fits(source: DataSource, extractor: AnyExtractor) -> bool:
    if isinstance(source, PollingSource):
        return _is_polled(extractor) and issubclass(source.payload, extractor.payload)
    kind = source.kind if isinstance(source, NotificationSource) else None
    return _is_told(extractor) and extractor.kind == kind


def _is_polled(extractor: object) -> TypeGuard[Extractor]:
    return callable(getattr(extractor, "extract", None)) and isinstance(getattr(extractor, "payload", None), type)


def _is_told(extractor: object) -> TypeGuard[EventExtractor]:
    return callable(getattr(extractor, "extract_event", None)) and hasattr(extractor, "kind")


def _brings(source: DataSource) -> str:
    if isinstance(source, PollingSource):
        return source.payload.__name__
    return str(source.kind) if isinstance(source, NotificationSource) else "endpoints"


def _reads(extractor: AnyExtractor) -> str:
    if _is_polled(extractor):
        return extractor.payload.__name__
    return str(extractor.kind or "endpoints") if _is_told(extractor) else "nothing"


def _place_of(pending: PendingRegistration, bindings: Sequence[Binding]) -> int | None:
    default = pending.default_source
    for place, binding in enumerate(bindings):
        if binding.source.type != pending.source_type:
            continue
        if not isinstance(default, NotificationSource) or getattr(binding.source, "kind", None) == default.kind:
            return place
    return None


def _missing(pending: PendingRegistration) -> Problem:
    message = f"'{pending.owner}' needs a source of type '{pending.source_type}', and none is configured"
    if pending.listed:
        return Problem("CONFIG_INVALID", message, hint=f"name '{pending.listed}' under `dataLayer.sources`")
    hint = f"add a plugin of type {pending.source_type} to `plugins`, and name it under `dataLayer.sources`"
    return Problem("CONFIG_INVALID", message, hint=hint)


def _problem(code: str, message: str, expected: str = "", found: str = "") -> Problem:
    return Problem(code, message, expected=expected, found=found)


_WAYS: Final = "polling, notification or endpoint"
