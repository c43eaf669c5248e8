"""Interleaved rounds: every probe is sampled once in each round, in an order drawn anew, so that a machine that
changes speed, or a neighbour that wakes up, meets all of them alike.
"""

import random
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

from benchmarks.probes import Probe, Room, TakeSample, UnavailableError


@dataclass(slots=True)
class Outcome:
    """Samples by `PROBE:QUANTITY`, one per round, and why probes are missing, by probe."""

    samples: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    unavailable: dict[str, str] = field(default_factory=dict)


def run_rounds(
    probes: Sequence[Probe], room: Room, *, rounds: int, order: random.Random, progress: Callable[[str], None]
) -> Outcome:
    """Open every probe, take `rounds` samples of each after one that is not counted, and close them all."""
    outcome = Outcome()
    with ExitStack() as stack:
        opened = _open_all(probes, room, stack, outcome)
        for number in range(rounds + 1):
            names = list(opened)
            order.shuffle(names)
            for name in names:
                progress(f"round {number} of {rounds}: {name}")
                sample = opened[name]()
                if number > 0:
                    for quantity, value in sample.items():
                        outcome.samples[f"{name}:{quantity}"].append(value)
    return outcome


def _open_all(probes: Sequence[Probe], room: Room, stack: ExitStack, outcome: Outcome) -> Mapping[str, TakeSample]:
    opened: dict[str, TakeSample] = {}
    for probe in probes:
        try:
            opened[probe.name] = stack.enter_context(probe.open(room))
        except UnavailableError as error:
            outcome.unavailable[probe.name] = str(error)
    return opened
