"""Downloads that go wrong at every block: nothing incomplete ever runs, and what has come is not fetched again.

A host fetches from a web server of the test, which counts every byte of a package's blobs that it sends. The blob that
faults are done to is some three blocks long, a block being the piece that the host writes to its disk. A version leaves
a letter in a file when its code begins to run: while its bytes are not all there, that file must not be there.

Two faults lose what was on its way: a server that is killed resets its connections, and a host that is killed has not
written the piece that it was gathering. So much may be sent twice, and nothing that the host's status counted as done.
"""

import os
import shutil
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

from tests.e2e.proofs.fault_site import BLOCK_BYTES, BLOCKS, Fault, FaultServer, Request, Site, Version
from tests.e2e.proofs.kit import Client, HostUnderProof, Load, is_ready, serving_address, wait_until
from tests.integration.conftest import Packages, Text

pytestmark = [pytest.mark.slow, pytest.mark.process, pytest.mark.timeout(400), pytest.mark.anyio]

PICKER = """
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
- {name: sample, type: sample-scorer}
- {name: other, type: other-scorer}
schedulingProfiles:
- name: default
  plugins: [{pluginRef: sample}, {pluginRef: other, weight: 0}]
"""
CONFIG = """
swap: {shadow: off, canary: off, guard: off, drain: 5s}
supervise: {restart: {max: 1s}}
bindings: {sample: {deadline: 1s}, other: {deadline: 1s}}
isolation: {level: none}
"""
RATE_PER_S = 40
WAIT_S = 60.0
HB09_S, HB09_AT_LEAST_S = 10.0, 3.0
START_S = 1.0
DISK_BYTES = 64 << 20


# -- a host that downloads ---------------------------------------------------------------------------


@pytest.fixture
async def site(tmp_path: Path, packages: Packages, text: Text) -> AsyncIterator[Site]:
    (tmp_path / "site").mkdir()
    (tmp_path / "made").mkdir()
    server = FaultServer(tmp_path / "site")
    await server.start()
    yield Site(server, packages, tmp_path / "made", text)
    for fault in server.faults.values():
        fault.release(hangs_up=True)
    await server.stop()


@pytest.fixture
def downloading(host: Any, site: Site):  # fixtures by their names
    """downloading(config=""): a host that runs rev 1 of both plugins from the server, as a context."""

    @asynccontextmanager
    async def run(config: str = "") -> AsyncIterator[HostUnderProof]:
        site.offer(site.make(1), site.make(1, plugin="other"))
        async with host(PICKER, CONFIG + config, prepare=lambda _: None, sources=site.source) as running:
            yield running

    return run


def boundaries(scale: float) -> list[int]:
    """The boundaries that a run visits: all of them, from before the first byte on, or some."""
    count = max(2, min(BLOCKS + 1, round((BLOCKS + 1) * scale)))
    return [round(n * BLOCKS / (count - 1)) * BLOCK_BYTES for n in range(count)]


def rev_of(row: dict[str, Any]) -> int:
    return int((row["live"] or {"rev": 0})["rev"])


async def has_run(host: HostUnderProof, version: Version) -> dict[str, Any]:
    """Wait until a version is live; its row."""
    row = await host.wait_row(
        lambda row: rev_of(row) == version.manifest.rev and row["phase"] == "live", within_s=WAIT_S
    )
    assert row["live"]["digest"] == version.manifest.digest
    assert version.starts == 1
    return row


async def is_not_run(host: HostUnderProof, version: Version, live: int) -> None:
    """Nothing of a version ran, and what was live is."""
    row = await host.row()
    assert (rev_of(row), row["live"]["pid"] is not None, version.starts) == (live, True, 0), row
    assert (await host.client.chat()).status == 200


async def error_of(host: HostUnderProof, version: Version, *codes: str) -> None:
    """Wait until the status says that this version's download failed so."""

    def says(row: dict[str, Any]) -> bool:
        error = row["last_error"] or {}
        return error.get("code") in codes and error.get("digest") == version.manifest.digest

    await host.wait_row(says)


# -- faults at every block -------------------------------------------------------------------------


async def test_hb10_a_connection_cut_at_any_block_is_resumed_and_no_byte_is_sent_twice(downloading, site, scale):
    async with downloading() as host:
        for rev, boundary in enumerate(boundaries(scale), 2):
            version = site.make(rev)
            version.fault(Fault(cut_at=boundary))
            site.offer(version)
            await error_of(host, version, "FETCH_FAILED")
            await is_not_run(host, version, rev - 1)
            version.heal()
            await has_run(host, version)
            assert version.sent_bytes == version.wheel.size, [r.headers for r in version.asked]


async def test_a_file_that_ends_at_any_block_is_completed_and_no_byte_is_sent_twice(downloading, site, scale):
    async with downloading() as host:
        for rev, boundary in enumerate(boundaries(scale), 2):
            version = site.make(rev)
            version.fault(Fault(end_at=boundary))
            site.offer(version)
            await error_of(host, version, "FETCH_FAILED", "LENGTH_MISMATCH")
            await is_not_run(host, version, rev - 1)
            version.heal()
            await has_run(host, version)
            assert version.sent_bytes == version.wheel.size, [r.headers for r in version.asked]


async def test_p01_bytes_that_are_wrong_from_any_block_on_never_run(downloading, site, scale):
    """First wrong within one answer, then where a download is resumed: the same name, released again with other bytes."""
    async with downloading() as host:
        for rev, boundary in enumerate(boundaries(scale), 2):
            version = site.make(rev)
            version.fault(Fault(wrong_from=boundary, cut_at=boundary if rev % 2 else None))
            site.offer(version)
            if rev % 2:
                await error_of(host, version, "FETCH_FAILED")
                version.fault(Fault(wrong_from=0))
            await error_of(host, version, "DIGEST_MISMATCH")
            await is_not_run(host, version, rev - 1)
            version.heal()
            await has_run(host, version)
        assert (await host.ask("/quarantine"))["quarantine"] == []


async def test_a_revision_that_is_released_again_during_its_download_is_one_of_the_two(downloading, site, scale):
    async with downloading() as host:
        for rev, boundary in enumerate(boundaries(scale), 2):
            first, second = site.make(rev), site.make(rev, again="again")
            held = first.fault(Fault(hold_at=boundary))
            site.offer(first)
            again = second.fault(Fault(hold_at=boundary))
            await held.held.wait()
            site.offer(second, without=[first])
            await host.wait_row(lambda row: (row["last_error"] or {}).get("code") == "DIGEST_CONFLICT")
            await is_not_run(host, first, rev - 1)
            await is_not_run(host, second, rev - 1)
            held.release()
            again.release()
            row = await host.wait_row(lambda row, rev=rev: rev_of(row) == rev and row["phase"] == "live")
            digests = {first.manifest.digest: first, second.manifest.digest: second}
            chosen = digests.pop(row["live"]["digest"])
            assert (chosen.starts, *(other.starts for other in digests.values())) == (1, 0)
            assert chosen.sent_bytes == chosen.wheel.size


async def test_a_source_that_is_killed_at_any_block_and_comes_back_is_gone_on_with(downloading, site, scale):
    async with downloading() as host:
        for rev, boundary in enumerate(boundaries(scale), 2):
            version = site.make(rev)
            held = version.fault(Fault(hold_at=boundary))
            site.offer(version)
            await held.held.wait()
            await site.server.stop()
            held.release(hangs_up=True)
            version.heal()
            await error_of(host, version, "FETCH_FAILED")
            await is_not_run(host, version, rev - 1)
            await site.server.start()
            await has_run(host, version)
            assert version.sent_bytes <= version.wheel.size + BLOCK_BYTES, [r.headers for r in version.asked]


async def test_hb10_a_host_that_is_killed_at_any_block_goes_on_with_what_it_had(downloading, site, scale):
    async with downloading() as host:
        for rev, boundary in enumerate(boundaries(scale), 2):
            version = site.make(rev)
            held = version.fault(Fault(hold_at=boundary))
            site.offer(version)
            await held.held.wait()
            row = await host.wait_row(
                lambda row, at=boundary, of=version: of.done_bytes(row) > at - BLOCK_BYTES or not at
            )
            done_bytes, asked = version.done_bytes(row), len(version.asked)
            almost = version.fault(Fault(hold_at=version.wheel.size - 1))
            await restart(host)
            held.release(hangs_up=True)
            with anyio.fail_after(WAIT_S):
                await almost.held.wait()
            await is_not_run(host, version, rev - 1)
            almost.release()
            await has_run(host, version)
            assert first_byte(version.asked[asked]) >= done_bytes, version.asked[asked].headers
            assert version.sent_bytes <= version.wheel.size + BLOCK_BYTES
            assert len(version.asked) == asked + 1


async def restart(host: HostUnderProof) -> None:
    """SIGKILL, and a new process on the same state."""
    assert host.process is not None
    host.process.kill()
    await anyio.to_thread.run_sync(host.process.wait)
    host.client.close()
    host.log.rename(host.log.with_name(f"log-{host.process.pid}"))
    host.process = host.start()
    host.client = Client(await serving_address(host))
    await wait_until(lambda: is_ready(host), within_s=WAIT_S, told=host.tail)


def first_byte(request: Request) -> int:
    return int(request.headers.get("range", "bytes=0-").removeprefix("bytes=").rstrip("-"))


# -- a full disk -----------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """The host's state directory on a file system of its own."""
    mount, unmount = shutil.which("mount"), shutil.which("umount")
    if os.geteuid() or mount is None or unmount is None:
        pytest.skip("mounting a small file system needs root")
    folder = tmp_path / "state"
    folder.mkdir()
    options = f"size={DISK_BYTES}"
    made = subprocess.run([mount, "-t", "tmpfs", "-o", options, "tmpfs", folder], capture_output=True, check=False)
    if made.returncode:
        pytest.skip(f"no small file system can be mounted here: {made.stderr.decode().strip()}")
    yield folder
    subprocess.run([unmount, "--lazy", folder], check=True, timeout=60)


async def test_a_full_disk_holds_a_download_back_until_there_is_room(small_disk, downloading, site):
    """The room that a wheel needs is taken before its first byte is asked for."""
    async with downloading() as host:
        filler, version = small_disk / "filler", site.make(2)
        with filler.open("wb") as opened:
            os.posix_fallocate(opened.fileno(), 0, shutil.disk_usage(small_disk).free - version.wheel.size // 2)
        site.offer(version)
        await error_of(host, version, "RESOURCE_EXHAUSTED")
        await is_not_run(host, version, 1)
        assert version.sent_bytes == 0
        filler.unlink()
        await has_run(host, version)
        assert version.sent_bytes == version.wheel.size
        assert (await host.ask("/quarantine"))["quarantine"] == []


# -- beside others ---------------------------------------------------------------------------------


async def test_a_stalled_download_delays_no_other_plugins(downloading, site):
    """With one blob at a time per package: what is counted is counted for each."""
    async with downloading("limits: {fetch_concurrency: 1}\n") as host:
        stalled, other = site.make(2), site.make(2, plugin="other")
        held = stalled.fault(Fault(hold_at=BLOCK_BYTES))
        site.offer(stalled)
        await held.held.wait()
        site.offer(other)
        await host.wait_row(lambda row: rev_of(row) == 2, "other")
        await is_not_run(host, stalled, 1)
        row = await host.row()
        assert row["phase"] == "fetching"
        assert row["progress"]["bytes"] == BLOCK_BYTES
        held.release()
        await has_run(host, stalled)
        assert stalled.sent_bytes == stalled.wheel.size


async def test_hb09_the_live_version_serves_through_a_long_download_and_start(downloading, site, scale):
    """Scaled by `--proof-scale`, but no less than 3 s."""
    lasts_s = max(HB09_AT_LEAST_S, HB09_S * scale)
    async with downloading() as host:
        load = Load(host.client, RATE_PER_S)
        version = site.make(2, endpoint="v2", start=f"time.sleep({START_S})")
        version.fault(Fault(pace_bytes_per_s=version.wheel.size / lasts_s))
        degraded = await host.degraded()
        async with anyio.create_task_group() as group:
            group.start_soon(load.run)
            await load.more(RATE_PER_S)
            began_s = time.monotonic()
            site.offer(version)
            await wait_until(lambda: version.starts, within_s=lasts_s + WAIT_S, told=host.tail)
            begun_s, sent_bytes = time.monotonic(), version.sent_bytes
            before = load.texts()
            await has_run(host, version)
            await load.more(RATE_PER_S)
            load.stop()
        assert begun_s - began_s >= lasts_s * 0.9
        assert sent_bytes == version.wheel.size, "all of it was there before any of it ran"
        assert set(before) == {"v1"}
        assert before["v1"] >= lasts_s * RATE_PER_S * 0.5
        assert load.failed == []
        assert await host.degraded() == degraded
        first = next(answer for answer in load.answers if answer.text == "v2")
        assert first.done_s >= begun_s + START_S * 0.9
