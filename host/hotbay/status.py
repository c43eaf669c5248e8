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
from hotbay.datalayer.health.watch import HealthWatch
from hotbay.datalayer.operations.page import state_word
from hotbay.datalayer.store import EndpointStore
from hotbay.datalayer.tables.freshness import StalePolicy
from hotbay.errors import Problem, printable
from hotbay.observe.facts import GenerationFacts, HostFacts, PluginFacts, StoreFacts
from hotbay.observe.metrics import Metrics
from hotbay.packages.ref_watch import SourceStatus
from hotbay.rollout.page import plugin_row, strikes
from hotbay.rollout.rows import Row, phase_text
from hotbay.rpc.leases import Generation
from hotbay.scheduling.binding import Binding
from hotbay.scheduling.router import Router
from hotbay.scheduling.statistics import BREAKER_OPEN
from hotbay.store.budget import DiskUsage
from hotbay.store.world.engine import WorldView
from hotbay.store.world.records import Quarantine

_GC = "`hotbay gc` removes packages that nothing needs"
_WARNINGS_TOLD = 50
"""Of all discoveries; more than anybody reads at once."""


class Plugins(Protocol):
    """The supervisor as the status sees it."""

    @property
    def rows(self) -> Sequence[Row]: ...
    @property
    def generations(self) -> Sequence[Generation]: ...
    @property
    def problems(self) -> Sequence[Problem]: ...


class Polls(Protocol):
    """What polls endpoints: seconds from one poll of an endpoint to the next, by source, as asked for and as they are.

    `extractors` has the names of those behind each source, also behind one that is not polled.
    """

    @property
    def asked_s(self) -> Mapping[str, float]: ...
    @property
    def intervals_s(self) -> Mapping[str, float]: ...
    @property
    def extractors(self) -> Mapping[str, Sequence[str]]: ...


class StatusPage:
    """Puts the page together.

    `supervisor`, `router`, `health` and `polls` are None until the host has them. The others say what is known now, and none of them blocks.
    """

    def __init__(self, endpoints: EndpointStore, metrics: Metrics, *, isolation: str) -> None:
        self.supervisor: Plugins | None = None
        self.router: Router | None = None
        self.sources: Callable[[], Sequence[SourceStatus]] = tuple
        self.store: Callable[[], DiskUsage | None] = lambda: None
        self.world: Callable[[], WorldView] = WorldView
        self.available: Callable[[], Mapping[str, int]] = dict
        self.health: HealthWatch | None = None
        self.polls: Polls | None = None
        self.warnings: Callable[[], Sequence[Problem]] = tuple
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
            "plugins": [
                plugin_row(row, generations, now) for row in (supervisor.rows if supervisor is not None else ())
            ],
            "bindings": [self._binding(b) for b in plan.bindings] if plan is not None else [],
            "sources": [_source(status) for status in self.sources()],
            "store": _store(usage),
            "polled": [] if self.polls is None else _polled(self.polls),
            "event_sources": [] if self.polls is None else _told(self.polls),
            "stale": self._stale(),
            "endpoints": [self._endpoint(e) for e in sorted(self._endpoints.endpoints(), key=lambda e: e.id)],
            "problems": [printable(str(problem)) for problem in all_problems],
            "warnings": _warnings(self.warnings()),
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
            intervals_s={} if self.polls is None else self.polls.intervals_s,
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

    def _stale(self) -> list[Mapping[str, object]]:
        """Figures that are older than their limit: of how many endpoints, and how old the oldest is."""
        snapshot, freshness = self._endpoints.snapshot, self._endpoints.freshness
        return [
            {
                "figure": field,
                "endpoints": count,
                "oldest_s": round(snapshot.oldest_stale_s[field], 1),
                "limit_s": freshness.limit_s(field),
                "shown": freshness.policy is StalePolicy.IGNORE,
            }
            for field, count in snapshot.stale.items()
            if count
        ]

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
            "state": state_word(self._endpoints, self.health, metadata),
            "in_flight": self._endpoints.ledger.in_flight(metadata.id),
            **known,
            "scrape_errors": scrape.errors if scrape is not None else 0,
            "scrapes_failed_in_a_row": scrape.consecutive_errors if scrape is not None else 0,
            "last_scrape_error": scrape.last_error if scrape is not None else "",
            "lacks": list(scrape.lacks) if scrape is not None else [],
        }


def _number(value: float) -> float | None:
    return None if value != value else round(value, 4)


def _polled(polls: Polls) -> list[Mapping[str, object]]:
    asked_s, extractors = polls.asked_s, polls.extractors
    return [
        {
            "source": name,
            "asked_s": round(asked_s.get(name, interval_s), 3),
            "interval_s": round(interval_s, 3),
            "extractors": list(extractors.get(name, ())),
        }
        for name, interval_s in polls.intervals_s.items()
    ]


def _told(polls: Polls) -> list[Mapping[str, object]]:
    """Sources that are not polled."""
    polled = polls.intervals_s
    return [
        {"source": name, "extractors": list(extractors)}
        for name, extractors in polls.extractors.items()
        if name not in polled
    ]


def _warnings(found: Sequence[Problem]) -> list[str]:
    told = [printable(str(warning)) for warning in found[:_WARNINGS_TOLD]]
    return told + [f"and {len(found) - _WARNINGS_TOLD} more"] * (len(found) > _WARNINGS_TOLD)


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
    return PluginFacts(row.plugin, phase_text(row), live, candidate, strikes(row, now))
