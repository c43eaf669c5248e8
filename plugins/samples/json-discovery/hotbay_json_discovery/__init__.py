"""A discovery: one JSON file for each model server. Imports hotbay_sdk and the standard library only."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hotbay_sdk import Context, Discovery, DiscoveryNotifier, ParameterError, Plugin

plugin = Plugin("json-discovery")

MAX_BYTES = 32 * 1024
"""Of one file: an endpoint has some labels."""

Stamp = tuple[int, int, int]
"""What changes with a file: its node, its length, and when it was written."""


@dataclass(frozen=True)
class Parameters:
    """What an operator sets: the directory, and how often it is looked at, in seconds."""

    path: str
    interval_s: float = 1.0
    namespace: str = "default"

    def __post_init__(self) -> None:
        if not Path(self.path).is_absolute():
            raise ParameterError("path", f"expected an absolute path, found {self.path!r}")
        if not 0.05 <= self.interval_s <= 3600:
            raise ParameterError("interval_s", f"expected 0.05 to 3600 seconds, found {self.interval_s:g}")


@plugin.type("json-directory-discovery", parameters=Parameters)
class JsonDirectoryDiscovery(Discovery):
    """Looks at the directory from time to time; each look tells what differs from the one before."""

    def __init__(self, context: Context, parameters: Parameters) -> None:
        self._context = context
        self._directory = Path(parameters.path)
        self._interval_s = parameters.interval_s
        self._namespace = parameters.namespace

    def discover(self, notifier: DiscoveryNotifier) -> None:
        """Follow the directory until the run is over; one that cannot be listed is tried again, and nothing goes meanwhile."""
        known: dict[str, Stamp] = {}
        is_ready = False
        while not self._context.cancelled:
            try:
                found = stamps(self._directory)
            except OSError as error:
                self._context.logger.warning("%s cannot be listed: %s", self._directory, error.strerror)
            else:
                known = self._tell(notifier, known, found)
                if not is_ready:
                    notifier.ready()
                    is_ready = True
            if notifier.wait(self._interval_s):
                return

    def _tell(
        self, notifier: DiscoveryNotifier, known: Mapping[str, Stamp], found: Mapping[str, Stamp]
    ) -> dict[str, Stamp]:
        """Tell what came, changed and went; what is to be remembered of this look."""
        told = dict(known)
        for name, stamp in sorted(found.items()):
            if known.get(name) != stamp:
                self._tell_file(notifier, name)
                told[name] = stamp
        for name in sorted(known.keys() - found.keys()):
            notifier.delete(f"{self._namespace}/{name}")
            del told[name]
        return told

    def _tell_file(self, notifier: DiscoveryNotifier, name: str) -> None:
        endpoint_id = f"{self._namespace}/{name}"
        try:
            notifier.upsert({**read(self._directory / f"{name}.json"), "id": endpoint_id})
        except (OSError, ValueError, RecursionError) as error:
            # ValueError also of what was read and cannot cross: a lone surrogate, a number of 70 bits, lists in lists.
            self._context.logger.warning("%s keeps its last good form: %s", endpoint_id, error)
            # Without an address the host refuses it, and keeps what it had, also of an earlier version of this plugin.
            notifier.upsert({"id": endpoint_id})


def stamps(directory: Path) -> dict[str, Stamp]:
    """The JSON files of a directory, by name without ending. Raises OSError."""
    found: dict[str, Stamp] = {}
    for path in directory.iterdir():
        if path.suffix == ".json" and not path.name.startswith("."):
            try:
                status = path.stat()
            except FileNotFoundError:
                continue
            if is_text(path.stem):
                found[path.stem] = (status.st_ino, status.st_size, status.st_mtime_ns)
    return found


def is_text(name: str) -> bool:
    """Whether a file's name is one that an id can have: bytes that are no text stand as lone surrogates in it."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def read(path: Path) -> dict[str, object]:
    """What a file says of its server. Raises OSError and ValueError."""
    with path.open("rb") as file:
        data = file.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise ValueError(f"more than {MAX_BYTES} bytes")
    entry = json.loads(data)
    if not isinstance(entry, dict):
        raise ValueError(f"a {type(entry).__name__}, expected a map with address and port")
    return entry
