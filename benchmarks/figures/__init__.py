"""The registry: one module a subject, each with PROBES, FIGURES and CHARTS. A new module is added to `SUBJECTS`, and what is
taken once a run to `STUDIES`.

A module here may import hotbay; the harness may not.
"""

from benchmarks.figure import Chart, Figure
from benchmarks.figures import (
    decision,
    default_profile,
    echo,
    floor,
    gateway,
    harm,
    real_servers,
    routing,
    scrape,
    start,
    swap,
)
from benchmarks.probes import Probe
from benchmarks.studies import Study

SUBJECTS = (floor, echo, decision, default_profile, start, gateway, scrape, swap, harm, routing, real_servers)

PROBES: tuple[Probe, ...] = tuple(probe for subject in SUBJECTS for probe in subject.PROBES)
FIGURES: tuple[Figure, ...] = tuple(figure for subject in SUBJECTS for figure in subject.FIGURES)
CHARTS: tuple[Chart, ...] = tuple(chart for subject in SUBJECTS for chart in subject.CHARTS)
STUDIES: tuple[Study, ...] = (*routing.STUDIES, *real_servers.STUDIES)
