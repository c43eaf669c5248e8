"""What is known of a plugin type before any process of it runs: by its package's manifest, or because the host has it itself. Pure.

A manifest that says nothing of a type leaves its points empty: then they are known once a process of it is READY. What a
type consumes and produces stands in no manifest.
"""

from dataclasses import dataclass
from typing import Final

__all__ = [
    "ADMIT",
    "CROSS_REPLICA",
    "DISCOVER",
    "EVICTION_FILTER",
    "EVICTION_ORDER",
    "EXTRACT",
    "FAIRNESS",
    "FILTER",
    "KNOWN_POINTS",
    "ORDERING",
    "PARSE",
    "PEER_DISCOVERY",
    "PICK",
    "PRODUCE",
    "PROFILE_HANDLER",
    "SATURATION",
    "SCORE",
    "STABILITIES",
    "UNKNOWN",
    "USAGE_LIMIT",
    "TypeFacts",
]

FILTER: Final = "filter"
SCORE: Final = "score"
PICK: Final = "pick"
PROFILE_HANDLER: Final = "profile_handler"
PRODUCE: Final = "produce"
ADMIT: Final = "admit"
PARSE: Final = "parse"
SATURATION: Final = "saturation"
FAIRNESS: Final = "fairness"
ORDERING: Final = "ordering"
USAGE_LIMIT: Final = "usage_limit"
EVICTION_ORDER: Final = "eviction_order"
EVICTION_FILTER: Final = "eviction_filter"
DISCOVER: Final = "discover"
EXTRACT: Final = "extract"
PEER_DISCOVERY: Final = "peer_discovery"
CROSS_REPLICA: Final = "cross_replica"

KNOWN_POINTS: Final = frozenset(
    {
        *(FILTER, SCORE, PICK, PROFILE_HANDLER, PRODUCE, ADMIT, PARSE, SATURATION, FAIRNESS, ORDERING, USAGE_LIMIT),
        *(EVICTION_ORDER, EVICTION_FILTER, DISCOVER, EXTRACT),
        *("screen", "request_headers", "pre_request", "response_headers", "response_body", "dump_state"),
        *("source", "watch", "poll"),
    }
)
"""Words that READY may use for what a type answers."""

STABILITIES: Final = ("alpha", "beta", "stable")


@dataclass(frozen=True, slots=True)
class TypeFacts:
    """`points` as READY spells them, empty where nobody said. `stability` None: nobody said, which counts as alpha.

    `refs` are paths inside the parameters that name other plugins, such as `deciders.prefill` or `plugins.*.pluginRef`.
    `produces_default` are data keys for which the type is created by itself. `builtin`: the host has it itself.
    """

    points: frozenset[str] = frozenset()
    stability: str | None = None
    refs: tuple[str, ...] = ()
    produces_default: tuple[str, ...] = ()
    builtin: bool = False

    @property
    def is_alpha(self) -> bool:
        """Whether the operator has to allow it."""
        return self.stability not in ("beta", "stable")

    def answers(self, *points: str) -> bool:
        """Whether it answers one of these."""
        return not self.points.isdisjoint(points)


UNKNOWN: Final = TypeFacts()
"""Of a type of which only the name is known."""
