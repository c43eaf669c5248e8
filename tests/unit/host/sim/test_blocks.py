"""Blocks of the cache: never lost, never used twice, found by their hash, reused in the order of their last use."""

import pytest
from hotbay.sim.blocks import BlockPool
from hypothesis import given
from hypothesis import strategies as st


def test_blocks_are_used_and_free_in_the_numbers_that_there_are():
    pool = BlockPool(4)
    taken = pool.new(3)
    assert (len(set(taken)), pool.used_count, pool.free_count) == (3, 3, 1)
    pool.give_back(taken)
    assert (pool.used_count, pool.free_count) == (0, 4)


def test_block_that_nobody_uses_is_found_until_it_is_handed_out_again():
    pool = BlockPool(2)
    (first,) = pool.new(1)
    pool.name(first, 7)
    pool.give_back([first])
    assert pool.find([7]) == [first]
    pool.new(2)
    assert pool.find([7]) == []


def test_find_stops_at_the_first_unknown_block():
    pool = BlockPool(4)
    blocks = pool.new(3)
    for block, name in zip(blocks, (1, 2, 3), strict=True):
        pool.name(block, name)
    assert pool.find([1, 9, 3]) == blocks[:1]
    assert pool.find([1, 2, 3, 4]) == blocks


def test_block_used_longest_ago_goes_first_and_a_prefix_after_what_follows_it():
    pool = BlockPool(4)
    early, late = pool.new(2), pool.new(2)
    for number, block in enumerate((*early, *late)):
        pool.name(block, number)
    pool.give_back(early)
    pool.give_back(late)
    assert pool.new(3) == [early[1], early[0], late[1]]
    assert pool.find([2]) == [late[0]]


def test_block_taken_again_is_not_handed_out():
    pool = BlockPool(2)
    (block,) = pool.new(1)
    pool.name(block, 5)
    pool.give_back([block])
    assert pool.idle_count([block]) == 1
    pool.take([block])
    assert pool.idle_count([block]) == 0
    assert pool.new(1) != [block]
    assert pool.free_count == 0


def test_hash_names_the_first_block_that_has_it():
    pool = BlockPool(2)
    first, second = pool.new(2)
    pool.name(first, 5)
    pool.name(second, 5)
    assert pool.find([5]) == [first]
    assert pool.cached_count == 1


def test_nothing_is_found_where_caching_is_off():
    pool = BlockPool(1, is_caching=False)
    (block,) = pool.new(1)
    pool.name(block, 5)
    assert pool.find([5]) == []


def test_more_blocks_than_are_free_are_a_mistake_of_ours():
    pool = BlockPool(1)
    pool.new(1)
    with pytest.raises(AssertionError, match="1 blocks wanted, 0 free"):
        pool.new(1)


def test_block_given_back_twice_is_a_mistake_of_ours():
    pool = BlockPool(1)
    taken = pool.new(1)
    pool.give_back(taken)
    with pytest.raises(AssertionError, match="twice"):
        pool.give_back(taken)


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("new"), st.integers(1, 3), st.integers(0, 5)),
            st.tuples(st.just("take"), st.integers(0, 5), st.just(0)),
            st.tuples(st.just("drop"), st.integers(0, 20), st.just(0)),
        ),
        max_size=60,
    )
)
def test_blocks_are_conserved_whatever_happens(steps: list[tuple[str, int, int]]):
    pool = BlockPool(6)
    held: list[list[int]] = []
    for kind, number, name in steps:
        if kind == "new" and number <= pool.free_count:
            blocks = pool.new(number)
            for offset, block in enumerate(blocks):
                pool.name(block, name + offset)
            held.append(blocks)
        elif kind == "take":
            found = pool.find([number])
            pool.take(found)
            held.append(found)
        elif kind == "drop" and held:
            pool.give_back(held.pop(number % len(held)))
        used = {block for blocks in held for block in blocks}
        assert pool.used_count == len(used)
        assert pool.used_count + pool.free_count == pool.count
        assert pool.cached_count <= pool.count
