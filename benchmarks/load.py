"""The C HTTP server and the C load generator, both on the load CPU."""

import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from benchmarks.floors import numbers_of, program, run_floor
from benchmarks.probes import Room, Sample

COMPLETIONS = "/v1/completions"


@contextmanager
def open_server(room: Room) -> Iterator[int]:
    """A running server; its port."""
    command = [str(program(room, "http_server")), str(room.load_cpu)]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield int(process.stdout.readline())
        finally:
            process.kill()


@dataclass(frozen=True, slots=True)
class Load:
    """A closed loop: so many connections, each with one request at a time, for so long."""

    connections: int
    path: str = COMPLETIONS
    streamed: bool = False
    seconds: float = 1.0

    def run(self, room: Room, port: int) -> Sample:
        """Apply it. Raises `RuntimeError` if a request was not answered whole with status 200."""
        sample = run_floor(
            room, "http_load", port, self.connections, self.seconds, room.load_cpu, self.path, int(self.streamed)
        )
        if sample["failed"] or not sample["count"]:
            raise RuntimeError(
                f"{sample['failed']:.0f} of {sample['count']:.0f} requests failed while measuring: {self}"
            )
        return sample


LONGEST_S = 120.0
LAST_ANSWERS_S = 30.0


@dataclass(frozen=True, slots=True)
class SteadyLoad:
    """Requests that are due at a rate, whatever the answers do; what waits for a connection waits from when it was due.

    Unlike `Load` it counts requests that failed instead of refusing the sample: that none fails is what is measured.
    """

    per_s: float
    connections: int
    path: str = COMPLETIONS

    def run_during(self, room: Room, port: int, work: Callable[[], None]) -> Sample:
        """Apply it while `work` runs. What was due by its end is waited for."""
        arguments = (port, self.connections, LONGEST_S, room.load_cpu, self.path, 0, f"{self.per_s:.3f}")
        command = [str(program(room, "http_load")), *(str(a) for a in arguments)]
        with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) as process:
            try:
                work()
                process.terminate()
                output, _ = process.communicate(timeout=LAST_ANSWERS_S)
            finally:
                process.kill()
        sample = numbers_of(output)
        if not sample["count"]:
            raise RuntimeError(f"no request was answered while measuring: {self}")
        return sample
