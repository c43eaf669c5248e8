"""What engines publish of their KV caches: frames as vLLM sends them, and the index that follows them."""

from collections.abc import Sequence
from contextlib import suppress
from itertools import count
from typing import Any

import msgpack
import pytest
from hotbay_prefix_cache import precise_state
from hotbay_prefix_cache.blocks import MAX_BLOCKS, BlockIndex, whose
from hotbay_prefix_cache.kv_events import (
    MAX_MESSAGE_BYTES,
    AllBlocksCleared,
    BlockRemoved,
    BlockStored,
    MalformedEventError,
    Message,
    read_message,
)
from hotbay_prefix_cache.tokens import prompt_keys, request_extras
from hypothesis import given
from hypothesis import strategies as st

NO_EXTRAS = request_extras("", "")
SIZE = 4

# As vLLM 0.32 has them: arrays that begin with the name, defaults at the end left out.
STORED_ARRAY = [
    "BlockStored",
    [11, 12],
    None,
    [1, 2, 3, 4, 5, 6, 7, 8],
    4,
    None,
    "GPU",
    None,
    None,
    0,
    "full_attention",
]
REMOVED_ARRAY = ["BlockRemoved", [12], "GPU"]
CLEARED_ARRAY = ["AllBlocksCleared"]
# As newer versions have them: maps with the name as `type`.
STORED_MAP = {
    "type": "BlockStored",
    "block_hashes": [b"\x01" * 32],
    "parent_block_hash": b"\x02" * 32,
    "token_ids": [1, 2],
    "block_size": 2,
    "lora_id": 1,
    "medium": "CPU",
    "lora_name": "poet",
    "extra_keys": [["poet", "salt"]],
}


def frames(
    events: Sequence[object], *, topic: str = "kv@10.0.0.1:8000@m", sequence: int = 0, rank: int | None = 0
) -> list[bytes]:
    """One message as vLLM's publisher sends it."""
    batch = [1764604800.5, list(events), rank]
    return [topic.encode(), sequence.to_bytes(8, "big"), msgpack.packb(batch if rank is not None else batch[:2])]


def test_a_message_of_arrays_is_read() -> None:
    message = read_message(frames([STORED_ARRAY, REMOVED_ARRAY, CLEARED_ARRAY], sequence=7, rank=2))
    assert message == Message(
        who="10.0.0.1:8000",
        model="m",
        sequence=7,
        rank=2,
        events=(
            BlockStored((11, 12), None, (1, 2, 3, 4, 5, 6, 7, 8), 4, medium="GPU", kind="full_attention"),
            BlockRemoved((12,), "GPU"),
            AllBlocksCleared(),
        ),
    )


def test_a_message_of_maps_is_read() -> None:
    topic, sequence, _ = frames([])
    batch = {"ts": 1.5, "events": [STORED_MAP, {"type": "BlockRemoved", "block_hashes": [3]}], "data_parallel_rank": 1}
    message = read_message([topic, sequence, msgpack.packb(batch)])
    assert message.rank == 1
    assert message.events == (
        BlockStored((b"\x01" * 32,), b"\x02" * 32, (1, 2), 2, lora="poet", medium="CPU", extra=(["poet", "salt"],)),
        BlockRemoved((3,)),
    )


def test_events_that_nobody_knows_and_ranks_that_are_not_said_are_no_defect() -> None:
    message = read_message(frames([["BlockMoved", 1], 5, CLEARED_ARRAY], rank=None))
    assert (message.rank, message.events) == (0, (AllBlocksCleared(),))


@pytest.mark.parametrize(
    ("topic", "who", "model"),
    [
        ("kv@10.0.0.1:8000@org/model", "10.0.0.1:8000", "org/model"),
        ("kv@default/vllm-0", "default/vllm-0", ""),
        ("kv@a@b@c", "a", "b@c"),
        ("vllm-0", "vllm-0", ""),
        ("", "", ""),
    ],
)
def test_a_topic_says_who_speaks(topic: str, who: str, model: str) -> None:
    message = read_message(frames([], topic=topic))
    assert (message.who, message.model) == (who, model)


def stored(**changes: object) -> dict[str, object]:
    plain: dict[str, object] = {"type": "BlockStored", "block_hashes": [1], "token_ids": [5, 6], "block_size": 2}
    return {**plain, **changes}


@pytest.mark.parametrize(
    ("event", "text"),
    [
        (stored(block_size=0), "block_size"),
        (stored(block_size=True), "block_size"),
        (stored(token_ids=[5]), "1 x 2 token_ids, found 1"),
        (stored(token_ids=[5, -1]), "token_ids"),
        (stored(token_ids=[5, 2**32]), "token_ids"),
        (stored(token_ids="56"), "token_ids"),
        (stored(block_hashes=["x"]), "block hash"),
        (stored(block_hashes=None), "block_hashes"),
        (stored(parent_block_hash=1.5), "block hash"),
        (stored(extra_keys=[]), "extra_keys"),
        (stored(medium=3), "medium"),
        (stored(group_idx=-1), "group_idx"),
        (["BlockRemoved"], "block_hashes"),
    ],
    ids=lambda value: None if isinstance(value, str) else "",
)
def test_events_of_another_form_are_refused(event: object, text: str) -> None:
    with pytest.raises(MalformedEventError, match=text):
        read_message(frames([event]))


@pytest.mark.parametrize(
    "message",
    [
        [],
        [b"t", b"\0" * 8],
        [b"t", b"\0" * 7, msgpack.packb([0, [], 0])],
        [b"t", b"\0" * 8, b""],
        [b"t", b"\0" * 8, b"\xc1"],
        [b"t", b"\0" * 8, msgpack.packb(5)],
        [b"t", b"\0" * 8, msgpack.packb([0])],
        [b"t", b"\0" * 8, msgpack.packb([0, 5])],
        [b"t", b"\0" * 8, msgpack.packb([0, []]) + b"x"],
        [b"t", b"\0" * 8, b"\x91" * 5000],
        [b"t", b"\0" * 8, b"\x81\x90\x01"],
        [b"t", b"\0" * 8, b"\x81\x80\x01"],
        [b"t", b"\0" * 8, bytes(MAX_MESSAGE_BYTES + 1)],
    ],
    ids=count(1),
)
def test_frames_of_another_form_are_refused(message: list[bytes]) -> None:
    with pytest.raises(MalformedEventError):
        read_message(message)


@pytest.mark.parametrize("depth", [400, 505, 1000])
@pytest.mark.parametrize("field", ["block_size", "token_ids", "block_hashes", "extra_keys", "type"])
def test_what_is_nested_deeply_is_refused_or_ignored(field: str, depth: int) -> None:
    deep, lists = msgpack.packb(stored(**{field: "HERE"})), b"\x91" * depth + b"\x90"
    event = deep.replace(b"\xa4HERE", (b"\x91" if field == "extra_keys" else b"") + lists)
    with suppress(MalformedEventError):
        BlockIndex().apply(read_message([b"kv@e@m", b"\0" * 8, b"\x92\x00\x91" + event]))


@given(st.lists(st.binary(max_size=64), max_size=4))
def test_any_frames_are_read_or_refused(message: list[bytes]) -> None:
    with suppress(MalformedEventError):
        read_message(message)


json_like = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(max_size=5)
    | st.binary(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)


@given(st.sampled_from(["BlockStored", "BlockRemoved", "AllBlocksCleared"]), st.lists(json_like, max_size=10))
def test_any_event_is_followed_or_refused(name: str, fields: list[object]) -> None:
    with suppress(MalformedEventError):
        BlockIndex().apply(read_message(frames([[name, *fields]])))


# -- index -----------------------------------------------------------------------------------------


class Engine:
    """A publisher's end: gives events their sequence numbers."""

    def __init__(self, index: BlockIndex, who: str = "e") -> None:
        self.index = index
        self.topic = f"kv@{who}@m"
        self.sequence = 0

    def say(self, *events: Any) -> int | None:
        message = read_message(frames(events, topic=self.topic, sequence=self.sequence))
        self.sequence += 1
        return self.index.apply(message)

    def store(
        self, tokens: Sequence[int], *, first: int = 0, parent: int | None = None, **changes: object
    ) -> int | None:
        hashes = [first + number + 1 for number in range(len(tokens) // SIZE)]
        return self.say(
            stored(block_hashes=hashes, parent_block_hash=parent, token_ids=list(tokens), block_size=SIZE, **changes)
        )


def held(
    index: BlockIndex, tokens: Sequence[int], *, lora: str = "", salt: str = "", among: int = -1
) -> dict[int, int]:
    everyone = (1 << len(index.slots)) - 1
    return index.match(prompt_keys(tokens, SIZE, request_extras(lora, salt)), everyone & among)


def test_blocks_that_are_stored_are_matched_without_a_gap() -> None:
    index = BlockIndex()
    first, second = Engine(index, "a"), Engine(index, "b")
    first.store(range(12))
    second.store(range(4))
    second.store(range(4, 12), first=50, parent=1)
    second.say(["BlockRemoved", [51], None])
    assert held(index, range(12)) == {0: 3, 1: 1}
    assert held(index, [*range(8), 99, 99, 99, 99]) == {0: 2, 1: 1}
    assert held(index, range(12), among=0b10) == {1: 1}
    assert held(index, [9, *range(1, 12)]) == {}


def test_a_block_follows_its_predecessor_over_messages() -> None:
    index = BlockIndex()
    engine = Engine(index)
    engine.store(range(8))
    engine.store(range(8, 12), first=7, parent=2)
    assert held(index, range(12)) == {0: 3}


def test_a_block_whose_predecessor_is_unknown_is_ignored() -> None:
    index = BlockIndex()
    Engine(index).store(range(8), parent=77)
    assert (index.block_count, index.ignored) == (0, 2)


def test_removed_and_cleared_blocks_are_gone() -> None:
    index = BlockIndex()
    engine = Engine(index)
    engine.store(range(12))
    engine.say(["BlockRemoved", [3, 99]])
    assert held(index, range(12)) == {0: 2}
    assert engine.say(CLEARED_ARRAY) == 0
    assert held(index, range(12)) == {}
    assert index.block_count == 0


def test_a_block_of_two_media_is_held_as_long_as_one_has_it() -> None:
    index = BlockIndex()
    engine = Engine(index)
    engine.store(range(4), medium="GPU")
    engine.store(range(4), medium="CPU")
    engine.say(["BlockRemoved", [1], "GPU"])
    assert held(index, range(4)) == {0: 1}
    engine.say(["BlockRemoved", [1], "CPU"])
    assert held(index, range(4)) == {}


def test_cache_groups_that_hold_no_whole_prefixes_do_not_count() -> None:
    index = BlockIndex()
    engine = Engine(index)
    engine.store(range(4), kv_cache_spec_kind="sliding_window", group_idx=1)
    assert held(index, range(4)) == {}
    engine.store(range(4), kv_cache_spec_kind="full_attention", group_idx=0)
    engine.say(["BlockRemoved", [1], None, 1])
    assert held(index, range(4)) == {0: 1}


def test_s34_an_adapter_or_a_salt_is_part_of_what_is_held() -> None:
    index = BlockIndex()
    engine = Engine(index)
    engine.store(range(8), extra_keys=[["poet", "s1"], ["poet"]])
    assert held(index, range(8), lora="poet", salt="s1") == {0: 2}
    assert [held(index, range(8), lora=lora, salt=salt) for lora, salt in (("poet", ""), ("", "s1"), ("", ""))] == [
        {}
    ] * 3
    engine.store(range(8), first=20, lora_name="cook")
    assert held(index, range(8), lora="cook") == {0: 2}


@pytest.mark.parametrize("next_sequence", [5, 0], ids=["missed", "started again"])
def test_a_sequence_that_breaks_off_empties_the_cache(next_sequence: int) -> None:
    index = BlockIndex()
    engine = Engine(index)
    engine.store(range(8))
    engine.sequence = next_sequence
    assert engine.store(range(100, 104), first=9) == 0
    assert (held(index, range(8)), held(index, range(100, 104)), index.lost) == ({}, {0: 1}, 1)


def test_the_first_message_may_have_any_number() -> None:
    index = BlockIndex()
    engine = Engine(index)
    engine.sequence = 1000
    engine.store(range(4))
    assert (held(index, range(4)), index.lost) == ({0: 1}, 0)


def test_ranks_of_one_source_are_caches_of_their_own() -> None:
    index = BlockIndex()
    for rank in (0, 1):
        event = stored(block_hashes=[1], token_ids=[rank] * SIZE, block_size=SIZE)
        index.apply(read_message(frames([event], rank=rank)))
    assert held(index, [0] * SIZE) == {0: 1}
    assert held(index, [1] * SIZE) == {1: 1}


def test_a_message_without_a_name_is_nobodys() -> None:
    index = BlockIndex()
    assert index.apply(read_message(frames([STORED_ARRAY], topic=""))) is None
    assert (len(index.slots), index.ignored) == (0, 1)


def test_one_cache_is_bounded_and_forgets_the_oldest() -> None:
    index, keys = BlockIndex(), count(1)
    number = index.slot_of("e")
    assert number is not None
    for block in range(MAX_BLOCKS + 10):
        index.hold(number, (block, "", 0), next(keys))
    assert index.block_count == len(index.slots[number].entries) == MAX_BLOCKS
    assert next(iter(index.slots[number].entries))[0] == 10


def test_what_is_expected_counts_until_its_time_or_until_it_is_taken_back() -> None:
    index = BlockIndex()
    number = index.slot_of("e")
    keys = list(prompt_keys(range(8), SIZE, NO_EXTRAS))
    assert number is not None
    index.expect(number, keys, 12.0)
    index.expect(number, keys[:1], 13.0)
    index.expire(11.9)
    assert held(index, range(8)) == {0: 2}
    index.expire(12.0)
    assert held(index, range(8)) == {0: 1}
    index.unexpect(number, keys)
    assert held(index, range(8)) == {}


def test_a_released_cache_makes_room_for_another() -> None:
    index = BlockIndex()
    Engine(index, "a").store(range(8))
    index.release(0)
    assert index.block_count == 0
    assert index.slot_of("b") == 0
    assert held(index, range(8)) == {}


@pytest.mark.parametrize(
    ("source", "rows"),
    [
        ("default/a", {0: (0,)}),
        ("10.0.0.1:8000", {0: (0,)}),
        ("10.0.0.1:8001", {1: (0,)}),
        ("10.0.0.1", {}),
        ("10.0.0.2", {2: (0,)}),
        ("[fd00::1]:8000", {3: (0,)}),
        ("fd00::1", {3: (0,)}),
        ("c", {2: (0,)}),
        ("d", {}),
        ("stranger", {}),
    ],
)
def test_a_source_is_an_endpoint_by_id_address_or_name(source: str, rows: dict[int, tuple[int, ...]]) -> None:
    ids = ["default/a", "default/b", "other/c", "x/d", "y/d", ""]
    places = {
        "default/a": "10.0.0.1:8000",
        "default/b": "10.0.0.1:8001",
        "other/c": "10.0.0.2:8000",
        "x/d": "[fd00::1]:8000",
    }
    index = BlockIndex()
    index.slot_of(source)
    assert whose(index.slots, ids, places) == rows


steps = st.lists(
    st.tuples(st.just("store"), st.integers(0, 1), st.lists(st.integers(0, 2), min_size=1, max_size=4))
    | st.tuples(st.just("remove"), st.integers(0, 1), st.lists(st.integers(0, 2), min_size=1, max_size=4))
    | st.tuples(st.just("clear"), st.integers(0, 1), st.just([0])),
    max_size=12,
)


@given(steps, st.lists(st.integers(0, 2), max_size=4))
def test_the_index_agrees_with_sets_of_prefixes(history: list[tuple[str, int, list[int]]], asked: list[int]) -> None:
    """A block is a digit here, and its engine's hash the text of all digits up to it."""
    index = BlockIndex()
    engines = [Engine(index, "a"), Engine(index, "b")]
    model: list[set[tuple[int, ...]]] = [set(), set()]
    for kind, who, path in history:
        prefixes = [tuple(path[: n + 1]) for n in range(len(path))]
        hashes = ["".join(map(str, prefix)).encode() for prefix in prefixes]
        if kind == "store":
            tokens = [digit for digit in path for _ in range(SIZE)]
            engines[who].say(stored(block_hashes=hashes, token_ids=tokens, block_size=SIZE))
            model[who].update(prefixes)
        elif kind == "remove":
            engines[who].say(["BlockRemoved", hashes[-1:]])
            model[who].discard(prefixes[-1])
        else:
            engines[who].say(CLEARED_ARRAY)
            model[who].clear()
    prompt = [digit for digit in asked for _ in range(SIZE)]
    for who, engine in enumerate(engines):
        runs = [n for n in range(len(asked)) if tuple(asked[: n + 1]) not in model[who]]
        length = runs[0] if runs else len(asked)
        number = next((n for n, slot in enumerate(index.slots) if f"kv@{slot.source}@m" == engine.topic), None)
        found = held(index, prompt)
        assert (found.get(number, 0) if number is not None else 0) == length
    assert index.block_count == len(model[0] | model[1])


# -- state -----------------------------------------------------------------------------------------


@given(steps, st.integers(1, 40))
def test_an_index_is_the_same_after_the_move_however_its_bytes_are_cut(
    history: list[tuple[str, int, list[int]]], size: int
) -> None:
    index = BlockIndex()
    engines = [Engine(index, "a"), Engine(index, "b")]
    for _, who, path in history:
        engines[who].store([digit for digit in path for _ in range(SIZE)], first=path[0] * 100)
    whole = b"".join(precise_state.pieces(index))
    moved = precise_state.restored([whole[i : i + size] for i in range(0, len(whole), size)])
    assert [(s.source, s.sequence, s.entries, s.vouchers) for s in moved.slots] == [
        (s.source, s.sequence, s.entries, s.vouchers) for s in index.slots
    ]


@given(st.data())
def test_damaged_bytes_are_refused_or_an_index_never_anything_else(data: st.DataObject) -> None:
    index = BlockIndex()
    Engine(index).store(range(12))
    whole = b"".join(precise_state.pieces(index))
    with pytest.raises(precise_state.StateRefusedError):
        precise_state.restored([whole[: data.draw(st.integers(0, len(whole) - 1))]])
    position, byte = data.draw(st.integers(0, len(whole) - 1)), data.draw(st.integers(0, 255))
    with suppress(precise_state.StateRefusedError):
        precise_state.restored([whole[:position] + bytes([byte]) + whole[position + 1 :]])


def test_messages_that_the_last_version_saw_are_passed_over() -> None:
    index = BlockIndex()
    engine = Engine(index)
    for number in range(3):
        engine.store(range(4 * number, 4 * number + 4), first=number)
    moved = precise_state.restored(precise_state.pieces(index))
    late = Engine(moved)
    late.sequence = 1
    assert late.say(CLEARED_ARRAY) is None
    late.sequence = 3
    assert late.store(range(50, 54), first=60) is None
    assert (moved.block_count, moved.lost) == (4, 0)
    late.sequence = 2
    assert late.say() == 0
    assert moved.lost == 1
