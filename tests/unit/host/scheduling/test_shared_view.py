"""Columns in shared memory: whatever is published, asked for and acknowledged when, a call finds its snapshot's columns."""

import asyncio
import mmap
from collections.abc import Callable, Iterable, Sequence

import numpy as np
import pytest
from hotbay.datalayer.endpoint import EndpointMetadata, Metrics
from hotbay.datalayer.store import EndpointStore
from hotbay.datalayer.tables.snapshot import Snapshot
from hotbay.errors import HostError, PluginFault
from hotbay.rpc.leases import Generation, Origin
from hotbay.rpc.memfd import SharedArea
from hotbay.scheduling.remote import Remote
from hotbay.scheduling.shared_view import FEATURE, MAX_AREAS_PASSED, SharedColumns, group_of
from hotbay.scheduling.statistics import CallCounters
from hotbay_sdk._areas import Area
from hotbay_sdk._batch import HeldView, take_view
from hotbay_sdk._columns import Columns
from hotbay_sdk._errors import CallFailedError
from hypothesis import given
from hypothesis import strategies as st

FEW = ("endpoint.waiting",)
MANY = ("attribute.gpu.load", "attribute.hits", "endpoint.in_flight", "endpoint.num_blocks", "endpoint.waiting")
FROM_BYTES = 128
ROWS = FROM_BYTES // 4
"""Endpoints with which one float32 column is enough to be shared."""


def hold(store: EndpointStore, names: Iterable[str]) -> None:
    """Make the store hold exactly these."""
    wanted = {f"default/{name}": name for name in names}
    for one, name in wanted.items():
        store.upsert(EndpointMetadata(one, name, "10.0.0.1", 8000))
    for endpoint in store.endpoints():
        if endpoint.id not in wanted:
            store.delete(endpoint.id)


class Tally:
    def invalid_scores(self, ref: str, count: int) -> None: ...

    def plugin_error(self, point: str, ref: str, code: str) -> None: ...

    def call_timer(self, plugin: str, point: str) -> Callable[[float], None]:
        return lambda duration_s: None


class Kernel:
    """Makes areas of plain memory, and knows which of them the host still has."""

    def __init__(self) -> None:
        self.memory: dict[int, memoryview] = {}
        self.open: set[int] = set()
        self.refuses = False

    def make(self, name: str, size_bytes: int) -> SharedArea:
        if self.refuses:
            raise OSError("Invalid argument")
        return _PlainArea(self, size_bytes)


class _PlainArea(SharedArea):
    __slots__ = ("_kernel",)

    def __init__(self, kernel: Kernel, size_bytes: int) -> None:
        number = len(kernel.memory)
        memory = mmap.mmap(-1, size_bytes)
        super().__init__(memory, number)
        self._kernel = kernel
        # What a process maps is another map of the same pages, and stays when the host lets go of its own.
        kernel.memory[number] = memoryview(memory).toreadonly()
        kernel.open.add(number)

    def close(self) -> None:
        self._kernel.open.discard(self.descriptor)
        self.descriptor = -1


class Process:
    """The client's interface, and the plugin's memory of areas; it acknowledges when it is told to."""

    label = "p#1"

    def __init__(self, kernel: Kernel) -> None:
        self.areas: dict[int, Area] = {}
        self.shares: list[tuple[dict[int, int], list[int]]] = []
        self.largest = 0
        self._kernel = kernel
        self._done: Callable[[object], None] | None = None

    def share(self, areas: dict[int, int], drop: Sequence[int], done: Callable[[object], None]) -> None:
        assert self._done is None, "one message at a time"
        assert len(areas) <= 4
        self.shares.append((dict(areas), list(drop)))
        self._done = done

    def acknowledge(self) -> None:
        if self._done is not None:
            added, dropped = self.shares[-1]
            self.areas |= {number: Area(self._kernel.memory[descriptor]) for number, descriptor in added.items()}
            for number in dropped:
                del self.areas[number]
            self.largest = max(self.largest, len(self.areas))
            done, self._done = self._done, None
            done(None)

    def refuse(self, error: HostError) -> None:
        assert self._done is not None
        done, self._done = self._done, None
        done(error)


def generation(process: Process, number: int = 1, features: frozenset[str] = frozenset({FEATURE})) -> Generation:
    return Generation(number, Origin("p", "1.0.0", 1, "sha256:0"), process, {}, 1, features=features)  # type: ignore[arg-type]


class World:
    """One store, one process, and what it holds."""

    def __init__(self, *, rows: int = ROWS, features: frozenset[str] = frozenset({FEATURE})) -> None:
        self.kernel = Kernel()
        self.shared = SharedColumns(self.kernel.make, from_bytes=FROM_BYTES)
        self.process = Process(self.kernel)
        self.remote = self.another(self.process, features=features)
        self.held: HeldView | None = None
        self.store = EndpointStore()
        self.base_rows = rows
        self.now = 0.0
        self.snapshots: list[Snapshot] = []
        self.reads = frozenset(MANY)
        self.publish(rows)

    def another(self, process: Process, number: int = 1, features: frozenset[str] = frozenset({FEATURE})) -> Remote:
        return Remote(
            generation(process, number, features),
            counters=CallCounters(Tally()),
            advance=lambda cycle: None,
            shared=self.shared,
        )

    def publish(self, rows: int | None = None) -> Snapshot:
        """Change a little, and the number of endpoints where it is given."""
        self.now += 1.0
        if rows is not None:
            hold(self.store, map(str, range(rows)))
        self.store.update_metrics("default/0", Metrics(waiting=self.now, num_blocks=int(self.now)), self.now)
        self.store.put_attributes("default/0", {"gpu.load": self.now / 2, "hits": int(self.now)}, self.now)
        self.snapshots.append(self.store.publish(self.now))
        return self.snapshots[-1]

    def call(self, snapshot: Snapshot, columns: tuple[str, ...], delayed: Callable[[], None] = lambda: None) -> bool:
        """Make a call that the process reads after `delayed`; true when its columns lay in areas. Checks what it reads."""
        view = self.remote.view(snapshot, columns)
        delayed()
        shared = len(view) == 6
        try:
            held = take_view(view, self.held, self.process.areas, self.reads)  # type: ignore[arg-type]
        except CallFailedError as failure:
            if failure.error.details != {"missing": "columns"} or not shared:
                raise
            self.remote.forget_view()
            view = self.remote.view(snapshot, columns)
            assert len(view) == 5
            held = take_view(view, self.held, self.process.areas, self.reads)  # type: ignore[arg-type]
        self.held = held
        self.check(snapshot, columns)
        return shared

    def check(self, snapshot: Snapshot, columns: tuple[str, ...]) -> None:
        assert self.held is not None
        read = Columns(self.held.columns or {}, self.held.rows, frozenset(columns), "t")
        for name in columns:
            expected = snapshot.columns.get(name, np.full(snapshot.rows, np.nan, np.float32))
            np.testing.assert_array_equal(np.asarray(read[name]), expected, err_msg=name)


Step = tuple[str, int]

STEPS = st.one_of(
    st.tuples(st.just("publish"), st.sampled_from([0, 1, 2, -1])),
    st.tuples(st.just("resize"), st.sampled_from([1, ROWS // 2, ROWS, ROWS + 3, 5 * ROWS])),
    st.tuples(st.just("declare"), st.integers(0, 3)),
    st.tuples(st.just("call"), st.integers(0, 11)),
    st.tuples(st.just("late"), st.integers(0, 11)),
    st.tuples(st.just("acknowledge"), st.just(0)),
    st.tuples(st.just("forget"), st.just(0)),
    st.tuples(st.just("keep"), st.just(0)),
    st.tuples(st.just("in flight"), st.just(0)),
)
DECLARED: Sequence[dict[str, str]] = (
    {},
    {"gpu.load": "f32", "hits": "i64"},
    {"gpu.load": "i64", "hits": "i64"},
    {"hits": "f32", "hits/i64": "f32"},
)


def _step(world: World, kind: str, number: int) -> None:
    if kind == "publish":
        world.publish()
    elif kind == "resize":
        world.publish(number)
    elif kind == "declare":
        world.store.declare_attributes(DECLARED[number])
        world.publish()
    elif kind in ("call", "late"):
        behind, columns = number // 2, (FEW, MANY)[number % 2]
        snapshot = world.snapshots[max(0, len(world.snapshots) - 1 - behind)]
        world.call(snapshot, columns, _five_later(world) if kind == "late" else lambda: None)
    elif kind == "acknowledge":
        world.process.acknowledge()
    elif kind == "forget":
        world.remote.forget_view()
    elif kind == "keep":
        world.shared.keep(world.remote.groups if number else ())
    else:
        world.store.ledger.started("default/0", 10)
        world.publish()


def _five_later(world: World) -> Callable[[], None]:
    """Five publications that another process asks for: a ring has four slots."""

    def delayed() -> None:
        other = Process(world.kernel)
        remote = world.another(other, 2)
        for _ in range(5):
            remote.view(world.publish(), MANY)
            other.acknowledge()

    return delayed


@given(st.lists(STEPS, max_size=30))
def test_any_order_of_publications_calls_and_acknowledgements_finds_its_columns(steps: list[Step]) -> None:
    async def body() -> None:
        world = World()
        for kind, number in steps:
            _step(world, kind, number)
        # No area outlives its use at the host, and the process holds one of each group and what it was not told to drop.
        groups = {group_of(name) for name in MANY}
        assert len(world.kernel.open) <= len(groups)
        assert world.process.largest <= 2 * len(groups)
        world.shared.keep(())
        assert world.kernel.open == set()

    asyncio.run(body())


def in_loop(body: Callable[[], None]) -> None:
    async def main() -> None:
        body()

    asyncio.run(main())


def test_columns_are_shared_from_the_acknowledgement_on_and_written_once_for_all() -> None:
    def body() -> None:
        world = World()
        world.store.declare_attributes(DECLARED[1])
        world.publish()
        assert not world.call(world.snapshots[-1], MANY)
        assert not world.call(world.publish(), MANY)
        world.process.acknowledge()
        snapshot = world.publish()
        assert world.call(snapshot, MANY)
        assert len(world.process.shares) == 1
        # The same epoch again: nothing to say.
        assert world.remote.view(snapshot, MANY)[3:] == [None, None]
        other = Process(world.kernel)
        remote = world.another(other, 2)
        remote.view(snapshot, MANY)
        other.acknowledge()
        later = world.publish()
        assert world.call(later, MANY)
        assert len(remote.view(later, MANY)) == 6
        assert len(world.kernel.memory) == len({group_of(name) for name in MANY})

    in_loop(body)


def test_what_has_not_changed_keeps_its_stamp_and_is_copied_once() -> None:
    def body() -> None:
        world = World()
        columns = ("endpoint.in_flight", "endpoint.waiting")
        world.call(world.snapshots[-1], columns)
        world.process.acknowledge()
        assert world.call(world.publish(), columns)
        assert world.held is not None
        before = dict(world.held.columns or {})
        world.store.ledger.started("default/0", 10)
        assert world.call(world.store.publish(world.now), columns)
        after = world.held.columns or {}
        assert after["endpoint.waiting"] is before["endpoint.waiting"]
        assert after["endpoint.in_flight"] != before["endpoint.in_flight"]

    in_loop(body)


@pytest.mark.parametrize("later", [3, 4])
def test_a_slot_serves_until_four_publications_later(later: int) -> None:
    def body() -> None:
        world = World()
        world.call(world.snapshots[-1], FEW)
        world.process.acknowledge()
        other = Process(world.kernel)
        remote = world.another(other, 2)

        def delayed() -> None:
            for _ in range(later):
                remote.view(world.publish(), FEW)
                other.acknowledge()

        remote.view(world.publish(), FEW)
        other.acknowledge()
        snapshot = world.publish()
        view = world.remote.view(snapshot, FEW)
        assert len(view) == 6
        delayed()
        area, slot, stamp = view[5][0]  # type: ignore[index]
        copied = world.process.areas[area].copy(slot, stamp, FEW, snapshot.rows)
        assert (copied is None) is (later == 4)

    in_loop(body)


def test_a_copy_that_is_overwritten_while_it_is_taken_does_not_count() -> None:
    """The names are asked for in the middle of the copying: by a set that lets the host write then."""

    def body() -> None:
        world = World()
        world.call(world.snapshots[-1], FEW)
        world.process.acknowledge()
        snapshot = world.publish()
        area, slot, stamp = world.remote.view(snapshot, FEW)[5][0]  # type: ignore[index]
        other = world.another(Process(world.kernel), 2)

        class Writes(frozenset[str]):
            def __contains__(self, name: object) -> bool:
                for _ in range(4):
                    other.view(world.publish(), FEW)
                return super().__contains__(name)

        reader = world.process.areas[area]
        assert reader.copy(slot, stamp, Writes(FEW), snapshot.rows) is None

    in_loop(body)


def test_a_peer_without_the_feature_a_kernel_that_cannot_seal_and_a_small_pool_get_frames() -> None:
    def body() -> None:
        old = World(features=frozenset({"state"}))
        small = World(rows=ROWS - 1)
        unable = World()
        unable.kernel.refuses = True
        for world in (old, small, unable):
            for _ in range(3):
                assert not world.call(world.publish(), FEW)
            assert world.process.shares == []
            assert world.kernel.open == set()

    in_loop(body)


def test_who_does_not_take_areas_gets_frames_for_good_and_holds_nothing() -> None:
    def body() -> None:
        world = World()
        world.call(world.snapshots[-1], FEW)
        for rows in (2, ROWS, 5 * ROWS, ROWS) * 5:
            assert not world.call(world.publish(rows), FEW)
        # Never acknowledged: it was asked once, and the host has the one area that it would pass now.
        assert len(world.process.shares) == 1
        assert len(world.kernel.open) == 1
        world.process.refuse(PluginFault("DEADLINE_EXCEEDED", "no answer"))
        for _ in range(3):
            assert not world.call(world.publish(), FEW)
        assert len(world.process.shares) == 1

    in_loop(body)


def test_a_process_that_has_lost_its_areas_is_answered_with_a_frame() -> None:
    def body() -> None:
        world = World()
        world.call(world.snapshots[-1], FEW)
        world.process.acknowledge()
        assert world.call(world.publish(), FEW)
        # The call is made again, in a frame, though the host has the very slot: `World.call` checks it.
        assert world.call(world.publish(), FEW, world.process.areas.clear)

    in_loop(body)


def test_one_way_calls_bring_their_columns() -> None:
    """Nobody could say that the slot was overwritten meanwhile."""

    def body() -> None:
        world = World()
        world.call(world.snapshots[-1], FEW)
        world.process.acknowledge()
        view = world.remote.view(world.publish(), FEW, one_way=True)
        assert len(view) == 5
        assert view[4]

    in_loop(body)


def test_a_membership_that_fits_stays_in_its_area_and_growth_makes_another() -> None:
    def body() -> None:
        world = World()
        world.call(world.snapshots[-1], FEW)
        world.process.acknowledge()
        assert world.call(world.publish(ROWS + 1), FEW)
        assert world.call(world.publish(ROWS), FEW)
        assert len(world.process.shares) == 1
        assert not world.call(world.publish(5 * ROWS), FEW)
        world.process.acknowledge()
        assert world.call(world.publish(), FEW)
        assert [len(world.process.areas), len(world.kernel.open)] == [2, 1]
        assert not world.call(world.publish(ROWS), FEW)
        # The first is named with the third: until then calls that were sent before may need it.
        assert world.process.shares[-1][1] == [1]

    in_loop(body)


def test_a_process_is_passed_so_many_areas_and_no_more() -> None:
    def body() -> None:
        world = World()
        for index in range(MAX_AREAS_PASSED + 5):
            world.call(world.publish((ROWS, 5 * ROWS)[index % 2]), FEW)
            world.process.acknowledge()
        assert sum(len(added) for added, _ in world.process.shares) == MAX_AREAS_PASSED

    in_loop(body)


def test_a_process_is_passed_no_more_when_its_shadow_comes_and_goes() -> None:
    def body() -> None:
        world = World()
        life = generation(world.process)
        for _ in range(MAX_AREAS_PASSED + 5):
            counters = CallCounters(Tally())
            world.remote = Remote(life, counters=counters, advance=lambda cycle: None, shared=world.shared)
            world.call(world.publish(), FEW)
            world.process.acknowledge()
        assert sum(len(added) for added, _ in world.process.shares) == MAX_AREAS_PASSED
        assert life.areas_passed == MAX_AREAS_PASSED

    in_loop(body)


def test_what_nobody_asks_for_any_more_is_forgotten_and_who_asks_again_is_served() -> None:
    def body() -> None:
        world = World()
        world.call(world.snapshots[-1], MANY, lambda: None)
        world.process.acknowledge()
        there = set(world.shared._wanted)
        assert len(there) > 1
        world.shared.keep({group_of(FEW[0])})
        assert set(world.shared._wanted) == {group_of(FEW[0])}
        world.call(world.publish(), MANY, lambda: None)
        world.process.acknowledge()
        assert set(world.shared._wanted) == there

    in_loop(body)
