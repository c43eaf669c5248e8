"""Compiles what the host itself does for a plan: columns that it makes, tokens that it counts, headers that it withholds. Pure."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from hotbay.errors import Problem
from hotbay.scheduling.batch import data_key
from hotbay.scheduling.binding import Point
from hotbay.scheduling.builtin_producers import (
    BUILTIN_COLUMNS,
    IN_FLIGHT_TOKENS,
    INFLIGHT_LOAD,
    MATCH_BLOCK_TOKENS,
    MATCHED_BLOCKS,
    Give,
    PrefixMatch,
    TokenCounting,
    check_token_producer,
    make_of,
    token_counting,
)
from hotbay.scheduling.calls import RemoteCall
from hotbay.scheduling.compiling import Compiling
from hotbay.scheduling.plan import Before, RefPlan

__all__ = ["HostPart", "host_part", "with_gives"]

_AFTER_GIVES: Final = (Before.PRODUCE, Before.ADMIT)
"""Stages whose calls may consume what the host makes."""


class HostPart(NamedTuple):
    """See `Plan`."""

    gives: tuple[Give, ...]
    counts_tokens: TokenCounting | None
    match: PrefixMatch | None
    withheld: frozenset[str]


def host_part(context: Compiling) -> HostPart:
    """Compile; problems are noted in the context."""
    own = [ref for ref in context.given.refs if ref.plugin_id is None and ref.type in BUILTIN_COLUMNS]
    match = _match(context)
    return HostPart(tuple(_gives(context, own)), _counting(context, own, match), match, _withheld(context))


def with_gives(
    before: tuple[tuple[Before, tuple[RemoteCall, ...]], ...], gives: Sequence[Give]
) -> tuple[tuple[Before, tuple[RemoteCall, ...]], ...]:
    """The stages with one in which the host makes its columns, if somebody consumes any: before whoever may."""
    if not gives:
        return before
    at = next((index for index, (kind, _) in enumerate(before) if kind in _AFTER_GIVES), len(before))
    return (*before[:at], (Before.GIVE, ()), *before[at:])


def _gives(context: Compiling, own: Sequence[RefPlan]) -> list[Give]:
    """Columns of the host's own that are consumed: nobody pays for the others."""
    wanted = {consumed.key for consumed in context.data.consumed(context.given.refs)}
    found: list[Give] = []
    for ref in own:
        if ref.type != INFLIGHT_LOAD:
            problem = check_token_producer(ref.parameters, ref.name, ref.place)
            context.problems += [problem] if problem is not None else []
        for column in ref.produces:
            key = data_key(ref.name, column)
            if key in wanted:
                found.append(Give(key, make_of(ref.type, column)))
    return found


def _match(context: Compiling) -> PrefixMatch | None:
    maker = context.data.maker_of(MATCHED_BLOCKS)
    return None if maker is None else PrefixMatch(data_key(maker, MATCHED_BLOCKS), data_key(maker, MATCH_BLOCK_TOKENS))


def _counting(context: Compiling, own: Sequence[RefPlan], match: PrefixMatch | None) -> TokenCounting | None:
    """How tokens are counted; None where no instance is configured and nobody reads them."""
    loads = [ref for ref in own if ref.type == INFLIGHT_LOAD]
    countings: list[TokenCounting] = []
    for ref in loads:
        counting = token_counting(ref.parameters, ref.name, ref.place)
        if isinstance(counting, Problem):
            context.problems.append(counting)
            continue
        if countings and counting != countings[0]:
            message = f"'{loads[0].name}' and '{ref.name}' count tokens differently, and the host has one ledger"
            context.problem("CONFIG_INVALID", message, ref.place, hint=f"keep one {INFLIGHT_LOAD}")
        countings.append(counting)
    if countings:
        return countings[0]._replace(match=match)
    reads = any(IN_FLIGHT_TOKENS in context.reads(ref) for ref in context.given.refs)
    return TokenCounting(match=match) if reads else None


def _withheld(context: Compiling) -> frozenset[str]:
    """Headers of requests that refs set which have no process now: what clients say there must not pass for theirs."""
    return frozenset(
        name
        for ref in context.given.refs
        if ref.generation is None and ref.has(Point.PRE_REQUEST)
        for name in ref.facts.request_headers
    )
