"""The package `lora`: who has a request's adapter, who has room for it, who waits for it."""

import math
import struct
from collections.abc import Iterator, Mapping, Sequence

import pytest
from hotbay_lora import plugin
from hotbay_lora.scorer import LoraAffinityScorer
from hotbay_sdk import Context, ParameterError
from hotbay_sdk._batch import Batch, HeldView, take_view
from hotbay_sdk._instances import NO_FACTS, Instance
from hotbay_sdk.protocol.calls import Requests
from hotbay_sdk.protocol.tables import encode_table
from hotbay_sdk.testing import EndpointFigures, PluginHarness
from hypothesis import given
from hypothesis import strategies as st

TYPE = "lora-affinity-scorer"

names = st.sampled_from(["a", "b", "c", "A", "lora1", "lora10"])
models = st.none() | st.dictionaries(names, st.integers(0, 3), max_size=4)
rooms = st.sampled_from([math.nan, -1.0, 0.0, 1.0, 2.0, 4.0, 37.0, 1e18])


@pytest.fixture(scope="module")
def harness() -> Iterator[PluginHarness]:
    with PluginHarness(plugin) as made:
        made.configure(TYPE, TYPE)
        yield made


def endpoint(
    active: Mapping[str, int] | None, waiting: Mapping[str, int] | None, most: float | None
) -> dict[str, float | Mapping[str, int]]:
    known = {"active_models": active, "waiting_models": waiting, "max_active_models": most}
    return {name: value for name, value in known.items() if value is not None}


def rated(
    harness: PluginHarness, endpoints: EndpointFigures, *requests: Mapping[str, object], members: Sequence[str] = ()
) -> list[list[float]]:
    found = harness.score(TYPE, endpoints, requests, candidates=members or None, raw=True)
    return [list(scores.values()) for scores in found]


def plain(adapter: str, active: Mapping[str, int] | None, waiting: Mapping[str, int] | None, most: float) -> float:
    """Loaded 1; else fewer in use than there is room for 0.8; else waited for 0.6; else 0; 0.5 where nobody can say."""
    if active is not None and adapter in active:
        return 1.0
    can_say = active is not None and waiting is not None and math.isfinite(most) and most > 0
    if active is not None and waiting is not None and can_say and len({*active, *waiting}) < most:
        return 0.8
    if waiting is not None and adapter in waiting:
        return 0.6
    return 0.0 if can_say else 0.5


def test_es05_loaded_room_waited_for_full(harness: PluginHarness) -> None:
    pool = {
        "active": endpoint({"active-model-1": 1}, {}, 2),
        "room": endpoint({"other": 1}, {}, 2),
        "empty": endpoint({}, {}, 2),
        "waiting": endpoint({"x": 1, "y": 1}, {"active-model-1": 1}, 2),
        "full": endpoint({"x": 1, "y": 1}, {}, 2),
    }
    expected = [pytest.approx([1, 0.8, 0.8, 0.6, 0])]
    assert rated(harness, pool, {"target_model": "active-model-1"}) == expected
    assert rated(harness, pool, {"target_model": "base", "lora": "active-model-1"}) == expected


def test_s29_an_adapter_that_is_loaded_and_waited_for_takes_its_room_once(harness: PluginHarness) -> None:
    both = {"a": 0, "b": 0}
    pool = {"room": endpoint(both, both, 4), "just": endpoint(both, both, 3), "full": endpoint(both, both, 2)}
    assert rated(harness, pool, {"lora": "c"}) == [pytest.approx([0.8, 0.8, 0])]


@pytest.mark.parametrize(
    ("asked", "rating"), [("b", 0), ("B", 1), ("lora1", 0), ("lora10", 1), (" B ", 1), ("a", 1), ("", 0)]
)
def test_s30_adapters_match_exactly_after_trimming(harness: PluginHarness, asked: str, rating: float) -> None:
    pool = {"e": endpoint({"a": 0, "B": 0, "lora10": 0}, {}, 3)}
    assert rated(harness, pool, {"lora": asked}) == [[rating]]


@pytest.mark.parametrize("most", [math.nan, -1, 0, None])
def test_s18_room_that_is_not_known_is_neither_room_nor_none(harness: PluginHarness, most: float | None) -> None:
    pool = {
        "active": endpoint({"a": 1}, {}, most),
        "neither": endpoint({"b": 1}, {}, most),
        "waiting": endpoint({"b": 1}, {"a": 1}, most),
    }
    assert rated(harness, pool, {"lora": "a"}) == [pytest.approx([1, 0.5, 0.6])]


def test_an_endpoint_that_says_nothing_rates_half(harness: PluginHarness) -> None:
    pool = {
        "nothing": endpoint(None, None, None),
        "only room": endpoint(None, None, 4),
        "only active": endpoint({"b": 1}, None, 4),
        "only active, has it": endpoint({"a": 1}, None, None),
        "only waiting": endpoint(None, {"a": 1}, 4),
    }
    assert rated(harness, pool, {"lora": "a"}) == [pytest.approx([0.5, 0.5, 0.5, 1, 0.6])]


def test_every_request_has_its_own_adapter(harness: PluginHarness) -> None:
    pool = {"a": endpoint({"a": 1}, {}, 1), "b": endpoint({"b": 1}, {}, 1)}
    assert rated(harness, pool, {"lora": "a"}, {"lora": "b"}, {"target_model": "a"}) == [[1, 0], [0, 1], [1, 0]]
    assert rated(harness, pool, {"lora": "b"}, members=["b"]) == [[1]]
    assert harness.score(TYPE, {}, [{"lora": "a"}]) == []


def test_what_changes_is_seen_with_the_next_call(harness: PluginHarness) -> None:
    assert rated(harness, {"e": endpoint({"a": 1}, {}, 1)}, {"lora": "a"}) == [[1]]
    assert rated(harness, {"e": endpoint({"b": 1}, {}, 1)}, {"lora": "a"}) == [[0]]
    assert rated(harness, {"e": endpoint({"b": 1}, {"a": 1}, 1)}, {"lora": "a"}) == [[pytest.approx(0.6)]]
    assert rated(harness, {"e": endpoint({"b": 1}, {"a": 1}, 3)}, {"lora": "a"}) == [[pytest.approx(0.8)]]


def test_a_table_that_changes_alone_is_seen() -> None:
    spec = plugin._find(TYPE)
    assert spec is not None
    instance = Instance(spec, Context("ref", TYPE), None, NO_FACTS)
    scorer = LoraAffinityScorer(Context("ref", TYPE))

    def rate(view: HeldView) -> list[float]:
        fields = {"request.lora": ["a"], "request.target_model": [""]}
        batch = Batch(view, Requests(1, [], None, fields, {}), [view.live])
        (ratings,) = scorer.score_batch(batch.requests(instance), batch.endpoints(instance))
        return [round(rating, 1) for rating in ratings.tolist()]

    active, waiting = "endpoint.active_models", "endpoint.waiting_models"
    columns = {"endpoint.max_active_models": struct.pack("<f", 1)}
    tables = {active: encode_table(active, [{"b": 1}]), waiting: encode_table(waiting, [{}])}
    first = take_view([1, 1, 1, ["e"], columns, None, [1, tables]], None)
    assert rate(first) == [0]
    second = take_view([2, 1, 1, None, columns, None, [2, {waiting: encode_table(waiting, [{"a": 1}])}, 1]], first)
    assert rate(second) == [0.6]
    third = take_view([3, 1, 1, None, columns, None, [3, {active: encode_table(active, [{"a": 1}])}, 2]], second)
    assert rate(third) == [1]


@given(
    pool=st.lists(st.tuples(models, models, rooms), min_size=1, max_size=8),
    adapters=st.lists(names, min_size=1, max_size=3),
)
def test_ratings_are_those_of_the_plain_tiers(
    harness: PluginHarness,
    pool: list[tuple[dict[str, int] | None, dict[str, int] | None, float]],
    adapters: list[str],
) -> None:
    endpoints = {f"e{row}": endpoint(*known) for row, known in enumerate(pool)}
    found = rated(harness, endpoints, *({"lora": adapter} for adapter in adapters))
    assert found == [pytest.approx([plain(adapter, *known) for known in pool]) for adapter in adapters]


def test_parameters_are_refused(harness: PluginHarness) -> None:
    with pytest.raises(ParameterError):
        harness.configure("x", TYPE, {"room": 0.9})
