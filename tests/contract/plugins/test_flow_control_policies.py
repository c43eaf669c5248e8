"""The package `flow-control`: who of those that wait goes next, up to which load, and who is given up."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

import pytest
from hotbay_flow_control import plugin
from hotbay_flow_control.attained import MAX_DUMPED, MAX_FLOWS, AttainedService, least_served
from hotbay_flow_control.ordering import EdfOrderingPolicy, FcfsOrderingPolicy
from hotbay_sdk import Band, Context, Flow, InFlightRequest, ParameterError, QueuedRequest
from hotbay_sdk.testing import PluginCallError, PluginHarness
from hypothesis import given
from hypothesis import strategies as st

ORDERINGS = ("fcfs-ordering-policy", "edf-ordering-policy", "slo-deadline-ordering-policy")
FAIRNESS = ("global-strict-fairness-policy", "round-robin-fairness-policy", "program-aware-fairness")
LIMITS = ("static-usage-limit-policy", "holdback", "soft-reflective-ceiling-policy")
SLO = "x-llm-d-slo-ttft-ms"

times = st.floats(0, 100, width=32)
headers = st.sampled_from([{}, {SLO: "100"}, {SLO: "2500"}, {SLO: "0"}, {SLO: "soon"}, {SLO: "-5"}])
queued = st.builds(
    QueuedRequest, st.text("ab", max_size=3), st.just("f"), st.just(0), times, times, st.just(1), headers
)


@pytest.fixture(scope="module")
def shared() -> Iterator[PluginHarness]:
    """For tests that keep no state of a policy from each other."""
    with PluginHarness(plugin) as made:
        for type_name in (*ORDERINGS, *FAIRNESS, LIMITS[0], LIMITS[2]):
            made.configure(type_name, type_name)
        made.configure("holdback", "priority-holdback-policy", {"minCeiling": 0.4})
        made.configure("filter", "sheddable-eviction-filter")
        made.configure("order", "priority-then-time-eviction-order-policy")
        yield made


@pytest.fixture
def harness() -> Iterator[PluginHarness]:
    with PluginHarness(plugin) as made:
        yield made


def waiting(name: str, enqueued_s: float, ttl_s: float = 0, slo: str | None = None) -> QueuedRequest:
    return QueuedRequest(name, "f", 0, enqueued_s, ttl_s, 1, {} if slo is None else {SLO: slo})


def band(*flows: Flow, priority: int = 0) -> Band:
    return Band(priority, flows)


# -- ordering --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "order"),
    [
        ("fcfs-ordering-policy", "abcd"),
        ("edf-ordering-policy", "dbac"),
        ("slo-deadline-ordering-policy", "cabd"),
    ],
)
def test_requests_are_ordered(shared: PluginHarness, policy: str, order: str) -> None:
    requests = [waiting("a", 1, 20, "5000"), waiting("b", 2, 10), waiting("c", 3, 0, "500"), waiting("d", 4, 1, "soon")]
    assert [request.id for request in shared.ordering(policy, requests)] == list(order)


@pytest.mark.parametrize("slo", ["", "0", "-1", "1.5", "1_000", " 5", "\u0665", "9" * 13])
def test_an_objective_that_is_none_goes_last(shared: PluginHarness, slo: str) -> None:
    requests = [waiting("a", 1, slo=slo), waiting("b", 2, slo="999999999999")]
    assert [request.id for request in shared.ordering("slo-deadline-ordering-policy", requests)] == ["b", "a"]


@pytest.mark.parametrize("policy", ORDERINGS)
@given(requests=st.lists(queued, max_size=6))
def test_orders_are_strict_and_weak(shared: PluginHarness, policy: str, requests: list[QueuedRequest]) -> None:
    ordered = shared.ordering(policy, requests)
    assert sorted(ordered, key=repr) == sorted(requests, key=repr)
    assert shared.ordering(policy, ordered) == ordered
    for earlier, later in pairwise(ordered):
        assert shared.ordering(policy, [earlier, later]) == [earlier, later]


# -- fairness --------------------------------------------------------------------------------------


def test_the_first_of_all_flows_goes_next_however_they_are_ordered(shared: PluginHarness) -> None:
    a, b = Flow("a", [waiting("1", 2, ttl_s=1)]), Flow("b", [waiting("2", 1, ttl_s=50)])
    assert shared.fairness(FAIRNESS[0], band(a, b, Flow("c", []))) == "b"
    edf = EdfOrderingPolicy(Context("edf", "edf-ordering-policy"))
    assert shared.fairness(FAIRNESS[0], band(a._replace(ordering=edf), b._replace(ordering=edf))) == "a"


def test_flows_that_are_ordered_differently_cannot_be_compared(shared: PluginHarness) -> None:
    fcfs = FcfsOrderingPolicy(Context("fcfs", "fcfs-ordering-policy"))
    edf = EdfOrderingPolicy(Context("edf", "edf-ordering-policy"))
    flows = [Flow("a", [waiting("1", 1)], fcfs), Flow("b", [waiting("2", 2)], edf)]
    with pytest.raises(PluginCallError, match="'a' is ordered by FcfsOrderingPolicy, 'b' by EdfOrderingPolicy"):
        shared.fairness(FAIRNESS[0], band(*flows))
    assert shared.fairness(FAIRNESS[0], band(flows[0], Flow("b", [], edf))) == "a"


def test_flows_have_their_turns_in_the_order_of_their_keys(harness: PluginHarness) -> None:
    harness.configure("rr", "round-robin-fairness-policy")
    one = [waiting("1", 1)]
    full = band(Flow("c", one), Flow("a", one), Flow("b", []), Flow("d", one))
    assert [harness.fairness("rr", full) for _ in range(4)] == ["a", "c", "d", "a"]
    assert harness.fairness("rr", band(Flow("a", one), Flow("b", one))) == "b"
    assert harness.fairness("rr", band(Flow("c", one), Flow("d", one))) == "c"


def test_every_priority_has_turns_of_its_own(harness: PluginHarness) -> None:
    harness.configure("rr", "round-robin-fairness-policy")
    flows = [Flow("a", [waiting("1", 1)]), Flow("b", [waiting("2", 1)])]
    assert [harness.fairness("rr", band(*flows, priority=level)) for level in (0, 1, 0, 1)] == ["a", "a", "b", "b"]


@pytest.mark.parametrize("policy", FAIRNESS)
@given(lengths=st.lists(st.integers(0, 2), max_size=5))
def test_a_flow_that_waits_is_picked_if_there_is_one(shared: PluginHarness, policy: str, lengths: list[int]) -> None:
    flows = [Flow(f"f{n}", [waiting("r", n)] * length) for n, length in enumerate(lengths)]
    picked = shared.fairness(policy, band(*flows))
    assert picked in ({flow.key for flow in flows if flow.queue} or {None})


def test_the_flow_that_was_served_least_goes_next(harness: PluginHarness) -> None:
    harness.configure("las", "program-aware-fairness")
    flows = band(Flow("a", [waiting("1", 1)]), Flow("b", [waiting("2", 9)]))
    assert harness.fairness("las", flows) == "a"
    harness.response_body("las", {"usage": {"prompt_tokens": 10, "completion_tokens": 5}}, {"fairness_id": "a"})
    harness.response_body("las", {"usage": None}, {"fairness_id": "b"})
    assert harness.fairness("las", flows) == "b"
    dumped = harness.dump_state("las")
    assert isinstance(dumped, dict)
    assert dumped["total"] == 2
    assert dumped["flows"][0] == {"flow": "a", "tokens": pytest.approx(20, rel=0.2)}
    harness.response_body("las", {"end": False, "usage": {"prompt_tokens": 999}}, {"fairness_id": "b"})
    assert harness.fairness("las", flows) == "b"


@pytest.mark.parametrize(
    ("services", "arrivals", "weights", "row"),
    [
        ([0, 10], [5, 1], (0.8, 0.2), 0),
        ([10, 0], [1, 5], (0.8, 0.2), 1),
        ([10, 0], [1, 5], (0.2, 0.8), 0),
        ([3, 3], [2, 1], (0.8, 0.2), 1),
        ([3, 3], [1, 1], (0.8, 0.2), 0),
        ([7], [1], (0.8, 0.2), 0),
        ([], [], (0.8, 0.2), None),
    ],
)
def test_service_weighs_more_than_waiting(
    services: list[float], arrivals: list[float], weights: tuple[float, float], row: int | None
) -> None:
    assert least_served(services, arrivals, weights) == row


def plain_score(services: Sequence[float], arrivals: Sequence[float], row: int) -> float:
    """0.8 x (1 - normalised service) + 0.2 x normalised wait of one flow, at a time when all have come."""
    waits = [101 - arrival for arrival in arrivals]
    service = (services[row] - min(services)) / ((max(services) - min(services)) or 1)
    wait = (waits[row] - min(waits)) / ((max(waits) - min(waits)) or 1)
    return 0.8 * (1 - service) + 0.2 * wait


@given(flows=st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 100)), min_size=1, max_size=6))
def test_the_choice_equals_the_formula_of_one_flow(flows: list[tuple[int, int]]) -> None:
    services, arrivals = [float(s) for s, _ in flows], [float(a) for _, a in flows]
    row = least_served(services, arrivals, (0.8, 0.2))
    assert row is not None
    scores = [plain_score(services, arrivals, number) for number in range(len(flows))]
    assert scores[row] == pytest.approx(max(scores))


def test_service_fades_and_is_forgotten() -> None:
    served = AttainedService(0.5 ** (1 / 60), ttl_s=100, sweep_s=50)
    served.add("a", 100, 0, 0.0)
    assert served.of("a", 0.0) == 100
    assert served.of("a", 60.0) == pytest.approx(50)
    served.add("a", 0, 25, 60.0)
    assert served.of("a", 60.0) == pytest.approx(100)
    served.add("b", 1, 0, 161.0)
    assert served.of("a", 161.0) == 0.0
    assert len(served) == 1


def test_flows_are_bounded_in_number_and_in_what_is_shown() -> None:
    served = AttainedService(1.0, ttl_s=1e9, sweep_s=1e9)
    for number in range(MAX_FLOWS + 1):
        served.add(f"f{number}", number, 0, 0.0)
    assert len(served) == MAX_FLOWS
    assert served.of("f1", 0.0) == 1
    dumped = served.dump(0.0)
    assert dumped["total"] == MAX_FLOWS
    assert isinstance(dumped["flows"], list)
    assert len(dumped["flows"]) == MAX_DUMPED
    assert dumped["flows"][0] == {"flow": f"f{MAX_FLOWS}", "tokens": MAX_FLOWS}


@pytest.mark.parametrize(("length", "kept"), [(128, 128), (129, 65), (60_000, 65)])
def test_a_long_flow_is_kept_as_its_digest(length: int, kept: int) -> None:
    served = AttainedService(1.0, ttl_s=1e9, sweep_s=1e9)
    served.add("\ud800" * length, 1, 0, 0.0)
    served.add("\ud800" * length, 1, 0, 0.0)
    assert (served.of("\ud800" * length, 0.0), served.of("\ud800" * length + "x", 0.0)) == (2, 0)
    flows = served.dump(0.0)["flows"]
    assert isinstance(flows, list)
    assert [len(flow["flow"]) for flow in flows] == [kept]


# -- usage limits ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("parameters", "ceiling"), [({}, 1.0), ({"threshold": 0.7}, 0.7), ({"threshold": 0}, 0.0)])
def test_one_ceiling_holds_for_all(harness: PluginHarness, parameters: dict[str, float], ceiling: float) -> None:
    harness.configure("l", "static-usage-limit-policy", parameters)
    assert harness.limits("l", 0.5, [10, 0, -1]) == [ceiling] * 3
    assert harness.limits("l", 0.5, []) == []


@pytest.mark.parametrize(
    ("parameters", "priorities", "ceilings"),
    [
        ({"minCeiling": 0.4}, [10, 0, -1], [1.0, 0.7, 0.4]),
        ({"minCeiling": 0.4, "maxCeiling": 0.9, "shape": "linear"}, [1, 0], [0.9, 0.4]),
        ({"minCeiling": 0.4}, [7], [1.0]),
        ({"minCeiling": 0.4}, [], []),
        ({"domain": "value", "minCeiling": 0.5}, [10, 8, 0], [1.0, 0.9, 0.5]),
        ({"domain": "value", "minCeiling": 0.5}, [3], [1.0]),
        ({"domain": "value", "minCeiling": 0.5}, [], []),
        (
            {"domain": "explicit", "ceilings": {"100": 0.95, "50": 0.7, "10": 0.3}},
            [100, 50, 10, 0],
            [0.95, 0.7, 0.3, 0.0],
        ),
        ({"domain": "explicit", "ceilings": {"-1": 0.3}}, [-1], [0.3]),
    ],
)
def test_lower_priorities_are_held_back(
    harness: PluginHarness, parameters: dict[str, object], priorities: list[int], ceilings: list[float]
) -> None:
    harness.configure("l", "priority-holdback-policy", parameters)
    assert harness.limits("l", 0.5, priorities) == pytest.approx(ceilings)


@pytest.mark.parametrize(
    ("saturation", "ceilings"),
    [
        (0.0, [[1, 1, 1]] * 3),
        (0.49, [[1, 1, 1]] * 3),
        (0.7, [[1, 0, 0], [1, 1, 1]] * 2),
        (0.6, [[1, 1, 1]] * 3),
        (0.62, [[1, 1, 0], [1, 1, 1]] * 2),
        (0.75, [[1, 0, 0], [1, 0, 0], [1, 1, 1]] * 2),
        (1.0, [[1, 0, 0]] * 3),
        (5.0, [[1, 0, 0]] * 3),
    ],
)
def test_lower_priorities_have_their_turn_the_more_seldom_the_fuller_the_pool_is(
    harness: PluginHarness, saturation: float, ceilings: list[list[int]]
) -> None:
    harness.configure("l", "soft-reflective-ceiling-policy")
    assert [harness.limits("l", saturation, [2, 1, 0]) for _ in ceilings] == ceilings


def test_no_priority_is_open_while_a_higher_one_is_not(harness: PluginHarness) -> None:
    harness.configure("l", "soft-reflective-ceiling-policy")
    assert harness.limits("l", 0.62, [2, 1, 0]) == [1, 1, 0]
    assert harness.limits("l", 0.7, [2, 1, 0]) == [1, 0, 0]


def test_a_single_priority_is_always_open(harness: PluginHarness) -> None:
    harness.configure("l", "soft-reflective-ceiling-policy")
    assert harness.limits("l", 9.0, [0]) == [1.0]
    assert harness.limits("l", 9.0, []) == []


@pytest.mark.parametrize("policy", LIMITS)
@given(
    saturations=st.lists(st.floats(0, 2), min_size=1, max_size=8),
    priorities=st.lists(st.integers(-50, 50), unique=True, max_size=6).map(lambda p: sorted(p, reverse=True)),
)
def test_ceilings_never_grow_with_falling_priority(
    shared: PluginHarness, policy: str, saturations: list[float], priorities: list[int]
) -> None:
    for saturation in saturations:
        found = shared.limits(policy, saturation, priorities)
        assert all(0 <= ceiling <= 1 for ceiling in found)
        assert found == sorted(found, reverse=True)
        assert found[:1] == [1.0] * len(priorities[:1])


# -- eviction --------------------------------------------------------------------------------------


def test_only_what_may_be_shed_is_given_up(shared: PluginHarness) -> None:
    requests = [InFlightRequest(str(priority), priority, 0.0) for priority in (-2, -1, 0, 1)]
    assert [request.id for request in shared.eviction_filter("filter", requests)] == ["-2", "-1"]


def test_the_least_important_and_then_the_youngest_is_given_up_first(shared: PluginHarness) -> None:
    requests = [
        InFlightRequest("old", -1, 1.0),
        InFlightRequest("young", -1, 2.0),
        InFlightRequest("low", -5, 0.0),
    ]
    assert [request.id for request in shared.eviction_order("order", requests)] == ["low", "young", "old"]


# -- parameters ------------------------------------------------------------------------------------


HOLDBACK = "priority-holdback-policy"


@pytest.mark.parametrize(
    ("type_name", "parameters", "path"),
    [
        ("static-usage-limit-policy", {"threshold": -0.1}, "threshold"),
        (HOLDBACK, {}, "minCeiling"),
        (HOLDBACK, {"minCeiling": -0.1}, "minCeiling"),
        (HOLDBACK, {"minCeiling": 1}, "minCeiling"),
        (HOLDBACK, {"minCeiling": 0.5, "maxCeiling": 0.5}, "minCeiling"),
        (HOLDBACK, {"minCeiling": 0, "maxCeiling": 0}, "maxCeiling"),
        (HOLDBACK, {"minCeiling": 0, "maxCeiling": 1.1}, "maxCeiling"),
        (HOLDBACK, {"minCeiling": 0, "shape": "sigmoid"}, "shape"),
        (HOLDBACK, {"minCeiling": 0, "domain": "size"}, "domain"),
        (HOLDBACK, {"minCeiling": 0, "ceilings": {"1": 1}}, "ceilings"),
        (HOLDBACK, {"domain": "explicit"}, "ceilings"),
        (HOLDBACK, {"domain": "explicit", "ceilings": {}}, "ceilings"),
        (HOLDBACK, {"domain": "explicit", "ceilings": [1]}, "ceilings"),
        (HOLDBACK, {"domain": "explicit", "ceilings": {"1": 1}, "minCeiling": 0}, "minCeiling"),
        (HOLDBACK, {"domain": "explicit", "ceilings": {"1": 1}, "maxCeiling": 1}, "maxCeiling"),
        (HOLDBACK, {"domain": "explicit", "ceilings": {"1": 1}, "shape": "linear"}, "shape"),
        (HOLDBACK, {"domain": "explicit", "ceilings": {"high": 1}}, "ceilings.high"),
        (HOLDBACK, {"domain": "explicit", "ceilings": {"1": 1.1}}, "ceilings.1"),
        (HOLDBACK, {"domain": "explicit", "ceilings": {"1": -0.1}}, "ceilings.1"),
        (HOLDBACK, {"domain": "explicit", "ceilings": {"1": True}}, "ceilings.1"),
        (HOLDBACK, {"domain": "explicit", "ceilings": {"1": 0.5, "0": 0.6}}, "ceilings.0"),
        ("program-aware-fairness", {"strategy": "drr"}, "strategy"),
        ("program-aware-fairness", {"lasWeightService": -1}, "lasWeightService"),
        ("program-aware-fairness", {"lasWeightHeadWait": -1}, "lasWeightHeadWait"),
        ("program-aware-fairness", {"lasDecayFactor": 0}, "lasDecayFactor"),
        ("program-aware-fairness", {"lasDecayFactor": 1.1}, "lasDecayFactor"),
        ("program-aware-fairness", {"lasHalfLifeSeconds": -1}, "lasHalfLifeSeconds"),
        ("program-aware-fairness", {"evictionTtlSeconds": -1}, "evictionTtlSeconds"),
        ("program-aware-fairness", {"evictionSweepSeconds": 0}, "evictionSweepSeconds"),
        ("soft-reflective-ceiling-policy", {"x": 1}, "x"),
        ("fcfs-ordering-policy", {"x": 1}, "x"),
    ],
)
def test_bad_parameters_are_refused_where_they_stand(
    harness: PluginHarness, type_name: str, parameters: dict[str, object], path: str
) -> None:
    with pytest.raises(ParameterError) as refused:
        harness.configure("bad", type_name, parameters)
    assert refused.value.path == path


@pytest.mark.parametrize(
    "parameters",
    [
        {"lasHalfLifeSeconds": 0, "lasDecayFactor": 1},
        {"lasWeightService": 0, "lasWeightHeadWait": 0, "evictionTtlSeconds": 0, "evictionSweepSeconds": 0.001},
    ],
)
def test_parameters_are_taken_up_to_their_limits(harness: PluginHarness, parameters: dict[str, object]) -> None:
    harness.configure("las", "program-aware-fairness", parameters)
