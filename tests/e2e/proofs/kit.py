"""What the proofs share: a host as its operators run it, its own word for what happened, load, and kills.

A proof judges by what clients saw and by the host's counters. `--proof-scale` (`make test-slow SCALE=0.1`) scales counts
and times; 1 is what the product is held to.
"""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
from hotbay.cli.admin_client import AdminClient
from hotbay.datalayer.pages.exposition import PageReader

from tests.integration.conftest import (
    Client,
    Load,
    ModelServer,
    Packages,
    plugins_of,
    wait_until,
)

__all__ = [
    "Client", "HostUnderProof", "Killer", "Load", "closed_loop_rate", "end", "end_of", "is_ready", "sampling",
    "serving_address", "wait_until",
]  # fmt: skip

WAIT_S = 60.0
SETTLING_S = 0.05
SETTLING_LOOKS = 10
"""How often, and how many times at most, a count is read until it stands still after a kill."""
LISTENING = "0A"
"""In `/proc/net/tcp`."""
READER = PageReader(
    ["hotbay_degraded_total", "hotbay_mixed_cycles_total", "hotbay_plugin_restarts_total", "hotbay_tasks"]
)


@dataclass
class HostUnderProof:
    """`hotbay run` with its files. `process` is the newest one: hosts take over from each other."""

    folder: Path
    servers: list[ModelServer]
    packages: Packages
    config: Path
    client: Client = field(default_factory=lambda: Client(("127.0.0.1", 0)))
    process: "subprocess.Popen[bytes] | None" = None

    @property
    def source(self) -> Path:
        return self.folder / "packages"

    @property
    def log(self) -> Path:
        return self.folder / "log"

    @property
    def admin(self) -> AdminClient:
        return AdminClient(self.folder / "state" / "admin.sock")

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def start(self, *options: str) -> "subprocess.Popen[bytes]":
        """Start one more host process."""
        with self.log.open("ab") as output:
            command = [Path(sys.executable).with_name("hotbay"), "run", "-c", self.config, *options]
            return subprocess.Popen(command, stdout=output, stderr=output)

    async def ask(self, target: str) -> dict[str, Any]:
        return dict(await anyio.to_thread.run_sync(self.admin.get, target))

    async def tell(self, target: str, arguments: Mapping[str, object]) -> dict[str, Any]:
        return dict(await anyio.to_thread.run_sync(self.admin.post, target, arguments))

    async def row(self, plugin: str = "sample") -> dict[str, Any]:
        """The status row of a plugin."""
        page = await self.ask("/status")
        return next(row for row in page["plugins"] if row["plugin"] == plugin)

    async def wait_row(
        self, holds: Callable[[dict[str, Any]], object], plugin: str = "sample", *, within_s: float = WAIT_S
    ) -> dict[str, Any]:
        """Wait until a plugin's row `holds`; return it."""
        deadline_s = time.monotonic() + within_s
        while not holds(row := await self.row(plugin)):
            assert time.monotonic() < deadline_s, f"{row}\n{self.tail()}"
            await anyio.sleep(0.05)
        return row

    def tail(self) -> str:
        return self.log.read_text(errors="replace")[-4000:]

    async def counters(self) -> Mapping[tuple[str, tuple[tuple[str, str], ...]], float]:
        """The host's counters that judge a proof, by name and labels."""
        answer = await self.client.send(b"GET /metrics")
        assert answer.status == 200, answer
        page = READER.read(answer.text.encode())
        return {
            (name, tuple(sorted(sample.labels.items()))): sample.value
            for name, samples in page.samples.items()
            for sample in samples
        }

    async def degraded(self) -> int:
        return int(sum(v for (name, _), v in (await self.counters()).items() if name == "hotbay_degraded_total"))

    def publish(self, source: str, *, rev: int, plugin: str = "sample", **manifest: Any) -> None:
        """Put a package into the watched folder in one rename."""
        making = self.folder / "making" / f"{plugin}-{rev}"
        self.packages.make(making, source, id=plugin, rev=rev, **manifest)
        making.rename(self.source / f"{plugin}-{rev}")

    def withdraw(self, *, rev: int, plugin: str = "sample") -> None:
        """Take a package out of the watched folder."""
        gone = self.source / f"{plugin}-{rev}"
        if gone.is_dir():
            gone.rename(self.folder / "making" / f"gone-{plugin}-{rev}")

    def plugin_pids(self) -> set[int]:
        return plugins_of(self.pid)

    def vitals(self) -> dict[str, int]:
        """Threads and resident memory of the host; its descriptors, those of TCP connections by themselves."""
        process = Path(f"/proc/{self.pid}")
        resident = int((process / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        connections = _connections(self.pid)
        return {
            "descriptors": len(list((process / "fd").iterdir())) - connections,
            "connections": connections,
            "threads": len(list((process / "task").iterdir())),
            "resident_bytes": resident,
        }

    async def tasks(self) -> int:
        """Tasks of the host's event loop, that of the answer with them."""
        return int((await self.counters())["hotbay_tasks", ()])


def _links(pid: int) -> Iterator[str]:
    """What the descriptors of a process are."""
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        # A descriptor may be closed between the listing and the look.
        with suppress(OSError):
            yield str(entry.readlink())


def _connections(pid: int) -> int:
    """Descriptors of TCP connections; one that listens is none."""
    rows = [line.split() for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]]
    inodes = {f"socket:[{row[9]}]" for row in rows if row[3] != LISTENING}
    return sum(link in inodes for link in _links(pid))


def is_ready(found: HostUnderProof) -> bool:
    assert found.process is not None
    assert found.process.poll() is None, found.tail()
    return " ready plugins=" in found.log.read_text(errors="replace") or "ready plugins=" in found.tail()


async def serving_address(found: HostUnderProof) -> tuple[str, int]:
    """Where the host says that it serves."""
    said = "hotbay serves on http://127.0.0.1:"

    def serves() -> bool:
        assert found.process is not None
        assert found.process.poll() is None, found.tail()
        return said in found.log.read_text(errors="replace")

    await wait_until(serves, within_s=WAIT_S, told=found.tail)
    return "127.0.0.1", int(found.log.read_text(errors="replace").rpartition(said)[2].split()[0])


async def end(process: "subprocess.Popen[bytes]", *, within_s: float = WAIT_S) -> int:
    """SIGTERM and wait; SIGKILL at the deadline. The exit code."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
    try:
        return await anyio.to_thread.run_sync(partial(process.wait, within_s))
    except subprocess.TimeoutExpired:
        process.kill()
        return await anyio.to_thread.run_sync(process.wait)


async def end_of(process: "subprocess.Popen[bytes]", *, within_s: float = WAIT_S) -> int:
    """Wait for a process that goes by itself; its exit code."""
    return await anyio.to_thread.run_sync(partial(process.wait, within_s))


@contextmanager
def sampling(read: Callable[[], int], group: Any, *, every_s: float = 0.05) -> Iterator[list[int]]:
    """Read a number again and again beside the proof; yields the list that grows."""
    seen: list[int] = []
    scope = anyio.CancelScope()

    async def sample() -> None:
        with scope:
            while True:
                seen.append(read())
                await anyio.sleep(every_s)

    group.start_soon(sample)
    try:
        yield seen
    finally:
        scope.cancel()


@dataclass
class Killer:
    """Kills processes of one plugin at random, and counts what was degraded between a kill and its replacement."""

    host: HostUnderProof
    rng: random.Random
    kills: int = 0
    degraded_inside: int = 0
    longest_s: float = 0.0

    async def kill_one(self, plugin: str = "sample") -> None:
        """Kill the live process or the candidate; return when another one is READY, or the candidate is given up."""
        row = await self.host.row(plugin)
        pids = {slot: row[slot]["pid"] for slot in ("live", "candidate") if row.get(slot) and row[slot].get("pid")}
        if not pids:
            return
        slot = self.rng.choice(sorted(pids))
        before = await self.host.degraded()
        began_s = time.monotonic()
        try:
            os.kill(pids[slot], signal.SIGKILL)
        except ProcessLookupError:
            return
        self.kills += 1
        killed = pids[slot]

        def is_over(now: dict[str, Any]) -> bool:
            live, candidate = ((now.get(role) or {}).get("pid") for role in ("live", "candidate"))
            return live is not None and killed not in (live, candidate)

        await self.host.wait_row(is_over, plugin)
        self.longest_s = max(self.longest_s, time.monotonic() - began_s)
        self.degraded_inside += await self._degraded_by(killed) - before

    async def _degraded_by(self, killed: int) -> int:
        """The count once what the killed process had in flight is in it.

        A process that was replaced between the look at it and the signal is over at once by its row, while the host has yet to
        see its end; and what was decided without it is counted when the other plugins have answered, too.
        """
        await wait_until(lambda: killed not in self.host.plugin_pids(), within_s=10, told=self.host.tail)
        counted = await self.host.degraded()
        for _ in range(SETTLING_LOOKS):
            await anyio.sleep(SETTLING_S)
            last, counted = counted, await self.host.degraded()
            if counted == last:
                break
        return counted


async def closed_loop_rate(client: Client, *, clients: int = 8, seconds: float = 3.0) -> float:
    """Requests per second that so many clients get answered, each sending its next when the last is answered."""
    answered = 0
    end_s = time.monotonic() + seconds

    async def one() -> None:
        nonlocal answered
        while time.monotonic() < end_s:
            answer = await client.chat()
            assert answer.status == 200, answer
            answered += 1

    async with anyio.create_task_group() as group:
        for _ in range(clients):
            group.start_soon(one)
    return answered / seconds
