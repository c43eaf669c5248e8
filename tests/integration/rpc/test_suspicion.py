"""A process that hangs, hangs up, floods or asks to go: what the client makes of it, on real pipes and sockets."""

import asyncio
from collections.abc import Callable

import pytest
from hotbay.errors import CapacityError, PluginFault
from hotbay.rpc.liveness import Patience
from hotbay_sdk.protocol import CallReceived, CancelReceived, FrameType, Method, PingReceived

TIMEOUT_S = 5.0
LONG_S = 60.0
CALM = Patience(stuck_s=LONG_S, ping_interval_s=0.01, ping_s=LONG_S)
STRICT = Patience(stuck_s=0.02, ping_interval_s=0.01, ping_s=0.02)


class Outcomes:
    """What became of calls."""

    def __init__(self) -> None:
        self.told: list[object] = []
        self.freed = 0
        self.event = asyncio.Event()

    def done(self, outcome: object) -> None:
        self.told.append(outcome)
        self.event.set()

    def free(self) -> None:
        self.freed += 1

    async def wait(self) -> object:
        await asyncio.wait_for(self.event.wait(), TIMEOUT_S)
        return self.told[0]


def call(peer, outcomes: Outcomes, *, deadline_s: float = LONG_S) -> int:
    return peer.client.start_call(Method.RUN, [], deadline_s=deadline_s, done=outcomes.done, freed=outcomes.free)


async def ready(peer) -> None:
    peer.write_control(peer.control.send_handshake(FrameType.READY, {"types": [], "sdk": ""}))
    await peer.client.handshake(FrameType.READY)


async def ping(peer) -> PingReceived:
    [event] = await peer.read_control()
    assert isinstance(event, PingReceived)
    return event


def test_process_that_sits_on_a_call_past_the_grace_is_given_up(with_peer: Callable) -> None:
    async def body(peer) -> None:
        outcomes = Outcomes()
        call(peer, outcomes, deadline_s=0.01)
        fault = await peer.gone()
        assert (fault.code, "after its deadline" in fault.message) == ("DEADLINE_EXCEEDED", True)
        with pytest.raises(PluginFault):
            call(peer, Outcomes())
        peer.client.close(fault)
        assert (len(outcomes.told), outcomes.freed) == (1, 1)

    with_peer(body, STRICT)


def test_late_answer_within_the_grace_clears_the_suspicion(with_peer: Callable) -> None:
    async def body(peer) -> None:
        outcomes = Outcomes()
        stream = call(peer, outcomes, deadline_s=0.01)
        await outcomes.wait()
        peer.read()
        peer.write(peer.connection.send_reply(stream, None))
        second = Outcomes()
        call(peer, second, deadline_s=0.1)
        await second.wait()
        assert peer.lost == []
        assert outcomes.freed == 1

    with_peer(body, Patience(stuck_s=0.09))


def test_nobody_is_pinged_before_ready_and_a_silent_process_is_given_up(with_peer: Callable) -> None:
    async def body(peer) -> None:
        await ready(peer)
        assert (await ping(peer)).token == 1
        fault = await peer.gone()
        assert (fault.code, "no ping" in fault.message) == ("DEADLINE_EXCEEDED", True)

    with_peer(body, STRICT)


def test_pongs_keep_a_process_alive_and_tell_of_it(with_peer: Callable) -> None:
    async def body(peer) -> None:
        await ready(peer)
        for n in range(1, 6):
            token = (await ping(peer)).token
            assert token == n
            facts = {"rss_bytes": n, "cpu_ms": "many", "other": [1]}
            # One answer counts: a second of the same token does not put off the next ping.
            peer.write_control(peer.control.send_pong(token, facts) + peer.control.send_pong(token, {}))
        await ping(peer)
        assert dict(peer.client.figures) == {"rss_bytes": 5}
        assert peer.lost == []

    with_peer(body, CALM)


def test_patience_waits_for_calls_that_are_in_time_and_once_only(with_peer: Callable) -> None:
    async def body(peer) -> None:
        loop = asyncio.get_running_loop()
        await ready(peer)
        await ping(peer)
        begun = loop.time()
        outcomes = Outcomes()
        call(peer, outcomes, deadline_s=0.3)
        fault = await peer.gone()
        assert "no ping" in fault.message
        assert loop.time() - begun >= 0.3

    with_peer(body, Patience(stuck_s=LONG_S, ping_interval_s=0.01, ping_s=0.02))


def test_plugin_that_asks_to_be_recycled_is_heard_once_and_goes_on_answering(with_peer: Callable) -> None:
    async def body(peer) -> None:
        for n in range(3):
            peer.write_control(peer.control.send_goaway("LEAK", f"round {n}"))
        outcomes = Outcomes()
        stream = call(peer, outcomes)
        peer.read()
        peer.write(peer.connection.send_reply(stream, "still here"))
        assert await outcomes.wait() == "still here"
        await asyncio.sleep(0)
        assert peer.goaways == ["LEAK: round 0"]
        assert peer.lost == []

    with_peer(body)


def test_cancelled_call_ends_when_the_plugin_gave_it_up(with_peer: Callable) -> None:
    async def body(peer) -> None:
        outcomes = Outcomes()
        stream = call(peer, outcomes)
        peer.client.cancel(stream)
        peer.client.cancel(stream)
        events = peer.read()
        assert [type(e) for e in events] == [CallReceived, CancelReceived]
        assert outcomes.told == []
        peer.write(peer.connection.send_reply(stream, "too late"))
        fault = await outcomes.wait()
        assert isinstance(fault, PluginFault)
        assert (fault.code, outcomes.freed, len(outcomes.told)) == ("CANCELLED", 1, 1)
        assert peer.client.outstanding == 0

    with_peer(body)


def test_cancelled_wait_for_a_control_call_reaches_the_plugin(with_peer: Callable) -> None:
    async def body(peer) -> None:
        waiting = asyncio.get_running_loop().create_task(
            peer.client.control_call(Method.CONFIGURE, [{}], deadline_s=LONG_S)
        )
        [event] = await peer.read_control()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        [cancel] = await peer.read_control()
        assert isinstance(cancel, CancelReceived)
        assert cancel.stream == event.stream

    with_peer(body)


def test_plugin_that_floods_host_calls_and_reads_no_answer_is_given_up(with_peer: Callable) -> None:
    async def body(peer) -> None:
        loop = asyncio.get_running_loop()
        while not peer.lost:
            frames = []
            for _ in range(500):
                stream, frame = peer.control.start_call(Method.NOW, [], deadline_us=1000)
                peer.control.cancel(stream, "")
                frames.append(frame)
                peer.control._tombstones.clear()
            await loop.run_in_executor(None, peer.write_control, b"".join(frames))
        assert (await peer.gone()).code == "PROTOCOL_VIOLATION"

    with_peer(body)


def test_plugin_that_closes_the_pipe_it_reads_from_costs_one_turn_of_the_loop(with_peer: Callable) -> None:
    async def body(peer) -> None:
        loop = asyncio.get_running_loop()
        for _ in range(40):
            peer.client.start_call(Method.RUN, [b"x" * 65536], deadline_s=LONG_S, done=Outcomes().done)
        peer.channel.stop_reading()
        assert (await peer.gone()).code == "CRASHED"
        assert not loop.remove_writer(peer.channel.call_out_fd)

    with_peer(body)


def test_handshake_after_the_end_raises_instead_of_writing_to_a_stranger(with_peer: Callable) -> None:
    async def body(peer) -> None:
        peer.client.close(PluginFault("CRASHED", "exit 1"))
        with pytest.raises(PluginFault, match="exit 1"):
            peer.client.send_handshake(FrameType.GO, {})

    with_peer(body)


@pytest.mark.parametrize("value", [object(), 2**64, b"x" * (17 << 20)])
def test_arguments_that_cannot_cross_are_no_fault_of_the_plugin(with_peer: Callable, value: object) -> None:
    async def body(peer) -> None:
        with pytest.raises(CapacityError) as notified:
            peer.client.notify(Method.PRE_REQUEST, [value])
        with pytest.raises(CapacityError) as called:
            peer.client.start_call(Method.RUN, [value], deadline_s=1.0, done=Outcomes().done)
        assert notified.value.code == called.value.code == "FRAME_TOO_LARGE"
        assert peer.client.outstanding == 0

    with_peer(body)
