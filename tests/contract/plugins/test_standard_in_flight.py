"""The package `standard`, what the host has sent: active requests and tokens in flight."""

import math
from collections.abc import Iterator, Mapping, Sequence

import pytest
from hotbay_sdk import ParameterError
from hotbay_sdk.testing import PluginHarness
from hotbay_standard import plugin
from hypothesis import given
from hypothesis import strategies as st

ACTIVE = "active-request-scorer"
TOKENS = "token-load-scorer"
MATCHED = "PrefixCacheMatchInfo.matched_blocks"
BLOCK_TOKENS = "PrefixCacheMatchInfo.block_size_tokens/request"
MOST_TOKENS = 4_194_304

counts = st.integers(0, 1000).map(float) | st.sampled_from([math.nan, -1.0, 2.0**100])
tokens = st.sampled_from([-1, 0, 1, MOST_TOKENS - 1, MOST_TOKENS, 2**60]) | st.integers(0, 2 * MOST_TOKENS)


@pytest.fixture(scope="module")
def harness() -> Iterator[PluginHarness]:
    with PluginHarness(plugin) as made:
        made.configure(ACTIVE, ACTIVE)
        made.configure(TOKENS, TOKENS)
        yield made


def active(
    harness: PluginHarness, values: Sequence[float], candidates: Sequence[int] | None = None, *, ref: str = ACTIVE
) -> list[float]:
    endpoints = {f"e{row}": {"in_flight": value} for row, value in enumerate(values)}
    members = None if candidates is None else [f"e{row}" for row in candidates]
    (scores,) = harness.score(ref, endpoints, candidates=members, raw=True)
    return list(scores.values())


def loads(
    harness: PluginHarness,
    in_flight: Sequence[int | None],
    own: Sequence[int],
    *,
    ref: str = TOKENS,
    data: Mapping[str, Sequence[float]] | None = None,
    candidates: Sequence[int] | None = None,
) -> list[list[float]]:
    endpoints: dict[str, dict[str, float]] = {
        f"e{row}": {} if value is None else {"in_flight_tokens": value} for row, value in enumerate(in_flight)
    }
    members = None if candidates is None else [f"e{row}" for row in candidates]
    requests = [{"tokens_estimate": count} for count in own]
    found = harness.score(ref, endpoints, requests, candidates=members, data=data, raw=True)
    return [list(scores.values()) for scores in found]


def plain_active(count: float, among: Sequence[float], idle: int, most: float) -> float:
    """1 up to the idle threshold, else (max - c) / max x most; 0.5 for what is not known."""
    if not math.isfinite(count) or count < 0:
        return 0.5
    highest = max(other for other in among if math.isfinite(other) and other >= 0)
    return 1.0 if count <= idle else (highest - count) / highest * most


def plain_load(in_flight: int, own: int, matched: float, block: float, threshold: int) -> float:
    """1 - min(in flight + this request's tokens that are not cached, t) / t; 1 where nothing is known."""
    cached = 0.0 if math.isnan(matched) or math.isnan(block) else matched * block
    return 1.0 if in_flight < 0 else 1 - min(in_flight + max(0.0, own - cached), threshold) / threshold


def test_es06_the_fewest_active_requests_rate_best(harness: PluginHarness) -> None:
    assert active(harness, [3, 0, 6]) == [0.5, 1, 0]


def test_active_requests_up_to_the_idle_threshold_rate_1(harness: PluginHarness) -> None:
    harness.configure("idle", ACTIVE, {"idleThreshold": 2, "maxBusyScore": 0.5})
    assert active(harness, [0, 2, 3, 5, 10], ref="idle") == pytest.approx([1, 1, 0.35, 0.25, 0])


@pytest.mark.parametrize(("most", "rating"), [(0, 0), (0.5, 0.25), (1, 0.5)])
def test_the_busy_rate_no_more_than_is_configured(harness: PluginHarness, most: float, rating: float) -> None:
    harness.configure("busy", ACTIVE, {"maxBusyScore": most})
    assert active(harness, [3, 6, 0], ref="busy") == [rating, 0, 1]


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ({"idleThreshold": -1}, "idleThreshold -1 is below 0"),
        ({"maxBusyScore": -0.1}, "maxBusyScore -0.1 is not within"),
        ({"maxBusyScore": 1.1}, "maxBusyScore 1.1 is not within"),
        ({"requestTimeout": "2m"}, "requestTimeout is deprecated"),
        ({"inFlightLoadProducerName": "inflight-load-producer"}, ""),
    ],
)
def test_what_the_reference_puts_right_counts_as_the_default_here_too(
    harness: PluginHarness, parameters: dict[str, object], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    harness.configure("odd", ACTIVE, parameters)
    assert active(harness, [3, 0, 6], ref="odd") == [0.5, 1, 0]
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("values", [[5], [5, 5], [0, 0]])
def test_s19_equal_counts_rate_equal(harness: PluginHarness, values: list[float]) -> None:
    ratings = active(harness, values)
    assert ratings == [1.0 if value == 0 else 0.0 for value in values]


def test_active_requests_that_are_not_known_rate_half_and_have_no_say(harness: PluginHarness) -> None:
    assert active(harness, [3, math.nan, 6, -1]) == [0.5, 0.5, 0, 0.5]
    assert active(harness, [math.nan]) == [0.5]


def test_active_requests_of_no_candidate_have_no_say(harness: PluginHarness) -> None:
    assert active(harness, [100, 3, 0, 6], candidates=[1, 2, 3]) == [0.5, 1, 0]
    assert active(harness, [100, 3], candidates=[]) == []


@given(values=st.lists(counts, min_size=1, max_size=8), idle=st.integers(0, 9), most=st.floats(0, 1), data=st.data())
def test_s18_active_requests_rate_as_the_plain_formula(
    harness: PluginHarness, values: list[float], idle: int, most: float, data: st.DataObject
) -> None:
    candidates = sorted(data.draw(st.sets(st.integers(0, len(values) - 1))))
    among = [values[row] for row in candidates]
    harness.configure("plain", ACTIVE, {"idleThreshold": idle, "maxBusyScore": most})
    found = active(harness, values, candidates, ref="plain")
    assert found == pytest.approx([plain_active(count, among, idle, most) for count in among], abs=1e-6)
    assert all(0 <= rating <= 1 for rating in found)


def test_es08_the_fewest_tokens_rate_best(harness: PluginHarness) -> None:
    harness.configure("thousand", TOKENS, {"queueThresholdTokens": 1000})
    assert loads(harness, [0, 250, 750], [250], ref="thousand") == [[0.75, 0.5, 0]]


def test_every_request_adds_its_own_tokens(harness: PluginHarness) -> None:
    harness.configure("thousand", TOKENS, {"queueThresholdTokens": 1000})
    assert loads(harness, [0, 500], [0, 250, 900], ref="thousand") == [[1, 0.5], [0.75, 0.25], pytest.approx([0.1, 0])]


def test_tokens_that_an_endpoint_has_cached_do_not_count(harness: PluginHarness) -> None:
    harness.configure("thousand", TOKENS, {"queueThresholdTokens": 1000})
    data = {MATCHED: [2, 0, 9, math.nan], BLOCK_TOKENS: [64]}
    assert loads(harness, [0, 0, 0, 0], [250], ref="thousand", data=data) == [pytest.approx([0.878, 0.75, 1, 0.75])]


def test_cached_tokens_are_those_of_each_request(harness: PluginHarness) -> None:
    harness.configure("thousand", TOKENS, {"queueThresholdTokens": 1000})
    data = {MATCHED: [1, 0, 0, 2], BLOCK_TOKENS: [100, 50]}
    found = loads(harness, [0, 0], [500, 500], ref="thousand", data=data)
    assert found == [pytest.approx([0.6, 0.5]), pytest.approx([0.5, 0.6])]


def test_tokens_that_are_not_known_rate_1(harness: PluginHarness) -> None:
    harness.configure("thousand", TOKENS, {"queueThresholdTokens": 1000})
    assert loads(harness, [None, -1, 500], [250], ref="thousand") == [[1, 1, 0.25]]


def test_the_default_is_128_requests_of_32_ki_tokens(harness: PluginHarness) -> None:
    assert loads(harness, [0, MOST_TOKENS // 2, MOST_TOKENS, 2 * MOST_TOKENS], [0]) == [[1, 0.5, 0, 0]]
    assert loads(harness, [MOST_TOKENS // 2], [0]) == [[0.5]]


@pytest.mark.parametrize(("threshold", "rating"), [(-1, 0.5), (0, 0.5), (1, 0)])
def test_a_threshold_not_above_0_counts_as_the_default(
    harness: PluginHarness, threshold: int, rating: float, capsys: pytest.CaptureFixture[str]
) -> None:
    harness.configure("odd", TOKENS, {"queueThresholdTokens": threshold})
    assert loads(harness, [MOST_TOKENS // 2], [0], ref="odd") == [[rating]]
    assert ("is used" in capsys.readouterr().err) is (threshold <= 0)


@given(
    in_flight=st.lists(tokens, min_size=1, max_size=6),
    own=st.lists(st.integers(0, MOST_TOKENS), min_size=1, max_size=3),
    threshold=st.integers(1, 2 * MOST_TOKENS),
    data=st.data(),
)
def test_s18_token_loads_rate_as_the_plain_formula(
    harness: PluginHarness, in_flight: list[int], own: list[int], threshold: int, data: st.DataObject
) -> None:
    rows, size = len(in_flight), len(own)
    block = st.sampled_from([16.0, 64.0, math.nan])
    blocks = data.draw(st.lists(block, min_size=size, max_size=size))
    match = st.integers(0, 2000).map(float) | st.just(math.nan)
    matched = data.draw(st.lists(match, min_size=size * rows, max_size=size * rows))
    harness.configure("plain", TOKENS, {"queueThresholdTokens": threshold})
    found = loads(harness, in_flight, own, ref="plain", data={MATCHED: matched, BLOCK_TOKENS: blocks})
    for number, ratings in enumerate(found):
        expected = [
            plain_load(value, own[number], matched[number * rows + row], blocks[number], threshold)
            for row, value in enumerate(in_flight)
        ]
        assert ratings == pytest.approx(expected, abs=1e-6)
        assert all(0 <= rating <= 1 for rating in ratings)


@pytest.mark.parametrize(
    ("type_name", "parameters", "path"),
    [
        (ACTIVE, {"idleThreshold": "1"}, "idleThreshold"),
        (ACTIVE, {"idleThreshold": 1.5}, "idleThreshold"),
        (ACTIVE, {"maxBusyScore": True}, "maxBusyScore"),
        (ACTIVE, {"maxBusyScore": math.nan}, "maxBusyScore"),
        (ACTIVE, {"idle": 1}, "idle"),
        (TOKENS, {"queueThresholdTokens": 1.5}, "queueThresholdTokens"),
        (TOKENS, {"inFlightLoadProducerName": 1}, "inFlightLoadProducerName"),
        (TOKENS, {"threshold": 1}, "threshold"),
    ],
)
def test_parameters_are_read_strictly(
    harness: PluginHarness, type_name: str, parameters: dict[str, object], path: str
) -> None:
    with pytest.raises(ParameterError) as caught:
        harness.configure("x", type_name, parameters)
    assert caught.value.path == path


@pytest.mark.parametrize("type_name", [ACTIVE, TOKENS])
def test_no_endpoint_at_all_is_rated_nothing(harness: PluginHarness, type_name: str) -> None:
    assert harness.score(type_name, {}, [{"tokens_estimate": 5}]) == []


def test_prefix_matches_are_optional() -> None:
    declared = {declaration.type: declaration for declaration in plugin.declarations}[TOKENS]
    assert declared.consumes == ()
    assert set(declared.optional) == {MATCHED, BLOCK_TOKENS.removesuffix("/request")}
