"""How often sources are polled, and what follows from it: how long figures count, and what the operator is told."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import pytest
from anyio.abc import TaskStatus
from hotbay.config.host_config import HostConfig, load_host_config
from hotbay.config.picker_config import PickerConfig, load_picker_config
from hotbay.data_layer import DataLayer
from hotbay.datalayer.endpoint import EndpointMetadata, Metrics
from hotbay.datalayer.pages.extraction import MetricsPage
from hotbay.datalayer.scraping.in_loop import ScrapeStore
from hotbay.datalayer.scraping.metrics_source import MetricsPoller
from hotbay.datalayer.scraping.records import ScrapeCounts
from hotbay.datalayer.sources.scraped import OnPage
from hotbay.datalayer.tables.freshness import Freshness, StalePolicy
from hotbay.observe.background import Background
from hotbay.observe.metrics import Metrics as Counted
from hotbay.rpc.leases import LiveRef
from hotbay_sdk.protocol import DataDeclaration, TypeDeclaration

pytestmark = pytest.mark.anyio

HEAD = "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\n"
SLOW = """
plugins:
- {name: metrics-data-source, type: metrics-data-source, parameters: {interval: 5s}}
- {type: core-metrics-extractor}
- {type: dcgm-data-source}
- {type: models-data-source, parameters: {interval: 130ms}}
dataLayer:
  sources:
  - {pluginRef: metrics-data-source, extractors: [{pluginRef: core-metrics-extractor}]}
  - {pluginRef: dcgm-data-source}
  - {pluginRef: models-data-source}
"""
A = EndpointMetadata("default/a", "a", "10.0.0.1", 8000)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@dataclass
class Scripted:
    """A `Scraping` that fetches nothing: a test says what came and how it goes."""

    store: ScrapeStore
    source: MetricsPoller
    on_page: OnPage
    widened: Callable[[float], None]
    factor: float = 1.0
    counts: ScrapeCounts = field(default_factory=ScrapeCounts)

    @property
    def interval_s(self) -> float:
        return self.source.interval_s

    def want(self, names: Iterable[str]) -> None:
        self.source.want(names)

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        task_status.started()
        await anyio.sleep_forever()

    def widen(self, factor: float) -> None:
        self.factor = factor
        self.widened(factor)


@dataclass
class Made:
    """A data layer that is loaded, and the scrapings that it made, by source."""

    data: DataLayer
    counts: Counted
    scraped: dict[str, Scripted] = field(default_factory=dict)


def host(tmp_path: Path, text: str = "") -> HostConfig:
    head = "apiVersion: hotbay/v1alpha1\nkind: HostConfig\nstate_dir: state\n"
    return load_host_config(head + text, file="host.yaml", base_directory=tmp_path, environment={}, is_root=False)


def picker(text: str = "") -> PickerConfig:
    return load_picker_config(HEAD + text, file="picker.yaml")


async def loaded(config: HostConfig, chosen: PickerConfig, directory: Path) -> Made:
    scraped: dict[str, Scripted] = {}

    def make(store: ScrapeStore, source: MetricsPoller, on_page: OnPage, widened: Callable[[float], None]) -> Scripted:
        return scraped.setdefault(source.name, Scripted(store, source, on_page, widened))

    counts = Counted()
    data = DataLayer(
        config, chosen, directory=directory, background=Background(), metrics=counts, make_scraper=make
    )  # fmt: skip
    await data.load()
    return Made(data, counts, scraped)


async def test_figures_count_for_as_long_as_the_configuration_says_from_the_start_and_after_a_reload(
    tmp_path: Path,
) -> None:
    made = await loaded(
        host(tmp_path, "freshness: {stale_after: 1s, fields: {lora: 10s}, failures: 5}"), picker(), tmp_path
    )
    assert made.data.store.freshness == Freshness(1.0, {"lora": 10.0}, failures=5)
    made.data.configure(
        host(tmp_path, "freshness: {stale_after: 3s, policy: ignore}"), await made.data.prepare(picker())
    )
    assert made.data.store.freshness == Freshness(3.0, policy=StalePolicy.IGNORE)


async def test_figures_of_a_slow_source_count_for_three_of_its_intervals(tmp_path: Path) -> None:
    made = await loaded(host(tmp_path), picker(SLOW), tmp_path)
    assert made.data.store.freshness.stale_after_s == 15.0


async def test_without_a_source_of_figures_they_count_for_as_long_as_is_written(tmp_path: Path) -> None:
    text = """
plugins: [{type: models-data-source, parameters: {interval: 9s}}]
dataLayer: {injectDefaults: false, sources: [{pluginRef: models-data-source}]}
"""
    made = await loaded(host(tmp_path), picker(text), tmp_path)
    assert made.data.collection.longest_report_s == 0.0
    assert made.data.store.freshness == Freshness()


async def test_figures_count_longer_while_pressure_makes_intervals_longer(tmp_path: Path) -> None:
    made = await loaded(host(tmp_path, "scrape: {interval: 100ms}"), picker(), tmp_path)
    store, (one,) = made.data.store, made.scraped.values()
    store.upsert(A)
    store.update_metrics(A.id, Metrics(waiting=1.0), 0.0)
    one.widen(20.0)
    assert store.freshness.stale_after_s == pytest.approx(6.0)
    assert store.publish(5.9).columns["endpoint.waiting"][0] == 1.0
    made.data.configure(host(tmp_path, "freshness: {stale_after: 1s}"), await made.data.prepare(picker()))
    assert store.freshness.stale_after_s == pytest.approx(6.0)
    one.widen(1.0)
    assert store.freshness.stale_after_s == 1.0


async def test_pressure_on_a_source_that_brings_no_figures_changes_nothing_for_them(tmp_path: Path) -> None:
    made = await loaded(host(tmp_path), picker(SLOW), tmp_path)
    made.scraped["dcgm-data-source"].widen(2.0)
    assert made.data.store.freshness.stale_after_s == 15.0
    assert made.data.collection.intervals_s["dcgm-data-source"] == 2.0


async def test_the_interval_of_each_source_is_told_as_it_is_used(tmp_path: Path) -> None:
    made = await loaded(host(tmp_path), picker(SLOW), tmp_path)
    assert made.data.collection.intervals_s == pytest.approx(
        {"metrics-data-source": 5.0, "dcgm-data-source": 1.0, "models-data-source": 0.15}
    )


async def test_a_page_that_lacks_something_counts_as_an_error_of_the_core_extractor(tmp_path: Path) -> None:
    made = await loaded(host(tmp_path), picker(), tmp_path)
    (one,) = made.scraped.values()
    one.on_page(A, MetricsPage("vllm", Metrics()))
    assert made.counts.extract_errors.total() == 0
    one.on_page(A, MetricsPage("vllm", Metrics(), missing=("waiting", "running")))
    one.on_page(A, MetricsPage("vllm", Metrics(), invalid=("kv_usage",)))
    assert made.counts.extract_errors.get("metrics-data-source", "core-metrics-extractor") == 2


async def test_pages_without_the_core_extractor_say_nothing_of_the_endpoint(tmp_path: Path) -> None:
    made = await loaded(host(tmp_path), picker(SLOW), tmp_path)
    store, exporter = made.data.store, made.scraped["dcgm-data-source"]
    assert not exporter.store.record_scrape_failure(A.id, "gone")
    store.upsert(A)
    assert exporter.store.update_metrics(A.id, Metrics(waiting=1.0), 1.0)
    for _ in range(5):
        assert exporter.store.record_scrape_failure(A.id, "refused")
    status, live = store.scrape_status(A.id), store.endpoint(A.id)
    assert status is not None
    assert live is not None
    assert (status.scrapes, live.metrics) == (0, Metrics())
    assert made.counts.poll_errors.get("dcgm-data-source") == 5
    store.update_metrics(A.id, Metrics(), 1.0)
    assert store.publish(1.0).columns["endpoint.healthy"][0] == 1.0


async def test_who_asks_for_an_endpoint_that_went_decides_again_with_the_pool_that_took_its_place(
    tmp_path: Path,
) -> None:
    made = await loaded(host(tmp_path), picker(), tmp_path)
    store, b = made.data.store, EndpointMetadata("default/b", "b", "10.0.0.2", 8000)
    store.upsert(A)
    store.publish(1.0)
    assert made.data.look(A) == A
    store.upsert(b)
    store.delete(A.id)
    assert store.snapshot.ids == (A.id,), "the tick has not come yet"
    assert made.data.look(A) is None
    assert [one for one in store.snapshot.endpoints if one is not None] == [b]


class Declared:
    """What the processes of packages have said."""

    def __init__(self, **types: TypeDeclaration) -> None:
        self.types = types

    def current(self, ref: str) -> LiveRef | None:
        return None

    def declared(self, ref: str) -> TypeDeclaration | None:
        return self.types.get(ref)

    def watch(self, changed: Callable[[], None]) -> Callable[[], None]:
        return lambda: None


COOL = """
plugins: [{name: cool, type: cool-scorer}, {name: temp, type: temp-extractor}]
"""
FED = COOL + "dataLayer: {sources: [{pluginRef: metrics-data-source, extractors: [{pluginRef: temp}]}]}"
FED = FED.replace("}]\n", "}, {type: metrics-data-source}]\n", 1)


async def test_what_is_listed_and_never_asked_and_what_nobody_makes_is_warned_of_once_all_is_known(
    tmp_path: Path,
) -> None:
    made = await loaded(host(tmp_path, "freshness: {fields: {attribute.typo: 1s}}"), picker(COOL), tmp_path)
    data = made.data
    cool = TypeDeclaration("cool-scorer", ("score",), ("attribute.temp",))
    temp = TypeDeclaration("temp-extractor", ("extract",), data=DataDeclaration("metrics", (), {"temp": "f32"}))
    assert data.warnings == ()
    data.plugins.bind(Declared(cool=cool), made.counts)  # type: ignore[arg-type]  # nothing is called
    # The other one may make it.
    assert data.warnings == ()
    data.plugins.bind(Declared(cool=cool, temp=temp), made.counts)  # type: ignore[arg-type]
    typo = "'freshness.fields' reads attribute.typo, which nobody makes"
    assert [warning.message for warning in data.warnings] == [
        "'temp' stands behind no source",
        "'cool' reads attribute.temp, which nobody makes",
        typo,
    ]
    data.configure(data._config, await data.prepare(picker(FED)))
    assert [warning.message for warning in data.warnings] == [typo]


async def test_an_extractor_whose_source_is_listed_and_not_named_is_told_to_name_it(tmp_path: Path) -> None:
    text = "plugins: [{name: power, type: power-source}, {name: watts, type: watts-extractor}]"
    made = await loaded(host(tmp_path), picker(text), tmp_path)
    watts = TypeDeclaration(
        "watts-extractor", ("extract",), data=DataDeclaration("json", (), {}, default_source="power-source")
    )
    source = TypeDeclaration("power-source", ("poll",), data=DataDeclaration("json"))
    made.data.plugins.bind(Declared(power=source, watts=watts), made.counts)  # type: ignore[arg-type]
    made.data.collection.learn()
    assert made.data.problems == ()
    lacking, unasked = made.data.warnings
    assert lacking.message.startswith("'watts' needs a source of type 'power-source'")
    assert lacking.hint == "name 'power' under `dataLayer.sources`"
    assert unasked.message == "'power' is a source that is not asked"
