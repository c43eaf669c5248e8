"""Ordering policies: which request of a flow goes first. Pure comparisons; each is a strict weak order."""

from math import inf
from typing import Final

from hotbay_sdk import OrderingPolicy, QueuedRequest

from hotbay_flow_control.package import plugin

SLO_HEADER: Final = "x-llm-d-slo-ttft-ms"


@plugin.type("fcfs-ordering-policy")
class FcfsOrderingPolicy(OrderingPolicy):
    """First come, first served."""

    def less(self, a: QueuedRequest, b: QueuedRequest) -> bool:
        """Whether `a` came before `b`."""
        return a.enqueued_s < b.enqueued_s


@plugin.type("edf-ordering-policy")
class EdfOrderingPolicy(OrderingPolicy):
    """Who may wait least goes first; who may wait for ever last; first come, first served among equals."""

    def less(self, a: QueuedRequest, b: QueuedRequest) -> bool:
        """Whether `a`'s time is over before `b`'s."""
        return (_expires_s(a), a.enqueued_s) < (_expires_s(b), b.enqueued_s)


@plugin.type("slo-deadline-ordering-policy")
class SloDeadlineOrderingPolicy(OrderingPolicy):
    """Who has to see a first token soonest goes first; who does not say last; first come, first served among equals."""

    def less(self, a: QueuedRequest, b: QueuedRequest) -> bool:
        """Whether `a`'s first token is due before `b`'s."""
        return (_due_s(a), a.enqueued_s) < (_due_s(b), b.enqueued_s)


def _expires_s(request: QueuedRequest) -> float:
    return request.enqueued_s + request.ttl_s if request.ttl_s > 0 else inf


def _due_s(request: QueuedRequest) -> float:
    """When the first token is due; never, where the header is no whole number of milliseconds above 0."""
    text = request.headers.get(SLO_HEADER, "")
    # Texts of digits only: `int` also reads blanks, signs and underscores, and refuses what is longer than 4300 digits.
    if not (text.isascii() and text.isdigit()) or len(text) > 12 or int(text) == 0:
        return inf
    return request.enqueued_s + int(text) / 1000
