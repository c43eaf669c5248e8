"""What endpoint files say, and what is refused."""

from dataclasses import dataclass, field

import pytest
from hotbay.config.documents import MAX_BYTES, load_document
from hotbay.datalayer.discovery.configured import configured_endpoints
from hotbay.datalayer.discovery.endpoint_documents import (
    EndpointFile,
    read_endpoints,
    with_last_good,
)
from hotbay.datalayer.discovery.session import DiscoverySession
from hotbay.datalayer.endpoint import Delete, EndpointMetadata, EndpointState, Upsert
from hotbay.errors import InputError

MANY_LABELS = "{" + ", ".join(f"l{number}: x" for number in range(257)) + "}"


def read(text: str) -> EndpointFile:
    return read_endpoints(load_document(text, file="endpoints.yaml"))


def endpoint(name: str, address: str = "10.0.0.1", port: int = 8000) -> EndpointMetadata:
    return EndpointMetadata(f"default/{name}", name, address, port)


def test_a_file_gives_endpoints_in_its_order() -> None:
    text = """
endpoints:
- {name: ep1, address: 10.0.0.1, port: 8000}
- {name: ep2, namespace: pool, address: 10.0.0.2, port: "8001", labels: {role: decode}, state: cordoned, weight: 0.5}
"""
    assert read(text) == EndpointFile(
        (
            EndpointMetadata("default/ep1", "ep1", "10.0.0.1", 8000),
            EndpointMetadata(
                "pool/ep2",
                "ep2",
                "10.0.0.2",
                8001,
                labels={"role": "decode"},
                state=EndpointState.CORDONED,
                weight=0.5,
            ),
        )
    )


def test_json_is_read_and_unknown_keys_are_ignored() -> None:
    text = '{"kind": "x", "endpoints": [{"name": "a", "address": "10.0.0.1", "port": 80, "rack": 4}]}'
    assert read(text).endpoints == (endpoint("a", port=80),)
    assert read(text).problems == ()


def test_an_unknown_key_is_warned_of_once_where_it_is_first_with_the_nearest_name() -> None:
    text = "endpoints:\n" + "".join(
        f"- {{name: {name}, address: 10.0.0.1, port: 80, {more}}}\n"
        for name, more in (("a", "weight: 1"), ("b", "wieght: 0.5"), ("c", "wieght: 0.5, zone: x"))
    )
    wieght, zone = read(text).warnings
    assert str(wieght) == (
        "endpoints.yaml:3:42: UNKNOWN_FIELD: endpoints[1].wieght: unknown field 'wieght' is ignored, as in 1 more."
        " did you mean 'weight'?"
    )
    assert zone.message == "unknown field 'zone' is ignored"


@pytest.mark.parametrize("text", ["endpoints: []", "endpoints:", '{"endpoints": null}'])
def test_zero_endpoints_are_fine(text: str) -> None:
    assert read(text) == EndpointFile(())


@pytest.mark.parametrize("text", ["", "[]", "endpoint: []", "endpoints: {}", "endpoints: a", "3"])
def test_what_is_no_list_of_endpoints_is_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"endpoints\.yaml:1:\d+: CONFIG_INVALID: endpoints: not an endpoint file"):
        read(text)


@pytest.mark.parametrize("address", ["::1", "fd00::10", "FD00::0010", "::ffff:10.0.0.1"])
def test_s24_ipv6_addresses_are_accepted(address: str) -> None:
    (endpoint,) = read(f"endpoints: [{{name: a, address: '{address}', port: 8000}}]").endpoints
    assert endpoint.authority.startswith("[")
    assert endpoint.authority == endpoint.authority.lower()


def test_s24_a_zone_is_refused_by_name() -> None:
    (problem,) = read("endpoints: [{name: a, address: 'fe80::1%eth0', port: 8000}]").problems
    assert "'eth0'" in problem.hint


@pytest.mark.parametrize(
    ("entry", "path"),
    [
        ("address: not-an-ip, port: 8000", "endpoints[0].address"),
        ("address: '[fd00::10]', port: 8000", "endpoints[0].address"),
        ("address: 10.0.0.256, port: 8000", "endpoints[0].address"),
        ("address: 167772161, port: 8000", "endpoints[0].address"),
        ("port: 8000", "endpoints[0].address"),
        ("address: 10.0.0.1", "endpoints[0].port"),
        ("address: 10.0.0.1, port: '0'", "endpoints[0].port"),
        ("address: 10.0.0.1, port: 0", "endpoints[0].port"),
        ("address: 10.0.0.1, port: 65536", "endpoints[0].port"),
        ("address: 10.0.0.1, port: '65536'", "endpoints[0].port"),
        ("address: 10.0.0.1, port: abc", "endpoints[0].port"),
        ("address: 10.0.0.1, port: -1", "endpoints[0].port"),
        ("address: 10.0.0.1, port: 80.5", "endpoints[0].port"),
        ("address: 10.0.0.1, port: true", "endpoints[0].port"),
        ("address: 10.0.0.1, port: '\uff18\uff10'", "endpoints[0].port"),
        ("address: 10.0.0.1, port: 80, namespace: ''", "endpoints[0].namespace"),
        ("address: 10.0.0.1, port: 80, namespace: a/b", "endpoints[0].namespace"),
        ("address: 10.0.0.1, port: 80, labels: [a]", "endpoints[0].labels"),
        ("address: 10.0.0.1, port: 80, labels: {role: 1}", "endpoints[0].labels.role"),
        (f"address: 10.0.0.1, port: 80, labels: {MANY_LABELS}", "endpoints[0].labels"),
        (f"address: 10.0.0.1, port: 80, labels: {{? {'x' * 4097} : a}}", "endpoints[0].labels"),
        (f"address: 10.0.0.1, port: 80, labels: {{a: {'x' * 4097}}}", "endpoints[0].labels.a"),
        ("address: 10.0.0.1, port: 80, state: drained", "endpoints[0].state"),
        ("address: 10.0.0.1, port: 80, weight: -1", "endpoints[0].weight"),
        ("address: 10.0.0.1, port: 80, weight: '1'", "endpoints[0].weight"),
        ("address: 10.0.0.1, port: 80, weight: true", "endpoints[0].weight"),
    ],
)
def test_ed02_an_invalid_entry_is_refused_with_its_place(entry: str, path: str) -> None:
    file = read(f"endpoints:\n- {{name: ep1, {entry}}}\n- {{name: ep2, address: 10.0.0.2, port: 1}}\n")
    (problem,) = file.problems
    assert (problem.code, problem.path) == ("CONFIG_INVALID", path)
    assert problem.place is not None
    assert (problem.place.file, problem.place.line) == ("endpoints.yaml", 2)
    assert [e.name for e in file.endpoints] == ["ep2"]


@pytest.mark.parametrize("port", [1, 65535, "1", "65535"])
def test_ports_at_their_bounds_are_accepted(port: int | str) -> None:
    (endpoint,) = read(f"endpoints: [{{name: a, address: 10.0.0.1, port: {port!r}}}]").endpoints
    assert endpoint.port == int(port)


@pytest.mark.parametrize("name", ["''", "a/b", "'a b'", "-a", "1", '"a\\u0000"', "a" * 254, "[a]"])
def test_an_entry_whose_name_cannot_be_used_is_nameless(name: str) -> None:
    file = read(f"endpoints: [{{name: {name}, address: 10.0.0.1, port: 1}}]")
    assert (file.endpoints, file.nameless, file.refused_ids) == ((), True, frozenset())


@pytest.mark.parametrize("entry", ["3", "[]", "null"])
def test_an_entry_that_is_no_mapping_is_refused(entry: str) -> None:
    file = read(f"endpoints: [{entry}]")
    assert (len(file.problems), file.nameless) == (1, True)


def test_all_problems_of_a_file_are_reported_at_once() -> None:
    file = read("endpoints: [{name: a, address: x, port: y}, {name: '', address: z, port: 1}]")
    assert [p.path for p in file.problems] == [
        "endpoints[0].address",
        "endpoints[0].port",
        "endpoints[1].name",
        "endpoints[1].address",
    ]


def test_a_file_may_have_its_largest_size_and_no_more() -> None:
    text = "endpoints: []\n#"
    assert read(text + "x" * (MAX_BYTES - len(text))) == EndpointFile(())
    with pytest.raises(InputError, match="too large"):
        read(text + "x" * (MAX_BYTES - len(text) + 1))


def test_of_two_entries_with_one_id_the_last_wins_with_a_warning_naming_both_lines() -> None:
    file = read("endpoints:\n- {name: a, address: 10.0.0.1, port: 1}\n- {name: a, address: 10.0.0.2, port: 2}\n")
    assert file.endpoints == (endpoint("a", "10.0.0.2", 2),)
    assert file.problems == ()
    assert "lines 2 and 3" in str(file.warnings[0])


def rank(number: int, port: int) -> EndpointMetadata:
    return EndpointMetadata(f"default/a-rank-{number}", f"a-rank-{number}", "10.0.0.1", port, rank_index=number)


def test_ports_of_one_server_are_its_ranks() -> None:
    file = read("endpoints: [{name: a, address: 10.0.0.1, ports: [8001, '8000']}]")
    assert file == EndpointFile((rank(0, 8001), rank(1, 8000)))


def test_s26_a_port_that_is_taken_away_takes_its_rank_with_it() -> None:
    (left,) = read("endpoints: [{name: a, address: 10.0.0.1, ports: [8001]}]").endpoints
    assert left == rank(0, 8001)


@pytest.mark.parametrize(
    ("ports", "path"),
    [
        ("ports: []", "endpoints[0].ports"),
        ("ports: 8000", "endpoints[0].ports"),
        ("ports: [1, 2, 3, 4, 5, 6, 7, 8, 9]", "endpoints[0].ports"),
        ("ports: [8000, 8000]", "endpoints[0].ports"),
        ("ports: [8000, 0]", "endpoints[0].ports[1]"),
        ("port: 8000, ports: [8000]", "endpoints[0].ports"),
    ],
)
def test_ports_that_cannot_be_used_are_refused(ports: str, path: str) -> None:
    file = read(f"endpoints: [{{name: a, address: 10.0.0.1, {ports}}}]")
    assert ([problem.path for problem in file.problems], file.endpoints) == ([path], ())


def test_eight_ports_are_accepted() -> None:
    assert len(read("endpoints: [{name: a, address: 10.0.0.1, ports: [1, 2, 3, 4, 5, 6, 7, 8]}]").endpoints) == 8


def reload(before: str, after: str) -> list[str]:
    last_good = {e.id: e for e in read(before).endpoints}
    return [f"{e.id}@{e.port}" for e in with_last_good(read(after), last_good)]


TWO = "endpoints: [{name: ep1, address: 10.0.0.1, port: 1}, {name: ep2, address: 10.0.0.2, port: 2}]"


def test_an_entry_that_became_invalid_keeps_its_last_good_form() -> None:
    after = "endpoints: [{name: ep1, address: 10.0.0.1, port: 9}, {name: ep2, address: x, port: 2}]"
    assert reload(TWO, after) == ["default/ep1@9", "default/ep2@2"]


def test_an_invalid_entry_that_is_new_has_no_last_good_form() -> None:
    assert reload(TWO, "endpoints: [{name: ep3, address: x, port: 2}]") == []


def test_while_a_refused_entry_has_no_name_nothing_is_taken_away() -> None:
    after = "endpoints: [{name: ep1, address: 10.0.0.1, port: 9}, {address: 10.0.0.2, port: 2}]"
    assert reload(TWO, after) == ["default/ep1@9", "default/ep2@2"]


@pytest.mark.parametrize("bad", ["ports: [x]", "port: x"])
def test_an_entry_with_ports_that_became_invalid_keeps_all_its_ranks(bad: str) -> None:
    before = "endpoints: [{name: a, address: 10.0.0.1, ports: [1, 2]}]"
    after = f"endpoints: [{{name: a, address: 10.0.0.1, {bad}}}]"
    assert reload(before, after) == ["default/a-rank-0@1", "default/a-rank-1@2"]


def test_entries_may_stand_deeper_in_a_document() -> None:
    document = load_document("a:\n- endpoints: [{name: x, address: 10.0.0.1, port: 0}]\n", file="f.yaml")
    (problem,) = read_endpoints(document, ("a", 0)).problems
    assert (problem.path, problem.place.line if problem.place else 0) == ("a[0].endpoints[0].port", 2)
    with pytest.raises(InputError, match=r"f\.yaml:2:3: CONFIG_INVALID: a\[0\]\.endpoints: not a list of endpoints"):
        read_endpoints(load_document("a:\n- {}\n", file="f.yaml"), ("a", 0))


def test_a_good_entry_beside_a_refused_one_of_its_id_holds() -> None:
    after = "endpoints: [{name: ep1, address: x, port: 9}, {name: ep1, address: 10.0.0.1, port: 7}]"
    assert reload(TWO, after) == ["default/ep1@7"]


def test_ed03_a_reload_without_an_endpoint_upserts_then_deletes() -> None:
    session = DiscoverySession()
    session.replace(read(TWO).endpoints, is_all=True)
    after = read("endpoints: [{name: ep1, address: 10.0.0.1, port: 9}]").endpoints
    assert session.replace(after) == (Upsert(endpoint("ep1", port=9)), Delete(endpoint("ep2", "10.0.0.2", 2)))


@dataclass(frozen=True)
class Url:
    scheme: str
    host: str
    port: int


@dataclass(frozen=True)
class Entry:
    url: Url
    effective_name: str
    labels: dict[str, str] = field(default_factory=dict)
    weight: float = 1.0
    state: str = "active"
    metrics_host: str | None = None
    node_address: str | None = None


def test_entries_of_the_host_configuration_become_endpoints() -> None:
    entries = [
        Entry(Url("http", "gpu-1", 8000), "gpu-1-8000", {"a": "b"}, 0.5, "cordoned", "gpu-1:9000", "10.9.9.9"),
    ]
    assert configured_endpoints(entries) == (
        EndpointMetadata(
            "default/gpu-1-8000",
            "gpu-1-8000",
            "gpu-1",
            8000,
            "gpu-1:9000",
            labels={"a": "b"},
            state=EndpointState.CORDONED,
            weight=0.5,
            node_address="10.9.9.9",
        ),
    )


@pytest.mark.parametrize("host", ["10.0.0.1:9400", "[fd00::1]:9400", "exporter.example:1", "a:65535"])
@pytest.mark.parametrize("node", ["10.9.9.9", "fd00::1", "node-1"])
def test_a_file_says_where_metrics_are_and_on_which_machine(host: str, node: str) -> None:
    (one,) = read(
        f"endpoints: [{{name: a, address: 10.0.0.1, port: 1, metricsHost: '{host}', nodeAddress: '{node}'}}]"
    ).endpoints
    assert (one.metrics_host, one.metrics_authority, one.node_address) == (host, host, node)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("metricsHost", "10.0.0.1"),
        ("metricsHost", "10.0.0.1:0"),
        ("metricsHost", "10.0.0.1:65536"),
        ("metricsHost", "fd00::1:9400"),
        ("metricsHost", "a b:1"),
        ("metricsHost", "http://a:1"),
        ("nodeAddress", "10.0.0.1:9400"),
        ("nodeAddress", "[fd00::1]"),
        ("nodeAddress", "10.0.0"),
    ],
)
def test_what_names_no_machine_is_refused(key: str, value: str) -> None:
    found = read(f"endpoints: [{{name: a, address: 10.0.0.1, port: 1, {key}: '{value}'}}]")
    assert found.endpoints == ()
    assert [problem.path for problem in found.problems] == [f"endpoints[0].{key}"]
