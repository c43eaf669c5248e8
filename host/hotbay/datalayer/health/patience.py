"""From how long without a byte on an attempt that its client gave up says something of its endpoint. Pure.

A client that leaves at once is nobody's fault, and a server that is busy with long prompts answers somebody else
meanwhile. So a wait counts as no answer only if the endpoint sent nobody a byte of a body while it lasted, and it was long:

- for a stream, `slow_factor` times the usual time to first token and longer by `slow_s` than the longest, of all
  endpoints in the last two intervals, but at least `silent_s`, and `slow_factor` times that where fewer than `min_samples`
  streams tell. What enough of them told holds for `max_s`: while clients wait for a server that hangs, few are answered,
- for an answer that comes whole, `silent_whole_s`: how long it takes is a matter of its length,
- for a connection, CONNECTION_S.

`silent_s` 2 s is the bound that MLPerf Inference 5.0 sets for the time to first token of Llama 2 70B, and ten seconds are
beyond the largest one there, 6 s for Llama 3.1 405B. `silent_whole_s` 60 s is what proxies wait for an answer by default
(nginx `proxy_read_timeout`, the idle timeout of AWS load balancers): who waits behind one gets nothing later.
"""

import enum
import statistics
from collections.abc import Sequence
from typing import Final

from hotbay.datalayer.health.reports import Attempt
from hotbay.datalayer.health.state import NEVER, HealthLimits, Usual

__all__ = ["CONNECTION_S", "Awaited", "learned", "patience_s", "weighed"]

CONNECTION_S: Final = 2.0
"""A first packet that is lost is sent again after 1 s (RFC 6298, 2.1); this leaves a second for the way."""


class Awaited(enum.Enum):
    """What an attempt waits for: a connection, the first token of a stream, or an answer that comes whole."""

    CONNECTION = enum.auto()
    TOKEN = enum.auto()
    WHOLE = enum.auto()


def learned(
    usual: Usual, times_s: Sequence[Sequence[float]], longest_s: float, now: float, limits: HealthLimits
) -> Usual:
    """What is known from `now` on; `times_s` are times to first token by endpoint, of the last two intervals.

    They may be samples; `longest_s` is the longest of all, 0 without any.
    """
    told = [times for times in times_s if times]
    longest_s += limits.slow_s
    is_enough = sum(map(len, told)) >= limits.min_samples
    if usual.patience_s is not None and not is_enough and now - usual.at <= limits.max_s:
        return Usual(max(usual.patience_s, longest_s), usual.at)
    if not told:
        return Usual()
    least_s = limits.silent_s if is_enough else _unknown_s(limits)
    usual_s = limits.slow_factor * statistics.median(map(statistics.median, told))
    return Usual(max(usual_s, longest_s, least_s), now if is_enough else NEVER)


def _unknown_s(limits: HealthLimits) -> float:
    return limits.slow_factor * limits.silent_s


def patience_s(awaited: Awaited, usual: Usual, limits: HealthLimits) -> float:
    """Seconds."""
    if awaited is Awaited.CONNECTION:
        return CONNECTION_S
    if awaited is Awaited.WHOLE:
        return limits.silent_whole_s
    return _unknown_s(limits) if usual.patience_s is None else usual.patience_s


def weighed(attempt: Attempt, *, heard: bool, waited_s: float, patience_s: float) -> Attempt:
    """What an attempt counts as. `heard`: its endpoint sent somebody a byte of a body while it waited."""
    if attempt is Attempt.LATE:
        return Attempt.FAILED if heard else Attempt.SILENT
    if attempt is Attempt.SILENT and (heard or waited_s < patience_s):
        return Attempt.UNTOLD
    return attempt
