"""Asks parsers in processes what requests are: one call a request, before there is anything to decide.

Invariants: every request that is asked about is answered once, parsed or refused; a parser that keeps failing is left alone
for a while, like any plugin: requests on its paths are refused meanwhile, because nobody else knows what they are.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, Protocol

from hotbay_sdk.protocol import ErrorCode, MalformedMessageError, Method
from hotbay_sdk.protocol.verdicts import Parsed, Verdict, read_parsed

from hotbay.errors import HostError
from hotbay.rpc.limits import Answer, Breaker
from hotbay.rpc.wire import Outcome
from hotbay.scheduling.binding import Point
from hotbay.scheduling.decision import Rejected
from hotbay.scheduling.plan import Parser
from hotbay.scheduling.request_calls import refusal_of
from hotbay.scheduling.statistics import BREAKER_OPEN

__all__ = ["ParseDone", "Parsers"]

logger = logging.getLogger(__name__)

ParseDone = Callable[[Parsed | Rejected], None]


class Called(Protocol):
    """Counts calls that are no part of a decision."""

    def __call__(
        self, generation: int, point: str, ref: str, *, duration_s: float, code: str = "", complaint: str = ""
    ) -> None:
        """One call of a generation ended; with `code` it failed."""


_OF_ONE_BODY: Final = frozenset({ErrorCode.PLUGIN_ERROR, ErrorCode.BAD_RESULT, ErrorCode.FRAME_TOO_LARGE})
"""What a body can bring about in a parser that answers in time. It is its client's, and refuses nobody else."""
_MISSES: Final = frozenset({str(ErrorCode.DEADLINE_EXCEEDED), str(ErrorCode.CRASHED)})


class Parsers:
    """The parsers of the current plan. Lives on the loop that made it."""

    def __init__(self, called: Called) -> None:
        self._called = called
        self._loop = asyncio.get_running_loop()
        self._parsers: dict[str, Parser] = {}
        self._breakers: dict[tuple[str, int], Breaker] = {}

    def published(self, parsers: Sequence[Parser]) -> None:
        """Take those of a plan."""
        self._parsers = {parser.binding.ref: parser for parser in parsers}
        there = {(p.binding.ref, p.generation.number) for p in parsers if p.generation is not None}
        self._breakers = {key: self._breakers.get(key) or Breaker() for key in there}

    @property
    def claims(self) -> Sequence[tuple[str, str]]:
        """(path suffix, ref), parsers in the order of the configuration; a parser that takes any path has the suffix ""."""
        return [(suffix, ref) for ref, parser in self._parsers.items() for suffix in parser.claims or ("",)]

    def parse(self, ref: str, path: str, headers: Mapping[str, str], body: bytes, done: ParseDone) -> None:
        """Ask. `done` is called exactly once, now or later; what it raises is its own affair."""
        parser = self._parsers.get(ref)
        generation = None if parser is None else parser.generation
        if parser is None or generation is None:
            done(_unavailable(ref, str(ErrorCode.UNAVAILABLE)))
            return
        breaker = self._breakers[ref, generation.number]
        if breaker.open and not breaker.allows(self._loop.time()):
            done(_unavailable(ref, BREAKER_OPEN))
            return
        given = {name: headers[name] for name in parser.headers if name in headers}
        begun_s = time.perf_counter()
        # What is called is not told to go before it answered: no cycle holds it yet.
        generation.acquire()
        try:
            generation.client.start_call(
                Method.PARSE,
                [parser.handle, path, given, body],
                deadline_s=parser.binding.deadline_s,
                done=partial(self._answered, parser, breaker, begun_s, done),
            )
        except HostError as error:
            self._answered(parser, breaker, begun_s, done, error)

    def _answered(self, parser: Parser, breaker: Breaker, begun_s: float, done: ParseDone, outcome: Outcome) -> None:
        assert parser.generation is not None, "it was asked"
        parser.generation.release()
        ref = parser.binding.ref
        answer, code, complaint = _read(ref, outcome)
        kind = Answer.MISS if code in _MISSES else Answer.BAD if code and code not in _OF_ONE_BODY else Answer.GOOD
        breaker.record(kind, now=self._loop.time())
        duration_s = time.perf_counter() - begun_s
        self._called(parser.generation.number, Point.PARSE, ref, duration_s=duration_s, code=code, complaint=complaint)
        try:
            done(answer)
        except Exception:
            # Named boundary: the caller's `done`, called in the middle of a link's events.
            logger.exception("parsed_request_failed ref=%s", ref)


def _read(ref: str, outcome: Outcome) -> tuple[Parsed | Rejected, str, str]:
    """What the outcome means for the request; code and text of what went wrong, empty if nothing did."""
    if isinstance(outcome, HostError):
        return _unavailable(ref, outcome.code), outcome.code, outcome.message
    try:
        said = read_parsed(outcome)
    except MalformedMessageError as error:
        code = str(ErrorCode.BAD_RESULT)
        return _unavailable(ref, code), code, str(error)
    return (refusal_of(said) if isinstance(said, Verdict) else said), "", ""


def _unavailable(ref: str, code: str) -> Rejected:
    return Rejected(503, "plugin-unavailable", f"parser '{ref}' gave no usable answer ({code})")
