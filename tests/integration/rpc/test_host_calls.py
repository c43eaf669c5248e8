"""What a plugin asks of its host: granted or not, nested, late, from many threads, from forked children."""

import asyncio
import os
import socket
import struct
import time
from collections.abc import Callable

import pytest
from hotbay.errors import HostError
from hotbay.rpc.host_calls import HostCall, HostCalls, HostServices
from hotbay.rpc.host_services import HostLender, MemoryStorage
from hotbay_sdk.protocol import Method
from hotbay_sdk.protocol.messages import HOST_CALL_BYTES

pytestmark = pytest.mark.process

GRANTS = {"storage", "metric"}

SOURCE = """
    import os, threading, time
    from hotbay_sdk import HostCallError, Plugin, PreRequest, Scorer

    plugin = Plugin("served")

    @plugin.type("asker", reads=["request.model"], parameters=lambda raw: raw)
    class Asker(Scorer):
        def __init__(self, context, parameters):
            self.context = context
            if "at_start" in parameters:
                context.storage_put("made", parameters["at_start"].encode())

        def score(self, request, endpoint):
            word, _, rest = request.model.partition(" ")
            return getattr(self, word)(rest)

        def put(self, rest):
            key, value = rest.split()
            self.context.storage_put(key, value.encode())
            return 1.0

        def get(self, rest):
            return float(self.context.storage_get(rest) or 0)

        def metric(self, rest):
            self.context.metric("things", 2.5, kind=rest)
            return 1.0

        def code(self, rest):
            word, *given = rest.split()
            try:
                getattr(self.context, word)(*given)
            except HostCallError as error:
                raise RuntimeError(f"code={error.code} {error.message}")
            return 1.0

        def dial(self, rest):
            host, port = rest.split()
            with self.context.dial(host, int(port)) as link:
                link.sendall(b"hello")
                return float(link.recv(10))

        def deeper(self, rest):
            # The host answers this by calling `deeper` again, so many times.
            depth = int(rest)
            return 0.0 if depth == 0 else float(self.context.storage_get(str(depth - 1)))

        def threads(self, rest):
            count, rounds, size = map(int, rest.split())
            failed = []
            def work(number):
                try:
                    for n in range(rounds):
                        value = bytes([number]) * size
                        self.context.storage_put(f"{number}", value)
                except BaseException as error:
                    failed.append(error)
            workers = [threading.Thread(target=work, args=(n,)) for n in range(count)]
            for worker in workers:
                worker.start()
            for worker in workers:
                worker.join()
            if failed:
                raise failed[0]
            return 1.0

        def late(self, rest):
            # Its caller's deadline passes meanwhile: what is written then comes too late.
            while not os.path.exists(rest):
                os.sched_yield()
            self.context.storage_put("late", b"1")
            return 1.0

        def fork(self, rest):
            import multiprocessing
            contexts.append(self.context)
            with multiprocessing.get_context("fork").Pool(3) as pool:
                found = pool.map(look, range(9))
            wrong = [text for text in found if text != "null null null UNAVAILABLE"]
            if wrong:
                raise RuntimeError(str(wrong))
            return 1.0

    contexts = []

    def look(number):
        links = [int(n) for n in open("links").read().split()]
        seen = []
        for fd in links:
            seen.append("null" if os.path.samefile(f"/proc/self/fd/{fd}", "/dev/null") else os.readlink(f"/proc/self/fd/{fd}"))
            os.write(fd, b"stray")
        try:
            contexts[0].storage_put("forked", b"1")
            seen.append("stored")
        except HostCallError as error:
            seen.append(error.code)
        return " ".join(seen)
"""


def score_of(outcome: object) -> float:
    assert isinstance(outcome, list), outcome
    assert outcome[2] == [], outcome[2]
    return struct.unpack("<f", outcome[1])[0]


def error_of(outcome: object) -> dict:
    assert isinstance(outcome, list), outcome
    [[_, _, error]] = outcome[2]
    return error


class Table:
    """A host's table over memory, and what it was told."""

    def __init__(self, grants: set[str] = GRANTS, **services: object) -> None:
        self.storage = MemoryStorage()
        self.counted: list[tuple[str, float, dict[str, str]]] = []
        self.calls = HostCalls(
            "served",
            "served#1",
            grants,
            HostServices(
                storage=self.storage,
                metric=lambda name, n, labels: self.counted.append((name, n, dict(labels))),
                **services,
            ),
            now=time.monotonic,
        )


async def asker(start: Callable, serve: Callable[[HostCall], None], **parameters: object):
    process = await start(SOURCE, on_host_call=serve).start()
    await process.configure([(1, "ref", "asker", parameters)])
    return process


def test_granted_calls_act_and_others_name_the_grant(with_process: Callable) -> None:
    async def body(start: Callable) -> None:
        table = Table()
        process = await asker(start, table.calls.serve, at_start="7")
        assert table.storage.get("made") == b"7"
        assert score_of(await process.score("put k 0.25")) == 1
        assert score_of(await process.score("get k")) == 0.25
        assert score_of(await process.score("metric a")) == 1
        assert table.counted == [("things", 2.5, {"kind": "a"})]
        refused = error_of(await process.score("code endpoints"))["message"]
        assert "code=UNAVAILABLE endpoints is not granted: `hotbay grant served endpoints metric storage`" in refused
        assert process.lost == []

    with_process(body)


def test_what_one_process_stored_the_next_one_of_the_same_plugin_finds(with_process: Callable) -> None:
    async def body(start: Callable) -> None:
        counted: list[tuple[str, str, float, dict[str, str]]] = []
        lender = HostLender(
            count=lambda *told: counted.append(told),
            endpoints=list,
            now=time.monotonic,
            wall=lambda: 1.5e9,
            entropy=os.urandom,
        )
        asked: list[str] = []
        grants = {"storage", "metric", "secret"}
        first = await asker(start, lender.serve("served", "served#1", grants, asked.append))
        assert score_of(await first.score("put k 0.25")) == 1
        assert score_of(await first.score("metric a")) == 1
        first.process.kill()
        await first.gone()
        second = await asker(start, lender.serve("served", "served#2", grants, asked.append))
        assert score_of(await second.score("get k")) == 0.25
        other = await asker(start, lender.serve("other", "other#3", grants, asked.append))
        assert score_of(await other.score("get k")) == 0.0
        # What nobody grants, and what everybody has.
        refused = error_of(await other.score("code recycle x"))["message"]
        assert "`hotbay grant other metric recycle secret storage`" in refused
        assert score_of(await other.score("code now")) == 1
        assert "among its parameters" in error_of(await other.score("code secret token"))["message"]
        assert counted == [("served", "things", 2.5, {"kind": "a"})]
        assert asked == []

    with_process(body)


def test_calls_that_are_not_granted_are_asked_once_and_no_flood(with_process: Callable) -> None:
    async def body(start: Callable) -> None:
        asked: list[int] = []
        table = Table(set())

        def serve(call: HostCall) -> None:
            asked.append(call.method)
            table.calls.serve(call)

        process = await asker(start, serve)
        for _ in range(2000):
            error_of(await process.score("code endpoints"))
        assert asked == [Method.ENDPOINTS]
        assert process.lost == []

    with_process(body)


def test_dialled_socket_reaches_the_plugin_and_is_closed_here(with_process: Callable) -> None:
    async def body(start: Callable) -> None:
        ours, theirs = socket.socketpair()
        theirs_fd = theirs.detach()

        def dial(host: str, port: int, call: HostCall) -> None:
            assert (host, port) == ("db.example", 5432)
            call.reply(None, [theirs_fd])

        table = Table({"dial"}, dial=dial)
        process = await asker(start, table.calls.serve)
        _, future = process.begin_score("dial db.example 5432")
        ours.setblocking(False)
        loop = asyncio.get_running_loop()
        assert await asyncio.wait_for(loop.sock_recv(ours, 10), 10) == b"hello"
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(theirs_fd)
        await loop.sock_sendall(ours, b"0.5")
        assert score_of(await future) == 0.5
        # The plugin's end was the only one left, and its `with` closed it.
        assert await asyncio.wait_for(loop.sock_recv(ours, 10), 10) == b""
        ours.close()

    with_process(body)


def nesting(process_of: Callable[[], object]) -> Callable[[HostCall], None]:
    """Answers `storage_get(n)` with what the plugin answers to `deeper n`, called as a child of the host call."""

    def serve(call: HostCall) -> None:
        process = process_of()
        _, future = process.begin_score(f"deeper {call.args[0]}", parent=call.stream, deadline_s=0.9)

        def answered(done: asyncio.Future) -> None:
            outcome = done.result()
            if isinstance(outcome, HostError):
                call.fail(outcome)
            elif outcome[2]:
                # The innermost reason alone: a message of a hot reply is cut to 200 characters.
                call.fail(HostError("PLUGIN_ERROR", str(outcome[2][0][2]["message"]).rpartition("_ERROR: ")[2]))
            else:
                call.reply(str(score_of(outcome) + 0.01).encode())

        future.add_done_callback(answered)

    return serve


@pytest.mark.parametrize("concurrency", [1, 2])
def test_r08_nested_calls_are_served_while_their_handler_waits(with_process: Callable, concurrency: int) -> None:
    async def body(start: Callable) -> None:
        source = SOURCE.replace('plugin.type("asker"', f'plugin.type("asker", concurrency={concurrency}')
        made: list = []
        made.append(await start(source, on_host_call=nesting(lambda: made[0])).start())
        process = made[0]
        await process.configure([(1, "ref", "asker", {})])
        begun = time.monotonic()
        assert score_of(await process.score("deeper 5")) == pytest.approx(0.05)
        assert time.monotonic() - begun < 5 * 1.0
        assert score_of(await process.score("deeper 20")) == pytest.approx(0.2)
        message = error_of(await process.score("deeper 100"))["message"]
        assert message.endswith("REENTRANCY_LIMIT: served#1: 20 nested calls stand on this thread")
        assert score_of(await process.score("deeper 0")) == 0
        assert process.lost == []

    with_process(body)


def test_call_that_is_no_child_waits_until_the_handler_is_done(with_process: Callable, held) -> None:
    async def body(start: Callable) -> None:
        process = await asker(start, held.take)
        _, first = process.begin_score("get x")
        await held.until(1)
        _, second = process.begin_score("deeper 0")
        held.calls[0].reply(b"0.5")
        done, _ = await asyncio.wait({first, second}, return_when=asyncio.FIRST_COMPLETED, timeout=10)
        assert first in done
        assert score_of(await second) == 0

    with_process(body)


def test_cancelling_a_call_cancels_what_it_asks_its_host(with_process: Callable, held) -> None:
    async def body(start: Callable) -> None:
        process = await asker(start, held.take)
        stream, future = process.begin_score("get x")
        [call] = await held.until(1)
        assert call.parent == stream
        process.client.cancel(stream)
        outcome = await asyncio.wait_for(future, 10)
        assert outcome.code == "CANCELLED"
        # The cancels of the two links are not ordered; the next call of the same link is.
        _, future = process.begin_score("get y")
        await held.until(2)
        assert call.cancelled
        # The handler answers all the same, later: it is dropped.
        call.reply(b"1")
        held.calls[1].reply(b"0.5")
        assert score_of(await future) == 0.5

    with_process(body)


def test_r24_what_a_late_call_still_writes_is_refused_by_both_ends(with_process: Callable, tmp_path) -> None:
    async def body(start: Callable) -> None:
        table = Table()
        process = await asker(start, table.calls.serve)
        gate = tmp_path / "gate"
        freed = asyncio.Event()
        _, future = process.begin_score(f"late {gate}", deadline_s=0.1, freed=freed.set)
        outcome = await asyncio.wait_for(future, 10)
        assert outcome.code == "DEADLINE_EXCEEDED"
        gate.touch()
        await asyncio.wait_for(freed.wait(), 10)
        assert table.storage.get("late") is None
        assert process.client.late_answers == 1
        assert process.client.outstanding == 0

    with_process(body)


def test_r24_host_refuses_and_counts_a_call_whose_parent_is_over(with_peer: Callable, held) -> None:
    async def body(peer) -> None:
        for parent, code in ((1, "CANCELLED"), (77, "CANCELLED")):
            _, data = peer.control.start_call(Method.STORAGE_PUT, ["k", b"v"], deadline_us=10**6, parent=parent)
            peer.write_control(data)
            [answer] = await peer.read_control()
            assert answer.error.code == code
        assert (held.calls, peer.client.late_host_calls) == ([], 2)

    with_peer(body, on_host_call=held.take)


@pytest.mark.parametrize("rounds", [40, pytest.param(1000, marks=[pytest.mark.slow, pytest.mark.timeout(300)])])
def test_r21_frames_of_many_threads_never_interleave(with_process: Callable, rounds: int) -> None:
    """16 threads, messages of 100 KiB; 1000 of them each in the slow lane, and 40 in the default one for its time."""

    async def body(start: Callable) -> None:
        counts: dict[int, int] = {}

        def serve(call: HostCall) -> None:
            key, value = call.args
            assert isinstance(value, bytes)
            assert value == bytes([int(key)]) * 100 * 1024
            counts[int(key)] = counts.get(int(key), 0) + 1
            call.reply(None)

        process = await asker(start, serve)
        _, future = process.begin_score(f"threads 16 {rounds} {100 * 1024}", deadline_s=240)
        assert score_of(await future) == 1
        assert counts == dict.fromkeys(range(16), rounds)
        assert process.lost == []

    with_process(body)


def test_r23_forked_children_have_no_link_and_no_host(with_process: Callable) -> None:
    async def body(start: Callable) -> None:
        table = Table()
        process = start(SOURCE, on_host_call=table.calls.serve)
        inherited = process.process.args[-1].split("'served:plugin', *(")[1].split(")")[0]
        (process.log_path.parent / "links").write_text(inherited.replace(",", " "))
        await process.start()
        await process.configure([(1, "ref", "asker", {})])
        assert score_of(await process.score("fork")) == 1
        assert score_of(await process.score("put k 1")) == 1
        assert table.storage.get("forked") is None
        assert process.lost == []

    with_process(body)


def test_one_host_call_more_than_are_served_at_a_time_is_refused_at_once(with_peer: Callable, held) -> None:
    async def body(peer) -> None:
        for _ in range(65):
            peer.write_control(peer.control.start_call(Method.NOW, [], deadline_us=10**6)[1])
        [answer] = await peer.read_control()
        assert (answer.stream, answer.error.code) == (130, "RESOURCE_EXHAUSTED")
        assert len(held.calls) == 64
        held.calls[0].reply(1.5)
        [reply] = await peer.read_control()
        assert (reply.stream, reply.result) == (2, 1.5)
        peer.write_control(peer.control.start_call(Method.NOW, [], deadline_us=10**6)[1])
        await held.until(65)

    with_peer(body, on_host_call=held.take)


@pytest.mark.parametrize("size", [HOST_CALL_BYTES - 100, HOST_CALL_BYTES])
def test_longest_host_call_is_served_and_a_longer_one_answered(with_peer: Callable, held, size: int) -> None:
    async def body(peer) -> None:
        frame = peer.control.start_call(Method.STORAGE_PUT, ["k", b"v" * size], deadline_us=10**6)[1]
        await asyncio.get_running_loop().sock_sendall(peer.channel.peer_control, frame)
        if size < HOST_CALL_BYTES:
            await held.until(1)
        else:
            [answer] = await peer.read_control()
            assert answer.error.code == "FRAME_TOO_LARGE"
            assert peer.lost == []

    with_peer(body, on_host_call=held.take)
