"""A rollback is written first, but where the version before is warm: there it is done whatever the world takes."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from types import SimpleNamespace

import pytest
from hotbay.errors import CapacityError, InputError
from hotbay.rollout.events import EventLog
from hotbay.rollout.operations import Operations, Ports
from hotbay.rollout.rows import Row
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

    @property
    def row(self) -> Row:
        return Row("sample", phase=self.state.phase, live_pid=7)

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


@pytest.mark.parametrize("phase", [Phase.IDLE, Phase.CANARY])
async def test_rollback_from_rest_that_cannot_be_written_changes_nothing_and_says_what_to_do(phase: Phase) -> None:
    bay = Bay()
    operations, routine = await bay.begin(phase)
    bay.world.full = True
    with pytest.raises(CapacityError, match="sample was not rolled back: the disk is full") as refused:
        await operations.rollback("sample", "ann")
    assert routine.posted == []
    assert "repeat" in refused.value.hint
    assert "`pin: 1` for sample" in refused.value.hint


async def test_rollback_during_the_guard_is_done_although_it_cannot_be_written() -> None:
    bay = Bay()
    operations, routine = await bay.begin(Phase.GUARD)
    bay.world.full = True
    with pytest.raises(CapacityError, match=r"sample went back to rev 1, but .* not written: the disk is full") as told:
        await operations.rollback("sample", "ann")
    ((event, was_pinned),) = routine.posted
    assert isinstance(event, Abort)
    assert not was_pinned
    assert told.value.code == "RESOURCE_EXHAUSTED"
    assert "`hotbay pin sample@1`" in told.value.hint


@pytest.mark.parametrize(("phase", "kind"), [(Phase.IDLE, GoTo), (Phase.GUARD, Abort)])
async def test_rollback_is_done_and_pinned(phase: Phase, kind: type[Event]) -> None:
    operations, routine = await Bay().begin(phase)
    page = await operations.rollback("sample", "ann")
    ((event, was_pinned),) = routine.posted
    assert isinstance(event, kind)
    assert event.who == "ann"
    assert was_pinned == (phase is Phase.IDLE)
    assert routine.world.view.get(Pin, "sample").digest == OLD
    assert page["digest"] == OLD
    assert page["message"] == "this is a pin: `hotbay unpin sample` ends it"


@pytest.mark.parametrize(
    ("phase", "said"),
    [
        (Phase.IDLE, "nothing is under way; the next rollout waits for `hotbay rollout resume sample`"),
        (Phase.CANARY, None),
    ],
)
async def test_pause_with_nothing_under_way_says_what_waits(phase: Phase, said: str | None) -> None:
    operations, _ = await Bay().begin(phase)
    page = await operations.rollout("sample", "pause", "ann")
    assert page.get("message") == said
    assert page["phase"] == ("live" if phase is Phase.IDLE else "canary")


async def test_refusal_names_the_phase_as_the_status_page_does() -> None:
    operations, _ = await Bay().begin(Phase.IDLE)
    with pytest.raises(InputError, match=r"nothing to promote: sample is live") as refused:
        await operations.rollout("sample", "promote", "ann")
    assert "idle" not in refused.value.hint


async def test_guard_that_ends_while_the_pin_is_written_changes_nothing_of_the_rollback() -> None:
    bay = Bay()
    operations, routine = await bay.begin(Phase.GUARD)

    def ends() -> None:
        routine.state = replace(routine.state, phase=Phase.RETIRING, previous=None)

    bay.world.then = ends
    await operations.rollback("sample", "ann")
    assert [type(event) for event, _ in routine.posted] == [Abort]
