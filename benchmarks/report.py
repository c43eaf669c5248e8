"""Shows what a run measured: a table for the terminal, JSON for machines, pictures for people."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

from matplotlib.figure import Figure as Picture
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from benchmarks.figure import Bound, Chart, Figure, Goal, Measured
from benchmarks.probes import Room
from benchmarks.rounds import Outcome

LARGE = 1000
"""From here up a number is printed without decimals."""

LONG_US = 10_000
"""From here up times are printed in milliseconds."""

_UNITS = {"us": "µs", "ms": "ms", "mb": "MB", "percent": "%", "cores": "", "count": ""}


def print_table(rows: Sequence[Measured], console: Console) -> None:
    """One row a figure: median, floor's median, ratio with the range over the rounds, goal. Fits 100 columns."""
    table = Table(
        box=SIMPLE_HEAD,
        padding=0,
        show_edge=False,
        caption="medians over rounds (Q: repeats); ratio and range: measured ÷ floor within each",
    )
    for header in ("id", "figure", "measured", "floor", "ratio", "range", "goal", ""):
        table.add_column(header, justify="left" if header in ("id", "figure") else "right", no_wrap=header == "id")
    for row in rows:
        table.add_row(*_cells(row))
    console.print(table)


def write_json(
    rows: Sequence[Measured],
    outcome: Outcome,
    facts: Mapping[str, object],
    room: Room,
    *,
    studies: Mapping[str, object],
) -> Path:
    """Write `results.json`: the facts of the run, the rows, every sample behind them, and the details of studies."""
    path = room.build / "results.json"
    document = {
        **facts,
        "figures": [_entry(row) for row in rows],
        "samples": outcome.samples,
        "unavailable": outcome.unavailable,
        "studies": studies,
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
    """Write `goals.png`: how far each measured figure is from its goal, better to the right; nothing without goals."""
    shares = {
        f"{row.figure.id}  {row.figure.title} ({_goal(row.figure)})": _share(row.figure.goal, row.value)
        for row in rows
        if row.figure.goal is not None and row.value is not None
    }
    if not shares:
        return []
    path = room.build / "goals.png"
    picture = Picture(figsize=(10, 1.5 + 0.35 * len(shares)))
    axes = picture.subplots()
    bars = axes.barh(list(shares), list(shares.values()), color=["C2" if s >= 1 else "C3" for s in shares.values()])
    axes.bar_label(bars, fmt="%.2f", padding=3)
    axes.axvline(1, color="black", linestyle="--")
    axes.set(xlabel="share of the goal: 1 meets it, more is better", xlim=(0, max(1.2, *shares.values()) * 1.1))
    axes.invert_yaxis()
    picture.savefig(path, dpi=120, bbox_inches="tight")
    return [path]


def _share(goal: Goal, value: float) -> float:
    """1 where the goal is met exactly, above it on the good side."""
    if goal.bound is Bound.AT_LEAST:
        return value / goal.number
    # Nothing is the best that there is, and the only thing that meets a goal of nothing.
    return goal.number / value if value > 0 else 1.0


def _draw_chart(chart: Chart, lines: Mapping[str, Sequence[tuple[float, float]]], path: Path) -> Path:
    picture = Picture(figsize=(8, 5))
    axes = picture.subplots()
    for label, points in lines.items():
        axes.plot([x for x, _ in points], [y for _, y in points], marker="o", label=label)
    sizes = sorted({x for points in lines.values() for x, _ in points})
    axes.set(title=chart.title, xlabel=chart.x_label, ylabel=chart.y_label, xscale="log")
    axes.set_xticks(sizes, [f"{size:g}" for size in sizes])
    axes.minorticks_off()
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend()
    picture.savefig(path, dpi=120, bbox_inches="tight")
    return path


def _cells(row: Measured) -> tuple[str, ...]:
    figure = row.figure
    if row.value is None or row.absolute is None:
        return figure.id, f"{figure.title} [dim](not measured: {row.missing})[/]", "", "", "", "", _goal(figure), ""
    verdict = {True: "[green]met[/]", False: "[red]miss[/]", None: ""}[row.met]
    measured = _quantity(row.absolute, figure.value)
    floor = "" if row.floor is None else _quantity(row.floor, figure.value)
    ratio = _number(row.value) if figure.against else ""
    return figure.id, figure.title, measured, floor, ratio, _range(row), _goal(figure), verdict


def _range(row: Measured) -> str:
    """Of the ratio; of the figure itself, in the unit of `measured`, where there is no floor."""
    shown = 1e3 if row.figure.value.endswith("_us") and row.floor is None and (row.absolute or 0) >= LONG_US else 1
    low, high = (None if value is None else value / shown for value in (row.low, row.high))
    return f"{_number(low)}–{_number(high)}"


def _goal(figure: Figure) -> str:
    return f"{figure.goal.bound.value} {figure.goal.number:g}" if figure.goal else ""


def _quantity(value: float, key: str) -> str:
    """The value with its unit, which the last part of the quantity's name tells."""
    if key.endswith("per_s"):
        return f"{_number(value)}/s"
    unit = key.rpartition("_")[2]
    if unit == "us" and value >= LONG_US:
        return f"{_number(value / 1e3)} ms"
    return f"{_number(value)} {_UNITS[unit]}".rstrip()


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
        "note": figure.note or None,
        "absolute": row.absolute,
        "floor": row.floor,
        "value": row.value,
        "low": row.low,
        "high": row.high,
        "goal": {"bound": figure.goal.bound.value, "number": figure.goal.number} if figure.goal else None,
        "met": row.met,
        "missing": row.missing or None,
    }
