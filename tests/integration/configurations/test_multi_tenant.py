"""`host-multi-tenant.yaml`: a tenant's requests reach its own servers alone, and an agent's stay on one of them."""

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.process, pytest.mark.anyio, pytest.mark.timeout(180)]

MANIFEST = "host-multi-tenant.yaml"
REQUESTS = 16


async def test_requests_of_a_tenant_reach_its_own_servers_alone(bay, prompt_of):
    # The same prompts for both: what one tenant's servers have cached draws nobody else's requests there.
    prompts = [prompt_of(f"question {n}", 320) for n in range(REQUESTS)]
    for _ in range(2):
        assert set(await bay.asks(prompts, rested=False, x_tenant="a")) == {"a-0", "a-1"}
        assert set(await bay.asks(prompts, rested=False, x_tenant="b")) == {"b-0", "b-1"}


@pytest.mark.parametrize("header", ["x-claude-code-session-id", "x-agent"])
async def test_agent_stays_on_one_server_of_its_tenant(bay, header):
    for tenant in ("a", "b"):
        for agent in range(4):
            said = {"x_tenant": tenant, header: f"{tenant}-{header}-{agent}"}
            answered = await bay.asks([f"agent {agent} step {step}" for step in range(4)], **said)
            assert len(set(answered)) == 1
            assert answered[0].startswith(tenant)


async def test_agent_of_one_name_is_another_one_for_another_tenant(bay):
    for step in range(4):
        for tenant in ("a", "b"):
            (server,) = await bay.asks([f"step {step}"], x_tenant=tenant, x_agent="the same")
            assert server.startswith(tenant)


@pytest.mark.parametrize("headers", [{}, {"x_tenant": "c"}, {"x_tenant": "A"}, {"x_tenant": "a, b"}], ids=str)
async def test_request_of_no_tenant_is_refused(bay, headers):
    before = bay.taken()
    answer = await bay.ask("hello", **headers)
    assert (answer.status, answer.reason) == (400, "unknown-profile")
    assert bay.taken() == before


async def test_tenant_without_servers_gets_nobody_elses(bay):
    before = bay.taken()
    async with bay.only("b-0", "b-1"):
        answer = await bay.ask("hello", x_tenant="a")
    assert (answer.status, answer.reason) == (503, "rejected-no-endpoints")
    assert bay.taken() == before


async def test_with_random_picks_tenants_share_all_servers(starter, random_picker):
    async with starter.run(MANIFEST, picker=random_picker) as bay:
        servers = await bay.asks(["hello"] * 2 * REQUESTS, rested=False, x_tenant="a")
        assert {server[0] for server in servers} == {"a", "b"}
