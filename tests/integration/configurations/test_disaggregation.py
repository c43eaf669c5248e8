"""`host-disaggregation.yaml`: long prompts are prefilled elsewhere unless they are cached, and clients cannot say where."""

import pytest

pytestmark = [pytest.mark.process, pytest.mark.anyio, pytest.mark.timeout(180)]

MANIFEST = "host-disaggregation.yaml"
DECODING = {"decode-0", "decode-1"}
PREFILLING = {"prefill-0", "prefill-1"}
LONG_TOKENS = 1024
SHORT_TOKENS = 200
FORGED = "10.0.0.1:9"


def prefiller(bay, server: str) -> str:
    """Which server was to prefill the last request that this one has taken; empty for none."""
    named = bay.servers[server].seen[-1].prefiller
    if not named:
        return ""
    return next((name for name, one in bay.servers.items() if named == f"{one.host}:{one.port}"), named)


async def prefilled(bay, prompt: str, **headers: str) -> tuple[str, str]:
    """Who decoded a request, and who was to prefill it."""
    (server,) = await bay.asks([prompt], **headers)
    return server, prefiller(bay, server)


async def test_long_prompt_is_prefilled_elsewhere_and_not_again_once_it_is_cached(bay, prompt_of):
    for n in range(4):
        prompt = prompt_of(f"long {n}", LONG_TOKENS)
        decoding, prefilling = await prefilled(bay, prompt)
        assert decoding in DECODING
        assert prefilling in PREFILLING
        assert await prefilled(bay, prompt) == (decoding, "")
        assert await prefilled(bay, prompt + " and" * 40) == (decoding, "")
        # 256 tokens more than what is cached are prefilled again, and where their beginning was prefilled.
        assert await prefilled(bay, prompt + " and" * 256) == (decoding, prefilling)
    assert not any(bay.servers[name].seen for name in PREFILLING), "requests go to those who decode"


async def test_short_prompt_is_not_disaggregated(bay, prompt_of):
    decoding, prefilling = await prefilled(bay, prompt_of("short", SHORT_TOKENS))
    assert decoding in DECODING
    assert prefilling == ""


@pytest.mark.parametrize("tokens", [SHORT_TOKENS, LONG_TOKENS], ids=["short", "long"])
async def test_client_cannot_name_a_prefiller(bay, prompt_of, tokens):
    _, prefilling = await prefilled(bay, prompt_of("forged", tokens), x_prefiller_host_port=FORGED)
    assert prefilling in (PREFILLING if tokens == LONG_TOKENS else {""})
    assert not any(seen.prefiller == FORGED for server in bay.servers.values() for seen in server.seen)


async def test_without_servers_that_prefill_requests_go_on(bay, prompt_of):
    async with bay.only(*DECODING):
        decoding, prefilling = await prefilled(bay, prompt_of("alone", LONG_TOKENS))
    assert (decoding in DECODING, prefilling) == (True, "")


async def test_with_random_picks_nobody_looks_at_roles(starter, prompt_of, random_picker):
    async with starter.run(MANIFEST, picker=random_picker) as bay:
        prompts = [prompt_of(f"long {n}", LONG_TOKENS) for n in range(20)]
        servers = await bay.asks(prompts, rested=False, x_prefiller_host_port=FORGED)
        assert set(servers) & PREFILLING
        assert not any(seen.prefiller for server in bay.servers.values() for seen in server.seen)
