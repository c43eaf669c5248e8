"""Which requests in flight may be given up for more important ones, and which of them first."""

from hotbay_sdk import EvictionFilterPolicy, EvictionOrderingPolicy, InFlightRequest

from hotbay_flow_control.package import plugin


@plugin.type("sheddable-eviction-filter")
class SheddableEvictionFilter(EvictionFilterPolicy):
    """Those that may be shed: of a priority below 0."""

    def accept(self, request: InFlightRequest) -> bool:
        """Whether it may be given up."""
        return request.priority < 0


@plugin.type("priority-then-time-eviction-order-policy")
class PriorityThenTimeEvictionOrderPolicy(EvictionOrderingPolicy):
    """The least important first, and of those the youngest: the least work is lost with it."""

    def less(self, a: InFlightRequest, b: InFlightRequest) -> bool:
        """Whether `a` is given up before `b`."""
        return (a.priority, -a.started_s) < (b.priority, -b.started_s)
