"""Attained service of flows: how many tokens each was served, fading with time. Pure; `now` in monotonic seconds.

Source: the reference's least-attained-service strategy, in which a token of the answer counts like two of the prompt.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

PROMPT_TOKEN: Final = 1
COMPLETION_TOKEN: Final = 2
MAX_DUMPED: Final = 100
MAX_FLOWS: Final = 100_000
"""Bound of the flows that are remembered: clients name them."""
_LONGEST_FLOW: Final = 128
"""Characters. The names of flows that are longer are kept as their digest."""


@dataclass(slots=True)
class _Served:
    tokens: float
    at_s: float


class AttainedService:
    """What flows were served.

    Args:
        per_second: what is left after one second, above 0 up to 1.
        ttl_s: a flow of which no request ended for so long is forgotten.
        sweep_s: how often that is looked for.
    """

    def __init__(self, per_second: float, *, ttl_s: float, sweep_s: float) -> None:
        self._per_second = per_second
        self._ttl_s = ttl_s
        self._sweep_s = sweep_s
        self._swept_s: float | None = None
        self._flows: dict[str, _Served] = {}

    def __len__(self) -> int:
        return len(self._flows)

    def of(self, flow: str, now: float) -> float:
        """Weighted tokens that count against the flow now."""
        served = self._flows.get(_short(flow))
        return 0.0 if served is None else self._faded(served, now)

    def add(self, flow: str, prompt_tokens: int, completion_tokens: int, now: float) -> None:
        """A request of the flow ended."""
        tokens = self.of(flow, now) + PROMPT_TOKEN * prompt_tokens + COMPLETION_TOKEN * completion_tokens
        name = _short(flow)
        self._flows.pop(name, None)
        self._flows[name] = _Served(tokens, now)
        if self._swept_s is None:
            self._swept_s = now
        if now - self._swept_s >= self._sweep_s:
            self._swept_s = now
            self._flows = {key: served for key, served in self._flows.items() if now - served.at_s <= self._ttl_s}
        if len(self._flows) > MAX_FLOWS:
            # Dictionaries keep their order, so the first is the one whose last end is the longest ago.
            del self._flows[next(iter(self._flows))]

    def dump(self, now: float) -> dict[str, object]:
        """The most served flows, and how many there are."""
        tokens = {flow: self._faded(served, now) for flow, served in self._flows.items()}
        most = sorted(tokens, key=tokens.__getitem__, reverse=True)[:MAX_DUMPED]
        return {"flows": [{"flow": flow, "tokens": tokens[flow]} for flow in most], "total": len(tokens)}

    def _faded(self, served: _Served, now: float) -> float:
        left: float = self._per_second ** max(0.0, now - served.at_s)
        return served.tokens * left


def _short(flow: str) -> str:
    if len(flow) <= _LONGEST_FLOW:
        return flow
    return "#" + blake2b(flow.encode(errors="surrogatepass"), digest_size=32).hexdigest()


def least_served(services: Sequence[float], arrivals: Sequence[float], weights: tuple[float, float]) -> int | None:
    """The row with the highest weights[0] x (1 - service) + weights[1] x wait of its head; the first among equals.

    Both are brought to 0 to 1 over all rows, 0 for all where they do not differ. None for no rows.
    """
    if not services:
        return None
    served, young = _normalised(services), _normalised(arrivals)
    spread = max(arrivals) > min(arrivals)
    scores = [
        weights[0] * (1 - service) + weights[1] * (1 - age if spread else 0.0)
        for service, age in zip(served, young, strict=True)
    ]
    return scores.index(max(scores))


def _normalised(values: Sequence[float]) -> list[float]:
    lowest, spread = min(values), max(values) - min(values)
    return [(value - lowest) / spread if spread > 0 else 0.0 for value in values]
