"""Endpoint files on a real disk: first look, live reload, last good."""

import logging
import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from hotbay.config.discovery_parameters import FileDiscovery
from hotbay.config.documents import MAX_BYTES
from hotbay.datalayer.discovery.discovery import Discovery
from hotbay.datalayer.discovery.plans import discovery_plan
from hotbay.datalayer.endpoint import Delete, EndpointEvent, EndpointMetadata, Upsert
from hotbay.datalayer.store import EndpointStore
from hotbay.errors import InputError
from hotbay.observe.background import Background

pytestmark = pytest.mark.anyio

ONE = "endpoints: [{name: ep1, address: 10.0.0.1, port: 8000}]\n"
TWO = "endpoints: [{name: ep1, address: 10.0.0.1, port: 8000}, {name: ep2, address: 10.0.0.2, port: 8000}]\n"


def endpoint(name: str, address: str, port: int = 8000) -> EndpointMetadata:
    return EndpointMetadata(f"default/{name}", name, address, port)


def ids(store: EndpointStore) -> list[str]:
    return [e.id for e in store.endpoints()]


def discovery_of(store: EndpointStore, file: Path, configured: Sequence[EndpointMetadata] = ()) -> Discovery:
    plan = discovery_plan("file", FileDiscovery(file.name, watch_file=True), file.parent)
    return Discovery(store, configured=configured, plans=[plan], background=Background(), draw=lambda: 0.0)


class Changes:
    """Hears a store's events."""

    def __init__(self, store: EndpointStore) -> None:
        self.events: list[EndpointEvent] = []
        self._store = store
        self._news = anyio.Event()
        store.subscribe(self._hear)

    def _hear(self, event: EndpointEvent) -> None:
        self.events.append(event)
        self._news.set()
        self._news = anyio.Event()

    async def until(self, condition: Callable[[], bool]) -> None:
        with anyio.fail_after(15):
            while not condition():
                await self._news.wait()


class ProblemLines(logging.Handler):
    """Waits for the log to speak of a problem of discovery."""

    def __init__(self) -> None:
        super().__init__()
        self._spoke = anyio.Event()
        logging.getLogger("hotbay.datalayer.discovery.feed").addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        if record.getMessage().startswith("discovery_problem last_good=kept"):
            self._spoke.set()

    async def wait(self) -> None:
        with anyio.fail_after(15):
            await self._spoke.wait()
        logging.getLogger("hotbay.datalayer.discovery.feed").removeHandler(self)


def save(file: Path, text: str) -> None:
    """Replace the file as an editor does: a new one beside it, renamed over it."""
    part = file.with_suffix(".part")
    part.write_text(text)
    part.rename(file)


@asynccontextmanager
async def following(discovery: Discovery) -> AsyncIterator[None]:
    await discovery.check()
    async with anyio.create_task_group() as tasks:
        await tasks.start(discovery.run)
        with anyio.fail_after(15):
            await discovery.ready.wait()
        yield
        tasks.cancel_scope.cancel()


async def test_the_first_look_fills_the_store_and_is_ready(tmp_path: Path) -> None:
    file = tmp_path / "endpoints.yaml"
    file.write_text(TWO)
    store = EndpointStore()
    discovery = discovery_of(store, file)
    assert not discovery.ready.is_set()
    async with following(discovery):
        assert ids(store) == ["default/ep1", "default/ep2"]


async def test_zero_endpoints_are_ready_too(tmp_path: Path) -> None:
    file = tmp_path / "endpoints.yaml"
    file.write_text("endpoints: []")
    async with following(discovery_of(EndpointStore(), file)):
        pass


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("endpoints: [{name: a, address: not-an-ip, port: 8000}]", "an IPv4 or IPv6 address"),
        ("endpoints: [{name: a, address: 10.0.0.1, port: '0'}]", "1 to 65535"),
        ("endpoints: [{name: a, address: 10.0.0.1, port: abc}]", "1 to 65535"),
        ("endpoints: []\n#" + "x" * MAX_BYTES, "too large"),
        (ONE + "endpoints: []\n", "lines 1 and 2"),
        (None, "No such file"),
    ],
    ids=["address", "port-0", "port-abc", "size", "duplicate-key", "missing"],
)
async def test_ed02_a_first_look_that_cannot_be_used_raises_and_applies_nothing(
    tmp_path: Path, text: str | None, message: str
) -> None:
    file = tmp_path / "endpoints.yaml"
    if text is not None:
        file.write_text(text)
    store = EndpointStore()
    discovery = discovery_of(store, file)
    with pytest.raises(InputError, match=message) as caught:
        await discovery.check()
    assert str(file) in str(caught.value)
    problem_lines = ProblemLines()
    async with anyio.create_task_group() as tasks:
        await tasks.start(discovery.run)
        await problem_lines.wait()
        assert not discovery.ready.is_set()
        assert len(store) == 0
        assert message in str(discovery.problems[0])
        tasks.cancel_scope.cancel()


async def test_a_run_that_found_no_file_finds_it_later(tmp_path: Path) -> None:
    file = tmp_path / "endpoints.yaml"
    store = EndpointStore()
    discovery = discovery_of(store, file)
    problem_lines = ProblemLines()
    async with anyio.create_task_group() as tasks:
        await tasks.start(discovery.run)
        await problem_lines.wait()
        save(file, ONE)
        with anyio.fail_after(15):
            await discovery.ready.wait()
        assert (ids(store), discovery.problems) == (["default/ep1"], ())
        tasks.cancel_scope.cancel()


async def test_ed02_ipv6_and_integer_ports_are_accepted(tmp_path: Path) -> None:
    file = tmp_path / "endpoints.json"
    file.write_text('{"endpoints": [{"name": "a", "address": "::1", "port": 8000}]}')
    store = EndpointStore()
    async with following(discovery_of(store, file)):
        assert [e.authority for e in store.endpoints()] == ["[::1]:8000"]


async def test_ed03_a_reload_upserts_and_then_deletes(tmp_path: Path) -> None:
    file = tmp_path / "endpoints.yaml"
    file.write_text(TWO)
    store = EndpointStore()
    async with following(discovery_of(store, file)):
        changes = Changes(store)
        save(file, ONE.replace("8000", "9000"))
        await changes.until(lambda: len(changes.events) == 2)
    assert changes.events == [Upsert(endpoint("ep1", "10.0.0.1", 9000)), Delete(endpoint("ep2", "10.0.0.2"))]


async def test_s26_a_port_that_is_taken_away_is_gone_after_one_reload(tmp_path: Path) -> None:
    file = tmp_path / "endpoints.yaml"
    file.write_text("endpoints: [{name: a, address: 10.0.0.1, ports: [8000, 8001]}]\n")
    store = EndpointStore()
    async with following(discovery_of(store, file)):
        assert sorted(one.authority for one in store.endpoints()) == ["10.0.0.1:8000", "10.0.0.1:8001"]
        changes = Changes(store)
        save(file, "endpoints: [{name: a, address: 10.0.0.1, ports: [8001]}]\n")
        await changes.until(lambda: len(store) == 1)
        assert [(one.authority, one.rank_index) for one in store.endpoints()] == [("10.0.0.1:8001", 0)]
        assert [type(event) for event in changes.events] == [Upsert, Delete]


async def test_s28_a_changed_label_is_one_event_and_a_save_that_changes_nothing_is_none(tmp_path: Path) -> None:
    file = tmp_path / "endpoints.yaml"
    file.write_text(ONE)
    store = EndpointStore()
    async with following(discovery_of(store, file)):
        changes = Changes(store)
        save(file, f"# a remark\n{ONE}")
        save(file, "endpoints: [{name: ep1, address: 10.0.0.1, port: 8000, labels: {role: decode}}]\n")
        await changes.until(lambda: bool(changes.events))
        save(file, TWO.replace("port: 8000}", "port: 8000, labels: {role: decode}}", 1))
        await changes.until(lambda: len(store) == 2)
    assert [event.endpoint.name for event in changes.events] == ["ep1", "ep2"]


async def test_reloads_follow_saves_in_place_by_rename_and_by_link(tmp_path: Path) -> None:
    file = tmp_path / "endpoints.yaml"
    file.write_text(ONE)
    store = EndpointStore()
    async with following(discovery_of(store, file)):
        changes = Changes(store)
        file.write_text(TWO)
        await changes.until(lambda: len(store) == 2)
        save(file, ONE)
        await changes.until(lambda: len(store) == 1)
        target = tmp_path / "other.yaml"
        target.write_text(TWO)
        link = tmp_path / "link"
        link.symlink_to(target)
        os.replace(link, file)  # noqa: PTH105 - as a link is swapped
        await changes.until(lambda: len(store) == 2)


async def test_reloads_follow_a_volume_whose_data_link_is_swapped(tmp_path: Path) -> None:
    """A ConfigMap's volume: the file is a link into `..data`, itself a link, which is renamed over."""
    for version, text in (("..1", ONE), ("..2", TWO)):
        (tmp_path / version).mkdir()
        (tmp_path / version / "endpoints.yaml").write_text(text)
    (tmp_path / "..data").symlink_to("..1")
    file = tmp_path / "endpoints.yaml"
    file.symlink_to("..data/endpoints.yaml")
    store = EndpointStore()
    async with following(discovery_of(store, file)):
        changes = Changes(store)
        (tmp_path / "..data_tmp").symlink_to("..2")
        os.replace(tmp_path / "..data_tmp", tmp_path / "..data")  # noqa: PTH105 - as the kubelet does
        await changes.until(lambda: len(store) == 2)


async def test_a_bad_reload_keeps_what_was_good_and_says_why(tmp_path: Path) -> None:
    file = tmp_path / "endpoints.yaml"
    file.write_text(TWO)
    store = EndpointStore()
    discovery = discovery_of(store, file)
    async with following(discovery):
        changes = Changes(store)
        before = store.endpoints()
        save(file, TWO.replace("10.0.0.2", "nowhere").replace("10.0.0.1", "10.0.0.7"))
        await changes.until(lambda: bool(changes.events))
        assert changes.events == [Upsert(endpoint("ep1", "10.0.0.7"))]
        assert store.endpoints()[1] == before[1]
        assert [p.path for p in discovery.problems] == ["endpoints[1].address"]
        save(file, TWO)
        await changes.until(lambda: len(changes.events) == 2)
        assert discovery.problems == ()


@pytest.mark.parametrize("harm", ["syntax", "size", "gone", "directory"])
async def test_a_file_that_cannot_be_used_any_more_keeps_every_endpoint(tmp_path: Path, harm: str) -> None:
    file = tmp_path / "endpoints.yaml"
    file.write_text(TWO)
    store = EndpointStore()
    discovery = discovery_of(store, file)
    problem_lines = ProblemLines()
    async with following(discovery):
        changes = Changes(store)
        match harm:
            case "syntax":
                save(file, "endpoints: [")
            case "size":
                save(file, ONE + "#" * MAX_BYTES)
            case "gone":
                file.unlink()
            case _:
                file.unlink()
                file.mkdir()
        await problem_lines.wait()
        assert ids(store) == ["default/ep1", "default/ep2"]
        assert changes.events == []
        if harm == "directory":
            file.rmdir()
        save(file, ONE)
        await changes.until(lambda: len(store) == 1)
        assert discovery.problems == ()


async def test_configured_endpoints_and_a_file_make_one_pool(tmp_path: Path) -> None:
    file = tmp_path / "endpoints.yaml"
    file.write_text(TWO)
    store = EndpointStore()
    discovery = discovery_of(store, file, [endpoint("c", "10.0.0.2"), endpoint("d", "10.0.0.4")])
    async with following(discovery):
        assert sorted(ids(store)) == ["default/c", "default/d", "default/ep1"]
        changes = Changes(store)
        discovery.configure([endpoint("d", "10.0.0.4")])
        assert changes.events == [Upsert(endpoint("ep2", "10.0.0.2")), Delete(endpoint("c", "10.0.0.2"))]
        save(file, "endpoints: []")
        await changes.until(lambda: ids(store) == ["default/d"])
