"""Makes requests of turns: finds the parser of a path, has it read the body, and gives the request its model and priority.

The host's own parsers read at once. One of a package answers later; meanwhile its client may leave, and what comes then is
nobody's. Invariant: of a turn that is read either a request comes out, once, or it is refused or finished.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from hotbay_sdk.protocol.verdicts import Parsed

from hotbay.gateway.answers import Refusal, typed_refusal
from hotbay.gateway.directing import Director
from hotbay.gateway.head import text_headers
from hotbay.gateway.inference import parse_inference, parsed_elsewhere
from hotbay.gateway.outcome import Outcome
from hotbay.gateway.parsers import passthrough
from hotbay.gateway.parsers.table import ParserTable
from hotbay.gateway.routes import Route
from hotbay.gateway.seams import Parsing
from hotbay.gateway.turn import Turn
from hotbay.scheduling.decision import Rejected
from hotbay.scheduling.request import InferenceRequest

__all__ = ["Reading"]

Then = Callable[[InferenceRequest], None]

UNCLAIMED: Final = Refusal(400, "unclaimed-path", "No parser of this gateway claims this path.")
_TOO_LATE: Final = Refusal(504, "parser-timeout", "The body was not read in time.")


class Reading:
    """See the module. `wait_s` is the longest that a turn waits for a parser that does not say that it is late itself."""

    def __init__(self, parsing: Parsing, director: Director, wait_s: float) -> None:
        self._parsing = parsing
        self._director = director
        self._wait_s = wait_s
        self._listed: Sequence[tuple[str, str]] = parsing.parsers
        self._table = ParserTable(self._listed)

    def read(self, turn: Turn, path: str, then: Then) -> None:
        """Call `then` with the request that the turn's body is for `path`, now or later; or end the turn."""
        listed = self._parsing.parsers
        if listed is not self._listed:
            self._listed, self._table = listed, ParserTable(listed)
        claimed = self._table.find(path)
        if claimed is None:
            turn.refuse(UNCLAIMED)
        elif claimed.form is None:
            waiting = _Awaited(turn, path, self._wait_s, lambda made: self._made(turn, made, then))
            wire = turn.wire
            self._parsing.parse(claimed.ref, path, text_headers(wire.headers), wire.body, waiting.done)
        else:
            if claimed.form is passthrough.FORM and turn.route is Route.INFERENCE:
                turn.route = Route.PASSTHROUGH
            self._made(turn, parse_inference(turn.wire, path, turn.request_id, claimed.form), then)

    def _made(self, turn: Turn, made: InferenceRequest | Refusal, then: Then) -> None:
        if isinstance(made, Refusal):
            turn.refuse(made)
            return
        self._director.direct(made)
        then(made)


class _Awaited:
    """A turn whose body a package's parser reads."""

    def __init__(
        self, turn: Turn, path: str, wait_s: float, made: Callable[[InferenceRequest | Refusal], None]
    ) -> None:
        self._turn: Turn | None = turn
        self._path = path
        self._deadline = asyncio.get_running_loop().time() + wait_s
        self._made = made
        turn.holder = self

    def done(self, parsed: Parsed | Rejected) -> None:
        """The parser's answer; ignored when the client has left meanwhile."""
        turn, self._turn = self._turn, None
        if turn is None:
            return
        if isinstance(parsed, Rejected):
            self._made(typed_refusal(parsed.status, parsed.reason, parsed.message))
        else:
            self._made(parsed_elsewhere(turn.wire, self._path, turn.request_id, parsed))

    def abandoned(self, outcome: Outcome) -> None:
        turn, self._turn = self._turn, None
        if turn is not None:
            turn.finish(0, outcome)

    def look_at_clock(self, now: float) -> None:
        if now >= self._deadline and self._turn is not None:
            turn, self._turn = self._turn, None
            turn.refuse(_TOO_LATE, Outcome.TIMEOUT)

    def client_paused(self) -> None:
        """Nothing is sent yet."""

    def client_resumed(self) -> None:
        """Nothing is sent yet."""
