"""Runs a study: every router, three seeds, each before a fresh fleet, and what clients waited.

The routers take turns within a seed, in an order drawn by it. The fleet and the clients have the last CPU, the router the
others' first, as everywhere in these benchmarks.
"""

import asyncio
import json
import os
import random
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.probes import UnavailableError
from benchmarks.routing.fleet import SERVERS
from benchmarks.routing.replay import Replayed, cache_tokens, replay
from benchmarks.routing.routers import Router, running
from benchmarks.routing.trace import Sent, read_window

__all__ = ["SEEDS", "Result", "Setting", "run_study"]

SEEDS: Final = (1, 2, 3)
READY_WITHIN_S: Final = 120.0


@dataclass(frozen=True, slots=True)
class Setting:
    """How much of the trace is replayed, how many times as often as it came, and how fast simulated time goes."""

    count: int = 1000
    rate: float = 1.5
    speed: float = 10.0


@dataclass(frozen=True, slots=True)
class Result:
    """One replay: time to first token in simulated seconds, and the share of the prompts' tokens that caches had."""

    router: str
    seed: int
    requests: int
    failed: int
    mean_s: float
    p50_s: float
    p90_s: float
    end_mean_s: float
    hit_rate: float
    took_s: float


def run_study(
    routers: Sequence[Router],
    trace: Path,
    build: Path,
    *,
    setting: Setting,
    load_cpu: int,
    router_cpu: int,
    progress: Callable[[str], None],
    seeds: Sequence[int] = SEEDS,
) -> tuple[list[Result], Mapping[str, str]]:
    """All results, and why routers are missing, by name."""
    results: list[Result] = []
    missing: dict[str, str] = {}
    for seed in seeds:
        requests = read_window(
            trace, first=(seed - 1) * setting.count, count=setting.count, rate=setting.rate, seed=seed
        )
        order = [router for router in routers if router.name not in missing]
        random.Random(seed).shuffle(order)
        for router in order:
            progress(f"seed {seed}: {router.name}")
            try:
                results.append(_one(router, requests, build, setting, seed, load_cpu, router_cpu))
            except UnavailableError as error:
                missing[router.name] = str(error)
    return results, missing


def _one(
    router: Router,
    requests: Sequence[Sent],
    build: Path,
    setting: Setting,
    seed: int,
    load_cpu: int,
    router_cpu: int,
) -> Result:
    begun_s = time.monotonic()
    with _fleet(setting.speed, seed, load_cpu) as servers:
        port = _free_port()
        own = os.sched_getaffinity(0)
        os.sched_setaffinity(0, {router_cpu})
        try:
            with running(router, build, port, servers) as process:
                os.sched_setaffinity(0, {load_cpu})
                asyncio.run(_wait_ready(port, process))
                before = asyncio.run(cache_tokens(servers))
                answers = asyncio.run(replay(port, requests, setting.speed))
                after = asyncio.run(cache_tokens(servers))
        finally:
            os.sched_setaffinity(0, own)
    looked, found = (now - then for now, then in zip(after, before, strict=True))
    return _result(router, seed, answers, found / looked if looked else 0.0, time.monotonic() - begun_s)


def _result(router: Router, seed: int, answers: Sequence[Replayed], hit_rate: float, took_s: float) -> Result:
    good = [answer for answer in answers if answer.status == 200]
    if not good:
        raise UnavailableError(f"{router.name} answered none of {len(answers)} requests")
    waits = sorted(answer.ttft_s for answer in good)
    return Result(
        router.name,
        seed,
        requests=len(answers),
        failed=len(answers) - len(good),
        mean_s=sum(waits) / len(waits),
        p50_s=waits[len(waits) // 2],
        p90_s=waits[int(len(waits) * 0.9)],
        end_mean_s=sum(answer.end_s for answer in good) / len(good),
        hit_rate=hit_rate,
        took_s=took_s,
    )


@contextmanager
def _fleet(speed: float, seed: int, cpu: int) -> Iterator[list[int]]:
    """The ports of a fresh fleet."""
    command = ["taskset", "-c", str(cpu), sys.executable, "-m", "benchmarks.routing.fleet", str(speed), str(seed)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        ports = json.loads(process.stdout.readline())
        assert len(ports) == SERVERS
        yield ports
    finally:
        process.communicate()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


async def _wait_ready(port: int, process: "subprocess.Popen[bytes]") -> None:
    """Wait until the router answers a request of a few tokens."""
    tiny = [Sent(0.0, "are you there?", 1)]
    try:
        async with asyncio.timeout(READY_WITHIN_S):
            while (await replay(port, tiny, 1.0))[0].status != 200:
                if process.poll() is not None:
                    raise UnavailableError(f"it ended with {process.returncode} before it answered")
                await asyncio.sleep(0.1)
    except TimeoutError:
        raise UnavailableError(f"it answered nothing within {READY_WITHIN_S:g} s") from None
