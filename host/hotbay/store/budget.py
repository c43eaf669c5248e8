"""How much room the store may take, and whether something more fits. What decides is pure; `DiskBudget` looks.

Two bounds hold: the operator's budget for everything that the store keeps, and some room that stays free on the file
system for everybody else. A fetch that would pass one of them is refused before its first byte, because a disk that is
really full stops the world's transactions too.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from hotbay.errors import CapacityError
from hotbay.store.blobs import BlobStore

ALARM_USED_SHARE: Final = 0.9
"""Of the budget: above it the operator is told."""

ALARM_FREE_SHARE: Final = 0.05
"""Of the file system: below it the operator is told."""

KEEP_FREE_SHARE: Final = 0.01
KEEP_FREE_MAX_BYTES: Final = 1 << 30
"""What stays free is a share of the file system, at most this: large disks need no more for logs and the world."""

__all__ = ["DiskBudget", "DiskUsage", "refusal"]


@dataclass(frozen=True, slots=True)
class DiskUsage:
    """Bytes: of blobs, parts and environments; the budget (None: no limit); free and total of the file system."""

    blob_bytes: int
    part_bytes: int
    environment_bytes: int
    limit_bytes: int | None
    free_bytes: int
    total_bytes: int

    @property
    def used_bytes(self) -> int:
        """What counts against the budget."""
        return self.blob_bytes + self.part_bytes + self.environment_bytes

    @property
    def keep_free_bytes(self) -> int:
        """What has to stay free on the file system."""
        return min(int(self.total_bytes * KEEP_FREE_SHARE), KEEP_FREE_MAX_BYTES)

    @property
    def alarms(self) -> tuple[str, ...]:
        """What the operator should know, as sentences; empty when there is room."""
        found = []
        if self.limit_bytes is not None and self.used_bytes > self.limit_bytes * ALARM_USED_SHARE:
            found.append(f"the store uses {self.used_bytes} of the {self.limit_bytes} bytes of limits.store")
        if self.free_bytes < self.total_bytes * ALARM_FREE_SHARE:
            found.append(f"the store's file system has {self.free_bytes} of {self.total_bytes} bytes free")
        return tuple(found)


def refusal(usage: DiskUsage, need_bytes: int) -> str | None:
    """Why this many bytes more do not fit; None when they do. Both bounds may be reached, not passed."""
    if usage.limit_bytes is not None and usage.used_bytes + need_bytes > usage.limit_bytes:
        return f"limits.store allows {usage.limit_bytes} bytes, {usage.used_bytes} are used"
    # A file system without a size of its own says 0.
    if usage.total_bytes and usage.free_bytes - need_bytes < usage.keep_free_bytes:
        return f"{usage.free_bytes} bytes are free and {usage.keep_free_bytes} have to stay free"
    return None


class DiskBudget:
    """The bounds for one store. Its methods block; calls may overlap."""

    def __init__(
        self, store: BlobStore, environments: Callable[[], Mapping[str, int]], *, limit_bytes: int | None = None
    ) -> None:
        self._store = store
        self._environments = environments
        self._limit_bytes = limit_bytes

    def usage(self) -> DiskUsage:
        """What is used now. Looks at every file; not for every request."""
        self._store.lay_out()
        found = os.statvfs(self._store.root)
        return DiskUsage(
            blob_bytes=sum(self._store.present().values()),
            part_bytes=self._store.part_bytes(),
            environment_bytes=sum(self._environments().values()),
            limit_bytes=self._limit_bytes,
            free_bytes=found.f_bavail * found.f_frsize,
            total_bytes=found.f_blocks * found.f_frsize,
        )

    def check_room(self, need_bytes: int) -> None:
        """Raises CapacityError RESOURCE_EXHAUSTED when this many bytes more do not fit."""
        usage = self.usage()
        reason = refusal(usage, need_bytes)
        if reason is not None:
            raise CapacityError(
                "RESOURCE_EXHAUSTED",
                f"no room for {need_bytes} bytes below {self._store.root}: {reason}",
                hint="run `hotbay gc`, free space on that file system or raise limits.store; it is tried again by itself",
                details={"need": need_bytes, "used": usage.used_bytes, "free": usage.free_bytes},
            )
