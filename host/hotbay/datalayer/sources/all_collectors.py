"""The collectors of all sources that are polled, each source's its own, so that sources come and go while endpoints do.

A source that comes is polled from now on for every endpoint that is there; of one that goes nothing is written any more, and no
poll of another source is touched. On the event loop.
"""

from anyio.abc import TaskGroup

from hotbay.datalayer.endpoint import EndpointMetadata
from hotbay.datalayer.sources.polling import SourceCollectors

__all__ = ["AllCollectors"]


class AllCollectors:
    """See the module; for `Lifecycle`, which says which endpoints there are, in the words of `SourceCollectors`."""

    def __init__(self) -> None:
        self._each: tuple[SourceCollectors, ...] = ()
        self._endpoints: dict[str, EndpointMetadata] = {}
        self._retired: set[str] = set()
        self._group: TaskGroup | None = None

    def add(self, collectors: SourceCollectors) -> None:
        """Poll one more source."""
        self._each = (*self._each, collectors)
        for endpoint in self._endpoints.values():
            if endpoint.id not in self._retired and self._group is not None:
                collectors.start(self._group, endpoint)

    def remove(self, collectors: SourceCollectors, group: TaskGroup) -> None:
        """Poll this source no more; its tasks are waited for in `group`."""
        self._each = tuple(one for one in self._each if one is not collectors)
        for endpoint_id in self._endpoints:
            collectors.retire(endpoint_id)
            group.start_soon(collectors.stop, endpoint_id)

    def start(self, group: TaskGroup, endpoint: EndpointMetadata) -> None:
        """Start an endpoint's collectors in `group`. Raises `CollectorExistsError` when the endpoint has one."""
        self._group = group
        self._endpoints[endpoint.id] = endpoint
        self._retired.discard(endpoint.id)
        for collectors in self._each:
            collectors.start(group, endpoint)

    def update(self, endpoint: EndpointMetadata) -> None:
        """Later polls are of this metadata; for a change that does not touch where it is polled."""
        self._endpoints[endpoint.id] = endpoint
        for collectors in self._each:
            # A source that came once the endpoint was to go does not poll it.
            if endpoint.id in collectors:
                collectors.update(endpoint)

    def retire(self, endpoint_id: str) -> None:
        """From now on nothing is written of what the endpoint's collectors bring; they go on until they are stopped."""
        self._retired.add(endpoint_id)
        for collectors in self._each:
            collectors.retire(endpoint_id)

    async def stop(self, endpoint_id: str) -> None:
        """End the endpoint's collectors, if any, and return when none of their tasks runs."""
        self._endpoints.pop(endpoint_id, None)
        self._retired.discard(endpoint_id)
        for collectors in self._each:
            await collectors.stop(endpoint_id)
