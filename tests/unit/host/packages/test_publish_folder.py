"""Publishing into folders: entries of a watched one, and one layout for all."""

import json
from pathlib import Path

import pytest
from hotbay.errors import InputError, PackageError
from hotbay.packages.layout import blob_path, read_layout
from hotbay.packages.oci import INDEX_MEDIA_TYPE, descriptor, index_bytes
from hotbay.packages.publish import Folder, parse_target
from hotbay.packages.publish_folder import add_entries, add_to_layout
from hotbay.packages.published import read_built
from hotbay.packages.sources.addresses import RegistryReference
from hotbay.store.digests import digest_of


def test_packages_behind_an_index_in_the_index_are_published(make_package, tmp_path: Path) -> None:
    """As image tools write a copy of all platforms."""
    manifest = make_package(tmp_path / "built")
    inner = (tmp_path / "built" / "index.json").read_bytes()
    blob_path(tmp_path / "built", digest_of(inner)).write_bytes(inner)
    outer = index_bytes([descriptor(INDEX_MEDIA_TYPE, digest_of(inner), len(inner))])
    (tmp_path / "built" / "index.json").write_bytes(outer)

    assert [package.manifest for package in read_built(tmp_path / "built")] == [manifest]


def test_a_package_becomes_an_entry_under_its_name(make_package, tmp_path: Path) -> None:
    manifest = make_package(tmp_path / "built", rev=7)

    [done] = add_entries(read_built(tmp_path / "built"), tmp_path / "watched" / "folder")

    entry = tmp_path / "watched" / "folder" / "sample-7-python-cp311-linux-x86_64"
    assert (done.manifest, done.where, done.was_there) == (manifest, str(entry), False)
    assert read_layout(entry) == (manifest,)
    assert [path.name for path in entry.parent.iterdir()] == [entry.name]


def test_the_same_again_changes_nothing(make_package, tmp_path: Path) -> None:
    make_package(tmp_path / "built")
    built = read_built(tmp_path / "built")
    for add, target in ((add_entries, tmp_path / "watched"), (add_to_layout, tmp_path / "layout")):
        add(built, target)
        before = {path: path.stat().st_mtime_ns for path in target.rglob("*")}

        [again] = add(built, target)

        assert (again.was_there, again.sent_bytes) == (True, 0)
        assert {path: path.stat().st_mtime_ns for path in target.rglob("*")} == before


@pytest.mark.parametrize("add", [add_entries, add_to_layout])
def test_a_revision_is_never_given_other_content(add, make_package, tmp_path: Path) -> None:
    one = make_package(tmp_path / "one")
    two = make_package(tmp_path / "two", content=b"other")
    add(read_built(tmp_path / "one"), tmp_path / "target")
    before = sorted(path for path in (tmp_path / "target").rglob("*"))

    with pytest.raises(PackageError, match="another content") as caught:
        add(read_built(tmp_path / "two"), tmp_path / "target")

    assert caught.value.code == "DIGEST_CONFLICT"
    assert one.digest in caught.value.message
    assert two.digest in caught.value.message
    assert sorted(path for path in (tmp_path / "target").rglob("*")) == before


def test_a_layout_takes_more_packages_and_keeps_what_is_there(make_package, tmp_path: Path) -> None:
    one, two = make_package(tmp_path / "one"), make_package(tmp_path / "two", rev=2, content=b"other")
    add_to_layout(read_built(tmp_path / "one"), tmp_path / "layout")
    index = tmp_path / "layout" / "index.json"
    index.write_text(json.dumps(json.loads(index.read_text()) | {"annotations": {"of": "another tool"}}))

    [done] = add_to_layout(read_built(tmp_path / "two"), tmp_path / "layout")

    assert read_layout(tmp_path / "layout") == (one, two)
    assert json.loads(index.read_text())["annotations"] == {"of": "another tool"}
    assert done.sent_bytes > 0
    assert len(read_built(tmp_path / "layout")) == 2


def test_all_packages_of_a_layout_are_published(make_package, tmp_path: Path) -> None:
    one, two = make_package(tmp_path / "one"), make_package(tmp_path / "two", rev=2, content=b"other")
    for name in ("one", "two"):
        add_to_layout(read_built(tmp_path / name), tmp_path / "both")

    add_to_layout(read_built(tmp_path / "both"), tmp_path / "copy")
    entries = add_entries(read_built(tmp_path / "both"), tmp_path / "watched")

    assert read_layout(tmp_path / "copy") == (one, two)
    assert [done.manifest for done in entries] == [one, two]


def test_wheels_that_are_there_are_not_copied_again(make_package, tmp_path: Path) -> None:
    one = make_package(tmp_path / "one", content=b"shared" * 1000)
    two = make_package(tmp_path / "two", rev=2, content=b"shared" * 1000)
    add_to_layout(read_built(tmp_path / "one"), tmp_path / "layout")

    [done] = add_to_layout(read_built(tmp_path / "two"), tmp_path / "layout")

    assert read_layout(tmp_path / "layout") == (one, two)
    assert 0 < done.sent_bytes < 6000


def test_a_folder_of_something_else_is_not_made_a_layout(make_package, tmp_path: Path) -> None:
    make_package(tmp_path / "one")
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "letter").write_text("dear")

    with pytest.raises(InputError, match="something else"):
        add_to_layout(read_built(tmp_path / "one"), tmp_path / "home")


def test_a_project_is_not_a_package_and_says_how_to_make_one(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("")

    with pytest.raises(InputError, match="hotbay pack"):
        read_built(tmp_path)


def test_a_damaged_package_is_not_published(make_package, tmp_path: Path) -> None:
    manifest = make_package(tmp_path / "one", content=b"content")
    blob_path(tmp_path / "one", manifest.blobs[0].digest).write_bytes(b"CONTENT")

    with pytest.raises(PackageError) as caught:
        read_built(tmp_path / "one")
    assert caught.value.code == "DIGEST_MISMATCH"


def test_a_target_is_a_folder_unless_it_can_only_be_a_registry(tmp_path: Path) -> None:
    assert parse_target("out/packages") == Folder(Path("out/packages"))
    assert parse_target("./reg.example/a") == Folder(Path("./reg.example/a"))
    assert parse_target("reg.example/a:1") == RegistryReference("https://reg.example", "a", "1")
    assert parse_target("reg.example/a", as_layout=True) == Folder(Path("reg.example/a"), as_layout=True)
    (tmp_path / "a.b").mkdir()
    assert parse_target(f"{tmp_path}/a.b") == Folder(tmp_path / "a.b")


@pytest.mark.parametrize("text", ["reg.example/UPPER", f"reg.example/a@sha256:{'0' * 64}", "http://reg.example"])
def test_a_registry_that_cannot_be_published_to_is_the_operator_s(text: str) -> None:
    with pytest.raises(InputError, match="as a registry"):
        parse_target(text)
