"""Extractors and sources in plugin processes, in the forms of `hotbay.datalayer.source`."""

from collections.abc import Mapping

import anyio
from hotbay_sdk.protocol import Method, TypeDeclaration, Value

from hotbay.config.data_types import ObjectKind
from hotbay.datalayer.endpoint import Endpoint
from hotbay.datalayer.endpoint_rows import wire_row
from hotbay.datalayer.remote.budget import POLL_IDLE_S, AttributeBudget, reply_limit
from hotbay.datalayer.remote.calls import POLL_STEP_S, RefCalls
from hotbay.datalayer.remote.deliveries import EVENT_STEP_S, Deliveries
from hotbay.datalayer.remote.payloads import PAYLOAD_TYPES, payload_to_wire
from hotbay.datalayer.remote.results import read_attributes, read_of_endpoints
from hotbay.datalayer.remote.wire_events import (
    columns_of,
    event_to_wire,
    object_kind_of,
    read_endpoint_news,
    read_object_event,
)
from hotbay.datalayer.source import (
    AttributesOf,
    Emit,
    EndpointNews,
    Event,
    EventType,
    Extracted,
    NotificationSource,
    ObjectEvent,
    TellsAgain,
)
from hotbay.errors import Problem
from hotbay.rpc.leases import LiveRef

__all__ = ["RemoteEndpointSource", "RemoteEventExtractor", "RemoteExtractor", "RemoteSource"]


def _reply_limit(live: LiveRef) -> int:
    return reply_limit(live.declaration.data.attributes)


class _Remote:
    """What extractors have in common. `taken` are attributes that are another's, by name, and whose: its own are refused.

    Args:
        type_name: the plugin type.
        calls: of the ref.
    """

    def __init__(self, type_name: str, calls: RefCalls) -> None:
        self.name = calls.ref
        self.type = type_name
        self._calls = calls
        self.taken: Mapping[str, str] = {}
        self._declared: TypeDeclaration | None = None

    @property
    def attributes(self) -> frozenset[str]:
        """Names of all that it makes."""
        return frozenset(self.declared.data.attributes) if self.declared is not None else frozenset()

    @property
    def declared(self) -> TypeDeclaration | None:
        """What the version that is live says of itself, or that was live last; None before there was one."""
        self._declared = self._calls.generations.declared(self.name) or self._declared
        return self._declared

    @property
    def columns(self) -> Mapping[str, str]:
        """Attributes that are columns, name → format."""
        columns = columns_of(self.declared) if self.declared is not None else {}
        return {name: kind for name, kind in columns.items() if name not in self.taken}


class RemoteExtractor(_Remote):
    """An `Extractor`. Calls for different endpoints overlap.

    Args:
        type_name: the plugin type.
        payload: the declared word.
        calls: of the ref.
    """

    step_s = POLL_STEP_S

    def __init__(self, type_name: str, payload: str, calls: RefCalls) -> None:
        super().__init__(type_name, calls)
        self.payload: type = PAYLOAD_TYPES[payload]
        self._budget = AttributeBudget(anyio.current_time, idle_s=POLL_IDLE_S)

    @property
    def families(self) -> tuple[str, ...]:
        """Names of samples of metrics pages that it reads."""
        return self.declared.data.families if self.declared is not None else ()

    async def extract(self, payload: object, endpoint: Endpoint) -> Extracted:
        """Ask for what one payload says. Raises `HostError`, after at most `step_s`.

        That is a `NotAskedError` where it was not asked because too many others were: the next payload says more.
        """
        metadata = endpoint.metadata
        row = wire_row(metadata)

        def read(found: Value, live: LiveRef) -> Extracted:
            attributes = read_attributes(found, live.declaration.data.attributes, self.taken)
            self._budget.take({metadata.id: attributes})
            return attributes

        return await self._calls.ask(
            Method.POLL_EXTRACT,
            lambda live: [row, payload_to_wire(payload, live.declaration.data.families)],
            read,
            limit=_reply_limit,
        )


class RemoteEventExtractor(_Remote):
    """An `EventExtractor`. Events are delivered as `Deliveries` says: only one whose process is away has no end."""

    step_s = EVENT_STEP_S

    def __init__(self, type_name: str, payload: str, calls: RefCalls) -> None:
        super().__init__(type_name, calls)
        self.kind: ObjectKind | None = object_kind_of(payload)
        self.deliveries = Deliveries(calls)
        self._budget = AttributeBudget(anyio.current_time)

    async def extract_event(self, event: Event) -> AttributesOf:
        """Ask for what one event says. Raises `HostError` when nobody answered it."""

        def read(found: Value, live: LiveRef) -> AttributesOf:
            attributes = read_of_endpoints(found, live.declaration.data.attributes, self.taken)
            if self.kind is None:
                # What objects say of endpoints is kept, and bounded, where it waits for them.
                self._budget.take(attributes)
            return attributes

        try:
            return await self.deliveries.deliver(Method.EVENT_EXTRACT, event_to_wire(event), read)
        finally:
            if isinstance(event, EndpointNews) and event.type is EventType.DELETE:
                self._budget.forget(event.endpoint.id)


class RemoteSource:
    """A `NotificationSource` whose process may change or drop what a source of the host finds.

    Args:
        feed: finds the events. Without one there are none, which is a problem.
    """

    step_s = EVENT_STEP_S

    def __init__(self, type_name: str, payload: str, calls: RefCalls, feed: NotificationSource | None = None) -> None:
        kind = object_kind_of(payload)
        assert kind is not None, "a notification source is of a kind of objects"
        self.name = calls.ref
        self.type = type_name
        self.kind: ObjectKind = kind
        self.deliveries = Deliveries(calls)
        self._feed = feed

    @property
    def problems(self) -> tuple[Problem, ...]:
        """What is wrong with the feed as it is now."""
        if self._feed is not None:
            return getattr(self._feed, "problems", ())
        message = f"the source '{self.name}' is told of no {self.kind.kind}: this host has no objects"
        hint = "write `objects: {directory: FOLDER}` in the HostConfig"
        return (Problem("CONFIG_INVALID", message, path="objects.directory", expected="a folder", hint=hint),)

    def tell_again(self) -> None:
        """Have the feed emit once more all that is there."""
        if isinstance(self._feed, TellsAgain):
            self._feed.tell_again()

    async def run(self, emit: Emit) -> None:
        """Emit what the feed finds, until cancelled."""
        if self._feed is None:
            await anyio.sleep_forever()
        else:
            await self._feed.run(emit)

    async def notify(self, event: ObjectEvent) -> ObjectEvent | None:
        """What the extractors are to see. Raises `HostError` when nobody answered it: the event is dropped then."""
        event_or_none = event
        if self._feed is not None:
            fed = await self._feed.notify(event)
            if fed is None:
                return None
            event_or_none = fed
        return await self.deliveries.deliver(
            Method.SOURCE_NOTIFY, event_to_wire(event_or_none), lambda found, _: read_object_event(found, event_or_none)
        )


class RemoteEndpointSource:
    """An `EndpointSource` whose process may change labels of what comes and goes, or drop events."""

    step_s = EVENT_STEP_S

    def __init__(self, type_name: str, calls: RefCalls) -> None:
        self.name = calls.ref
        self.type = type_name
        self.deliveries = Deliveries(calls)

    async def notify_endpoint(self, event: EndpointNews) -> EndpointNews | None:
        """What the extractors are to see. Raises as `RemoteSource.notify`."""
        return await self.deliveries.deliver(
            Method.SOURCE_NOTIFY, event_to_wire(event), lambda found, _: read_endpoint_news(found, event)
        )
