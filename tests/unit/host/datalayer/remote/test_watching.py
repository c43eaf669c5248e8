"""A source of a package that watches by itself: which events come of what its processes tell, one version after the other."""

import tracemalloc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.lowlevel
import msgpack
import pytest
from hotbay.config.data_types import ObjectKind
from hotbay.datalayer.discovery.session import MAX_ENDPOINTS
from hotbay.datalayer.remote import object_records
from hotbay.datalayer.remote.object_records import PackedObject
from hotbay.datalayer.remote.runs import READY_S, SETTLE_S
from hotbay.datalayer.remote.watching import RemoteWatchSource, Telling
from hotbay.datalayer.source import AttributesOf, Event, EventType, NotificationSource, ObjectEvent, TellsAgain
from hotbay.datalayer.sources import waiting
from hotbay.datalayer.sources.event_attributes import EventAttributes
from hotbay.datalayer.sources.notification import Notifications, NotifiedSource
from hotbay.datalayer.store import EndpointStore
from hotbay.errors import PluginFault
from hotbay.observe.background import Background
from hotbay.observe.metrics import Metrics
from hotbay_sdk.protocol import DataDeclaration, TypeDeclaration
from hypothesis import given
from hypothesis import strategies as st

pytestmark = pytest.mark.anyio

TURNS = 200
"""Turns of the loop after which nothing is left to do, where nobody waits for anything: a record takes a few."""
POD = ObjectKind("", "v1", "Pod")
DECLARED = TypeDeclaration("t", ("watch",), data=DataDeclaration("object:/v1/Pod"))
READY = ["ready"]


def pod(name: str, rank: object = 0, **fields: object) -> dict[str, object]:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "rank": rank, **fields}


def up(*names: str, **fields: object) -> list[list[object]]:
    return [["upsert", pod(name, **fields)] for name in names]


def gone(*names: str) -> list[list[object]]:
    return [["delete", name] for name in names]


class Watching:
    """A source that runs. Its time is the bay's; what is told is kept in words: `+a0` came or is that, `-a` went."""

    def __init__(self, bay: Any) -> None:
        self.bay = bay
        self.source = RemoteWatchSource("t", POD, "ref", bay, bay, now=lambda: bay.now)
        self.events: list[ObjectEvent] = []
        self.hold: anyio.Event | None = None

    @property
    def told(self) -> list[str]:
        signs = {EventType.ADD_OR_UPDATE: "+", EventType.DELETE: "-"}
        return [f"{signs[event.type]}{event.key}{event.object['rank']}" for event in self.events]

    async def emit(self, event: ObjectEvent) -> None:
        if self.hold is not None:
            await self.hold.wait()
        self.events.append(event)

    async def settle(self) -> None:
        for _ in range(TURNS):
            await anyio.lowlevel.checkpoint()

    async def tell(self, client: Any, *records: list[object]) -> None:
        client.flows[-1].tell(*records)
        await self.settle()

    async def go_live(self, live: Any) -> Any:
        self.bay.go_live(live)
        await self.settle()
        return live.generation.client

    async def swap(self, declared: TypeDeclaration = DECLARED) -> Any:
        return await self.go_live(self.bay.process(declared))

    async def later(self, seconds: float) -> None:
        self.bay.now += seconds
        self.source._runs.note()
        await self.settle()


@asynccontextmanager
async def watching(bay: Any, it: Watching | None = None) -> AsyncIterator[Watching]:
    found = it or Watching(bay)
    async with anyio.create_task_group() as group:
        group.start_soon(found.source.run, found.emit)
        await found.settle()
        yield found
        group.cancel_scope.cancel()
    assert bay.watchers == []


async def test_nothing_is_told_before_a_process_has_told_everything_and_then_all_in_its_order(bay: Any) -> None:
    async with watching(bay) as it:
        assert isinstance(it.source, NotificationSource)
        assert isinstance(it.source, TellsAgain)
        client = await it.swap()
        await it.tell(client, *up("b", "a"), *up("c"), *gone("c"))
        assert it.told == []
        await it.tell(client, READY)
        assert it.told == ["+b0", "+a0"]
        assert (it.events[0].kind, it.events[0].key, it.events[0].object) == (POD, "b", pod("b"))


async def test_each_change_of_a_run_that_is_heard_is_one_event_and_none_is_left_out(bay: Any) -> None:
    async with watching(bay) as it:
        client = await it.swap()
        await it.tell(client, READY, *up("a"), *up("a", rank=1), *up("a", rank=0), *gone("a"), *up("a"))
        assert it.told == ["+a0", "+a1", "+a0", "-a0", "+a0"]


async def test_what_says_the_same_is_no_event_in_whatever_order_its_fields_stand(bay: Any) -> None:
    async with watching(bay) as it:
        client = await it.swap()
        turned = dict(reversed(pod("a").items()))
        await it.tell(client, *up("a"), READY, *up("a"), ["upsert", turned], *gone("b"), *gone("a"), *gone("a"))
        assert it.told == ["+a0", "-a0"]
        assert it.events[1].object == pod("a")


async def test_objects_of_namespaces_are_told_apart(bay: Any) -> None:
    async with watching(bay) as it:
        client = await it.swap()
        there = {"metadata": {"name": "a", "namespace": "there"}}
        await it.tell(client, *up("a"), READY, ["upsert", {**pod("a"), **there}], *gone("there/a"))
        assert it.told == ["+a0", "+there/a0", "-there/a0"]


async def test_new_version_is_heard_from_its_ready_on_and_tells_nothing_twice(bay: Any) -> None:
    async with watching(bay) as it:
        old = await it.swap()
        old_live = bay.live
        await it.tell(old, *up("a", "b"), READY)
        new = await it.swap()
        old_live.generation.leave()
        await it.settle()
        assert old_live.generation.leases == 1, "it is told to go, and what it tells still counts"
        await it.tell(new, *up("b", rank=1), *up("c"))
        await it.tell(old, *up("d"))
        await it.tell(new, READY)
        # What the old one said last holds until the new one has had time to look again.
        assert it.told == ["+a0", "+b0", "+d0", "+b1", "+c0", "-a0"]
        assert (old.flows[0].cancelled, old_live.generation.leases, bay.live.generation.leases) == (True, 0, 1)
        await it.tell(new, *up("d"))
        await it.later(SETTLE_S + 0.1)
        assert it.told[6:] == []


async def test_what_only_the_old_version_saw_goes_when_the_new_one_has_had_time_to_look(bay: Any) -> None:
    async with watching(bay) as it:
        old = await it.swap()
        await it.tell(old, *up("a"), READY)
        new = await it.swap()
        await it.tell(new, *up("a"))
        await it.tell(old, *up("d"), *gone("a"))
        await it.tell(new, READY)
        assert it.told == ["+a0", "+d0", "-a0"]
        await it.later(SETTLE_S - 0.1)
        assert it.told[3:] == []
        await it.later(0.2)
        assert it.told[3:] == ["+a0", "-d0"]


async def test_crash_untells_nothing_and_its_successor_tells_what_differs(bay: Any) -> None:
    async with watching(bay) as it:
        old = await it.swap()
        await it.tell(old, *up("a", "b"), READY)
        old.flows[0].tell(*up("c"))
        old.die()
        await it.settle()
        assert it.told == ["+a0", "+b0", "+c0"]
        new = await it.swap()
        await it.tell(new, *up("c", "b"), READY)
        assert it.told[3:] == ["-a0"]
        assert bay.outcomes == [], "that a process died is told by others"


async def test_version_that_is_taken_back_before_it_told_everything_was_never_heard(bay: Any) -> None:
    async with watching(bay) as it:
        old = await it.swap()
        old_live = bay.live
        await it.tell(old, *up("a"), READY)
        new = await it.swap()
        await it.tell(new, *up("x"))
        await it.go_live(old_live)
        await it.tell(old, *up("b"))
        assert (it.told, new.flows[0].cancelled, len(old.flows)) == (["+a0", "+b0"], True, 1)


async def test_version_that_does_not_tell_everything_counts_as_failing_and_takes_nobodys_place(bay: Any) -> None:
    async with watching(bay) as it:
        old = await it.swap()
        await it.tell(old, *up("a"), READY)
        assert bay.live.generation.untold == set()
        new = await it.swap()
        await it.tell(new, *up("b"))
        await it.later(READY_S - 0.1)
        assert (bay.outcomes, it.source.problems, bay.live.generation.untold) == ([], (), {"ref"})
        await it.later(0.2)
        assert bay.outcomes == [(2, "watch", "DEADLINE_EXCEEDED")]
        (problem,) = it.source.problems
        assert problem.message.startswith("source 'ref': p#2 has not told everything within 15 s")
        assert "`watch` has to call `ready`" in problem.hint
        await it.tell(new, READY)
        assert (it.told, it.source.problems, bay.live.generation.untold) == (["+a0", "+b0", "-a0"], (), set())


@pytest.mark.parametrize(
    ("document", "path", "key"),
    [
        ({"apiVersion": "v1", "kind": "Pod"}, "metadata", "without a name"),
        ({**pod("a"), "metadata": {"name": 7}}, "metadata.name", "without a name"),
        ({**pod("a"), "metadata": {"name": "a", "namespace": b"x"}}, "metadata.namespace", "without a name"),
        ({**pod("a"), "kind": "Service"}, "kind", "a"),
        ({**pod("a"), "apiVersion": "apps/v1"}, "apiVersion", "a"),
        ({**pod("a" * 254)}, "metadata.name", "without a name"),
    ],
)
async def test_object_that_cannot_be_used_is_refused_with_its_place_and_is_a_failed_call(
    bay: Any, document: dict[str, object], path: str, key: str
) -> None:
    async with watching(bay) as it:
        client = await it.swap()
        await it.tell(client, *up("a"), READY, ["upsert", document], *up("b"))
        assert it.told == ["+a0", "+b0"], "the last good form stays, and the run goes on"
        assert bay.outcomes == [(1, "watch", "BAD_RESULT")]
        (problem,) = it.source.problems
        assert (problem.path, problem.message) == (path, f"source 'ref': an object is refused: {key}")
        await it.tell(client, *up("a", rank=1))
        assert it.source.problems == (() if key == "a" else (problem,))


@pytest.mark.parametrize(
    "record",
    [["upsert", "a"], ["upsert"], ["delete", 7], ["ready", True], ["replace", {}], {"upsert": 1}, None],
)
async def test_run_that_tells_no_records_is_ended_and_what_was_told_stays(bay: Any, record: Any) -> None:
    async with watching(bay) as it:
        client = await it.swap()
        await it.tell(client, *up("a"), READY, record, *up("b"))
        assert (it.told, client.flows[0].cancelled) == (["+a0"], True)
        assert bay.outcomes == [(1, "watch", "BAD_RESULT")]
        await it.later(0.6)
        await it.tell(client, *up("a", "b"), READY)
        assert it.told == ["+a0", "+b0"]


async def test_more_objects_than_a_source_may_have_end_the_run(bay: Any) -> None:
    async with watching(bay) as it:
        client = await it.swap()
        await it.tell(client, *up(*map(str, range(MAX_ENDPOINTS))), *gone("0"), *up("0"), READY)
        await it.settle()
        await it.settle()
        assert (len(it.events), bay.outcomes) == (MAX_ENDPOINTS, [])
        await it.tell(client, *up("more"))
        assert (len(it.events), bay.outcomes) == (MAX_ENDPOINTS, [(1, "watch", "BAD_RESULT")])


@pytest.mark.parametrize(("extra", "codes"), [(0, []), (1, ["BAD_RESULT"])])
async def test_bytes_of_all_objects_are_bounded_on_both_sides(
    bay: Any, monkeypatch: pytest.MonkeyPatch, extra: int, codes: list[str]
) -> None:
    whole = len(msgpack.packb(pod("a"))) + len(msgpack.packb(pod("b", note="x" * 100)))
    monkeypatch.setattr(object_records, "MAX_OBJECTS_BYTES", whole)
    async with watching(bay) as it:
        client = await it.swap()
        # What was replaced, and what went, makes room.
        await it.tell(client, *up("a", note="y" * 100), *gone("a"), *up("b"), *up("b", note="x" * (100 + extra)))
        await it.tell(client, *up("a"), READY)
        assert [code for _, _, code in bay.outcomes] == codes


async def test_version_that_is_no_such_source_is_not_asked_and_fails_until_it_is_replaced(bay: Any) -> None:
    other = TypeDeclaration("t", ("watch",), data=DataDeclaration("object:/v1/Service"))
    async with watching(bay) as it:
        old = await it.swap()
        await it.tell(old, *up("a"), READY)
        for declared in (other, TypeDeclaration("t", ("source",), data=DataDeclaration("object:/v1/Pod"))):
            client = await it.swap(declared)
            assert client.flows == []
        assert [code for _, _, code in bay.outcomes] == ["INVALID_PACKAGE", "INVALID_PACKAGE"]
        await it.tell(old, *up("b"))
        assert it.told == ["+a0", "+b0"], "the version before is heard meanwhile"


class Late:
    """An extractor that hears one event, and the next ones when `may_go_on` is set."""

    name, type, kind, step_s = "late", "late", POD, float("inf")

    def __init__(self) -> None:
        self.may_go_on = anyio.Event()
        self.told: list[str] = []

    async def extract_event(self, event: Event) -> AttributesOf:
        assert isinstance(event, ObjectEvent)
        self.told.append(f"{event.key}{event.object['rank']}")
        await self.may_go_on.wait()
        return {}


@asynccontextmanager
async def notified(bay: Any) -> AsyncIterator[tuple[Watching, Late]]:
    """A source that emits to what a host has behind it."""
    it, late = Watching(bay), Late()
    notifications = Notifications(
        [NotifiedSource(it.source, (late,))],
        attributes=EventAttributes(EndpointStore(), now=lambda: bay.now),
        counts=Metrics(),
        background=Background(),
        now=lambda: bay.now,
    )
    async with anyio.create_task_group() as group:
        notifications.start(group)
        await it.settle()
        yield it, late
        group.cancel_scope.cancel()


async def test_nothing_more_is_read_of_a_run_while_more_waits_than_a_source_may_have(
    bay: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "ROOM_BYTES", 2000)
    async with notified(bay) as (it, late):
        client = await it.swap()
        await it.tell(client, *up("a"), READY, *up("b", "c", note="x" * 900))
        assert (late.told, len(client.flows[-1]._data)) == (["a0"], 0), "there is room for both"
        await it.tell(client, *up("d", note="x" * 900))
        await it.tell(client, *up("e"), *gone("a"))
        await it.tell(client, *up("f"))
        assert len(client.flows[-1]._data) > 0, "the plugin gets no credit for what there is no room for"
        late.may_go_on.set()
        await it.settle()
        assert len(client.flows[-1]._data) == 0
        assert late.told == ["a0", "b0", "c0", "d0", "e0", "a0", "f0"]


async def test_what_waits_for_an_extractor_that_is_away_takes_no_more_room_than_it_crosses_with(bay: Any) -> None:
    count, rows = 20, [[0, 0]] * 1000
    async with notified(bay) as (it, late):
        client = await it.swap()
        tracemalloc.start()
        await it.tell(client, READY, *(up(f"p{n}", rows=rows)[0] for n in range(count)))
        await it.settle()
        size = len(msgpack.packb(pod("p0", rows=rows)))
        held, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert late.told == ["p00"]
        # Once as what the source has, once as what waits; and one is under way.
        assert held < (2 * count + 100) * size, (held, size)


async def test_version_that_is_ready_while_an_event_is_under_way_tells_it_not_again(bay: Any) -> None:
    async with watching(bay) as it:
        old = await it.swap()
        await it.tell(old, *up("x"), READY)
        it.hold = anyio.Event()
        await it.tell(old, *up("a"), *up("b"), *gone("x"))
        new = await it.swap()
        await it.tell(new, *up("a", "b"), READY)
        it.hold.set()
        await it.settle()
        assert it.told == ["+x0", "+a0", "+b0", "-x0"]


async def test_source_that_is_run_again_goes_on_from_what_it_told(bay: Any) -> None:
    found = Watching(bay)
    async with watching(bay, found) as it:
        client = await it.swap()
        await it.tell(client, *up("a", "b"), READY)
    assert (client.flows[0].cancelled, bay.live.generation.leases) == (True, 0)
    async with watching(bay, found) as it:
        await it.tell(client, *up("b", "c"), READY)
        assert it.told == ["+a0", "+b0", "+c0", "-a0"]


async def test_source_that_is_to_tell_again_tells_all_that_is_still_there(bay: Any) -> None:
    found = Watching(bay)
    async with watching(bay, found) as it:
        client = await it.swap()
        await it.tell(client, *up("a", "b"), READY)
    found.source.tell_again()
    async with watching(bay, found) as it:
        await it.tell(client, *up("b", "c"), READY, *up("b"))
        assert it.told[2:] == ["+b0", "+c0", "-a0"]


async def test_no_run_is_begun_at_a_process_that_is_still_in_the_one_before(bay: Any) -> None:
    found = Watching(bay)
    async with watching(bay, found) as it:
        client = await it.swap()
        await it.tell(client, READY)
        client.flows[0].keeps_on = True
    async with watching(bay, found) as it:
        assert (client.flows[0].cancelled, len(client.flows)) == (True, 1)
        client.flows[0].done(None)
        await it.settle()
        assert len(client.flows) == 2


# -- what leads from one to the other ------------------------------------------------------------

NAMES = st.sampled_from("abcd")
OBJECTS = st.dictionaries(NAMES, st.integers(0, 2), max_size=4)
CHANGES = st.lists(st.tuples(NAMES, st.none() | st.integers(0, 2)), max_size=6)


def packed(name: str, rank: int) -> PackedObject:
    return PackedObject(name, msgpack.packb(pod(name, rank)))


@given(st.lists(OBJECTS | CHANGES, max_size=8), st.data())
def test_events_lead_to_what_is_held_whatever_waited_when_another_run_took_over(steps: list[Any], data: Any) -> None:
    telling, world = Telling(POD), dict[str, object]()

    def take(count: int) -> None:
        while count and (event := telling.next_event()) is not None:
            count -= 1
            if event.type is EventType.DELETE:
                assert world.pop(event.key) == event.object["rank"]
            else:
                assert world.get(event.key) != event.object["rank"], "nothing is told twice"
                world[event.key] = event.object["rank"]

    held: dict[str, int] = {}
    for step in steps:
        if isinstance(step, dict):
            held = dict(step)
            telling.replace(tuple(packed(name, rank) for name, rank in step.items()))
        else:
            for name, rank in step:
                if rank is None:
                    held.pop(name, None)
                    telling.delete(name)
                else:
                    held[name] = rank
                    telling.upsert(packed(name, rank))
        take(data.draw(st.integers(0, 4)))
    take(10_000)
    assert telling.has_room
    assert world == held == {key: item.document()["rank"] for key, item in telling.held.items()}


def test_what_is_kept_of_an_object_is_the_callers_own() -> None:
    kept = packed("a", 1)
    kept.document()["rank"] = 2
    assert kept.document()["rank"] == 1


def test_reader_names_the_source_in_what_it_refuses() -> None:
    reader = object_records.ObjectReader("source 's'", POD)
    with pytest.raises(PluginFault, match="source 's': a record is no upsert"):
        list(reader.feed(b"\x00\x00\x00\x01\x90"))
