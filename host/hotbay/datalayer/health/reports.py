"""What became of attempts to have requests answered, gathered by endpoint until somebody looks. Pure.

`Tally` is written to once or twice per request and does nothing but count; `Report` is what it held, as a value.
"""

import enum
from dataclasses import dataclass, field
from typing import Final

__all__ = ["Attempt", "Report", "Tally"]

_SAMPLES_LIMIT: Final = 64
"""Times to first token between two looks, which are a fraction of a second apart."""


class Attempt(enum.Enum):
    """How one attempt at one endpoint went.

    UNREACHABLE: no connection, or one that ended before the first byte of an answer. FAILED: an answer of 5xx, none in
    time, or one that is no HTTP. ANSWERED: an answer began. BROKEN: one that began did not end as it should, told after
    ANSWERED of the same attempt. UNTOLD: nobody knows, because the client left first.
    """

    UNREACHABLE = enum.auto()
    FAILED = enum.auto()
    ANSWERED = enum.auto()
    BROKEN = enum.auto()
    UNTOLD = enum.auto()


@dataclass(frozen=True, slots=True)
class Report:
    """Attempts since the last report. `trailing`: those at the end, one after another, that were UNREACHABLE.

    `reached`: some attempt got a byte. `requests` counts attempts that say something; `errors` of them failed.
    """

    requests: int = 0
    errors: int = 0
    answered: int = 0
    trailing: int = 0
    reached: bool = False
    ttfts_s: tuple[float, ...] = ()


@dataclass(slots=True)
class Tally:
    """Counts for one endpoint in one era; `era` as in `availability`."""

    era: int
    requests: int = 0
    errors: int = 0
    answered: int = 0
    trailing: int = 0
    reached: bool = False
    ttfts_s: list[float] = field(default_factory=list)
    untold: bool = False

    def add(self, attempt: Attempt, ttft_s: float | None) -> None:
        """Count one attempt; `ttft_s` where it tells how fast the endpoint is."""
        if attempt is Attempt.ANSWERED:
            self.requests += 1
            self.answered += 1
            self.trailing = 0
            self.reached = True
            if ttft_s is not None and len(self.ttfts_s) < _SAMPLES_LIMIT:
                self.ttfts_s.append(ttft_s)
        elif attempt is Attempt.UNREACHABLE:
            self.requests += 1
            self.errors += 1
            self.trailing += 1
        elif attempt is Attempt.FAILED:
            self.requests += 1
            self.errors += 1
            self.trailing = 0
            self.reached = True
        elif attempt is Attempt.BROKEN:
            self.errors += 1
        else:
            self.untold = True

    def take(self) -> Report:
        """What was counted; counting begins anew."""
        report = Report(self.requests, self.errors, self.answered, self.trailing, self.reached, tuple(self.ttfts_s))
        self.requests = self.errors = self.answered = self.trailing = 0
        self.reached = self.untold = False
        self.ttfts_s.clear()
        return report

    @property
    def is_empty(self) -> bool:
        """Nothing was counted since the last look."""
        return not (self.requests or self.errors or self.untold)
