"""Counters of calls and requests: monotone, each request once, latencies by bucket against a sorted list."""

from bisect import bisect_left
from collections.abc import Callable
from math import ceil

import pytest
from hotbay.scheduling.statistics import (
    LATENCY_EDGES_S,
    REFUSALS_APART_S,
    ArmCounters,
    ArmStatistics,
    CallCounters,
    CallStatistics,
    Latencies,
)
from hypothesis import given
from hypothesis import strategies as st


class Tally:
    def __init__(self) -> None:
        self.told: list[tuple[str, str]] = []

    def invalid_scores(self, ref: str, count: int) -> None:
        self.told.append((ref, str(count)))

    def plugin_error(self, point: str, ref: str, code: str) -> None:
        self.told.append((ref, code))

    def call_timer(self, plugin: str, point: str) -> Callable[[float], None]:
        return lambda duration_s: self.told.append((plugin, point))


CODES = ("PLUGIN_ERROR", "BAD_RESULT", "DEADLINE_EXCEEDED", "BREAKER_OPEN", "CRASHED", "HOST_ERROR", "UNAVAILABLE")
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["answered", "failed", "refused", "forgiven"]),
        st.integers(1, 64),
        st.lists(st.sampled_from(CODES), max_size=6),
        st.floats(0.0, 3.0),
    ),
    max_size=30,
)


@given(STEPS)
def test_counters_only_grow_and_no_request_fails_twice(steps: list[tuple[str, int, list[str], float]]) -> None:
    counters = CallCounters(Tally())
    before = counters.read()
    for step, requests, codes, time_s in steps:
        if step == "failed":
            counters.failed(time_s)
        for _ in range(1 if step != "failed" else requests):
            for code in codes:
                counters.plugin_error("score", "s", code)
            if step == "failed":
                counters.unanswered()
        if step == "answered":
            counters.answered(requests, time_s)
        elif step == "refused":
            counters.refused_at(time_s)
        elif step == "forgiven":
            counters.forgive()
        now = counters.read()
        new = now.since(before)
        assert min(new.calls, new.errors, new.bad_results, new.deadline_misses, new.refused, new.failed_batches) >= 0
        assert min(new.latencies.counts) >= 0
        assert 0 <= new.failures <= new.calls
        assert new.failed_batches <= new.batches
        assert new.latencies.count == (step in ("answered", "failed"))
        before = now


@pytest.mark.parametrize(
    ("code", "field"),
    [
        ("PLUGIN_ERROR", "errors"),
        ("CRASHED", "errors"),
        ("STALE_HANDLE", "errors"),
        ("BAD_RESULT", "bad_results"),
        ("DEADLINE_EXCEEDED", "deadline_misses"),
        ("RESOURCE_EXHAUSTED", "deadline_misses"),
        ("BREAKER_OPEN", "refused"),
        ("HOST_ERROR", None),
        ("UNAVAILABLE", None),
    ],
)
def test_reason_is_counted_by_kind_unless_it_is_not_the_plugins(code: str, field: str | None) -> None:
    counters = CallCounters(Tally())
    for _ in range(3):  # one for each binding of the call
        counters.plugin_error("score", "s", code)
    counters.answered(2, 0.001)
    found = counters.read()
    assert found.failures == (0 if field is None else 2)
    if field is not None:
        assert getattr(found, field) == 2


@pytest.mark.parametrize(("apart_s", "batches"), [(REFUSALS_APART_S * 0.99, 1), (REFUSALS_APART_S, 5)])
def test_refusals_close_together_are_one_failure_of_the_process(apart_s: float, batches: int) -> None:
    counters = CallCounters(Tally())
    for number in range(5):
        # A start other than zero: a clock's zero is nothing special.
        counters.plugin_error("score", "s", "BREAKER_OPEN")
        counters.refused_at(1000.0 + apart_s * number / (1 if batches == 5 else 4))
    assert counters.read() == CallStatistics(calls=5, refused=5, batches=batches, failed_batches=batches)


def test_only_compared_generation_is_no_matter_of_the_hosts_tally() -> None:
    tally = Tally()
    counters = CallCounters(tally)
    for quiet in (False, True):
        counters.quiet = quiet
        counters.invalid_scores("s", 3)
        counters.plugin_error("score", "s", "PLUGIN_ERROR")
    assert tally.told == [("s", "3"), ("s", "PLUGIN_ERROR")]


def test_rates_without_calls_are_nothing() -> None:
    assert CallStatistics().failure_rate == 0.0
    assert CallStatistics(calls=4, errors=1).failure_rate == 0.25
    assert CallStatistics().p99_s is None


@given(st.lists(st.floats(0.0, 1000.0), min_size=1, max_size=60), st.floats(0.0, 1.0), st.floats(0.0, 700.0))
def test_quantile_and_excess_are_those_of_a_list_up_to_a_bucket(times: list[float], q: float, limit_s: float) -> None:
    counters = CallCounters(Tally())
    for time_s in times:
        counters.answered(1, time_s)
    found = counters.read().latencies
    exact = sorted(times)[max(1, ceil(q * len(times))) - 1]
    estimate = found.quantile_s(q)
    assert estimate == LATENCY_EDGES_S[min(bisect_left(LATENCY_EDGES_S, exact), len(LATENCY_EDGES_S) - 1)]
    assert found.count == len(times)
    longer = sum(time_s > limit_s for time_s in times)
    certainly = sum(time_s > limit_s * 1.2 + LATENCY_EDGES_S[0] for time_s in times if time_s <= LATENCY_EDGES_S[-1])
    assert min(certainly, longer) <= found.above(limit_s) <= longer or limit_s > LATENCY_EDGES_S[-1]


def test_limit_on_an_edge_does_not_count_what_equals_it() -> None:
    counters = CallCounters(Tally())
    counters.answered(1, LATENCY_EDGES_S[10])
    counters.answered(1, LATENCY_EDGES_S[11])
    assert counters.read().latencies.above(LATENCY_EDGES_S[10]) == 1


def test_arms_counters_are_read_as_differences() -> None:
    counters = ArmCounters()
    counters.decided(0.001, refused=True, degraded=())
    before = counters.read()
    counters.decided(0.001, refused=False, degraded=("x",))
    counters.ended(failed=True, ttft_s=None)
    counters.ended(failed=False, ttft_s=0.5)
    found = counters.read().since(before)
    assert replace_latencies(found) == ArmStatistics(requests=1, refused=0, degraded=1, ended=2, upstream_errors=1)
    assert (found.decisions.count, found.ttft.count) == (1, 1)


def replace_latencies(found: ArmStatistics) -> ArmStatistics:
    return ArmStatistics(found.requests, found.refused, found.degraded, found.ended, found.upstream_errors)


def test_nothing_counted_is_no_quantile() -> None:
    assert Latencies().quantile_s(0.5) is None
