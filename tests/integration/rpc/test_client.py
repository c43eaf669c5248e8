"""The client against a peer that breaks the rules: field failures R01, R05, R06, R10, R11, R15 on real pipes."""

import asyncio
import resource
import struct
from collections.abc import Callable

import pytest
from hotbay.errors import CapacityError, HostError, PluginFault
from hotbay.rpc.wire import MAX_QUEUED_BYTES
from hotbay_sdk.protocol import CallError as WireError
from hotbay_sdk.protocol import CallReceived, CancelReceived, ErrorCode, Method

TIMEOUT_S = 5.0
LONG_S = 60.0


class Box:
    """Collects the outcome of calls; `full` is set when `count` have one."""

    def __init__(self, count: int = 1) -> None:
        self.outcomes: list[object] = []
        self.freed = 0
        self.full = asyncio.Event()
        self._count = count

    def done(self, outcome: object) -> None:
        self.outcomes.append(outcome)
        if len(self.outcomes) == self._count:
            self.full.set()

    def free(self) -> None:
        self.freed += 1

    async def wait(self) -> list[object]:
        await asyncio.wait_for(self.full.wait(), TIMEOUT_S)
        return self.outcomes


def call(peer, box: Box, *, deadline_s: float = LONG_S, args: tuple[object, ...] = ()) -> None:
    peer.client.start_call(Method.RUN, args, deadline_s=deadline_s, done=box.done, freed=box.free)


def is_refused(peer, box: Box, **kwargs: object) -> bool:
    """Make a call; true when it was refused for want of room."""
    try:
        call(peer, box, **kwargs)
    except CapacityError as error:
        return error.code == "RESOURCE_EXHAUSTED"
    return False


def received(peer) -> list[CallReceived]:
    return [event for event in peer.read() if isinstance(event, CallReceived)]


def test_call_is_answered_with_its_own_result(with_peer: Callable) -> None:
    async def body(peer) -> None:
        boxes = [Box(), Box()]
        for box in boxes:
            call(peer, box)
        first, second = received(peer)
        peer.write(peer.connection.send_reply(second.stream, "second"))
        peer.write(peer.connection.send_reply(first.stream, "first"))
        assert [await box.wait() for box in boxes] == [["first"], ["second"]]
        assert [box.freed for box in boxes] == [1, 1]
        assert peer.client.outstanding == 0

    with_peer(body)


def test_error_answer_becomes_a_plugin_fault_with_its_fields(with_peer: Callable) -> None:
    async def body(peer) -> None:
        box = Box()
        call(peer, box)
        [event] = received(peer)
        peer.write(peer.connection.send_error(event.stream, WireError(ErrorCode.PLUGIN_ERROR, "ValueError: no")))
        [fault] = await box.wait()
        assert isinstance(fault, PluginFault)
        assert (fault.code, fault.details["executed"]) == ("PLUGIN_ERROR", "maybe")
        assert "ValueError: no" in fault.message

    with_peer(body)


def test_r01_huge_length_closes_the_link_at_once_and_holds_nothing(with_peer: Callable) -> None:
    async def body(peer) -> None:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        peer.write(struct.pack(">BBBBII", 0xF5, 7, 0, 1, 1, 0xFFFFFFFF) + b"0123456789")
        fault = await peer.gone()
        assert fault.code == "FRAME_TOO_LARGE"
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 1024

    with_peer(body)


@pytest.mark.parametrize("garbage", [b"Hello, world!", b"\xdc", b"\xc1"])
def test_r06_garbage_between_frames_is_a_violation_and_the_answer_before_it_counts(
    with_peer: Callable, garbage: bytes
) -> None:
    async def body(peer) -> None:
        boxes = [Box(), Box()]
        for box in boxes:
            call(peer, box)
        first, _ = received(peer)
        peer.write(peer.connection.send_reply(first.stream, 1) + garbage)
        fault = await peer.gone()
        assert fault.code == "PROTOCOL_VIOLATION"
        assert await boxes[0].wait() == [1]
        peer.client.close(fault)
        assert await boxes[1].wait() == [fault]

    with_peer(body)


def test_r05_half_a_frame_and_the_end_of_the_link_fail_the_caller(with_peer: Callable) -> None:
    async def body(peer) -> None:
        box = Box()
        call(peer, box)
        [event] = received(peer)
        peer.write(peer.connection.send_reply(event.stream, "x" * 100)[:50])
        peer.channel.hang_up()
        fault = await peer.gone()
        assert fault.code == "CRASHED"
        peer.client.close(fault)
        assert await box.wait() == [fault]

    with_peer(body)


def test_answers_written_before_the_end_are_taken(with_peer: Callable) -> None:
    async def body(peer) -> None:
        boxes = [Box() for _ in range(50)]
        for box in boxes:
            call(peer, box)
        for event in received(peer):
            peer.write(peer.connection.send_reply(event.stream, event.stream))
        peer.channel.hang_up()
        peer.client.close(PluginFault("CRASHED", "exit 0"))
        assert [box.outcomes for box in boxes] == [[2 * n + 1] for n in range(50)]

    with_peer(body)


def test_frame_that_begins_and_goes_silent_is_a_violation(with_peer: Callable) -> None:
    async def body(peer) -> None:
        peer.write(b"\xf5\x07")
        fault = await peer.gone()
        assert fault.code == "PROTOCOL_VIOLATION"
        assert "silent" in fault.message

    with_peer(body)


def test_r10_late_answer_never_answers_a_newer_call(with_peer: Callable) -> None:
    async def body(peer) -> None:
        late, fresh = Box(), Box()
        call(peer, late, deadline_s=0.05)
        [first] = received(peer)
        [fault] = await late.wait()
        assert isinstance(fault, PluginFault)
        assert fault.code == "DEADLINE_EXCEEDED"
        assert late.freed == 0
        call(peer, fresh)
        cancel, second = peer.read()
        assert isinstance(cancel, CancelReceived)
        assert second.stream != first.stream
        peer.write(peer.connection.send_reply(first.stream, "late"))
        peer.write(peer.connection.send_reply(second.stream, "fresh"))
        assert await fresh.wait() == ["fresh"]
        assert (late.outcomes, late.freed, peer.client.late_answers) == ([fault], 1, 1)

    with_peer(body)


def test_r11_calls_that_are_never_answered_are_bounded_and_the_rest_refused(with_peer: Callable) -> None:
    async def body(peer) -> None:
        box = Box(count=1024)
        refused = 0
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for _ in range(100_000):
            refused += is_refused(peer, box, deadline_s=0.01)
        assert refused == 100_000 - 1024
        outcomes = await box.wait()
        assert {o.code for o in outcomes if isinstance(o, HostError)} == {"DEADLINE_EXCEEDED"}
        assert peer.client.outstanding == 1024
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 10 * 1024
        peer.client.close(PluginFault("CRASHED", "replaced"))
        assert peer.client.outstanding == 0

    with_peer(body)


def test_r15_plugin_that_does_not_read_fills_a_bounded_queue_and_works_again(with_peer: Callable) -> None:
    """10,000 calls of 4 KiB are 40 MiB; the outstanding limit refuses first, so the queue is filled by larger calls."""

    async def body(peer) -> None:
        payload = b"x" * 64 * 1024
        box = Box()
        refused = sum(is_refused(peer, box, args=(payload,)) for _ in range(10_000))
        accepted = 10_000 - refused
        pipe_bytes = 64 * 1024
        assert accepted * len(payload) <= MAX_QUEUED_BYTES + pipe_bytes + len(payload)
        assert refused > 0
        assert peer.client.outstanding == accepted, "what was refused is not waited for"
        # The peer reads again: everything that was accepted arrives whole, and calls work.
        streams: list[int] = []
        while len(streams) < accepted:
            streams += [event.stream for event in received(peer)]
            await asyncio.sleep(0)
        after = Box()
        call(peer, after)
        [event] = received(peer)
        peer.write(peer.connection.send_reply(event.stream, "works"))
        assert await after.wait() == ["works"]

    with_peer(body)


def test_host_calls_are_refused_not_ignored(with_peer: Callable) -> None:
    async def body(peer) -> None:
        _, data = peer.control.start_call(Method.NOW, [], deadline_us=1000)
        peer.write_control(data)
        [event] = await peer.read_control()
        assert event.error.code == ErrorCode.UNAVAILABLE

    with_peer(body)


def test_host_calls_on_the_call_link_are_refused(with_peer: Callable) -> None:
    async def body(peer) -> None:
        _, data = peer.connection.start_call(Method.NOW, [], deadline_us=1000)
        peer.write(data)
        loop = asyncio.get_running_loop()
        readable = loop.create_future()
        loop.add_reader(peer.channel.peer_call_in, lambda: readable.done() or readable.set_result(None))
        await asyncio.wait_for(readable, TIMEOUT_S)
        loop.remove_reader(peer.channel.peer_call_in)
        [event] = peer.read()
        assert event.error.code == ErrorCode.PROTOCOL_VIOLATION

    with_peer(body)


def test_closed_client_leaves_no_descriptor_on_the_loop(with_peer: Callable) -> None:
    async def body(peer) -> None:
        peer.client.close(PluginFault("CRASHED", "gone"))
        peer.client.close(PluginFault("CRASHED", "again"))
        loop = asyncio.get_running_loop()
        assert not loop.remove_reader(peer.channel.call_in_fd)
        assert not loop.remove_reader(peer.channel.control.fileno())
        box = Box()
        with pytest.raises(PluginFault, match="gone"):
            call(peer, box)

    with_peer(body)
