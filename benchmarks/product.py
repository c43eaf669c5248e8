"""What figures of the data path have in common: real plugin processes, snapshots of any size, closed loops.

A bench owns an event loop of its own; a sample runs it until its exchanges are done. Processes are children of
the harness and share its CPU.
"""

import asyncio
import contextlib
import sys
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final, TypeVar

import anyio
import numpy as np
import uvloop
from hotbay.data_layer import PUBLISH_TICK_S
from hotbay.datalayer.endpoint import EndpointMetadata, Metrics
from hotbay.datalayer.store import EndpointStore
from hotbay.datalayer.tables.freshness import Freshness, StalePolicy
from hotbay.observe.metrics import Metrics as HostMetrics
from hotbay.process.launch import STAGE0, LaunchSpec
from hotbay.process.log import LogSink
from hotbay.rollout.instance import Instance, StartOptions
from hotbay.rollout.refs import RefSpec
from hotbay.rpc.leases import Generation, Origin
from hotbay.scheduling.binding import BindingOptions
from hotbay.scheduling.compiler import compile_plan
from hotbay.scheduling.plan import Plan, PlanInput, Profile, ProfileEntryPlan, ProfileInput, RefPlan
from hotbay.scheduling.request import InferenceRequest
from hotbay.scheduling.router import Router
from hotbay.scheduling.run_call import RunCall

from benchmarks.packages import environment_of
from benchmarks.probes import Room

T = TypeVar("T")

BODY_BYTES: Final = 1000
"""The prototypes of the goals were measured with requests of 1 kB."""

DEADLINE_S: Final = 1.0
"""Of every call: a neighbour that takes the CPU for the usual 50 ms would otherwise end the run as degraded."""

OPTIONS: Final = StartOptions()


class Bench:
    """A loop with some plugin processes on it; `run` blocks until the coroutine is done."""

    def __init__(self, room: Room) -> None:
        self._loop = uvloop.new_event_loop()
        self._room = room
        self._instances: list[Instance] = []
        self._watches: list[asyncio.Task[None]] = []
        self._started = 0

    def run(self, work: Coroutine[object, object, T]) -> T:
        """Run on the bench's loop."""
        return self._loop.run_until_complete(work)

    def start(self, layout: Path, types: Sequence[str]) -> Instance:
        """A process of the layout's package with one ref of each type, named like it."""
        instance = self.start_ready(layout)
        self.configure(instance, types)
        return instance

    def start_ready(self, layout: Path) -> Instance:
        """A process of the layout's package that is READY."""
        self._started += 1
        manifest, site = environment_of(self._room, layout)
        label = f"{manifest.id}#{self._started}"
        spec = LaunchSpec(sys.executable, STAGE0, str(site), manifest.entrypoint, "/", "none", label)
        origin = Origin(manifest.id, manifest.version, manifest.rev, str(manifest.digest))
        return self.run(self._launch(spec, origin, manifest.types))

    def configure(self, instance: Instance, types: Sequence[str]) -> None:
        """Make one ref of each type, named like it."""
        self.run(self._create(instance, types))

    async def _launch(self, spec: LaunchSpec, origin: Origin, types: Sequence[str]) -> Instance:
        instance = Instance.launch(spec, LogSink(spec.label), lambda _: None)
        self._instances.append(instance)
        self._watches.append(self._loop.create_task(instance.watch()))
        await instance.handshake(origin, self._started, types, OPTIONS)
        return instance

    async def _create(self, instance: Instance, types: Sequence[str]) -> None:
        instance.install(await instance.create([RefSpec(name, name, {}) for name in types], OPTIONS))

    def stop(self) -> None:
        """End all processes."""
        self.run(self._stop())
        self._instances.clear()
        self._watches.clear()

    async def _stop(self) -> None:
        async with anyio.create_task_group() as group:
            for instance in self._instances:
                group.start_soon(instance.kill)
        await asyncio.gather(*self._watches)

    def close(self) -> None:
        """End processes and loop."""
        self.stop()
        self._loop.close()


@contextmanager
def open_bench(room: Room) -> Iterator[Bench]:
    """A bench that is closed at the end."""
    bench = Bench(room)
    with contextlib.closing(bench):
        yield bench


def generation_of(instance: Instance) -> Generation:
    """The generation of a READY instance."""
    assert instance.generation is not None, "a bench gives READY instances only"
    return instance.generation


def store_of(endpoints: int, *, seed: int = 7) -> EndpointStore:
    """A store whose snapshot has so many endpoints with random load."""
    rng = np.random.default_rng(seed)
    # Nobody scrapes: what is set here has to last for the whole bench.
    store = EndpointStore(Freshness(policy=StalePolicy.IGNORE))
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


def plan_of(generations: Sequence[Generation], weights: Mapping[str, float] | None = None) -> Plan:
    """One profile with every ref of the generations, or with those that have weights."""
    refs = tuple(
        RefPlan(name, name, generation.origin.plugin_id, generation, generation.types[name], {})
        for generation in generations
        for name in generation.handles
    )
    entries = [(ref.name, None) for ref in refs] if weights is None else weights.items()
    profile = ProfileInput("default", tuple(ProfileEntryPlan(name, weight) for name, weight in entries))
    return compile_plan(
        1, PlanInput(refs, (profile,), {ref.name: BindingOptions(deadline_s=DEADLINE_S) for ref in refs})
    )


class _SingleCall(RunCall):
    """A call that never carries more than one request: what batches are compared with."""

    __slots__ = ()

    def batch_limit(self, rows: int) -> int:
        """One."""
        return 1


def unbatched(plan: Plan) -> Plan:
    """The same plan with calls of one request each. For scorers that read no field of a request."""
    return replace(plan, profiles={name: _unbatched_profile(profile) for name, profile in plan.profiles.items()})


def _unbatched_profile(profile: Profile) -> Profile:
    stages = []
    for stage in profile.stages:
        calls = []
        for call in stage:
            assert isinstance(call, RunCall), "a profile of scorers has run calls only"
            calls.append(
                _SingleCall(call.generation, call.filters, call.scorers, columns=call.columns, fields=(), consumed=())
            )
        stages.append(tuple(calls))
    return replace(profile, stages=tuple(stages))


class _Ticker:
    """Calls back at the host's publishing tick, now and until it is stopped."""

    def __init__(self, loop: asyncio.AbstractEventLoop, act: Callable[[], None]) -> None:
        self._loop = loop
        self._act = act
        self._timer: asyncio.Handle = loop.call_soon(self._tick)

    def _tick(self) -> None:
        self._act()
        self._timer = self._loop.call_later(PUBLISH_TICK_S, self._tick)

    def stop(self) -> None:
        """No call follows."""
        self._timer.cancel()


class Decider:
    """A router over some processes, and a closed loop of decisions through it. Make it on the loop that it uses.

    While it decides, endpoints change and snapshots are published at the host's own tick: the columns that scorers
    read travel again with each of them.
    """

    def __init__(
        self, store: EndpointStore, plan: Plan, request_of: Callable[[int], InferenceRequest] = request_of
    ) -> None:
        self._request_of = request_of
        self.metrics = HostMetrics()
        self.router = Router(store, self.metrics, seed=1)
        self.router.publish(plan)
        self._store = store
        self._ticks = 0

    async def decide(self, seconds: float, in_flight: int) -> list[float]:
        """Begin decisions for so long, `in_flight` at a time; return each one's time in seconds once all are made.

        Nothing is in flight when it returns: the loop stands still until the next sample, and deadlines do not.
        """
        loop = asyncio.get_running_loop()
        finished = loop.create_future()
        times: list[float] = []
        deciding = in_flight
        end = time.perf_counter() + seconds

        def start(request: InferenceRequest) -> None:
            begun = time.perf_counter()

            def done(_: object) -> None:
                nonlocal deciding
                now = time.perf_counter()
                times.append(now - begun)
                if now < end:
                    loop.call_soon(start, request)
                    return
                deciding -= 1
                if deciding == 0:
                    finished.set_result(None)

            self.router.decide(request, done)

        ticker = _Ticker(loop, self._change_an_endpoint)
        for number in range(in_flight):
            start(self._request_of(number))
        await finished
        ticker.stop()
        return times

    def _change_an_endpoint(self) -> None:
        now = asyncio.get_running_loop().time()
        self._ticks += 1
        endpoint_id = self._store.snapshot.ids[self._ticks % self._store.snapshot.rows]
        load = float(self._ticks % 50)
        self._store.update_metrics(endpoint_id, Metrics(waiting=load, running=load, kv_usage=load / 50), now)
        self._store.publish(now)


def check_undegraded(metrics: HostMetrics) -> None:
    """A figure of decisions made without their plugins would be a figure of something else."""
    degraded = dict(metrics.degradations.items())
    if degraded:
        raise RuntimeError(f"decisions were degraded while measuring: {degraded}")
