"""What a simulated engine counts, as vLLM 0.32 counts it. Pure.

Times are seconds, token counts whole tokens. Buckets are those of the real server.
"""

from bisect import bisect_left
from collections.abc import Sequence
from typing import Final

from hotbay.observe.histogram import Histogram
from hotbay.sim.sequences import Sequence as Request

__all__ = ["FINISH_REASONS", "REJECTIONS", "Statistics", "one_two_five"]

FINISH_REASONS: Final = ("stop", "length", "abort", "error", "repetition")
REJECTIONS: Final = ("max_num_queued_reqs", "max_num_queued_tokens")

_FIRST_TOKEN_S: Final = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0, 640.0,
    2560.0,
)  # fmt: skip
_TOKEN_S: Final = (
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
)  # fmt: skip
_REQUEST_S: Final = (
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0,
)  # fmt: skip
_STEP_TOKENS: Final = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
_COUNTS: Final = (1, 2, 5, 10, 20)
_PREEMPTIONS: Final = (1, 2, 3, 4, 5, 10, 20)


def one_two_five(largest: int) -> tuple[int, ...]:
    """1, 2, 5, 10, 20, … up to `largest`."""
    edges: list[int] = []
    scale = 1
    while True:
        for digit in (1, 2, 5):
            if digit * scale > largest:
                return tuple(edges)
            edges.append(digit * scale)
        scale *= 10


class Tally(Histogram):
    """A histogram that takes many equal observations at once, and knows how many it has."""

    def __init__(self, edges: Sequence[float]) -> None:
        super().__init__(edges)
        self.taken = 0

    @property
    def counts(self) -> Sequence[int]:
        """Observations in each bucket, the last one without an upper edge."""
        return self._counts

    def observe(self, value: float) -> None:
        self.observe_many(value, 1)

    def observe_many(self, value: float, count: int) -> None:
        self._counts[bisect_left(self.edges, value)] += count
        self.sum += value * count
        self.taken += count


class Statistics:
    """Counters and histograms of one engine. `max_model_len` bounds the buckets of token counts."""

    def __init__(self, max_model_len: int) -> None:
        tokens = one_two_five(max_model_len)
        self.prefix_queries = 0
        self.prefix_hits = 0
        self.preemptions = 0
        self.prompt_tokens = 0
        self.prompt_tokens_cached = 0
        self.generation_tokens = 0
        self.finished = dict.fromkeys(FINISH_REASONS, 0)
        self.rejected = dict.fromkeys(REJECTIONS, 0)
        self.request_prompt_tokens = Tally(tokens)
        self.request_generation_tokens = Tally(tokens)
        self.step_tokens = Tally(_STEP_TOKENS)
        self.request_max_generation_tokens = Tally(tokens)
        self.request_n = Tally(_COUNTS)
        self.request_max_tokens = Tally(tokens)
        self.first_token_s = Tally(_FIRST_TOKEN_S)
        self.inter_token_s = Tally(_TOKEN_S)
        self.time_per_output_token_s = Tally(_TOKEN_S)
        self.latency_s = Tally(_REQUEST_S)
        self.queue_s = Tally(_REQUEST_S)
        self.inference_s = Tally(_REQUEST_S)
        self.prefill_s = Tally(_REQUEST_S)
        self.decode_s = Tally(_REQUEST_S)
        self.request_preemptions = Tally(_PREEMPTIONS)
        self.request_computed_tokens = Tally(tokens)

    def count_first_token(self, request: Request) -> None:
        """A request has the first token of its answer."""
        self.first_token_s.observe(request.first_at - request.arrived_at)
        self.prompt_tokens += request.work.prompt_tokens
        self.prompt_tokens_cached += request.cached_tokens

    def count_answered(self, request: Request) -> None:
        """A request has its whole answer."""
        work = request.work
        assert request.admitted_at is not None, "it was answered, so it was admitted"
        decode_s = request.last_at - request.first_at
        self.latency_s.observe(request.last_at - request.arrived_at)
        self.queue_s.observe(request.admitted_at - request.arrived_at)
        self.prefill_s.observe(request.first_at - request.admitted_at)
        self.decode_s.observe(decode_s)
        self.inference_s.observe(request.last_at - request.admitted_at)
        self.time_per_output_token_s.observe(decode_s / (request.generated - 1) if request.generated > 1 else 0.0)
        self.request_prompt_tokens.observe(work.prompt_tokens)
        self.request_generation_tokens.observe(request.generated)
        self.request_max_generation_tokens.observe(work.output_tokens)
        self.request_n.observe(1)
        if work.max_tokens is not None:
            self.request_max_tokens.observe(work.max_tokens)
        self.request_preemptions.observe(request.preemptions)
        self.request_computed_tokens.observe(work.prompt_tokens - request.cached_tokens)
