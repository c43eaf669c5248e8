"""How long steps take, and what the flags of llm-d-inference-sim come to."""

from random import Random

import pytest
from hotbay.errors import InputError
from hotbay.sim.timing import Timing
from hypothesis import given
from hypothesis import strategies as st

RANDOM = Random(1)


def step_s(timing: Timing, *, tokens: int = 0, begun: int = 0, sequences: int = 1, random: Random = RANDOM) -> float:
    return timing.step_s(prefill_tokens=tokens, prompts_begun=begun, sequences=sequences, random=random)


def test_step_adds_up_its_parts():
    timing = Timing(base_s=1.0, prefill_token_s=0.01, running_s=0.1, prefill_overhead_s=0.5)
    assert step_s(timing, tokens=20, begun=2, sequences=3) == pytest.approx(1.0 + 0.2 + 0.3 + 1.0)


@pytest.mark.parametrize(("sequences", "factor"), [(1, 1.0), (11, 2.0), (21, 3.0)])
def test_factor_under_load_is_reached_by_a_full_batch(sequences, factor):
    timing = Timing.from_latencies(inter_token_s=0.02, factor_under_load=3.0, sequences=21)
    assert step_s(timing, sequences=sequences) == pytest.approx(0.02 * factor)
    assert timing.factor_under_load(sequences) == pytest.approx(factor)


def test_factor_of_a_batch_of_one_does_not_matter():
    timing = Timing.from_latencies(inter_token_s=0.02, factor_under_load=5.0, sequences=1)
    assert (timing.one_sequence_s, timing.running_s) == (0.02, 0.0)


def test_time_to_first_token_takes_the_place_of_prefill_by_tokens():
    timing = Timing(base_s=1.0, prefill_token_s=9.0, prefill_overhead_s=9.0, first_token_s=3.0)
    assert step_s(timing, tokens=50, begun=1) == 1.0
    assert timing.hold_s(RANDOM) == 2.0
    assert Timing(base_s=1.0).hold_s(RANDOM) == 0.0


@given(st.integers(0, 10_000), st.integers(1, 64))
def test_drawn_times_stay_near_their_mean(seed, sequences):
    timing = Timing(base_s=0.01, running_s=0.001, first_token_s=0.5, first_token_std_s=0.15, step_std_s=0.0033)
    mean = 0.01 + 0.001 * sequences
    assert 0.3 * mean <= step_s(timing, sequences=sequences, random=Random(seed)) <= 1.7 * mean
    assert 0.3 * 0.5 <= timing.hold_s(Random(seed)) + timing.one_sequence_s <= 1.7 * 0.5


def test_drawn_times_differ():
    timing = Timing(base_s=1.0, step_std_s=0.3)
    random = Random(1)
    assert len({step_s(timing, random=random) for _ in range(20)}) > 10


@pytest.mark.parametrize(
    ("values", "path"),
    [
        ({"base_s": -1e-9}, "base_s"),
        ({"running_s": float("nan")}, "running_s"),
        ({"prefill_token_s": float("inf")}, "prefill_token_s"),
        ({"first_token_s": 1.0, "first_token_std_s": 0.31}, "first_token_std_s"),
        ({"base_s": 0.9, "running_s": 0.1, "step_std_s": 0.31}, "step_std_s"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_constants_that_cannot_be_are_refused(values, path):
    with pytest.raises(InputError) as caught:
        Timing(**values)
    assert [problem.path for problem in caught.value.problems] == [path]


def test_deviations_up_to_their_limit_are_taken():
    Timing(base_s=0.9, running_s=0.1, first_token_s=1.0, first_token_std_s=0.3, step_std_s=0.3)


@pytest.mark.parametrize("factor", [0.99, float("nan"), 4.1])
def test_factor_that_cannot_be_is_refused(factor):
    with pytest.raises(InputError, match="time-factor-under-load"):
        Timing.from_latencies(inter_token_s=0.01, factor_under_load=factor, sequences=4)


@pytest.mark.parametrize("factor", [1.0, 4.0])
def test_factor_up_to_its_limits_is_taken(factor):
    timing = Timing.from_latencies(inter_token_s=0.01, factor_under_load=factor, sequences=4)
    assert timing.base_s >= 0
    assert timing.running_s >= 0
