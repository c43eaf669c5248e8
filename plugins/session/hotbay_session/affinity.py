"""`session-affinity-scorer` and `session-affinity-filter`: a session's requests go where the one before them went.

Two strategies. `encoded_endpoint_header` keeps nothing: the client brings a token that names the endpoint, and each response
brings the next one. `session_id` keeps bindings here, by an id that the client or another type gives.
"""

import base64
import binascii
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from time import monotonic
from typing import Final, Protocol

from hotbay_sdk import Context, Edits, Endpoints, Filter, PickedTargets, PreRequest, Request, Scorer, StateDumper

from hotbay_session.bindings import Bindings
from hotbay_session.identity import SESSION_KEY, session_column
from hotbay_session.package import plugin
from hotbay_session.parameters import AffinityParameters, SessionIdConfig, Source, checked_header

STATE_VERSION: Final = 1
_DUMPED_ENDPOINTS: Final = 100
_LONGEST_TOKEN: Final = 1024
"""Longer than the token of any endpoint's id can be."""
_READS: Final = ("request.id", "request.headers[*]", "request.attributes[*]")


def encoded(endpoint_id: str) -> str:
    """The token of an endpoint."""
    return base64.b64encode(endpoint_id.encode()).decode()


def decoded(token: str | None) -> str:
    """The endpoint that a token names; empty for what is no token."""
    if not token or len(token) > _LONGEST_TOKEN:
        return ""
    try:
        return base64.b64decode(token, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError, ValueError):
        return ""


class _Strategy(Protocol):
    """How a session is known and kept."""

    reads: Sequence[str]
    consumes: Sequence[str]
    response_headers: Sequence[str]

    def endpoint_of(self, request: Request) -> str: ...

    def follow(self, ids: Sequence[str]) -> None: ...

    def seen(self, request: Request, *, present: bool) -> None: ...

    def sent(self, request: Request, endpoint: str) -> Edits | None: ...

    def failed(self, request: Request, endpoint: str) -> None: ...


class _Tokens:
    """`encoded_endpoint_header`."""

    def __init__(self, header: str) -> None:
        self._header = header
        self.reads: Sequence[str] = (f"request.headers[{header}]",)
        self.consumes: Sequence[str] = ()
        self.response_headers: Sequence[str] = (header,)

    def endpoint_of(self, request: Request) -> str:
        return decoded(request.header(self._header))

    def follow(self, ids: Sequence[str]) -> None:
        """Nothing is kept."""

    def seen(self, request: Request, *, present: bool) -> None:
        """Nothing is kept."""

    def sent(self, request: Request, endpoint: str) -> Edits | None:
        return Edits(response={self._header: encoded(endpoint)})

    def failed(self, request: Request, endpoint: str) -> None:
        """The client never saw a token of it."""


class _SessionIds:
    """`session_id`."""

    def __init__(self, config: SessionIdConfig) -> None:
        self.bindings = Bindings(ttl_s=config.evictionTtlSeconds, sweep_s=config.evictionSweepSeconds)
        made = [_reader(source) for source in config.sources]
        self._readers = [reader for reader, _ in made]
        self.reads: Sequence[str] = tuple(name for _, name in made if name.startswith("request."))
        self.consumes: Sequence[str] = tuple(name for _, name in made if not name.startswith("request."))
        self.response_headers: Sequence[str] = ()

    def endpoint_of(self, request: Request) -> str:
        return self.bindings.endpoint_of(self._session(request))

    def follow(self, ids: Sequence[str]) -> None:
        self.bindings.follow(ids, monotonic())

    def seen(self, request: Request, *, present: bool) -> None:
        self.bindings.seen(request.id, present=present)

    def sent(self, request: Request, endpoint: str) -> Edits | None:
        self.bindings.bind(self._session(request), endpoint, request.id, monotonic())
        return None

    def failed(self, request: Request, endpoint: str) -> None:
        self.bindings.unbind(self._session(request), endpoint)

    def _session(self, request: Request) -> str:
        return next(filter(None, (read(request) for read in self._readers)), "")


def _reader(source: Source) -> tuple[Callable[[Request], str], str]:
    """How a source is read, and the name by which that is declared."""
    if source.header:
        header = checked_header("header", source.header)
        return lambda request: request.header(header) or "", f"request.headers[{header}]"
    name = source.attribute
    if source.producer or name == SESSION_KEY:
        column = session_column(name, source.producer)
        return lambda request: request.text(column), column
    return lambda request: _text(request.attribute(name)), f"request.attributes[{name}]"


def _text(value: str | int | float | None) -> str:
    return "" if value is None else str(value)


class _Affinity(PreRequest, StateDumper):
    """What the scorer and the filter have in common."""

    def __init__(self, context: Context, parameters: AffinityParameters) -> None:
        self._profile = parameters.profileName
        self._ids: _SessionIds | None = None
        if parameters.strategy == "session_id":
            self._strategy: _Strategy = _SessionIds(parameters.sessionIdConfig)
            self._ids = self._strategy if isinstance(self._strategy, _SessionIds) else None
        else:
            header = checked_header("header", parameters.encodedEndpointHeaderConfig.header)
            self._strategy = _Tokens(header)
        self.reads = tuple(self._strategy.reads)
        self.consumes = tuple(self._strategy.consumes)
        self.sets_response_headers = tuple(self._strategy.response_headers)

    def pre_request(self, request: Request, picked: PickedTargets, endpoints: Endpoints) -> Edits | None:
        """Bind the session to where its request goes, or say the token of that endpoint."""
        self._strategy.follow(endpoints.ids)
        endpoint = self._target(picked)
        return self._strategy.sent(request, endpoint) if endpoint else None

    def withdrawn(self, request: Request, picked: PickedTargets, endpoints: Endpoints) -> None:
        """The session is free: its endpoint may be failing."""
        self._strategy.follow(endpoints.ids)
        self._strategy.failed(request, self._target(picked))

    def export_state(self, version: int) -> Iterator[bytes]:
        """The bindings."""
        return self._ids.bindings.pieces(monotonic()) if self._ids else iter(())

    def import_state(self, version: int, pieces: Iterator[bytes]) -> None:
        """Go on with the bindings of the last version. They mean nothing to the strategy that keeps none."""
        if self._ids:
            self._ids.bindings.restore(pieces, monotonic())

    def dump_state(self) -> Mapping[str, object]:
        """Sessions in all and per endpoint."""
        if self._ids is None:
            return {"strategy": "encoded_endpoint_header"}
        counts = self._ids.bindings.per_endpoint
        first = dict(islice(counts.items(), _DUMPED_ENDPOINTS))
        told = {"strategy": "session_id", "sessions": len(self._ids.bindings), "endpoints": len(counts)}
        return {**told, "sessions_by_endpoint": first}

    def _target(self, picked: PickedTargets) -> str:
        chosen = picked.results.get(self._profile) if self._profile else picked.targets
        return next(iter(chosen or ()), "")

    def _bound_rows(self, requests: Sequence[Request], endpoints: Endpoints) -> list[int | None]:
        """The candidate row that each request's session is bound to."""
        self._strategy.follow(endpoints.ids)
        names = [self._strategy.endpoint_of(request) for request in requests]
        wanted = set(filter(None, names))
        place = {name: row for row, name in enumerate(endpoints.ids) if name in wanted} if wanted else {}
        found: list[int | None] = []
        for number, (request, name) in enumerate(zip(requests, names, strict=True)):
            row = place.get(name) if name else None
            present = row is not None and bool(endpoints.mask(number)[row])
            if name:
                self._strategy.seen(request, present=present)
            found.append(row if present else None)
        return found


@plugin.type(
    "session-affinity-scorer",
    reads=_READS,
    consumes=["*"],
    parameters=AffinityParameters,
    state_versions=[STATE_VERSION],
)
class SessionAffinityScorer(_Affinity, Scorer):
    """Rates 1 the endpoint of the session, and all others 0."""

    def score_batch(self, requests: Sequence[Request], endpoints: Endpoints) -> Sequence["array[float]"]:
        """One row of ratings per request."""
        nothing = array("f", bytes(4 * len(endpoints)))
        rows = []
        for row in self._bound_rows(requests, endpoints):
            ratings = nothing
            if row is not None:
                ratings = array("f", nothing)
                ratings[row] = 1.0
            rows.append(ratings)
        return rows


@plugin.type(
    "session-affinity-filter",
    reads=_READS,
    consumes=["*"],
    parameters=AffinityParameters,
    state_versions=[STATE_VERSION],
)
class SessionAffinityFilter(_Affinity, Filter):
    """Keeps the endpoint of the session alone where it is a candidate, and all candidates where it is none."""

    def keep_batch(self, requests: Sequence[Request], endpoints: Endpoints) -> Sequence[bytes]:
        """One row of flags per request."""
        rows = []
        for number, row in enumerate(self._bound_rows(requests, endpoints)):
            flags = bytes(endpoints.mask(number))
            if row is not None:
                flags = bytes(row) + b"\1" + bytes(len(flags) - row - 1)
            rows.append(flags)
        return rows
