"""`hotbay run`: reads the configuration, runs the host, follows the files, drains on a signal."""

import logging
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

import anyio
import anyio.abc
import click

from hotbay.app import Host, Serving
from hotbay.cli.environment import environment
from hotbay.config.data_sources import read_data_layer
from hotbay.config.documents import is_blank
from hotbay.config.file_content import FileContent
from hotbay.config.host_config import HostConfig, load_host_config
from hotbay.config.picker_config import PickerConfig, load_picker_config
from hotbay.config.reload import read_content, watch_files
from hotbay.datalayer.discovery.endpoint_documents import check_listed
from hotbay.datalayer.endpoint import format_authority
from hotbay.errors import HostError, InputError, Place, Problem, only_host_error
from hotbay.gateway.limits import GatewayLimits
from hotbay.observe.logs import set_up_logging
from hotbay.open_files import raise_limit
from hotbay.operator_files import HeldBack
from hotbay.process.heap import use_one_heap
from hotbay.rollout.adoption import ReplacedError
from hotbay.scheduling.registry import SCHEDULING_TYPES

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
    take_over: bool = False


@dataclass(frozen=True, slots=True)
class Loaded:
    """Both configurations, the folder that paths of the second are relative to, and the files to follow."""

    host: HostConfig
    picker: PickerConfig
    picker_directory: Path
    files: Mapping[Path, str]


def load(given: Given, files: dict[Path, str] | None = None, *, may_be_blank: bool = True) -> Loaded:
    """Read what the command line names.

    Args:
        given: the command line.
        files: filled with the files that were looked at and their digests, also when one of them is bad.
        may_be_blank: whether a file without content stands for the defaults. While a host runs it is far more often a
            save that went wrong.

    Raises:
        InputError: with every problem of the first bad file.
    """
    files = {} if files is None else files
    reader = _Files(files, may_be_blank)
    text, file, base = "", "<no file>", Path.cwd()
    if given.config_file is not None:
        text, file = reader.text(given.config_file), str(given.config_file)
        base = given.config_file.resolve().parent
    host = load_host_config(text, file=file, base_directory=base, environment=environment(), is_root=os.geteuid() == 0)
    host = _with_options(host, given, base)
    picker, directory = load_scheduling(host, given, base, reader.text)
    return Loaded(host, picker, directory, files)


def load_scheduling(
    host: HostConfig, given: Given, base: Path, read: Callable[[Path], str]
) -> tuple[PickerConfig, Path]:
    """Read the EndpointPickerConfig that the command line or the HostConfig names, and its folder.

    Raises:
        InputError: with every problem found, those of built-in types' parameters included.
    """
    path = given.picker_file or host.scheduling.file
    if given.picker_text is not None:
        picker, directory = load_picker_config(given.picker_text, file="--config-text"), Path.cwd()
    elif path is not None:
        picker, directory = load_picker_config(read(path), file=str(path)), path.resolve().parent
    else:
        file = f"{given.config_file}#scheduling.text"
        picker, directory = load_picker_config(host.scheduling.text or "", file=file), base
    data = read_data_layer(picker, others=SCHEDULING_TYPES)
    check_listed(data.discovery)
    return replace(picker, warnings=(*picker.warnings, *data.warnings)), directory


@dataclass(frozen=True, slots=True)
class _Files:
    """Reads files and notes which, and with what content."""

    seen: dict[Path, str]
    may_be_blank: bool

    def text(self, path: Path) -> str:
        content = read_content(path)
        self.seen[path] = content.digest
        text = content.text(hint="check the file's name")
        if is_blank(text) and not self.may_be_blank:
            hint = "what it said before stays in force"
            raise InputError([Problem("EMPTY_CONFIG", "the file is empty now", Place(str(path)), hint=hint)])
        return text


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
        # Where state goes by default is none of the options: an environment that does not tell is no problem of theirs.
        environment={},
        is_root=True,
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
    use_one_heap()
    loaded = load(given)
    wanted = loaded.host.logging
    set_up_logging(wanted.level, wanted.format, access=wanted.access)
    _log_warnings(loaded)
    try:
        anyio.run(_run, given, loaded, backend="asyncio", backend_options={"use_uvloop": True})
    except ExceptionGroup as errors:
        # The task group around host, signals and files wraps even a single error.
        error = only_host_error(errors)
        if error is None:
            raise
        raise error from errors


def _log_warnings(loaded: Loaded) -> None:
    for warning in loaded.picker.warnings:
        logger.warning("configuration_warning: %s", warning)


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


async def follow_files(host: Host, given: Given, loaded: Loaded) -> None:
    """Put each valid change of the configuration files in force; a bad one is reported and changes nothing."""
    follower = _Follower(host, given, loaded)
    host.files.look = follower.look
    await host.background.keep("configuration files", follower.follow)


class _Follower:
    """What is in force, and the files to follow: of a bad change those that it names, too, for its correction.

    Edits are taken beside the watch: one that waits for packages makes way for the next, which has to be seen for that.
    An edit is what the watch reports or a command applies. Either way the content that it is about is known from its first
    step on, and its end is told: what the files say last is in force, or status says why not.
    """

    def __init__(self, host: Host, given: Given, loaded: Loaded) -> None:
        self._host = host
        self._given = given
        self._loaded = loaded
        self._followed = frozenset(loaded.files)
        self._known = dict(loaded.files)
        self._watch = anyio.CancelScope()
        self._edits = 0
        self._under_way = 0
        self._refused: tuple[Loaded, InputError] | None = None

    async def follow(self) -> None:
        async with anyio.create_task_group() as group:
            while self._followed:
                with anyio.CancelScope() as self._watch:
                    await watch_files(self._followed, partial(self._seen, group), known=self._known)

    async def _seen(self, group: anyio.abc.TaskGroup, content: FileContent) -> None:
        self._edits += 1
        group.start_soon(self._changed, content, self._edits)

    def look(self) -> None:
        """Hold back what the files say at this moment, for who asks before the watch has seen it."""
        try:
            fresh = load(self._given, may_be_blank=False)
        except InputError as error:
            self._host.files.hold_back(error)
            return
        if self._is_manual:
            self._hold_back(fresh)
        elif self._under_way or _same(fresh, self._loaded):
            self._host.files.hold_back(None)
        else:
            # The watch has not seen it yet, or it was refused: that may be no longer so.
            refused = self._refused[1] if self._refused is not None and _same(fresh, self._refused[0]) else None
            apply = partial(self._apply_by_command, fresh)
            self._host.files.hold_back(HeldBack(_differing(fresh, self._loaded), apply, refused))

    @property
    def _is_manual(self) -> bool:
        return self._loaded.host.reload == "manual"

    def _hold_back(self, fresh: Loaded) -> None:
        changes = _differing(fresh, self._loaded)
        # What is in force already takes the place of what is on its way.
        waits = changes or self._under_way
        self._host.files.hold_back(HeldBack(changes, partial(self._apply_by_command, fresh)) if waits else None)

    async def _apply_by_command(self, fresh: Loaded) -> None:
        self._edits += 1
        edit = self._edits
        self._known.update(fresh.files)
        try:
            await self._apply(fresh, by_command=True)
        except HostError as error:
            self._end(edit, fresh.files, _problems_of(error))
            raise
        except BaseException:
            self._forget(edit, fresh.files)
            raise
        self._end(edit, fresh.files, ())

    async def _changed(self, content: FileContent, edit: int) -> None:
        if edit != self._edits:
            # What began after it reads the files after it.
            return
        files: dict[Path, str] = {}
        problems: Sequence[Problem] = ()
        try:
            fresh = self._load(files)
            if _same(fresh, self._loaded) and not self._under_way:
                self._host.files.hold_back(None)
                self._host.found_unchanged()
            elif self._is_manual:
                self._hold_back(fresh)
                logger.info("reload_held_back file=%s: `hotbay apply` puts it in force", content.path)
            else:
                await self._apply(fresh)
        except InputError as error:
            problems = _problems_of(error)
            if self._is_manual and edit == self._edits:
                self._host.files.hold_back(error)
            for problem in problems:
                # A person's mistake in a file has a place, not a traceback.
                logger.warning("reload_refused last_good=kept: %s", problem)
        except ReplacedError as error:
            problems = _problems_of(error)
            logger.info("reload_replaced files=%s: %s", content.path, error.message)
        except HostError as error:
            problems = _problems_of(error)
            logger.warning("reload_failed last_good=kept code=%s: %s", error.code, error.message)
        except BaseException:
            self._forget(edit, files)
            raise
        self._end(edit, files, problems)

    def _load(self, files: dict[Path, str]) -> Loaded:
        """Read the files, and know from here on what they say."""
        try:
            return load(self._given, files, may_be_blank=False)
        finally:
            self._known.update(files)

    def _forget(self, edit: int, files: Mapping[Path, str]) -> None:
        """A fault of our own, or an end, came between: the watch finds again what is not in force."""
        if edit != self._edits:
            return
        for path in files:
            self._known.pop(path, None)
        self._known.update(self._loaded.files)
        self._watch.cancel()

    def _end(self, edit: int, files: Mapping[Path, str], problems: Sequence[Problem]) -> None:
        """Of an older edit nothing is told any more: the files say something else by now."""
        if edit != self._edits:
            return
        self._host.report_problems(tuple(problems))
        if problems:
            files = {**self._loaded.files, **files}
        else:
            self._loaded = replace(self._loaded, files=files)
        if files.keys() != self._followed:
            self._followed = frozenset(files)
            self._watch.cancel()

    async def _apply(self, fresh: Loaded, *, by_command: bool = False) -> None:
        before = self._loaded

        def take() -> None:
            nonlocal before
            before, self._loaded = self._loaded, fresh

        self._under_way += 1
        try:
            # A newer one may be in force by the end of the call.
            await self._host.adopt(fresh.host, fresh.picker, in_force=take)
        except BaseException as error:
            # Not all of it acts: the same files are to be tried again.
            self._loaded = before if self._loaded is fresh else self._loaded
            self._refused = (fresh, error) if isinstance(error, InputError) else None
            raise
        finally:
            self._under_way -= 1
        for name in _needs_restart(fresh, before):
            logger.warning("reload_ignored field=%s: it acts at the next start", name)
        _log_warnings(fresh)
        waits = self._host.files.lock_waits
        # The command goes on to the lock.
        note = f": {waits.message}; {waits.hint}" if waits is not None and not by_command else ""
        logger.info("reload_applied files=%s%s", ",".join(map(str, fresh.files)) or "-", note)


def _problems_of(error: HostError) -> tuple[Problem, ...]:
    return error.problems if isinstance(error, InputError) else (Problem(error.code, error.message, hint=error.hint),)


LIVE_FIELDS: Final = frozenset(
    {
        "scheduling",
        "bindings",
        "types",
        "endpoints",
        "packages",
        "swap",
        "trust",
        "hosts",
        "lock",
        "reload",
        "freshness",
        "health",
    }
)


def _same(fresh: Loaded, state: Loaded) -> bool:
    return fresh.picker == state.picker and fresh.host == state.host


def _needs_restart(fresh: Loaded, state: Loaded) -> list[str]:
    """What changed in the files and acts at the next start only."""
    names = [
        name
        for name in type(fresh.host).model_fields
        if name not in LIVE_FIELDS and getattr(fresh.host, name) != getattr(state.host, name)
    ]
    sources = (replace(it.picker.data_layer, discovery=None) for it in (fresh, state))
    return names + ["dataLayer.sources"] * (next(sources) != next(sources))


def _differing(fresh: Loaded, state: Loaded) -> list[str]:
    """The sections of both configurations that are not the same."""
    names = [name for name in type(fresh.host).model_fields if getattr(fresh.host, name) != getattr(state.host, name)]
    return names + ["picker"] * (fresh.picker != state.picker)
