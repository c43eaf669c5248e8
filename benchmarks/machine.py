"""Facts without which a figure means nothing: the machine, the versions, what else was running."""

import os
import platform
import time
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Final

from benchmarks.probes import Room

_DISTRIBUTIONS: Final = ("hotbay", "hotbay-sdk", "msgpack", "numpy", "uvloop", "httptools", "orjson", "anyio")


def machine_facts(room: Room) -> Mapping[str, object]:
    """Kernel, CPUs, interpreter, versions of what is on the data path."""
    return {
        "kernel": f"{platform.system()} {platform.release()}",
        "architecture": platform.machine(),
        "cpu": _cpu_model(Path("/proc/cpuinfo").read_text()),
        "cpus": len(room.cpus),
        "product_cpu": room.cpus[0],
        "load_cpu": room.load_cpu,
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "compiler_of_python": platform.python_compiler(),
        "versions": {name: version(name) for name in _DISTRIBUTIONS},
    }


def _cpu_model(cpuinfo: str) -> str:
    """The first `model name`, which machines other than x86 do not tell."""
    names = (line.partition(":")[2].strip() for line in cpuinfo.splitlines() if line.startswith("model name"))
    return next(names, "unknown")


def moment() -> Mapping[str, object]:
    """Date in UTC, and the load averages, which tell of neighbours."""
    date = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return {"date": date, "load_average": [round(load, 2) for load in os.getloadavg()]}
