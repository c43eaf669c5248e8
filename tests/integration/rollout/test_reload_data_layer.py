"""Sources and extractors that a reload adds, changes and takes away in a whole host, while requests flow."""

import math
from pathlib import Path
from typing import Any

import hotbay.collection
import pytest
from hotbay.config.picker_config import load_picker_config
from hotbay.errors import InputError

pytestmark = [pytest.mark.process, pytest.mark.anyio, pytest.mark.timeout(180)]

HEAD = "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\n"
SCORER = "- {name: sample, type: sample-scorer}\n"
PROFILE = "schedulingProfiles:\n- {name: default, plugins: [{pluginRef: sample}]}\n"
CONFIG = "scrape: {{interval: 50ms, process: {process}}}\nbindings: {{sample: {{deadline: 5s}}}}\n"
PAGE = b"vllm:num_requests_waiting 3\nvllm:num_requests_running 1\nfirst_depth 4\n"
DEPTH = """
from hotbay_sdk import Extractor, Plugin

plugin = Plugin("depth")

@plugin.type("depth-extractor", payload="metrics", families=["first_depth"], attributes={"depth": "f32"})
class Depth(Extractor):
    def extract(self, payload, endpoint):
        return {"depth": sum(value for _, value in payload.get("first_depth", ()))}
"""


def picker(core: str = "{interval: 50ms}", more: str | None = None, behind: str = "{pluginRef: depth}") -> str:
    """A scorer, the metrics source, and a second source with an extractor of a package where `more` has its parameters."""
    text = f"{HEAD}plugins:\n{SCORER}- {{type: metrics-data-source, parameters: {core}}}\n- {{type: core-metrics-extractor}}\n"
    sources = "  - {pluginRef: metrics-data-source, extractors: [{pluginRef: core-metrics-extractor}]}\n"
    if more is not None:
        text += f"- {{name: more, type: metrics-data-source, parameters: {more}}}\n- {{name: depth, type: depth-extractor}}\n"
        sources += f"  - {{pluginRef: more, extractors: [{behind}]}}\n"
    return f"{text}{PROFILE}dataLayer:\n  sources:\n{sources}"


class Watch:
    """What is to stay as it is while sources come and go: connections of the metrics source, and its figures."""

    def __init__(self, bay: Any) -> None:
        self.unknown: list[str] = []
        self._data = bay.host._data
        self._servers = len(bay.servers)
        self._tick, self._data.before_publish = self._data.before_publish, self._look

    @property
    def connects(self) -> int:
        return self._data.collection._runs["metrics-data-source"]._scraping.counts.connects

    def faults(self) -> list[str]:
        """What is wrong: nothing, where every server has the connection that it had, and its figures were always known."""
        again = self.connects - self._servers
        return [*sorted(set(self.unknown)), *([f"{again} connections were made again"] if again else [])]

    def _look(self, now: float) -> None:
        self._tick(now)
        snapshot = self._data.store.snapshot
        for endpoint, waiting in zip(snapshot.endpoints, snapshot.columns["endpoint.waiting"], strict=False):
            if endpoint is not None and math.isnan(waiting):
                self.unknown.append(f"figures of {endpoint.id} were unknown")


def depths(bay: Any) -> set[object]:
    store = bay.host._data.store
    return {store.endpoint(f"default/{server.name}").attributes.get("depth") for server in bay.servers}


def has_column(bay: Any) -> bool:
    return "attribute.depth" in bay.host._data.store.snapshot.columns


async def edits(bay: Any, load: Any, config: str) -> None:
    """Add a source with an extractor, change both sources' neighbours, and take the added one away again."""
    collection = bay.host._data.collection

    async def adopt(text: str) -> None:
        await bay.host.adopt(bay.configure(config), load_picker_config(text, file="picker.yaml"))

    await load.more(20)
    await adopt(picker(more="{path: /metrics/more, interval: 100ms}"))
    await bay.wait_for(lambda: depths(bay) == {4.0} and has_column(bay))
    assert collection.intervals_s["more"] == 0.1
    await adopt(picker(more="{path: /metrics/more, interval: 200ms}"))
    assert collection.intervals_s["more"] == 0.2
    assert depths(bay) == {4.0}, "what the extractor said stays, for the extractor does"
    with pytest.raises(InputError, match="nowhere"):
        await adopt(picker(more="{scheme: https, caCertPath: nowhere.pem}"))
    assert collection.intervals_s["more"] == 0.2
    for server in bay.servers:
        server.page = PAGE.replace(b"first_depth 4", b"first_depth 5")
    await bay.wait_for(lambda: depths(bay) == {5.0})
    await adopt(picker())
    assert depths(bay) == {None}
    await bay.wait_for(lambda: not has_column(bay))
    assert set(collection.intervals_s) == {"metrics-data-source"}
    await load.more(20)


async def begun(bay: Any) -> None:
    for server in bay.servers:
        server.page = PAGE
    await bay.wait_for(lambda: all(row == 3.0 for row in bay.host._data.store.snapshot.columns["endpoint.waiting"]))


@pytest.mark.parametrize("process", [pytest.param("false", marks=pytest.mark.slow), "true"])
async def test_sources_come_change_and_go_under_load_and_what_did_not_change_is_not_interrupted(
    host, text, packages, tmp_path: Path, process: str
):
    packages.make(tmp_path / "packages" / "v1", text.scorer("v1"))
    packages.make(tmp_path / "packages" / "depth-1", DEPTH, id="depth", types=("depth-extractor",))
    config = CONFIG.format(process=process)
    async with host(picker(), config=config) as bay:
        await begun(bay)
        watch = Watch(bay)
        async with bay.load(100) as load:
            await edits(bay, load, config)
        assert load.failed == []
        assert bay.degraded() == {}
        assert watch.faults() == []
        assert bay.serving.metrics.extract_errors.get("more", "depth") == 0
        # Another interval of the core figures is another source: they are known all the time.
        slower = load_picker_config(picker("{interval: 300ms}"), file="picker.yaml")
        await bay.host.adopt(bay.configure(config), slower)
        await bay.wait_for(lambda: not bay.host._data.collection._leaving)
        assert bay.host._data.collection.intervals_s == {"metrics-data-source": 0.3}
        assert watch.unknown == []


@pytest.mark.slow
async def test_negative_control_of_sources_that_begin_anew_with_each_configuration(
    host, text, packages, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The same edits where nothing goes on: the check above finds it."""
    packages.make(tmp_path / "packages" / "v1", text.scorer("v1"))
    packages.make(tmp_path / "packages" / "depth-1", DEPTH, id="depth", types=("depth-extractor",))
    config = CONFIG.format(process="false")
    async with host(picker(), config=config) as bay:
        await begun(bay)
        watch = Watch(bay)
        monkeypatch.setattr(hotbay.collection, "_goes_on", lambda _run, _binding: False)
        async with bay.load(100) as load:
            await edits(bay, load, config)
        assert [fault for fault in watch.faults() if "connections were made again" in fault]
