"""`PrefixCacheMatchInfo`: what producers tell of the part of a prompt that endpoints hold, and under which names. Pure."""

from array import array
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

KEY: Final = "PrefixCacheMatchInfo"

MATCHED: Final = f"{KEY}.matched_blocks"
"""By row: leading blocks of the prompt that the endpoint holds, without a gap."""
TOTAL: Final = f"{KEY}.total_blocks"
"""By request: blocks of the prompt that were looked up."""
BLOCK_TOKENS: Final = f"{KEY}.block_size_tokens"
"""By request: tokens of a block."""

PRODUCED: Final[Mapping[str, str]] = {MATCHED: "row", TOTAL: "request", BLOCK_TOKENS: "request"}

PREFILL_PROFILE: Final = "prefill"
"""The profile by whose name, as in the reference, a second endpoint is known to compute the prompt."""


class MatchColumns(NamedTuple):
    """The three columns under the names by which a consumer declares them."""

    matched: str
    total: str
    block_tokens: str


def columns_of(producer: str) -> MatchColumns:
    """Those of the ref `producer`; of the only one, or the default one, where it is empty."""
    key = f"{KEY}/{producer}" if producer else KEY
    return MatchColumns(f"{key}.matched_blocks", f"{key}.total_blocks", f"{key}.block_size_tokens")


def row_of_counts(counts: Mapping[int, float], rows: int) -> "array[float]":
    """A column's row: `counts` by row number, 0 elsewhere."""
    column = array("f", bytes(4 * rows))
    for row, count in counts.items():
        column[row] = count
    return column


def computing(targets: Iterable[str], results: Mapping[str, Iterable[str] | None]) -> tuple[str, ...]:
    """Ids of the endpoints that compute a prompt: the first target, and that of the profile `prefill`."""
    firsts = [*list(targets)[:1], *list(results.get(PREFILL_PROFILE) or ())[:1]]
    return tuple(dict.fromkeys(firsts))
