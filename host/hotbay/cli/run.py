"""`hotbay run`: reads the configuration, runs the host, follows the files, drains on a signal."""

import logging
import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import anyio
import click

from hotbay.app import Host, Serving
from hotbay.config.documents import decode_text
from hotbay.config.host_config import HostConfig, load_host_config
from hotbay.config.last_good import FileContent
from hotbay.config.picker_config import PickerConfig, load_picker_config
from hotbay.config.reload import read_content, watch_files
from hotbay.errors import HostError, InputError, Problem
from hotbay.observe.logs import set_up_logging

ENVIRONMENT_NAMES: Final = ("HOME", "XDG_STATE_HOME")
"""What of the environment counts: where state goes by default. Nothing else of a host is set there."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Given:
    """The command line of `hotbay run`."""

    config_file: Path | None = None
    picker_file: Path | None = None
    picker_text: str | None = None
    endpoints: tuple[str, ...] = ()
    listen: str | None = None
    log_level: str | None = None
    log_format: str | None = None


@dataclass(frozen=True, slots=True)
class Loaded:
    """Both configurations, the folder that paths of the second are relative to, and the files to follow."""

    host: HostConfig
    picker: PickerConfig
    picker_directory: Path
    files: Mapping[Path, str]


def environment() -> dict[str, str]:
    """The few names of the process's environment that count."""
    return {name: os.environ[name] for name in ENVIRONMENT_NAMES if name in os.environ}  # noqa: TID251 - the door


def load(given: Given) -> Loaded:
    """Read what the command line names. Raises `InputError` with every problem of the first bad file."""
    files: dict[Path, str] = {}
    text, file, base = "", "<no file>", Path.cwd()
    if given.config_file is not None:
        content = _content(given.config_file, files)
        text, file, base = content, str(given.config_file), given.config_file.resolve().parent
    host = load_host_config(text, file=file, base_directory=base, environment=environment(), is_root=os.geteuid() == 0)
    host = _with_options(host, given, base)
    picker, directory = _load_picker(host, given, base, files)
    return Loaded(host, picker, directory, files)


def _load_picker(host: HostConfig, given: Given, base: Path, files: dict[Path, str]) -> tuple[PickerConfig, Path]:
    if given.picker_text is not None:
        return load_picker_config(given.picker_text, file="--config-text"), Path.cwd()
    path = given.picker_file
    if path is None and host.scheduling.file is not None:
        path = Path(host.scheduling.file)
    if path is not None:
        return load_picker_config(_content(path, files), file=str(path)), path.resolve().parent
    text = host.scheduling.text or ""
    return load_picker_config(text, file=f"{given.config_file}#scheduling.text"), base


def _content(path: Path, files: dict[Path, str]) -> str:
    content = read_content(path)
    if content.data is None:
        problem = Problem("CONFIG_INVALID", f"{path} cannot be read: {content.error}", hint="check the file's name")
        raise InputError([problem])
    files[path] = content.digest
    return decode_text(content.data, file=str(path))


def _with_options(host: HostConfig, given: Given, base: Path) -> HostConfig:
    """The configuration with the command line's options over it, checked as if they stood in the file."""
    lines = ["apiVersion: hotbay/v1alpha1", "kind: HostConfig"]
    if given.endpoints:
        lines += ["endpoints:", *(f"- {{url: {_quoted(url)}}}" for url in given.endpoints)]
    if given.listen is not None:
        lines.append(f"listen: {{http: {_quoted(given.listen)}}}")
    options = load_host_config(
        "\n".join(lines),
        file="command line",
        base_directory=base,
        environment=environment(),
        is_root=os.geteuid() == 0,
    )
    changes: dict[str, object] = {}
    if given.endpoints:
        changes["endpoints"] = options.endpoints
    if given.listen is not None:
        changes["listen"] = options.listen
    logging_changes = {"level": given.log_level, "format": given.log_format}
    chosen = {key: value for key, value in logging_changes.items() if value is not None}
    if chosen:
        changes["logging"] = host.logging.model_copy(update=chosen)
    return host.model_copy(update=changes)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def run_host(given: Given) -> None:
    """Run until SIGTERM or SIGINT. Raises `HostError` when the host cannot start."""
    loaded = load(given)
    set_up_logging(loaded.host.logging.level, loaded.host.logging.format)
    anyio.run(_run, given, loaded, backend="asyncio", backend_options={"use_uvloop": True})


async def _run(given: Given, loaded: Loaded) -> None:
    host = Host(loaded.host, loaded.picker, picker_directory=loaded.picker_directory)
    stop = anyio.Event()
    async with anyio.create_task_group() as group:
        group.start_soon(_stop_on_signal, stop)
        served = anyio.Event()

        def serving(at: Serving) -> None:
            click.echo(f"hotbay serves on http://{at.address[0]}:{at.address[1]}", err=True)
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


async def follow_files(host: Host, given: Given, loaded: Loaded) -> None:
    """Put each valid change of the configuration files in force; a bad one is reported and changes nothing."""
    state = loaded

    async def changed(content: FileContent) -> None:
        nonlocal state
        try:
            fresh = load(given)
            if _same(fresh, state):
                host.report_problems(())
                return
            await host.adopt(fresh.host, fresh.picker)
        except InputError as error:
            host.report_problems(error.problems)
            for problem in error.problems:
                # A person's mistake in a file has a place, not a traceback.
                logger.warning("reload_refused last_good=kept: %s", problem)
        except HostError as error:
            host.report_problems((Problem(error.code, error.message, hint=error.hint),))
            logger.warning("reload_failed last_good=kept code=%s: %s", error.code, error.message)
        else:
            host.report_problems(())
            for name in _needs_restart(fresh, state):
                logger.warning("reload_ignored field=%s: it acts at the next start", name)
            state = replace(fresh, files=state.files)
            logger.info("reload_applied file=%s", content.path)

    if loaded.files:
        await watch_files(tuple(loaded.files), changed, known=loaded.files)


_LIVE_FIELDS: Final = frozenset({"scheduling", "bindings", "types", "endpoints"})


def _same(fresh: Loaded, state: Loaded) -> bool:
    return fresh.picker == state.picker and fresh.host == state.host


def _needs_restart(fresh: Loaded, state: Loaded) -> list[str]:
    """What changed in the files and acts at the next start only."""
    names = [
        name
        for name in type(fresh.host).model_fields
        if name not in _LIVE_FIELDS and getattr(fresh.host, name) != getattr(state.host, name)
    ]
    return names + ["dataLayer"] * (fresh.picker.data_layer != state.picker.data_layer)
