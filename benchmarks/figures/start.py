"""Starts: from nothing to a plugin that may be called, beside a bare interpreter; and the memory that it then has."""

import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.figure import Bound, Chart, Figure, Goal
from benchmarks.packages import SCORERS, STANDARD, echo_package, first_party
from benchmarks.probes import Probe, Room, Sample, TakeSample, percentiles
from benchmarks.product import Bench, open_bench

BARE_STARTS = 12
STARTS = 6
START_TIMEOUT_S = 10

BARE_PYTHON = "floor.python"
ECHO = "start.echo"
NUMPY = "start.standard"


def start_bare_python() -> Sample:
    """Start and end `python -I -S` with nothing to do, one after the other."""
    times_s = []
    for _ in range(BARE_STARTS):
        begun_s = time.perf_counter()
        subprocess.run([sys.executable, "-I", "-S", "-c", ""], check=True, timeout=START_TIMEOUT_S)
        times_s.append(time.perf_counter() - begun_s)
    return percentiles(times_s)


@contextmanager
def open_bare_python(_: Room) -> Iterator[TakeSample]:
    """Nothing to prepare: every sample starts its own processes."""
    yield start_bare_python


def start_probe(name: str, layout_of: Callable[[Room], Path], scorer: str) -> Probe:
    """Launch and handshake of a package whose environment is there; memory after its first ref was made."""

    @contextmanager
    def open_starts(room: Room) -> Iterator[TakeSample]:
        layout = layout_of(room)
        with open_bench(room) as bench:
            yield lambda: _sample(bench, layout, scorer)

    return Probe(name, open_starts)


def _sample(bench: Bench, layout: Path, scorer: str) -> Sample:
    times_s = []
    memory_mb = []
    for _ in range(STARTS):
        begun_s = time.perf_counter()
        instance = bench.start_ready(layout)
        times_s.append(time.perf_counter() - begun_s)
        bench.configure(instance, [scorer])
        memory_mb.append(private_mb(Path(f"/proc/{instance.child.pid}/smaps_rollup").read_text()))
        bench.stop()
    return {**percentiles(times_s), "private_mb": statistics.median(memory_mb)}


def private_mb(rollup: str) -> float:
    """Memory that nobody shares, in units of 10^6 bytes, from the text of `smaps_rollup`."""
    fields = dict(line.split(":", 1) for line in rollup.splitlines()[1:])
    return sum(int(fields[name].split()[0]) for name in ("Private_Clean", "Private_Dirty")) * 1024 / 1e6


PROBES = (
    Probe(BARE_PYTHON, open_bare_python),
    start_probe(ECHO, echo_package, "echo-scorer"),
    start_probe(NUMPY, lambda room: first_party(room, STANDARD), next(iter(SCORERS))),
)

NOTE = "Instance.launch to READY, isolation none; the floor starts and ends python -I -S"
MEMORY_NOTE = "Private_Clean + Private_Dirty with one ref configured; pages that other processes of the run map as well do not count"

FIGURES = (
    Figure("B4", "floor: start and end of python -I -S", f"{BARE_PYTHON}:p50_us"),
    Figure("G15", "start to READY, no numpy", f"{ECHO}:p50_us", f"{BARE_PYTHON}:p50_us",
           Goal(Bound.AT_MOST, 3), note=NOTE),
    Figure("G15mem", "private memory, no numpy", f"{ECHO}:private_mb", goal=Goal(Bound.AT_MOST, 6), note=MEMORY_NOTE),
    Figure("S1", "start to READY, standard (numpy)", f"{NUMPY}:p50_us", f"{BARE_PYTHON}:p50_us", note=NOTE),
    Figure("S1mem", "private memory, standard (numpy)", f"{NUMPY}:private_mb", note=MEMORY_NOTE),
)  # fmt: skip

CHARTS: tuple[Chart, ...] = ()
