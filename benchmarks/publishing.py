"""Swaps as an operator causes them: packages put into a watched folder, and the host's own word for what came of it.

Times are between an act of the harness and an event of the host, both by the machine's clock.
"""

import json
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from hotbay.errors import HostError
from hotbay.rollout.rows import LIVE

from benchmarks.host import HostProcess
from benchmarks.packages import write_copy

EVENT_TIMEOUT_S: Final = 60.0
LOOK_INTERVAL_S: Final = 0.02
OFFERED: Final = 3
"""Revisions that the folder offers at a time."""

Event = Mapping[str, object]


def wall_s() -> float:
    """Seconds since the epoch, as the host's events have them."""
    return time.time_ns() / 1e9


class Publisher:
    """One plugin's package in a watched folder, published again and again: the same wheels under the next revision."""

    def __init__(self, folder: Path, layout: Path, plugin: str) -> None:
        self.source = folder / "source"
        self.plugin = plugin
        self.rev = 0
        self._aside = folder / "aside"
        self._layout = layout
        self.source.mkdir(parents=True, exist_ok=True)

    def prepare(self) -> Callable[[], int]:
        """Make the next revision; the call of the result is its publication, one rename, and returns its number."""
        rev = self.rev + 1
        made = self._aside / f"{self.plugin}-{rev}"
        write_copy(self._layout, made, name=self.plugin, rev=rev)
        shutil.rmtree(self.source / f"{self.plugin}-{rev - OFFERED}", ignore_errors=True)

        def publish() -> int:
            made.rename(self.source / made.name)
            self.rev = rev
            return rev

        return publish


class Events:
    """What a host says that happens, from the making of this object until the host ends."""

    def __init__(self, host: HostProcess, plugin: str) -> None:
        self._host = host
        self._plugin = plugin
        self._seen: list[Event] = []
        self._changed = threading.Condition()
        threading.Thread(target=self._listen, daemon=True).start()
        self._wait_until_heard()

    def _listen(self) -> None:
        # The stream breaks off when the host ends.
        with suppress(HostError):
            for event in self._host.admin.lines("/events"):
                with self._changed:
                    self._seen.append(event)
                    self._changed.notify_all()

    def _wait_until_heard(self) -> None:
        """Enabling what is enabled changes nothing and is an event."""
        end = time.monotonic() + EVENT_TIMEOUT_S
        while not self._seen:
            if time.monotonic() > end:
                raise RuntimeError("the host told no event")
            self._host.admin.post("/enable", {"plugin": self._plugin})
            time.sleep(LOOK_INTERVAL_S)

    def mark(self) -> int:
        """A place in the events: what happens from here on."""
        return len(self._seen)

    def wait(self, since: int, name: str, *, may_fail: bool = False, **fields: object) -> Event:
        """The first such event after a mark. Raises `RuntimeError` when it does not come.

        So it does when a version is refused meanwhile, unless it `may_fail`.
        """
        wanted = {"event": name, "plugin": self._plugin, **fields}
        end = time.monotonic() + EVENT_TIMEOUT_S
        with self._changed:
            while True:
                for event in self._seen[since:]:
                    if all(event.get(key) == value for key, value in wanted.items()):
                        return event
                    if event["event"] == "candidate_failed" and not may_fail:
                        raise RuntimeError(f"a version was refused while measuring: {event}")
                if not self._changed.wait(end - time.monotonic()):
                    raise RuntimeError(f"the host told no {wanted} within {EVENT_TIMEOUT_S:.0f} s")

    def wait_idle(self, since: int, *, may_fail: bool = False) -> Event:
        """Wait until a rollout that began after the mark is over, its old process included."""
        return self.wait(since, "phase", may_fail=may_fail, phase=LIVE)


def at_s(event: Event) -> float:
    """When it happened."""
    found = event["at_s"]
    assert isinstance(found, float), "the host writes its clock as a number"
    return found


@dataclass(frozen=True, slots=True)
class Held:
    """What a host under `counted_host` holds."""

    descriptors: int
    threads: int
    tasks: int
    children: int
    resident_bytes: int

    @classmethod
    def of(cls, host: HostProcess, file: Path) -> "Held":
        """Read it; `file` is the one that the host was told."""
        file.unlink(missing_ok=True)
        os.kill(host.pid, signal.SIGUSR2)
        end = time.monotonic() + EVENT_TIMEOUT_S
        while not file.exists():
            if time.monotonic() > end:
                raise RuntimeError("the host did not count its tasks")
            time.sleep(LOOK_INTERVAL_S)
        process = Path(f"/proc/{host.pid}")
        return cls(
            descriptors=len(list((process / "fd").iterdir())),
            threads=len(list((process / "task").iterdir())),
            tasks=json.loads(file.read_text())["tasks"],
            children=sum(len(path.read_text().split()) for path in process.glob("task/*/children")),
            resident_bytes=int((process / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE"),
        )

    def more_than(self, before: "Held") -> Mapping[str, float]:
        """The growth: counts, and the share of the memory in percent."""
        grown = {f"{name}_count": value - getattr(before, name) for name, value in asdict(self).items()}
        del grown["resident_bytes_count"]
        return {**grown, "resident_percent": (self.resident_bytes / before.resident_bytes - 1) * 100}


@contextmanager
def fresh_folder(folder: Path) -> Iterator[Path]:
    """An empty folder: what an earlier run's world knows would decide what this one's host selects."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    yield folder
