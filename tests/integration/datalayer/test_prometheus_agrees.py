"""A real Prometheus that scrapes the same servers has the same numbers."""

import json
import math
import shutil
import socket
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest
from hotbay.datalayer.scraping.metrics_source import MetricsPoller

PROMETHEUS = shutil.which("prometheus")

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.process,
    pytest.mark.timeout(60),
    pytest.mark.skipif(PROMETHEUS is None, reason="prometheus is not installed; `make test` unpacks Debian's"),
]

PAGES = Path(__file__).parents[2] / "data" / "metrics"
ODD = (
    "# TYPE odd gauge\n"
    'odd{case="exponent"} 1.5E+3\nodd{case="tab"}\t7\nodd{case="comma",} 2\n'
    'odd{case="inf"} +Inf\nodd{case="-inf"} -Inf\nodd{case="nan"} NaN\nodd{case="none"}11\n'
    'odd{case="q\\"uo\\\\te\\nnl,}{=#",u="größe ☃"} 5\n'
    "untyped_odd 9.4E12\n\n"
)
OPENMETRICS = (
    '# TYPE om gauge\nom{l="x"} 1.5\n# TYPE omc counter\nomc_total{l="y"} 7 # {trace_id="abc"} 0.5 1700000000.5\n# EOF\n'
)  # fmt: skip

Series = dict[tuple[str, frozenset[tuple[str, str]]], str]


@pytest.fixture
def anyio_backend() -> str:
    """Once is enough: the loop does not matter to another program."""
    return "asyncio"


@contextmanager
def running_prometheus(folder: Path, ports: list[int]) -> Iterator[str]:
    """A Prometheus that scrapes these ports; its address."""
    assert PROMETHEUS is not None
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    targets = ", ".join(f'"127.0.0.1:{one}"' for one in ports)
    (folder / "prometheus.yml").write_text(
        "global: {scrape_interval: 1s, scrape_timeout: 1s}\n"
        f"scrape_configs:\n- {{job_name: t, static_configs: [{{targets: [{targets}]}}]}}\n"
    )
    command = [
        PROMETHEUS, f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data",
        f"--web.listen-address=127.0.0.1:{port}", "--log.level=error",
    ]  # fmt: skip
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True) as process:
        try:
            yield f"127.0.0.1:{port}"
        finally:
            process.kill()


def ask(address: str, query: str) -> list[dict[str, object]]:
    """An instant query; nothing while it does not answer."""
    with suppress(OSError):
        encoded = urllib.parse.urlencode({"query": query})
        with urllib.request.urlopen(f"http://{address}/api/v1/query?{encoded}", timeout=5) as answer:
            found: list[dict[str, object]] = json.load(answer)["data"]["result"]
            return found
    return []


def theirs(address: str, port: int) -> Series:
    """All series of a target, without those that Prometheus adds."""
    series: Series = {}
    for one in ask(address, f'{{instance="127.0.0.1:{port}",__name__!~"up|scrape_.*"}}'):
        labels = dict(one["metric"])  # type: ignore[call-overload]  # the form of the answer
        name = labels.pop("__name__")
        for added in ("instance", "job"):
            labels.pop(added)
        series[name, frozenset(labels.items())] = one["value"][1]  # type: ignore[index]  # the form of the answer
    return series


def same(ours: float, text: str) -> bool:
    return ours == float(text) or (math.isnan(ours) and math.isnan(float(text)))


async def test_the_same_pages_give_the_same_series_and_numbers(
    start_server: Callable[[], Awaitable[Any]], tmp_path: Path
) -> None:
    bodies = {
        "vllm": ((PAGES / "vllm-0.32.0-metrics.txt").read_bytes(), "text/plain; version=0.0.4"),
        "llamacpp": ((PAGES / "llamacpp-metrics.txt").read_bytes(), "text/plain; version=0.0.4"),
        "odd": (ODD.encode(), "text/plain; version=0.0.4"),
        "openmetrics": (OPENMETRICS.encode(), "application/openmetrics-text; version=1.0.0; charset=utf-8"),
        "cut": (OPENMETRICS[:-6].encode(), "application/openmetrics-text; version=1.0.0; charset=utf-8"),
    }
    servers = {}
    for name, (body, content_type) in bodies.items():
        servers[name] = server = await start_server()
        server.respond = server.page(body, headers=f"Content-Type: {content_type}\r\n")
    ports = [server.port for server in servers.values()]
    with running_prometheus(tmp_path, ports) as address:
        health: dict[str, str] = {}

        async def look() -> None:
            for one in await anyio.to_thread.run_sync(ask, address, "up"):
                health[one["metric"]["instance"]] = one["value"][1]  # type: ignore[index]  # the form of the answer

        with anyio.fail_after(40):
            while len(health) < len(ports):
                await look()
        assert [name for name in servers if health[f"127.0.0.1:{servers[name].port}"] == "0"] == ["cut"]
        for name, server in servers.items():
            if name == "cut":
                continue
            expected = await anyio.to_thread.run_sync(theirs, address, server.port)
            source = MetricsPoller()
            source.want({sample for sample, _ in expected})
            page = await source.poll(server.endpoint())
            source.close()
            read = {
                (sample, frozenset(one.labels.items())): one.value
                for sample, series in page.samples.items()
                for one in series
            }
            assert read.keys() == expected.keys()
            assert [key for key, value in read.items() if not same(value, expected[key])] == []
            assert len(read) >= {"vllm": 400, "llamacpp": 10, "odd": 9, "openmetrics": 2}[name]
            assert page.bad_lines == 0
