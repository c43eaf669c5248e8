"""A host that only answers operators, in a thread, and the command in this process."""

import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import anyio.from_thread
import pytest
from hotbay.cli import main
from hotbay.errors import HostError, InputError, Problem
from hotbay.gateway.admin import AdminServer

DIGEST = "sha256:" + "ab" * 32
STATUS = {
    "version": "0.1.0",
    "ready": True,
    "not_ready": [],
    "isolation": "none",
    "plugins": [
        {
            "plugin": "standard",
            "phase": "fetching",
            "live": {"version": "1.0.0", "rev": 1, "digest": DIGEST, "generation": 3, "pid": 77},
            "target": "sha256:" + "cd" * 32,
            "progress": {"bytes": 3 << 20, "total_bytes": 12 << 20},
            "verdict": {
                "ruling": "fail",
                "figure": "slow_calls",
                "candidate": 0.04,
                "live": 0.002,
                "bound": 0.01,
                "limit_s": 0.036,
            },
            "leases": 5,
            "restarts": 0,
            "swaps": 1,
            "last_error": None,
        }
    ],
    "bindings": [],
    "sources": [{"source": "bundled", "state": "watching", "scans": 4, "problems": 0, "last_error": ""}],
    "endpoints": [{"id": "a", "state": "active", "in_flight": 1}],
    "store": {"bytes": 95 << 20, "budget_bytes": 100 << 20, "free_bytes": 1 << 30, "alarm": True},
    "problems": [],
}
PAGES: dict[str, dict[str, object]] = {
    "status": STATUS,
    "plan": {
        "mode": "lock",
        "changes": [
            {
                "plugin": "standard",
                "action": "upgrade",
                "from": {"version": "1.0.0", "rev": 1},
                "to": {"version": "2.0.0", "rev": 2},
                "why": "lock file",
            }
        ],
        "hint": "put it in force with `hotbay apply`",
    },
    "quarantine": {
        "quarantine": [
            {"plugin": "standard", "rev": 2, "digest": DIGEST, "code": "CRASHED", "reason": "signal 9", "count": 1,
             "at_s": 1_760_000_000.0, "until_s": None}
        ]
    },
    "history": {
        "plugin": "standard",
        "history": [
            {"at_s": 1_760_000_000.0, "version": "1.0.0", "rev": 1, "digest": DIGEST, "generation": 3,
             "why": "rolled back: p99 61 ms > 3 x 12 ms", "who": "host"}
        ],
    },
    "logs": {"plugin": "standard", "lines": [{"at_s": 1_760_000_000.0, "rev": 2, "generation": 7,
             "pid": 31, "stream": "stderr", "line": "one"}, {"line": "two \x1b[2J"}]},
    "endpoints": {
        "endpoints": [
            {"id": "default/a", "url": "http://10.0.0.1:8000", "labels": {"zone": "x"}, "state": "ejected", "said": None,
             "admitted": False, "phase": "ejected", "why": "unreachable", "retry_in_s": 21.7, "weight": 1.0, "healthy": 0.0, "slow_start": 1.0,
             "waiting": 3.0, "running": 4.0, "kv_usage": 0.25, "in_flight": 2, "age_s": 0.05, "stale": [],
             "engine": "vllm", "scrape_errors": 7, "scrapes_failed_in_a_row": 3, "last_scrape_error": "connect", "lacks": ["missing kv_usage (x)"], "problems": []},
            {"id": "default/b", "url": "http://10.0.0.2:8000", "labels": {}, "state": "cordoned",
             "said": {"state": "cordoned", "weight": None, "who": "me", "at_s": 0.0},
             "admitted": True, "phase": "admitted", "why": "errors", "retry_in_s": None, "weight": 0.5, "healthy": None, "slow_start": 0.1,
             "waiting": None, "running": None, "kv_usage": None, "in_flight": 0, "age_s": None, "stale": [],
             "engine": None, "scrape_errors": 0, "scrapes_failed_in_a_row": 0, "last_scrape_error": "", "problems": ["label hotbay.dev/weight: no"]},
        ],
        "absent": [{"id": "default/gone", "state": "cordoned", "weight": 0.5, "who": "me"}],
    },
    "lock": {"apiVersion": "hotbay/v1alpha1", "kind": "Lock", "packages": [{"id": "standard", "digest": DIGEST}]},
}  # fmt: skip


@dataclass
class Operations:
    """Answers with the pages above; notes what it is asked to do."""

    calls: list[tuple[object, ...]] = field(default_factory=list)
    fail: HostError | None = None
    pages: dict[str, dict[str, object]] = field(default_factory=lambda: dict(PAGES))

    async def _page(self, name: str, *arguments: object) -> dict[str, object]:
        self.calls.append((name, *arguments))
        if self.fail is not None:
            raise self.fail
        return self.pages.get(name, {"message": f"{name} is done"})

    async def status(self):
        return await self._page("status")

    async def plan(self):
        return await self._page("plan")

    async def apply(self, who):
        return await self._page("apply")

    async def pin(self, plugin, *, rev=None, digest=None, who):
        return await self._page("pin", plugin, rev, digest)

    async def unpin(self, plugin, who):
        return await self._page("unpin", plugin)

    async def rollback(self, plugin, who):
        return await self._page("rollback", plugin)

    async def enable(self, plugin, who):
        return await self._page("enable", plugin)

    async def disable(self, plugin, who, *, force=False):
        return await self._page("disable", plugin, force)

    async def rollout(self, plugin, action, who):
        return await self._page("rollout", plugin, action)

    async def quarantine(self):
        return await self._page("quarantine")

    async def clear_quarantine(self, plugin_or_digest, who):
        return await self._page("clear_quarantine", plugin_or_digest)

    async def grant(self, plugin, capabilities, who):
        return await self._page("grant", plugin, tuple(capabilities))

    async def history(self, plugin):
        return await self._page("history", plugin)

    async def logs(self, plugin, lines):
        return await self._page("logs", plugin, lines)

    async def follow(self, plugin) -> AsyncIterator[dict[str, object]]:
        yield {"line": "three"}

    async def gc(self, *, dry_run=False):
        return await self._page("gc", dry_run)

    async def events(self) -> AsyncIterator[dict[str, object]]:
        yield {"at_s": 1_760_000_000.0, "event": "cutover", "plugin": "standard", "rev": 2}

    async def lock(self):
        return await self._page("lock")


class EndpointOperations:
    """The same for endpoints; each look takes the next of `looks` while there are some."""

    def __init__(self, operations: Operations) -> None:
        self._operations = operations
        self.looks: list[dict[str, object]] = []

    async def endpoints(self):
        page = await self._operations._page("endpoints")
        return self.looks.pop(0) if self.looks else page

    async def cordon(self, ids, selector, who):
        return await self._operations._page("cordon", ids, selector)

    async def uncordon(self, ids, selector, who):
        return await self._operations._page("uncordon", ids, selector)

    async def weigh(self, ids, selector, weight, who):
        return await self._operations._page("weigh", ids, selector, weight)


class Inspection:
    """The same for decisions and states. A request whose id is `unknown` is not kept."""

    def __init__(self, operations: Operations) -> None:
        self._operations = operations

    async def explain(self, request_id):
        if request_id == "unknown":
            raise InputError([Problem("NOT_FOUND", "no decision for request 'unknown' is kept", hint="ask sooner")])
        return await self._operations._page("explain", request_id)

    async def latest(self, count):
        return await self._operations._page("latest", count)

    async def dump(self, ref):
        return await self._operations._page("dump", ref)


@dataclass
class Bay:
    """A host's socket, and what it was asked."""

    socket: Path
    operations: Operations
    endpoints: EndpointOperations
    inspection: Inspection


@pytest.fixture
def bay(tmp_path: Path) -> Iterator[Bay]:
    """A host that answers at `tmp_path`/admin.sock until the test ends."""
    operations = Operations()
    bay = Bay(tmp_path / "admin.sock", operations, EndpointOperations(operations), Inspection(operations))
    up, stop = threading.Event(), anyio.Event()

    async def serve() -> None:
        async with anyio.create_task_group() as group, anyio.from_thread.BlockingPortal() as portal:
            portals.append(portal)
            admin = AdminServer(bay.operations, endpoints=bay.endpoints, inspection=bay.inspection)
            await group.start(admin.run, bay.socket)
            up.set()
            await stop.wait()
            group.cancel_scope.cancel()

    portals: list[anyio.from_thread.BlockingPortal] = []
    thread = threading.Thread(target=anyio.run, args=(serve,))
    thread.start()
    assert up.wait(20)
    yield bay
    portals[0].call(stop.set)
    thread.join(20)
    assert not thread.is_alive()


@dataclass
class Ended:
    """What a command left."""

    code: int
    out: str
    err: str


@pytest.fixture
def hotbay(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Ended]:
    """Run the command in this process."""

    def run(*arguments: object) -> Ended:
        monkeypatch.setattr(sys, "argv", ["hotbay", *map(str, arguments)])
        capsys.readouterr()
        code: object = 0
        try:
            main()
        except SystemExit as ended:
            code = ended.code
        said = capsys.readouterr()
        return Ended(code if isinstance(code, int) else 0, said.out, said.err)

    return run
