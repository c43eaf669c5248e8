"""Keeps the folders of installed wheels that plugin processes import from.

    <root>/<key>/site            the wheels, installed; read-only
    <root>/<key>/record.json     the digest of `site`, written before the rename

The key is a digest over the wheels, the interpreter and the platform, so that packages with equal wheels share one
folder. It is built offline in a temporary folder beside it, from wheels that were screened first, under a time limit,
and renamed when whole; `environment_build` holds the steps.

A folder is used only while it is what was built: its digest is compared once in a host's run, and from then on the
identity (inode, size, times) of every file, with the digest again when one differs. The digest is also kept by who
asks, because a process without isolation can change folder and record alike; nothing that lies there may hold the look
up or end it. A folder that changed is built again.
"""

import json
import logging
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Final

import anyio
import anyio.to_thread

from hotbay.errors import InputError, PackageError, Problem
from hotbay.packages.building import remove_unowned
from hotbay.packages.entrypoint import check_entry_point
from hotbay.packages.environment_build import FORM, CheckRoom, WheelPath, build, move_aside
from hotbay.packages.manifest import Manifest
from hotbay.packages.tree import FileIdentity, remove_tree, tree_bytes, tree_digest, tree_identity
from hotbay.store.demand import DemandWatch
from hotbay.store.digests import Digest, digest_of
from hotbay.store.files import open_regular

logger = logging.getLogger(__name__)

# numpy installs and compiles in some 3 s on one busy core; a package of the largest allowed size in some 30 s.
BUILD_TIMEOUT_S: Final = 120.0
_RECORD_LIMIT_BYTES: Final = 4096
NOTHING_KNOWN: Final[Mapping[str, str]] = MappingProxyType({})

__all__ = ["BUILD_TIMEOUT_S", "Environment", "Environments", "environment_key"]


@dataclass(frozen=True, slots=True)
class Environment:
    """A folder that is whole: the name of it, the digest of `site` and where `site` is."""

    key: str
    tree: Digest
    site: Path


class Environments:
    """All environments of one host, below `root`. Calls may overlap; one host at a time."""

    def __init__(self, root: Path, *, timeout_s: float = BUILD_TIMEOUT_S) -> None:
        self.root = root
        self._timeout_s = timeout_s
        self._verified: dict[str, tuple[Digest, dict[str, FileIdentity]]] = {}
        self._building: dict[str, anyio.Lock] = {}
        self._bytes: dict[str, int] = {}
        self._demand = DemandWatch()

    async def find(
        self, manifest: Manifest, interpreter: str, *, trees: Mapping[str, str] = NOTHING_KNOWN
    ) -> Environment | None:
        """The environment of the manifest's wheels, if it is there and is what was built.

        `trees` are the digests that are known to have been built, by key.
        """
        key = await anyio.to_thread.run_sync(environment_key, manifest, interpreter)
        found = await anyio.to_thread.run_sync(self._verify, key, trees.get(key))
        return None if found is None else Environment(key, found, self.root / key / "site")

    async def build(
        self,
        manifest: Manifest,
        interpreter: str,
        wheel: WheelPath,
        *,
        trees: Mapping[str, str] = NOTHING_KNOWN,
        check_room: CheckRoom = lambda _bytes: None,
    ) -> Environment:
        """As `find`, but builds it from the files that `wheel` names if it is not there and `check_room` has room for it.

        Packages with equal wheels wait for each other: the first builds, the others find. Raises as
        `environment_build.build`.
        """
        key = await anyio.to_thread.run_sync(environment_key, manifest, interpreter)
        async with self._turn(key):
            found = await anyio.to_thread.run_sync(self._verify, key, trees.get(key))
            if found is None:
                final = self.root / key
                await build(
                    manifest,
                    interpreter,
                    wheel,
                    final,
                    is_intact=partial(_is_intact, final, trees.get(key)),
                    timeout_s=self._timeout_s,
                    check_room=check_room,
                )
                found = await anyio.to_thread.run_sync(self._verify, key, None)
                if found is None:
                    raise PackageError("FETCH_FAILED", f"{final} was changed while it was built")
                logger.info("environment_built package=%s digest=%s path=%s", manifest.id, manifest.digest, final)
        return Environment(key, found, self.root / key / "site")

    async def check(self, manifest: Manifest, interpreter: str, site: Path) -> None:
        """See that what was built holds the manifest's entry point. Raises as `check_entry_point`."""
        await check_entry_point(manifest, interpreter, site)

    @asynccontextmanager
    async def _turn(self, key: str) -> AsyncIterator[None]:
        """One build of a folder at a time; nothing is left of it when the last one is done."""
        lock = self._building.setdefault(key, anyio.Lock())
        try:
            async with lock:
                yield
        finally:
            if not lock.locked() and not lock.statistics().tasks_waiting:
                self._building.pop(key, None)

    def present(self) -> dict[str, int]:
        """Bytes of every environment, by key. Blocks.

        Each is measured once: what is below a key never changes, and a host has thousands of files there.
        """
        found = {}
        for folder in self.root.glob("[0-9a-f]*"):
            key = folder.name
            # What cannot be read is collected by its name alone.
            with suppress(OSError):
                found[key] = self._bytes[key] if key in self._bytes else tree_bytes(folder)
        self._bytes = found
        return found

    @contextmanager
    def collection(self) -> Iterator[Callable[[str], bool]]:
        """For removing environments that nothing needs: gives the function to do it, which says whether it did.

        One that anybody asked for (`find`, `build`) since this began is spared: a fetch that found it relies on it. The
        function blocks. Raises CapacityError UNAVAILABLE while another collection is under way.
        """
        with self._demand.collection():
            yield self._collect

    def sweep(self) -> int:
        """Removes what interrupted builds left, and nothing that is being built; returns how many. Blocks."""
        return remove_unowned(self.root)

    def _collect(self, key: str) -> bool:
        # The lock is held until the name is gone: who asks later does not find it.
        with self._demand.held(key) as may_go:
            if not may_go or not (self.root / key).exists():
                return False
            self._verified.pop(key, None)
            aside = move_aside(self.root / key)
        remove_tree(aside)
        return True

    def _verify(self, key: str, tree: str | None) -> Digest | None:
        """The digest of an intact environment. Reads every file only where an identity is new."""
        self._demand.note(key)
        site = self.root / key / "site"
        known = self._verified.get(key)
        try:
            identity = tree_identity(site)
        except OSError:
            identity = {}
        if known is not None and known[1] == identity and tree in (None, known[0]):
            return known[0]
        self._verified.pop(key, None)
        found = _intact_tree(self.root / key, tree)
        # What changed while it was read has another identity than the one from before.
        if found is not None:
            self._verified[key] = (found, identity)
        return found


def environment_key(manifest: Manifest, interpreter: str) -> str:
    """Name of the environment's folder: 64 hex digits. Raises `InputError` when there is no such interpreter."""
    binary = Path(interpreter).resolve()
    try:
        found = binary.stat()
    except OSError as error:
        text = f"the interpreter {interpreter} for {manifest.platform}: {error.strerror or error}"
        hint = "name one that is there under `hosts`; it is tried again by itself"
        raise InputError([Problem("START_FAILED", text, hint=hint)]) from error
    content = {
        "form": FORM,
        "interpreter": [str(binary), found.st_size, found.st_mtime_ns],
        "platform": manifest.platform,
        "wheels": sorted([blob.name, blob.digest] for blob in manifest.blobs),
    }
    return digest_of(json.dumps(content, sort_keys=True).encode()).removeprefix("sha256:")


def _is_intact(final: Path, tree: str | None) -> bool:
    return _intact_tree(final, tree) is not None


def _intact_tree(final: Path, tree: str | None) -> Digest | None:
    """The digest of `site`, if it is that of the record, and of `tree` where that is known."""
    found: Digest | None = None
    try:
        with open_regular(final / "record.json") as opened:
            record = json.loads(opened.read(_RECORD_LIMIT_BYTES))
        # The sizes first: a file that was blown up to terabytes is not read to its end.
        site = final / "site"
        if record["bytes"] == tree_bytes(site):
            found = tree_digest(site)
        if found != record["tree"] or tree not in (None, found):
            found = None
    except (OSError, ValueError, KeyError, TypeError, PackageError):
        found = None
    if found is None and final.exists():
        logger.error("environment_changed path=%s: it is built again", final)
    return found
