"""What earlier picks cost a row: those of the same batch, and those since the row was scraped."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hotbay.datalayer.endpoint import EndpointMetadata, Metrics
from hotbay.datalayer.store import EndpointStore
from hotbay.datalayer.tables.snapshot import Snapshot
from hotbay.scheduling.batch_picks import UNSEEN, BatchPicks
from hotbay.scheduling.builtin import SPREAD

NOTHING = np.zeros(3, np.float32)


class Pool:
    """Three endpoints whose snapshots are made by hand."""

    def __init__(self) -> None:
        self.at = 100.0
        self.ages = np.full(3, np.nan, np.float32)
        self.waiting = np.array([2.0, 2.0, 100.0], np.float32)
        self.in_flight = np.full(3, 9.0, np.float32)
        self.membership = 1

    def snapshot(self) -> Snapshot:
        made = EndpointStore().snapshot
        columns = {
            "endpoint.age_waiting": self.ages,
            "endpoint.waiting": self.waiting,
            "endpoint.in_flight": self.in_flight,
        }
        live = np.array([True, True, False])
        return replace(made, membership=self.membership, rows=3, at=self.at, live=live, columns=columns)

    def later(self, seconds: float, *, scraped: Sequence[int] = ()) -> Snapshot:
        """So much later, some rows having been scraped just now."""
        self.at += seconds
        self.ages = (self.ages + seconds).astype(np.float32)
        self.ages[list(scraped)] = 0.0
        return self.snapshot()


def costs(picks: BatchPicks, snapshot: Snapshot, *, weights: float = 7.0, scraped: float = 4.0) -> list[float]:
    return [-float(total) for total in picks.corrected(NOTHING, snapshot, weights, scraped)]


def test_picks_of_one_batch_count_against_all_scorers() -> None:
    picks, now = BatchPicks(), Pool().snapshot()
    assert picks.corrected(NOTHING, now, 7.0) is NOTHING
    picks.add(1, now)
    picks.add(1, now)
    assert costs(picks, now) == pytest.approx([0.0, 2 * SPREAD * 7, 0.0])
    assert costs(picks, now, weights=0.0) == pytest.approx([0.0, 2 * SPREAD, 0.0])
    picks.reset()
    assert picks.corrected(NOTHING, now, 7.0, 4.0) is NOTHING


def test_picks_since_the_scrape_count_against_scorers_of_scraped_figures_alone() -> None:
    pool, picks = Pool(), BatchPicks()
    now = pool.later(0.0, scraped=[0, 1])
    for row in (0, 0, 2):
        picks.add(row, now)
        picks.reset()
    later = pool.later(0.02)
    assert costs(picks, later) == pytest.approx([2 * UNSEEN * 4, 0.0, 0.0])
    assert picks.corrected(NOTHING, later, 7.0, 0.0) is NOTHING
    assert costs(picks, pool.later(0.02, scraped=[1])) == pytest.approx([2 * UNSEEN * 4, 0.0, 0.0])
    assert picks.corrected(NOTHING, pool.later(0.02, scraped=[0]), 7.0, 4.0) is NOTHING


@pytest.mark.parametrize(("in_flight", "counted"), [(0.0, 0), (1.0, 1), (2.0, 2), (5.0, 2)])
def test_picks_that_were_answered_count_no_more(in_flight: float, counted: int) -> None:
    pool, picks = Pool(), BatchPicks()
    now = pool.later(0.0, scraped=[0])
    picks.add(0, now)
    picks.add(0, now)
    picks.reset()
    pool.in_flight[0] = in_flight
    assert costs(picks, pool.later(0.01))[0] == pytest.approx(counted * UNSEEN * 4)


@pytest.mark.parametrize(
    ("waiting", "share"), [([3.0, 2.0], 1 / 2), ([0.0, 50.0], 1 / 51), ([np.nan, 7.0], 1.0), ([np.nan, np.nan], 1.0)]
)
def test_one_pick_says_the_less_the_more_queues_differ(waiting: list[float], share: float) -> None:
    """The third row cannot be picked, whatever its queue."""
    pool, picks = Pool(), BatchPicks()
    pool.waiting = np.array([*waiting, 100.0], np.float32)
    picks.add(0, pool.later(0.0, scraped=[0]))
    picks.reset()
    assert costs(picks, pool.later(0.01))[0] == pytest.approx(UNSEEN * 4 * share)


def test_without_a_column_of_queues_they_are_equal() -> None:
    pool, picks = Pool(), BatchPicks()
    now = replace(pool.later(0.0, scraped=[0]), columns={"endpoint.age_waiting": pool.ages})
    picks.add(0, now)
    picks.reset()
    assert costs(picks, now)[0] == pytest.approx(UNSEEN * 4)


def test_of_a_pick_of_both_kinds_the_dearer_counts() -> None:
    pool, picks = Pool(), BatchPicks()
    now = pool.later(0.0, scraped=[0])
    picks.add(0, now)
    assert costs(picks, now, weights=7.0, scraped=4.0) == pytest.approx([UNSEEN * 4, 0.0, 0.0])
    assert costs(picks, now, weights=70.0, scraped=4.0) == pytest.approx([SPREAD * 70, 0.0, 0.0])


def test_rows_that_mean_other_endpoints_begin_anew() -> None:
    pool, picks = Pool(), BatchPicks()
    picks.add(0, pool.later(0.0, scraped=[0]))
    pool.membership = 2
    assert picks.corrected(NOTHING, pool.later(0.0), 7.0, 4.0) is NOTHING


def test_figures_that_are_no_more_known_take_their_picks_along() -> None:
    pool, picks = Pool(), BatchPicks()
    picks.add(0, pool.later(0.0, scraped=[0]))
    picks.reset()
    pool.ages[0] = np.nan
    assert picks.corrected(NOTHING, pool.later(0.0), 7.0, 4.0) is NOTHING


def test_ages_of_one_scrape_are_one_scrape_at_any_time_of_the_clock() -> None:
    pool, picks = Pool(), BatchPicks()
    pool.at = 3e6
    picks.add(0, pool.later(0.0, scraped=[0]))
    picks.reset()
    for _ in range(1000):
        assert costs(picks, pool.later(0.0377))[0] == pytest.approx(UNSEEN * 4)


def test_store_says_when_it_heard_of_a_row() -> None:
    store, picks = EndpointStore(), BatchPicks()
    store.upsert(EndpointMetadata("default/a", "a", "10.0.0.1", 1))
    store.update_metrics("default/a", Metrics(waiting=0.0), 10.0)
    store.publish(10.01)
    picks.add(0, store.snapshot)
    picks.reset()
    store.ledger.started("default/a")
    store.publish(10.04)
    one = np.zeros(1, np.float32)
    assert picks.corrected(one, store.snapshot, 1.0, 1.0)[0] == pytest.approx(-UNSEEN)
    store.update_metrics("default/a", Metrics(waiting=0.0), 10.05)
    store.ledger.started("default/a")
    store.publish(10.06)
    assert picks.corrected(one, store.snapshot, 1.0, 1.0) is one
