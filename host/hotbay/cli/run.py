"""`hotbay run`: runs the host and what follows its files, and drains on a signal."""

import logging
import signal

import anyio
import anyio.abc
import click

from hotbay.app import Host
from hotbay.cli.following import follow_files
from hotbay.cli.loading import Given, Loaded, load, log_warnings
from hotbay.datalayer.endpoint import format_authority
from hotbay.errors import only_host_error
from hotbay.gateway.limits import GatewayLimits
from hotbay.observe.logs import set_up_logging
from hotbay.open_files import raise_limit
from hotbay.process.heap import use_one_heap
from hotbay.serving import Serving

logger = logging.getLogger(__name__)

__all__ = ["run_host"]


def run_host(given: Given) -> None:
    """Run until SIGTERM or SIGINT. Raises `HostError` when the host cannot start."""
    use_one_heap()
    loaded = load(given)
    wanted = loaded.host.logging
    set_up_logging(wanted.level, wanted.format, access=wanted.access)
    log_warnings(loaded)
    try:
        anyio.run(_run, given, loaded, backend="asyncio", backend_options={"use_uvloop": True})
    except ExceptionGroup as errors:
        # The task group around host, signals and files wraps even a single error.
        error = only_host_error(errors)
        if error is None:
            raise
        raise error from errors


async def _run(given: Given, loaded: Loaded) -> None:
    wanted = GatewayLimits().connections
    files = raise_limit(wanted)
    shortage = files.problem(wanted)
    if shortage is not None:
        logger.warning("open_files_limited: %s", shortage)
    host = Host(
        loaded.host,
        loaded.picker,
        picker_directory=loaded.picker_directory,
        take_over=given.take_over,
        clients=files.clients(wanted),
        known=() if shortage is None else (shortage,),
    )
    stop = anyio.Event()
    async with anyio.create_task_group() as group:
        group.start_soon(_stop_on_signal, stop)
        served = anyio.Event()

        def serving(at: Serving) -> None:
            click.echo(f"hotbay serves on http://{format_authority(*at.address)}", err=True)
            served.set()

        async def follow() -> None:
            await served.wait()
            await follow_files(host, given, loaded)

        group.start_soon(follow)
        try:
            await host.run(serving, stop)
        finally:
            group.cancel_scope.cancel()


async def _stop_on_signal(stop: anyio.Event) -> None:
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async for number in signals:
            logger.info("signal_received signal=%s", signal.Signals(number).name)
            stop.set()
            return
