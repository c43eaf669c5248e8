"""`hotbay sim`: simulated vLLM servers, as many as wanted in one process, and `fit`, which measures a real one for them."""

import json
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from hotbay.cli.sim_flags import with_sim_flags

if TYPE_CHECKING:
    from hotbay.sim.config import SimConfig

__all__ = ["sim"]


@click.group(invoke_without_command=True)
@with_sim_flags
@click.pass_context
def sim(ctx: click.Context, /, **given: Any) -> None:
    """A simulated vLLM server: its API, its scheduler, its caches and its metrics, without a model.

    Flags have the names of llm-d-inference-sim and vLLM. Serves until SIGTERM or SIGINT; prints a line for each server. A
    token is four bytes of text. Without latencies everything happens at once.
    """
    if ctx.invoked_subcommand is not None:
        return
    # Imported here because they bring in the event loop and the simulator.
    import anyio  # noqa: PLC0415

    from hotbay.cli.sim_configs import sim_configs  # noqa: PLC0415

    configs = sim_configs(given)
    serve = partial(_serve, configs, given["host"], given["port"], as_json=given["output"] == "json")
    anyio.run(serve, backend_options={"use_uvloop": True})


async def _serve(configs: "Sequence[SimConfig]", host: str, port: int, *, as_json: bool) -> None:
    """Serve them all, on consecutive ports or free ones, until a signal."""
    # Imported here because they bring in the event loop and everything that serves.
    import signal  # noqa: PLC0415

    import anyio  # noqa: PLC0415

    from hotbay.sim.server import SimServer  # noqa: PLC0415

    servers: list[SimServer] = []
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        try:
            for index, config in enumerate(configs):
                servers.append(server := SimServer(config))
                url = await server.start(host, port + index if port else 0)
                told = {"url": url, "model": config.names[0], "rank": config.rank, "pod": config.pod}
                click.echo(json.dumps(told) if as_json else f"{config.names[0]} is simulated on {url}")
            async for _ in signals:
                return
        finally:
            with anyio.CancelScope(shield=True):
                for server in servers:
                    await server.close()


@sim.command()
@click.option("--endpoint", metavar="URL", help="A server that runs, as http://HOST:PORT.")
@click.option("--model", metavar="NAME", help="Which of its models.  [default: its first]")
@click.option(
    "--llama",
    type=click.Choice(("tiny", "light", "small", "mid")),
    help="Start llama.cpp with a random model of this size.",
)
@click.option(
    "--max-num-seqs", type=click.IntRange(min=2), default=8, show_default=True, help="Most requests at a time."
)
@click.option(
    "--largest-prompt", type=click.IntRange(min=64), default=512, show_default=True, help="Tokens, of four bytes each."
)
@click.option("--repetitions", type=click.IntRange(min=1), default=5, show_default=True, help="Of each measurement.")
@click.option("-o", "--output", type=click.Choice(("text", "json")), default="text", show_default=True)
def fit(
    endpoint: str | None,
    model: str | None,
    llama: str | None,
    max_num_seqs: int,
    largest_prompt: int,
    repetitions: int,
    output: str,
) -> None:
    """Measure a real server; print the flags with which a simulated one takes as long, and how far off it is.

    The error is that of prompts and batches of sizes that were not fitted by.
    """
    if (endpoint is None) == (llama is None):
        raise click.UsageError("give either --endpoint or --llama")
    # Imported here because it brings in numpy.
    from hotbay.cli.sim_fit import Wanted, print_fit  # noqa: PLC0415

    print_fit(Wanted(endpoint, model, llama, max_num_seqs, largest_prompt, repetitions), as_json=output == "json")
