"""Decides whose an attribute is: which extractor makes one that several would make, and what nobody makes any more. Pure.

Of several it is one, because the others would undo what it said: the host's own come first, whose attributes are not a matter of
configuration; then those that are named first. Others go on without the attribute, and it is told. One ref behind several sources
is one maker.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol, runtime_checkable

from hotbay.datalayer.source import AnyExtractor
from hotbay.errors import Problem

__all__ = ["made_by", "share_out"]


@runtime_checkable
class _Claimant(Protocol):
    """An extractor that says what it makes, and can be told that some of it is another's: `taken`, name -> whose."""

    taken: Mapping[str, str]

    @property
    def name(self) -> str: ...

    @property
    def attributes(self) -> frozenset[str]: ...


def share_out(extractors: Sequence[AnyExtractor]) -> tuple[Problem, ...]:
    """Tell every extractor what is another's; what is wrong about that, by pairs of extractors."""
    owners: dict[str, str] = {}
    for extractor in extractors:
        if not isinstance(extractor, _Claimant):
            owners |= dict.fromkeys(getattr(extractor, "columns", {}), extractor.name)
    clashes: dict[tuple[str, str], list[str]] = {}
    for claimant in extractors:
        if not isinstance(claimant, _Claimant):
            continue
        taken: dict[str, str] = {}
        for name in sorted(claimant.attributes):
            owner = owners.setdefault(name, claimant.name)
            if owner != claimant.name:
                taken[name] = owner
                clashes.setdefault((claimant.name, owner), []).append(name)
        claimant.taken = taken
    return tuple(_clash(*pair, sorted(set(names))) for pair, names in clashes.items())


def made_by(extractors: Iterable[AnyExtractor]) -> frozenset[str]:
    """The attributes that extractors make now, as far as it is known: what one makes may change with each version of it."""
    return frozenset(
        name
        for extractor in extractors
        for names in (getattr(extractor, "attributes", ()), getattr(extractor, "columns", ()))
        for name in names
    )


def _clash(ref: str, owner: str, names: Sequence[str]) -> Problem:
    message = f"what '{ref}' says of the attribute {', '.join(names)} is left out: '{owner}' makes it"
    hint = "take one of the two out of dataLayer, or have one of them make an attribute of another name"
    return Problem(
        "CONFIG_INVALID", message, expected="one extractor for each attribute", found=f"two: {owner}, {ref}", hint=hint
    )
