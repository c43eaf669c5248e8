"""Policies of flow control: who goes next, in which order, up to which load, and who is given up.

Imported by what uses one of them. The host of this release loads types of these points and calls none of their methods: it has
no queues. `testing.PluginHarness` calls them. All methods are plain ones, in the order of the moment, and never overlap.
"""

from __future__ import annotations

from hotbay_sdk._points import UndefinedError, _Instance
from hotbay_sdk.protocol.declarations import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_NO_HEADERS: Mapping[str, str] = {}


class QueuedRequest(NamedTuple):
    """A request that waits.

    `flow`: its fairness id. `enqueued_s`: monotonic seconds when it came. `ttl_s`: how long it may wait, 0 for ever. `size`: bytes
    of its body. `headers`: by names in lower case.
    """

    id: str
    flow: str
    priority: int
    enqueued_s: float
    ttl_s: float
    size: int
    headers: Mapping[str, str] = _NO_HEADERS


class Flow(NamedTuple):
    """The requests of one fairness id and priority that wait, in the order of the ordering policy. `key` is the fairness id.

    `ordering`: that policy, None for first come, first served.
    """

    key: str
    queue: Sequence[QueuedRequest]
    ordering: OrderingPolicy | None = None


class Band(NamedTuple):
    """All flows of one priority."""

    priority: int
    flows: Sequence[Flow]


class InFlightRequest(NamedTuple):
    """A request that a model server works on. `started_s`: monotonic seconds when it was sent."""

    id: str
    priority: int
    started_s: float


class FairnessPolicy(_Instance):
    """Says which flow of a band goes next."""

    _hotbay_point = ("fairness", ("pick",))

    def pick(self, band: Band) -> str | None:
        """Return the key of a flow whose queue is not empty, or None where there is none."""
        raise UndefinedError


class OrderingPolicy(_Instance):
    """Orders the requests of one flow."""

    _hotbay_point = ("ordering", ("less",))

    def less(self, a: QueuedRequest, b: QueuedRequest) -> bool:
        """Say whether `a` goes before `b`: a strict weak order."""
        raise UndefinedError


class UsageLimitPolicy(_Instance):
    """Says up to which saturation each priority is served."""

    _hotbay_point = ("usage_limit", ("limits",))

    def limits(self, saturation: float, priorities: Sequence[int], ceilings: Sequence[float]) -> Sequence[float]:
        """Return one ceiling a priority; requests of a priority wait while the saturation is at or over its ceiling.

        Args:
            saturation: of the pool, from 0 up; 1 is full.
            priorities: of the bands, descending.
            ceilings: one for each of them, 1.0 to begin with.

        Returns:
            As many numbers from 0 up, none larger than the one before it.
        """
        raise UndefinedError


class EvictionOrderingPolicy(_Instance):
    """Orders the requests in flight that may be given up."""

    _hotbay_point = ("eviction_order", ("less",))

    def less(self, a: InFlightRequest, b: InFlightRequest) -> bool:
        """Say whether `a` is given up before `b`: a strict weak order."""
        raise UndefinedError


class EvictionFilterPolicy(_Instance):
    """Says which requests in flight may be given up at all."""

    _hotbay_point = ("eviction_filter", ("accept",))

    def accept(self, request: InFlightRequest) -> bool:
        """Say whether `request` may be given up for more important ones."""
        raise UndefinedError
