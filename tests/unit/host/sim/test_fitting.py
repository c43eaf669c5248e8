"""Constants of the timing from what was measured."""

import pytest
from hotbay.sim.fitting import FitError, Measured, fit_timing, relative_errors
from hotbay.sim.timing import Timing
from hypothesis import given
from hypothesis import strategies as st

PROMPTS = (16, 64, 256)
BATCHES = (1, 2, 4, 8)


def measured(timing: Timing, *, factor: float = 1.0) -> list[Measured]:
    """What a server that takes exactly so long would be measured as; prompts `factor` times as long."""

    def seconds(tokens: int, sequences: int, begun: int) -> float:
        parts = timing.base_s + timing.running_s * sequences
        return parts + factor * (timing.prefill_token_s * tokens + timing.prefill_overhead_s * begun)

    prompts = [Measured(tokens, 1, 1, seconds(tokens, 1, 1)) for tokens in PROMPTS]
    return prompts + [Measured(0, count, 0, seconds(0, count, 0)) for count in BATCHES]


CONSTANTS = st.floats(1e-6, 0.1)


@given(CONSTANTS, CONSTANTS, CONSTANTS, CONSTANTS)
def test_constants_that_hold_exactly_are_found(base_s, token_s, running_s, overhead_s):
    timing = Timing(base_s=base_s, prefill_token_s=token_s, running_s=running_s, prefill_overhead_s=overhead_s)
    found = fit_timing(measured(timing))
    assert max(map(abs, relative_errors(found, measured(timing)))) < 1e-6


def test_error_is_what_the_prediction_is_off_by():
    timing = Timing(base_s=1.0, prefill_token_s=0.01)
    assert relative_errors(timing, [Measured(100, 1, 1, 1.0), Measured(0, 1, 0, 2.0)]) == pytest.approx([1.0, -0.5])


@given(st.lists(st.floats(0.5, 2.0), min_size=len(PROMPTS) + len(BATCHES), max_size=len(PROMPTS) + len(BATCHES)))
def test_constants_are_never_negative_however_the_machine_wavers(factors):
    exact = measured(Timing(base_s=0.001, prefill_token_s=1e-4, running_s=1e-4))
    wavered = [
        Measured(m.prefill_tokens, m.sequences, m.prompts_begun, m.seconds * factor)
        for m, factor in zip(exact, factors, strict=True)
    ]
    timing = fit_timing(wavered)
    assert min(timing.base_s, timing.prefill_token_s, timing.running_s, timing.prefill_overhead_s) >= 0


def test_measurements_of_one_kind_are_not_enough():
    exact = measured(Timing(base_s=0.001, prefill_token_s=1e-4, running_s=1e-4))
    for part in (exact[:3], exact[: len(PROMPTS)], exact[len(PROMPTS) :], [exact[0]] * 9):
        with pytest.raises(FitError, match="different sizes"):
            fit_timing(part)
    fit_timing([exact[0], exact[1], *exact[-2:]])
