"""Extractors and discoveries in plugin processes, exchanged while events and data flow: each event counts once, in order."""

import json
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import pytest
from hotbay.datalayer.endpoint import Delete, EndpointEvent, EndpointMetadata, Upsert
from hotbay.datalayer.remote import runs as runs_module
from hotbay.datalayer.remote.calls import RefCalls
from hotbay.datalayer.remote.discovery import RemoteDiscovery
from hotbay.datalayer.remote.extractors import RemoteEventExtractor
from hotbay.datalayer.remote.runs import Runs
from hotbay.datalayer.remote.succession import MAX_ENDPOINTS, Succession
from hotbay.datalayer.source import EndpointNews, EventType
from hotbay.errors import HostError
from hotbay_sdk.protocol import Method

pytestmark = [pytest.mark.process, pytest.mark.anyio, pytest.mark.timeout(180)]

SAMPLES = Path(__file__).resolve().parents[3] / "plugins" / "samples"
WAIT_S = 60.0


def sample(name: str) -> str:
    """The source of a sample, a module of its own."""
    return (SAMPLES / name / f"hotbay_{name.replace('-', '_')}" / "__init__.py").read_text()


# -- events to an extractor ----------------------------------------------------------------------

EVENTS = """
import os, signal, time
from hotbay_sdk import EventExtractor, Plugin

plugin = Plugin("events")

@plugin.type("event-log", payload="endpoint", attributes={{"seen": "i64"}}, concurrency={concurrency},
             parameters=lambda raw: raw)
class EventLog(EventExtractor):
    def __init__(self, context, parameters):
        self.path = parameters["path"]
        self.calls = 0

    def extract(self, event):
        number, name = event["number"], event["endpoint"]["name"]
        self.calls += 1
        if {version} == 2 and self.calls == 10:
            for mark in (self.path + f".died{{n}}" for n in range({deaths})):
                if not os.path.exists(mark):
                    open(mark, "w").close()
                    os.kill(os.getpid(), signal.SIGKILL)
        if {concurrency} > 1 and number % 2:
            time.sleep(0.02)
        # One write: whole lines, whoever writes.
        with open(self.path, "a") as log:
            log.write(f"{{number}} {{name}} {version}\\n")
        return {{event["endpoint"]["id"]: {{"seen": number}}}}
"""
EVENT_PICKER = """
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
- {{name: log, type: event-log, parameters: {{path: {path}}}}}
"""


@dataclass
class Feeding:
    """Events that are told one after the other, some at a time, and what became of each."""

    ask: Callable[[EndpointNews], Awaitable[Mapping[str, Mapping[str, object]]]]
    answers: dict[int, object] = field(default_factory=dict)
    sent: int = 0
    stop: bool = False
    at_a_time: int = 8

    async def run(self) -> None:
        room = anyio.CapacityLimiter(self.at_a_time)
        async with anyio.create_task_group() as group:
            while not self.stop:
                await room.acquire_on_behalf_of(self.sent + 1)
                self.sent += 1
                group.start_soon(self._one, self.sent, room)

    async def _one(self, number: int, room: anyio.CapacityLimiter) -> None:
        name = f"e{number}"
        news = EndpointNews(EventType.ADD_OR_UPDATE, EndpointMetadata(f"default/{name}", name, "10.0.0.1", 8000))
        try:
            self.answers[number] = await self.ask(news)
        except HostError as error:
            self.answers[number] = error.code
        finally:
            room.release_on_behalf_of(number)

    async def more(self, until: Any, count: int) -> None:
        """Wait until so many more events than now were answered."""
        wanted = len(self.answers) + count
        await until(lambda: len(self.answers) >= wanted, within_s=WAIT_S)


def faults(log: Path, feeding: Feeding) -> list[str]:
    """What is wrong with what the plugin saw and answered: nothing, where every event counted once and in order."""
    rows = [line.split() for line in log.read_text().splitlines()]
    seen = [int(name[1:]) for _, name, _ in rows]
    found = []
    if lost := sorted(set(range(1, feeding.sent + 1)) - set(seen)):
        found.append(f"lost {lost[:5]}")
    if len(set(seen)) < len(seen):
        found.append("doubled")
    if seen != sorted(seen):
        found.append("reordered")
    if [int(number) for number, _, _ in rows] != seen:
        found.append("numbered otherwise")
    wrong = [n for n, answer in feeding.answers.items() if answer != {f"default/e{n}": {"seen": n}}]
    return [*found, *(f"answer {feeding.answers[n]}" for n in sorted(wrong)[:3])]


async def died(until: Any, log: Path, deaths: int) -> None:
    """Wait until version 2 was killed in the middle of an event, and so many less one of its replacements, too."""
    await until(log.with_name(f"{log.name}.died{deaths - 1}").exists, within_s=WAIT_S)


def versions(log: Path) -> set[str]:
    return {line.split()[2] for line in log.read_text().splitlines()}


@asynccontextmanager
async def events(
    host: Any, packages: Any, tmp_path: Path, ask: Callable[[Any], Any], *, deaths: int = 1, concurrency: int = 1
) -> AsyncIterator[tuple[Feeding, Path, Callable[[int], Awaitable[None]]]]:
    """A host with the extractor `log`, events on their way to it, and what puts another version in its place."""
    log = tmp_path / "events.log"
    log.touch()

    def make(rev: int) -> None:
        source = EVENTS.format(version=rev, deaths=deaths, concurrency=concurrency)
        folder = tmp_path / "packages" / f"events-{rev}"
        packages.make(folder, source, id="events", types=("event-log",), rev=rev)

    make(1)
    async with host(EVENT_PICKER.format(path=log)) as bay:

        async def publish(rev: int) -> None:
            make(rev)
            await bay.rev_is_live(rev, "events")

        feeding = Feeding(ask(bay.host._data.plugins))
        async with anyio.create_task_group() as group:
            group.start_soon(feeding.run)
            try:
                yield feeding, log, publish
            finally:
                feeding.stop = True


def delivered(plugins: Any) -> Callable[[EndpointNews], Awaitable[Any]]:
    calls = RefCalls("log", "extract", plugins, plugins, payload="endpoint")
    return RemoteEventExtractor("event-log", "endpoint", calls).extract_event


@pytest.mark.parametrize(("deaths", "last"), [(1, 3), pytest.param(2, 6, marks=pytest.mark.slow)])
async def test_events_count_once_and_in_order_while_versions_are_swapped_and_processes_die(
    host, packages, until, tmp_path, deaths, last
):
    async with events(host, packages, tmp_path, delivered, deaths=deaths) as (feeding, log, publish):
        await feeding.more(until, 40)
        await publish(2)
        await died(until, log, deaths)
        await feeding.more(until, 40)
        for rev in range(3, last + 1):
            await publish(rev)
            await feeding.more(until, 40)
    assert faults(log, feeding) == []
    assert versions(log) == {str(rev) for rev in range(1, last + 1)}


@pytest.mark.slow
async def test_negative_control_of_events_that_are_asked_for_without_order_and_without_another_try(
    host, packages, until, tmp_path
):
    """The same events and swaps with nothing but calls to what is live: the check above finds what goes wrong."""

    def asked(plugins: Any) -> Callable[[EndpointNews], Awaitable[Any]]:
        calls, numbers = RefCalls("log", "extract", plugins, plugins, payload="endpoint"), iter(range(1, 1_000_000))

        async def ask(news: EndpointNews) -> Any:
            event = {"type": str(news.type), "endpoint": {"id": news.endpoint.id, "name": news.endpoint.name}}
            return await calls.ask(Method.EVENT_EXTRACT, lambda _: [next(numbers), event], lambda found, _: found)

        return ask

    async with events(host, packages, tmp_path, asked, concurrency=4) as (feeding, log, publish):
        await feeding.more(until, 40)
        await publish(2)
        await died(until, log, 1)
        await publish(3)
        await feeding.more(until, 40)
    found = faults(log, feeding)
    assert any(fault.startswith("lost") for fault in found), found
    assert "reordered" in found


# -- a discovery ---------------------------------------------------------------------------------

DISCOVERY_PICKER = """
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
- {{name: servers, type: json-directory-discovery, parameters: {{path: {path}, interval_s: 0.05}}}}
dataLayer:
  discovery: {{pluginRef: servers}}
"""
UNFOLLOWED = DISCOVERY_PICKER.partition("dataLayer:")[0]
"""Nobody but the test asks for the servers."""
KEPT = 30
"""Servers that are there at a time, once so many came."""


@dataclass
class Churn:
    """Servers that come and go, one after the other: `s1` comes first and goes first."""

    folder: Path
    came: int = 0
    stop: bool = False

    def come(self) -> None:
        self.came += 1
        part = self.folder / "part"
        part.write_text(json.dumps({"address": "127.0.0.1", "port": 10_000 + self.came}))
        part.rename(self.folder / f"s{self.came:05}.json")
        gone = self.came - KEPT
        if gone > 0:
            (self.folder / f"s{gone:05}.json").unlink()

    async def run(self) -> None:
        while not self.stop:
            self.come()
            await anyio.sleep(0.02)

    async def more(self, until: Any, count: int) -> None:
        wanted = self.came + count
        await until(lambda: self.came >= wanted, within_s=WAIT_S)

    @property
    def there(self) -> set[str]:
        return {path.stem for path in self.folder.glob("*.json")}


@dataclass
class Pool:
    """What endpoint events make of a pool, and every one of them."""

    events: list[EndpointEvent] = field(default_factory=list)
    names: set[str] = field(default_factory=set)
    smallest: int = 10**6

    def take(self, event: EndpointEvent) -> None:
        self.events.append(event)
        if isinstance(event, Upsert):
            self.names.add(event.endpoint.name)
        else:
            self.names.discard(event.endpoint.name)
        if len(self.events) > KEPT:
            self.smallest = min(self.smallest, len(self.names))

    def faults(self, churn: Churn) -> list[str]:
        """What is wrong: nothing, where each server came once and went once, in its turn, and the right ones are there."""
        came = [event.endpoint.name for event in self.events if isinstance(event, Upsert)]
        went = [event.endpoint.name for event in self.events if isinstance(event, Delete)]
        found = []
        if self.names != churn.there:
            found.append(f"lost {sorted(self.names ^ churn.there)[:5]}")
        for what, names in (("came", came), ("went", went)):
            if len(set(names)) < len(names):
                found.append(f"{what} twice")
            if names != sorted(names):
                found.append(f"{what} in another order")
        if self.smallest < KEPT - 10:
            found.append(f"only {self.smallest} were left")
        return found


@asynccontextmanager
async def discovered(
    host: Any, packages: Any, tmp_path: Path, follow: Callable[[Any, Pool], Any], picker: str = DISCOVERY_PICKER
) -> AsyncIterator[tuple[Any, Churn, Pool, Callable[[int], Awaitable[None]]]]:
    """A host whose servers are found by the sample, which come and go, and what puts another version in its place."""
    folder = tmp_path / "servers"
    folder.mkdir()
    churn, pool = Churn(folder), Pool()
    for _ in range(KEPT):
        churn.come()

    def make(rev: int) -> None:
        source = f"VERSION = {rev}\n{sample('json-discovery')}"
        out = tmp_path / "packages" / f"json-{rev}"
        packages.make(out, source, id="json-discovery", types=("json-directory-discovery",), rev=rev)

    make(1)
    async with host(picker.format(path=folder)) as bay, follow(bay, pool):

        async def publish(rev: int) -> None:
            make(rev)
            await bay.rev_is_live(rev, "json-discovery")

        async with anyio.create_task_group() as group:
            group.start_soon(churn.run)
            try:
                yield bay, churn, pool, publish
            finally:
                churn.stop = True


@asynccontextmanager
async def in_store(bay: Any, pool: Pool) -> AsyncIterator[None]:
    """The pool as the host itself keeps it, beside the servers of its configuration."""
    configured = {server.name for server in bay.servers}

    def take(event: EndpointEvent) -> None:
        if event.endpoint.name not in configured:
            pool.take(event)

    for endpoint in bay.host._data.store.endpoints():
        take(Upsert(endpoint))
    unsubscribe = bay.host._data.store.subscribe(take)
    try:
        yield
    finally:
        unsubscribe()


async def swaps_and_a_death(bay: Any, until: Any, churn: Churn, publish: Callable[[int], Awaitable[None]]) -> None:
    """Versions 2 and 3 while servers come and go, and the sudden end of a process."""
    await churn.more(until, 10)
    await publish(2)
    await churn.more(until, 10)
    before = bay.live("json-discovery")
    os.kill(before["pid"], signal.SIGKILL)
    await bay.wait_for(lambda: bay.live("json-discovery") and bay.live("json-discovery")["pid"] != before["pid"])
    await churn.more(until, 10)
    await publish(3)
    await churn.more(until, 10)
    churn.stop = True


async def test_no_server_is_lost_doubled_or_told_out_of_turn_by_swaps_and_a_death(host, packages, until, tmp_path):
    async with discovered(host, packages, tmp_path, in_store) as (bay, churn, pool, publish):
        await swaps_and_a_death(bay, until, churn, publish)
        await bay.wait_for(lambda: pool.names == churn.there)
        assert pool.faults(churn) == []
        assert {server.name for server in bay.servers} <= {e.name for e in bay.host._data.store.endpoints()}


class Naive(Runs[EndpointMetadata]):
    """Begins anew with each process, as whoever stops the old one before the new one has told anything."""

    def _follow_current(self, now_s: float) -> None:
        live = self._generations.current(self._ref)
        if self._followed is not None and self._followed.live != live:
            self._followed.close()
            self._followed = None
            self._succession = Succession()
            self.told.replace(())
        super()._follow_current(now_s)


class Told:
    """A notifier that turns what it is told into the events of a store."""

    most = MAX_ENDPOINTS

    def __init__(self, pool: Pool) -> None:
        self.held: dict[str, EndpointMetadata] = {}
        self._pool = pool

    def upsert(self, endpoint: EndpointMetadata) -> None:
        if self.held.get(endpoint.id) != endpoint:
            self.held[endpoint.id] = endpoint
            self._pool.take(Upsert(endpoint))

    def delete(self, endpoint_id: str) -> None:
        if (gone := self.held.pop(endpoint_id, None)) is not None:
            self._pool.take(Delete(gone))

    def replace(self, endpoints: tuple[EndpointMetadata, ...], *, is_all: bool = True) -> None:
        wanted = {endpoint.id for endpoint in endpoints}
        for endpoint in endpoints:
            self.upsert(endpoint)
        for endpoint_id in [held for held in self.held if held not in wanted]:
            self.delete(endpoint_id)

    def report(self, problems: object) -> None:
        """Nobody asks."""

    def refuse(self, reason: str) -> None:
        """Nobody asks."""


@pytest.mark.slow
async def test_negative_control_of_a_discovery_that_begins_anew_with_each_version(host, packages, until, tmp_path):
    """The same churn and swaps: the check above finds what goes wrong."""

    @asynccontextmanager
    async def followed(bay: Any, pool: Pool) -> AsyncIterator[None]:
        plugins, told = bay.host._data.plugins, Told(pool)
        naive = RemoteDiscovery("servers", plugins, plugins)
        naive._runs = Naive("servers", naive._runs._kind, plugins, plugins)
        naive._runs.told = told
        async with anyio.create_task_group() as group:
            group.start_soon(naive.run, told)
            await naive.ready.wait()
            yield
            group.cancel_scope.cancel()

    async with discovered(host, packages, tmp_path, followed, UNFOLLOWED) as (bay, churn, pool, publish):
        await swaps_and_a_death(bay, until, churn, publish)
        await bay.wait_for(lambda: pool.names == churn.there)
        found = pool.faults(churn)
    assert "came twice" in found
    assert any(fault.startswith("only") for fault in found)


# -- an extractor of pages -----------------------------------------------------------------------

EXTRACTOR_PICKER = """
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
- {name: metrics-data-source, type: metrics-data-source, parameters: {interval: 50ms}}
- {name: core-metrics-extractor, type: core-metrics-extractor}
- {name: queue-time, type: queue-time-extractor}
dataLayer:
  sources:
  - pluginRef: metrics-data-source
    extractors: [{pluginRef: core-metrics-extractor}, {pluginRef: queue-time}]
"""


def page(waited_s: float, requests: int) -> bytes:
    """A metrics page of an engine whose requests all waited so long."""
    edges = (0.5, 1.0, 2.0, 4.0)
    name = "vllm:request_queue_time_seconds_bucket"
    lines = [f'{name}{{le="{edge}",model_name="m"}} {requests if edge >= waited_s else 0}' for edge in edges]
    lines.append(f'{name}{{le="+Inf",model_name="m"}} {requests}')
    return "\n".join([*lines, f"vllm:num_requests_waiting {requests % 7}", ""]).encode()


TRIALS = (
    "swap: {shadow: {for: 200ms}, canary: {for: 200ms, min_requests: 100000}, guard: {for: 500ms, calls: 100000}}\n"
)
"""More requests and calls than ever come: a trial that waited for them would not end."""


async def test_attribute_follows_the_pages_while_versions_have_their_trials_and_a_bad_one_is_taken_back(
    host, packages, tmp_path
):
    def make(rev: int, body: str = "") -> None:
        source = f"VERSION = {rev}\n{sample('queue-time')}"
        if body:
            source += f"\nQueueTimeExtractor.extract = lambda self, payload, endpoint: {body}\n"
        out = tmp_path / "packages" / f"queue-{rev}"
        packages.make(out, source, id="queue-time", types=("queue-time-extractor",), rev=rev)

    make(1)
    async with host(EXTRACTOR_PICKER, config=TRIALS) as bay:
        store, requests = bay.host._data.store, 0

        def median(server: Any) -> object:
            endpoint = store.endpoint(f"default/{server.name}")
            return endpoint.attributes.get("queue_time_p50") if endpoint is not None else None

        def holds(expected: float) -> bool:
            nonlocal requests
            requests += 1
            for server in bay.servers:
                server.page = page(3.0, requests)
            return all(median(server) == expected for server in bay.servers)

        await bay.wait_for(lambda: holds(3.0))
        make(2)
        await bay.wait_for(lambda: bay.live("queue-time")["rev"] == 2 and bay.plugin("queue-time")["phase"] == "live")
        await bay.wait_for(lambda: holds(3.0))
        assert not [labels for labels in bay.plugin_errors() if "queue-time" in labels]

        make(3, "{'queue_time_p50': 'long'}")
        await bay.wait_for(lambda: holds(3.0) and "TRIAL_FAILED" in str(bay.error("queue-time")))
        await bay.wait_for(lambda: holds(3.0) and bay.live("queue-time")["rev"] == 2)
        assert ("extract", "queue-time", "BAD_RESULT") in bay.plugin_errors()


async def test_version_of_a_discovery_that_never_tells_everything_is_taken_back(
    host, packages, tmp_path, monkeypatch: pytest.MonkeyPatch
):
    # The defence at its own times takes half a minute.
    monkeypatch.setattr(runs_module, "READY_S", 0.3)
    folder = tmp_path / "servers"
    folder.mkdir()
    (folder / "a.json").write_text(json.dumps({"address": "127.0.0.1", "port": 1}))

    def make(rev: int, body: str = "") -> None:
        source = f"VERSION = {rev}\n{sample('json-discovery')}{body}"
        out = tmp_path / "packages" / f"json-{rev}"
        packages.make(out, source, id="json-discovery", types=("json-directory-discovery",), rev=rev)

    make(1)
    async with host(DISCOVERY_PICKER.format(path=folder), config=TRIALS) as bay:
        store = bay.host._data.store
        await bay.wait_for(lambda: store.endpoint("default/a") is not None)
        make(2, "\nJsonDirectoryDiscovery.discover = lambda self, notifier: notifier.wait(3600)\n")
        await bay.wait_for(lambda: "TRIAL_FAILED" in str(bay.error("json-discovery")))
        await bay.wait_for(lambda: bay.live("json-discovery")["rev"] == 1)
        (folder / "b.json").write_text(json.dumps({"address": "127.0.0.1", "port": 2}))
        await bay.wait_for(lambda: store.endpoint("default/b") is not None)
        assert store.endpoint("default/a") is not None


async def test_discovery_of_a_package_points_no_request_where_the_operator_allows_none(host, packages, tmp_path):
    folder = tmp_path / "servers"
    folder.mkdir()
    here = {"address": "127.0.0.1", "port": 1}
    for name, entry in {
        "there": here,
        "far": here | {"address": "192.0.2.1"},
        "asked": here | {"port": 2, "metricsHost": "192.0.2.1:80"},
        "named": here | {"port": 3, "metricsHost": "metrics.example:80"},
        "cloud": here | {"address": "169.254.169.254"},
    }.items():
        (folder / f"{name}.json").write_text(json.dumps(entry))
    out = tmp_path / "packages" / "json-1"
    packages.make(out, sample("json-discovery"), id="json-discovery", types=("json-directory-discovery",), rev=1)
    listed = "discovery: {allowed_networks: [127.0.0.0/8, 169.254.0.0/16]}\n"
    async with host(DISCOVERY_PICKER.format(path=folder), config=listed) as bay:
        store = bay.host._data.store
        await bay.wait_for(lambda: store.endpoint("default/there") is not None)
        found = {endpoint.name for endpoint in store.endpoints()} - {server.name for server in bay.servers}
        problems = [text for text in bay.status()["problems"] if "ADDRESS_REFUSED" in text]
        counted = dict(bay.serving.metrics.endpoints_refused.items())
    assert found == {"there"}
    for name in ("far", "asked", "named", "cloud"):
        assert [name in text for text in problems].count(True) == 1
    assert counted == {("network",): 2, ("name",): 1, ("reserved",): 1}
