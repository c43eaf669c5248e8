"""Replays a request trace in the Mooncake form, scaled to what one small machine can answer. Pure.

One JSON object a line: `{"timestamp": ms, "input_length": tokens, "output_length": tokens, "hash_ids": [ids]}`, where
each id stands for the next 512 tokens of the prompt (Mooncake, FAST '25). What is kept: the order, the shape of the
arrivals over time, the ratios of the lengths, and the sharing: prompts that begin with the same ids begin with the same
text. What is scaled: time, so that `rate` requests a second fill the run; lengths, 512 tokens to BLOCK_BYTES; and
the longest prompts and answers are cut.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from hotbay.demo.workload import text
from hotbay.errors import InputError, Place, Problem

__all__ = ["Arrival", "TraceRequest", "parse_trace", "plan_replay"]

BLOCK_TOKENS: Final = 512
"""Tokens for which one hash id stands in the trace."""

BLOCK_BYTES: Final = 64
"""What stands for them here: 16 tokens of 4 bytes, one block of the demo's prefix cache."""

MAX_PROMPT_BYTES: Final = 2048
MAX_ANSWER_TOKENS: Final = 32
_ANSWER_SCALE: Final = BLOCK_BYTES / BLOCK_TOKENS / 2
_LINES_MAX: Final = 1_000_000
_PROBLEMS_MAX: Final = 5
_FORM: Final = '{"timestamp": ms, "input_length": tokens, "output_length": tokens, "hash_ids": [ids]}'


@dataclass(frozen=True, slots=True)
class TraceRequest:
    """A line of the trace."""

    timestamp_ms: int
    input_tokens: int
    output_tokens: int
    hash_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Arrival:
    """A request of the replay; `at_s` counts from its beginning."""

    at_s: float
    prompt: str
    answer_tokens: int


def parse_trace(content: str, *, file: str) -> tuple[TraceRequest, ...]:
    """Read a trace. Empty lines do not count.

    Raises:
        InputError: with the first bad lines, or when there is no request at all.
    """
    requests: list[TraceRequest] = []
    problems: list[Problem] = []
    for number, line in enumerate(content.splitlines()[:_LINES_MAX], start=1):
        if not line.strip():
            continue
        request = _parse_line(line)
        if request is not None:
            requests.append(request)
        elif len(problems) < _PROBLEMS_MAX:
            place = Place(file, number)
            problems.append(
                Problem("CONFIG_INVALID", "not a request of a trace", place, expected=_FORM, found=ascii(line[:60]))
            )
    if not requests and not problems:
        problems.append(Problem("CONFIG_INVALID", "holds no request", Place(file), expected=_FORM))
    if problems:
        raise InputError(problems)
    return tuple(sorted(requests, key=lambda request: request.timestamp_ms))


def _parse_line(line: str) -> TraceRequest | None:
    try:
        value = json.loads(line)
    except json.JSONDecodeError:
        return None
    if not isinstance(value, Mapping):
        return None
    numbers = [value.get(key) for key in ("timestamp", "input_length", "output_length")]
    ids = value.get("hash_ids")
    if not all(_is_count(number) for number in numbers) or not isinstance(ids, list) or not all(map(_is_count, ids)):
        return None
    timestamp, input_length, output_length = (int(str(number)) for number in numbers)
    return TraceRequest(timestamp, input_length, output_length, tuple(ids))


def _is_count(value: object) -> bool:
    return type(value) is int and value >= 0


def plan_replay(trace: Sequence[TraceRequest], *, seed: int, duration_s: float, rate: float) -> tuple[Arrival, ...]:
    """The first `duration_s` × `rate` requests of the trace, spread over the duration as they are over the trace's time.

    A trace that is shorter is taken whole. `rate` is requests per second.
    """
    taken = trace[: max(1, round(duration_s * rate))]
    first_ms = taken[0].timestamp_ms
    span_ms = max(1, taken[-1].timestamp_ms - first_ms)
    length_s = min(duration_s, len(taken) / rate)
    return tuple(
        Arrival(
            at_s=(request.timestamp_ms - first_ms) / span_ms * length_s,
            prompt=prompt(request, seed),
            answer_tokens=max(1, min(MAX_ANSWER_TOKENS, round(request.output_tokens * _ANSWER_SCALE))),
        )
        for request in taken
    )


def prompt(request: TraceRequest, seed: int) -> str:
    """A text in which each hash id is BLOCK_BYTES of words of its own, the last one as full as the trace says."""
    length = max(1, round(request.input_tokens * BLOCK_BYTES / BLOCK_TOKENS))
    blocks = "".join(_block(seed, hash_id) for hash_id in request.hash_ids[: MAX_PROMPT_BYTES // BLOCK_BYTES])
    return blocks[:length] or _block(seed, 0)[:length]


@lru_cache(4096)
def _block(seed: int, hash_id: int) -> str:
    return text(f"block {seed} {hash_id}", BLOCK_BYTES)
