"""Which live plugins keep a host from being ready: by what they said last, whoever is gone, and however late they answer."""

from types import SimpleNamespace

import anyio
import pytest
from hotbay.errors import PluginFault
from hotbay.rollout.readiness import Readiness
from hotbay_sdk.protocol import Method

pytestmark = pytest.mark.anyio
WAIT_S = 10.0


@pytest.fixture
def anyio_backend():
    return "asyncio"


class Client:
    """Answers as `says` says: a value, or an error; holds the answer back while `gate` is there and not set."""

    def __init__(self, says):
        self.fault = None
        self.says = says
        self.gate = None
        self.asked = 0

    async def control_call(self, method, args, *, deadline_s):
        assert (method, args) == (Method.CHECK_READY, [])
        self.asked += 1
        if self.gate is not None:
            await self.gate.wait()
        if isinstance(self.says, Exception):
            raise self.says
        return self.says


def live(number, says):
    origin = SimpleNamespace(plugin_id=f"p{number}")
    return SimpleNamespace(number=number, client=Client(says), origin=origin, leaving=False)


READY = {"ready": True, "waiting": []}


def waits(*names):
    return {"ready": False, "waiting": list(names)}


@pytest.mark.parametrize(
    ("says", "reason"),
    [
        (READY, None),
        (waits("a"), "a"),
        (waits("a", "b"), "a, b"),
        (waits(*"abcdef"), "a, b, c, d, e, and 1 more"),
        (waits("a\nb"), "a"),
        ({"ready": False}, "it waits"),
        ({}, None),
        (None, None),
        (PluginFault("PLUGIN_ERROR", "no"), "it did not say that it is (PLUGIN_ERROR)"),
        (PluginFault("DEADLINE_EXCEEDED", "late"), "it did not say that it is (DEADLINE_EXCEEDED)"),
        (PluginFault("CRASHED", "gone"), None),
        (PluginFault("PROTOCOL_VIOLATION", "what?"), None),
    ],
    ids=lambda value: str(value)[:30],
)
async def test_plugin_that_says_so_is_named(says, reason):
    one = live(1, says)
    readiness = Readiness(lambda: [("first", one)])
    with anyio.fail_after(WAIT_S):
        await readiness.settle(0.1)
    if reason is None:
        assert readiness.reasons == ()
    else:
        [line] = readiness.reasons
        assert line.startswith(f"plugin first is not ready: {reason}")
        assert line.isprintable()


async def test_start_waits_until_everybody_is_ready():
    one = live(1, waits("a"))
    readiness = Readiness(lambda: [("first", one)])
    async with anyio.create_task_group() as group:
        group.start_soon(readiness.settle, WAIT_S)
        with anyio.fail_after(WAIT_S):
            while not readiness.reasons:
                await anyio.lowlevel.checkpoint()
            one.client.says = READY
    assert readiness.reasons == ()
    assert one.client.asked == 2


async def test_late_answer_leaves_the_last_one_standing_and_is_waited_for_alone():
    one = live(1, waits("a"))
    readiness = Readiness(lambda: [("first", one)])
    await readiness.settle(0.1)
    one.client.gate, one.client.says = anyio.Event(), READY
    before = one.client.asked
    async with anyio.create_task_group() as group:
        for _ in range(3):
            readiness.look(group)
            await anyio.lowlevel.checkpoint()
        assert one.client.asked == before + 1
        assert readiness.reasons
        one.client.gate.set()
    assert readiness.reasons == ()


async def test_one_that_is_live_no_more_keeps_nobody_waiting():
    old, new = live(1, waits("a")), live(2, READY)
    there = [("first", old)]
    readiness = Readiness(lambda: there)
    await readiness.settle(0.1)
    assert readiness.reasons
    there[0] = ("first", new)
    assert readiness.reasons == ()
    async with anyio.create_task_group() as group:
        readiness.look(group)
    there[0] = ("first", old)
    assert readiness.reasons == (), "what it said is forgotten"


async def test_process_that_is_lost_is_not_asked():
    one = live(1, READY)
    one.client.fault = PluginFault("CRASHED", "gone")
    async with anyio.create_task_group() as group:
        Readiness(lambda: [("first", one)]).look(group)
    assert one.client.asked == 0


@pytest.mark.parametrize("how", ["crashed", "leaving"])
async def test_word_of_one_that_is_gone_is_not_waited_for(how):
    one = live(1, waits("a"))
    readiness = Readiness(lambda: [("first", one)])
    with anyio.fail_after(WAIT_S):
        await readiness.settle(0.1)
    assert readiness.reasons
    if how == "crashed":
        one.client.fault = PluginFault("CRASHED", "gone")
    else:
        one.leaving = True
    assert readiness.reasons == ()
