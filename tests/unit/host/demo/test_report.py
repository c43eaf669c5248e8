"""Green only when everything happened as announced; red says why."""

import io
import json
from collections.abc import Callable
from dataclasses import replace

import pytest
from hotbay.demo.gauges import Counters, HostStatus
from hotbay.demo.record import Sample
from hotbay.demo.report import KillWindow, Run, Swap, failures, generation_rows, summary, verdict
from hotbay.demo.timeline import Life
from hotbay.demo.view import final
from rich.console import Console

MakeStatus = Callable[..., HostStatus]
MakeCounters = Callable[..., Counters]

KEYS = [
    "requests",
    "failed",
    "degraded",
    "degraded_outside_kill_window",
    "swaps",
    "crashes_survived",
    "isolation",
    "upstream",
    "ttft_ms_p50",
    "ttft_ms_p99",
    "decision_us_p50",
    "plugins",
]


def life(plugin: str, generation: int, from_s: float, to_s: float | None = None) -> Life:
    return Life(plugin, generation, "1.0.0", 1, "sha256:1", 100 + generation, from_s, to_s)


@pytest.fixture
def green(make_status: MakeStatus, make_counters: MakeCounters) -> Run:
    """40 s, two requests a second, a swap at 20 s, a kill at 30 s."""
    return Run(
        seed=0,
        duration_s=40.0,
        samples=[Sample(n / 2, n / 2 + 0.4, 0.1 + n / 1000) for n in range(80)],
        lives=[life("loads", 1, 0.0, 21.0), life("loads", 3, 21.0), life("rest", 2, 0.0, 30.1), life("rest", 4, 30.9)],
        status=make_status(loads={"generation": 3, "swaps": 1}, rest={"generation": 4, "restarts": 1}),
        before=make_counters(2),
        after=make_counters(9),
        swap=Swap("loads", 20.0, 21.0),
        kill=KillWindow("rest", 102, 29.9, 30.0, 30.9, 31.0, degraded_before=2, degraded_after=9),
    )


def test_a_run_that_went_as_announced_is_green(green: Run):
    assert verdict(green) == ()


def test_the_object_has_the_promised_keys_first_and_is_json(green: Run):
    found = summary(green)

    assert list(found)[: len(KEYS)] == KEYS
    assert json.loads(json.dumps(found)) == found
    assert {key: found[key] for key in KEYS[:8]} == {
        "requests": 80,
        "failed": 0,
        "degraded": 7,
        "degraded_outside_kill_window": 0,
        "swaps": 1,
        "crashes_survived": 1,
        "isolation": "none",
        "upstream": "llama.cpp",
    }
    assert found["green"] is True
    assert found["kill_window"] == {
        "plugin": "rest",
        "pid": 102,
        "sampled_s": 29.9,
        "killed_s": 30.0,
        "ready_s": 30.9,
        "resampled_s": 31.0,
        "degraded": 7,
    }


def test_every_generation_has_the_requests_that_began_in_its_life(green: Run):
    rows = generation_rows(green)

    assert [(row.life.plugin, row.life.generation, row.requests) for row in rows] == [
        ("loads", 1, 42),
        ("loads", 3, 38),
        ("rest", 2, 61),
        ("rest", 4, 18),
    ]


@pytest.mark.parametrize("is_green", [True, False])
def test_what_to_do_next_is_said_at_the_end_of_a_green_run(green: Run, is_green: bool):
    file = io.StringIO()
    run = green if is_green else replace(green, samples=())
    final(run, Console(file=file, width=200))
    assert ("docs/operator-guide.md" in file.getvalue().splitlines()[-1]) is is_green


def shown(run: Run) -> str:
    file = io.StringIO()
    final(run, Console(file=file, width=200))
    return file.getvalue()


def test_a_swap_that_came_later_than_it_was_waited_for_is_told_with_its_time(green: Run):
    new = replace(life("loads", 3, 37.1), digest="sha256:2")
    run = replace(green, swap=Swap("loads", 20.0, None), lives=[life("loads", 1, 0.0, 37.1), new, *green.lives[2:]])
    assert "published at 20.0 s, live at 37.1 s, later than the 15 s waited for" in shown(run)
    assert verdict(run) == ()


def test_a_swap_that_never_came_is_red_whatever_else_began(green: Run):
    # The old one crashed and is there again.
    run = replace(green, swap=Swap("loads", 20.0, None))
    assert verdict(run) == ("the new version of loads was never live",)
    assert "never live" in shown(run)
    assert "GREEN" not in shown(run)


def test_a_replacement_that_came_later_than_it_was_waited_for_is_told_with_its_time(green: Run):
    assert green.kill is not None
    run = replace(green, kill=replace(green.kill, ready_s=None))
    assert "killed at 30.0 s, replaced at 30.9 s, later than the 15 s waited for" in shown(run)
    assert "no replacement" in shown(replace(run, lives=green.lives[:3]))


def test_one_failed_request_is_red(green: Run):
    run = replace(green, samples=[*green.samples, Sample(30.0, 30.1, None, "APIError: 503")])

    assert verdict(run) == ("1 of 81 requests failed",)
    assert failures(run.samples) == {"APIError: 503": 1}
    assert summary(run)["green"] is False


def test_a_failed_requests_first_token_does_not_count(green: Run):
    run = replace(green, samples=[*green.samples, Sample(30.0, 39.0, 9.0, "cut off")])

    assert run.ttft_ms(1.0) == green.ttft_ms(1.0)


def test_degradation_before_the_kill_is_red(green: Run, make_counters: MakeCounters):
    assert green.kill is not None
    run = replace(green, kill=replace(green.kill, degraded_before=3))

    assert verdict(run) == ("1 degraded steps have no kill to explain them",)
    assert run.degraded_by == {"queue: CRASHED": 7}


def test_degradation_after_the_replacement_was_ready_is_red(green: Run, make_counters: MakeCounters):
    run = replace(green, after=make_counters(12))

    assert run.degraded_outside == 3
    assert verdict(run) == ("3 degraded steps have no kill to explain them",)


def test_without_a_kill_no_degradation_is_explained(green: Run):
    assert replace(green, kill=None).degraded_outside == 7


@pytest.mark.parametrize(("swaps", "restarts"), [(0, 1), (2, 1), (1, 0), (1, 2)])
def test_another_number_of_swaps_or_crashes_is_red(green: Run, make_status: MakeStatus, swaps: int, restarts: int):
    run = replace(green, status=make_status(loads={"swaps": swaps}, rest={"restarts": restarts}))

    (reason,) = verdict(run)
    assert "expected 1" in reason


def test_a_plugin_that_stayed_down_is_red_and_no_crash_was_survived(green: Run, make_status: MakeStatus):
    run = replace(green, status=make_status(loads={"swaps": 1}, rest={"restarts": 1, "pid": None}))

    assert verdict(run) == ("0 crashes survived, expected 1", "no process answers for rest")


def test_too_few_requests_show_nothing(green: Run):
    run = replace(green, samples=green.samples[::5])

    assert verdict(run) == ("only 16 requests were made, at least 20 show something",)


def test_a_generation_that_nobody_asked_is_red(green: Run):
    lives = [*green.lives, life("idle", 9, 40.0, 43.0)]

    assert verdict(replace(green, lives=lives)) == ("generation 9 of idle answered for 3.0 s without a request",)


def test_a_run_without_any_request_is_red_and_still_a_report(green: Run, make_counters: MakeCounters):
    run = replace(green, samples=[], lives=[], after=Counters({}, ()), before=Counters({}, ()), kill=None)

    assert verdict(run)
    assert summary(run)["ttft_ms_p50"] is None
    assert summary(run)["decision_us_p50"] is None


def test_sabotage_is_red_although_nothing_failed(green: Run, make_status: MakeStatus, make_counters: MakeCounters):
    run = replace(
        green,
        status=make_status(loads={"pid": None, "restarts": 9}, rest={"pid": None, "restarts": 8}),
        after=make_counters(500),
        swap=None,
        kill=None,
    )

    assert run.failed == 0
    assert len(verdict(run)) == 4
