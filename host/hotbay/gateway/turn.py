"""One request's turn on its client connection, from the whole request in to the whole answer out.

Invariants: a turn ends exactly once, by `finish`; it is counted and logged then, with its request id and never with
anything of its body. Whoever works on the answer (the holder) hears of a client that left, a deadline that passed and
a client that cannot take more.
"""

import asyncio
import logging
import time
from typing import Protocol

from hotbay.gateway.answers import Answer, Refusal, serialise
from hotbay.gateway.outcome import Outcome
from hotbay.gateway.request_reader import WireRequest
from hotbay.gateway.routes import Route
from hotbay.observe.logs import ACCESS_LOGGER
from hotbay.observe.metrics import Metrics

__all__ = ["ClientSide", "Holder", "Turn"]

logger = logging.getLogger(ACCESS_LOGGER)


class ClientSide(Protocol):
    """What a turn needs of its client's connection."""

    @property
    def peer(self) -> str: ...

    @property
    def may_stay_open(self) -> bool:
        """False while the gateway drains."""
        ...

    @property
    def write_paused(self) -> bool: ...

    def write(self, data: bytes, /) -> None: ...

    def turn_done(self, *, keep_alive: bool) -> None: ...

    def cut(self) -> None:
        """Close at once, so that the client sees a broken answer and not a whole one."""
        ...


class Holder(Protocol):
    """Who works on the answer of a turn."""

    def abandoned(self, outcome: Outcome) -> None:
        """The client left, or the gateway stops: let go of everything and finish the turn."""
        ...

    def look_at_clock(self, now: float) -> None: ...

    def client_paused(self) -> None: ...

    def client_resumed(self) -> None: ...


class Turn:
    """See the module."""

    def __init__(self, client: ClientSide, wire: WireRequest, request_id: str, metrics: Metrics) -> None:
        self.client = client
        self.wire = wire
        self.request_id = request_id
        self.route = Route.UNKNOWN
        self.holder: Holder | None = None
        self.started_at = asyncio.get_running_loop().time()
        # Deadlines go by the loop's clock, which counts whole milliseconds; measurements need a finer one.
        self.began_s = time.perf_counter()
        self._metrics = metrics
        metrics.requests_in_flight += 1

    @property
    def head_only(self) -> bool:
        """The client wants no body."""
        return self.wire.method == b"HEAD"

    @property
    def keep_alive(self) -> bool:
        """The connection may serve another request after this one."""
        return self.wire.keep_alive and self.client.may_stay_open

    @property
    def elapsed_s(self) -> float:
        """Time since the whole request was there."""
        return time.perf_counter() - self.began_s

    def refuse(self, refusal: Refusal, outcome: Outcome = Outcome.FINISHED, endpoint: str = "-") -> None:
        """Answer with an error and finish."""
        if refusal.status == 429 or refusal.status >= 500:
            self._metrics.rejections.add((refusal.code,))
        self.reply(refusal.answer(), outcome, endpoint)

    def reply(self, answer: Answer, outcome: Outcome = Outcome.FINISHED, endpoint: str = "-") -> None:
        """Answer and finish; `outcome` and `endpoint` are for the log."""
        keep_alive = self.keep_alive
        data = serialise(
            answer,
            keep_alive=keep_alive,
            http_1_0=self.wire.http_1_0,
            head_only=self.head_only,
            request_id=self.request_id,
        )
        self.client.write(data)
        self.finish(answer.status, outcome, sent_bytes=len(data), endpoint=endpoint)
        self.client.turn_done(keep_alive=keep_alive)

    def finish(
        self, status: int, outcome: Outcome, *, sent_bytes: int = 0, endpoint: str = "-", ttft_s: float | None = None
    ) -> None:
        """Count and log the end. Whoever calls this tells the client afterwards."""
        self.holder = None
        duration_s = self.elapsed_s
        metrics = self._metrics
        metrics.requests_in_flight -= 1
        metrics.request(self.route.value, status, duration_s)
        logger.info(
            "request id=%s route=%s status=%d outcome=%s endpoint=%s bytes=%d ms=%.1f ttft_ms=%s",
            self.request_id,
            self.route.value,
            status,
            outcome.value,
            endpoint,
            sent_bytes,
            duration_s * 1e3,
            "-" if ttft_s is None else round(ttft_s * 1e3, 1),
            extra={"request_id": self.request_id},
        )
