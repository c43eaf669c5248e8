"""The package `latency`: what is learned and predicted, and what is decided by it."""

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pytest
from hotbay_latency import plugin, state
from hotbay_latency.contexts import Context, Contexts
from hotbay_latency.features import WIDTH, feature_rows, scaled_load, uncached_tokens
from hotbay_latency.parameters import objective_ms, seconds
from hotbay_latency.regression import MAX_TARGET_MS, MIN_OBSERVATIONS, Regression
from hotbay_sdk import ParameterError
from hotbay_sdk.testing import PluginHarness
from hypothesis import given
from hypothesis import strategies as st

PRODUCER, SCORER, FILTER, ADMITTER = (
    "predicted-latency-producer",
    "latency-scorer",
    "slo-headroom-tier-filter",
    "latency-slo-admitter",
)
TTFT, TPOT, TTFT_ROOM, TPOT_ROOM = (
    f"LatencyPredictionInfo.{name}" for name in ("ttft_ms", "tpot_ms", "ttft_headroom_ms", "tpot_headroom_ms")
)
MATCHED, TOTAL = "PrefixCacheMatchInfo.matched_blocks", "PrefixCacheMatchInfo.total_blocks"
BLOCK = "PrefixCacheMatchInfo.block_size_tokens"
TTFT_SLO, TPOT_SLO = "x-llm-d-slo-ttft-ms", "x-llm-d-slo-tpot-ms"
NAN = math.nan

rooms = st.integers(-50, 50).map(float) | st.just(NAN)
rows_of_rooms = st.lists(st.tuples(rooms, rooms, st.integers(0, 2)), min_size=1, max_size=6)


@pytest.fixture
def harness() -> Iterator[PluginHarness]:
    with PluginHarness(plugin) as made:
        yield made


@pytest.fixture(scope="module")
def shared() -> Iterator[PluginHarness]:
    """For property tests, which configure nothing."""
    with PluginHarness(plugin) as made:
        made.configure("least", SCORER)
        made.configure("most", SCORER, {"headroomSelectionStrategy": "most"})
        made.configure("filter", FILTER, {"epsilonExploreNeg": 0})
        yield made


def engine(running: float = 0, waiting: float = 0, kv_usage: float = 0, in_flight: float = 0) -> dict[str, float]:
    return {"running": running, "waiting": waiting, "kv_usage": kv_usage, "in_flight": in_flight}


def request(number: int, tokens: int = 1000, ttft: str = "", tpot: str = "") -> dict[str, object]:
    return {"id": f"r{number}", "tokens_estimate": tokens, "headers": {TTFT_SLO: ttft, TPOT_SLO: tpot}}


def cached(*matched: float) -> dict[str, Sequence[float]]:
    return {MATCHED: matched, f"{BLOCK}/request": [64]}


def teach(
    harness: PluginHarness,
    count: int = MIN_OBSERVATIONS,
    *,
    response: Mapping[str, object] | None = None,
    ttft_ms: float | None = None,
) -> None:
    """Serve requests of 1000 x n tokens in 100 x n milliseconds, or in `ttft_ms`."""
    for number in range(count):
        tokens = 1000 * (1 + number % 4)
        one = request(number, tokens)
        pods = {"a": engine(running=number % 3), "b": engine()}
        harness.produce("p", pods, [one], data=cached(0, 0))
        harness.pre_request("p", pods, ["a"], one)
        took_us = int(1000 * (tokens / 10 if ttft_ms is None else ttft_ms))
        told = {"endpoint": "a", "ttft_us": took_us, "elapsed_us": took_us + 990_000, "chunks": 100}
        harness.response_body("p", told | {"usage": {"completion_tokens": 100}} | dict(response or {}), one)


def observations(harness: PluginHarness) -> tuple[int, int]:
    dumped = harness.dump_state("p")
    assert isinstance(dumped, dict)
    return dumped["ttft"]["observations"], dumped["tpot"]["observations"]


# -- regression ------------------------------------------------------------------------------------


def test_nothing_is_predicted_from_too_little() -> None:
    model = Regression(2)
    for number in range(MIN_OBSERVATIONS):
        assert np.isnan(model.predict(np.ones((1, 2)))).all()
        assert model.learn(np.array([1.0, number]), 10.0 + number)
    assert model.predict(np.array([[1.0, 5.0]])) == pytest.approx([15.0], rel=1e-2)


@given(
    weights=st.lists(st.floats(0, 100), min_size=3, max_size=3),
    rows=st.lists(st.lists(st.floats(0, 4), min_size=2, max_size=2), min_size=40, max_size=60),
)
def test_predictions_equal_ridge_regression_over_the_same_observations(
    weights: list[float], rows: list[list[float]]
) -> None:
    features = np.array([[1.0, *row] for row in rows])
    targets = features @ np.array(weights)
    model = Regression(3)
    for row, target in zip(features, targets, strict=True):
        model.learn(row, float(target))
    ages = 0.998 ** np.arange(len(rows) - 1, -1, -1)
    sums = features.T @ (features * ages[:, None]) + 1e-3 * np.eye(3)
    plain = np.maximum(features @ np.linalg.solve(sums, features.T @ (targets * ages)), 0)
    assert model.predict(features) == pytest.approx(plain, rel=1e-6, abs=1e-6)


def test_what_was_learned_last_counts_most() -> None:
    model = Regression(1)
    for target in [10.0] * 1000 + [50.0] * 2000:
        model.learn(np.ones(1), target)
    assert model.predict(np.ones((1, 1))) == pytest.approx([50], rel=0.02)


@pytest.mark.parametrize(
    ("feature", "target", "taken"),
    [
        (1.0, 0.0, True),
        (1.0, MAX_TARGET_MS, True),
        (1.0, -0.1, False),
        (1.0, MAX_TARGET_MS + 1, False),
        (1.0, NAN, False),
        (NAN, 1.0, False),
        (math.inf, 1.0, False),
    ],
)
def test_what_cannot_be_is_not_learned(feature: float, target: float, taken: bool) -> None:
    model = Regression(1)
    assert model.learn(np.array([feature]), target) is taken
    assert model.observations == taken


@given(targets=st.lists(st.floats(0, 1e6), min_size=MIN_OBSERVATIONS, max_size=50), x=st.floats(-10, 10))
def test_predictions_are_never_negative(targets: list[float], x: float) -> None:
    model = Regression(2)
    for number, target in enumerate(targets):
        model.learn(np.array([1.0, number % 3]), target)
    (found,) = model.predict(np.array([[1.0, x]]))
    assert found >= 0


def test_rows_with_unknown_figures_have_no_features() -> None:
    load = scaled_load([np.array([16.0, -1.0]), np.array([0.0, 0.0]), np.array([0.5, 0.5]), np.array([32.0, 0.0])])
    rows = feature_rows(load, 2048, np.array([1024.0, 0.0]))
    assert rows.shape == (2, WIDTH)
    assert rows[0] == pytest.approx([1, 1, 0, 0.5, 2, 2, 1, 1])
    assert np.isnan(rows[1]).any()


@pytest.mark.parametrize(
    ("matched", "block", "uncached"), [(0, 64, 1000), (5, 64, 680), (100, 64, 0), (NAN, 64, 1000), (5, NAN, 1000)]
)
def test_uncached_tokens_are_those_that_no_block_holds(matched: float, block: float, uncached: float) -> None:
    assert uncached_tokens(1000, np.array([matched]), block) == pytest.approx([uncached])


# -- contexts --------------------------------------------------------------------------------------


def context(noted_s: float, slo_ms: float = 0) -> Context:
    return Context(("a", "b"), np.zeros((2, 4)), np.zeros(2), 0, slo_ms, noted_s)


def test_requests_are_forgotten_by_age_and_number() -> None:
    kept = Contexts(10, most=2)
    for number, now in enumerate([0.0, 1.0, 2.0]):
        kept.note(f"r{number}", context(now))
    assert [kept.find(f"r{number}") is not None for number in range(3)] == [False, True, True]
    kept.note("r3", context(12.0))
    assert [kept.find(f"r{number}") is not None for number in range(4)] == [False, False, True, True]
    kept.note("r3", context(12.1))
    assert len(kept) == 1


def test_requests_that_are_never_sent_are_bounded_by_their_rows() -> None:
    kept = Contexts(100, most_rows=4)
    kept.note("sent", context(0))
    kept.sent("sent", "a", np.zeros(1))
    for number in range(3):
        kept.note(f"r{number}", context(0))
    assert [kept.find(name) is not None for name in ("sent", "r0", "r1", "r2")] == [True, False, True, True]
    small = Contexts(100, most_rows=1)
    small.note("r", context(0))
    assert small.find("r") is not None


def test_the_strictest_objective_of_what_runs_counts_and_goes_with_its_request() -> None:
    kept = Contexts(100)
    for number, slo in enumerate([50.0, 30.0, 30.0, 0.0]):
        kept.note(f"r{number}", context(0, slo))
        kept.sent(f"r{number}", "a" if number < 3 else "b", np.zeros(1))
    assert kept.strictest(("a", "b")).tolist() == [30, math.inf]
    kept.end("r1")
    assert kept.strictest(("a", "b")).tolist() == [30, math.inf]
    kept.end("r2")
    assert kept.strictest(("a", "b")).tolist() == [50, math.inf]
    kept.end("r0")
    kept.end("r3")
    assert kept.strictest(("a", "b")).tolist() == [math.inf, math.inf]
    assert kept.end("r0") is None


def test_a_request_is_sent_once() -> None:
    kept = Contexts(100)
    kept.note("r", context(0, 20))
    for target in ("a", "b"):
        kept.sent("r", target, np.zeros(1))
    kept.sent("gone", "b", np.zeros(1))
    assert kept.strictest(("a", "b")).tolist() == [20, math.inf]


# -- producer --------------------------------------------------------------------------------------


def test_a_cold_model_predicts_nothing(harness: PluginHarness) -> None:
    harness.configure("p", PRODUCER)
    teach(harness, MIN_OBSERVATIONS - 1)
    made = harness.produce("p", {"a": engine()}, [request(1)])
    assert set(made) == {TTFT, TPOT, TTFT_ROOM, TPOT_ROOM}
    assert all(math.isnan(value) for rows in made.values() for row in rows for value in row)


def test_what_was_learned_is_predicted_for_every_endpoint(harness: PluginHarness) -> None:
    harness.configure("p", PRODUCER)
    teach(harness, 200)
    pods = {"a": engine(), "b": engine(), "c": {}}
    made = harness.produce("p", pods, [request(1, 2000, ttft="500")], data=cached(0, 31, 0))
    (ttft,), (room,) = made[TTFT], made[TTFT_ROOM]
    assert ttft[0] == pytest.approx(200, rel=0.05)
    assert math.isnan(ttft[2])
    assert room[0] == pytest.approx(500 - ttft[0], rel=1e-3)
    assert made[TPOT_ROOM][0][:2] == [0, 0]
    assert math.isnan(made[TPOT_ROOM][0][2])


def test_without_an_objective_all_headroom_is_what_is_missing(harness: PluginHarness) -> None:
    harness.configure("p", PRODUCER)
    teach(harness, 200)
    made = harness.produce("p", {"a": engine()}, [request(1)])
    assert made[TTFT_ROOM][0][0] == -made[TTFT][0][0] < 0


def test_time_per_output_token_counts_in_streaming_mode(harness: PluginHarness) -> None:
    harness.configure("p", PRODUCER, {"streamingMode": True, "sloBufferFactor": 2, "endpointRoleLabel": "role"})
    teach(harness, 200)
    pods = {"a": engine(), "b": engine() | {"labels": {"role": "prefill"}}}
    made = harness.produce("p", pods, [request(1, tpot="20")])
    assert made[TPOT][0][0] == pytest.approx(10, rel=0.05)
    assert made[TPOT_ROOM][0][0] == pytest.approx(40 - made[TPOT][0][0], rel=1e-3)
    assert made[TPOT_ROOM][0][1] == 0


def test_the_strictest_request_of_an_endpoint_bounds_its_headroom(harness: PluginHarness) -> None:
    harness.configure("p", PRODUCER, {"streamingMode": True})
    teach(harness, 200)
    pods = {"a": engine(), "b": engine()}
    strict = request(900, tpot="15")
    harness.produce("p", pods, [strict])
    harness.pre_request("p", pods, ["a"], strict)
    made = harness.produce("p", pods, [request(901, tpot="50")])
    tpot, room = made[TPOT][0], made[TPOT_ROOM][0]
    assert room == pytest.approx([15 - tpot[0], 50 - tpot[1]], rel=1e-3)
    harness.response_body("p", {"endpoint": "a", "cause": "error"}, strict)
    assert harness.produce("p", pods, [request(902, tpot="50")])[TPOT_ROOM][0][0] == pytest.approx(
        50 - tpot[0], rel=1e-3
    )


@pytest.mark.parametrize(
    ("response", "learned"),
    [
        ({}, (1, 1)),
        ({"cause": "client-disconnect"}, (0, 0)),
        ({"cause": "error"}, (0, 0)),
        ({"cause": "evicted"}, (0, 0)),
        ({"status": 500}, (0, 0)),
        ({"status": 299}, (1, 1)),
        ({"status": 300}, (0, 0)),
        ({"endpoint": "b"}, (0, 0)),
        ({"end": False, "cause": None}, (0, 0)),
        ({"usage": None}, (1, 0)),
        ({"usage": {"completion_tokens": 1}}, (1, 0)),
        ({"chunks": 1}, (1, 0)),
        ({"ttft_us": None}, (1, 1)),
        ({"ttft_us": None, "elapsed_us": None}, (0, 0)),
    ],
)
def test_only_whole_answers_of_the_expected_endpoint_are_learned_from(
    harness: PluginHarness, response: dict[str, object], learned: tuple[int, int]
) -> None:
    harness.configure("p", PRODUCER, {"streamingMode": True})
    teach(harness, 1, response=response)
    assert observations(harness) == learned


def test_nothing_is_learned_of_requests_that_were_never_seen_or_sent(harness: PluginHarness) -> None:
    harness.configure("p", PRODUCER)
    told = {"endpoint": "a", "ttft_us": 1000, "elapsed_us": 1000}
    harness.response_body("p", told, request(1))
    harness.pre_request("p", {"a": engine()}, ["a"], request(1))
    harness.produce("p", {"a": engine()}, [request(1), request(2), request(3)])
    harness.pre_request("p", {"a": engine()}, ["gone"], request(2))
    harness.pre_request("p", {"a": engine()}, [], request(3))
    for number in (1, 2, 3):
        harness.response_body("p", told, request(number))
    assert observations(harness) == (0, 0)


def test_predictions_may_be_switched_off_while_it_learns(harness: PluginHarness) -> None:
    harness.configure("p", PRODUCER, {"predictInProduce": False})
    teach(harness, 50)
    assert observations(harness)[0] == 50
    assert math.isnan(harness.produce("p", {"a": engine()}, [request(1)])[TTFT][0][0])


def test_the_model_shows_what_each_feature_costs(harness: PluginHarness) -> None:
    harness.configure("p", PRODUCER)
    teach(harness, 50)
    dumped = harness.dump_state("p")
    assert isinstance(dumped, dict)
    assert set(dumped["ttft"]["weights_ms"]) >= {"constant", "running", "uncached_tokens"}
    assert dumped["tpot"] == {"observations": 0, "weights_ms": {}}


def test_what_was_learned_moves_to_the_next_version(harness: PluginHarness) -> None:
    harness.configure("p", PRODUCER)
    teach(harness, 50)
    before = harness.produce("p", {"a": engine()}, [request(1)])
    with PluginHarness(plugin) as successor:
        successor.import_state(harness.export_state())
        successor.configure("p", PRODUCER)
        assert successor.state_of("p") == "imported"
        assert observations(successor) == (50, 0)
        assert successor.produce("p", {"a": engine()}, [request(1)])[TTFT] == before[TTFT]


@pytest.mark.parametrize(
    ("width", "data"),
    [(2, b""), (2, b"x" * 99), (3, b"\2\0\0\0" + bytes(2 * (8 + 72 + 24))), (1, b"\1\0\0\0" + b"\xff" * 48)],
    ids=["empty", "cut", "other features", "not finite"],
)
def test_state_that_cannot_be_is_refused(width: int, data: bytes) -> None:
    with pytest.raises(state.StateRefusedError):
        state.restored([data], width, 2)


@given(observations=st.integers(0, 2**64 - 1), numbers=st.lists(st.floats(-1e9, 1e9), min_size=6, max_size=6))
def test_state_is_what_was_written(observations: int, numbers: list[float]) -> None:
    model = Regression.of(observations, np.array(numbers[:4]).reshape(2, 2), np.array(numbers[4:]))
    data = b"".join(state.pieces([model], 2))
    (found,) = state.restored([data[:5], data[5:]], 2, 1)
    assert found.observations == observations
    assert [item.tolist() for item in found.learned] == [item.tolist() for item in model.learned]


# -- scorer ----------------------------------------------------------------------------------------


def rate(
    harness: PluginHarness,
    name: str,
    ttft: Sequence[float],
    tpot: Sequence[float] | None = None,
    in_flight: Sequence[float] | None = None,
) -> list[float]:
    pods = {f"e{row}": {"in_flight": 1 if in_flight is None else in_flight[row]} for row in range(len(ttft))}
    data = {TTFT_ROOM: ttft, TPOT_ROOM: [0.0] * len(ttft) if tpot is None else tpot}
    (scores,) = harness.score(name, pods, data=data)
    return list(scores.values())


@pytest.mark.parametrize(
    ("name", "ttft", "tpot", "in_flight", "ratings"),
    [
        ("least", [120, 50, 30], None, None, [0.01, 0.78, 1]),
        ("most", [120, 50, 30], None, None, [1, 0.23, 0.01]),
        ("least", [50, 50], [10, 20], None, [1, 0.01]),
        ("least", [50, 50], [20, 20], None, [0.51, 0.51]),
        ("least", [0, 10], [10, 0], None, [0.81, 0.2]),
        ("least", [10, -1], None, None, [0.51, 0]),
        ("most", [-100, -500], None, None, [1, 0.01]),
        ("least", [-100, -10], None, [0, 1], [0.51, 0]),
        ("least", [-1, 5, -1], [-1, -9, 5], None, [0, 0.51, 0]),
        ("least", [-1, -1], [-1, 5], None, [0, 0.51]),
        ("least", [-1, -9], [-1, -9], None, [1, 0.01]),
        ("least", [5, NAN], None, None, [0.51, 0]),
        ("least", [-5, NAN], None, None, [0.51, 0]),
    ],
)
def test_headroom_is_rated_within_the_best_group(
    shared: PluginHarness,
    name: str,
    ttft: list[float],
    tpot: list[float] | None,
    in_flight: list[float] | None,
    ratings: list[float],
) -> None:
    assert rate(shared, name, ttft, tpot, in_flight) == pytest.approx(ratings)


def plain_ratings(rows: Sequence[tuple[float, float, int]], *, most: bool) -> list[float]:
    """The formula, one endpoint at a time."""
    known = [n for n, (t, p, _) in enumerate(rows) if not (math.isnan(t) or math.isnan(p))]
    met = [n for n in known if rows[n][0] >= 0 and rows[n][1] >= 0]
    idle = [n for n in known if rows[n][2] == 0]
    only_tpot = [n for n in known if rows[n][0] >= 0 > rows[n][1]]
    only_ttft = [n for n in known if rows[n][1] >= 0 > rows[n][0]]
    group = met or idle or only_tpot or only_ttft or known
    ratings = [0.0] * len(rows)
    ttft = [abs(rows[n][0]) for n in group]
    tpot = [abs(rows[n][1]) for n in group]
    spreads = max(ttft) - min(ttft), max(tpot) - min(tpot)
    alpha, beta = {(True, False): (1.0, 0.0), (False, True): (0.0, 1.0)}.get(
        (spreads[0] > 0, spreads[1] > 0), (0.8, 0.2)
    )
    for n, t, p in zip(group, ttft, tpot, strict=True):
        x = (t - min(ttft)) / spreads[0] if spreads[0] else 0.5
        y = (p - min(tpot)) / spreads[1] if spreads[1] else 0.5
        blended = alpha * x + beta * y
        best = blended if most and met else 1 - blended
        ratings[n] = min((math.floor(best * 100 + 1e-9) + 1) / 100, 1.0)
    return ratings


@pytest.mark.parametrize("name", ["least", "most"])
@given(rows=rows_of_rooms)
def test_ratings_equal_the_formula_of_one_endpoint(
    shared: PluginHarness, name: str, rows: list[tuple[float, float, int]]
) -> None:
    if all(math.isnan(t) or math.isnan(p) for t, p, _ in rows):
        return
    found = rate(shared, name, [t for t, _, _ in rows], [p for _, p, _ in rows], [n for _, _, n in rows])
    # Ratings are cut to two decimals, and one that falls on a step may be cut either way.
    assert found == pytest.approx(plain_ratings(rows, most=name == "most"), abs=0.0101)
    assert all(0 <= rating <= 1 for rating in found)


@pytest.mark.parametrize(
    ("parameters", "ratings"),
    [
        ({}, [0.57, 0.75]),
        ({"compositeQueueWeight": 0, "compositePrefixWeight": 0}, [0.2, 0.75]),
        ({"compositeKVWeight": 0, "compositePrefixWeight": 0}, [1, 0.5]),
        ({"compositeKVWeight": 0, "compositeQueueWeight": 0}, [0.5, 1]),
        ({"compositeKVWeight": 0, "compositeQueueWeight": 0, "compositePrefixWeight": 0}, [0.2, 0.75]),
    ],
)
def test_without_predictions_engine_figures_decide(
    harness: PluginHarness, parameters: dict[str, float], ratings: list[float]
) -> None:
    harness.configure("s", SCORER, parameters)
    pods = {"a": {"waiting": 0, "kv_usage": 0.8}, "b": {"waiting": 2, "kv_usage": 0.25}, "c": {"waiting": 4}}
    (scores,) = harness.score("s", pods, data={MATCHED: [5, 10, 0], f"{TOTAL}/request": [10]})
    assert [scores["a"], scores["b"]] == pytest.approx(ratings)


def test_without_anything_all_rate_alike(harness: PluginHarness) -> None:
    harness.configure("s", SCORER)
    assert harness.score("s", {"a": {}, "b": {}}) == [pytest.approx({"a": 0.33, "b": 0.33})]
    assert harness.score("s", {"a": {"waiting": 0}, "b": {"waiting": 0}}, candidates=["b"])[0].keys() == {"b"}


def test_a_named_producer_is_asked_for(harness: PluginHarness) -> None:
    harness.configure("s", SCORER, {"latencyPredictionInfoProducerName": "mine"})
    own = TTFT_ROOM.replace(".", "/mine."), TPOT_ROOM.replace(".", "/mine.")
    assert harness.facts("s").consumes == own
    pods = {"a": {"in_flight": 1}, "b": {"in_flight": 1}}
    (scores,) = harness.score("s", pods, data={own[0]: [1, 2], own[1]: [0, 0]})
    assert scores == pytest.approx({"a": 1, "b": 0.01})


# -- filter ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("epsilon", "ttft", "tpot", "kept"),
    [
        (0, [5, -5, 0], [0, 0, 0], "ac"),
        (1, [5, -5, 0], [0, 0, 0], "b"),
        (0, [5, 5, 5], [0, -1, NAN], "ac"),
        (1, [5, 5, 5], [0, -1, NAN], "bc"),
        (0, [5, NAN, NAN], [0, 0, 0], "abc"),
        (1, [5, NAN, NAN], [0, 0, 0], "abc"),
        (0, [-5, -1, NAN], [0, 0, 0], "abc"),
        (1, [5, 1, 2], [0, 0, 0], "abc"),
        (0, [NAN, NAN, NAN], [0, 0, 0], "abc"),
    ],
)
def test_the_tier_that_meets_the_objectives_is_kept(
    harness: PluginHarness, epsilon: float, ttft: list[float], tpot: list[float], kept: str
) -> None:
    harness.configure("f", FILTER, {"epsilonExploreNeg": epsilon})
    pods: dict[str, dict[str, float]] = {"a": {}, "b": {}, "c": {}}
    assert harness.keep("f", pods, data={TTFT_ROOM: ttft, TPOT_ROOM: tpot}) == [list(kept)]


def test_a_single_candidate_stays(harness: PluginHarness) -> None:
    harness.configure("f", FILTER, {"epsilonExploreNeg": 1})
    data = {TTFT_ROOM: [5, -5], TPOT_ROOM: [0, 0]}
    assert harness.keep("f", {"a": {}, "b": {}}, candidates=["a"], data=data) == [["a"]]


def test_the_other_tier_is_explored_now_and_then() -> None:
    with PluginHarness(plugin, seed=7) as harness:
        harness.configure("f", FILTER, {"epsilonExploreNeg": 0.1})
        data = {TTFT_ROOM: [5, -5] * 1000, TPOT_ROOM: [0, 0] * 1000}
        kept = harness.keep("f", {"a": {}, "b": {}}, [{}] * 1000, data=data)
    assert 70 <= kept.count(["b"]) <= 130
    assert kept.count(["a"]) + kept.count(["b"]) == 1000


@given(rows=rows_of_rooms, data=st.data())
def test_the_filter_equals_the_formula_of_one_endpoint(
    shared: PluginHarness, rows: list[tuple[float, float, int]], data: st.DataObject
) -> None:
    names = [f"e{row}" for row in range(len(rows))]
    members = [name for name in names if name in data.draw(st.sets(st.sampled_from(names)))]
    columns = {TTFT_ROOM: [t for t, _, _ in rows], TPOT_ROOM: [p for _, p, _ in rows]}
    (kept,) = shared.keep("filter", {name: {} for name in names}, candidates=members, data=columns)
    late = [name for name in members if rows[names.index(name)][0] < 0 or rows[names.index(name)][1] < 0]
    known = [name for name in members if not any(map(math.isnan, rows[names.index(name)][:2]))]
    late = [name for name in late if name in known]
    assert kept == ([name for name in members if name not in late] if len(late) < len(known) else members)


# -- admitter --------------------------------------------------------------------------------------


BUSY = {"kv_usage": 0.5, "running": 3}


@pytest.mark.parametrize(
    ("priority", "slo", "pods", "ttft", "admitted"),
    [
        (-1, "100", [BUSY, BUSY], [-1, -2], False),
        (0, "100", [BUSY, BUSY], [-1, -2], True),
        (-1, "", [BUSY, BUSY], [-1, -2], True),
        (-1, "soon", [BUSY, BUSY], [-1, -2], True),
        (-1, "100", [BUSY, BUSY], [-1, 1], True),
        (-1, "100", [BUSY, BUSY], [-1, 0], False),
        (-1, "100", [BUSY, BUSY | {"running": 0}], [-1, -2], True),
        (-1, "100", [BUSY, BUSY | {"kv_usage": 0.019}], [-1, -2], True),
        (-1, "100", [BUSY, BUSY | {"kv_usage": 0.02}], [-1, -2], False),
        (-1, "100", [BUSY, {}], [-1, -2], True),
        (-1, "100", [BUSY, BUSY], [NAN, NAN], True),
        (-1, "100", [BUSY, BUSY], [-1, NAN], False),
    ],
)
def test_what_may_be_shed_is_denied_where_nobody_would_be_in_time(
    harness: PluginHarness,
    priority: int,
    slo: str,
    pods: list[dict[str, float]],
    ttft: list[float],
    admitted: bool,
) -> None:
    harness.configure("x", ADMITTER)
    one = {"priority": priority, "headers": {TTFT_SLO: slo}}
    data = {TTFT_ROOM: ttft, TPOT_ROOM: [0] * len(ttft)}
    (verdict,) = harness.admit("x", {f"e{n}": pod for n, pod in enumerate(pods)}, [one], data=data)
    assert (verdict is None) is admitted
    if verdict is not None:
        assert (verdict.code, verdict.reason) == ("resource-exhausted", "rejected-saturated")


def test_an_objective_per_output_token_is_one_too(harness: PluginHarness) -> None:
    harness.configure("x", ADMITTER)
    one = {"priority": -1, "headers": {TPOT_SLO: "20"}}
    data = {TTFT_ROOM: [5], TPOT_ROOM: [-1]}
    assert harness.admit("x", {"a": BUSY}, [one], data=data) != [None]
    assert harness.admit(
        "x", {"a": BUSY, "b": {}}, [one], candidates=["a"], data={k: [*v, 9] for k, v in data.items()}
    ) != [None]


@pytest.mark.parametrize(
    ("slos", "ttft", "tpot", "admitted"),
    [
        ({TPOT_SLO: "10000"}, -50, 5, True),
        ({TPOT_SLO: "10000"}, -50, -1, False),
        ({TTFT_SLO: "10000"}, 5, -50, True),
        ({TTFT_SLO: "10000"}, -1, -50, False),
        ({TTFT_SLO: "10000", TPOT_SLO: "10000"}, 5, -1, False),
        ({TTFT_SLO: "10000", TPOT_SLO: "10000"}, 5, 0, True),
        ({TPOT_SLO: "10000"}, NAN, -1, True),
    ],
)
def test_an_objective_that_is_not_given_counts_as_met(
    harness: PluginHarness, slos: dict[str, str], ttft: float, tpot: float, admitted: bool
) -> None:
    harness.configure("x", ADMITTER)
    data = {TTFT_ROOM: [ttft], TPOT_ROOM: [tpot]}
    (verdict,) = harness.admit("x", {"a": BUSY}, [{"priority": -1, "headers": slos}], data=data)
    assert (verdict is None) is admitted


# -- parameters ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [(None, 0), ("", 0), ("x", 0), ("-1", 0), ("0", 0), ("nan", 0), ("inf", 0), ("12.5", 12.5), ("1e3", 1000)],
)
def test_objectives_are_numbers_above_0(text: str | None, expected: float) -> None:
    assert objective_ms(text) == expected


@pytest.mark.parametrize(("value", "expected"), [("5m", 300), ("1m30s", 90), (300_000_000_000, 300), ("250ms", 0.25)])
def test_durations_are_texts_or_nanoseconds(value: str | int, expected: float) -> None:
    assert seconds(value, "d") == pytest.approx(expected)


@pytest.mark.parametrize(
    ("type_name", "parameters", "path"),
    [
        (PRODUCER, {"samplingMean": 0}, "samplingMean"),
        (PRODUCER, {"sloBufferFactor": 0}, "sloBufferFactor"),
        (PRODUCER, {"maxDecodeTokenSamplesForPrediction": -1}, "maxDecodeTokenSamplesForPrediction"),
        (PRODUCER, {"contextTTL": "0s"}, "contextTTL"),
        (PRODUCER, {"contextTTL": -5}, "contextTTL"),
        (PRODUCER, {"contextTTL": "later"}, "contextTTL"),
        (PRODUCER, {"streaming": True}, "streaming"),
        (SCORER, {"ttftWeight": -0.1}, "ttftWeight"),
        (SCORER, {"tpotWeight": -1}, "tpotWeight"),
        (SCORER, {"compositeKVWeight": -1}, "compositeKVWeight"),
        (SCORER, {"compositeQueueWeight": -1}, "compositeQueueWeight"),
        (SCORER, {"compositePrefixWeight": -1}, "compositePrefixWeight"),
        (SCORER, {"headroomSelectionStrategy": "some"}, "headroomSelectionStrategy"),
        (FILTER, {"epsilonExploreNeg": -0.01}, "epsilonExploreNeg"),
        (FILTER, {"epsilonExploreNeg": 1.01}, "epsilonExploreNeg"),
        (ADMITTER, {"streamingMode": True}, "streamingMode"),
    ],
)
def test_bad_parameters_are_refused_where_they_stand(
    harness: PluginHarness, type_name: str, parameters: dict[str, object], path: str
) -> None:
    with pytest.raises(ParameterError) as refused:
        harness.configure("bad", type_name, parameters)
    assert refused.value.path == path


@pytest.mark.parametrize("weights", [(0, 0), (0, 1), (1, 0)], ids=str)
def test_weights_may_be_zero(harness: PluginHarness, weights: tuple[int, int]) -> None:
    harness.configure("s", SCORER, {"ttftWeight": weights[0], "tpotWeight": weights[1]})
    expected = [0.01, 1] if weights == (0, 1) else [1, 0.01]
    assert rate(harness, "s", [0, 10], [10, 0]) == pytest.approx(expected)
