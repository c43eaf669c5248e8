"""One OCI image layout on disk, with any number of packages, builds and platforms in its index.

What is wrong with one package hides no other. Where the index is being rewritten, what was offered stays offered.
"""

from contextlib import AbstractAsyncContextManager
from pathlib import Path

import anyio
import anyio.to_thread

from hotbay.errors import HostError, PackageError, Place, Problem
from hotbay.packages.layout import NOT_COMPLETE_YET, FileDigests, layout_folders, survey_layout
from hotbay.packages.manifest import Blob, Manifest
from hotbay.packages.sources.blob_file import local_blob, open_local_blob
from hotbay.packages.sources.folder_watch import RESYNC_S, FolderWatch, Places
from hotbay.packages.sources.source import BlobStream, Offer, Scan

__all__ = ["OciLayoutSource"]


class OciLayoutSource:
    """Offers the packages in the layout at `path`; a `Source`. Its locations are that path."""

    def __init__(self, path: Path, name: str, *, dev: bool = False, resync_s: float = RESYNC_S) -> None:
        self.path = path.absolute()
        self._name = name
        self._dev = dev
        self._watch = FolderWatch(name, resync_s=resync_s)
        self._digests = FileDigests()
        self._offered: tuple[Manifest, ...] = ()

    @property
    def name(self) -> str:
        return self._name

    @property
    def dev(self) -> bool:
        return self._dev

    async def scan(self) -> Scan:
        """Look at all that the index names; what is wrong with one package is a problem.

        Raises `PackageError` FETCH_FAILED when there is no such folder.
        """
        return await anyio.to_thread.run_sync(self._look)

    async def wait(self) -> None:
        """Return at a change of the layout, or when it is time to look again."""
        await self._watch.wait(self._places)

    def open_blob(
        self, location: str, blob: Blob, *, start: int = 0, validator: str | None = None
    ) -> AbstractAsyncContextManager[BlobStream]:
        return open_local_blob(Path(location), blob, start=start, validator=validator)

    def local_path(self, location: str, blob: Blob) -> str | None:
        return local_blob(Path(location), blob)

    async def close(self) -> None:
        """Nothing is open between calls."""

    def _look(self) -> Scan:
        self._watch.mark(self._places())
        if not self.path.is_dir():
            hint = "Create it, or correct the source's oci_layout. It is looked for again by itself."
            raise PackageError("FETCH_FAILED", f"{self.path} is no folder", hint=hint)
        errors: tuple[HostError, ...]
        try:
            manifests, errors = survey_layout(self.path, digests=self._digests)
        except PackageError as error:
            manifests, errors = (), (error,)
        except OSError as error:
            hint = "Let the host's user read it. It is looked at again by itself."
            problem = Problem("FETCH_FAILED", error.strerror or "unreadable", Place(str(self.path)), hint=hint)
            return Scan(self._offers(), (problem,))
        if any(error.code == NOT_COMPLETE_YET for error in errors):
            manifests += tuple(known for known in self._offered if known not in manifests)
        self._digests.forget_unused()
        self._offered = manifests
        problems = tuple(Problem(e.code, e.message, Place(str(self.path)), hint=e.hint) for e in errors)
        return Scan(self._offers(), problems)

    def _offers(self) -> tuple[Offer, ...]:
        found = sorted(self._offered, key=lambda m: (m.id, -m.rev, m.platform, m.digest))
        return tuple(Offer(manifest, self._name, str(self.path), self._dev) for manifest in found)

    def _places(self) -> Places:
        return Places.of(self.path, layout_folders(self.path))
