"""Which rows a cycle chooses from, beside what filters say: who is live, who is tried again, and whom to avoid. Pure.

An endpoint that was ejected is not live. It is a candidate in two cases. One cycle at a time is its probe: where the filters
leave the endpoint in, the request goes there, with what would have been picked as its fallback. And where filters leave
nothing of what is live, they are asked again with all that were ejected: an answer that may fail is better than none.
"""

from collections.abc import Iterable, Sequence
from copy import copy
from typing import Protocol

import numpy as np
import numpy.typing as npt

from hotbay.datalayer.tables.snapshot import Snapshot
from hotbay.scheduling.shares import Shares

__all__ = ["EVERYBODY", "Admission", "Candidates", "Pool", "rows_of"]

Mask = npt.NDArray[np.bool_]


class Admission(Protocol):
    """Who was ejected, and who is to be tried again."""

    @property
    def ejected(self) -> Sequence[str]:
        """Ids of endpoints that are not live only because they failed; another object whenever they are others."""

    def probe(self) -> str | None:
        """The endpoint that the next request is to try. Whoever takes it sends it there, or says `unused`."""

    def unused(self, endpoint_id: str) -> None:
        """The request went elsewhere."""


class _Everybody:
    """Nobody is ever ejected."""

    ejected: Sequence[str] = ()

    def probe(self) -> str | None:
        return None

    def unused(self, endpoint_id: str) -> None:
        raise AssertionError(f"nobody was asked to try {endpoint_id}")


EVERYBODY: Admission = _Everybody()


def rows_of(ids: Iterable[str], snapshot: Snapshot) -> list[int]:
    """Rows of those endpoints that are there."""
    return [row for row in map(snapshot.row_of.get, ids) if row is not None]


class Candidates:
    """The rows of one cycle. `base` is what its filters begin with: `snapshot.live` itself wherever that will do.

    One made of a snapshot alone never changes, and may be shared by cycles.
    """

    __slots__ = ("_probes", "_spare", "base", "probe")

    def __init__(
        self, snapshot: Snapshot, *, probe: str | None = None, avoid: Iterable[str] = (), spare: Sequence[int] = ()
    ) -> None:
        """`probe` and `avoid` are endpoint ids, of which some may be gone; `spare` the rows of those that were ejected."""
        self.base: Mask = snapshot.live
        self.probe = snapshot.row_of.get(probe) if probe is not None else None
        self._spare = spare
        self._probes = False
        if self.probe is not None:
            self._set([self.probe], is_candidate=True)
        avoided = rows_of(avoid, snapshot)
        if avoided:
            self._spare = [row for row in self._spare if row not in avoided]
            self._set(avoided, is_candidate=False)

    def everyone(self) -> Mask:
        """All that may become candidates, those that were ejected among them."""
        if not self._spare:
            return self.base
        everyone = self.base.copy()
        everyone[list(self._spare)] = True
        return everyone

    def screened(self, kept: Mask) -> "Candidates":
        """These candidates without the rows that are not kept; one that was to be tried is then like any that filters drop."""
        left = copy(self)
        left.base = self.base & kept
        left._spare = [row for row in self._spare if kept[row]]
        return left

    def widen(self) -> bool:
        """Take in those that were ejected; False when that adds nobody."""
        rows, self._spare = [row for row in self._spare if not self.base[row]], ()
        if rows:
            self._set(rows, is_candidate=True)
        return bool(rows)

    def for_pick(self, mask: Mask, shares: Shares, snapshot: Snapshot) -> Mask:
        """What a picker may choose from, of the rows that filters left."""
        probe = self.probe
        if probe is not None and mask[probe]:
            self._probes = True
            others = mask.copy()
            others[probe] = False
            if not others.any():
                return mask
            mask = others
        return shares.narrowed(mask, snapshot)

    def with_probe(self, rows: list[int] | None) -> list[int] | None:
        """The rows that were picked, behind the one that is tried if the filters left it in."""
        if not self._probes or self.probe is None:
            return rows
        self._probes = False
        return [self.probe, *(row for row in rows or () if row != self.probe)]

    def _set(self, rows: Sequence[int], *, is_candidate: bool) -> None:
        self.base = self.base.copy()
        self.base[rows] = is_candidate


class Pool:
    """Where requests may go before anybody is asked. What all requests of a snapshot share is made once."""

    __slots__ = ("_admission", "_ejected", "_seen", "_spare", "all_live")

    def __init__(self, admission: Admission) -> None:
        self.all_live: Candidates | None = None
        self._admission = admission
        self._seen: Snapshot | None = None
        self._ejected: Sequence[str] = ()
        self._spare: Sequence[int] = ()

    def candidates(self, snapshot: Snapshot, avoid: frozenset[str]) -> Candidates | None:
        """The rows for one request that is to stay away from `avoid`; None when there is no such place."""
        admission = self._admission
        if snapshot is not self._seen or admission.ejected is not self._ejected:
            self._seen, self._ejected = snapshot, admission.ejected
            self.all_live = Candidates(snapshot) if snapshot.live.any() else None
            self._spare = rows_of(self._ejected, snapshot)
        probe = None if avoid else admission.probe()
        if probe is None and not avoid and not self._spare:
            return self.all_live
        candidates = Candidates(snapshot, probe=probe, avoid=avoid, spare=self._spare)
        if probe is not None and candidates.probe is None:
            admission.unused(probe)
        return candidates if candidates.base.any() or candidates.widen() else None
