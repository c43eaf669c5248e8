"""State that moves from one process to the next, through the host, under credits and budgets."""

import asyncio
from collections.abc import Callable

import pytest
from hotbay.errors import CapacityError, HostError, PluginFault
from hotbay_sdk.protocol import CallReceived, CancelReceived, DataReceived, FrameType, Method, encode_frame
from hotbay_sdk.protocol.streams import STREAM_CREDIT_BYTES

pytestmark = pytest.mark.process

MANY = 64 * 1024 * 1024
SOURCE = """
    from hotbay_sdk import Plugin, Scorer

    plugin = Plugin("served")

    @plugin.type("keeper", state_versions=%s, parameters=lambda raw: raw)
    class Keeper(Scorer):
        def __init__(self, context, parameters):
            self.kept = parameters.get("kept", "").encode() * parameters.get("times", 1)
            self.fail = parameters.get("fail", "")

        def score(self, request, endpoint):
            return len(self.kept) / 2 ** 24

        def export_state(self, version):
            if self.fail == "export":
                raise ValueError("no")
            yield b"%%d:" %% version
            for start in range(0, len(self.kept), 300_000):
                yield self.kept[start:start + 300_000]

        def import_state(self, version, pieces):
            self.kept = b"spoilt"
            found = b"".join(pieces)
            if self.fail == "import":
                raise ValueError("no")
            self.kept = found.removeprefix(b"%%d:" %% version)

    @plugin.type("plain")
    class Plain(Scorer):
        def score(self, request, endpoint):
            return 1.0
"""
ONE, TWO, OTHER = SOURCE % "[1]", SOURCE % "[1, 2]", SOURCE % "[9]"


def kept(outcome: object) -> int:
    """Bytes that a keeper holds, by its score."""
    assert isinstance(outcome, list), outcome
    return round(memoryview(outcome[1]).cast("f")[0] * 2**24)


async def exported(start: Callable, source: str, refs: list, **options: object) -> bytes:
    old = await start(source).start()
    await old.configure(refs)
    return await old.client.export_state(budget_bytes=MANY, deadline_s=30.0, **options)


def test_state_moves_to_the_next_generation_and_is_whole(with_process: Callable) -> None:
    async def body(start: Callable) -> None:
        times = 700_000
        state = await exported(
            start, ONE, [(1, "k", "keeper", {"kept": "abcd", "times": times}), (2, "p", "plain", {})]
        )
        assert len(state) > 4 * times
        new = await start(TWO, generation=2).start(state)
        answer = await new.configure([(1, "k", "keeper", {}), (2, "other", "keeper", {}), (3, "p", "plain", {})])
        assert answer["errors"] == []
        assert answer["state"] == {"1": "imported", "2": "cold: the predecessor left none for it"}
        assert kept(await new.score()) == 4 * times
        assert kept(await new.score(number=2)) == 0

    with_process(body)


def test_versions_that_the_successor_knows_decide(with_process: Callable) -> None:
    async def body(start: Callable) -> None:
        old = await start(TWO).start()
        await old.configure([(1, "k", "keeper", {"kept": "x"})])
        assert old.types["keeper"].state_versions == (1, 2)
        for versions, begins in ((None, b"2:x"), ({"keeper": [1]}, b"1:x"), ({"keeper": [7]}, None)):
            state = await old.client.export_state(budget_bytes=MANY, deadline_s=30.0, versions=versions)
            assert (begins is None) is (state == b"")
            assert begins is None or begins[:2] in state

    with_process(body)


@pytest.mark.parametrize(
    ("source", "parameters", "outcome"),
    [
        (OTHER, {}, "cold: the predecessor's is of version 1"),
        (TWO, {"fail": "import"}, "cold: import_state raised ValueError: no"),
    ],
)
def test_state_that_is_not_taken_is_a_cold_start_of_a_sound_instance(
    with_process: Callable, source: str, parameters: dict, outcome: str
) -> None:
    async def body(start: Callable) -> None:
        state = await exported(start, ONE, [(1, "k", "keeper", {"kept": "abcd"})])
        new = await start(source, generation=2).start(state)
        answer = await new.configure([(1, "k", "keeper", parameters)])
        assert (answer["errors"], answer["state"]) == ([], {"1": outcome})
        assert kept(await new.score()) == 0

    with_process(body)


def test_export_that_raises_leaves_the_other_refs_state_and_the_process_well(with_process: Callable) -> None:
    async def body(start: Callable) -> None:
        refs = [(1, "bad", "keeper", {"kept": "abc", "fail": "export"}), (2, "k", "keeper", {"kept": "abcd"})]
        state = await exported(start, ONE, refs)
        new = await start(ONE, generation=2).start(state)
        answer = await new.configure(refs)
        assert answer["state"] == {"1": "cold: the predecessor's export broke off", "2": "imported"}
        assert kept(await new.score(number=2)) == 4

    with_process(body)


def test_unreadable_state_is_refused_and_the_process_starts_all_the_same(with_process: Callable) -> None:
    async def body(start: Callable) -> None:
        new = start(ONE, generation=2)
        with pytest.raises(PluginFault, match="the state cannot be read"):
            await new.start(b"\0\0\0\7nonsense")
        await new.start()
        assert "state" not in await new.configure([(1, "k", "keeper", {})])

    with_process(body)


def test_hot_calls_go_on_during_an_export(with_process: Callable) -> None:
    async def body(start: Callable) -> None:
        old = await start(ONE).start()
        await old.configure([(1, "k", "keeper", {"kept": "x" * 16, "times": 1_000_000})])
        export = asyncio.get_running_loop().create_task(old.client.export_state(budget_bytes=MANY, deadline_s=30.0))
        calls = 0
        while not export.done():
            assert kept(await old.score()) == 16_000_000
            calls += 1
        assert len(await export) > 16_000_000
        assert calls > 3

    with_process(body)


@pytest.mark.parametrize(("budget", "fits"), [(1_001_000, True), (1_000_000, False)])
def test_export_stays_within_its_budget(with_process: Callable, budget: int, fits: bool) -> None:
    async def body(start: Callable) -> None:
        old = await start(ONE).start()
        await old.configure([(1, "k", "keeper", {"kept": "x", "times": 999_900})])
        export = old.client.export_state(budget_bytes=budget, deadline_s=30.0)
        if fits:
            await export
        else:
            with pytest.raises(CapacityError, match="budget") as refused:
                await export
            assert refused.value.code == "RESOURCE_EXHAUSTED"
        assert kept(await old.score()) == 999_900
        assert old.lost == []

    with_process(body)


def test_plugin_that_sends_more_than_the_budget_is_cut_off_at_once(with_peer: Callable) -> None:
    async def body(peer) -> None:
        export = asyncio.get_running_loop().create_task(peer.client.export_state(budget_bytes=100, deadline_s=30.0))
        [call] = await peer.read_control()
        assert (call.meta.method, call.args) == (Method.EXPORT_STATE, [100, None])
        peer.write_control(peer.control.data.send(call.stream, b"x" * 101))
        with pytest.raises(CapacityError, match="budget"):
            await export
        events = await peer.read_control()
        assert any(isinstance(event, CancelReceived) for event in events)
        # What is still under way when the cancel arrives is dropped, and its credit given back.
        for _ in range(20):
            data = peer.control.data.send(call.stream, b"x" * peer.control.data.room(call.stream))
            peer.write_control(data)
            await asyncio.sleep(0)
            if not peer.control.data.room(call.stream):
                break
        assert peer.lost == []

    with_peer(body)


def test_state_whose_end_never_comes_is_not_taken_for_whole(with_peer: Callable) -> None:
    async def body(peer) -> None:
        export = asyncio.get_running_loop().create_task(peer.client.export_state(budget_bytes=100, deadline_s=30.0))
        [call] = await peer.read_control()
        peer.write_control(peer.control.data.send(call.stream, b"x") + peer.control.send_reply(call.stream, {}))
        with pytest.raises(PluginFault, match="broke its state off"):
            await export

    with_peer(body)


def test_no_more_state_is_sent_than_the_plugin_gives_credit_for_and_calls_overtake_it(with_peer: Callable) -> None:
    async def body(peer) -> None:
        size = 5 * STREAM_CREDIT_BYTES
        loop = asyncio.get_running_loop()
        sending = loop.create_task(peer.client.send_state(b"s" * size, 30.0))
        received, stream = 0, 0
        while received < STREAM_CREDIT_BYTES:
            for event in await peer.read_control():
                if isinstance(event, CallReceived):
                    stream = event.stream
                elif isinstance(event, DataReceived):
                    received += len(event.data)
        assert received == STREAM_CREDIT_BYTES
        other = loop.create_task(peer.client.control_call(Method.CHECK_READY, [], deadline_s=30.0))
        [overtaking] = await peer.read_control()
        assert overtaking.meta.method == Method.CHECK_READY
        peer.write_control(peer.control.send_reply(overtaking.stream, 1))
        assert await other == 1
        peer.write_control(peer.control.data.consumed(stream, received))
        while received < size:
            for event in await peer.read_control():
                if isinstance(event, DataReceived):
                    received += len(event.data)
                    peer.write_control(peer.control.data.consumed(stream, len(event.data)))
        peer.write_control(peer.control.send_reply(stream, None))
        await sending

    with_peer(body)


def test_process_that_ends_in_the_middle_fails_the_hand_over(with_process: Callable) -> None:
    async def body(start: Callable) -> None:
        old = await start(ONE).start()
        await old.configure([(1, "k", "keeper", {"kept": "x" * 16, "times": 1_000_000})])
        export = asyncio.get_running_loop().create_task(old.client.export_state(budget_bytes=MANY, deadline_s=30.0))
        await asyncio.sleep(0)
        old.process.kill()
        await old.gone()
        old.client.close(old.lost[0])
        with pytest.raises(HostError) as fault:
            await export
        assert fault.value.code == "CRASHED"

    with_process(body)


def test_credit_for_nothing_is_counted_as_a_flood(with_peer: Callable) -> None:
    async def body(peer) -> None:
        credit = encode_frame(FrameType.CREDIT, 0, b"\1")
        loop = asyncio.get_running_loop()
        while not peer.lost:
            await loop.run_in_executor(None, peer.write_control, credit * 1000)
        assert (await peer.gone()).code == "PROTOCOL_VIOLATION"

    with_peer(body)
