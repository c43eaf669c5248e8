"""Rounds: everything is sampled once a round, the first round is not counted, what was opened is closed."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from benchmarks.probes import Probe, Room, TakeSample, UnavailableError
from benchmarks.rounds import run_rounds

ROOM = Room(Path(), Path(), (0,))


class Counting:
    """A probe that numbers its samples from 0 and remembers whether it is open."""

    def __init__(self, name: str, log: list[str]) -> None:
        self.name = name
        self.log = log
        self.taken = 0
        self.open = False

    def take(self) -> dict[str, float]:
        assert self.open
        self.log.append(self.name)
        self.taken += 1
        return {"number": float(self.taken - 1)}

    @contextmanager
    def opened(self, _: Room) -> Iterator[TakeSample]:
        self.open = True
        try:
            yield self.take
        finally:
            self.open = False


@contextmanager
def no_compiler(_: Room) -> Iterator[TakeSample]:
    raise UnavailableError("no C compiler")
    yield


def run(probes: list[Probe], rounds: int = 3):
    return run_rounds(probes, ROOM, rounds=rounds, order=random.Random(1), progress=lambda _: None)


def test_run_rounds_samples_each_probe_once_a_round_and_drops_the_first():
    log: list[str] = []
    left, right = Counting("left", log), Counting("right", log)

    outcome = run([Probe("left", left.opened), Probe("right", right.opened)])

    assert outcome.samples == {"left:number": [1.0, 2.0, 3.0], "right:number": [1.0, 2.0, 3.0]}
    assert all(set(log[i : i + 2]) == {"left", "right"} for i in range(0, len(log), 2))
    assert not left.open
    assert not right.open


def test_run_rounds_goes_on_without_a_probe_that_is_unavailable():
    counting = Counting("there", [])

    outcome = run([Probe("absent", no_compiler), Probe("there", counting.opened)], rounds=1)

    assert outcome.unavailable == {"absent": "no C compiler"}
    assert list(outcome.samples) == ["there:number"]


def test_run_rounds_closes_probes_when_a_sample_fails():
    counting = Counting("there", [])

    @contextmanager
    def failing(_: Room) -> Iterator[TakeSample]:
        def take() -> dict[str, float]:
            raise RuntimeError("the process died")

        yield take

    with pytest.raises(RuntimeError, match="the process died"):
        run([Probe("there", counting.opened), Probe("failing", failing)])
    assert not counting.open
