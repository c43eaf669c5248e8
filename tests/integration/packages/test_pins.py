"""Packages whose dependencies contradict each other run side by side, and the host keeps its own."""

import shutil
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import anyio
import pytest
from hotbay.authoring.arguments import Batch
from hotbay.authoring.inputs import DEFAULT_REQUEST, read_endpoints, read_requests
from hotbay.authoring.runnable import Runnable
from hotbay.authoring.runner import running
from hotbay.packages.manifest import Manifest
from hotbay.packages.pack import pack
from hotbay.process.log import LogSink

ROOT = Path(__file__).resolve().parents[3]
pytestmark = [pytest.mark.anyio, pytest.mark.timeout(180), pytest.mark.process]
Fetching = Any


async def scores(name: str, manifest: Manifest, site: Path, work: Path, both: anyio.Event, table: str) -> object:
    """What the package's scorer says, in a process of its own; asked while the other one runs too."""
    what = Runnable(name, manifest.version, manifest.rev, manifest.digest, manifest.types, manifest.entrypoint, site)
    async with running(what, f"{name}-scorer", {"table": table}, work, LogSink(f"{name}#1")) as target:
        both.set() if name == "pin-new" else await both.wait()
        requests = read_requests(DEFAULT_REQUEST, file="request", headers={})
        endpoints = read_endpoints("default/a: {}\ndefault/b: {}\n", file="endpoints", data=())
        batch = Batch(target.declaration, endpoints, requests, facts=target.facts)
        return (await target.call("score", batch, picks=1, profiles=(), repeat=1)).rows[0]


async def test_p13_two_pins_of_one_dependency_and_the_hosts_own(
    fetching: Fetching, tmp_path: Path, wheel_directory: Path, memory_source: Callable[..., Any]
) -> None:
    before = version("iniconfig")
    source, sites, found = memory_source(), {}, {}
    for rev, name in enumerate(("pin-old", "pin-new")):
        project = Path(shutil.copytree(ROOT / "plugins" / "samples" / name, tmp_path / "projects" / name))
        manifest = await pack(project, tmp_path / name, rev=rev + 1, wheel_directory=wheel_directory)
        source.add(manifest, tmp_path / name)
        sites[name] = manifest, await fetching.fetcher().fetch(await fetching.know(manifest, source))
    both = anyio.Event()

    async def run(name: str) -> None:
        found[name] = await scores(name, *sites[name], tmp_path, both, "[rates]\ndefault/a = 0.75\n")

    async with anyio.create_task_group() as tasks:
        for name in sites:
            tasks.start_soon(run, name)
    assert found["pin-old"] == pytest.approx({"default/a": 0.75, "default/b": 1 / 2})
    assert found["pin-new"] == pytest.approx({"default/a": 0.75, "default/b": 1 / 3}, rel=1e-6)
    code = "from importlib.metadata import version; print(version('iniconfig'))"
    host = await anyio.run_process([sys.executable, "-I", "-c", code])
    assert host.stdout.decode().strip() == version("iniconfig") == before
    assert before not in ("1.1.1", "2.0.0"), "three versions are there"


async def test_u28_old_version_imports_its_own_files_late(
    fetching: Fetching, tmp_path: Path, write_plugin: Callable[..., Manifest], memory_source: Callable[..., Any]
) -> None:
    """v1 imports `helper` at its second call, after v2 was fetched and unpacked."""
    source, sites = memory_source(), []
    module = b"plugin = 1\ndef call():\n    from sample.helper import VALUE\n    return VALUE\n"
    asked = "import sys; sys.path.insert(0, sys.argv[1]); import sample\nfor _ in sys.stdin: print(sample.call(), flush=True)"
    for rev in (1, 2):
        files = {"sample/__init__.py": module, "sample/helper.py": f"VALUE = 'v{rev}'\n".encode()}
        manifest = write_plugin(tmp_path / str(rev), rev=rev, files=files)
        source.add(manifest, tmp_path / str(rev))
        ref = await fetching.know(manifest, source)
        sites.append(await fetching.fetcher().fetch(ref))
        if rev == 1:
            process = await anyio.open_process([sys.executable, "-I", "-S", "-c", asked, str(sites[0])])
    assert sites[0] != sites[1]
    assert process.stdin is not None
    assert process.stdout is not None
    async with process:
        await process.stdin.send(b"\n")
        with anyio.fail_after(30):
            assert await process.stdout.receive() == b"v1\n"
        await process.stdin.aclose()


async def test_p11_execute_bit_stays_and_no_other_mode_does(
    fetching: Fetching, tmp_path: Path, write_plugin: Callable[..., Manifest], memory_source: Callable[..., Any]
) -> None:
    script, tool = "sample-1.0.data/scripts/run", "sample/tool"
    program = b"#!/bin/sh\necho runs\n"
    files = {"sample/__init__.py": b"plugin = 1\n", script: program, tool: program, "sample/open": b""}
    modes = {script: 0o755, tool: 0o4755, "sample/open": 0o666}
    manifest = write_plugin(tmp_path / "p", files=files, modes=modes)
    source = memory_source()
    source.add(manifest, tmp_path / "p")
    site = await fetching.fetcher().fetch(await fetching.know(manifest, source))
    assert {path.stat().st_mode & 0o7777 for path in site.rglob("*") if path.is_file()} == {0o444, 0o555}
    for path in (site / "bin" / "run", site / "sample" / "tool"):
        assert path.stat().st_mode & 0o7777 == 0o555
        done = await anyio.run_process([str(path)])
        assert done.stdout == b"runs\n"
