"""The room that a host says it takes is that of now: measured at its start, and again when something came or went."""

from functools import partial
from pathlib import Path

import anyio
import anyio.from_thread
import pytest
from hotbay.config.host_config import load_host_config
from hotbay.depot import Depot
from hotbay.store.budget import DiskBudget, DiskUsage
from hotbay.store.digests import digest_of
from hotbay.store.state_dir import StateDirectory
from hotbay.store.world.engine import Put
from hotbay.store.world.records import Completion

pytestmark = pytest.mark.anyio
WAIT_S = 20.0
SOON_S = 0.01


class Watched:
    """A budget whose measurements are told."""

    def __init__(self, budget: DiskBudget) -> None:
        self._budget = budget
        self._told, self.measured = anyio.create_memory_object_stream[int](100)

    def usage(self) -> DiskUsage:
        found = self._budget.usage()
        anyio.from_thread.run_sync(self._told.send_nowait, found.used_bytes)
        return found

    async def until(self, size_bytes: int) -> None:
        with anyio.fail_after(WAIT_S):
            while await self.measured.receive() != size_bytes:
                pass

    def close(self) -> None:
        self._told.close()
        self.measured.close()


async def test_room_is_measured_at_the_start_and_when_something_came(tmp_path: Path) -> None:
    text = f"state_dir: {tmp_path}\nworld: {{engine: memory}}\nsources: []\n"
    config = load_host_config(text, file="host.yaml", base_directory=tmp_path, environment={}, is_root=True)
    state = StateDirectory.open(tmp_path)
    made = await Depot.open(config, state, now=lambda: 0.0, wall=lambda: 0.0, random=lambda: 0.5)
    made._budget = budget = Watched(made._budget)  # type: ignore[assignment]  # all that is asked of it
    async with anyio.create_task_group() as group:
        group.start_soon(partial(made._measure, settle_s=SOON_S))
        await budget.until(0)
        environment = tmp_path / "environments" / "ab"
        environment.mkdir(parents=True)
        (environment / "module.py").write_bytes(b"x" * 4096)
        complete = Completion(digest_of(b"1"), "a", 1, (), "ab", "t", 0.0)
        await made.world.transact(lambda _view: [Put(complete)])
        await budget.until(4096)
        group.cancel_scope.cancel()
    budget.close()
    await made.close()
    state.close()
