"""Builds the C programs under `floor/` and runs them. Rebuilt when a source is newer than the program."""

import json
import os
import shutil
import subprocess
from pathlib import Path

from benchmarks.probes import Room, Sample, UnavailableError

SOURCES = Path(__file__).parent / "floor"
COMPILE_TIMEOUT_S = 60
INSTALL_TIMEOUT_S = 600
RUN_TIMEOUT_S = 60


def program(room: Room, name: str) -> Path:
    """Path of the built program. Raises `UnavailableError` without a compiler, `CalledProcessError` on a defect."""
    built = room.build / "floor" / name
    sources = [SOURCES / f"{name}.c", *SOURCES.glob("*.h")]
    if built.exists() and built.stat().st_mtime >= max(source.stat().st_mtime for source in sources):
        return built
    built.parent.mkdir(parents=True, exist_ok=True)
    fresh = built.with_suffix(".new")
    subprocess.run(
        [_compiler(), "-O2", "-Wall", "-Wextra", "-Werror", "-o", str(fresh), str(sources[0])],
        check=True,
        timeout=COMPILE_TIMEOUT_S,
    )
    fresh.replace(built)
    return built


def run_floor(room: Room, name: str, *arguments: object) -> Sample:
    """Run a program to its end; its numbers, by name."""
    command = [str(program(room, name)), *(str(a) for a in arguments)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, timeout=RUN_TIMEOUT_S)
    return numbers_of(done.stdout)


def numbers_of(output: str | bytes) -> Sample:
    """The numbers that a program printed, by name."""
    return {key: float(number) for key, number in json.loads(output).items() if key != "name"}


def _compiler() -> str:
    found = shutil.which("gcc") or shutil.which("cc")
    if found is None and os.geteuid() == 0 and (apt := shutil.which("apt-get")):
        subprocess.run([apt, "update", "-qq"], check=True, timeout=INSTALL_TIMEOUT_S)
        install = [apt, "install", "-y", "-qq", "--no-install-recommends", "gcc", "libc6-dev"]
        subprocess.run(install, check=True, timeout=INSTALL_TIMEOUT_S)
        found = shutil.which("gcc")
    if found is None:
        raise UnavailableError("no C compiler (Debian: apt-get install gcc libc6-dev)")
    return found
