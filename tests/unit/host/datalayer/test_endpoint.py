"""Endpoints and authorities as values."""

import dataclasses

import pytest
from hotbay.datalayer.endpoint import (
    METRIC_NAMES,
    Endpoint,
    EndpointMetadata,
    EndpointState,
    Metrics,
    format_authority,
    split_authority,
)


@pytest.mark.parametrize(
    ("address", "authority"),
    [("10.0.0.1", "10.0.0.1:8000"), ("fd00::10", "[fd00::10]:8000"), ("::1", "[::1]:8000"), ("gpu-1", "gpu-1:8000")],
)
def test_s24_authority_brackets_ipv6_addresses_only(address: str, authority: str) -> None:
    assert format_authority(address, 8000) == authority
    assert split_authority(authority) == (address, 8000)
    assert EndpointMetadata("default/a", "a", address, 8000).url == f"http://{authority}"


def test_labels_are_a_copy_that_cannot_be_changed() -> None:
    labels = {"role": "decode"}
    endpoint = EndpointMetadata("default/a", "a", "10.0.0.1", 8000, labels=labels)
    labels["role"] = "prefill"
    assert endpoint.labels == {"role": "decode"}
    with pytest.raises(TypeError):
        endpoint.labels["role"] = "prefill"  # type: ignore[index]  # that it cannot be done is the point


def test_labels_that_cannot_be_changed_are_shared() -> None:
    first = EndpointMetadata("default/a", "a", "10.0.0.1", 8000, labels={"role": "decode"})
    assert dataclasses.replace(first, port=1).labels is first.labels


def test_equality_covers_labels_and_state_and_equal_endpoints_hash_alike() -> None:
    first = EndpointMetadata("default/a", "a", "10.0.0.1", 8000, labels={"role": "decode"})
    same = EndpointMetadata("default/a", "a", "10.0.0.1", 8000, labels={"role": "decode"})
    assert first == same
    assert hash(first) == hash(same)
    assert first != EndpointMetadata("default/a", "a", "10.0.0.1", 8000, labels={"role": "prefill"})
    assert first != EndpointMetadata(
        "default/a", "a", "10.0.0.1", 8000, labels={"role": "decode"}, state=EndpointState.CORDONED
    )


def test_metrics_come_from_the_endpoint_unless_a_host_is_given() -> None:
    assert EndpointMetadata("default/a", "a", "fd00::1", 8000).metrics_authority == "[fd00::1]:8000"
    other = EndpointMetadata("default/a", "a", "fd00::1", 8000, metrics_host="10.0.0.9:9100")
    assert other.metrics_authority == "10.0.0.9:9100"


def test_a_clone_is_equal_in_every_field_and_cannot_change_with_its_origin() -> None:
    labels = {"role": "decode"}
    endpoint = EndpointMetadata(
        "default/a", "a", "10.0.0.1", 8000, labels=labels, rank_index=3, node_address="10.9.9.9"
    )
    clone = endpoint.clone()
    labels["role"] = "prefill"
    assert clone == endpoint
    assert (clone.labels, clone.rank_index, clone.node_address) == ({"role": "decode"}, 3, "10.9.9.9")


@pytest.mark.parametrize(
    "change",
    [
        {"id": "default/b"},
        {"name": "b"},
        {"address": "10.0.0.2"},
        {"port": 8001},
        {"metrics_host": "10.0.0.9:9100"},
        {"labels": {"role": "decode"}},
        {"rank_index": 1},
        {"scheme": "https"},
        {"state": EndpointState.CORDONED},
        {"weight": 0.5},
        {"node_address": "10.9.9.9"},
    ],
    ids=lambda change: next(iter(change)),
)
def test_endpoints_that_differ_in_one_field_are_not_equal_and_say_so(change: dict[str, object]) -> None:
    endpoint = EndpointMetadata("default/a", "a", "10.0.0.1", 8000)
    other = dataclasses.replace(endpoint, **change)  # type: ignore[arg-type]  # the fields stand above
    assert other != endpoint
    assert (str(other) != str(endpoint)) == ("name" not in change), "the name is the id's last part"


def test_an_endpoint_in_words() -> None:
    plain = EndpointMetadata("default/a", "a", "10.0.0.1", 8000)
    assert str(plain) == "default/a http://10.0.0.1:8000"
    full = dataclasses.replace(
        plain,
        metrics_host="10.0.0.9:9100",
        labels={"z": "1", "a": "2"},
        rank_index=1,
        state=EndpointState.CORDONED,
        weight=0.5,
        node_address="n1",
    )
    assert str(full) == f"{plain} metrics=10.0.0.9:9100 rank=1 cordoned weight=0.5 node=n1 a=2 z=1"


def test_metrics_merge_field_by_field_with_a_time_of_each() -> None:
    first = Metrics().merged(Metrics(waiting=3.0, running=0.0, active_models={"x": 2}), 10.0)
    second = first.merged(Metrics(waiting=0.0, engine="vllm"), 11.0)
    assert (second.waiting, second.running, second.active_models, second.engine) == (0.0, 0.0, {"x": 2}, "vllm")
    assert second.updated_at == {"waiting": 11.0, "running": 10.0, "active_models": 10.0, "engine": 11.0}
    assert (first.waiting, first.updated_at["waiting"]) == (3.0, 10.0)
    assert second.clone() == second
    assert str(second) == "waiting=0 running=0 active_models=x engine=vllm"


def test_metric_names_are_all_fields_that_a_page_can_report() -> None:
    assert {*METRIC_NAMES, "updated_at"} == {field.name for field in dataclasses.fields(Metrics)}
    report = Metrics(1.0, 1.0, 1.0, 1, 1, 1, 1.0, {"x": 1}, {"x": 1}, "m", "e")
    merged = Metrics().merged(report, 2.0)
    assert dataclasses.replace(merged, updated_at={}) == report
    assert merged.updated_at == dict.fromkeys(METRIC_NAMES, 2.0)


def test_models_of_metrics_are_copies_that_cannot_be_changed() -> None:
    models = {"x": 1}
    metrics = Metrics(active_models=models)
    models["y"] = 1
    assert metrics.active_models == {"x": 1}
    assert hash(metrics) == hash(Metrics(active_models={"x": 1}))
    assert metrics != Metrics(active_models={"x": 2})


def test_a_clone_of_a_live_endpoint_is_not_reached_by_later_news() -> None:
    endpoint = Endpoint(EndpointMetadata("default/a", "a", "10.0.0.1", 8000))
    endpoint.attributes.put("k", [1])
    clone = endpoint.clone()
    endpoint.metadata = dataclasses.replace(endpoint.metadata, port=9000)
    endpoint.metrics = Metrics(waiting=1.0)
    endpoint.attributes.put("k", [2])
    assert (clone.metadata.port, clone.metrics, clone.attributes.get("k")) == (8000, Metrics(), [1])
    assert str(clone) == "default/a http://10.0.0.1:8000 | attributes k"
    assert str(endpoint) == "default/a http://10.0.0.1:9000 | waiting=1 | attributes k"
