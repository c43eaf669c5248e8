"""Documents of Prometheus's HTTP service discovery as endpoints."""

import contextlib

import orjson
import pytest
from hotbay.config.endpoint_bounds import MAX_LABEL_CHARACTERS, MAX_LABELS
from hotbay.datalayer.discovery.endpoint_documents import EndpointFile, with_last_good
from hotbay.datalayer.discovery.service_documents import read_service_document
from hotbay.datalayer.discovery.session import MAX_ENDPOINTS
from hotbay.datalayer.endpoint import EndpointMetadata
from hotbay.errors import InputError
from hypothesis import given
from hypothesis import strategies as st

SOURCE = "http://registry/targets"


def read(document: object) -> EndpointFile:
    return read_service_document(orjson.dumps(document), namespace="default", source=SOURCE)


def endpoint(address: str, port: int, rank: int = 0, **labels: str) -> EndpointMetadata:
    name = f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
    return EndpointMetadata(f"default/{name}", name, address, port, labels=labels, rank_index=rank)


def test_groups_of_targets_with_labels_are_endpoints() -> None:
    document = [
        {"targets": ["10.0.0.1:8000", "GPU-1.example:8000"], "labels": {"role": "decode"}},
        {"targets": ["[fd00::10]:8000"]},
        {"targets": [], "labels": None},
    ]
    assert read(document) == EndpointFile(
        (
            endpoint("10.0.0.1", 8000, role="decode"),
            endpoint("gpu-1.example", 8000, role="decode"),
            endpoint("fd00::10", 8000),
        )
    )


def test_no_groups_are_no_endpoints() -> None:
    assert read([]) == EndpointFile(())


def test_meta_labels_are_kept_and_prometheus_own_are_dropped() -> None:
    labels = {"__meta_rack": "4", "__address__": "x", "__scheme__": "http", "__param_a": "b", "_x": "y", "zone": "z"}
    (found,) = read([{"targets": ["a:1"], "labels": labels}]).endpoints
    assert dict(found.labels) == {"__meta_rack": "4", "_x": "y", "zone": "z"}


def test_several_ports_of_a_host_in_one_group_are_its_ranks_in_their_order() -> None:
    found = read([{"targets": ["a:8001", "a:8000", "b:8000"]}, {"targets": ["a:9000"]}]).endpoints
    assert [(one.name, one.rank_index) for one in found] == [
        ("a:8001", 0),
        ("a:8000", 1),
        ("b:8000", 0),
        ("a:9000", 0),
    ]


def test_s23_a_target_that_is_given_twice_is_one_endpoint_and_the_last_one_holds() -> None:
    file = read([{"targets": ["a:1"], "labels": {"x": "1"}}, {"targets": ["A.:1"], "labels": {"x": "2"}}])
    assert [one.labels["x"] for one in file.endpoints] == ["2"]
    assert "'a:1' is given twice" in str(file.warnings[0])


@pytest.mark.parametrize(
    "target",
    [
        "10.0.0.1",
        "10.0.0.1:",
        "10.0.0.1:0",
        "10.0.0.1:65536",
        "10.0.0.256:80",
        "http://10.0.0.1:80",
        "a:80/metrics",
        "user@a:80",
        "fd00::10:8000",
        "[fd00::10]",
        "[10.0.0.1]:80",
        "[a]:80",
        ":80",
        "a b:80",
        "",
        8000,
        None,
        ["a:80"],
    ],
)
def test_s24_a_target_that_is_no_host_and_port_is_refused_with_its_place(target: object) -> None:
    file = read([{"targets": ["ok:1"]}, {"targets": [target]}])
    assert [one.name for one in file.endpoints] == ["ok:1"]
    (problem,) = file.problems
    assert (problem.path, str(problem.place), file.nameless) == ("[1].targets[0]", SOURCE, True)


def test_s24_a_zone_is_refused_by_name() -> None:
    (problem,) = read([{"targets": ["[fe80::1%eth0]:8000"]}]).problems
    assert "zone" in problem.hint


@pytest.mark.parametrize(
    ("group", "path", "nameless"),
    [
        (3, "[0]", True),
        ({}, "[0].targets", True),
        ({"targets": "a:1"}, "[0].targets", True),
        ({"targets": ["a:1"], "labels": []}, "[0].labels", False),
        ({"targets": ["a:1"], "labels": {"x": 1}}, "[0].labels.x", False),
        ({"targets": ["a:1"], "labels": {"x": "y" * 4097}}, "[0].labels.x", False),
    ],
)
def test_a_group_that_cannot_be_used_is_refused_with_its_place(group: object, path: str, nameless: bool) -> None:
    file = read([group])
    assert ([problem.path for problem in file.problems], file.nameless, file.endpoints) == ([path], nameless, ())
    assert file.refused_ids == (frozenset() if nameless else {"default/a:1"})


def test_a_refused_target_keeps_its_last_good_form() -> None:
    good = {one.id: one for one in read([{"targets": ["a:1", "b:1"], "labels": {"x": "y"}}]).endpoints}
    after = read([{"targets": ["a:1"], "labels": {"x": 1}}])
    assert with_last_good(after, good) == (endpoint("a", 1, x="y"),)
    after = read([{"targets": ["b:1", "?"]}])
    assert with_last_good(after, good) == (endpoint("b", 1), endpoint("a", 1, x="y"))


@pytest.mark.parametrize("body", [b"", b"{}", b"null", b"[", b"<html>", b'"x"', b"\xff\xfe"])
def test_what_is_no_list_of_groups_is_refused(body: bytes) -> None:
    with pytest.raises(InputError, match=SOURCE):
        read_service_document(body, namespace="default", source=SOURCE)


def test_a_document_may_have_as_many_targets_as_a_feed_and_no_more() -> None:
    targets = [f"host-{number}:80" for number in range(MAX_ENDPOINTS)]
    assert len(read([{"targets": targets}]).endpoints) == MAX_ENDPOINTS
    with pytest.raises(InputError, match=f"at most {MAX_ENDPOINTS} targets"):
        read([{"targets": [*targets, "one-more:80"]}])


@pytest.mark.parametrize("group", [{"targets": []}, {}, 0])
def test_groups_without_targets_are_bounded_too(group: object) -> None:
    read([group] * (2 * MAX_ENDPOINTS))
    with pytest.raises(InputError, match=f"in at most {2 * MAX_ENDPOINTS} groups"):
        read([group] * (2 * MAX_ENDPOINTS + 1))


def test_targets_of_a_group_share_their_labels() -> None:
    """400 targets with 200,000 labels each fit a document of 2 MiB, and are gigabytes if each has its own."""
    first, second = read([{"targets": ["a:1", "b:1"], "labels": {"x": "y"}}]).endpoints
    assert first.labels is second.labels
    first, second = read([{"targets": ["a:1", "b:1"]}]).endpoints
    assert first.labels is second.labels


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ({str(number): "" for number in range(MAX_LABELS)}, ""),
        ({str(number): "" for number in range(MAX_LABELS + 1)}, "at most 256 labels"),
        ({"x" * MAX_LABEL_CHARACTERS: "y" * MAX_LABEL_CHARACTERS}, ""),
        ({"x" * (MAX_LABEL_CHARACTERS + 1): "y"}, "names of at most 4096 characters"),
    ],
    ids=["most", "too many", "longest", "too long"],
)
def test_labels_are_bounded_and_what_is_beyond_is_refused_with_its_place(labels: object, expected: str) -> None:
    file = read([{"targets": ["ok:1"]}, {"targets": ["a:1"], "labels": labels}])
    told = [(problem.path, problem.expected) for problem in file.problems]
    if expected:
        assert (told, file.refused_ids, len(file.endpoints)) == ([("[1].labels", expected)], {"default/a:1"}, 1)
    else:
        assert (told, len(file.endpoints)) == ([], 2)


def test_problems_of_a_long_document_are_bounded() -> None:
    problems = read([{"targets": ["?"] * 1000}]).problems
    assert len(problems) == 21
    assert "980 more" in str(problems[-1])


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 70000) | st.sampled_from(["a:1", "[::1]:2", "x", "targets", ""]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["targets", "labels", "x"]), inner, max_size=3)
    ),
    max_leaves=15,
)


@given(_JSON)
def test_no_document_raises_anything_but_input_error(document: object) -> None:
    try:
        file = read(document)
    except InputError:
        return
    ids = [one.id for one in file.endpoints]
    assert len(set(ids)) == len(ids)
    assert not file.refused_ids & set(ids)


@given(st.binary(max_size=60))
def test_no_bytes_raise_anything_but_input_error(body: bytes) -> None:
    with contextlib.suppress(InputError):
        read_service_document(body, namespace="default", source=SOURCE)
