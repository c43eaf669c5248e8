"""What a host runs, what it knows of its endpoints, and what went wrong: as one JSON object, and as facts for metrics.

Reads only; built anew for each request. Texts that others wrote are in it cut by their sources and with what does
not print as escapes: the name of a file in a source need be no Unicode, and then no JSON.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from typing import Protocol

from hotbay.datalayer.endpoint import EndpointMetadata
from hotbay.datalayer.store import EndpointStore
from hotbay.errors import Problem, printable
from hotbay.observe.facts import GenerationFacts, HostFacts, PluginFacts, StoreFacts
from hotbay.observe.metrics import Metrics
from hotbay.packages.package_blobs import Progress
from hotbay.packages.ref_watch import SourceStatus
from hotbay.rollout.gathered import Gathered
from hotbay.rollout.rows import ErrorShown, Row, VerdictShown, phase_text
from hotbay.rpc.leases import Generation, Origin
from hotbay.scheduling.binding import Binding
from hotbay.scheduling.router import Router
from hotbay.scheduling.statistics import BREAKER_OPEN
from hotbay.store.budget import DiskUsage
from hotbay.store.world.engine import WorldView
from hotbay.store.world.records import Quarantine

_GC = "`hotbay gc` removes packages that nothing needs"


class Plugins(Protocol):
    """The supervisor as the status sees it."""

    @property
    def rows(self) -> Sequence[Row]: ...
    @property
    def generations(self) -> Sequence[Generation]: ...
    @property
    def problems(self) -> Sequence[Problem]: ...


class StatusPage:
    """Puts the page together.

    `supervisor` and `router` are None until the host has them. The others say what is known now, and none of them blocks.
    """

    def __init__(self, endpoints: EndpointStore, metrics: Metrics, *, isolation: str) -> None:
        self.supervisor: Plugins | None = None
        self.router: Router | None = None
        self.sources: Callable[[], Sequence[SourceStatus]] = tuple
        self.store: Callable[[], DiskUsage | None] = lambda: None
        self.world: Callable[[], WorldView] = WorldView
        self.available: Callable[[], Mapping[str, int]] = dict
        self.intervals_s: Callable[[], Mapping[str, float]] = dict
        self._endpoints = endpoints
        self._metrics = metrics
        self._isolation = isolation
        self._started_s = time.monotonic()
        self._version = version("hotbay")

    def render(self, not_ready: Sequence[str], problems: Sequence[Problem]) -> dict[str, object]:
        """The page. `not_ready` says why requests are not taken yet or any more."""
        supervisor, now = self.supervisor, time.monotonic()
        plan = self.router.plan if self.router is not None else None
        usage = self.store()
        alarms = [] if usage is None else [Problem("RESOURCE_EXHAUSTED", text, hint=_GC) for text in usage.alarms]
        all_problems = [*problems, *(supervisor.problems if supervisor is not None else ()), *self._broken(), *alarms]
        generations = {} if supervisor is None else {g.number: g for g in supervisor.generations}
        return {
            "version": self._version,
            "uptime_s": round(now - self._started_s, 1),
            "ready": not not_ready,
            "not_ready": list(not_ready),
            "isolation": self._isolation,
            "plan": plan.number if plan is not None else None,
            "plugins": [_plugin(row, generations, now) for row in (supervisor.rows if supervisor is not None else ())],
            "bindings": [self._binding(b) for b in plan.bindings] if plan is not None else [],
            "sources": [_source(status) for status in self.sources()],
            "store": _store(usage),
            "polled": [{"source": name, "interval_s": round(it, 3)} for name, it in self.intervals_s().items()],
            "endpoints": [self._endpoint(e) for e in self._endpoints.endpoints()],
            "problems": [printable(str(problem)) for problem in all_problems],
        }

    def facts(self, not_ready: Sequence[str], problems: Sequence[Problem]) -> HostFacts:
        """The same for metrics."""
        supervisor, usage, now = self.supervisor, self.store(), time.monotonic()
        generations = {} if supervisor is None else {g.number: g for g in supervisor.generations}
        told = supervisor.problems if supervisor is not None else ()
        return HostFacts(
            ready=not not_ready,
            problems=len(problems) + len(told),
            tasks=len(asyncio.all_tasks()),
            plugins=tuple(_facts(row, generations, now) for row in (supervisor.rows if supervisor is not None else ())),
            sources={status.source: status.state.value for status in self.sources()},
            quarantined=Counter(record.plugin_id for record in self.world().all(Quarantine)),
            store=None if usage is None else StoreFacts(usage.used_bytes, usage.free_bytes, usage.limit_bytes),
            stale=self._endpoints.snapshot.stale,
            available=self.available(),
            intervals_s=self.intervals_s(),
        )

    def _broken(self) -> list[Problem]:
        """Plugins that answer no more, though they run."""
        found = self.router.broken() if self.router is not None else []
        return [
            Problem(
                BREAKER_OPEN,
                f"the breaker of {name} is open, it is asked once a second: {complaint or 'it does not answer'}",
                hint=f"See `hotbay logs {name}`; `hotbay rollback {name}` goes back to the version before",
            )
            for name, complaint in found
        ]

    def _binding(self, binding: Binding) -> dict[str, object]:
        """How often a binding's failure policy decided, and why it last did."""
        count = sum(n for (ref, _), n in self._metrics.degradations.items() if ref == binding.ref)
        reason, at_s = self._metrics.last_degraded.get(binding.ref, (None, None))
        return {
            "ref": binding.ref,
            "type": binding.type,
            "point": str(binding.point),
            "on_failure": str(binding.policy),
            "degraded": count,
            "last_reason": reason,
            "last_s_ago": None if at_s is None else round(time.monotonic() - at_s, 1),
        }

    def _endpoint(self, metadata: EndpointMetadata) -> dict[str, object]:
        snapshot = self._endpoints.snapshot
        row = snapshot.row_of.get(metadata.id)
        scrape = self._endpoints.scrape_status(metadata.id)
        known = {
            name: None if row is None else _number(float(snapshot.columns[f"endpoint.{name}"][row]))
            for name in ("waiting", "running", "kv_usage")
        }
        return {
            "id": metadata.id,
            "url": metadata.url,
            "state": str(metadata.state),
            "in_flight": self._endpoints.ledger.in_flight(metadata.id),
            **known,
            "scrape_errors": scrape.errors if scrape is not None else 0,
            "last_scrape_error": scrape.last_error if scrape is not None else "",
            "lacks": list(scrape.lacks) if scrape is not None else [],
        }


def _number(value: float) -> float | None:
    return None if value != value else round(value, 4)


def _plugin(row: Row, generations: Mapping[int, Generation], now: float) -> dict[str, object]:
    live = generations.get(row.live_generation) if row.live_generation is not None else None
    return {
        "plugin": row.plugin,
        "phase": phase_text(row),
        "paused": row.paused,
        "live": _live(row),
        "leases": 0 if live is None else live.leases,
        "process": None if live is None else dict(live.client.figures),
        "candidate": _build(row.candidate, row.candidate_pid),
        "previous": _build(row.previous, None),
        "target": row.target,
        "pin": None if row.pin is None else {"rev": row.pin.rev, "digest": row.pin.digest, "by": row.pin.by},
        "below": list(row.below),
        "awaiting_grant": list(row.awaiting_grant),
        "asked": list(row.asked),
        "progress": _progress(row.progress),
        "verdict": _verdict(row.verdict),
        "restarts": row.restarts,
        "swaps": row.swaps,
        "rollbacks": row.rollbacks,
        "strikes": _strikes(row, now),
        "cold": printable(row.cold),
        "retry_in_s": None if row.retry_at_s is None else max(0.0, round(row.retry_at_s - now, 1)),
        "selection": row.selection.value,
        "last_error": _failure(row.last_error, now),
    }


def _live(row: Row) -> Mapping[str, object] | None:
    if row.live is None:
        return None
    return {
        "version": row.live.version,
        "rev": row.live.rev,
        "digest": row.live.digest,
        "generation": row.live_generation,
        "pid": row.live_pid,
        "state": row.live_state,
        "since_s": row.live_since_s,
    }


def _build(origin: Origin | None, pid: int | None) -> Mapping[str, object] | None:
    if origin is None:
        return None
    return {"version": origin.version, "rev": origin.rev, "digest": origin.digest, "pid": pid}


def _progress(progress: Progress | None) -> Mapping[str, object] | None:
    if progress is None:
        return None
    return {
        "phase": progress.phase,
        "digest": progress.digest,
        "bytes": progress.bytes_done,
        "total_bytes": progress.bytes_total,
    }


def _verdict(shown: VerdictShown | None) -> Mapping[str, object] | None:
    """The figure that decides, or is nearest to it, and in which step of which build; shares are 0 to 1."""
    if shown is None:
        return None
    verdict = shown.verdict
    return {
        "phase": str(shown.phase),
        "rev": shown.of.rev,
        "digest": shown.of.digest,
        "ruling": str(verdict.ruling),
        "figure": verdict.figure,
        "candidate": verdict.candidate,
        "live": verdict.live,
        "bound": verdict.bound,
        "limit_s": verdict.limit_s,
        "gathered": _gathered(verdict.gathered),
    }


def _gathered(gathered: Gathered | None) -> Mapping[str, object] | None:
    """How far the step is: what is still missing for its verdict."""
    if gathered is None:
        return None
    return {
        "counted": gathered.counted,
        "count": gathered.count,
        "wanted": gathered.wanted,
        "elapsed_s": round(gathered.elapsed_s, 1),
        "for_s": gathered.for_s,
        "at_most_s": gathered.at_most_s,
    }


def _strikes(row: Row, now: float) -> int:
    return sum(1 for until_s in row.strikes_until_s if until_s > now)


def _failure(failure: ErrorShown | None, now: float) -> Mapping[str, object] | None:
    if failure is None:
        return None
    return {
        "code": failure.code,
        "message": printable(failure.message),
        "hint": printable(failure.hint),
        "digest": failure.digest,
        "s_ago": round(now - failure.at_s, 1),
    }


def _source(status: SourceStatus) -> Mapping[str, object]:
    error = status.last_error
    return {
        "source": status.source,
        "state": status.state.value,
        "scans": status.scans,
        "problems": len(status.problems),
        "last_error": "" if error is None else printable(str(error)),
    }


def _store(usage: DiskUsage | None) -> Mapping[str, object] | None:
    if usage is None:
        return None
    return {
        "bytes": usage.used_bytes,
        "package_bytes": usage.blob_bytes + usage.part_bytes,
        "environment_bytes": usage.environment_bytes,
        "budget_bytes": usage.limit_bytes,
        "free_bytes": usage.free_bytes,
        "alarm": bool(usage.alarms),
    }


def _facts(row: Row, generations: Mapping[int, Generation], now: float) -> PluginFacts:
    live = candidate = None
    for generation in generations.values():
        if generation.origin.plugin_id != row.plugin.partition("/")[0]:
            continue
        found = GenerationFacts(generation.number, generation.origin.rev, generation.leases)
        if generation.number == row.live_generation:
            live = found
        elif generation.pid == row.candidate_pid:
            candidate = found
    return PluginFacts(row.plugin, phase_text(row), live, candidate, _strikes(row, now))
