"""What is scraped: a page of a busy vLLM, a C server that serves it, and a scraper of as many endpoints as are wanted.

A scraper runs in a process of its own, tethered to the harness, on the product's CPU, and is stopped between samples
(SIGSTOP), as hosts are. It is told over its standard input to count for some seconds, and answers in a line.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import hotbay.demo

from benchmarks.floors import numbers_of, program
from benchmarks.probes import Room, Sample

LINES: Final = 1500
MARK: Final = b"0000000000"
"""What the server writes the number of its answer over."""
_CHANGING: Final = 60
_TETHER: Final = Path(hotbay.demo.__file__).with_name("tether.py")
_DUMP: Final = "tests/data/metrics/vllm-0.32.0-metrics.txt"
_MODEL: Final = b'model_name="tiny"'


def busy_page(dump: bytes) -> bytes:
    """The dump of an idle vLLM with the histograms of three adapters more, of LINES lines, whose counters count."""
    lines = dump.splitlines(keepends=True)
    for adapter in range(3):
        name = b'model_name="adapter-%d"' % adapter
        lines += [line.replace(_MODEL, name) for line in lines[: dump.count(b"\n")] if b"_bucket{" in line]
    lines = lines[:LINES]
    changing = 0
    for number, line in enumerate(lines):
        counts = line.endswith(b" 0.0\n") and (b"_bucket{" in line or b"_total{" in line)
        if line.startswith(b"vllm:num_requests_running{"):
            lines[number] = line.replace(b" 0.0\n", b" " + MARK + b"\n")
        elif counts and changing < _CHANGING:
            lines[number] = line.replace(b" 0.0\n", b" " + MARK + b".0\n")
            changing += 1
    return b"".join(lines)


def page_of(room: Room) -> bytes:
    """The page that is served."""
    return busy_page((room.root / _DUMP).read_bytes())


@contextmanager
def open_metrics_server(room: Room) -> Iterator[int]:
    """A server of the page on the load CPU; its port."""
    file = room.build / "metrics-page.txt"
    file.write_bytes(page_of(room))
    command = [str(program(room, "metrics_server")), str(room.load_cpu), str(file)]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield int(process.stdout.readline())
        finally:
            process.kill()


class ScraperProcess:
    """A running `benchmarks.scraping_host`, stopped while nobody measures it."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def count(self, seconds: float) -> Sample:
        """Let it run; what it counted. Raises `RuntimeError` if a scrape failed or it ended."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._send(signal.SIGCONT)
        self._process.stdin.write(f"{seconds}\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        self._send(signal.SIGSTOP)
        if not line:
            raise RuntimeError("the scraper ended while it was measured")
        sample = numbers_of(line)
        if sample["failed"] or not sample["scrapes_per_s"]:
            raise RuntimeError(f"not every page was read while measuring: {sample}")
        return sample

    def _send(self, signum: int) -> None:
        # With the scraping process, which is in its own session, and is not to age beside a stopped host.
        for pid in (self._process.pid, *_children(self._process.pid)):
            os.kill(pid, signum)


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@contextmanager
def open_scraper(room: Room, port: int, endpoints: int, *, own_process: bool) -> Iterator[ScraperProcess]:
    """A scraper of so many endpoints at that port, every 50 ms, paused."""
    tether = [sys.executable, str(_TETHER), str(os.getpid())]
    command = [
        *tether,
        sys.executable,
        "-m",
        "benchmarks.scraping_host",
        str(port),
        str(endpoints),
        str(int(own_process)),
    ]
    with subprocess.Popen(
        command, cwd=room.root, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stdout is not None
        scraper = ScraperProcess(process)
        try:
            if process.stdout.readline() != "ready\n":
                raise RuntimeError("the scraper did not start")
            scraper._send(signal.SIGSTOP)
            yield scraper
        finally:
            scraper._send(signal.SIGCONT)
            process.stdin.close()  # type: ignore[union-attr]  # it was opened with a pipe
            process.wait(10)
