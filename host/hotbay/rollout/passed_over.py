"""Why a version that is newer than what runs, or never ran, is not chosen, and what to do about it. Pure.

Every rule of `selection` that leaves a version out has its sentence here, in the order in which the rules act: the first
that holds is the one to mend first.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Final

from hotbay.rollout.selection import Candidate, Policy, Selection

__all__ = ["MAX_BELOW", "MAX_SHOWN", "Known", "Passed", "never_chosen", "passed_over", "why_not"]

MAX_SHOWN: Final = 20
"""Versions of one plugin that are told of, the newest: more say nothing new."""
MAX_BELOW: Final = 3
"""Of versions below what runs, the highest: a source may hold all that there ever were."""


@dataclass(frozen=True, slots=True)
class Known:
    """What a person is told of one build beside what decides.

    `lacks` are the capabilities that it asks for and nobody has granted, `grant` is the command that grants them;
    `quarantine` says why it is in quarantine. `pinned_here`: the pin was set by a command. `ran`: it was live here once, or
    no source offers it any more.
    """

    plugin_id: str
    lacks: Sequence[str] = ()
    grant: str = ""
    quarantine: str = ""
    pinned_here: bool = False
    ran: bool = False


@dataclass(frozen=True, slots=True)
class Passed:
    """One version that is not chosen: why, and what to do."""

    candidate: Candidate
    why: str
    hint: str


def passed_over(
    candidates: Sequence[Candidate],
    policy: Policy,
    selection: Selection,
    known: Callable[[str], Known],
    *,
    live_rev: int,
) -> list[Passed]:
    """The newest first, at most `MAX_SHOWN`, and `MAX_BELOW` of those below what runs. `known` is asked by digest."""
    target = selection.target
    newest_rev = max(live_rev, target.rev if target is not None else 0)
    newer = [c for c in candidates if c.rev > newest_rev]
    hosted = {c.rev for c in newer if c.platform in policy.platforms}
    # Builds for other machines are told of only where there is none for this one.
    told = {c.digest: c for c in newer if c.platform in policy.platforms or c.rev not in hosted}
    newest = sorted(told.values(), key=lambda c: (-c.rev, c.digest))[:MAX_SHOWN]
    told_of = [Passed(c, *why_not(c, policy, selection, known(c.digest))) for c in newest]
    return [*told_of, *_below(candidates, policy, selection, known, newest_rev)][:MAX_SHOWN]


def why_not(c: Candidate, policy: Policy, selection: Selection, known: Known) -> tuple[str, str]:
    """Why one that `selection` leaves out is left out, and what to do."""
    return next(_reasons(c, policy, selection, known))


def never_chosen(
    candidates: Sequence[Candidate], policy: Policy, selection: Selection, rev: int
) -> Mapping[str, Candidate]:
    """Builds for this machine below `rev` that were not fetched and are not to be, by digest."""
    target = selection.target.digest if selection.target is not None else None
    return {
        c.digest: c
        for c in candidates
        if c.rev < rev and c.platform in policy.platforms and not c.complete and c.digest != target
    }


def _below(
    candidates: Sequence[Candidate],
    policy: Policy,
    selection: Selection,
    known: Callable[[str], Known],
    newest_rev: int,
) -> Iterator[Passed]:
    """Those that nothing will choose as long as a higher one is there. What was chosen once, or is now, is left out."""
    found = sorted(never_chosen(candidates, policy, selection, newest_rev).values(), key=lambda c: (-c.rev, c.digest))
    # By its revision it is the other content that is pinned.
    conflicts = {c.digest for c in selection.conflicts}
    news = ((c, about) for c in found if not (about := known(c.digest)).ran)
    for c, about in islice(news, MAX_BELOW):
        below = (
            f"it is below rev {newest_rev}, and the highest runs",
            f"`hotbay pin {about.plugin_id}@{c.digest if c.digest in conflicts else c.rev}` runs it; or pack it again with a higher --rev",
        )
        yield Passed(c, *next(chain(_refused_by_policy(c, policy, about), _barred(c, about)), below))


def _reasons(c: Candidate, policy: Policy, selection: Selection, known: Known) -> Iterator[tuple[str, str]]:
    name = known.plugin_id
    if c.platform not in policy.platforms:
        yield (
            f"it is for {c.platform}, which no host here is",
            "publish a build for this machine, or name one in `hosts`",
        )
    yield from _refused_by_policy(c, policy, known)
    if any(c.digest == conflict.digest for conflict in selection.conflicts):
        yield (
            f"other content has rev {c.rev} already",
            f"publish changed content under a new rev, or `hotbay pin {name}@{c.digest}`",
        )
    yield from _barred(c, known)
    if c.rev < policy.floor_rev:
        yield (
            f"it is below rev {policy.floor_rev}, the highest that was here",
            f"`hotbay pin {name}@{c.digest}` goes below it",
        )
    yield "it is not chosen", f"`hotbay status` says what {name} waits for"


def _refused_by_policy(c: Candidate, policy: Policy, known: Known) -> Iterator[tuple[str, str]]:
    pin = policy.pin
    if pin is not None and not pin.admits(c):
        hint = (
            f"`hotbay unpin {known.plugin_id}` ends it" if known.pinned_here else "`pin` in the configuration names it"
        )
        yield f"the pin is on {pin.digest or f'rev {pin.rev}'}", hint
    if policy.locked is not None and c.digest not in policy.locked:
        yield "it is not in the lock file", "write its rev and digest there, and `hotbay apply`"
    if policy.locked is None and c.channel not in policy.channels:
        yield f"its channel {c.channel} is not followed", "`channel` of the package's entry says which is"
    if c.denied:
        yield "trust.denied names it", "take it off the list"


def _barred(c: Candidate, known: Known) -> Iterator[tuple[str, str]]:
    """What keeps it from running also where it is pinned."""
    if c.quarantined:
        reason = f": {known.quarantine}" if known.quarantine else ""
        yield f"it is in quarantine{reason}", f"`hotbay quarantine clear {c.digest}` lets it be tried again"
    if not c.granted:
        yield f"it asks for {', '.join(known.lacks)}, which is not granted", f"`{known.grant}` allows it"
