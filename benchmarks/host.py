"""A whole host as its operators run it: `hotbay run -c FILE`, a process of its own on the product's CPU.

Between samples it is stopped (SIGSTOP), so that its ticks and scrapes are no part of what others measure. A sample
counts only if the host's own counters say that every decision was made with all of its plugins.
"""

import http.client
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import hotbay.demo
from hotbay.cli.admin_client import AdminClient
from hotbay.datalayer.pages.exposition import PageReader

from benchmarks.load import Load
from benchmarks.packages import SCORERS, gateway_packages
from benchmarks.probes import Room, Sample

START_TIMEOUT_S: Final = 180.0
"""A first run builds four environments, three of them with numpy."""

STOP_TIMEOUT_S: Final = 15.0
PAGE_TIMEOUT_S: Final = 10.0
LOOK_INTERVAL_S: Final = 0.02
LOG_TAIL_CHARACTERS: Final = 2000
_TETHER: Final = Path(hotbay.demo.__file__).with_name("tether.py")
_SERVES: Final = "hotbay serves on http://127.0.0.1:"

_DEGRADED: Final = "hotbay_degraded_total"
_WRONG: Final = (
    _DEGRADED,
    "hotbay_plugin_errors_total",
    "hotbay_rejections_total",
    "hotbay_invalid_scores_total",
    "hotbay_plugin_restarts_total",
    "hotbay_upstream_retries_total",
)
_CONNECTS: Final = "hotbay_upstream_connects_total"
_IN_FLIGHT: Final = "hotbay_requests_in_flight"
_DECISIONS: Final = "hotbay_decision_duration_seconds_count"
_READER: Final = PageReader([*_WRONG, _CONNECTS, _IN_FLIGHT, _DECISIONS])


def picker_text(*, prefix_index: bool) -> str:
    """Three scorers, each in a process of its own; with the index, a producer and a fourth scorer in a fourth one."""
    plugins = [f"- {{type: {name}}}" for name in SCORERS]
    used = [f"  - {{pluginRef: {name}}}" for name in SCORERS]
    if prefix_index:
        plugins += [
            "- {name: prefixes, type: approx-prefix-cache-producer, parameters: {autoTune: false, blockSizeTokens: 16}}",
            "- {name: prefix, type: prefix-cache-scorer, parameters: {prefixMatchInfoProducerName: prefixes}}",
        ]
        used.append("  - {pluginRef: prefix}")
    head = ["apiVersion: llm-d.ai/v1alpha1", "kind: EndpointPickerConfig", "plugins:"]
    return "\n".join([*head, *plugins, "schedulingProfiles:", "- name: default", "  plugins:", *used, ""])


def host_text(packages: Path, ports: Sequence[int], *, prefix_index: bool) -> str:
    """The HostConfig of the gateway figures."""
    bound = [*SCORERS, *(("prefixes", "prefix") if prefix_index else ())]
    source = f"{{name: bench, directory: '{packages}', fetch: once}}"
    return config_text(ports, source=source, types=SCORERS, bound=bound)


def config_text(
    ports: Sequence[int], *, source: str, types: Mapping[str, str], bound: Sequence[str], more: Sequence[str] = ()
) -> str:
    """A HostConfig of one source; `types` says who provides what several provide, `more` are further lines.

    Deadlines are long: a neighbour's use of the CPU must not end the run as degraded.
    """
    lines = [
        "apiVersion: hotbay/v1alpha1",
        "kind: HostConfig",
        "state_dir: state",
        'listen: {http: "127.0.0.1:0"}',
        "scheduling: {file: picker.yaml}",
        "endpoints:",
        *(f'- {{name: server-{port}, url: "http://127.0.0.1:{port}"}}' for port in ports),
        f"sources: [{source}]",
        *(("types:", *(f"  {name}: {package}" for name, package in types.items())) if types else ()),
        "bindings:",
        *(f"  {name}: {{deadline: 1s}}" for name in bound),
        "isolation: {level: none}",
        "logging: {level: info, format: text}",
        "scrape: {interval: 50ms}",
        *more,
        "",
    ]
    return "\n".join(lines)


class HostProcess:
    """One running host, stopped while nobody measures it."""

    def __init__(self, process: "subprocess.Popen[bytes]", log: Path) -> None:
        self._process = process
        self._log = log
        self.port = 0

    def wait_ready(self, plugins: int) -> None:
        """Return when it serves with so many plugins. Raises `RuntimeError` if it ends, or is not ready in time."""
        self._wait("to listen", lambda: _SERVES in self._log.read_text(), START_TIMEOUT_S)
        self.port = int(self._log.read_text().partition(_SERVES)[2].split()[0])
        ready = f"ready plugins={plugins}\n"
        self._wait(f"for {plugins} plugins", lambda: ready in self._log.read_text(), START_TIMEOUT_S)

    def _wait(self, what: str, reached: Callable[[], bool], timeout_s: float) -> None:
        end = time.monotonic() + timeout_s
        while not reached():
            if self._process.poll() is not None or time.monotonic() > end:
                tail = self._log.read_text()[-LOG_TAIL_CHARACTERS:]
                raise RuntimeError(f"the host ended or made us wait {what}; {self._log} ends:\n{tail}")
            time.sleep(LOOK_INTERVAL_S)

    def counters(self) -> Mapping[str, float]:
        """The counters that tell a good sample, summed over their labels."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PAGE_TIMEOUT_S)
        try:
            connection.request("GET", "/metrics")
            page = _READER.read(connection.getresponse().read())
        finally:
            connection.close()
        return {name: sum(sample.value for sample in samples) for name, samples in page.samples.items()}

    def degraded(self) -> float:
        """Decisions so far that went on without a plugin."""
        return self.counters().get(_DEGRADED, 0.0)

    def measure(self, room: Room, load: Load, *, endpoints: int) -> Sample:
        """Apply the load. Raises `RuntimeError` unless every request was served, decided and not degraded."""
        self.resume()
        before = self.counters()
        sample = load.run(room, self.port)
        self._wait("for the last requests", lambda: self.counters()[_IN_FLIGHT] <= 1, PAGE_TIMEOUT_S)
        after = self.counters()
        self.pause()
        check_sample(before, after, sample, most_connects=endpoints * load.connections)
        return sample

    @property
    def pid(self) -> int:
        """Of the host itself."""
        return self._process.pid

    @property
    def admin(self) -> AdminClient:
        """The operator's end of its admin socket."""
        return AdminClient(self._log.parent / "state" / "admin.sock")

    def pause(self) -> None:
        """Stop the host; its plugins wait for it."""
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on after `pause`."""
        self._process.send_signal(signal.SIGCONT)

    def end(self) -> None:
        """Drain and end."""
        self.resume()
        self._process.terminate()
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def check_sample(
    before: Mapping[str, float], after: Mapping[str, float], sample: Sample, *, most_connects: int
) -> None:
    """Judge a sample by the host's counters around it. Raises `RuntimeError` with what is wrong."""
    grown = {name: after.get(name, 0.0) - before.get(name, 0.0) for name in (*_WRONG, _CONNECTS, _DECISIONS)}
    wrong = [f"{name} grew by {grown[name]:.0f}" for name in _WRONG if grown[name]]
    if grown[_DECISIONS] < sample["count"]:
        wrong.append(f"{grown[_DECISIONS]:.0f} decisions for {sample['count']:.0f} requests")
    if grown[_CONNECTS] > most_connects:
        wrong.append(f"{grown[_CONNECTS]:.0f} connections to servers, {most_connects} are enough")
    if wrong:
        raise RuntimeError(f"the host did not do its whole work while measuring: {'; '.join(wrong)}")


@contextmanager
def open_host(room: Room, name: str, ports: Sequence[int], *, prefix_index: bool) -> Iterator[HostProcess]:
    """A host in front of the servers, ready and paused."""
    config = host_text(gateway_packages(room), ports, prefix_index=prefix_index)
    files = {"host.yaml": config, "picker.yaml": picker_text(prefix_index=prefix_index)}
    with run_host(room.build / "hosts" / name, files, plugins=len(SCORERS) + prefix_index) as host:
        host.pause()
        yield host


@contextmanager
def run_host(
    folder: Path, files: Mapping[str, str], *, plugins: int, program: Sequence[str] = ("-m", "hotbay.cli")
) -> Iterator[HostProcess]:
    """A host over the files in the folder, `host.yaml` among them, ready with so many plugins; ended on leaving.

    `program` are the arguments of Python that make it the `hotbay` command.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text)
    tether = [sys.executable, str(_TETHER), str(os.getpid())]
    command = [*tether, sys.executable, *program, "run", "-c", str(folder / "host.yaml")]
    log = folder / "host.log"
    with log.open("wb") as opened:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=opened, stderr=opened, start_new_session=True
        )
    host = HostProcess(process, log)
    try:
        host.wait_ready(plugins)
        yield host
    finally:
        host.end()
