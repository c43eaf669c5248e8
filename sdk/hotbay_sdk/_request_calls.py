"""Answers the calls around filters, scorers, pickers and producers by the author's methods, and checks what they return.

Imported by processes with types that are asked so.
"""

from __future__ import annotations

from hotbay_sdk import _results, _steps
from hotbay_sdk._batch import NO_VIEW, Batch, read_requests
from hotbay_sdk._dispatch import arguments_of, checked, list_of, outcome_of
from hotbay_sdk._errors import BadResultError, CallFailedError, Failed, attempt
from hotbay_sdk._instances import refused
from hotbay_sdk._points import Edits, PickedTargets
from hotbay_sdk._request_points import Denial, ParsedRequest
from hotbay_sdk._responses import Response
from hotbay_sdk.protocol.calls import Requests
from hotbay_sdk.protocol.messages import (
    MAX_MESSAGE_BYTES,
    CallError,
    ErrorCode,
    Executed,
    MalformedMessageError,
    Method,
)
from hotbay_sdk.protocol.values import Encoder, ValueRefusedError, check_value
from hotbay_sdk.protocol.verdicts import MAX_DUMP_BYTES, Parsed, read_attributes, read_edits, read_parsed, read_verdict

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from hotbay_sdk._data_results import Handler
    from hotbay_sdk._dispatch import Dispatcher
    from hotbay_sdk._instances import Instance
    from hotbay_sdk.protocol.values import Value

_ONE = Requests(1, [], None, {}, {})
"""The batch of a call that is about no request."""


def handlers(dispatcher: Dispatcher) -> dict[int, Handler]:
    """By method, what answers it."""
    calls = _RequestCalls(dispatcher)
    return {
        Method.PROFILE_PICK: calls.profile_pick,
        Method.PROFILE_PROCESS: calls.profile_process,
        Method.SCREEN: calls.screen,
        Method.ADMIT: calls.admit,
        Method.REQUEST_HEADERS: calls.request_headers,
        Method.PARSE: calls.parse,
        Method.PRE_REQUEST: calls.pre_request,
        Method.RESPONSE_HEADERS: calls.response_headers,
        Method.RESPONSE_BODY: calls.response_body,
        Method.SATURATION: calls.saturation,
        Method.DUMP_STATE: calls.dump_state,
    }


class _RequestCalls:
    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher

    # -- profiles --------------------------------------------------------------------------------

    def profile_pick(self, args: Sequence[Value], timeout_s: float | None) -> object:
        handle, view, requests, profiles, results = arguments_of(args, 5)
        instance = self._dispatcher.find(handle, "profile_handler")
        return checked(
            _results.names,
            self._of_profiles("pick", instance, (view, requests), (profiles, results), timeout_s),
            "pick",
        )

    def profile_process(self, args: Sequence[Value], timeout_s: float | None) -> object:
        handle, view, requests, results = arguments_of(args, 4)
        instance = self._dispatcher.find(handle, "profile_handler")
        return checked(
            _results.processed, self._of_profiles("process", instance, (view, requests), (results,), timeout_s)
        )

    def _of_profiles(
        self,
        name: str,
        instance: Instance,
        batch_of: tuple[Value, Value],
        arguments: tuple[Value, ...],
        timeout_s: float | None,
    ) -> object:
        batch = self._dispatcher.batch_of(batch_of[0], None, batch_of[1])
        if batch.size != 1:
            raise refused(f"a profile handler is asked for one request, found {batch.size}")
        (request,), endpoints = batch.requests(instance), batch.endpoints(instance)
        outcome = self._dispatcher.call_of(instance, timeout_s).one(name, request, *arguments, endpoints)
        return outcome_of(instance, outcome)

    # -- before the cycle ------------------------------------------------------------------------

    def screen(self, args: Sequence[Value], timeout_s: float | None) -> object:
        handle, view, candidates, requests = arguments_of(args, 4)
        instance = self._dispatcher.find(handle, "screen")
        batch = self._dispatcher.batch_of(view, candidates, requests)
        errors = _steps.StepErrors(batch.size)
        if batch.size and batch.view.rows:
            _steps.keep(self._dispatcher.call_of(instance, timeout_s), batch, errors, 0, "screen")
        return [batch.packed_masks(), errors.to_wire()]

    def admit(self, args: Sequence[Value], timeout_s: float | None) -> object:
        handle, view, candidates, requests = arguments_of(args, 4)
        instance = self._dispatcher.find(handle, "admit")
        batch = self._dispatcher.batch_of(view, candidates, requests)
        endpoints = batch.endpoints(instance)
        asked = [(request, endpoints._for_request(index)) for index, request in enumerate(batch.requests(instance))]
        return self._each("admit", instance, asked, _verdict, timeout_s)

    def request_headers(self, args: Sequence[Value], timeout_s: float | None) -> object:
        handle, requests = arguments_of(args, 2)
        instance = self._dispatcher.find(handle, "request_headers")
        asked = [(request,) for request in Batch(NO_VIEW, read_requests(requests), []).requests(instance)]
        return self._each("request_headers", instance, asked, _attributes, timeout_s)

    def parse(self, args: Sequence[Value], timeout_s: float | None) -> object:
        handle, path, headers, body = arguments_of(args, 4)
        instance = self._dispatcher.find(handle, "parse")
        if not isinstance(path, str) or not isinstance(headers, dict) or not isinstance(body, bytes):
            raise refused("parse takes a path, a map of headers and a body")
        outcome = self._dispatcher.call_of(instance, timeout_s).one("parse", path, headers, body)
        return checked(_parsed, outcome_of(instance, outcome))

    def saturation(self, args: Sequence[Value], timeout_s: float | None) -> object:
        handle, view = arguments_of(args, 2)
        instance = self._dispatcher.find(handle, "saturation")
        held = self._dispatcher.view_of(view)
        endpoints = Batch(held, _ONE, [held.live]).endpoints(instance)
        outcome = self._dispatcher.call_of(instance, timeout_s).one("saturation", endpoints)
        return checked(_saturation, outcome_of(instance, outcome))

    # -- after it --------------------------------------------------------------------------------

    def pre_request(self, args: Sequence[Value], timeout_s: float | None) -> object:
        withdrawn = len(args) == 5 and args[4] is True
        handle, view, requests, picks = arguments_of(args[:4] if len(args) == 5 else args, 4)
        instance = self._dispatcher.find(handle, "pre_request")
        batch = self._dispatcher.batch_of(view, None, requests)
        endpoints = batch.endpoints(instance)
        told = [
            (request, picked, endpoints._for_request(index))
            for index, (request, picked) in enumerate(
                zip(batch.requests(instance), _picks(picks, batch.size), strict=True)
            )
        ]
        if withdrawn:
            if not hasattr(instance.object, "withdrawn"):
                return [[None] * batch.size, []]
            return self._each("withdrawn", instance, told, _nothing, timeout_s)
        facts = instance.facts
        request_headers, response_headers = frozenset(facts.request_headers), frozenset(facts.response_headers)
        return self._each(
            "pre_request",
            instance,
            told,
            lambda outcome: _edits(outcome, request_headers, response_headers),
            timeout_s,
        )

    def response_headers(self, args: Sequence[Value], timeout_s: float | None) -> object:
        return self._response("response_headers", args, timeout_s)

    def response_body(self, args: Sequence[Value], timeout_s: float | None) -> object:
        return self._response("response_body", args, timeout_s)

    def _response(self, point: str, args: Sequence[Value], timeout_s: float | None) -> object:
        handle, requests, responses = arguments_of(args, 3)
        instance = self._dispatcher.find(handle, point)
        batch = Batch(NO_VIEW, read_requests(requests), [])
        told: list[tuple[object, ...]] = []
        for request, response in zip(
            batch.requests(instance), _listed(responses, batch.size, "responses"), strict=True
        ):
            if not isinstance(response, dict):
                raise refused("a response is a map")
            told.append((request, Response(response, instance.scope.reads, instance.scope.type_name)))
        return self._each(point, instance, told, _nothing, timeout_s)

    # -- any time --------------------------------------------------------------------------------

    def dump_state(self, args: Sequence[Value], timeout_s: float | None) -> object:
        (handle,) = arguments_of(args, 1)
        instance = self._dispatcher.find(handle, "dump_state")
        alone = instance.spec.declaration.concurrency == 1
        if alone and not self._dispatcher.guard.acquire(timeout=-1 if timeout_s is None else max(0.0, timeout_s)):
            text = "the calls of its type did not end in time"
            raise CallFailedError(CallError(ErrorCode.DEADLINE_EXCEEDED, text, executed=Executed.NO))
        try:
            outcome = self._dispatcher.call_of(instance, timeout_s).one("dump_state")
        finally:
            if alone:
                self._dispatcher.guard.release()
        return checked(_dump, outcome_of(instance, outcome))

    def _each(
        self,
        name: str,
        instance: Instance,
        arguments: Sequence[tuple[object, ...]],
        check: Callable[[object], object],
        timeout_s: float | None,
    ) -> list[object]:
        """[results, errors] of a method that is called for each request; nil for one that raised."""
        errors = _steps.StepErrors(len(arguments))
        found: list[object] = []
        for index, outcome in enumerate(self._dispatcher.call_of(instance, timeout_s).each(name, arguments)):
            if not isinstance(outcome, Failed):
                outcome = attempt(check, outcome)
            if isinstance(outcome, Failed):
                errors.note(instance, 0, index, outcome.fault)
            found.append(None if isinstance(outcome, Failed) else outcome)
        return [found, errors.to_wire()]


def _listed(value: Value, size: int, what: str) -> list[Value]:
    found = list_of(value, what)
    if len(found) != size:
        raise refused(f"{what} are {size}, one for each request, found {len(found)}")
    return found


def _picks(value: Value, size: int) -> list[PickedTargets]:
    picks: list[PickedTargets] = []
    for pick in _listed(value, size, "picks"):
        if not isinstance(pick, list) or len(pick) != 3:
            raise refused("a pick is [targets, profile, results]")
        picks.append(PickedTargets(*pick))  # type: ignore[arg-type]  # the plugin trusts its host for the items' types
    return picks


def _read(read: Callable[..., object], *arguments: object, **named: object) -> object:
    """What a check of the protocol finds; what it refuses is a `BadResultError`."""
    try:
        return read(*arguments, **named)
    except MalformedMessageError as error:
        raise BadResultError(str(error)) from error


def _nothing(outcome: object) -> None:
    return None


def _denial(outcome: object) -> list[object] | None:
    """A denial as the wire has it; None for what is none."""
    if not isinstance(outcome, Denial):
        return None
    code, reason, message = outcome
    text = (
        message.encode("utf-8", "replace")[:MAX_MESSAGE_BYTES].decode("utf-8", "ignore") if type(message) is str else ""
    )
    verdict = _read(read_verdict, [code, reason, text])
    assert isinstance(verdict, tuple)
    return list(verdict)


def _verdict(outcome: object) -> object:
    if outcome is None:
        return None
    verdict = _denial(outcome)
    if verdict is None:
        raise BadResultError(f"admit returned a {type(outcome).__name__}, expected None to admit or a Denial")
    return verdict


def _attributes(outcome: object) -> object:
    if outcome is None:
        return None
    denied = _denial(outcome)
    if denied is not None:
        return {"deny": denied}
    if not isinstance(outcome, dict):
        raise BadResultError(
            f"request_headers returned a {type(outcome).__name__}, expected a map of attributes, None or a Denial"
        )
    _read(read_attributes, {"attributes": outcome})
    return {"attributes": outcome}


def _parsed(outcome: object) -> object:
    denied = _denial(outcome)
    if denied is not None:
        return {"deny": denied}
    if not isinstance(outcome, ParsedRequest):
        raise BadResultError(f"parse returned a {type(outcome).__name__}, expected a ParsedRequest or a Denial")
    model, prompt, messages, stream, max_tokens, skip_response = outcome
    listed = [*messages] if isinstance(messages, (list, tuple)) else messages
    parsed = Parsed(model, prompt, listed, stream, max_tokens, skip_response).to_wire()  # type: ignore[arg-type]  # read next
    _read(read_parsed, parsed)
    return parsed


def _saturation(outcome: object) -> float:
    found = _results.number(outcome)
    if not 0.0 <= found < float("inf"):
        raise BadResultError(f"saturation returned {ascii(outcome)[:80]}, expected a finite number from 0 up")
    return found


def _edits(outcome: object, request: frozenset[str], response: frozenset[str]) -> object:
    if outcome is None:
        return None
    if not isinstance(outcome, Edits):
        if not request and not response:
            return None
        raise BadResultError(f"pre_request returned a {type(outcome).__name__}, expected Edits or None")
    edits: dict[str, Mapping[str, object]] = {"request": outcome.request, "response": outcome.response}
    wire = {which: dict(headers) for which, headers in edits.items() if headers}
    if not wire:
        return None
    _read(read_edits, wire, request=request, response=response)
    return wire


def _dump(outcome: object) -> object:
    try:
        check_value(outcome)
        length = len(Encoder().pack(outcome))
    except ValueRefusedError as error:
        raise BadResultError(f"dump_state returned what cannot cross: {error}") from error
    if length > MAX_DUMP_BYTES:
        raise BadResultError(f"dump_state returned {length} bytes, at most {MAX_DUMP_BYTES}: cut its lists")
    return outcome
