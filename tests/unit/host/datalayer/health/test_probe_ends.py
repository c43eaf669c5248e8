"""What an attempt says of a probe: only the probe itself ends it unheard, and only if it was sent does the next one wait longer."""

from collections.abc import Callable

import pytest
from hotbay.datalayer.endpoint import EndpointMetadata
from hotbay.datalayer.health.availability import PROBE_PAUSE_S
from hotbay.datalayer.health.patience import Awaited
from hotbay.datalayer.health.reports import Attempt
from hotbay.datalayer.health.state import Health, HealthLimits, Phase
from hotbay.datalayer.health.watch import DECIDE_S, HealthWatch
from hotbay.datalayer.store import EndpointStore

T0 = 1000.0


class Unheeded:
    """Nobody counts."""

    def ejected(self, reason: str) -> None:
        """Not counted."""

    def ejection_withheld(self, reason: str) -> None:
        """Not counted."""

    def probed(self, result: str) -> None:
        """Not counted."""


class Probed:
    """An endpoint that was ejected and is to be probed, besides one that is well."""

    def __init__(self) -> None:
        self.store = EndpointStore()
        self.watch = HealthWatch(self.store, Unheeded(), limits=HealthLimits)
        self.now = T0
        for number, name in enumerate("ab"):
            self.store.upsert(EndpointMetadata(name, name, "10.0.0.1", 1000 + number))
        self.tick()
        for _ in range(5):
            self.watch.ended("a", self.watch.begin("a"), Attempt.UNREACHABLE)
        self.tick()
        self.tick(30.0)

    def tick(self, after_s: float = 0.0) -> None:
        self.now += after_s
        self.watch.tick(self.now)

    @property
    def health(self) -> Health:
        health = self.watch.health("a")
        assert health is not None
        return health

    def probe(self) -> int:
        """The number of a probe that is on its way, as soon as there is one."""
        self.now = max(self.now, self.health.until)
        self.tick(DECIDE_S)
        assert self.watch.probe() == "a"
        number = self.watch.begin("a")
        assert self.health.phase is Phase.PROBING
        return number


def unused(it: Probed, number: int) -> None:
    it.watch.ended("a", number, Attempt.UNUSED)


def untold(it: Probed, number: int) -> None:
    it.watch.ended("a", number, Attempt.UNTOLD)


def left(it: Probed, number: int) -> None:
    it.watch.silent("a", number, Attempt.SILENT, it.watch.pieces("a"), Awaited.TOKEN, 0.1)


@pytest.mark.parametrize(("ends", "lost"), [(unused, 0), (untold, 3), (left, 3)])
def test_only_a_probe_that_was_sent_makes_the_next_one_wait_longer(
    ends: Callable[[Probed, int], None], lost: int
) -> None:
    it = Probed()
    for _ in range(3):
        ends(it, it.probe())
        it.tick(DECIDE_S)
        assert it.health.phase is Phase.HALF_OPEN
    assert it.health.lost == lost
    assert it.health.until - it.now == pytest.approx(PROBE_PAUSE_S * (4.0**2 if lost else 1.0))


def test_a_probe_that_was_not_sent_forgets_none_that_were() -> None:
    it = Probed()
    for ends in (untold, unused, untold):
        ends(it, it.probe())
        it.tick(DECIDE_S)
    assert it.health.lost == 2
    assert it.health.until - it.now == pytest.approx(PROBE_PAUSE_S * 4.0)


@pytest.mark.parametrize("ends", [unused, untold, left])
def test_what_another_request_does_not_tell_leaves_the_probe_on_its_way(ends: Callable[[Probed, int], None]) -> None:
    """Where all were ejected, or filters leave nothing else, requests go there besides the probe."""
    it = Probed()
    before = it.watch.begin("a")
    number = it.probe()
    during = it.watch.begin("a")
    for other in (before, during):
        ends(it, other)
        it.tick(DECIDE_S)
        assert (it.health.phase, it.health.lost) == (Phase.PROBING, 0)
        assert it.watch.probe() is None
    untold(it, number)
    it.tick(DECIDE_S)
    assert (it.health.phase, it.health.lost) == (Phase.HALF_OPEN, 1)


@pytest.mark.parametrize(("attempt", "phase"), [(Attempt.ANSWERED, Phase.ADMITTED), (Attempt.FAILED, Phase.EJECTED)])
def test_what_another_request_tells_counts_as_the_probe_does(attempt: Attempt, phase: Phase) -> None:
    it = Probed()
    number = it.probe()
    it.watch.ended("a", it.watch.begin("a"), attempt)
    it.tick(DECIDE_S)
    assert it.health.phase is phase
    untold(it, number)
    it.tick(DECIDE_S)
    assert (it.health.phase, it.health.lost) == (phase, 0)


def test_where_another_request_was_first_it_is_the_probe() -> None:
    it = Probed()
    number = it.probe()
    it.watch.unused("a")
    assert it.health.phase is Phase.PROBING
    untold(it, number)
    it.tick(DECIDE_S)
    assert (it.health.phase, it.health.lost) == (Phase.HALF_OPEN, 1)


def test_probe_whose_time_passed_before_it_was_sent_is_none() -> None:
    it = Probed()
    assert it.watch.probe() == "a"
    it.tick(30.0)
    assert it.health.phase is Phase.HALF_OPEN
    untold(it, it.watch.begin("a"))
    it.tick(DECIDE_S)
    assert (it.health.phase, it.health.lost) == (Phase.HALF_OPEN, 0)


def test_answer_of_a_probe_that_breaks_off_counts_against_its_endpoint() -> None:
    it = Probed()
    number = it.probe()
    it.watch.ended("a", number, Attempt.ANSWERED)
    it.tick(DECIDE_S)
    it.watch.ended("a", number, Attempt.BROKEN)
    it.tick(DECIDE_S)
    assert (it.health.phase, it.health.recent.errors) == (Phase.ADMITTED, 1)
