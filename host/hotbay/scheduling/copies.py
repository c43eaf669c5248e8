"""What crosses to a candidate while its answers are only compared: copies of cycles, each as it was before its call."""

from hotbay.scheduling.batch import CycleState, Floats, LastGood
from hotbay.scheduling.binding import Binding

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
        "ended",
        "last_good",
        "mask",
        "picked",
        "primary",
        "request",
        "results",
        "snapshot",
        "totals",
        "waiting",
    )

    def __init__(self, cycle: CycleState) -> None:
        self.request = cycle.request
        self.snapshot = cycle.snapshot
        self.mask = self.asked = cycle.mask
        self.totals: Floats | None = cycle.totals
        self.data: dict[str, Floats | float] = dict(cycle.data)
        self.results: dict[str, list[int] | None] = dict(cycle.results)
        self.picked: list[int] | None = None
        self.chosen: list[str] | None = None
        self.primary: str | None = None
        self.last_good: LastGood = {}
        self.answered: list[int] = []
        self.waiting = 0
        self.ended = False

    def degrade(self, binding: Binding, reason: str) -> None:
        """Nothing is decided here."""
