"""How a simulated server is set up. Pure values, checked when they are made."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from hotbay.errors import InputError, Problem
from hotbay.sim.failures import FAILURE_TYPES
from hotbay.sim.sequences import EngineLimits
from hotbay.sim.timing import Timing

__all__ = ["MODES", "FakeMetrics", "LoraModule", "SimConfig"]

MODES: Final = ("random", "echo")


@dataclass(frozen=True, slots=True)
class LoraModule:
    """A LoRA adapter that the server knows: the name that requests ask for, and where it would be."""

    name: str
    path: str = ""


@dataclass(frozen=True, slots=True)
class FakeMetrics:
    """What `/metrics` shows instead of what is; None leaves a number alone.

    `loras` are (running names, waiting names, Unix time in seconds), names joined by commas.
    """

    running_requests: int | None = None
    waiting_requests: int | None = None
    kv_cache_usage: float | None = None
    loras: tuple[tuple[str, str, float], ...] = ()


@dataclass(frozen=True, slots=True)
class SimConfig:
    """A simulated server.

    Args:
        model: what is served; its name to clients, too, unless `served_model_names` are given.
        served_model_names: names by which clients ask for it; the first one is what answers and metrics say.
        loras: adapters that are known from the start.
        limits: sizes of the engine.
        timing: how long steps take.
        mode: `random`: words drawn by `seed`, as many tokens as are asked for. `echo`: the last message again.
        seed: of everything that is drawn.
        max_waiting: requests that may wait; one more is refused with 429. 0: any number.
        failure_rate: percentage of requests that fail at once, 0 to 100.
        failure_types: how they fail, each equally often; empty means all of them.
        fake_metrics: shown instead of the truth.
        tells_cached_tokens: `usage` says how many tokens of the prompt were cached, as vLLM with
            --enable-prompt-tokens-details.
        stream_interval: tokens in a streamed chunk after the first, as vLLM's --stream-interval.
        speed: simulated seconds in a second of the machine; 1 is real time.
        rank: the engine's number in the metrics.
        pod: sent back as `x-inference-pod`; empty sends none.
    """

    model: str = "sim"
    served_model_names: tuple[str, ...] = ()
    loras: tuple[LoraModule, ...] = ()
    limits: EngineLimits = field(default_factory=EngineLimits)
    timing: Timing = field(default_factory=Timing)
    mode: str = "random"
    seed: int = 0
    max_waiting: int = 0
    failure_rate: float = 0.0
    failure_types: tuple[str, ...] = ()
    fake_metrics: FakeMetrics | None = None
    tells_cached_tokens: bool = False
    stream_interval: int = 1
    speed: float = 1.0
    rank: int = 0
    pod: str = ""

    def __post_init__(self) -> None:
        problems = [*_size_problems(self.limits), *self._word_problems(), *self._number_problems()]
        if problems:
            raise InputError(problems)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the base model, the one that answers say first."""
        return self.served_model_names or (self.model,)

    def _word_problems(self) -> list[Problem]:
        problems = []
        if not all(self.names):
            problems.append(_problem("model", "a name", "an empty one"))
        names = [*self.names, *(lora.name for lora in self.loras)]
        for name in sorted({name for name in names if names.count(name) > 1}):
            problems.append(_problem("lora-modules", "each name once", name))
        if self.mode not in MODES:
            problems.append(_problem("mode", " or ".join(MODES), self.mode))
        for name in self.failure_types:
            if name not in FAILURE_TYPES:
                problems.append(_problem("failure-types", ", ".join(FAILURE_TYPES), name))
        return problems

    def _number_problems(self) -> list[Problem]:
        checks = (
            ("max-waiting-queue-length", "0 or more", self.max_waiting, self.max_waiting >= 0),
            ("failure-injection-rate", "0 to 100", self.failure_rate, 0 <= self.failure_rate <= 100),
            ("stream-interval", "1 or more", self.stream_interval, self.stream_interval >= 1),
            ("speed", "above 0", self.speed, 0 < self.speed < float("inf")),
            ("rank", "0 or more", self.rank, self.rank >= 0),
        )
        return [_problem(name, expected, f"{found:g}") for name, expected, found, is_right in checks if not is_right]


def _size_problems(limits: EngineLimits) -> Sequence[Problem]:
    checks = (
        ("max-num-seqs", limits.max_num_seqs, 1),
        ("max-num-batched-tokens", limits.max_num_batched_tokens, 1),
        ("max-model-len", limits.max_model_len, 2),
        ("block-size", limits.block_size, 1),
        ("kv-cache-size", limits.blocks_count, 1),
        ("max-loras", limits.max_loras, 1),
        ("max-cpu-loras", limits.max_cpu_loras, limits.max_loras),
    )
    problems = [_problem(name, f"{least} or more", str(found)) for name, found, least in checks if found < least]
    room = limits.blocks_count * limits.block_size
    if not problems and limits.max_model_len > room:
        hint = "Raise --kv-cache-size, which counts blocks, or lower --max-model-len."
        problems.append(
            _problem("max-model-len", f"at most the {room} tokens of the cache", str(limits.max_model_len), hint)
        )
    return problems


def _problem(path: str, expected: str, found: str, hint: str = "") -> Problem:
    message = "this cannot be the set-up of a simulated server"
    return Problem("CONFIG_INVALID", message, path=path, expected=expected, found=found, hint=hint)
