"""`hotbay doctor`: looks at all that a host needs of its machine, and says what to do about what is missing.

Changes nothing: the world is looked at as a copy, the lock through the kernel's list. Works beside a running host and
without one.
"""

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

import anyio
import click
import orjson

from hotbay.cli.admin_client import AdminClient
from hotbay.cli.bundle import STORE
from hotbay.cli.exit_codes import EXIT_FAILED
from hotbay.cli.sheet import Screen, Sheet, size
from hotbay.cli.socket_path import admin_path, read_host_config
from hotbay.config.host_config import HostConfig
from hotbay.errors import HostError, InputError
from hotbay.gateway.limits import GatewayLimits
from hotbay.observe.tables import Grid, cell
from hotbay.open_files import raise_limit
from hotbay.packages.bundled import Part, absent, bundled_folder
from hotbay.packages.tools import run_tool, uv_binary
from hotbay.store.world.sqlite import SqliteWorld

__all__ = ["Check", "Found", "diagnose", "run_doctor"]

_TOOL_TIMEOUT_S: Final = 20.0
_LOCKS: Final = Path("/proc/locks")
_FREE_SHARE: Final = 0.05
"""The share of a disk below which the store's alarm is on."""


class Found(StrEnum):
    """How a check ended; a note is nothing to repair."""

    OK = "ok"
    NOTE = "note"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at."""

    check: str
    found: Found
    what: str
    hint: str = ""


def run_doctor(config: Path | None, *, as_json: bool) -> int:
    """Print every check; return the exit code."""
    checks = list(diagnose(config))
    if as_json:
        click.echo(orjson.dumps({"checks": [asdict(check) for check in checks]}, option=orjson.OPT_INDENT_2))
    else:
        sheet = Sheet()
        rows = tuple((check.check, str(check.found), cell(check.what)) for check in checks)
        sheet.show(Grid(("check", "found", "what"), (0, 0, 0), rows))
        for check in checks:
            if check.hint:
                style = "red" if check.found is Found.FAIL else ""
                sheet.say(f"{check.check}: what to do: {check.hint}", style=style)
        sheet.print(Screen())
    return EXIT_FAILED if any(check.found is Found.FAIL for check in checks) else 0


def diagnose(file: Path | None) -> Iterator[Check]:
    """Every check, in the order in which one needs the other."""
    yield Check("python", Found.OK, f"{sys.version.split()[0]} at {sys.executable}")
    yield _uv()
    yield _open_files()
    try:
        config = read_host_config(file)
    except InputError as error:
        for problem in error.problems:
            yield Check(
                "configuration", Found.FAIL, str(problem), "correct the file; `hotbay config validate` reads it"
            )
        return
    yield Check("configuration", Found.OK, "the defaults" if file is None else str(file))
    yield from _interpreters(config)
    yield from _bundled(config)
    root = Path(config.state_dir)
    yield _state(root)
    yield _disk(root)
    holder = _holder(root / "lock")
    yield _world(root, config, holder)
    yield _store(root)
    yield _host(root, config, holder)
    level = config.isolation.level
    yield Check("isolation", Found.NOTE, f"level {level}: plugins have the rights of the host's user")


def _uv() -> Check:
    try:
        binary = uv_binary()
        result = anyio.run(lambda: run_tool([binary, "--version"], timeout_s=_TOOL_TIMEOUT_S))
    except (HostError, OSError) as error:
        return Check("uv", Found.FAIL, str(error), "install the host again: uv comes with it")
    if result.code:
        return Check("uv", Found.FAIL, f"{binary} ended with {result.code}", "install the host again: uv comes with it")
    return Check("uv", Found.OK, f"{result.last_lines.strip()} at {binary}")


def _open_files() -> Check:
    wanted = GatewayLimits().connections
    files = raise_limit(wanted, dry_run=True)
    shortage = files.problem(wanted)
    if shortage is None:
        return Check("open files", Found.OK, f"{files.limit}: enough for {wanted} clients at once")
    return Check("open files", Found.NOTE, shortage.message, shortage.hint)


def _interpreters(config: HostConfig) -> Iterator[Check]:
    for host in config.hosts:
        if host.interpreter is None:
            continue
        path = Path(host.interpreter)
        good = path.is_file() and os.access(path, os.X_OK)
        what = f"{host.platform}: {path}" + ("" if good else " is no program")
        yield Check("interpreter", Found.OK if good else Found.FAIL, what, "" if good else "correct `hosts`")


def _bundled(config: HostConfig) -> Iterator[Check]:
    if not any(source.name == "bundled" and source.directory is None for source in config.sources):
        return
    folder = bundled_folder(Part.PACKAGES)
    if folder.is_dir():
        yield Check("bundled packages", Found.OK, str(folder))
    else:
        problem = absent(Part.PACKAGES)
        yield Check("bundled packages", Found.FAIL, problem.message, problem.hint)


def _state(root: Path) -> Check:
    there = root
    while not there.exists():
        there = there.parent
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        hint = "let the host's user write it, or set state_dir to another folder"
        return Check("state directory", Found.FAIL, f"{there} is not to be written by this user", hint)
    return Check("state directory", Found.OK, str(root) if there == root else f"{root} will be made")


def _disk(root: Path) -> Check:
    there = root
    while not there.exists():
        there = there.parent
    usage = shutil.disk_usage(there)
    what = f"{size(usage.free)} of {size(usage.total)} are free at {there}"
    if usage.free < usage.total * _FREE_SHARE:
        return Check("disk", Found.FAIL, what, "free some: `hotbay gc` removes packages that nothing needs")
    return Check("disk", Found.OK, what)


def _world(root: Path, config: HostConfig, holder: str | None) -> Check:
    if config.world.engine == "memory":
        return Check("world", Found.NOTE, "is kept in memory and ends with the host")
    file = root / config.world.path
    if not file.exists():
        return Check("world", Found.OK, f"{file} will be made")
    if holder is not None:
        # Two files that somebody writes cannot be copied at one moment.
        return Check("world", Found.OK, f"{file} is in use by the host with pid {holder}")
    try:
        with tempfile.TemporaryDirectory(prefix="hotbay-doctor-") as folder:
            for suffix in ("", "-wal"):
                source = file.with_name(file.name + suffix)
                if source.exists():
                    shutil.copyfile(source, Path(folder) / source.name)
            count, revision = anyio.run(_count, Path(folder) / file.name)
    except HostError as error:
        return Check("world", Found.FAIL, f"{file}: {error}", error.hint)
    except OSError as error:
        hint = "run the command as the host's user, or as root"
        return Check("world", Found.FAIL, f"{file}: {error.strerror or error}", hint)
    return Check("world", Found.OK, f"{file}: {count} records at revision {revision}")


async def _count(file: Path) -> tuple[int, int]:
    world = await SqliteWorld.open(file)
    try:
        return world.view.count, world.view.revision
    finally:
        await world.close()


def _store(root: Path) -> Check:
    if not (root / STORE).is_dir():
        return Check("store", Found.OK, f"{root / STORE} will be made")
    try:
        of_packages, of_environments = (_bytes_below(root / name) for name in (STORE, "environments"))
    except OSError as error:
        return Check("store", Found.NOTE, f"{root}: {error.strerror or error}")
    parts = f"packages {size(of_packages)}, environments {size(of_environments)}"
    return Check("store", Found.OK, f"{size(of_packages + of_environments)} ({parts}) below {root}")


def _bytes_below(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _host(root: Path, config: HostConfig, holder: str | None) -> Check:
    if holder is None:
        return Check("host", Found.NOTE, f"no host runs on {root}", "start it with `hotbay run`")
    path = admin_path(config)
    try:
        page = AdminClient(path).get("/status")
    except HostError as error:
        what = f"the host with pid {holder} does not answer at {path}: {error.message}"
        return Check("host", Found.FAIL, what, error.hint)
    ready = "ready" if page.get("ready") else f"not ready: {page.get('not_ready')}"
    return Check("host", Found.OK, f"pid {holder} answers at {path}, {ready}")


def _holder(lock: Path) -> str | None:
    """The pid of the host that holds the lock. Trying the lock instead could keep a host from starting just then."""
    try:
        inode, pid = lock.stat().st_ino, lock.read_text(encoding="ascii", errors="replace").strip()
        held = [line.split() for line in _LOCKS.read_text().splitlines()]
    except OSError:
        return None
    is_held = any("FLOCK" in fields and any(field.endswith(f":{inode}") for field in fields) for fields in held)
    return (pid or "unknown") if is_held else None
