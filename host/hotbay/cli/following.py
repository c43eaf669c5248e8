"""Follows the configuration files of a host that runs: what they say is put in force, held back or refused, and told."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

import anyio
import anyio.abc
import anyio.to_thread

from hotbay.app import Host
from hotbay.cli.loading import Given, Loaded, load, log_warnings
from hotbay.config.file_content import FileContent
from hotbay.config.reload import watch_files
from hotbay.errors import HostError, InputError, Problem
from hotbay.operator_files import HeldBack
from hotbay.rollout.adoption import ReplacedError

logger = logging.getLogger(__name__)

__all__ = ["LIVE_FIELDS", "follow_files"]


async def follow_files(host: Host, given: Given, loaded: Loaded) -> None:
    """Put each valid change of the configuration files in force; a bad one is reported and changes nothing."""
    follower = _Follower(host, given, loaded)
    host.files.look, host.files.next_start = follower.look, follower.next_start
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
        self._started = loaded
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

    def next_start(self) -> list[str]:
        """What of the configuration in force acts at the next start only."""
        return _needs_restart(self._loaded, self._started)

    async def look(self) -> None:
        """Hold back what the files say at this moment, for who asks before the watch has seen it."""
        while True:
            edits = self._edits
            found = await _read(self._given, {})
            if edits == self._edits:
                break
            # Of an edit that began meanwhile it is not known which of the two has read the files later.
        self._weigh(found)

    def _weigh(self, fresh: Loaded | InputError) -> None:
        """Hold back what the files were found to say."""
        if isinstance(fresh, InputError):
            self._host.files.hold_back(fresh)
        elif self._is_manual:
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
            await self._take_over(content, edit, files)
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

    async def _take_over(self, content: FileContent, edit: int, files: dict[Path, str]) -> None:
        fresh = await self._load(edit, files)
        if fresh is None:
            return
        if _same(fresh, self._loaded) and not self._under_way:
            self._host.files.hold_back(None)
            self._host.found_unchanged()
        elif self._is_manual:
            self._hold_back(fresh)
            logger.info("reload_held_back file=%s: `hotbay apply` puts it in force", content.path)
        else:
            await self._apply(fresh)

    async def _load(self, edit: int, files: dict[Path, str]) -> Loaded | None:
        """Read the files, and know from here on what they say. None where another edit began meanwhile: it reads them later."""
        found = await _read(self._given, files)
        if edit != self._edits:
            return None
        self._known.update(files)
        if isinstance(found, InputError):
            raise found
        return found

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
            await self._host.adopt(fresh.host, fresh.picker, directory=fresh.picker_directory, in_force=take)
        except BaseException as error:
            # Not all of it acts: the same files are to be tried again.
            self._loaded = before if self._loaded is fresh else self._loaded
            self._refused = (fresh, error) if isinstance(error, InputError) else None
            raise
        finally:
            self._under_way -= 1
        for name in _needs_restart(fresh, before):
            logger.warning("reload_ignored field=%s: it acts at the next start", name)
        log_warnings(fresh)
        waits = self._host.files.lock_waits
        # The command goes on to the lock.
        note = f": {waits.message}; {waits.hint}" if waits is not None and not by_command else ""
        logger.info("reload_applied files=%s%s", ",".join(map(str, fresh.files)) or "-", note)


async def _read(given: Given, files: dict[Path, str]) -> Loaded | InputError:
    """What the files say. In a thread: a long list of endpoints takes longer to parse than a request may wait."""
    try:
        return await anyio.to_thread.run_sync(partial(load, given, files, may_be_blank=False))
    except InputError as error:
        return error


def _problems_of(error: HostError) -> tuple[Problem, ...]:
    return error.problems if isinstance(error, InputError) else (Problem(error.code, error.message, hint=error.hint),)


LIVE_FIELDS: Final = frozenset(
    {
        "scheduling",
        "bindings",
        "types",
        "endpoints",
        "discovery",
        "packages",
        "swap",
        "trust",
        "hosts",
        "lock",
        "explain",
        "models",
        "reload",
        "freshness",
        "health",
    }
)


def _same(fresh: Loaded, state: Loaded) -> bool:
    return fresh.picker == state.picker and fresh.host == state.host


def _needs_restart(fresh: Loaded, state: Loaded) -> list[str]:
    """What changed in the files and acts at the next start only: `SECTION.FIELD`, or the section where it has no fields."""
    sections = [name for name in type(fresh.host).model_fields if name not in LIVE_FIELDS]
    pairs = [(name, getattr(fresh.host, name), getattr(state.host, name)) for name in sections]
    return [found for pair in pairs for found in _changed(*pair)]


def _changed(name: str, fresh: object, before: object) -> list[str]:
    if fresh == before:
        return []
    known = getattr(type(fresh), "model_fields", ()) if type(fresh) is type(before) else ()
    fields = [key for key in known if getattr(fresh, key) != getattr(before, key)]
    return [f"{name}.{key}" for key in fields] or [name]


def _differing(fresh: Loaded, state: Loaded) -> list[str]:
    """The sections of both configurations that are not the same."""
    names = [name for name in type(fresh.host).model_fields if getattr(fresh.host, name) != getattr(state.host, name)]
    return names + ["picker"] * (fresh.picker != state.picker)
