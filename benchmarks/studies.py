"""Studies: what is taken once a run, with repeats of its own, beside the probes of the rounds.

A study yields samples like a probe, keyed `PROBE:QUANTITY` and one for each repeat, so that figures are formed from both
alike; and what figures cannot say: a table, details for the JSON, pictures.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from rich.table import Table

from benchmarks.figure import Figure
from benchmarks.probes import Room, UnavailableError
from benchmarks.rounds import Outcome

Progress: TypeAlias = Callable[[str], None]


def _nothing(_: Room) -> list[Path]:
    return []


@dataclass(frozen=True, slots=True)
class Findings:
    """What a study found. `unavailable` says why probes are missing, by probe; `draw` writes pictures, of which it gives the paths."""

    samples: Mapping[str, Sequence[float]]
    unavailable: Mapping[str, str] = field(default_factory=dict)
    details: object = None
    table: Table | None = None
    draw: Callable[[Room], list[Path]] = _nothing


@dataclass(frozen=True, slots=True)
class Study:
    """`probes` are the names that figures may use; `take` does the whole study, and may raise `UnavailableError`."""

    name: str
    probes: tuple[str, ...]
    take: Callable[[Room, Progress], Findings]


def needed_studies(studies: Sequence[Study], figures: Sequence[Figure]) -> list[Study]:
    """The studies behind the figures."""
    names = {name for figure in figures for name in figure.probes}
    return [study for study in studies if names.intersection(study.probes)]


def run_studies(studies: Sequence[Study], room: Room, outcome: Outcome, progress: Progress) -> Mapping[str, Findings]:
    """Take them one after another; what they found joins the outcome of the rounds. By name of the study."""
    found: dict[str, Findings] = {}
    for study in studies:
        progress(study.name)
        try:
            findings = study.take(room, progress)
        except UnavailableError as error:
            findings = Findings({}, dict.fromkeys(study.probes, str(error)))
        outcome.samples.update({key: list(values) for key, values in findings.samples.items()})
        outcome.unavailable.update(findings.unavailable)
        found[study.name] = findings
    return found
