"""Another configuration of sources and extractors while they run: what stays, what goes, what comes, and what is left of it."""

from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import pytest
from anyio.abc import TaskStatus
from hotbay.collection import Collection
from hotbay.config.data_sources import read_data_layer
from hotbay.config.data_types import ObjectKind
from hotbay.config.data_uses import ExtractorUse, SourceUse
from hotbay.config.picker_config import load_picker_config
from hotbay.datalayer.endpoint import EndpointMetadata, Metrics
from hotbay.datalayer.pages.extraction import MetricsPage
from hotbay.datalayer.scraping.in_loop import ScrapeStore
from hotbay.datalayer.scraping.metrics_source import MetricsPoller
from hotbay.datalayer.scraping.records import ScrapeCounts
from hotbay.datalayer.source import AnyExtractor, EventType
from hotbay.datalayer.sources.bindings import NoTypes
from hotbay.datalayer.sources.models import ModelsPage, ModelsSource, ServedModel
from hotbay.datalayer.sources.scraped import OnPage
from hotbay.datalayer.store import EndpointStore
from hotbay.errors import InputError
from hotbay.observe.background import Background
from hotbay.observe.metrics import Metrics as Counted

pytestmark = pytest.mark.anyio

HEAD = "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\n"
WAIT_S = 10.0
A = EndpointMetadata("n/a", "a", "10.0.0.1", 8000)
B = EndpointMetadata("n/b", "b", "10.0.0.2", 8000)
POD = ObjectKind("", "v1", "Pod")


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@dataclass(eq=False)
class Scripted:
    """A `Scraping` that fetches nothing: a test says what came."""

    store: ScrapeStore
    source: MetricsPoller
    on_page: OnPage
    factor: float = 1.0
    counts: ScrapeCounts = field(default_factory=ScrapeCounts)
    runs: int = 0
    ended: bool = False

    @property
    def interval_s(self) -> float:
        return self.source.interval_s

    def want(self, names: Iterable[str]) -> None:
        self.source.want(names)

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        self.runs += 1
        task_status.started()
        try:
            await anyio.sleep_forever()
        finally:
            self.ended = True

    def page(self, endpoint: EndpointMetadata, waiting: float = 1.0) -> None:
        """What a scraper does with a page that came."""
        page = MetricsPage("vllm", Metrics(waiting=waiting))
        if self.store.update_metrics(endpoint.id, page.metrics, 1.0):
            self.on_page(endpoint, page)


class Reads:
    """A package's extractor of whatever is polled; it makes the attribute of its name."""

    def __init__(self, use: ExtractorUse, payload: type, counts: Counted) -> None:
        self.name, self.type, self.payload = use.name, use.type, payload
        self.attributes = frozenset({use.name})
        self.taken: Mapping[str, str] = {}
        self.answers: anyio.Event | None = None
        self.seen: list[object] = []
        self._news = anyio.Event()

    async def extract(self, payload: object, endpoint: object) -> Mapping[str, object]:
        self.seen.append(payload)
        self._news.set()
        if self.answers is not None:
            await self.answers.wait()
        return {self.name: len(self.seen)}

    async def asked(self) -> None:
        """Return when it is asked next."""
        self._news = anyio.Event()
        with anyio.fail_after(WAIT_S):
            await self._news.wait()


class Hears:
    """A package's extractor of events; it makes the attribute of its name, of endpoints or of what objects are called like."""

    def __init__(self, use: ExtractorUse, kind: ObjectKind | None) -> None:
        self.name, self.type, self.kind = use.name, use.type, kind
        self.attributes = frozenset({use.name})
        self.taken: Mapping[str, str] = {}
        self.heard: list[tuple[EventType, str]] = []
        self._news = anyio.Event()

    async def extract_event(self, event: object) -> Mapping[str, Mapping[str, object]]:
        subject = event.endpoint.id if self.kind is None else event.key  # type: ignore[attr-defined]
        self.heard.append((event.type, subject))  # type: ignore[attr-defined]
        self._news.set()
        return {subject: {self.name: len(self.heard)}}

    async def until(self, holds: Callable[[], bool]) -> None:
        with anyio.fail_after(WAIT_S):
            while not holds():
                self._news = anyio.Event()
                await self._news.wait()


class Packages(NoTypes):
    """Provides extractors of every type that is not the host's; `made` are the newest by name."""

    def __init__(self) -> None:
        self.made: dict[str, object] = {}
        self.counts = Counted()

    def extractor(self, use: ExtractorUse, source: SourceUse) -> AnyExtractor | None:
        form = source.form
        assert form is not None
        (payload,) = form.payloads
        if payload in ("metrics", "models"):
            made: object = Reads(use, {"metrics": MetricsPage, "models": ModelsPage}[payload], self.counts)
        else:
            made = Hears(use, None if payload == "endpoint" else POD)
        self.made[use.name] = made
        return made  # type: ignore[return-value]  # one that is told more than the protocol knows


@dataclass
class Running:
    """A collection that runs, its scrapings in the order in which they were made, and what packages provide."""

    collection: Collection
    store: EndpointStore
    scrapings: list[Scripted]
    packages: Packages
    folder: Path
    changes: int = 0

    async def reload(self, text: str) -> None:
        self.collection.take(await self.collection.prepare(parameters(text), self.folder))

    async def until(self, holds: Callable[[], bool]) -> None:
        with anyio.fail_after(WAIT_S):
            while not holds():
                await anyio.lowlevel.checkpoint()


def parameters(text: str):  # type: ignore[no-untyped-def]
    return read_data_layer(load_picker_config(HEAD + text, file="picker.yaml"))


@asynccontextmanager
async def running(text: str, folder: Path, *endpoints: EndpointMetadata) -> AsyncIterator[Running]:
    store, packages, scrapings = EndpointStore(), Packages(), list[Scripted]()
    for endpoint in endpoints or (A,):
        store.upsert(endpoint)

    def make(seen: ScrapeStore, source: MetricsPoller, on_page: OnPage, _widened: object) -> Scripted:
        scrapings.append(Scripted(seen, source, on_page))
        return scrapings[-1]

    collection = Collection(store, counts=Counted(), background=Background(), make_scraper=make)
    await collection.load(parameters(text), directory=folder, interval_s=0.05, provider=packages)
    async with anyio.create_task_group() as group:
        await collection.run(group)
        yield Running(collection, store, scrapings, packages, folder)
        group.cancel_scope.cancel()


def picker(*plugins: str, sources: str) -> str:
    return "plugins:\n" + "".join(f"- {plugin}\n" for plugin in plugins) + f"dataLayer:\n  sources: [{sources}]\n"


CORE = "{type: core-metrics-extractor}"


def metrics(*extractors: str, parameters: str = "{}", more: str = "", core: str = CORE) -> str:
    """A configuration with the metrics source and these extractors of packages behind it."""
    named = ["core-metrics-extractor", *extractors] if core else [*extractors]
    behind = ", ".join(f"{{pluginRef: {name}}}" for name in named)
    plugins = [f"{{type: metrics-data-source, parameters: {parameters}}}"]
    plugins += [core] if core else []
    plugins += [f"{{name: {name}, type: {name}-type}}" for name in extractors]
    lines, _, sources = more.partition("|")
    plugins += [line for line in lines.split(";") if line]
    own = f"{{pluginRef: metrics-data-source, extractors: [{behind}]}}"
    return picker(*plugins, sources=", ".join([own, *([sources] if sources else [])]))


# -- scraped sources -----------------------------------------------------------------------------


async def test_source_that_is_as_it_was_goes_on_while_others_come_and_go(tmp_path: Path) -> None:
    gpus = "{type: dcgm-data-source}|{pluginRef: dcgm-data-source}"
    async with running(metrics("x"), tmp_path) as bay:
        extractor = bay.packages.made["x"]
        await bay.reload(metrics("x", more=gpus))
        await bay.reload(metrics("x"))
        await bay.until(lambda: bay.scrapings[1].ended)
        first, second = bay.scrapings
        assert (first.runs, first.ended, first.source.name) == (1, False, "metrics-data-source")
        assert second.source.name == "dcgm-data-source"
        assert bay.packages.made["x"] is extractor
        assert set(bay.collection.intervals_s) == {"metrics-data-source"}


async def test_source_of_figures_goes_on_until_the_one_in_its_place_has_asked_every_endpoint(tmp_path: Path) -> None:
    async with running(metrics(parameters="{interval: 5s}"), tmp_path, A, B) as bay:
        await bay.reload(metrics(parameters="{interval: 50ms}"))
        old, new = bay.scrapings
        await bay.until(lambda: new.runs == 1)
        assert (old.ended, bay.collection.longest_report_s) == (False, 5.0), "its figures are still shown"
        new.page(A)
        await anyio.wait_all_tasks_blocked()
        assert not old.ended
        old.page(B, 7.0)
        assert bay.store.endpoint(B.id).metrics.waiting == 7.0  # type: ignore[union-attr]
        new.store.record_scrape_failure(B.id, "it has no page")
        await bay.until(lambda: old.ended)
        await bay.until(lambda: bay.collection.longest_report_s == 0.05)
        assert not new.ended
        assert bay.collection.intervals_s == {"metrics-data-source": 0.05}


async def test_endpoint_that_goes_is_not_waited_for(tmp_path: Path) -> None:
    async with running(metrics(), tmp_path, A, B) as bay:
        await bay.reload(metrics(parameters="{path: /other}"))
        old, new = bay.scrapings
        await bay.until(lambda: new.runs == 1)
        new.page(A)
        await anyio.wait_all_tasks_blocked()
        assert not old.ended
        bay.store.delete(B.id)
        await bay.until(lambda: old.ended)


async def test_first_source_goes_on_while_edits_follow_each_other(tmp_path: Path) -> None:
    async with running(metrics(), tmp_path) as bay:
        await bay.reload(metrics(parameters="{path: /second}"))
        await bay.reload(metrics(parameters="{path: /third}"))
        first, second, third = bay.scrapings
        await bay.until(lambda: third.runs == 1)
        assert [first.ended, second.ended] == [False, False]
        third.page(A)
        await bay.until(lambda: first.ended and second.ended)
        assert not third.ended


async def test_figures_that_move_to_another_source_have_no_gap(tmp_path: Path) -> None:
    more = f"{{name: other, type: metrics-data-source}};{CORE}|"
    more += "{pluginRef: other, extractors: [{pluginRef: core-metrics-extractor}]}"
    async with running(metrics(), tmp_path) as bay:
        await bay.reload(metrics(core="", more=more))
        old, without, other = bay.scrapings
        await bay.until(lambda: other.runs == 1)
        without.page(A)
        await anyio.wait_all_tasks_blocked()
        assert not old.ended, "the one in its place by name brings no figures"
        other.page(A)
        await bay.until(lambda: old.ended)


async def test_extractors_come_and_go_behind_a_source_that_goes_on(tmp_path: Path) -> None:
    async with running(metrics("x"), tmp_path) as bay:
        (scraping,) = bay.scrapings
        x, endpoint = bay.packages.made["x"], bay.store.endpoint(A.id)
        assert isinstance(x, Reads)
        assert endpoint is not None
        scraping.page(A)
        await bay.until(lambda: endpoint.attributes.get("x") == 1)
        await bay.reload(metrics("x", "y"))
        scraping.page(A)
        await bay.until(lambda: (endpoint.attributes.get("x"), endpoint.attributes.get("y")) == (2, 1))
        x.answers = anyio.Event()
        scraping.page(A)
        await bay.until(lambda: len(x.seen) == 3)
        await bay.reload(metrics("y"))
        assert endpoint.attributes.get("x") is None
        x.answers.set()
        await bay.until(lambda: endpoint.attributes.get("y") == 2)
        assert endpoint.attributes.get("x") is None, "what comes too late is not written"
        assert len(bay.scrapings) == 1


async def test_attributes_of_the_hosts_own_extractors_go_with_them_and_custom_metrics_that_stay_have_no_gap(
    tmp_path: Path,
) -> None:
    def custom(*names: str) -> str:
        listed = ", ".join(f"{{attributeKey: {name}, metricSpec: m}}" for name in names)
        return f"{{type: core-metrics-extractor, parameters: {{customMetrics: [{listed}]}}}}"

    async with running(metrics(core=custom("one", "two")), tmp_path) as bay:
        endpoint = bay.store.endpoint(A.id)
        assert endpoint is not None
        bay.store.put_attributes(A.id, {"one": 1.0, "two": 2.0}, 1.0)
        await bay.reload(metrics(core=custom("two", "three")))
        assert (endpoint.attributes.get("one"), endpoint.attributes.get("two")) == (None, 2.0)
        assert bay.collection.columns == {"two": "f32", "three": "f32"}
        old, new = bay.scrapings
        assert new.source.engines.parameters.custom[0].attribute == "two"
        assert not old.ended


@pytest.mark.parametrize(("last", "one"), [(("two",), None), (("one", "two"), 1.0)])
async def test_custom_metric_that_is_taken_away_does_not_come_back_with_the_last_pages_of_who_made_it(
    tmp_path: Path, last: tuple[str, ...], one: float | None
) -> None:
    def custom(*names: str) -> str:
        listed = ", ".join(f"{{attributeKey: {name}, metricSpec: m}}" for name in names)
        return f"{{type: core-metrics-extractor, parameters: {{customMetrics: [{listed}]}}}}"

    async with running(metrics(core=custom("one", "two")), tmp_path) as bay:
        endpoint = bay.store.endpoint(A.id)
        assert endpoint is not None
        await bay.reload(metrics(core=custom("two")))
        await bay.reload(metrics(core=custom(*last)))
        old, new = bay.scrapings[0], bay.scrapings[-1]
        old.store.put_attributes(A.id, {"one": 1.0, "two": 2.0}, 1.0)
        await bay.until(lambda: new.runs == 1)
        new.page(A)
        await bay.until(lambda: old.ended)
        await anyio.wait_all_tasks_blocked()
        assert (endpoint.attributes.get("one"), endpoint.attributes.get("two")) == (one, 2.0)


# -- polled sources ------------------------------------------------------------------------------

MODELS = "{{name: models, type: models-data-source, parameters: {{interval: {interval}, path: {path}}}}}"
BEHIND_MODELS = "{{pluginRef: models, extractors: [{extractors}]}}"


def with_models(*extractors: str, interval: str = "50ms", path: str = "/v1/models") -> str:
    plugins = [MODELS.format(interval=interval, path=path), *(f"{{name: {it}, type: {it}-type}}" for it in extractors)]
    behind = ", ".join(f"{{pluginRef: {name}}}" for name in extractors)
    return metrics(more=";".join(plugins) + "|" + BEHIND_MODELS.format(extractors=behind))


@pytest.fixture
def polls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[ModelsSource, str]]:
    """Polls of model lists, which are answered at once: by whom, and of which endpoint."""
    asked: list[tuple[ModelsSource, str]] = []

    async def poll(self: ModelsSource, endpoint: EndpointMetadata) -> ModelsPage:
        asked.append((self, endpoint.id))
        return ModelsPage((ServedModel("m"),))

    monkeypatch.setattr(ModelsSource, "poll", poll)
    return asked


async def test_polled_source_is_added_for_endpoints_that_are_there_and_goes_without_a_trace(
    tmp_path: Path, polls: list[tuple[ModelsSource, str]]
) -> None:
    async with running(metrics(), tmp_path, A, B) as bay:
        a, b = bay.store.endpoint(A.id), bay.store.endpoint(B.id)
        assert a is not None
        assert b is not None
        await bay.reload(with_models("x"))
        x = bay.packages.made["x"]
        assert isinstance(x, Reads)
        with anyio.fail_after(WAIT_S):
            while not (a.attributes.get("x") and b.attributes.get("x")):
                await x.asked()
        x.answers = anyio.Event()
        await x.asked()
        await bay.reload(metrics())
        x.answers.set()
        await anyio.wait_all_tasks_blocked()
        polled = len(polls)
        assert (a.attributes.get("x"), b.attributes.get("x")) == (None, None)
        await bay.reload(metrics("y"))
        bay.scrapings[0].page(A)
        await bay.until(lambda: a.attributes.get("y") == 1)
        assert len(polls) == polled
        assert set(bay.collection.intervals_s) == {"metrics-data-source"}


async def test_another_interval_is_another_source_with_the_same_extractor_and_what_it_said_stays(
    tmp_path: Path, polls: list[tuple[ModelsSource, str]]
) -> None:
    async with running(with_models("x"), tmp_path) as bay:
        x, endpoint = bay.packages.made["x"], bay.store.endpoint(A.id)
        assert isinstance(x, Reads)
        assert endpoint is not None
        await x.asked()
        await x.asked()
        await bay.reload(with_models("x", interval="100ms"))
        assert endpoint.attributes.get("x") is not None
        assert bay.collection.intervals_s["models"] == pytest.approx(0.1)
        before = polls[-1][0]
        await x.asked()
        await x.asked()
        assert polls[-1][0] is not before
        assert bay.packages.made["x"] is x


# -- sources of events ---------------------------------------------------------------------------


def watched(*extractors: str) -> str:
    behind = ", ".join(f"{{pluginRef: {name}}}" for name in extractors)
    plugins = ["{name: watch, type: endpoint-notification-source}"]
    plugins += [f"{{name: {it}, type: {it}-type}}" for it in extractors]
    return metrics(more=";".join(plugins) + f"|{{pluginRef: watch, extractors: [{behind}]}}")


async def test_extractor_that_comes_hears_of_all_endpoints_and_one_that_goes_of_none(tmp_path: Path) -> None:
    async with running(watched("x"), tmp_path) as bay:
        x, endpoint = bay.packages.made["x"], bay.store.endpoint(A.id)
        assert isinstance(x, Hears)
        assert endpoint is not None
        await x.until(lambda: len(x.heard) == 1)
        await bay.reload(watched("x", "y"))
        y = bay.packages.made["y"]
        assert isinstance(y, Hears)
        await y.until(lambda: y.heard == [(EventType.ADD_OR_UPDATE, A.id)])
        await bay.reload(watched("y"))
        assert endpoint.attributes.get("x") is None
        heard = len(x.heard)
        bay.store.upsert(B)
        bay.store.delete(A.id)
        await y.until(lambda: y.heard[1:] == [(EventType.ADD_OR_UPDATE, B.id), (EventType.DELETE, A.id)])
        assert len(x.heard) == heard
        await bay.reload(metrics())
        assert bay.store.endpoint(B.id).attributes.keys() == ()  # type: ignore[union-attr]


def pods(*extractors: str, path: str = "pods") -> str:
    behind = ", ".join(f"{{pluginRef: {name}}}" for name in extractors)
    plugins = [
        f"{{name: pods, type: object-directory-source, parameters: {{path: {path}, apiVersion: v1, kind: Pod}}}}"
    ]
    plugins += [f"{{name: {it}, type: {it}-type}}" for it in extractors]
    return metrics(more=";".join(plugins) + f"|{{pluginRef: pods, extractors: [{behind}]}}")


def put(folder: Path, name: str) -> None:
    text = f"apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, namespace: n}}\n"
    (folder / "part").write_text(text)
    (folder / "part").rename(folder / f"{name}.yaml")


async def test_extractor_that_comes_hears_of_all_objects_and_what_one_said_goes_with_it(tmp_path: Path) -> None:
    for folder in ("pods", "others"):
        (tmp_path / folder).mkdir()
    put(tmp_path / "pods", "a")
    put(tmp_path / "pods", "late")
    put(tmp_path / "others", "b")
    came, late = EventType.ADD_OR_UPDATE, EndpointMetadata("n/late", "late", "10.0.0.3", 8000)
    async with running(pods("x"), tmp_path, A, B) as bay:
        x, a, b = bay.packages.made["x"], bay.store.endpoint(A.id), bay.store.endpoint(B.id)
        assert isinstance(x, Hears)
        assert a is not None
        assert b is not None
        await x.until(lambda: set(x.heard) == {(came, "n/a"), (came, "n/late")})
        await bay.until(lambda: a.attributes.get("x") is not None)
        await bay.reload(pods("x", "y"))
        y = bay.packages.made["y"]
        assert isinstance(y, Hears)
        await y.until(lambda: set(y.heard) == {(came, "n/a"), (came, "n/late")})
        await bay.reload(pods("y"))
        bay.store.upsert(late)
        await bay.until(lambda: bay.store.endpoint(late.id).attributes.get("y") is not None)  # type: ignore[union-attr]
        assert (a.attributes.get("x"), bay.store.endpoint(late.id).attributes.get("x")) == (None, None)  # type: ignore[union-attr]
        (tmp_path / "pods" / "a.yaml").unlink()
        await y.until(lambda: y.heard[-1] == (EventType.DELETE, "n/a"))
        await bay.reload(pods("y", path="others"))
        await y.until(lambda: y.heard[-1] == (came, "n/b"))
        await bay.until(lambda: b.attributes.get("y") is not None)
        assert a.attributes.get("y") is None, "the objects of the other folder are gone"
        assert bay.packages.made["y"] is y


async def test_attribute_that_a_later_version_does_not_make_goes_and_comes_with_no_endpoint(tmp_path: Path) -> None:
    (tmp_path / "pods").mkdir()
    put(tmp_path / "pods", "a")
    async with running(pods("x"), tmp_path, A, B) as bay:
        x, a = bay.packages.made["x"], bay.store.endpoint(A.id)
        assert isinstance(x, Hears)
        assert a is not None
        await bay.until(lambda: a.attributes.get("x") is not None)
        x.attributes = frozenset({"other"})
        bay.collection.learn()
        assert a.attributes.get("x") is None
        bay.store.delete(A.id)
        bay.store.upsert(A)
        assert bay.store.endpoint(A.id).attributes.get("x") is None  # type: ignore[union-attr]
        x.attributes = frozenset({"x"})
        bay.collection.learn()
        bay.store.put_attributes(B.id, {"x": 1}, 1.0)
        bay.collection.learn()
        assert bay.store.endpoint(B.id).attributes.get("x") == 1, "it is made again"  # type: ignore[union-attr]


# -- what is refused -----------------------------------------------------------------------------


async def test_bad_configuration_changes_nothing(tmp_path: Path) -> None:
    async with running(metrics("x"), tmp_path) as bay:
        before, made = bay.collection.resolution, dict(bay.packages.made)
        with pytest.raises(InputError, match=r"ca\.pem"):
            await bay.reload(metrics("x", parameters="{scheme: https, caCertPath: ca.pem}"))
        assert bay.collection.resolution is before
        bay.collection.learn()
        assert bay.collection.resolution.bindings == before.bindings
        assert bay.packages.made == made
        assert [(one.runs, one.ended) for one in bay.scrapings] == [(1, False)]
