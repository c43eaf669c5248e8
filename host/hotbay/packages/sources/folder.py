"""A watched folder that holds package layouts, one in each entry, and documents that name packages elsewhere.

A package is offered only while every byte of it is there and has its digest; one that is still being copied is a
problem to show, never an offer. What was offered stays offered while its entry is being rewritten, and goes when the
entry goes. Only content counts: touching, copying over and link swaps that lead to the same content change no offer.
Of more entries than are looked at, the newest by their time of change are taken, and the rest is a problem.
"""

import os
from collections.abc import Iterable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread

from hotbay.errors import HostError, InputError, PackageError, Place, Problem
from hotbay.packages.layout import NOT_COMPLETE_YET, FileDigests, layout_folders, survey_layout
from hotbay.packages.manifest import Blob, Manifest
from hotbay.packages.sources.blob_file import local_blob, open_local_blob
from hotbay.packages.sources.elsewhere import Elsewhere, MakeSource
from hotbay.packages.sources.folder_watch import RESYNC_S, FolderWatch, Places
from hotbay.packages.sources.reference import PackageReference, read_reference
from hotbay.packages.sources.source import BlobStream, Offer, Scan

# A look surveys every entry: of more, those that were changed last are what somebody wants to run.
_ENTRY_LIMIT_COUNT: Final = 1000
_IGNORED_SUFFIXES: Final = ("~", ".part", ".swp")
_DOCUMENTS: Final = (".yaml", ".yml")

__all__ = ["DirectorySource"]


@dataclass(frozen=True, slots=True)
class _Looked:
    """What one look at the folder found."""

    offers: tuple[Offer, ...]
    problems: tuple[Problem, ...]
    elsewhere: tuple[tuple[str, PackageReference], ...]


class DirectorySource:
    """Offers the layouts in one folder; a `Source`.

    `absent` is what to say when the folder is not there, in place of the advice to create it. `elsewhere` makes
    the sources that references by url or registry lead to; without it such references are problems.
    """

    def __init__(
        self,
        path: Path,
        name: str,
        *,
        dev: bool = False,
        absent: Problem | None = None,
        elsewhere: MakeSource | None = None,
        resync_s: float = RESYNC_S,
    ) -> None:
        self.path = path.absolute()
        self._name = name
        self._dev = dev
        self._absent = absent
        self._elsewhere = Elsewhere(name, elsewhere, dev=dev)
        self._watch = FolderWatch(name, resync_s=resync_s)
        self._digests = FileDigests()
        self._offered: dict[str, tuple[Manifest, ...]] = {}
        self._referenced: dict[str, Path] = {}

    @property
    def name(self) -> str:
        return self._name

    @property
    def dev(self) -> bool:
        return self._dev

    async def scan(self) -> Scan:
        """Look at every entry; what is wrong with one is a problem.

        Raises `PackageError` FETCH_FAILED when the folder is not there or cannot be read: an unmounted disk withdraws
        nothing.
        """
        looked = await anyio.to_thread.run_sync(self._look)
        far = await self._elsewhere.scan(looked.elsewhere)
        return Scan(tuple(sorted((*looked.offers, *far.offers), key=_order)), (*looked.problems, *far.problems))

    async def wait(self) -> None:
        """Return at a change of the folder or of what its documents lead to, or when it is time to look again."""
        async with anyio.create_task_group() as tasks:

            async def far() -> None:
                await self._elsewhere.wait()
                tasks.cancel_scope.cancel()

            if self._elsewhere.is_used:
                tasks.start_soon(far)
            await self._watch.wait(self._places)
            tasks.cancel_scope.cancel()

    def open_blob(
        self, location: str, blob: Blob, *, start: int = 0, validator: str | None = None
    ) -> AbstractAsyncContextManager[BlobStream]:
        if self._elsewhere.knows(location):
            return self._elsewhere.open_blob(location, blob, start=start, validator=validator)
        return open_local_blob(Path(location), blob, start=start, validator=validator)

    def local_path(self, location: str, blob: Blob) -> str | None:
        if self._elsewhere.knows(location):
            return self._elsewhere.local_path(location, blob)
        return local_blob(Path(location), blob)

    async def close(self) -> None:
        await self._elsewhere.close()

    # -- in a worker thread ----------------------------------------------------------------------

    def _look(self) -> _Looked:
        self._watch.mark(self._places())
        problems: list[Problem] = []
        folders, documents = self._entries(problems)
        layouts = {name: self.path / name for name in folders}
        references = dict(self._references(documents, problems))
        self._referenced = {
            name: self.path / reference.layout for name, reference in references.items() if reference.layout
        }
        offered: dict[str, tuple[Manifest, ...]] = {}
        for name, layout in sorted({**layouts, **self._referenced}.items()):
            manifests = self._survey(name, layout, problems)
            reference = references.get(name)
            if reference is not None and manifests:
                wanted = tuple(manifest for manifest in manifests if reference.admits(manifest))
                if not wanted:
                    problems.append(_other_package(self.path / name, reference, manifests))
                manifests = wanted
            offered[name] = manifests
        self._digests.forget_unused()
        self._offered = offered
        offers = [
            Offer(manifest, self._name, str({**layouts, **self._referenced}[name]), self._dev)
            for name, manifests in offered.items()
            for manifest in manifests
        ]
        far = tuple((name, reference) for name, reference in sorted(references.items()) if not reference.layout)
        return _Looked(tuple(offers), tuple(problems), far)

    def _survey(self, name: str, layout: Path, problems: list[Problem]) -> tuple[Manifest, ...]:
        """What the layout offers: with what it offered before, while something of it is not there yet."""
        errors: tuple[HostError, ...]
        try:
            manifests, errors = survey_layout(layout, digests=self._digests)
        except PackageError as error:
            manifests, errors = (), (error,)
        except OSError as error:
            hint = "Let the host's user read it. It is looked at again by itself."
            problems.append(Problem("FETCH_FAILED", error.strerror or "unreadable", Place(str(layout)), hint=hint))
            return self._offered.get(name, ())
        problems += [Problem(error.code, error.message, Place(str(layout)), hint=error.hint) for error in errors]
        if any(error.code == NOT_COMPLETE_YET for error in errors):
            manifests += tuple(known for known in self._offered.get(name, ()) if known not in manifests)
        return manifests

    def _references(self, documents: Iterable[str], problems: list[Problem]) -> Iterable[tuple[str, PackageReference]]:
        for name in documents:
            try:
                yield name, read_reference(self.path / name)
            except InputError as error:
                problems += error.problems
            except PackageError as error:
                problems.append(Problem(error.code, error.message, Place(str(self.path / name)), hint=error.hint))

    def _entries(self, problems: list[Problem]) -> tuple[list[str], list[str]]:
        """Names of folders and of documents, sorted; what else lies there is nobody's business."""
        try:
            with os.scandir(self.path) as entries:
                found = {entry.name: (_is_folder(entry), entry) for entry in entries if not _is_ignored(entry.name)}
        except OSError as error:
            raise self._unreadable(error) from error
        names = sorted(name for name, (is_folder, _) in found.items() if is_folder or name.endswith(_DOCUMENTS))
        good = [name for name in names if _is_unicode(name)]
        for name in [name for name in names if not _is_unicode(name)][:_ENTRY_LIMIT_COUNT]:
            message, hint = "its name is no UTF-8: it is not looked at", "Rename it."
            problems.append(Problem("FETCH_FAILED", message, Place(str(self.path / name)), hint=hint))
        if len(good) > _ENTRY_LIMIT_COUNT:
            problems.append(_too_many(self.path, len(good)))
            newest = sorted(good, key=lambda name: (-_changed_ns(found[name][1]), name))
            good = sorted(newest[:_ENTRY_LIMIT_COUNT])
        return [name for name in good if found[name][0]], [name for name in good if not found[name][0]]

    def _unreadable(self, error: OSError) -> PackageError:
        if self._absent is not None and isinstance(error, FileNotFoundError):
            return PackageError(self._absent.code, f"{self.path}: {self._absent.message}", hint=self._absent.hint)
        hint = "Create it, or correct the source's directory. It is looked for again by itself."
        return PackageError("FETCH_FAILED", f"{self.path}: {error.strerror or 'unreadable'}", hint=hint)

    def _places(self) -> Places:
        try:
            layouts = [self.path / name for name in self._entries([])[0]]
        except PackageError:
            layouts = []
        layouts += self._referenced.values()
        return Places.of(self.path, [path for layout in layouts for path in layout_folders(layout)])


def _other_package(document: Path, reference: PackageReference, found: Iterable[Manifest]) -> Problem:
    names = ", ".join(f"{manifest.id} {manifest.digest}" for manifest in found)
    wanted = f"{reference.id} {reference.digest or ''}".strip()
    message = "what it leads to is another package than it names"
    hint = "Correct the document's id and digest, or where it leads to."
    return Problem("DIGEST_MISMATCH", message, Place(str(document)), expected=wanted, found=names, hint=hint)


def _too_many(folder: Path, count: int) -> Problem:
    return Problem(
        "FETCH_FAILED",
        f"{count} entries, of which the {_ENTRY_LIMIT_COUNT} that were changed last are looked at; "
        f"{count - _ENTRY_LIMIT_COUNT} left out",
        Place(str(folder)),
        hint="Move old packages out of the folder, or give the host a second source for them.",
    )


def _changed_ns(entry: "os.DirEntry[str]") -> int:
    """When the entry was changed; what cannot be told counts as long ago."""
    try:
        return entry.stat().st_mtime_ns
    except OSError:
        return 0


def _is_ignored(name: str) -> bool:
    """Hidden names are also where Kubernetes keeps the real folders that its links lead to."""
    return name.startswith(".") or name.endswith(_IGNORED_SUFFIXES)


def _is_folder(entry: "os.DirEntry[str]") -> bool:
    """What cannot be told, a link in a circle, counts as one: it becomes a problem of its own, not of its neighbours."""
    try:
        return entry.is_dir()
    except OSError:
        return True


def _is_unicode(name: str) -> bool:
    """Whether the watcher and every page that shows the name can take it."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _order(offer: Offer) -> tuple[str, int, str, str, str]:
    manifest = offer.manifest
    return manifest.id, -manifest.rev, manifest.platform, manifest.digest, offer.location
