"""A package becomes runnable, from any source, through every fault, and is recorded last."""

import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest
from hotbay.errors import CapacityError, HostError, PackageError
from hotbay.packages.layout import blob_path
from hotbay.packages.manifest import Manifest
from hotbay.packages.package_blobs import Progress
from hotbay.packages.sources.folder import DirectorySource
from hotbay.store.digests import digest_of
from hotbay.store.world.records import Completion, Floor, ManifestRef

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]
PluginWriter = Callable[..., Manifest]
SourceMaker = Callable[..., Any]
Fetching = Any
PIECE = 8 << 10
BIG = bytes(range(256)) * 128


def big(number: int) -> bytes:
    """32 KiB, another for each number."""
    return bytes([number]) + BIG[1:]


@pytest.fixture
def plugin(tmp_path: Path, write_plugin: PluginWriter) -> tuple[Manifest, Path]:
    """A package of three wheels, of some 33 KiB each."""
    others = tuple((f"part{n}", {f"part{n}/data": big(n)}) for n in range(2))
    files = {"sample/__init__.py": b"plugin = 1\n", "sample/data": big(9)}
    return write_plugin(tmp_path / "p", files=files, others=others), tmp_path / "p"


def completions(fetching: Fetching) -> tuple[Completion, ...]:
    found: tuple[Completion, ...] = fetching.world.view.all(Completion)
    return found


async def test_package_is_fetched_built_and_recorded_last(fetching: Fetching, plugin: tuple[Manifest, Path]) -> None:
    manifest, layout = plugin
    ref = await fetching.know(manifest, DirectorySource(layout.parent, "local"), str(layout))
    told: list[Progress] = []
    revision = fetching.world.view.revision
    site = await fetching.fetcher().fetch(ref, report=told.append)
    assert (site / "sample" / "__init__.py").read_text() == "plugin = 1\n"
    (done,) = completions(fetching)
    assert done.blobs == tuple((blob.digest, blob.size) for blob in manifest.blobs)
    assert (done.environment, done.at_s) == (site.parent.name, 7.0)
    assert fetching.world.view.all(Floor) == (Floor("sample", 1),)
    assert fetching.world.view.revision == revision + 1, "one transaction"
    assert fetching.store.has(manifest.digest)
    assert [p.phase for p in told if p.phase != "fetch"] == ["environment", "complete"]
    assert [p.bytes_done for p in told] == sorted(p.bytes_done for p in told)
    assert (told[-1].bytes_done, told[-1].bytes_total) == (manifest.size_bytes, manifest.size_bytes)


async def test_hb11_completion_wakes_who_waits_for_the_world(
    fetching: Fetching, plugin: tuple[Manifest, Path], memory_source: SourceMaker
) -> None:
    manifest, layout = plugin
    source = memory_source()
    source.add(manifest, layout)
    ref = await fetching.know(manifest, source)
    woken = anyio.Event()

    async def wait() -> None:
        view = await fetching.world.changed(fetching.world.view.revision)
        assert view.get(Completion, manifest.digest) is not None
        woken.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait)
        await anyio.lowlevel.checkpoint()
        await fetching.fetcher().fetch(ref)
        with anyio.fail_after(30):
            await woken.wait()


@pytest.mark.parametrize("room", ["wheels", "installed"])
async def test_limit_of_the_store_holds_for_what_is_installed_too(
    fetching: Fetching, write_plugin: Callable[..., Manifest], memory_source: SourceMaker, tmp_path: Path, room: str
) -> None:
    """Wheels are small, for they are compressed; byte code comes to what is in them."""
    text = b"".join(b"value_%d = %d\n" % (n, n) for n in range(20_000))
    manifest = write_plugin(tmp_path / "p", files={"sample/__init__.py": b"plugin = 1\n", "sample/values.py": text})
    fetching.limit_bytes = manifest.size_bytes + (3 * len(text) if room == "installed" else len(text) // 2)
    source = memory_source()
    source.add(manifest, tmp_path / "p")
    ref = await fetching.know(manifest, source)
    if room == "wheels":
        with pytest.raises(CapacityError, match=r"limits\.store allows") as refused:
            await fetching.fetcher().fetch(ref)
        assert refused.value.code == "RESOURCE_EXHAUSTED"
        assert fetching.environments.present() == {}
    else:
        await fetching.fetcher().fetch(ref)
    assert 0 < fetching.budget.usage().used_bytes <= fetching.limit_bytes


async def test_complete_package_needs_no_source(
    fetching: Fetching, plugin: tuple[Manifest, Path], memory_source: SourceMaker
) -> None:
    """As with `fetch: off`, and after a restart of the host."""
    manifest, layout = plugin
    source = memory_source()
    source.add(manifest, layout)
    ref = await fetching.know(manifest, source)
    site = await fetching.fetcher().fetch(ref)
    fetching.sources.clear()
    fetching.environments = type(fetching.environments)(fetching.environments.root)
    assert await fetching.fetcher().fetch(ref) == site
    assert len(source.opened) == 3


async def test_stored_blobs_are_not_fetched_again_and_shared_by_versions(
    fetching: Fetching, tmp_path: Path, write_plugin: PluginWriter, memory_source: SourceMaker
) -> None:
    shared = (("part0", {"part0/data": big(0)}),)
    one = write_plugin(tmp_path / "one", others=shared)
    two = write_plugin(tmp_path / "two", id="other", files={"other.py": b"plugin = 2\n"}, others=shared,
                       entrypoint="other:plugin")  # fmt: skip
    source = memory_source()
    source.add(one, tmp_path / "one")
    source.add(two, tmp_path / "two")
    await fetching.fetcher().fetch(await fetching.know(one, source))
    await fetching.fetcher().fetch(await fetching.know(two, source))
    (common,) = {blob.digest for blob in one.blobs} & {blob.digest for blob in two.blobs}
    assert [digest for digest, _, _ in source.opened].count(common) == 1
    assert source.sent[common] == len(source.blobs[common])


async def test_hb10_fetch_ended_after_any_piece_goes_on_where_it_stopped(
    fetching: Fetching, plugin: tuple[Manifest, Path], memory_source: SourceMaker
) -> None:
    """Cut at every 8 KiB of every blob: no byte is sent twice, nothing is complete before the end."""
    manifest, layout = plugin
    source = memory_source()
    source.add(manifest, layout)
    ref = await fetching.know(manifest, source)
    fetcher = fetching.fetcher(concurrency=1)
    for cut in range(0, 40 << 10, PIECE):
        source.cut = cut
        with pytest.raises(PackageError, match="connection lost") as caught:
            await fetcher.fetch(ref)
        assert (caught.value.code, caught.value.details["retryable"]) == ("FETCH_FAILED", True)
        assert completions(fetching) == ()
    source.cut = None
    await fetcher.fetch(ref)
    assert source.sent == {blob.digest: blob.size for blob in manifest.blobs}
    assert len(completions(fetching)) == 1


@pytest.mark.parametrize("resumes", [True, False])
async def test_content_that_changed_meanwhile_is_fetched_from_its_beginning(
    fetching: Fetching, plugin: tuple[Manifest, Path], memory_source: SourceMaker, resumes: bool
) -> None:
    """With a validator the source starts over; without one the mixture is found by its digest and fetched again."""
    manifest, layout = plugin
    source = memory_source(resumes=True)
    source.add(manifest, layout)
    good = dict(source.blobs)
    ref = await fetching.know(manifest, source)
    source.blobs = {digest: bytes(len(content)) for digest, content in good.items()}
    if resumes:
        source.validators = dict.fromkeys(good, "old")
    source.cut = 2 * PIECE
    with pytest.raises(PackageError):
        await fetching.fetcher().fetch(ref)
    source.blobs, source.cut = good, None
    if resumes:
        source.validators = dict.fromkeys(good, "new")
    await fetching.fetcher().fetch(ref)
    assert completions(fetching)


async def test_p01_other_content_than_announced_is_refused_naming_both(
    fetching: Fetching, plugin: tuple[Manifest, Path], memory_source: SourceMaker
) -> None:
    manifest, layout = plugin
    source = memory_source()
    source.add(manifest, layout)
    victim = manifest.blobs[1]
    good = source.blobs[victim.digest]
    ref = await fetching.know(manifest, source)
    source.blobs[victim.digest] = good[:-1] + b"!"
    with pytest.raises(PackageError) as caught:
        await fetching.fetcher().fetch(ref)
    found = digest_of(source.blobs[victim.digest])
    assert (caught.value.code, caught.value.details["expected"]) == ("DIGEST_MISMATCH", victim.digest)
    assert caught.value.details["found"] == found
    assert victim.digest in caught.value.message
    assert found in caught.value.message
    page = b"<html>please log in</html>"
    source.blobs[victim.digest] = page
    with pytest.raises(PackageError, match=f"expected {victim.size} bytes, found {len(page)}") as caught:
        await fetching.fetcher().fetch(ref)
    assert caught.value.code == "LENGTH_MISMATCH"
    source.blobs[victim.digest] = good + b"more"
    with pytest.raises(PackageError, match="found more"):
        await fetching.fetcher().fetch(ref)
    assert not fetching.store.has(victim.digest)
    assert completions(fetching) == ()
    assert not fetching.environments.root.exists(), "nothing was unpacked"
    source.blobs[victim.digest] = good
    await fetching.fetcher().fetch(ref)


async def test_sources_are_tried_in_turn_and_a_failing_one_is_asked_last(
    fetching: Fetching, plugin: tuple[Manifest, Path], memory_source: SourceMaker
) -> None:
    manifest, layout = plugin
    down, wrong, good = memory_source("down"), memory_source("wrong"), memory_source("good")
    down.is_down = True
    for source in (wrong, good):
        source.add(manifest, layout)
    wrong.blobs = {digest: bytes(len(content)) for digest, content in wrong.blobs.items()}
    ref = await fetching.know(manifest, down)
    await fetching.know(manifest, wrong)
    with pytest.raises(PackageError, match=r"FETCH_FAILED: down.*DIGEST_MISMATCH: wrong") as caught:
        await fetching.fetcher(concurrency=1).fetch(ref)
    assert caught.value.code == "FETCH_FAILED", "the source that is down may have the package"
    await fetching.know(manifest, good)
    down.opened.clear()
    await fetching.fetcher(concurrency=1).fetch(ref)
    assert len(down.opened) == 1


async def test_package_of_which_nobody_has_a_blob_says_so(
    fetching: Fetching, plugin: tuple[Manifest, Path], memory_source: SourceMaker
) -> None:
    ref = await fetching.know(plugin[0], memory_source())
    fetching.sources.clear()
    with pytest.raises(PackageError, match="no source that is open offers it") as caught:
        await fetching.fetcher().fetch(ref)
    assert caught.value.code == "FETCH_FAILED"


@pytest.mark.parametrize("fault", ["hang", "drip"])
async def test_slow_drip_and_silence_are_ended_and_gone_on_from(
    fetching: Fetching, plugin: tuple[Manifest, Path], memory_source: SourceMaker, fault: str
) -> None:
    manifest, layout = plugin
    slow, fast = memory_source("slow"), memory_source("fast")
    for source in (slow, fast):
        source.add(manifest, layout)
    slow.hang, slow.drip = (PIECE, None) if fault == "hang" else (None, 50.0)
    ref = await fetching.know(manifest, slow)
    fetcher = fetching.fetcher(concurrency=1, stall_s=0.5, min_rate_bytes_per_s=1 << 10)
    with pytest.raises(PackageError, match=r"slow: .*fewer than 512 bytes came within 0.5 s") as caught:
        await fetcher.fetch(ref)
    assert (caught.value.code, caught.value.details["retryable"]) == ("FETCH_FAILED", True)
    await fetching.know(manifest, fast)
    await fetcher.fetch(ref)
    sent = {digest: slow.sent.get(digest, 0) + fast.sent.get(digest, 0) for digest in fast.blobs}
    assert sent == {blob.digest: blob.size for blob in manifest.blobs}


async def test_total_time_is_bounded(
    fetching: Fetching, plugin: tuple[Manifest, Path], memory_source: SourceMaker
) -> None:
    manifest, layout = plugin
    source = memory_source()
    source.add(manifest, layout)
    source.hang = 0
    ref = await fetching.know(manifest, source)
    with pytest.raises(PackageError, match=r"was not fetched within 0\.3 s") as caught:
        await fetching.fetcher(total_s=0.3).fetch(ref)
    assert (caught.value.code, caught.value.details["retryable"]) == ("FETCH_FAILED", True)


async def test_stalled_fetch_holds_up_no_other_plugin(
    fetching: Fetching, tmp_path: Path, write_plugin: PluginWriter, memory_source: SourceMaker
) -> None:
    """Both share a wheel, and the first has it locked; the second comes from another source, or needs none of it."""
    shared = (("part0", {"part0/data": big(0)}),)
    one = write_plugin(tmp_path / "one", others=shared)
    two = write_plugin(
        tmp_path / "two", id="other", files={"other.py": b"x = 2\n"}, others=shared, entrypoint="other:x"
    )
    stalled, good = memory_source("stalled"), memory_source("good")
    stalled.add(one, tmp_path / "one")
    good.add(two, tmp_path / "two")
    stalled.hang = PIECE
    refs = await fetching.know(one, stalled), await fetching.know(two, good)
    fetcher = fetching.fetcher(stall_s=3600.0)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(fetcher.fetch, refs[0])
        with anyio.fail_after(30):
            await stalled.hanging.wait()
            assert fetcher.under_way == {one.digest, *(blob.digest for blob in one.blobs)}
            await fetcher.fetch(refs[1])
        tasks.cancel_scope.cancel()
    assert [done.plugin_id for done in completions(fetching)] == ["other"]
    assert fetcher.under_way == frozenset()


async def test_two_fetches_of_one_package_fetch_it_once(
    fetching: Fetching, plugin: tuple[Manifest, Path], memory_source: SourceMaker
) -> None:
    manifest, layout = plugin
    source = memory_source()
    source.add(manifest, layout)
    ref = await fetching.know(manifest, source)
    fetcher = fetching.fetcher()
    async with anyio.create_task_group() as tasks:
        for _ in range(4):
            tasks.start_soon(fetcher.fetch, ref)
    assert source.sent == {blob.digest: blob.size for blob in manifest.blobs}


@pytest.mark.parametrize(("limit", "good"), [(0, True), (-1, False)])
async def test_size_of_a_package_is_limited(
    fetching: Fetching, plugin: tuple[Manifest, Path], memory_source: SourceMaker, limit: int, good: bool
) -> None:
    manifest, layout = plugin
    source = memory_source()
    source.add(manifest, layout)
    ref = await fetching.know(manifest, source)
    fetcher = fetching.fetcher(package_bytes=manifest.size_bytes + limit)
    if good:
        await fetcher.fetch(ref)
    else:
        with pytest.raises(PackageError, match=r"INVALID_PACKAGE: .* allowed"):
            await fetcher.fetch(ref)
        assert source.opened == []


@pytest.mark.parametrize("concurrency", [1, 2, 0])
async def test_blobs_at_once_are_limited(
    fetching: Fetching, plugin: tuple[Manifest, Path], memory_source: SourceMaker, concurrency: int
) -> None:
    manifest, layout = plugin
    source = memory_source()
    source.add(manifest, layout)
    source.hang = 0
    ref = await fetching.know(manifest, source)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(fetching.fetcher(concurrency=concurrency).fetch, ref)
        with anyio.fail_after(30):
            while len(source.opened) < (concurrency or 3):
                await anyio.lowlevel.checkpoint()
            await anyio.wait_all_tasks_blocked()
        assert len(source.opened) == (concurrency or 3)
        tasks.cancel_scope.cancel()


async def test_local_files_are_used_in_place_after_their_digest_was_checked(
    fetching: Fetching, plugin: tuple[Manifest, Path]
) -> None:
    manifest, layout = plugin
    source = DirectorySource(layout.parent, "local")
    ref = await fetching.know(manifest, source, str(layout))
    fetcher = fetching.fetcher(in_place=("local",))
    blob = blob_path(layout, manifest.blobs[0].digest)
    good = blob.read_bytes()
    blob.write_bytes(good[:-1] + b"!")
    with pytest.raises(PackageError, match="DIGEST_MISMATCH") as caught:
        await fetcher.fetch(ref)
    assert caught.value.details["found"] == digest_of(good[:-1] + b"!")
    blob.write_bytes(good)
    site = await fetcher.fetch(ref)
    assert (site / "sample" / "__init__.py").exists()
    (done,) = completions(fetching)
    assert done.blobs == ()
    assert not any(fetching.store.has(blob.digest) for blob in manifest.blobs)
    assert fetching.world.view.get(ManifestRef, ref.key) == ref, "what says where they are stays known"


async def test_ref_whose_manifest_is_another_is_refused(
    fetching: Fetching, plugin: tuple[Manifest, Path], memory_source: SourceMaker
) -> None:
    ref = await fetching.know(plugin[0], memory_source())
    with pytest.raises(PackageError, match=f"DIGEST_MISMATCH: .*found {ref.digest}"):
        await fetching.fetcher().fetch(replace(ref, digest=digest_of(b"")))


async def test_disk_that_fills_up_keeps_what_came_and_goes_on(
    fetching: Fetching, plugin: tuple[Manifest, Path], memory_source: SourceMaker, full_disk: Callable[..., Any]
) -> None:
    manifest, layout = plugin
    source = memory_source()
    source.add(manifest, layout)
    ref = await fetching.know(manifest, source)
    with full_disk(2 * PIECE), pytest.raises(CapacityError) as caught:
        await fetching.fetcher().fetch(ref)
    assert caught.value.code == "RESOURCE_EXHAUSTED"
    assert completions(fetching) == ()
    await fetching.fetcher().fetch(ref)
    assert source.sent == {blob.digest: blob.size for blob in manifest.blobs}


async def test_state_directory_that_cannot_be_written_is_no_crash(
    fetching: Fetching, plugin: tuple[Manifest, Path], memory_source: SourceMaker
) -> None:
    manifest, layout = plugin
    source = memory_source()
    source.add(manifest, layout)
    ref = await fetching.know(manifest, source)
    fetching.environments.root.write_bytes(b"")
    with pytest.raises(CapacityError, match="cannot be staged below") as caught:
        await fetching.fetcher().fetch(ref)
    assert "let the host's user write it" in caught.value.hint
    assert completions(fetching) == ()


async def test_u20_flipped_byte_in_a_stored_blob_harms_nobody_who_runs(
    fetching: Fetching, plugin: tuple[Manifest, Path], memory_source: SourceMaker, tmp_path: Path,
    write_plugin: PluginWriter,
) -> None:  # fmt: skip
    """Damaged alone it is not even noticed; with the environment gone too it is fetched again, or the fetch fails
    naming it, and the others go on.
    """
    manifest, layout = plugin
    other = write_plugin(tmp_path / "other", id="other", files={"other.py": b"x = 2\n"}, entrypoint="other:x")
    source = memory_source()
    source.add(manifest, layout)
    source.add(other, tmp_path / "other")
    refs = await fetching.know(manifest, source), await fetching.know(other, source)
    site = await fetching.fetcher().fetch(refs[0])
    await fetching.fetcher().fetch(refs[1])
    stored = fetching.store.path(manifest.blobs[0].digest)
    stored.chmod(0o644)
    stored.write_bytes(b"!" + stored.read_bytes()[1:])
    fetching.environments = type(fetching.environments)(fetching.environments.root)
    assert await fetching.fetcher().fetch(refs[0]) == site
    with fetching.environments.collection() as remove:
        assert remove(site.parent.name)
    source.is_down = True
    with pytest.raises(PackageError, match="no answer") as caught:
        await fetching.fetcher().fetch(refs[0])
    assert caught.value.code == "FETCH_FAILED"
    await fetching.fetcher().fetch(refs[1])
    source.is_down = False
    assert await fetching.fetcher().fetch(refs[0]) == site
    assert (site / "sample" / "__init__.py").exists()


async def test_folders_that_were_deleted_under_the_host_are_made_again_by_the_next_fetch(
    fetching: Fetching, plugin: tuple[Manifest, Path], memory_source: SourceMaker
) -> None:
    manifest, layout = plugin
    source = memory_source()
    source.add(manifest, layout)
    ref = await fetching.know(manifest, source)
    site = await fetching.fetcher().fetch(ref)
    shutil.rmtree(fetching.store.root)
    shutil.rmtree(fetching.environments.root)
    with anyio.fail_after(60):
        assert await fetching.fetcher().fetch(ref) == site
    assert (site / "sample" / "__init__.py").exists()
    assert fetching.store.is_whole(manifest.blobs, rehash=True)


async def test_u21_floor_rises_and_never_falls(
    fetching: Fetching, tmp_path: Path, write_plugin: PluginWriter, memory_source: SourceMaker
) -> None:
    source = memory_source()
    for rev, floor in ((5, 5), (4, 5), (6, 6)):
        manifest = write_plugin(tmp_path / str(rev), rev=rev)
        source.add(manifest, tmp_path / str(rev))
        await fetching.fetcher().fetch(await fetching.know(manifest, source))
        assert fetching.world.view.all(Floor) == (Floor("sample", floor),)


@pytest.mark.parametrize("found", ["sample:Missing", "sample:Missing.attribute", "sample.mod:plugin", "gone:plugin"])
async def test_p12_entry_point_that_is_not_there_is_refused_before_anything_starts(
    fetching: Fetching, tmp_path: Path, write_plugin: PluginWriter, memory_source: SourceMaker, found: str
) -> None:
    manifest = write_plugin(tmp_path / "p", entrypoint=found)
    source = memory_source()
    source.add(manifest, tmp_path / "p")
    ref = await fetching.know(manifest, source)
    with pytest.raises(PackageError, match=f"entry point {found} is not there") as caught:
        await fetching.fetcher().fetch(ref)
    assert caught.value.code == "INVALID_PACKAGE"
    assert completions(fetching) == ()


@pytest.mark.parametrize(
    "text",
    [
        "def plugin(): pass",
        "try:\n    from x import plugin\nexcept ImportError:\n    plugin = None",
        "from other import *",
        "def __getattr__(name): return 1",
        "globals()['plug' + 'in'] = 1",
        "if True:\n    import plugin",
        "def make():\n    global plugin\n    plugin = 1",
    ],
)
async def test_entry_point_that_may_be_there_is_taken_at_its_word(
    fetching: Fetching, tmp_path: Path, write_plugin: PluginWriter, memory_source: SourceMaker, text: str
) -> None:
    manifest = write_plugin(tmp_path / "p", files={"sample/__init__.py": text.encode()})
    source = memory_source()
    source.add(manifest, tmp_path / "p")
    await fetching.fetcher().fetch(await fetching.know(manifest, source))


@pytest.mark.parametrize("text", [b"plugin = (", b"\0", "plugin = 'é'".encode("latin-1"), b"(" * 100_000])
async def test_entry_point_that_does_not_parse_is_refused(
    fetching: Fetching, tmp_path: Path, write_plugin: PluginWriter, memory_source: SourceMaker, text: bytes
) -> None:
    manifest = write_plugin(tmp_path / "p", files={"sample/__init__.py": text})
    source = memory_source()
    source.add(manifest, tmp_path / "p")
    ref = await fetching.know(manifest, source)
    with pytest.raises(PackageError, match="INVALID_PACKAGE"):
        await fetching.fetcher().fetch(ref)


async def test_p15_damaged_environment_is_found_and_built_again(
    fetching: Fetching, plugin: tuple[Manifest, Path], memory_source: SourceMaker
) -> None:
    """One file edited, one removed, and the record changed with it: by this host's run and by the next one's."""
    manifest, layout = plugin
    source = memory_source()
    source.add(manifest, layout)
    ref = await fetching.know(manifest, source)
    site = await fetching.fetcher().fetch(ref)
    module = site / "sample" / "__init__.py"
    for is_next_run in (False, True):
        for harm in (lambda: module.write_text("plugin = 2\n"), module.unlink):
            for path in (site.parent, site, module.parent, module):
                path.chmod(0o755)
            harm()
            if is_next_run:
                fetching.environments = type(fetching.environments)(fetching.environments.root)
            assert await fetching.fetcher().fetch(ref) == site
            assert module.read_text() == "plugin = 1\n"
    assert len(source.opened) == 3


async def test_p15_record_that_was_changed_with_the_tree_is_not_believed(
    fetching: Fetching, plugin: tuple[Manifest, Path], memory_source: SourceMaker, tmp_path: Path,
    write_plugin: PluginWriter,
) -> None:  # fmt: skip
    """The world knows the digest of what was built; it lies where no plugin writes."""
    manifest, layout = plugin
    source = memory_source()
    source.add(manifest, layout)
    ref = await fetching.know(manifest, source)
    site = await fetching.fetcher().fetch(ref)
    evil = write_plugin(tmp_path / "evil", files={"sample/__init__.py": b"plugin = 'owned'\n"})
    source.add(evil, tmp_path / "evil")
    other = await fetching.fetcher().fetch(await fetching.know(evil, source))
    shutil.rmtree(site.parent)
    shutil.copytree(other.parent, site.parent)
    fetching.environments = type(fetching.environments)(fetching.environments.root)
    assert await fetching.fetcher().fetch(ref) == site
    assert (site / "sample" / "__init__.py").read_text() == "plugin = 1\n"


async def test_cancelled_fetch_leaves_nothing_complete_and_lets_go(
    fetching: Fetching, plugin: tuple[Manifest, Path], memory_source: SourceMaker
) -> None:
    manifest, layout = plugin
    source = memory_source()
    source.add(manifest, layout)
    source.hang = 3 * PIECE
    ref = await fetching.know(manifest, source)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(fetching.fetcher().fetch, ref)
        with anyio.fail_after(30):
            await source.hanging.wait()
        tasks.cancel_scope.cancel()
    assert completions(fetching) == ()
    source.hang = None
    with anyio.fail_after(60):
        await fetching.fetcher().fetch(ref)
    assert sum(source.sent.values()) <= manifest.size_bytes + 2 * PIECE, "what had come is kept"


async def test_interpreter_that_is_not_there_is_told(
    fetching: Fetching, plugin: tuple[Manifest, Path], memory_source: SourceMaker
) -> None:
    ref = await fetching.know(plugin[0], memory_source())
    fetcher = fetching.fetcher()
    fetcher._interpreter_of = lambda _: f"{sys.executable}-gone"
    with pytest.raises(HostError):
        await fetcher.fetch(ref)


async def test_store_that_cannot_be_written_is_the_machines_and_not_the_packages(
    fetching: Fetching, plugin: tuple[Manifest, Path]
) -> None:
    manifest, layout = plugin
    ref = await fetching.know(manifest, DirectorySource(layout.parent, "local"), str(layout))
    parts = fetching.store.root / "parts"
    parts.rmdir()
    parts.write_text("no folder")
    with pytest.raises(CapacityError, match="cannot be staged") as refused:
        await fetching.fetcher().fetch(ref)
    assert refused.value.code == "RESOURCE_EXHAUSTED"
    parts.unlink()
    parts.mkdir()
    await fetching.fetcher().fetch(ref)
    assert [done.digest for done in completions(fetching)] == [manifest.digest]


async def test_fetcher_that_is_held_ends_what_is_under_way_and_begins_nothing(
    fetching: Fetching, plugin: tuple[Manifest, Path], memory_source: SourceMaker
) -> None:
    manifest, layout = plugin
    source = memory_source()
    source.add(manifest, layout)
    source.hang = PIECE
    ref = await fetching.know(manifest, source)
    fetcher = fetching.fetcher()
    ended: list[HostError] = []

    async def fetch() -> None:
        try:
            await fetcher.fetch(ref)
        except HostError as error:
            ended.append(error)

    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(fetch)
            await source.hanging.wait()
            assert await fetcher.hold(within_s=30)
        source.hang = None
        await fetch()
        assert [str(error) for error in ended] == ["UNAVAILABLE: a successor is taking over"] * 2
        assert completions(fetching) == ()
        assert await fetcher.hold(within_s=30), "idempotent"
        fetcher.release()
        site = await fetcher.fetch(ref)
        await fetcher.hold(within_s=30)
        assert await fetcher.fetch(ref) == site, "what is complete is found"
