"""What became of attempts to have requests answered, gathered by endpoint until somebody looks. Pure.

`Tally` is written to once or twice per request and does nothing but count; `Report` is what it held, as a value.
"""

import enum
from collections import deque
from dataclasses import dataclass, field
from typing import Final

__all__ = ["Attempt", "Report", "Tally"]

_SAMPLES_LIMIT: Final = 64
"""Times to first token that are kept between two looks, which are a fraction of a second apart: the last ones."""


class Attempt(enum.Enum):
    """How one attempt at one endpoint went.

    UNREACHABLE: no connection, or one that ended before the first byte of an answer. FAILED: an answer of 5xx, or one that
    is no HTTP. ANSWERED: a body began. BROKEN: one that began did not end as it should, told after ANSWERED of the same
    attempt. LATE: no byte of a body in the time that the gateway allows. SILENT: none until the client left, told with how
    long that was; what both of them count as `patience` says. UNTOLD: the client left too soon to tell. UNUSED: nothing was
    sent, as far as is known.
    """

    UNREACHABLE = enum.auto()
    FAILED = enum.auto()
    ANSWERED = enum.auto()
    BROKEN = enum.auto()
    LATE = enum.auto()
    SILENT = enum.auto()
    UNTOLD = enum.auto()
    UNUSED = enum.auto()


@dataclass(frozen=True, slots=True)
class Report:
    """Attempts since the last report. `trailing`: those at the end, one after another, that were UNREACHABLE or SILENT.

    `reached`: some attempt got a byte; `silent`: the last of those at the end was SILENT. `requests` counts attempts that
    say something; `errors` of them failed. `ttfts_s` are the last times to first token, a bounded number, and
    `longest_ttft_s` the longest of all that there were, 0 where there were none. `lost`: the probe was UNTOLD; `unused`: it
    was UNUSED.
    """

    requests: int = 0
    errors: int = 0
    answered: int = 0
    trailing: int = 0
    reached: bool = False
    silent: bool = False
    ttfts_s: tuple[float, ...] = ()
    longest_ttft_s: float = 0.0
    lost: bool = False
    unused: bool = False


@dataclass(slots=True)
class Tally:
    """Counts for one endpoint in one era; `era` as in `availability`.

    `pieces` grows with every piece of a body that the endpoint sends to anybody, and is not taken.
    """

    era: int
    requests: int = 0
    errors: int = 0
    answered: int = 0
    trailing: int = 0
    reached: bool = False
    silent: bool = False
    ttfts_s: deque[float] = field(default_factory=lambda: deque(maxlen=_SAMPLES_LIMIT))
    longest_ttft_s: float = 0.0
    lost: bool = False
    unused: bool = False
    pieces: int = 0

    def add(self, attempt: Attempt, ttft_s: float | None, *, is_probe: bool = False) -> None:
        """Count one attempt as it was weighed, so never one that is LATE; `ttft_s` where it tells how fast the endpoint is."""
        if attempt is Attempt.ANSWERED:
            self.requests += 1
            self.answered += 1
            self.trailing = 0
            self.reached = True
            if ttft_s is not None:
                self.ttfts_s.append(ttft_s)
                self.longest_ttft_s = max(self.longest_ttft_s, ttft_s)
        elif attempt is Attempt.UNREACHABLE or attempt is Attempt.SILENT:
            self.requests += 1
            self.errors += 1
            self.trailing += 1
            self.silent = attempt is Attempt.SILENT
        elif attempt is Attempt.FAILED:
            self.requests += 1
            self.errors += 1
            self.trailing = 0
            self.reached = True
        elif attempt is Attempt.BROKEN:
            self.errors += 1
        elif is_probe:
            self.lost = attempt is Attempt.UNTOLD
            self.unused = attempt is Attempt.UNUSED

    def take(self) -> Report:
        """What was counted; counting begins anew."""
        report = Report(
            self.requests, self.errors, self.answered, self.trailing, self.reached, self.silent, tuple(self.ttfts_s),
            self.longest_ttft_s, self.lost, self.unused,
        )  # fmt: skip
        self.requests = self.errors = self.answered = self.trailing = 0
        self.reached = self.silent = self.lost = self.unused = False
        self.longest_ttft_s = 0.0
        self.ttfts_s.clear()
        return report

    @property
    def is_empty(self) -> bool:
        """Nothing was counted since the last look."""
        return not (self.requests or self.errors or self.lost or self.unused)
