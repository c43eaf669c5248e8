"""Attributes that events gave: written to endpoints that are there, and kept for those that come, or come again, or move.

An event is told once, and an endpoint may come after it; without this, what the event said would be lost. A later event about
the same attribute replaces it, whichever extractor read it: an attribute is kept for who said it last.

Each extractor has room of its own, so that one that invents ids costs no other anything. When its room is used up, it forgets
what it knows of endpoints that are not there, first of the one that went, or was said something of, the longest ago; that is
counted. What it says of endpoints that are there is never forgotten: more than its room of that is refused. It runs on the
event loop.
"""

from collections import OrderedDict
from collections.abc import Callable, Container, Iterable
from typing import Final

from hotbay.datalayer.attributes import AttributeMap, AttributeValue, CheckedAttributes
from hotbay.datalayer.endpoint import Delete, EndpointEvent, EndpointMetadata
from hotbay.datalayer.source import AttributesOf
from hotbay.datalayer.store import EndpointStore

__all__ = ["MAX_KEPT_BYTES", "MAX_KEPT_ENDPOINTS", "EventAttributes", "KeptAttributes", "TooManyAttributesError"]

MAX_KEPT_ENDPOINTS: Final = 16384
"""Of one extractor: half more than a feed of endpoints may have."""

MAX_KEPT_BYTES: Final = 16 << 20
"""Of one extractor: a KiB for each of so many endpoints. See `AttributeMap.size_bytes`."""


class TooManyAttributesError(Exception):
    """An extractor says more of endpoints that are there than may be kept."""


class EventAttributes:
    """See the module. `follow` while events are told; `now` is monotonic seconds, of the store's times."""

    def __init__(self, store: EndpointStore, *, now: Callable[[], float]) -> None:
        self._store = store
        self._now = now
        self._keepers: dict[str, KeptAttributes] = {}
        self._present: dict[str, EndpointMetadata] = {}

    def follow(self) -> Callable[[], None]:
        """Write what is kept whenever an endpoint comes; the function returned ends that. Once."""
        for endpoint in self._store.endpoints():
            self._come(endpoint)
        return self._store.subscribe(self._endpoint_event)

    def of(self, extractor: str) -> "KeptAttributes":
        """What is kept for the extractor of this name: the same object each time."""
        keeper = self._keepers.get(extractor)
        if keeper is None:
            keeper = self._keepers[extractor] = KeptAttributes(extractor, self._present, self._write)
        return keeper

    def forget(self, extractor: str) -> None:
        """Take away all that the extractor of this name said, and nobody after it."""
        keeper = self._keepers.pop(extractor, None)
        if keeper is None:
            return
        for endpoint_id in self._present:
            said = keeper.come(endpoint_id).keys()
            self._store.put_attributes(endpoint_id, dict.fromkeys(said), self._now())

    def keep_none(self, names: Iterable[str]) -> None:
        """Keep no attributes of these names for endpoints that come: nobody makes them any more."""
        nothing = dict.fromkeys(names)
        for keeper in self._keepers.values() if nothing else ():
            keeper.yield_to(dict.fromkeys(keeper.known, nothing))

    def _write(self, keeper: "KeptAttributes", found: AttributesOf) -> None:
        for other in self._keepers.values():
            if other is not keeper:
                other.yield_to(found)
        for endpoint_id, values in found.items():
            self._store.put_attributes(endpoint_id, values, self._now())

    def _endpoint_event(self, event: EndpointEvent) -> None:
        endpoint = event.endpoint
        before = self._present.get(endpoint.id)
        if isinstance(event, Delete):
            self._present.pop(endpoint.id, None)
            for keeper in self._keepers.values():
                keeper.gone(endpoint.id)
        elif before is None or before.reached_at != endpoint.reached_at:
            self._come(endpoint)
        else:
            self._present[endpoint.id] = endpoint

    def _come(self, endpoint: EndpointMetadata) -> None:
        self._present[endpoint.id] = endpoint
        for keeper in self._keepers.values():
            values = keeper.come(endpoint.id)
            if values:
                self._store.put_attributes(endpoint.id, values, self._now())


class KeptAttributes:
    """What one extractor said.

    Args:
        extractor: its name.
        present: ids of the endpoints that are there, followed by whoever made it.
        write: writes what was said, once it is kept.
    """

    def __init__(
        self, extractor: str, present: Container[str], write: Callable[["KeptAttributes", AttributesOf], None]
    ) -> None:
        self.evicted = 0
        """Endpoints that were forgotten for want of room."""
        self._extractor = extractor
        self._is_there = present
        self._write = write
        self._present: dict[str, AttributeMap] = {}
        self._absent: OrderedDict[str, AttributeMap] = OrderedDict()
        self._bytes: dict[str, int] = {}
        self._size = self._present_size = 0

    def put(self, found: AttributesOf) -> int:
        """Keep and write; returns how many endpoints were forgotten for it.

        Raises:
            AttributeRefusedError: a key or a value may not be kept; nothing of `found` is.
            TooManyAttributesError: there is no room for what it says of endpoints that are there; likewise.
        """
        checked = {endpoint_id: CheckedAttributes(values) for endpoint_id, values in found.items()}
        new = {endpoint_id: self._kept(endpoint_id).clone() for endpoint_id in found}
        for endpoint_id, values in checked.items():
            new[endpoint_id].update(values)
        self._check(new)
        for endpoint_id, kept in new.items():
            self._set(endpoint_id, kept)
        evicted = self._make_room()
        self._write(self, checked)
        return evicted

    @property
    def known(self) -> tuple[str, ...]:
        """Ids of all endpoints of which something is kept."""
        return tuple(self._bytes)

    def yield_to(self, found: AttributesOf) -> None:
        """Another extractor said this: these attributes are kept there."""
        for endpoint_id, values in found.items():
            kept = self._kept(endpoint_id)
            mine: dict[str, AttributeValue | None] = {key: None for key in kept.keys() if key in values}  # noqa: SIM118
            if mine:
                kept.update(mine)
                self._set(endpoint_id, kept)

    def come(self, endpoint_id: str) -> CheckedAttributes:
        """The endpoint is there now, or moved; what is kept of it."""
        came = self._absent.pop(endpoint_id, None)
        if came is not None:
            self._present[endpoint_id] = came
            self._present_size += self._bytes[endpoint_id]
        return self._present.get(endpoint_id, _NONE).checked()

    def gone(self, endpoint_id: str) -> None:
        """The endpoint is not there any more; it may come again."""
        kept = self._present.pop(endpoint_id, None)
        if kept is not None:
            self._absent[endpoint_id] = kept
            self._present_size -= self._bytes[endpoint_id]

    def _kept(self, endpoint_id: str) -> AttributeMap:
        kept = self._present.get(endpoint_id)
        return self._absent.get(endpoint_id, _NONE) if kept is None else kept

    def _check(self, new: dict[str, AttributeMap]) -> None:
        there = {endpoint_id: kept for endpoint_id, kept in new.items() if endpoint_id in self._is_there}
        count = len(self._present) + sum(it not in self._present for it in there)
        before = sum(self._bytes[it] for it in there if it in self._present)
        size = self._present_size - before + sum(kept.size_bytes() for kept in there.values())
        if count > MAX_KEPT_ENDPOINTS or size > MAX_KEPT_BYTES:
            raise TooManyAttributesError(
                f"{self._extractor}: expected attributes of at most {MAX_KEPT_ENDPOINTS} endpoints and"
                f" {MAX_KEPT_BYTES} bytes for endpoints that are there, found {count} with {size} bytes"
            )

    def _set(self, endpoint_id: str, kept: AttributeMap) -> None:
        before = self._bytes.pop(endpoint_id, 0)
        self._size -= before
        self._absent.pop(endpoint_id, None)
        if self._present.pop(endpoint_id, None) is not None:
            self._present_size -= before
        if not kept.keys():
            return
        self._bytes[endpoint_id] = size = kept.size_bytes()
        self._size += size
        if endpoint_id in self._is_there:
            self._present[endpoint_id] = kept
            self._present_size += size
        else:
            self._absent[endpoint_id] = kept

    def _make_room(self) -> int:
        before = self.evicted
        while self._absent and (len(self._bytes) > MAX_KEPT_ENDPOINTS or self._size > MAX_KEPT_BYTES):
            endpoint_id, _ = self._absent.popitem(last=False)
            self._size -= self._bytes.pop(endpoint_id)
            self.evicted += 1
        return self.evicted - before


_NONE: Final = AttributeMap()
