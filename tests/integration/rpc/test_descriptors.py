"""Descriptors on the control socket, and the memory behind them."""

import array
import asyncio
import ctypes
import errno
import fcntl
import mmap
import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from hotbay.rpc.memfd import OUTPUT_SEALS, SNAPSHOT_SEALS, SharedArea
from hotbay_sdk.protocol import (
    CallError,
    Connection,
    DescriptorsReceived,
    ErrorCode,
    ErrorReceived,
    FrameType,
    LocalProtocolError,
    Method,
    ReplyReceived,
    Role,
    ViolationFound,
    encode_frame,
)
from hotbay_sdk.protocol.frames import FLAG_DESCRIPTORS
from hotbay_sdk.protocol.values import Encoder

TIMEOUT_S = 5.0
MADV_REMOVE = 9
PUNCH_HOLE = 0x1 | 0x2
"""FALLOC_FL_PUNCH_HOLE, which keeps the size."""


async def receive(peer) -> tuple[bytes, list[int]]:
    """What the host wrote next, with descriptors."""
    loop = asyncio.get_running_loop()
    readable = loop.create_future()
    loop.add_reader(peer.channel.peer_control.fileno(), lambda: readable.done() or readable.set_result(None))
    await asyncio.wait_for(readable, TIMEOUT_S)
    loop.remove_reader(peer.channel.peer_control.fileno())
    data, descriptors, _, _ = socket.recv_fds(peer.channel.peer_control, 1 << 20, 8)
    return data, descriptors


@pytest.fixture
def area():
    made = SharedArea.snapshot("snapshot", 4096)
    yield made
    made.close()


def test_answer_carries_descriptors_with_its_first_byte_and_closes_the_hosts(with_peer: Callable) -> None:
    pipe_in, pipe_out = os.pipe()

    async def body(peer) -> None:
        peer.write_control(peer.control.start_call(Method.DIAL, ["h", 1], deadline_us=10**6)[1])
        data, descriptors = await receive(peer)
        peer.control.take_descriptors(tuple(descriptors))
        events = peer.control.feed(data)
        assert events == [DescriptorsReceived(2, tuple(descriptors)), ReplyReceived(2, "yours")]
        os.write(descriptors[0], b"x")
        assert os.read(pipe_in, 1) == b"x"
        os.close(descriptors[0])
        # End of file: the host's own is closed.
        assert os.read(pipe_in, 1) == b""
        os.close(pipe_in)

    with_peer(body, on_host_call=lambda call: call.reply("yours", [pipe_out]))


@pytest.mark.parametrize("value", [object(), CallError(ErrorCode.UNAVAILABLE, "none to give")], ids=["value", "error"])
def test_descriptors_of_an_answer_that_cannot_cross_are_closed(with_peer: Callable, value: object) -> None:
    pipe_in, pipe_out = os.pipe()

    async def body(peer) -> None:
        peer.write_control(peer.control.start_call(Method.DIAL, ["h", 1], deadline_us=10**6)[1])
        data, descriptors = await receive(peer)
        assert descriptors == []
        assert [type(event) for event in peer.control.feed(data)] == [ErrorReceived]
        # End of file: the host's own is closed.
        os.set_blocking(pipe_in, False)
        assert os.read(pipe_in, 1) == b""
        os.close(pipe_in)

    with_peer(body, on_host_call=lambda call: call.reply(value, [pipe_out]))


def test_descriptors_behind_a_full_socket_arrive_with_their_frame(with_peer: Callable, held) -> None:
    pipe_in, pipe_out = os.pipe()

    async def body(peer) -> None:
        peer.channel.control.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        for _ in range(2):
            peer.write_control(peer.control.start_call(Method.ENDPOINTS, [], deadline_us=10**6)[1])
        calls = await held.until(2)
        calls[0].reply("x" * 500_000)
        calls[1].reply("last", [pipe_out])
        events: list = []
        while len(events) < 3:
            data, descriptors = await receive(peer)
            if descriptors:
                peer.control.take_descriptors(tuple(descriptors))
            events += peer.control.feed(data)
        assert [type(event) for event in events] == [ReplyReceived, DescriptorsReceived, ReplyReceived]
        assert events[2].result == "last"
        os.close(events[1].descriptors[0])
        os.close(pipe_in)

    with_peer(body, on_host_call=held.take)


def test_descriptors_that_were_not_sent_are_closed_with_the_link(with_peer: Callable, held) -> None:
    pipe_in, pipe_out = os.pipe()

    async def body(peer) -> None:
        for _ in range(2):
            peer.write_control(peer.control.start_call(Method.ENDPOINTS, [], deadline_us=10**6)[1])
        calls = await held.until(2)
        calls[0].reply("x" * 5_000_000)
        calls[1].reply("last", [pipe_out])

    with_peer(body, on_host_call=held.take)
    assert os.read(pipe_in, 1) == b""
    os.close(pipe_in)


@pytest.mark.parametrize("count", [1, 4, 40])
def test_descriptor_from_a_plugin_is_closed_and_a_violation(with_peer: Callable, count: int) -> None:
    async def body(peer) -> None:
        pipe_in, pipe_out = os.pipe()
        log = peer.control.send_log({})
        rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [pipe_out] * count))
        peer.channel.peer_control.sendmsg([log], [rights])
        os.close(pipe_out)
        fault = await peer.gone()
        assert fault.code == "PROTOCOL_VIOLATION"
        assert "passed descriptors" in fault.message
        # End of file: nobody holds the other end any more.
        assert os.read(pipe_in, 1) == b""
        os.close(pipe_in)

    with_peer(body)


def test_frame_flagged_for_descriptors_without_any_is_a_violation_at_both_ends() -> None:
    frame = encode_frame(FrameType.LOG, 0, Encoder().pack({}), FLAG_DESCRIPTORS)
    for role in Role:
        (found,) = Connection(role).feed(frame)
        assert isinstance(found, ViolationFound)
        assert "carries none" in found.message


def test_host_end_refuses_to_be_told_of_descriptors() -> None:
    with pytest.raises(LocalProtocolError):
        Connection(Role.HOST).take_descriptors((9,))


# -- memory ----------------------------------------------------------------------------------------


def test_snapshot_shows_what_the_host_writes_and_lets_nobody_else_write(area: SharedArea) -> None:
    reader = mmap.mmap(area.descriptor, 4096, prot=mmap.PROT_READ)
    area.memory[:5] = b"hello"
    assert reader[:5] == b"hello"
    for flags in (os.O_RDONLY, os.O_RDWR):
        # A plugin may open the file anew, with the rights of its owner.
        opened = os.open(f"/proc/self/fd/{area.descriptor}", flags)
        with pytest.raises(OSError, match=r"not permitted|Bad file descriptor"):
            os.write(opened, b"x")
        with pytest.raises(PermissionError):
            mmap.mmap(opened, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE)
        os.close(opened)
    reader.close()


def test_a_map_of_a_snapshot_is_never_made_writable_and_no_page_of_it_is_given_back(area: SharedArea) -> None:
    area.memory[:5] = b"hello"
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, *[ctypes.c_size_t] * 2, *[ctypes.c_int] * 2, ctypes.c_size_t]
    libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
    for flags in (os.O_RDONLY, os.O_RDWR):
        opened = os.open(f"/proc/self/fd/{area.descriptor}", flags)
        at = libc.mmap(None, 4096, mmap.PROT_READ, mmap.MAP_SHARED, opened, 0)
        assert libc.mprotect(at, 4096, mmap.PROT_READ | mmap.PROT_WRITE) == -1
        assert ctypes.get_errno() == errno.EACCES
        assert libc.madvise(at, 4096, MADV_REMOVE) == -1
        assert libc.fallocate(opened, PUNCH_HOLE, 0, 4096) == -1
        with pytest.raises(OSError, match=r"not permitted|Bad file descriptor"):
            os.posix_fallocate(opened, 0, 8192)
        libc.munmap(at, 4096)
        os.close(opened)
    assert area.memory[:5] == b"hello"


@pytest.mark.parametrize(("make", "seals"), [(SharedArea.snapshot, SNAPSHOT_SEALS), (SharedArea.output, OUTPUT_SEALS)])
def test_size_and_seals_of_an_area_are_for_ever(make: Callable[[str, int], SharedArea], seals: int) -> None:
    area = make("area", 4096)
    opened = os.open(f"/proc/self/fd/{area.descriptor}", os.O_RDWR)
    assert fcntl.fcntl(opened, fcntl.F_GET_SEALS) == seals
    for size in (0, 8192):
        with pytest.raises(PermissionError):
            os.ftruncate(opened, size)
    with pytest.raises(PermissionError):
        fcntl.fcntl(opened, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE)
    os.close(opened)
    area.close()
    area.close()


def test_output_area_is_written_by_the_plugin() -> None:
    area = SharedArea.output("output", 4096)
    writer = mmap.mmap(area.descriptor, 4096)
    writer[:4] = b"done"
    assert bytes(area.memory[:4]) == b"done"
    writer.close()
    area.close()


def test_area_of_no_size_is_refused_and_leaves_no_descriptor() -> None:
    before = {entry.name for entry in Path("/proc/self/fd").iterdir()}
    with pytest.raises(ValueError, match="empty"):
        SharedArea.snapshot("nothing", 0)
    assert {entry.name for entry in Path("/proc/self/fd").iterdir()} == before
