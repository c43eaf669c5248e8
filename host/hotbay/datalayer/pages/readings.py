"""Values out of the series of a page: which series are meant, whether they can be true, and what they are together. Pure."""

from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeAlias

from hotbay.config.metric_specs import MetricSpec
from hotbay.datalayer.pages.exposition import Sample

__all__ = [
    "LARGEST",
    "Fields",
    "Samples",
    "chosen",
    "countable",
    "first",
    "label_count",
    "label_number",
    "mean_share",
    "names_in",
    "series_of",
    "total",
    "whole",
]

Samples: TypeAlias = Mapping[str, tuple[Sample, ...]]

LARGEST: Final = 1 << 53
"""Beyond it a float no longer counts by one; no server has so many of anything."""


class Fields:
    """Collects what is missing and what cannot be true while a page is read."""

    def __init__(self, optional: frozenset[str]) -> None:
        self._optional = optional
        self.missing: list[str] = []
        self.invalid: list[str] = []

    def reading(
        self,
        name: str,
        specs: tuple[MetricSpec, ...],
        samples: Samples,
        combine: Callable[[Iterable[float]], float],
        *,
        most: float = LARGEST,
    ) -> float | None:
        """The combined value of the series that the first spec with any means; None without specs, or for a problem."""
        series = chosen(specs, samples)
        if not series:
            if specs and name not in self._optional:
                self.missing.append(name)
            return None
        values = [sample.value for sample in series]
        if not all(0.0 <= value <= most for value in values):
            self.invalid.append(name)
            return None
        return combine(values)


def series_of(spec: MetricSpec, samples: Samples) -> tuple[Sample, ...]:
    """The page's series that the spec means."""
    found = samples.get(spec.name, ())
    if not spec.labels:
        return found
    return tuple(s for s in found if all(s.labels.get(label) == value for label, value in spec.labels))


def chosen(specs: Iterable[MetricSpec], samples: Samples) -> tuple[Sample, ...]:
    for spec in specs:
        if series := series_of(spec, samples):
            return series
    return ()


def total(values: Iterable[float]) -> float:
    return sum(values)


def mean_share(values: Iterable[float]) -> float:
    values = tuple(values)
    return min(1.0, sum(values) / len(values))


def first(values: Iterable[float]) -> float:
    return next(iter(values))


def whole(value: float | None) -> int | None:
    return countable(int(value)) if value is not None else None


def countable(number: int) -> int | None:
    return number if number <= LARGEST else None


def label_number(text: str) -> float | None:
    return float(text) if text.isascii() and text.isdigit() and len(text) <= 15 else None


def label_count(infos: Iterable[Sample], label: str) -> int | None:
    """Sum of a label's whole numbers over series; None when one is not a number, as in `None`."""
    total = 0
    for info in infos:
        number = label_number(info.labels.get(label, ""))
        if number is None:
            return None
        total += int(number)
    return countable(total)


def names_in(text: str) -> Mapping[str, int]:
    """Names, each with a count of 0: the series does not say how many requests an adapter has."""
    return {name: 0 for part in text.split(",") if (name := part.strip())}
