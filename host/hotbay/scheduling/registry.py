"""Which plugin type is provided by what: host built-ins, and packages by their manifests. Pure.

The index is made before anything runs. A type that two packages provide is an error unless the
operator ranks them; a type that nobody provides is an error naming who could provide it, and what is known.
"""

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from hotbay.config.data_sources import DATA_TYPES
from hotbay.config.type_facts import UNKNOWN, TypeFacts
from hotbay.errors import Place, Problem
from hotbay.scheduling.known_types import BUILTIN_FACTS, FIRST_PARTY_TYPES, WOULD_PROVIDE

__all__ = [
    "BUILTIN_DATA",
    "BUILTIN_FACTS",
    "BUILTIN_HANDLERS",
    "BUILTIN_PARSERS",
    "BUILTIN_PICKERS",
    "BUILTIN_PRODUCERS",
    "BUILTIN_TYPES",
    "DEFAULT_HANDLER",
    "DEFAULT_PICKER",
    "DEFAULT_PRODUCERS",
    "FIRST_PARTY_TYPES",
    "SCHEDULING_TYPES",
    "TypeIndex",
]


def _builtin(point: str) -> frozenset[str]:
    return frozenset(name for name, facts in BUILTIN_FACTS.items() if facts.answers(point))


BUILTIN_PICKERS: Final = _builtin("pick")
BUILTIN_HANDLERS: Final = _builtin("profile_handler")
BUILTIN_PARSERS: Final = _builtin("parse")
BUILTIN_PRODUCERS: Final = _builtin("produce")
BUILTIN_DATA: Final = DATA_TYPES
"""Types of the data layer; the scheduler does not run them."""
BUILTIN_TYPES: Final = frozenset(BUILTIN_FACTS)
SCHEDULING_TYPES: Final = frozenset({*(BUILTIN_FACTS.keys() - DATA_TYPES), *FIRST_PARTY_TYPES})
"""Types that are known to have no part in the data layer."""

DEFAULT_PICKER: Final = "max-score-picker"
DEFAULT_HANDLER: Final = "single-profile-handler"
DEFAULT_PRODUCERS: Final[Mapping[str, str]] = {"PrefixCacheMatchInfo": "approx-prefix-cache-producer"}
"""Type created by itself when something consumes the key and no configured plugin produces it, whatever manifests say.

Packages and the host's own types name further keys, see `TypeIndex.default_producers`.
"""


@dataclass(frozen=True, slots=True)
class TypeIndex:
    """Type name -> plugin ids of the packages that provide it, in the order the packages were given.

    `data`: (plugin id, type) where a manifest says that the type sees no request. `facts`: what manifests say of types, by
    the same pair.
    """

    providers: Mapping[str, tuple[str, ...]]
    ranking: Mapping[str, str]
    data: frozenset[tuple[str, str]] = frozenset()
    said: Mapping[tuple[str, str], TypeFacts] = field(default_factory=dict)

    @classmethod
    def build(
        cls,
        offers: Iterable[tuple[str, Iterable[str]]],
        ranking: Mapping[str, str],
        *,
        data: Iterable[tuple[str, str]] = (),
        facts: Mapping[tuple[str, str], TypeFacts] | None = None,
    ) -> "TypeIndex":
        """Index `(plugin id, types)` pairs; `ranking` is the HostConfig's `types`."""
        providers: dict[str, list[str]] = {}
        for plugin_id, types in offers:
            for name in types:
                known = providers.setdefault(name, [])
                if plugin_id not in known:
                    known.append(plugin_id)
        return cls(
            {name: tuple(ids) for name, ids in providers.items()}, dict(ranking), frozenset(data), dict(facts or {})
        )

    @property
    def default_producers(self) -> Mapping[str, str]:
        """Key -> the type that is created for it: as the host knows it, else the first by name of those that say so."""
        found = {key: name for name, facts in BUILTIN_FACTS.items() for key in facts.produces_default}
        for (_, name), facts in sorted(self.said.items(), key=lambda item: (item[0][1], item[0][0])):
            for key in facts.produces_default:
                found.setdefault(key, name)
        known = {key: name for key, name in DEFAULT_PRODUCERS.items() if self.facts(name) is not None}
        return found | known

    def facts(self, type_name: str) -> TypeFacts | None:
        """What is known of the type that the name stands for; None where nobody or more than one provides it."""
        provider = self.resolve(type_name, None)
        if isinstance(provider, Problem):
            return None
        return BUILTIN_FACTS[type_name] if provider is None else self.said.get((provider, type_name), UNKNOWN)

    def resolve(self, type_name: str, place: Place | None) -> str | Problem | None:
        """Plugin id that provides the type, None for a host built-in, or the problem to report."""
        ranked = self.ranking.get(type_name)
        ids = self.providers.get(type_name, ())
        if ranked is not None:
            if ranked in ids:
                return ranked
            return Problem(
                "UNKNOWN_TYPE",
                f"types ranks package '{ranked}' for '{type_name}', which it does not provide",
                place=place,
                path=f"types.{type_name}",
                expected=" or ".join(ids) or "a package that provides it",
                found=ranked,
            )
        if type_name in BUILTIN_TYPES and not ids:
            return None
        if len(ids) == 1 and type_name not in BUILTIN_TYPES:
            return ids[0]
        if ids:
            names = [*ids, *(["the host itself"] if type_name in BUILTIN_TYPES else [])]
            return Problem(
                "UNKNOWN_TYPE",
                f"type '{type_name}' is provided by {' and '.join(names)}",
                place=place,
                hint=f"rank them: types: {{{type_name}: {ids[0]}}}",
            )
        return self._unknown(type_name, place)

    def _unknown(self, type_name: str, place: Place | None) -> Problem:
        known = sorted({*self.providers, *BUILTIN_TYPES})
        return Problem(
            "UNKNOWN_TYPE",
            f"plugin type '{type_name}' is provided by no package and not by the host",
            place=place,
            expected=f"one of {', '.join(known)}",
            found=type_name,
            hint=self._who_could(type_name, known),
        )

    def _who_could(self, type_name: str, known: Iterable[str]) -> str:
        if type_name in WOULD_PROVIDE:
            return WOULD_PROVIDE[type_name]
        near = difflib.get_close_matches(type_name, {*known, *FIRST_PARTY_TYPES}, n=1)
        meant = near[0] if near else ""
        if not meant:
            return "add a source that has a package which provides it"
        hint = "" if meant == type_name else f"did you mean '{meant}'? "
        if meant in FIRST_PARTY_TYPES and meant not in self.providers:
            package = FIRST_PARTY_TYPES[meant]
            hint += f"'{meant}' is in the package {package}, which comes with the host: see that sources has {{name: bundled}}"
        return hint.strip()
