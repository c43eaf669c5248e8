"""Takes one whole request to whoever answers it: the proxy, `/pick`, or the gateway's own pages."""

import asyncio
import secrets
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import NamedTuple

import orjson

from hotbay.datalayer.health.reports import Attempt
from hotbay.gateway.answers import Answer, Refusal, json_answer
from hotbay.gateway.exchange import GONE, MAX_CANDIDATES, Exchange, Upstreams
from hotbay.gateway.head import DESTINATION, passed_before
from hotbay.gateway.inference import CHAT_PATH, COMPLETIONS_PATH, parse_inference
from hotbay.gateway.outcome import Outcome
from hotbay.gateway.pick import PickTable, outcome_of
from hotbay.gateway.routes import Match, Route, match_route
from hotbay.gateway.seams import ListEndpoints, NotReady, Router
from hotbay.gateway.turn import Turn
from hotbay.observe.metrics import CONTENT_TYPE
from hotbay.scheduling.decision import Picked, Rejected
from hotbay.scheduling.request import InferenceRequest

__all__ = ["Dispatcher"]

_PICK_PATH_HEADER = b"x-hotbay-path"
# Who asked for the pick says no more: whether no connection came about, or what the answer was. Nor how long was waited,
# and what the endpoint sends to others does not pass here: a time that was over is a failure, and no silence.
_ATTEMPTS = {
    Outcome.FINISHED: Attempt.ANSWERED,
    Outcome.CLIENT_DISCONNECT: Attempt.UNTOLD,
    Outcome.UPSTREAM_ERROR: Attempt.FAILED,
    Outcome.TIMEOUT: Attempt.FAILED,
}
_FORWARDED = frozenset({Route.CHAT, Route.COMPLETIONS, Route.MODELS})
_LOOP = Refusal(
    508,
    "loop-detected",
    "The request came back: an endpoint of this gateway leads to the gateway itself, maybe by others.",
)
_NO_ENDPOINTS = Refusal(503, "rejected-no-endpoints", "No model server is known.")


class _Held(NamedTuple):
    """A pick that waits to be settled, with the number of its attempt."""

    picked: Picked
    era: int


class Dispatcher:
    """See the module. `begin` is called once per turn, in the order of a client's requests."""

    def __init__(
        self,
        router: Router,
        shared: Upstreams,
        *,
        endpoints: ListEndpoints,
        not_ready: NotReady,
        random: Random,
    ) -> None:
        self._router = router
        self._shared = shared
        self._endpoints = endpoints
        self._not_ready = not_ready
        self._random = random
        self.picks: PickTable[_Held] = PickTable(shared.limits.pick_s, shared.limits.picks)
        self._routes: dict[Route, Callable[[Turn, Match], None]] = {
            Route.CHAT: self._inference,
            Route.COMPLETIONS: self._inference,
            Route.MODELS: self._models,
            Route.HEALTH: lambda turn, match: turn.reply(Answer(200, b"ok\n", b"text/plain")),
            Route.LIVE: lambda turn, match: turn.reply(Answer(200, b"ok\n", b"text/plain")),
            Route.READY: self._ready,
            Route.METRICS: self._metrics,
            Route.PICK: self._pick,
            Route.PICK_DONE: self._pick_done,
        }

    def begin(self, turn: Turn) -> None:
        """Answer the turn, now or later."""
        match = match_route(turn.wire.method, turn.wire.target)
        if isinstance(match, Refusal):
            turn.refuse(match)
            return
        turn.route = match.route
        if match.route in _FORWARDED and passed_before(turn.wire.headers, self._shared.via):
            turn.refuse(_LOOP)
            return
        self._routes[match.route](turn, match)

    def expire(self, now: float) -> None:
        """Settle the picks that nobody settled in time."""
        for pick in self.picks.expire(now):
            self._shared.metrics.picks_expired += 1
            self._settle(pick, Attempt.UNUSED)

    def _settle(self, pick: _Held, attempt: Attempt) -> None:
        endpoint_id = pick.picked.endpoint.id
        attempts = self._shared.attempts
        self._shared.ledger.finished(endpoint_id)
        if attempt is Attempt.ANSWERED:
            attempts.heard(endpoint_id)
        attempts.ended(endpoint_id, pick.era, attempt)

    def _inference(self, turn: Turn, match: Match) -> None:
        request = parse_inference(turn.wire, match.path, turn.request_id)
        if isinstance(request, Refusal):
            turn.refuse(request)
            return
        self._router.decide(request, Exchange(turn, match.target, self._shared, request).decided)

    def _models(self, turn: Turn, match: Match) -> None:
        endpoints = list(self._endpoints())
        if not endpoints:
            turn.refuse(_NO_ENDPOINTS)
            return
        self._random.shuffle(endpoints)
        Exchange(turn, match.target, self._shared).send_to(endpoints)

    def _ready(self, turn: Turn, match: Match) -> None:
        reasons = list(self._not_ready())
        if not turn.client.may_stay_open:
            reasons.append("draining")
        turn.reply(json_answer(503 if reasons else 200, {"ready": not reasons, "reasons": reasons}))

    def _metrics(self, turn: Turn, match: Match) -> None:
        turn.reply(Answer(200, self._shared.metrics.render(), CONTENT_TYPE.encode()))

    def _pick(self, turn: Turn, match: Match) -> None:
        wanted = next((value for name, value in turn.wire.headers if name == _PICK_PATH_HEADER), CHAT_PATH.encode())
        path = wanted.decode("latin-1").partition("?")[0]
        if path not in (CHAT_PATH, COMPLETIONS_PATH):
            turn.refuse(Refusal(400, "unknown-path", f"`x-hotbay-path` must be {CHAT_PATH} or {COMPLETIONS_PATH}."))
            return
        request = parse_inference(turn.wire, path, turn.request_id)
        if isinstance(request, Refusal):
            turn.refuse(request)
        elif self.picks.full:
            turn.refuse(Refusal(503, "too-many-picks", "Too many picks are not settled yet."))
        else:
            pick = _Pick(turn, request, self._shared, self.picks)
            self._router.decide(request, pick.decided)

    def _pick_done(self, turn: Turn, match: Match) -> None:
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
        pick = self.picks.settle(match.pick_id)
        if pick is None:
            turn.refuse(Refusal(404, "unknown-pick", "There is no such pick, or it is settled or expired."))
            return
        self._settle(pick, _ATTEMPTS[outcome])
        self._shared.metrics.outcomes.add((outcome.value,))
        self._shared.router.outcome(pick.picked, failed=outcome.blames_endpoint, ttft_s=None)
        turn.reply(json_answer(200, {"outcome": outcome.value}))


class _Pick:
    """A `/pick` whose decision is under way. Endpoints that went or were cordoned meanwhile are not answered."""

    def __init__(self, turn: Turn, request: InferenceRequest, shared: Upstreams, picks: PickTable[_Held]) -> None:
        self._turn: Turn | None = turn
        self._request = request
        self._shared = shared
        self._picks = picks
        self._asked = request
        self._gone: set[str] = set()
        self._decisions = 1
        self._deadline = turn.started_at + shared.limits.first_byte_s
        turn.holder = self

    def decided(self, decision: Picked | Rejected) -> None:
        if self._turn is None:
            return
        if isinstance(decision, Picked):
            there = [
                one for it in (decision.endpoint, *decision.fallbacks) if (one := self._shared.look(it)) is not None
            ]
            if not there and self._decisions < MAX_CANDIDATES:
                self._decide_again(decision)
                return
            decision = decision._replace(endpoint=there[0], fallbacks=tuple(there[1:])) if there else GONE
        turn, self._turn = self._turn, None
        if isinstance(decision, Rejected):
            turn.refuse(Refusal(decision.status, decision.reason, decision.message))
            return
        pick_id = secrets.token_urlsafe(12)
        self._shared.ledger.started(decision.endpoint.id)
        era = self._shared.attempts.begin(decision.endpoint.id)
        # The client dials: what it does after this, the first endpoint of the answer is where it is to go.
        self._shared.router.sent(self._asked, decision, decision.endpoint.id)
        self._picks.hold(pick_id, _Held(decision, era), asyncio.get_running_loop().time())
        authority = decision.endpoint.authority
        fallbacks = [endpoint.authority for endpoint in decision.fallbacks]
        value = {
            "id": pick_id,
            "endpoint": authority,
            "fallbacks": fallbacks,
            "profile": decision.profile,
            "model": self._asked.target_model,
        }
        addresses = ",".join([authority, *fallbacks]).encode()
        turn.reply(json_answer(200, value, headers=[(DESTINATION, addresses)]))

    def _decide_again(self, decision: Picked) -> None:
        self._decisions += 1
        self._gone.update(one.id for one in (decision.endpoint, *decision.fallbacks))
        self._asked = replace(self._request, avoid=frozenset(self._gone))
        self._shared.router.decide(self._asked, self.decided)

    def abandoned(self, outcome: Outcome) -> None:
        turn, self._turn = self._turn, None
        if turn is not None:
            self._shared.router.cancel(self._asked)
            turn.finish(0, outcome)

    def look_at_clock(self, now: float) -> None:
        if now >= self._deadline and self._turn is not None:
            turn, self._turn = self._turn, None
            self._shared.router.cancel(self._asked)
            turn.refuse(Refusal(504, "decision-timeout", "No endpoint was chosen in time."), Outcome.TIMEOUT)

    def client_paused(self) -> None:
        """A pick has no body to hold back."""

    def client_resumed(self) -> None:
        """A pick has no body to hold back."""
