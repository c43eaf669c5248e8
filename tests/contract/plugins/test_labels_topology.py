"""The package `labels`, topology: how near endpoints are to the one that an earlier profile chose."""

from collections.abc import Iterator, Mapping, Sequence

import pytest
from hotbay_labels import plugin
from hotbay_sdk import ParameterError
from hotbay_sdk.testing import PluginHarness
from hypothesis import given
from hypothesis import strategies as st

SCORER, FILTER = "topology-affinity-scorer", "topology-affinity-filter"
LABELS = {
    "host": "kubernetes.io/hostname",
    "rack": "topology.kubernetes.io/rack",
    "zone": "topology.kubernetes.io/zone",
    "region": "topology.kubernetes.io/region",
}
LEVELS = list(LABELS)
RATINGS = [1.0, 0.2, 0.05, 0.02, 0.0]

places = st.dictionaries(st.sampled_from(LEVELS), st.sampled_from(["", "a", "b"]))


@pytest.fixture(scope="module")
def harness() -> Iterator[PluginHarness]:
    with PluginHarness(plugin) as made:
        made.configure(SCORER, SCORER)
        for level in LEVELS:
            made.configure(level, FILTER, {"minAffinity": level})
        yield made


def at(**where: str) -> dict[str, str]:
    return {LABELS[level]: text for level, text in where.items()}


def rows(labels: Sequence[Mapping[str, str]]) -> dict[str, dict[str, Mapping[str, str]]]:
    return {f"e{row}": {"labels": given} for row, given in enumerate(labels)}


def level_of(peer: Mapping[str, str], other: Mapping[str, str]) -> int:
    """The nearest level at which both have the same text, 4 for none."""
    for number, level in enumerate(LEVELS):
        text = peer.get(level, "")
        if text and other.get(level, "") == text:
            return number
    return 4


POOL = [
    at(host="h1", rack="r1", zone="z1", region="g1"),
    at(host="h1", rack="r1", zone="z1", region="g1"),
    at(host="h2", rack="r1", zone="z1", region="g1"),
    at(host="h3", rack="r2", zone="z1", region="g1"),
    at(host="h4", rack="r3", zone="z2", region="g1"),
    at(host="h5", rack="r4", zone="z3", region="g2"),
    {},
]


def test_the_nearest_level_that_is_shared_decides(harness: PluginHarness) -> None:
    (scores,) = harness.score(SCORER, rows(POOL), [{"peer": "e0"}], raw=True)
    assert list(scores.values()) == pytest.approx([1, 1, 0.2, 0.05, 0.02, 0, 0])


@pytest.mark.parametrize(
    ("level", "expected"),
    [("host", [0, 1]), ("rack", [0, 1, 2]), ("zone", [0, 1, 2, 3]), ("region", [0, 1, 2, 3, 4])],
)
def test_the_filter_keeps_the_level_and_what_is_nearer(harness: PluginHarness, level: str, expected: list[int]) -> None:
    assert harness.keep(level, rows(POOL), [{"peer": "e0"}]) == [[f"e{row}" for row in expected]]


def test_the_filter_asks_for_the_same_host_if_nothing_is_said(harness: PluginHarness) -> None:
    harness.configure("default", FILTER)
    assert harness.keep("default", rows(POOL), [{"peer": "e0"}]) == [["e0", "e1"]]


@pytest.mark.parametrize("peer", ["", "gone", "e6"], ids=["no peer", "a peer that is gone", "a peer without labels"])
def test_without_a_known_peer_all_are_kept_and_rate_0(harness: PluginHarness, peer: str) -> None:
    assert harness.keep("host", rows(POOL), [{"peer": peer}]) == [list(rows(POOL))]
    (scores,) = harness.score(SCORER, rows(POOL), [{"peer": peer}])
    assert list(scores.values()) == [0] * len(POOL)


def test_the_filter_fails_open_where_no_candidate_is_near(harness: PluginHarness) -> None:
    far = ["e2", "e5", "e6"]
    assert harness.keep("host", rows(POOL), [{"peer": "e0"}], candidates=far) == [far]
    assert harness.keep("rack", rows(POOL), [{"peer": "e0"}], candidates=far) == [["e2"]]
    assert harness.keep("host", rows(POOL), [{"peer": "e0"}], candidates=[]) == [[]]


def test_every_request_has_its_own_peer(harness: PluginHarness) -> None:
    requests = [{"peer": "e0"}, {"peer": "e5"}, {}, {"peer": "e0"}]
    found = harness.keep("host", rows(POOL), requests)
    assert found == [["e0", "e1"], ["e5"], list(rows(POOL)), ["e0", "e1"]]
    scores = [list(ratings.values()) for ratings in harness.score(SCORER, rows(POOL), requests)]
    assert scores[1] == [0, 0, 0, 0, 0, 1, 0]
    assert scores[0] == scores[3]


def test_no_endpoint_at_all_is_no_fault(harness: PluginHarness) -> None:
    assert harness.score(SCORER, {}, [{"peer": "e0"}]) == []
    assert harness.keep("host", {}, [{"peer": "e0"}]) == []


@given(pool=st.lists(places, min_size=1, max_size=8), data=st.data())
def test_both_do_as_the_plain_comparison(
    harness: PluginHarness, pool: list[dict[str, str]], data: st.DataObject
) -> None:
    peer = data.draw(st.integers(0, len(pool) - 1))
    candidates = sorted(data.draw(st.sets(st.integers(0, len(pool) - 1))))
    endpoints, members = rows([at(**where) for where in pool]), [f"e{row}" for row in candidates]
    levels = {row: level_of(pool[peer], pool[row]) for row in candidates}
    (scores,) = harness.score(SCORER, endpoints, [{"peer": f"e{peer}"}], candidates=members, raw=True)
    assert list(scores.values()) == pytest.approx([RATINGS[levels[row]] for row in candidates])
    for number, level in enumerate(LEVELS):
        near = [f"e{row}" for row in candidates if levels[row] <= number]
        assert harness.keep(level, endpoints, [{"peer": f"e{peer}"}], candidates=members) == [near or members]


@pytest.mark.parametrize(
    ("parameter", "level"), [("hostname", "host"), ("rack", "rack"), ("zone", "zone"), ("region", "region")]
)
def test_parameters_name_the_labels(harness: PluginHarness, parameter: str, level: str) -> None:
    harness.configure("named", SCORER, {parameter: "example.com/place"})
    pool = [{"example.com/place": "x"}, {"example.com/place": "x"}, {LABELS[level]: "x"}]
    (scores,) = harness.score("named", rows(pool), [{"peer": "e0"}])
    rating = RATINGS[LEVELS.index(level)]
    assert list(scores.values()) == pytest.approx([rating, rating, 0])


@pytest.mark.parametrize(
    ("type_name", "parameters", "path"),
    [
        (FILTER, {"minAffinity": "node"}, "minAffinity"),
        (FILTER, {"minAffinity": ""}, "minAffinity"),
        (FILTER, {"hostname": ""}, "hostname"),
        (SCORER, {"region": ""}, "region"),
        (SCORER, {"zone": 1}, "zone"),
        (SCORER, {"minAffinity": "host"}, "minAffinity"),
        (SCORER, {"topologyProducerName": 5}, "topologyProducerName"),
    ],
)
def test_parameters_are_read_strictly(
    harness: PluginHarness, type_name: str, parameters: dict[str, object], path: str
) -> None:
    with pytest.raises(ParameterError) as caught:
        harness.configure("x", type_name, parameters)
    assert caught.value.path == path
