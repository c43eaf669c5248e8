"""Who learns of a change of the world: those that it concerns, however many packages there are beside them."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace

import anyio
import pytest
from hotbay.packages.manifest import Blob, Manifest, ProtocolRange
from hotbay.rollout.catalog import Catalog
from hotbay.rollout.deployment import Deployment
from hotbay.rollout.facts import PluginSettings
from hotbay.rollout.resolution import ResolvedRef, Scheduling
from hotbay.rollout.services import Services
from hotbay.rollout.state import Facts
from hotbay.rollout.supervisor import Supervisor
from hotbay.scheduling.registry import TypeIndex
from hotbay.store.digests import Digest
from hotbay.store.world.engine import Change, Delete, Put
from hotbay.store.world.memory import MemoryWorld
from hotbay.store.world.records import Disabled, Floor, Locked, ManifestRef

pytestmark = pytest.mark.anyio
NAMES = ("one", "one/key", "two", "three")


def ref(plugin: str, rev: int, types: tuple[str, ...] = ("t",)) -> ManifestRef:
    made = Manifest(
        id=plugin, publisher="hotbay", rev=rev, version="1.0.0", platform="any", entrypoint="m:plugin", types=types,
        protocol=ProtocolRange(first=1, last=1),
        blobs=(Blob(name="m-1.0-py3-none-any.whl", digest=Digest(f"sha256:{'0' * 64}"), size=1),),
    )  # fmt: skip
    return ManifestRef(plugin, rev, "any", made.digest, "gone", "", made.canonical_bytes())


class Hall:
    """A supervisor of plugins that nothing can be had of: its routines learn, and wait."""

    def __init__(self, group: anyio.abc.TaskGroup) -> None:
        self.world = MemoryWorld()
        self.learned: list[str] = []
        refs = tuple(ResolvedRef(name, "t", name, {}) for name in NAMES)
        router = SimpleNamespace(plan=None)
        deployment = Deployment(router, Scheduling(refs, ()), TypeIndex({}, {}))  # type: ignore[arg-type]
        self.supervisor = Supervisor(
            self.world, Catalog(), deployment, lambda mine: self.services(mine, deployment), group,
            ranking={}, sources=(),
        )  # fmt: skip

    def services(self, supervisor: Supervisor, deployment: Deployment) -> Services:
        def facts(name: str) -> Facts:
            self.learned.append(name)
            return supervisor.facts(name)

        unused = SimpleNamespace()
        return Services(
            world=self.world, fetcher=unused, deployment=deployment, launcher=unused, lend=unused, measures=unused,
            settings=lambda _: PluginSettings(platforms=("any",)), facts=facts, manifest=supervisor.catalog.manifest,
            ref=supervisor.catalog.ref, policies=unused, now=lambda: 0.0, wall=lambda: 0.0, random=lambda: 0.5,
            starts=anyio.CapacityLimiter(1), drain_s=0.0, linger_s=0.0, retired=unused, happened=lambda _: None,
            on_trial=supervisor.on_trial, refs_changed=supervisor.refs_changed, settled=supervisor.settled,
        )  # type: ignore[arg-type]  # fmt: skip

    async def who_learns_of(self, *changes: Change) -> list[str]:
        """Whose facts are asked for in the turn of the loop that follows the change."""
        self.learned.clear()
        await self.world.transact(lambda _: changes)
        self.supervisor.follow()
        return sorted(self.learned)


@asynccontextmanager
async def hall() -> AsyncIterator[Hall]:
    async with anyio.create_task_group() as group:
        made = Hall(group)
        made.supervisor.start()
        await made.supervisor.first_attempts()
        await made.who_learns_of(Put(ref("one", 1)), Put(ref("two", 1)), Put(ref("three", 1)))
        yield made
        await made.supervisor.shutdown(0.0)
        group.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("change", "who"),
    [
        (Put(ref("two", 2)), ["two"]),
        (Put(Floor("one", 1)), ["one", "one/key"]),
        (Put(Disabled("three", "me", 0.0)), ["three"]),
        (Put(ref("unheard-of", 1)), sorted(NAMES)),
        (Put(ref("two", 2, ("t", "another"))), sorted(NAMES)),
        (Put(Locked("unheard-of", "any", ref("one", 1).digest, 1, "")), sorted(NAMES)),
    ],
    ids=["ref", "of-every-key", "command", "type-of-another-plugin", "another-type", "lock"],
)
async def test_change_is_learned_by_whom_it_concerns(change: Put, who: list[str]) -> None:
    async with hall() as made:
        assert await made.who_learns_of(change) == who
        assert await made.who_learns_of(change) == [], "nothing has changed since"


async def test_lock_that_ends_concerns_everybody() -> None:
    line = Locked("two", "any", ref("two", 1).digest, 1, "")
    async with hall() as made:
        await made.who_learns_of(Put(line))
        assert made.supervisor.routines["one"].state.facts.policy.locked == frozenset()
        assert await made.who_learns_of(Delete(line.kind, line.key)) == sorted(NAMES)
        assert made.supervisor.routines["one"].state.facts.policy.locked is None


async def test_facts_are_those_of_the_newest_world_whoever_learned() -> None:
    changes: list[Callable[[int], Change]] = [
        lambda n: Put(ref("one", n)),
        lambda n: Put(Floor("two", n)),
        lambda n: Put(ref("three", n)),
    ]
    async with hall() as made:
        for n in range(2, 8):
            await made.who_learns_of(changes[n % 3](n))
            for name, routine in made.supervisor.routines.items():
                facts, newest = routine.state.facts, made.supervisor.facts(name)
                assert (facts.candidates, facts.policy) == (newest.candidates, newest.policy)
