"""Numbers as Prometheus metric families, each with its name and its text. Every name begins with `hotbay_`."""

from collections.abc import Iterator, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from hotbay.observe.facts import GenerationFacts, HostFacts, PluginFacts, StoreFacts
from hotbay.observe.histogram import Histogram, LabelledCounter, LabelledHistogram
from hotbay.observe.plugin_counters import PluginCounters

__all__ = ["counters", "gauges", "histogram", "histograms", "plugin_counters", "state"]


def counters(name: str, text: str, counter: LabelledCounter) -> CounterMetricFamily:
    family = CounterMetricFamily(f"hotbay_{name}", text, labels=counter.labels)
    for values, count in counter.items():
        family.add_metric(values, count)
    return family


def plugin_counters(counters: PluginCounters) -> CounterMetricFamily:
    """One family for all plugins: their labels stand beside its own two."""
    family = CounterMetricFamily(
        "hotbay_plugin_counted", "What plugins count for themselves, with labels of their own."
    )
    for plugin, name, labels, value in counters.items():
        family.add_sample("hotbay_plugin_counted_total", {"plugin": plugin, "name": name, **dict(labels)}, value)
    return family


def _buckets(histogram: Histogram) -> list[tuple[str, float]]:
    return [("+Inf" if edge == float("inf") else repr(edge), count) for edge, count in histogram.cumulative()]


def histogram(name: str, text: str, histogram: Histogram) -> HistogramMetricFamily:
    return HistogramMetricFamily(f"hotbay_{name}", text, buckets=_buckets(histogram), sum_value=histogram.sum)


def histograms(name: str, text: str, histograms: LabelledHistogram) -> HistogramMetricFamily:
    family = HistogramMetricFamily(f"hotbay_{name}", text, labels=histograms.labels)
    for values, histogram in histograms.items():
        family.add_metric(values, _buckets(histogram), histogram.sum)
    return family


def state(facts: HostFacts) -> Iterator[Metric]:
    """What the host is, one family after the other."""
    yield GaugeMetricFamily("hotbay_ready", "Whether the host takes requests: 1 or 0.", value=float(facts.ready))
    yield GaugeMetricFamily(
        "hotbay_problems", "Problems that the status shows: of files, sources and packages.", value=facts.problems
    )
    yield GaugeMetricFamily("hotbay_tasks", "Tasks of the host's event loop.", value=facts.tasks)
    yield gauges(
        "plugin_phase", "1 for the phase that a plugin is in.", ("plugin", "phase"),
        [((p.plugin, p.phase), 1) for p in facts.plugins],
    )  # fmt: skip
    for name, text, figure in (
        ("plugin_generation", "Number of the process, live or candidate.", _number),
        ("plugin_revision", "Revision that the process runs, live or candidate.", _rev),
        ("plugin_leases", "Cycles and streams that may still call the process, live or candidate.", _leases),
    ):
        yield gauges(
            name, text, ("plugin", "role"),
            [((p.plugin, role), figure(one)) for p in facts.plugins for role, one in _generations(p)],
        )  # fmt: skip
    yield gauges(
        "plugin_strikes", "Failures that count towards a plugin's being disabled.", ("plugin",),
        [((p.plugin,), p.strikes) for p in facts.plugins],
    )  # fmt: skip
    yield gauges(
        "quarantined_builds", "Digests that are not run.", ("plugin",),
        [((plugin,), count) for plugin, count in sorted(facts.quarantined.items())],
    )  # fmt: skip
    yield gauges(
        "source_state", "1 for the state that a source is in.", ("source", "state"),
        [(named, 1) for named in sorted(facts.sources.items())],
    )  # fmt: skip
    yield gauges(
        "stale_endpoints", "Endpoints of which a figure is older than `freshness` allows.", ("field",),
        [((name,), count) for name, count in sorted(facts.stale.items())],
    )  # fmt: skip
    yield gauges(
        "endpoint_available", "Endpoints by what becomes of new requests for them.", ("state",),
        [((name,), count) for name, count in sorted(facts.available.items())],
    )  # fmt: skip
    yield gauges(
        "datalayer_interval_seconds", "From one poll of an endpoint to the next, as it is now: longer under pressure.",
        ("source",), [((name,), interval_s) for name, interval_s in sorted(facts.intervals_s.items())],
    )  # fmt: skip
    yield from _store(facts.store)


def _store(store: StoreFacts | None) -> Iterator[Metric]:
    figures = (None, None, None) if store is None else (store.used_bytes, store.budget_bytes, store.free_bytes)
    texts = (
        ("store_used_bytes", "Bytes in the store of packages."),
        ("store_budget_bytes", "Bytes that the store may have, where `limits.store` says so."),
        ("store_free_bytes", "Bytes that are free on the store's disk."),
    )
    for (name, text), value in zip(texts, figures, strict=True):
        yield gauges(name, text, (), [] if value is None else [((), value)])


def _generations(plugin: PluginFacts) -> Iterator[tuple[str, GenerationFacts]]:
    for role, generation in (("live", plugin.live), ("candidate", plugin.candidate)):
        if generation is not None:
            yield role, generation


def _number(generation: GenerationFacts) -> int:
    return generation.number


def _rev(generation: GenerationFacts) -> int:
    return generation.rev


def _leases(generation: GenerationFacts) -> int:
    return generation.leases


def gauges(
    name: str, text: str, labels: Sequence[str], samples: Sequence[tuple[tuple[str, ...], float]]
) -> GaugeMetricFamily:
    family = GaugeMetricFamily(f"hotbay_{name}", text, labels=labels)
    for values, value in samples:
        family.add_metric(values, value)
    return family
