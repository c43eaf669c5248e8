"""The command behind `make bench`: selects figures, measures what they need, reports. Exits 0 whatever was measured:
a benchmark informs, it does not judge.
"""

import argparse
import os
import random
import re
import time
from pathlib import Path

from rich.console import Console

from benchmarks.figure import Chart, Figure, evaluate
from benchmarks.figures import CHARTS, FIGURES, PROBES, STUDIES
from benchmarks.machine import machine_facts, moment
from benchmarks.probes import Probe, Room
from benchmarks.report import draw_charts, draw_goals, print_table, write_json
from benchmarks.rounds import run_rounds
from benchmarks.studies import needed_studies, run_studies

ROOT = Path(__file__).parent.parent
ROUNDS = 7
SWAPS = 200
"""A thousand, which is what G20 is about, take ten minutes and more."""

WIDTH = 100
"""Columns of output that is no terminal's."""


def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(prog="make bench ARGS=…", description="Figures of the product beside its floor.")
    parser.add_argument("--list", action="store_true", help="show the figures and stop")
    parser.add_argument("--only", default="", metavar="ID,ID", help="these figures alone")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"interleaved rounds (default {ROUNDS})")
    parser.add_argument("--swaps", type=int, default=SWAPS, help=f"of the leak run G20 (default {SWAPS})")
    parser.add_argument("--requests", type=int, default=None, help="of a replay of the study Q1 (default: as it says)")
    parser.add_argument("--seed", type=int, default=1, help="of the order within the rounds")
    options = parser.parse_args()
    console = Console()
    if not console.is_terminal:
        console = Console(width=WIDTH)
    figures = select_figures(FIGURES, options.only)
    if not figures or min(options.rounds, options.swaps, 1 if options.requests is None else options.requests) < 1:
        parser.error("--only names no figure (see --list), or --rounds, --swaps or --requests is less than 1")
    if options.list:
        for figure in figures:
            console.print(figure.id, figure.title)
        return
    measure(figures, console, options)


def select_figures(figures: tuple[Figure, ...], only: str) -> tuple[Figure, ...]:
    """The figures whose ids are in the comma-separated `only`, or all of them if it is empty.

    `G20` names `G20fds` and its like, too: they are rows of one measurement.
    """
    wanted = {name.strip().upper() for name in only.split(",") if name.strip()}
    return tuple(f for f in figures if not wanted or {f.id.upper(), _stem(f.id).upper()} & wanted)


def _stem(figure_id: str) -> str:
    """The id without the lower-case letters, and what follows them, that tell rows of one measurement apart."""
    return re.split("(?<=[0-9])[a-z]", figure_id, maxsplit=1)[0]


def needed_probes(figures: tuple[Figure, ...], charts: tuple[Chart, ...]) -> list[Probe]:
    """The probes behind the figures and charts, each once."""
    keys = [key for chart in charts for line in chart.lines.values() for _, key in line]
    names = {name for figure in figures for name in figure.probes} | {key.rpartition(":")[0] for key in keys}
    return [probe for probe in PROBES if probe.name in names]


def measure(figures: tuple[Figure, ...], console: Console, options: argparse.Namespace) -> None:
    """Take the rounds on a pinned CPU, print the table and write the files."""
    cpus = tuple(sorted(os.sched_getaffinity(0)))
    room = Room(root=ROOT, build=ROOT / "build" / "bench", cpus=cpus, swaps=options.swaps, requests=options.requests)
    room.build.mkdir(parents=True, exist_ok=True)
    os.sched_setaffinity(0, {cpus[0]})
    charts = CHARTS if figures == FIGURES else ()
    begun, begun_s = moment(), time.monotonic()
    with console.status("opening") as status:
        outcome = run_rounds(
            needed_probes(figures, charts),
            room,
            rounds=options.rounds,
            order=random.Random(options.seed),
            progress=status.update,
        )
        studies = run_studies(needed_studies(STUDIES, figures), room, outcome, status.update)
    ended, took_s = moment(), time.monotonic() - begun_s
    rows = [evaluate(figure, outcome.samples, outcome.unavailable) for figure in figures]
    print_table(rows, console)
    for findings in studies.values():
        if findings.table is not None:
            console.print(findings.table)
    facts = {
        "begun": begun,
        "ended": ended,
        "took_s": round(took_s, 1),
        "rounds": options.rounds,
        "swaps": options.swaps,
        "machine": machine_facts(room),
    }
    details = {name: findings.details for name, findings in studies.items()}
    paths = [write_json(rows, outcome, facts, room, studies=details), *draw_goals(rows, room)]
    paths += [path for findings in studies.values() for path in findings.draw(room)]
    paths += draw_charts(charts, outcome.samples, room)
    measured = sum(row.value is not None for row in rows)
    console.print(f"{measured} of {len(rows)} figures measured in {options.rounds} rounds, {took_s:.0f} s; ", end="")
    console.print(f"load average {begun['load_average']} before, {ended['load_average']} after")
    for path in paths:
        console.print(f"wrote {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
