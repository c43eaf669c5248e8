"""Environments in which an edit costs the edit: the project's own wheel unpacked, beside an environment of all the others.

    <root>/<key of all wheels>/site     the own wheel, and `hotbay_dev.pth` with the path of the next
    <root>/<key of the others>/site     the dependencies and the SDK, built once as any host builds them

Only packages of the one project are built like this; all else is `Environments`. The own wheel is screened as any, its
modules are compiled in this process, and whether the entry point is there is left to the process to say, with a traceback.
The environment of the dependencies is collected with nothing: it lives as long as the host's folder.
"""

import compileall
import json
import os
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from py_compile import PycInvalidationMode
from typing import Final

import anyio.to_thread
from packaging.utils import canonicalize_name, parse_wheel_filename

from hotbay.authoring.developing.repacking import with_fields
from hotbay.packages.archive import WheelFacts, screen_package, screen_wheel
from hotbay.packages.building import own_folder
from hotbay.packages.environment import NOTHING_KNOWN, Environment, Environments, environment_key
from hotbay.packages.environment_build import FORM, CheckRoom, WheelPath
from hotbay.packages.manifest import Manifest
from hotbay.packages.tree import make_read_only, remove_tree, tree_bytes, tree_digest
from hotbay.store.digests import Digest

PATHS: Final = "hotbay_dev.pth"

First = Callable[[Path], str]


def _nothing(_site: Path) -> str:
    return ""


__all__ = ["PATHS", "ProjectEnvironments"]


class ProjectEnvironments(Environments):
    """See the module.

    Args:
        root: the folder.
        plugin_id: whose packages are the project's.
        distribution: the name of the project's own wheel.
        first: gives the lines that run in each of its processes before anything of it is imported, for its `site`.
    """

    def __init__(self, root: Path, *, plugin_id: str, distribution: str, first: First = _nothing) -> None:
        super().__init__(root)
        self._plugin_id = plugin_id
        self._distribution = canonicalize_name(distribution)
        self._first = first
        self._facts: dict[Digest, WheelFacts] = {}
        self._others: set[str] = set()

    async def build(
        self,
        manifest: Manifest,
        interpreter: str,
        wheel: WheelPath,
        *,
        trees: Mapping[str, str] = NOTHING_KNOWN,
        check_room: CheckRoom = lambda _bytes: None,
    ) -> Environment:
        """See `Environments.build`."""
        own = [blob for blob in manifest.blobs if parse_wheel_filename(blob.name)[0] == self._distribution]
        if manifest.id != self._plugin_id or len(own) != 1 or len(manifest.blobs) == 1:
            return await super().build(manifest, interpreter, wheel, trees=trees, check_room=check_room)
        facts = await anyio.to_thread.run_sync(self._screen, manifest, wheel)
        if any(".data/" in name for name in facts[own[0].digest].files):
            return await super().build(manifest, interpreter, wheel, trees=trees, check_room=check_room)
        others = with_fields(manifest, blobs=tuple(blob for blob in manifest.blobs if blob is not own[0]))
        base = await super().build(others, interpreter, wheel, check_room=check_room)
        self._others.add(base.key)
        key = environment_key(manifest, interpreter)
        tree = await anyio.to_thread.run_sync(self._install, key, wheel(own[0].digest), base.site)
        return Environment(key, tree, self.root / key / "site")

    async def check(self, manifest: Manifest, interpreter: str, site: Path) -> None:
        """See `Environments.check`; of the project's packages the process itself says it."""
        if manifest.id != self._plugin_id:
            await super().check(manifest, interpreter, site)

    def present(self) -> dict[str, int]:
        """See `Environments.present`."""
        return {key: size for key, size in super().present().items() if key not in self._others}

    # -- in a worker thread ----------------------------------------------------------------------

    def _screen(self, manifest: Manifest, wheel: WheelPath) -> Mapping[Digest, WheelFacts]:
        """Each wheel is read once, and all of them are held against each other."""
        found = {
            blob.digest: self._facts.get(blob.digest) or screen_wheel(wheel(blob.digest), blob.name)
            for blob in manifest.blobs
        }
        screen_package(found.values())
        self._facts = found
        return found

    def _install(self, key: str, own: Path, others: Path) -> Digest:
        temporary, owner = own_folder(self.root)
        try:
            site = temporary / "environment" / "site"
            with zipfile.ZipFile(own) as opened:
                opened.extractall(site)  # it was screened: no path leaves the folder
            # Byte code is trusted as it lies there: processes never write any.
            compileall.compile_dir(site, quiet=2, invalidation_mode=PycInvalidationMode.UNCHECKED_HASH)
            # After what was compiled: these lines are of no module.
            (site / PATHS).write_text(f"{others}\n{self._first(self.root / key / 'site')}", encoding="utf-8")
            make_read_only(site)
            tree = tree_digest(site)
            record = {"bytes": tree_bytes(site), "form": FORM, "tree": tree}
            (temporary / "environment" / "record.json").write_text(json.dumps(record))
            final = self.root / key
            if final.exists():
                final.rename(temporary / "replaced")
            (temporary / "environment").rename(final)
            return tree
        finally:
            remove_tree(temporary)
            os.close(owner)
