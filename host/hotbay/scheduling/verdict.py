"""The decision of a cycle that found endpoints: where a request goes, and with which headers. Pure."""

from collections.abc import Sequence
from typing import Protocol

from hotbay_sdk.protocol.verdicts import HeaderEdits

from hotbay.datalayer.endpoint import EndpointMetadata
from hotbay.datalayer.tables.snapshot import Snapshot
from hotbay.scheduling.batch import Datum
from hotbay.scheduling.builtin_handlers import data_parallel_headers
from hotbay.scheduling.decision import NO_HEADERS, Arm, Picked, Results
from hotbay.scheduling.plan import Plan
from hotbay.scheduling.request import InferenceRequest

__all__ = ["picked"]


class Settled(Protocol):
    """What a decision is made of."""

    plan: Plan
    snapshot: Snapshot
    request: InferenceRequest
    data: dict[str, Datum]
    results: dict[str, list[int] | None]
    degraded: list[tuple[str, str]]
    edits: dict[int, HeaderEdits]
    arm: Arm | None


def picked(cycle: Settled, name: str, rows: Sequence[int]) -> Picked:
    """The decision for the rows of the primary profile `name`."""
    at = cycle.snapshot.endpoints
    first = at[rows[0]]
    targets = (first,) if len(rows) == 1 and first is not None else _endpoints(at, rows)
    if len(cycle.results) == 1:
        results: Results = {name: targets}
    else:
        results = {n: None if found is None else _endpoints(at, found) for n, found in cycle.results.items()}
    plan = cycle.plan
    decision = Picked(targets[0], targets[1:], name, tuple(cycle.degraded), cycle.arm, results)
    if cycle.edits or plan.withheld or plan.handler.port is not None:
        decision = _with_headers(cycle, decision)
    counting = plan.counts_tokens
    if counting is None:
        return decision
    tokens, of_answer, elsewhere = counting.of(cycle.request, cycle.data, rows)
    return decision._replace(
        tokens=tokens, answer_tokens=of_answer, tokens_elsewhere=elsewhere, releases_tokens=counting.releases
    )


def _with_headers(cycle: Settled, decision: Picked) -> Picked:
    port = cycle.plan.handler.port
    # What is withheld is set by nobody: where somebody else sets it, that counts.
    request: dict[str, str | None] = dict.fromkeys(cycle.plan.withheld)
    if port is not None:
        request.update(data_parallel_headers(decision.endpoint))
    response: dict[str, str] = {}
    # In the order of the configuration: of two that set one header the later one counts.
    for order in sorted(cycle.edits):
        request.update(cycle.edits[order].request)
        response.update(cycle.edits[order].response)
    return decision._replace(request_headers=request or NO_HEADERS, response_headers=response or NO_HEADERS, port=port)


def _endpoints(at: Sequence[EndpointMetadata | None], rows: Sequence[int]) -> tuple[EndpointMetadata, ...]:
    return tuple(endpoint for row in rows if (endpoint := at[row]) is not None)
