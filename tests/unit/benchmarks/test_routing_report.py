"""A study's results become figures: who is compared, ratios within a seed, who is missing and why."""

import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks.figure import Measured, evaluate
from benchmarks.figures.routing import FIGURES, STUDIES
from benchmarks.routing import report
from benchmarks.routing.report import Standing, standing_of
from benchmarks.routing.study import Result
from benchmarks.run import WIDTH

SEEDS = (1, 2, 3)
OURS = ("our a", "our b")
PEERS = ("peer a", "peer b")


def results_of(name: str, means: Sequence[float], p90s: Sequence[float], *, failed: int = 0) -> list[Result]:
    return [
        Result(name, seed, 100, failed, mean, mean / 2, p90, end_mean_s=9.0, hit_rate=0.5, took_s=1.0)
        for seed, mean, p90 in zip(SEEDS, means, p90s, strict=False)
    ]


def standing(results: Sequence[Result], missing: Mapping[str, str] | None = None) -> Standing:
    return standing_of(results, missing or {}, ours=OURS, peers=PEERS, seeds=SEEDS)


def rows_of(found: Standing) -> dict[str, Measured]:
    samples = report.samples_of(found, OURS)
    unavailable = report.unavailable_of(found, ours=OURS, peers=PEERS)
    return {figure.id: evaluate(figure, samples, unavailable) for figure in FIGURES}


ALL = [
    *results_of("our a", [0.9, 1.9, 2.7], [5.0, 6.0, 7.0]),
    *results_of("our b", [1.0, 2.0, 3.0], [1.0, 1.0, 1.0]),
    *results_of("peer a", [1.0, 2.0, 3.0], [9.0, 9.0, 9.0]),
    *results_of("peer b", [4.0, 4.0, 4.0], [5.0, 8.0, 8.0]),
    *results_of("reference", [0.1, 0.1, 0.1], [0.1, 0.1, 0.1]),
]


def test_our_best_by_mean_is_held_against_the_best_other_by_each_quantity():
    found = standing(ALL)

    assert found.ours == "our a"
    assert found.peers == {"mean": "peer a", "p90": "peer b"}
    assert found.excluded == {}


def test_ratios_are_formed_within_a_seed():
    rows = rows_of(standing(ALL))

    assert (rows["Q1"].value, rows["Q1"].low, rows["Q1"].high) == pytest.approx((0.9, 0.9, 0.95))
    assert rows["Q1"].met
    assert rows["Q1"].absolute == pytest.approx(1900.0)
    assert (rows["Q1p90"].value, rows["Q1p90"].low, rows["Q1p90"].high) == pytest.approx((0.875, 0.75, 1.0))


@pytest.mark.parametrize(("lowest", "met"), [(2.8, True), (2.6, False)])
def test_ranges_are_apart_when_our_highest_seed_is_below_their_lowest(lowest: float, met: bool):
    rows = rows_of(standing([*ALL[:3], *results_of("peer a", [lowest, 5.0, 5.0], [9.0, 9.0, 9.0])]))

    assert rows["Q1gap"].value == pytest.approx(2.7 / lowest)
    assert rows["Q1gap"].met is met


def test_a_profile_of_ours_that_failed_a_request_is_not_compared_and_its_failures_count():
    failing = results_of("our a", [0.1, 0.1, 0.1], [0.1, 0.1, 0.1], failed=1)

    found = standing([*failing, *ALL[3:]])

    assert found.ours == "our b"
    assert found.excluded == {"our a": "3 of 300 requests failed"}
    assert rows_of(found)["Q1fail"].value == 3
    assert not rows_of(found)["Q1fail"].met


@pytest.mark.parametrize(("failed", "compared"), [(1, "peer a"), (2, "peer b")])
def test_another_router_may_fail_one_in_a_hundred(failed: int, compared: str):
    failing = results_of("peer a", [1.0, 1.0, 1.0], [9.0, 9.0, 9.0], failed=failed)

    assert standing([*ALL[:6], *failing, *ALL[9:]]).peers["mean"] == compared


def test_whoever_is_missing_is_named_and_the_rest_is_compared():
    found = standing([*ALL[:6], *ALL[6:8], *ALL[9:12]], {"peer a": "it ended with 1"})

    assert found.peers["mean"] == "peer b"
    assert found.excluded == {"peer a": "it ended with 1"}
    assert rows_of(found)["Q1"].value is not None


def test_without_any_other_router_figures_say_why():
    rows = rows_of(standing(ALL[:6], dict.fromkeys(PEERS, "cannot be installed")))

    for name in ("Q1", "Q1p90", "Q1gap", "Q1gap90"):
        assert rows[name].value is None
        assert "peer b: cannot be installed" in rows[name].missing
    assert rows["Q1fail"].value == 0


def test_without_us_figures_say_why():
    rows = rows_of(standing(ALL[6:], dict.fromkeys(OURS, "no packages")))

    assert all("our a: no packages" in row.missing for row in rows.values())


def test_figures_name_probes_of_the_study_and_quantities_that_it_gives():
    samples = report.samples_of(standing(ALL), OURS)

    assert {probe for figure in FIGURES for probe in figure.probes} <= set(STUDIES[0].probes)
    assert {key for figure in FIGURES for key in (figure.value, figure.against) if key} <= set(samples)


def test_details_hold_every_seed_of_every_router():
    details = json.loads(json.dumps(report.details_of(standing(ALL), {"count": 100})))

    assert sorted((row["router"], row["seed"]) for row in details["results"]) == sorted(
        (result.router, result.seed) for result in ALL
    )
    assert details["ours"] == "our a"


def test_table_has_a_line_a_router_best_first_and_says_who_was_not_measured():
    found = standing(ALL[:9], {"peer b": "cannot be installed"})
    output = io.StringIO()
    Console(file=output, width=WIDTH).print(report.routers_table(found, SEEDS))
    lines = [line.strip() for line in output.getvalue().splitlines() if line.strip()]

    assert max(map(len, lines)) <= WIDTH
    assert lines[3].split() == ["our", "a", "*", "1.90", "(0.90–2.70)", "0.95", "6.00", "(5.00–7.00)", "50.0", "0"]
    assert [line.split(" (")[0].rsplit(" ", 1)[0].rstrip(" *") for line in lines[3:6]] == ["our a", "our b", "peer a"]
    assert any(line.startswith("peer b (not measured: cannot be") for line in lines)


def test_picture_is_drawn_of_what_there_is(tmp_path: Path):
    path = tmp_path / "routing.png"

    assert report.draw(standing([], dict.fromkeys((*OURS, *PEERS), "no")), path) == []
    assert report.draw(standing(ALL[:9], {"peer b": "no"}), path) == [path]
    assert path.stat().st_size > 0
