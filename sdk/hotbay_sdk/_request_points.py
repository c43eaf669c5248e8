"""Extension points around the scheduling cycle: what happens to a request before it, and to its response after.

Imported by what uses one of them. In the order of a request: `Parser`, `RequestHeaderProcessor`, `Screener`, `Admitter`, the
cycle with `PreRequest`, `ResponseHeaderProcessor`, `ResponseBodyProcessor`.
"""

from __future__ import annotations

from hotbay_sdk._points import UndefinedError, _Instance
from hotbay_sdk.protocol.declarations import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Mapping, Sequence

    from hotbay_sdk._responses import Response
    from hotbay_sdk._views import Endpoint, Endpoints, Request
    from hotbay_sdk.protocol.values import Value


class Denial(NamedTuple):
    """Why a request is not served.

    `code`, which gives the HTTP status: `bad-request` 400, `unauthorized` 401, `forbidden` 403, `not-found` 404,
    `precondition-failed` 412, `resource-exhausted` 429, `internal` 500, `unavailable` 503. `reason`: 1 to 64 of `a-z`, `0-9` and
    `-` for the reason header; empty, it is that of the code: `rejected-saturated` of 429, `rejected-no-endpoints` of 503, else
    `denied`. `message`: for the client, at most 4 KiB.
    """

    code: str = "resource-exhausted"
    reason: str = ""
    message: str = ""


class ParsedRequest(NamedTuple):
    """What a parser found in a request.

    `model`: not empty. `prompt`: the prompt as one text, None where there is none. `messages`: chat messages, as the client sent
    them. `stream`: the answer comes in pieces. `max_tokens`: most tokens of the answer, None where it is not said.
    `skip_response`: nobody is told of the response's body. All of it is at most 1 MiB and 16 KiB; bodies may be longer: for one
    that is, leave `prompt` and `messages` None, or a part of them.
    """

    model: str
    prompt: str | None = None
    messages: Sequence[Value] | None = None
    stream: bool = False
    max_tokens: int | None = None
    skip_response: bool = False


class Parser(_Instance):
    """Reads the bodies of requests on the paths that its type claims, `claims=["/v1/completions"]`."""

    _hotbay_point = ("parse", ("parse",))

    def parse(
        self, path: str, headers: Mapping[str, str], body: bytes
    ) -> ParsedRequest | Denial | Awaitable[ParsedRequest | Denial]:
        """Read one request.

        Args:
            path: with a suffix that the type claims, or any where it claims none; without a query.
            headers: those that the type reads (`request.headers[NAME]`) and the request has, by names in lower case.
            body: all of it.

        Raising, being late (1 s), or returning more than 1 MiB and 16 KiB in all (prompt and messages above all) refuses the
        request with 503 `plugin-unavailable`. Raise for a fault of yours; a body that is wrong is a `Denial("bad-request")`.
        """
        raise UndefinedError


class RequestHeaderProcessor(_Instance):
    """Sets attributes of a request, which types read as `request.attributes[NAME]`, or denies it."""

    _hotbay_point = ("request_headers", ("request_headers",))

    def request_headers(
        self, request: Request
    ) -> Mapping[str, str | int | float] | Denial | Awaitable[Mapping[str, str | int | float] | Denial | None] | None:
        """Return the attributes to set, at most 64; None for none.

        Names are of 1 to 128 letters, digits and `_ . : / -`, texts of at most 4 KiB. Raising sets none; the request goes on.
        """
        raise UndefinedError


class Screener(_Instance):
    """Narrows the endpoints of a request before anything is produced for it.

    Every screener sees the same endpoints, and those that all of them keep go on; where none is left the request is rejected (503).
    """

    _hotbay_point = ("screen", ("screen_batch", "screen"))

    def screen(self, request: Request, endpoint: Endpoint) -> bool | Awaitable[bool]:
        """Say whether `endpoint` may serve `request`. Raising leaves this screener out for this request alone."""
        raise UndefinedError

    def screen_batch(self, requests: Sequence[Request], endpoints: Endpoints) -> object:
        """Say it for B requests and E rows at once; returns and raises as `Filter.keep_batch`."""
        raise UndefinedError


class Admitter(_Instance):
    """Decides whether a request is served at all, by everything that was produced for it. The first denial counts."""

    _hotbay_point = ("admit", ("admit",))

    def admit(self, request: Request, endpoints: Endpoints) -> Denial | Awaitable[Denial | None] | None:
        """Return why the request is denied, or None to admit it.

        Raising, or being late (100 ms), refuses it with 503 `plugin-unavailable` unless the operator says otherwise.
        """
        raise UndefinedError


class ResponseHeaderProcessor(_Instance):
    """Learns how a model server began to answer, once for each request that it answers. Nobody waits for it."""

    _hotbay_point = ("response_headers", ("response_headers",))

    def response_headers(self, request: Request, response: Response) -> Awaitable[None] | None:
        """Take note of status and headers (those that the type reads, `response.headers[NAME]`). Raising is logged."""
        raise UndefinedError


class ResponseBodyProcessor(_Instance):
    """Learns how a response ended, and with `every_chunk=True` how it goes on. Nobody waits for it."""

    _hotbay_point = ("response_body", ("response_body",))

    def response_body(self, request: Request, response: Response) -> Awaitable[None] | None:
        """Take note. Told once at the end, whatever the end is (`response.cause`), and before that of chunks where declared.

        Chunks that come close to each other are told as one. Raising is logged.
        """
        raise UndefinedError


class SaturationDetector(_Instance):
    """Says how full the pool is."""

    _hotbay_point = ("saturation", ("saturation",))

    def saturation(self, endpoints: Endpoints) -> float | Awaitable[float]:
        """Return 0 for an idle pool, 1 for a full one, more for one that is overloaded; finite.

        From 1 up, requests of a priority below 0 are dropped. Raising counts as 0.
        """
        raise UndefinedError


class StateDumper(_Instance):
    """Shows what an instance knows, to operators."""

    _hotbay_point = ("dump_state", ("dump_state",))

    def dump_state(self) -> object:
        """Return None, bools, numbers, texts, bytes, lists and maps of these, at most 256 KiB.

        Lists that grow are cut, at 100 items for example, and their whole length stands beside. Runs while no other call
        of the type does, unless it takes overlapping calls.
        """
        raise UndefinedError
