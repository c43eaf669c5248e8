"""Bad versions under load: what answers goes on answering, each of them is refused with the figure that decided, once.

Every case is published beside a good version that serves 40 requests a second, one after the other to one host. A case
is bad from its first call, or from a request that falls into its canary or its guard: it counts them. Judged is what
clients saw, what the host counted, what status, history and quarantine say, and how often the version was started. The
control at the end is a host whose swaps have no steps: there the same version does harm, and the same judgement says so.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import anyio.abc
import orjson
import pytest

from tests.e2e.proofs.kit import HostUnderProof, Load, wait_until
from tests.integration.conftest import ModelServer, Text

pytestmark = [pytest.mark.slow, pytest.mark.process, pytest.mark.timeout(400), pytest.mark.anyio]

PICKER = """
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
- {name: sample, type: sample-scorer}
schedulingProfiles:
- name: default
  plugins: [{pluginRef: sample}]
"""
STEPS = """
swap:
  shadow: {sample: 1, calls: 60, for: 30s}
  canary: {share: 0.4, for: 3s, min_requests: 60}
  guard: {for: 8s, calls: 100}
  drain: 5s
"""
NO_STEPS = "\nswap: {shadow: off, canary: off, guard: off, drain: 5s}\n"
OTHERS = """
supervise: {budget: {failures: 2, within: 10m}}
packages: [{id: sample, hello: 5s, ready: 4s}]
bindings: {sample: {deadline: 1s}}
isolation: {level: none}
"""
STARTS = 2
"""Starts until a version that fails at its start has used its budget up."""
IN_CANARY, IN_GUARD = 85, 180
"""The shadow takes some 60 requests; the canary at least 60 more, at most some 80; the guard more than 200."""
RATE_PER_S = 40
SLOW_SERVER_S = 0.25
REFUSED_WITHIN_S = 60.0
ROLLED_BACK_WITHIN_S = 1.0
GRACE_S = 2.0
"""What the host gives a process between SIGTERM and SIGKILL."""
GONE_WITHIN_S = 10.0
IN_FLIGHT = 10
"""Requests that a process can take with it."""
FAILING = 400
"""Requests of ten seconds: a breaker asks a failing version ever more seldom, and evidence takes its time."""


@dataclass(frozen=True)
class Bad:
    """One bad version: how it is made, where it has to be refused, and as what.

    `costs`: so many of its own requests in canary and guard may be answered by the failure policy. `stays_s`: so
    long its process stays at least when it is told to go.
    """

    name: str
    phases: tuple[str, ...]
    code: str
    reason: str
    source: Mapping[str, str] = field(default_factory=dict)
    endpoint: str = "v1"
    types: tuple[str, ...] = ("sample-scorer",)
    costs: int = 0
    starts: int = 1
    stays_s: float = 0.0

    def text(self, text: Text, starts: Path) -> str:
        """The source. Each start leaves a letter in a file."""
        note = f"open({str(starts / self.name)!r}, 'a').write('s')\n"
        return text.scorer(self.endpoint, **{**self.source, "start": note + self.source.get("start", "")})


def at(request: int, what: str) -> dict[str, str]:
    """Do this from so many requests on."""
    return {
        "init": "self.asked = 0",
        "score": f"self.asked += len(requests)\n        if self.asked >= {request}: {what}",
    }


NO_START = (
    Bad("raises-at-import", ("launching",), "START_FAILED", "no such luck", {"start": "raise ImportError('no such luck')"}, starts=STARTS),
    Bad("hangs-at-import", ("launching",), "(HELLO|READY)_TIMEOUT", "within . s", {"start": "time.sleep(3600)"}, starts=STARTS),
    Bad("rejects-parameters", ("launching",), "CONFIG_INVALID", "not like this", {"init": "raise ParameterError('never', 'not like this')"}, starts=STARTS),
    Bad("lacks-a-type", ("launching",), "INVALID_PACKAGE", "its manifest says", types=("sample-scorer", "other-scorer")),
)  # fmt: skip
ON_TRIAL = (
    Bad("crashes-in-shadow", ("shadow",), "CRASHED", "exit", at(20, "os._exit(3)")),
    Bad("crashes-in-canary", ("canary",), "CRASHED", "SIGABRT", at(IN_CANARY, "os.abort()"), costs=IN_FLIGHT),
    Bad("raises", ("shadow",), "TRIAL_FAILED", "shadow: failures .*%, allowed 1.0%", {"score": "raise ValueError('no')"}),
    Bad("answers-too-little", ("shadow",), "TRIAL_FAILED", "shadow: failures", {"score": "return [[1.0]]"}),
    Bad("answers-nan", ("shadow",), "TRIAL_FAILED", "shadow: failures", {"score": "return [[float('nan')] * len(endpoints.ids) for _ in requests]"}),
    Bad("is-slow", ("shadow",), "TRIAL_FAILED", "shadow: (slow calls over|failures)", {"score": "time.sleep(0.3)"}),
    Bad("picks-the-slowest-server", ("canary",), "TRIAL_FAILED", "canary: slow ttft over", endpoint="v2"),
    Bad("ignores-sigterm", ("shadow",), "TRIAL_FAILED", "shadow: failures", {
        "start": "signal.signal(signal.SIGTERM, signal.SIG_IGN)", "score": "raise ValueError('no')",
    }, stays_s=GRACE_S),
)  # fmt: skip
ON_GUARD = (
    Bad("crashes-in-guard", ("guard",), "CRASHED", "SIGSEGV", at(IN_GUARD, "os.kill(os.getpid(), signal.SIGSEGV)"), costs=IN_FLIGHT),
    Bad("raises-in-guard", ("guard",), "TRIAL_FAILED", "guard: failures", at(IN_GUARD, "raise ValueError('no')"), costs=FAILING),
    Bad("leaks", ("canary", "guard"), "TRIAL_FAILED", r"memory \d+ MiB, the live version's \d+ MiB", {
        "init": "self.kept = []", "score": "self.kept.extend(b'x' * (1 << 20) for _ in requests)",
    }),
)  # fmt: skip


class SlowServer(ModelServer):
    """Takes its time for every answer."""

    async def _answer(self, head: bytes, body: bytes, writer: asyncio.StreamWriter) -> None:
        if head.startswith(b"POST"):
            await asyncio.sleep(SLOW_SERVER_S)
        await super()._answer(head, body, writer)


@pytest.fixture
async def servers(anyio_backend: object) -> AsyncIterator[list[ModelServer]]:
    """Two model servers, `v1` and, slower, `v2`."""
    async with AsyncExitStack() as stack:
        started = [ModelServer("v1"), SlowServer("v2")]
        for server in started:
            await server.start()
            stack.push_async_callback(server.stop)
        yield started


# -- what happened -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Heard:
    """One event of the host, and how many requests had been answered when it was heard."""

    page: Mapping[str, Any]
    answered: int

    def is_(self, event: str, **fields: object) -> bool:
        return self.page["event"] == event and all(self.page.get(name) == value for name, value in fields.items())

    @property
    def at_s(self) -> float:
        return float(self.page["at_s"])


class Events:
    """The host's stream of events."""

    def __init__(self, socket: Path, load: Load) -> None:
        self.heard: list[Heard] = []
        self.scope = anyio.CancelScope()
        self._socket = socket
        self._load = load

    async def listen(self, *, task_status: anyio.abc.TaskStatus[None]) -> None:
        reader, writer = await asyncio.open_unix_connection(self._socket)
        try:
            with self.scope:
                writer.write(b"GET /events HTTP/1.1\r\nhost: hotbay\r\n\r\n")
                await reader.readuntil(b"\r\n\r\n")
                task_status.started()
                while line := await reader.readline():
                    if line.startswith(b"{"):
                        self.heard.append(Heard(orjson.loads(line), len(self._load.answers)))
        finally:
            writer.close()

    def first(self, begin: int, event: str, **fields: object) -> Heard | None:
        return next((heard for heard in self.heard[begin:] if heard.is_(event, **fields)), None)


@dataclass(frozen=True)
class Shown:
    """What one bad version led to. Times are seconds by the host's clock."""

    bad: Bad
    phase: str
    quarantine: Mapping[str, Any]
    last_error: Mapping[str, Any]
    refusal_took_s: float | None
    rollback_took_s: float | None
    went_live: bool
    history: Sequence[str]
    degraded: int
    exposed: int
    live_pids: tuple[int, int]
    processes: int
    going_took_s: float | None

    def line(self) -> str:
        """For the report."""
        took = "" if self.rollback_took_s is None else f", back after {self.rollback_took_s * 1000:.0f} ms"
        cost = f"{self.degraded} of {self.exposed} degraded"
        return f"{self.bad.name}: {self.phase}: {self.quarantine.get('code')}: {self.quarantine.get('reason')}; {cost}{took}"

    def wrong(self) -> list[str]:
        """Everything that the contract does not allow."""
        bad, quarantine, error = self.bad, self.quarantine, self.last_error
        in_guard = self.phase == "guard"
        told = f"{quarantine.get('code')}: {quarantine.get('reason')}"
        found = {
            "it was never refused": self.refusal_took_s is None,
            f"refused in {self.phase!r}": self.phase not in bad.phases,
            f"quarantined as {told}": not re.fullmatch(bad.code, quarantine.get("code", ""))
            or not re.search(bad.reason, quarantine.get("reason", "")),
            f"quarantined {quarantine.get('count')} times": quarantine.get("count") != 1,
            f"status says {error}": error.get("message") != quarantine.get("reason"),
            f"refused {self.refusal_took_s} s after the verdict": (self.refusal_took_s or 0) > ROLLED_BACK_WITHIN_S,
            f"back {self.rollback_took_s} s after the verdict": in_guard
            and (self.rollback_took_s is None or self.rollback_took_s > ROLLED_BACK_WITHIN_S),
            f"it answered, after {self.phase!r}": self.went_live != in_guard,
            f"history says {self.history}": list(self.history) != (["newer version", f"went back: {quarantine.get('code')}"] if in_guard else []),
            f"{self.degraded} degraded, exposed were {self.exposed}": self.degraded > min(bad.costs, self.exposed),
            f"live pids {self.live_pids}": len(set(self.live_pids)) != 1,
            f"{self.processes} processes are left": self.processes != 1,
            f"its process was gone after {self.going_took_s} s": self.going_took_s is None
            or not bad.stays_s <= self.going_took_s <= GONE_WITHIN_S,
        }  # fmt: skip
        return [f"{bad.name}: {text}" for text, is_wrong in found.items() if is_wrong]


async def observe(
    host: HostUnderProof, text: Text, events: Events, load: Load, bad: Bad, *, rev: int, within_s: float
) -> Shown:
    """Publish one bad version, wait until it is refused and its process gone, and tell what happened."""
    begin, degraded, row = len(events.heard), await host.degraded(), await host.row()
    pid, history = row["live"]["pid"], await host.ask("/history/sample")
    host.publish(bad.text(text, host.folder / "starts"), rev=rev, types=bad.types)
    with anyio.move_on_after(within_s):
        await wait_until(lambda: events.first(begin, "quarantined", rev=rev), within_s=within_s * 2)
        await host.wait_row(lambda row: row["phase"] == "live" and row["candidate"] is None)
        if events.first(begin, "swapped", rev=rev):
            await wait_until(lambda: any(h.is_("live") and h.page["rev"] != rev for h in events.heard[begin:]))
    story = events.heard[begin:]
    refused = events.first(begin, "quarantined", rev=rev)
    verdict = next((h for h in reversed(story) if h.is_("candidate_failed") or h.is_("crashed")), None)
    live = next((h for h in story if h.is_("swapped", rev=rev)), None)
    back = next((h for h in story if h.is_("swapped") and h.page["rev"] != rev), None)
    gone = next((h for h in reversed(story) if h.is_("phase", phase="live")), None)
    exposure = next((h for h in story if h.is_("phase", phase="canary")), live)
    entries = (await host.ask("/quarantine"))["quarantine"]
    now = (await host.ask("/history/sample"))["history"]
    row = await host.row()
    return Shown(
        bad,
        phase=str(verdict.page["phase"]) if verdict is not None else "",
        quarantine=next((entry for entry in entries if entry["rev"] == rev), {}),
        last_error=row["last_error"] or {},
        refusal_took_s=refused.at_s - verdict.at_s if refused is not None and verdict is not None else None,
        rollback_took_s=back.at_s - verdict.at_s if back is not None and verdict is not None else None,
        went_live=live is not None,
        history=[entry["why"] for entry in now[len(history["history"]) :]],
        degraded=await host.degraded() - degraded,
        exposed=(refused or story[-1]).answered - exposure.answered + IN_FLIGHT if exposure is not None else 0,
        live_pids=(pid, row["live"]["pid"]),
        processes=len(host.plugin_pids()),
        going_took_s=gone.at_s - verdict.at_s if gone is not None and verdict is not None else None,
    )


async def prove(
    host: HostUnderProof, text: Text, versions: Sequence[Bad], *, within_s: float = REFUSED_WITHIN_S
) -> tuple[list[Shown], list[str]]:
    """All of these versions under one load, and a good one at the end; what each led to, and what was wrong."""
    load = Load(host.client, RATE_PER_S)
    events = Events(host.admin.path, load)
    starts = host.folder / "starts"
    starts.mkdir()
    async with anyio.create_task_group() as group:
        group.start_soon(load.run)
        await group.start(events.listen)
        await load.more(2 * RATE_PER_S)
        shown = [
            await observe(host, text, events, load, bad, rev=rev, within_s=within_s)
            for rev, bad in enumerate(versions, 2)
        ]
        good = len(versions) + 2
        host.publish(text.scorer("v1"), rev=good)
        await host.wait_row(lambda row: row["live"]["rev"] == good and row["phase"] == "live")
        await load.more(RATE_PER_S)
        load.stop()
        events.scope.cancel()
    mixed = sum(v for (name, _), v in (await host.counters()).items() if name == "hotbay_mixed_cycles_total")
    made = {bad.name: len((starts / bad.name).read_text()) for bad in versions}
    found = {
        f"{len(load.failed)} of {len(load.answers)} requests failed: {load.failed[:3]}": bool(load.failed),
        f"{mixed} cycles mixed generations": mixed > 0,
        f"started {made} times": any(made[bad.name] != bad.starts for bad in versions),
    }
    wrong = [text for text, is_wrong in found.items() if is_wrong]
    return shown, [*(text for one in shown for text in one.wrong()), *wrong]


def first_version(text: Text) -> Any:
    def prepare(found: HostUnderProof) -> None:
        found.publish(text.scorer("v1"), rev=1)

    return prepare


@pytest.mark.parametrize(
    "versions", [NO_START, ON_TRIAL, ON_GUARD], ids=["at-the-start", "in-shadow-and-canary", "in-guard"]
)
async def test_bad_versions_are_refused_once_while_the_live_one_serves(host, text, versions, capsys):
    async with host(PICKER, STEPS + OTHERS, prepare=first_version(text)) as running:
        shown, wrong = await prove(running, text, versions)
        with capsys.disabled():
            print("", *(one.line() for one in shown), sep="\n")  # noqa: T201  # the proof's own report
        assert wrong == []


async def test_without_the_steps_the_same_version_does_harm_and_the_judgement_says_so(host, text):
    """The control."""
    bad = next(bad for bad in ON_TRIAL if bad.name == "raises")
    async with host(PICKER, NO_STEPS + OTHERS, prepare=first_version(text)) as running:
        _, found = await prove(running, text, [bad], within_s=5.0)
    assert any("never refused" in said for said in found), found
    assert any("degraded, exposed were" in said for said in found), found
    assert any("live pids" in said for said in found), found
