"""Which columns the endpoints themselves have, and what a metrics page writes into them. Pure."""

from typing import Final

from hotbay_sdk.protocol.calls import COLUMN_FORMATS

from hotbay.datalayer.endpoint import Metrics
from hotbay.datalayer.tables.columns import Columns, Format
from hotbay.datalayer.tables.freshness import FRESHNESS_FIELDS
from hotbay.datalayer.tables.rows import Row
from hotbay.datalayer.tables.snapshot import EndpointFacts

__all__ = ["HEALTHY", "SLOW_START", "WEIGHT", "endpoint_columns", "take_report"]

HEALTHY: Final = "endpoint.healthy"
WEIGHT: Final = "endpoint.weight"
SLOW_START: Final = "endpoint.slow_start"

_FIELDS: Final = {field: tuple(f"endpoint.{name}" for name in names) for field, names in FRESHNESS_FIELDS.items()}
_REPORTED: Final = {name: f"endpoint.{name}" for names in FRESHNESS_FIELDS.values() for name in names}
_RENEWED_BY: Final = {
    **{name: field for field, names in FRESHNESS_FIELDS.items() for name in names},
    "active_models": "lora",
}
"""What a page reports -> the field that it renews."""

_OF_FACTS: Final = frozenset({"engine", "model", "active_models", "waiting_models"})


def endpoint_columns() -> Columns:
    """Make the columns that are written here and by the store: all but ages and what is in flight."""
    names = [*_REPORTED.values(), HEALTHY, WEIGHT, SLOW_START]
    formats: dict[str, Format] = {name: "f" if COLUMN_FORMATS[name] == "f" else "q" for name in names}
    return Columns(formats, _FIELDS)


def take_report(columns: Columns, row: Row, report: Metrics, now: float) -> tuple[bool, bool]:
    """Take over what a page reported at `now`; return whether a column changed, and whether the side table did.

    Pages say the same far more often than something new, and are the very object then: only times are taken over.
    """
    if report is row.report:
        row.endpoint.renew(report, now)
        return columns.stamp(row.renewed, row.number, now), False
    before = row.endpoint.metrics
    known = row.endpoint.metrics = before.merged(report, now)
    reported = report.reported
    differing = [name for name in reported if getattr(report, name) != getattr(before, name)]
    row.report = report
    row.renewed = frozenset(_RENEWED_BY[name] for name in reported if name in _RENEWED_BY)
    has_changed = columns.stamp(row.renewed, row.number, now)
    for name in differing:
        if name in _REPORTED:
            has_changed |= columns.write(_REPORTED[name], row.number, getattr(report, name))
    if _OF_FACTS.isdisjoint(differing):
        return has_changed, False
    row.facts = EndpointFacts(known.engine, known.model, known.active_models, known.waiting_models)
    return has_changed, True
