"""A whole host in the test's loop, or as a process of its own, over a watched folder of packages."""

import http.client
import os
import re
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import orjson
import pytest
from hotbay.app import Host
from hotbay.config.host_config import HostConfig, load_host_config
from hotbay.config.picker_config import PickerConfig, load_picker_config
from hotbay.gateway.admin_connection import AdminConnection
from hotbay.packages.manifest import Manifest
from hotbay.rollout.events import EventLog
from hotbay.rollout.operations import Operations, Ports
from hotbay.serving import Serving

WAIT_S = 30.0
"""Deadline of waits for what takes a second or two on a machine of its own: others may work on it too."""

# -- the host ------------------------------------------------------------------------------------


@dataclass
class Bay:
    """A running host with everything around it."""

    host: Host
    serving: Serving
    servers: list[Any]
    source: Path
    packages: Any
    stop: anyio.Event
    configure: Callable[[str], HostConfig]
    picker: PickerConfig
    tools: Any
    client: Any

    def status(self) -> dict[str, object]:
        return dict(self.serving.status())

    def plugin(self, name: str = "sample") -> dict:
        """The status row of a plugin."""
        return next(row for row in self.status()["plugins"] if row["plugin"] == name)

    def live(self, name: str = "sample") -> dict:
        """What runs of a plugin: rev, digest, generation, pid."""
        return self.plugin(name)["live"]

    def error(self, name: str = "sample") -> dict:
        return self.plugin(name)["last_error"]

    def degraded(self) -> dict[tuple[str, ...], int]:
        return dict(self.serving.metrics.degradations.items())

    def degraded_count(self) -> int:
        return sum(self.degraded().values())

    def plugin_errors(self) -> dict[tuple[str, ...], int]:
        return dict(self.serving.metrics.plugin_errors.items())

    async def wait_for(self, holds: Callable[[], object], *, within_s: float = WAIT_S) -> None:
        """Wait until `holds`; at the deadline fail with the status in the message."""
        await self.tools.until(
            holds,
            within_s=within_s,
            told=lambda: orjson.dumps(self.status(), option=orjson.OPT_INDENT_2).decode(),
        )

    async def ready(self, *, within_s: float = 30.0) -> None:
        await self.wait_for(lambda: self.status()["ready"], within_s=within_s)

    async def rev_is_live(self, rev: int, name: str = "sample", *, within_s: float = WAIT_S) -> None:
        await self.wait_for(lambda: (self.live(name) or {}).get("rev") == rev, within_s=within_s)

    def publish(self, source: str, *, folder: str | None = None, **manifest: object) -> Manifest:
        """Put a package into the watched folder, whole; `manifest` as for `Packages.make`."""
        name = f"{manifest.get('id', 'sample')}-{manifest.get('rev', 1)}"
        return self.packages.make(self.source / (folder or name), source, **manifest)

    @asynccontextmanager
    async def load(self, rate_per_s: float) -> AsyncIterator[Any]:
        load = self.tools.load(self.client, rate_per_s)
        async with anyio.create_task_group() as group:
            group.start_soon(load.run)
            try:
                yield load
            finally:
                load.stop()

    def plugin_pids(self) -> set[int]:
        """Processes of plugins that run now; tools of the host are none."""
        return self.tools.plugins_of(os.getpid())

    @property
    def operations(self) -> Operations:
        """What the admin socket calls."""
        router = self.host._router
        ports = Ports(
            status=self.status,
            lines=lambda _name: (),
            collect=None,
            bindings=lambda: router.plan.bindings,
            lock=self.host.files.lock_lines,
        )
        return Operations(self.host._supervisor, EventLog(time.monotonic), ports)


def host_text(servers: list[Any], source: Path, state: Path, extra: str, *, sources: str | None = None) -> str:
    endpoints = "".join(f"- {{name: {s.name}, url: 'http://127.0.0.1:{s.port}'}}\n" for s in servers)
    defaults = "" if "scrape:" in extra else "scrape: {interval: 1s}\n"
    # Most tests are about what comes before and after the steps of a swap; those about the steps write their own.
    defaults += "" if "swap:" in extra else "swap: {shadow: off, canary: off, guard: off}\n"
    return (
        "apiVersion: hotbay/v1alpha1\nkind: HostConfig\n"
        f"state_dir: {state}\nlisten: {{http: '127.0.0.1:0'}}\n"
        f"sources: {sources or f'[{{name: test, directory: {source}}}]'}\n"
        f"endpoints:\n{endpoints}{defaults}{extra}\n"
    )


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, bool]]:
    return "asyncio", {"use_uvloop": True}


@pytest.fixture(scope="session")
def environments(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder for all hosts: equal packages, of which tests have many, are built once."""
    return tmp_path_factory.mktemp("environments")


@pytest.fixture
def state_dir(tmp_path: Path, environments: Path) -> Path:
    path = tmp_path / "state"
    path.mkdir()
    (path / "environments").symlink_to(environments)
    return path


@pytest.fixture
def host(tmp_path: Path, servers: list[Any], packages: Any, text: Any, tools: Any, state_dir: Path):
    """host(picker, config=""): runs a host over the folder `packages` as a context; ready unless `ready=False`."""
    source = tmp_path / "packages"
    source.mkdir()

    def configure(extra: str, sources: str | None = None) -> HostConfig:
        given = host_text(servers, source, state_dir, extra, sources=sources)
        return load_host_config(given, file="host.yaml", base_directory=tmp_path, environment={}, is_root=False)

    @asynccontextmanager
    async def start(
        picker: str = text.picker, *, config: str = "", sources: str | None = None, ready: bool = True
    ) -> AsyncIterator[Bay]:
        read = load_picker_config(picker, file="picker.yaml")
        host = Host(configure(config, sources), read, picker_directory=tmp_path)
        stop, began = anyio.Event(), anyio.Event()
        at: list[Serving] = []

        def serving(where: Serving) -> None:
            at.append(where)
            began.set()

        async with anyio.create_task_group() as group:
            group.start_soon(host.run, serving, stop)
            with anyio.fail_after(WAIT_S):
                await began.wait()
            bay = Bay(host, at[0], servers, source, packages, stop, configure, read, tools, tools.client(at[0].address))
            try:
                if ready:
                    await bay.ready()
                yield bay
            finally:
                bay.client.close()
                stop.set()

    return start


# -- the command ---------------------------------------------------------------------------------


@dataclass
class Command:
    """A running `hotbay run` with its files."""

    process: "subprocess.Popen[bytes]"
    tools: Any
    client: Any
    log: Path
    picker: Path
    source: Path
    servers: list[Any]
    admin: Path

    async def status(self) -> dict:
        """The status page; nothing when the host does not answer."""
        try:
            return await anyio.to_thread.run_sync(_admin_status, self.admin)
        except (OSError, http.client.HTTPException, orjson.JSONDecodeError):
            return {}

    async def wait_for(self, holds: Callable[[dict], object], *, within_s: float = WAIT_S) -> dict:
        """Wait until the status page `holds`; return it."""
        deadline_s = time.monotonic() + within_s
        while not holds(page := await self.status()):
            assert time.monotonic() < deadline_s, f"{page}\n{self.log.read_text()[-4000:]}"
            await anyio.sleep(0.01)
        return page

    async def live(self, rev: int, name: str = "sample") -> dict:
        """Wait until this revision is live; return what runs."""

        def runs(page: dict) -> bool:
            rows = [row["live"] or {} for row in page.get("plugins", []) if row["plugin"] == name]
            return rows and rows[0].get("rev") == rev and page["ready"]

        page = await self.wait_for(runs)
        return next(row["live"] for row in page["plugins"] if row["plugin"] == name)

    def plugin_pids(self) -> set[int]:
        return self.tools.plugins_of(self.process.pid)

    async def ended(self, *, within_s: float = WAIT_S) -> int:
        """Wait for the end of the process; its exit code."""
        await self.tools.until(
            lambda: self.process.poll() is not None, within_s=within_s, told=lambda: self.log.read_text()[-4000:]
        )
        return self.process.returncode


@pytest.fixture
def command(tmp_path: Path, servers: list[Any], text: Any, tools: Any, state_dir: Path):
    """command(picker, config=""): `hotbay run` as a process of its own, as a context; `serves=False`: as it starts."""
    source = tmp_path / "packages"
    source.mkdir()
    log = tmp_path / "log"

    @asynccontextmanager
    async def run(picker: str = text.picker, *, config: str = "", serves: bool = True) -> AsyncIterator[Command]:
        picker_file, host_file = tmp_path / "picker.yaml", tmp_path / "host.yaml"
        picker_file.write_text(picker)
        extra = f"scheduling: {{file: {picker_file.name}}}\n{config}"
        host_file.write_text(host_text(servers, source, state_dir, extra))
        begin = log.stat().st_size if log.exists() else 0
        process = _start_command(host_file, log)
        client = tools.client(("127.0.0.1", 0))
        try:
            if serves:
                client = tools.client(await _address(process, log, begin, tools))
            yield Command(process, tools, client, log, picker_file, source, servers, state_dir / "admin.sock")
        finally:
            client.close()
            process.kill()
            await anyio.to_thread.run_sync(process.wait)

    return run


def _admin_status(path: Path) -> dict:
    """The status page of the host at this socket."""
    connection = AdminConnection(path, WAIT_S)
    try:
        connection.request("GET", "/status")
        answer = connection.getresponse()
        return orjson.loads(answer.read()) if answer.status == 200 else {}
    finally:
        connection.close()


def _start_command(host_file: Path, log: Path) -> "subprocess.Popen[bytes]":
    with log.open("ab") as output:
        return subprocess.Popen(
            [Path(sys.executable).with_name("hotbay"), "run", "-c", host_file], stdout=output, stderr=output
        )


async def _address(process: "subprocess.Popen[bytes]", log: Path, begin: int, tools: Any) -> tuple[str, int]:
    def said() -> str:
        return log.read_bytes()[begin:].decode()

    def found() -> "re.Match[str] | None":
        assert process.poll() is None, said()
        return re.search(r"hotbay serves on http://([\d.]+):(\d+)", said())

    await tools.until(found, told=said)
    at = found()
    assert at is not None
    return at[1], int(at[2])
