"""Conversations for real servers share what a conversation shares; policies' configurations load."""

from itertools import pairwise
from pathlib import Path

import pytest
from hotbay.config.host_config import load_host_config
from hotbay.config.picker_config import load_picker_config

from benchmarks.figures.real_servers import (
    ANSWER_TOKENS,
    CONVERSATIONS,
    IN_FLIGHT,
    OPENING_BYTES,
    POLICIES,
    SLOT_CONTEXT,
    TURNS,
    conversations,
    order_of,
)
from benchmarks.host import config_text


def test_a_turn_begins_with_the_turn_before_and_comes_after_its_answer():
    prompts = [sent.prompt for sent in conversations(1)]
    openings = {prompt[:OPENING_BYTES] for prompt in prompts}

    assert len(openings) == CONVERSATIONS
    for opening in openings:
        places = [place for place, prompt in enumerate(prompts) if prompt.startswith(opening)]
        assert len(places) == TURNS
        assert all(prompts[later].startswith(prompts[earlier]) for earlier, later in pairwise(places))
        assert all(earlier // CONVERSATIONS + 1 == later // CONVERSATIONS for earlier, later in pairwise(places))
    assert IN_FLIGHT < CONVERSATIONS
    assert max(map(len, prompts)) + ANSWER_TOKENS < SLOT_CONTEXT


def test_repeats_are_other_conversations():
    assert conversations(1) == conversations(1)
    assert {sent.prompt[:OPENING_BYTES] for sent in conversations(1)}.isdisjoint(
        sent.prompt[:OPENING_BYTES] for sent in conversations(2)
    )


@pytest.mark.parametrize("policy", POLICIES)
def test_configurations_of_policies_load(policy: str):
    _, bound, text = POLICIES[policy]
    config = config_text([8001], source="{name: bundled}", types={}, bound=bound)

    host = load_host_config(config, file="host.yaml", base_directory=Path("/"), environment={}, is_root=False)
    picker = load_picker_config(text, file="picker.yaml")

    assert set(host.bindings) == set(bound)
    assert set(bound) <= {plugin.type for plugin in picker.plugins}


def test_the_order_is_by_the_median_of_the_repeats():
    samples = {
        "llama.random:mean_ms": [5.0, 1.0, 6.0],
        "llama.load:mean_ms": [4.0, 9.0, 4.0],
        "llama.prefix:mean_ms": [3.0, 3.0, 30.0],
    }

    assert order_of(samples) == ["prefix", "load", "random"]
