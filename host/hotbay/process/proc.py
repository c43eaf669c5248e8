"""Reads /proc: which process a number means, and what it holds.

A number alone names nobody: it is given again once its process is gone. `(id, start)` on one boot, in one pid
namespace, names one process. Everything that can vanish while it is looked at reads as None or nothing.
"""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

__all__ = ["ProcessStat", "held_pipes", "machine", "parse_stat", "process_ids", "read_stat", "variable"]

_PROC: Final = Path("/proc")
_PIPE: Final = re.compile(r"pipe:\[(\d+)\]")
_FIELDS: Final = 20
_ENVIRONMENT_BYTES: Final = 256 * 1024


@dataclass(frozen=True, slots=True)
class ProcessStat:
    """`start_ticks` counts from the machine's boot; `state` is the kernel's letter, `Z` for one that waits to be reaped."""

    state: str
    parent: int
    session: int
    start_ticks: int


def parse_stat(text: str) -> ProcessStat | None:
    """Read /proc/PID/stat (proc_pid_stat(5)). A process chooses its name, parentheses and blanks included."""
    fields = text.rpartition(")")[2].split()
    if len(fields) < _FIELDS or not all(field.isdecimal() for field in (fields[1], fields[3], fields[19])):
        return None
    return ProcessStat(fields[0], int(fields[1]), int(fields[3]), int(fields[19]))


def read_stat(pid: int) -> ProcessStat | None:
    """None where there is no such process."""
    try:
        return parse_stat((_PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return None


def process_ids() -> Iterator[int]:
    """All that can be seen now."""
    return (int(name) for name in os.listdir(_PROC) if name.isdecimal())  # noqa: PTH208 - names, thousands of them


def held_pipes(pid: int) -> frozenset[int]:
    """The inode numbers of the pipes that a process has open; nothing for one that may not be looked into."""
    found: set[int] = set()
    folder = _PROC / str(pid) / "fd"
    try:
        for entry in folder.iterdir():
            match = _PIPE.fullmatch(str(entry.readlink()))
            if match:
                found.add(int(match[1]))
    except OSError:
        return frozenset(found)
    return frozenset(found)


def variable(pid: int, name: str) -> str | None:
    """A variable of the environment that the process's program was started with."""
    try:
        with (_PROC / str(pid) / "environ").open("rb") as file:
            text = file.read(_ENVIRONMENT_BYTES)
    except OSError:
        return None
    prefix = name.encode() + b"="
    for entry in text.split(b"\0"):
        if entry.startswith(prefix):
            return entry.removeprefix(prefix).decode("utf-8", "replace")
    return None


def machine() -> str:
    """What process ids and start times are relative to: this boot and this pid namespace. Raises OSError."""
    boot = (_PROC / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return f"{boot} {(_PROC / 'self/ns/pid').readlink()}"
