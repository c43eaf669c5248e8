"""A whole `dataLayer`, from its text to attributes, columns and counts."""

import time
from contextlib import asynccontextmanager
from dataclasses import replace

import anyio
import pytest
from hotbay.collection import Collection
from hotbay.config.data_sources import default_use, read_data_layer
from hotbay.config.picker_config import load_picker_config
from hotbay.datalayer.sources.bindings import NoTypes
from hotbay.datalayer.sources.builtin import make_source
from hotbay.datalayer.sources.dcgm import DcgmExtractor
from hotbay.datalayer.sources.lifecycle import EndpointNotificationSource
from hotbay.datalayer.sources.models import ModelsExtractor
from hotbay.datalayer.sources.registrar import PendingRegistration
from hotbay.datalayer.store import EndpointStore
from hotbay.errors import InputError
from hotbay.observe.background import Background
from hotbay.observe.metrics import Metrics

pytestmark = pytest.mark.anyio

HEAD = "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\n"
PAGE = (
    b"vllm:num_requests_waiting 3\nvllm:num_requests_running 2\nvllm:kv_cache_usage_perc 0.5\n"
    b'vllm:cache_config_info{block_size="16",num_gpu_blocks="10"} 1\n'
)
GPUS = b'DCGM_FI_DEV_GPU_UTIL{gpu="0"} 40\n'
WAIT_S = 15.0


class Role:
    """An extractor of endpoints or of objects."""

    type = "role-extractor"

    def __init__(self, name, kind=None):
        self.name, self.kind, self.seen = name, kind, []

    async def extract_event(self, event):
        self.seen.append(event)
        if self.kind is None:
            return {event.endpoint.id: {"role": event.endpoint.labels.get("role", "none")}}
        return {event.key: {"rank": event.object["spec"]["rank"]}}


class Provider(NoTypes):
    """Provides extractors of type `role-extractor`, for whatever source they stand behind."""

    def __init__(self):
        self.made = []

    def extractor(self, use, source):
        if use.type != "role-extractor":
            return None
        self.made.append(Role(use.name, getattr(source.parameters, "kind", None)))
        return self.made[-1]


def parameters(text):
    return read_data_layer(load_picker_config(HEAD + text, file="picker.yaml"))


@asynccontextmanager
async def running(store, text, directory, **options):
    collection = Collection(store, counts=store.counts, background=Background())
    await collection.load(parameters(text), directory=directory, interval_s=0.05, **options)
    async with anyio.create_task_group() as group:
        await collection.run(group)
        yield collection
        group.cancel_scope.cancel()


class Told(EndpointStore):
    """A store that wakes who waits for something new in it, and the counts that belong to it."""

    def __init__(self):
        super().__init__()
        self.counts = Metrics()
        self._news = anyio.Event()

    def update_metrics(self, endpoint_id, metrics, now):
        return self._tell(super().update_metrics(endpoint_id, metrics, now))

    def put_attributes(self, endpoint_id, values, now):
        return self._tell(super().put_attributes(endpoint_id, values, now))

    def record_scrape_failure(self, endpoint_id, reason):
        return self._tell(super().record_scrape_failure(endpoint_id, reason))

    def _tell(self, written):
        self._news.set()
        self._news = anyio.Event()
        return written

    async def until(self, condition):
        """Publish after each piece of news until the condition holds for the snapshot."""
        with anyio.fail_after(WAIT_S):
            while not condition(self.publish(time.monotonic())):
                await self._news.wait()


async def test_several_sources_with_several_extractors_feed_one_endpoint(serve, tmp_path):
    server, store, provider = await serve(), Told(), Provider()
    server.page("/metrics", PAGE + GPUS)
    server.page("/v1/models", b'{"data": [{"id": "base"}]}')
    (tmp_path / "objects").mkdir()
    (tmp_path / "objects" / "a.yaml").write_text(
        "apiVersion: v1\nkind: Pod\nmetadata: {name: a, namespace: n}\nspec: {rank: 7}\n"
    )
    store.upsert(server.endpoint())
    text = f"""
plugins:
- {{type: metrics-data-source}}
- {{type: core-metrics-extractor}}
- {{type: dcgm-extractor}}
- {{name: failing, type: dcgm-data-source, parameters: {{path: /nothing, port: {server.port}, interval: 50ms}}}}
- {{name: gpus, type: dcgm-data-source, parameters: {{port: {server.port}, interval: 50ms}}}}
- {{type: models-data-source, parameters: {{interval: 50ms}}}}
- {{type: models-data-extractor}}
- {{type: endpoint-notification-source}}
- {{name: pods, type: object-directory-source, parameters: {{path: objects, apiVersion: v1, kind: Pod}}}}
- {{name: roles, type: role-extractor}}
- {{name: ranks, type: role-extractor}}
dataLayer:
  sources:
  - {{pluginRef: metrics-data-source, extractors: [{{pluginRef: core-metrics-extractor}}, {{pluginRef: dcgm-extractor}}]}}
  - {{pluginRef: failing}}
  - {{pluginRef: gpus, extractors: [{{pluginRef: core-metrics-extractor}}]}}
  - {{pluginRef: models-data-source, extractors: [{{pluginRef: models-data-extractor}}]}}
  - {{pluginRef: endpoint-notification-source, extractors: [{{pluginRef: roles}}]}}
  - {{pluginRef: pods, extractors: [{{pluginRef: ranks}}]}}
"""
    async with running(store, text, tmp_path, provider=provider) as collection:
        endpoint = store.endpoint("n/a")
        wanted = {"/v1/models", "gpu_utilization", "rank", "role"}
        await store.until(lambda _: wanted <= set(endpoint.attributes.keys()))
        await store.until(lambda _: store.counts.poll_errors.get("failing") >= 2)
        await store.until(lambda snapshot: snapshot.columns["endpoint.waiting"][0] == 3.0)
        await store.until(lambda snapshot: abs(snapshot.columns["attribute.gpu_utilization"][0] - 0.4) < 1e-6)
        assert endpoint.attributes.get("/v1/models") == [{"id": "base"}]
        assert (endpoint.attributes.get("rank"), endpoint.attributes.get("role")) == (7, "none")
        assert store.counts.data_events.get("endpoint-notification-source", "delivered") == 1
        assert store.counts.data_events.get("pods", "delivered") == 1
        assert collection.problems == ()
    assert store.counts.extract_errors.total() == 0


async def test_metrics_are_scraped_without_the_core_extractor_and_not_written(serve, tmp_path):
    server, store = await serve(), Told()
    server.page("/metrics", PAGE + GPUS)
    store.upsert(server.endpoint())
    text = """
plugins: [{type: metrics-data-source}, {type: dcgm-extractor}]
dataLayer: {sources: [{pluginRef: metrics-data-source, extractors: [{pluginRef: dcgm-extractor}]}]}
"""
    async with running(store, text, tmp_path):
        await store.until(lambda _: store.endpoint("n/a").attributes.get("gpu_utilization") == pytest.approx(0.4))
        assert store.endpoint("n/a").metrics.waiting is None
    assert store.counts.extract_errors.total() == 0


async def test_what_a_page_lacks_is_counted_for_the_core_extractor(serve, tmp_path):
    server, store = await serve(), Told()
    server.page("/metrics", b"vllm:num_requests_waiting 3\n")
    store.upsert(server.endpoint())
    async with running(store, "", tmp_path):
        await store.until(
            lambda _: store.counts.extract_errors.get("metrics-data-source", "core-metrics-extractor") >= 2
        )


async def test_failures_of_scraping_are_counted_by_their_source(serve, tmp_path):
    server, store = await serve(), Told()
    store.upsert(server.endpoint())
    async with running(store, "", tmp_path):
        await store.until(lambda _: store.counts.poll_errors.get("metrics-data-source") >= 2)


async def test_what_a_plugin_depends_on_is_added_after_the_configuration(serve, tmp_path):
    server, store, role = await serve(), Told(), Role("mine")
    store.upsert(server.endpoint())

    class Plugin:
        def register_dependencies(self, registrar):
            default = EndpointNotificationSource("made")
            registrar.register(PendingRegistration("plugin", default.type, role, default))

    async with running(store, "", tmp_path, registrants=[Plugin()]) as collection:
        await store.until(lambda _: store.endpoint("n/a").attributes.get("role") == "none")
        assert [binding.source.name for binding in collection.resolution.bindings] == ["metrics-data-source", "made"]


async def test_what_is_learned_later_is_run_and_goes_when_nobody_asks_for_it_any_more(serve, tmp_path):
    server, store, provider = await serve(), Told(), Provider()
    server.page("/metrics", PAGE + GPUS)
    server.page("/v1/models", b'{"data": [{"id": "base"}]}')
    store.upsert(server.endpoint())
    use = replace(default_use("models-data-source"), name="made")
    models = make_source(use, directory=tmp_path, interval_s=0.05)
    models.interval_s = 0.05
    asked = [
        PendingRegistration("m", "models-data-source", ModelsExtractor("m"), models),
        PendingRegistration("g", "metrics-data-source", DcgmExtractor("g")),
    ]
    async with running(store, "", tmp_path, provider=provider) as collection:
        endpoint = store.endpoint("n/a")
        provider.wishes = lambda: asked
        collection.learn()
        await store.until(lambda _: {"/v1/models", "gpu_utilization"} <= set(endpoint.attributes.keys()))
        assert set(collection.intervals_s) == {"metrics-data-source", "made"}
        provider.wishes = lambda: ()
        collection.learn()
        assert set(collection.intervals_s) == {"metrics-data-source"}
        store.put_attributes("n/a", {"gpu_utilization": None}, time.monotonic())
        polls = server.asked.count("/metrics")
        await store.until(lambda _: server.asked.count("/metrics") >= polls + 5)
        models_asked = server.asked.count("/v1/models")
        await store.until(lambda _: server.asked.count("/metrics") >= polls + 10)
        assert server.asked.count("/v1/models") == models_asked
        assert endpoint.attributes.get("gpu_utilization") is None
    assert store.counts.extract_errors.total() == 0


async def test_a_type_that_nobody_provides_is_told_with_its_place(tmp_path):
    text = "plugins: [{name: x, type: my-source}]\ndataLayer: {sources: [{pluginRef: x}]}\n"
    collection = Collection(EndpointStore(), counts=Metrics(), background=Background())
    with pytest.raises(InputError) as caught:
        await collection.load(parameters(text), directory=tmp_path, interval_s=0.05)
    (problem,) = caught.value.problems
    assert (problem.code, problem.place.line) == ("UNKNOWN_TYPE", 4)


async def test_a_certificate_that_cannot_be_read_keeps_the_data_layer_from_starting(tmp_path):
    text = """
plugins: [{type: models-data-source, parameters: {scheme: https, caCertPath: ca.pem}}]
dataLayer: {sources: [{pluginRef: models-data-source}]}
"""
    collection = Collection(EndpointStore(), counts=Metrics(), background=Background())
    with pytest.raises(InputError, match=r"ca\.pem"):
        await collection.load(parameters(text), directory=tmp_path, interval_s=0.05)


class Claims(Role):
    """One that says what it makes."""

    def __init__(self, name, type_name):
        super().__init__(name)
        self.type, self.attributes, self.taken = type_name, frozenset({"role"}), {}


class Claiming(Provider):
    def extractor(self, use, source):
        self.made.append(Claims(use.name, use.type))
        return self.made[-1]


async def test_two_extractors_of_one_attribute_are_told_of_and_the_first_one_makes_it(tmp_path):
    text = (
        "plugins:\n- {name: watch, type: endpoint-notification-source}\n- {name: one, type: one-extractor}\n"
        "- {name: two, type: two-extractor}\n"
        "dataLayer: {sources: [{pluginRef: watch, extractors: [{pluginRef: one}, {pluginRef: two}]}]}\n"
    )
    provider = Claiming()
    async with running(Told(), text, tmp_path, provider=provider) as collection:
        assert [made.taken for made in provider.made] == [{}, {"role": "one"}]
        (problem,) = collection.problems
        assert problem.message == "what 'two' says of the attribute role is left out: 'one' makes it"
