"""A rollback is written first, but where the version before is warm: there it is done whatever the world takes.

A pin that nothing would obey is not written, and what a command decided is in the world when it answers.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from types import SimpleNamespace

import pytest
from hotbay.errors import CapacityError, InputError
from hotbay.rollout.events import EventLog
from hotbay.rollout.operations import Operations, Ports
from hotbay.rollout.rows import Row
from hotbay.rollout.selection import Candidate, Policy
from hotbay.rollout.state import Abort, Attempt, Build, Event, Facts, GoTo, Life, Phase, State
from hotbay.store.digests import Digest
from hotbay.store.world.engine import Change, Put, WorldView
from hotbay.store.world.memory import MemoryWorld
from hotbay.store.world.records import Completion, History, ManifestRef, Pin

pytestmark = pytest.mark.anyio

OLD, NEW, OTHER = (Digest("sha256:" + mark * 64) for mark in "ab0")


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
    unwritten: CapacityError | None = None

    @property
    def row(self) -> Row:
        return Row("sample", phase=self.state.phase, live_pid=7)

    def post(self, event: Event) -> None:
        self.posted.append((event, self.world.view.get(Pin, "sample") is not None))

    async def obey(self, event: Event) -> None:
        self.post(event)
        if self.unwritten is not None:
            raise self.unwritten


@dataclass
class Bay:
    """One plugin of which NEW runs and OLD ran."""

    world: FullWorld = field(default_factory=FullWorld)
    policy: Policy = field(default_factory=lambda: Policy(("L",), floor_rev=2))
    candidates: tuple[Candidate, ...] = field(
        default_factory=lambda: (Candidate(OLD, 1, "L", complete=True), Candidate(NEW, 2, "L", complete=True))
    )

    async def begin(self, phase: Phase) -> tuple[Operations, Routine]:
        history = [History("sample", n, d, n, "1.0.0", n, 0.0, "", "") for n, d in ((1, OLD), (2, NEW))]
        complete = [Completion(d, "sample", n, (), "e", "t", 0.0) for n, d in ((1, OLD), (2, NEW))]
        refs = [
            ManifestRef("sample", c.rev, c.platform, Digest(c.digest), "mine", c.digest, b"") for c in self.candidates
        ]
        await self.world.transact(lambda _view: [Put(record) for record in (*history, *complete, *refs)])
        live, previous = (Attempt(n, Build(d, n), Life.READY) for n, d in ((2, NEW), (1, OLD)))
        state = State(phase, live=live, previous=previous if phase is Phase.GUARD else None)
        routine = Routine(self.world, state)
        supervisor = SimpleNamespace(
            world=self.world,
            routines={"sample": routine},
            look=lambda: None,
            follow=lambda: None,
            facts=lambda _name: Facts(candidates=self.candidates, policy=self.policy),
            services=SimpleNamespace(
                now=lambda: 0.0,
                wall=lambda: 0.0,
                settings=lambda _: SimpleNamespace(platforms=("L",), grants=frozenset()),
            ),
            catalog=SimpleNamespace(
                plugin_ids=lambda: ("sample",),
                manifest=lambda _: SimpleNamespace(rev=1, capabilities=("dial",)),
                ref=lambda _: SimpleNamespace(offered=True),
            ),
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


BEFORE = replace(Candidate(OLD, 1, "L"), complete=True)
REFUSALS = [
    ({"quarantined": True}, {}, "in quarantine", "`hotbay quarantine clear sha256:a"),
    ({"granted": False}, {}, "asks for dial", "`hotbay grant sample dial`"),
    ({"denied": True}, {}, "trust.denied names it", "take it off"),
    ({"platform": "X"}, {}, "it is for X", "`hosts`"),
    ({"channel": "dev"}, {"channels": frozenset({"release"})}, "its channel dev is not followed", "`channel`"),
    ({}, {"locked": frozenset({NEW})}, "it is not in the lock file", "`hotbay apply`"),
]


@pytest.mark.parametrize(("change", "policy", "why", "hint"), REFUSALS)
@pytest.mark.parametrize("by", ["digest", "rev", "rollback"])
async def test_pin_that_nothing_would_obey_is_refused_and_not_written(
    change: dict, policy: dict, why: str, hint: str, by: str
) -> None:
    bay = Bay()
    bay.candidates = (replace(BEFORE, **change), bay.candidates[1])
    bay.policy = replace(bay.policy, **policy)
    operations, routine = await bay.begin(Phase.IDLE)
    asked = {
        "digest": lambda: operations.pin("sample", digest=OLD, who="ann"),
        "rev": lambda: operations.pin("sample", rev=1, who="ann"),
        "rollback": lambda: operations.rollback("sample", "ann"),
    }
    with pytest.raises(InputError, match=why) as refused:
        await asked[by]()
    assert hint in refused.value.hint
    assert (bay.world.view.get(Pin, "sample"), routine.posted) == (None, [])


async def test_pin_of_another_publisher_is_refused() -> None:
    bay = Bay()
    operations, _ = await bay.begin(Phase.IDLE)
    bay.candidates = bay.candidates[1:]
    with pytest.raises(InputError, match="of another publisher"):
        await operations.pin("sample", rev=1, who="ann")


async def test_rollback_and_pin_go_to_what_ran_though_other_content_has_its_revision_by_now() -> None:
    bay = Bay()
    # By its digest it comes first, as selection has it where nothing of a revision ran.
    bay.candidates = (Candidate(OTHER, 1, "L"), *bay.candidates)
    operations, routine = await bay.begin(Phase.IDLE)
    assert (await operations.rollback("sample", "ann"))["digest"] == OLD
    assert [type(event) for event, _ in routine.posted] == [GoTo]
    assert (await operations.pin("sample", rev=1, who="ann"))["digest"] == OLD
    assert (await operations.pin("sample", digest=OLD, who="ann"))["digest"] == OLD
    assert (await operations.pin("sample", digest=OTHER, who="ann"))["digest"] == OTHER


async def test_pin_by_revision_goes_below_the_floor() -> None:
    bay = Bay()
    bay.candidates = (Candidate(OLD, 1, "L"), bay.candidates[1])
    operations, _ = await bay.begin(Phase.IDLE)
    assert (await operations.pin("sample", rev=1, who="ann"))["digest"] == OLD


async def test_rollback_during_the_guard_that_no_pin_can_keep_is_done_and_says_so() -> None:
    bay = Bay()
    bay.policy = replace(bay.policy, locked=frozenset({NEW}))
    operations, routine = await bay.begin(Phase.GUARD)
    with pytest.raises(InputError, match="went back to rev 1, and nothing keeps it there: it is not in the lock file"):
        await operations.rollback("sample", "ann")
    assert [type(event) for event, _ in routine.posted] == [Abort]
    assert bay.world.view.get(Pin, "sample") is None


@pytest.mark.parametrize(
    ("act", "said"),
    [
        (
            lambda it: it.rollout("sample", "abort", "ann"),
            "abort of sample is done, and what came of it is not written",
        ),
        (lambda it: it.rollback("sample", "ann"), "sample went back to rev 1, but"),
    ],
)
async def test_command_that_is_done_and_not_written_says_both(act: Callable, said: str) -> None:
    operations, routine = await Bay().begin(Phase.GUARD)
    routine.unwritten = CapacityError("UNAVAILABLE", "world.db was deleted", hint="put the file back")
    with pytest.raises(CapacityError, match=f"{said}.*: world.db was deleted"):
        await act(operations)
    assert [type(event) for event, _ in routine.posted] == [Abort]


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
