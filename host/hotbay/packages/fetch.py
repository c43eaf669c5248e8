"""Makes a package runnable: blobs, environment, entry point, and last the record that says so.

Until that record nothing says that the package exists, so a fault or a crash at any point leaves what was live
untouched, and starting over fetches only what is not there yet. A package that is complete needs no source any more.
Fetches share nothing that one of them could hold for long: threads and concurrency are counted for each. While the state
directory is another host's, nothing is brought or built.
"""

import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Protocol

import anyio
import anyio.to_thread

from hotbay.errors import CapacityError, PackageError, taking_over
from hotbay.packages.environment import Environment, Environments
from hotbay.packages.fetch_blob import PartStore
from hotbay.packages.manifest import Manifest, parse_manifest
from hotbay.packages.package_blobs import FetchLimits, PackageBlobs, Place, Progress
from hotbay.packages.sources.source import Source
from hotbay.packages.turns import Turns
from hotbay.store.digests import Digest
from hotbay.store.world.engine import Change, Put, World, WorldView
from hotbay.store.world.records import Completion, Floor, ManifestRef

logger = logging.getLogger(__name__)

__all__ = ["Fetcher", "Store"]


class Store(PartStore, Protocol):
    """The blob store, as a fetch needs it."""

    @property
    def root(self) -> Path: ...
    def put_bytes(self, content: bytes, digest: Digest) -> bool: ...


class Fetcher:
    """See the module. Calls of `fetch` may overlap, for one package too.

    `sources` are the open ones by name; `in_place` names those whose verified local files are used where they are and
    not copied. `check_room` raises `CapacityError` when so many bytes more do not fit; it blocks. `interpreter_of` gives
    the interpreter's path for a platform tag; `wall` is seconds since the epoch.
    """

    def __init__(
        self,
        store: Store,
        environments: Environments,
        world: World,
        sources: Mapping[str, Source],
        *,
        limits: FetchLimits,
        interpreter_of: Callable[[str], str],
        wall: Callable[[], float],
        in_place: Collection[str] = (),
        check_room: Callable[[int], None] = lambda _bytes: None,
    ) -> None:
        self._store = store
        self._environments = environments
        self._world = world
        self._sources = sources
        self._limits = limits
        self._interpreter_of = interpreter_of
        self._wall = wall
        self._in_place = frozenset(in_place)
        self._check_room = check_room
        self._turns = Turns()
        self._under_way: list[Manifest] = []
        self._scopes: set[anyio.CancelScope] = set()
        self._quiet = anyio.Event()
        self._is_held = False

    @property
    def under_way(self) -> frozenset[Digest]:
        """Digests of the manifests and blobs that are being fetched: not to be collected."""
        return frozenset(
            digest
            for manifest in self._under_way
            for digest in (manifest.digest, *(blob.digest for blob in manifest.blobs))
        )

    async def hold(self, *, within_s: float) -> bool:
        """End what is being brought or built, and begin nothing until `release`; what is complete is still found.

        What was downloaded is kept for who goes on with it. True when all has ended within the time; idempotent.
        """
        self._is_held = True
        for scope in self._scopes:
            scope.cancel()
        with anyio.move_on_after(within_s):
            while self._scopes:
                self._quiet = anyio.Event()
                await self._quiet.wait()
        return not self._scopes

    def release(self) -> None:
        """Bring and build again."""
        self._is_held = False

    async def fetch(self, ref: ManifestRef, *, report: Callable[[Progress], None] = lambda _: None) -> Path:
        """Return the environment's `site` folder of a package that is complete, after making it so.

        Safe to repeat and to cancel. `report` is called on the loop; it must not raise.

        Raises:
            PackageError: FETCH_FAILED (out of reach, too slow, offered by nobody), LENGTH_MISMATCH, DIGEST_MISMATCH,
                INVALID_PACKAGE. `details["retryable"]` is true where another attempt can help.
            CapacityError: no room, or no time, to build; or the state directory cannot be used, or is another host's now.
            InputError: the host's interpreter for the package is not there.
        """
        manifest = self._manifest(ref)
        blobs = PackageBlobs(manifest, self._places(ref), self._store, self._turns, limits=self._limits, report=report)
        self._under_way.append(manifest)
        try:
            return await self._complete(manifest, blobs)
        except OSError as error:
            raise CapacityError(
                "RESOURCE_EXHAUSTED",
                f"{manifest.id} rev {manifest.rev} cannot be staged below {self._store.root.parent}:"
                f" {error.strerror or error}",
                hint="free space there, or let the host's user write it; it is tried again by itself",
                details={"errno": error.errno, "path": str(error.filename or "")},
            ) from error
        finally:
            self._under_way.remove(manifest)

    def _manifest(self, ref: ManifestRef) -> Manifest:
        """The ref's manifest, verified. Raises `PackageError` when it is another one, or too large."""
        manifest = parse_manifest(ref.manifest, origin=f"{ref.source}: manifest {ref.digest}")
        if manifest.digest != ref.digest:
            raise PackageError(
                "DIGEST_MISMATCH",
                f"{ref.source}: expected manifest {ref.digest}, found {manifest.digest}",
                details={"expected": ref.digest, "found": manifest.digest},
            )
        if manifest.size_bytes > self._limits.package_bytes:
            raise PackageError(
                "INVALID_PACKAGE",
                f"{manifest.id} has {manifest.size_bytes} bytes, allowed {self._limits.package_bytes}",
                hint="Raise limits.package in the host configuration if you want it.",
                details={"digest": manifest.digest},
            )
        return manifest

    def _places(self, ref: ManifestRef) -> list[Place]:
        """Where the package may be had: the ref's own place first, then who offers the digest, then who once did."""
        known = self._world.view.of(ref.plugin_id).all(ManifestRef)
        others = [other for other in known if other.digest == ref.digest]
        ordered = [ref, *sorted(others, key=lambda other: (not other.offered, other.source))]
        found = dict.fromkeys((other.source, other.location) for other in ordered if other.source in self._sources)
        return [Place(self._sources[source], location, source in self._in_place) for source, location in found]

    async def _complete(self, manifest: Manifest, blobs: PackageBlobs) -> Path:
        view = self._world.view
        interpreter = self._interpreter_of(manifest.platform)
        trees = {completion.environment: completion.tree for completion in view.all(Completion)}
        found = await self._environments.find(manifest, interpreter, trees=trees)
        completion = view.get(Completion, manifest.digest)
        if found is None or completion is None or completion.environment != found.key:
            found = await self._unless_held(lambda: self._make(manifest, blobs, interpreter, found, trees))
        blobs.tell("complete")
        return found.site

    async def _make(
        self,
        manifest: Manifest,
        blobs: PackageBlobs,
        interpreter: str,
        found: Environment | None,
        trees: Mapping[str, str],
    ) -> Environment:
        await anyio.to_thread.run_sync(self._make_sure_of_room, manifest)
        await blobs.bring(is_verifying=found is None)
        blobs.tell("environment")
        made = found or await self._environments.build(
            manifest, interpreter, blobs.path, trees=trees, check_room=self._check_room
        )
        await self._environments.check(manifest, interpreter, made.site)
        await self._record(manifest, blobs, made)
        return made

    async def _unless_held(self, make: Callable[[], Awaitable[Environment]]) -> Environment:
        """Do what `hold` ends and refuses. Raises CapacityError then."""
        if not self._is_held:
            with anyio.CancelScope() as scope:
                self._scopes.add(scope)
                try:
                    return await make()
                finally:
                    self._scopes.discard(scope)
                    if not self._scopes:
                        self._quiet.set()
        raise taking_over()

    def _make_sure_of_room(self, manifest: Manifest) -> None:
        """Before the first byte: a disk that is really full stops the world's transactions too. Blocks.

        What the wheels unpack to is asked for when they are here.
        """
        missing = [blob.size for blob in manifest.blobs if not self._store.has(blob.digest, size=blob.size)]
        if missing:
            self._check_room(sum(missing))

    async def _record(self, manifest: Manifest, blobs: PackageBlobs, environment: Environment) -> None:
        await anyio.to_thread.run_sync(self._store.put_bytes, manifest.canonical_bytes(), manifest.digest)
        completion = Completion(
            digest=manifest.digest,
            plugin_id=manifest.id,
            rev=manifest.rev,
            blobs=blobs.stored,
            environment=environment.key,
            tree=environment.tree,
            at_s=self._wall(),
        )
        await self._world.transact(partial(_completed, completion))
        logger.info("package_complete id=%s rev=%s digest=%s", manifest.id, manifest.rev, manifest.digest)


def _completed(completion: Completion, view: WorldView) -> list[Change]:
    """The record, the floor, and what an environment that was built again means to who shares it."""
    before = view.get(Completion, completion.digest)
    changes: list[Change] = [Put(completion if before is None else replace(completion, at_s=before.at_s))]
    floor = view.get(Floor, completion.plugin_id)
    if floor is None or floor.rev < completion.rev:
        changes.append(Put(Floor(completion.plugin_id, completion.rev)))
    changes += [
        Put(replace(other, tree=completion.tree))
        for other in view.all(Completion)
        if other.environment == completion.environment
        and other.digest != completion.digest
        and other.tree != completion.tree
    ]
    return changes
