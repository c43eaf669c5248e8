"""How long a simulated engine takes for a step, from a handful of constants. Pure: random numbers are drawn from an argument.

A step is one pass of the batch through the model. Its time is

    base_s + prefill_token_s × (prompt tokens computed in it) + running_s × (sequences in it)

and `prefill_overhead_s` for each prompt that begins in it. That prompts slow down whoever is answered beside them, and
that a full batch is slower than an empty one, follows from it.
"""

from dataclasses import dataclass
from random import Random
from typing import Final, Self

from hotbay.errors import InputError, Problem

__all__ = ["Timing"]

SPREAD_MAX: Final = 0.3
"""A standard deviation may be this part of its mean, as in llm-d-inference-sim."""

DRAWN_MAX: Final = 0.7
"""A drawn time differs from its mean by at most this part of it, as in llm-d-inference-sim."""

_ROUNDING: Final = 1 + 1e-9
"""Three tenths of a mean that was itself added up may be a little more than 30 % of it."""


@dataclass(frozen=True, slots=True)
class Timing:
    """The constants, in seconds. All zero: everything happens at once.

    With `first_token_s` above zero, that is what a first token takes from when its request is admitted, however long the
    prompt is; `prefill_token_s` and `prefill_overhead_s` do not count then. `step_std_s` is the standard deviation of a step
    in which one sequence is answered; longer steps vary in proportion. `adapter_load_s` is added to a step that needs a
    LoRA adapter which is not in memory.
    """

    base_s: float = 0.0
    prefill_token_s: float = 0.0
    running_s: float = 0.0
    prefill_overhead_s: float = 0.0
    first_token_s: float = 0.0
    first_token_std_s: float = 0.0
    step_std_s: float = 0.0
    adapter_load_s: float = 0.0

    def __post_init__(self) -> None:
        problems = [
            _problem(name, "0 or more", getattr(self, name))
            for name in self.__dataclass_fields__
            if not 0.0 <= getattr(self, name) < float("inf")
        ]
        spreads = (("first_token_std_s", self.first_token_s), ("step_std_s", self.one_sequence_s))
        problems = problems or [
            _problem(name, f"at most {SPREAD_MAX:.0%} of {mean:g}", getattr(self, name))
            for name, mean in spreads
            if getattr(self, name) > SPREAD_MAX * mean * _ROUNDING
        ]
        if problems:
            raise InputError(problems)

    @classmethod
    def from_latencies(
        cls,
        *,
        inter_token_s: float = 0.0,
        factor_under_load: float = 1.0,
        sequences: int = 1,
        prefill_token_s: float = 0.0,
        prefill_overhead_s: float = 0.0,
        first_token_s: float = 0.0,
        first_token_std_s: float = 0.0,
        inter_token_std_s: float = 0.0,
        adapter_load_s: float = 0.0,
    ) -> Self:
        """The constants for what llm-d-inference-sim's flags say.

        A sequence alone gets a token each `inter_token_s`; a batch of `sequences` takes `factor_under_load` times as long.

        Raises:
            InputError: the factor is below 1 or a time negative, or a standard deviation above 30 % of its mean.
        """
        if not factor_under_load >= 1.0:
            raise InputError([_problem("time-factor-under-load", "1 or more", factor_under_load)])
        running_s = inter_token_s * (factor_under_load - 1.0) / (sequences - 1) if sequences > 1 else 0.0
        if running_s > inter_token_s:
            raise InputError([_problem("time-factor-under-load", f"at most {sequences}", factor_under_load)])
        return cls(
            base_s=inter_token_s - running_s,
            prefill_token_s=prefill_token_s,
            running_s=running_s,
            prefill_overhead_s=prefill_overhead_s,
            first_token_s=first_token_s,
            first_token_std_s=first_token_std_s,
            step_std_s=inter_token_std_s,
            adapter_load_s=adapter_load_s,
        )

    @property
    def one_sequence_s(self) -> float:
        """A step in which one sequence gets its next token."""
        return self.base_s + self.running_s

    def factor_under_load(self, sequences: int) -> float:
        """How much longer a step with `sequences` takes than one with a single one."""
        return (self.base_s + self.running_s * sequences) / self.one_sequence_s if self.one_sequence_s else 1.0

    def step_s(self, *, prefill_tokens: int, prompts_begun: int, sequences: int, random: Random) -> float:
        """Seconds that a step takes."""
        seconds = self.base_s + self.running_s * sequences
        if self.step_std_s and seconds:
            seconds *= _drawn(1.0, self.step_std_s / self.one_sequence_s, random)
        if not self.first_token_s:
            seconds += self.prefill_token_s * prefill_tokens + self.prefill_overhead_s * prompts_begun
        return seconds

    def hold_s(self, random: Random) -> float:
        """Seconds from a request's admission to the step in which its prompt is computed; 0 without `first_token_s`."""
        if not self.first_token_s:
            return 0.0
        return max(0.0, _drawn(self.first_token_s, self.first_token_std_s, random) - self.one_sequence_s)


def _drawn(mean: float, deviation: float, random: Random) -> float:
    if not deviation:
        return mean
    return min(max(random.gauss(mean, deviation), mean * (1 - DRAWN_MAX)), mean * (1 + DRAWN_MAX))


def _problem(name: str, expected: str, found: float) -> Problem:
    return Problem(
        "CONFIG_INVALID", "this cannot be the timing of a server", path=name, expected=expected, found=f"{found:g}"
    )
