"""What a plugin reads of side tables is what the snapshot of its call says, whatever changed, failed or began anew between."""

import asyncio
import re
from collections.abc import Sequence
from typing import Any

import pytest
from hotbay.datalayer.endpoint import EndpointMetadata, Metrics
from hotbay.datalayer.store import EndpointStore
from hotbay.datalayer.tables.snapshot import Snapshot
from hotbay.errors import InputError
from hotbay.rpc.faults import UnsendableError
from hotbay.scheduling.decision import Picked
from hotbay.scheduling.remote import Remote
from hotbay.scheduling.sent_tables import FEATURE, MAX_TABLES_BYTES, SentTables
from hotbay.scheduling.statistics import CallCounters
from hotbay_sdk import Endpoint, Filter, Plugin, Request
from hotbay_sdk._batch import HeldView, take_view
from hotbay_sdk._columns import Columns
from hotbay_sdk._context import Context
from hotbay_sdk._errors import CallFailedError
from hotbay_sdk._instances import Instance
from hotbay_sdk.protocol.calls import SIDE_TABLES, UNKNOWN_CODE, InstanceFacts
from hypothesis import given
from hypothesis import strategies as st

BOTH = ("endpoint.active_models", "endpoint.labels")
READS: Sequence[tuple[str, ...]] = (
    (),
    ("endpoint.waiting",),
    ("endpoint.labels",),
    ("endpoint.labels", "endpoint.waiting"),
    BOTH,
    ("endpoint.active_models", "endpoint.labels", "endpoint.role"),
    tuple(sorted((*SIDE_TABLES, "endpoint.waiting"))),
)


def endpoint(name: str, **labels: str) -> EndpointMetadata:
    return EndpointMetadata(f"default/{name}", name, "10.0.0.1", 8000, labels=labels)


def expected(snapshot: Snapshot, name: str) -> list[object]:
    """A table row by row, computed anew."""
    found: list[object] = []
    for metadata, facts in zip(snapshot.endpoints, snapshot.facts, strict=True):
        if metadata is None or facts is None:
            found.append(None)
        elif name == "endpoint.labels":
            found.append(dict(metadata.labels))
        elif name == "endpoint.role":
            found.append(metadata.labels.get("llm-d.ai/role", ""))
        elif name == "endpoint.address":
            found.append(metadata.authority)
        else:
            value = getattr(facts, name.removeprefix("endpoint."))
            found.append(value if value is None or isinstance(value, str) else dict(value))
    return found


def reader(reads: tuple[str, ...]) -> Instance:
    """An instance of a type that reads these."""
    plugin = Plugin("readers")

    @plugin.type("+".join(reads) or "nothing", reads=reads)
    class Reader(Filter):
        def keep(self, request: Request, endpoint: Endpoint) -> bool:
            return True

    (declared,) = plugin.declarations
    spec = plugin._find(declared.type)
    assert spec is not None
    return Instance(spec, Context("ref", declared.type), None, InstanceFacts())


READERS = {reads: reader(reads) for reads in READS}


def read(columns: Columns, name: str, rows: int) -> list[object]:
    table = columns.table(name)
    assert len(table.codes) == rows
    values = [None if code == UNKNOWN_CODE else table.values[code] for code in table.codes]
    return [value if value is None or isinstance(value, str) else dict(value) for value in values]


class Tally:
    def invalid_scores(self, ref: str, count: int) -> None: ...

    def plugin_error(self, point: str, ref: str, code: str) -> None: ...

    def call_timer(self, plugin: str, point: str) -> Any:
        return lambda duration_s: None


class World:
    """A store, one process, and what that holds."""

    def __init__(self) -> None:
        self.store = EndpointStore()
        self.now = 0.0
        self.snapshots = [self.store.snapshot]
        self.resent = 0
        self.restart()

    def restart(self) -> None:
        # Views do not depend on what the generation is or answers.
        self.remote = Remote(None, counters=CallCounters(Tally()), advance=lambda cycle: None)  # type: ignore[arg-type]
        self.held: HeldView | None = None

    def publish(self) -> Snapshot:
        self.now += 1.0
        self.snapshots.append(self.store.publish(self.now))
        return self.snapshots[-1]

    def lose(self, snapshot: Snapshot, reads: tuple[str, ...]) -> None:
        """A call that the process refuses before it has read the view; the host has not heard of it yet."""
        self.remote.view(snapshot, reads)

    def call(self, snapshot: Snapshot, reads: tuple[str, ...]) -> list[object]:
        """Make a call as a window does, once more where the process asks for it; checks what a type reads. The first view."""
        first = self.remote.view(snapshot, reads)
        try:
            columns = self.take(first, reads)
        except CallFailedError as failure:
            if failure.error.details.get("missing") not in ("ids", "columns", "tables"):
                raise
            self.resent += 1
            self.remote.forget_view()
            columns = self.take(self.remote.view(snapshot, reads), reads)
        tables = [name for name in reads if name in SIDE_TABLES]
        assert len(first) == (7 if tables else 5)
        for name in tables:
            assert read(columns, name, snapshot.rows) == expected(snapshot, name), name
        return first

    def take(self, view: list[object], reads: tuple[str, ...]) -> Columns:
        self.held = take_view(view, self.held)  # type: ignore[arg-type]
        return self.held.columns_of(READERS[reads])


names = st.sampled_from("abcd")
labels = st.dictionaries(st.sampled_from(["zone", "llm-d.ai/role"]), st.sampled_from(["x", "y"]))
models = st.none() | st.dictionaries(st.sampled_from(["m", "n"]), st.integers(0, 2))
STEPS = st.one_of(
    st.tuples(st.just("label"), names, labels),
    st.tuples(st.just("delete"), names),
    st.tuples(st.just("report"), names, models, models, st.none() | st.sampled_from(["m", "n"])),
    st.tuples(st.just("work"), names),
    st.tuples(st.just("call"), st.sampled_from(READS), st.integers(0, 3)),
    st.tuples(st.just("lose"), st.sampled_from(READS), st.integers(0, 3)),
    st.tuples(st.just("forget")),
    st.tuples(st.just("restart")),
)


def step(world: World, kind: str, *given: Any) -> None:
    if kind == "call":
        reads, behind = given
        world.call(world.snapshots[-1 - min(behind, len(world.snapshots) - 1)], reads)
    elif kind == "lose":
        reads, behind = given
        world.lose(world.snapshots[-1 - min(behind, len(world.snapshots) - 1)], reads)
    elif kind == "forget":
        world.remote.forget_view()
    elif kind == "restart":
        world.restart()
    else:
        change(world.store, kind, *given, now=world.now)
        world.publish()


def change(store: EndpointStore, kind: str, name: str, *given: Any, now: float) -> None:
    if kind == "label":
        store.upsert(endpoint(name, **given[0]))
    elif kind == "delete":
        store.delete(f"default/{name}")
    elif kind == "report":
        active, waiting, model = given
        store.update_metrics(f"default/{name}", Metrics(active_models=active, waiting_models=waiting, model=model), now)
    else:
        store.ledger.started(f"default/{name}", 1)


@given(st.lists(STEPS, max_size=30))
def test_a_plugin_reads_what_the_snapshot_of_its_call_says(steps: list[tuple[Any, ...]]) -> None:
    async def main() -> None:
        world = World()
        for one in steps:
            step(world, *one)
        world.call(world.publish(), READS[-1])

    asyncio.run(main())


def test_tables_are_sent_once_for_a_version_and_only_those_that_changed() -> None:
    reads = BOTH

    async def main() -> None:
        world = World()
        world.store.upsert(endpoint("a", zone="x"))
        first = world.publish()
        (version, sent) = told(world.call(first, reads))
        assert (version, set(sent)) == (first.tables_version, set(reads))
        assert told(world.call(first, reads)) == [version, None]
        # Another epoch of the same tables.
        world.store.update_metrics("default/a", Metrics(waiting=1.0), 2.0)
        assert told(world.call(world.publish(), reads)) == [version, None]
        world.store.update_metrics("default/a", Metrics(active_models={"x": 1}), 3.0)
        assert told(world.call(world.publish(), reads)) == [
            version + 1, {"endpoint.active_models": [[[["x", 1]]], bytes(4)]}, version
        ]  # fmt: skip
        # None of what the process reads.
        world.store.update_metrics("default/a", Metrics(model="m"), 4.0)
        assert told(world.call(world.publish(), reads)) == [version + 2, {}, version + 1]
        assert told(world.call(world.snapshots[-1], reads)) == [version + 2, None]
        assert world.resent == 0

    asyncio.run(main())


def told(view: list[object]) -> list[Any]:
    found = view[6]
    assert isinstance(found, list)
    return found


def test_a_call_without_side_tables_has_the_view_that_it_always_had() -> None:
    async def main() -> None:
        world = World()
        world.store.upsert(endpoint("a", zone="x"))
        snapshot = world.publish()
        assert len(world.call(snapshot, ("endpoint.waiting",))) == 5
        assert len(world.call(snapshot, ("endpoint.labels",))) == 7
        assert len(world.call(snapshot, ())) == 5

    asyncio.run(main())


def test_a_process_that_does_not_hold_them_is_sent_all_of_them_again() -> None:
    async def main() -> None:
        world = World()
        world.store.upsert(endpoint("a", zone="x"))
        snapshot = world.publish()
        world.lose(snapshot, ("endpoint.labels",))
        world.held = take_view([snapshot.epoch, 1, snapshot.membership, ["default/a"], {}], None)
        world.call(snapshot, ("endpoint.labels",))
        assert world.resent == 1
        world.store.upsert(endpoint("a", zone="y"))
        world.lose(world.publish(), BOTH)
        world.store.upsert(endpoint("a", zone="z"))
        world.call(world.publish(), BOTH)
        assert world.resent == 2

    asyncio.run(main())


def test_a_table_that_a_call_did_not_name_is_not_held_under_a_later_version() -> None:
    async def main() -> None:
        world = World()
        world.store.upsert(endpoint("a", zone="x"))
        world.call(world.publish(), BOTH)
        world.store.update_metrics("default/a", Metrics(active_models={"x": 1}), 2.0)
        later = world.publish()
        world.call(later, ("endpoint.labels",))
        world.lose(later, BOTH)
        world.call(later, BOTH)
        assert world.resent == 1

    asyncio.run(main())


@pytest.mark.parametrize(("spare", "crosses"), [(0, True), (-1, False)])
def test_tables_that_are_too_long_for_a_call_are_refused_before_anything_is_sent(spare: int, crosses: bool) -> None:
    store = EndpointStore()
    store.upsert(endpoint("a"))
    empty = store.publish(1.0).tables.encoded("endpoint.labels").size_bytes
    key = "k"
    # A text of 64 KiB or more has five bytes before it, and a map's one entry needs its name, too.
    store.upsert(endpoint("a", **{key: "x" * (MAX_TABLES_BYTES - empty - 5 - 2 - spare)}))
    tables = store.publish(2.0).tables
    assert tables.encoded("endpoint.labels").size_bytes == MAX_TABLES_BYTES - spare
    sent = SentTables()
    if crosses:
        assert set(sent.said(tables, ("endpoint.labels",))[1]) == {"endpoint.labels"}  # type: ignore[call-overload]
        return
    with pytest.raises(UnsendableError, match=re.escape(f"a call carries {MAX_TABLES_BYTES}")) as refused:
        sent.said(tables, ("endpoint.labels",))
    assert refused.value.code == "FRAME_TOO_LARGE"


# -- a whole scheduler -----------------------------------------------------------------------------


def by_tier(*, concurrency: int = 1) -> Plugin:
    plugin = Plugin("tiers")

    @plugin.type("tier", reads=["endpoint.labels"], concurrency=concurrency)
    class Tier(Filter):
        def keep(self, request: Request, endpoint: Endpoint) -> bool:
            return endpoint.labels.get("tier") == "gold"

    return plugin


def label(bay: Any, **tiers: str) -> None:
    for name, tier in tiers.items():
        bay.store.upsert(endpoint(name, tier=tier))
    bay.store.publish(bay.store.snapshot.at + 1.0)


@pytest.mark.parametrize("concurrency", [1, 4])
def test_a_filter_decides_on_the_labels_that_were_published_last(in_loop: Any, concurrency: int) -> None:
    async def body(bay: Any) -> None:
        bay.endpoints(a=Metrics(), b=Metrics())
        label(bay, a="gold", b="silver")
        client = bay.plugin(by_tier(concurrency=concurrency), [("tier", "tier", {})])
        bay.generations["tiers"].features = frozenset({FEATURE})
        bay.publish("tier")
        assert await bay.names(3) == ["a"] * 3
        label(bay, a="silver", b="gold")
        assert await bay.names(3) == ["b"] * 3
        views = [args[1] for args in client.arguments if isinstance(args[1], list)]
        assert all(view[4] is None and len(view) == 7 for view in views)
        # A process that asks for what it lost is sent it, within the request.
        client._dispatcher._held = None
        assert await bay.names() == ["b"]
        assert not bay.tally.errors

    in_loop(body)


def test_tables_that_cannot_cross_are_answered_by_the_failure_policy(in_loop: Any) -> None:
    async def body(bay: Any) -> None:
        bay.endpoints(a=Metrics(), b=Metrics())
        label(bay, a="gold", b="x" * MAX_TABLES_BYTES)
        bay.plugin(by_tier(), [("tier", "tier", {})])
        bay.generations["tiers"].features = frozenset({FEATURE})
        bay.publish("tier")
        picks = await bay.decide(3)
        assert all(isinstance(pick, Picked) and pick.degraded for pick in picks)
        assert {error[1:] for error in bay.tally.errors} == {("tier", "FRAME_TOO_LARGE")}
        label(bay, b="silver")
        assert await bay.names(3) == ["a"] * 3

    in_loop(body)


@pytest.mark.parametrize("features", [frozenset(), frozenset({"shared_snapshots"})])
def test_a_type_that_reads_them_of_a_peer_without_the_feature_is_refused(
    in_loop: Any, features: frozenset[str]
) -> None:
    async def body(bay: Any) -> None:
        bay.endpoints(a=Metrics())
        bay.plugin(by_tier(), [("tier", "tier", {})])
        bay.generations["tiers"].features = features
        with pytest.raises(InputError) as refused:
            bay.publish("tier")
        (problem,) = refused.value.problems
        assert problem.code == "INVALID_PACKAGE"
        assert "type 'tier' reads endpoint.labels" in problem.message
        assert "side_tables" in problem.message
        bay.generations["tiers"].features = features | {FEATURE}
        bay.publish("tier")

    in_loop(body)
