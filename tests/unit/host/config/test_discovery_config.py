"""The `discovery` of a HostConfig: networks, in their one spelling, what is no network with its place, and how many endpoints."""

import pytest
from hotbay.config.discovery_config import MAX_NETWORKS

HEAD = "apiVersion: hotbay/v1alpha1\nkind: HostConfig\ndiscovery:\n  allowed_networks: "


def test_networks_are_read_in_their_one_spelling(host):
    read = host(HEAD + "[10.0.0.0/8, 10.1.2.3, 'FD00:0::/8', 192.168.0.0/255.255.0.0]").discovery
    assert read.allowed_networks == ("10.0.0.0/8", "10.1.2.3/32", "fd00::/8", "192.168.0.0/16")
    assert host("").discovery.allowed_networks is None
    assert host(HEAD + "null").discovery.allowed_networks is None


@pytest.mark.parametrize(
    ("text", "path", "told"),
    [
        ("[10.0.0.0/8, 10.0.0.1/8]", "discovery.allowed_networks[1]", "the network of this address is 10.0.0.0/8"),
        ("[10.0.0.0/33]", "discovery.allowed_networks[0]", "a network such as 10.0.0.0/8"),
        ("[gpu.example]", "discovery.allowed_networks[0]", "a network such as 10.0.0.0/8"),
        ("[10]", "discovery.allowed_networks[0]", "a network such as 10.0.0.0/8"),
        ("['::ffff:10.0.0.0/104']", "discovery.allowed_networks[0]", "write IPv4 networks as such"),
        ("['fe80::%eth0/64']", "discovery.allowed_networks[0]", "leave it out"),
        ("10.0.0.0/8", "discovery.allowed_networks", "a list"),
        ("[]", "discovery.allowed_networks", "left out, every network is allowed"),
    ],
)
def test_what_is_no_network_is_told_with_its_place(host_problems, text, path, told):
    (problem,) = host_problems(HEAD + text)
    assert (problem.place.file, problem.place.line, problem.path) == ("host.yaml", 4, path)
    assert told in str(problem)


@pytest.mark.parametrize("count", [1, MAX_NETWORKS, MAX_NETWORKS + 1])
def test_networks_are_bounded_in_number(host, host_problems, count):
    text = HEAD + "[" + ", ".join(["10.0.0.0/8"] * count) + "]"
    if count <= MAX_NETWORKS:
        assert len(host(text).discovery.allowed_networks) == count
    else:
        assert len(host_problems(text)) == 1


@pytest.mark.parametrize(("written", "is_good"), [("0", False), ("1", True), ("10000", True), ("10001", False)])
def test_endpoints_of_a_package_are_bounded_on_both_sides(host, host_problems, written, is_good):
    text = HEAD.replace("allowed_networks: ", f"plugin_endpoints: {written}\n")
    if is_good:
        assert host(text).discovery.plugin_endpoints == int(written)
    else:
        assert [problem.path for problem in host_problems(text)] == ["discovery.plugin_endpoints"]
