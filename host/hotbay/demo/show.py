"""The sequence of a run: load, a publication half-way, a kill at three quarters, the end; or the sabotage.

Load goes on until both acts are over, however long they take within their deadlines, and what is under way then is read
to its end. The host is only looked at from outside, as an operator would.
"""

import os
import signal
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import anyio

from hotbay.demo.client import Asker
from hotbay.demo.gauges import HostStatus, PluginStatus
from hotbay.demo.load import Load
from hotbay.demo.report import ACT_TIMEOUT_S, KillWindow, Run, Swap
from hotbay.demo.scene import Event, Scene
from hotbay.demo.stage import SWAPPED, Stage
from hotbay.demo.trace import Arrival

__all__ = ["KILLED", "Plan", "Show"]

KILLED: Final = "standard"
"""The plugin that is killed: two of the five bindings are in its process."""

CONVERSATIONS_COUNT: Final = 8
REPLAY_LIMIT_COUNT: Final = 16
"""Requests of a trace that may be under way: bursts beyond it come a little later instead of timing out."""

AFTER_S: Final = 3.0
"""Load that a replacement gets at least, so that there is something that could have been degraded."""

REST_TIMEOUT_S: Final = 20.0
"""For the last answers, after which a request counts as failed."""

_WATCH_S: Final = 0.2
_ACT_WATCH_S: Final = 0.02


@dataclass(frozen=True, slots=True)
class Plan:
    """What to show. `arrivals` replaces the conversations; `sabotage` replaces both acts."""

    seed: int
    duration_s: float
    arrivals: Sequence[Arrival] = ()
    sabotage: bool = False


class Show:
    """One run on a stage that is set. `scene` exists while `run` is under way."""

    def __init__(self, stage: Stage, plan: Plan, heard: Callable[[Event], None]) -> None:
        self._stage = stage
        self._plan = plan
        self._heard = heard
        self._begun = time.monotonic()
        # Pages are taken one after another, so that none is taken after a newer one.
        self._looking = anyio.Lock()
        self._swap: Swap | None = None
        self._kill: KillWindow | None = None

    async def run(self, watch: Callable[[Scene], Coroutine[object, object, None]]) -> Run:
        """Play it; `watch` runs beside it. Raises `CapacityError` when the host is gone."""
        host, plan = self._stage.host, self._plan
        status, before = await host.status(), await host.counters()
        self._begun = time.monotonic()
        scene = Scene(plan.duration_s, self._clock, status, before, self._heard)
        scene.take(status)
        asker = Asker(host.url, scene.record, self._clock)
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(self._look, scene)
                group.start_soon(watch, scene)
                await self._play(scene, asker)
                group.cancel_scope.cancel()
        finally:
            with anyio.CancelScope(shield=True):
                await asker.close()
        return Run(
            seed=plan.seed,
            duration_s=round(self._clock(), 1),
            samples=scene.record.samples,
            status=await self._take(scene),
            lives=scene.timeline.lives,
            before=before,
            after=await host.counters(),
            swap=self._swap,
            kill=self._kill,
        )

    def _clock(self) -> float:
        return time.monotonic() - self._begun

    async def _take(self, scene: Scene) -> HostStatus:
        async with self._looking:
            return scene.take(await self._stage.host.status())

    async def _look(self, scene: Scene) -> None:
        while True:
            await self._take(scene)
            scene.counters = await self._stage.host.counters()
            await anyio.sleep(_WATCH_S)

    async def _play(self, scene: Scene, asker: Asker) -> None:
        load = Load(asker, self._clock)
        async with anyio.create_task_group() as group:
            if self._plan.arrivals:
                group.start_soon(lambda: load.replay(self._plan.arrivals, limit=REPLAY_LIMIT_COUNT))
            else:
                group.start_soon(load.converse, self._plan.seed, CONVERSATIONS_COUNT)
            await (self._sabotage(scene) if self._plan.sabotage else self._acts(scene))
            scene.say("no new requests; the last answers come in")
            load.stop()
            group.cancel_scope.deadline = anyio.current_time() + REST_TIMEOUT_S

    async def _acts(self, scene: Scene) -> None:
        duration_s = self._plan.duration_s
        await self._until(duration_s / 2)
        await self._publish(scene)
        await self._until(duration_s * 3 / 4)
        await self._kill_once(scene)
        await self._until(max(duration_s, self._clock() + AFTER_S))

    async def _until(self, at_s: float) -> None:
        await anyio.sleep(max(0.0, at_s - self._clock()))

    # -- acts ------------------------------------------------------------------------------------

    async def _publish(self, scene: Scene) -> None:
        old = scene.status.plugin(SWAPPED)
        assert old is not None, "the stage is set with it"
        published_s = self._clock()
        scene.say(f"publishing a new version of {SWAPPED}")
        await self._stage.publish()
        live_s = await self._seen(scene, SWAPPED, lambda now: now.digest != old.digest)
        self._swap = Swap(SWAPPED, published_s, live_s)
        if live_s is None:
            scene.say(f"the new version of {SWAPPED} was not live within {ACT_TIMEOUT_S:g} s")

    async def _kill_once(self, scene: Scene) -> None:
        host = self._stage.host
        victim = (await self._take(scene)).plugin(KILLED)
        if victim is None or victim.pid is None:
            scene.say(f"{KILLED} has no process that could be killed")
            return
        sampled_s = self._clock()
        before = (await host.counters()).degraded_total
        killed_s = self._clock()
        _kill(victim.pid)
        scene.say(f"SIGKILL to {KILLED}, pid {victim.pid}")
        ready_s = await self._seen(scene, KILLED, lambda now: now.generation != victim.generation)
        counters = await host.counters()
        self._kill = KillWindow(
            plugin=KILLED,
            pid=victim.pid,
            sampled_s=sampled_s,
            killed_s=killed_s,
            ready_s=ready_s,
            resampled_s=self._clock(),
            degraded_before=before,
            degraded_after=counters.degraded_total,
        )
        if ready_s is None:
            scene.say(f"no replacement of {KILLED} answered within {ACT_TIMEOUT_S:g} s")

    async def _seen(self, scene: Scene, plugin_id: str, wanted: Callable[[PluginStatus], bool]) -> float | None:
        """When a page first shows a process of the plugin as wanted; None when none does in time."""
        with anyio.move_on_after(ACT_TIMEOUT_S):
            while True:
                plugin = (await self._take(scene)).plugin(plugin_id)
                if plugin is not None and plugin.pid is not None and wanted(plugin):
                    return self._clock()
                await anyio.sleep(_ACT_WATCH_S)
        return None

    async def _sabotage(self, scene: Scene) -> None:
        """From a quarter of the run on, kill every process of every plugin as soon as a page shows it."""
        await self._until(self._plan.duration_s / 4)
        scene.say("sabotage: every plugin is killed, as often as it comes back")
        while self._clock() < self._plan.duration_s:
            status = await self._take(scene)
            for pid in (plugin.pid for plugin in status.plugins if plugin.pid is not None):
                _kill(pid)
            await anyio.sleep(_ACT_WATCH_S)


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
