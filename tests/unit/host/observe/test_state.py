"""What a host is, on its page of metrics."""

from hotbay.observe.facts import GenerationFacts, HostFacts, PluginFacts, StoreFacts
from hotbay.observe.histogram import Histogram, LabelledHistogram
from hotbay.observe.metrics import Metrics
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families


def samples(metrics):
    page = metrics.render().decode()
    return {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    }


def test_facts_are_taken_when_the_page_is_asked_for():
    metrics = Metrics()
    assert samples(metrics)["hotbay_ready",] == 0
    facts = HostFacts(
        ready=True,
        problems=2,
        tasks=31,
        plugins=(
            PluginFacts("p", "canary", GenerationFacts(7, 3, 5), GenerationFacts(8, 4, 1), strikes=2),
            PluginFacts("q", "waiting for download"),
        ),
        sources={"bundled": "watching"},
        quarantined={"p": 1},
        store=StoreFacts(used_bytes=10, free_bytes=90, budget_bytes=None),
        stale={"waiting": 1, "lora": 0},
        intervals_s={"metrics-data-source": 0.05},
    )
    metrics.facts = lambda: facts
    page = samples(metrics)
    assert page["hotbay_ready",] == 1
    assert page["hotbay_problems",] == 2
    assert page["hotbay_tasks",] == 31
    assert page["hotbay_plugin_phase", ("phase", "canary"), ("plugin", "p")] == 1
    assert page["hotbay_plugin_phase", ("phase", "waiting for download"), ("plugin", "q")] == 1
    assert page["hotbay_plugin_generation", ("plugin", "p"), ("role", "candidate")] == 8
    assert page["hotbay_plugin_revision", ("plugin", "p"), ("role", "live")] == 3
    assert page["hotbay_plugin_leases", ("plugin", "p"), ("role", "live")] == 5
    assert ("hotbay_plugin_generation", ("plugin", "q"), ("role", "live")) not in page
    assert page["hotbay_plugin_strikes", ("plugin", "p")] == 2
    assert page["hotbay_quarantined_builds", ("plugin", "p")] == 1
    assert page["hotbay_source_state", ("source", "bundled"), ("state", "watching")] == 1
    assert page["hotbay_stale_endpoints", ("field", "waiting")] == 1
    assert page["hotbay_stale_endpoints", ("field", "lora")] == 0
    assert page["hotbay_datalayer_interval_seconds", ("source", "metrics-data-source")] == 0.05
    assert page["hotbay_store_used_bytes",] == 10
    assert page["hotbay_store_free_bytes",] == 90
    assert ("hotbay_store_budget_bytes",) not in page


def test_what_happens_to_packages_is_counted():
    metrics = Metrics()
    metrics.call("p", "score", 0.0003)
    metrics.rollout("p", "live")
    metrics.fetch("p", "DIGEST_MISMATCH")
    metrics.fetched("p", 1000)
    metrics.reload("refused")
    page = samples(metrics)
    assert page["hotbay_call_duration_seconds_count", ("plugin", "p"), ("point", "score")] == 1
    assert page["hotbay_call_duration_seconds_bucket", ("le", "0.0005"), ("plugin", "p"), ("point", "score")] == 1
    assert page["hotbay_call_duration_seconds_bucket", ("le", "0.0002"), ("plugin", "p"), ("point", "score")] == 0
    assert page["hotbay_rollouts_total", ("plugin", "p"), ("result", "live")] == 1
    assert page["hotbay_fetches_total", ("plugin", "p"), ("result", "DIGEST_MISMATCH")] == 1
    assert page["hotbay_fetch_bytes_total", ("plugin", "p")] == 1000
    assert page["hotbay_config_reloads_total", ("result", "refused")] == 1


def test_histograms_by_label_are_bounded_on_both_sides():
    histograms = LabelledHistogram(("plugin",), (1.0,), max_series=2)
    for plugin in ("a", "b", "c", "d"):
        histograms.of((plugin,)).observe(0.5)
    assert {values: histogram.count for values, histogram in histograms.items()} == {
        ("a",): 1,
        ("b",): 1,
        ("other",): 2,
    }


@given(st.lists(st.tuples(st.sampled_from("abc"), st.floats(0, 10))))
def test_each_label_set_is_a_histogram_of_its_own(observed):
    histograms = LabelledHistogram(("plugin",), (0.1, 1.0, 5.0))
    expected: dict[tuple[str, ...], Histogram] = {}
    for plugin, value in observed:
        histograms.of((plugin,)).observe(value)
        expected.setdefault((plugin,), Histogram((0.1, 1.0, 5.0))).observe(value)
    found = dict(histograms.items())
    assert found.keys() == expected.keys()
    assert all(found[values].cumulative() == one.cumulative() for values, one in expected.items())
