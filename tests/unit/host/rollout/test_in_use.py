"""A complete version that waits to be run is in use: a collection leaves it alone, and it is not downloaded again and again."""

from types import SimpleNamespace

import anyio
import pytest
from hotbay.rollout.backoff import BackoffState
from hotbay.rollout.routine import Routine
from hotbay.rollout.selection import Candidate, Pin, Policy
from hotbay.rollout.state import Attempt, Build, Facts, Hold, Life, Rules, State
from hotbay.store.digests import Digest, digest_of
from hotbay.store.gc_plan import Demand, plan_gc
from hotbay.store.world.engine import Put
from hotbay.store.world.memory import MemoryWorld
from hotbay.store.world.records import Completion, History

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def digest(rev: int) -> Digest:
    return digest_of(f"{rev}".encode())


LIVE = Attempt(1, Build(digest(11), 11), Life.READY, platforms=("L",))
HELD = {digest(9): Hold(BackoffState(), 1000.0)}


def waiting(*, pin: int = 9, complete: bool = True, live: bool = True, **state: object) -> State:
    """Rev 11 runs, and `pin` is wanted."""
    rules = state.pop("rules", Rules())
    known = (
        Candidate(digest(11), 11, "L", complete=True),
        Candidate(digest(9), 9, "L", complete=complete),
        Candidate(digest(8), 8, "L", complete=True),
    )
    facts = Facts(1, known, Policy(platforms=("L",), pin=Pin(rev=pin)), rules)
    return State(live=LIVE if live else None, last=LIVE.build, facts=facts, **state)


@pytest.mark.parametrize(
    ("state", "is_kept"),
    [
        (waiting(rules=Rules(approve=True)), True),
        (waiting(paused=True), True),
        (waiting(holds=HELD), True),
        (waiting(live=False, holds=HELD), True),
        (waiting(pin=11), False),
        (waiting(complete=False), False),
    ],
    ids=["for approval", "for resume", "for the end of a pause", "for a restart", "for nothing", "for its download"],
)
async def test_what_is_complete_and_waits_is_in_use(state: State, is_kept: bool) -> None:
    world = MemoryWorld()
    revs = [7, 8, 10, 11, *([9] if any(c.rev == 9 and c.complete for c in state.facts.candidates) else [])]
    complete = [Completion(digest(rev), "a", rev, (), f"{rev:064}", "t", 0.0) for rev in revs]
    history = [History("a", n, digest(rev), rev, "1", n, 0.0, "", "") for n, rev in enumerate((7, 8, 10, 11), 1)]
    await world.transact(lambda _: [Put(record) for record in (*complete, *history)])
    async with anyio.create_task_group() as group:
        services = SimpleNamespace(world=world, now=lambda: 0.0)
        routine = Routine("a", services, group)  # type: ignore[arg-type]
        routine.state = state
        in_use = {Digest(each) for each in routine.digests}
    assert (digest(9) in in_use) == is_kept
    assert digest(11) in in_use
    assert digest(8) not in in_use
    plan = plan_gc(world.view, demand=Demand(in_use), keep_versions=2, blobs_present={}, environments_present={})
    assert (digest(9) in plan.completions) == (9 in revs and not is_kept)
