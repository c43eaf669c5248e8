"""What the gateway needs from the rest of the host, as Protocols and callables: it imports neither scheduler nor store."""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from hotbay_sdk.protocol.verdicts import Parsed

from hotbay.datalayer.endpoint import EndpointMetadata
from hotbay.datalayer.health.patience import Awaited
from hotbay.datalayer.health.reports import Attempt
from hotbay.gateway.outcome import Outcome
from hotbay.gateway.parsers.table import DEFAULT_PARSERS
from hotbay.scheduling.decision import Picked, Rejected
from hotbay.scheduling.request import InferenceRequest
from hotbay.scheduling.response_facts import NO_WANTS, ResponseFacts, ResponseWants

__all__ = [
    "BUILT_IN",
    "NOBODY",
    "UNWATCHED",
    "Attempts",
    "Completed",
    "Decided",
    "Hearing",
    "Ledger",
    "ListEndpoints",
    "Look",
    "NotReady",
    "ParseDone",
    "Parsing",
    "Router",
    "as_decided",
]

Decided = Callable[[Picked | Rejected], None]
ListEndpoints = Callable[[], Sequence[EndpointMetadata]]
NotReady = Callable[[], Sequence[str]]
Look = Callable[[EndpointMetadata], EndpointMetadata | None]
"""The endpoint that was decided for as it is at this moment; None when it is gone, or takes nothing new."""


def as_decided(endpoint: EndpointMetadata) -> EndpointMetadata:
    """Endpoints never change."""
    return endpoint


class Router(Protocol):
    """Decides where a request goes."""

    def decide(self, request: InferenceRequest, done: Decided) -> None:
        """Call `done` exactly once, now or later on the same loop; never raise."""
        ...

    def cancel(self, request: InferenceRequest) -> None:
        """Nobody waits for the request's decision any more; nothing happens when it is made already."""
        ...

    def sent(self, request: InferenceRequest, decision: Picked, endpoint_id: str, /) -> None:
        """The request, as it was decided, is being sent to this endpoint; once for each that it is sent to. Never raise."""
        ...

    def outcome(self, decision: Picked, *, failed: bool, ttft_s: float | None) -> None:
        """Take at most once how a picked request whose end is known ended; never raise.

        `failed`: the endpoint was the reason, by an error, a missed deadline or an answer of 5xx. `ttft_s` is the time from
        the request's last byte to the answer's first body byte, None when none came or nobody told.
        """
        ...


class Hearing(Protocol):
    """Told of what becomes of requests after their decision; never raises, and returns at once."""

    @property
    def hears_responses(self) -> ResponseWants: ...

    def withdraw(self, request: InferenceRequest, decision: Picked, endpoint_id: str, /) -> None:
        """A request that was sent to this endpoint ended there without a first byte."""
        ...

    def response_headers(
        self, request: InferenceRequest, decision: Picked, endpoint_id: str, status: int, headers: Mapping[str, str], /
    ) -> None:
        """A response's head came, with these of the headers that are wanted."""
        ...

    def response_body(
        self, request: InferenceRequest, decision: Picked, endpoint_id: str, facts: ResponseFacts, /
    ) -> None:
        """More of a response's body came, or it is over: once for each endpoint that the request was sent to."""
        ...


class _Nobody:
    hears_responses = NO_WANTS

    def withdraw(self, request: InferenceRequest, decision: Picked, endpoint_id: str, /) -> None:
        """Nobody learned of it."""

    def response_headers(
        self, request: InferenceRequest, decision: Picked, endpoint_id: str, status: int, headers: Mapping[str, str], /
    ) -> None:
        """Nobody wants it."""

    def response_body(
        self, request: InferenceRequest, decision: Picked, endpoint_id: str, facts: ResponseFacts, /
    ) -> None:
        """Nor this."""


NOBODY: Hearing = _Nobody()

ParseDone = Callable[[Parsed | Rejected], None]
"""Takes what a package's parser made of a body, or why it made nothing."""


class Parsing(Protocol):
    """Which parsers there are, and those of packages."""

    @property
    def parsers(self) -> Sequence[tuple[str, str]]:
        """(path suffix, ref) in the configuration's order, as `ParserTable` takes them; another object when they changed."""
        ...

    def parse(self, ref: str, path: str, headers: Mapping[str, str], body: bytes, done: ParseDone, /) -> None:
        """Have a package's parser read a body; call `done` exactly once, now or later on the same loop; never raise."""
        ...


class _BuiltIn:
    parsers: Sequence[tuple[str, str]] = DEFAULT_PARSERS

    def parse(self, ref: str, path: str, headers: Mapping[str, str], body: bytes, done: ParseDone, /) -> None:
        """There is none."""
        done(Rejected(500, "no-parser", "there is no such parser"))


BUILT_IN: Parsing = _BuiltIn()


class Ledger(Protocol):
    """Counts requests in flight by endpoint id, and their tokens; every `started` is answered by exactly one `finished`."""

    def started(self, endpoint_id: str, tokens: int | None, /) -> None:
        """A request that counts so many tokens; None: nobody wants to know how many."""
        ...

    def relieved(self, endpoint_id: str, tokens: int, /) -> None:
        """One of them counts so many tokens less."""
        ...

    def finished(self, endpoint_id: str, tokens: int | None, /) -> None:
        """One of them is over, which counted so many tokens in the end."""
        ...


class Attempts(Protocol):
    """Told of every attempt to have a request answered by an endpoint; never raises, and returns at once."""

    def begin(self, endpoint_id: str, /) -> int:
        """An attempt begins; the number goes with what is told of it."""
        ...

    def ended(self, endpoint_id: str, era: int, attempt: Attempt, ttft_s: float | None = None, /) -> None:
        """What became of it, once: when its answer begins, or when it ends without one. BROKEN may follow ANSWERED.

        `ttft_s` is the time from the last byte sent to the first of the answer's body, for streams alone: what comes at
        once when it is whole says how long it is.
        """
        ...

    def silent(
        self, endpoint_id: str, era: int, attempt: Attempt, pieces: int, awaited: Awaited, waited_s: float, /
    ) -> None:
        """In place of `ended`: not a byte of a body came, until the client left (SILENT) or the time was over (LATE).

        `pieces` as they were when the wait began, `waited_s` seconds ago, and what was waited for.
        """
        ...

    def heard(self, endpoint_id: str, /) -> None:
        """A piece of a body came from the endpoint."""
        ...

    def pieces(self, endpoint_id: str, /) -> int:
        """How many did, to whomever."""
        ...


class _Unwatched:
    def begin(self, endpoint_id: str, /) -> int:
        return 0

    def ended(self, endpoint_id: str, era: int, attempt: Attempt, ttft_s: float | None = None, /) -> None:
        """Nobody wants to know."""

    def silent(
        self, endpoint_id: str, era: int, attempt: Attempt, pieces: int, awaited: Awaited, waited_s: float, /
    ) -> None:
        """Nor this."""

    def heard(self, endpoint_id: str, /) -> None:
        """Nor this."""

    def pieces(self, endpoint_id: str, /) -> int:
        return 0


UNWATCHED: Attempts = _Unwatched()


class Completed(Protocol):
    """Told once about every request that was picked, when its last byte is out or it failed.

    `endpoint` is the one that answered, or the last one that was tried; `first_byte` tells whether a response began.
    """

    def __call__(
        self,
        request: InferenceRequest,
        picked: Picked,
        endpoint: EndpointMetadata,
        outcome: Outcome,
        /,
        *,
        first_byte: bool,
    ) -> None: ...
