"""Verdicts: each bound on both sides, equals that are not told apart, and regressions that are.

The simulations draw traffic per look instead of per call: failures of single requests, whole batches lost to stalls,
latencies with a heavy tail. One rollout is looked at 39 times: a shadow, a canary and a guard with the page's numbers.
"""

from dataclasses import dataclass, replace
from math import erf, log, sqrt

import numpy as np
import pytest
from hotbay.rollout.gathered import Gathered
from hotbay.rollout.verdicts import (
    CanaryPolicy,
    GuardPolicy,
    Memory,
    Ruling,
    ShadowPolicy,
    Verdict,
    canary_verdict,
    guard_verdict,
    shadow_verdict,
)
from hotbay.scheduling.arms import Arms
from hotbay.scheduling.statistics import LATENCY_EDGES_S, ArmStatistics, CallStatistics, Latencies


def calls(
    count: int, *, errors: int = 0, misses: int = 0, slow: int = 0, slow_s: float = 0.1, usual_s: float = 0.001
) -> CallStatistics:
    """Calls of one request each."""
    counts = [0] * (len(LATENCY_EDGES_S) + 1)
    counts[int(np.searchsorted(LATENCY_EDGES_S, usual_s))] += count - slow
    counts[int(np.searchsorted(LATENCY_EDGES_S, slow_s))] += slow
    return CallStatistics(
        calls=count,
        errors=errors,
        deadline_misses=misses,
        batches=count,
        failed_batches=errors + misses,
        latencies=Latencies(tuple(counts)),
    )


def requests(count: int, **others: int | Latencies) -> ArmStatistics:
    return replace(ArmStatistics(requests=count, ended=count), **others)  # type: ignore[arg-type]


# -- one look ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("elapsed_s", "made", "ruling"),
    [(1.9, 199, Ruling.WAIT), (2.0, 0, Ruling.PASS), (0.1, 200, Ruling.PASS), (2.0, 199, Ruling.PASS)],
)
def test_shadow_ends_after_its_time_or_its_calls(elapsed_s: float, made: int, ruling: Ruling) -> None:
    found = shadow_verdict(ShadowPolicy(), elapsed_s=elapsed_s, live=calls(2000), candidate=calls(made))
    assert found.ruling is ruling


@pytest.mark.parametrize(
    ("elapsed_s", "made", "ruling"),
    [
        (9.9, 5000, Ruling.WAIT),
        (10.0, 99, Ruling.WAIT),
        (10.0, 100, Ruling.PASS),
        (299.9, 99, Ruling.WAIT),
        (300.0, 0, Ruling.PASS),
    ],
)
def test_canary_ends_after_its_time_and_its_requests(elapsed_s: float, made: int, ruling: Ruling) -> None:
    arms = Arms(requests(9 * made), requests(made))
    found = canary_verdict(CanaryPolicy(), elapsed_s=elapsed_s, live=calls(9 * made), candidate=calls(made), arms=arms)
    assert found.ruling is ruling


@pytest.mark.parametrize(
    ("elapsed_s", "made", "ruling"),
    [
        (29.9, 5000, Ruling.WAIT),
        (30.0, 199, Ruling.WAIT),
        (30.0, 200, Ruling.PASS),
        (299.9, 199, Ruling.WAIT),
        (300.0, 0, Ruling.PASS),
    ],
)
def test_guard_ends_after_its_time_and_its_calls(elapsed_s: float, made: int, ruling: Ruling) -> None:
    found = guard_verdict(GuardPolicy(), elapsed_s=elapsed_s, before=calls(10_000), candidate=calls(made))
    assert found.ruling is ruling


def test_verdict_says_what_its_trial_has_of_what_it_wants() -> None:
    policy = CanaryPolicy(for_s=5.0)
    arms = Arms(requests(148), requests(37))
    canary = canary_verdict(policy, elapsed_s=20.0, live=calls(148), candidate=calls(37), arms=arms)
    shadow = shadow_verdict(ShadowPolicy(), elapsed_s=1.0, live=calls(90), candidate=calls(10))
    guard = guard_verdict(GuardPolicy(), elapsed_s=2.0, before=calls(90), candidate=calls(20, errors=20))
    assert canary.gathered == Gathered("requests", 37, 100, 20.0, 5.0, 300.0)
    assert shadow.gathered == Gathered("calls", 10, 200, 1.0, 2.0)
    assert (guard.ruling, guard.gathered) == (Ruling.FAIL, Gathered("calls", 20, 200, 2.0, 30.0, 300.0))


def test_operators_bound_on_differences_fails_beyond_it_only() -> None:
    policy = ShadowPolicy(max_difference=0.2)
    at = shadow_verdict(policy, elapsed_s=2.0, live=calls(0), candidate=calls(0), largest_difference=0.2)
    beyond = shadow_verdict(policy, elapsed_s=0.1, live=calls(0), candidate=calls(0), largest_difference=0.201)
    unbound = shadow_verdict(ShadowPolicy(), elapsed_s=2.0, live=calls(0), candidate=calls(0), largest_difference=1.0)
    assert (at.ruling, unbound.ruling) == (Ruling.PASS, Ruling.PASS)
    assert beyond == Verdict(Ruling.FAIL, "difference", 0.201, 0.0, 0.2)


def test_failures_above_the_bound_and_the_live_ones_fail_at_once() -> None:
    found = shadow_verdict(ShadowPolicy(), elapsed_s=0.3, live=calls(900), candidate=calls(100, errors=20))
    assert found == Verdict(Ruling.FAIL, "failures", 0.2, 0.0, 0.01)


@pytest.mark.parametrize(
    ("live", "candidate"),
    [
        (calls(9000), calls(1000, errors=10)),  # one in a hundred is the bound
        (calls(9000, errors=1800), calls(1000, errors=200)),  # as bad as the live one
        (calls(9000, errors=1800), calls(1000, errors=205)),  # no evidence that it is worse
        (calls(900), calls(100, errors=3)),  # three are none either
    ],
)
def test_failures_at_the_bound_as_before_or_without_evidence_pass(
    live: CallStatistics, candidate: CallStatistics
) -> None:
    assert guard_verdict(GuardPolicy(), elapsed_s=300.0, before=live, candidate=candidate).ruling is Ruling.PASS


def test_one_lost_batch_of_many_requests_is_one_failure() -> None:
    """A stall of 60 ms takes a batch of 64 with it: of 264 calls a quarter, of 40 messages one."""
    burst = replace(calls(264, misses=64), batches=40, failed_batches=1)
    live = replace(calls(2400), batches=360)
    assert shadow_verdict(ShadowPolicy(), elapsed_s=2.0, live=live, candidate=burst).ruling is Ruling.PASS
    again = replace(burst, failed_batches=20)
    assert shadow_verdict(ShadowPolicy(), elapsed_s=2.0, live=live, candidate=again).ruling is Ruling.FAIL


def test_first_version_is_held_to_the_bound_alone() -> None:
    none = calls(0)
    assert (
        guard_verdict(GuardPolicy(), elapsed_s=1.0, before=none, candidate=calls(100, errors=20)).ruling is Ruling.FAIL
    )
    assert (
        guard_verdict(GuardPolicy(), elapsed_s=1.0, before=none, candidate=calls(100, errors=3)).ruling is Ruling.WAIT
    )
    slow = guard_verdict(GuardPolicy(), elapsed_s=1.0, before=none, candidate=calls(1000, slow=1000))
    assert slow.ruling is Ruling.WAIT


@pytest.mark.parametrize(
    ("slow_s", "usual_s", "ruling"),
    [
        (0.019, 0.001, Ruling.PASS),  # 19 times as long, but not 20 ms
        (0.030, 0.001, Ruling.FAIL),
        (0.029, 0.010, Ruling.PASS),  # above 20 ms, but not three times as long
        (0.050, 0.010, Ruling.FAIL),
    ],
)
def test_p99_fails_above_three_times_the_live_one_and_twenty_milliseconds(
    slow_s: float, usual_s: float, ruling: Ruling
) -> None:
    candidate = calls(1000, slow=100, slow_s=slow_s, usual_s=usual_s)
    found = guard_verdict(GuardPolicy(), elapsed_s=300.0, before=calls(9000, usual_s=usual_s), candidate=candidate)
    assert found.ruling is ruling
    if ruling is Ruling.FAIL:
        assert (found.figure, found.candidate, found.bound) == ("slow_calls", 0.1, 0.01)
        assert found.limit_s == pytest.approx(max(0.02, 3 * usual_s), rel=0.2)


def test_canary_is_judged_by_what_becomes_of_its_requests() -> None:
    quick, slow = calls(9000, usual_s=0.01).latencies, calls(1000, usual_s=0.08).latencies
    for figure, arms in {
        "refused": Arms(requests(9000, refused=20), requests(1000, refused=100)),
        "upstream_errors": Arms(requests(9000, upstream_errors=20), requests(1000, upstream_errors=100)),
        "slow_ttft": Arms(requests(9000, ttft=quick), requests(1000, ttft=slow)),
    }.items():
        found = canary_verdict(CanaryPolicy(), elapsed_s=1.0, live=calls(9000), candidate=calls(1000), arms=arms)
        assert (found.ruling, found.figure) == (Ruling.FAIL, figure)


# -- memory --------------------------------------------------------------------------------------

MIB = 1 << 20


def ruled(memory: Memory | None, elapsed_s: float = 1.0) -> list[Verdict]:
    """What a shadow, a canary and a guard say of equal calls with this memory."""
    one, arms = calls(100), Arms(requests(900), requests(100))
    return [
        shadow_verdict(ShadowPolicy(), elapsed_s=elapsed_s, live=one, candidate=one, memory=memory),
        canary_verdict(CanaryPolicy(), elapsed_s=elapsed_s, live=one, candidate=one, arms=arms, memory=memory),
        guard_verdict(GuardPolicy(), elapsed_s=elapsed_s, before=one, candidate=one, memory=memory),
    ]


@pytest.mark.parametrize(
    ("candidate", "live", "ruling"),
    [
        (158 * MIB, 30 * MIB, Ruling.WAIT),  # five times as much, but not 128 MiB more
        (158 * MIB + 1, 30 * MIB, Ruling.FAIL),
        (800 * MIB, 400 * MIB, Ruling.WAIT),  # 400 MiB more, but not above twice as much
        (800 * MIB + 1, 400 * MIB, Ruling.FAIL),
    ],
)
def test_memory_fails_above_twice_the_live_one_and_128_mebibytes_more(
    candidate: float, live: float, ruling: Ruling
) -> None:
    bound = max(2 * live, live + 128 * MIB)
    expected = Verdict(ruling, "memory", candidate, live, bound)
    assert ruled(Memory(candidate, live, 100, 100)) == [expected] * 3


@pytest.mark.parametrize(
    ("candidate_calls", "live_calls", "ruling"),
    [
        (100, 100_000, Ruling.FAIL),  # the live one has had more time to grow
        (150, 100, Ruling.FAIL),  # half as many calls more: three times as much is allowed
        (175, 100, Ruling.WAIT),
        (100, 0, Ruling.WAIT),  # a live one that nobody asked yet counts as one with 50 calls
        (50, 0, Ruling.FAIL),
    ],
)
def test_memory_is_compared_at_a_like_number_of_calls(candidate_calls: int, live_calls: int, ruling: Ruling) -> None:
    found = ruled(Memory(700 * MIB, 210 * MIB, candidate_calls, live_calls))
    assert [verdict.ruling for verdict in found] == [ruling] * 3


@pytest.mark.parametrize("nonsense", [0, -1, float("nan"), float("inf")])
def test_memory_that_is_no_figure_judges_nobody(nonsense: float) -> None:
    silent = ruled(None)
    assert {verdict.figure for verdict in silent} == {"failures"}
    assert ruled(Memory(nonsense, 30 * MIB, 100, 100)) == silent
    assert ruled(Memory(1 << 40, nonsense, 100, 100)) == silent


def test_failures_are_named_before_memory() -> None:
    leak = Memory(1 << 40, 30 * MIB, 100, 100)
    found = guard_verdict(GuardPolicy(), elapsed_s=1.0, before=calls(900), candidate=calls(100, errors=20), memory=leak)
    assert (found.ruling, found.figure) == (Ruling.FAIL, "failures")


def test_memory_that_stays_below_its_bound_lets_a_trial_end_well() -> None:
    found = guard_verdict(
        GuardPolicy(),
        elapsed_s=300.0,
        before=calls(900),
        candidate=calls(100),
        memory=Memory(31 * MIB, 30 * MIB, 100, 900),
    )
    assert found.ruling is Ruling.PASS


# -- simulated rollouts --------------------------------------------------------------------------


@dataclass(frozen=True)
class Side:
    """How one side behaves. Rates are per request, stalls per batch; latencies are lognormal, a part of them `tail_s`."""

    failing: float = 0.0
    stalling: float = 0.0
    latency_s: float = 0.001
    sigma: float = 0.5
    tail: float = 0.0
    tail_s: float = 0.045
    refusing: float = 0.0
    upstream: float = 0.0
    ttft_s: float = 0.03

    def buckets(self, median_s: float, sigma: float, tail: float) -> np.ndarray:
        below = [0.5 * (1 + erf(log(edge / median_s) / (sigma * sqrt(2)))) for edge in LATENCY_EDGES_S]
        shares = np.diff(np.array([0.0, *below, 1.0])) * (1 - tail)
        shares[int(np.searchsorted(LATENCY_EDGES_S, self.tail_s))] += tail
        return shares / shares.sum()


Look = tuple[CallStatistics, ArmStatistics]


def looks(side: Side, mean: float, count: int, *, batch: float, rng: np.random.Generator) -> list[Look]:
    """What one side has counted at each of `count` looks, `mean` requests apart."""
    made = rng.poisson(mean, count)
    batches = np.ceil(made / batch).astype(int)
    failed = rng.binomial(made, side.failing)
    hit = np.array([len(np.unique(rng.integers(0, b, f))) if f else 0 for b, f in zip(batches, failed, strict=True)])
    stalled = rng.binomial(batches, side.stalling)
    missed = np.minimum(made - failed, np.round(stalled * batch).astype(int))
    latency = rng.multinomial(batches, side.buckets(side.latency_s, side.sigma, side.tail)).cumsum(axis=0)
    ttft = rng.multinomial(made, side.buckets(side.ttft_s, 0.6, 0.0)).cumsum(axis=0)
    columns = (
        made,
        failed,
        missed,
        batches,
        np.minimum(batches, hit + stalled),
        rng.binomial(made, side.refusing),
        rng.binomial(made, side.upstream),
    )
    totals = np.stack(columns).cumsum(axis=1).T.tolist()
    return [
        (
            CallStatistics(n, errors, 0, misses, 0, sent, bad, 0, Latencies(tuple(took))),
            ArmStatistics(n, refused, 0, n, upstream, ttft=Latencies(tuple(first))),
        )
        for (n, errors, misses, sent, bad, refused, upstream), took, first in zip(
            totals, latency.tolist(), ttft.tolist(), strict=True
        )
    ]


def rollout(live: Side, candidate: Side, *, per_s: float, batch: float, seed: int) -> Verdict:
    """A whole rollout, looked at as a routine does; the first FAIL, else the guard's last verdict."""
    rng = np.random.default_rng(seed)
    small = max(1.0, batch / 6)
    old = looks(live, per_s * 0.5, 4, batch=batch, rng=rng)
    copied = looks(candidate, per_s * 0.5 * 0.1, 4, batch=small, rng=rng)
    for number, ((there, _), (here, _)) in enumerate(zip(old, copied, strict=True), 1):
        found = shadow_verdict(ShadowPolicy(), elapsed_s=number * 0.5, live=there, candidate=here)
        if found.ruling is Ruling.FAIL:
            return found
    before = looks(live, per_s * 0.5 * 0.9, 20, batch=batch, rng=rng)
    tried = looks(candidate, per_s * 0.5 * 0.1, 20, batch=small, rng=rng)
    for number, ((there, live_arm), (here, canary_arm)) in enumerate(zip(before, tried, strict=True), 1):
        arms = Arms(live_arm, canary_arm)
        found = canary_verdict(CanaryPolicy(), elapsed_s=number * 0.5, live=there, candidate=here, arms=arms)
        if found.ruling is Ruling.FAIL:
            return found
    for number, (here, _) in enumerate(looks(candidate, 2 * per_s, 15, batch=batch, rng=rng), 1):
        found = guard_verdict(GuardPolicy(), elapsed_s=2.0 * number, before=before[-1][0], candidate=here)
        if found.ruling is Ruling.FAIL:
            return found
    return found


def some_side(rng: np.random.Generator) -> Side:
    """A behaviour from spotless to miserable."""
    return Side(
        failing=float(rng.choice([0.0, 0.001, 0.01, 0.05])),
        stalling=float(rng.choice([0.0, 0.001, 0.01])),
        latency_s=float(rng.choice([0.0003, 0.002, 0.008])),
        sigma=float(rng.choice([0.3, 0.8])),
        tail=float(rng.choice([0.0, 0.005, 0.01, 0.02])),
        refusing=float(rng.choice([0.0, 0.01, 0.03])),
        upstream=float(rng.choice([0.0, 0.01, 0.03])),
    )


@pytest.mark.timeout(120)
def test_equal_generations_are_rolled_back_in_less_than_one_of_a_hundred_rollouts() -> None:
    failed = []
    for seed in range(500):
        rng = np.random.default_rng([7, seed])
        side, per_s = some_side(rng), float(rng.choice([20, 200, 2000]))
        found = rollout(side, side, per_s=per_s, batch=float(rng.choice([1, 8, 40])), seed=seed)
        if found.ruling is Ruling.FAIL:
            failed.append((seed, side, found))
    assert len(failed) < 5, failed


@pytest.mark.parametrize(
    ("live", "candidate", "figure"),
    [
        (Side(), Side(failing=0.03), "failures"),
        (Side(), Side(failing=1.0), "failures"),
        (Side(failing=0.01), Side(failing=0.06), "failures"),
        (Side(), Side(stalling=0.04), "failures"),
        (Side(), Side(tail=0.05), "slow_calls"),
        (Side(latency_s=0.004), Side(latency_s=0.03), "slow_calls"),
        (Side(refusing=0.01), Side(refusing=0.08), "refused"),
        (Side(upstream=0.01), Side(upstream=0.08), "upstream_errors"),
        (Side(), Side(ttft_s=0.2), "slow_ttft"),
    ],
)
def test_regression_is_found_and_named(live: Side, candidate: Side, figure: str) -> None:
    found = [rollout(live, candidate, per_s=1000.0, batch=4.0, seed=seed) for seed in range(20)]
    assert [(f.ruling, f.figure) for f in found] == [(Ruling.FAIL, figure)] * 20


@pytest.mark.parametrize(
    ("elapsed_s", "untold", "ruling"),
    [
        (30.0, 0, Ruling.PASS),
        (30.0, 1, Ruling.WAIT),
        (299.9, 1, Ruling.WAIT),
        (300.0, 1, Ruling.FAIL),
        (300.0, 0, Ruling.PASS),
    ],
)
def test_guard_waits_for_discoveries_that_have_not_told_everything_and_then_fails(
    elapsed_s: float, untold: int, ruling: Ruling
) -> None:
    policy = GuardPolicy(calls=0)
    found = guard_verdict(policy, elapsed_s=elapsed_s, before=calls(0), candidate=calls(0), untold=untold)
    assert (found.ruling, found.figure == "untold") == (ruling, untold > 0)


def test_failed_calls_of_a_discovery_that_tells_nothing_break_the_guard_before_its_end() -> None:
    found = guard_verdict(GuardPolicy(calls=0), elapsed_s=40.0, before=calls(0), candidate=calls(2, misses=2), untold=1)
    assert (found.ruling, found.figure) == (Ruling.FAIL, "failures")
