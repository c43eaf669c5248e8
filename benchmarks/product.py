"""What product figures have in common: real plugin processes of the first-party package, and snapshots of any size.

A bench owns an event loop of its own; a sample runs it until its exchanges are done. Processes are children of
the harness and share its CPU.
"""

import asyncio
import contextlib
import sys
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import anyio
import numpy as np
import uvloop

from benchmarks.probes import Room
from hotbay.datalayer.endpoint import EndpointMetadata, Metrics
from hotbay.datalayer.store import EndpointStore
from hotbay.observe.metrics import Metrics as HostMetrics
from hotbay.packages.layout import read_layout
from hotbay.packages.staging import stage_package
from hotbay.process.launch import STAGE0, LaunchSpec
from hotbay.process.log import LogSink
from hotbay.rollout.instance import Instance, RefSpec, StartOptions
from hotbay.rpc.leases import Generation, Origin
from hotbay.scheduling.plan import Plan, PlanInput, ProfileEntryPlan, ProfileInput, RefPlan, compile_plan
from hotbay.scheduling.request import InferenceRequest
from hotbay.scheduling.router import Router
from hotbay.store.blobs import BlobStore

T = TypeVar("T")

SCORERS = ("queue-scorer", "kv-cache-utilization-scorer", "running-requests-size-scorer")
BODY_BYTES = 1000
"""The prototypes of the goals were measured with requests of 1 kB."""


class Bench:
    """A loop with some plugin processes on it; `run` blocks until the coroutine is done."""

    def __init__(self, room: Room) -> None:
        self._loop = uvloop.new_event_loop()
        self._room = room
        self._instances: list[Instance] = []
        self._watches: list[asyncio.Task[None]] = []

    def run(self, work: Coroutine[object, object, T]) -> T:
        """Run on the bench's loop."""
        return self._loop.run_until_complete(work)

    async def start(self, number: int, scorers: Sequence[str]) -> Generation:
        """A READY process of the package `standard` with these scorers configured."""
        manifest = read_layout(self._room.root / "build" / "packages" / "standard")[0]
        site = await self._site()
        spec = LaunchSpec(
            interpreter=sys.executable,
            stage0=STAGE0,
            environment=str(site),
            entrypoint=manifest.entrypoint,
            working_directory="/",
            level="none",
            label=f"standard#{number}",
        )
        instance = Instance.launch(spec, LogSink(spec.label), lambda _: None)
        self._instances.append(instance)
        self._watches.append(self._loop.create_task(instance.watch()))
        origin = Origin("standard", manifest.version, manifest.rev, str(manifest.digest))
        options = StartOptions()
        generation = await instance.handshake(origin, number, manifest.types, options)
        await instance.configure([RefSpec(name, name, {}) for name in scorers], (), options)
        return generation

    async def _site(self) -> Path:
        layout = self._room.root / "build" / "packages" / "standard"
        store = BlobStore(self._room.build / "state" / "store")
        return await stage_package(store, read_layout(layout)[0], layout, sys.executable)

    async def stop(self) -> None:
        """End all processes."""
        async with anyio.create_task_group() as group:
            for instance in self._instances:
                group.start_soon(instance.kill)
        await asyncio.gather(*self._watches)

    def close(self) -> None:
        """End processes and loop."""
        self.run(self.stop())
        self._loop.close()


@contextmanager
def open_bench(room: Room) -> Iterator[Bench]:
    """A bench that is closed at the end."""
    bench = Bench(room)
    with contextlib.closing(bench):
        yield bench


def snapshot_of(endpoints: int, *, seed: int = 7) -> EndpointStore:
    """A store whose snapshot has so many endpoints with random load."""
    rng = np.random.default_rng(seed)
    store = EndpointStore()
    for index in range(endpoints):
        name = f"server-{index}"
        store.upsert(EndpointMetadata(f"default/{name}", name, "10.0.0.1", 8000))
        metrics = Metrics(
            waiting=float(rng.integers(0, 50)), running=float(rng.integers(0, 50)), kv_usage=float(rng.random())
        )
        store.update_metrics(f"default/{name}", metrics, 0.0)
    store.publish(0.0)
    return store


def request_of(number: int) -> InferenceRequest:
    """A request of 1 kB."""
    prompt = "x" * BODY_BYTES
    return InferenceRequest(
        id=f"r{number}",
        model="m",
        path="/v1/completions",
        headers={},
        body=prompt.encode(),
        payload={"model": "m", "prompt": prompt},
    )


def plan_of(generations: Sequence[Generation]) -> Plan:
    """One profile with every ref of the generations."""
    refs = tuple(
        RefPlan(name, name, "standard", generation, generation.types[name], {})
        for generation in generations
        for name in generation.handles
    )
    profile = ProfileInput("default", tuple(ProfileEntryPlan(ref.name) for ref in refs))
    return compile_plan(1, PlanInput(refs, (profile,), {}))


class Decider:
    """A router over some processes, and a closed loop of decisions through it."""

    def __init__(self, store: EndpointStore, generations: Sequence[Generation]) -> None:
        self.metrics = HostMetrics()
        self.router = Router(store, self.metrics, seed=1)
        self.router.publish(plan_of(generations))

    async def decide(self, count: int, in_flight: int) -> list[float]:
        """Make `count` decisions, `in_flight` at a time; return each one's time in seconds."""
        loop = asyncio.get_running_loop()
        finished = loop.create_future()
        times: list[float] = []
        started = 0

        def start() -> None:
            nonlocal started
            started += 1
            begun = time.perf_counter()

            def done(_: object) -> None:
                times.append(time.perf_counter() - begun)
                if started < count:
                    start_soon(start)
                elif len(times) == count:
                    finished.set_result(None)

            self.router.decide(request_of(started), done)

        start_soon: Callable[[Callable[[], None]], object] = loop.call_soon
        for _ in range(in_flight):
            start()
        await finished
        return times


def check_undegraded(metrics: HostMetrics) -> None:
    """A figure of decisions made without their plugins would be a figure of something else."""
    degraded = dict(metrics.degradations.items())
    if degraded:
        raise RuntimeError(f"decisions were degraded while measuring: {degraded}")

