"""For how long a figure counts, and whether an endpoint that is scraped answers.

Decides what schedulers are shown of figures that nobody has renewed: nothing, so that an endpoint whose figures stand
still looks neither good nor bad, or what was last known. Either way the endpoint stays a candidate. Pure; times are
monotonic seconds.
"""

import enum
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final

from hotbay_sdk.protocol.calls import ATTRIBUTE_PREFIX

__all__ = [
    "FRESHNESS_FIELDS",
    "MISSED_SCRAPES",
    "Freshness",
    "StalePolicy",
    "healthiness",
    "scraped_health",
]

FRESHNESS_FIELDS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "waiting": ("waiting",),
        "running": ("running",),
        "kv_usage": ("kv_usage",),
        "lora": ("max_active_models",),
        "cache": ("kv_capacity_tokens", "block_size", "num_blocks"),
    }
)
"""What ages together -> the figures of it. `lora` has the names of active and waiting models besides."""

MISSED_SCRAPES: Final = 3
"""So many intervals must pass before figures are stale: at longer intervals each would be stale before the next."""


class StalePolicy(enum.StrEnum):
    """What schedulers see of a stale figure: that it is unknown, or what was last known."""

    UNKNOWN = "unknown"
    IGNORE = "ignore"


@dataclass(frozen=True, slots=True)
class Freshness:
    """How figures age.

    Args:
        stale_after_s: a figure older than this is stale; 2 s as the reference's `--metrics-staleness-threshold`.
        fields: other limits in seconds, by name of FRESHNESS_FIELDS or `attribute.NAME`.
        policy: see StalePolicy.
        failures: scrapes that fail one after the other until an endpoint counts as unhealthy, from 1.
    """

    stale_after_s: float = 2.0
    fields: Mapping[str, float] = field(default_factory=dict, hash=False)
    policy: StalePolicy = StalePolicy.UNKNOWN
    failures: int = 3

    def __post_init__(self) -> None:
        object.__setattr__(self, "fields", MappingProxyType(dict(self.fields)))

    def limit_s(self, name: str) -> float:
        """Age beyond which a field is stale; infinite for an attribute without a limit of its own."""
        default = math.inf if name.startswith(ATTRIBUTE_PREFIX) else self.stale_after_s
        return self.fields.get(name, default)

    def for_interval(self, interval_s: float) -> "Freshness":
        """Return the same for endpoints that are scraped at this interval: no limit below MISSED_SCRAPES of them."""
        least_s = MISSED_SCRAPES * interval_s
        fields = {
            name: limit_s if name.startswith(ATTRIBUTE_PREFIX) else max(limit_s, least_s)
            for name, limit_s in self.fields.items()
        }
        return replace(self, stale_after_s=max(self.stale_after_s, least_s), fields=fields)


def scraped_health(*, has_succeeded: bool, consecutive_errors: int, failures: int) -> float:
    """What scraping says of an endpoint: 1 it answers, 0 it does not, NaN nothing yet."""
    if consecutive_errors >= failures:
        return 0.0
    return 1.0 if has_succeeded else math.nan


def healthiness(scraped: float, served: float) -> float:
    """Health of an endpoint, 0 to 1: the worse of what scraping and what requests say; NaN when neither does."""
    return min((known for known in (scraped, served) if not math.isnan(known)), default=math.nan)
