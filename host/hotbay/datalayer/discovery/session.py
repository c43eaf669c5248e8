"""One run of a feed: what it names, on top of what earlier runs of the same feed left.

Decides what a call of the feed does to the feed's own set. Invariants: calls count in the order in which they come;
before the run is synced nothing goes that an earlier run left, whatever the run says; from then on the set is exactly
what this run named and did not take back. A run that ends before it is synced has taken nothing away. Pure.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from hotbay.config.endpoint_bounds import MAX_ENDPOINTS
from hotbay.datalayer.endpoint import Delete, EndpointEvent, EndpointMetadata, Upsert

__all__ = ["MAX_ENDPOINTS", "DiscoverySession", "TooManyEndpointsError"]


class TooManyEndpointsError(ValueError):
    """A feed names more endpoints than it may."""

    def __init__(self, most: int = MAX_ENDPOINTS) -> None:
        super().__init__(f"expected at most {most} endpoints of one feed, found one more")


class DiscoverySession:
    """See the module. `earlier` is what the feed's runs before this one left, by id; `most` how many it may hold.

    What was left may be more, when it was held under another bound: then nothing new comes before it has gone.
    """

    def __init__(
        self, earlier: Mapping[str, EndpointMetadata] = MappingProxyType({}), *, most: int = MAX_ENDPOINTS
    ) -> None:
        self.most = most
        self._held = dict(earlier)
        self._earlier = frozenset(earlier)
        # Left by earlier runs and not named by this one: they go when it is synced.
        self._unnamed = set(earlier)
        self._is_synced = False

    @property
    def is_synced(self) -> bool:
        """Whether the run has told all that there was when it began."""
        return self._is_synced

    @property
    def held(self) -> Mapping[str, EndpointMetadata]:
        """The feed's set as it is now, by id: a view."""
        return MappingProxyType(self._held)

    def upsert(self, endpoint: EndpointMetadata) -> tuple[EndpointEvent, ...]:
        """The endpoint exists. Nothing happens when it is held as it is.

        Raises:
            TooManyEndpointsError: nothing has changed.
        """
        before = self._held.get(endpoint.id)
        if before is None and len(self._held) >= self.most:
            raise TooManyEndpointsError(self.most)
        self._unnamed.discard(endpoint.id)
        if before == endpoint:
            return ()
        self._held[endpoint.id] = endpoint
        return (Upsert(endpoint),)

    def delete(self, endpoint_id: str) -> tuple[EndpointEvent, ...]:
        """The endpoint is gone: at once, or at the sync if an earlier run left it. Nothing happens without one."""
        endpoint = self._held.get(endpoint_id)
        if endpoint is None:
            return ()
        if not self._is_synced and endpoint_id in self._earlier:
            self._unnamed.add(endpoint_id)
            return ()
        del self._held[endpoint_id]
        return (Delete(endpoint),)

    def replace(self, endpoints: Iterable[EndpointMetadata], *, is_all: bool = False) -> tuple[EndpointEvent, ...]:
        """These exist and no others: upserts in their order, then deletes.

        With `is_all` the run has told all that there is by this, and is synced: what earlier runs left goes in the same step,
        so that no room is needed for both.

        Raises:
            TooManyEndpointsError: nothing has changed.
        """
        wanted = {endpoint.id: endpoint for endpoint in endpoints}
        if len(wanted.keys() | (set() if self._is_synced or is_all else self._earlier)) > self.most:
            raise TooManyEndpointsError(self.most)
        if is_all:
            self._is_synced = True
            self._unnamed.clear()
        gone = [endpoint_id for endpoint_id in self._held if endpoint_id not in wanted]
        # Room first: the bound is on what is held, and the events' order is put right below.
        deleted = [event for endpoint_id in gone for event in self.delete(endpoint_id)]
        upserted = [event for endpoint in wanted.values() for event in self.upsert(endpoint)]
        return (*upserted, *deleted)

    def sync(self) -> tuple[EndpointEvent, ...]:
        """The run has told all that there was when it began: what it did not name goes. Later calls do nothing."""
        if self._is_synced:
            return ()
        self._is_synced = True
        gone = [endpoint for endpoint_id, endpoint in self._held.items() if endpoint_id in self._unnamed]
        for endpoint in gone:
            del self._held[endpoint.id]
        self._unnamed.clear()
        return tuple(Delete(endpoint) for endpoint in gone)
