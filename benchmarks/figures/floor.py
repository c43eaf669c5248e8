"""The machine's floor: what the cheapest program that does the same exchange, in C, costs here, now."""

from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.figure import Chart, Figure
from benchmarks.floors import program, run_floor
from benchmarks.probes import Probe, Room, TakeSample

EXCHANGES = 20_000

PIPE = "floor.pipe"
SOCKET = "floor.socket"
FAN_OUT = "floor.fan_out"


def floor_probe(name: str, program_name: str) -> Probe:
    """A probe that runs one exchange program on the harness's CPU."""

    @contextmanager
    def open_floor(room: Room) -> Iterator[TakeSample]:
        program(room, program_name)
        yield lambda: run_floor(room, program_name, EXCHANGES, room.cpus[0])

    return Probe(name, open_floor)


PROBES = (
    floor_probe(PIPE, "pipe_echo"),
    floor_probe(SOCKET, "socket_echo"),
    floor_probe(FAN_OUT, "fan_out"),
)

FIGURES = (
    Figure("B1", "floor: 100 B over pipes and back", f"{PIPE}:p50_us"),
    Figure("B2", "floor: 100 B over a Unix socket and back", f"{SOCKET}:p50_us", against=f"{PIPE}:p50_us"),
    Figure("B3", "floor: 100 B to 3 processes and back", f"{FAN_OUT}:p50_us", against=f"{PIPE}:p50_us"),
)

CHARTS: tuple[Chart, ...] = ()
