"""Decides, for one plugin id, which revision should run (`target`) and which may run now (`live`). Pure.

1. Eligible is what has a host for its platform, is neither quarantined nor denied, granted, in the allowed channel, and
   matches the pin if there is one; where a lock is in force, only what it names. A revision below the floor (the
   highest ever completed here) that is not complete is eligible only when pinned by digest or locked: a source cannot
   offer its way back to an old version.
2. Of several digests with the same (rev, platform) that pin, lock and channel allow and nobody denies, one is kept: the
   live one, else one that is complete and in no quarantine, else one that is complete or in quarantine, else one that is
   offered, else the smallest. The others are conflicts and never chosen, whatever their state: content that comes later
   takes nothing from what ran, nor from the operator's word, and mends nothing that was refused.
3. Order: rev descending, then the host's preference of platforms.
4. `target` is the first; `live` is the first that is complete. Nothing incomplete ever runs.

For equal (set of candidates, live, policy) the outcome is equal: neither order nor repetition counts.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum

__all__ = ["Candidate", "Pin", "Policy", "Selection", "Status", "by_digest", "select"]


class Status(Enum):
    """What to tell the operator about one plugin id."""

    CURRENT = "current"
    DOWNLOADING = "downloading"
    WAITING_FOR_DOWNLOAD = "waiting for download"
    AWAITING_GRANT = "awaiting grant"
    QUARANTINED = "quarantined"
    PIN_UNKNOWN = "pinned version unknown"
    NO_HOST = "no host for its platforms"
    NONE_ALLOWED = "no version allowed"
    NOT_LOCKED = "not in the lock file"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Candidate:
    """One known build of a plugin, as the world knows it now.

    `denied`: the operator's policy refuses it, or its source took it back and the policy for that is to stop it.
    `fetchable`: a source could be asked for it. `offered`: one shows it at this time.
    """

    digest: str
    rev: int
    platform: str
    channel: str = "release"
    complete: bool = False
    quarantined: bool = False
    granted: bool = True
    denied: bool = False
    fetchable: bool = True
    offered: bool = True

    @property
    def barred(self) -> bool:
        """Whether it may not even go on running."""
        return self.quarantined or self.denied or not self.granted


@dataclass(frozen=True, slots=True)
class Pin:
    """The operator's choice of one revision or one digest."""

    rev: int | None = None
    digest: str | None = None

    def __post_init__(self) -> None:
        if (self.rev is None) == (self.digest is None):
            raise ValueError("a pin names a rev or a digest")

    def admits(self, candidate: Candidate) -> bool:
        return candidate.digest == self.digest if self.rev is None else candidate.rev == self.rev


@dataclass(frozen=True, slots=True)
class Policy:
    """`platforms` are the hosts' tags, the preferred first; `channels` are those the operator follows.

    `locked` are the digests that a lock file in force names; None without one.
    """

    platforms: tuple[str, ...]
    channels: frozenset[str] = frozenset({"release", "dev"})
    pin: Pin | None = None
    floor_rev: int = 0
    locked: frozenset[str] | None = None

    def allows(self, candidate: Candidate) -> bool:
        """Whether the operator follows such versions at all."""
        if self.pin is not None and not self.pin.admits(candidate):
            return False
        if self.locked is not None:
            return candidate.digest in self.locked
        return candidate.channel in self.channels


@dataclass(frozen=True, slots=True)
class Selection:
    """The outcome, in order of preference: `target` is the first that is `eligible`; the others are for status and log."""

    live: Candidate | None
    target: Candidate | None
    status: Status
    eligible: tuple[Candidate, ...] = ()
    awaiting_grant: tuple[Candidate, ...] = ()
    conflicts: tuple[Candidate, ...] = ()


def select(candidates: Iterable[Candidate], policy: Policy, *, live: Candidate | None = None) -> Selection:
    """`live` is what runs now; it stays a candidate, as complete, when no source names it any more."""
    known = by_digest(candidates)
    if live is not None:
        known.setdefault(live.digest, live)
    hosted = sorted(
        (candidate for candidate in known.values() if candidate.platform in policy.platforms),
        key=lambda candidate: _preference(candidate, policy),
    )
    kept, conflicts = _one_per_build(hosted, policy, live.digest if live else None)
    allowed = [c for c in kept if policy.allows(c)]
    ungranted = [c for c in allowed if not c.granted and not c.quarantined and not c.denied]
    eligible = [c for c in allowed if not c.barred and _is_above_floor(c, policy)]
    target = eligible[0] if eligible else None
    chosen = next((candidate for candidate in eligible if candidate.complete), None)
    awaiting = tuple(
        candidate
        for candidate in ungranted
        if _is_above_floor(candidate, policy)
        and (target is None or _preference(candidate, policy) < _preference(target, policy))
    )
    if target is None:
        status = _why_nothing(known, hosted, allowed, awaiting, policy)
    elif chosen is None:
        status = Status.WAITING_FOR_DOWNLOAD
    else:
        status = Status.CURRENT if chosen is target else Status.DOWNLOADING
    return Selection(chosen, target, status, tuple(eligible), awaiting, conflicts)


def by_digest(candidates: Iterable[Candidate]) -> dict[str, Candidate]:
    """One candidate for each digest, also where several sources show it."""
    known: dict[str, Candidate] = {}
    for candidate in candidates:
        before = known.get(candidate.digest)
        known[candidate.digest] = candidate if before is None else _merged(before, candidate)
    return known


def _merged(one: Candidate, other: Candidate) -> Candidate:
    """Two views of one digest, from two sources: complete by either, held back by either."""
    return replace(
        one,
        complete=one.complete or other.complete,
        quarantined=one.quarantined or other.quarantined,
        granted=one.granted and other.granted,
        denied=one.denied or other.denied,
        fetchable=one.fetchable or other.fetchable,
        offered=one.offered or other.offered,
    )


def _preference(candidate: Candidate, policy: Policy) -> tuple[int, int, str]:
    return -candidate.rev, policy.platforms.index(candidate.platform), candidate.digest


def _one_per_build(
    ordered: Sequence[Candidate], policy: Policy, live_digest: str | None
) -> tuple[list[Candidate], tuple[Candidate, ...]]:
    """What is kept, and the conflicts: to deny a build settles its own."""

    def claim(candidate: Candidate) -> tuple[bool, ...]:
        c, was_here = candidate, candidate.complete or candidate.quarantined
        is_out = c.denied or not policy.allows(c)
        return is_out, c.digest != live_digest, c.quarantined or not c.complete, not was_here, not c.offered

    winners: dict[tuple[int, str], Candidate] = {}
    # The order of equal claims stays: that of the digests.
    for candidate in sorted(ordered, key=claim):
        winners.setdefault((candidate.rev, candidate.platform), candidate)
    kept = [candidate for candidate in ordered if winners[candidate.rev, candidate.platform] is candidate]
    others = [candidate for candidate in ordered if winners[candidate.rev, candidate.platform] is not candidate]
    return kept, tuple(candidate for candidate in others if not candidate.denied)


def _is_above_floor(candidate: Candidate, policy: Policy) -> bool:
    pinned = policy.pin is not None and policy.pin.digest == candidate.digest
    locked = policy.locked is not None and candidate.digest in policy.locked
    return candidate.complete or pinned or locked or candidate.rev >= policy.floor_rev


def _why_nothing(
    known: dict[str, Candidate],
    hosted: Sequence[Candidate],
    allowed: Sequence[Candidate],
    awaiting: Sequence[Candidate],
    policy: Policy,
) -> Status:
    if not known:
        return Status.UNKNOWN
    if not hosted:
        return Status.NO_HOST
    if awaiting:
        return Status.AWAITING_GRANT
    if any(candidate.quarantined for candidate in allowed):
        return Status.QUARANTINED
    if policy.pin is not None and not allowed:
        return Status.PIN_UNKNOWN
    return Status.NOT_LOCKED if policy.locked is not None and not allowed else Status.NONE_ALLOWED
