"""What a folder of packages offers at one look."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from hotbay.packages.layout import NOT_COMPLETE_YET, blob_path
from hotbay.packages.manifest import Manifest
from hotbay.packages.sources.directory import DirectorySource, Offer, Scan

PackageFactory = Callable[..., Manifest]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "watched").mkdir()
    return tmp_path / "watched"


@pytest.fixture
def source(folder: Path) -> DirectorySource:
    return DirectorySource(folder, "local", dev=True)


def offered(scan: Scan) -> list[tuple[str, int]]:
    return [(offer.manifest.id, offer.manifest.rev) for offer in scan.offers]


def codes(scan: Scan) -> list[str]:
    return [problem.code for problem in scan.problems]


def test_all_revisions_of_a_plugin_are_offered(
    make_package: PackageFactory, folder: Path, source: DirectorySource
) -> None:
    one = make_package(folder / "sample-r1", rev=1)
    make_package(folder / "sample-r2", rev=2, content=b"two")
    make_package(folder / "another", id="another", content=b"other")
    scan = source.scan()
    assert offered(scan) == [("another", 1), ("sample", 2), ("sample", 1)]
    assert scan.offers[2] == Offer(one, folder / "sample-r1", "local", dev=True)
    assert scan.problems == ()


@pytest.mark.parametrize("name", [".hidden", "p~", "p.part", "p.swp", "..2026_01_01"])
def test_temporary_names_are_ignored(
    make_package: PackageFactory, folder: Path, source: DirectorySource, name: str
) -> None:
    make_package(folder / "good")
    (folder / "good").rename(folder / name)
    assert source.scan() == Scan()


def test_other_files_are_ignored_and_references_are_named(folder: Path, source: DirectorySource) -> None:
    (folder / "README.md").write_text("hello")
    (folder / "elsewhere.yaml").write_text("kind: PackageRef")
    (problem,) = source.scan().problems
    assert "elsewhere.yaml: CONFIG_INVALID: references to packages elsewhere are not supported" in str(problem)


def test_folder_that_is_not_there_is_a_problem_with_a_remedy(tmp_path: Path) -> None:
    scan = DirectorySource(tmp_path / "absent", "local").scan()
    assert scan.offers == ()
    assert "absent: FETCH_FAILED: No such file or directory. Create it" in str(scan.problems[0])


def test_broken_package_does_not_hide_its_neighbours(
    make_package: PackageFactory, folder: Path, source: DirectorySource
) -> None:
    make_package(folder / "good")
    broken = make_package(folder / "bad", id="bad", content=b"right")
    blob_path(folder / "bad", broken.blobs[0].digest).write_bytes(b"wrong")
    (folder / "empty").mkdir()
    scan = source.scan()
    assert offered(scan) == [("sample", 1)]
    assert sorted(codes(scan)) == ["DIGEST_MISMATCH", NOT_COMPLETE_YET]


def test_name_that_is_no_unicode_is_a_problem_and_hides_nobody(
    make_package: PackageFactory, folder: Path, source: DirectorySource
) -> None:
    """Neither the watcher nor JSON takes such a name."""
    make_package(folder / "good")
    (folder / os.fsdecode(b"bad\xff")).mkdir()
    scan = source.scan()
    assert offered(scan) == [("sample", 1)]
    assert "its name is no UTF-8: the folder is not looked at. Rename it" in str(scan.problems[0])


def test_link_in_a_circle_does_not_hide_its_neighbours(
    make_package: PackageFactory, folder: Path, source: DirectorySource
) -> None:
    make_package(folder / "good")
    (folder / "circle").symlink_to(folder / "circle")
    scan = source.scan()
    assert offered(scan) == [("sample", 1)]
    assert ["circle: oci-layout is missing" in str(problem) for problem in scan.problems] == [True]


def test_entry_that_cannot_be_looked_into_is_a_problem_and_stays_offered(
    make_package: PackageFactory, folder: Path, source: DirectorySource
) -> None:
    make_package(folder / "good")
    make_package(folder / "other", id="other", content=b"other")
    source.scan()
    # Stands for every error but "not there", permissions for one: the name of a file in it is too long.
    index = folder / "other" / "index.json"
    index.unlink()
    index.symlink_to("x" * 300)
    scan = source.scan()
    assert offered(scan) == [("other", 1), ("sample", 1)]
    assert codes(scan) == ["FETCH_FAILED"]


def test_u09_half_a_package_is_never_offered(
    make_package: PackageFactory, folder: Path, source: DirectorySource, tmp_path: Path
) -> None:
    """The copy stands still after every 8 KiB, in every order of files that tools use."""
    make_package(folder / "v1", rev=1)
    make_package(tmp_path / "v2", rev=2, content=os.urandom(40 << 10))
    for order in (lambda path: (-len(path.parts), path.name), lambda path: (len(path.parts), path.name)):
        shutil.rmtree(folder / "v2", ignore_errors=True)
        files = sorted((path for path in (tmp_path / "v2").rglob("*") if path.is_file()), key=order)
        pieces = [(path, start) for path in files for start in range(0, path.stat().st_size, 8 << 10)]
        for path, start in pieces:
            assert offered(source.scan()) == [("sample", 1)]
            target = folder / "v2" / path.relative_to(tmp_path / "v2")
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("ab") as opened:
                opened.write(path.read_bytes()[start : start + (8 << 10)])
        assert offered(source.scan()) == [("sample", 2), ("sample", 1)]


def test_offer_stays_while_its_entry_is_rewritten_and_goes_with_it(
    make_package: PackageFactory, folder: Path, source: DirectorySource
) -> None:
    manifest = make_package(folder / "p", content=b"content")
    blob = blob_path(folder / "p", manifest.blobs[0].digest)
    before = source.scan()
    blob.write_bytes(b"con")
    during = source.scan()
    assert during.offers == before.offers
    assert codes(during) == [NOT_COMPLETE_YET]
    blob.write_bytes(b"content")
    assert source.scan() == before
    shutil.rmtree(folder / "p")
    assert source.scan() == Scan()


def test_entry_that_turns_wrong_is_withdrawn(
    make_package: PackageFactory, folder: Path, source: DirectorySource
) -> None:
    manifest = make_package(folder / "p", content=b"content")
    assert source.scan().offers
    blob_path(folder / "p", manifest.blobs[0].digest).write_bytes(b"CONTENT")
    assert (offered(source.scan()), codes(source.scan())) == ([], ["DIGEST_MISMATCH"])


def test_symlinked_folder_and_entries_are_followed(make_package: PackageFactory, folder: Path, tmp_path: Path) -> None:
    make_package(tmp_path / "real" / "p")
    (folder / "p").symlink_to(tmp_path / "real" / "p")
    (folder / "dangling").symlink_to(tmp_path / "nowhere")
    (tmp_path / "link").symlink_to(folder)
    scan = DirectorySource(tmp_path / "link", "local").scan()
    assert offered(scan) == [("sample", 1)]
    assert scan.problems == ()


def test_kubernetes_volume_is_read_through_its_links(
    make_package: PackageFactory, folder: Path, source: DirectorySource
) -> None:
    make_package(folder / "..2026_01" / "p", rev=1)
    (folder / "..data").symlink_to("..2026_01")
    (folder / "p").symlink_to("..data/p")
    assert offered(source.scan()) == [("sample", 1)]
    make_package(folder / "..2026_02" / "p", rev=2)
    (folder / "..data_tmp").symlink_to("..2026_02")
    (folder / "..data_tmp").rename(folder / "..data")
    assert offered(source.scan()) == [("sample", 2)]


def test_pipe_in_the_place_of_a_blob_does_not_block(
    make_package: PackageFactory, folder: Path, source: DirectorySource
) -> None:
    manifest = make_package(folder / "p")
    blob = blob_path(folder / "p", manifest.blobs[0].digest)
    blob.unlink()
    os.mkfifo(blob)
    assert (offered(source.scan()), codes(source.scan())) == ([], ["FETCH_FAILED"])
