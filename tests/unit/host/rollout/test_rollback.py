"""A rollback is written first: what the world does not take changes nothing."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from types import SimpleNamespace

import pytest
from hotbay.errors import CapacityError
from hotbay.rollout.events import EventLog
from hotbay.rollout.operations import Operations, Ports
from hotbay.rollout.state import Abort, Attempt, Build, Event, GoTo, Life, Phase, State
from hotbay.store.digests import Digest
from hotbay.store.world.engine import Change, Put, WorldView
from hotbay.store.world.memory import MemoryWorld
from hotbay.store.world.records import Completion, History, Pin

pytestmark = pytest.mark.anyio

OLD, NEW = (Digest("sha256:" + mark * 64) for mark in "ab")


class FullWorld(MemoryWorld):
    """No room for a write, once it is `full`; `then` is what happens while one is under way."""

    full = False
    then: Callable[[], None] | None = None

    async def transact(self, build: Callable[[WorldView], Iterable[Change]]) -> WorldView:
        if self.full:
            raise CapacityError("RESOURCE_EXHAUSTED", "the disk is full", hint="make room")
        if self.then is not None:
            self.then()
        return await super().transact(build)


@dataclass
class Routine:
    """Takes events and keeps them, and whether the pin was in the world then."""

    world: MemoryWorld
    state: State
    posted: list[tuple[Event, bool]] = field(default_factory=list)

    def post(self, event: Event) -> None:
        self.posted.append((event, self.world.view.get(Pin, "sample") is not None))


@dataclass
class Bay:
    """One plugin of which NEW runs and OLD ran."""

    world: FullWorld = field(default_factory=FullWorld)

    async def begin(self, phase: Phase) -> tuple[Operations, Routine]:
        history = [History("sample", n, d, n, "1.0.0", n, 0.0, "", "") for n, d in ((1, OLD), (2, NEW))]
        complete = [Completion(d, "sample", n, (), "e", "t", 0.0) for n, d in ((1, OLD), (2, NEW))]
        await self.world.transact(lambda _view: [Put(record) for record in (*history, *complete)])
        live, previous = (Attempt(n, Build(d, n), Life.READY) for n, d in ((2, NEW), (1, OLD)))
        state = State(phase, live=live, previous=previous if phase is Phase.GUARD else None)
        routine = Routine(self.world, state)
        supervisor = SimpleNamespace(
            world=self.world,
            routines={"sample": routine},
            look=lambda: None,
            follow=lambda: None,
            services=SimpleNamespace(now=lambda: 0.0, wall=lambda: 0.0),
            catalog=SimpleNamespace(plugin_ids=lambda: ("sample",), manifest=lambda _: SimpleNamespace(rev=1)),
        )
        ports = Ports(status=dict, lines=lambda _: (), collect=None, bindings=tuple)
        return Operations(supervisor, EventLog(lambda: 0.0), ports), routine


@pytest.mark.parametrize("phase", [Phase.IDLE, Phase.GUARD])
async def test_rollback_that_cannot_be_written_changes_nothing(phase: Phase) -> None:
    bay = Bay()
    operations, routine = await bay.begin(phase)
    bay.world.full = True
    with pytest.raises(CapacityError, match="the disk is full"):
        await operations.rollback("sample", "ann")
    assert routine.posted == []


@pytest.mark.parametrize(("phase", "kind"), [(Phase.IDLE, GoTo), (Phase.GUARD, Abort)])
async def test_rollback_is_pinned_and_then_done(phase: Phase, kind: type[Event]) -> None:
    operations, routine = await Bay().begin(phase)
    page = await operations.rollback("sample", "ann")
    ((event, was_pinned),) = routine.posted
    assert isinstance(event, kind)
    assert event.who == "ann"
    assert was_pinned
    assert page["digest"] == OLD


async def test_rollback_of_a_guard_that_ended_meanwhile_goes_to_the_version_all_the_same() -> None:
    bay = Bay()
    operations, routine = await bay.begin(Phase.GUARD)

    def ends() -> None:
        routine.state = replace(routine.state, phase=Phase.RETIRING, previous=None)

    bay.world.then = ends
    await operations.rollback("sample", "ann")
    assert [event for event, _ in routine.posted] == [GoTo(OLD, "ann")]
