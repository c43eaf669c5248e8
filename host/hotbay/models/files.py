"""Reads the files of models, and follows them: the last good content of each keeps counting.

A path is a file, or a folder of `.yaml`, `.yml` and `.json` files, hidden ones left alone. The first load is strict: what is
wrong then is an error. Later a file counts once two looks in a row have seen it the same; one that is bad keeps the
objects that it last gave, and `problems` says why; so does one that cannot be read, as a listed file that is gone. A file
that is gone from a folder, or a path that is no longer listed, takes its objects along. Of an objective that stands in two
files the one in the first file counts; the order of files is that of the paths, in a folder that of the names.

Invariants: `rules` is replaced as a whole, in one assignment; nothing here raises after `load` but for cancellation.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread

from hotbay.config.documents import refuse
from hotbay.config.file_content import FileContent
from hotbay.config.reload import RESYNC_S, SETTLE_S, read_content, watch_folder
from hotbay.errors import InputError, Place, Problem
from hotbay.models.documents import KINDS, ModelDocuments, read_models
from hotbay.models.rules import NO_RULES, ModelRules, Objective, Rewrite, make_rules

__all__ = ["MAX_FILES", "ModelFiles"]

logger = logging.getLogger(__name__)

MAX_FILES: Final = 4096
"""Each is read at every look; a folder of more is another folder than the one that was meant."""

_SUFFIXES: Final = frozenset({".yaml", ".yml", ".json"})
_MAX_LOOKS: Final = 10
_HINT: Final = "make it readable, or take it out of models.files"


@dataclass(frozen=True, slots=True)
class _File:
    """What a file last gave, and what is wrong with it as it is now."""

    digest: str
    documents: ModelDocuments
    problems: tuple[Problem, ...] = ()


@dataclass(frozen=True, slots=True)
class _Look:
    """All files as one look found them, in their order, and what is wrong with folders."""

    files: Mapping[Path, _File]
    problems: tuple[Problem, ...] = ()


class ModelFiles:
    """See the module. `load` once, then `run` once; `configure` at any time after `load`.

    Args:
        paths: files and folders, absolute.
        changed: called after each look with whether it was good: `applied` or `refused`.
        resync_s: longest time until a change is found that no event told.
    """

    def __init__(
        self,
        paths: Sequence[Path] = (),
        *,
        changed: Callable[[str], None] = lambda result: None,
        resync_s: float = RESYNC_S,
    ) -> None:
        self.rules: ModelRules = NO_RULES
        self.problems: tuple[Problem, ...] = ()
        self._paths = tuple(paths)
        self._changed = changed
        self._resync_s = resync_s
        self._seen = _Look({})
        self._relisted = anyio.Event()
        self._looking = anyio.Lock()

    async def load(self) -> None:
        """Read everything for the first time. Raises `InputError` with all problems of all files."""
        self._seen = await self._prepared(self._paths)
        self.rules = _rules_of(self._seen)

    async def prepare(self, paths: Sequence[Path]) -> "PreparedModels":
        """What `configure` needs for other paths; nothing has changed yet. Raises `InputError`, as `load`."""
        return PreparedModels(tuple(paths), await self._prepared(tuple(paths)))

    def configure(self, prepared: "PreparedModels") -> None:
        """Take over what was prepared; in a step of the loop."""
        self._paths, self._seen = prepared.paths, prepared.look
        self.rules, self.problems = _rules_of(prepared.look), ()
        self._relisted.set()

    async def _prepared(self, paths: tuple[Path, ...]) -> _Look:
        seen = await anyio.to_thread.run_sync(_look, paths, self._seen)
        refuse(_problems_of(seen))
        return seen

    async def run(self) -> None:
        """Follow the paths until cancelled."""
        while True:
            self._relisted = anyio.Event()
            async with anyio.create_task_group() as group:
                for folder in _folders(self._paths):
                    group.start_soon(self._follow, folder)
                await self._relisted.wait()
                group.cancel_scope.cancel()

    async def _follow(self, folder: Path) -> None:
        await watch_folder(folder, self._look, resync_s=self._resync_s)

    async def _look(self) -> None:
        async with self._looking:
            await self._look_once()

    async def _look_once(self) -> None:
        paths = self._paths
        before = self._seen
        seen = await anyio.to_thread.run_sync(_look, paths, before)
        for _ in range(_MAX_LOOKS):
            if seen == before:
                break
            last = seen
            await anyio.sleep(SETTLE_S)
            # Compared with what counted before: what is half-written must not become what a bad file keeps.
            seen = await anyio.to_thread.run_sync(_look, paths, before)
            if seen == last:
                break
        if self._paths is paths and seen != self._seen:
            self._take(seen)

    def _take(self, seen: _Look) -> None:
        problems = _problems_of(seen)
        for problem in problems:
            if problem not in self.problems:
                logger.error("models_problem last_good=kept: %s", problem)
        self._seen, self.problems = seen, problems
        self.rules = _rules_of(seen)
        self._changed("refused" if problems else "applied")


@dataclass(frozen=True, slots=True)
class PreparedModels:
    """Files that were read and found good, to be put in force."""

    paths: tuple[Path, ...]
    look: _Look


def _folders(paths: Iterable[Path]) -> tuple[Path, ...]:
    """Where something can happen: a listed folder, and that of a listed file, each once."""
    return tuple(dict.fromkeys(path if path.is_dir() else path.parent for path in paths))


def _look(paths: tuple[Path, ...], last: _Look) -> _Look:
    """Look at all files now. Blocks on the disk. What cannot be read is as it was in `last`."""
    files: dict[Path, _File] = {}
    problems: list[Problem] = []
    for path in paths:
        known = [one for one in last.files if one.parent == path]
        # What held files is a folder, also while it is away: its files count as they last were.
        if not known and not path.is_dir():
            files.setdefault(path, _read(read_content(path), last.files.get(path)))
            continue
        try:
            found = sorted(it for it in path.iterdir() if it.suffix in _SUFFIXES and not it.name.startswith("."))
        except OSError as error:
            problems.append(_folder_problem(path, f"the folder cannot be read: {error.strerror or error}"))
            files.update((one, last.files[one]) for one in known if one not in files)
            continue
        if len(found) > MAX_FILES:
            problems.append(_folder_problem(path, f"the folder has {len(found)} files, more than {MAX_FILES}"))
            found = found[:MAX_FILES]
        for one in found:
            files.setdefault(one, _read(read_content(one), last.files.get(one)))
    return _Look(files, tuple(problems))


def _folder_problem(path: Path, message: str) -> Problem:
    return Problem("CONFIG_INVALID", message, Place(str(path)), hint=_HINT)


def _read(content: FileContent, last: _File | None) -> _File:
    if last is not None and last.digest == content.digest:
        return last
    try:
        return _File(content.digest, read_models(content.text(hint=_HINT), file=str(content.path)))
    except InputError as error:
        return _File(content.digest, ModelDocuments() if last is None else last.documents, error.problems)


def _problems_of(look: _Look) -> tuple[Problem, ...]:
    problems = [*look.problems]
    seen: dict[tuple[str, str], Path] = {}
    for path, file in look.files.items():
        problems += file.problems
        for kind, name in _names(file.documents):
            first = seen.setdefault((kind, name), path)
            if first != path:
                message = f"{kind} {name!r} stands in {first.name} already, which counts"
                problems.append(Problem("DUPLICATE_NAME", message, Place(str(path)), hint="take one of them away"))
    return tuple(problems)


def _names(documents: ModelDocuments) -> list[tuple[str, str]]:
    found = [(KINDS[0], one.name) for one in documents.objectives]
    return found + [(KINDS[1], one.name) for one in documents.rewrites]


def _rules_of(look: _Look) -> ModelRules:
    objectives: dict[str, Objective] = {}
    rewrites: dict[str, Rewrite] = {}
    for file in look.files.values():
        for objective in file.documents.objectives:
            objectives.setdefault(objective.name, objective)
        for rewrite in file.documents.rewrites:
            rewrites.setdefault(rewrite.name, rewrite)
    return make_rules(objectives.values(), tuple(rewrites.values()))
