"""Policies of flow control, as the harness calls them."""

import pytest
from hotbay_sdk import (
    Band,
    EvictionFilterPolicy,
    EvictionOrderingPolicy,
    FairnessPolicy,
    Flow,
    InFlightRequest,
    OrderingPolicy,
    Picker,
    Plugin,
    QueuedRequest,
    UsageLimitPolicy,
)
from hotbay_sdk.testing import PluginCallError, PluginHarness

EARLY, LATE = (QueuedRequest(str(n), "f", 0, float(n), 60.0, 10) for n in (1, 2))


@pytest.fixture
def plugin():
    return Plugin("test")


@pytest.fixture
def harness(plugin):
    with PluginHarness(plugin) as made:
        yield made


def test_policies_are_declared_by_their_points(plugin):
    @plugin.type("policies")
    class All(FairnessPolicy, OrderingPolicy, UsageLimitPolicy, EvictionFilterPolicy):
        def pick(self, band):
            return None

        def less(self, a, b):
            return False

        def limits(self, saturation, priorities, ceilings):
            return ceilings

        def accept(self, request):
            return True

    assert plugin.declarations[0].points == ("fairness", "ordering", "usage_limit", "eviction_filter")


@pytest.mark.parametrize(("base", "other"), [(FairnessPolicy, Picker), (OrderingPolicy, EvictionOrderingPolicy)])
def test_points_with_one_method_of_the_same_name_are_two_types(plugin, base, other):
    class Both(base, other):
        def pick(self, *_):
            return None

        def less(self, a, b):
            return False

    with pytest.raises(TypeError, match="make them two types"):
        plugin.type("both")(Both)


@pytest.mark.parametrize(
    ("found", "taken"), [("a", True), (None, True), ("empty", False), ("other", False), (3, False)]
)
def test_fairness_names_a_flow_that_has_requests(plugin, harness, found, taken):
    @plugin.type("fair")
    class Fair(FairnessPolicy):
        def pick(self, band):
            assert band.flows[0].queue[0].enqueued_s == 1.0
            return found

    harness.configure("f", "fair")
    band = Band(0, [Flow("a", [EARLY, LATE]), Flow("empty", [])])
    if taken:
        assert harness.fairness("f", band) == found
    else:
        with pytest.raises(PluginCallError, match="expected the key of a flow that has requests, or None"):
            harness.fairness("f", band)


def test_orderings_order(plugin, harness):
    @plugin.type("order")
    class Order(OrderingPolicy):
        def less(self, a, b):
            return a.enqueued_s < b.enqueued_s

    @plugin.type("evict")
    class Evict(EvictionOrderingPolicy, EvictionFilterPolicy):
        def less(self, a, b):
            return (a.priority, -a.started_s) < (b.priority, -b.started_s)

        def accept(self, request):
            return request.priority < 0

    harness.configure("o", "order")
    assert harness.ordering("o", [LATE, EARLY]) == [EARLY, LATE]
    harness.configure("e", "evict")
    first, second, third = (InFlightRequest(i, p, s) for i, p, s in (("a", -2, 1.0), ("b", -1, 9.0), ("c", 0, 1.0)))
    assert harness.eviction_order("e", [third, second, first]) == [first, second, third]
    assert harness.eviction_filter("e", [third, second, first]) == [second, first]
    with pytest.raises(ValueError, match="o of type order does not answer eviction_filter"):
        harness.eviction_filter("o", [first])


@pytest.mark.parametrize("found", [True, None, "raise"])
def test_an_order_that_is_none_is_refused(plugin, harness, found):
    @plugin.type("order")
    class Order(OrderingPolicy):
        def less(self, a, b):
            if found == "raise":
                raise ValueError("no")
            return found

    harness.configure("o", "order")
    with pytest.raises(PluginCallError, match=r"each goes before the other|expected true or false|ValueError: no"):
        harness.ordering("o", [EARLY, LATE])


@pytest.mark.parametrize(
    ("found", "taken"),
    [
        ([1, 0.5], True),
        ((0.5, 0.5), True),
        ([0.5, 1.0], False),
        ([1.0], False),
        ([1.0, -1], False),
        ([1.0, None], False),
        (1.0, False),
    ],
    ids=repr,
)
def test_limits_do_not_rise_by_priority(plugin, harness, found, taken):
    @plugin.type("limits")
    class Limits(UsageLimitPolicy):
        def limits(self, saturation, priorities, ceilings):
            assert (saturation, priorities, ceilings) == (0.25, [1, 0], [1.0, 1.0])
            return found

    harness.configure("l", "limits")
    if taken:
        assert harness.limits("l", 0.25, [1, 0]) == list(found)
    else:
        with pytest.raises(PluginCallError, match="limits returned"):
            harness.limits("l", 0.25, [1, 0])
