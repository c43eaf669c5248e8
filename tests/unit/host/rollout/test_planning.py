"""What a plan says of a host: what would change and when, and what is not chosen."""

from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest
from hotbay.rollout.planning import planned_changes, versions_passed_over
from hotbay.rollout.rows import Row
from hotbay.rollout.selection import Candidate, Policy
from hotbay.rollout.state import Attempt, Build, Facts, Life, Phase, State
from hotbay.store.digests import Digest
from hotbay.store.world.engine import Put
from hotbay.store.world.memory import MemoryWorld
from hotbay.store.world.records import History, Locked

pytestmark = pytest.mark.anyio

LIVE, OTHER = (Digest("sha256:" + mark * 64) for mark in "ab")
REVS = {LIVE: 9, OTHER: 2}
RUNS = Candidate(LIVE, 9, "L", complete=True)


@dataclass
class Bay:
    """One plugin of which rev 9 runs."""

    other: Candidate
    offered: bool = True
    locked: frozenset[str] | None = None
    world: MemoryWorld = field(default_factory=MemoryWorld)

    def supervisor(self) -> SimpleNamespace:
        facts = Facts(1, (RUNS, self.other), Policy(platforms=("L",), locked=self.locked))
        state = State(Phase.IDLE, facts=facts, live=Attempt(1, Build(LIVE, 9), Life.READY))
        return SimpleNamespace(
            world=self.world,
            routines={"sample": SimpleNamespace(state=state, row=Row("sample", phase=Phase.IDLE, live_pid=7))},
            facts=lambda name: facts,
            services=SimpleNamespace(now=lambda: 0.0, settings=lambda name: SimpleNamespace(grants=frozenset())),
            catalog=SimpleNamespace(
                manifest=lambda d: SimpleNamespace(version="1.0.0", rev=REVS[Digest(d)], capabilities=()),
                ref=lambda d: SimpleNamespace(offered=self.offered),
            ),
        )


LOWER = Candidate(OTHER, 2, "L")


async def test_version_published_below_what_runs_is_not_chosen_and_said() -> None:
    (row,) = versions_passed_over(Bay(LOWER).supervisor(), None)
    assert (row["rev"], row["why"]) == (2, "it is below rev 9, and the highest runs")
    assert "`hotbay pin sample@2`" in str(row["hint"])


async def test_version_below_that_ran_or_was_withdrawn_is_no_news() -> None:
    bay = Bay(LOWER)
    await bay.world.transact(lambda _: [Put(History("sample", 1, OTHER, 2, "1.0.0", 1, 0.0, "", ""))])
    assert versions_passed_over(bay.supervisor(), None) == []
    assert versions_passed_over(Bay(LOWER, offered=False).supervisor(), None) == []


async def test_change_that_a_lock_holds_back_waits_for_apply_and_downloads_nothing() -> None:
    """A host that was told to obey a lock file no more, or another one, obeys it until `apply`."""
    higher = Candidate(OTHER, 20, "L")
    (row,) = planned_changes(Bay(higher, locked=frozenset({LIVE})).supervisor(), None)
    assert (row["action"], row["phase"], row["why"]) == (
        "download and upgrade", "live", "at `hotbay apply`; highest revision",
    )  # fmt: skip
    (row,) = planned_changes(Bay(higher).supervisor(), None)
    assert row["why"] == "downloading; highest revision"


async def test_plan_under_the_lock_in_force_is_that_of_the_file() -> None:
    line = Locked("sample", "L", LIVE, 9, "")
    assert planned_changes(Bay(LOWER, locked=frozenset({LIVE})).supervisor(), (line,)) == []
