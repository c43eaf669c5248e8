"""What `apply` does with the lock file: it is that of the configuration which it puts in force."""

from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest
from hotbay.errors import InputError, Problem
from hotbay.rollout.events import EventLog
from hotbay.rollout.operations import Operations, Ports
from hotbay.store.digests import Digest
from hotbay.store.world.memory import MemoryWorld
from hotbay.store.world.records import Grant, Locked

pytestmark = pytest.mark.anyio

LINE = Locked("sample", "python-cp311-linux-x86_64", Digest("sha256:" + "ab" * 32), 1, "")


@dataclass
class Bay:
    """What the commands need of a host that runs no plugin."""

    world: MemoryWorld = field(default_factory=MemoryWorld)
    lock: tuple[Locked, ...] | None = None
    is_readable: bool = True
    waiting: list[str] = field(default_factory=list)

    def operations(self) -> Operations:
        supervisor = SimpleNamespace(
            world=self.world, routines={}, follow=lambda: None, services=SimpleNamespace(now=lambda: 0.0)
        )
        ports = Ports(
            status=dict, lines=lambda _: (), collect=None, bindings=tuple, lock=self.lock_lines, apply=self.apply
        )
        return Operations(supervisor, EventLog(lambda: 0.0), ports)

    def lock_lines(self) -> tuple[Locked, ...] | None:
        if not self.is_readable:
            raise InputError([Problem("CONFIG_INVALID", "cannot be read")])
        return self.lock

    async def apply(self) -> list[str]:
        self.is_readable = True
        return self.waiting


async def test_lock_file_comes_into_force():
    bay = Bay(lock=(LINE,))
    await bay.operations().apply("me")
    assert bay.world.view.all(Locked) == (LINE,)


async def test_lock_file_that_cannot_be_read_is_corrected_by_the_configuration_that_waits():
    bay = Bay(lock=(LINE,), is_readable=False, waiting=["lock"])
    assert (await bay.operations().apply("me"))["applied"] == ["lock"]
    assert bay.world.view.all(Locked) == (LINE,)


async def test_grant_of_an_unknown_capability_is_refused_and_records_nothing():
    bay = Bay()
    operations = bay.operations()
    operations._supervisor.catalog = SimpleNamespace(
        plugin_ids=lambda: ["sample"], manifests={"d": SimpleNamespace(id="other", capabilities=("gpu",))}
    )
    with pytest.raises(InputError, match=r"expected dial, endpoints, .* found gpu"):
        await operations.grant("sample", ["dial", "gpu"], "me")
    assert bay.world.view.all(Grant) == ()
    operations._supervisor.catalog.manifests["d"].id = "sample"
    operations._supervisor.services.wall = lambda: 0.0
    await operations.grant("sample", ["dial", "gpu"], "me")
    assert bay.world.view.get(Grant, "sample").capabilities == ("dial", "gpu")


async def test_lock_that_the_configuration_names_no_more_ends():
    bay = Bay(lock=(LINE,))
    await bay.operations().apply("me")
    bay.lock = None
    await bay.operations().apply("me")
    assert bay.world.view.all(Locked) == ()


async def test_lock_that_waits_is_told_by_plan_and_apply_and_what_holds_then() -> None:
    bay = Bay(lock=(LINE,))
    operations = bay.operations()
    assert (await operations.plan())["waiting"] == ["lock"]
    page = await operations.apply("me")
    assert (page["applied"], page["lock"]) == (["lock"], "in force, 1 build")
    assert (await operations.plan())["waiting"] == []
    page = await operations.apply("me")
    assert (page["applied"], page["lock"]) == ([], "in force, 1 build")
    bay.lock = None
    assert (await operations.plan())["waiting"] == ["lock"]
    page = await operations.apply("me")
    assert (page["applied"], page["lock"]) == (["lock"], "none in force")


async def test_lock_that_waits_with_the_configuration_is_named_once() -> None:
    bay = Bay(lock=(LINE,), waiting=["swap", "lock"])
    assert (await bay.operations().apply("me"))["applied"] == ["swap", "lock"]
