"""Prompts of token ids, and the keys of their blocks."""

from itertools import count

import pytest
from hotbay_prefix_cache.tokens import LONGEST_TEXT, MOST_PROMPTS, prompt_keys, read_prompts, request_extras
from hypothesis import given
from hypothesis import strategies as st

NO_EXTRAS = request_extras("", "")
SIZE = 4


@pytest.mark.parametrize(
    ("text", "prompts"),
    [
        ("1 2 3", ((1, 2, 3),)),
        ("1 2\0003 4", ((1, 2), (3, 4))),
        ("1 2\0\0003", ((1, 2), (3,))),
        ("4294967295", ((4294967295,),)),
        ("4294967296", ()),
        ("1" * 5000, ()),
        ("", ()),
        (" ", ()),
        ("hello 1 2", ()),
        ("user\0001 2\0", ()),
        ("1.5", ()),
        ("-1", ()),
        ("\u0661 \u0662", ()),
    ],
    ids=count(1),
)
def test_prompts_are_read_where_they_are_token_ids(text: str, prompts: tuple[tuple[int, ...], ...]) -> None:
    assert read_prompts(text) == prompts


@pytest.mark.timeout(60)
@pytest.mark.parametrize("end", ["x", "\0x", " 1 x"])
def test_any_text_is_looked_at_once(end: str) -> None:
    """A pattern that may begin anew at each digit takes minutes for this."""
    assert read_prompts("1" * 500_000 + end) == ()


@pytest.mark.parametrize(("length", "known"), [(LONGEST_TEXT, True), (LONGEST_TEXT + 1, False)])
def test_token_ids_are_read_up_to_a_length(length: int, known: bool) -> None:
    text = "1 " * (length // 2) + " " * (length % 2)
    assert bool(read_prompts(text)) is known


@pytest.mark.parametrize(("count", "known"), [(MOST_PROMPTS, True), (MOST_PROMPTS + 1, False)])
def test_prompts_are_read_up_to_a_number(count: int, known: bool) -> None:
    assert bool(read_prompts("\0".join(["1 2"] * count))) is known


@given(st.lists(st.integers(0, 2**32 - 1), max_size=40), st.lists(st.integers(0, 2**32 - 1), max_size=40))
def test_keys_are_equal_as_far_as_prompts_are(one: list[int], other: list[int]) -> None:
    a, b = (list(prompt_keys(prompt, SIZE, NO_EXTRAS)) for prompt in (one, other))
    shared = next((i for i, (x, y) in enumerate(zip(one, other, strict=False)) if x != y), min(len(one), len(other)))
    assert len(a) == len(one) // SIZE
    assert [x == y for x, y in zip(a, b, strict=False)] == [n < shared // SIZE for n in range(min(len(a), len(b)))]


def test_s34_keys_of_another_adapter_or_salt_differ() -> None:
    ways = [("", ""), ("X", ""), ("", "X"), ("c", "ab"), ("bc", "a"), ("", "abc")]
    keys = {list(prompt_keys(range(8), SIZE, request_extras(lora, salt)))[-1] for lora, salt in ways}
    assert len(keys) == len(ways)
