"""Carries a collection out: completions go first, then environments and blobs, so that a crash leaves orphans only.

Invariants: what to remove is decided inside the transaction that takes the completions away, and again before anything is
removed; a blob or an environment that somebody asked for meanwhile stays. So a fetch may begin at any moment.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from typing import Protocol

import anyio.to_thread

from hotbay.store.blobs import BlobStore
from hotbay.store.digests import Digest, digest_of
from hotbay.store.gc_plan import Demand, GcPlan, plan_gc, wanted_parts
from hotbay.store.layout import images_of, write_index
from hotbay.store.world.engine import Change, Delete, World, WorldView
from hotbay.store.world.records import Completion, ManifestRef, Quarantine

logger = logging.getLogger(__name__)

__all__ = ["EnvironmentStore", "collect"]


class EnvironmentStore(Protocol):
    """Where environments are."""

    def present(self) -> Mapping[str, int]:
        """Bytes of every environment, by name. Blocks."""

    def collection(self) -> AbstractContextManager[Callable[[str], bool]]:
        """As that of a `BlobStore`, for environments by their names: what is asked for meanwhile stays."""


async def collect(
    world: World,
    store: BlobStore,
    environments: EnvironmentStore,
    *,
    demand: Callable[[], Demand],
    keep_versions: int,
    dry_run: bool = False,
) -> GcPlan:
    """Remove what nothing needs, see `gc_plan`; return what was removed. With `dry_run` remove nothing.

    `demand` is called on the loop, several times; what is taken into use must be among its answers before it is looked
    for in the world or in the store. One host at a time.

    Raises CapacityError: UNAVAILABLE while another collection is under way, else as `World.transact` does.
    """
    if dry_run:
        decide = await _survey(world.view, store, environments, demand, keep_versions)
        return decide(world.view)
    with store.collection() as remove, environments.collection() as empty:
        decide = await _survey(world.view, store, environments, demand, keep_versions)
        plan = await _withdraw(world, decide)
        await anyio.to_thread.run_sync(write_index, store, partial(_complete, world))
        emptied: list[str] = []
        for name in plan.environments:
            if name in decide(world.view).environments and await anyio.to_thread.run_sync(empty, name):
                emptied.append(name)
        blobs = set(plan.blobs) & set(decide(world.view).blobs)
        removed = await anyio.to_thread.run_sync(_remove, remove, sorted(blobs))
        await anyio.to_thread.run_sync(partial(store.sweep, keep=wanted_parts(world.view, demand())))
    done = replace(plan, blobs=tuple(removed), environments=tuple(emptied))
    if not done.is_empty:
        logger.info(
            "store_collected blobs=%s completions=%s environments=%s refs=%s bytes=%s",
            len(done.blobs), len(done.completions), len(done.environments), len(done.refs), done.size_bytes,
        )  # fmt: skip
    return done


async def _withdraw(world: World, decide: Callable[[WorldView], GcPlan]) -> GcPlan:
    """Takes completions and withdrawn refs out of the world; returns the plan that it was done by."""
    plans: list[GcPlan] = []

    def build(view: WorldView) -> Iterator[Change]:
        plans.append(decide(view))
        for digest in plans[-1].completions:
            yield Delete(Completion.kind, digest)
        for key in plans[-1].refs:
            yield Delete(ManifestRef.kind, key)
        for digest in plans[-1].quarantines:
            yield Delete(Quarantine.kind, digest)

    await world.transact(build)
    return plans[-1]


async def _survey(
    view: WorldView,
    store: BlobStore,
    environments: EnvironmentStore,
    demand: Callable[[], Demand],
    keep_versions: int,
) -> Callable[[WorldView], GcPlan]:
    """Looks once at what is there; gives the function that plans by it for any view."""
    manifests = [completion.digest for completion in view.all(Completion)]
    blobs = await anyio.to_thread.run_sync(store.present)
    built = await anyio.to_thread.run_sync(environments.present)
    images = await anyio.to_thread.run_sync(images_of, store, manifests)
    names = {manifest: digest_of(image) for manifest, image in images.items()}

    def decide(newest: WorldView) -> GcPlan:
        return plan_gc(
            newest,
            demand=demand(),
            keep_versions=keep_versions,
            blobs_present=blobs,
            environments_present=built,
            images=names,
        )

    return decide


def _complete(world: World) -> list[Digest]:
    return [completion.digest for completion in world.view.all(Completion)]


def _remove(remove: Callable[[Digest], bool], blobs: Sequence[Digest]) -> list[Digest]:
    return [digest for digest in blobs if remove(digest)]
