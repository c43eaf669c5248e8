"""Keeps the world's refs of one source as the source shows them: scan, one transaction, wait, again.

- What a scan shows and the world does not hold yet is written together; equal content writes nothing.
- A scan that fails changes nothing: what the source offered stays offered. A scan that succeeds without a ref marks
  it withdrawn; the ref stays known, and what `withdrawn` says is done in the same transaction.
- All builds are recorded, for every platform and below the floor too. Two digests for one (id, rev, platform) are both
  recorded and told as DIGEST_CONFLICT; which of them runs, if any, is decided by selection.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final, Literal

import anyio

from hotbay.errors import HostError, PackageError, Problem
from hotbay.packages.ref_changes import WITHDRAWN, Withdrawn, changes_of, conflicts, known_refs, refs_of
from hotbay.packages.sources.source import Scan, Source
from hotbay.store.world.engine import Change, Delete, World, WorldView
from hotbay.store.world.records import Completion, ManifestRef

logger = logging.getLogger(__name__)

RETRY_FIRST_S: Final = 0.8
RETRY_FACTOR: Final = 1.8
RETRY_MAX_S: Final = 1.2
# Long enough for a file that is being replaced to be whole again; a problem that outlives it is worth a log line.
SETTLE_S: Final = 1.0

Fetch = Literal["watch", "once", "off"]

__all__ = ["RefWatcher", "SourceState", "SourceStatus"]


class SourceState(Enum):
    """What a watcher is doing."""

    SCANNING = "scanning"
    WATCHING = "watching"
    FAILING = "failing"
    IDLE = "idle"
    OFF = "off"


@dataclass(frozen=True, slots=True)
class SourceStatus:
    """One row of the status page. `problems` are of the newest scan; `last_error` is why it failed, if it did."""

    source: str
    state: SourceState
    problems: tuple[Problem, ...] = ()
    last_error: HostError | None = None
    scans: int = 0


class RefWatcher:
    """See the module. `run` once, in a task of its own; it ends when there is nothing more to watch.

    The source stays open: packages are fetched from it as long as its owner does not close it.

    `store` False: what the source shows is known while the watcher runs and forgotten with it. `withdrawn`: `keep`
    what the source withdrew, say so aloud (`alarm`), or have it stopped as quarantined (`stop`) until it is offered
    again. `now` is monotonic; `random` is uniform in [0, 1); `changed` is called after `status` changed, on the loop.
    """

    def __init__(
        self,
        source: Source,
        world: World,
        *,
        fetch: Fetch = "watch",
        store: bool = True,
        withdrawn: Withdrawn = "keep",
        now: Callable[[], float],
        wall: Callable[[], float],
        random: Callable[[], float],
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        self.source = source
        self.first_scan = anyio.Event()
        """Set when the first scan was recorded or failed, and at once when there is none."""
        self._world = world
        self._fetch = fetch
        self._store = store
        self._withdrawn = withdrawn
        self._now = now
        self._wall = wall
        self._random = random
        self._changed = changed
        self._status = SourceStatus(source.name, SourceState.OFF if fetch == "off" else SourceState.SCANNING)
        self._said: tuple[Problem, ...] = ()
        self._unsaid_since_s: float | None = None

    @property
    def status(self) -> SourceStatus:
        return self._status

    async def run(self) -> None:
        """Scan and record until cancelled; return after the first success with fetch `once`, at once with `off`.

        Run again after something unforeseen ended it, it goes on with what it knows.
        """
        if self._fetch == "off":
            self.first_scan.set()
            return
        if not self._status.scans:
            await self._forget()
        delay_s = RETRY_FIRST_S
        while True:
            if await self._look():
                delay_s = RETRY_FIRST_S
                if self._fetch == "once":
                    self._show(state=SourceState.IDLE)
                    return
                await self._wait()
            else:
                await anyio.sleep(delay_s * (0.5 + self._random() / 2))
                delay_s = min(delay_s * RETRY_FACTOR, RETRY_MAX_S)

    # -- one round -------------------------------------------------------------------------------

    async def _look(self) -> bool:
        """Scan and record; False when that failed. The first scan counts as done however it ends."""
        try:
            return await self._scan_and_record()
        finally:
            self.first_scan.set()

    async def _scan_and_record(self) -> bool:
        try:
            scan = await self._scan()
            await self._record(scan)
        except HostError as error:
            if self._status.last_error is None or self._status.last_error.message != error.message:
                logger.warning("source_failed source=%s code=%s: %s", self.source.name, error.code, error.message)
            problem = Problem(error.code, error.message, hint=error.hint)
            self._show(state=SourceState.FAILING, last_error=error, scans=self._status.scans + 1, problems=(problem,))
            return False
        problems = (*scan.problems, *conflicts(self._world.view, self.source.name))
        self._show(
            state=SourceState.WATCHING, last_error=None, scans=self._status.scans + 1, problems=problems + self._gone()
        )
        self._tell(problems)
        return True

    async def _scan(self) -> Scan:
        """A file system can fail at any moment; that is the source's failure, and not the host's."""
        try:
            return await self.source.scan()
        except OSError as error:
            message = f"{self.source.name}: {error}"
            hint = "It is looked at again by itself."
            raise PackageError("FETCH_FAILED", message, hint=hint, details={"retryable": True}) from error

    async def _wait(self) -> None:
        """Wait for the source; only so long as a problem needs to count as one that stays."""
        try:
            if self._unsaid_since_s is None:
                await self.source.wait()
            else:
                with anyio.move_on_after(max(0.0, self._unsaid_since_s + SETTLE_S - self._now())):
                    await self.source.wait()
        except (HostError, OSError) as error:
            # The scan that follows finds the same, and is what is told and backed off from.
            logger.debug("source_wait_failed source=%s: %s", self.source.name, error)
            await anyio.sleep(RETRY_FIRST_S)

    def _tell(self, problems: tuple[Problem, ...]) -> None:
        """Log what is wrong when it stayed so for a while: writing the same bytes again stays silent."""
        if problems == self._said:
            self._unsaid_since_s = None
            return
        if self._unsaid_since_s is None:
            self._unsaid_since_s = self._now()
        if problems and self._now() < self._unsaid_since_s + SETTLE_S:
            return
        for problem in problems:
            if problem not in self._said:
                logger.warning("source_problem source=%s: %s", self.source.name, problem)
        self._said, self._unsaid_since_s = problems, None

    def _show(self, **fields: object) -> None:
        status = replace(self._status, **fields)  # type: ignore[arg-type] # only the fields above are given
        if status != self._status:
            self._status = status
            self._changed()

    # -- the world -------------------------------------------------------------------------------

    async def _record(self, scan: Scan) -> None:
        found = refs_of(scan.offers, known=known_refs(self._world.view, self.source.name))
        wall_s = self._wall()

        def build(view: WorldView) -> list[Change]:
            return changes_of(view, self.source.name, found, withdrawn=self._withdrawn, store=self._store, at_s=wall_s)

        before = self._world.view
        if changes := build(before):
            await self._world.transact(build)
            # A world that takes nothing is asked again about once a second: what it does not know is no news yet.
            for change in changes:
                _log(change, before, self._withdrawn)

    async def _forget(self) -> None:
        """Drop what an earlier run of a source that is not to be stored left behind."""
        if self._store:
            return

        def build(view: WorldView) -> list[Change]:
            return [Delete(ref.kind, ref.key) for ref in known_refs(view, self.source.name).values()]

        try:
            await self._world.transact(build)
        except HostError as error:
            logger.warning("source_not_forgotten source=%s code=%s: %s", self.source.name, error.code, error.message)

    def _gone(self) -> tuple[Problem, ...]:
        if self._withdrawn == "keep":
            return ()
        return tuple(
            Problem(
                WITHDRAWN,
                f"{ref.plugin_id} rev {ref.rev} ({ref.digest}) is no longer offered by {ref.source}",
                hint="Pin another revision, or publish it again.",
            )
            for ref in known_refs(self._world.view, self.source.name).values()
            if not ref.offered and self._world.view.of(ref.plugin_id).get(Completion, ref.digest) is not None
        )


def _log(change: Change, before: WorldView, withdrawn: Withdrawn) -> None:
    if isinstance(change, Delete) or not isinstance(change.record, ManifestRef):
        return
    ref = change.record
    if not ref.offered:
        level = logging.INFO if withdrawn == "keep" else logging.WARNING
        logger.log(
            level,
            "package_withdrawn plugin=%s rev=%s digest=%s source=%s",
            ref.plugin_id,
            ref.rev,
            ref.digest,
            ref.source,
        )
    elif before.get(ManifestRef, ref.key) is None:
        logger.info(
            "package_found plugin=%s rev=%s platform=%s digest=%s source=%s",
            ref.plugin_id,
            ref.rev,
            ref.platform,
            ref.digest,
            ref.source,
        )
