"""Counters and histograms against what they count."""

from collections import Counter

import pytest
from hotbay.observe.histogram import DECISION_BUCKETS_S, REQUEST_BUCKETS_S, Histogram, LabelledCounter
from hypothesis import given
from hypothesis import strategies as st


@given(st.lists(st.floats(0, 10), max_size=100))
def test_histogram_counts_every_observation_in_its_bucket(values):
    edges = [0.5, 1.0, 5.0]
    histogram = Histogram(edges)
    for value in values:
        histogram.observe(value)
    assert histogram.cumulative() == [
        *((edge, sum(value <= edge for value in values)) for edge in edges),
        (float("inf"), len(values)),
    ]
    assert histogram.count == len(values)
    assert histogram.sum == pytest.approx(sum(values))


@given(st.lists(st.floats(1e-6, 0.9), min_size=1, max_size=200), st.sampled_from([0.0, 0.5, 0.9, 0.99, 1.0]))
def test_quantile_lies_in_the_bucket_of_the_true_one(values, q):
    histogram = Histogram(DECISION_BUCKETS_S)
    for value in values:
        histogram.observe(value)
    rank = max(1, -(-int(q * len(values) * 1000) // 1000))
    true = sorted(values)[min(len(values), rank) - 1]
    above = min(edge for edge in DECISION_BUCKETS_S if edge >= true)
    below = max([0.0, *(edge for edge in DECISION_BUCKETS_S if edge < true)])
    estimate = histogram.quantile(q)
    assert estimate is not None
    assert below <= estimate <= above or q == 0.0


def test_quantile_without_data_and_beyond_the_last_edge():
    histogram = Histogram([1.0, 2.0])
    assert histogram.quantile(0.5) is None
    histogram.observe(100.0)
    assert histogram.quantile(0.5) == 2.0


def test_edges_ascend():
    for edges in (DECISION_BUCKETS_S, REQUEST_BUCKETS_S):
        assert list(edges) == sorted(set(edges))


@given(st.lists(st.integers(0, 9), max_size=100))
def test_counter_beyond_its_cap_counts_as_other(values):
    counter = LabelledCounter(("a", "b"), max_series=4)
    for value in values:
        counter.add((str(value), "x"))
    first = list(dict.fromkeys(values))[:4]
    expected = Counter((str(v), "x") if v in first else ("other", "other") for v in values)
    assert dict(counter.items()) == expected
    assert counter.total() == len(values)
    assert counter.get("nothing", "x") == 0
