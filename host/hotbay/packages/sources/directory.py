"""A watched folder that holds package layouts, one in each entry.

An entry is offered only while every byte of it is there and has its digest; one that is still being copied is a
problem to show, never an offer. What was offered stays offered while its entry is being rewritten, and goes when the
entry goes. Only content counts: touching, copying over and link swaps that lead to the same content are no event.

Noticed are saves by rename, folders and links that are swapped (also the `..data` link of a Kubernetes volume),
the folder's own coming and going, and, by looking again every ten seconds, changes that the file system does not report.
"""

import logging
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import anyio
import anyio.lowlevel
import anyio.to_thread
from watchfiles import Change, awatch

from hotbay.errors import HostError, Place, Problem
from hotbay.packages.layout import NOT_COMPLETE_YET, FileDigests, read_layout
from hotbay.packages.manifest import Manifest

logger = logging.getLogger(__name__)

RESYNC_S: Final = 10.0
# Long enough for a file that is being replaced to be whole again; a problem that outlives it is worth telling.
SETTLE_S: Final = 1.0
# A folder of more entries is not a folder of packages.
_ENTRY_LIMIT_COUNT: Final = 1000
_IGNORED_SUFFIXES: Final = ("~", ".part", ".swp")
_REFERENCES: Final = (".yaml", ".yml")
# One burst of events is one look: a copy makes hundreds.
_STEP_MS: Final = 50
_DEBOUNCE_MS: Final = 400

__all__ = ["RESYNC_S", "SETTLE_S", "DirectorySource", "Offer", "Scan"]


@dataclass(frozen=True, slots=True)
class Offer:
    """A package that was whole when it was last looked at. `copy_package` verifies every byte again."""

    manifest: Manifest
    layout_path: Path
    source: str
    dev: bool = False


@dataclass(frozen=True, slots=True)
class Scan:
    """What a source offers now, in an order that does not depend on the file system, and what it cannot offer."""

    offers: tuple[Offer, ...] = ()
    problems: tuple[Problem, ...] = ()


@dataclass(slots=True)
class _Told:
    """What the listener knows, and a change of problems that has yet to hold."""

    scan: Scan | None = None
    pending: Scan | None = None
    tell_at: float = 0.0


class DirectorySource:
    """Offers the layouts in one folder. `scan` blocks; `watch` calls it in a worker thread. One caller at a time.

    `absent` is what to report when the folder is not there, in place of the advice to create it.
    """

    def __init__(
        self,
        path: Path,
        name: str,
        *,
        dev: bool = False,
        absent: Problem | None = None,
        resync_s: float = RESYNC_S,
        settle_s: float = SETTLE_S,
    ) -> None:
        self.path = path
        self.name = name
        self.dev = dev
        self._absent = absent
        self._resync_s = resync_s
        self._settle_s = settle_s
        self._digests = FileDigests()
        self._offered: dict[str, tuple[Offer, ...]] = {}

    def scan(self) -> Scan:
        """Looks at every entry. Never raises for what it finds; a folder that is not there offers nothing and says so."""
        problems: list[Problem] = []
        offered: dict[str, tuple[Offer, ...]] = {}
        for name in self._names(problems):
            layout = self.path / name
            try:
                manifests = read_layout(layout, digests=self._digests)
            except HostError as error:
                problems.append(Problem(error.code, error.message, Place(str(layout)), hint=error.hint))
                if error.code == NOT_COMPLETE_YET and name in self._offered:
                    offered[name] = self._offered[name]
            except OSError as error:
                hint = "Let the host's user read it. It is looked at again by itself."
                problems.append(Problem("FETCH_FAILED", error.strerror or "unreadable", Place(str(layout)), hint=hint))
                if name in self._offered:
                    offered[name] = self._offered[name]
            else:
                offered[name] = tuple(Offer(manifest, layout, self.name, self.dev) for manifest in manifests)
        self._digests.forget_unused()
        self._offered = offered
        offers = sorted((offer for group in offered.values() for offer in group), key=_order)
        return Scan(tuple(offers), tuple(problems))

    async def watch(self, on_change: Callable[[Scan], Awaitable[None]]) -> None:
        """Calls `on_change` with the first scan, then whenever what is offered or wrong has changed, until cancelled.

        A changed offer is told at once; a change of problems alone when it has held for `settle_s`, so that writing
        the same bytes again stays silent. Calls do not overlap.
        """
        told = _Told()
        while True:
            parent, paths = await anyio.to_thread.run_sync(self._watched)
            async with anyio.create_task_group() as tasks:
                bell = _Bell()
                tasks.start_soon(self._listen, parent, paths, bell)
                # The listener registers with the kernel at its first step; what changes from here on rings.
                await anyio.lowlevel.checkpoint()
                try:
                    while (parent, paths) == await anyio.to_thread.run_sync(self._watched):
                        await bell.wait(await self._look(told, on_change))
                finally:
                    # The watcher's thread cannot be cancelled; it looks at this every few milliseconds.
                    bell.stop.set()

    async def _look(self, told: _Told, on_change: Callable[[Scan], Awaitable[None]]) -> float:
        """Scans and tells; returns after how many seconds to look again at the latest."""
        found = await anyio.to_thread.run_sync(self.scan)
        now = anyio.current_time()
        if found == told.scan:
            told.pending = None
            return self._resync_s
        if told.scan is not None and found.offers == told.scan.offers:
            if found != told.pending:
                told.pending, told.tell_at = found, now + self._settle_s
            if now < told.tell_at:
                return min(told.tell_at - now, self._resync_s)
        told.scan, told.pending = found, None
        await on_change(found)
        return self._resync_s

    async def _listen(self, parent: str, paths: tuple[str, ...], bell: "_Bell") -> None:
        def concerns(_change: Change, path: str) -> bool:
            folder, _, last = path.rpartition("/")
            return folder != parent or last == self.path.name

        while not bell.stop.is_set():
            try:
                async for _ in awatch(
                    *paths,
                    watch_filter=concerns,
                    step=_STEP_MS,
                    debounce=_DEBOUNCE_MS,
                    recursive=False,
                    stop_event=bell.stop,
                ):
                    bell.ring()
            except (OSError, RuntimeError, ValueError, ExceptionGroup) as error:
                # The watcher gives up at a file's name that is no UTF-8, too. What it raises while it waits comes in a group.
                logger.warning(
                    "watch_failed source=%s: looking every %s s instead: %r", self.name, self._resync_s, error
                )
                bell.ring()
                with anyio.move_on_after(self._resync_s):
                    await bell.stop.wait()

    def _names(self, problems: list[Problem]) -> list[str]:
        try:
            with os.scandir(self.path) as entries:
                found = {entry.name: _is_folder(entry) for entry in entries if not _is_ignored(entry.name)}
        except OSError as error:
            hint = "Create it, or correct the source's directory. It is looked for again by itself."
            unreadable = Problem("FETCH_FAILED", error.strerror or "unreadable", Place(str(self.path)), hint=hint)
            known = self._absent if isinstance(error, FileNotFoundError) else None
            problems.append(known or unreadable)
            return []
        for name in sorted(name for name, is_folder in found.items() if not is_folder and name.endswith(_REFERENCES)):
            hint = "Put the package's folder here instead."
            message = "references to packages elsewhere are not supported in this release"
            problems.append(Problem("CONFIG_INVALID", message, Place(str(self.path / name)), hint=hint))
        folders = sorted(name for name, is_folder in found.items() if is_folder)
        names = [name for name in folders if _is_unicode(name)]
        for name in [name for name in folders if not _is_unicode(name)][:_ENTRY_LIMIT_COUNT]:
            message, hint = "its name is no UTF-8: the folder is not looked at", "Rename it."
            problems.append(Problem("FETCH_FAILED", message, Place(str(self.path / name)), hint=hint))
        if len(names) > _ENTRY_LIMIT_COUNT:
            message = f"{len(names)} entries; only the first {_ENTRY_LIMIT_COUNT} by name are looked at"
            problems.append(Problem("FETCH_FAILED", message, Place(str(self.path))))
        return names[:_ENTRY_LIMIT_COUNT]

    def _watched(self) -> tuple[str, tuple[str, ...]]:
        """The parent, and all existing folders whose direct entries matter, the parent's too.

        Links are followed: a watch sits on what they lead to now.
        """
        parent = self.path.absolute().parent
        wanted = [parent, self.path]
        for name in self._names([]):
            blobs = self.path / name / "blobs"
            wanted += [self.path / name, blobs, blobs / "sha256"]
        return os.path.realpath(parent), tuple(
            sorted({os.path.realpath(path) for path in wanted if _is_directory(path)})
        )


class _Bell:
    """Rung any number of times, heard once. `stop` ends the ringing."""

    def __init__(self) -> None:
        self.stop = anyio.Event()
        self._event = anyio.Event()

    def ring(self) -> None:
        self._event.set()

    async def wait(self, timeout_s: float) -> None:
        with anyio.move_on_after(timeout_s):
            await self._event.wait()
        self._event = anyio.Event()


def _is_ignored(name: str) -> bool:
    """Hidden names are also where Kubernetes keeps the real folders that its links lead to."""
    return name.startswith(".") or name.endswith(_IGNORED_SUFFIXES)


def _is_folder(entry: "os.DirEntry[str]") -> bool:
    """What cannot be told, a link in a circle, counts as one: it becomes a problem of its own, not of its neighbours."""
    try:
        return entry.is_dir()
    except OSError:
        return True


def _is_directory(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:
        return False


def _is_unicode(name: str) -> bool:
    """Whether the watcher and every page that shows the name can take it."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _order(offer: Offer) -> tuple[str, int, str, str, str]:
    manifest = offer.manifest
    return manifest.id, -manifest.rev, manifest.platform, manifest.digest, str(offer.layout_path)
