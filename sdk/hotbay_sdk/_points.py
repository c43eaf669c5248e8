"""The extension points of the scheduling cycle, and what all points have in common.

A class takes part in a point by deriving from its class and defining one of its methods. A batch
method is preferred over the per-request one. Any method but `discover`, `watch` and those of flow control's policies may be
`async def`. Calls of one process
never overlap, but those of types that say so; `__init__`, `check_ready`, `close`, `discover` and `watch` may run while
other instances answer calls. What few packages need stands in modules of its own, `_request_points`, `_flow_points` and
`_data_points`, because starts are measured.
"""

from __future__ import annotations

from hotbay_sdk._views import Endpoint, Endpoints, Request, ScoredEndpoint
from hotbay_sdk.protocol.declarations import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Mapping, Sequence
    from typing import Any

    from hotbay_sdk._context import Context

    ProfileResults = Mapping[str, Sequence[str] | None]


POINT_ORDER = (
    *("filter", "score", "pick", "profile_handler", "produce", "pre_request"),
    *("extract", "event_extract", "source", "discover", "watch", "poll"),
    *("request_headers", "parse", "screen", "admit", "response_headers", "response_body", "saturation", "dump_state"),
    *("fairness", "ordering", "usage_limit", "eviction_order", "eviction_filter"),
)
"""The order in which a type's points are declared."""

DATA_POINTS = frozenset({"extract", "event_extract", "source", "discover", "watch", "poll"})
"""Those of the data layer. Both kinds of extractors answer the point `extract` on the wire: their payloads tell them apart."""


class UndefinedError(Exception):
    """A method of a point that the type does not define was called; declaring such a type is refused before."""


class _Instance:
    """What every plugin type inherits: an `__init__` that keeps its arguments.

    A class of a point has `_hotbay_point`: the point, and the names of its methods, preferred first.
    """

    def __init__(self, context: Context, parameters: Any = None) -> None:
        self.context = context
        self.parameters = parameters


class Filter(_Instance):
    """Narrows the candidates of a request.

    Filters run before the scorers of a profile; what a filter drops, later steps never see.
    """

    _hotbay_point = ("filter", ("keep_batch", "keep"))

    def keep(self, request: Request, endpoint: Endpoint) -> bool | Awaitable[bool]:
        """Say whether `endpoint` may serve `request`; called for candidates only.

        Raising fails this filter for this request alone.
        """
        raise UndefinedError

    def keep_batch(self, requests: Sequence[Request], endpoints: Endpoints) -> object:
        """Say it for B requests and E rows at once.

        Returns:
            B rows of E items, truthy to keep: a 2-D buffer, or a sequence of buffers or sequences.
            Values outside the candidates are ignored.

        Raising fails this filter for the whole batch.
        """
        raise UndefinedError


class Scorer(_Instance):
    """Rates the candidates of a request, each in [0, 1]; higher is better.

    The host clamps what is outside and counts a value that is not finite as 0.
    """

    _hotbay_point = ("score", ("score_batch", "score"))

    def score(self, request: Request, endpoint: Endpoint) -> float | Awaitable[float]:
        """Rate one candidate. A result that is no number (None, text, a bool) counts as not finite.

        Raising fails this scorer for this request alone.
        """
        raise UndefinedError

    def score_batch(self, requests: Sequence[Request], endpoints: Endpoints) -> object:
        """Rate E rows for each of B requests.

        A formula that normalises must do so over the candidates alone: `endpoints.mask(b)`.

        Returns:
            B rows of E numbers: a 2-D buffer (numpy float32 is cheapest), a flat buffer of B·E, or a
            sequence of buffers or sequences. Values outside the candidates are ignored.

        Raising fails this scorer for the whole batch; so does a wrong length (BAD_RESULT).
        """
        raise UndefinedError


class Picker(_Instance):
    """Chooses among the scored candidates of a request."""

    _hotbay_point = ("pick", ("pick",))

    def pick(
        self, request: Request, candidates: Sequence[ScoredEndpoint], n: int
    ) -> Sequence[ScoredEndpoint | int] | Awaitable[Sequence[ScoredEndpoint | int]]:
        """Choose at most `n` candidates, best first.

        Args:
            request: the request.
            candidates: every candidate in row order; never empty.
            n: at least 1.

        Returns:
            Candidates, or their row numbers. Repetitions and rows that are no candidates are dropped.
        """
        raise UndefinedError


class ProfileHandler(_Instance):
    """Chooses which profiles run for a request and merges their results.

    A result maps a profile's name to endpoint ids, best first, or to None for a profile that failed.
    """

    _hotbay_point = ("profile_handler", ("pick", "process"))

    def pick(
        self, request: Request, profiles: Sequence[str], results: ProfileResults, endpoints: Endpoints
    ) -> Sequence[str] | Awaitable[Sequence[str]]:
        """Name the profiles to run next; called again with their results until it names none, at most 8 times.

        Args:
            request: the request.
            profiles: the names of all.
            results: of those that ran already.
            endpoints: every endpoint of the cycle, with the columns and data that the type declares.
        """
        raise UndefinedError

    def process(
        self, request: Request, results: ProfileResults, endpoints: Endpoints
    ) -> tuple[str, ProfileResults] | Awaitable[tuple[str, ProfileResults] | None] | None:
        """Merge the results.

        Returns:
            The primary profile's name and the results to go on with: names of profiles that ran, among them the primary
            one, and ids of endpoints, best first. What goes on is what is returned: endpoints may be left out, or ordered anew.
            None where they are not enough to serve the request: it is refused as the profiles without a result say (429 or
            503), and with 503 where every one has a result.

        Raising, or being late (50 ms), is a fault, and counts against the type. With every profile's result there, the request
        goes on with that of the first one; where a profile has none, it is refused as that one says.
        """
        raise UndefinedError


class DataProducer(_Instance):
    """Makes data columns for the types that consume them. Columns are declared in `produces`."""

    _hotbay_point = ("produce", ("produce_batch", "produce"))

    def produce(self, request: Request, endpoints: Endpoints) -> Mapping[str, object] | Awaitable[Mapping[str, object]]:
        """Make one request's data.

        Returns:
            Every declared column: E numbers for scope row, one number for scope request.

        Raising fails this producer for this request alone.
        """
        raise UndefinedError

    def produce_batch(
        self, requests: Sequence[Request], endpoints: Endpoints
    ) -> Mapping[str, object] | Awaitable[Mapping[str, object]]:
        """Make the data of B requests at once.

        Returns:
            Every declared column: B rows of E numbers for scope row, B numbers for scope request, in
            the forms that `Scorer.score_batch` may return.

        Raising fails this producer for the whole batch.
        """
        raise UndefinedError


class PickedTargets(NamedTuple):
    """What was decided for a request.

    `targets`: ids of where it goes, the primary endpoint first; `profile`: the primary profile, "" where none was named;
    `results`: all profiles' endpoints, best first, None for a profile that failed.
    """

    targets: Sequence[str]
    profile: str
    results: Mapping[str, Sequence[str] | None]


_NO_HEADERS: Mapping[str, Any] = {}


class Edits(NamedTuple):
    """Headers that a `PreRequest` sets, by their names in lower case.

    `request`: of the request to the model server; None takes one away. `response`: of the response to the client.
    """

    request: Mapping[str, str | None] = _NO_HEADERS
    response: Mapping[str, str] = _NO_HEADERS


class PreRequest(_Instance):
    """Learns where requests are sent, once for each endpoint that gets one, or sets headers of what is sent.

    An instance whose attributes `sets_request_headers` or `sets_response_headers` name headers, in lower case, is asked before
    the request is sent, and may return `Edits` of these; both are set in `__init__`. Everybody else is told after, nobody waits,
    and what it returns means nothing. `withdrawn(request, picked, endpoints)`, where a class defines it, is told of requests
    that ended without a first byte: what was noted of them does not hold.
    """

    _hotbay_point = ("pre_request", ("pre_request",))

    def pre_request(
        self, request: Request, picked: PickedTargets, endpoints: Endpoints
    ) -> Edits | Awaitable[Edits | None] | None:
        """Take note, or say which headers to set.

        Args:
            request: the request.
            picked: where it goes, and what all profiles chose.
            endpoints: the view of that moment.

        Raising is logged, and the request goes on without the headers.
        """
        raise UndefinedError
