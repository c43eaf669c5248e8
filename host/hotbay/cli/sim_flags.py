"""The flags of `hotbay sim`, by the names of llm-d-inference-sim and vLLM."""

import math
import re
from collections.abc import Callable
from typing import Final, TypeVar

import click

__all__ = ["with_sim_flags"]

RANKS_MAX: Final = 8
REPLICAS_MAX: Final = 256
_UNITS_S: Final = {"us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "": 1e-3}
_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)(us|µs|ms|s|m|)")

_Command = TypeVar("_Command", bound=Callable[..., object])


class _Duration(click.ParamType[float]):
    """Seconds from `250ms`, `1.5s`, `35us`; a number alone is milliseconds, as in llm-d-inference-sim."""

    name = "duration"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, float):
            return value
        found = _DURATION.fullmatch(str(value))
        seconds = float(found[1]) * _UNITS_S[found[2]] if found else math.inf
        if not math.isfinite(seconds):
            self.fail(f"expected a duration such as 250ms, 1.5s or 35us, found {value!r}", param, ctx)
        return seconds


def _duration(name: str, told: str) -> Callable[[_Command], _Command]:
    return click.option(name, type=_Duration(), default=0.0, metavar="DURATION", help=told)


_OPTIONS: Final = (
    click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on."),
    click.option("--port", type=click.IntRange(0, 65535), default=8000, show_default=True, help="0: any free one."),
    click.option("--model", default="sim", show_default=True, help="What is served."),
    click.option("--served-model-name", multiple=True, metavar="NAME", help="Its name to clients; repeatable."),
    click.option(
        "--lora-modules", multiple=True, metavar="JSON|NAME=PATH", help="A LoRA adapter, as vLLM takes it; repeatable."
    ),
    click.option("--max-loras", type=int, default=1, show_default=True, help="Adapters in a batch."),
    click.option("--max-cpu-loras", type=int, help="Adapters in memory.  [default: as many as in a batch]"),
    click.option("--max-num-seqs", type=int, default=256, show_default=True, help="Requests in a batch."),
    click.option(
        "--max-num-batched-tokens", type=int, default=2048, show_default=True, help="Tokens computed in a step."
    ),
    click.option(
        "--max-model-len", type=int, default=8192, show_default=True, help="Tokens of a request, prompt and answer."
    ),
    click.option(
        "--max-waiting-queue-length", type=int, default=0, show_default=True, help="Requests that wait; 0: any number."
    ),
    click.option(
        "--mode", type=click.Choice(("random", "echo")), default="random", show_default=True, help="What answers say."
    ),
    _duration("--time-to-first-token", "Of a first token, whatever the prompt's length; 0: by tokens."),
    _duration("--time-to-first-token-std-dev", "At most 30 % of it."),
    _duration("--inter-token-latency", "Of a step that answers one request."),
    _duration("--inter-token-latency-std-dev", "At most 30 % of it."),
    _duration("--prefill-overhead", "For each prompt."),
    _duration("--prefill-time-per-token", "For each token of a prompt that is not cached."),
    click.option(
        "--time-factor-under-load",
        type=float,
        default=1.0,
        show_default=True,
        help="A full batch's step to one of one.",
    ),
    _duration("--lora-load-time", "To bring an adapter into memory."),
    click.option("--kv-cache-size", type=int, default=1024, show_default=True, help="Blocks of the cache."),
    click.option("--block-size", type=int, default=16, show_default=True, help="Tokens in a block."),
    click.option("--enable-kvcache/--no-enable-kvcache", default=True, show_default=True, help="Reuse of prefixes."),
    click.option("--seed", type=int, default=0, show_default=True, help="Of everything that is drawn."),
    click.option("--failure-injection-rate", type=float, default=0.0, help="Percentage of requests that fail."),
    click.option("--failure-types", multiple=True, metavar="TYPE", help="How; repeatable.  [default: all of them]"),
    click.option("--fake-metrics", metavar="JSON", help="What /metrics shows instead of what is."),
    click.option(
        "--data-parallel-size", type=click.IntRange(1, RANKS_MAX), default=1, help="Ranks, each on the next port."
    ),
    click.option("--enable-prompt-tokens-details", is_flag=True, help="Say in usage how many tokens were cached."),
    click.option("--stream-interval", type=int, default=1, show_default=True, help="Tokens in a streamed event."),
    click.option("--speed", type=float, default=1.0, show_default=True, help="Simulated seconds in a second."),
    click.option(
        "--replicas",
        type=click.IntRange(1, REPLICAS_MAX),
        default=1,
        show_default=True,
        help="Servers in this process.",
    ),
    click.option(
        "-o", "--output", type=click.Choice(("text", "json")), default="text", show_default=True, help="Of the lines."
    ),
)


def with_sim_flags(command: _Command) -> _Command:
    for option in reversed(_OPTIONS):
        command = option(command)
    return command
