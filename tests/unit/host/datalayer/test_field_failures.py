"""Failures that others met in the field, at the data layer: figures that cannot be, ranks, adapters, moves."""

import dataclasses
import math

import pytest
from hotbay.datalayer.discovery.session import DiscoverySession
from hotbay.datalayer.endpoint import Delete, EndpointEvent, EndpointMetadata, Metrics, Upsert
from hotbay.datalayer.pages.engines import EngineSet
from hotbay.datalayer.pages.extraction import MetricsPage, MetricsReader
from hotbay.datalayer.pages.text import PageText
from hotbay.datalayer.store import EndpointStore


def endpoint(name: str, port: int = 8000, **fields: object) -> EndpointMetadata:
    made = EndpointMetadata(f"default/{name}", name, "10.0.0.1", port)
    return dataclasses.replace(made, **fields)  # type: ignore[arg-type]  # the callers name fields


def read(page: str) -> MetricsPage:
    return MetricsReader(EngineSet()).read(PageText.of(page.encode()), {})


def lora(running: str, waiting: str, maximum: str) -> str:
    return (
        f'vllm:lora_requests_info{{max_lora="{maximum}",running_lora_adapters="{running}",'
        f'waiting_lora_adapters="{waiting}"}} 1\n'
    )


def shown(metrics: Metrics, name: str) -> float:
    store = EndpointStore()
    store.upsert(endpoint("a"))
    store.update_metrics("default/a", metrics, 1.0)
    return float(store.publish(1.0).columns[f"endpoint.{name}"][0])


@pytest.mark.parametrize(
    ("page", "name"),
    [
        ("vllm:num_requests_waiting -1\n", "waiting"),
        ("vllm:num_requests_waiting 1e18\n", "waiting"),
        ("vllm:kv_cache_usage_perc -0.1\n", "kv_usage"),
        ("vllm:kv_cache_usage_perc 37\n", "kv_usage"),
    ],
)
def test_s18_a_figure_that_cannot_be_is_unknown_and_named(page: str, name: str) -> None:
    found = read(page)
    assert found.invalid == (name,)
    assert math.isnan(shown(found.metrics, name))


def test_s18_a_server_without_room_for_any_adapter_is_unknown_and_named() -> None:
    found = read(lora("a", "", "0"))
    assert found.invalid == ("lora",)
    assert math.isnan(shown(found.metrics, "max_active_models"))
    assert found.metrics.active_models == {"a": 0}, "what is loaded is known all the same"


@pytest.mark.parametrize(("usage", "share"), [("1.0", 1.0), ("1.01", 1.0), ("1.02", math.nan)])
def test_s18_a_share_beyond_1_is_1_by_rounding_only(usage: str, share: float) -> None:
    found = shown(read(f"vllm:kv_cache_usage_perc {usage}\n").metrics, "kv_usage")
    assert found == pytest.approx(share, nan_ok=True)


def test_s26_ranks_of_ports_that_are_gone_go_and_the_others_stay() -> None:
    """targetPorts [8000, 8001] -> [8001], as one endpoint per rank; and then another port to scrape."""
    store = EndpointStore()
    ranks = [endpoint("pod-rank-0", 8000), endpoint("pod-rank-1", 8001, rank_index=1)]
    session = DiscoverySession()

    def tell(*endpoints: EndpointMetadata) -> tuple[EndpointEvent, ...]:
        events = session.replace(endpoints, is_all=True)
        for event in events:
            if isinstance(event, Delete):
                store.delete(event.endpoint.id)
            else:
                store.upsert(event.endpoint)
        return events

    tell(*ranks)
    assert tell(ranks[1]) == (Delete(ranks[0]),)
    snapshot = store.publish(1.0)
    assert [found.port for found in snapshot.endpoints if found] == [8001]
    moved = dataclasses.replace(ranks[1], metrics_host="10.0.0.1:9100")
    assert tell(moved) == (Upsert(moved),)
    (found,) = store.endpoints()
    assert found.metrics_authority == "10.0.0.1:9100"


def test_s28_each_change_of_metadata_is_told_once_without_any_source_of_metrics() -> None:
    store = EndpointStore()
    events: list[EndpointEvent] = []
    store.subscribe(events.append)
    labelled = endpoint("a", labels={"role": "decode"})
    for wanted in (endpoint("a"), endpoint("a"), labelled, labelled, endpoint("a", 9000, labels={"role": "decode"})):
        store.upsert(wanted)
    assert events == [
        Upsert(endpoint("a")),
        Upsert(labelled),
        Upsert(endpoint("a", 9000, labels={"role": "decode"})),
    ]
    assert store.publish(1.0).endpoints == (events[-1].endpoint,)


def test_s29_an_adapter_that_is_active_and_waited_for_takes_its_room_once() -> None:
    store = EndpointStore()
    store.upsert(endpoint("a"))
    store.update_metrics("default/a", read(lora("a,b", "a,b", "4")).metrics, 1.0)
    snapshot = store.publish(1.0)
    facts = snapshot.facts[0]
    assert facts is not None
    assert facts.models_in_use == {"a", "b"}
    assert len(facts.models_in_use) < snapshot.columns["endpoint.max_active_models"][0], "room for adapter c"
    assert dataclasses.replace(facts, waiting_models=None).models_in_use is None


@pytest.mark.parametrize(("asked", "is_there"), [("b", False), ("B", True), ("lora1", False), ("lora10", True)])
def test_s30_adapters_match_exactly_after_trimming(asked: str, is_there: bool) -> None:
    metrics = read(lora("a, B,lora10", "", "4")).metrics
    assert metrics.active_models is not None
    assert (asked in metrics.active_models) is is_there
    assert set(metrics.active_models) == {"a", "B", "lora10"}


def test_s33_ranks_of_one_engine_add_up_and_usage_is_their_mean() -> None:
    metrics = read(
        'vllm:num_requests_running{engine="0"} 3\nvllm:num_requests_running{engine="1"} 9\n'
        'vllm:kv_cache_usage_perc{engine="0"} 0.2\nvllm:kv_cache_usage_perc{engine="1"} 0.8\n'
    ).metrics
    assert (metrics.running, metrics.kv_usage) == (12.0, 0.5)
