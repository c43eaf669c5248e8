"""The contracts of the data layer: sources that are polled or that notify, and the extractors behind them.

A source brings data and knows nothing of endpoints' state; an extractor turns one payload into attributes; whoever runs them
counts, times and writes. All of them are called on the event loop. What they raise concerns one poll, one event or one
extractor, and nothing else.
"""

import enum
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias, runtime_checkable

from hotbay.config.data_types import ObjectKind
from hotbay.datalayer.attributes import AttributeValue
from hotbay.datalayer.endpoint import Endpoint, EndpointMetadata, Metrics

__all__ = [
    "STEP_TIMEOUT_S",
    "AnyExtractor",
    "AttributesOf",
    "Counts",
    "DataSource",
    "Emit",
    "EndpointNews",
    "EndpointSource",
    "Event",
    "EventExtractor",
    "EventType",
    "Extracted",
    "Extractor",
    "NotAskedError",
    "NotificationSource",
    "ObjectEvent",
    "PayloadType",
    "PollingSource",
    "ReadsForExtractors",
    "SourceError",
    "TellsAgain",
    "step_timeout_s",
]

STEP_TIMEOUT_S: Final = 1.0
"""The reference's budget of one poll, and of one extractor."""


def step_timeout_s(step: object, default_s: float) -> float:
    """The budget of a source's or an extractor's step on an event: its own `step_s` if it has one.

    Infinite for one that bounds its calls itself and delivers each event once, as one in another process does.
    """
    return getattr(step, "step_s", default_s)


Extracted: TypeAlias = Mapping[str, AttributeValue | None]
"""Attribute -> value; None removes it."""

AttributesOf: TypeAlias = Mapping[str, Extracted]
"""Endpoint id -> what is new about it. What an object said of an endpoint that is not there waits until it comes."""


class SourceError(Exception):
    """Data could not be brought. `reason` is a short fixed word for counting, the text says more."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class NotAskedError(Exception):
    """An extractor, or a source, was not asked, because it is asked too much already: nobody's failure."""


class EventType(enum.StrEnum):
    """What happened. A change of an object is told like its coming."""

    ADD_OR_UPDATE = "add_or_update"
    DELETE = "delete"


@dataclass(frozen=True, slots=True)
class ObjectEvent:
    """An object came, changed or went. `object` is the document, of the receiver's own: it may be changed.

    Of an object that went it is what the object last was. `key` is `namespace/name`, without namespace `name`.
    """

    type: EventType
    kind: ObjectKind
    key: str
    object: dict[str, object]


@dataclass(frozen=True, slots=True)
class EndpointNews:
    """An endpoint came, changed or went; of one that went, the metadata is what it last had."""

    type: EventType
    endpoint: EndpointMetadata


PayloadType: TypeAlias = type[object]
Event: TypeAlias = ObjectEvent | EndpointNews
Emit: TypeAlias = Callable[[ObjectEvent], Awaitable[None]]


@runtime_checkable
class DataSource(Protocol):
    """What every source has: a name that no other source has, and its plugin type."""

    @property
    def name(self) -> str: ...

    @property
    def type(self) -> str: ...


@runtime_checkable
class PollingSource(DataSource, Protocol):
    """Asked for a payload of one endpoint at a time, every `interval_s`.

    One instance serves all endpoints. Calls for different endpoints overlap; for one endpoint never.
    """

    @property
    def payload(self) -> PayloadType: ...

    @property
    def interval_s(self) -> float: ...

    async def poll(self, endpoint: EndpointMetadata) -> object:
        """Return a payload of the type that is declared, which the caller does not change. Raises `SourceError`.

        `NotAskedError` where nobody was asked for it. The caller cancels it at its deadline.
        """

    def forget(self, endpoint_id: str) -> None:
        """Let go of what is kept for the endpoint, such as a connection; it may come again. Not called during a poll."""


@runtime_checkable
class ReadsForExtractors(Protocol):
    """A polling source whose payload depends on who reads it."""

    def read_for(self, extractors: Sequence["Extractor"]) -> None:
        """These stand behind it from the next poll on."""


@runtime_checkable
class NotificationSource(DataSource, Protocol):
    """Tells of objects of one kind, in order."""

    @property
    def kind(self) -> ObjectKind: ...

    async def run(self, emit: Emit) -> None:
        """Emit until cancelled, each event after the one before was taken; all objects that are there first.

        It is run again after it raised, and then goes on from what it has told.
        """

    async def notify(self, event: ObjectEvent) -> ObjectEvent | None:
        """Return what the extractors are to see: the event, another, or None for nothing. Called for one event at a time."""


@runtime_checkable
class TellsAgain(Protocol):
    """A notification source that can begin from the beginning, for who was not there when it told what it told."""

    def tell_again(self) -> None:
        """Emit once more, when `run` is run again, every object that is there; and what went meanwhile, as ever."""


@runtime_checkable
class EndpointSource(DataSource, Protocol):
    """Sees endpoints come, change and go."""

    async def notify_endpoint(self, event: EndpointNews) -> EndpointNews | None:
        """Return what the extractors are to see: the event, another, or None for nothing. Called for one event at a time."""


class Extractor(Protocol):
    """Turns a payload of one type into what is known of the endpoint. Calls for different endpoints overlap."""

    @property
    def name(self) -> str: ...

    @property
    def type(self) -> str: ...

    @property
    def payload(self) -> PayloadType: ...

    async def extract(self, payload: object, endpoint: Endpoint) -> Extracted | Metrics:
        """Return what is new; may raise anything, which counts as its failure and concerns nobody else."""


class EventExtractor(Protocol):
    """Turns events into attributes of endpoints. `kind` None: of endpoints themselves. Called for one event at a time."""

    @property
    def name(self) -> str: ...

    @property
    def type(self) -> str: ...

    @property
    def kind(self) -> ObjectKind | None: ...

    async def extract_event(self, event: Event) -> AttributesOf:
        """Return what is new; may raise anything, which counts as its failure and concerns nobody else."""


AnyExtractor: TypeAlias = Extractor | EventExtractor


class Counts(Protocol):
    """Where the tasks of the data layer count; names are those of the configuration."""

    def poll_failed(self, source: str) -> None: ...

    def poll_skipped(self, source: str) -> None:
        """A source in a plugin process was not asked for an endpoint's data: it was busy with others."""

    def extract_failed(self, source: str, extractor: str) -> None: ...

    def extract_skipped(self, source: str, extractor: str, reason: str) -> None:
        """An extractor was not asked: it was `busy` with others, or news of the same subject `superseded` what waited."""

    def event(self, source: str, outcome: str) -> None:
        """`delivered`, `dropped` by the source, or `failed` in it; `superseded` by news of the same endpoint before the
        source heard of it; `forgotten`: what an extractor said of an endpoint that is not there had no room any more.
        """
