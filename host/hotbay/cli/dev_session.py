"""`hotbay dev`: a host for one project, which puts each save in force or says why not.

Everything is in one process beside the plugins' own: host, simulated servers and watch. Nothing of it is left when `run`
returns. The host runs from the first version on that gets READY; until then each save is tried by itself.
"""

import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import anyio
import anyio.lowlevel
import anyio.to_thread
from hotbay_sdk.protocol import TypeDeclaration

from hotbay.app import Host
from hotbay.authoring.developing.changes import Described, changes_between, parameters_in
from hotbay.authoring.developing.debugging import debugger_folder, first_lines
from hotbay.authoring.developing.environments import ProjectEnvironments
from hotbay.authoring.developing.lines import Page
from hotbay.authoring.developing.places import SourcePlaces
from hotbay.authoring.developing.probing import declared_types
from hotbay.authoring.developing.profile import BESIDE, SOURCE, HostWishes, host_text, picker_text
from hotbay.authoring.developing.repacking import Packed, Workshop
from hotbay.authoring.developing.source import ProjectSource
from hotbay.authoring.developing.watching import follow_saves
from hotbay.cli.dev_output import DevOutput
from hotbay.cli.following import follow_files
from hotbay.cli.loading import Given, load
from hotbay.config.picker_config import load_picker_config
from hotbay.config.reload import read_content
from hotbay.config.source_config import Source as SourceEntry
from hotbay.datalayer.endpoint import format_authority
from hotbay.depot import Supply
from hotbay.errors import HostError, PluginFault
from hotbay.extend import Extensions
from hotbay.packages.bundled import Part, bundled_folder
from hotbay.packages.lock import LOCK_NAME
from hotbay.packages.project_folder import read_project
from hotbay.packages.sources.source import Source
from hotbay.serving import Serving
from hotbay.sim.config import SimConfig
from hotbay.sim.server import SimServer
from hotbay.sim.timing import Timing
from hotbay.sourcing import make_sources

__all__ = ["DevOptions", "Session"]

_TIMING: Final = Timing(base_s=0.01, prefill_token_s=0.00005, running_s=0.0005)
"""Of a small model on one accelerator: answers take as long as it takes to see a queue."""
_BURSTS_KEPT: Final = 16
_ALL: Final = (".",)
"""The project as it lies there, before any save."""
_PROCESS: Final = re.compile(r"[\w./-]+#\d+")


@dataclass(frozen=True, slots=True)
class DevOptions:
    """The command line of `hotbay dev`. `directory` is absolute, and its real path."""

    directory: Path
    picker_file: Path | None
    endpoints: tuple[str, ...]
    servers: int
    listen: str
    wheels: Path | None
    is_debugging: bool


@dataclass(frozen=True, slots=True)
class _Save:
    """A save that is on its way. `begun_s` is when the file was written, by the monotonic clock."""

    files: Sequence[str]
    begun_s: float
    packed_ms: int
    packed: Packed


class Session:
    """One `hotbay dev`. `run` once.

    Args:
        options: the command line.
        work: a folder of its own, which its owner removes.
        tell: takes what happens; called on the loop.
    """

    def __init__(self, options: DevOptions, work: Path, tell: Callable[[Page], None]) -> None:
        self._options = options
        self._work = work
        self._tell = tell
        project = read_project(options.directory)
        self._id = project.id
        self._capabilities = project.capabilities
        self._workshop = Workshop(options.directory, work / "packs", options.wheels)
        self._source = ProjectSource(SOURCE)
        self._environments = ProjectEnvironments(
            work / "state" / "environments",
            plugin_id=project.id,
            distribution=project.name,
            first=self._first_lines if options.is_debugging else lambda _site: "",
        )
        self._debugger = debugger_folder(_lock_text(options.directory)) if options.is_debugging else None
        self._output = DevOutput(
            tell,
            SourcePlaces(str(self._environments.root), {}),
            project=project.id,
            holds_back=not options.is_debugging,
        )
        self._has_bundled = bundled_folder(Part.PACKAGES).is_dir()
        self._is_beside = self._has_bundled and options.picker_file is None
        self._packed: Packed | None = None
        self._live = Described()
        self._points: Mapping[str, frozenset[str]] = {}
        self._on_their_way: dict[str, _Save] = {}
        self._is_serving = False
        self._url = ""
        self._urls: Sequence[str] = ()
        self._send, self._saves = anyio.create_memory_object_stream[tuple[str, ...]](_BURSTS_KEPT)

    async def run(self, stop: anyio.Event) -> None:
        """Work until `stop` is set. Raises `HostError` when the host cannot start."""
        self._output.attach()
        for name in ("packs", "state/environments"):
            await anyio.Path(self._work / name).mkdir(parents=True, exist_ok=True)
        servers: list[SimServer] = []
        try:
            urls = list(self._options.endpoints) or [await _serve(servers, n) for n in range(self._options.servers)]
            async with anyio.create_task_group() as group:
                group.start_soon(follow_saves, self._options.directory, self._send.send)
                scope = anyio.CancelScope()
                group.start_soon(_cancel_at, stop, scope)
                host = None
                with scope:
                    host = await self._begin(urls)
                if host is not None and not stop.is_set():
                    group.start_soon(self._hear, host)
                    await host.run(partial(self._serving, host, urls, group.start_soon), stop)
                group.cancel_scope.cancel()
        finally:
            with anyio.CancelScope(shield=True):
                for server in servers:
                    await server.close()
        self._tell({"event": "stopped"})

    # -- until the host runs ---------------------------------------------------------------------

    async def _begin(self, urls: Sequence[str]) -> Host:
        """Try the project as it lies there, and again at each save, until a version of it is READY."""
        files: Sequence[str] = _ALL
        self._tell({"event": "begun", "plugin": self._id, "bundled": self._is_beside})
        # The watch takes its first step, so that nothing is saved unseen.
        await anyio.lowlevel.checkpoint()
        while True:
            try:
                packed = await self._workshop.pack()
                if packed is not None:
                    self._use(packed)
                    types = await self._probe(packed)
                    self._source.offer(packed)
                    self._live = await self._describe(packed, types)
                    return await self._make_host(packed, types, urls)
            except HostError as error:
                self._refuse(files, error)
            files = await self._saves.receive()

    async def _probe(self, packed: Packed) -> Mapping[str, TypeDeclaration]:
        built = await self._environments.build(packed.manifest, sys.executable, packed.wheels.__getitem__)
        return await declared_types(packed.manifest, built.site)

    async def _describe(self, packed: Packed, types: Mapping[str, TypeDeclaration]) -> Described:
        return Described(types, parameters_in(await anyio.to_thread.run_sync(packed.sources)))

    async def _make_host(self, packed: Packed, types: Mapping[str, TypeDeclaration], urls: Sequence[str]) -> Host:
        options, given_picker = self._options, self._options.picker_file
        self._points = {name: frozenset(declared.points) for name, declared in types.items()}
        refs: Sequence[str] = packed.manifest.types
        if given_picker is None:
            await self._write_picker(self._points)
        else:
            text = read_content(given_picker).text(hint="check its name")
            entries = load_picker_config(text, file=str(given_picker)).plugins
            refs = [entry.name for entry in entries if entry.type in packed.manifest.types]
        wishes = HostWishes(
            plugin_id=self._id,
            capabilities=self._capabilities,
            types=packed.manifest.types,
            refs=refs,
            endpoints=urls,
            listen=options.listen,
            has_bundled=self._has_bundled,
            is_patient=options.is_debugging,
        )
        config = anyio.Path(self._work / "host.yaml")
        await config.write_text(host_text(wishes))
        self._given = Given(config_file=self._work / "host.yaml", picker_file=given_picker)
        self._loaded = load(self._given)
        return Host(
            self._loaded.host,
            self._loaded.picker,
            picker_directory=self._loaded.picker_directory,
            supply=Supply(lambda _root: self._environments, self._sources, gives_way=False),
        )

    def _sources(self, entries: Sequence[SourceEntry], extensions: Extensions) -> Mapping[str, Source]:
        others = [entry for entry in entries if entry.name != SOURCE]
        return {**make_sources(others, extensions), SOURCE: self._source}

    async def _write_picker(self, points: Mapping[str, frozenset[str]]) -> None:
        text = picker_text(points, beside=BESIDE if self._is_beside else ())
        # By rename: the host follows the file.
        aside = anyio.Path(self._work / "picker.yaml.part")
        await aside.write_text(text)
        await aside.rename(self._work / "picker.yaml")

    # -- while the host runs ---------------------------------------------------------------------

    def _serving(self, host: Host, urls: Sequence[str], start_soon: Callable[..., object], at: Serving) -> None:
        self._url = f"http://{format_authority(*at.address)}"
        self._urls = urls
        start_soon(self._follow, host)
        start_soon(partial(follow_files, host, self._given, self._loaded))

    async def _follow(self, host: Host) -> None:
        async for first in self._saves:
            files = self._with_later(first)
            begun_s = await anyio.to_thread.run_sync(_written_s, [self._options.directory / name for name in files])
            packing_s = time.monotonic()
            try:
                packed = await self._workshop.pack()
                if packed is None:
                    self._tell({"event": "unchanged", "files": files})
                    continue
                packed_ms = round((time.monotonic() - packing_s) * 1000)
                self._use(packed)
                await self._drop_types(packed)
                self._on_their_way[packed.manifest.digest] = _Save(files, begun_s, packed_ms, packed)
                self._source.offer(packed)
            except HostError as error:
                self._refuse(files, error, host)

    def _with_later(self, first: Sequence[str]) -> Sequence[str]:
        """The files of all bursts that came meanwhile: they are looked at together."""
        files = dict.fromkeys(first)
        with suppress(anyio.WouldBlock):
            while True:
                files.update(dict.fromkeys(self._saves.receive_nowait()))
        return tuple(files)

    async def _drop_types(self, packed: Packed) -> None:
        """A version that lacks a type of the profile would be refused: the profile goes first, what is new comes later."""
        left = {name: points for name, points in self._points.items() if name in packed.manifest.types}
        if self._options.picker_file is None and left and left != self._points:
            self._points = left
            await self._write_picker(left)

    async def _hear(self, host: Host) -> None:
        async for page in host.events.listen():
            if page["plugin"] != self._id:
                continue
            if page["event"] in ("swapped", "started"):
                await self._went_live(host, str(page["digest"]))
            elif page["event"] == "candidate_failed":
                self._failed(host, page)
            elif page["event"] == "crashed":
                self._crashed(page)

    async def _went_live(self, host: Host, digest: str) -> None:
        generation, now_s = _generation(host, self._id), time.monotonic()
        types = host.declared(self._id)
        was_serving, self._is_serving = self._is_serving, True
        if not was_serving:
            self._tell_serving(generation, types)
        if generation is not None:
            self._output.went_live(generation)
        save = self._on_their_way.pop(digest, None)
        if save is None:
            if was_serving:
                self._tell({"event": "back", "generation": generation, "digest": digest})
            return
        for older in [key for key, each in self._on_their_way.items() if each.begun_s < save.begun_s]:
            self._tell({"event": "passed_over", "files": self._on_their_way.pop(older).files})
        before, self._live = self._live, await self._describe(save.packed, types)
        self._tell(
            {
                "event": "live",
                "files": save.files,
                "built": save.packed.is_built,
                "packed_ms": save.packed_ms,
                "live_ms": round((now_s - save.begun_s) * 1000),
                "rev": save.packed.manifest.rev,
                "generation": generation,
                "changes": changes_between(before, self._live),
            }
        )
        points = {name: frozenset(declared.points) for name, declared in types.items()}
        if self._options.picker_file is None and points != self._points:
            self._points = points
            await self._write_picker(points)

    def _tell_serving(self, generation: object, types: Mapping[str, TypeDeclaration]) -> None:
        self._tell(
            {
                "event": "serving",
                "plugin": self._id,
                "url": self._url,
                "generation": generation,
                "endpoints": tuple(self._urls),
                "simulated": not self._options.endpoints,
                "types": tuple(sorted(types)),
                "socket": str(self._work / "state" / "admin.sock"),
            }
        )

    def _failed(self, host: Host, page: Page) -> None:
        digest = next(reversed(self._on_their_way), None)
        files = self._on_their_way.pop(digest).files if digest is not None else _ALL
        self._refuse(files, PluginFault(str(page["code"]), str(page["message"])), host)

    def _crashed(self, page: Page) -> None:
        message = str(page["message"])
        place = self._output.places.place(self._output.said(_process_in(message)))
        self._tell({"event": "crashed", "code": page["code"], "message": message, "place": place})

    # -- both ------------------------------------------------------------------------------------

    def _use(self, packed: Packed) -> None:
        self._packed = packed
        files = {name: str(path) for name, path in packed.files.items()}
        self._output.places = SourcePlaces(str(self._environments.root), files)

    def _refuse(self, files: Sequence[str], error: HostError, host: Host | None = None) -> None:
        places = self._output.places
        text = places.mapped(error.message)
        process = _process_in(text)
        said = self._output.said(process)
        self._output.gave_up(process)
        self._tell(
            {
                "event": "refused",
                "files": tuple(files),
                "code": error.code,
                "message": text,
                "place": places.place(text) or places.place(said),
                "traceback": said,
                "hint": error.hint,
                "generation": _generation(host, self._id) if host is not None else None,
            }
        )

    def _first_lines(self, site: Path) -> str:
        packed = self._packed
        assert packed is not None, "an environment is of what was packed"
        name, source = next(iter(packed.files.items()), ("", self._options.directory))
        return first_lines(self._debugger, Path(str(source).removesuffix(name)), site)


async def _serve(servers: list[SimServer], number: int) -> str:
    server = SimServer(SimConfig(timing=_TIMING, seed=number))
    servers.append(server)
    return await server.start()


async def _cancel_at(stop: anyio.Event, scope: anyio.CancelScope) -> None:
    await stop.wait()
    scope.cancel()


def _written_s(paths: Sequence[Path]) -> float:
    """When the newest of the files was written, by the monotonic clock; now for what is gone or was not written now. Blocks."""
    now_s, wall_ns = time.monotonic(), time.time_ns()
    ages_s = [(wall_ns - path.stat().st_mtime_ns) / 1e9 for path in paths if path.is_file()]
    age_s = min(ages_s, default=0.0)
    return now_s - (age_s if 0 <= age_s < 2 else 0.0)


def _generation(host: Host, plugin: str) -> int | None:
    rows = host.status()["plugins"]
    assert isinstance(rows, list), "the page's own form"
    live = next((row["live"] for row in rows if row["plugin"] == plugin), None)
    return live["generation"] if live else None


def _process_in(message: str) -> str:
    """The label of the process that an error's text names first; empty without one."""
    found = _PROCESS.match(message)
    return found[0] if found else ""


def _lock_text(directory: Path) -> str:
    lock = directory / LOCK_NAME
    return lock.read_text(encoding="utf-8", errors="replace") if lock.is_file() else ""
