"""The blob store: what is under a blob's name is whole, and completion is recorded last."""

import errno
import hashlib
import os
import shutil
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from hotbay.errors import PackageError
from hotbay.store.blobs import BlobStore
from hotbay.store.budget import DiskBudget
from hotbay.store.digests import Digest, digest_of, hex_of, parse_digest
from hotbay.store.files import open_regular, write_durably
from hypothesis import given, settings
from hypothesis import strategies as st


@dataclass(frozen=True)
class FakeBlob:
    digest: Digest
    size: int


@dataclass(frozen=True)
class FakeManifest:
    blobs: tuple[FakeBlob, ...]

    def canonical_bytes(self) -> bytes:
        return repr(self.blobs).encode()

    @property
    def digest(self) -> Digest:
        return digest_of(self.canonical_bytes())


@pytest.fixture
def store(tmp_path: Path) -> BlobStore:
    return BlobStore(tmp_path / "store")


def parts(store: BlobStore) -> list[Path]:
    return list((store.root / "parts").iterdir())


def manifest_of(*contents: bytes) -> FakeManifest:
    return FakeManifest(tuple(FakeBlob(digest_of(content), len(content)) for content in contents))


def test_stored_bytes_are_read_only_and_leave_no_part(store: BlobStore) -> None:
    content = os.urandom(3 << 20)
    pieces = (content[start : start + (1 << 20)] for start in range(0, len(content), 1 << 20))
    assert store.put_stream(pieces, digest_of(content), len(content)) is True
    assert store.path(digest_of(content)).read_bytes() == content
    assert store.path(digest_of(content)).stat().st_mode & 0o777 == 0o444
    assert parts(store) == []


def test_source_is_not_read_when_the_blob_is_there(store: BlobStore) -> None:
    store.put_bytes(b"here", digest_of(b"here"))
    assert store.put_stream(iter([b"never", pytest.fail]), digest_of(b"here"), 4) is False  # type: ignore[list-item]


def test_store_that_was_deleted_is_made_again_by_the_next_blob(store: BlobStore) -> None:
    store.put_bytes(b"before", digest_of(b"before"))
    for gone in (store.root, store.root / "blobs", store.root / "parts"):
        shutil.rmtree(gone)
        assert store.put_bytes(b"after", digest_of(b"after"))
        assert store.read(digest_of(b"after")) == b"after"
        store.discard(digest_of(b"after"))
    assert not store.has(digest_of(b"before")), "what is missing is fetched again"


def test_store_that_was_deleted_is_empty_to_everybody_who_looks(store: BlobStore) -> None:
    budget = DiskBudget(store, dict)
    store.put_bytes(b"before", digest_of(b"before"))
    shutil.rmtree(store.root)
    assert (store.present(), store.part_bytes(), store.sweep()) == ({}, 0, 0)
    assert budget.usage().blob_bytes == 0
    store.discard(digest_of(b"before"))
    budget.check_room(1)


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"abc", "LENGTH_MISMATCH"),
        (b"abcde", "LENGTH_MISMATCH"),
        (b"abcx", "DIGEST_MISMATCH"),
        (b"", "LENGTH_MISMATCH"),
    ],
)
def test_wrong_bytes_leave_nothing_behind(store: BlobStore, content: bytes, code: str) -> None:
    digest = digest_of(b"abcd")
    with pytest.raises(PackageError) as caught:
        store.put_stream([content], digest, 4)
    assert caught.value.code == code
    assert caught.value.hint
    assert not store.has(digest)
    assert parts(store) == []


def test_overlong_source_is_read_no_further_than_one_chunk(store: BlobStore) -> None:
    taken = 0

    def endless() -> Iterator[bytes]:
        nonlocal taken
        while True:
            taken += 1
            yield b"x" * 10

    with pytest.raises(PackageError, match="LENGTH_MISMATCH"):
        store.put_stream(endless(), digest_of(b"abcd"), 15)
    assert taken == 2


def test_size_zero_is_stored(store: BlobStore) -> None:
    assert store.put_stream([], digest_of(b""), 0)
    assert store.has(digest_of(b""), size=0)


def test_failing_source_removes_the_part(store: BlobStore) -> None:
    def broken() -> Iterator[bytes]:
        yield b"ab"
        raise ConnectionResetError(errno.ECONNRESET, "gone")

    with pytest.raises(ConnectionResetError):
        store.put_stream(broken(), digest_of(b"abcd"), 4)
    assert parts(store) == []


def test_concurrent_writers_of_one_digest_store_it_once(store: BlobStore) -> None:
    content = os.urandom(1 << 20)
    digest = digest_of(content)
    gate = threading.Barrier(8)
    stored: list[bool] = []

    def write() -> None:
        gate.wait(timeout=10)
        stored.append(
            store.put_stream([content[i : i + 4096] for i in range(0, len(content), 4096)], digest, len(content))
        )

    threads = [threading.Thread(target=write) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=10)
    assert sorted(stored) == [False] * 7 + [True]
    assert store.path(digest).read_bytes() == content
    assert parts(store) == []


def test_second_writer_takes_over_when_the_first_fails(store: BlobStore) -> None:
    """The first holds the lock with wrong bytes; the one that waits must not inherit them."""
    digest = digest_of(b"good")
    holding, go_on = threading.Event(), threading.Event()
    outcomes: list[object] = []

    def bad() -> Iterator[bytes]:
        holding.set()
        assert go_on.wait(timeout=10)
        yield b"evil"

    def first() -> None:
        try:
            store.put_stream(bad(), digest, 4)
        except PackageError as error:
            outcomes.append(error.code)

    def second() -> None:
        outcomes.append(store.put_bytes(b"good", digest))

    threads = [threading.Thread(target=first), threading.Thread(target=second)]
    threads[0].start()
    assert holding.wait(timeout=10)
    threads[1].start()
    go_on.set()
    for thread in threads:
        thread.join(timeout=10)
    assert outcomes == ["DIGEST_MISMATCH", True]
    assert store.path(digest).read_bytes() == b"good"


def test_part_left_by_a_crash_is_overwritten(store: BlobStore) -> None:
    digest = digest_of(b"whole")
    (store.root / "parts" / f"{hex_of(digest)}.part").write_bytes(b"who and much more than that")
    assert store.put_bytes(b"whole", digest)
    assert store.path(digest).read_bytes() == b"whole"


def test_sweep_removes_parts_that_nobody_writes(store: BlobStore) -> None:
    (store.root / "parts" / f"{'0' * 64}.part").write_bytes(b"left")
    digest = digest_of(b"abcd")
    swept: list[int] = []

    def while_writing() -> Iterator[bytes]:
        swept.append(store.sweep())
        yield b"abcd"

    assert store.put_stream(while_writing(), digest, 4)
    assert swept == [1]
    assert store.has(digest)


def test_truncated_blob_is_not_there_and_is_replaced(store: BlobStore) -> None:
    digest = digest_of(b"abcd")
    store.put_bytes(b"abcd", digest)
    store.path(digest).chmod(0o600)
    store.path(digest).write_bytes(b"ab")
    assert not store.has(digest, size=4)
    assert store.put_bytes(b"abcd", digest)
    assert store.read(digest) == b"abcd"


def test_read_refuses_damaged_bytes(store: BlobStore) -> None:
    digest = digest_of(b"abcd")
    store.put_bytes(b"abcd", digest)
    store.path(digest).chmod(0o600)
    store.path(digest).write_bytes(b"abcx")
    with pytest.raises(PackageError, match="DIGEST_MISMATCH"):
        store.read(digest)


@pytest.mark.parametrize(("limit", "fits"), [(4, True), (3, False)])
def test_read_is_bounded(store: BlobStore, limit: int, fits: bool) -> None:
    digest = digest_of(b"abcd")
    store.put_bytes(b"abcd", digest)
    if fits:
        assert store.read(digest, limit_bytes=limit) == b"abcd"
    else:
        with pytest.raises(PackageError, match="LENGTH_MISMATCH"):
            store.read(digest, limit_bytes=limit)


def test_open_regular_refuses_pipes_without_blocking(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(PackageError, match="not a regular file"):
        open_regular(tmp_path / "pipe")
    with pytest.raises(PackageError, match="not a regular file"):
        open_regular(tmp_path)


def test_write_durably_replaces_whole(tmp_path: Path) -> None:
    write_durably(tmp_path / "file", b"old")
    write_durably(tmp_path / "file", b"new")
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").read_bytes() == b"new"


@settings(max_examples=20, deadline=None)  # every example syncs a file
@given(st.binary(max_size=300), st.data())
def test_any_split_of_the_stream_stores_the_same(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, data: st.DataObject
) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(content)), max_size=8)))
    chunks = [content[a:b] for a, b in zip([0, *cuts], [*cuts, len(content)], strict=True)]
    store = BlobStore(tmp_path_factory.mktemp("store"))
    assert store.put_stream(chunks, digest_of(content), len(content))
    assert store.path(digest_of(content)).read_bytes() == content


def test_digest_of_names_the_content() -> None:
    assert hex_of(digest_of(b"x")) == hashlib.sha256(b"x").hexdigest()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "sha256:",
        "sha256:" + "0" * 63,
        "sha256:" + "0" * 65,
        "sha256:" + "A" * 64,
        "md5:" + "0" * 64,
        "sha256:" + "0" * 64 + "\n",
    ],
)
def test_parse_digest_refuses(text: str) -> None:
    with pytest.raises(ValueError, match="expected sha256"):
        parse_digest(text)
