"""The status page: what a host runs, what it knows of its endpoints, and what went wrong, as one JSON object.

Reads only; built anew for each request. Texts that others wrote are in it cut by their sources and with what does
not print as escapes: the name of a file in a source need be no Unicode, and then no JSON.
"""

import time
from collections.abc import Mapping, Sequence
from importlib.metadata import version

from hotbay.datalayer.endpoint import EndpointMetadata
from hotbay.datalayer.store import EndpointStore
from hotbay.errors import Problem, printable
from hotbay.observe.metrics import Metrics
from hotbay.rollout.routine import Failure, Row
from hotbay.rollout.supervisor import Supervisor
from hotbay.rpc.leases import Generation
from hotbay.scheduling.binding import Binding
from hotbay.scheduling.router import Router


class StatusPage:
    """Puts the page together. `supervisor` and `router` are None until the host has them."""

    def __init__(self, endpoints: EndpointStore, metrics: Metrics, *, isolation: str) -> None:
        self.supervisor: Supervisor | None = None
        self.router: Router | None = None
        self._endpoints = endpoints
        self._metrics = metrics
        self._isolation = isolation
        self._started_s = time.monotonic()

    def render(self, not_ready: Sequence[str], problems: Sequence[Problem]) -> dict[str, object]:
        """The page. `not_ready` says why requests are not taken yet or any more."""
        supervisor = self.supervisor
        plan = self.router.plan if self.router is not None else None
        all_problems = [*problems, *(supervisor.problems if supervisor is not None else ())]
        generations = supervisor.generations if supervisor is not None else ()
        return {
            "version": version("hotbay"),
            "uptime_s": round(time.monotonic() - self._started_s, 1),
            "ready": not not_ready,
            "not_ready": list(not_ready),
            "isolation": self._isolation,
            "plan": plan.number if plan is not None else None,
            "plugins": [_plugin(row, generations) for row in (supervisor.rows if supervisor is not None else ())],
            "bindings": [self._binding(b) for b in plan.bindings] if plan is not None else [],
            "endpoints": [self._endpoint(e) for e in self._endpoints.endpoints()],
            "problems": [printable(str(problem)) for problem in all_problems],
        }

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
        }


def _number(value: float) -> float | None:
    return None if value != value else round(value, 4)


def _plugin(row: Row, generations: Sequence[Generation]) -> dict[str, object]:
    live = next((g for g in generations if g.number == row.live_generation), None)
    return {
        "plugin": row.plugin,
        "phase": str(row.phase),
        "live": _live(row),
        "leases": 0 if live is None else live.leases,
        "process": None if live is None else dict(live.client.figures),
        "candidate": None if row.candidate is None else {"rev": row.candidate.rev, "digest": row.candidate.digest},
        "restarts": row.restarts,
        "swaps": row.swaps,
        "selection": row.selection.value,
        "last_error": _failure(row.last_error),
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
    }


def _failure(failure: Failure | None) -> Mapping[str, object] | None:
    if failure is None:
        return None
    return {
        "code": failure.code,
        "message": printable(failure.message),
        "hint": printable(failure.hint),
        "digest": failure.digest,
        "s_ago": round(time.monotonic() - failure.at_s, 1),
    }
