"""What crosses to a candidate while its answers are only compared: copies of cycles, each as it was before its call."""

from collections.abc import Mapping

from hotbay_sdk.protocol.verdicts import HeaderEdits

from hotbay.scheduling.batch import CycleState, Datum, Floats, LastGood, Mask
from hotbay.scheduling.binding import Binding
from hotbay.scheduling.decision import Rejected
from hotbay.scheduling.explain import Notes

__all__ = ["CycleCopy"]


class CycleCopy:
    """A cycle at the moment of a call. Answers change the copy only, and no failure policy acts.

    `asked` are the candidates as they were. `ended` is set when nobody wants the answer any more.
    """

    __slots__ = (
        "answered",
        "asked",
        "chosen",
        "data",
        "drained",
        "edits",
        "ended",
        "kept",
        "last_good",
        "mask",
        "notes",
        "peer",
        "picked",
        "primary",
        "request",
        "results",
        "saturation",
        "snapshot",
        "target",
        "totals",
        "waiting",
    )

    def __init__(self, cycle: CycleState) -> None:
        self.request = cycle.request
        self.snapshot = cycle.snapshot
        self.mask = self.asked = cycle.mask
        self.totals: Floats | None = cycle.totals
        self.data: dict[str, Datum] = dict(cycle.data)
        self.results: dict[str, list[int] | None] = dict(cycle.results)
        self.picked: list[int] | None = None
        self.chosen: list[str] | None = None
        self.primary: str | None = None
        self.drained = cycle.drained
        self.peer = cycle.peer
        self.kept: Mask | None = None
        self.saturation = 0.0
        self.target = cycle.target
        self.edits: dict[int, HeaderEdits] = {}
        self.notes: Notes = []
        self.last_good: LastGood = {}
        self.answered: list[int] = []
        self.waiting = 0
        self.ended = False

    def degrade(self, binding: Binding, reason: str) -> None:
        """Nothing is decided here."""

    def reject(self, rejected: Rejected) -> None:
        """Nor here."""

    def set_attributes(self, attributes: Mapping[str, str | int | float]) -> None:
        """The request is the live one's: nothing is set."""
