"""A request as the engine sees it, and the sizes of the engine. Pure values, and the state of one request."""

import enum
from collections.abc import Sequence as Row
from dataclasses import dataclass, field
from typing import NamedTuple

__all__ = ["EngineLimits", "Progress", "Sequence", "Stage", "Work"]


@dataclass(frozen=True, slots=True)
class EngineLimits:
    """Sizes: sequences in a batch, tokens in a step and in a request, blocks and tokens in a block, adapters."""

    max_num_seqs: int = 256
    max_num_batched_tokens: int = 2048
    max_model_len: int = 8192
    block_size: int = 16
    blocks_count: int = 1024
    is_caching: bool = True
    max_loras: int = 1
    max_cpu_loras: int = 1


@dataclass(frozen=True, slots=True)
class Work:
    """What a request asks for: at least one token each way, together at most `max_model_len`.

    `hashes` stand for the full blocks of prompt and answer, each for all tokens up to its end, in whatever number is
    known. `stops`: the answer ends by itself and is not cut off.
    """

    prompt_tokens: int
    output_tokens: int
    hashes: Row[int] = ()
    adapter: str = ""
    stops: bool = False
    max_tokens: int | None = None


class Stage(enum.Enum):
    """Where a request is."""

    WAITING = "waiting"
    RUNNING = "running"
    GONE = "gone"


@dataclass(slots=True, eq=False)
class Sequence:
    """A request on its way. `computed` counts tokens that the cache holds, `generated` those of the answer so far."""

    work: Work
    arrived_at: float
    stage: Stage = Stage.WAITING
    computed: int = 0
    generated: int = 0
    blocks: list[int] = field(default_factory=list)
    named_count: int = 0
    cached_tokens: int = 0
    preemptions: int = 0
    held_until: float = 0.0
    admitted_at: float | None = None
    first_at: float = 0.0
    last_at: float = 0.0

    @property
    def known(self) -> int:
        """Tokens there are to compute: the prompt and what was answered so far."""
        return self.work.prompt_tokens + self.generated

    @property
    def is_prefill(self) -> bool:
        """Whether more than the token that was answered last has to be computed."""
        return not self.generated or self.known - self.computed > 1

    @property
    def finish_reason(self) -> str:
        """`stop` or `length` once the answer is whole, empty before."""
        if self.generated < self.work.output_tokens:
            return ""
        return "stop" if self.work.stops else "length"


class Progress(NamedTuple):
    """So many tokens more for a request; `finish_reason` is `stop` or `length` with the last one, else empty."""

    sequence: Sequence
    tokens: int
    finish_reason: str
