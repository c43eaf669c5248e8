"""A probe measures one thing: it is opened once, then asked for a sample in every round.

A sample maps a quantity (`p50_us`, `per_s`) to a number that the probe took over many repetitions of its own.
Figures refer to it as `PROBE:QUANTITY`. What a probe needs (processes, connections) lives from its opening to the
end of the run, idle while the others are sampled.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

Sample: TypeAlias = Mapping[str, float]
TakeSample: TypeAlias = Callable[[], Sample]


class UnavailableError(Exception):
    """A probe cannot be taken on this machine; the text says what is missing. Its figures say so, too."""


@dataclass(frozen=True, slots=True)
class Room:
    """Where a run takes place. The harness itself is pinned to `cpus[0]`; a second CPU, if any, is for load.

    `swaps` is how often a leak run swaps; `requests` how many requests a replay of the routing study has, None: as many as it
    says itself.
    """

    root: Path
    build: Path
    cpus: tuple[int, ...]
    swaps: int = 200
    requests: int | None = None

    @property
    def load_cpu(self) -> int:
        """The CPU for whatever makes load, the product's own if there is only one."""
        return self.cpus[-1]


@dataclass(frozen=True, slots=True)
class Probe:
    """`open` prepares the probe for the run and yields the function that takes a sample."""

    name: str
    open: Callable[[Room], AbstractContextManager[TakeSample]]


def percentiles(times_s: list[float]) -> Sample:
    """Median, 99th percentile and rate of back-to-back repetitions. `times_s` is not empty."""
    ordered = sorted(times_s)
    return {
        "p50_us": ordered[len(ordered) // 2] * 1e6,
        "p99_us": ordered[int(len(ordered) * 0.99)] * 1e6,
        "per_s": len(ordered) / sum(ordered),
    }
