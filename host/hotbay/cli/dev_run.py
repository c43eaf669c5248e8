"""Runs the session of `hotbay dev` until a signal, in a folder that goes with it, and prints what it tells."""

import signal
import tempfile
from functools import partial
from pathlib import Path

import anyio
import click
import orjson

from hotbay.authoring.developing.lines import Page, line_of
from hotbay.cli.dev_session import DevOptions, Session
from hotbay.errors import only_host_error
from hotbay.packages.tree import remove_tree

__all__ = ["run_dev"]


def run_dev(options: DevOptions, *, as_json: bool) -> None:
    """Work until SIGTERM or SIGINT. Raises `HostError` when the host cannot start."""
    work = Path(tempfile.mkdtemp(prefix="hotbay-dev-")).resolve()
    try:
        anyio.run(
            partial(_run, options, work, as_json=as_json), backend="asyncio", backend_options={"use_uvloop": True}
        )
    except ExceptionGroup as errors:
        # The task group around host, signals and files wraps even a single error.
        error = only_host_error(errors)
        if error is None:
            raise
        raise error from errors
    finally:
        remove_tree(work)


async def _run(options: DevOptions, work: Path, *, as_json: bool) -> None:
    def tell(page: Page) -> None:
        click.echo(orjson.dumps(page) if as_json else line_of(page))

    session = Session(options, work, tell)
    stop = anyio.Event()
    async with anyio.create_task_group() as group:
        group.start_soon(_stop_on_signal, stop)
        await session.run(stop)
        group.cancel_scope.cancel()


async def _stop_on_signal(stop: anyio.Event) -> None:
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async for _ in signals:
            stop.set()
            return
