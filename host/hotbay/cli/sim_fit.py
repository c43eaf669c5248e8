"""`hotbay sim fit`: measures a server, or a llama.cpp that it starts, and prints the simulator's flags for it."""

import json
import statistics
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from random import Random

import anyio
import click

from hotbay.demo.llama import LlamaServer, LlamaSpec
from hotbay.demo.model import SHAPES, write_model
from hotbay.sim.fitting import fit_timing, relative_errors
from hotbay.sim.measuring import Measurer, Sizes
from hotbay.sim.timing import Timing

__all__ = ["Wanted", "print_fit"]


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to measure: a server at `endpoint`, or llama.cpp with a random model of the size `llama`."""

    endpoint: str | None
    model: str | None
    llama: str | None
    max_num_seqs: int
    largest_prompt: int
    repetitions: int


def print_fit(wanted: Wanted, *, as_json: bool) -> None:
    """Measure, fit and print. Raises `HostError` when that cannot be done."""
    timing, errors = anyio.run(_measured, wanted)
    flags = _flags(timing, wanted.max_num_seqs)
    if as_json:
        told = {
            "timing": asdict(timing),
            "flags": flags,
            "held_out": {"count": len(errors), "mean": _mean(errors), "worst": max(map(abs, errors))},
        }
        click.echo(json.dumps(told))
        return
    click.echo("a step takes a + b · (prompt tokens) + c · (requests), a token being four bytes of prompt:")
    click.echo(f"  a = {timing.base_s * 1e3:.4g} ms")
    click.echo(f"  b = {timing.prefill_token_s * 1e6:.4g} us")
    click.echo(f"  c = {timing.running_s * 1e3:.4g} ms")
    click.echo(f"  and {timing.prefill_overhead_s * 1e3:.4g} ms for each prompt")
    click.echo(
        f"error on {len(errors)} sizes that were not fitted by: {_mean(errors):.1%} on average,"
        f" {max(map(abs, errors)):.1%} at worst"
    )
    click.echo(f"hotbay sim {' '.join(flags)}")


def _mean(errors: Sequence[float]) -> float:
    return statistics.mean(map(abs, errors))


def _flags(timing: Timing, max_num_seqs: int) -> list[str]:
    return [
        f"--max-num-seqs={max_num_seqs}",
        f"--inter-token-latency={timing.one_sequence_s * 1e6:.1f}us",
        f"--time-factor-under-load={timing.factor_under_load(max_num_seqs):.3f}",
        f"--prefill-time-per-token={timing.prefill_token_s * 1e6:.3f}us",
        f"--prefill-overhead={timing.prefill_overhead_s * 1e6:.1f}us",
    ]


async def _measured(wanted: Wanted) -> tuple[Timing, list[float]]:
    if wanted.llama is None:
        assert wanted.endpoint is not None, "one of both is given"
        return await anyio.to_thread.run_sync(_measure, wanted, wanted.endpoint)
    with tempfile.TemporaryDirectory(prefix="hotbay-sim-fit-") as folder:
        model = Path(folder) / "model.gguf"
        write_model(model, SHAPES[wanted.llama])
        server = LlamaServer.start(LlamaSpec(model, Path(folder) / "llama.log", slots=wanted.max_num_seqs))
        try:
            await server.wait_ready()
            return await anyio.to_thread.run_sync(_measure, wanted, server.url)
        finally:
            with anyio.CancelScope(shield=True):
                await server.stop()


def _measure(wanted: Wanted, endpoint: str) -> tuple[Timing, list[float]]:
    sizes = Sizes.up_to(wanted.largest_prompt, wanted.max_num_seqs, repetitions=wanted.repetitions)
    told = partial(click.echo, err=True)
    measurer = Measurer(endpoint, model=wanted.model, sizes=sizes, random=Random(0), told=told)  # noqa: S311
    fitted, held_out = measurer.measure()
    timing = fit_timing(fitted)
    return timing, relative_errors(timing, held_out)
