"""Sources of packages, exchanged while data flow: each object comes once and goes once, in its turn, and polls keep their order."""

import json
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from hotbay.config.data_types import ObjectKind
from hotbay.datalayer.remote import runs as runs_module
from hotbay.datalayer.remote.runs import Runs
from hotbay.datalayer.remote.succession import Succession
from hotbay.datalayer.remote.watching import RemoteWatchSource
from hotbay.datalayer.source import EventType, ObjectEvent

pytestmark = [pytest.mark.process, pytest.mark.anyio, pytest.mark.timeout(180)]

SAMPLE = Path(__file__).resolve().parents[3] / "plugins" / "samples" / "file-sources" / "hotbay_file_sources"
TYPES = ("note-watch-source", "note-extractor", "status-source", "status-extractor")
NOTES = ObjectKind("samples.hotbay", "v1", "ServerNote")
WAIT_S = 60.0
TRIALS = (
    "swap: {shadow: {for: 200ms}, canary: {for: 200ms, min_requests: 100000}, guard: {for: 500ms, calls: 100000}}\n"
)
"""More requests and calls than ever come: a trial that waited for them would not end."""
HEAD = "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\n"


def write(folder: Path, name: str, entry: object) -> None:
    part = folder / f".{name}.part"
    part.write_text(json.dumps(entry))
    part.rename(folder / f"{name}.json")


def sample(packages: Any, tmp_path: Path, rev: int, body: str = "") -> None:
    """Another version of the sample, which polls more often, and does what `body` says."""
    source = f"REV = {rev}\n{(SAMPLE / '__init__.py').read_text()}\n{body}\n".replace(
        "interval_s=0.5", "interval_s=0.05"
    )
    packages.make(tmp_path / "packages" / f"sources-{rev}", source, id="file-sources", types=TYPES, rev=rev)


# -- objects -------------------------------------------------------------------------------------

LOG = """
from hotbay_sdk import EventExtractor, Plugin

plugin = Plugin("note-log")

@plugin.type("note-log", payload="object:samples.hotbay/v1/ServerNote", attributes={"seen": "i64"},
             parameters=lambda raw: raw)
class NoteLog(EventExtractor):
    def __init__(self, context, parameters):
        self.path = parameters["path"]

    def extract(self, event):
        with open(self.path, "a") as log:
            log.write(f"{event['type']} {event['key']} {event['object']['spec']['rank']}\\n")
        return {}
"""
UNWATCHED = (
    HEAD
    + """plugins:
- {{name: notes, type: note-watch-source, parameters: {{path: {notes}, interval_s: 0.05}}}}
- {{name: log, type: note-log, parameters: {{path: {log}}}}}
"""
)
"""Nobody but the test asks for the notes."""
NOTE_PICKER = (
    UNWATCHED
    + """dataLayer:
  sources:
  - {{pluginRef: notes, extractors: [{{pluginRef: log}}]}}
"""
)
KEPT = 30
"""Notes that are there at a time, once so many came."""


@dataclass
class Churn:
    """Notes that come and go, one after the other: the first comes first and goes first. A note's rank is its number."""

    folder: Path
    came: int = 0
    stop: bool = False

    def come(self) -> None:
        self.came += 1
        write(self.folder, f"n{self.came:05}", {"rank": self.came})
        gone = self.came - KEPT
        if gone > 0:
            (self.folder / f"n{gone:05}.json").unlink()

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


Told = tuple[str, str]
"""Type of an event, and the key of its object."""


def there(told: Iterable[Told]) -> set[str]:
    """Objects that are there by these events."""
    found: set[str] = set()
    for kind, key in told:
        (found.add if kind == EventType.ADD_OR_UPDATE else found.discard)(key)
    return found


def faults(told: list[Told], churn: Churn) -> list[str]:
    """What is wrong: nothing, where each object came once and went once, in its turn, and the right ones are there."""
    found = []
    if there(told) != churn.there:
        found.append(f"lost {sorted(there(told) ^ churn.there)[:5]}")
    for what, kind in (("came", EventType.ADD_OR_UPDATE), ("went", EventType.DELETE)):
        keys = [key for event, key in told if event == kind]
        if len(set(keys)) < len(keys):
            found.append(f"{what} twice")
        if keys != sorted(keys):
            found.append(f"{what} in another order")
    return found


def logged(log: Path) -> list[Told]:
    """What the extractor was told. Its object is whole: its rank is the number in its name."""
    told = []
    for line in log.read_text().splitlines():
        kind, key, rank = line.split()
        assert key == f"n{int(rank):05}"
        told.append((kind, key))
    return told


@asynccontextmanager
async def noted(
    host: Any, packages: Any, tmp_path: Path, picker: str = NOTE_PICKER
) -> AsyncIterator[tuple[Any, Churn, Path, Callable[[int], Awaitable[None]]]]:
    """A host whose notes are watched by the sample, which come and go, and what puts another version in its place."""
    folder, log = tmp_path / "notes", tmp_path / "notes.log"
    folder.mkdir()
    log.touch()
    churn = Churn(folder)
    for _ in range(KEPT):
        churn.come()
    sample(packages, tmp_path, 1)
    packages.make(tmp_path / "packages" / "log-1", LOG, id="note-log", types=("note-log",))
    async with host(picker.format(notes=folder, log=log)) as bay:

        async def publish(rev: int) -> None:
            sample(packages, tmp_path, rev)
            await bay.rev_is_live(rev, "file-sources")

        async with anyio.create_task_group() as group:
            group.start_soon(churn.run)
            try:
                yield bay, churn, log, publish
            finally:
                churn.stop = True


async def swaps_and_a_death(bay: Any, until: Any, churn: Churn, publish: Callable[[int], Awaitable[None]]) -> None:
    """Versions 2 and 3 while notes come and go, and the sudden end of a process."""
    await churn.more(until, 10)
    await publish(2)
    await churn.more(until, 10)
    before = bay.live("file-sources")
    os.kill(before["pid"], signal.SIGKILL)
    await bay.wait_for(lambda: bay.live("file-sources") and bay.live("file-sources")["pid"] != before["pid"])
    await churn.more(until, 10)
    await publish(3)
    await churn.more(until, 10)
    churn.stop = True


async def test_no_object_is_lost_told_twice_or_out_of_turn_by_swaps_and_a_death(host, packages, until, tmp_path):
    async with noted(host, packages, tmp_path) as (bay, churn, log, publish):
        await until(lambda: there(logged(log)) >= {f"n{KEPT:05}"}, within_s=WAIT_S)
        await swaps_and_a_death(bay, until, churn, publish)
        await bay.wait_for(lambda: there(logged(log)) == churn.there)
        assert faults(logged(log), churn) == []
        assert bay.host._data.problems == ()
        events = bay.serving.metrics.data_events
        assert (events.get("notes", "delivered"), events.get("notes", "failed")) == (len(logged(log)), 0)


class Naive(Runs[Any]):
    """Begins anew with each process, as whoever stops the old one before the new one has told anything."""

    listener: Any

    def _follow_current(self, now_s: float) -> None:
        live = self._generations.current(self._ref)
        if self._followed is not None and self._followed.live != live:
            self._close(self._followed)
            self._followed = None
            self._succession = Succession()
            self.listener.replace(())
        super()._follow_current(now_s)


@pytest.mark.slow
async def test_negative_control_of_a_source_that_begins_anew_with_each_version(host, packages, until, tmp_path):
    """The same notes and swaps: the check above finds what goes wrong."""
    told: list[Told] = []

    async def emit(event: ObjectEvent) -> None:
        told.append((event.type, event.key))
        await anyio.lowlevel.checkpoint()

    noting = noted(host, packages, tmp_path, UNWATCHED)
    async with noting as (bay, churn, _, publish), anyio.create_task_group() as group:
        plugins = bay.host._data.plugins
        source = RemoteWatchSource("note-watch-source", NOTES, "notes", plugins, plugins)
        source._runs = naive = Naive("notes", source._run_kind(), plugins, plugins)
        naive.listener = source._telling
        group.start_soon(source.run, emit)
        await until(lambda: there(told), within_s=WAIT_S)
        await swaps_and_a_death(bay, until, churn, publish)
        await bay.wait_for(lambda: there(told) == churn.there)
        group.cancel_scope.cancel()
    found = faults(told, churn)
    assert "came twice" in found
    assert "went twice" in found


BAD_WATCHES = {
    "untold": "NoteWatchSource.watch = lambda self, notifier: notifier.wait(3600)",
    "raises": "def _watch(self, notifier): raise OSError('gone')\nNoteWatchSource.watch = _watch",
    "nonsense": """
def _watch(self, notifier):
    notifier.upsert({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "n"}})
    notifier.ready()
    while not notifier.wait(0.05):
        notifier.upsert({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "n"}})
NoteWatchSource.watch = _watch
""",
}


@pytest.mark.parametrize(
    ("bad", "code"),
    [
        ("untold", "DEADLINE_EXCEEDED"),
        pytest.param("raises", "PLUGIN_ERROR", marks=pytest.mark.slow),
        pytest.param("nonsense", "BAD_RESULT", marks=pytest.mark.slow),
    ],
)
async def test_version_of_a_source_that_tells_nothing_or_nonsense_is_taken_back_and_the_old_one_is_heard(
    host, packages, tmp_path, monkeypatch: pytest.MonkeyPatch, bad: str, code: str
):
    # The defence at its own times takes half a minute.
    monkeypatch.setattr(runs_module, "READY_S", 0.3)
    folder, log = tmp_path / "notes", tmp_path / "notes.log"
    folder.mkdir()
    log.touch()
    write(folder, "n00001", {"rank": 1})
    sample(packages, tmp_path, 1)
    packages.make(tmp_path / "packages" / "log-1", LOG, id="note-log", types=("note-log",))
    async with host(NOTE_PICKER.format(notes=folder, log=log), config=TRIALS) as bay:
        await bay.wait_for(lambda: there(logged(log)) == {"n00001"})
        sample(packages, tmp_path, 2, BAD_WATCHES[bad])
        await bay.wait_for(lambda: "TRIAL_FAILED" in str(bay.error("file-sources")))
        await bay.wait_for(lambda: bay.live("file-sources")["rev"] == 1)
        write(folder, "n00002", {"rank": 2})
        await bay.wait_for(lambda: there(logged(log)) >= {"n00002"})
        assert ("watch", "notes", code) in bay.plugin_errors()
        # What a version that told nothing of it saw to be gone is gone, and comes again with the one before.
        assert there(logged(log)) == {"n00001", "n00002"}
        if bad != "nonsense":
            assert len(logged(log)) == 2


# -- polls ---------------------------------------------------------------------------------------

POLL_LOG = """
from hotbay_sdk import Extractor, Plugin

plugin = Plugin("status-log")

@plugin.type("status-log", payload="json", attributes={"seen": "i64"}, concurrency=4, parameters=lambda raw: raw)
class StatusLog(Extractor):
    def __init__(self, context, parameters):
        self.path = parameters["path"]

    def extract(self, payload, endpoint):
        with open(self.path, "a") as log:
            log.write(f"{endpoint['name']} {payload['number']} {payload['version']}\\n")
        return {"seen": payload["number"]}
"""
POLL_PICKER = (
    HEAD
    + """plugins:
- {{name: statuses, type: status-source, parameters: {{path: {statuses}}}}}
- {{name: status, type: status-extractor}}
- {{name: log, type: status-log, parameters: {{path: {log}}}}}
dataLayer:
  sources:
  - {{pluginRef: statuses, extractors: [{{pluginRef: status}}, {{pluginRef: log}}]}}
"""
)
NUMBERED = """
import itertools
_poll, _numbers = StatusSource.poll, {}
def _numbered(self, endpoint):
    numbers = _numbers.setdefault(endpoint["id"], itertools.count(1))
    return {**_poll(self, endpoint), "version": REV, "number": REV * 100_000 + next(numbers)}
StatusSource.poll = _numbered
"""
"""What each version brings is numbered, and each version's numbers are above those of the versions before."""


@asynccontextmanager
async def polled(
    host: Any, packages: Any, servers: list[Any], tmp_path: Path, config: str = ""
) -> AsyncIterator[tuple[Any, Path]]:
    folder, log = tmp_path / "statuses", tmp_path / "status.log"
    folder.mkdir()
    log.touch()
    for server in servers:
        write(folder, server.name, {"load": 0.25})
    sample(packages, tmp_path, 1, NUMBERED)
    packages.make(tmp_path / "packages" / "log-1", POLL_LOG, id="status-log", types=("status-log",))
    async with host(POLL_PICKER.format(statuses=folder, log=log), config=config) as bay:
        yield bay, log


def numbers(log: Path) -> dict[str, list[int]]:
    """What the extractor read of each server, in its order."""
    found: dict[str, list[int]] = {}
    for line in log.read_text().splitlines():
        name, number, _version = line.split()
        found.setdefault(name, []).append(int(number))
    return found


def loads(bay: Any) -> set[object]:
    store = bay.host._data.store
    return {store.endpoint(f"default/{server.name}").attributes.get("status_load") for server in bay.servers}


async def test_polls_of_a_source_of_a_package_keep_their_order_across_swaps(host, packages, servers, tmp_path):
    async with polled(host, packages, servers, tmp_path) as (bay, log):
        await bay.wait_for(lambda: loads(bay) == {0.25})
        for rev in (2, 3):
            sample(packages, tmp_path, rev, NUMBERED)
            await bay.wait_for(lambda rev=rev: all(read[-1] > rev * 100_000 + 3 for read in numbers(log).values()))
        for name, read in numbers(log).items():
            assert read == sorted(set(read)), name
            assert {number // 100_000 for number in read} == {1, 2, 3}
        assert bay.host._data.collection.intervals_s["statuses"] == pytest.approx(0.05)
        assert [labels for labels in bay.plugin_errors() if labels[0] == "poll"] == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("body", "code"),
    [
        ("def _bad(self, endpoint): raise OSError('gone')", "PLUGIN_ERROR"),
        ("def _bad(self, endpoint): return {1: 2}", "BAD_RESULT"),
        ("import time\ndef _bad(self, endpoint): time.sleep(1.2)", "DEADLINE_EXCEEDED"),
        ("import os\ndef _bad(self, endpoint): os._exit(3)", "CRASHED"),
    ],
    ids=["raises", "wrong", "slow", "dies"],
)
async def test_version_of_a_source_whose_polls_fail_is_taken_back_and_its_failures_are_counted(
    host, packages, servers, tmp_path, body: str, code: str
):
    # Who is late is found out by few calls: two servers, a second each.
    config = TRIALS.replace("500ms, calls", "8s, calls") if code == "DEADLINE_EXCEEDED" else TRIALS
    async with polled(host, packages, servers, tmp_path, config=config) as (bay, log):
        await bay.wait_for(lambda: loads(bay) == {0.25})
        failed = bay.serving.metrics.poll_errors.get("statuses")
        sample(packages, tmp_path, 2, f"{body}\nStatusSource.poll = _bad")
        await bay.wait_for(lambda: bay.error("file-sources"))
        await bay.wait_for(lambda: bay.live("file-sources")["rev"] == 1)
        seen = len(log.read_text())
        await bay.wait_for(lambda: len(log.read_text()) > seen)
        assert bay.serving.metrics.poll_errors.get("statuses") > failed
        assert code in {labels[-1] for labels in bay.plugin_errors() if labels[0] == "poll"} | {
            bay.error("file-sources")["code"]
        }
        assert loads(bay) == {0.25}
