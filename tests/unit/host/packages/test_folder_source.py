"""What a folder of packages offers at one look, and how its blobs are read."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest
from hotbay.errors import PackageError
from hotbay.packages.layout import NOT_COMPLETE_YET, blob_path
from hotbay.packages.manifest import Manifest
from hotbay.packages.sources.folder import DirectorySource
from hotbay.packages.sources.source import Offer, Scan
from hotbay.store.digests import digest_of

PackageFactory = Callable[..., Manifest]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "watched").mkdir()
    return tmp_path / "watched"


@pytest.fixture
def source(folder: Path) -> DirectorySource:
    return DirectorySource(folder, "local", dev=True)


def look(source: DirectorySource) -> Scan:
    return anyio.run(source.scan)


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
    scan = look(source)
    assert offered(scan) == [("another", 1), ("sample", 2), ("sample", 1)]
    assert scan.offers[2] == Offer(one, "local", str(folder / "sample-r1"), dev=True)
    assert scan.problems == ()


@pytest.mark.parametrize("name", [".hidden", "p~", "p.part", "p.swp", "..2026_01_01"])
def test_temporary_names_are_ignored(
    make_package: PackageFactory, folder: Path, source: DirectorySource, name: str
) -> None:
    make_package(folder / "good")
    (folder / "good").rename(folder / name)
    assert look(source) == Scan()


def test_p18_hidden_and_temporary_files_are_ignored(
    make_package: PackageFactory, folder: Path, source: DirectorySource
) -> None:
    make_package(folder / "p")
    for name in (".DS_Store", "._p.zip", "p.zip.part", "p~", ".p.zip.swp", "README.md", "._p.yaml", ".p.yml"):
        (folder / name).write_bytes(b"\0")
    scan = look(source)
    assert (offered(scan), scan.problems) == ([("sample", 1)], ())


def test_folder_that_is_not_there_is_out_of_reach_and_withdraws_nothing(tmp_path: Path) -> None:
    with pytest.raises(PackageError, match="absent: No such file or directory") as caught:
        look(DirectorySource(tmp_path / "absent", "local"))
    assert (caught.value.code, caught.value.hint[:9]) == ("FETCH_FAILED", "Create it")


def test_broken_package_does_not_hide_its_neighbours(
    make_package: PackageFactory, folder: Path, source: DirectorySource
) -> None:
    make_package(folder / "good")
    broken = make_package(folder / "bad", id="bad", content=b"right")
    blob_path(folder / "bad", broken.blobs[0].digest).write_bytes(b"wrong")
    (folder / "empty").mkdir()
    scan = look(source)
    assert offered(scan) == [("sample", 1)]
    assert sorted(codes(scan)) == ["DIGEST_MISMATCH", NOT_COMPLETE_YET]


def test_name_that_is_no_unicode_is_a_problem_and_hides_nobody(
    make_package: PackageFactory, folder: Path, source: DirectorySource
) -> None:
    """Neither the watcher nor JSON takes such a name."""
    make_package(folder / "good")
    (folder / os.fsdecode(b"bad\xff")).mkdir()
    scan = look(source)
    assert offered(scan) == [("sample", 1)]
    assert "its name is no UTF-8: it is not looked at. Rename it" in str(scan.problems[0])


def test_link_in_a_circle_does_not_hide_its_neighbours(
    make_package: PackageFactory, folder: Path, source: DirectorySource
) -> None:
    make_package(folder / "good")
    (folder / "circle").symlink_to(folder / "circle")
    scan = look(source)
    assert offered(scan) == [("sample", 1)]
    assert ["circle: oci-layout is missing" in str(problem) for problem in scan.problems] == [True]


def test_entry_that_cannot_be_looked_into_is_a_problem_and_stays_offered(
    make_package: PackageFactory, folder: Path, source: DirectorySource
) -> None:
    make_package(folder / "good")
    make_package(folder / "other", id="other", content=b"other")
    look(source)
    # Stands for every error but "not there", permissions for one: the name of a file in it is too long.
    index = folder / "other" / "index.json"
    index.unlink()
    index.symlink_to("x" * 300)
    scan = look(source)
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
            assert offered(look(source)) == [("sample", 1)]
            target = folder / "v2" / path.relative_to(tmp_path / "v2")
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("ab") as opened:
                opened.write(path.read_bytes()[start : start + (8 << 10)])
        assert offered(look(source)) == [("sample", 2), ("sample", 1)]


def test_offer_stays_while_its_entry_is_rewritten_and_goes_with_it(
    make_package: PackageFactory, folder: Path, source: DirectorySource
) -> None:
    manifest = make_package(folder / "p", content=b"content")
    blob = blob_path(folder / "p", manifest.blobs[0].digest)
    before = look(source)
    blob.write_bytes(b"con")
    during = look(source)
    assert during.offers == before.offers
    assert codes(during) == [NOT_COMPLETE_YET]
    blob.write_bytes(b"content")
    assert look(source) == before
    shutil.rmtree(folder / "p")
    assert look(source) == Scan()


def test_entry_that_turns_wrong_is_withdrawn(
    make_package: PackageFactory, folder: Path, source: DirectorySource
) -> None:
    manifest = make_package(folder / "p", content=b"content")
    assert look(source).offers
    blob_path(folder / "p", manifest.blobs[0].digest).write_bytes(b"CONTENT")
    assert (offered(look(source)), codes(look(source))) == ([], ["DIGEST_MISMATCH"])


def test_symlinked_folder_and_entries_are_followed(make_package: PackageFactory, folder: Path, tmp_path: Path) -> None:
    make_package(tmp_path / "real" / "p")
    (folder / "p").symlink_to(tmp_path / "real" / "p")
    (folder / "dangling").symlink_to(tmp_path / "nowhere")
    (tmp_path / "link").symlink_to(folder)
    scan = look(DirectorySource(tmp_path / "link", "local"))
    assert offered(scan) == [("sample", 1)]
    assert scan.problems == ()


def test_kubernetes_volume_is_read_through_its_links(
    make_package: PackageFactory, folder: Path, source: DirectorySource
) -> None:
    make_package(folder / "..2026_01" / "p", rev=1)
    (folder / "..data").symlink_to("..2026_01")
    (folder / "p").symlink_to("..data/p")
    assert offered(look(source)) == [("sample", 1)]
    make_package(folder / "..2026_02" / "p", rev=2)
    (folder / "..data_tmp").symlink_to("..2026_02")
    (folder / "..data_tmp").rename(folder / "..data")
    assert offered(look(source)) == [("sample", 2)]


def test_pipe_in_the_place_of_a_blob_does_not_block(
    make_package: PackageFactory, folder: Path, source: DirectorySource
) -> None:
    manifest = make_package(folder / "p")
    blob = blob_path(folder / "p", manifest.blobs[0].digest)
    blob.unlink()
    os.mkfifo(blob)
    assert (offered(look(source)), codes(look(source))) == ([], ["FETCH_FAILED"])


async def read(
    source: DirectorySource, offer: Offer, start: int, validator: str | None
) -> tuple[int, bytes, str | None]:
    opened = source.open_blob(offer.location, offer.manifest.blobs[0], start=start, validator=validator)
    async with opened as stream:
        return stream.start, b"".join([chunk async for chunk in stream.chunks]), stream.validator


@pytest.mark.parametrize(("start", "found"), [(0, b"content"), (3, b"tent"), (7, b""), (8, b"content")])
def test_blob_is_read_from_any_byte_on(
    make_package: PackageFactory, folder: Path, source: DirectorySource, start: int, found: bytes
) -> None:
    make_package(folder / "p")
    (offer,) = look(source).offers
    begun, content, validator = anyio.run(read, source, offer, start, None)
    assert (begun, content) == (start if start <= 7 else 0, found)
    assert anyio.run(read, source, offer, start, validator) == (begun, content, validator)


def test_blob_that_was_replaced_is_read_from_its_beginning(
    make_package: PackageFactory, folder: Path, source: DirectorySource
) -> None:
    make_package(folder / "p")
    (offer,) = look(source).offers
    _, _, validator = anyio.run(read, source, offer, 0, None)
    path = blob_path(folder / "p", offer.manifest.blobs[0].digest)
    path.rename(path.with_suffix(".old"))
    path.write_bytes(b"CONTENT")
    assert anyio.run(read, source, offer, 3, validator)[:2] == (0, b"CONTENT")


def test_blob_that_is_gone_is_a_failed_fetch_worth_another_attempt(
    make_package: PackageFactory, folder: Path, source: DirectorySource
) -> None:
    make_package(folder / "p")
    (offer,) = look(source).offers
    assert source.local_path(offer.location, offer.manifest.blobs[0]) is not None
    shutil.rmtree(folder / "p")
    with pytest.raises(PackageError) as caught:
        anyio.run(read, source, offer, 0, None)
    assert (caught.value.code, caught.value.details["retryable"]) == ("FETCH_FAILED", True)
    assert source.local_path(offer.location, offer.manifest.blobs[0]) is None


@pytest.mark.parametrize("whole", [True, False])
def test_index_for_many_platforms_offers_what_is_whole(
    make_package: PackageFactory, folder: Path, source: DirectorySource, whole: bool
) -> None:
    """Two builds in one layout, the second behind an index of its own as registries have them."""
    make_package(folder / "p")
    other = make_package(folder.parent / "other", platform="python-cp312-linux-x86_64", content=b"other")
    nested = (folder.parent / "other" / "index.json").read_bytes()
    for path in (folder.parent / "other" / "blobs" / "sha256").iterdir():
        if whole or path != blob_path(folder.parent / "other", other.blobs[0].digest):
            shutil.copy(path, folder / "p" / "blobs" / "sha256")
    blob_path(folder / "p", digest_of(nested)).write_bytes(nested)
    index = json.loads((folder / "p" / "index.json").read_bytes())
    entry = {"mediaType": index["mediaType"], "digest": digest_of(nested), "size": len(nested)}
    index["manifests"].append(entry)
    (folder / "p" / "index.json").write_text(json.dumps(index))
    scan = look(source)
    assert [offer.manifest.platform[7:12] for offer in scan.offers] == (["cp311", "cp312"] if whole else ["cp311"])
    assert codes(scan) == ([] if whole else [NOT_COMPLETE_YET])


@pytest.mark.parametrize("others", [999, 1000, 1002])
def test_more_entries_than_are_looked_at_are_counted_and_the_newest_are_kept(
    make_package: PackageFactory, folder: Path, source: DirectorySource, others: int
) -> None:
    for n in range(others):
        entry = folder / f"a{n:04d}"
        entry.mkdir()
        os.utime(entry, (1_000_000_000, 1_000_000_000 + n))
    make_package(folder / "z-the-newest")
    scan = look(source)
    assert offered(scan) == [("sample", 1)]
    told = [problem for problem in scan.problems if "are looked at" in problem.message]
    if others < 1000:
        assert told == []
        return
    (problem,) = told
    left_out = others - 999
    assert problem.message.startswith(f"{others + 1} entries")
    assert f"{left_out} left out" in problem.message
    assert "Move" in problem.hint
    unseen = {f"a{n:04d}" for n in range(left_out)}
    seen = {Path(problem.place.file).name for problem in scan.problems if problem.place is not None}
    assert not unseen & seen, "those that were changed longest ago are the ones that are left out"
    assert f"a{left_out:04d}" in seen
