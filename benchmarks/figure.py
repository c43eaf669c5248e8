"""Figures: what the table shows, as data. A figure names quantities of probes, never a way to measure.

A figure with `against` is a ratio, formed within each round and only then reduced to its median: the machine changes
speed between rounds, and both halves of a ratio have to change with it.
"""

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median


class Bound(enum.Enum):
    """Which side of a goal is good."""

    AT_MOST = "≤"
    AT_LEAST = "≥"


@dataclass(frozen=True, slots=True)
class Goal:
    """What the product is held to. Missing it is reported, and never fails a run: a benchmark is not a test."""

    bound: Bound
    number: float

    def met(self, value: float) -> bool:
        """Whether `value` lies on the good side."""
        return value <= self.number if self.bound is Bound.AT_MOST else value >= self.number


@dataclass(frozen=True, slots=True)
class Figure:
    """One row. `value` and `against` are `PROBE:QUANTITY`; `id` is a goal's, or that of a field failure.

    `note` is what has to be known beyond the title to read the number; it goes into the JSON.
    """

    id: str
    title: str
    value: str
    against: str | None = None
    goal: Goal | None = None
    note: str = ""

    @property
    def probes(self) -> tuple[str, ...]:
        """Names of the probes that the row needs."""
        return tuple(key.rpartition(":")[0] for key in (self.value, self.against) if key is not None)


@dataclass(frozen=True, slots=True)
class Chart:
    """Cost over a size: each line joins (x, `PROBE:QUANTITY`) points."""

    id: str
    title: str
    x_label: str
    y_label: str
    lines: Mapping[str, Sequence[tuple[float, str]]]


@dataclass(frozen=True, slots=True)
class Measured:
    """A figure's outcome: medians over the rounds, with the range of `value` that the rounds showed.

    `absolute` and `floor` are the medians of the two halves of a ratio; `value` is that of the ratio itself.
    """

    figure: Figure
    value: float | None
    low: float | None
    high: float | None
    absolute: float | None
    floor: float | None
    missing: str

    @property
    def met(self) -> bool | None:
        """Whether the goal is met; None without a goal or a value."""
        if self.figure.goal is None or self.value is None:
            return None
        return self.figure.goal.met(self.value)


def evaluate(figure: Figure, samples: Mapping[str, Sequence[float]], unavailable: Mapping[str, str]) -> Measured:
    """Reduce the rounds' samples, keyed `PROBE:QUANTITY` and one per round, to the figure's row."""
    reasons = [unavailable[probe] for probe in figure.probes if probe in unavailable]
    if reasons:
        return Measured(figure, None, None, None, None, None, missing="; ".join(reasons))
    absolutes = samples[figure.value]
    if figure.against is None:
        return Measured(figure, median(absolutes), min(absolutes), max(absolutes), median(absolutes), None, missing="")
    floors = samples[figure.against]
    values = [value / floor for value, floor in zip(absolutes, floors, strict=True)]
    return Measured(figure, median(values), min(values), max(values), median(absolutes), median(floors), missing="")
