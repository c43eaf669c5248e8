"""Which plugin type is provided by what: host built-ins, and packages by their manifests. Pure.

The index is made before anything runs. A type that two packages provide is an error unless the
operator ranks them; a type that nobody provides is an error naming who could provide it, and what is known.
"""

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from hotbay.config.data_sources import DATA_TYPES
from hotbay.config.picker_checks import ALLOW_EXPERIMENTAL
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
    "DefaultProducers",
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
class DefaultProducers:
    """Data key → the type that is created for it. `withheld`: key → why nothing is, as a hint for who needs it."""

    types: Mapping[str, str]
    withheld: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class TypeIndex:
    """Type name -> plugin ids of the packages that provide it, in the order the packages were given.

    `data`: (plugin id, type) where a manifest says that the type sees no request. `facts`: what manifests say of types, by
    the same pair. `kept`: data key → the type that is created for it as long as its package says so, whoever else claims the
    key since.
    """

    providers: Mapping[str, tuple[str, ...]]
    ranking: Mapping[str, str]
    data: frozenset[tuple[str, str]] = frozenset()
    said: Mapping[tuple[str, str], TypeFacts] = field(default_factory=dict)
    kept: Mapping[str, str] = field(default_factory=dict)

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

    def default_producers(self, *, allow_experimental: bool) -> DefaultProducers:
        """What is created by itself: as the host knows it, else what the one package that claims the key says.

        Of several types of packages that claim one key the operator ranks one in `types`; without that none is created. Nor
        is what is alpha, unless that is allowed.
        """
        types = {key: name for name, facts in BUILTIN_FACTS.items() for key in facts.produces_default}
        types |= {key: name for key, name in DEFAULT_PRODUCERS.items() if self.facts(name) is not None}
        withheld: dict[str, str] = {}
        for key, claims in self._claims().items():
            if key in types:
                continue
            chosen = self._chosen(key, claims)
            if chosen is None:
                names = " and ".join(f"'{name}' of the package {plugin_id}" for name, plugin_id in claims)
                ranked = ", ".join(f"{name}: {plugin_id}" for name, plugin_id in claims[:1])
                withheld[key] = (
                    f"{names} are both to be made for it by themselves: list one of them under plugins, or rank one: "
                    f"types: {{{ranked}}}"
                )
            else:
                types[key] = chosen
        for key, name in () if allow_experimental else tuple(types.items()):
            facts = self.facts(name)
            if facts is not None and facts.is_alpha:
                del types[key]
                withheld[key] = f"'{name}', which is made for it by itself, is alpha: {ALLOW_EXPERIMENTAL}"
        return DefaultProducers(types, withheld)

    def _claims(self) -> Mapping[str, tuple[tuple[str, str], ...]]:
        """Key → (type, plugin id) of those whose manifests claim it and that are not ranked behind another package."""
        found: dict[str, tuple[tuple[str, str], ...]] = {}
        for plugin_id, name in sorted(self.said, key=lambda pair: (pair[1], pair[0])):
            if self.ranking.get(name, plugin_id) == plugin_id:
                for key in self.said[plugin_id, name].produces_default:
                    found[key] = (*found.get(key, ()), (name, plugin_id))
        return found

    def _chosen(self, key: str, claims: Sequence[tuple[str, str]]) -> str | None:
        ranked = [name for name, _ in claims if name in self.ranking]
        kept = [name for name, _ in claims if name == self.kept.get(key)]
        for names in ([name for name, _ in claims], ranked, kept):
            if len(names) == 1:
                return names[0]
        return None

    def keeping(self, before: "TypeIndex") -> "TypeIndex":
        """The same index, where a key that several claim goes on being made by whom it was made before."""
        return replace(self, kept=before.default_producers(allow_experimental=True).types)

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
