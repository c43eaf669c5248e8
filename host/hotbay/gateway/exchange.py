"""One request with its upstream: connect, send, relay, and settle what was started.

The stages go forward only, but for second tries: on a fresh connection when a kept one turned out closed and nothing had
come back, and at another endpoint when no connection comes about or a fresh one ends before the first byte of an answer.
The others are the candidates that the router named, and then what it picks without those that were tried. From the first
byte that is relayed there is no second try: a broken answer ends as a broken connection. Before a request is written it is
looked whether its endpoint still takes requests; one that was removed or cordoned since the decision is passed over. What
plugins set of headers holds for the endpoint that was decided for: where there is such a header, another endpoint is decided
for anew, in place of the fallbacks, so that no token in an answer names an endpoint that did not give it. The router is told
where a request is written, once for each endpoint; of those at which no connection came about it is not. Each decision, each
connection and each wait for a first byte has its whole time.

Invariants: no request is written to an endpoint that is gone or cordoned, nor counted as started there once it
is; every `ledger.started` is followed by exactly one `ledger.finished`; the outcome is told exactly once; every
`attempts.begin` is followed by an `attempts.ended` or `attempts.silent`; after ENDED no callback of router or upstream does anything.
"""

import asyncio
import enum
from collections.abc import Mapping, Sequence
from dataclasses import replace

from hotbay.datalayer.endpoint import EndpointMetadata
from hotbay.datalayer.health.patience import Awaited
from hotbay.datalayer.health.reports import Attempt
from hotbay.gateway.answers import Refusal, typed_refusal
from hotbay.gateway.attempt import AttemptUnderWay
from hotbay.gateway.choice import Candidates
from hotbay.gateway.head import NO_EDITS
from hotbay.gateway.listening import Listening
from hotbay.gateway.load import Load
from hotbay.gateway.outcome import Outcome
from hotbay.gateway.outgoing import allowed, outgoing
from hotbay.gateway.pool import Dial, DialFailure
from hotbay.gateway.relay import Relay
from hotbay.gateway.response_reader import ResponseReader
from hotbay.gateway.turn import Turn
from hotbay.gateway.upstream import UpstreamConnection
from hotbay.gateway.upstreams import Upstreams
from hotbay.scheduling.decision import Picked, Rejected
from hotbay.scheduling.request import InferenceRequest

__all__ = ["GONE", "Exchange"]

GONE = Rejected(
    503, "rejected-no-endpoints", "The model servers that were chosen went away before the request was sent."
)


class _Stage(enum.Enum):
    DECIDING = "deciding"
    CONNECTING = "connecting"
    AWAITING = "awaiting"
    RELAYING = "relaying"
    ENDED = "ended"


class Exchange:
    """See the module. `request` None: a request without a decision (`/v1/models`), which no ledger counts."""

    def __init__(self, turn: Turn, target: bytes, shared: Upstreams, request: InferenceRequest | None = None) -> None:
        self._turn = turn
        self._target = target
        self._shared = shared
        self._request = request
        self._stage = _Stage.DECIDING
        self._clock = asyncio.get_running_loop().time
        self._deadline = turn.started_at + shared.limits.first_byte_s
        self._picked: Picked | None = None
        self._candidates = Candidates(shared.look)
        self._asked = request
        self._streams = request is not None and request.stream
        self._attempt = AttemptUnderWay(shared.attempts, self._clock)
        self._listening = Listening(shared.router, shared.hearing)
        self._load = Load(shared.ledger)
        self._relay = Relay(turn, shared.via)
        self._failure: tuple[Refusal, Outcome] | None = None
        self._explained: Mapping[bytes, bytes] = {}
        self._endpoint: EndpointMetadata | None = None
        self._endpoint_id = ""
        self._destination = "-"
        self._connection: UpstreamConnection | None = None
        self._dial: Dial | None = None
        turn.holder = self

    def decided(self, decision: Picked | Rejected) -> None:
        """The router's answer; ignored when the client has left meanwhile."""
        if self._stage is not _Stage.DECIDING:
            return
        assert self._asked is not None, "it was decided for"
        self._explained = self._shared.explain(self._asked, decision)
        if isinstance(decision, Rejected):
            self._reject(decision)
            return
        self._picked = decision
        self._listening.decided(self._asked, decision)
        self._candidates.offer(decision.candidates, decision.port)
        self._next_candidate()

    def send_to(self, candidates: Sequence[EndpointMetadata]) -> None:
        """Send the request to the first candidate that is there and accepts a connection."""
        self._candidates.offer(candidates)
        self._next_candidate()

    def _next_candidate(self) -> None:
        """Go on to the next one, ask for others, or end with what went wrong before."""
        endpoint = self._candidates.next()
        if endpoint is None:
            self._decide_again()
            return
        self._leave_endpoint()
        self._endpoint, self._endpoint_id = endpoint, endpoint.id
        self._destination = endpoint.authority
        self._attempt.begin(endpoint.id)
        if self._picked is not None:
            self._load.start(endpoint.id, self._picked)
        connection = self._shared.pool.take(endpoint)
        if connection is None:
            self._connect(endpoint)
        else:
            self._send(connection)

    def _reject(self, decision: Rejected) -> None:
        """End with what went wrong at an endpoint, or without that with the refusal."""
        refusal = typed_refusal(decision.status, decision.reason, decision.message)
        self._fail(*(self._failure or (refusal, Outcome.FINISHED)))

    def _decide_again(self) -> None:
        """Ask for an endpoint that is neither tried nor gone, if there may be another try."""
        avoid = self._candidates.ask_again() if self._picked is not None else None
        if self._request is None or avoid is None:
            self._reject(GONE)
            return
        self._stage = _Stage.DECIDING
        self._deadline = self._clock() + self._shared.limits.first_byte_s
        self._asked = replace(self._request, avoid=avoid)
        self._shared.router.decide(self._asked, self.decided)

    def _go_elsewhere(self, refusal: Refusal, outcome: Outcome) -> None:
        """The endpoint gave not one byte: try another one, or end with this."""
        self._attempt.tell(Attempt.UNREACHABLE)
        self._failure = refusal, outcome
        self._next_candidate()

    def _left_behind(self) -> bool:
        """Whether the endpoint under way went, moved or was cordoned before the request is written; goes on if so."""
        assert self._endpoint is not None, "asked while one is tried"
        if not self._candidates.is_left_behind(self._endpoint):
            return False
        self._attempt.tell(Attempt.UNUSED)
        self._leave_endpoint()
        self._next_candidate()
        return True

    def _tell_silence(self, attempt: Attempt) -> None:
        """Tell that not a byte of a body came for as long as it was waited for, and what that was."""
        awaited = Awaited.TOKEN if self._streams else Awaited.WHOLE
        self._attempt.tell_silence(attempt, Awaited.CONNECTION if self._stage is _Stage.CONNECTING else awaited)

    def _connect(self, endpoint: EndpointMetadata) -> None:
        self._stage = _Stage.CONNECTING
        self._attempt.wait()
        # The dial tells that its time is over; this is for one that does not.
        limits = self._shared.limits
        self._deadline = self._attempt.waits_since + limits.connect_s + limits.tick_s
        self._dial = self._shared.pool.dial(endpoint, self._dialled)

    def _dialled(self, result: UpstreamConnection | DialFailure) -> None:
        self._dial = None
        if isinstance(result, UpstreamConnection):
            if self._left_behind():
                self._shared.pool.free(result)
            else:
                self._send(result)
        elif result.timed_out:
            message = "The model server did not accept a connection."
            self._go_elsewhere(Refusal(504, result.reason, message), Outcome.TIMEOUT)
        else:
            message = "The model server could not be reached."
            self._go_elsewhere(Refusal(502, result.reason, message), Outcome.UPSTREAM_ERROR)

    def _send(self, connection: UpstreamConnection) -> None:
        self._stage = _Stage.AWAITING
        if not connection.usable:
            self.upstream_lost("connection closed", silent=True)
            return
        self._connection = connection
        # A rewritten model is in the request's body, which else is the client's own.
        data = outgoing(
            self._turn,
            self._target,
            self._turn.wire.body if self._request is None else self._request.body,
            self._picked,
            authority=self._destination,
            candidates=self._candidates,
            via=self._shared.via,
            metrics=self._shared.metrics,
        )
        self._attempt.wait()
        self._deadline = self._attempt.waits_since + self._shared.limits.first_byte_s
        self._listening.sent(self._endpoint_id)
        connection.send(self, data)

    def upstream_read(self, reader: ResponseReader) -> None:
        """Relay what came; the client may be slower than the upstream."""
        self._pass_on(reader)
        if self._relay.ttft_s is not None:
            self._deadline = self._clock() + self._shared.limits.idle_s
        if self._turn.client.write_paused:
            self.client_paused()

    def upstream_ended(self, reader: ResponseReader) -> None:
        """Relay the last of it, settle, and give the client back."""
        self._connection = None
        self._pass_on(reader)
        self._end(Outcome.FINISHED)
        self._turn.client.turn_done(keep_alive=self._relay.keeps_alive)

    def _pass_on(self, reader: ResponseReader) -> None:
        head = b""
        if self._stage is _Stage.AWAITING:
            self._stage = _Stage.RELAYING
            head = self._begin_answer(reader)
        if reader.parts:
            self._attempt.heard()
            ttft_s = self._relay.came()
            if ttft_s is not None:
                self._load.answered()
            if ttft_s is not None and self._streams and self._relay.status < 400:
                self._shared.metrics.ttft_s.observe(ttft_s)
            self._listening.came(reader.parts)
        self._relay.pass_on(reader, head)
        self._attempt.tell_answer(
            self._relay.status,
            has_body=self._relay.ttft_s is not None,
            streams=self._streams,
            is_over=reader.ended,
        )

    def _begin_answer(self, reader: ResponseReader) -> bytes:
        edits = NO_EDITS if self._picked is None else allowed(self._picked.response_headers, self._shared.metrics)
        head = self._relay.begin(reader, self._destination, {**edits, **self._explained} if self._explained else edits)
        self._listening.begun(reader.status, reader.headers)
        return head

    def upstream_lost(self, reason: str, *, silent: bool) -> None:
        """Try again where that is safe; otherwise an error, or a broken answer when one has begun."""
        connection, self._connection = self._connection, None
        kept = connection is not None and connection.reused
        if self._stage is _Stage.RELAYING:
            self._break_off(Outcome.UPSTREAM_ERROR)
        elif silent and kept and self._endpoint is not None:
            if not self._left_behind():
                self._shared.metrics.upstream_retries += 1
                self._connect(self._endpoint)
        else:
            code = "upstream-closed" if silent or reason == "connection closed" else "upstream-bad-response"
            refusal = Refusal(502, code, f"The model server failed before it answered: {reason}.")
            if silent:
                self._go_elsewhere(refusal, Outcome.UPSTREAM_ERROR)
            else:
                self._fail(refusal, Outcome.UPSTREAM_ERROR)

    def client_paused(self) -> None:
        if self._connection is not None:
            self._connection.pause()

    def client_resumed(self) -> None:
        if self._connection is not None:
            if self._relay.ttft_s is not None:
                self._deadline = self._clock() + self._shared.limits.idle_s
            self._connection.resume()

    def abandoned(self, outcome: Outcome) -> None:
        """Nobody waits any more: the plugins and the upstream stop now, not when they are done."""
        self._stop_deciding()
        self._tell_silence(Attempt.SILENT)
        self._end(outcome)

    def look_at_clock(self, now: float) -> None:
        if now < self._deadline:
            return
        if self._stage is _Stage.RELAYING:
            unread = self._turn.client.write_paused
            self._break_off(Outcome.CLIENT_DISCONNECT if unread else Outcome.TIMEOUT)
        elif self._stage is _Stage.CONNECTING:
            self._give_up_dial()
        elif self._stop_deciding():
            self._fail(Refusal(504, "decision-timeout", "No endpoint was chosen in time."), Outcome.TIMEOUT)
        else:
            self._tell_silence(Attempt.LATE)
            message = "The model server did not begin to answer in time."
            self._fail(Refusal(504, "upstream-first-byte-timeout", message), Outcome.TIMEOUT)

    def _give_up_dial(self) -> None:
        if self._dial is not None:
            self._dial.cancel()
        self._dialled(DialFailure("upstream-connect-timeout", "the dial did not end in its time", timed_out=True))

    def _stop_deciding(self) -> bool:
        """Withdraw the request from the router if it is being decided; whether it was."""
        if self._stage is not _Stage.DECIDING or self._asked is None:
            return False
        self._stage = _Stage.ENDED
        self._shared.router.cancel(self._asked)
        return True

    def _break_off(self, outcome: Outcome) -> None:
        if not self._attempt.is_untold and outcome.blames_endpoint:
            self._attempt.broke_off()
        elif outcome is Outcome.TIMEOUT:
            self._tell_silence(Attempt.LATE)
        self._end(outcome)
        self._turn.client.cut()

    def _fail(self, refusal: Refusal, outcome: Outcome) -> None:
        self._let_go(outcome)
        self._turn.refuse(refusal.also(self._explained), outcome, self._destination)

    def _end(self, outcome: Outcome) -> None:
        self._let_go(outcome)
        relay = self._relay
        self._turn.finish(
            relay.status, outcome, sent_bytes=relay.sent_bytes, endpoint=self._destination, ttft_s=relay.ttft_s
        )

    def _let_go(self, outcome: Outcome) -> None:
        self._stage = _Stage.ENDED
        dial, self._dial = self._dial, None
        if dial is not None:
            dial.cancel()
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.abort()
        self._attempt.tell(Attempt.FAILED if outcome.blames_endpoint else Attempt.UNTOLD)
        endpoint = self._leave_endpoint(outcome)
        self._listening.end(self._endpoint_id, outcome)
        if endpoint is not None and self._request is not None and self._picked is not None:
            relay = self._relay
            self._shared.settled(
                self._request, self._picked, endpoint, outcome, status=relay.status, ttft_s=relay.ttft_s
            )

    def _leave_endpoint(self, outcome: Outcome = Outcome.UPSTREAM_ERROR) -> EndpointMetadata | None:
        """Settle the endpoint that was started; None when nothing was."""
        endpoint, self._endpoint = self._endpoint, None
        if endpoint is None or self._request is None:
            return None
        self._load.end()
        self._listening.left(outcome)
        return endpoint
