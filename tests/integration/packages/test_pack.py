"""`hotbay pack` with the real build tools: reproducible packages, and errors that a plugin's author can act on."""

from pathlib import Path
from zipfile import ZipFile

import pytest
from hotbay.errors import HostError, InputError, PackageError
from hotbay.packages.layout import blob_path, read_layout
from hotbay.packages.manifest import Channel, Manifest, host_platform
from hotbay.packages.pack import pack, pack_command
from hotbay.store.digests import digest_of

pytestmark = [pytest.mark.process, pytest.mark.timeout(120)]
REV = 7


def tree(root: Path) -> dict[str, str]:
    return {str(path.relative_to(root)): digest_of(path.read_bytes()) for path in root.rglob("*") if path.is_file()}


def test_manifest_says_what_the_project_says(packed: tuple[Manifest, Path]) -> None:
    manifest, layout = packed
    assert read_layout(layout) == (manifest,)
    assert (manifest.id, manifest.publisher, manifest.rev, manifest.version) == ("echo", "tests", REV, "0.1.0")
    assert (manifest.channel, manifest.license, manifest.platform) == (Channel.RELEASE, "Apache-2.0", host_platform())
    assert (manifest.types, manifest.entrypoint) == (("echo-scorer",), "hotbay_echo:plugin")
    assert [blob.name.split("-")[0] for blob in manifest.blobs] == ["hotbay_plugin_echo", "hotbay_sdk", "msgpack"]


def test_packing_again_gives_equal_bytes_but_for_the_revision(
    packed: tuple[Manifest, Path], project: Path, wheel_directory: Path, tmp_path: Path
) -> None:
    for path in project.rglob("*"):
        path.touch()
    again = pack_command(project, tmp_path / "again", REV, wheel_directory)
    assert again.digest == packed[0].digest
    assert tree(tmp_path / "again") == tree(packed[1])
    other = pack_command(project, tmp_path / "again", REV + 1, wheel_directory)
    assert other.digest != packed[0].digest
    assert other.blobs == packed[0].blobs


def refused(project: Path, wheel_directory: Path, *, rev: int | None = REV) -> HostError:
    out = project.parent / "out"
    with pytest.raises(HostError) as caught:
        pack_command(project, out, rev, wheel_directory)
    assert not out.exists()
    assert caught.value.hint
    return caught.value


def edit(project: Path, name: str, old: str, new: str) -> None:
    text = (project / name).read_text()
    assert old in text
    (project / name).write_text(text.replace(old, new))


def test_release_needs_a_revision(project: Path, wheel_directory: Path) -> None:
    error = refused(project, wheel_directory, rev=None)
    assert isinstance(error, InputError)
    assert "a release needs a revision" in error.message
    assert "--rev" in error.hint


@pytest.mark.anyio
async def test_dev_revision_is_the_time_by_default(project: Path, wheel_directory: Path, tmp_path: Path) -> None:
    edit(project, "pyproject.toml", '"release"', '"dev"')
    manifest = await pack(project, tmp_path / "a", wheel_directory=wheel_directory)
    assert 30_000_000 < manifest.rev < 2**40


@pytest.mark.parametrize("rev", [-1, 2**64])
def test_revision_out_of_range_is_refused(project: Path, wheel_directory: Path, rev: int) -> None:
    with pytest.raises(InputError, match="rev must be 0"):
        pack_command(project, project.parent / "out", rev, wheel_directory)


def test_folder_without_a_project_is_named(tmp_path: Path, wheel_directory: Path) -> None:
    error = refused(tmp_path / "absent", wheel_directory)
    assert "absent/pyproject.toml: CONFIG_INVALID: No such file" in error.message


def test_missing_lock_says_how_to_make_one(project: Path, wheel_directory: Path) -> None:
    (project / "requirements.lock").unlink()
    assert f"`hotbay deps {project}`" in refused(project, wheel_directory).hint


def test_lock_that_names_the_sdk_is_refused_with_its_line(project: Path, wheel_directory: Path) -> None:
    text = (project / "requirements.lock").read_text()
    (project / "requirements.lock").write_text(f"hotbay_sdk==0.1.0\n{text}")
    assert "requirements.lock:1: CONFIG_INVALID: names hotbay-sdk" in refused(project, wheel_directory).message


def test_lock_that_misses_a_dependency_is_refused(project: Path, wheel_directory: Path) -> None:
    (project / "requirements.lock").write_text("# nothing\n")
    error = refused(project, wheel_directory)
    assert "hotbay-sdk needs msgpack (expected msgpack>=1.1, found nothing)" in error.message


@pytest.mark.parametrize("lock", ["msgpack==1.2.4\n", f"msgpack==1.2.4 --hash=sha256:{'0' * 64}\n"])
def test_lock_without_hashes_or_with_wrong_ones_fetches_nothing(
    project: Path, wheel_directory: Path, lock: str
) -> None:
    (project / "requirements.lock").write_text(lock)
    error = refused(project, wheel_directory)
    assert (type(error), error.code) == (PackageError, "FETCH_FAILED")
    assert "hash" in error.message.lower()


def test_no_sdk_wheel_is_named(project: Path, tmp_path: Path) -> None:
    (tmp_path / "none").mkdir()
    error = refused(project, tmp_path / "none")
    assert "expected one wheel of hotbay-sdk, found 0" in error.message


def test_entrypoint_outside_the_wheel_is_refused(project: Path, wheel_directory: Path) -> None:
    edit(project, "pyproject.toml", "hotbay_echo:plugin", "hotbay_ekko:plugin")
    error = refused(project, wheel_directory)
    assert (
        "tool.hotbay.entrypoint: hotbay_plugin_echo-0.1.0-py3-none-any.whl holds no module hotbay_ekko" in error.message
    )


def use_setuptools(project: Path) -> None:
    text = (project / "pyproject.toml").read_text()
    start = text.index("[build-system]")
    rest = text[text.index("\n[", start) + 1 :]
    backend = '[build-system]\nrequires = ["setuptools"]\nbuild-backend = "setuptools.build_meta"\n\n'
    (project / "pyproject.toml").write_text(text[:start] + backend + rest)


def test_project_stays_as_it_was_and_deleted_modules_are_not_shipped(
    project: Path, wheel_directory: Path, tmp_path: Path
) -> None:
    """setuptools builds beside the sources, and packs what it finds there."""
    use_setuptools(project)
    stale = project / "build" / "lib" / "hotbay_echo" / "deleted.py"
    stale.parent.mkdir(parents=True)
    stale.write_text("")
    before = tree(project)
    manifest = pack_command(project, tmp_path / "out", REV, wheel_directory)
    assert tree(project) == before
    (own,) = (blob for blob in manifest.blobs if blob.name.startswith("hotbay_plugin_echo"))
    with ZipFile(blob_path(tmp_path / "out", own.digest)) as wheel:
        assert [name for name in wheel.namelist() if "deleted" in name] == []
        assert "hotbay_echo/__init__.py" in wheel.namelist()


def test_build_that_fails_shows_its_last_words(project: Path, wheel_directory: Path) -> None:
    edit(project, "pyproject.toml", '"hatchling.build"', '"hatchling.absent"')
    error = refused(project, wheel_directory)
    assert (type(error), error.code) == (PackageError, "INVALID_PACKAGE")
    assert "the wheel was not built:\n" in error.message
    assert "hatchling.absent" in error.message
