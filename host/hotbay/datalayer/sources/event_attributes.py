"""Attributes that events gave: written to endpoints that are there, and kept for those that come, or come again.

An event is told once, and an endpoint may come after it; without this, what the event said would be lost. A later event about
the same attribute replaces it. The keeper is the only writer of these attributes; it runs on the event loop.
"""

from collections.abc import Callable
from typing import Final

from hotbay.datalayer.attributes import AttributeMap, AttributeValue
from hotbay.datalayer.endpoint import Delete, EndpointEvent
from hotbay.datalayer.sources.source import AttributesOf
from hotbay.datalayer.store import EndpointStore

__all__ = ["MAX_KEPT_ENDPOINTS", "EventAttributes", "TooManyEndpointsError"]

MAX_KEPT_ENDPOINTS: Final = 16384
"""Three times the endpoints of the largest discovery file; an extractor that invents ids fails beyond it."""


class TooManyEndpointsError(Exception):
    """Attributes of more endpoints than may be kept."""


class EventAttributes:
    """See the module. `follow` while events are told; `now` is monotonic seconds, of the store's times."""

    def __init__(self, store: EndpointStore, *, now: Callable[[], float]) -> None:
        self._store = store
        self._now = now
        self._kept: dict[str, AttributeMap] = {}
        self._present: set[str] = set()

    def follow(self) -> Callable[[], None]:
        """Write what is kept whenever an endpoint comes; the function returned ends that."""
        self._present = {endpoint.id for endpoint in self._store.endpoints()}
        return self._store.subscribe(self._endpoint_event)

    def put(self, found: AttributesOf) -> None:
        """Keep and write. Raises `AttributeRefusedError` or `TooManyEndpointsError`; then nothing of `found` is kept."""
        new = {endpoint_id: self._kept.get(endpoint_id, _NONE).clone() for endpoint_id in found}
        for endpoint_id, values in found.items():
            new[endpoint_id].update(values)
        if len(self._kept.keys() | new.keys()) > MAX_KEPT_ENDPOINTS:
            raise TooManyEndpointsError(
                f"expected attributes of at most {MAX_KEPT_ENDPOINTS} endpoints, found {len(self._kept.keys() | new.keys())}"
            )
        for endpoint_id, kept in new.items():
            if kept.keys():
                self._kept[endpoint_id] = kept
            else:
                self._kept.pop(endpoint_id, None)
            self._store.put_attributes(endpoint_id, found[endpoint_id], self._now())

    def _endpoint_event(self, event: EndpointEvent) -> None:
        endpoint_id = event.endpoint.id
        if isinstance(event, Delete):
            self._present.discard(endpoint_id)
        elif endpoint_id not in self._present:
            self._present.add(endpoint_id)
            kept = self._kept.get(endpoint_id)
            if kept is not None:
                values: dict[str, AttributeValue | None] = {key: kept.get(key) for key in kept.keys()}  # noqa: SIM118
                self._store.put_attributes(endpoint_id, values, self._now())


_NONE: Final = AttributeMap()
