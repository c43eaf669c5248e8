"""`hotbay demo`: sets the stage, plays the show, tells what came of it.

Standard output gets the final table, or with `json` the one JSON object and nothing else; all the rest goes to standard
error. Any error, a signal included, clears the stage before it is told.
"""

import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import anyio
import click
import orjson
from rich.console import Console

from hotbay.config.documents import decode_text
from hotbay.demo.report import Run, summary, verdict
from hotbay.demo.show import Plan, Show
from hotbay.demo.stage import set_stage
from hotbay.demo.trace import Arrival, parse_trace, plan_replay
from hotbay.demo.view import Lines, LiveView, final
from hotbay.errors import HostError, InputError, Place, Problem

__all__ = ["DemoOptions", "is_log_wanted", "run_demo"]

REPLAY_RATE: Final = 6.0
"""Requests per second of a replay: what three servers on two cores answer without queues that only grow."""

EXIT_RED: Final = 1
EXIT_INTERRUPTED: Final = 130


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """The command line of `hotbay demo`."""

    duration_s: float
    seed: int
    trace: Path | None = None
    as_json: bool = False
    sabotage: bool = False


def run_demo(options: DemoOptions) -> int:
    """Run it; returns the exit code. Raises `HostError` when it could not be run."""
    plan = Plan(options.seed, options.duration_s, _arrivals(options), options.sabotage)
    try:
        run = anyio.run(_run, plan, backend="asyncio", backend_options={"use_uvloop": True})
    except BaseExceptionGroup as group:
        raise _host_error(group) or group from None
    if run is None:
        click.echo("interrupted", err=True)
        return EXIT_INTERRUPTED
    final(run, Console(stderr=options.as_json))
    if options.as_json:
        click.echo(orjson.dumps(summary(run)))
    return EXIT_RED if verdict(run) else 0


def _host_error(group: BaseExceptionGroup[BaseException]) -> HostError | None:
    """The error that a person can act on, out of the task groups that it came through."""
    for error in group.exceptions:
        found = _host_error(error) if isinstance(error, BaseExceptionGroup) else error
        if isinstance(found, HostError):
            return found
    return None


def _arrivals(options: DemoOptions) -> tuple[Arrival, ...]:
    if options.trace is None:
        return ()
    try:
        content = options.trace.read_bytes()
    except OSError as error:
        place = Place(str(options.trace))
        problem = Problem("CONFIG_INVALID", error.strerror or "cannot be read", place, hint="Name a trace file.")
        raise InputError([problem]) from error
    trace = parse_trace(decode_text(content, file=str(options.trace)), file=str(options.trace))
    return plan_replay(trace, seed=options.seed, duration_s=options.duration_s, rate=REPLAY_RATE)


async def _run(plan: Plan) -> Run | None:
    """None when a signal ended it."""
    console = Console(stderr=True)
    view = LiveView(console) if console.is_terminal else Lines(console)
    run: Run | None = None

    async def play() -> None:
        nonlocal run
        async with set_stage(lambda text: click.echo(f"demo: {text}", err=True), seed=plan.seed) as stage:
            try:
                run = await Show(stage, plan, view.heard).run(view.watch)
            finally:
                if is_log_wanted(run, interrupted=group.cancel_scope.cancel_called, sabotage=plan.sabotage):
                    click.echo(f"the end of the host's log:\n{stage.host.log_tail}", err=True)
                click.echo("demo: clearing up", err=True)

    async with anyio.create_task_group() as group:
        group.start_soon(_cancel_on_signal, group.cancel_scope)
        await play()
        group.cancel_scope.cancel()
    return run


def is_log_wanted(run: Run | None, *, interrupted: bool, sabotage: bool) -> bool:
    """Whether the host's log may explain what happened; a run that was ended by a person has nothing to explain."""
    if run is None:
        return not interrupted
    return bool(run.failed or (verdict(run) and not sabotage))


async def _cancel_on_signal(scope: anyio.CancelScope) -> None:
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async for _ in signals:
            scope.cancel()
            return
