"""The store's room: refused before the disk is full, told before that; every bound on both sides."""

import os
from dataclasses import replace
from pathlib import Path

import pytest
from hotbay.errors import CapacityError
from hotbay.store.blobs import BlobStore
from hotbay.store.budget import DiskBudget, DiskUsage, refusal
from hotbay.store.digests import digest_of

USAGE = DiskUsage(
    blob_bytes=500, part_bytes=30, environment_bytes=70, limit_bytes=1000, free_bytes=5000, total_bytes=10_000
)


@pytest.mark.parametrize(("need", "fits"), [(0, True), (400, True), (401, False)])
def test_budget_may_be_reached_and_not_passed(need: int, fits: bool) -> None:
    assert (refusal(USAGE, need) is None) is fits


@pytest.mark.parametrize(("need", "fits"), [(4900, True), (4901, False)])
def test_some_room_stays_free_for_others(need: int, fits: bool) -> None:
    assert (refusal(replace(USAGE, limit_bytes=None), need) is None) is fits


def test_what_stays_free_is_bounded_on_large_disks() -> None:
    assert replace(USAGE, total_bytes=10 << 40).keep_free_bytes == 1 << 30


def test_file_system_without_a_size_has_no_bound() -> None:
    usage = replace(USAGE, limit_bytes=None, free_bytes=0, total_bytes=0)
    assert refusal(usage, 1 << 40) is None
    assert usage.alarms == ()


@pytest.mark.parametrize(("used", "alarms"), [(900, 0), (901, 1)])
def test_nearly_used_budget_is_told(used: int, alarms: int) -> None:
    usage = replace(USAGE, blob_bytes=used, part_bytes=0, environment_bytes=0)
    assert len(usage.alarms) == alarms
    assert replace(usage, limit_bytes=None).alarms == ()


@pytest.mark.parametrize(("free", "alarms"), [(500, 0), (499, 1)])
def test_nearly_full_file_system_is_told(free: int, alarms: int) -> None:
    assert len(replace(USAGE, free_bytes=free).alarms) == alarms


def test_usage_counts_blobs_parts_and_environments(tmp_path: Path) -> None:
    store = BlobStore(tmp_path / "store")
    content = os.urandom(5000)
    store.put_bytes(content, digest_of(content))
    (tmp_path / "store" / "blobs" / "sha256" / "stray").write_bytes(b"not a blob")
    budget = DiskBudget(store, lambda: {"one": 7, "two": 8}, limit_bytes=1 << 40)
    with store.part(digest_of(b"x"), 1 << 20):
        usage = budget.usage()
    assert usage.blob_bytes == 5000
    assert 1 << 20 <= usage.part_bytes < 1 << 21
    assert usage.environment_bytes == 15
    assert usage.free_bytes <= usage.total_bytes


def test_check_room_says_what_to_do(tmp_path: Path) -> None:
    store = BlobStore(tmp_path / "store")
    store.put_bytes(b"12345", digest_of(b"12345"))
    budget = DiskBudget(store, dict, limit_bytes=10)
    budget.check_room(5)
    with pytest.raises(
        CapacityError, match=r"no room for 6 bytes .* limits.store allows 10 bytes, 5 are used"
    ) as caught:
        budget.check_room(6)
    assert caught.value.code == "RESOURCE_EXHAUSTED"
    assert "hotbay gc" in caught.value.hint
    with pytest.raises(CapacityError, match="have to stay free"):
        DiskBudget(store, dict).check_room(1 << 60)
