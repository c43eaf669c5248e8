"""Parts: what was fetched is kept and checked again, and what is wrong is dropped; one writer at a time."""

import errno
import os
import random
import shutil
import threading
from pathlib import Path

import pytest
from hotbay.errors import CapacityError, PackageError
from hotbay.store.blobs import BlobStore
from hotbay.store.digests import digest_of, hex_of
from hotbay.store.parts import PartFile
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test

CONTENT = random.Random(1).randbytes(5000)
DIGEST = digest_of(CONTENT)
SIZE = len(CONTENT)


@pytest.fixture
def store(tmp_path: Path) -> BlobStore:
    return BlobStore(tmp_path / "store")


def names(store: BlobStore) -> list[str]:
    return sorted(path.suffix for path in (store.root / "parts").iterdir())


def leave(store: BlobStore, count: int, validator: str | None = None) -> None:
    """An attempt that ends after this many bytes."""
    with store.part(DIGEST, SIZE) as part:
        part.restart(validator)
        part.write(CONTENT[:count])


def progress(store: BlobStore) -> Path:
    return store.root / "parts" / f"{hex_of(DIGEST)}.progress"


def part_path(store: BlobStore) -> Path:
    return store.root / "parts" / f"{hex_of(DIGEST)}.part"


def test_new_part_is_empty_and_has_its_room(store: BlobStore) -> None:
    with store.part(DIGEST, SIZE) as part:
        assert (part.offset, part.validator, part.present) == (0, None, False)
        found = part_path(store).stat()
        assert found.st_size == SIZE
        assert found.st_blocks * 512 >= SIZE
        part.write(CONTENT)
        part.finish()
    assert store.read(DIGEST) == CONTENT
    assert store.path(DIGEST).stat().st_mode & 0o777 == 0o444
    assert names(store) == []


@pytest.mark.parametrize("validator", [None, '"etag"', 'W/"\u00e9\U0001f600\\n"', "x" * 512])
def test_attempt_goes_on_where_the_last_one_ended(store: BlobStore, validator: str | None) -> None:
    leave(store, 1234, validator)
    assert part_path(store).stat().st_size == 1234, "room that is not needed meanwhile is given back"
    with store.part(DIGEST, SIZE) as part:
        assert (part.offset, part.validator) == (1234, validator)
        part.write(CONTENT[1234:])
        part.finish()
    assert store.read(DIGEST) == CONTENT
    assert names(store) == []


def test_overlong_validator_is_not_kept(store: BlobStore) -> None:
    leave(store, 10, "x" * 513)
    with store.part(DIGEST, SIZE) as part:
        assert (part.offset, part.validator) == (10, None)


def test_shorter_validator_replaces_a_longer_one(store: BlobStore) -> None:
    leave(store, 10, "x" * 500)
    leave(store, 20, "y")
    with store.part(DIGEST, SIZE) as part:
        assert (part.offset, part.validator) == (20, "y")


def test_attempt_without_bytes_leaves_nothing(store: BlobStore) -> None:
    leave(store, 0, "etag")
    assert names(store) == []


def test_part_of_a_blob_that_is_here_has_nothing_to_write(store: BlobStore) -> None:
    leave(store, 10)
    store.put_bytes(CONTENT, DIGEST)
    with store.part(DIGEST, SIZE) as part:
        assert part.present
    assert names(store) == []


def test_missing_bytes_are_told_and_the_others_kept(store: BlobStore) -> None:
    with store.part(DIGEST, SIZE) as part:
        part.write(CONTENT[:-1])
        with pytest.raises(PackageError, match=f"expected {SIZE} bytes, found {SIZE - 1}") as caught:
            part.finish()
        assert caught.value.code == "LENGTH_MISMATCH"
    with store.part(DIGEST, SIZE) as part:
        assert part.offset == SIZE - 1


def test_bytes_beyond_the_size_drop_all(store: BlobStore) -> None:
    with store.part(DIGEST, SIZE) as part:
        part.write(CONTENT)
        with pytest.raises(PackageError, match="found more") as caught:
            part.write(b"x")
        assert caught.value.code == "LENGTH_MISMATCH"
        assert "resumed_at" not in caught.value.details
        assert part.offset == 0
    assert names(store) == []


def test_wrong_bytes_of_one_attempt_are_dropped_naming_both_digests(store: BlobStore) -> None:
    wrong = b"x" + CONTENT[1:]
    with store.part(DIGEST, SIZE) as part:
        part.write(wrong)
        with pytest.raises(PackageError) as caught:
            part.finish()
    assert caught.value.code == "DIGEST_MISMATCH"
    assert caught.value.details == {"digest": DIGEST, "expected": DIGEST, "found": digest_of(wrong)}
    assert not store.has(DIGEST)
    assert names(store) == []


def test_wrong_bytes_of_two_attempts_say_so_and_the_part_goes_on_from_the_start(store: BlobStore) -> None:
    leave(store, 100)
    with store.part(DIGEST, SIZE) as part:
        part.write(bytes(SIZE - 100))
        with pytest.raises(PackageError, match="DIGEST_MISMATCH") as caught:
            part.finish()
        assert caught.value.details["resumed_at"] == 100
        assert caught.value.details["retryable"] is True
        part.write(CONTENT)
        part.finish()
    assert store.read(DIGEST) == CONTENT


def test_bytes_that_changed_on_the_disk_are_noticed(store: BlobStore) -> None:
    """As after a power cut: the progress is ahead of the bytes."""
    leave(store, 4000)
    with part_path(store).open("r+b") as opened:
        opened.seek(2000)
        opened.write(bytes(2000))
    with store.part(DIGEST, SIZE) as part:
        part.write(CONTENT[4000:])
        with pytest.raises(PackageError) as caught:
            part.finish()
    assert caught.value.details["resumed_at"] == 4000
    assert not store.has(DIGEST)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"12",
        b"0" * 19 + b"\nnull\n",
        b"0" * 18 + b"10\nnull",
        b"0" * 18 + b"10null\n",
        b"0" * 18 + b"10\n[]\n",
        b"0" * 18 + b'10\n"\n',
        b"-" + b"0" * 17 + b"10\nnull\n",
        b"0" * 16 + b"5001\nnull\n",
        b"0" * 18 + b"11\nnull\n",
        b"\xff" * 40,
    ],
)
def test_progress_that_says_nothing_of_use_starts_over(store: BlobStore, content: bytes) -> None:
    leave(store, 10)
    progress(store).write_bytes(content)
    with store.part(DIGEST, SIZE) as part:
        assert (part.offset, part.validator) == (0, None)
        part.write(CONTENT)
        part.finish()


@given(st.binary(max_size=60))
def test_any_progress_gives_an_offset_that_the_bytes_bear_out(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    store = BlobStore(tmp_path_factory.mktemp("store"))
    leave(store, 10)
    progress(store).write_bytes(content)
    with store.part(DIGEST, SIZE) as part:
        assert part.offset <= 10
        part.write(CONTENT[part.offset :])
        part.finish()
    assert store.read(DIGEST) == CONTENT
    shutil.rmtree(store.root)


def test_other_declared_size_starts_over(store: BlobStore) -> None:
    leave(store, 4000)
    with store.part(DIGEST, 3000) as part:
        assert part.offset == 0
        assert part_path(store).stat().st_size == 3000


def test_part_that_a_crash_left_whole_and_read_only_is_taken_up(store: BlobStore) -> None:
    leave(store, SIZE)
    part_path(store).chmod(0o444)
    with store.part(DIGEST, SIZE) as part:
        part.write(CONTENT[part.offset :])
        part.finish()
    assert store.read(DIGEST) == CONTENT


def test_folder_that_may_not_be_written_is_said_and_not_asked_for_ever(
    store: BlobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = os.open

    def refuse(path: Path, flags: int, mode: int = 0o777) -> int:
        """As for a user who is not root."""
        if flags & os.O_CREAT:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return opened(path, flags, mode)

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(PermissionError), store.part(DIGEST, SIZE):
        pass


def test_size_that_no_disk_has_is_refused_and_keeps_what_is_there(store: BlobStore) -> None:
    leave(store, 10, "etag")
    with pytest.raises(CapacityError, match="no room") as caught, store.part(DIGEST, 1 << 60):
        pass
    assert caught.value.code == "RESOURCE_EXHAUSTED"
    with store.part(DIGEST, SIZE) as part:
        assert (part.offset, part.validator) == (10, "etag")


def test_second_writer_is_told_or_waits_and_goes_on_from_the_first(store: BlobStore) -> None:
    offsets: list[int] = []
    started = threading.Event()

    def second() -> None:
        started.set()
        with store.part(DIGEST, SIZE) as part:
            offsets.append(part.offset)

    waiting = threading.Thread(target=second)
    with store.part(DIGEST, SIZE) as part:
        part.write(CONTENT[:50])
        with pytest.raises(CapacityError, match="UNAVAILABLE"), store.part(DIGEST, SIZE, wait=False):
            pass
        waiting.start()
        assert started.wait(25)
        part.write(CONTENT[50:70])
    waiting.join(25)
    assert offsets == [70]


def test_second_writer_finds_the_work_done(store: BlobStore) -> None:
    found: list[bool] = []

    def second() -> None:
        with store.part(DIGEST, SIZE) as part:
            found.append(part.present)

    waiting = threading.Thread(target=second)
    with store.part(DIGEST, SIZE) as part:
        waiting.start()
        part.write(CONTENT)
        part.finish()
    waiting.join(25)
    assert found == [True]
    assert names(store) == []


def test_sweep_keeps_what_can_be_taken_up(store: BlobStore) -> None:
    leave(store, 10)
    (store.root / "parts" / f"{'1' * 64}.part").write_bytes(b"no progress")
    (store.root / "parts" / f"{'2' * 64}.progress").write_bytes(b"no part")
    assert store.sweep() == 1
    assert [path.stem for path in (store.root / "parts").iterdir()] == [hex_of(DIGEST)] * 2


def test_sweep_removes_all_but_what_is_to_be_kept_and_what_is_being_written(store: BlobStore) -> None:
    leave(store, 10)
    other = digest_of(b"other")
    with store.part(other, 5) as part:
        part.write(b"oth")
        assert store.sweep(keep={DIGEST}) == 0
        assert store.sweep(keep=()) == 1
        part.write(b"er")
        part.finish()
    assert store.read(other) == b"other"
    assert names(store) == []


class PartMachine(RuleBasedStateMachine):
    """Attempts that end anywhere, against a byte string; a source may have other content at any time."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        shutil.rmtree(folder, ignore_errors=True)
        self._store = BlobStore(folder)
        self._bytes = b""
        self._validator: str | None = None
        self._part: PartFile | None = None

    @precondition(lambda self: self._part is None)
    @rule()
    def begin(self) -> None:
        self._part = self._store.part(DIGEST, SIZE).__enter__()
        assert self._part.offset == len(self._bytes)
        assert self._part.validator == self._validator

    @precondition(lambda self: self._part is not None)
    @rule()
    def end(self) -> None:
        assert self._part is not None
        self._part.__exit__(None, None, None)
        self._part = None
        self._validator = self._validator if self._bytes else None

    @precondition(lambda self: self._part is not None)
    @rule(validator=st.none() | st.text(max_size=5).filter(bool))
    def restart(self, validator: str | None) -> None:
        assert self._part is not None
        self._part.restart(validator)
        self._bytes, self._validator = b"", validator

    @precondition(lambda self: self._part is not None)
    @rule(count=st.integers(0, 2500), right=st.sampled_from([True, True, True, False]))
    def write(self, count: int, right: bool) -> None:
        assert self._part is not None
        start = len(self._bytes)
        chunk = CONTENT[start : start + count] if right else bytes(count)
        if start + len(chunk) > SIZE:
            with pytest.raises(PackageError, match="LENGTH_MISMATCH"):
                self._part.write(chunk)
            self._bytes, self._validator = b"", None
        else:
            self._part.write(chunk)
            self._bytes += chunk
        assert self._part.offset == len(self._bytes)

    @precondition(lambda self: self._part is not None)
    @rule()
    def finish(self) -> None:
        assert self._part is not None
        if self._bytes == CONTENT:
            self._part.finish()
            assert self._store.read(DIGEST) == CONTENT
            self._store.discard(DIGEST)
            self._part.__exit__(None, None, None)
            self._bytes, self._validator, self._part = b"", None, None
        elif len(self._bytes) < SIZE:
            with pytest.raises(PackageError, match="LENGTH_MISMATCH"):
                self._part.finish()
        else:
            with pytest.raises(PackageError, match="DIGEST_MISMATCH"):
                self._part.finish()
            self._bytes, self._validator = b"", None
        assert not self._store.has(DIGEST)

    def teardown(self) -> None:
        if self._part is not None:
            self._part.__exit__(None, None, None)


@pytest.mark.timeout(120)
def test_any_attempts_store_the_content_or_nothing(tmp_path: Path) -> None:
    run_state_machine_as_test(lambda: PartMachine(tmp_path / "store"))
