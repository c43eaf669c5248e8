"""How far a trial is: what it has counted, and what it wants before its verdict. Pure."""

from dataclasses import dataclass

__all__ = ["Gathered"]


@dataclass(frozen=True, slots=True)
class Gathered:
    """What a trial has by now.

    Args:
        counted: what `count` and `wanted` are numbers of: `calls` or `requests` of the candidate.
        elapsed_s, for_s: how long it has gone on, and how long it is to.
        at_most_s: it ends then, whatever was counted; None where either the count or the time is enough.
    """

    counted: str
    count: int
    wanted: int
    elapsed_s: float
    for_s: float
    at_most_s: float | None = None

    @property
    def enough(self) -> bool:
        """Whether the trial may end."""
        is_counted, is_over = self.count >= self.wanted, self.elapsed_s >= self.for_s
        if self.at_most_s is None:
            return is_counted or is_over
        return (is_counted and is_over) or self.elapsed_s >= self.at_most_s
