"""The table: every row on one line of 100 columns, with floor and goal beside the figure."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks.figure import Bound, Figure, Goal, Measured, evaluate
from benchmarks.figures import FIGURES
from benchmarks.probes import Room
from benchmarks.report import draw_goals, print_table
from benchmarks.run import WIDTH, select_figures


def lines_of(rows: list[Measured]) -> list[str]:
    output = io.StringIO()
    print_table(rows, Console(file=output, width=WIDTH))
    return [line.rstrip() for line in output.getvalue().splitlines() if line.strip()]


def test_table_shows_measured_floor_ratio_range_and_goal():
    figure = Figure("G0", "a call", "call:p50_us", "floor:p50_us", Goal(Bound.AT_MOST, 3.0))

    lines = lines_of([evaluate(figure, {"call:p50_us": [20.0, 30.0], "floor:p50_us": [10.0, 10.0]}, {})])

    assert lines[2].split() == ["G0", "a", "call", "25", "µs", "10", "µs", "2.5", "2–3", "≤", "3", "met"]


@pytest.mark.parametrize(
    ("key", "value", "shown"),
    [
        ("call:p50_us", 9_999.0, "9,999 µs"),
        ("call:p50_us", 12_340.0, "12.3 ms"),
        ("start.echo:private_mb", 5.678, "5.68 MB"),
        ("gateway:json.per_s", 12_345.6, "12,346/s"),
        ("harm.busy:late_ms", 10.34, "10.3 ms"),
        ("swap.leak:resident_percent", 1.25, "1.25 %"),
    ],
)
def test_table_shows_quantities_in_their_units(key: str, value: float, shown: str):
    lines = lines_of([evaluate(Figure("B0", "alone", key), {key: [value]}, {})])

    assert shown in lines[2]


def test_table_says_why_a_figure_is_missing():
    lines = lines_of([evaluate(Figure("B0", "alone", "floor:p50_us"), {}, {"floor": "no C compiler"})])

    assert "not measured: no C compiler" in lines[2]


def test_table_keeps_every_figure_on_one_line_of_its_width():
    rows = [Measured(figure, 0.1234, 0.1234, 0.2345, 123_456.0, 123_456.0, missing="") for figure in FIGURES]

    lines = lines_of(rows)

    assert max(map(len, lines)) <= WIDTH
    assert len(lines) == len(FIGURES) + 3


def test_figures_have_distinct_ids_and_those_with_goals_are_goals_of_this_release():
    ids = [figure.id for figure in FIGURES]

    assert len(set(ids)) == len(ids)
    assert {figure.id for figure in FIGURES if figure.goal} == {
        "G1", "G2", "G3", "G4", "G4p99", "G5", "G6", "G13", "G15", "G15mem",
        "G19", "G19fail", "G19deg", "G20", "G20fds", "G20thr", "G20task", "G20kids",
        "G18", "G18own", "G18host", "G18most", "L13", "L17", "L17late", "M14", "R15", "R15full",
        "Q1", "Q1p90", "Q1gap", "Q1gap90", "Q1fail", "Q2",
    }  # fmt: skip


def test_goals_of_nothing_are_drawn_met_or_not(tmp_path: Path):
    figure = Figure("G0", "failed", "swap:failed_count", goal=Goal(Bound.AT_MOST, 0))
    rows = [evaluate(figure, {"swap:failed_count": [count]}, {}) for count in (-1.0, 0.0, 1.0)]

    assert [row.met for row in rows] == [True, True, False]
    assert [path.name for path in draw_goals(rows, Room(tmp_path, tmp_path, (0,)))] == ["goals.png"]


@pytest.mark.parametrize(
    ("only", "ids"),
    [
        ("G20", ["G20", "G20fds", "G20thr", "G20task", "G20kids"]),
        ("g20fds", ["G20fds"]),
        ("G4,L13", ["G4", "G4p99", "L13"]),
        ("D3x1", ["D3x1"]),
        ("Q1", ["Q1", "Q1p90", "Q1gap", "Q1gap90", "Q1p50", "Q1hit", "Q1fail"]),
        ("F100", ["F100", "F100np"]),
    ],
)
def test_a_number_names_all_rows_of_its_measurement(only: str, ids: list[str]):
    assert [figure.id for figure in select_figures(FIGURES, only)] == ids
