"""A request as it goes to an endpoint, and what plugins set on it and on its answer."""

from collections.abc import Mapping

from hotbay.gateway.choice import Candidates
from hotbay.gateway.head import NO_EDITS, request_head
from hotbay.gateway.header_edits import header_edits
from hotbay.gateway.turn import Turn
from hotbay.observe.metrics import Metrics
from hotbay.scheduling.decision import Picked

__all__ = ["allowed", "outgoing"]


def allowed(edits: Mapping[str, str | None], metrics: Metrics) -> Mapping[bytes, bytes | None]:
    """The edits that plugins may make; the others are counted."""
    return header_edits(edits, metrics.header_edit_refused) if edits else NO_EDITS


def outgoing(
    turn: Turn,
    target: bytes,
    body: bytes,
    picked: Picked | None,
    *,
    authority: str,
    candidates: Candidates,
    via: bytes,
    metrics: Metrics,
) -> bytes:
    """Head and body. `candidates` are what is left of those that the request may go to instead."""
    wire, destinations, edits = turn.wire, "", NO_EDITS
    if picked is not None:
        destinations = ",".join((authority, *candidates.others())) if picked.fallbacks else authority
        edits = allowed(picked.request_headers, metrics)
    head = request_head(
        b"GET" if turn.head_only else wire.method,
        target,
        wire.headers,
        authority=authority,
        request_id=turn.request_id,
        peer=turn.client.peer,
        via=via,
        body_bytes=len(body) if wire.has_framing else None,
        destinations=destinations,
        edits=edits,
    )
    return head + body
