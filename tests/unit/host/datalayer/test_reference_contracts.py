"""Contracts of the reference's data layer package that no other test of a single part shows."""

from collections.abc import Mapping

import anyio
import pytest
from hotbay.config.data_types import ObjectKind
from hotbay.datalayer.attributes import AttributeMap, AttributeValue, DynamicAttribute
from hotbay.datalayer.discovery.discovery import Discovery
from hotbay.datalayer.discovery.feed import FeedPlan
from hotbay.datalayer.discovery.notifier import DiscoveryNotifier
from hotbay.datalayer.endpoint import Endpoint, EndpointMetadata, Metrics
from hotbay.datalayer.source import AttributesOf, Emit, Event, EventType, ObjectEvent
from hotbay.datalayer.sources.event_attributes import EventAttributes
from hotbay.datalayer.sources.extracting import Extraction
from hotbay.datalayer.sources.notification import Notifications, NotifiedSource
from hotbay.datalayer.store import EndpointStore
from hotbay.observe.background import Background

pytestmark = pytest.mark.anyio

WAIT_S = 10.0
POD = ObjectKind("", "v1", "Pod")
A = EndpointMetadata("default/a", "a", "10.0.0.1", 8000)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Counted:
    """Notes what failed, and what became of events."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def poll_failed(self, source: str) -> None:
        self.seen.append(source)

    def poll_skipped(self, source: str) -> None:
        self.seen.append(f"{source} skipped")

    def extract_failed(self, source: str, extractor: str) -> None:
        self.seen.append(f"{source}/{extractor}")

    def extract_skipped(self, source: str, extractor: str, reason: str) -> None:
        self.seen.append(f"{source}/{extractor} {reason}")

    def event(self, source: str, outcome: str) -> None:
        self.seen.append(f"{source} {outcome}")


def test_a_new_endpoint_knows_nothing() -> None:
    store = EndpointStore()
    store.upsert(A)
    made = store.endpoint(A.id)
    assert made is not None
    assert (made.metadata, made.metrics, made.attributes.keys()) == (A, Metrics(), ())
    assert (Metrics().reported, dict(Metrics().updated_at), str(Metrics())) == ([], {}, "")
    alone = Endpoint(A, Metrics(waiting=2.0))
    assert (alone.metadata, alone.metrics.waiting, alone.attributes.keys()) == (A, 2.0, ())


def test_a_dynamic_attribute_is_dynamic_in_a_clone_too() -> None:
    loads: list[AttributeValue] = [1]
    attributes = AttributeMap()
    attributes.put("load", DynamicAttribute(lambda: loads[0]))
    clone = attributes.clone()
    loads[0] = 2
    assert (attributes.get("load"), clone.get("load")) == (2, 2)


# -- discovery ---------------------------------------------------------------------------------------


class SmallStore:
    """As much of a store as discovery needs."""

    def __init__(self) -> None:
        self.held: dict[str, EndpointMetadata] = {}

    def upsert(self, endpoint: EndpointMetadata) -> bool:
        self.held[endpoint.id] = endpoint
        return True

    def delete(self, endpoint_id: str) -> bool:
        return self.held.pop(endpoint_id, None) is not None

    def __len__(self) -> int:
        return len(self.held)


class Telling:
    """A discovery that notes what the store holds after each of its calls."""

    name = "telling"

    def __init__(self, store: SmallStore, seen: list[list[int]]) -> None:
        self.ready = anyio.Event()
        self._store = store
        self._seen = seen

    async def run(self, notifier: DiscoveryNotifier) -> None:
        for port in (8000, 8001):
            notifier.upsert(EndpointMetadata(A.id, A.name, A.address, port))
            self._note()
        notifier.delete(A.id)
        self._note()
        self.ready.set()
        await anyio.sleep_forever()

    def _note(self) -> None:
        self._seen.append([endpoint.port for endpoint in self._store.held.values()])


async def test_what_a_discovery_tells_is_in_any_store_when_the_call_returns() -> None:
    store, seen = SmallStore(), list[list[int]]()
    plan = FeedPlan("discovery", "telling", 0, lambda: Telling(store, seen))
    discovery = Discovery(store, plans=[plan], background=Background(), draw=lambda: 0.5)
    async with anyio.create_task_group() as group:
        group.start_soon(discovery.run)
        with anyio.fail_after(WAIT_S):
            await discovery.ready.wait()
        group.cancel_scope.cancel()
    assert seen == [[8000], [8001], []]


# -- extractors --------------------------------------------------------------------------------------


class Reads:
    """Adds its name to those that the endpoint has from the extractors before it; `hangs` never comes back."""

    type = "reads"
    payload = str

    def __init__(self, name: str, *, hangs: bool = False) -> None:
        self.name = name
        self.hangs = hangs
        self.seen: list[tuple[object, Endpoint]] = []

    async def extract(self, payload: object, endpoint: Endpoint) -> Mapping[str, AttributeValue | None]:
        self.seen.append((payload, endpoint))
        if self.hangs:
            await anyio.sleep_forever()
        # A turn for others, so that a time that is over already would end it here.
        await anyio.lowlevel.checkpoint()
        return {"trail": [*(endpoint.attributes.read("trail", list) or []), self.name]}


async def extracted(*extractors: Reads, step_s: float = WAIT_S) -> tuple[object, list[str], Endpoint]:
    """The trail that is left, what failed, and the endpoint."""
    store, counts = EndpointStore(), Counted()
    store.upsert(A)
    extraction = Extraction("s", extractors, store=store, now=lambda: 0.0, counts=counts, step_s=step_s)
    await extraction.run("page", A.id, lambda: True)
    endpoint = store.endpoint(A.id)
    assert endpoint is not None
    return endpoint.attributes.get("trail"), counts.seen, endpoint


async def test_an_extractor_gets_the_payload_and_the_endpoint_with_what_those_before_it_found() -> None:
    readers = [Reads("b"), Reads("a"), Reads("c")]
    trail, failed, endpoint = await extracted(*readers)
    assert (trail, failed) == (["b", "a", "c"], [])
    assert [reader.seen for reader in readers] == [[("page", endpoint)]] * 3


async def test_the_time_that_one_extractor_used_up_is_not_that_of_the_next() -> None:
    trail, failed, _ = await extracted(Reads("x", hangs=True), Reads("y", hangs=True), Reads("z"), step_s=0.05)
    assert (trail, failed) == (["z"], ["s/x", "s/y"])


# -- events ------------------------------------------------------------------------------------------


class Emits:
    """A notification source of one event."""

    name, type, kind = "n", "emits", POD

    def __init__(self) -> None:
        self.told = anyio.Event()

    async def run(self, emit: Emit) -> None:
        await emit(ObjectEvent(EventType.DELETE, POD, "default/a", {}))
        self.told.set()
        await anyio.sleep_forever()

    async def notify(self, event: ObjectEvent) -> ObjectEvent | None:
        return event


class Hears:
    """Notes in `order` that it was asked, and answers once `may_answer` is set."""

    type, kind = "hears", POD

    def __init__(self, name: str, order: list[str], may_answer: anyio.Event) -> None:
        self.name = name
        self._order = order
        self._may_answer = may_answer

    async def extract_event(self, event: Event) -> AttributesOf:
        self._order.append(f"{self.name} asked")
        await self._may_answer.wait()
        self._order.append(f"{self.name} done")
        return {"default/a": {self.name: True}}


async def test_extractors_of_an_event_are_asked_in_the_order_of_their_binding_and_none_waits_for_another() -> None:
    store, counts, source, order = EndpointStore(), Counted(), Emits(), list[str]()
    store.upsert(A)
    slow, fast = anyio.Event(), anyio.Event()
    fast.set()
    notified = NotifiedSource(source, (Hears("b", order, slow), Hears("a", order, fast), Hears("c", order, fast)))
    attributes = EventAttributes(store, now=lambda: 0.0)
    notifications = Notifications([notified], attributes=attributes, counts=counts, background=Background())
    async with anyio.create_task_group() as group:
        notifications.start(group)
        await anyio.wait_all_tasks_blocked()
        assert [step for step in order if step.endswith("asked")] == ["b asked", "a asked", "c asked"]
        assert {step for step in order if step.endswith("done")} == {"a done", "c done"}
        slow.set()
        await anyio.wait_all_tasks_blocked()
        group.cancel_scope.cancel()
    assert source.told.is_set()
    assert counts.seen == ["n delivered"]
    endpoint = store.endpoint(A.id)
    assert endpoint is not None
    assert sorted(endpoint.attributes.keys()) == ["a", "b", "c"]
