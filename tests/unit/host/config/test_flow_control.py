"""`flowControl`: its form in any case, its values with the gate alone."""

import pytest
from hotbay.config.picker_config import FlowControl

OPEN = "featureGates: [flowControl]\n"


@pytest.fixture
def flow(picker):
    return lambda text: picker(f"{OPEN}flowControl: {text}").flow_control


def test_ec16_limits_and_lifetimes_are_read(flow):
    found = flow('{maxBytes: "1024", defaultRequestTTL: 1m, noEndpointRequestTTL: 5m}')
    assert (found.max_bytes, found.request_ttl_s, found.no_endpoint_ttl_s) == (1024, 60.0, 300.0)


def test_ec17_lifetime_without_end_holds_without_endpoints_too(flow):
    found = flow("{defaultRequestTTL: 0s}")
    assert (found.request_ttl_s, found.no_endpoint_ttl_s) == (0.0, 0.0)


def test_absent_is_as_documented(picker, flow):
    found = flow("{}")
    assert found == picker("").flow_control == FlowControl()
    assert (found.request_ttl_s, found.no_endpoint_ttl_s, found.max_bytes, found.max_requests) == (60.0, 60.0, 0, 0)
    assert (found.default_band.max_bytes, found.default_band.max_requests) == (10**9, 5000)
    assert flow("{noEndpointRequestTTL: 5s}").request_ttl_s == 60.0


def test_ec19_band_has_the_policies_that_it_names(picker):
    config = picker(
        f"{OPEN}plugins: [{{type: a}}, {{type: b}}]\n"
        "flowControl: {priorityBands: [{priority: 100, fairnessPolicyRef: a, orderingPolicyRef: b}]}"
    )
    (band,) = config.flow_control.bands
    assert (band.priority, band.fairness.ref, band.ordering.ref) == (100, "a", "b")


def test_zero_of_a_band_counts_as_unset(flow):
    found = flow(
        "{defaultNegativePriorityBand: {maxBytes: 0, maxRequests: '0'}, priorityBands: [{priority: 1, maxBytes: 7}]}"
    )
    assert (found.negative_band.max_bytes, found.negative_band.max_requests) == (10**9, 5000)
    assert (found.bands[0].max_bytes, found.bands[0].max_requests) == (7, 5000)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{maxBytes: -1}", "maxBytes must be non-negative"),
        ("{maxRequests: -1Ki}", "maxRequests must be non-negative"),
        ("{defaultRequestTTL: -1s}", "defaultRequestTTL must be non-negative"),
        ("{noEndpointRequestTTL: -1ms}", "noEndpointRequestTTL must be non-negative"),
        ("{defaultPriorityBand: {maxBytes: -1}}", "maxBytes must be non-negative"),
        ("{priorityBands: [{priority: 1}, {priority: 1}]}", "duplicate priority 1, on lines 4 and 4"),
        ("{priorityBands: [{fairnessPolicyRef: x}]}", "references undefined plugin 'x'"),
        ("{usageLimitPolicyPluginRef: x}", "references undefined plugin 'x'"),
    ],
)
def test_e18_values_are_checked_with_the_gate_alone(picker, picker_problems, text, message):
    (problem,) = picker_problems(f"{OPEN}flowControl: {text}")
    assert (problem.message, problem.place.line) == (message, 4)
    config = picker(f"flowControl: {text}")
    assert [w.code for w in config.warnings] == ["NO_EFFECT"]


@pytest.mark.parametrize("gate", ["", OPEN], ids=["closed", "open"])
@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("{maxByte: 1}", "flowControl.maxByte"),
        ("{maxBytes: x}", "flowControl.maxBytes"),
        ("{defaultRequestTTL: 60}", "flowControl.defaultRequestTTL"),
        ("{enableEviction: maybe}", "flowControl.enableEviction"),
        ("{priorityBands: [{priority: high}]}", "flowControl.priorityBands[0].priority"),
        ("{priorityBands: {}}", "flowControl.priorityBands"),
        ("{defaultPriorityBand: {order: 1}}", "flowControl.defaultPriorityBand.order"),
        ("{usageLimitPolicyPluginRef: 1}", "flowControl.usageLimitPolicyPluginRef"),
        ("[]", "flowControl"),
    ],
)
def test_e1_form_is_checked_whether_the_gate_is_open_or_not(picker_problems, gate, text, path):
    assert [p.path for p in picker_problems(f"{gate}flowControl: {text}")] == [path]


def test_closed_gate_leaves_the_detector_in_force(picker):
    text = "plugins: [{type: d}]\nflowControl: {saturationDetector: {pluginRef: d}}"
    config = picker(text)
    assert (config.flow_control.saturation_detector.ref, config.warnings) == ("d", ())
    assert not config.queues


def test_open_gate_says_that_nothing_waits_yet(picker):
    config = picker(OPEN)
    assert config.queues
    assert [w.code for w in config.warnings] == ["NOT_SUPPORTED"]
    assert "requests are scheduled as they arrive" in config.warnings[0].hint


def test_default_policies_need_not_be_declared(flow):
    found = flow(
        "{defaultPriorityBand: {orderingPolicyRef: fcfs-ordering-policy}, usageLimitPolicyPluginRef: static-usage-limit-policy}"
    )
    assert found.default_band.ordering.ref == "fcfs-ordering-policy"
    assert [entry.ref for entry in found.policies] == ["fcfs-ordering-policy", "static-usage-limit-policy"]


def test_absent_policies_are_no_references(flow):
    assert list(flow("{}").policies) == []
