"""Starts: from nothing to a plugin that may be called, beside a bare interpreter."""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.figure import Chart, Figure
from benchmarks.probes import Probe, Room, Sample, TakeSample, percentiles

STARTS = 20
START_TIMEOUT_S = 10

BARE_PYTHON = "floor.python"


def start_bare_python() -> Sample:
    """Start and end `python -I -S` with nothing to do, one after the other."""
    times_s = []
    for _ in range(STARTS):
        begun_s = time.perf_counter()
        subprocess.run([sys.executable, "-I", "-S", "-c", ""], check=True, timeout=START_TIMEOUT_S)
        times_s.append(time.perf_counter() - begun_s)
    return percentiles(times_s)


@contextmanager
def open_bare_python(_: Room) -> Iterator[TakeSample]:
    """Nothing to prepare: every sample starts its own processes."""
    yield start_bare_python


PROBES = (Probe(BARE_PYTHON, open_bare_python),)

FIGURES = (Figure("B4", "floor: start and end of python -I -S", f"{BARE_PYTHON}:p50_us"),)

CHARTS: tuple[Chart, ...] = ()
