"""An engine to drive by hand, and requests for it."""

from collections.abc import Callable, Iterable
from random import Random

import pytest
from hotbay.sim.engine import NEVER, Engine
from hotbay.sim.sequences import EngineLimits, Sequence, Work
from hotbay.sim.timing import Timing

LIMITS = EngineLimits(max_num_seqs=4, max_num_batched_tokens=64, max_model_len=128, block_size=4, blocks_count=32)
TIMING = Timing(base_s=1.0, prefill_token_s=0.01, running_s=0.1)


@pytest.fixture(scope="session")
def make_engine() -> Callable[..., Engine]:
    def make(*, timing: Timing = TIMING, **sizes: int) -> Engine:
        values = {name: getattr(LIMITS, name) for name in EngineLimits.__dataclass_fields__} | sizes
        return Engine(EngineLimits(**values), timing, Random(1))

    return make


@pytest.fixture(scope="session")
def work() -> Callable[..., Work]:
    """A request of so many tokens whose blocks are `text`'s: equal numbers, equal blocks."""

    def make(prompt: int, output: int = 1, text: Iterable[int] = (), adapter: str = "") -> Work:
        return Work(prompt, output, tuple(text), adapter)

    return make


@pytest.fixture(scope="session")
def run() -> Callable[[Engine], dict[Sequence, list[float]]]:
    """Drive an engine until nobody is left; when each request got its tokens."""

    def drive(engine: Engine) -> dict[Sequence, list[float]]:
        times: dict[Sequence, list[float]] = {}
        for sequence in engine.waiting:
            times[sequence] = []
        engine.advance(0.0)
        while engine.next_at < NEVER:
            at = engine.next_at
            for sequence, tokens, _ in engine.advance(at):
                times.setdefault(sequence, []).extend([at] * tokens)
        return times

    return drive
