"""OCI documents: what is read of them, and what is refused."""

import json
from pathlib import Path

import pytest
from hotbay.errors import PackageError
from hotbay.packages.layout import blob_path
from hotbay.packages.manifest import ARTIFACT_TYPE
from hotbay.packages.oci import (
    DOCUMENT_LIMIT_BYTES,
    ENTRY_LIMIT_COUNT,
    IMAGE_MEDIA_TYPE,
    INDEX_MEDIA_TYPE,
    check_image,
    descriptor,
    index_bytes,
    parse_image,
    parse_index,
    parse_marker,
)
from hotbay.store.digests import digest_of
from hypothesis import given
from hypothesis import strategies as st

SIZES = st.integers(min_value=0, max_value=2**40)
TYPES = st.sampled_from([IMAGE_MEDIA_TYPE, INDEX_MEDIA_TYPE, "application/json"])
DESCRIPTORS = st.builds(
    descriptor, TYPES, st.binary(max_size=4).map(digest_of), SIZES, st.sampled_from(["", ARTIFACT_TYPE, "other"])
)
ENTRY = {"mediaType": IMAGE_MEDIA_TYPE, "digest": digest_of(b"x"), "size": 1}


@given(st.lists(DESCRIPTORS, max_size=5))
def test_a_written_index_is_read_back(entries: list) -> None:
    assert parse_index(index_bytes(entries), origin="here") == tuple(entries)


@given(st.binary(max_size=60))
def test_any_bytes_are_a_document_or_refused(content: bytes) -> None:
    for parse in (parse_index, parse_image, parse_marker):
        with pytest.raises(PackageError, match="here") as caught:
            parse(content, origin="here")
        assert caught.value.code == "INVALID_PACKAGE"


@pytest.mark.parametrize("count", [0, 1, ENTRY_LIMIT_COUNT])
def test_an_index_may_have_as_many_entries_as_the_limit(count: int) -> None:
    assert len(parse_index(json.dumps({"manifests": [ENTRY] * count}).encode(), origin="here")) == count


def test_an_index_with_one_more_entry_is_refused() -> None:
    content = json.dumps({"manifests": [ENTRY] * (ENTRY_LIMIT_COUNT + 1)}).encode()

    with pytest.raises(PackageError, match="at most 1000"):
        parse_index(content, origin="here")


@pytest.mark.parametrize(("more", "is_taken"), [(0, True), (1, False)])
def test_a_document_is_bounded(more: int, is_taken: bool) -> None:
    content = b'{"manifests":[]}'.ljust(DOCUMENT_LIMIT_BYTES + more)

    if is_taken:
        assert parse_index(content, origin="here") == ()
    else:
        with pytest.raises(PackageError, match="more than"):
            parse_index(content, origin="here")


@pytest.mark.parametrize(
    "change",
    [
        {"digest": "sha512:00"},
        {"digest": "sha256:ABC"},
        {"size": -1},
        {"size": 2**40 + 1},
        {"size": "1"},
        {"mediaType": 1},
    ],
)
def test_an_entry_without_form_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(PackageError, match="manifests"):
        parse_index(json.dumps({"manifests": [ENTRY | change]}).encode(), origin="here")


def test_fields_of_other_tools_are_ignored() -> None:
    content = json.dumps({"manifests": [ENTRY | {"platform": {"os": "linux"}, "urls": ["x"]}], "more": 1}).encode()

    assert parse_index(content, origin="here")[0].digest == ENTRY["digest"]


@pytest.mark.parametrize(
    ("media_type", "artifact_type", "is_worth_it"),
    [
        (IMAGE_MEDIA_TYPE, "", True),
        (IMAGE_MEDIA_TYPE, ARTIFACT_TYPE, True),
        (INDEX_MEDIA_TYPE, "", True),
        (IMAGE_MEDIA_TYPE, "application/other", False),
        ("application/vnd.docker.distribution.manifest.v2+json", "", False),
    ],
)
def test_what_says_that_it_is_something_else_is_not_read(
    media_type: str, artifact_type: str, is_worth_it: bool
) -> None:
    assert descriptor(media_type, digest_of(b"x"), 1, artifact_type).may_be_plugin is is_worth_it


def test_an_image_must_list_the_manifest_s_blobs(make_package, tmp_path: Path) -> None:
    one = make_package(tmp_path / "one")
    two = make_package(tmp_path / "two", content=b"other")
    [entry] = parse_index((tmp_path / "one" / "index.json").read_bytes(), origin="here")
    image = parse_image(blob_path(tmp_path / "one", entry.digest).read_bytes(), origin="here")

    check_image(image, one, origin="here")
    with pytest.raises(PackageError, match="layers"):
        check_image(image, two, origin="here")


def test_the_marker_names_the_version() -> None:
    parse_marker(b'{"imageLayoutVersion":"1.0.0"}', origin="here")
    with pytest.raises(PackageError, match="imageLayoutVersion"):
        parse_marker(b'{"imageLayoutVersion":"2.0.0"}', origin="here")
