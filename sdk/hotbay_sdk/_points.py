"""The extension points: what a plugin type may answer.

A class takes part in a point by deriving from its class and defining one of its methods. A batch
method is preferred over the per-request one. Any method may be `async def`. Calls of one process
never overlap; `__init__`, `check_ready` and `close` may run while other instances answer calls.
"""

from __future__ import annotations

from hotbay_sdk._views import Endpoint, Endpoints, Request, ScoredEndpoint

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Mapping, Sequence
    from typing import Any

    from hotbay_sdk._context import Context

    ProfileResults = Mapping[str, Sequence[str] | None]


class _UndefinedError(Exception):
    """A method of a point that the type does not define was called; declaring such a type is refused before."""


class _Instance:
    """What every plugin type inherits: an `__init__` that keeps its arguments."""

    def __init__(self, context: Context, parameters: Any = None) -> None:
        self.context = context
        self.parameters = parameters


class Filter(_Instance):
    """Narrows the candidates of a request.

    Filters run before the scorers of a profile; what a filter drops, later steps never see.
    """

    def keep(self, request: Request, endpoint: Endpoint) -> bool | Awaitable[bool]:
        """Say whether `endpoint` may serve `request`; called for candidates only.

        Raising fails this filter for this request alone.
        """
        raise _UndefinedError

    def keep_batch(self, requests: Sequence[Request], endpoints: Endpoints) -> object:
        """Say it for B requests and E rows at once.

        Returns:
            B rows of E items, truthy to keep: a 2-D buffer, or a sequence of buffers or sequences.
            Values outside the candidates are ignored.

        Raising fails this filter for the whole batch.
        """
        raise _UndefinedError


class Scorer(_Instance):
    """Rates the candidates of a request, each in [0, 1]; higher is better.

    The host clamps what is outside and counts a value that is not finite as 0.
    """

    def score(self, request: Request, endpoint: Endpoint) -> float | Awaitable[float]:
        """Rate one candidate. A result that is no number (None, text, a bool) counts as not finite.

        Raising fails this scorer for this request alone.
        """
        raise _UndefinedError

    def score_batch(self, requests: Sequence[Request], endpoints: Endpoints) -> object:
        """Rate E rows for each of B requests.

        A formula that normalises must do so over the candidates alone: `endpoints.mask(b)`.

        Returns:
            B rows of E numbers: a 2-D buffer (numpy float32 is cheapest), a flat buffer of B·E, or a
            sequence of buffers or sequences. Values outside the candidates are ignored.

        Raising fails this scorer for the whole batch; so does a wrong length (BAD_RESULT).
        """
        raise _UndefinedError


class Picker(_Instance):
    """Chooses among the scored candidates of a request."""

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
        raise _UndefinedError


class ProfileHandler(_Instance):
    """Chooses which profiles run for a request and merges their results.

    A result maps a profile's name to endpoint ids, best first, or to None for a profile that failed.
    """

    def pick(
        self, request: Request, profiles: Sequence[str], results: ProfileResults
    ) -> Sequence[str] | Awaitable[Sequence[str]]:
        """Name the profiles to run next; called again with their results until it names none."""
        raise _UndefinedError

    def process(
        self, request: Request, results: ProfileResults
    ) -> tuple[str, ProfileResults] | Awaitable[tuple[str, ProfileResults]]:
        """Merge the results.

        Returns:
            The primary profile's name and the results to go on with, which name that profile.
        """
        raise _UndefinedError


class DataProducer(_Instance):
    """Makes data columns for the types that consume them. Columns are declared in `produces`."""

    def produce(self, request: Request, endpoints: Endpoints) -> Mapping[str, object] | Awaitable[Mapping[str, object]]:
        """Make one request's data.

        Returns:
            Every declared column: E numbers for scope row, one number for scope request.

        Raising fails this producer for this request alone.
        """
        raise _UndefinedError

    def produce_batch(
        self, requests: Sequence[Request], endpoints: Endpoints
    ) -> Mapping[str, object] | Awaitable[Mapping[str, object]]:
        """Make the data of B requests at once.

        Returns:
            Every declared column: B rows of E numbers for scope row, B numbers for scope request, in
            the forms that `Scorer.score_batch` may return.

        Raising fails this producer for the whole batch.
        """
        raise _UndefinedError


class PreRequest(_Instance):
    """Learns where a request goes, before it is sent. Nobody waits for it, and it answers nothing."""

    def pre_request(self, request: Request, targets: Sequence[str], endpoints: Endpoints) -> Awaitable[None] | None:
        """Take note.

        Args:
            request: the request.
            targets: ids of the endpoints chosen, the primary one first.
            endpoints: the view that the decision was made on.

        Raising is logged and has no other effect.
        """
        raise _UndefinedError


POINTS: Mapping[str, tuple[type, tuple[str, ...]]] = {
    "filter": (Filter, ("keep_batch", "keep")),
    "score": (Scorer, ("score_batch", "score")),
    "pick": (Picker, ("pick",)),
    "profile_handler": (ProfileHandler, ("pick", "process")),
    "produce": (DataProducer, ("produce_batch", "produce")),
    "pre_request": (PreRequest, ("pre_request",)),
}
"""Point → its class and its methods, preferred first. A profile handler needs both of its methods."""
