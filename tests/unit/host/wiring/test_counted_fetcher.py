"""Fetches are counted by how they ended, and the bytes that came from sources by themselves."""

from collections.abc import Callable
from pathlib import Path

import pytest
from hotbay.depot import CountedFetcher
from hotbay.errors import PackageError
from hotbay.observe.metrics import Metrics
from hotbay.packages.package_blobs import Progress
from hotbay.store.digests import digest_of
from hotbay.store.world.records import ManifestRef

REF = ManifestRef("sample", 1, "any", digest_of(b"m"), "test", "", b"")


class Fetching:
    """Reports what it is given, then ends as it is given."""

    def __init__(self, *steps: tuple[str, int], error: PackageError | None = None) -> None:
        self.steps = steps
        self.error = error

    async def fetch(self, ref: ManifestRef, *, report: Callable[[Progress], None]) -> Path:
        for phase, done in self.steps:
            report(Progress(ref.plugin_id, ref.digest, phase, done, 100))
        if self.error is not None:
            raise self.error
        return Path("site")


async def fetch(fetching: Fetching) -> tuple[Metrics, list[int]]:
    metrics, seen = Metrics(), []
    counted = CountedFetcher(fetching, metrics)
    try:
        assert await counted.fetch(REF, report=lambda p: seen.append(p.bytes_done)) == Path("site")
    except PackageError:
        assert fetching.error is not None
    return metrics, seen


@pytest.mark.anyio
async def test_bytes_that_were_there_before_are_not_counted():
    metrics, seen = await fetch(Fetching(("fetch", 40), ("fetch", 70), ("fetch", 100), ("complete", 100)))
    assert dict(metrics.fetched_bytes.items()) == {("sample",): 60}
    assert dict(metrics.fetches.items()) == {("sample", "complete"): 1}
    assert seen == [40, 70, 100, 100]


@pytest.mark.anyio
async def test_a_package_that_was_complete_is_no_fetch():
    metrics, _ = await fetch(Fetching(("complete", 100)))
    assert dict(metrics.fetches.items()) == {}


@pytest.mark.anyio
async def test_a_fetch_that_failed_is_counted_by_its_code():
    metrics, _ = await fetch(Fetching(("fetch", 0), ("fetch", 10), error=PackageError("FETCH_FAILED", "gone")))
    assert dict(metrics.fetches.items()) == {("sample", "FETCH_FAILED"): 1}
    assert dict(metrics.fetched_bytes.items()) == {("sample",): 10}
