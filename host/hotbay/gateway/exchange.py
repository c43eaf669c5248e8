"""One request with its upstream: connect, send, relay, and settle what was started.

The stages go forward only, but for second tries: on a fresh connection when a kept one turned out closed and nothing had
come back, and at another endpoint when no connection comes about or a fresh one ends before the first byte of an answer.
The others are the candidates that the router named, and then what it picks without those that were tried; no endpoint is
tried twice, and no more than MAX_CANDIDATES are. From the first byte that is relayed there is no second try: a broken
answer ends as a broken connection. Before a request is written, `look` tells whether its endpoint still takes requests;
one that was removed or cordoned since the decision is passed over. The router is told where a request is written, once for
each endpoint; of those at which no connection came about it is not. Each decision, each connection and each wait for a first
byte has its whole time.

Invariants: no request is written to an endpoint that is gone or cordoned, nor counted as started there once it
is; every `ledger.started` is followed by exactly one `ledger.finished`; the outcome is told exactly once; every
`attempts.begin` is followed by an `attempts.ended` or `attempts.silent`; after ENDED no callback of router or upstream does anything.
"""

import asyncio
import enum
from collections.abc import Sequence
from dataclasses import dataclass, replace

from hotbay.datalayer.endpoint import EndpointMetadata
from hotbay.datalayer.health.patience import Awaited
from hotbay.datalayer.health.reports import Attempt
from hotbay.gateway.answers import Refusal
from hotbay.gateway.attempt import AttemptUnderWay
from hotbay.gateway.head import Framing, request_head, response_framing, response_head
from hotbay.gateway.limits import GatewayLimits
from hotbay.gateway.outcome import Outcome
from hotbay.gateway.pool import Dial, DialFailure, Pool
from hotbay.gateway.response_reader import ResponseReader
from hotbay.gateway.seams import Attempts, Completed, Ledger, Look, Router
from hotbay.gateway.turn import Turn
from hotbay.gateway.upstream import UpstreamConnection
from hotbay.observe.metrics import Metrics
from hotbay.scheduling.decision import Picked, Rejected
from hotbay.scheduling.request import InferenceRequest

__all__ = ["GONE", "MAX_CANDIDATES", "Exchange", "Upstreams"]

# The picked endpoint and two others: more tries would only multiply a client's wait.
MAX_CANDIDATES = 3

GONE = Rejected(
    503, "rejected-no-endpoints", "The model servers that were chosen went away before the request was sent."
)


@dataclass(frozen=True, slots=True)
class Upstreams:
    """What every exchange of a gateway shares; `via` is the gateway's name."""

    pool: Pool
    ledger: Ledger
    metrics: Metrics
    limits: GatewayLimits
    router: Router
    attempts: Attempts
    look: Look
    via: bytes
    completed: Completed | None = None


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
        self._candidates: list[EndpointMetadata] = []
        self._asked = request
        self._tried: set[str] = set()
        self._gone: set[str] = set()
        self._sent_to: set[str] = set()
        self._decisions = 1
        self._attempt = AttemptUnderWay(shared.attempts, self._clock)
        self._failure: tuple[Refusal, Outcome] | None = None
        self._endpoint: EndpointMetadata | None = None
        self._destination = "-"
        self._connection: UpstreamConnection | None = None
        self._dial: Dial | None = None
        self._framing = Framing.NONE
        self._keeps_alive = False
        self._status = 0
        self._sent_bytes = 0
        self._ttft_s: float | None = None
        turn.holder = self

    def decided(self, decision: Picked | Rejected) -> None:
        """The router's answer; ignored when the client has left meanwhile."""
        if self._stage is not _Stage.DECIDING:
            return
        if isinstance(decision, Rejected):
            self._reject(decision)
            return
        self._picked = decision
        self.send_to([decision.endpoint, *decision.fallbacks])

    def send_to(self, candidates: Sequence[EndpointMetadata]) -> None:
        """Send the request to the first candidate that is there and accepts a connection."""
        self._candidates = list(candidates)
        self._next_candidate()

    def _next_candidate(self) -> None:
        """Go on to the next one, ask for others, or end with what went wrong before."""
        endpoint = self._look_for_next() if len(self._tried) < MAX_CANDIDATES else None
        if endpoint is None:
            self._decide_again()
            return
        self._settle_ledger()
        self._tried.add(endpoint.id)
        self._endpoint = endpoint
        self._destination = endpoint.authority
        self._attempt.begin(endpoint.id)
        if self._request is not None:
            self._shared.ledger.started(endpoint.id)
        connection = self._shared.pool.take(endpoint)
        if connection is None:
            self._connect(endpoint)
        else:
            self._send(connection)

    def _reject(self, decision: Rejected) -> None:
        """End with what went wrong at an endpoint, or without that with the refusal."""
        refusal = Refusal(decision.status, decision.reason, decision.message), Outcome.FINISHED
        self._fail(*(self._failure or refusal))

    def _look_for_next(self) -> EndpointMetadata | None:
        for one in self._candidates:
            if one.id not in self._tried and one.id not in self._gone:
                endpoint = self._shared.look(one)
                if endpoint is not None:
                    return endpoint
                self._gone.add(one.id)
        return None

    def _decide_again(self) -> None:
        """Ask for an endpoint that is neither tried nor gone, if there may be another try."""
        spent = max(len(self._tried), self._decisions) >= MAX_CANDIDATES
        if self._request is None or self._picked is None or spent:
            self._reject(GONE)
            return
        self._stage = _Stage.DECIDING
        self._deadline = self._clock() + self._shared.limits.first_byte_s
        self._decisions += 1
        self._asked = replace(self._request, avoid=frozenset(self._tried | self._gone))
        self._shared.router.decide(self._asked, self.decided)

    def _go_elsewhere(self, refusal: Refusal, outcome: Outcome) -> None:
        """The endpoint gave not one byte: try another one, or end with this."""
        self._attempt.tell(Attempt.UNREACHABLE)
        self._failure = refusal, outcome
        self._next_candidate()

    def _left_behind(self) -> bool:
        """Whether the endpoint under way went, moved or was cordoned before the request is written; goes on if so."""
        endpoint = self._endpoint
        assert endpoint is not None, "asked while one is tried"
        now = self._shared.look(endpoint)
        if now is not None and now.authority == endpoint.authority:
            return False
        self._attempt.tell(Attempt.UNUSED)
        self._tried.discard(endpoint.id)
        if now is None:
            self._gone.add(endpoint.id)
        self._settle_ledger()
        self._next_candidate()
        return True

    def _tell_silence(self, attempt: Attempt) -> None:
        """Tell that not a byte of a body came for as long as it was waited for, and what that was."""
        streams = self._request is not None and self._request.stream
        awaited = Awaited.TOKEN if streams else Awaited.WHOLE
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
        wire = self._turn.wire
        head = request_head(
            b"GET" if self._turn.head_only else wire.method,
            self._target,
            wire.headers,
            authority=self._destination,
            request_id=self._turn.request_id,
            peer=self._turn.client.peer,
            via=self._shared.via,
            body_bytes=len(wire.body) if wire.has_framing else None,
        )
        self._attempt.wait()
        self._deadline = self._attempt.waits_since + self._shared.limits.first_byte_s
        self._tell_sent()
        connection.send(self, head + wire.body)

    def _tell_sent(self) -> None:
        """Tell that the request goes to the endpoint, unless it does so again because a kept connection was closed."""
        endpoint, asked, picked = self._endpoint, self._asked, self._picked
        if endpoint is None or asked is None or picked is None or endpoint.id in self._sent_to:
            return
        self._sent_to.add(endpoint.id)
        self._shared.router.sent(asked, picked, endpoint.id)

    def upstream_read(self, reader: ResponseReader) -> None:
        """Relay what came; the client may be slower than the upstream."""
        self._relay(reader)
        if self._ttft_s is not None:
            self._deadline = self._clock() + self._shared.limits.idle_s
        if self._turn.client.write_paused:
            self.client_paused()

    def upstream_ended(self, reader: ResponseReader) -> None:
        """Relay the last of it, settle, and give the client back."""
        self._connection = None
        self._relay(reader)
        self._end(Outcome.FINISHED)
        self._turn.client.turn_done(keep_alive=self._keeps_alive)

    def _relay(self, reader: ResponseReader) -> None:
        out: list[bytes] = []
        if self._stage is _Stage.AWAITING:
            self._stage = _Stage.RELAYING
            out.append(self._head(reader))
        parts = reader.parts
        if parts:
            self._attempt.heard()
            if self._ttft_s is None:
                self._first_part()
            if not self._turn.head_only:
                if self._framing is Framing.CHUNKED:
                    out.append(b"%x\r\n" % sum(map(len, parts)))
                    out += parts
                    out.append(b"\r\n")
                else:
                    out += parts
            parts.clear()
        if reader.ended and self._framing is Framing.CHUNKED and not self._turn.head_only:
            out.append(b"0\r\n\r\n")
        data = b"".join(out)
        self._sent_bytes += len(data)
        if data:
            self._turn.client.write(data)
        if self._attempt.is_untold:
            self._tell_answer(reader)

    def _tell_answer(self, reader: ResponseReader) -> None:
        """An answer says what its endpoint is worth when its body begins, or when it ends without one."""
        if self._status >= 500:
            self._attempt.tell(Attempt.FAILED)
        elif self._ttft_s is not None or reader.ended:
            self._attempt.tell(Attempt.ANSWERED, self._attempt.waited_s if self._has_token else None)

    @property
    def _has_token(self) -> bool:
        """Whether a stream began: an error, or an answer without a body, says nothing of how fast tokens come."""
        return self._request is not None and self._request.stream and self._status < 400 and self._ttft_s is not None

    def _first_part(self) -> None:
        self._ttft_s = self._turn.elapsed_s
        if self._has_token:
            self._shared.metrics.ttft_s.observe(self._ttft_s)

    def _head(self, reader: ResponseReader) -> bytes:
        wire = self._turn.wire
        self._status = reader.status
        self._framing = response_framing(reader.status, reader.length, http_1_0=wire.http_1_0)
        # What the head says holds at the end, also when a drain began in between: the client may send at once.
        self._keeps_alive = self._turn.keep_alive and self._framing is not Framing.CLOSE
        return response_head(
            reader.status,
            reader.reason,
            reader.headers,
            framing=self._framing,
            length=reader.length,
            keep_alive=self._keeps_alive,
            http_1_0=wire.http_1_0,
            request_id=self._turn.request_id,
            destination=self._destination,
            via=self._shared.via,
        )

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
            if self._ttft_s is not None:
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
        self._turn.refuse(refusal, outcome, self._destination)

    def _end(self, outcome: Outcome) -> None:
        self._let_go(outcome)
        self._turn.finish(
            self._status, outcome, sent_bytes=self._sent_bytes, endpoint=self._destination, ttft_s=self._ttft_s
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
        endpoint = self._settle_ledger()
        if endpoint is None:
            return
        self._shared.metrics.outcomes.add((outcome.value,))
        if self._picked is not None:
            failed = outcome.blames_endpoint or self._status >= 500
            self._shared.router.outcome(self._picked, failed=failed, ttft_s=self._ttft_s)
        if self._shared.completed is not None and self._request is not None and self._picked is not None:
            self._shared.completed(self._request, self._picked, endpoint, outcome, first_byte=self._status != 0)

    def _settle_ledger(self) -> EndpointMetadata | None:
        """Settle the endpoint that was started; None when nothing was."""
        endpoint, self._endpoint = self._endpoint, None
        if endpoint is None or self._request is None:
            return None
        self._shared.ledger.finished(endpoint.id)
        return endpoint
