"""The index of blocks after a move to another version, where blocks have several names, and of what is only expected."""

from collections.abc import Sequence

import pytest
from hotbay_prefix_cache import precise_state
from hotbay_prefix_cache.blocks import MAX_OVERLAP, BlockIndex
from hotbay_prefix_cache.kv_events import AllBlocksCleared, BlockRemoved, BlockStored, KvEvent, Message
from hotbay_prefix_cache.tokens import prompt_keys, request_extras
from hypothesis import given
from hypothesis import strategies as st

SIZE = 4


def said(sequence: int, *events: KvEvent) -> Message:
    return Message("e", "m", sequence, 0, events)


def stored(block: int, *, medium: str = "") -> BlockStored:
    """A block without a predecessor, whose tokens all are its engine's hash."""
    return BlockStored((block,), None, (block,) * SIZE, SIZE, medium=medium)


def keys(block: int) -> Sequence[int]:
    return list(prompt_keys([block] * SIZE, SIZE, request_extras("", "")))


def holds(index: BlockIndex, block: int) -> bool:
    return bool(index.match(iter(keys(block)), 1))


def moved(*blocks: int, sequence: int) -> BlockIndex:
    """An index that the version before has handed on, whose last message had this number."""
    index = BlockIndex()
    index.apply(said(sequence, *map(stored, blocks)))
    return precise_state.restored(precise_state.pieces(index))


# -- sequences after a move ------------------------------------------------------------------------


@pytest.mark.parametrize("sequence", [0, 3, 1000 - MAX_OVERLAP])
def test_an_engine_that_started_again_meanwhile_is_followed_from_its_beginning(sequence: int) -> None:
    index = moved(1, 2, sequence=1000)
    assert index.apply(said(sequence)) == 0
    index.apply(said(sequence + 1, stored(7)))
    assert [holds(index, block) for block in (1, 2, 7)] == [False, False, True]


@pytest.mark.parametrize("sequence", [1000, 1001 - MAX_OVERLAP])
def test_messages_that_were_under_way_are_passed_over(sequence: int) -> None:
    index = moved(1, 2, sequence=1000)
    orphan = BlockStored((5,), 99, (5,) * SIZE, SIZE)
    assert index.apply(said(sequence, stored(1), orphan, BlockRemoved((2,)), AllBlocksCleared())) is None
    assert [holds(index, block) for block in (1, 2)] == [True, True]


def test_a_message_of_a_block_that_was_not_handed_on_is_of_an_engine_that_started_again() -> None:
    index = moved(1, 2, sequence=10)
    assert index.apply(said(3, stored(1))) is None
    assert index.apply(said(4, stored(7))) == 0
    for sequence in range(5, 12):
        index.apply(said(sequence))
    assert [holds(index, block) for block in (1, 2, 7)] == [False, False, True]


# -- names of blocks -------------------------------------------------------------------------------

_EVENTS = st.lists(
    st.builds(stored, st.integers(1, 3), medium=st.sampled_from(["GPU", "CPU"]))
    | st.builds(BlockRemoved, st.integers(1, 3).map(lambda block: (block,)), st.sampled_from(["GPU", "CPU", ""]))
    | st.builds(lambda block: BlockStored((block,), None, (9,) * SIZE, SIZE), st.integers(1, 3))
    | st.just(AllBlocksCleared()),
    max_size=30,
)


@given(_EVENTS)
def test_a_hash_is_known_as_long_as_an_entry_has_it(events: list[KvEvent]) -> None:
    index = BlockIndex()
    index.apply(said(0, *events))
    slot = index.slots[0]
    assert slot.keys.keys() == {block for block, _, _ in slot.entries}
    assert slot.vouchers.keys() == set(slot.entries.values())


def test_equal_blocks_that_come_and_go_leave_nothing_behind() -> None:
    index = BlockIndex()
    index.apply(said(0, BlockStored((0,), None, (9,) * SIZE, SIZE)))
    for number in range(1, 1000):
        event = BlockStored((number,), None, (9,) * SIZE, SIZE)
        index.apply(said(number, event, BlockRemoved((number,))))
    assert (len(index.slots[0].entries), len(index.slots[0].keys)) == (1, 1)


# -- what is expected ------------------------------------------------------------------------------


def test_a_block_that_two_requests_expect_is_taken_back_by_both() -> None:
    index = BlockIndex()
    assert index.slot_of("e") == 0
    index.expect(0, keys(1), 12.0)
    index.expect(0, keys(1), 13.0)
    index.unexpect(0, keys(1))
    assert holds(index, 1)
    index.unexpect(0, keys(1))
    assert not holds(index, 1)
    index.expect(0, keys(1), 14.0)
    index.expire(13.5)
    assert holds(index, 1)
