"""The host's pages as the demo reads them, from a host's own writers."""

import math

import orjson
import pytest
from hotbay.demo.gauges import Counters, GaugeError, read_counters, read_status
from hotbay.observe.histogram import DECISION_BUCKETS_S, Histogram
from hotbay.observe.metrics import Metrics
from hypothesis import given
from hypothesis import strategies as st

LIVE = {"version": "1.0.0", "rev": 3, "digest": "sha256:0", "generation": 7, "pid": 99}
PLUGIN = {
    "plugin": "standard",
    "phase": "live",
    "live": LIVE,
    "candidate": None,
    "restarts": 1,
    "swaps": 2,
    "last_error": {"code": "CRASHED", "message": "killed", "hint": "", "digest": ""},
}
PAGE = {
    "ready": True,
    "isolation": "none",
    "plugins": [PLUGIN],
    "endpoints": [{"id": "default/a", "in_flight": 2, "waiting": 1.0, "running": None}],
    "problems": [],
}


def test_counters_are_read_off_the_hosts_own_page():
    metrics = Metrics()
    metrics.degraded("queue", "CRASHED")
    metrics.degraded("queue", "CRASHED")
    metrics.degraded('odd "name"', "UNAVAILABLE")
    metrics.decision(0.001)

    counters = read_counters(metrics.render())

    assert counters.degraded == {("queue", "CRASHED"): 2, ('odd "name"', "UNAVAILABLE"): 1}
    assert counters.degraded_total == 3
    assert counters.decisions[-1] == (math.inf, 1)


def test_a_page_without_degradations_has_none():
    counters = read_counters(Metrics().render())

    assert counters.degraded_total == 0
    assert counters.decision_us(0.5) is None


@given(st.lists(st.floats(1e-6, 0.9), min_size=1, max_size=50), st.sampled_from([0.01, 0.5, 0.99, 1.0]))
def test_quantiles_are_those_of_the_hosts_histogram(values: list[float], q: float):
    histogram = Histogram(DECISION_BUCKETS_S)
    for value in values:
        histogram.observe(value)
    found = Counters({}, tuple(histogram.cumulative())).decision_us(q)

    assert found == pytest.approx((histogram.quantile(q) or 0) * 1e6)


def test_a_quantile_beyond_the_last_edge_is_the_last_edge():
    assert Counters({}, ((0.1, 0), (1.0, 0), (math.inf, 5))).decision_us(0.5) == 1e6


def test_a_status_page_is_read():
    status = read_status(orjson.dumps(PAGE))
    plugin = status.plugin("standard")

    assert plugin is not None
    assert (plugin.generation, plugin.pid, plugin.restarts, plugin.swaps) == (7, 99, 1, 2)
    assert plugin.last_error == "CRASHED: killed"
    assert (status.endpoints[0].waiting, status.endpoints[0].running, status.endpoints[0].kv_usage) == (1.0, None, None)
    assert status.whole
    assert status.plugin("other") is None


@pytest.mark.parametrize(
    "change", [{"ready": False}, {"plugins": []}, {"plugins": [PLUGIN | {"live": LIVE | {"pid": None}}]}]
)
def test_a_host_is_whole_only_with_every_process_up(change: dict[str, object]):
    assert not read_status(orjson.dumps(PAGE | change)).whole


def test_a_plugin_that_never_lived_has_no_process():
    status = read_status(orjson.dumps(PAGE | {"plugins": [PLUGIN | {"live": None, "last_error": None}]}))

    assert status.plugins[0].pid is None
    assert status.plugins[0].last_error == ""


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b"<html>", orjson.dumps(PAGE | {"plugins": [{}]})])
def test_another_page_is_no_status(body: bytes):
    with pytest.raises(GaugeError):
        read_status(body)


@pytest.mark.parametrize("body", [b"<html>", b"hotbay_degraded_total{} 1\n", b"hotbay_degraded_total 1\n"])
def test_another_page_has_no_counters(body: bytes):
    with pytest.raises(GaugeError):
        read_counters(body)
