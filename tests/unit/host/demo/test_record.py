"""Figures that follow from samples."""

import pytest
from hotbay.demo.record import Record, Sample, quantile
from hypothesis import given
from hypothesis import strategies as st


def record(*samples: Sample) -> Record:
    made = Record()
    for sample in samples:
        made.add(sample)
    return made


def test_a_sample_with_an_error_is_a_failure():
    made = record(Sample(0, 1, 0.5), Sample(0, 2, None, "refused"))

    assert made.count == 2
    assert made.failures == (Sample(0, 2, None, "refused"),)


def test_the_rate_is_that_of_the_window():
    made = record(*(Sample(0, float(end), 0.1) for end in range(1, 11)))

    assert made.rate(10.0, 5.0) == 6 / 5
    assert made.rate(2.0, 5.0) == 10 / 2, "a window longer than the run is the run"


def test_the_first_tokens_of_the_window_count():
    made = record(Sample(0, 1, 0.9), Sample(0, 9, 0.1), Sample(0, 10, None))

    assert made.ttft_ms(0.5, now_s=10.0, window_s=5.0) == pytest.approx(100)
    assert made.ttft_ms(1.0) == pytest.approx(900)
    assert record().ttft_ms(0.5) is None


@given(st.lists(st.floats(0, 100), min_size=1), st.floats(0, 1))
def test_a_quantile_is_one_of_the_values_and_covers_its_share(values: list[float], q: float):
    found = quantile(values, q)

    assert found in values
    assert sum(value <= found for value in values) >= q * len(values)


def test_a_quantile_of_nothing_is_nothing():
    assert quantile([], 0.5) is None
