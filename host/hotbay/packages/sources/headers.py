"""Header values that web servers and registries answer with: challenges, ranges, links, entity tags. Pure.

They come from others: what is malformed counts as absent, nothing raises.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

_WORD: Final = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_PARAMETER: Final = re.compile(rf'({_WORD})\s*=\s*(?:({_WORD})|"((?:[^"\\]|\\.)*)")', re.ASCII)
_SCHEME: Final = re.compile(rf"({_WORD})(?=[\s,]|$)", re.ASCII)
_SEPARATOR: Final = re.compile(r"[\s,]*", re.ASCII)
_CONTENT_RANGE: Final = re.compile(r"bytes (\d{1,18})-(\d{1,18})/(?:\d{1,18}|\*)", re.ASCII | re.IGNORECASE)
_LINK: Final = re.compile(r"\s*<([^<>]*)>([^,]*)")
_NEXT: Final = re.compile(r';\s*rel="?next"?\s*(?:;|$)', re.IGNORECASE)
_WEAK: Final = "W/"

__all__ = ["Challenge", "is_strong", "next_link", "parse_challenges", "range_start", "same_entity"]


@dataclass(frozen=True, slots=True)
class Challenge:
    """One way in that a server names; scheme and parameter names in lower case."""

    scheme: str
    parameters: Mapping[str, str] = field(default_factory=dict)


def parse_challenges(values: Iterable[str]) -> tuple[Challenge, ...]:
    """Reads `WWW-Authenticate` values. Reading one value ends at the first thing in it that has no form."""
    return tuple(challenge for value in values for challenge in _challenges(value))


def range_start(content_range: str | None) -> int | None:
    """Position of the first byte of a partial answer."""
    found = _CONTENT_RANGE.fullmatch((content_range or "").strip())
    if found is None or int(found[1]) > int(found[2]):
        return None
    return int(found[1])


def next_link(value: str | None) -> str | None:
    """The address of the next page."""
    for found in _LINK.finditer(value or ""):
        if _NEXT.search(found[2]):
            return found[1]
    return None


def is_strong(entity_tag: str) -> bool:
    """Whether equal tags mean equal bytes: only such a tag may be a condition of a range."""
    return not entity_tag.startswith(_WEAK)


def same_entity(one: str, other: str) -> bool:
    """Whether two entity tags name the same thing, strong or weak."""
    return one.removeprefix(_WEAK) == other.removeprefix(_WEAK)


def _challenges(value: str) -> list[Challenge]:
    found: list[tuple[str, dict[str, str]]] = []
    position = 0
    while True:
        separator = _SEPARATOR.match(value, position)
        assert separator is not None, "it matches nothing, too"
        position = separator.end()
        parameter = _PARAMETER.match(value, position) if found else None
        if parameter is not None:
            text = parameter[2] if parameter[2] is not None else re.sub(r"\\(.)", r"\1", parameter[3])
            found[-1][1].setdefault(parameter[1].lower(), text)
            position = parameter.end()
            continue
        scheme = _SCHEME.match(value, position)
        if scheme is None:
            return [Challenge(name, parameters) for name, parameters in found]
        found.append((scheme[1].lower(), {}))
        position = scheme.end()
