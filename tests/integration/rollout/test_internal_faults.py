"""Every task that runs beside requests breaks once, of a fault nobody foresaw: the host goes on, and says so."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import wraps
from pathlib import Path

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest
from hotbay.app import Host
from hotbay.cli.admin_client import AdminClient
from hotbay.config.host_config import load_host_config
from hotbay.config.picker_config import load_picker_config
from hotbay.datalayer.discovery.feed import DiscoveryFeed
from hotbay.datalayer.scraping.collectors import ScrapeCollectors
from hotbay.datalayer.store import EndpointStore
from hotbay.errors import HostError
from hotbay.gateway.admin import AdminServer
from hotbay.handover.server import HandoverServer
from hotbay.handover.successor import find_predecessor
from hotbay.packages.ref_watch import SourceState
from hotbay.packages.sources.folder import DirectorySource
from hotbay.rollout.supervisor import Supervisor
from hotbay.serving import Serving
from hotbay.store import layout
from hotbay.store.budget import DiskBudget
from hotbay.store.world.engine import Put
from hotbay.store.world.records import Floor

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(60)]
WAIT_S = 30.0
CONFIG = """
state_dir: state
listen: {http: "127.0.0.1:0"}
sources: [{name: local, directory: packages}]
endpoints: [{url: "http://127.0.0.1:9"}]
"""
PICKER = """
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
- {name: servers, type: static-discovery, parameters: {endpoints: []}}
dataLayer: {discovery: {pluginRef: servers}}
schedulingProfiles:
- name: default
  plugins: []
"""
PLACES = (
    (DirectorySource, "scan", "source local"),
    (layout, "write_index", "store index"),
    (DiskBudget, "usage", "store usage"),
    (Supervisor, "follow", "world"),
    (EndpointStore, "publish", "snapshots"),
    (ScrapeCollectors, "_poll", "scrape"),
    (DiscoveryFeed, "_run_once", "discovery"),
    (AdminServer, "_turns", "admin client"),
    (HandoverServer, "_give_way", "handover"),
)


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, bool]]:
    return "asyncio", {"use_uvloop": True}


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Calls of each place, of which the first raises."""
    calls: dict[str, int] = {}
    for owner, name, task in PLACES:

        def break_once(owner: object = owner, name: str = name, task: str = task) -> None:
            good = getattr(owner, name)

            @wraps(good)
            def breaks(*arguments: object, **options: object) -> object:
                calls[task] = calls.get(task, 0) + 1
                if calls[task] == 1:
                    raise LookupError(task)
                return good(*arguments, **options)

            monkeypatch.setattr(owner, name, breaks)

        break_once()
    return calls


@asynccontextmanager
async def running(folder: Path) -> AsyncIterator[tuple[Host, Serving]]:
    (folder / "packages").mkdir()
    config = load_host_config(CONFIG, file="host.yaml", base_directory=folder, environment={}, is_root=False)
    host = Host(config, load_picker_config(PICKER, file="picker.yaml"), picker_directory=folder)
    stop, served, at = anyio.Event(), anyio.Event(), []

    def serving(found: Serving) -> None:
        at.append(found)
        served.set()

    async with anyio.create_task_group() as group:
        group.start_soon(host.run, serving, stop)
        with anyio.fail_after(WAIT_S):
            await served.wait()
        yield host, at[0]
        stop.set()


async def until(holds: Callable[[], object]) -> None:
    with anyio.fail_after(WAIT_S):
        while not holds():
            await anyio.lowlevel.checkpoint()


async def first_answer(handover: Path) -> None:
    """Of what listens there: the file is there a moment before anybody does."""
    with anyio.fail_after(WAIT_S):
        while await find_predecessor(handover) is None:
            await anyio.lowlevel.checkpoint()


async def test_host_goes_on_after_each_of_its_tasks_broke(tmp_path: Path, broken: dict[str, int]) -> None:
    async with running(tmp_path) as (host, serving):
        depot, client = host._depot, AdminClient(tmp_path / "state" / "admin.sock")
        assert depot is not None
        handover = tmp_path / "state" / "handover.sock"
        await until(handover.is_socket)
        with pytest.raises(HostError):
            await anyio.to_thread.run_sync(client.get, "/status")
        with pytest.raises(HostError):
            await first_answer(handover)
        await depot.world.transact(lambda _: [Put(Floor("a", 1))])
        tasks = [task for _, _, task in PLACES]
        await until(lambda: broken.keys() == set(tasks))

        successor = await find_predecessor(handover)
        assert successor is not None
        for given in successor.sockets:
            given.close()
        await successor.aclose()
        page = await anyio.to_thread.run_sync(client.get, "/status")
        problems = page["problems"]
        assert isinstance(problems, list)
        for task in tasks:
            assert any(f"the host's own task '{task}' failed" in str(problem) for problem in problems), task
        await until(lambda: min(broken.values()) > 1)
        assert {task: serving.metrics.internal_errors.get(task) for task in tasks} == dict.fromkeys(tasks, 1)
        await until(lambda: depot.usage is not None)
        await until((tmp_path / "state" / "store" / "index.json").exists)
        await until(lambda: [status.state for status in depot.statuses] == [SourceState.WATCHING])
