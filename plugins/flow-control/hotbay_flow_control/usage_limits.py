"""Usage limits: up to which saturation each priority is served.

Priorities come from the highest to the lowest, and no ceiling is above that of a higher one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Literal

from hotbay_sdk import Context, ParameterError, UsageLimitPolicy

from hotbay_flow_control.package import plugin

_NEARLY_NOTHING: Final = 1e-9
"""Keeps the division from zero when saturation is next to 1."""


@dataclass(frozen=True, slots=True)
class StaticParameters:
    """`threshold`: the ceiling of every priority; 1 holds nothing back."""

    threshold: float = 1.0

    def __post_init__(self) -> None:
        """Refuse a ceiling under which nothing fits."""
        if self.threshold < 0:
            raise ParameterError("threshold", f"expected 0 or more, found {self.threshold:g}")


@plugin.type("static-usage-limit-policy", parameters=StaticParameters)
class StaticUsageLimitPolicy(UsageLimitPolicy):
    """One ceiling for all."""

    def __init__(self, context: Context, parameters: StaticParameters) -> None:
        self._threshold = parameters.threshold

    def limits(self, saturation: float, priorities: Sequence[int], ceilings: Sequence[float]) -> Sequence[float]:
        """The threshold, for each priority."""
        return [self._threshold] * len(priorities)


@dataclass(frozen=True, slots=True)
class HoldbackParameters:
    """`minCeiling` of the lowest priority to `maxCeiling` of the highest, or with domain explicit the `ceilings` themselves."""

    domain: Literal["rank", "value", "explicit"] = "rank"
    shape: Literal["linear"] | None = None
    minCeiling: float | None = None
    maxCeiling: float | None = None
    ceilings: object = None

    def __post_init__(self) -> None:
        """Refuse ceilings that are missing, out of range or out of order."""
        if self.domain == "explicit":
            for name in ("shape", "minCeiling", "maxCeiling"):
                if getattr(self, name) is not None:
                    raise ParameterError(name, "means nothing with domain explicit: leave it out")
            explicit_ceilings(self.ceilings)
        elif self.ceilings is not None:
            raise ParameterError(
                "ceilings", f"means nothing with domain {self.domain}: leave it out, or use domain explicit"
            )
        else:
            self._check_range()

    def _check_range(self) -> None:
        lowest, highest = self.minCeiling, self.highest
        if lowest is None:
            raise ParameterError(
                "minCeiling", "missing, expected the ceiling of the lowest priority, from 0 to below 1"
            )
        if not 0 <= lowest < 1:
            raise ParameterError("minCeiling", f"expected 0 to below 1, found {lowest:g}")
        if not 0 < highest <= 1:
            raise ParameterError("maxCeiling", f"expected above 0 up to 1, found {highest:g}")
        if lowest >= highest:
            raise ParameterError("minCeiling", f"expected less than maxCeiling, {highest:g}, found {lowest:g}")

    @property
    def highest(self) -> float:
        """The ceiling of the highest priority."""
        return 1.0 if self.maxCeiling is None else self.maxCeiling


def explicit_ceilings(value: object) -> Mapping[int, float]:
    """Priority → ceiling. Keys may be whole numbers or texts of such: not every reader of a file keeps numbers as keys."""
    if not isinstance(value, Mapping) or not value:
        raise ParameterError("ceilings", "expected a map of priorities to ceilings, and at least one")
    ceilings: dict[int, float] = {}
    for key, ceiling in value.items():
        path = f"ceilings.{str(key)[:40]}"
        try:
            priority = int(key) if isinstance(key, (int, str)) and not isinstance(key, bool) else None
        except ValueError:
            priority = None
        if priority is None:
            raise ParameterError(path, "expected a priority, a whole number, as the key")
        if isinstance(ceiling, bool) or not isinstance(ceiling, (int, float)) or not 0 <= ceiling <= 1:
            raise ParameterError(path, f"expected a ceiling from 0 to 1, found {ceiling!a:.80}")
        ceilings[priority] = float(ceiling)
    ordered = dict(sorted(ceilings.items(), reverse=True))
    for (higher, above), (lower, below) in pairwise(ordered.items()):
        if below > above:
            raise ParameterError(
                f"ceilings.{lower}", f"expected at most the {above:g} of the higher priority {higher}, found {below:g}"
            )
    return ordered


@plugin.type("priority-holdback-policy", parameters=HoldbackParameters)
class PriorityHoldbackPolicy(UsageLimitPolicy):
    """Holds lower priorities back before the pool is full."""

    def __init__(self, context: Context, parameters: HoldbackParameters) -> None:
        self._parameters = parameters
        self._explicit = explicit_ceilings(parameters.ceilings) if parameters.domain == "explicit" else {}

    def limits(self, saturation: float, priorities: Sequence[int], ceilings: Sequence[float]) -> Sequence[float]:
        """By rank or by value between the highest and the lowest ceiling, or as written; 0 for a priority that is not."""
        domain = self._parameters.domain
        if domain == "explicit":
            return [self._explicit.get(priority, 0.0) for priority in priorities]
        positions = ranks(len(priorities)) if domain == "rank" else values(priorities)
        highest, lowest = self._parameters.highest, self._parameters.minCeiling or 0.0
        return [highest - position * (highest - lowest) for position in positions]


def ranks(count: int) -> list[float]:
    """Even steps from 0 for the highest priority to 1 for the lowest; 0 for a single one."""
    return [number / (count - 1) if count > 1 else 0.0 for number in range(count)]


def values(priorities: Sequence[int]) -> list[float]:
    """From 0 for the highest priority to 1 for the lowest, by their distance; 0 where all are equal."""
    if not priorities:
        return []
    highest, spread = priorities[0], priorities[0] - priorities[-1]
    return [(highest - priority) / spread if spread else 0.0 for priority in priorities]


@plugin.type("soft-reflective-ceiling-policy")
class SoftReflectiveCeilingPolicy(UsageLimitPolicy):
    """The fuller the pool, the more seldom lower priorities have their turn; the highest one always has.

    With N priorities, number i (0 the highest) is served below 1 - i x saturation / (N - 1). From there on it is open in one of
    round(saturation / (1 - saturation)) calls, and from saturation 1 on in none.
    """

    def __init__(self, context: Context) -> None:
        self._turns: list[int] = []

    def limits(self, saturation: float, priorities: Sequence[int], ceilings: Sequence[float]) -> Sequence[float]:
        """1 for a priority that is open in this call, 0 for one that is not."""
        count = len(priorities)
        self._turns += [0] * (count - len(self._turns))
        # A lower priority is never open while a higher one is not: what no higher one may pass, it may not either.
        opened, found = True, []
        for number in range(count):
            opened = self._is_open(number, saturation, count) and opened
            found.append(1.0 if opened else 0.0)
        return found

    def _is_open(self, number: int, saturation: float, count: int) -> bool:
        if number == 0 or saturation < 1 - number * saturation / (count - 1):
            return True
        if saturation >= 1:
            return False
        period = max(1, int(saturation / (1 - saturation + _NEARLY_NOTHING) + 0.5))
        self._turns[number] += 1
        return self._turns[number] % period == 0
