"""What a configuration lists and the data layer never asks, and attributes that are read and that nobody makes. Pure.

Both are no faults of anybody, because packages come and go: they are told as long as they hold.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final

from hotbay_sdk.protocol import TypeDeclaration
from hotbay_sdk.protocol.calls import ATTRIBUTE_PREFIX

from hotbay.config.data_types import POLLED_PAYLOADS, Point
from hotbay.config.wording import nearest
from hotbay.errors import Problem

__all__ = ["unasked", "unmade"]

_CODE: Final = "CONFIG_INVALID"
_POINTS: Final[frozenset[str]] = frozenset(Point)


def unasked(listed: Mapping[str, str], declared: Callable[[str], TypeDeclaration | None]) -> tuple[Problem, ...]:
    """The plugins that could stand in the data layer only, and do not.

    Args:
        listed: ref → type of the plugins that the data layer does not name.
        declared: what is known of a ref's type.
    """
    found = ((ref, declared(ref)) for ref in listed)
    return tuple(
        _unasked(ref, known)
        for ref, known in found
        if known is not None and known.points and _POINTS.issuperset(known.points) and not _finds_its_source(known)
    )


def unmade(readers: Iterable[tuple[str, Iterable[str]]], made: Collection[str]) -> tuple[Problem, ...]:
    """The attributes that are read and not `made`; readers are told with the columns that they read."""
    return tuple(
        _unmade(reader, column.removeprefix(ATTRIBUTE_PREFIX), made)
        for reader, columns in readers
        for column in sorted(set(columns))
        if column.startswith(ATTRIBUTE_PREFIX) and column.removeprefix(ATTRIBUTE_PREFIX) not in made
    )


def _finds_its_source(declared: TypeDeclaration) -> bool:
    """An extractor of polls that says what feeds it is bound, or told to lack that, by its own wish."""
    data = declared.data
    return Point.EXTRACT in declared.points and bool(data.default_source) and data.payload in POLLED_PAYLOADS


def _unasked(ref: str, declared: TypeDeclaration) -> Problem:
    if Point.EXTRACT in declared.points:
        message, hint = "stands behind no source", "name it under `extractors` of one in dataLayer.sources"
    elif Point.DISCOVER in declared.points:
        message, hint = "is a discovery that is not asked", "name it in dataLayer.discovery"
    else:
        message, hint = "is a source that is not asked", "name it in dataLayer.sources"
    return Problem(_CODE, f"'{ref}' {message}", hint=f"{hint}, or take it out of `plugins`")


def _unmade(reader: str, name: str, made: Collection[str]) -> Problem:
    guess = nearest(name, made)
    hint = (
        f"did you mean {ATTRIBUTE_PREFIX}{guess}?" if guess else "add the extractor that makes it, or read it no more"
    )
    return Problem(_CODE, f"'{reader}' reads {ATTRIBUTE_PREFIX}{name}, which nobody makes", hint=hint)
