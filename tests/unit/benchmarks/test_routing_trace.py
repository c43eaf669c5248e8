"""Lines of the trace become requests: equal hashes are equal text, lengths and order are kept, times move a little."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.routing.trace import (
    BLOCK_TOKENS,
    JITTER_S,
    SCALE,
    TOKEN_CHARACTERS,
    TRACE_BLOCK_TOKENS,
    _text,
    read_window,
)

BLOCK_CHARACTERS = BLOCK_TOKENS * TOKEN_CHARACTERS
HASHES = st.lists(st.integers(0, 50), min_size=1, max_size=8)


def trace_of(folder: Path, *lines: dict[str, object]) -> Path:
    path = folder / "trace.jsonl"
    whole = {"timestamp": 0, "input_length": 1024, "output_length": 320, "hash_ids": [1, 2]}
    path.write_text("".join(json.dumps(whole | line) + "\n" for line in lines))
    return path


@given(HASHES, st.lists(st.integers(51, 99), max_size=4), st.lists(st.integers(100, 150), max_size=4))
def test_prompts_share_exactly_the_blocks_that_the_trace_says(shared: list[int], one: list[int], other: list[int]):
    left, right = (_text(hashes, len(hashes) * TRACE_BLOCK_TOKENS) for hashes in ([*shared, *one], [*shared, *other]))

    common = len(shared) * BLOCK_CHARACTERS
    assert left[:common] == right[:common]
    assert len(left) == (len(shared) + len(one)) * BLOCK_CHARACTERS
    if one and other:
        following = slice(common, common + BLOCK_CHARACTERS)
        assert left[following] != right[following]


def test_a_prompt_is_as_many_times_shorter_as_servers_are_slower_and_has_a_token_at_least():
    assert len(_text([1, 2], 600)) == 600 // SCALE * TOKEN_CHARACTERS
    assert len(_text([1], SCALE - 1)) == TOKEN_CHARACTERS
    assert _text([7, 8], 1024).isascii()


def test_requests_are_due_in_the_order_of_their_moved_times_from_nought(tmp_path: Path):
    path = trace_of(tmp_path, *({"timestamp": 1000 * number, "hash_ids": [number, 0]} for number in range(50)))

    found = read_window(path, first=10, count=30, rate=2.0, seed=3)

    due = [sent.due_s for sent in found]
    assert len(found) == 30
    assert due[0] == 0.0
    assert due == sorted(due)
    assert due[-1] <= (29 + JITTER_S) / 2.0
    assert found == read_window(path, first=10, count=30, rate=2.0, seed=3)
    assert due != [sent.due_s for sent in read_window(path, first=10, count=30, rate=2.0, seed=4)]
    assert {sent.prompt for sent in found} == {_text([number, 0], 1024) for number in range(10, 40)}


def test_answers_are_shorter_by_the_same_and_never_empty(tmp_path: Path):
    path = trace_of(tmp_path, {"output_length": 320}, {"timestamp": 9000, "output_length": 1})

    assert [sent.output_tokens for sent in read_window(path, first=0, count=2, rate=1.0, seed=1)] == [320 // SCALE, 1]


def test_a_trace_that_is_too_short_is_refused(tmp_path: Path):
    path = trace_of(tmp_path, *[{}] * 5)

    assert len(read_window(path, first=2, count=3, rate=1.0, seed=1)) == 3
    with pytest.raises(ValueError, match="expected 6 requests, found 5"):
        read_window(path, first=3, count=3, rate=1.0, seed=1)


def test_prompt_tokens_are_those_of_the_estimate(tmp_path: Path):
    (sent,) = read_window(trace_of(tmp_path, {}), first=0, count=1, rate=1.0, seed=1)

    assert sent.prompt_tokens == 1024 // SCALE
