"""Which plugin type is provided by what: host built-ins, and packages by their manifests. Pure.

The index is made before anything runs. A type that two packages provide is an error unless the
operator ranks them; a type that nobody provides is an error naming what is known.
"""

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from hotbay.config.data_sources import DATA_TYPES
from hotbay.errors import Place, Problem

BUILTIN_PICKERS: Final = frozenset({"max-score-picker", "random-picker", "weighted-random-picker"})
BUILTIN_HANDLERS: Final = frozenset({"single-profile-handler"})
BUILTIN_DATA: Final = DATA_TYPES
"""Types of the data layer; the scheduler does not run them."""
BUILTIN_TYPES: Final = BUILTIN_PICKERS | BUILTIN_HANDLERS | BUILTIN_DATA

FIRST_PARTY_TYPES: Final = frozenset(
    {
        "approx-prefix-cache-producer",
        "kv-cache-utilization-scorer",
        "prefix-cache-scorer",
        "queue-scorer",
        "running-requests-size-scorer",
    }
)
"""Types of the packages that come with the host, for a hint to who configured another source in their place."""
SCHEDULING_TYPES: Final = BUILTIN_PICKERS | BUILTIN_HANDLERS | FIRST_PARTY_TYPES
"""Types that are known to have no part in the data layer."""

DEFAULT_PICKER: Final = "max-score-picker"
DEFAULT_HANDLER: Final = "single-profile-handler"
DEFAULT_PRODUCERS: Final[Mapping[str, str]] = {"PrefixCacheMatchInfo": "approx-prefix-cache-producer"}
"""Type created by itself when something consumes the key and no configured plugin produces it."""


@dataclass(frozen=True, slots=True)
class TypeIndex:
    """Type name -> plugin ids of the packages that provide it, in the order the packages were given.

    `data`: (plugin id, type) where a manifest says that the type sees no request.
    """

    providers: Mapping[str, tuple[str, ...]]
    ranking: Mapping[str, str]
    data: frozenset[tuple[str, str]] = frozenset()

    @classmethod
    def build(
        cls,
        offers: Iterable[tuple[str, Iterable[str]]],
        ranking: Mapping[str, str],
        *,
        data: Iterable[tuple[str, str]] = (),
    ) -> "TypeIndex":
        """Index `(plugin id, types)` pairs; `ranking` is the HostConfig's `types`."""
        providers: dict[str, list[str]] = {}
        for plugin_id, types in offers:
            for name in types:
                known = providers.setdefault(name, [])
                if plugin_id not in known:
                    known.append(plugin_id)
        return cls({name: tuple(ids) for name, ids in providers.items()}, dict(ranking), frozenset(data))

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
        near = difflib.get_close_matches(type_name, {*known, *FIRST_PARTY_TYPES}, n=1)
        meant = near[0] if near else ""
        hint = "" if meant == type_name else f"did you mean '{meant}'?"
        if not meant:
            hint = "add a source that has a package which provides it"
        elif meant in FIRST_PARTY_TYPES and meant not in self.providers:
            hint += " " * bool(hint) + f"'{meant}' comes with the host: see that sources has {{name: bundled}}"
        return Problem(
            "UNKNOWN_TYPE",
            f"plugin type '{type_name}' is provided by no package and not by the host",
            place=place,
            expected=f"one of {', '.join(known)}",
            found=type_name,
            hint=hint,
        )
