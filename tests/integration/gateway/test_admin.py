"""The admin socket between real clients and a host that a test writes."""

import asyncio
import os
import pwd
import re
import socket
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import anyio.to_thread
import orjson
import pytest
from hotbay.errors import CapacityError, InputError, Problem
from hotbay.gateway.admin import AdminLimits, AdminServer
from hotbay.gateway.admin_routes import ROUTES
from hotbay.gateway.admin_socket import bind_private, connect_private, peer_uid

pytestmark = pytest.mark.anyio

DEADLINE_S = 10.0


class Operations:
    """Notes what it is asked; `fail` is raised instead of an answer."""

    def __init__(self) -> None:
        self.calls: list[tuple[object, ...]] = []
        self.fail: Exception | None = None
        self.streams_ended = 0
        self.line = "line"
        self._more = anyio.Event()

    async def _note(self, *call: object) -> dict[str, object]:
        self.calls.append(call)
        if self.fail is not None:
            raise self.fail
        return {"called": call[0]}

    async def status(self):
        return await self._note("status")

    async def plan(self):
        return await self._note("plan")

    async def apply(self, who):
        return await self._note("apply", who)

    async def pin(self, plugin, *, rev=None, digest=None, who):
        return await self._note("pin", plugin, rev, digest, who)

    async def unpin(self, plugin, who):
        return await self._note("unpin", plugin, who)

    async def rollback(self, plugin, who):
        return await self._note("rollback", plugin, who)

    async def enable(self, plugin, who):
        return await self._note("enable", plugin, who)

    async def disable(self, plugin, who, *, force=False):
        return await self._note("disable", plugin, who, force)

    async def rollout(self, plugin, action, who):
        return await self._note("rollout", plugin, action, who)

    async def quarantine(self):
        return await self._note("quarantine")

    async def clear_quarantine(self, plugin_or_digest, who):
        return await self._note("clear_quarantine", plugin_or_digest, who)

    async def grant(self, plugin, capabilities, who):
        return await self._note("grant", plugin, tuple(capabilities), who)

    async def history(self, plugin):
        return await self._note("history", plugin)

    async def logs(self, plugin, lines):
        await self._note("logs", plugin, lines)
        return {"plugin": plugin, "lines": [{"line": "old 1"}, {"line": "old 2"}]}

    async def follow(self, plugin) -> AsyncIterator[dict[str, object]]:
        try:
            while True:
                yield {"line": self.line}
                await self._more.wait()
                self._more = anyio.Event()
        finally:
            self.streams_ended += 1

    def more(self) -> None:
        self._more.set()

    async def gc(self, *, dry_run=False):
        return await self._note("gc", dry_run)

    async def events(self) -> AsyncIterator[dict[str, object]]:
        try:
            yield {"event": "first"}
            if self.fail is not None:
                raise self.fail
            await anyio.sleep_forever()
        finally:
            self.streams_ended += 1

    async def lock(self):
        return await self._note("lock")

    async def endpoints(self):
        return await self._note("endpoints")

    async def cordon(self, ids, selector, who):
        return await self._note("cordon", ids, selector, who)

    async def uncordon(self, ids, selector, who):
        return await self._note("uncordon", ids, selector, who)

    async def weigh(self, ids, selector, weight, who):
        return await self._note("weigh", ids, selector, weight, who)

    async def explain(self, request_id):
        return await self._note("explain", request_id)

    async def latest(self, count):
        return await self._note("latest", count)

    async def dump(self, ref):
        return await self._note("dump", ref)


class Client:
    """Speaks HTTP over the socket, a request a connection."""

    def __init__(self, path: Path) -> None:
        self.path = path

    async def open(self):
        connection = await anyio.to_thread.run_sync(connect_private, self.path, DEADLINE_S)
        connection.setblocking(False)
        return await asyncio.open_unix_connection(sock=connection)

    async def send(self, method: str, target: str, body: object = None) -> tuple[int, dict]:
        data = b"" if body is None else orjson.dumps(body)
        head = f"{method} {target} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {len(data)}\r\n\r\n"
        return await self.raw(head.encode() + data)

    async def raw(self, data: bytes) -> tuple[int, dict]:
        async with asyncio.timeout(DEADLINE_S):
            reader, writer = await self.open()
            writer.write(data)
            answer = await reader.read()
            writer.close()
        head, _, body = answer.partition(b"\r\n\r\n")
        return int(head.split()[1]), orjson.loads(body)

    @asynccontextmanager
    async def stream(self, target: str):
        """Yields a function that reads the next line."""
        reader, writer = await self.open()
        writer.write(f"GET {target} HTTP/1.1\r\nhost: x\r\n\r\n".encode())
        async with asyncio.timeout(DEADLINE_S):
            assert b"application/x-ndjson" in await reader.readuntil(b"\r\n\r\n")

        async def line() -> dict | None:
            async with asyncio.timeout(DEADLINE_S):
                data = await reader.readline()
            return orjson.loads(data) if data else None

        try:
            yield line
        finally:
            writer.close()


@asynccontextmanager
async def serving(path, operations, limits=None, *, endpoints=None, inspection=None, is_frozen=lambda: False):
    admin = AdminServer(operations, limits, endpoints=endpoints, inspection=inspection, is_frozen=is_frozen)
    async with anyio.create_task_group() as group:
        await group.start(admin.run, path)
        try:
            yield Client(path)
        finally:
            group.cancel_scope.cancel()


@pytest.fixture
def operations():
    return Operations()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "admin.sock"


async def until(holds):
    with anyio.fail_after(DEADLINE_S):
        while not holds():
            await anyio.lowlevel.checkpoint()


async def test_every_route_reaches_its_operation(path, operations):
    body = {
        "pin": {"plugin": "p", "rev": 7},
        "rollout": {"plugin": "p", "action": "promote"},
        "clear_quarantine": {"target": "sha256:00"},
        "grant": {"plugin": "p", "capabilities": ["net"]},
        "disable": {"plugin": "p", "force": True},
        "gc": {"dry_run": True},
        "cordon": {"ids": ["a", "b"]},
        "uncordon": {"selector": "zone=a"},
        "weigh": {"ids": ["a"], "weight": "0.5"},
    }
    async with serving(path, operations, endpoints=operations, inspection=operations) as client:
        for route in ROUTES:
            if route.name in ("status_stream", "endpoints_stream", "events"):
                continue
            sent = None if route.method == "GET" else body.get(route.name, {"plugin": "p"} if route.arguments else {})
            status, page = await client.send(route.method, re.sub(r"\{.*\}", "p", route.path), sent)
            assert status == 200, page
    who = pwd.getpwuid(os.geteuid()).pw_name
    assert operations.calls == [
        ("status",),
        ("endpoints",),
        ("plan",),
        ("history", "p"),
        ("quarantine",),
        ("logs", "p", 200),
        ("lock",),
        ("latest", 1),
        ("explain", "p"),
        ("dump", None),
        ("dump", "p"),
        ("apply", who),
        ("pin", "p", 7, None, who),
        ("unpin", "p", who),
        ("rollback", "p", who),
        ("enable", "p", who),
        ("disable", "p", who, True),
        ("rollout", "p", "promote", who),
        ("clear_quarantine", "sha256:00", who),
        ("grant", "p", ("net",), who),
        ("cordon", ("a", "b"), None, who),
        ("uncordon", (), "zone=a", who),
        ("weigh", ("a",), None, "0.5", who),
        ("gc", True),
    ]


async def test_socket_is_for_its_user_alone_and_goes_with_the_server(path, operations):
    async with serving(path, operations):
        assert stat.S_IMODE(path.lstat().st_mode) == 0o600
    assert not path.exists()
    assert not list(path.parent.iterdir())


async def test_kernel_names_the_peer_and_others_are_refused(path, operations, monkeypatch):
    monkeypatch.setattr("hotbay.gateway.admin.peer_uid", lambda connection: peer_uid(connection) + 12345)
    async with serving(path, operations) as client:
        status, page = await client.send("POST", "/apply", {})
    assert (status, page["code"]) == (403, "FORBIDDEN")
    assert operations.calls == []


async def test_successor_takes_the_name_and_the_predecessor_leaves_it(path, operations):
    async with serving(path, operations):
        successor = Operations()
        async with anyio.create_task_group() as group:
            first = bind_private(path)
            await group.start(AdminServer(successor).run, path)
            first.close()
            assert (await Client(path).send("GET", "/status"))[0] == 200
            assert successor.calls == [("status",)]
            group.cancel_scope.cancel()
    assert operations.calls == []


async def test_long_path_is_no_obstacle(tmp_path, operations):
    folder = tmp_path / ("d" * 120)
    folder.mkdir()
    async with serving(folder / "admin.sock", operations) as client:
        assert (await client.send("GET", "/status"))[0] == 200


def test_something_else_at_the_path_is_not_replaced(path):
    path.write_text("mine")
    with pytest.raises(InputError, match="something else than a socket is there"):
        bind_private(path)
    assert path.read_text() == "mine"
    with pytest.raises(InputError, match=r"listen\.admin"):
        bind_private(path / "below" / "admin.sock")


def test_socket_of_a_dead_host_is_replaced(path):
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    bound = bind_private(path)
    connect_private(path, DEADLINE_S).close()
    bound.close()


async def test_error_is_told_with_its_hint(path, operations):
    operations.fail = InputError([Problem("UNKNOWN_PLUGIN", "no plugin 'q'", hint="did you mean 'p'?")])
    async with serving(path, operations) as client:
        status, page = await client.send("GET", "/history/q")
        assert (status, page["code"], page["hint"]) == (404, "UNKNOWN_PLUGIN", "did you mean 'p'?")
        operations.fail = CapacityError("RESOURCE_EXHAUSTED", "full", hint="free some")
        assert (await client.send("POST", "/gc", {}))[0] == 503


async def test_fault_of_our_own_ends_neither_server_nor_secret(path, operations, caplog):
    operations.fail = ValueError("secret")
    async with serving(path, operations) as client:
        status, page = await client.send("GET", "/plan")
        assert (status, page["code"]) == (500, "INTERNAL")
        assert "secret" not in str(page)
        operations.fail = None
        assert (await client.send("GET", "/plan"))[0] == 200
    assert "admin_failed" in caplog.text


async def test_wrong_bytes_are_refused(path, operations):
    async with serving(path, operations) as client:
        status, page = await client.raw(b"\x16\x03\x01 nonsense\r\n\r\n")
    assert (status, page["error"], page["code"]) == (400, "InputError", "BAD_REQUEST")
    assert "curl --unix-socket" in page["hint"]


@pytest.mark.parametrize(
    ("head", "status"),
    [(b"x: " + b"a" * 2000, 431), (b"content-length: 1001", 413), (b"transfer-encoding: gzip", 501)],
)
async def test_what_is_no_request_is_answered_in_the_shape_of_every_error(path, operations, head, status):
    limits = AdminLimits(header_bytes=1000, body_bytes=1000)
    async with serving(path, operations, limits) as client:
        found, page = await client.raw(b"POST /gc HTTP/1.1\r\nhost: x\r\n" + head + b"\r\n\r\n")
    assert (found, page["code"]) == (status, "BAD_REQUEST")
    assert page.keys() == {"error", "code", "message", "hint", "problems"}
    assert page["hint"]


@pytest.mark.parametrize(("size", "status"), [(1000, 200), (1001, 413)])
async def test_body_is_bounded_on_both_sides(path, operations, size, status):
    body = b"{" + b" " * (size - 2) + b"}"
    head = b"POST /gc HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: %d\r\n\r\n" % size
    async with serving(path, operations, AdminLimits(body_bytes=1000)) as client:
        assert (await client.raw(head + body))[0] == status


async def test_several_requests_on_one_connection(path, operations):
    async with serving(path, operations) as client:
        data = b"GET /status HTTP/1.1\r\nhost: x\r\n\r\n" * 2
        last = (
            b"GET /plan HTTP/1.1\r\nhost: x\r\nconnection: close\r\nexpect: 100-continue\r\ncontent-length: 2\r\n\r\n"
        )
        async with asyncio.timeout(DEADLINE_S):
            reader, writer = await client.open()
            writer.write(data + last)
            await reader.readuntil(b"100 Continue\r\n\r\n")
            writer.write(b"{}")
            rest = await reader.read()
            writer.close()
    assert rest.count(b'{"called":"plan"}') == 1
    assert operations.calls == [("status",), ("status",), ("plan",)]


async def test_connections_are_bounded(path, operations):
    async with serving(path, operations, AdminLimits(connections=1)) as client, client.stream("/events") as line:
        await line()
        status, page = await client.send("GET", "/status")
        assert (status, page["code"]) == (503, "UNAVAILABLE")


async def test_silent_client_is_let_go(path, operations):
    async with serving(path, operations, AdminLimits(read_s=0.05)) as client:
        reader, writer = await client.open()
        async with asyncio.timeout(DEADLINE_S):
            assert await reader.read() == b""
        writer.close()


async def test_status_comes_again_and_again(path, operations):
    async with serving(path, operations) as client, client.stream("/status/stream?interval_ms=100") as line:
        assert [await line() for _ in range(3)] == [{"called": "status"}] * 3


async def test_stream_that_cannot_begin_is_an_error_page(path, operations):
    operations.fail = InputError([Problem("UNKNOWN_PLUGIN", "no plugin 'q'")])
    async with serving(path, operations) as client:
        assert (await client.send("GET", "/logs/q?follow=true"))[0] == 404
        assert (await client.send("GET", "/status/stream"))[0] == 400 + 4


async def test_followed_lines_end_when_the_client_leaves(path, operations):
    async with serving(path, operations) as client:
        async with client.stream("/logs/p?lines=2&follow=true") as line:
            assert [await line() for _ in range(3)] == [{"line": "old 1"}, {"line": "old 2"}, {"line": "line"}]
            operations.more()
            assert await line() == {"line": "line"}
        await until(lambda: operations.streams_ended == 1)


async def test_client_that_takes_nothing_is_let_go(path, operations):
    operations.line = "x" * (1 << 20)
    async with serving(path, operations, AdminLimits(write_s=0.05)) as client:
        _, writer = await client.open()
        writer.write(b"GET /logs/p?follow=true HTTP/1.1\r\nhost: x\r\n\r\n")
        writer.transport.pause_reading()
        await until(lambda: operations.streams_ended == 1)
        writer.close()


async def test_stream_that_fails_says_so_in_its_last_line(path, operations, caplog):
    async with serving(path, operations) as client:
        for fail, code in ((CapacityError("UNAVAILABLE", "gone"), "UNAVAILABLE"), (ValueError("x"), "INTERNAL")):
            operations.fail = fail
            async with client.stream("/events") as line:
                assert await line() == {"event": "first"}
                page = await line()
                assert page is not None
                assert page["code"] == code
                assert await line() is None
    assert "admin_stream_failed" in caplog.text


async def test_what_is_changed_is_logged_with_the_user(path, operations, caplog):
    caplog.set_level("INFO")
    async with serving(path, operations) as client:
        await client.send("POST", "/disable", {"plugin": "p", "force": True})
        await client.send("GET", "/status")
    calls = [record.getMessage() for record in caplog.records if "admin_call" in record.getMessage()]
    assert len(calls) == 1
    assert calls[0].startswith("admin_call operation=disable who=")
    assert calls[0].endswith("arguments=plugin=p force=True")


async def test_while_a_successor_takes_over_nothing_is_changed_and_all_is_shown(path, operations):
    sent = {
        "pin": {"plugin": "p", "rev": 7},
        "rollout": {"plugin": "p", "action": "pause"},
        "clear_quarantine": {"target": "sha256:00"},
        "grant": {"plugin": "p", "capabilities": ["net"]},
        "apply": {},
        "gc": {},
    }
    taking_over = {
        "error": "CapacityError",
        "code": "UNAVAILABLE",
        "message": "a successor is taking over",
        "hint": "repeat it in a few seconds",
        "problems": [],
    }
    async with serving(path, operations, is_frozen=lambda: True) as client:
        for name in (
            "pin",
            "unpin",
            "rollback",
            "enable",
            "disable",
            "rollout",
            "clear_quarantine",
            "grant",
            "apply",
            "gc",
        ):
            (route,) = (route for route in ROUTES if route.name == name)
            answer = await client.send("POST", route.path, sent.get(name, {"plugin": "p"}))
            assert answer == (503, taking_over), name
        assert operations.calls == []
        assert (await client.send("GET", "/status"))[0] == 200


async def test_endpoints_are_told_again_and_again(path, operations):
    async with (
        serving(path, operations, endpoints=operations) as client,
        client.stream("/endpoints/stream?interval_ms=100") as line,
    ):
        for _ in range(3):
            assert await line() is not None
    assert operations.calls == [("endpoints",)] * 3


@pytest.mark.parametrize("target", ["/endpoints", "/endpoints/stream"])
async def test_host_without_endpoints_says_so(path, operations, target):
    async with serving(path, operations) as client:
        status, page = await client.send("GET", target)
    assert (status, page["code"]) == (503, "UNAVAILABLE")


@pytest.mark.parametrize("target", ["/explain", "/explain/x", "/debug/plugins/state", "/debug/plugins/state/x"])
async def test_host_that_decides_nothing_says_so(path, operations, target):
    async with serving(path, operations) as client:
        status, page = await client.send("GET", target)
    assert (status, page["code"]) == (503, "UNAVAILABLE")
    assert operations.calls == []
