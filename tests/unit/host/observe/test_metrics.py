"""The page that Prometheus reads, parsed with Prometheus' own parser."""

from hotbay.observe.metrics import Metrics
from prometheus_client.parser import text_string_to_metric_families


def samples(metrics):
    page = metrics.render().decode()
    return {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    }


def test_everything_counted_is_on_the_page():
    metrics = Metrics()
    metrics.request("chat", 200, 0.2)
    metrics.decision(0.0003)
    metrics.degraded("queue", "deadline")
    metrics.invalid_scores("queue", 3)
    metrics.plugin_error("score", "queue", "CRASHED")
    metrics.plugin_restart("standard")
    metrics.outcomes.add(("finished",))
    metrics.rejections.add(("rejected-saturated",))
    metrics.ttft_s.observe(0.04)
    metrics.upstream_connects += 2
    metrics.upstream_retries += 1
    metrics.picks_expired += 4
    metrics.client_connections = 5
    page = samples(metrics)
    assert page["hotbay_requests_total", ("route", "chat"), ("status", "200")] == 1
    assert page["hotbay_degraded_total", ("binding", "queue"), ("reason", "deadline")] == 1
    assert page["hotbay_invalid_scores_total", ("plugin", "queue")] == 3
    assert page["hotbay_plugin_errors_total", ("code", "CRASHED"), ("plugin", "queue"), ("point", "score")] == 1
    assert page["hotbay_plugin_restarts_total", ("plugin", "standard")] == 1
    assert page["hotbay_request_outcomes_total", ("outcome", "finished")] == 1
    assert page["hotbay_rejections_total", ("reason", "rejected-saturated")] == 1
    assert page["hotbay_decision_duration_seconds_count",] == 1
    assert page["hotbay_decision_duration_seconds_bucket", ("le", "0.0003")] == 1
    assert page["hotbay_decision_duration_seconds_bucket", ("le", "0.00025")] == 0
    assert page["hotbay_ttft_seconds_sum",] == 0.04
    assert page["hotbay_request_duration_seconds_bucket", ("le", "+Inf")] == 1
    assert page["hotbay_upstream_connects_total",] == 2
    assert page["hotbay_upstream_retries_total",] == 1
    assert page["hotbay_picks_expired_total",] == 4
    assert page["hotbay_client_connections",] == 5
    assert all(name.startswith("hotbay_") for name, *_ in page)


def test_fresh_metrics_have_a_page():
    page = samples(Metrics())
    assert page["hotbay_decision_duration_seconds_count",] == 0
    assert page["hotbay_requests_in_flight",] == 0


def test_labels_that_a_client_chooses_stay_bounded():
    metrics = Metrics()
    for status in range(3000):
        metrics.request("chat", status, 0.1)
    assert len(dict(metrics.requests.items())) == 1001
    assert metrics.requests.get("other", "other") == 2000


def test_two_hosts_in_one_process_do_not_meet():
    one, two = Metrics(), Metrics()
    one.degraded("a", "b")
    assert ("hotbay_degraded_total", ("binding", "a"), ("reason", "b")) not in samples(two)
