"""Tokens and block hashes of prompts: as the host counts them, and as caches share them."""

import pytest
from hotbay.scheduling.request import InferenceRequest
from hotbay.sim.prompts import block_hashes, prompts_of, token_count, token_ids
from hypothesis import given
from hypothesis import strategies as st

TEXTS = st.text(max_size=60)
PAYLOADS = st.one_of(
    st.builds(lambda text: {"prompt": text}, TEXTS),
    st.builds(lambda ids: {"prompt": ids}, st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=20)),
    st.builds(
        lambda texts: {"messages": [{"role": "user", "content": text} for text in texts]},
        st.lists(TEXTS, min_size=1, max_size=4),
    ),
)


@given(PAYLOADS)
def test_tokens_are_those_that_the_host_estimates(payload):
    request = InferenceRequest(id="r", model="m", path="/", headers={}, body=b"", payload=payload)
    (prompt,) = prompts_of(payload)
    assert token_count(prompt) == max(1, request.tokens_estimate)


@pytest.mark.parametrize(("size", "tokens"), [(0, 1), (3, 1), (4, 1), (7, 1), (8, 2), (4000, 1000)])
def test_token_is_four_bytes_and_the_last_one_has_the_rest(size, tokens):
    prompt = b"x" * size
    assert token_count(prompt) == tokens
    assert len(token_ids(prompt)) == tokens


def test_token_ids_are_the_bytes():
    assert token_ids(b"abcdefghi") == [int.from_bytes(b"abcd", "little"), int.from_bytes(b"efghi", "little")]
    assert token_ids(b"") == [0]


def test_token_ids_of_a_prompt_are_its_tokens():
    (prompt,) = prompts_of({"prompt": [7, 8, 9]})
    assert token_ids(prompt) == [7, 8, 9]


def test_only_full_blocks_have_a_hash():
    assert [len(block_hashes(b"x" * size, 4)) for size in (0, 15, 16, 31, 32)] == [0, 0, 1, 1, 2]


@given(st.binary(max_size=200), st.binary(max_size=200), st.integers(1, 5))
def test_hashes_are_equal_exactly_as_far_as_the_text_is(left, right, block_size):
    hashes = block_hashes(left, block_size), block_hashes(right, block_size)
    size = block_size * 4
    for number, (ours, theirs) in enumerate(zip(*hashes, strict=False), start=1):
        assert (ours == theirs) == (left[: number * size] == right[: number * size])


@pytest.mark.parametrize(
    "other",
    [{"adapter": "a"}, {"adapter": "b"}, {"salt": "a"}, {"adapter": "a", "salt": "a"}],
    ids=["adapter", "another", "salt", "both"],
)
def test_adapters_and_salts_share_nothing(other):
    assert not set(block_hashes(b"x" * 64, 4)) & set(block_hashes(b"x" * 64, 4, **other))
    assert block_hashes(b"x" * 64, 4, **other) == block_hashes(b"x" * 64, 4, **other)


def test_adapter_and_salt_do_not_run_into_each_other():
    assert block_hashes(b"x" * 16, 4, adapter="a", salt="b") != block_hashes(b"x" * 16, 4, adapter="ab")
