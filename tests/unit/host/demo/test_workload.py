"""Conversations are the same everywhere for the same seed, and share their beginnings."""

from collections import Counter

from hotbay.demo.workload import SYSTEM_PROMPT_BYTES, SYSTEM_PROMPTS_COUNT, conversation, text
from hypothesis import given
from hypothesis import strategies as st


def test_a_conversation_is_the_same_for_the_same_seed_and_number():
    assert [conversation(7, n) for n in range(20)] == [conversation(7, n) for n in range(20)]
    assert conversation(7, 0) != conversation(8, 0)
    assert conversation(7, 0) != conversation(7, 1)


def test_conversations_share_a_few_system_prompts():
    systems = Counter(conversation(0, number).system for number in range(100))

    assert len(systems) == SYSTEM_PROMPTS_COUNT
    assert {len(system) for system in systems} == {SYSTEM_PROMPT_BYTES}


def test_a_whole_conversation_fits_into_a_slot():
    """The template adds less than 40 bytes a message; a token is a byte."""
    for number in range(200):
        script = conversation(3, number)
        size = len(script.system) + sum(len(turn.question) + turn.answer_tokens + 80 for turn in script.turns) + 80
        assert size < 2560


@given(st.text(max_size=20), st.integers(0, 300), st.integers(0, 300))
def test_a_shorter_text_is_the_beginning_of_a_longer_one(seed: str, one: int, other: int):
    short, long = sorted([one, other])

    assert len(text(seed, long).encode()) == long
    assert text(seed, long)[: max(0, short - 1)] == text(seed, short)[: max(0, short - 1)]
