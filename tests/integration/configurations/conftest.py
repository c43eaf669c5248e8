"""Whole hosts as `manifests/` describes them, with simulated servers in the place of those that a manifest names.

What is changed of a manifest is where things are, how soon a server that comes back counts, and deadlines of calls, which are
generous because a machine under test may stand still for longer than plugins are given. Every binding has to decide by
itself: a test during which one failed and was left out fails.
"""

import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import anyio
import httpx
import orjson
import pytest
from hotbay.app import Host
from hotbay.cli.loading import Given, Loaded, load
from hotbay.config.documents import load_document
from hotbay.serving import Serving
from hotbay.sim.config import SimConfig
from hotbay.sim.server import SimServer
from hotbay.sim.timing import Timing

ROOT = Path(__file__).resolve().parents[3]
MANIFESTS = ROOT / "manifests"
WAIT_S = 60.0
"""Deadline of waits for what takes a second or two on a machine of its own: others may work on it too."""
LONG = 4000
"""Tokens of an answer that does not end while a test looks: it takes 40 s."""
TOKEN_BYTES = 4
TIMING = Timing(base_s=0.01)
NO_SIMS: Mapping[str, SimConfig] = MappingProxyType({})
RANDOM = """
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
- {type: random-picker}
schedulingProfiles:
- {name: default, plugins: [{pluginRef: random-picker}]}
"""


@dataclass(frozen=True)
class Answer:
    """What a client got. `server` is who answered, `reason` why nobody did."""

    status: int
    server: str
    reason: str
    headers: Mapping[str, str]


def prompt_of(name: str, tokens: int) -> str:
    """A prompt of so many tokens as everybody here estimates them, another one from its first block on for each name."""
    return f"{name}: ".ljust(tokens * TOKEN_BYTES, "x")


@dataclass
class Bay:
    """A running host between one client and the servers of its manifest, by their names there."""

    host: Host
    loaded: Loaded
    serving: Serving
    servers: dict[str, SimServer]
    client: httpx.AsyncClient
    write: Callable[[str | None], Path]
    """Writes the host's file for other text in the place of what it schedules."""

    async def ask(self, prompt: str, *, model: str = "sim", path: str = "/v1/completions", **headers: str) -> Answer:
        """One request with an answer of one token. Headers are written with `_` for `-`."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        asked = {"model": model, "prompt": prompt, "max_tokens": 1}
        answer = await self.client.post(path, json=asked, headers=named)
        return _answer(answer)

    async def asks(self, prompts: Sequence[str], *, rested: bool = True, **said: str) -> list[str]:
        """Who answered each of them, one after the other.

        `rested`: the host has looked at its servers between one and the next, so that what it sent before counts for nothing.
        """
        answers = []
        for prompt in prompts:
            if rested:
                await self.rested()
            answers.append(await self.ask(prompt, **said))
        assert {answer.status for answer in answers} == {200}, answers
        return [answer.server for answer in answers]

    async def rested(self) -> None:
        """Wait until every server was scraped again, and what it runs is known."""
        before = self._scraped_at().max()

        def is_known() -> bool:
            snapshot = self.host._data.store.snapshot
            running = snapshot.columns["endpoint.running"]
            rows = snapshot.row_of.items()
            truth = all(running[row] == len(self.servers[name.partition("/")[2]].engine.running) for name, row in rows)
            return truth and bool(self._scraped_at().min() > before)

        await self.until(is_known)

    def _scraped_at(self) -> Any:
        """When each server was scraped last, in seconds of the snapshot's clock."""
        snapshot = self.host._data.store.snapshot
        ages = snapshot.columns["endpoint.age_waiting"]
        return snapshot.at - ages[list(snapshot.row_of.values())].astype(float)

    @asynccontextmanager
    async def busy(self, prompt: str, *, model: str = "sim", **headers: str) -> AsyncIterator[str]:
        """A request that is answered all the while; which server does, once the host has seen it there."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        asked = {"model": model, "prompt": prompt, "max_tokens": LONG, "stream": True}
        async with self.client.stream("POST", "/v1/completions", json=asked, headers=named) as stream:
            answer = _answer(stream)
            assert answer.status == 200, answer
            await self.until(lambda: self.seen(answer.server)["running"] == 1)
            await self.rested()
            yield answer.server
        await self.until(lambda: self.seen(answer.server)["running"] == 0)

    def seen(self, server: str) -> dict[str, Any]:
        """What the host knows of a server."""
        return next(row for row in self.serving.status()["endpoints"] if row["id"] == f"default/{server}")

    def hits(self) -> int:
        """Tokens of prompts that all servers together found in their caches."""
        return sum(server.engine.statistics.prefix_hits for server in self.servers.values())

    def taken(self) -> Counter[str]:
        """Requests that each server has taken."""
        return Counter({name: len(server.seen) for name, server in self.servers.items()})

    @asynccontextmanager
    async def only(self, *names: str) -> AsyncIterator[None]:
        """The host's file names these servers alone for a while, and decisions know it."""
        await self._keep(names)
        try:
            yield
        finally:
            await self._keep(tuple(self.servers))

    async def _keep(self, names: Sequence[str]) -> None:
        kept = [one for one in self.loaded.host.endpoints if one.effective_name in names]
        await self.host.adopt(self.loaded.host.model_copy(update={"endpoints": kept}), self.loaded.picker)
        await self.until(lambda: self.host._data.store.snapshot.row_of.keys() == {f"default/{name}" for name in names})
        await self.scraped(names)

    async def use(self, picker: str, folder: Path) -> None:
        """Another scheduling, whose relative paths count from `folder`."""
        loaded = load(Given(self.write(picker), picker_text=picker))
        await self.host.adopt(loaded.host, loaded.picker, directory=folder)

    async def scraped(self, names: Iterable[str]) -> None:
        """Wait until the host knows how busy these servers are."""
        await self.until(lambda: all(self.seen(name)["waiting"] is not None for name in names))

    async def until(self, holds: Callable[[], object]) -> None:
        """Wait until `holds`; at the deadline fail with the status in the message."""
        deadline_s = time.monotonic() + WAIT_S
        while not holds():
            assert time.monotonic() < deadline_s, orjson.dumps(
                self.serving.status(), option=orjson.OPT_INDENT_2
            ).decode()
            await anyio.sleep(0.01)

    def check(self) -> None:
        """Every plugin decided what it was asked."""
        assert dict(self.serving.metrics.degradations.items()) == {}
        assert dict(self.serving.metrics.plugin_errors.items()) == {}
        assert self.serving.status()["problems"] == []


def _answer(answer: httpx.Response) -> Answer:
    headers = answer.headers
    return Answer(answer.status_code, headers.get("x-inference-pod", ""), headers.get("x-hotbay-reason", ""), headers)


@dataclass(frozen=True)
class Starter:
    """Starts hosts. Equal packages are made ready to run once, in `environments`."""

    folder: Path
    environments: Path

    @asynccontextmanager
    async def run(
        self, manifest: str, *, picker: str | None = None, sims: Mapping[str, SimConfig] = NO_SIMS, **keys: Any
    ) -> AsyncIterator[Bay]:
        """The host of a manifest, ready. `picker` replaces what is scheduled how, `sims` how a server is simulated, by its
        name in the manifest, and `keys` those of the manifest.
        """
        async with AsyncExitStack() as stack:
            document = _document(MANIFESTS / manifest)
            servers = {}
            for number, entry in enumerate(document["endpoints"]):
                name = entry.setdefault("name", f"server-{number}")
                config = replace(sims.get(name, SimConfig()), pod=name, timing=TIMING, seed=number)
                servers[name] = SimServer(config)
                entry["url"] = await servers[name].start()
                stack.push_async_callback(servers[name].close)
            self._make_state()
            write = partial(self._host_file, document | keys)
            given = Given(write(picker), picker_text=picker)
            bay = await stack.enter_async_context(_running(given, servers, write))
            await bay.until(lambda: bay.serving.status()["ready"])
            await bay.scraped(servers)
            yield bay
            bay.check()

    def _make_state(self) -> None:
        state = self.folder / "state"
        state.mkdir()
        (state / "environments").symlink_to(self.environments)

    def _host_file(self, document: dict[str, Any], picker: str | None) -> Path:
        """What an operator makes of the manifest."""
        scheduling = dict(document.get("scheduling", {}))
        if "file" in scheduling:
            scheduling["file"] = str(MANIFESTS / scheduling["file"])
        if picker is None and "file" in scheduling:
            picker = Path(scheduling["file"]).read_text()
        plugins = _value(picker or "{}").get("plugins", [])
        here = {
            "state_dir": str(self.folder / "state"),
            "scheduling": scheduling,
            "listen": {"http": "127.0.0.1:0"},
            "bindings": {entry.get("name", entry["type"]): {"deadline": "5s"} for entry in plugins},
            # Servers that are back have their whole share at once.
            "health": {"slow_start": "0s"},
            "logging": {"level": "warning", "access": False},
        }
        file = self.folder / "host.yaml"
        file.write_bytes(orjson.dumps(document | here))
        return file


@asynccontextmanager
async def _running(
    given: Given, servers: dict[str, SimServer], write: Callable[[str | None], Path]
) -> AsyncIterator[Bay]:
    loaded = load(given)
    host = Host(loaded.host, loaded.picker, picker_directory=loaded.picker_directory)
    stop, began = anyio.Event(), anyio.Event()
    at: list[Serving] = []

    def serving(where: Serving) -> None:
        at.append(where)
        began.set()

    async with anyio.create_task_group() as group:
        group.start_soon(host.run, serving, stop)
        with anyio.fail_after(WAIT_S):
            await began.wait()
        url = "http://{}:{}".format(*at[0].address)
        try:
            async with httpx.AsyncClient(base_url=url, trust_env=False, timeout=WAIT_S) as client:
                yield Bay(host, loaded, at[0], servers, client, write)
        finally:
            stop.set()


def _value(text: str) -> Any:
    return load_document(text, file="").value


def _document(path: Path) -> dict[str, Any]:
    return _value(path.read_text())


@pytest.fixture(name="prompt_of")
def prompt_of_fixture() -> Callable[[str, int], str]:
    return prompt_of


@pytest.fixture
def random_picker() -> str:
    """For the negative controls: nobody looks at anything."""
    return RANDOM


@pytest.fixture(scope="module")
def anyio_backend() -> tuple[str, dict[str, bool]]:
    return "asyncio", {"use_uvloop": True}


@pytest.fixture(scope="session")
def environments(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder for all hosts: equal packages are made ready to run once."""
    return tmp_path_factory.mktemp("environments")


@pytest.fixture
def starter(tmp_path: Path, environments: Path) -> Starter:
    return Starter(tmp_path, environments)


@pytest.fixture(scope="module")
async def bay(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, environments: Path
) -> AsyncIterator[Bay]:
    """The host of the module's `MANIFEST`, with its `KEYS`, for all of its tests: each leaves it as it was."""
    keys = getattr(request.module, "KEYS", {})
    async with Starter(tmp_path_factory.mktemp("host"), environments).run(request.module.MANIFEST, **keys) as running:
        yield running
