"""Weights and slow starts below 1: who gets which share of the picks, whatever scores prefer."""

from collections import Counter
from collections.abc import Callable, Mapping

import numpy as np
import pytest
from hotbay.datalayer.endpoint import EndpointMetadata
from hotbay.datalayer.store import EndpointStore
from hotbay.datalayer.tables.snapshot import Snapshot
from hotbay.scheduling.builtin import max_score, uniform, weighted_random
from hotbay.scheduling.shares import Shares
from hypothesis import given
from hypothesis import strategies as st

ROUNDS = 3000


def store_of(weights: Mapping[str, float]) -> EndpointStore:
    store = EndpointStore()
    for number, (name, weight) in enumerate(weights.items(), 1):
        store.upsert(EndpointMetadata(f"default/{name}", name, "10.0.0.1", number, weight=weight))
    store.publish(0.0)
    return store


def share_out(
    snapshot: Snapshot, choose: Callable[[np.ndarray], int], rounds: int = ROUNDS, shares: Shares | None = None
) -> Counter[str]:
    """Picks by name when `choose` names a row of those that may be picked."""
    shares = shares or Shares()
    picked: Counter[str] = Counter()
    for _ in range(rounds):
        row = choose(shares.narrowed(snapshot.live, snapshot))
        shares.picked(row, snapshot)
        picked[snapshot.ids[row].removeprefix("default/")] += 1
    return picked


def choosing(picker, totals: list[float], seed: int = 1) -> Callable[[np.ndarray], int]:
    rng, scores = np.random.default_rng(seed), np.array(totals, np.float32)
    return lambda mask: picker(scores, mask, 1, rng)[0]


@pytest.mark.parametrize("picker", [max_score, uniform, weighted_random])
@pytest.mark.parametrize("totals", [[1.0, 1.0, 1.0], [1.0, 1.0, 2.0]], ids=["equal", "preferred"])
def test_weight_of_a_half_gets_half_of_an_equal_ones_share(picker, totals: list[float]) -> None:
    snapshot = store_of({"a": 1.0, "b": 1.0, "half": 0.5}).snapshot
    picked = share_out(snapshot, choosing(picker, totals))
    assert picked["half"] / ROUNDS == pytest.approx(0.2, abs=0.01)
    assert picked["a"] / ROUNDS == pytest.approx(0.4, abs=0.05)


def test_of_two_the_half_gets_a_third() -> None:
    picked = share_out(store_of({"whole": 1.0, "half": 0.5}).snapshot, choosing(max_score, [1.0, 1.0]))
    assert picked["half"] / ROUNDS == pytest.approx(1 / 3, abs=0.01)


def test_a_share_is_a_limit_and_no_claim() -> None:
    picked = share_out(store_of({"a": 1.0, "half": 0.5}).snapshot, choosing(max_score, [2.0, 1.0]))
    assert picked == {"a": ROUNDS}


def test_weight_zero_is_picked_when_nothing_else_is_left() -> None:
    store = store_of({"a": 1.0, "none": 0.0})
    assert share_out(store.snapshot, choosing(max_score, [0.0, 9.0])) == {"a": ROUNDS}
    shares = Shares()
    alone = np.array([False, True])
    assert shares.narrowed(alone, store.snapshot) is alone


def test_weights_count_in_relation_to_each_other() -> None:
    snapshot = store_of({"a": 0.2, "b": 0.1}).snapshot
    assert share_out(snapshot, choosing(uniform, [0.0, 0.0]))["b"] / ROUNDS == pytest.approx(1 / 3, abs=0.01)


@pytest.mark.parametrize("weight", [1.0, 0.3])
def test_equal_weights_cost_nothing(weight: float) -> None:
    snapshot, shares = store_of({"a": weight, "b": weight}).snapshot, Shares()
    assert shares.narrowed(snapshot.live, snapshot) is snapshot.live


def test_slow_start_multiplies_the_weight() -> None:
    store = store_of({"a": 1.0, "new": 0.5})
    store.set_availability("default/new", healthy=1.0, slow_start=0.5, admits=True)
    picked = share_out(store.publish(1.0), choosing(max_score, [1.0, 2.0]))
    assert picked["new"] / ROUNDS == pytest.approx(0.2, abs=0.01)


def test_a_newcomer_has_nothing_due_and_gets_its_share_from_there() -> None:
    store = store_of({"a": 1.0, "b": 0.5})
    shares = Shares()
    share_out(store.snapshot, choosing(uniform, [0.0, 0.0]), shares=shares)
    store.upsert(EndpointMetadata("default/new", "new", "10.0.0.1", 9, weight=0.1))
    picked = share_out(store.publish(1.0), choosing(max_score, [0.0, 0.0, 1.0]), 50, shares)
    assert picked["new"] <= 6


def test_counts_stay_with_their_endpoints_when_rows_are_given_anew() -> None:
    store = store_of({"gone": 1.0, "a": 1.0, "half": 0.5})
    shares = Shares()
    share_out(store.snapshot, choosing(max_score, [0.0, 1.0, 1.0]), shares=shares)
    store.delete("default/gone")
    store.upsert(EndpointMetadata("default/c", "c", "10.0.0.1", 9))
    picked = share_out(store.publish(1.0), choosing(uniform, [0.0] * 3), shares=shares)
    assert picked["half"] / ROUNDS == pytest.approx(0.2, abs=0.02)


def test_numbers_stay_small_for_ever() -> None:
    snapshot, shares = store_of({"a": 1.0, "half": 0.5}).snapshot, Shares()
    picked = share_out(snapshot, choosing(max_score, [1.0, 1.0]), 12_000, shares)
    assert np.isfinite(shares._counts).all()
    assert picked["half"] / 12_000 == pytest.approx(1 / 3, abs=0.01)


@given(
    weights=st.lists(st.sampled_from([0.0, 0.01, 0.3, 0.5, 1.0]), min_size=1, max_size=8),
    masks=st.lists(st.integers(1, 255), min_size=1, max_size=40),
    seed=st.integers(0, 100),
)
def test_some_candidates_always_remain_and_no_other_comes_in(weights: list[float], masks: list[int], seed: int) -> None:
    snapshot = store_of({f"e{number}": weight for number, weight in enumerate(weights)}).snapshot
    shares, rng = Shares(), np.random.default_rng(seed)
    for bits in masks:
        mask = np.array([bool(bits >> row & 1) for row in range(snapshot.rows)])
        if not mask.any():
            continue
        narrowed = shares.narrowed(mask, snapshot)
        assert narrowed.any()
        assert not (narrowed & ~mask).any()
        shares.picked(uniform(np.zeros(snapshot.rows, np.float32), narrowed, 1, rng)[0], snapshot)
