"""One endpoint as commands show it: what it is, what the operator said, what requests and scrapes say. Pure; reads only."""

from collections.abc import Mapping
from typing import Final

from hotbay.datalayer.endpoint import EndpointMetadata
from hotbay.datalayer.health.state import Health, Phase
from hotbay.datalayer.health.watch import HealthWatch
from hotbay.datalayer.operations.overrides import Override
from hotbay.datalayer.operator_labels import label_problems
from hotbay.datalayer.store import EndpointStore
from hotbay.errors import printable

__all__ = ["endpoint_row"]

_FIGURES: Final = ("waiting", "running", "kv_usage", "healthy", "slow_start")


def endpoint_row(
    store: EndpointStore, health: HealthWatch, metadata: EndpointMetadata, word: Override | None
) -> Mapping[str, object]:
    """The row. None is what nobody knows; `age_s` is that of the oldest of waiting, running and kv usage."""
    snapshot = store.snapshot
    row = snapshot.row_of.get(metadata.id)
    scrape = store.scrape_status(metadata.id)
    figures = {
        name: None if row is None else _number(float(snapshot.columns[f"endpoint.{name}"][row])) for name in _FIGURES
    }
    ages = [
        float(snapshot.columns[f"endpoint.age_{name}"][row])
        for name in ("waiting", "running", "kv_usage")
        if row is not None
    ]
    facts = None if row is None else snapshot.facts[row]
    return {
        "id": metadata.id,
        "url": metadata.url,
        "labels": dict(metadata.labels),
        "state": str(metadata.state),
        "said_by": None if word is None else word.who,
        **_said_by_requests(health.health(metadata.id), is_admitted=health.admits(metadata.id)),
        "weight": metadata.weight,
        **figures,
        "in_flight": store.ledger.in_flight(metadata.id),
        "age_s": _number(max((age for age in ages if age == age), default=float("nan"))),
        "engine": None if facts is None else facts.engine,
        "scrape_errors": 0 if scrape is None else scrape.errors,
        "last_scrape_error": "" if scrape is None else printable(scrape.last_error),
        "lacks": [] if scrape is None else [printable(it) for it in scrape.lacks],
        "problems": [printable(problem) for problem in label_problems(metadata)],
    }


def _said_by_requests(health: Health | None, *, is_admitted: bool) -> Mapping[str, object]:
    """`admitted`: whether it gets requests; `why` it was ejected, or would be if enough were left."""
    if health is None:
        return {"admitted": True, "phase": None, "why": None}
    is_out = health.phase is not Phase.ADMITTED
    reason = health.reason if is_out else health.withheld
    return {"admitted": is_admitted, "phase": str(health.phase), "why": None if reason is None else str(reason)}


def _number(value: float) -> float | None:
    return None if value != value else round(value, 4)
