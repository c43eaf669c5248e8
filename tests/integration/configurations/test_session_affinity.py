"""`host-session-affinity.yaml`: the token of an answer brings its client back, and away when its server is gone."""

import base64

import pytest

pytestmark = [pytest.mark.process, pytest.mark.anyio, pytest.mark.timeout(180)]

MANIFEST = "host-session-affinity.yaml"
TURNS = 8


async def test_token_of_an_answer_brings_the_client_back(bay):
    firsts = [await bay.ask(f"client {n}") for n in range(2 * TURNS)]
    assert len({first.server for first in firsts}) > 1, "clients without a token go anywhere"
    for first in firsts:
        token = first.headers["x-session-token"]
        assert base64.b64decode(token).decode() == f"default/{first.server}"
        again = await bay.ask("and then?", x_session_token=token)
        assert (again.server, again.headers["x-session-token"]) == (first.server, token)


async def test_client_without_its_token_goes_anywhere(bay):
    first = await bay.ask("hello")
    assert len({(await bay.ask("hello")).server for _ in range(4 * TURNS)}) > 1, first


@pytest.mark.parametrize("token", ["!", "", base64.b64encode(b"default/nowhere").decode()], ids=["no", "none", "other"])
async def test_token_of_nobody_is_no_session(bay, token):
    answer = await bay.ask("hello", x_session_token=token)
    assert base64.b64decode(answer.headers["x-session-token"]).decode() == f"default/{answer.server}"


async def test_session_moves_when_its_server_is_gone(bay):
    first = await bay.ask("hello")
    others = sorted(set(bay.servers) - {first.server})
    async with bay.only(*others):
        moved = await bay.ask("hello", x_session_token=first.headers["x-session-token"])
    assert moved.server in others
    token = moved.headers["x-session-token"]
    # It has moved: who is back does not get it back.
    assert await bay.asks(["hello"] * TURNS, x_session_token=token) == [moved.server] * TURNS


async def test_session_moves_when_its_server_dies(starter):
    async with starter.run(MANIFEST) as bay:
        first = await bay.ask("hello")
        await bay.servers[first.server].close()
        # By then the host may know of it or not: who is not there takes no request.
        moved = await bay.ask("hello", x_session_token=first.headers["x-session-token"])
        assert (moved.status, moved.server != first.server) == (200, True)
        again = await bay.asks(["hello"] * 3, rested=False, x_session_token=moved.headers["x-session-token"])
        assert again == [moved.server] * 3
