"""Sources, extractors and a counter that tests of the data layer drive."""

from collections import Counter
from collections.abc import Awaitable, Callable
from types import SimpleNamespace

import anyio
import pytest
from hotbay.config.data_types import ObjectKind
from hotbay.datalayer.endpoint import EndpointMetadata
from hotbay.datalayer.source import EndpointNews, Event, ObjectEvent

WAIT_S = 5.0
POD = ObjectKind("", "v1", "Pod")


class Counted:
    """Counts as `Counts` does, and wakes who waits for more."""

    def __init__(self) -> None:
        self.seen: Counter[tuple[str, ...]] = Counter()
        self._news = anyio.Event()

    def poll_failed(self, source: str) -> None:
        self._add("poll", source)

    def poll_skipped(self, source: str) -> None:
        self._add("skip", source)

    def extract_failed(self, source: str, extractor: str) -> None:
        self._add("extract", source, extractor)

    def extract_skipped(self, source: str, extractor: str, reason: str) -> None:
        self._add("skip", source, extractor, reason)

    def event(self, source: str, outcome: str) -> None:
        self._add("event", source, outcome)

    def _add(self, *what: str) -> None:
        self.seen[what] += 1
        self.tell()

    def tell(self) -> None:
        self._news.set()
        self._news = anyio.Event()

    async def until(self, condition: Callable[[], bool]) -> None:
        with anyio.fail_after(WAIT_S):
            while not condition():
                await self._news.wait()


class Polled:
    """A polling source that answers by `answer`, which may wait and raise."""

    type = "test-source"
    payload = str

    def __init__(self, counts: Counted, name: str = "s", interval_s: float = 3600.0) -> None:
        self.name = name
        self.interval_s = interval_s
        self.asked: list[EndpointMetadata] = []
        self.forgotten: list[str] = []
        self.under_way: Counter[str] = Counter()
        self.most_under_way = 0
        self.answer: Callable[[EndpointMetadata], Awaitable[object]] = self._page
        self._counts = counts

    async def _page(self, endpoint: EndpointMetadata) -> object:
        return f"page {len(self.asked)}"

    async def poll(self, endpoint: EndpointMetadata) -> object:
        self.asked.append(endpoint)
        self.under_way[endpoint.id] += 1
        self.most_under_way = max(self.most_under_way, self.under_way[endpoint.id])
        self._counts.tell()
        try:
            return await self.answer(endpoint)
        finally:
            self.under_way[endpoint.id] -= 1

    def forget(self, endpoint_id: str) -> None:
        assert not self.under_way[endpoint_id]
        self.forgotten.append(endpoint_id)


class Reads:
    """An extractor of payloads, of the given type."""

    def __init__(self, counts: Counted, name: str, payload: type = str) -> None:
        self.name = name
        self.type = f"type-{name}"
        self.payload = payload
        self.seen: list[tuple[object, str]] = []
        self.found: Callable[[object], Awaitable[object]] = self._nothing
        self._counts = counts

    async def _nothing(self, payload: object) -> object:
        return {f"{self.name}": str(payload)}

    async def extract(self, payload: object, endpoint: object) -> object:
        self.seen.append((payload, endpoint.metadata.id))
        self._counts.tell()
        return await self.found(payload)


class Hears:
    """An extractor of events of the given kind, None for endpoints."""

    def __init__(self, counts: Counted, name: str, kind: ObjectKind | None = None) -> None:
        self.name = name
        self.type = f"type-{name}"
        self.kind = kind
        self.seen: list[Event] = []
        self.found: Callable[[Event], Awaitable[object]] = self._nothing
        self._counts = counts

    async def _nothing(self, event: Event) -> object:
        return {}

    async def extract_event(self, event: Event) -> object:
        self.seen.append(event)
        self._counts.tell()
        return await self.found(event)


class Told:
    """A notification source that emits what it is given; `say` is its word on an event."""

    type = "test-notification"

    def __init__(self, name: str = "n", kind: ObjectKind = POD) -> None:
        self.name = name
        self.kind = kind
        self.say: Callable[[ObjectEvent], ObjectEvent | None] = lambda event: event
        self.emit: Callable[[ObjectEvent], Awaitable[None]] | None = None
        self.runs = anyio.Event()

    async def run(self, emit: Callable[[ObjectEvent], Awaitable[None]]) -> None:
        self.emit = emit
        self.runs.set()
        await anyio.sleep_forever()

    async def notify(self, event: ObjectEvent) -> ObjectEvent | None:
        return self.say(event)


class Watched:
    """An endpoint source; `say` is its word on an event."""

    type = "test-endpoints"

    def __init__(self, name: str = "e") -> None:
        self.name = name
        self.say: Callable[[EndpointNews], EndpointNews | None] = lambda event: event

    async def notify_endpoint(self, event: EndpointNews) -> EndpointNews | None:
        return self.say(event)


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    """The loop that hosts run on."""
    return "asyncio", {"use_uvloop": True}


@pytest.fixture
def counts() -> Counted:
    return Counted()


@pytest.fixture
def kit(counts: Counted) -> SimpleNamespace:
    """Makes sources and extractors that wake who waits on `counts`."""
    return SimpleNamespace(
        polled=lambda *args, **options: Polled(counts, *args, **options),
        reads=lambda *args, **options: Reads(counts, *args, **options),
        hears=lambda *args, **options: Hears(counts, *args, **options),
        told=Told,
        watched=Watched,
    )
