"""`object-directory-source`: tells of the objects of one kind in the YAML files of a folder, as a cluster would tell of its own.

Files end in `.yaml`, `.yml` or `.json`, hidden ones are left alone, and one file may hold several documents; documents of other
kinds do not matter. A file counts once two looks in a row have seen it the same. One that is bad in any of its documents keeps the
objects that it last gave, and `problems` says why; so do all files while the folder cannot be read. Objects are compared by what
they say: a file that is renamed, or replaced by one that says the same, is no event. Of an object that stands in two files the one
in the first file by name counts.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread

from hotbay.config.data_types import ObjectKind
from hotbay.config.document_stream import split_documents
from hotbay.config.documents import load_document
from hotbay.config.file_content import FileContent
from hotbay.config.forms import Form
from hotbay.config.reload import RESYNC_S, SETTLE_S, read_content, watch_folder
from hotbay.config.wording import Value
from hotbay.datalayer.source import Emit, EventType, ObjectEvent
from hotbay.datalayer.sources.object_form import api_version, key_of
from hotbay.errors import InputError, Place, Problem

__all__ = ["MAX_FILES", "FolderObjects", "ObjectDirectorySource", "changes", "read_objects"]

logger = logging.getLogger(__name__)

MAX_FILES: Final = 4096
"""Each is read at every look; a folder of more is another folder than the one that was meant."""

_SUFFIXES: Final = frozenset({".yaml", ".yml", ".json"})
_MAX_LOOKS: Final = 10

Objects = Mapping[str, dict[str, object]]


@dataclass(frozen=True, slots=True)
class _File:
    """What a file last gave, and what is wrong with it as it is now."""

    digest: str
    objects: Objects
    problems: tuple[Problem, ...] = ()


@dataclass(frozen=True, slots=True)
class FolderObjects:
    """All objects of a folder by key, in the order of files and documents; `files` is what the next look compares with."""

    objects: Objects
    problems: tuple[Problem, ...]
    files: Mapping[Path, _File]


NO_OBJECTS: Final = FolderObjects({}, (), {})


def read_objects(text: str, kind: ObjectKind, *, file: str) -> Objects:
    """Read the objects of a kind in a text of any number of documents, by key.

    Raises:
        InputError: with every problem found; documents of other kinds have none as long as they can be parsed.
    """
    objects: dict[str, dict[str, object]] = {}
    problems: list[Problem] = []
    for part in split_documents(text):
        try:
            document = load_document(part, file=file)
        except InputError as error:
            problems += error.problems
            continue
        form = Form(document)
        found = _object(form, document.value, kind)
        problems += form.problems
        if found is None:
            continue
        key, value = found
        if key in objects:
            message = f"a second {kind.kind} {key!r} in this file"
            problems.append(Problem("DUPLICATE_NAME", message, document.place(("metadata", "name"))))
        objects[key] = value
    if problems:
        raise InputError(problems)
    return objects


def _object(form: Form, value: Value, kind: ObjectKind) -> tuple[str, dict[str, object]] | None:
    if not isinstance(value, dict):
        form.expected((), "a mapping", value)
        return None
    version, word = form.text(value.get("apiVersion"), ("apiVersion",)), form.text(value.get("kind"), ("kind",))
    if version is None or word is None or (version, word) != (api_version(kind), kind.kind):
        return None
    key = key_of(form, value)
    return (key, dict(value)) if key and not form.problems else None


def changes(before: Objects, after: Objects, kind: ObjectKind) -> tuple[ObjectEvent, ...]:
    """What happened between two looks: all that came or changed, then all that went. Objects are shared with both."""
    came = [
        ObjectEvent(EventType.ADD_OR_UPDATE, kind, key, value)
        for key, value in after.items()
        if before.get(key) != value
    ]
    went = [ObjectEvent(EventType.DELETE, kind, key, value) for key, value in before.items() if key not in after]
    return (*came, *went)


def look(folder: Path, kind: ObjectKind, last: FolderObjects) -> FolderObjects:
    """Look at a folder now. Blocks on the disk. What cannot be read is as it was in `last`."""
    try:
        paths = sorted(path for path in folder.iterdir() if path.suffix in _SUFFIXES and not path.name.startswith("."))
    except OSError as error:
        message = f"the folder of objects cannot be read: {error.strerror or error}"
        return FolderObjects(last.objects, (Problem("CONFIG_INVALID", message, Place(str(folder))),), last.files)
    if len(paths) > MAX_FILES:
        problem = Problem(
            "CONFIG_INVALID", "the folder of objects has too many files", Place(str(folder)),
            expected=f"at most {MAX_FILES} of .yaml, .yml and .json", found=str(len(paths)),
        )  # fmt: skip
        return FolderObjects(last.objects, (problem,), last.files)
    files = {path: _read(read_content(path), kind, last.files.get(path)) for path in paths}
    return _merged(files, kind)


def _read(content: FileContent, kind: ObjectKind, last: _File | None) -> _File:
    if last is not None and last.digest == content.digest:
        return last
    known: Objects = {} if last is None else last.objects
    try:
        text = content.text(hint="make it readable, or take it away")
        return _File(content.digest, read_objects(text, kind, file=str(content.path)))
    except InputError as error:
        return _File(content.digest, known, error.problems)


def _merged(files: Mapping[Path, _File], kind: ObjectKind) -> FolderObjects:
    objects: dict[str, dict[str, object]] = {}
    origins: dict[str, Path] = {}
    problems: list[Problem] = []
    for path, file in files.items():
        problems += file.problems
        for key, value in file.objects.items():
            if key in objects:
                message = f"{kind.kind} {key!r} stands in {origins[key].name} already, which counts"
                problems.append(Problem("DUPLICATE_NAME", message, Place(str(path)), hint="take one of them away"))
            else:
                objects[key], origins[key] = value, path
    return FolderObjects(objects, tuple(problems), files)


class ObjectDirectorySource:
    """See the module. `problems` is what is wrong with the folder as it is now; `resync_s` as in `watch_folder`."""

    type = "object-directory-source"

    def __init__(self, name: str, folder: Path, kind: ObjectKind, *, resync_s: float = RESYNC_S) -> None:
        self.name = name
        self.kind = kind
        self.problems: tuple[Problem, ...] = ()
        self._folder = folder
        self._resync_s = resync_s
        self._seen = NO_OBJECTS
        self._told: dict[str, dict[str, object]] = {}
        self._again: set[str] = set()

    def tell_again(self) -> None:
        """At the next look, tell of all objects that are there as if they came."""
        self._again = set(self._told)

    async def notify(self, event: ObjectEvent) -> ObjectEvent | None:
        return event

    async def run(self, emit: Emit) -> None:
        """Tell of what is there, and follow the folder until cancelled."""
        await watch_folder(self._folder, partial(self._look, emit), resync_s=self._resync_s)

    async def _look(self, emit: Emit) -> None:
        seen = await anyio.to_thread.run_sync(look, self._folder, self.kind, self._seen)
        for _ in range(_MAX_LOOKS):
            if seen.files == self._seen.files:
                break
            before = seen.files
            await anyio.sleep(SETTLE_S)
            # Compared with what counted before: what is half-written must not become what a bad file keeps.
            seen = await anyio.to_thread.run_sync(look, self._folder, self.kind, self._seen)
            if seen.files == before:
                break
        if seen.problems != self.problems:
            for problem in seen.problems:
                logger.error("object_file_problem source=%s last_good=kept: %s", self.name, problem)
        self._seen, self.problems = seen, seen.problems
        again = self._again & seen.objects.keys()
        told = {key: value for key, value in self._told.items() if key not in again}
        for event in changes(told, seen.objects, self.kind):
            await self._tell(emit, event)

    async def _tell(self, emit: Emit, event: ObjectEvent) -> None:
        """Only what was told is known: a run that is cut off between two events goes on with the next.

        It counts as told from the moment it is handed over, as whoever takes it may be cut off once it has it; one that fails
        does not have it.
        """
        key, before, is_due = event.key, self._told.get(event.key), event.key in self._again
        self._again.discard(key)
        self._know(key, None if event.type is EventType.DELETE else event.object)
        try:
            await emit(event)
        except Exception:
            self._know(key, before)
            if is_due:
                self._again.add(key)
            raise

    def _know(self, key: str, value: dict[str, object] | None) -> None:
        if value is None:
            self._told.pop(key, None)
        else:
            self._told[key] = value
