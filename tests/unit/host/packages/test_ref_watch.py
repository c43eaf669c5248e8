"""What a source shows becomes what the world knows: new refs, withdrawals, failures, conflicts."""

import errno
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import anyio
import pytest
from hotbay.errors import CapacityError, HostError, PackageError, Problem
from hotbay.packages.manifest import Blob, Manifest, parse_manifest
from hotbay.packages.ref_changes import DIGEST_CONFLICT, WITHDRAWN, changes_of, conflicts, refs_of
from hotbay.packages.ref_watch import RefWatcher, SourceState
from hotbay.packages.sources.source import BlobStream, Offer, Scan
from hotbay.store.digests import digest_of
from hotbay.store.world.changes import apply_changes
from hotbay.store.world.engine import Change, Delete, Put, WorldView
from hotbay.store.world.memory import MemoryWorld
from hotbay.store.world.records import Completion, ManifestRef, Quarantine
from hypothesis import given
from hypothesis import strategies as st

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(60)]
PackageFactory = Callable[..., Manifest]
Make = Callable[..., Manifest]


@pytest.fixture
def make(make_package: PackageFactory, tmp_path: Path) -> Make:
    return lambda **what: make_package(tmp_path / "p", **what)


class Shown:
    """A source whose scans a test sets. An error in `next` is raised."""

    name = "shown"
    dev = True

    def __init__(self, *offers: Offer, problems: tuple[Problem, ...] = ()) -> None:
        self.next: Scan | HostError | OSError = Scan(offers, problems)
        self.scans = 0
        self._bell = anyio.Event()
        self._looked = anyio.Event()

    def show(self, scan: Scan | HostError | OSError) -> None:
        self.next = scan
        self._bell.set()

    async def looked(self, count: int) -> None:
        """Wait until the world knows what that many scans found: until the one after them begins, or a wait does."""
        with anyio.fail_after(30):
            while self.scans < count:
                await self._looked.wait()

    async def scan(self) -> Scan:
        self.scans += 1
        self._looked.set()
        self._looked = anyio.Event()
        if isinstance(self.next, Exception):
            raise self.next
        return self.next

    async def wait(self) -> None:
        await self._bell.wait()
        self._bell = anyio.Event()

    def open_blob(
        self, location: str, blob: Blob, *, start: int = 0, validator: str | None = None
    ) -> AbstractAsyncContextManager[BlobStream]:
        raise AssertionError("nothing is fetched here")

    def local_path(self, location: str, blob: Blob) -> str | None:
        return None

    async def close(self) -> None:
        raise AssertionError("its owner closes it")


def offer(manifest: Manifest, location: str = "there", source: str = "shown") -> Offer:
    return Offer(manifest, source, location, dev=True)


def watcher(source: Shown, world: MemoryWorld, **options: object) -> RefWatcher:
    return RefWatcher(source, world, now=anyio.current_time, wall=lambda: 5.0, random=lambda: 0.0, **options)  # type: ignore[arg-type]


@asynccontextmanager
async def running(watch: RefWatcher) -> AsyncIterator[None]:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watch.run)
        with anyio.fail_after(30):
            await watch.first_scan.wait()
        yield
        tasks.cancel_scope.cancel()


async def seen(world: MemoryWorld, holds: Callable[[WorldView], object]) -> WorldView:
    with anyio.fail_after(30):
        view = world.view
        while not holds(view):
            view = await world.changed(view.revision)
    return view


def known(world: MemoryWorld) -> list[tuple[str, int, bool]]:
    return [(ref.plugin_id, ref.rev, ref.offered) for ref in world.view.all(ManifestRef)]


async def test_refs_that_arrive_together_are_one_transaction(make: Make) -> None:
    one, two = make(rev=1), make(id="other", rev=9)
    world = MemoryWorld()
    watch = watcher(Shown(offer(one), offer(two)), world)
    async with running(watch):
        assert sorted(known(world)) == [("other", 9, True), ("sample", 1, True)]
        assert world.view.revision == 1
        ref = world.view.get(ManifestRef, f"{one.digest}@shown")
        assert ref is not None
        assert parse_manifest(ref.manifest) == one
        assert (ref.location, ref.channel, ref.platform) == ("there", "dev", one.platform)
        assert (watch.status.state, watch.status.scans) == (SourceState.WATCHING, 1)


async def test_equal_content_is_no_transaction_wherever_it_lies(make: Make) -> None:
    world, one = MemoryWorld(), make()
    source = Shown(offer(one, "a"), offer(one, "b"))
    async with running(watcher(source, world)):
        source.show(Scan((offer(one, "b"), offer(one, "a"))))
        await source.looked(2)
        source.show(Scan((offer(one, "a"),)))
        await source.looked(3)
        assert world.view.revision == 1
        source.show(Scan((offer(one, "b"),)))
        view = await seen(world, lambda view: view.revision == 2)
        assert [ref.location for ref in view.all(ManifestRef)] == ["b"]


@pytest.mark.parametrize("withdrawn", ["keep", "alarm"])
async def test_hb01_value_that_disappears_stays_known(make: Make, withdrawn: str) -> None:
    world, one = MemoryWorld(), make()
    source = Shown(offer(one))
    watch = watcher(source, world, withdrawn=withdrawn)
    async with running(watch):
        ref = world.view.all(ManifestRef)[0]
        await world.transact(lambda _: [Put(Completion(one.digest, one.id, one.rev, (), "e", "t", 1.0))])
        source.show(Scan())
        await seen(world, lambda view: known(world) == [("sample", 1, False)])
        source.show(Scan())
        await source.looked(3)
        assert world.view.all(Quarantine) == ()
        told = [problem.code for problem in watch.status.problems]
        assert told == ([] if withdrawn == "keep" else [WITHDRAWN])
        source.show(Scan((offer(one),)))
        view = await seen(world, lambda view: known(world) == [("sample", 1, True)])
        assert view.all(ManifestRef) == (ref,)


async def test_withdrawn_digest_is_stopped_until_it_is_offered_again(make: Make) -> None:
    world, one = MemoryWorld(), make()
    source = Shown(offer(one))
    async with running(watcher(source, world, withdrawn="stop")):
        source.show(Scan())
        view = await seen(world, lambda view: view.all(Quarantine))
        assert view.all(Quarantine) == (
            Quarantine(one.digest, "sample", 1, WITHDRAWN, "the source shown withdrew it", 1, 5.0),
        )
        assert known(world) == [("sample", 1, False)], "one transaction"
        source.show(Scan((offer(one),)))
        assert (await seen(world, lambda view: not view.all(Quarantine))).all(ManifestRef)[0].offered


async def test_withdrawal_by_one_of_two_sources_stops_nothing(make: Make) -> None:
    world, one = MemoryWorld(), make()
    (other,) = refs_of([offer(one, source="other")], known={}).values()
    await world.transact(lambda _: [Put(other)])
    source = Shown(offer(one))
    async with running(watcher(source, world, withdrawn="stop")):
        source.show(Scan())
        await seen(world, lambda view: tuple(r.offered for r in reversed(view.all(ManifestRef))) == (False, True))
        assert world.view.all(Quarantine) == ()


async def test_failing_source_changes_nothing_and_comes_back(make: Make) -> None:
    world, one = MemoryWorld(), make()
    source = Shown(offer(one))
    states: list[SourceState] = []
    watch = watcher(source, world, withdrawn="stop", changed=lambda: states.append(watch.status.state))
    async with running(watch):
        revision = world.view.revision
        source.show(PackageError("FETCH_FAILED", "no route", hint="plug it in"))
        await source.looked(4)
        assert (watch.status.state, watch.status.problems[0].hint) == (SourceState.FAILING, "plug it in")
        assert (known(world), world.view.revision) == ([("sample", 1, True)], revision)
        source.show(Scan((offer(make(rev=2)), offer(one))))
        await seen(world, lambda view: len(known(world)) == 2)
        with anyio.fail_after(30):
            while watch.status.state is not SourceState.WATCHING:
                await anyio.lowlevel.checkpoint()
        assert watch.status.last_error is None
        assert states[0] is SourceState.WATCHING
        assert SourceState.FAILING in states


async def test_disk_that_fails_under_a_source_is_the_sources_failure(make: Make) -> None:
    world, one = MemoryWorld(), make()
    source = Shown(offer(one))
    watch = watcher(source, world, withdrawn="stop")
    async with running(watch):
        source.show(OSError(errno.EIO, "Input/output error"))
        await source.looked(4)
        assert watch.status.state is SourceState.FAILING
        assert "Input/output error" in watch.status.problems[0].message
        assert known(world) == [("sample", 1, True)]
        source.show(Scan((offer(make(rev=2)), offer(one))))
        await seen(world, lambda view: len(known(world)) == 2)


async def test_world_without_room_is_a_failure_that_is_tried_again(
    make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)

    class Full(MemoryWorld):
        is_full = True

        async def transact(self, build: Callable[[WorldView], object]) -> WorldView:
            if self.is_full:
                raise CapacityError("RESOURCE_EXHAUSTED", "no room")
            return await super().transact(build)  # type: ignore[arg-type]

    world = Full()
    source = Shown(offer(make()))
    watch = watcher(source, world)
    async with running(watch):
        assert (watch.status.state, known(world)) == (SourceState.FAILING, [])
        source.show(source.next)
        await source.looked(3)
        assert "package_found" not in caplog.text, "it is found when it is recorded"
        world.is_full = False
        await seen(world, lambda view: known(world))
        await source.looked(watch.status.scans)
    assert caplog.text.count("package_found") == 1


@pytest.mark.parametrize(("fetch", "scans", "state"), [("once", 1, SourceState.IDLE), ("off", 0, SourceState.OFF)])
async def test_source_that_is_not_watched_ends_by_itself(
    make: Make, fetch: str, scans: int, state: SourceState
) -> None:
    world, source = MemoryWorld(), Shown(offer(make()))
    watch = watcher(source, world, fetch=fetch)
    with anyio.fail_after(30):
        await watch.run()
    assert (source.scans, watch.status.state, watch.first_scan.is_set()) == (scans, state, True)
    assert len(known(world)) == scans


async def test_fetch_once_is_tried_until_it_succeeds(make: Make) -> None:
    world, source = MemoryWorld(), Shown()
    source.next = PackageError("FETCH_FAILED", "no route")
    watch = watcher(source, world, fetch="once")
    async with running(watch):
        source.next = Scan((offer(make()),))
        await seen(world, lambda view: known(world))
    assert source.scans >= 2


async def test_source_that_is_not_stored_is_forgotten_with_its_watcher(make: Make) -> None:
    world, one, two = MemoryWorld(), make(), make(rev=2)
    async with running(watcher(Shown(offer(one)), world)):
        pass
    source = Shown(offer(two))
    async with running(watcher(source, world, store=False)):
        assert known(world) == [("sample", 2, True)]
        source.show(Scan())
        await seen(world, lambda view: not known(world))


async def test_watcher_that_is_run_again_after_an_unforeseen_fault_goes_on_with_what_it_knows(make: Make) -> None:
    """Also one whose refs are to be forgotten at a restart of the host: live plugins need them."""
    world, source = MemoryWorld(), Shown(offer(make()))
    watch = watcher(source, world, store=False)

    async def breaks() -> None:
        raise LookupError("unforeseen")

    source.wait = breaks  # type: ignore[method-assign]
    revisions = []
    for _ in range(2):
        with pytest.raises(LookupError):
            await watch.run()
        assert known(world) == [("sample", 1, True)]
        revisions.append(world.view.revision)
    assert revisions[0] == revisions[1], "nothing was forgotten, and nothing written again"


async def test_first_scan_that_breaks_holds_no_start_up() -> None:
    source = Shown()
    source.next = LookupError("unforeseen")  # type: ignore[assignment]
    watch = watcher(source, MemoryWorld())
    with pytest.raises(LookupError):
        await watch.run()
    assert watch.first_scan.is_set()


async def test_p04_builds_for_every_platform_are_recorded(make: Make) -> None:
    """Rev 5 for another machine only, rev 4 for this one: which of them runs is selection's, that both are known is not."""
    world = MemoryWorld()
    foreign, own = make(rev=5, platform="python-cp311-linux-aarch64"), make(rev=4)
    async with running(watcher(Shown(offer(foreign), offer(own)), world)):
        found = sorted((ref.rev, ref.platform) for ref in world.view.all(ManifestRef))
        assert found == [(4, "python-cp311-linux-x86_64"), (5, "python-cp311-linux-aarch64")]


async def test_hb07_manifest_that_comes_after_who_waits_for_it_wakes_him(make: Make) -> None:
    world, source = MemoryWorld(), Shown()
    async with running(watcher(source, world)):
        waiting = world.view.revision
        source.show(Scan((offer(make()),)))
        with anyio.fail_after(30):
            view = await world.changed(waiting)
        assert [ref.plugin_id for ref in view.all(ManifestRef)] == ["sample"]


async def test_hb08_no_wake_no_look_and_every_wake_a_look(make: Make) -> None:
    world, source = MemoryWorld(), Shown()
    async with running(watcher(source, world)):
        await anyio.wait_all_tasks_blocked()
        assert source.scans == 1, "it sleeps"
        source.show(Scan())
        await source.looked(2)
        assert world.view.revision == 0, "woken without a change"
        source.show(Scan((offer(make()),)))
        await source.looked(3)
        await seen(world, lambda view: known(world))
        source.show(Scan())
        source.show(Scan((offer(make(rev=2)),)))
        await seen(world, lambda view: ("sample", 2, True) in known(world))


async def test_u19_same_revision_with_other_bytes_is_recorded_and_told(make: Make) -> None:
    world = MemoryWorld()
    one, again = make(rev=2, content=b"one"), make(rev=2, content=b"other bytes")
    source = Shown(offer(one))
    watch = watcher(source, world)
    async with running(watch):
        source.show(Scan((offer(again),)))
        await seen(world, lambda view: len(known(world)) == 2)
        await source.looked(2)
        assert watch.status.problems == (), "the first was withdrawn and never ran"
        await world.transact(lambda _: [Put(Completion(one.digest, one.id, one.rev, (), "e", "t", 1.0))])
        source.show(Scan((offer(again),)))
        with anyio.fail_after(30):
            while not watch.status.problems:
                await anyio.lowlevel.checkpoint()
        (problem,) = watch.status.problems
        assert (problem.code, "sample rev 2" in problem.message) == (DIGEST_CONFLICT, True)
        assert one.digest in problem.found
        assert again.digest in problem.found


async def test_u21_replayed_manifest_stays_known_and_is_no_event(make: Make) -> None:
    """What is below the floor is recorded, for pins; that it is not chosen is selection's duty, by the floor."""
    world, old, new = MemoryWorld(), make(rev=4), make(rev=5)
    source = Shown(offer(new))
    async with running(watcher(source, world)):
        source.show(Scan((offer(old),)))
        await seen(world, lambda view: sorted(known(world)) == [("sample", 4, True), ("sample", 5, False)])
    revision = world.view.revision
    async with running(watcher(Shown(offer(old)), world)):
        assert world.view.revision == revision


async def test_problem_is_shown_at_once_and_logged_when_it_stays(caplog: pytest.LogCaptureFixture) -> None:
    problem = Problem("NOT_COMPLETE_YET", "half a copy")
    source = Shown(problems=(problem,))
    watch = watcher(source, MemoryWorld())
    async with running(watch):
        assert watch.status.problems == (problem,)
        assert "half a copy" not in caplog.text
        await source.looked(2)
        scans = 2
        while "half a copy" not in caplog.text:
            scans += 1
            await source.looked(scans)
        source.show(Scan((), (problem,)))
        await source.looked(scans)
    assert caplog.text.count("half a copy") == 1


BUILDS = st.lists(
    st.builds(
        lambda plugin, rev, platform, content, source, offered: ManifestRef(
            plugin, rev, platform, digest_of(f"{plugin}{rev}{platform}{content}".encode()), source, "", b"", "dev", offered
        ),
        st.sampled_from("ab"), st.integers(1, 2), st.sampled_from("xy"), st.integers(0, 1), st.sampled_from("st"),
        st.booleans(),
    ),
    max_size=8,
)  # fmt: skip


def applied(view: WorldView, changes: list[Change]) -> WorldView:
    return apply_changes(view, changes)[0]


@given(BUILDS, BUILDS, st.sampled_from(["keep", "alarm", "stop"]), st.booleans())
async def test_after_the_changes_the_world_is_as_the_scan_and_a_second_time_none_are_needed(
    before: list[ManifestRef], shown: list[ManifestRef], withdrawn: str, store: bool
) -> None:
    view = applied(WorldView(), [Put(ref) for ref in before])
    found = {ref.key: ref for ref in shown if ref.source == "s" and ref.offered}

    def changes(view: WorldView) -> list[Change]:
        return changes_of(view, "s", found, withdrawn=withdrawn, store=store, at_s=0.0)  # type: ignore[arg-type]

    after = applied(view, changes(view))
    of_source = {ref.key: ref for ref in after.all(ManifestRef) if ref.source == "s"}
    assert {key for key, ref in of_source.items() if ref.offered} == found.keys()
    assert changes(after) == []
    other = [ref for ref in view.all(ManifestRef) if ref.source != "s"]
    assert [ref for ref in after.all(ManifestRef) if ref.source != "s"] == other
    if store:
        assert of_source.keys() >= {ref.key for ref in before if ref.source == "s"}
    stopped = {record.digest for record in after.all(Quarantine)}
    assert stopped.isdisjoint(ref.digest for ref in after.all(ManifestRef) if ref.offered)
    assert not stopped or withdrawn == "stop"
    for problem in conflicts(after, "s"):
        assert problem.code == DIGEST_CONFLICT
    assert all(not isinstance(change, Delete) for change in changes(view)) or not store
