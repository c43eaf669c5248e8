"""Collections carried out: crashes leave orphans only, fetches may begin at any moment, the layout stays valid."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest
from hotbay.errors import CapacityError, PackageError
from hotbay.packages.environment import Environments
from hotbay.packages.environment_build import FORM
from hotbay.packages.layout import read_layout, write_layout
from hotbay.packages.manifest import Blob, Manifest, ProtocolRange
from hotbay.packages.tree import tree_bytes, tree_digest
from hotbay.store.blobs import BlobStore
from hotbay.store.digests import Digest, digest_of
from hotbay.store.gc import collect
from hotbay.store.gc_plan import Demand, GcPlan
from hotbay.store.layout import keep_index, write_index
from hotbay.store.world.engine import Delete, Put, World, WorldView
from hotbay.store.world.memory import MemoryWorld
from hotbay.store.world.records import Completion, Floor

pytestmark = pytest.mark.anyio
ROOM = {"env-1": 10, "env-2": 20, "env-3": 30, "orphan": 40}


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@dataclass
class FakeEnvironments:
    """Counts, and does what it is told to while it removes."""

    kept: dict[str, int] = field(default_factory=lambda: dict(ROOM))
    on_remove: Callable[[str], None] = lambda _: None

    def present(self) -> dict[str, int]:
        return dict(self.kept)

    @contextmanager
    def collection(self) -> Iterator[Callable[[str], bool]]:
        yield self.remove

    def remove(self, key: str) -> bool:
        self.on_remove(key)
        del self.kept[key]
        return True


class Bay:
    """A store and a world with three revisions of one plugin, which share a wheel."""

    def __init__(self, root: Path) -> None:
        self.store = BlobStore(root / "store")
        self.world: World = MemoryWorld()
        self.environments = FakeEnvironments()
        self.demand = Demand()
        self.manifests = {rev: self.manifest(rev) for rev in (1, 2, 3)}

    def manifest(self, rev: int) -> Manifest:
        contents = [b"shared", b"wheel %d" % rev]
        for content in contents:
            self.store.put_bytes(content, digest_of(content))
        blobs = tuple(
            Blob(name=f"w{n}-1.0-py3-none-any.whl", digest=digest_of(content), size=len(content))
            for n, content in enumerate(contents)
        )
        manifest = Manifest(
            id="a", publisher="me", rev=rev, version="1.0.0", platform="any", entrypoint="w0:plugin", types=("a",),
            protocol=ProtocolRange(first=1, last=1), blobs=blobs,
        )  # fmt: skip
        self.store.put_bytes(manifest.canonical_bytes(), manifest.digest)
        return manifest

    async def complete(self, *revs: int) -> None:
        await self.world.transact(lambda _: [Put(self.completion(rev)) for rev in revs])

    def completion(self, rev: int) -> Completion:
        manifest = self.manifests[rev]
        blobs = tuple((blob.digest, blob.size) for blob in manifest.blobs)
        return Completion(manifest.digest, "a", rev, blobs, f"env-{rev}", "tree", 0.0)

    async def collect(self, *, keep_versions: int = 1, dry_run: bool = False) -> GcPlan:
        return await collect(
            self.world,
            self.store,
            self.environments,
            demand=lambda: self.demand,
            keep_versions=keep_versions,
            dry_run=dry_run,
        )

    def is_whole(self, rev: int) -> bool:
        manifest = self.manifests[rev]
        return self.store.has(manifest.digest) and self.store.is_whole(manifest.blobs, rehash=True)


@pytest.fixture
async def bay(tmp_path: Path) -> Bay:
    made = Bay(tmp_path)
    await made.complete(1, 2, 3)
    return made


async def test_collection_removes_what_its_dry_run_named(bay: Bay) -> None:
    planned = await bay.collect(dry_run=True)
    assert len(bay.store.present()) == 7
    assert bay.world.view.revision == 1
    done = await bay.collect()
    assert (done.completions, done.environments) == (planned.completions, planned.environments)
    assert set(done.blobs) == set(planned.blobs)
    assert done.size_bytes == planned.size_bytes > 70
    assert [c.rev for c in bay.world.view.all(Completion)] == [3]
    assert list(bay.environments.kept) == ["env-3"]
    assert bay.is_whole(3)
    assert not bay.store.has(digest_of(b"wheel 1"))


async def test_u26_other_package_of_a_shared_wheel_stays_whole_and_the_last_takes_it_along(bay: Bay) -> None:
    await bay.collect()
    assert bay.is_whole(3)
    assert bay.store.has(digest_of(b"shared"))
    await bay.world.transact(lambda _: [Delete(Completion.kind, bay.manifests[3].digest)])
    await bay.collect()
    assert bay.store.present() == {}


async def test_second_collection_finds_nothing(bay: Bay) -> None:
    await bay.collect()
    again = await bay.collect()
    assert (again.blobs, again.completions, again.environments, again.size_bytes) == ((), (), (), 0)


@pytest.mark.parametrize("crash_at", ["env-1", "env-2", "orphan"])
async def test_crash_in_the_middle_leaves_orphans_only(bay: Bay, crash_at: str) -> None:
    def crash(key: str) -> None:
        if key == crash_at:
            raise OSError("the power is gone")

    bay.environments.on_remove = crash
    with pytest.raises(OSError, match="the power is gone"):
        await bay.collect()
    for completion in bay.world.view.all(Completion):
        assert bay.is_whole(completion.rev)
        assert completion.environment in bay.environments.kept
    bay.environments.on_remove = lambda _: None
    await bay.collect()
    assert list(bay.environments.kept) == ["env-3"]
    assert bay.is_whole(3)
    assert len(bay.store.present()) == 4


async def test_fetch_that_begins_meanwhile_keeps_the_blobs_that_it_found(bay: Bay) -> None:
    def fetch_begins(_: str) -> None:
        """It registers, finds its blobs in the store, and has not ended when the collection goes on."""
        bay.demand = Demand(fetching=[bay.manifests[1].digest])
        assert bay.store.has(digest_of(b"wheel 1"))
        assert bay.store.has(bay.manifests[1].digest)

    bay.environments.on_remove = fetch_begins
    done = await bay.collect()
    assert bay.is_whole(1)
    assert not bay.is_whole(2)
    assert len(done.environments) == 1, "no environment goes while something is fetched"


async def test_fetch_that_began_and_ended_meanwhile_has_all_that_it_found(bay: Bay) -> None:
    def fetch(_: str) -> None:
        assert bay.is_whole(1)
        bay.environments.on_remove = lambda _: None
        bay.environments.kept["env-1"] = 10
        anyio.from_thread.run(bay.complete, 1)

    bay.environments.on_remove = fetch
    await bay.collect()
    assert bay.is_whole(1)
    assert not bay.is_whole(2)


async def test_environment_that_a_fetch_asks_for_right_before_it_would_go_stays(bay: Bay, tmp_path: Path) -> None:
    """The fetch begins after it was asked for the last time what is in demand."""
    environments = Environments(tmp_path / "environments")
    for name in ("aa", "bb"):
        make_environment(environments.root / name)
    asked = 0

    def demand() -> Demand:
        nonlocal asked
        asked += 1
        if asked == 2:
            assert environments._verify("aa", None) is not None
        return Demand()

    bay.environments = environments  # type: ignore[assignment]
    done = await collect(bay.world, bay.store, environments, demand=demand, keep_versions=1)
    assert done.environments == ("bb",)
    assert set(environments.present()) == {"aa"}
    with environments.collection() as remove:
        assert remove("aa") is True
        assert remove("aa") is False
        assert environments._verify("aa", None) is None, "who asks later finds it gone, and builds it"
    make_environment(environments.root / "aa")
    assert remove("aa") is False, "environments are removed during a collection only"


def make_environment(folder: Path) -> None:
    (folder / "site").mkdir(parents=True)
    (folder / "site" / "module.py").write_text("x = 1\n")
    record = {"bytes": tree_bytes(folder / "site"), "form": FORM, "tree": tree_digest(folder / "site")}
    (folder / "record.json").write_text(json.dumps(record))


async def test_what_is_in_use_stays(bay: Bay) -> None:
    bay.demand = Demand(in_use=[bay.manifests[1].digest])
    done = await bay.collect()
    assert done.completions == (bay.manifests[2].digest,)
    assert set(bay.environments.kept) == {"env-1", "env-3"}


async def test_one_collection_at_a_time(bay: Bay) -> None:
    with bay.store.collection(), pytest.raises(CapacityError, match="being collected already"):
        await bay.collect()
    await bay.collect()


async def test_blobs_are_removed_during_a_collection_only(bay: Bay) -> None:
    with bay.store.collection() as remove:
        pass
    assert remove(digest_of(b"shared")) is False
    assert bay.store.has(digest_of(b"shared"))


async def test_parts_that_nobody_will_take_up_go(bay: Bay) -> None:
    for content in (b"abandoned", b"under way"):
        with bay.store.part(digest_of(content), len(content)) as part:
            part.write(content[:4])
    bay.demand = Demand(fetching=[digest_of(b"under way")])
    await bay.collect()
    left = {path.stem for path in (bay.store.root / "parts").iterdir()}
    assert left == {digest_of(b"under way").removeprefix("sha256:")}


async def test_store_is_a_layout_of_what_is_complete(bay: Bay) -> None:
    written = write_index(bay.store, lambda: [manifest.digest for manifest in bay.manifests.values()])
    assert set(written) == {manifest.digest for manifest in bay.manifests.values()}
    assert {manifest.rev for manifest in read_layout(bay.store.root)} == {1, 2, 3}
    await bay.collect()
    assert [manifest.rev for manifest in read_layout(bay.store.root)] == [3]
    assert json.loads((bay.store.root / "oci-layout").read_bytes()) == {"imageLayoutVersion": "1.0.0"}


def test_image_is_the_one_that_the_package_came_with(tmp_path: Path) -> None:
    bay = Bay(tmp_path)
    manifest = bay.manifests[1]
    write_layout(tmp_path / "packed", manifest, {blob.name: bay.store.path(blob.digest) for blob in manifest.blobs})
    write_index(bay.store, lambda: [manifest.digest])
    assert (bay.store.root / "index.json").read_bytes() == (tmp_path / "packed" / "index.json").read_bytes()
    assert (bay.store.root / "oci-layout").read_bytes() == (tmp_path / "packed" / "oci-layout").read_bytes()


def test_layout_names_nothing_that_is_not_there(tmp_path: Path) -> None:
    """A wheel that is used in place, a manifest that is gone, and one that is damaged."""
    bay = Bay(tmp_path)
    bay.store.discard(digest_of(b"wheel 1"))
    damaged = bay.store.path(bay.manifests[2].digest)
    damaged.chmod(0o600)
    damaged.write_bytes(b"{}")
    digests = [*(manifest.digest for manifest in bay.manifests.values()), digest_of(b"gone")]
    assert write_index(bay.store, lambda: digests) == (bay.manifests[3].digest,)
    assert [manifest.rev for manifest in read_layout(bay.store.root)] == [3]


def test_index_is_written_by_one_at_a_time_and_the_last_one_says_the_newest(tmp_path: Path) -> None:
    """A collection and the follower of the world write it side by side."""
    bay = Bay(tmp_path)
    order: list[str] = []
    complete = [bay.manifests[1].digest]

    def first() -> list[Digest]:
        order.append("first")
        found = list(complete)
        complete[:] = [bay.manifests[2].digest]
        other.start()
        other.join(timeout=0.3)
        assert order == ["first"], "the second waits for its turn before it looks"
        return found

    def second() -> list[Digest]:
        order.append("second")
        return list(complete)

    other = threading.Thread(target=write_index, args=(bay.store, second))
    write_index(bay.store, first)
    other.join()
    assert order == ["first", "second"]
    assert [manifest.rev for manifest in read_layout(bay.store.root)] == [2]


def test_unchanged_index_is_not_written_again(tmp_path: Path) -> None:
    bay = Bay(tmp_path)
    write_index(bay.store, lambda: [bay.manifests[1].digest])
    first = (bay.store.root / "index.json").stat()
    write_index(bay.store, lambda: [bay.manifests[1].digest])
    assert (bay.store.root / "index.json").stat().st_ino == first.st_ino
    (bay.store.root / "index.json").write_bytes(b"damaged")
    write_index(bay.store, lambda: [bay.manifests[1].digest])
    assert [manifest.rev for manifest in read_layout(bay.store.root)] == [1]


class IdleTellingWorld(MemoryWorld):
    """Tells when its follower has done all that there was to do, and waits for a change."""

    def __init__(self) -> None:
        super().__init__()
        self.idle = anyio.Event()

    async def changed(self, after: int) -> WorldView:
        if after == self.view.revision:
            self.idle.set()
        return await super().changed(after)

    async def followed(self) -> None:
        await self.idle.wait()
        self.idle = anyio.Event()


async def test_index_follows_the_world(tmp_path: Path) -> None:
    bay = Bay(tmp_path)
    bay.world = world = IdleTellingWorld()
    with anyio.fail_after(25):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(keep_index, bay.world, bay.store)
            await world.followed()
            assert json.loads((bay.store.root / "index.json").read_bytes())["manifests"] == []
            await bay.complete(1, 2)
            await world.followed()
            assert {manifest.rev for manifest in read_layout(bay.store.root)} == {1, 2}
            await world.transact(lambda _: [Delete(Completion.kind, bay.manifests[1].digest)])
            await world.followed()
            assert {manifest.rev for manifest in read_layout(bay.store.root)} == {2}
            tasks.cancel_scope.cancel()


async def test_index_that_cannot_be_written_is_tried_again_at_the_next_change(tmp_path: Path) -> None:
    bay = Bay(tmp_path)
    bay.world = world = IdleTellingWorld()
    in_the_way = bay.store.root / "index.json"
    in_the_way.mkdir()
    with anyio.fail_after(25):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(keep_index, bay.world, bay.store)
            await world.followed()
            await bay.complete(1)
            await world.followed()
            in_the_way.rmdir()
            await world.transact(lambda _: [Put(Floor("a", 1))])
            await world.followed()
            assert {manifest.rev for manifest in read_layout(bay.store.root)} == {1}
            tasks.cancel_scope.cancel()


def test_u20_damaged_blob_is_told_and_can_be_taken_away(tmp_path: Path) -> None:
    bay = Bay(tmp_path)
    path = bay.store.path(digest_of(b"wheel 2"))
    path.chmod(0o600)
    path.write_bytes(b"Wheel 2")
    assert bay.store.is_whole(bay.manifests[2].blobs)
    assert not bay.store.is_whole(bay.manifests[2].blobs, rehash=True)
    assert bay.is_whole(1)
    assert bay.is_whole(3)
    with pytest.raises(PackageError, match="DIGEST_MISMATCH"):
        bay.store.read(digest_of(b"wheel 2"))
    bay.store.discard(digest_of(b"wheel 2"))
    bay.store.discard(digest_of(b"wheel 2"))
    assert not bay.store.is_whole(bay.manifests[2].blobs)
    assert bay.store.put_bytes(b"wheel 2", digest_of(b"wheel 2"))
    assert bay.is_whole(2)
