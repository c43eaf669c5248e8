"""What a killed host leaves behind, and how the next one ends it: by lock and identity, never by a number alone.

A host keeps one record for each process that it started, in a folder of its own that it holds locked as long as it
lives. The next host takes the folders that nobody holds: what they record and still runs is a leftover. Plugins go
with their host by themselves; programs that they started in sessions of their own need not.

Invariants:
- a folder that is locked belongs to a host that lives, a predecessor that hands over for one, and is left alone;
- a record is there before its process runs any of the plugin's code, and counts only on its own boot, in its own pid
  namespace;
- a process is ended only if it is the recorded one, by id and start time, or if it is no older than that one, holds
  its output, and has its session or its channel; all of this is looked at again once its pidfd is open.
"""

import contextlib
import fcntl
import json
import logging
import os
import select
import shutil
import signal
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, Self

from hotbay.process.proc import held_pipes, machine, process_ids, read_stat, variable

logger = logging.getLogger(__name__)

__all__ = ["HostRecords", "ProcessRecord", "end_leftovers", "read_record", "record_process"]

CHANNEL_VARIABLE: Final = "HOTBAY_CHANNEL"
ROUNDS: Final = 5
"""A leftover can start others while it is looked for; one that always does so is left to the operator."""
GONE_WITHIN_S: Final = 2.0
RECORD_BYTES: Final = 4096
_LOCK: Final = "lock"


@dataclass(frozen=True, slots=True)
class ProcessRecord:
    """One started process. `channel` is its HOTBAY_CHANNEL, `pipes` the inode numbers of its output pipes."""

    machine: str
    label: str
    pid: int
    start_ticks: int
    channel: str
    pipes: tuple[int, ...]


def record_process(folder: Path, *, label: str, pid: int, channel: str, pipes: tuple[int, ...]) -> Path | None:
    """Record a process that is not reaped before this returns; `folder` is a `HostRecords.folder`.

    Not synced: a record is of no use after the machine went down. None, with a line in the log, where it cannot be
    written: what is not recorded runs all the same, and goes with its host by itself.
    """
    found = read_stat(pid)
    try:
        if found is None:
            raise FileNotFoundError(f"/proc tells nothing of process {pid}")
        record = ProcessRecord(machine(), label, pid, found.start_ticks, channel, pipes)
        path = folder / f"{pid}-{found.start_ticks}"
        path.write_text(json.dumps(asdict(record)), encoding="utf-8")
    except OSError as error:
        logger.warning("process_not_recorded pid=%s: %s", pid, error, extra=_fields(label, pid))
        return None
    return path


def read_record(text: str) -> ProcessRecord | None:
    """None for anything that `record_process` did not write whole."""
    try:
        found = json.loads(text)
    except ValueError:
        return None
    if not isinstance(found, dict) or found.keys() != ProcessRecord.__dataclass_fields__.keys():
        return None
    on, label, channel, pipes = (found[name] for name in ("machine", "label", "channel", "pipes"))
    pid, start_ticks = found["pid"], found["start_ticks"]
    if not all(isinstance(text, str) for text in (on, label, channel)) or not isinstance(pipes, list):
        return None
    if not all(type(number) is int and number > 0 for number in (pid, start_ticks, *pipes)):
        return None
    return ProcessRecord(on, label, pid, start_ticks, channel, tuple(pipes))


class HostRecords:
    """This host's own folder below `root`. Blocking; one thread at a time."""

    def __init__(self, root: Path, folder: Path, lock_fd: int) -> None:
        self.folder = folder
        self._root = root
        self._lock_fd = lock_fd

    @classmethod
    def open(cls, root: Path) -> Self:
        """End what dead hosts left, then begin the records of this one. Raises OSError."""
        root.mkdir(parents=True, exist_ok=True, mode=0o700)
        with _locked(root / _LOCK):
            end_leftovers(root)
            # Nobody sweeps meanwhile: a folder without its lock would look like a dead host's.
            folder = root / uuid.uuid4().hex
            folder.mkdir(mode=0o700)
            lock_fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            fcntl.flock(lock_fd, fcntl.LOCK_EX)
        return cls(root, folder, lock_fd)

    def close(self) -> None:
        """At the host's end, when its plugins are gone: end what they left, and forget them. Idempotent."""
        if self._lock_fd < 0:
            return
        with contextlib.suppress(OSError):
            _end_recorded(self.folder)
        shutil.rmtree(self.folder, ignore_errors=True)
        os.close(self._lock_fd)
        self._lock_fd = -1


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    lock_fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock_fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock_fd)


def end_leftovers(root: Path) -> int:
    """End what hosts that are gone recorded below `root`; return how many processes. Raises OSError."""
    count = 0
    for folder in root.iterdir():
        if folder.is_symlink() or not folder.is_dir():
            continue
        # A host that ends at this moment takes its folder away by itself.
        with contextlib.suppress(FileNotFoundError):
            count += _end_unheld(folder)
    return count


def _end_unheld(folder: Path) -> int:
    """0 while a host holds the folder. Raises OSError."""
    lock_fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        count = _end_recorded(folder)
        shutil.rmtree(folder, ignore_errors=True)
    except BlockingIOError:
        return 0
    finally:
        os.close(lock_fd)
    return count


def _end_recorded(folder: Path) -> int:
    here = machine()
    records = [record for record in _records(folder) if record.machine == here]
    for record in records:
        _say_mismatch(record)
    count = 0
    for _ in range(ROUNDS if records else 0):
        ended = [pid for pid in process_ids() if pid != os.getpid() and _end(pid, records)]
        if not ended:
            break
        count += len(ended)
    return count


def _records(folder: Path) -> Iterator[ProcessRecord]:
    for path in sorted(folder.iterdir()):
        try:
            with path.open(encoding="utf-8", errors="replace") as file:
                record = read_record(file.read(RECORD_BYTES))
        except OSError as error:
            logger.warning("record_unreadable path=%s: %s", path, error)
            continue
        if record is None:
            logger.warning("record_unreadable path=%s: it was not written whole", path)
        else:
            yield record


def _say_mismatch(record: ProcessRecord) -> None:
    found = read_stat(record.pid)
    if found is not None and found.start_ticks != record.start_ticks:
        logger.warning(
            "leftover_identity_mismatch pid=%s plugin=%s: that number is another process's now, which is left alone",
            record.pid,
            record.label,
            extra=_fields(record.label, record.pid),
        )


def _end(pid: int, records: Sequence[ProcessRecord]) -> bool:
    if _owner(pid, records) is None:
        return False
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    try:
        # From here on the number cannot mean another process: what is found now is what the signal reaches.
        record = _owner(pid, records)
        if record is None:
            return False
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        fields = _fields(record.label, pid)
        logger.warning("leftover_ended pid=%s plugin=%s: a host that is gone left it", pid, record.label, extra=fields)
        gone = select.poll()
        gone.register(pidfd, select.POLLIN)
        if not gone.poll(GONE_WITHIN_S * 1000):
            logger.error("leftover_not_gone pid=%s: not %s s after SIGKILL", pid, GONE_WITHIN_S, extra=fields)
    except PermissionError:
        logger.warning("leftover_of_another_user pid=%s", pid)
        return False
    finally:
        os.close(pidfd)
    return True


def _owner(pid: int, records: Sequence[ProcessRecord]) -> ProcessRecord | None:
    """The record that a process belongs to, by what it is and holds."""
    found = read_stat(pid)
    if found is None or found.state == "Z":
        return None
    younger = [record for record in records if found.start_ticks >= record.start_ticks]
    for record in younger:
        if (pid, found.start_ticks) == (record.pid, record.start_ticks):
            return record
    pipes = held_pipes(pid) if younger else frozenset()
    for record in younger:
        if pipes.isdisjoint(record.pipes):
            continue
        if found.session == record.pid or variable(pid, CHANNEL_VARIABLE) == record.channel:
            return record
    return None


def _fields(label: str, pid: int) -> Mapping[str, object]:
    return {"plugin": label, "pid": pid}
