"""The data layer's scraping alone, as a host runs it: `python -m benchmarks.scraping_host PORT ENDPOINTS OWN_PROCESS`.

Says `ready` when every endpoint was read and the interval is settled. For each line of its input, which is a number of
seconds, it counts for so long and prints one line of JSON; it ends with its input.
"""

import json
import resource
import sys
import time
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread
from hotbay.datalayer.endpoint import EndpointMetadata
from hotbay.datalayer.scraping.in_loop import Scraper
from hotbay.datalayer.scraping.metrics_source import MetricsPoller
from hotbay.datalayer.scraping.process import ScrapeProcess
from hotbay.datalayer.store import EndpointStore
from hotbay.process.helper import Helper

TICK_S: Final = 0.02
"""A host publishes snapshots so often."""
LAG_TICK_S: Final = 0.005
SETTLED_S: Final = 8.0
"""Several windows of measuring the load: under pressure the interval is widened by then."""

Scraping = Scraper | ScrapeProcess


async def main(port: int, endpoints: int, *, own_process: bool) -> None:
    """Scrape until the input ends."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    store = EndpointStore()
    for number in range(endpoints):
        store.upsert(EndpointMetadata(f"default/e{number}", f"e{number}", "127.0.0.1", port))
    source = MetricsPoller()
    scraping: Scraping = ScrapeProcess(store, source, start=Helper.start) if own_process else Scraper(store, source)
    async with anyio.create_task_group() as tasks:
        await tasks.start(scraping.run)
        tasks.start_soon(_publish, store)
        await anyio.sleep(SETTLED_S)
        _say("ready")
        while line := await anyio.to_thread.run_sync(sys.stdin.readline):
            _say(json.dumps(await _count(scraping, float(line))))
        tasks.cancel_scope.cancel()


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


async def _publish(store: EndpointStore) -> None:
    while True:
        store.publish(time.monotonic())
        await anyio.sleep(TICK_S)


async def _count(scraping: Scraping, seconds: float) -> dict[str, float]:
    """What `seconds` of scraping cost; after one that belongs to what piled up while the process was stopped."""
    await anyio.sleep(1.0)
    lags: list[float] = []
    worker = scraping.pid if isinstance(scraping, ScrapeProcess) else None
    scrapes, errors = scraping.counts.scrapes, scraping.counts.errors.total()
    began, own, other = time.monotonic(), time.process_time(), _cpu_s(worker)
    while (now := time.monotonic()) - began < seconds:
        await anyio.sleep(LAG_TICK_S)
        lags.append(time.monotonic() - now - LAG_TICK_S)
    took = time.monotonic() - began
    lags.sort()
    done = scraping.counts.scrapes - scrapes
    host_cores, worker_cores = (time.process_time() - own) / took, (_cpu_s(worker) - other) / took
    return {
        "all_cores": host_cores + worker_cores,
        "host_cores": host_cores,
        "scrapes_per_s": done / took,
        "cpu_us": (host_cores + worker_cores) * took / max(1, done) * 1e6,
        "interval_ms": scraping.interval_s * scraping.factor * 1e3,
        "lag_p99_ms": lags[int(len(lags) * 0.99)] * 1e3,
        "failed": scraping.counts.errors.total() - errors,
    }


def _cpu_s(pid: int | None) -> float:
    """CPU seconds of a process, 0 for none."""
    if pid is None:
        return 0.0
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


if __name__ == "__main__":
    _port, _endpoints, _own = (int(argument) for argument in sys.argv[1:])
    anyio.run(lambda: main(_port, _endpoints, own_process=bool(_own)), backend_options={"use_uvloop": True})
