"""Folders of installed wheels: built once, shared by equal wheels, believed only while they are what was built."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from hotbay.errors import CapacityError, PackageError
from hotbay.packages import environment, environment_build
from hotbay.packages.environment import Environments
from hotbay.packages.layout import blob_path
from hotbay.packages.manifest import Blob, Manifest
from hotbay.packages.tree import tree_digest
from hotbay.store.digests import Digest, digest_of
from hotbay.store.world.engine import Delete
from hotbay.store.world.records import Completion, ManifestRef

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]
Fetching = Any


@pytest.fixture
def package(tmp_path: Path, write_plugin: Callable[..., Manifest]) -> tuple[Manifest, Callable[[Digest], Path]]:
    manifest = write_plugin(tmp_path / "p")
    return manifest, lambda digest: blob_path(tmp_path / "p", digest)


@pytest.fixture
def environments(tmp_path: Path) -> Environments:
    return Environments(tmp_path / "environments")


def renamed(manifest: Manifest, name: str) -> Manifest:
    """The same wheels under another plugin id."""
    return Manifest.model_validate(manifest.model_dump() | {"id": name})


class Counting:
    """Counts how often a tree is read whole."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        monkeypatch.setattr(environment, "tree_digest", self)

    def __call__(self, root: Path) -> Digest:
        self.count += 1
        return tree_digest(root)


async def test_tree_is_read_once_in_a_run_and_again_when_a_file_was_touched(
    environments: Environments, package: Any, python: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest, wheel = package
    assert await environments.find(manifest, python) is None
    built = await environments.build(manifest, python, wheel)
    reads = Counting(monkeypatch)
    run = Environments(environments.root)
    for _ in range(3):
        assert await run.find(manifest, python) == built
    assert reads.count == 1
    os.utime(built.site / "sample" / "__init__.py")
    assert await run.find(manifest, python) == built
    assert await run.find(manifest, python) == built
    assert reads.count == 2


def touch_inside(site: Path) -> None:
    (site / "sample").chmod(0o755)
    (site / "sample" / "new.py").write_bytes(b"")


def same_size_and_time(site: Path) -> None:
    """Only the time of the inode's change tells."""
    module = site / "sample" / "__init__.py"
    before = module.stat()
    module.chmod(0o644)
    module.write_bytes(b"plugin = 9\n")
    os.utime(module, ns=(before.st_atime_ns, before.st_mtime_ns))


def make_pipe(site: Path) -> None:
    site.chmod(0o755)
    os.mkfifo(site / "pipe")


def blow_up(site: Path) -> None:
    module = site / "sample" / "__init__.py"
    module.chmod(0o644)
    os.truncate(module, 8 << 40)


def link_away(site: Path) -> None:
    (site / "sample").chmod(0o755)
    module = site / "sample" / "__init__.py"
    module.rename(module.with_name("real.py"))
    module.symlink_to("real.py")


@pytest.mark.parametrize("harm", [touch_inside, same_size_and_time, make_pipe, blow_up, link_away])
async def test_whatever_changed_is_found_and_built_again(
    environments: Environments, package: Any, python: str, harm: Callable[[Path], None]
) -> None:
    manifest, wheel = package
    built = await environments.build(manifest, python, wheel)
    harm(built.site)
    assert await environments.find(manifest, python) is None
    again = await environments.build(manifest, python, wheel)
    assert again.site == built.site
    assert {path.name for path in (built.site / "sample").iterdir()} >= {"__init__.py"}
    assert (built.site / "sample" / "__init__.py").read_bytes() == b"plugin = 1\n"
    assert [path.name for path in environments.root.iterdir()] == [built.key]


@pytest.mark.parametrize("record", [b"", b"{}", b"[]", b"x" * 5000])
async def test_environment_without_a_readable_record_is_built_again(
    environments: Environments, package: Any, python: str, record: bytes
) -> None:
    manifest, wheel = package
    built = await environments.build(manifest, python, wheel)
    (built.site.parent / "record.json").write_bytes(record)
    assert await Environments(environments.root).find(manifest, python) is None
    await Environments(environments.root).build(manifest, python, wheel)
    assert (built.site.parent / "record.json").read_bytes() != record


async def test_builds_at_the_same_time_make_one(environments: Environments, package: Any, python: str) -> None:
    manifest, wheel = package
    found = set()

    async def build() -> None:
        found.add(await environments.build(manifest, python, wheel))

    async with anyio.create_task_group() as tasks:
        for _ in range(4):
            tasks.start_soon(build)
    assert len(found) == 1
    assert environments._building == {}, "what builds waited for is not kept"


async def test_u26_package_whose_wheels_another_one_shares_goes_alone(
    fetching: Fetching, tmp_path: Path, write_plugin: Callable[..., Manifest], memory_source: Callable[..., Any]
) -> None:
    """Both have one environment; with the first one's records gone the second starts, from the store alone."""
    one = write_plugin(tmp_path / "p")
    two = renamed(one, "other")
    source = memory_source()
    source.add(one, tmp_path / "p")
    refs = [await fetching.know(manifest, source) for manifest in (one, two)]
    sites = [await fetching.fetcher().fetch(ref) for ref in refs]
    assert sites[0] == sites[1]
    await fetching.world.transact(
        lambda _: [Delete(Completion.kind, one.digest), Delete(ManifestRef.kind, refs[0].key)]
    )
    source.is_down = True
    fetching.environments = Environments(fetching.environments.root)
    assert await fetching.fetcher().fetch(refs[1]) == sites[1]
    assert fetching.environments.present().keys() == {sites[1].parent.name}


async def test_completion_of_who_shares_an_environment_follows_a_build(
    fetching: Fetching, tmp_path: Path, write_plugin: Callable[..., Manifest], memory_source: Callable[..., Any]
) -> None:
    """Byte code is not equal from build to build; what the world holds about one folder always is."""
    one = write_plugin(tmp_path / "p")
    source = memory_source()
    source.add(one, tmp_path / "p")
    refs = [await fetching.know(manifest, source) for manifest in (one, renamed(one, "other"))]
    for ref in refs:
        await fetching.fetcher().fetch(ref)
    (first, second) = fetching.world.view.all(Completion)
    assert first.tree == second.tree
    with fetching.environments.collection() as remove:
        assert remove(first.environment)
    await fetching.fetcher().fetch(refs[0])
    (first, second) = fetching.world.view.all(Completion)
    assert first.tree == second.tree
    fetching.environments = Environments(fetching.environments.root)
    source.is_down = True
    await fetching.fetcher().fetch(refs[1])


async def test_removed_environment_is_gone_and_present_tells_bytes(
    environments: Environments, package: Any, python: str
) -> None:
    manifest, wheel = package
    built = await environments.build(manifest, python, wheel)
    assert environments.present()[built.key] > 0
    with environments.collection() as remove:
        assert [remove(built.key) for _ in range(2)] == [True, False]
    assert environments.present() == {}
    assert await environments.find(manifest, python) is None
    assert list(environments.root.iterdir()) == []


async def test_leftovers_of_an_interrupted_build_are_swept(
    environments: Environments, package: Any, python: str
) -> None:
    manifest, wheel = package
    built = await environments.build(manifest, python, wheel)
    left = environments.root / ".building-x" / "environment"
    left.mkdir(parents=True)
    left.chmod(0o500)
    assert environments.sweep() == 1
    assert [path.name for path in environments.root.iterdir()] == [built.key]


@pytest.fixture
def after_the_install(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], None]], None]:
    """after_the_install(act): a build does `act` when its wheels are unpacked and nothing is sealed yet."""

    def set_up(act: Callable[[], None]) -> None:
        run_tool, steps = environment_build.run_tool, iter([act])

        async def wrapped(*arguments: Any, **more: Any) -> Any:
            result = await run_tool(*arguments, **more)
            next(steps, lambda: None)()
            return result

        monkeypatch.setattr(environment_build, "run_tool", wrapped)

    return set_up


async def test_a_sweep_spares_what_somebody_builds(
    environments: Environments, package: Any, python: str, after_the_install: Callable[[Callable[[], None]], None]
) -> None:
    manifest, wheel = package
    swept: list[int] = []
    after_the_install(lambda: swept.append(Environments(environments.root).sweep()))
    built = await environments.build(manifest, python, wheel)
    assert swept == [0]
    assert (built.site / "sample" / "__init__.py").read_bytes() == b"plugin = 1\n"
    assert [path.name for path in environments.root.iterdir()] == [built.key]
    assert Environments(environments.root).sweep() == 0


@pytest.mark.parametrize("lost", ["sample/__init__.py", "sample-1.0.dist-info/METADATA"])
async def test_an_environment_that_lost_a_file_while_it_was_built_is_none(
    environments: Environments, package: Any, python: str, lost: str,
    after_the_install: Callable[[Callable[[], None]], None],
) -> None:  # fmt: skip
    manifest, wheel = package

    def remove() -> None:
        (site,) = environments.root.glob("*/environment/site")
        (site / lost).unlink()

    after_the_install(remove)
    with pytest.raises(CapacityError, match=f"somebody removed {lost} from .* while it was built") as caught:
        await environments.build(manifest, python, wheel)
    assert "tried again by itself" in caught.value.hint
    assert await environments.find(manifest, python) is None
    assert list(environments.root.iterdir()) == []
    await environments.build(manifest, python, wheel)


async def test_files_of_a_data_folder_are_looked_for_where_they_are_installed(
    environments: Environments, tmp_path: Path, write_plugin: Callable[..., Manifest], python: str
) -> None:
    data = {"sample-1.0.data/scripts/tool": b"#!python\npass\n", "sample-1.0.data/data/share/text": b"a"}
    manifest = write_plugin(tmp_path / "p", files={"sample/__init__.py": b"plugin = 1\n", **data})
    built = await environments.build(manifest, python, lambda digest: blob_path(tmp_path / "p", digest))
    assert (built.site / "bin" / "tool").is_file()
    assert (built.site / "share" / "text").read_bytes() == b"a"


async def test_wheels_that_went_while_they_were_installed_are_no_fault_of_the_package(
    environments: Environments, package: Any, python: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest, wheel = package
    run_tool = environment_build.run_tool

    async def without_wheels(*arguments: Any, **more: Any) -> Any:
        for link in environments.root.glob("*/wheels/*"):
            link.unlink()
        return await run_tool(*arguments, **more)

    monkeypatch.setattr(environment_build, "run_tool", without_wheels)
    with pytest.raises(CapacityError, match="somebody removed"):
        await environments.build(manifest, python, wheel)


async def test_no_room_for_the_environment_is_no_fault_of_the_package(
    environments: Environments, tmp_path: Path, write_plugin: Callable[..., Manifest], python: str,
    full_disk: Callable[[int], Any],
) -> None:  # fmt: skip
    manifest = write_plugin(tmp_path / "p", files={"sample/__init__.py": b"plugin = 1\n", "sample/data": bytes(99_999)})
    with full_disk(8192), pytest.raises(CapacityError, match=r"no room below .* to install") as caught:
        await environments.build(manifest, python, lambda digest: blob_path(tmp_path / "p", digest))
    assert "tried again by itself" in caught.value.hint


async def test_time_limit_stops_the_build_and_leaves_nothing(tmp_path: Path, package: Any, python: str) -> None:
    manifest, wheel = package
    environments = Environments(tmp_path / "environments", timeout_s=0.001)
    with pytest.raises(CapacityError, match="did not end within"):
        await environments.build(manifest, python, wheel)
    assert list(environments.root.iterdir()) == []


async def test_missing_blob_is_named(environments: Environments, package: Any, python: str, tmp_path: Path) -> None:
    with pytest.raises(PackageError, match=package[0].blobs[0].name) as caught:
        await environments.build(package[0], python, lambda digest: tmp_path / digest)
    assert caught.value.code == "FETCH_FAILED"


async def test_wheels_for_another_machine_are_refused(environments: Environments, package: Any, python: str) -> None:
    manifest, wheel = package
    blob = manifest.blobs[0].model_copy(update={"name": "sample-1.0-cp311-cp311-win_arm64.whl"})
    with pytest.raises(PackageError, match="its wheels do not install") as caught:
        await environments.build(manifest.model_copy(update={"blobs": (blob,)}), python, wheel)
    assert caught.value.code == "INVALID_PACKAGE"
    assert list(environments.root.iterdir()) == []


async def test_wheel_that_screening_refuses_never_reaches_the_tools(
    environments: Environments, package: Any, python: str, tmp_path: Path
) -> None:
    content = b"no archive"
    (tmp_path / "bad").write_bytes(content)
    bad = Blob(name="bad-1.0-py3-none-any.whl", digest=digest_of(content), size=len(content))
    with pytest.raises(PackageError, match="no readable zip archive"):
        await environments.build(package[0].model_copy(update={"blobs": (bad,)}), python, lambda _: tmp_path / "bad")
    assert not environments.root.exists()


async def test_real_package_imports_and_holds_byte_code(
    environments: Environments, packed: tuple[Manifest, Path], python: str
) -> None:
    manifest, layout = packed
    built = await environments.build(manifest, python, lambda digest: blob_path(layout, digest))
    code = f"import sys; sys.path.insert(0, {str(built.site)!r}); import hotbay_echo; print(hotbay_echo.plugin[1])"
    done = await anyio.run_process([python, "-I", "-S", "-B", "-c", code])
    assert done.stdout == b"b'\\xa4echo'\n"
    assert any(path.name.startswith("__init__") for path in (built.site / "hotbay_echo").rglob("*.pyc"))
    assert not (built.site / ".lock").exists()
