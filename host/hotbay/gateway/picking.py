"""`/pick`: tells another proxy where a request would go, and settles it when that proxy says how it ended, or after a time.

Invariants: an answered pick counts as in flight at its endpoint until it is settled, once; learners and listeners are told
of it as of a request that is sent, and of one end where it was decided and goes nowhere; endpoints that went or were cordoned
meanwhile are not answered.
"""

import asyncio
import secrets
from collections.abc import Mapping
from dataclasses import replace
from typing import Final, NamedTuple

import orjson

from hotbay.datalayer.health.reports import Attempt
from hotbay.gateway.answers import Refusal, json_answer, typed_refusal
from hotbay.gateway.choice import MAX_CANDIDATES
from hotbay.gateway.exchange import GONE
from hotbay.gateway.head import DESTINATION
from hotbay.gateway.listening import Listening
from hotbay.gateway.load import Load
from hotbay.gateway.outcome import Outcome
from hotbay.gateway.pick import PickTable, outcome_of
from hotbay.gateway.turn import Turn
from hotbay.gateway.upstreams import Upstreams
from hotbay.scheduling.decision import Picked, Rejected
from hotbay.scheduling.request import InferenceRequest

__all__ = ["Picks"]

# Who asked for the pick says no more: whether no connection came about, or what the answer was. Nor how long was waited,
# and what the endpoint sends to others does not pass here: a time that was over is a failure, and no silence.
_ATTEMPTS: Final = {
    Outcome.FINISHED: Attempt.ANSWERED,
    Outcome.CLIENT_DISCONNECT: Attempt.UNTOLD,
    Outcome.UPSTREAM_ERROR: Attempt.FAILED,
    Outcome.TIMEOUT: Attempt.FAILED,
}


class _Held(NamedTuple):
    """A pick that waits to be settled, with the number of its attempt and who is told of its end."""

    picked: Picked
    era: int
    listening: Listening
    load: Load


class Picks:
    """See the module."""

    def __init__(self, shared: Upstreams) -> None:
        self._shared = shared
        self._table: PickTable[_Held] = PickTable(shared.limits.pick_s, shared.limits.picks)

    def __len__(self) -> int:
        return len(self._table)

    def begin(self, turn: Turn, request: InferenceRequest) -> None:
        """Have the request decided, and answer the turn with that."""
        if self._table.full:
            turn.refuse(Refusal(503, "too-many-picks", "Too many picks are not settled yet."))
            return
        pick = _Pick(turn, request, self._shared, self._table)
        self._shared.router.decide(request, pick.decided)

    def done(self, turn: Turn, pick_id: str) -> None:
        """Settle a pick with the outcome that the turn's body names: `finished` without one."""
        outcome: Outcome | None = Outcome.FINISHED
        if turn.wire.body:
            try:
                told = orjson.loads(turn.wire.body)
            except orjson.JSONDecodeError:
                turn.refuse(Refusal(400, "invalid-json", "The body is not valid JSON."))
                return
            outcome = outcome_of(told.get("outcome", Outcome.FINISHED)) if isinstance(told, dict) else None
        if outcome is None:
            names = ", ".join(known.value for known in Outcome)
            turn.refuse(Refusal(400, "unknown-outcome", f"`outcome` must be one of {names}."))
            return
        pick = self._table.settle(pick_id)
        if pick is None:
            turn.refuse(Refusal(404, "unknown-pick", "There is no such pick, or it is settled or expired."))
            return
        self._settle(pick, _ATTEMPTS[outcome], outcome)
        self._shared.metrics.outcomes.add((outcome.value,))
        self._shared.router.outcome(pick.picked, failed=outcome.blames_endpoint, ttft_s=None)
        turn.reply(json_answer(200, {"outcome": outcome.value}))

    def expire(self, now: float) -> None:
        """Settle the picks that nobody settled in time."""
        for pick in self._table.expire(now):
            self._shared.metrics.picks_expired += 1
            self._settle(pick, Attempt.UNUSED, Outcome.CLIENT_DISCONNECT)

    def _settle(self, pick: _Held, attempt: Attempt, outcome: Outcome) -> None:
        endpoint_id = pick.picked.endpoint.id
        attempts = self._shared.attempts
        pick.load.end()
        if attempt is Attempt.ANSWERED:
            attempts.heard(endpoint_id)
        attempts.ended(endpoint_id, pick.era, attempt)
        pick.listening.left(outcome, answered=True)


class _Pick:
    """A `/pick` whose decision is under way."""

    def __init__(self, turn: Turn, request: InferenceRequest, shared: Upstreams, table: PickTable[_Held]) -> None:
        self._turn: Turn | None = turn
        self._request = request
        self._shared = shared
        self._table = table
        self._asked = request
        self._listening = Listening(shared.router, shared.hearing)
        self._gone: set[str] = set()
        self._decisions = 1
        self._explained: Mapping[bytes, bytes] = {}
        self._deadline = asyncio.get_running_loop().time() + shared.limits.first_byte_s
        turn.holder = self

    def decided(self, decision: Picked | Rejected) -> None:
        if self._turn is None:
            return
        self._explained = self._shared.explain(self._asked, decision)
        if isinstance(decision, Picked):
            # Who sets headers was asked for it: it has its end, wherever it goes or does not.
            self._listening.decided(self._asked, decision)
            there = [one for it in decision.candidates if (one := self._shared.look(it)) is not None]
            if not there and self._decisions < MAX_CANDIDATES:
                self._decide_again(decision)
                return
            decision = decision.narrowed(there) if there else GONE
        turn, self._turn = self._turn, None
        if isinstance(decision, Rejected):
            self._listening.end("", Outcome.FINISHED)
            turn.refuse(typed_refusal(decision.status, decision.reason, decision.message).also(self._explained))
        else:
            self._answer(turn, decision)

    def _answer(self, turn: Turn, decision: Picked) -> None:
        pick_id = secrets.token_urlsafe(12)
        endpoint = decision.endpoint
        load = Load(self._shared.ledger)
        load.start(endpoint.id, decision)
        era = self._shared.attempts.begin(endpoint.id)
        listening = self._listening
        # The client dials: what it does after this, the first endpoint of the answer is where it is to go.
        listening.decided(self._asked, decision)
        listening.sent(endpoint.id)
        # Learners are told at the end of this turn of the loop, of the prompt, too.
        loop = asyncio.get_running_loop()
        loop.call_soon(listening.let_go_of_body)
        self._table.hold(pick_id, _Held(decision, era, listening, load), loop.time())
        authority, *fallbacks = (
            (one if decision.port is None else replace(one, port=decision.port)).authority
            for one in (endpoint, *decision.fallbacks)
        )
        value = {
            "id": pick_id,
            "endpoint": authority,
            "fallbacks": fallbacks,
            "profile": decision.profile,
            "model": self._asked.target_model,
        }
        addresses = ",".join([authority, *fallbacks]).encode()
        turn.reply(json_answer(200, value, headers=[(DESTINATION, addresses), *self._explained.items()]))

    def _decide_again(self, decision: Picked) -> None:
        self._decisions += 1
        self._gone.update(one.id for one in decision.candidates)
        self._asked = replace(self._request, avoid=frozenset(self._gone))
        self._shared.router.decide(self._asked, self.decided)

    def abandoned(self, outcome: Outcome) -> None:
        turn, self._turn = self._turn, None
        if turn is not None:
            self._shared.router.cancel(self._asked)
            self._listening.end("", outcome)
            turn.finish(0, outcome)

    def look_at_clock(self, now: float) -> None:
        if now >= self._deadline and self._turn is not None:
            turn, self._turn = self._turn, None
            self._shared.router.cancel(self._asked)
            self._listening.end("", Outcome.TIMEOUT)
            turn.refuse(Refusal(504, "decision-timeout", "No endpoint was chosen in time."), Outcome.TIMEOUT)

    def client_paused(self) -> None:
        """A pick has no body to hold back."""

    def client_resumed(self) -> None:
        """A pick has no body to hold back."""
