"""All numbers of a host: incremented as plain integers where things happen, rendered for Prometheus when asked.

Invariants: nothing on the write side allocates beyond a first label set, takes a lock or knows Prometheus; every page
comes from a registry of this object's own, so several hosts in one process do not meet.
"""

import time
from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from hotbay.observe.facts import HostFacts
from hotbay.observe.families import counters, histogram, histograms, plugin_counters, state
from hotbay.observe.histogram import (
    CALL_BUCKETS_S,
    DECISION_BUCKETS_S,
    REQUEST_BUCKETS_S,
    Histogram,
    LabelledCounter,
    LabelledHistogram,
)
from hotbay.observe.plugin_counters import PluginCounters

__all__ = ["CONTENT_TYPE", "Metrics"]

CONTENT_TYPE = CONTENT_TYPE_LATEST
# Clients choose these: nobody looks through more of them.
_MAX_UNKNOWN = 100
# Longest label that a client chooses. With as many series as there may be the page stays under a megabyte.
_LABEL_CHARS = 64


class Metrics:
    """Counters and histograms. Plain attributes may be incremented directly.

    `facts` says what the host is when the page is asked for; whoever has the host sets it.
    """

    def __init__(self) -> None:
        self.facts: Callable[[], HostFacts] = HostFacts
        self.requests = LabelledCounter(("route", "status"))
        self.outcomes = LabelledCounter(("outcome",))
        self.rejections = LabelledCounter(("reason",))
        self.degradations = LabelledCounter(("binding", "reason"))
        self.last_degraded: dict[str, tuple[str, float]] = {}
        self.plugin_errors = LabelledCounter(("point", "plugin", "code"))
        self.plugin_restarts = LabelledCounter(("plugin",))
        self.bad_scores = LabelledCounter(("plugin",))
        self.plugin_counters = PluginCounters()
        self.rollouts = LabelledCounter(("plugin", "result"))
        self.fetches = LabelledCounter(("plugin", "result"))
        self.fetched_bytes = LabelledCounter(("plugin",))
        self.reloads = LabelledCounter(("result",))
        self.internal_errors = LabelledCounter(("task",))
        self.ejections = LabelledCounter(("reason",))
        self.ejections_withheld = LabelledCounter(("reason",))
        self.endpoint_probes = LabelledCounter(("result",))
        self.endpoints_refused = LabelledCounter(("reason",))
        self.model_rewrites = LabelledCounter(("model", "target", "result"))
        self.unknown_objectives = LabelledCounter(("objective",), _MAX_UNKNOWN)
        self.header_edits_refused = LabelledCounter(("why",))
        self.poll_errors = LabelledCounter(("source",))
        self.poll_skips = LabelledCounter(("source",))
        self.extract_errors = LabelledCounter(("source", "extractor"))
        self.extract_skips = LabelledCounter(("source", "extractor", "reason"))
        self.data_events = LabelledCounter(("source", "outcome"))
        self.call_s = LabelledHistogram(("plugin", "point"), CALL_BUCKETS_S)
        self.decision_s = Histogram(DECISION_BUCKETS_S)
        self.ttft_s = Histogram(REQUEST_BUCKETS_S)
        self.request_s = Histogram(REQUEST_BUCKETS_S)
        self.upstream_connects = 0
        self.upstream_connect_failures = 0
        self.upstream_retries = 0
        self.picks_expired = 0
        self.mixed_cycles = 0
        self.requests_held = 0
        self.client_connections = 0
        self.requests_in_flight = 0
        self._registry = CollectorRegistry()
        self._registry.register(_Page(self))

    def request(self, route: str, status: int, duration_s: float) -> None:
        """A request was answered, or given up with `status` 0 or what had been sent."""
        self.requests.add((route, str(status)))
        self.request_s.observe(duration_s)

    def decision(self, duration_s: float) -> None:
        """The scheduler decided."""
        self.decision_s.observe(duration_s)

    def degraded(self, binding: str, reason: str) -> None:
        """A decision was made without this binding's answer."""
        self.degradations.add((binding, reason))
        self.last_degraded[binding] = (reason, time.monotonic())

    def invalid_scores(self, plugin: str, count: int) -> None:
        """A plugin's scores were out of range or not finite, and counted as their clamped value or 0."""
        self.bad_scores.add((plugin,), count)

    def plugin_error(self, point: str, plugin: str, code: str) -> None:
        """A call of a plugin failed."""
        self.plugin_errors.add((point, plugin, code))

    def plugin_restart(self, plugin: str) -> None:
        """A plugin's process was replaced after it failed."""
        self.plugin_restarts.add((plugin,))

    def call(self, plugin: str, point: str, duration_s: float) -> None:
        """A plugin answered, well or not, or was given up."""
        self.call_s.of((plugin, point)).observe(duration_s)

    def call_timer(self, plugin: str, point: str) -> Callable[[float], None]:
        """`call` for one plugin and point, to be kept by whoever calls often."""
        return self.call_s.of((plugin, point)).observe

    def mixed_cycle(self) -> None:
        """A decision was made by processes of two plans: a defect."""
        self.mixed_cycles += 1

    def held(self, count: int) -> None:
        """So many requests wait for a plugin that starts or is exchanged."""
        self.requests_held = count

    def rollout(self, plugin: str, result: str) -> None:
        """A rollout ended: `live`, or the code of what ended it."""
        self.rollouts.add((plugin, result))

    def fetch(self, plugin: str, result: str) -> None:
        """A fetch ended: `complete`, or the code of what ended it."""
        self.fetches.add((plugin, result))

    def fetched(self, plugin: str, count: int) -> None:
        """Bytes of a package came from a source."""
        self.fetched_bytes.add((plugin,), count)

    def ejected(self, reason: str) -> None:
        """An endpoint gets nothing for a while."""
        self.ejections.add((reason,))

    def ejection_withheld(self, reason: str) -> None:
        """An endpoint goes on getting requests because too few others would be left."""
        self.ejections_withheld.add((reason,))

    def probed(self, result: str) -> None:
        """A request that tried an ejected endpoint `answered` or `failed`."""
        self.endpoint_probes.add((result,))

    def reload(self, result: str) -> None:
        """A saved configuration was `applied`, `refused` for the problems in it, or said the same: `unchanged`."""
        self.reloads.add((result,))

    def endpoint_refused(self, reason: str) -> None:
        """A discovery named an endpoint where it may not: outside of the allowed `network`s, by `name`, or `reserved`."""
        self.endpoints_refused.add((reason,))

    def model_rewrite(self, model: str, target: str, result: str) -> None:
        """A model's name was to be replaced in a body: `applied`, or `impossible` because it does not stand there."""
        self.model_rewrites.add((model[:_LABEL_CHARS], target[:_LABEL_CHARS], result))

    def unknown_objective(self, objective: str) -> None:
        """A client named an objective that is not known: its priority is 0."""
        self.unknown_objectives.add((objective[:_LABEL_CHARS],))

    def header_edit_refused(self, why: str) -> None:
        """A plugin wanted to set a header that it may not: for its `name` or its `value`."""
        self.header_edits_refused.add((why,))

    def poll_failed(self, source: str) -> None:
        """A source brought nothing of an endpoint."""
        self.poll_errors.add((source,))

    def poll_skipped(self, source: str) -> None:
        """A source was not asked for an endpoint's data: its plugin was busy with others."""
        self.poll_skips.add((source,))

    def extract_failed(self, source: str, extractor: str) -> None:
        """An extractor made nothing of what its source brought."""
        self.extract_errors.add((source, extractor))

    def extract_skipped(self, source: str, extractor: str, reason: str) -> None:
        """An extractor was not asked: see `Counts.extract_skipped` there."""
        self.extract_skips.add((source, extractor, reason))

    def event(self, source: str, outcome: str) -> None:
        """A source of the data layer had an event, or something became of one: see `Counts.event` there."""
        self.data_events.add((source, outcome))

    def render(self) -> bytes:
        """The page in Prometheus' text form; its type is `CONTENT_TYPE`."""
        return generate_latest(self._registry)

    def families(self) -> Iterator[Metric]:
        """Everything as Prometheus metric families."""
        for name, text, counter in (
            ("requests", "Requests answered, by route and status.", self.requests),
            ("request_outcomes", "How requests that were sent to an endpoint ended.", self.outcomes),
            ("rejections", "Requests refused, by reason.", self.rejections),
            ("degraded", "Decisions made without a binding's answer.", self.degradations),
            ("plugin_errors", "Failed plugin calls.", self.plugin_errors),
            ("plugin_restarts", "Plugin processes replaced after a failure.", self.plugin_restarts),
            ("invalid_scores", "Scores out of range or not finite.", self.bad_scores),
            ("rollouts", "Rollouts that ended: live, or the code of what ended them.", self.rollouts),
            ("fetches", "Fetches of packages that ended: complete, or the code of what ended them.", self.fetches),
            ("fetch_bytes", "Bytes of packages that came from sources.", self.fetched_bytes),
            ("config_reloads", "Saved configurations: applied, refused, or unchanged in what they say.", self.reloads),
            ("endpoint_ejections", "Endpoints that got nothing for a while, by why.", self.ejections),
            (
                "endpoint_ejections_withheld",
                "Endpoints that were not ejected because too few would be left, by why they would have been.",
                self.ejections_withheld,
            ),
            (
                "datalayer_endpoints_refused",
                "Endpoints that a discovery named where it may not: by network, by name, or reserved for none of them.",
                self.endpoints_refused,
            ),
            (
                "model_rewrites",
                "Names of models to be replaced in bodies: applied, or impossible where the name does not stand.",
                self.model_rewrites,
            ),
            ("unknown_objectives", "Requests that name an objective that is not known.", self.unknown_objectives),
            (
                "header_edits_refused",
                "Headers that plugins wanted to set and may not, for their name or value.",
                self.header_edits_refused,
            ),
            ("datalayer_poll_errors", "Polls of endpoints that brought nothing, by source.", self.poll_errors),
            (
                "datalayer_polls_skipped",
                "Polls that a source of a package was not asked for, being busy with others.",
                self.poll_skips,
            ),
            (
                "datalayer_extract_errors",
                "Payloads and events of which an extractor made nothing, or, the core one of an incomplete page, not everything.",
                self.extract_errors,
            ),
            (
                "datalayer_extract_skipped",
                "Payloads and events that an extractor was not asked for: busy, or superseded by newer ones.",
                self.extract_skips,
            ),
            (
                "datalayer_events",
                "Events of sources: delivered, dropped, failed in the source, superseded; and endpoints forgotten.",
                self.data_events,
            ),
            (
                "endpoint_probes",
                "Requests that tried an ejected endpoint: answered or failed.",
                self.endpoint_probes,
            ),
            ("internal_errors", "Faults of the host's own code in what it does beside requests.", self.internal_errors),
        ):
            yield counters(name, text, counter)
        yield plugin_counters(self.plugin_counters)
        for name, text, value in (
            ("upstream_connects", "Connections opened to endpoints.", self.upstream_connects),
            ("upstream_connect_failures", "Connections to endpoints that failed.", self.upstream_connect_failures),
            ("upstream_retries", "Requests sent again because a kept connection was closed.", self.upstream_retries),
            ("picks_expired", "Picks that nobody settled.", self.picks_expired),
            ("mixed_cycles", "Decisions made by processes of two plans: never, or a defect.", self.mixed_cycles),
        ):
            yield CounterMetricFamily(f"hotbay_{name}", text, value=value)
        yield GaugeMetricFamily("hotbay_client_connections", "Client connections.", value=self.client_connections)
        yield GaugeMetricFamily("hotbay_requests_in_flight", "Requests being answered.", value=self.requests_in_flight)
        yield GaugeMetricFamily(
            "hotbay_requests_held",
            "Requests that wait for a plugin to start or to be exchanged.",
            value=self.requests_held,
        )
        yield histogram("decision_duration_seconds", "Time of one decision.", self.decision_s)
        yield histogram("ttft_seconds", "From a request's last byte to its answer's first body byte.", self.ttft_s)
        yield histogram("request_duration_seconds", "From a request's last byte to its answer's.", self.request_s)
        yield histograms("call_duration_seconds", "Calls of plugins, by the point that they answer.", self.call_s)
        yield from state(self.facts())


class _Page(Collector):
    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        return self._metrics.families()
