"""One request with its upstream: connect, send, relay, and settle what was started.

The stages go forward only. CONNECTING and AWAITING may repeat: on a fresh connection when a kept one turned out closed
and nothing had come back (a fresh one gets no second try), and on the next candidate when a connection is refused.
From the first byte that is relayed there is no second try: a broken answer ends as a broken connection.

Invariants: every `ledger.started` is followed by exactly one `ledger.finished`; the outcome is told exactly once; after
ENDED no callback of router or upstream does anything.
"""

import asyncio
import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hotbay.datalayer.endpoint import EndpointMetadata
from hotbay.gateway.answers import Refusal
from hotbay.gateway.head import Framing, request_head, response_framing, response_head
from hotbay.gateway.limits import GatewayLimits
from hotbay.gateway.outcome import Outcome
from hotbay.gateway.pool import Dial, DialFailure, Pool
from hotbay.gateway.response_reader import ResponseReader
from hotbay.gateway.seams import Completed, Ended, Ledger
from hotbay.gateway.turn import Turn
from hotbay.gateway.upstream import UpstreamConnection
from hotbay.observe.metrics import Metrics
from hotbay.scheduling.decision import Picked, Rejected
from hotbay.scheduling.request import InferenceRequest

__all__ = ["MAX_CANDIDATES", "Exchange", "Upstreams"]

# The picked endpoint and two others: more tries would only multiply a client's wait.
MAX_CANDIDATES = 3


@dataclass(frozen=True, slots=True)
class Upstreams:
    """What every exchange of a gateway shares."""

    pool: Pool
    ledger: Ledger
    metrics: Metrics
    limits: GatewayLimits
    cancel: Callable[[InferenceRequest], None]
    ended: Ended
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
            self._fail(Refusal(decision.status, decision.reason, decision.message), Outcome.FINISHED)
            return
        self._picked = decision
        self.send_to([decision.endpoint, *decision.fallbacks])

    def send_to(self, candidates: Sequence[EndpointMetadata]) -> None:
        """Send the request to the first candidate that accepts a connection."""
        self._candidates = list(candidates[:MAX_CANDIDATES])
        self._next_candidate()

    def _next_candidate(self) -> None:
        endpoint = self._candidates.pop(0)
        self._settle_ledger()
        self._endpoint = endpoint
        self._destination = endpoint.authority
        if self._request is not None:
            self._shared.ledger.started(endpoint.id)
        connection = self._shared.pool.take(endpoint)
        if connection is None:
            self._connect(endpoint)
        else:
            self._send(connection)

    def _connect(self, endpoint: EndpointMetadata) -> None:
        self._stage = _Stage.CONNECTING
        self._dial = self._shared.pool.dial(endpoint, self._dialled)

    def _dialled(self, result: UpstreamConnection | DialFailure) -> None:
        self._dial = None
        if isinstance(result, UpstreamConnection):
            self._send(result)
        elif self._candidates:
            self._next_candidate()
        elif result.timed_out:
            self._fail(Refusal(504, result.reason, "The model server did not accept a connection."), Outcome.TIMEOUT)
        else:
            message = "The model server could not be reached."
            self._fail(Refusal(502, result.reason, message), Outcome.UPSTREAM_ERROR)

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
            body_bytes=len(wire.body) if wire.has_framing else None,
        )
        self._deadline = self._clock() + self._shared.limits.first_byte_s
        connection.send(self, head + wire.body)

    def upstream_read(self, reader: ResponseReader) -> None:
        """Relay what came; the client may be slower than the upstream."""
        self._relay(reader)
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

    def _first_part(self) -> None:
        self._ttft_s = self._turn.elapsed_s
        if self._request is not None and self._request.stream:
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
        )

    def upstream_lost(self, reason: str, *, silent: bool) -> None:
        """Try again where that is safe; otherwise an error, or a broken answer when one has begun."""
        connection, self._connection = self._connection, None
        kept = connection is not None and connection.reused
        if self._stage is _Stage.RELAYING:
            self._break_off(Outcome.UPSTREAM_ERROR)
        elif silent and kept and self._endpoint is not None:
            self._shared.metrics.upstream_retries += 1
            self._connect(self._endpoint)
        else:
            code = "upstream-closed" if silent or reason == "connection closed" else "upstream-bad-response"
            message = f"The model server failed before it answered: {reason}."
            self._fail(Refusal(502, code, message), Outcome.UPSTREAM_ERROR)

    def client_paused(self) -> None:
        if self._connection is not None:
            self._connection.pause()

    def client_resumed(self) -> None:
        if self._connection is not None:
            self._deadline = self._clock() + self._shared.limits.idle_s
            self._connection.resume()

    def abandoned(self, outcome: Outcome) -> None:
        """Nobody waits any more: the plugins and the upstream stop now, not when they are done."""
        self._stop_deciding()
        self._end(outcome)

    def look_at_clock(self, now: float) -> None:
        if now < self._deadline:
            return
        if self._stage is _Stage.RELAYING:
            unread = self._turn.client.write_paused
            self._break_off(Outcome.CLIENT_DISCONNECT if unread else Outcome.TIMEOUT)
        elif self._stop_deciding():
            self._fail(Refusal(504, "decision-timeout", "No endpoint was chosen in time."), Outcome.TIMEOUT)
        else:
            message = "The model server did not begin to answer in time."
            self._fail(Refusal(504, "upstream-first-byte-timeout", message), Outcome.TIMEOUT)

    def _stop_deciding(self) -> bool:
        """Withdraw the request from the router if it is being decided; whether it was."""
        if self._stage is not _Stage.DECIDING or self._request is None:
            return False
        self._stage = _Stage.ENDED
        self._shared.cancel(self._request)
        return True

    def _break_off(self, outcome: Outcome) -> None:
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
        endpoint = self._settle_ledger()
        if endpoint is None:
            return
        self._shared.metrics.outcomes.add((outcome.value,))
        if self._picked is not None:
            self._shared.ended(self._picked, failed=outcome.blames_endpoint or self._status >= 500, ttft_s=self._ttft_s)
        if self._shared.completed is not None and self._request is not None and self._picked is not None:
            self._shared.completed(self._request, self._picked, endpoint, outcome, first_byte=self._status != 0)

    def _settle_ledger(self) -> EndpointMetadata | None:
        """Settle the endpoint that was started; None when nothing was."""
        endpoint, self._endpoint = self._endpoint, None
        if endpoint is None or self._request is None:
            return None
        self._shared.ledger.finished(endpoint.id)
        return endpoint
