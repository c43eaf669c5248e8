"""The registry: one module a subject, each with PROBES, FIGURES and CHARTS. A new module is added to `SUBJECTS`.

A module here may import hotbay; the harness may not.
"""

from benchmarks.figure import Chart, Figure
from benchmarks.figures import decision, echo, floor, gateway, harm, scrape, start, swap
from benchmarks.probes import Probe

SUBJECTS = (floor, echo, decision, start, gateway, scrape, swap, harm)

PROBES: tuple[Probe, ...] = tuple(probe for subject in SUBJECTS for probe in subject.PROBES)
FIGURES: tuple[Figure, ...] = tuple(figure for subject in SUBJECTS for figure in subject.FIGURES)
CHARTS: tuple[Chart, ...] = tuple(chart for subject in SUBJECTS for chart in subject.CHARTS)
