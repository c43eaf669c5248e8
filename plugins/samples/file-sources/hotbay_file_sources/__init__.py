"""Two sources and their extractors, by JSON files. Imports hotbay_sdk and the standard library only."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hotbay_sdk import (
    Context,
    EventExtractor,
    Extractor,
    ObjectNotifier,
    ParameterError,
    Plugin,
    PollingSource,
    WatchSource,
)

plugin = Plugin("file-sources")

GROUP, VERSION, KIND = "samples.hotbay", "v1", "ServerNote"
NOTES = f"object:{GROUP}/{VERSION}/{KIND}"
MAX_BYTES = 32 * 1024
"""Of one file."""

Stamp = tuple[int, int, int]
"""What changes with a file: its node, its length, and when it was written."""


@dataclass(frozen=True)
class Parameters:
    """What an operator sets: the directory, and how often it is looked at, in seconds."""

    path: str
    interval_s: float = 1.0

    def __post_init__(self) -> None:
        if not Path(self.path).is_absolute():
            raise ParameterError("path", f"expected an absolute path, found {self.path!r}")
        if not 0.05 <= self.interval_s <= 3600:
            raise ParameterError("interval_s", f"expected 0.05 to 3600 seconds, found {self.interval_s:g}")


@plugin.type("note-watch-source", payload=NOTES, parameters=Parameters)
class NoteWatchSource(WatchSource):
    """Looks at the directory from time to time; each look tells what differs from the one before."""

    def __init__(self, context: Context, parameters: Parameters) -> None:
        self._context = context
        self._directory = Path(parameters.path)
        self._interval_s = parameters.interval_s

    def watch(self, notifier: ObjectNotifier) -> None:
        """Follow the directory until the run is over; one that cannot be listed is tried again, and nothing goes meanwhile."""
        known: dict[str, Stamp] = {}
        is_ready = False
        while not self._context.cancelled:
            try:
                found = stamps(self._directory)
            except OSError as error:
                self._context.logger.warning("%s cannot be listed: %s", self._directory, error.strerror)
            else:
                for name in sorted(name for name, stamp in found.items() if known.get(name) != stamp):
                    self._tell(notifier, name)
                for name in sorted(known.keys() - found.keys()):
                    notifier.delete(name)
                known = found
                if not is_ready:
                    notifier.ready()
                    is_ready = True
            if notifier.wait(self._interval_s):
                return

    def _tell(self, notifier: ObjectNotifier, name: str) -> None:
        head = {"apiVersion": f"{GROUP}/{VERSION}", "kind": KIND, "metadata": {"name": name}}
        try:
            notifier.upsert({**head, "spec": read(self._directory / f"{name}.json")})
        except (OSError, ValueError, RecursionError) as error:
            # ValueError also of what was read and cannot cross: a lone surrogate, a number of 70 bits, lists in lists.
            self._context.logger.warning("%s stays as it was told last: %s", name, error)


@plugin.type("note-extractor", payload=NOTES, attributes={"note_rank": "i64", "note_text": "value"})
class NoteExtractor(EventExtractor):
    """Says of each server what is noted of it, and takes it back when the note goes."""

    def extract(self, event: Mapping[str, Any]) -> Mapping[str, Mapping[str, object]]:
        """The attributes of the server that has the note's name."""
        is_gone, spec = event["type"] == "delete", event["object"]["spec"]
        return {
            f"default/{event['key']}": {
                "note_rank": None if is_gone else spec.get("rank"),
                "note_text": None if is_gone else spec.get("text"),
            }
        }


@plugin.type("status-source", payload="json", interval_s=0.5, concurrency=4, parameters=Parameters)
class StatusSource(PollingSource):
    """Reads one file for each poll."""

    def __init__(self, context: Context, parameters: Parameters) -> None:
        self._directory = Path(parameters.path)

    def poll(self, endpoint: Mapping[str, Any]) -> object:
        """What the endpoint's file says; raises where there is none that can be read, which is a failed poll."""
        return read(self._directory / f"{endpoint['name']}.json")


@plugin.type("status-extractor", payload="json", attributes={"status_load": "f32"})
class StatusExtractor(Extractor):
    """The load that a status says, between 0 and 1."""

    def extract(self, payload: Any, endpoint: Mapping[str, Any]) -> Mapping[str, object]:
        """`status_load`; nothing where the status says nothing of it."""
        return {"status_load": payload.get("load")}


def stamps(directory: Path) -> dict[str, Stamp]:
    """The JSON files of a directory, by name without ending. Raises OSError."""
    found: dict[str, Stamp] = {}
    for path in directory.iterdir():
        # Bytes that are no text stand as lone surrogates in a name.
        if path.suffix == ".json" and path.stem.isprintable() and not path.name.startswith("."):
            try:
                status = path.stat()
            except FileNotFoundError:
                continue
            found[path.stem] = (status.st_ino, status.st_size, status.st_mtime_ns)
    return found


def read(path: Path) -> dict[str, Any]:
    """What a file says. Raises OSError and ValueError."""
    with path.open("rb") as file:
        data = file.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise ValueError(f"more than {MAX_BYTES} bytes")
    entry = json.loads(data)
    if not isinstance(entry, dict):
        raise ValueError(f"a {type(entry).__name__}, expected a map")
    return entry
