"""Shows what a run measured: a table for the terminal, JSON for machines, pictures for people."""

import json
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

from matplotlib.figure import Figure as Picture
from rich.console import Console
from rich.table import Table

from benchmarks.figure import Chart, Figure, Measured
from benchmarks.probes import Room
from benchmarks.rounds import Outcome

LARGE = 1000
"""From here up a number is printed without decimals."""


def print_table(rows: Sequence[Measured], console: Console) -> None:
    """One row a figure: absolute median, ratio with the range over the rounds, goal."""
    table = Table(title="hotbay benchmarks", caption="median over the rounds; ratios are formed within a round")
    for header in ("id", "figure", "measured", "÷ floor", "range", "goal", ""):
        table.add_column(header, justify="left" if header in ("id", "figure") else "right")
    for row in rows:
        table.add_row(*_cells(row))
    console.print(table)


def write_json(rows: Sequence[Measured], outcome: Outcome, room: Room, *, rounds: int) -> Path:
    """Write `results.json`: the rows, and every sample behind them."""
    path = room.build / "results.json"
    document = {
        "machine": {"cpus": len(room.cpus), "kernel": platform.release(), "python": platform.python_version()},
        "rounds": rounds,
        "figures": [_entry(row) for row in rows],
        "samples": outcome.samples,
        "unavailable": outcome.unavailable,
    }
    path.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n")
    return path


def draw_charts(charts: Sequence[Chart], samples: Mapping[str, Sequence[float]], room: Room) -> list[Path]:
    """Write one PNG for each chart that has at least one measured point."""
    paths = []
    for chart in charts:
        lines = {
            label: [(x, median(samples[key])) for x, key in points if key in samples]
            for label, points in chart.lines.items()
        }
        if any(lines.values()):
            paths.append(_draw_chart(chart, lines, room.build / f"{chart.id}.png"))
    return paths


def draw_goals(rows: Sequence[Measured], room: Room) -> list[Path]:
    """Write `goals.png`: each measured figure that has a goal, as a share of it; nothing if there is none."""
    shares = {
        f"{row.figure.id}  {row.figure.title} ({_goal(row.figure)})": row.value / row.figure.goal.number
        for row in rows
        if row.figure.goal is not None and row.value is not None
    }
    if not shares:
        return []
    path = room.build / "goals.png"
    picture = Picture(figsize=(9, 1.5 + 0.4 * len(shares)))
    axes = picture.subplots()
    axes.barh(list(shares), list(shares.values()))
    axes.axvline(1, color="black", linestyle="--")
    axes.set_xlabel("measured ÷ goal")
    axes.invert_yaxis()
    picture.savefig(path, dpi=120, bbox_inches="tight")
    return [path]


def _draw_chart(chart: Chart, lines: Mapping[str, Sequence[tuple[float, float]]], path: Path) -> Path:
    picture = Picture(figsize=(8, 5))
    axes = picture.subplots()
    for label, points in lines.items():
        axes.plot([x for x, _ in points], [y for _, y in points], marker="o", label=label)
    axes.set(title=chart.title, xlabel=chart.x_label, ylabel=chart.y_label, xscale="log")
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend()
    picture.savefig(path, dpi=120, bbox_inches="tight")
    return path


def _cells(row: Measured) -> tuple[str, ...]:
    figure = row.figure
    if row.value is None or row.absolute is None:
        return figure.id, figure.title, "[dim]not measured[/]", "", row.missing, _goal(figure), ""
    verdict = {True: "[green]met[/]", False: "[red]missed[/]", None: ""}[row.met]
    ratio = _number(row.value) if figure.against else ""
    spread = f"{_number(row.low)}–{_number(row.high)}"
    measured = f"{_number(row.absolute)} {_unit(figure.value)}"
    return figure.id, figure.title, measured, ratio, spread, _goal(figure), verdict


def _goal(figure: Figure) -> str:
    return f"{figure.goal.bound.value} {figure.goal.number:g}" if figure.goal else ""


def _unit(key: str) -> str:
    suffix = key.rpartition("_")[2]
    return {"us": "µs", "ms": "ms", "s": "/s" if key.endswith("per_s") else "s", "bytes": "B"}.get(suffix, "")


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= LARGE else f"{value:.3g}"


def _entry(row: Measured) -> Mapping[str, object]:
    figure = row.figure
    return {
        "id": figure.id,
        "title": figure.title,
        "value_of": figure.value,
        "against": figure.against,
        "absolute": row.absolute,
        "value": row.value,
        "low": row.low,
        "high": row.high,
        "goal": {"bound": figure.goal.bound.value, "number": figure.goal.number} if figure.goal else None,
        "met": row.met,
        "missing": row.missing or None,
    }
