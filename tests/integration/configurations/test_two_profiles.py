"""`host-two-profiles.yaml`: the header's profile decides, and a value that names none is refused."""

import pytest

pytestmark = [pytest.mark.process, pytest.mark.anyio, pytest.mark.timeout(180)]

MANIFEST = "host-two-profiles.yaml"
TOKENS = 640


async def test_profile_of_the_header_decides(bay, prompt_of):
    prompt = prompt_of("a long conversation", TOKENS)
    async with bay.busy(prompt) as cached:
        (quick,) = set(bay.servers) - {cached}
        assert await bay.asks([prompt] * 4) == [cached] * 4
        assert await bay.asks([prompt] * 4, EPP_Profile="cached") == [cached] * 4
        assert await bay.asks([prompt] * 4, EPP_Profile="quick") == [quick] * 4


@pytest.mark.parametrize("named", ["nonesuch", "Quick", "cached,quick"])
async def test_unknown_profile_is_refused_with_a_reason(bay, named):
    before = bay.taken()
    answer = await bay.ask("hello", epp_profile=named)
    assert (answer.status, answer.reason) == (400, "unknown-profile")
    assert answer.headers["x-llm-d-request-dropped-reason"] == "unknown-profile"
    assert bay.taken() == before
