"""Takes one whole request to whoever answers it: the proxy, `/pick`, or the gateway's own pages."""

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Final

from hotbay.gateway.answers import Answer, Refusal, json_answer
from hotbay.gateway.exchange import Exchange
from hotbay.gateway.head import passed_before
from hotbay.gateway.inference import CHAT_PATH
from hotbay.gateway.parsers.paths import original_target
from hotbay.gateway.picking import Picks
from hotbay.gateway.reading import Reading
from hotbay.gateway.routes import Match, Route, match_route
from hotbay.gateway.seams import ListEndpoints, NotReady
from hotbay.gateway.turn import Turn
from hotbay.gateway.upstreams import Upstreams
from hotbay.observe.metrics import CONTENT_TYPE
from hotbay.scheduling.request import InferenceRequest

__all__ = ["Dispatcher"]

_PICK_PATH_HEADER: Final = b"x-hotbay-path"
_FORWARDED: Final = frozenset({Route.CHAT, Route.COMPLETIONS, Route.INFERENCE, Route.MODELS})
_LOOP: Final = Refusal(
    508,
    "loop-detected",
    "The request came back: an endpoint of this gateway leads to the gateway itself, maybe by others.",
)
_NO_ENDPOINTS: Final = Refusal(503, "rejected-no-endpoints", "No model server is known.")


class Dispatcher:
    """See the module. `begin` is called once per turn, in the order of a client's requests."""

    def __init__(
        self,
        shared: Upstreams,
        reading: Reading,
        *,
        endpoints: ListEndpoints,
        not_ready: NotReady,
        random: Random,
    ) -> None:
        self._shared = shared
        self._reading = reading
        self._endpoints = endpoints
        self._not_ready = not_ready
        self._random = random
        self.picks = Picks(shared)
        self._routes: dict[Route, Callable[[Turn, Match], None]] = {
            Route.CHAT: self._inference,
            Route.COMPLETIONS: self._inference,
            Route.INFERENCE: self._inference,
            Route.MODELS: self._models,
            Route.HEALTH: lambda turn, match: turn.reply(Answer(200, b"ok\n", b"text/plain")),
            Route.LIVE: lambda turn, match: turn.reply(Answer(200, b"ok\n", b"text/plain")),
            Route.READY: self._ready,
            Route.METRICS: self._metrics,
            Route.PICK: self._pick,
            Route.PICK_DONE: lambda turn, match: self.picks.done(turn, match.pick_id),
        }

    def begin(self, turn: Turn) -> None:
        """Answer the turn, now or later."""
        match = match_route(turn.wire.method, turn.wire.target, turn.wire.headers)
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
        self.picks.expire(now)

    def _inference(self, turn: Turn, match: Match) -> None:
        self._reading.read(turn, match.path, partial(self._forward, turn, match.target))

    def _forward(self, turn: Turn, target: bytes, request: InferenceRequest) -> None:
        self._shared.router.decide(request, Exchange(turn, target, self._shared, request).decided)

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
        wanted = next((value for name, value in turn.wire.headers if name == _PICK_PATH_HEADER), b"")
        target = wanted or original_target(turn.wire.headers) or CHAT_PATH.encode()
        path = target.decode("latin-1").partition("?")[0]
        if not path.startswith("/"):
            turn.refuse(Refusal(400, "unknown-path", "`x-hotbay-path` must be a path that begins with a slash."))
            return
        self._reading.read(turn, path, partial(self.picks.begin, turn))
