"""What the store reads of a manifest: its blobs or an error, whatever the bytes."""

import json

import pytest
from hotbay.store.digests import digest_of
from hotbay.store.oci_image import NamedBlob, blobs_of, image_of, index_of
from hypothesis import example, given
from hypothesis import strategies as st

BLOBS = st.builds(
    NamedBlob, st.text(max_size=8), st.binary(max_size=4).map(digest_of), st.integers(0, 2**40), st.text(max_size=8)
)


def manifest_of(blobs: list[NamedBlob]) -> bytes:
    named = [{"name": b.name, "digest": b.digest, "size": b.size, "media_type": b.media_type} for b in blobs]
    return json.dumps({"blobs": named}).encode()


@given(st.lists(BLOBS, max_size=5))
def test_blobs_are_read_in_their_order_and_named_by_the_image(blobs: list[NamedBlob]) -> None:
    manifest = manifest_of(blobs)
    assert blobs_of(manifest) == tuple(blobs)
    image = json.loads(image_of(manifest))
    assert image["config"]["digest"] == digest_of(manifest)
    assert [(layer["digest"], layer["size"]) for layer in image["layers"]] == [(b.digest, b.size) for b in blobs]


@given(
    st.one_of(
        st.binary(max_size=40), st.recursive(st.none() | st.text() | st.floats(), st.lists).map(repr).map(str.encode)
    )
)
@example(b"[" * 100_000)
@example(b'{"blobs":[{"name":"a","media_type":"t","size":Infinity,"digest":"sha256:' + b"0" * 64 + b'"}]}')
@example(b'{"blobs":[{"name":"a","media_type":"t","size":1,"digest":"sha256:0"}]}')
@example(b'{"blobs":[{"name":"a","media_type":"t","size":1,"digest":7}]}')
@example(b'{"blobs":7}')
@example(b'{"blobs":[7]}')
@example(b"{}")
def test_other_bytes_are_no_manifest(content: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        blobs_of(content)


@given(st.lists(st.binary(max_size=8), unique=True))
def test_index_does_not_depend_on_the_order(images: list[bytes]) -> None:
    assert index_of(images) == index_of(reversed(images))
