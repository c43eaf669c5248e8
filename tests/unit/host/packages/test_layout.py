"""Package folders: what is whole is read, what is being copied is waited for, what is wrong is refused."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hotbay.errors import CapacityError, InputError, PackageError
from hotbay.packages.layout import NOT_COMPLETE_YET, FileDigests, blob_path, read_layout, write_layout
from hotbay.packages.manifest import Manifest
from hotbay.store.digests import digest_of

PackageFactory = Callable[..., Manifest]


def code(layout: Path) -> str:
    with pytest.raises(PackageError) as caught:
        read_layout(layout)
    return caught.value.code


def tree(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_what_was_written_is_read(make_package: PackageFactory, tmp_path: Path) -> None:
    manifest = make_package(tmp_path / "p")
    assert read_layout(tmp_path / "p") == (manifest,)
    assert blob_path(tmp_path / "p", manifest.digest).read_bytes() == manifest.canonical_bytes()
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["p"]


def test_equal_packages_have_equal_bytes(make_package: PackageFactory, tmp_path: Path) -> None:
    make_package(tmp_path / "a")
    make_package(tmp_path / "b")
    assert tree(tmp_path / "a") == tree(tmp_path / "b")


def test_layout_is_the_one_that_image_tools_know(make_package: PackageFactory, tmp_path: Path) -> None:
    manifest = make_package(tmp_path / "p")
    assert json.loads((tmp_path / "p" / "oci-layout").read_bytes()) == {"imageLayoutVersion": "1.0.0"}
    index = json.loads((tmp_path / "p" / "index.json").read_bytes())
    (entry,) = index["manifests"]
    image = json.loads(blob_path(tmp_path / "p", entry["digest"]).read_bytes())
    assert image["artifactType"] == entry["artifactType"] == "application/vnd.hotbay.plugin.v1"
    assert image["config"]["digest"] == manifest.digest
    assert image["layers"][0]["annotations"] == {"org.opencontainers.image.title": manifest.blobs[0].name}
    assert (image["schemaVersion"], index["schemaVersion"]) == (2, 2)


def test_older_package_at_the_same_place_is_replaced(make_package: PackageFactory, tmp_path: Path) -> None:
    make_package(tmp_path / "p", rev=1, content=b"old")
    newer = make_package(tmp_path / "p", rev=2, content=b"new")
    assert read_layout(tmp_path / "p") == (newer,)
    assert len(list((tmp_path / "p" / "blobs" / "sha256").iterdir())) == 3


def test_folder_that_is_no_package_is_not_overwritten(make_package: PackageFactory, tmp_path: Path) -> None:
    (tmp_path / "p").mkdir()
    (tmp_path / "p" / "thesis.txt").write_text("ten years")
    with pytest.raises(InputError, match="exists and is no package"):
        make_package(tmp_path / "p")
    assert tree(tmp_path / "p") == {"thesis.txt": b"ten years"}


@pytest.mark.parametrize("name", ["oci-layout", "index.json", "blobs"])
def test_missing_piece_is_waited_for(make_package: PackageFactory, tmp_path: Path, name: str) -> None:
    make_package(tmp_path / "p")
    (tmp_path / "p" / name).rename(tmp_path / "elsewhere")
    assert code(tmp_path / "p") == NOT_COMPLETE_YET


def test_every_file_cut_anywhere_is_waited_for(make_package: PackageFactory, tmp_path: Path) -> None:
    make_package(tmp_path / "p", content=os.urandom(40))
    for name, content in tree(tmp_path / "p").items():
        for length in {0, 1, len(content) // 2, len(content) - 1}:
            (tmp_path / "p" / name).write_bytes(content[:length])
            assert code(tmp_path / "p") == NOT_COMPLETE_YET, (name, length)
        (tmp_path / "p" / name).write_bytes(content)
    assert read_layout(tmp_path / "p")


def test_wrong_digest_is_refused_naming_the_wheel(make_package: PackageFactory, tmp_path: Path) -> None:
    manifest = make_package(tmp_path / "p", content=b"right")
    blob_path(tmp_path / "p", manifest.blobs[0].digest).write_bytes(b"wrong")
    with pytest.raises(PackageError, match=f"DIGEST_MISMATCH.*{manifest.blobs[0].name}") as caught:
        read_layout(tmp_path / "p")
    assert "ask its publisher" in caught.value.hint


def test_overlong_blob_is_refused(make_package: PackageFactory, tmp_path: Path) -> None:
    manifest = make_package(tmp_path / "p", content=b"right")
    blob_path(tmp_path / "p", manifest.blobs[0].digest).write_bytes(b"right and more")
    assert code(tmp_path / "p") == "LENGTH_MISMATCH"


def test_hb06_edited_manifest_is_refused(make_package: PackageFactory, tmp_path: Path) -> None:
    manifest = make_package(tmp_path / "p")
    path = blob_path(tmp_path / "p", manifest.digest)
    path.write_bytes(path.read_bytes().replace(b"x86_64", b"arm_64"))
    assert code(tmp_path / "p") == "DIGEST_MISMATCH"


def rewrite_image(layout: Path, change: Callable[[dict[str, object]], None]) -> None:
    index = json.loads((layout / "index.json").read_bytes())
    (entry,) = index["manifests"]
    image = json.loads(blob_path(layout, entry["digest"]).read_bytes())
    change(image)
    content = json.dumps(image).encode()
    blob_path(layout, digest_of(content)).write_bytes(content)
    entry.update(digest=digest_of(content), size=len(content))
    (layout / "index.json").write_text(json.dumps(index))


def test_layers_must_be_the_blobs(make_package: PackageFactory, tmp_path: Path) -> None:
    make_package(tmp_path / "p")
    rewrite_image(tmp_path / "p", lambda image: image.update(layers=[]))
    with pytest.raises(PackageError, match="layers are not the manifest's blobs"):
        read_layout(tmp_path / "p")


def test_image_of_something_else_is_refused(make_package: PackageFactory, tmp_path: Path) -> None:
    make_package(tmp_path / "p")
    rewrite_image(tmp_path / "p", lambda image: image["config"].update(mediaType="text/plain"))  # type: ignore[attr-defined]
    assert code(tmp_path / "p") == "INVALID_PACKAGE"


def test_unknown_additions_of_image_tools_are_accepted(make_package: PackageFactory, tmp_path: Path) -> None:
    manifest = make_package(tmp_path / "p")
    rewrite_image(tmp_path / "p", lambda image: image.update(annotations={"org.example": "x"}, subject=None))
    index = json.loads((tmp_path / "p" / "index.json").read_bytes())
    index["annotations"] = {"a": "b"}
    index["manifests"].append({"mediaType": "text/plain", "digest": digest_of(b""), "size": 0})
    (tmp_path / "p" / "index.json").write_text(json.dumps(index))
    assert read_layout(tmp_path / "p") == (manifest,)


@pytest.mark.parametrize("marker", ['{"imageLayoutVersion":"2.0.0"}', "{}"])
def test_layout_of_another_version_is_refused(make_package: PackageFactory, tmp_path: Path, marker: str) -> None:
    make_package(tmp_path / "p")
    (tmp_path / "p" / "oci-layout").write_text(marker)
    assert code(tmp_path / "p") == "INVALID_PACKAGE"


@pytest.mark.parametrize("index", ["[]", "{}", '{"manifests":[]}', '{"manifests":[{"digest":"../../x"}]}', "null"])
def test_index_of_another_form_is_refused(make_package: PackageFactory, tmp_path: Path, index: str) -> None:
    make_package(tmp_path / "p")
    (tmp_path / "p" / "index.json").write_text(index)
    assert code(tmp_path / "p") == "INVALID_PACKAGE"


def test_huge_index_is_not_read(make_package: PackageFactory, tmp_path: Path) -> None:
    make_package(tmp_path / "p")
    os.truncate(tmp_path / "p" / "index.json", 1 << 34)
    assert code(tmp_path / "p") == "INVALID_PACKAGE"


def test_digests_are_computed_once_per_content(make_package: PackageFactory, tmp_path: Path) -> None:
    class Counting(FileDigests):
        hashed = 0

        def _hash(self, descriptor: int) -> object:  # type: ignore[override]
            self.hashed += 1
            return super()._hash(descriptor)

    manifest = make_package(tmp_path / "p", content=b"12345")
    digests = Counting()
    for _ in range(3):
        read_layout(tmp_path / "p", digests=digests)
        digests.forget_unused()
    assert digests.hashed == 1
    blob = blob_path(tmp_path / "p", manifest.blobs[0].digest)
    blob.unlink()
    blob.write_bytes(b"54321")
    with pytest.raises(PackageError, match="DIGEST_MISMATCH"):
        read_layout(tmp_path / "p", digests=digests)


def test_write_layout_cleans_up_when_a_wheel_is_missing(make_package: PackageFactory, tmp_path: Path) -> None:
    manifest = make_package(tmp_path / "p")
    with pytest.raises(CapacityError, match=r"q cannot be written: .*absent: No such file"):
        write_layout(tmp_path / "q", manifest, {manifest.blobs[0].name: Path("/absent")})
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["p"]
