"""Endpoints and authorities as values."""

import pytest
from hotbay.datalayer.endpoint import EndpointMetadata, EndpointState, format_authority, split_authority


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
