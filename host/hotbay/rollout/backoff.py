"""Decides when a plugin that failed starts again, or that it stays down. Pure: time and chance are arguments.

- The n-th delay in a row is drawn uniformly from [1/2, 1] of first × factor^(n-1), at most max.
- 60 s of health set the row back to its beginning, whatever happens after them.
- The fifth failure within ten minutes disables the plugin; health in between does not clear this count.
- A failure that does not count (a SIGKILL that the host did not send) lengthens the row but not the count.
"""

from dataclasses import dataclass, field
from typing import Final

__all__ = ["BackoffPolicy", "BackoffState", "Disabled", "Restart", "became_ready", "failed"]

# Beyond this many doublings every sensible maximum is reached; it keeps the power finite.
_STEPS_MAX: Final = 64


@dataclass(frozen=True, slots=True)
class BackoffPolicy:
    first_s: float = 0.1
    factor: float = 2.0
    max_s: float = 30.0
    stable_s: float = 60.0
    budget_failures: int = 5
    budget_within_s: float = 600.0

    def __post_init__(self) -> None:
        if not (0 < self.first_s <= self.max_s and self.factor >= 1 and self.budget_failures >= 1):
            raise ValueError("expected 0 < first <= max, factor >= 1 and a budget of at least one failure")

    def step_s(self, step: int) -> float:
        """Longest delay after `step` earlier failures in a row."""
        return min(self.max_s, self.first_s * self.factor ** min(step, _STEPS_MAX))


@dataclass(frozen=True, slots=True)
class BackoffState:
    """One plugin's recent past. A new value is a plugin that never failed; so is one that was enabled again."""

    step: int = 0
    failures: tuple[float, ...] = field(default=())
    ready_since: float | None = None


@dataclass(frozen=True, slots=True)
class Restart:
    """Start again after this delay."""

    delay_s: float


@dataclass(frozen=True, slots=True)
class Disabled:
    """Stay down until a person enables it: this many failures within the budget's time."""

    failures: int


def became_ready(state: BackoffState, *, now: float) -> BackoffState:
    return BackoffState(state.step, state.failures, now)


def failed(
    policy: BackoffPolicy, state: BackoffState, *, now: float, random: float, counts: bool = True
) -> tuple[BackoffState, Restart | Disabled]:
    """`random` is uniform in [0, 1); `now` never goes back; `counts` is false for kills from outside."""
    stable = state.ready_since is not None and now - state.ready_since >= policy.stable_s
    step = 0 if stable else state.step
    recent = tuple(at for at in state.failures if now - at < policy.budget_within_s)
    if counts:
        recent = (*recent, now)
    after = BackoffState(step + 1, recent, None)
    if counts and len(recent) >= policy.budget_failures:
        return after, Disabled(len(recent))
    return after, Restart(policy.step_s(step) * (0.5 + random / 2))
