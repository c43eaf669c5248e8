"""What the default profile is compared with computes the same, once endpoint by endpoint and once over columns."""

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.figures.default_profile import PARTS, PROMPT_BLOCKS, columns_of, hashes_of, parts_held, servers_of
from benchmarks.in_process import Columns, Server, pick_column, pick_each, score_columns, score_each
from benchmarks.product import store_of

HASHES = [11, 12, 13, 14]
SERVERS = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 8), st.integers(0, 4)), min_size=1, max_size=20)


def both(rows: list[tuple[int, int, int]]) -> tuple[list[Server], Columns]:
    servers = [Server(float(waiting), eighths / 8, frozenset(HASHES[:held])) for waiting, eighths, held in rows]
    columns = Columns(
        np.array([server.waiting for server in servers], np.float32),
        np.array([server.kv_usage for server in servers], np.float32),
        {block: np.array([block in server.blocks for server in servers]) for block in HASHES},
    )
    return servers, columns


def test_totals_are_those_of_the_formulas():
    servers, _ = both([(0, 8, 0), (10, 0, 4), (5, 4, 2)])

    assert score_each(servers, HASHES) == [2.0, 2 + 3.0, 1 + 1 + 1.5]


def test_equal_queues_rate_best_and_blocks_after_a_gap_do_not_count():
    servers = [Server(3.0, 1.0, {11, 13, 14}), Server(3.0, 1.0, {12, 13, 14})]

    assert score_each(servers, HASHES) == [2.75, 2.0]


@given(SERVERS)
def test_columns_give_what_functions_give(rows: list[tuple[int, int, int]]):
    servers, columns = both(rows)

    assert score_columns(columns, HASHES).tolist() == pytest.approx(score_each(servers, HASHES), abs=1e-5)


def test_the_highest_is_picked_and_equals_by_chance():
    assert pick_each([1.0, 3.0, 2.0], random.Random(1)) == 1
    assert pick_column(np.array([1, 3, 2], np.float32), random.Random(1)) == 1
    rng = random.Random(1)
    assert {pick_each([3.0, 1.0, 3.0], rng) for _ in range(50)} == {0, 2}
    assert {pick_column(np.array([3, 1, 3], np.float32), rng) for _ in range(50)} == {0, 2}


def test_a_tenth_of_the_endpoints_holds_parts_of_the_prompt():
    store = store_of(100)
    held = [len(server.blocks) for server in servers_of(store)]

    assert len(hashes_of(PARTS)) == PROMPT_BLOCKS
    assert hashes_of(PARTS)[: PROMPT_BLOCKS // PARTS] == hashes_of(1)
    assert sum(map(bool, held)) == 10
    assert {count for count in held if count} == {PROMPT_BLOCKS * part // PARTS for part in range(1, PARTS + 1)}
    assert parts_held(0) == 1
    assert score_columns(columns_of(store), hashes_of(PARTS)).tolist() == pytest.approx(
        score_each(servers_of(store), hashes_of(PARTS)), abs=1e-5
    )
