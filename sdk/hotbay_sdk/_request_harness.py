"""What `testing.PluginHarness` does for points around the scheduling cycle."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

from hotbay_sdk._figures import DataFigures, EndpointFigures, RequestFields, kept_ids
from hotbay_sdk._instances import Instance
from hotbay_sdk._points import Edits
from hotbay_sdk._request_points import Denial, ParsedRequest
from hotbay_sdk.protocol.calls import RESPONSE_HEADER_READ
from hotbay_sdk.protocol.messages import Method
from hotbay_sdk.protocol.values import Value

NO_ENDPOINTS: EndpointFigures = {}
NO_HEADERS: Mapping[str, str] = {}
RESPONSE: Mapping[str, Value] = {"endpoint": "", "profile": "", "status": 200}
BODY: Mapping[str, Value] = {
    "bytes": 0,
    "chunks": 0,
    "usage": None,
    "end": True,
    "cause": "natural",
    "first_byte": False,
    "ttft_us": None,
    "elapsed_us": None,
}
"""What is told of a response where a test says nothing."""


class RequestHarness(ABC):
    """Parsers, screeners, admitters and the like of a harness. Methods raise `PluginCallError` for what the plugin raises.

    `data` holds consumed columns as in `PluginHarness.score`.
    """

    @abstractmethod
    def _call(self, method: Method, args: Sequence[object]) -> Value: ...

    @abstractmethod
    def _rows(self, method: Method, args: Sequence[object]) -> list[Value]: ...

    @abstractmethod
    def _tell(self, method: Method, args: Sequence[object]) -> None: ...

    @abstractmethod
    def _handle_of(self, name: str) -> list[int]: ...

    @abstractmethod
    def _instance_of(self, name: str) -> Instance: ...

    @abstractmethod
    def _view_of(self, name: str, endpoints: EndpointFigures) -> list[object]: ...

    @abstractmethod
    def _candidates(self, endpoints: EndpointFigures, candidates: Sequence[str] | None) -> bytes | None: ...

    @abstractmethod
    def _requests_of(
        self, name: str, requests: Sequence[RequestFields], data: DataFigures | None = None
    ) -> list[object]: ...

    def screen(
        self,
        name: str,
        endpoints: EndpointFigures,
        requests: Sequence[RequestFields] = ({},),
        *,
        candidates: Sequence[str] | None = None,
        data: DataFigures | None = None,
    ) -> list[list[str]]:
        """Ids of the endpoints that a screener keeps, a list for each request."""
        bits = self._batch(Method.SCREEN, name, endpoints, requests, candidates, data)
        assert isinstance(bits, bytes)
        return kept_ids(bits, endpoints)

    def admit(
        self,
        name: str,
        endpoints: EndpointFigures,
        requests: Sequence[RequestFields] = ({},),
        *,
        candidates: Sequence[str] | None = None,
        data: DataFigures | None = None,
    ) -> list[Denial | None]:
        """What an admitter says of each request: None, or the denial as a host has it, with its reason."""
        verdicts = self._batch(Method.ADMIT, name, endpoints, requests, candidates, data)
        assert isinstance(verdicts, list)
        return [_denial(verdict) for verdict in verdicts]

    def request_headers(self, name: str, requests: Sequence[RequestFields] = ({},)) -> list[dict[str, Value] | Denial]:
        """Attributes that a processor sets for each request, or the denial."""
        answers = self._rows(Method.REQUEST_HEADERS, [self._handle_of(name), self._requests_of(name, requests)])[0]
        assert isinstance(answers, list)
        found: list[dict[str, Value] | Denial] = []
        for answered in answers:
            answer = answered if isinstance(answered, dict) else {}
            attributes = answer.get("attributes", {})
            assert isinstance(attributes, dict)
            found.append(_denial(answer.get("deny")) or attributes)
        return found

    def parse(
        self, name: str, path: str, body: bytes, headers: Mapping[str, str] = NO_HEADERS
    ) -> ParsedRequest | Denial:
        """What a parser makes of a request. Of `headers`, those cross that the type reads, by names in lower case."""
        reads = self._instance_of(name).scope.reads
        lowered = {header.lower(): value for header, value in headers.items()}
        sent = {header: value for header, value in lowered.items() if f"request.headers[{header}]" in reads}
        found = self._call(Method.PARSE, [self._handle_of(name), path, sent, body])
        assert isinstance(found, dict)
        denied = _denial(found.get("deny"))
        return ParsedRequest(**found) if denied is None else denied  # type: ignore[arg-type]  # checked before it crossed

    def saturation(self, name: str, endpoints: EndpointFigures) -> float:
        """What a detector says of a pool."""
        found = self._call(Method.SATURATION, [self._handle_of(name), self._view_of(name, endpoints)])
        assert isinstance(found, float)
        return found

    def dump_state(self, name: str) -> Value:
        """What a ref shows of its state."""
        return self._call(Method.DUMP_STATE, [self._handle_of(name)])

    def profile_pick(
        self,
        name: str,
        profiles: Sequence[str],
        results: Mapping[str, Sequence[str] | None],
        request: RequestFields | None = None,
        endpoints: EndpointFigures = NO_ENDPOINTS,
        *,
        data: DataFigures | None = None,
    ) -> list[str]:
        """Profiles that a profile handler wants to run next."""
        found = self._call(
            Method.PROFILE_PICK, [*self._one(name, endpoints, request, data), list(profiles), dict(results)]
        )
        assert isinstance(found, list)
        return [str(item) for item in found]

    def profile_process(
        self,
        name: str,
        results: Mapping[str, Sequence[str] | None],
        request: RequestFields | None = None,
        endpoints: EndpointFigures = NO_ENDPOINTS,
        *,
        data: DataFigures | None = None,
    ) -> tuple[str, dict[str, Value]] | None:
        """The primary profile and the merged results; None where the handler finds nothing to go on with."""
        found = self._call(Method.PROFILE_PROCESS, [*self._one(name, endpoints, request, data), dict(results)])
        if found is None:
            return None
        assert isinstance(found, dict)
        primary, merged = found["primary"], found["results"]
        assert isinstance(primary, str)
        assert isinstance(merged, dict)
        return primary, merged

    def pre_request(
        self,
        name: str,
        endpoints: EndpointFigures,
        targets: Sequence[str],
        request: RequestFields | None = None,
        *,
        profile: str = "default",
        results: Mapping[str, Sequence[str] | None] | None = None,
        data: DataFigures | None = None,
    ) -> Edits | None:
        """Tell where a request goes; the headers that the ref sets, None for none.

        `results` are those of `profile` alone where a test says nothing. What the plugin raises goes to its log where it sets
        no headers: then nobody waits for it.
        """
        picked = [list(targets), profile, {profile: list(targets)} if results is None else dict(results)]
        args = [*self._one(name, endpoints, request, data), [picked]]
        facts = self._instance_of(name).facts
        if not facts.request_headers and not facts.response_headers:
            self._tell(Method.PRE_REQUEST, args)
            return None
        answered = self._rows(Method.PRE_REQUEST, args)[0]
        assert isinstance(answered, list)
        (edits,) = answered
        return None if edits is None else Edits(**edits)  # type: ignore[arg-type]  # checked before it crossed

    def withdrawn(
        self,
        name: str,
        endpoints: EndpointFigures,
        targets: Sequence[str],
        request: RequestFields | None = None,
        *,
        profile: str = "default",
        results: Mapping[str, Sequence[str] | None] | None = None,
    ) -> None:
        """Tell that a request ended without a first byte. What the plugin raises goes to its log."""
        picked = [list(targets), profile, {profile: list(targets)} if results is None else dict(results)]
        self._tell(Method.PRE_REQUEST, [*self._one(name, endpoints, request, None), [picked], True])

    def response_headers(self, name: str, response: Mapping[str, object], request: RequestFields | None = None) -> None:
        """Tell how a server began to answer: `endpoint`, `profile`, `status`, `headers`; of these, declared ones cross."""
        told = {**RESPONSE, **response}
        headers = told.get("headers", {})
        assert isinstance(headers, Mapping)
        reads = self._instance_of(name).scope.reads
        told["headers"] = {i: value for i, value in headers.items() if f"{RESPONSE_HEADER_READ}{i}]" in reads}
        self._tell(Method.RESPONSE_HEADERS, [self._handle_of(name), self._requests_of(name, [request or {}]), [told]])

    def response_body(self, name: str, response: Mapping[str, object], request: RequestFields | None = None) -> None:
        """Tell of a response's body: what is not said is that of a natural end without a byte."""
        told = {**RESPONSE, **BODY, **response}
        self._tell(Method.RESPONSE_BODY, [self._handle_of(name), self._requests_of(name, [request or {}]), [told]])

    def _one(
        self, name: str, endpoints: EndpointFigures, request: RequestFields | None, data: DataFigures | None
    ) -> list[object]:
        """Handle, view and batch of a call that is about one request."""
        return [
            self._handle_of(name),
            self._view_of(name, endpoints),
            self._requests_of(name, [request or {}], data),
        ]

    def _batch(
        self,
        method: Method,
        name: str,
        endpoints: EndpointFigures,
        requests: Sequence[RequestFields],
        candidates: Sequence[str] | None,
        data: DataFigures | None,
    ) -> Value:
        args = [
            self._handle_of(name),
            self._view_of(name, endpoints),
            self._candidates(endpoints, candidates),
            self._requests_of(name, requests, data),
        ]
        return self._rows(method, args)[0]


def _denial(verdict: Value) -> Denial | None:
    return Denial(*verdict) if isinstance(verdict, list) else None  # type: ignore[arg-type]  # checked before it crossed
