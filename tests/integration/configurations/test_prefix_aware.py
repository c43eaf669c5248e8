"""`host-prefix-aware.yaml`: prompts follow their beginnings, and with random picks they do not."""

import pytest

pytestmark = [pytest.mark.process, pytest.mark.anyio, pytest.mark.timeout(180)]

MANIFEST = "host-prefix-aware.yaml"
CONVERSATIONS = 20
TURN_TOKENS = 320
"""Five blocks of the router's 64 tokens, twenty of a server's 16."""


async def two_turns(bay, prompt_of, **how) -> tuple[list[str], list[str]]:
    """Who answered the first and the second turn of each conversation."""
    first = [prompt_of(f"conversation {name}", TURN_TOKENS) for name in range(CONVERSATIONS)]
    return await bay.asks(first, **how), await bay.asks([prompt + " and then?" for prompt in first], **how)


async def test_conversations_stay_where_their_prefix_is_cached(bay, prompt_of):
    before = bay.hits()
    first, second = await two_turns(bay, prompt_of)
    assert second == first
    assert set(first) == set(bay.servers), "what nobody knows is spread"
    assert bay.hits() - before == CONVERSATIONS * TURN_TOKENS


async def test_with_random_picks_conversations_do_not_stay(starter, prompt_of, random_picker):
    async with starter.run(MANIFEST, picker=random_picker) as bay:
        first, second = await two_turns(bay, prompt_of, rested=False)
        assert second != first
        assert bay.hits() < CONVERSATIONS * TURN_TOKENS
