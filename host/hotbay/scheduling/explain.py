"""Why a decision came out as it did: what is kept of each, for a while. `explained` reads it.

Pure. While a request is decided little more than references are noted: to what plugins answered, to masks and totals as they were.
Nothing is put into words before somebody asks. Of an answer that is kept which is bounded by what was asked, or short
(`kept_answers`). Of what a decision used, neither its request, nor its snapshot, nor its plan is held: a plan that is gone would
keep its processes' clients.
"""

from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import islice
from types import MappingProxyType
from typing import Final, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
from hotbay_sdk.protocol import Method, Value

from hotbay.datalayer.tables.snapshot import Snapshot
from hotbay.scheduling.binding import Binding
from hotbay.scheduling.decision import Decision
from hotbay.scheduling.kept_answers import kept_part
from hotbay.scheduling.request import InferenceRequest

__all__ = [
    "Answered",
    "CallFacts",
    "Kept",
    "Notes",
    "PlanFacts",
    "Ran",
    "Trace",
    "Traces",
    "noted",
]

Floats = npt.NDArray[np.float32]
Mask = npt.NDArray[np.bool_]

MAX_DECISIONS: Final = 1024
"""Decisions that are kept: some seconds of them at a busy host, minutes at others."""
MAX_BYTES: Final = 16 * 1024 * 1024
"""Of arrays and answers that kept decisions hold, about: a decision of three scorers over 1000 endpoints holds 20 kB."""
ROW_BYTES: Final = 12
"""Of one endpoint in a kept decision beside its scores: masks, totals, and the ids that it shares."""
LEAST_BYTES: Final = 1024
"""Of a kept decision without any endpoint."""


class CallFacts(NamedTuple):
    """What is told of a call of a plan, without the plan."""

    method: Method
    bindings: tuple[Binding, ...]
    profile: str
    plugin: str
    version: str
    generation: int


class Answered:
    """One answer to a batch. `sent_s` and `duration_s` are of the performance counter, in seconds.

    `uncounted_bytes` are held by it and not counted yet, nor by `ROW_BYTES`.
    """

    __slots__ = ("duration_s", "facts", "requests", "result", "sent_s", "uncounted_bytes")

    def __init__(
        self, facts: CallFacts, requests: int, result: Value, sent_s: float, duration_s: float, held_bytes: int = 0
    ) -> None:
        self.facts = facts
        self.requests = requests
        self.result = result
        self.sent_s = sent_s
        self.duration_s = duration_s
        self.uncounted_bytes = held_bytes


def noted(facts: CallFacts, requests: int, result: Value, sent_s: float, duration_s: float) -> Answered:
    """The answer of a result that was applied, as far as it is kept."""
    kept, held_bytes = kept_part(facts.method, len(facts.bindings), requests, result)
    return Answered(facts, requests, kept, sent_s, duration_s, held_bytes)


Notes = list[tuple[Answered, int]]
"""Answers that a cycle got, in their order, and its place in each batch."""


Ran = tuple[str, Mask, Floats | None, list[int] | None]
"""One run of a profile: its name, the rows that its picker chose among, by which totals, and which it chose."""


class PlanFacts(NamedTuple):
    """What is told of a plan, without the plan: its number, ref → policy, and what a decision holds for one endpoint.

    `pickers` has ref and type by profile, `handler` those of the profile handler.
    """

    number: int
    policies: Mapping[str, str]
    row_bytes: int
    pickers: Mapping[str, tuple[str, str]] = MappingProxyType({})
    handler: tuple[str, str] = ("", "")


Kept = tuple[
    str, float, float, PlanFacts, int, Sequence[str], Mask, Notes, list[Ran], list[tuple[str, str]], Decision,
    Mask, Sequence[str], Collection[str], int | None, int,
]  # fmt: skip
"""The fields of a `Trace`. A plain tuple, because one is made for every decision, and a `Trace` only when somebody asks."""


class Trace(NamedTuple):
    """What is kept of one decision."""

    request: str
    begun_s: float
    ended_s: float
    plan: PlanFacts
    epoch: int
    ids: Sequence[str]
    base: Mask
    notes: Notes
    ran: list[Ran]
    degraded: list[tuple[str, str]]
    decision: Decision
    live: Mask
    ejected: Sequence[str]
    avoid: Collection[str]
    probe: int | None
    size_bytes: int


class Explainable(Protocol):
    """A plan, as far as it is kept."""

    @property
    def facts(self) -> PlanFacts: ...


class Rows(Protocol):
    """Candidates, as far as they are kept."""

    @property
    def base(self) -> Mask: ...


class Decided(Protocol):
    """A cycle that came to its decision."""

    @property
    def request(self) -> InferenceRequest: ...
    @property
    def snapshot(self) -> Snapshot: ...
    @property
    def plan(self) -> Explainable: ...
    @property
    def candidates(self) -> Rows: ...
    @property
    def probe(self) -> int | None: ...

    begun_s: float
    ended_s: float
    notes: Notes
    ran: list[Ran]
    degraded: list[tuple[str, str]]
    decision: Decision | None


class Traces:
    """The newest decisions, as many as fit into both bounds."""

    __slots__ = ("_bytes", "_kept", "max_bytes", "max_count")

    def __init__(self, *, max_count: int = MAX_DECISIONS, max_bytes: int = MAX_BYTES) -> None:
        self._kept: deque[Kept] = deque()
        self._bytes = 0
        self.max_bytes = max_bytes
        self.max_count = max_count

    def bound(self, *, max_count: int, max_bytes: int) -> None:
        """Keep so many, and so much, from here on; what does not fit any more goes now."""
        self.max_count, self.max_bytes = max_count, max_bytes
        while self._bytes > max_bytes or len(self._kept) > max_count:
            self._bytes -= self._kept.popleft()[-1]

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def size_bytes(self) -> int:
        """Bytes of arrays and answers that are held, about."""
        return self._bytes

    def keep(self, decided: Iterable[Decided], ejected: Sequence[str] = ()) -> None:
        """Keep decisions, in their order; the oldest make room."""
        ring, held = self._kept, self._bytes
        for cycle in decided:
            assert cycle.decision is not None, "it is decided"
            snapshot, facts = cycle.snapshot, cycle.plan.facts
            size_bytes = LEAST_BYTES + snapshot.rows * facts.row_bytes
            for note, _ in cycle.notes:
                # Once, with the first of its batch: those go soon after each other.
                size_bytes += note.uncounted_bytes
                note.uncounted_bytes = 0
            held += size_bytes
            ring.append(
                (
                    cycle.request.id,
                    cycle.begun_s,
                    cycle.ended_s,
                    facts,
                    snapshot.epoch,
                    snapshot.ids,
                    cycle.candidates.base,
                    cycle.notes,
                    cycle.ran,
                    cycle.degraded,
                    cycle.decision,
                    snapshot.live,
                    ejected,
                    cycle.request.avoid,
                    cycle.probe,
                    size_bytes,
                )
            )
            while held > self.max_bytes or len(ring) > self.max_count:
                held -= ring.popleft()[-1]
        self._bytes = held

    @property
    def oldest_s(self) -> float | None:
        """When the oldest decision that is kept was made, by the performance counter; None without any."""
        return self._kept[0][2] if self._kept else None

    def latest(self, count: int, request_id: str | None = None) -> Sequence[Trace]:
        """The newest decisions, for one request or for any, the newest last."""
        wanted = (kept for kept in reversed(self._kept) if request_id is None or kept[0] == request_id)
        return [Trace(*kept) for kept in islice(wanted, count)][::-1]

    def find(self, request_id: str) -> Trace | None:
        """The latest decision for a request; None when it is not kept, or not any more."""
        found = self.latest(1, request_id)
        return found[0] if found else None
