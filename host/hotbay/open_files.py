"""How many files this process may have open, and how many clients that is: each needs a descriptor of its own, and one to
its model server while it is answered.

Invariant: no more clients are let in than there are descriptors for, so that one too many is told so, instead of waiting
for an accept that fails.
"""

import resource
from dataclasses import dataclass
from typing import Final

from hotbay.errors import Problem

__all__ = ["OpenFiles", "raise_limit"]

RESERVED: Final = 1024
"""For plugins (five each), the world, downloads, discovery, and twice the connections that go to a successor at once."""
_PER_CLIENT: Final = 2


@dataclass(frozen=True, slots=True)
class OpenFiles:
    """What a limit of open files is good for. Pure."""

    limit: int

    def clients(self, wanted: int) -> int:
        """How many clients can be connected at once, `wanted` at most and 1 at least."""
        # A process that may open few files gives half of them to clients all the same.
        reserved = min(RESERVED, self.limit // 2)
        return max(1, min(wanted, (self.limit - reserved) // _PER_CLIENT))

    def problem(self, wanted: int) -> Problem | None:
        """What to tell the operator when `wanted` clients are more than there can be."""
        found = self.clients(wanted)
        if found >= wanted:
            return None
        return Problem(
            "RESOURCE_EXHAUSTED",
            f"{self.limit} open files are allowed: {found} clients can be connected at once, one more is refused",
            expected=f"{needed_files(wanted)} for {wanted} clients",
            found=str(self.limit),
            hint="raise the hard limit of open files: LimitNOFILE= of the service, or `ulimit -Hn`",
        )


def needed_files(clients: int) -> int:
    """The limit of open files with which so many clients can be connected."""
    return clients * _PER_CLIENT + RESERVED


def raise_limit(clients: int, *, dry_run: bool = False) -> OpenFiles:
    """Raise the soft limit of this process as far as so many clients need it and the hard one allows; never lower it.

    Not beyond: programs that go through all descriptors they might have take minutes where a limit is in billions, and
    plugins inherit it. With `dry_run` nothing is changed.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = needed_files(clients)
    limit = wanted if hard == resource.RLIM_INFINITY else min(hard, wanted)
    if soft == resource.RLIM_INFINITY or soft >= limit:
        return OpenFiles(wanted if soft == resource.RLIM_INFINITY else soft)
    if not dry_run:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    return OpenFiles(limit)
