"""The package `labels`, types by which a header of the request chooses."""

from collections.abc import Iterator, Mapping, Sequence

import pytest
from hotbay_labels import plugin
from hotbay_sdk import ParameterError
from hotbay_sdk.testing import PluginHarness
from hypothesis import given
from hypothesis import strategies as st

AFFINITY = "header-label-affinity-scorer"
ZONE = "topology.kubernetes.io/zone"

labels = st.dictionaries(st.sampled_from([ZONE, "other"]), st.sampled_from(["", "a", "b", "A"]))
header_values = st.sampled_from([None, "", "a", "b", "A", "c"])


@pytest.fixture(scope="module")
def harness() -> Iterator[PluginHarness]:
    with PluginHarness(plugin) as made:
        made.configure("zone", AFFINITY, {"headerName": "X-Zone", "labelKey": ZONE})
        yield made


def rated(
    harness: PluginHarness, pool: Sequence[Mapping[str, str]], *wanted: str | None, ref: str = "zone"
) -> list[list[float]]:
    endpoints = {f"e{row}": {"labels": given} for row, given in enumerate(pool)}
    requests = [{"headers": {} if value is None else {"x-zone": value}} for value in wanted]
    return [list(scores.values()) for scores in harness.score(ref, endpoints, requests, raw=True)]


def test_the_header_names_the_value_of_the_label(harness: PluginHarness) -> None:
    pool = [{ZONE: "a"}, {ZONE: "b"}, {ZONE: "A"}, {ZONE: ""}, {"other": "a"}, {}]
    found = rated(harness, pool, "a", None, "", "c", "b")
    assert found == [[1, 0, 0, 0, 0, 0], [0] * 6, [0] * 6, [0] * 6, [0, 1, 0, 0, 0, 0]]
    assert harness.score("zone", {}, [{"headers": {"x-zone": "a"}}]) == []


@given(pool=st.lists(labels, min_size=1, max_size=6), wanted=st.lists(header_values, min_size=1, max_size=3))
def test_affinity_rates_as_one_by_one(
    harness: PluginHarness, pool: list[dict[str, str]], wanted: list[str | None]
) -> None:
    expected = [[1.0 if value and given.get(ZONE) == value else 0.0 for given in pool] for value in wanted]
    assert rated(harness, pool, *wanted) == expected


def test_affinity_takes_short_names_of_its_parameters(harness: PluginHarness) -> None:
    harness.configure("short", AFFINITY, {"header": "x-zone", "label": ZONE})
    assert rated(harness, [{ZONE: "a"}, {}], "a", ref="short") == [[1, 0]]


@pytest.mark.parametrize(
    ("parameters", "path"),
    [
        ({}, "headerName"),
        ({"headerName": "x-zone"}, "labelKey"),
        ({"labelKey": ZONE}, "headerName"),
        ({"headerName": "", "labelKey": ZONE}, "headerName"),
        ({"header": "x-zone", "label": ""}, "label"),
        ({"headerName": 1, "labelKey": ZONE}, "headerName"),
        ({"headerName": "x-zone", "labelKey": [ZONE]}, "labelKey"),
        ({"headerName": "x-zone", "header": "x-zone", "labelKey": ZONE}, "header"),
        ({"headerName": "x-zone", "labelKey": ZONE, "weight": 1}, "weight"),
    ],
)
def test_affinity_is_read_strictly(harness: PluginHarness, parameters: dict[str, object], path: str) -> None:
    with pytest.raises(ParameterError) as caught:
        harness.configure("x", AFFINITY, parameters)
    assert caught.value.path == path


SELECTION = "header-based-testing-filter"
POOL = {
    "a": "10.0.0.1:8000",
    "b": "10.0.0.1:8001",
    "c": "10.0.0.11:8000",
    "d": "[fd00::1]:8000",
    "e": "model.example.com:80",
    "f": None,
}


def selected(harness: PluginHarness, header: str | None, members: Sequence[str] | None = None) -> list[str]:
    harness.configure("selection", SELECTION)
    endpoints = {name: {} if address is None else {"address": address} for name, address in POOL.items()}
    request = {"headers": {} if header is None else {"test-epp-endpoint-selection": header}}
    (ids,) = harness.keep("selection", endpoints, [request], candidates=members)
    return ids


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (None, []),
        ("", []),
        (" , ", []),
        ("10.0.0.1", ["a", "b"]),
        ("10.0.0.1:8001", ["b"]),
        ("10.0.0.1:9", []),
        ("10.0.0", []),
        ("256.256.256.256", []),
        (" 10.0.0.11:8000 , 10.0.0.1:8000,", ["a", "c"]),
        ("fd00::1", ["d"]),
        ("[fd00::1]", ["d"]),
        ("[fd00::1]:8000", ["d"]),
        ("[fd00::1]:8001", []),
        ("model.example.com", ["e"]),
    ],
)
def test_the_header_lists_addresses(harness: PluginHarness, header: str | None, expected: list[str]) -> None:
    assert selected(harness, header) == expected
    assert selected(harness, header, ["b", "d"]) == [name for name in expected if name in ("b", "d")]


@given(
    items=st.lists(st.sampled_from(["10.0.0.1", "10.0.0.1:8000", "10.0.0.1:8001", "10.0.0.11:8000", "10.0.0.2", ""]))
)
def test_addresses_are_selected_as_one_by_one(harness: PluginHarness, items: list[str]) -> None:
    known = {name: address for name, address in POOL.items() if address and address.startswith("10.")}
    expected = [name for name, address in known.items() if address in items or address.split(":")[0] in items]
    assert selected(harness, ",".join(items)) == expected


def test_selection_takes_no_parameters_and_no_endpoints(harness: PluginHarness) -> None:
    with pytest.raises(ParameterError):
        harness.configure("x", SELECTION, {"header": "x"})
    harness.configure("selection", SELECTION)
    assert harness.keep("selection", {}) == []
