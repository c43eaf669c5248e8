"""Which data source is used with which extractors, and the rules that such uses keep, whoever provides the types. Pure.

The rules are the reference's (E17, E21): at least one source; a name and a kind of objects are used by one source; a source
brings data in one way, and all sources of a type in the same; an extractor reads what its source brings, and is the only one of
its type there. What a package provides is known once it runs: uses without `points` are judged when they have them.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from hotbay.config.data_parameters import DataTypeParameters
from hotbay.config.data_types import Point, TypeForm, Variant, variant_of
from hotbay.config.wording import Path, path_text, quoted
from hotbay.errors import Place, Problem

__all__ = ["ExtractorUse", "SourceUse", "check_uses", "with_forms"]


@dataclass(frozen=True, slots=True)
class ExtractorUse:
    """An extractor behind a source. `form` is None while nobody has said what its type is.

    `parameters` are those of a type that is built into the host; None for others.
    """

    name: str
    type: str
    form: TypeForm | None
    parameters: DataTypeParameters = None
    place: Place | None = field(default=None, compare=False)
    path: Path = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class SourceUse:
    """A source with its extractors, in the order in which they run. Fields as those of `ExtractorUse`.

    `injected`: nobody wrote it.
    """

    name: str
    type: str
    form: TypeForm | None
    parameters: DataTypeParameters = None
    extractors: tuple[ExtractorUse, ...] = ()
    injected: bool = False
    place: Place | None = field(default=None, compare=False)
    path: Path = field(default=(), compare=False)


def with_forms(uses: Iterable[SourceUse], forms: Mapping[str, TypeForm]) -> tuple[SourceUse, ...]:
    """The uses with what is now known of their types; forms that they have stay."""

    def known(extractor: ExtractorUse) -> ExtractorUse:
        return extractor if extractor.form is not None else replace(extractor, form=forms.get(extractor.type))

    return tuple(
        replace(
            use,
            form=use.form if use.form is not None else forms.get(use.type),
            extractors=tuple(known(extractor) for extractor in use.extractors),
        )
        for use in uses
    )


def check_uses(uses: Sequence[SourceUse]) -> tuple[Problem, ...]:
    """What is wrong with the uses, in their order."""
    return (*_sources(uses), *(problem for use in uses for problem in _extractors(use)))


def _sources(uses: Sequence[SourceUse]) -> Iterator[Problem]:
    names: dict[str, SourceUse] = {}
    kinds: dict[str, SourceUse] = {}
    variants: dict[str, tuple[Variant, SourceUse]] = {}
    for use in uses:
        if names.setdefault(use.name, use) is not use:
            message = f"the source {quoted(use.name)} is used twice{_also(names[use.name].place)}"
            yield _problem(use, "DUPLICATE_NAME", message, hint="give all its extractors to one use")
            continue
        if use.form is None:
            continue
        if not use.form.is_source:
            message = f"the plugin {quoted(use.name)} is no data source"
            yield _expected(use, message, "a data source", use.type)
            continue
        variant, problem = _variant(use)
        if problem is not None:
            yield problem
            continue
        assert variant is not None
        first, other = variants.setdefault(use.type, (variant, use))
        if first is not variant:
            message = f"sources of the type {quoted(use.type)} bring their data in two ways{_also(other.place)}"
            yield _expected(use, message, f"{first}", f"{variant}")
        kind = use.form.payloads[0]
        if variant is Variant.NOTIFICATION and kinds.setdefault(kind, use) is not use:
            message = f"objects of the kind {kind.partition(':')[2]} come from {quoted(kinds[kind].name)} already"
            hint = "give all extractors of a kind to one source"
            yield _problem(use, "DUPLICATE_NAME", f"{message}{_also(kinds[kind].place)}", hint=hint)


def _variant(use: SourceUse) -> tuple[Variant | None, Problem | None]:
    assert use.form is not None
    try:
        variants = use.form.variants
    except ValueError as error:
        return None, _problem(use, "CONFIG_INVALID", f"the type {quoted(use.type)} has no known payload: {error}")
    if len(variants) == 1:
        return next(iter(variants)), None
    found = " and ".join(sorted(variants)) or "nothing"
    message = f"the type {quoted(use.type)} does not bring its data in one way"
    return None, _expected(use, message, "polling, notification or endpoint", found)


def _extractors(use: SourceUse) -> Iterator[Problem]:
    types: dict[str, ExtractorUse] = {}
    for extractor in use.extractors:
        if types.setdefault(extractor.type, extractor) is not extractor:
            message = f"the source {quoted(use.name)} has an extractor of type {quoted(extractor.type)} already"
            hint = "one of a type reads all that a source brings: keep one"
            yield _problem(extractor, "DUPLICATE_NAME", f"{message}{_also(types[extractor.type].place)}", hint=hint)
        elif extractor.form is None:
            continue
        elif Point.EXTRACT not in extractor.form.points:
            message = f"the plugin {quoted(extractor.name)} is no extractor"
            yield _expected(extractor, message, "an extractor", extractor.type)
        elif use.form is not None and use.form.is_source and not _fit(use.form, extractor.form):
            brings, reads = (", ".join(form.payloads) or "nothing" for form in (use.form, extractor.form))
            message = f"the extractor {quoted(extractor.name)} cannot read what {quoted(use.name)} brings"
            yield _expected(extractor, message, f"an extractor of {brings}", f"one of {reads}")


def _fit(source: TypeForm, extractor: TypeForm) -> bool:
    """Whether the extractor reads a payload of the source; a source that is wrong itself is told so alone."""
    try:
        if len({variant_of(payload) for payload in source.payloads}) != 1:
            return True
    except ValueError:
        return True
    return bool(set(source.payloads) & set(extractor.payloads))


def _also(place: Place | None) -> str:
    return f", on line {place.line}" if place is not None and place.line is not None else ""


def _expected(use: SourceUse | ExtractorUse, message: str, expected: str, found: str) -> Problem:
    return Problem("CONFIG_INVALID", message, use.place, path_text(use.path), expected, found)


def _problem(use: SourceUse | ExtractorUse, code: str, message: str, *, hint: str = "") -> Problem:
    return Problem(code, message, use.place, path_text(use.path), hint=hint)
