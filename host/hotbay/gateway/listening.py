"""What plugins are told of one request from its decision to its end.

Nothing is told that nobody wants to hear, and nothing waits for who hears it. Invariants: each endpoint that the request is
sent to is told of once when it is sent, and has exactly one end, and nothing after it; one that gave no byte of a body is
withdrawn from besides. A request that was decided and then sent nowhere has one end, too.
"""

import time
from collections.abc import Sequence
from typing import Final

from hotbay.gateway.head import Headers
from hotbay.gateway.outcome import Outcome
from hotbay.gateway.seams import Hearing, Router
from hotbay.gateway.usage import BodyTail
from hotbay.scheduling.decision import Picked
from hotbay.scheduling.notices import make_short_fields
from hotbay.scheduling.request import InferenceRequest
from hotbay.scheduling.response_facts import NO_WANTS, ResponseFacts

__all__ = ["Listening", "cause_of"]

# Also for who listens only from then on, as a warm generation may.
_ALWAYS_MADE: Final = frozenset({"request.tokens_estimate"})
_CAUSES: Final = {
    Outcome.FINISHED: "natural",
    Outcome.CLIENT_DISCONNECT: "client-disconnect",
    Outcome.UPSTREAM_ERROR: "error",
    Outcome.TIMEOUT: "error",
}


def cause_of(outcome: Outcome, *, answered: bool) -> str:
    """Why a response ended. An outcome that is good without an answer is a refusal after a decision."""
    return _CAUSES[outcome] if answered or outcome is not Outcome.FINISHED else "error"


class Listening:
    """See the module. One of a request; times are since it was sent to the endpoint."""

    __slots__ = (
        "_asked",
        "_at",
        "_bytes",
        "_chunks",
        "_has_ended",
        "_hearing",
        "_is_heard",
        "_picked",
        "_router",
        "_sent_s",
        "_status",
        "_tail",
        "_ttft_us",
        "_wants",
    )

    def __init__(self, router: Router, hearing: Hearing) -> None:
        self._router = router
        self._hearing = hearing
        self._asked: InferenceRequest | None = None
        self._picked: Picked | None = None
        self._wants = NO_WANTS
        self._at = ""
        self._sent_s = 0.0
        self._tail: BodyTail | None = None
        self._status = 0
        self._bytes = 0
        self._chunks = 0
        self._ttft_us: int | None = None
        self._is_heard = False
        self._has_ended = False

    def decided(self, asked: InferenceRequest, picked: Picked) -> None:
        """The request goes where `picked` says, as it was asked for; where it was sent before it found nothing."""
        self.left(Outcome.UPSTREAM_ERROR)
        self._asked, self._picked = asked, picked
        self._wants = self._hearing.hears_responses

    def sent(self, endpoint_id: str) -> None:
        """The request is being sent there. Again there because a kept connection was closed is no news."""
        if self._asked is None or self._picked is None or endpoint_id == self._at:
            return
        self._at = endpoint_id
        self._is_heard = False
        # Who listens may have changed since the decision: who is told that it is sent is owed an end.
        self._wants = self._hearing.hears_responses
        if self._wants.body:
            self._sent_s = time.perf_counter()
        self._router.sent(self._asked, self._picked, endpoint_id)

    def begun(self, status: int, headers: Headers) -> None:
        """An answer's head came from where the request was sent to."""
        wants = self._wants
        if self._asked is None or self._picked is None or (wants.headers is None and not wants.body):
            return
        self._status = status
        if (
            wants.usage
            and not self._asked.skip_response
            and not any(name == b"content-encoding" for name, _ in headers)
        ):
            self._tail = BodyTail()
        if wants.headers is not None:
            declared = _text_of(headers, wants.headers)
            self._hearing.response_headers(self._asked, self._picked, self._at, status, declared)

    def came(self, parts: Sequence[bytes]) -> None:
        """Parts of the body came from there; at least one."""
        is_first, self._is_heard = not self._is_heard, True
        if not self._wants.body:
            return
        if is_first:
            self._ttft_us = self._elapsed_us()
        self._chunks += len(parts)
        for part in parts:
            self._bytes += len(part)
            if self._tail is not None:
                self._tail.add(part)
        if self._wants.chunks:
            self._tell(self._at, None)

    def left(self, outcome: Outcome, *, answered: bool = False) -> None:
        """The request is no business of the endpoint any more that it was sent to, if it was.

        `answered`: elsewhere, so that nothing of the answer was told.
        """
        endpoint_id, self._at = self._at, ""
        if not endpoint_id:
            return
        if not self._is_heard and not answered:
            assert self._asked is not None, "sent"
            assert self._picked is not None, "sent"
            self._hearing.withdraw(self._asked, self._picked, endpoint_id)
        self._has_ended = True
        self._tell(endpoint_id, cause_of(outcome, answered=answered or self._status != 0))

    def end(self, endpoint_id: str, outcome: Outcome) -> None:
        """The request is over, and was left; `endpoint_id` is the one that was tried last, or ""."""
        if self._picked is not None and not self._has_ended:
            self._has_ended = True
            self._tell(endpoint_id or self._picked.endpoint.id, cause_of(outcome, answered=False))

    def let_go_of_body(self) -> None:
        """Nothing follows but the end, maybe much later. Who is told of it then is not told what the prompt was."""
        asked = self._asked
        if asked is None:
            return
        if self._wants.body:
            make_short_fields(asked, self._wants.fields | _ALWAYS_MADE)
        asked.let_go_of_body()

    def _tell(self, endpoint_id: str, cause: str | None) -> None:
        if not self._wants.body or self._asked is None or self._picked is None:
            return
        usage = self._tail.usage() if cause is not None and self._tail is not None else None
        facts = ResponseFacts(
            status=self._status,
            bytes=self._bytes,
            chunks=self._chunks,
            usage=usage,
            end=cause is not None,
            cause=cause,
            first_byte=self._is_heard,
            ttft_us=self._ttft_us,
            elapsed_us=self._elapsed_us() if self._sent_s else 0,
        )
        self._hearing.response_body(self._asked, self._picked, endpoint_id, facts)

    def _elapsed_us(self) -> int:
        return round((time.perf_counter() - self._sent_s) * 1e6)


def _text_of(headers: Headers, names: frozenset[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in headers:
        text = name.decode("latin-1")
        if text in names:
            found[text] = value.decode("latin-1")
    return found
