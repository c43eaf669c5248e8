"""A host removes by itself what nothing needs any more, and nothing else, and nothing while another host has its folder."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import anyio
import pytest
from hotbay.config.host_config import HostConfig, load_host_config
from hotbay.depot import Depot
from hotbay.errors import CapacityError
from hotbay.store.digests import Digest, digest_of
from hotbay.store.state_dir import StateDirectory
from hotbay.store.world.engine import Put
from hotbay.store.world.records import Completion, ManifestRef

pytestmark = pytest.mark.anyio
WAIT_S = 30.0
OFTEN_S = 0.01


def completion(rev: int) -> Completion:
    return Completion(digest_of(f"{rev}".encode()), "a", rev, (), f"{rev:064}", "t", 0.0)


def withdrawn(rev: int) -> ManifestRef:
    return ManifestRef("a", rev, "any", digest_of(f"{rev}".encode()), "s", "", b"{}", offered=False)


def configuration(folder: Path, more: str = "") -> HostConfig:
    text = f"state_dir: {folder}\nworld: {{engine: memory}}\nlimits: {{keep_versions: 1}}\nsources: []\n{more}"
    return load_host_config(text, file="host.yaml", base_directory=folder, environment={}, is_root=True)


@asynccontextmanager
async def depot(folder: Path, in_use: list[Digest], more: str = "") -> AsyncIterator[Depot]:
    config = configuration(folder, more)
    state = StateDirectory.open(folder)
    made = await Depot.open(config, state, now=lambda: 0.0, wall=lambda: 0.0, random=lambda: 0.5)
    async with anyio.create_task_group() as group:
        group.start_soon(partial(made.keep_small, lambda: in_use, interval_s=OFTEN_S))
        yield made
        group.cancel_scope.cancel()
    await made.close()
    state.close()


async def changed_to(made: Depot, revs: list[int]) -> None:
    with anyio.fail_after(WAIT_S):
        while sorted(each.rev for each in made.world.view.all(Completion)) != revs:
            await made.world.changed(made.world.view.revision)


async def test_versions_that_nothing_needs_go_by_themselves(tmp_path: Path) -> None:
    running = completion(1)
    in_use = [running.digest]
    async with depot(tmp_path / "state", in_use) as made:
        await made.world.transact(lambda _: [Put(completion(rev)) for rev in (1, 2, 3)] + [Put(withdrawn(2))])
        await changed_to(made, [1, 3])
        assert made.world.view.all(ManifestRef) == ()
        in_use.clear()
        await made.world.transact(lambda _: [Put(completion(4))])
        await changed_to(made, [4])


async def test_version_that_a_configuration_pins_stays_while_it_is_in_force_or_on_its_way(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    async with depot(folder, [], "packages: [{id: a, pin: 1}]\n") as made:
        await made.world.transact(lambda _: [Put(completion(rev)) for rev in (1, 2, 3)])
        await changed_to(made, [1, 3])
        made.obey(configuration(folder), incoming=configuration(folder, "packages: [{id: a, pin: 1}]\n"))
        await made.world.transact(lambda _: [Put(completion(4))])
        await changed_to(made, [1, 4])
        made.obey(configuration(folder))
        await made.world.transact(lambda _: [Put(completion(5))])
        await changed_to(made, [5])


async def test_state_directory_is_let_go_of_after_a_collection_under_way_and_none_begins_then(tmp_path: Path) -> None:
    async with depot(tmp_path / "state", []) as made:
        async with anyio.create_task_group() as group, made._collecting:
            group.start_soon(made.suspend)
            await anyio.wait_all_tasks_blocked()
            await made.world.transact(lambda _: [Put(completion(rev)) for rev in (1, 2)])
        with pytest.raises(CapacityError, match="a successor is taking over"):
            await made.collect(list, dry_run=False)
        assert len(made.world.view.all(Completion)) == 2
        await made.resume()
        await changed_to(made, [2])
