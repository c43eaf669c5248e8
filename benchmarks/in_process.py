"""The default profile inside a process: what a router would spend that called its plugins as functions. Pure.

Twice: endpoint by endpoint in plain Python, and over columns with numpy. Both are written for speed and for known figures only; the
formulas, weights and choice are those of the default profile (short queues 2, free KV cache 2, cached prefix 3, the highest total,
equals at random), and the objects that they look at are made before.
"""

import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

__all__ = ["WEIGHTS", "Columns", "Server", "pick_column", "pick_each", "score_columns", "score_each"]

WEIGHTS: Final[Mapping[str, float]] = {
    "queue-scorer": 2.0,
    "kv-cache-utilization-scorer": 2.0,
    "prefix-cache-scorer": 3.0,
}
_QUEUE, _KV, _PREFIX = WEIGHTS.values()

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Server:
    """One endpoint; `blocks` are the hashes of the prompt blocks that it holds."""

    waiting: float
    kv_usage: float
    blocks: Collection[int]


@dataclass(frozen=True, slots=True)
class Columns:
    """All endpoints; `holders` has a mask over them for each block."""

    waiting: Floats
    kv_usage: Floats
    holders: Mapping[int, npt.NDArray[np.bool_]]


def score_each(servers: Sequence[Server], hashes: Sequence[int]) -> list[float]:
    """Totals by endpoint."""
    queues = [server.waiting for server in servers]
    longest = max(queues)
    spread = longest - min(queues)
    return [
        _QUEUE * ((longest - server.waiting) / spread if spread else 1.0)
        + _KV * _free(server)
        + _PREFIX * _matched(server, hashes) / len(hashes)
        for server in servers
    ]


def _free(server: Server) -> float:
    return min(1.0, max(0.0, 1.0 - server.kv_usage))


def _matched(server: Server, hashes: Sequence[int]) -> int:
    blocks = server.blocks
    for number, block in enumerate(hashes):
        if block not in blocks:
            return number
    return len(hashes)


def pick_each(totals: Sequence[float], rng: random.Random) -> int:
    """The place of the highest; one of several at random."""
    best = max(totals)
    places = [place for place, total in enumerate(totals) if total == best]
    return places[0] if len(places) == 1 else rng.choice(places)


def score_columns(columns: Columns, hashes: Sequence[int]) -> Floats:
    """Totals by endpoint, as `score_each`, over whole columns."""
    waiting = columns.waiting
    longest = waiting.max()
    spread = longest - waiting.min()
    totals: Floats = _KV * np.clip(1 - columns.kv_usage, 0, 1)
    totals += _QUEUE * ((longest - waiting) / spread) if spread > 0 else _QUEUE
    alive = columns.holders.get(hashes[0]) if hashes else None
    if alive is None:
        return totals
    counts = np.zeros(len(waiting), np.float32)
    for block in hashes:
        held = columns.holders.get(block)
        if held is None or not (alive := alive & held).any():
            break
        counts += alive
    totals += _PREFIX / len(hashes) * counts
    return totals


def pick_column(totals: Floats, rng: random.Random) -> int:
    """The place of the highest; one of several at random."""
    places = np.flatnonzero(totals == totals.max())
    return int(places[0] if len(places) == 1 else rng.choice(places))
