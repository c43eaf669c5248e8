"""Environments: built offline from the store, importable by an isolated interpreter, and never silently changed."""

import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest
from hotbay.errors import CapacityError, PackageError
from hotbay.packages.environment import build_environment, sweep_environments, tree_digest
from hotbay.packages.manifest import Blob, Manifest
from hotbay.packages.staging import copy_package, stage_package, stored_manifest
from hotbay.store.blobs import BlobStore
from hotbay.store.digests import digest_of

pytestmark = [pytest.mark.anyio, pytest.mark.process, pytest.mark.timeout(120)]
Packed = tuple[Manifest, Path]


def imported(site: Path) -> str:
    """What the sample plugin says in an interpreter started as plugins are."""
    program = f"import site; site.addsitedir({str(site)!r}); import hotbay_echo; print(hotbay_echo.plugin)"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-B", "-c", program],
        env={},
        capture_output=True,
        text=True,
        timeout=20,
        check=True,
    )
    return done.stdout.strip()


async def test_staged_package_is_complete_and_importable(store: BlobStore, packed: Packed) -> None:
    manifest, layout = packed
    site = await stage_package(store, manifest, layout, sys.executable)
    assert imported(site) == "('hotbay_sdk', b'\\xa4echo')"
    assert store.completed() == [manifest.digest]
    assert stored_manifest(store, manifest.digest) == manifest
    assert site.is_relative_to(store.root.parent / "environments")


async def test_environment_is_read_only_compiled_and_unlinked_to_the_store(store: BlobStore, packed: Packed) -> None:
    site = await stage_package(store, *packed, sys.executable)
    files = [path for path in site.rglob("*") if path.is_file()]
    assert all(path.stat().st_mode & 0o222 == 0 and path.stat().st_nlink == 1 for path in files)
    assert any(path.suffix == ".pyc" and path.name.startswith("__init__") for path in (site / "hotbay_echo").rglob("*"))
    assert not (site / ".lock").exists()
    assert [entry.name for entry in (store.root.parent / "environments").iterdir()] == [site.parent.name]


async def test_equal_wheels_share_an_environment(store: BlobStore, packed: Packed) -> None:
    manifest, layout = packed
    site = await stage_package(store, manifest, layout, sys.executable)
    before = site.stat().st_ino
    other = manifest.model_copy(update={"rev": 8, "description": "other"})
    assert await build_environment(store, other, sys.executable) == site
    assert site.stat().st_ino == before


async def test_builds_at_the_same_time_agree(store: BlobStore, packed: Packed) -> None:
    manifest, layout = packed
    await copy_package(store, manifest, layout)
    sites: list[Path] = []

    async def build() -> None:
        sites.append(await build_environment(store, manifest, sys.executable))

    async with anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(build)
    assert len(set(sites)) == 1
    assert imported(sites[0])
    assert [entry.name for entry in sites[0].parent.parent.iterdir()] == [sites[0].parent.name]


async def test_changed_environment_is_built_again(store: BlobStore, packed: Packed) -> None:
    site = await stage_package(store, *packed, sys.executable)
    digest = tree_digest(site)
    module = site / "hotbay_echo" / "__init__.py"
    module.chmod(0o644)
    with module.open("a") as opened:
        opened.write("plugin = 'owned'\n")
    assert tree_digest(site) != digest
    assert await build_environment(store, packed[0], sys.executable) == site
    assert "owned" not in module.read_text()


def put_pipe(site: Path) -> None:
    os.mkfifo(site / "pipe")


def blow_up(site: Path) -> None:
    os.truncate(site / "hotbay_echo" / "__init__.py", 8 << 40)


@pytest.mark.timeout(30)
@pytest.mark.parametrize("harm", [put_pipe, blow_up])
async def test_nothing_in_a_changed_environment_holds_the_look_up(
    store: BlobStore, packed: Packed, harm: Callable[[Path], None]
) -> None:
    site = await stage_package(store, *packed, sys.executable)
    for folder in (site.parent, site, site / "hotbay_echo"):
        folder.chmod(0o755)
    (site / "hotbay_echo" / "__init__.py").chmod(0o644)
    harm(site)
    assert await stage_package(store, *packed, sys.executable) == site
    assert imported(site)
    assert not (site / "pipe").exists()


async def test_no_room_for_the_environment_is_no_fault_of_the_package(store: BlobStore, packed: Packed) -> None:
    manifest, layout = packed
    await copy_package(store, manifest, layout)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    # Stands for a full disk: no file can grow beyond this.
    resource.setrlimit(resource.RLIMIT_FSIZE, (8192, limits[1]))
    try:
        with pytest.raises(CapacityError, match=r"no room below .* to install") as caught:
            await build_environment(store, manifest, sys.executable)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert "tried again by itself" in caught.value.hint


async def test_state_directory_that_cannot_be_written_is_no_crash(
    store: BlobStore, packed: Packed, tmp_path: Path
) -> None:
    in_the_way = tmp_path / "environments"
    in_the_way.write_bytes(b"")
    with pytest.raises(CapacityError, match="cannot be staged below") as caught:
        await stage_package(store, *packed, sys.executable, environments=in_the_way)
    assert "let the host's user write it" in caught.value.hint
    assert store.completed() == []


@pytest.mark.parametrize("record", [b"", b"{}", b"[]"])
async def test_environment_without_a_readable_record_is_built_again(
    store: BlobStore, packed: Packed, record: bytes
) -> None:
    site = await stage_package(store, *packed, sys.executable)
    (site.parent / "record.json").write_bytes(record)
    await build_environment(store, packed[0], sys.executable)
    assert (site.parent / "record.json").read_bytes() != record


async def test_time_limit_stops_the_build_and_leaves_nothing(store: BlobStore, packed: Packed) -> None:
    manifest, layout = packed
    with pytest.raises(CapacityError, match="did not end within"):
        await stage_package(store, manifest, layout, sys.executable, timeout_s=0.001)
    assert list((store.root.parent / "environments").iterdir()) == []
    assert not store.is_complete(manifest.digest)


async def test_missing_blob_is_named(store: BlobStore, packed: Packed) -> None:
    with pytest.raises(PackageError, match=packed[0].blobs[0].name) as caught:
        await build_environment(store, packed[0], sys.executable)
    assert caught.value.code == "FETCH_FAILED"


async def test_wheels_for_another_machine_are_refused_and_nothing_completes(
    store: BlobStore, packed: Packed, tmp_path: Path
) -> None:
    manifest, layout = packed
    blobs = [
        blob.model_copy(update={"name": "msgpack-1.2.4-cp311-cp311-win_arm64.whl"}) if "msgpack" in blob.name else blob
        for blob in manifest.blobs
    ]
    foreign = manifest.model_copy(update={"blobs": tuple(blobs)})
    with pytest.raises(PackageError, match="its wheels do not install") as caught:
        await stage_package(store, foreign, layout, sys.executable)
    assert caught.value.code == "INVALID_PACKAGE"
    assert not store.is_complete(foreign.digest)
    assert list((store.root.parent / "environments").iterdir()) == []


async def test_wheel_that_screening_refuses_never_reaches_the_tools(store: BlobStore, packed: Packed) -> None:
    manifest, _ = packed
    content = b"no archive"
    store.put_bytes(content, digest_of(content))
    bad = Blob(name="bad-1.0-py3-none-any.whl", digest=digest_of(content), size=len(content))
    with pytest.raises(PackageError, match="no readable zip archive"):
        await build_environment(store, manifest.model_copy(update={"blobs": (bad,)}), sys.executable)
    assert not (store.root.parent / "environments").exists()


async def test_leftovers_of_an_interrupted_build_are_swept(store: BlobStore, packed: Packed) -> None:
    site = await stage_package(store, *packed, sys.executable)
    environments = site.parent.parent
    left = environments / ".building-x" / "environment"
    left.mkdir(parents=True)
    left.chmod(0o500)
    assert sweep_environments(environments) == 1
    assert [entry.name for entry in environments.iterdir()] == [site.parent.name]
