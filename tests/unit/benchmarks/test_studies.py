"""Studies are taken when a figure needs them, and what they found joins that of the rounds."""

from collections.abc import Callable
from pathlib import Path

from benchmarks.figure import Figure
from benchmarks.figures import FIGURES, PROBES, STUDIES
from benchmarks.probes import Room, UnavailableError
from benchmarks.rounds import Outcome
from benchmarks.run import needed_probes, select_figures
from benchmarks.studies import Findings, Study, needed_studies, run_studies

ROOM = Room(Path(), Path(), (0,))


def study(name: str, take: Callable[[Room], Findings]) -> Study:
    return Study(name, (f"{name}.a", f"{name}.b"), lambda room, _: take(room))


def unavailable(_: Room) -> Findings:
    raise UnavailableError("no model")


def test_samples_and_reasons_join_those_of_the_rounds():
    outcome = Outcome()
    outcome.samples["floor:p50_us"] = [1.0]
    found = run_studies(
        [study("there", lambda _: Findings({"there.a:mean_ms": (1.0, 2.0)}, {"there.b": "one seed only"}))],
        ROOM,
        outcome,
        lambda _: None,
    )

    assert outcome.samples == {"floor:p50_us": [1.0], "there.a:mean_ms": [1.0, 2.0]}
    assert outcome.unavailable == {"there.b": "one seed only"}
    assert list(found) == ["there"]


def test_a_study_that_cannot_be_taken_leaves_the_others():
    outcome = Outcome()
    studies = [study("absent", unavailable), study("there", lambda _: Findings({"there.a:mean_ms": [1.0]}))]

    run_studies(studies, ROOM, outcome, lambda _: None)

    assert outcome.unavailable == {"absent.a": "no model", "absent.b": "no model"}
    assert list(outcome.samples) == ["there.a:mean_ms"]


def test_a_study_is_needed_by_its_own_figures_only():
    studies = [study("x", unavailable), study("y", unavailable)]

    assert needed_studies(studies, [Figure("Q0", "a", "floor:p50_us", "y.b:p50_us")]) == studies[1:]
    assert needed_studies(studies, [Figure("G0", "a", "floor:p50_us")]) == []


def test_q1_selects_its_study_and_no_probe():
    figures = select_figures(FIGURES, "Q1")

    assert [found.name for found in needed_studies(STUDIES, figures)] == ["routing"]
    assert needed_probes(figures, ()) == []


def test_every_figure_has_a_probe_or_a_study():
    known = {probe.name for probe in PROBES} | {name for found in STUDIES for name in found.probes}

    assert {name for figure in FIGURES for name in figure.probes} <= known
