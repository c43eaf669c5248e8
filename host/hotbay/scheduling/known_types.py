"""Types by name: those that the host has itself, those of the packages that come with it, and those that it lacks. Pure.

What the host has itself is graded as its counterpart in the reference is, where that is not stable yet.
"""

from collections.abc import Mapping
from typing import Final

from hotbay.config.data_types import BUILTIN_FORMS
from hotbay.config.discovery_parameters import DISCOVERIES
from hotbay.config.type_facts import DISCOVER, PARSE, PICK, PRODUCE, PROFILE_HANDLER, TypeFacts

__all__ = ["BUILTIN_FACTS", "FIRST_PARTY_TYPES", "WOULD_PROVIDE"]

_ALPHA: Final = frozenset({"header-profile-handler", "dcgm-data-source", "dcgm-extractor"})


_DEFAULTS: Final = {"inflight-load-producer": ("InFlightLoad",), "token-producer": ("TokenizedPrompt",)}


def _facts(point: str, *names: str) -> dict[str, TypeFacts]:
    return {name: _graded(name, frozenset({point})) for name in names}


def _graded(name: str, points: frozenset[str]) -> TypeFacts:
    stability = "alpha" if name in _ALPHA else "stable"
    return TypeFacts(points, stability, produces_default=_DEFAULTS.get(name, ()), builtin=True)


BUILTIN_FACTS: Final[Mapping[str, TypeFacts]] = {
    **_facts(PICK, "max-score-picker", "random-picker", "weighted-random-picker"),
    **_facts(PROFILE_HANDLER, "single-profile-handler", "header-profile-handler", "data-parallel-profile-handler"),
    **_facts(PARSE, "openai-parser", "anthropic-parser", "vllmhttp-parser", "passthrough-parser"),
    **_facts(PRODUCE, "inflight-load-producer", "token-producer", "tokenizer"),
    **_facts(DISCOVER, *DISCOVERIES),
    **{name: _graded(name, frozenset(str(point) for point in form.points)) for name, form in BUILTIN_FORMS.items()},
}
"""Types that are built into the host."""

_FAMILIES: Final[Mapping[str, tuple[str, ...]]] = {
    "standard": (
        "active-request-scorer",
        "kv-cache-utilization-scorer",
        "load-aware-scorer",
        "queue-scorer",
        "running-requests-size-scorer",
        "token-load-scorer",
    ),
    "labels": (
        "by-label",
        "by-label-selector",
        "context-length-aware",
        "decode-filter",
        "encode-filter",
        "header-based-testing-filter",
        "header-label-affinity-scorer",
        "label-selector-filter",
        "prefill-filter",
        "topology-affinity-filter",
        "topology-affinity-scorer",
    ),
    "attributes": ("endpoint-attribute-filter", "endpoint-attribute-scorer", "utilization-filter"),
    "lora": ("lora-affinity-scorer",),
    "prefix-cache": (
        "approx-prefix-cache-producer",
        "burst-prefix-cache-producer",
        "no-hit-lru-scorer",
        "p2p-source-producer",
        "precise-prefix-cache-producer",
        "precise-prefix-cache-scorer",
        "prefix-cache-affinity-filter",
        "prefix-cache-scorer",
    ),
    "session": ("agent-identity", "session-affinity-filter", "session-affinity-scorer", "session-id-producer"),
    "disaggregation": (
        "always-disagg-multimodal-decider",
        "always-disagg-pd-decider",
        "disagg-headers-handler",
        "disagg-profile-handler",
        "pd-profile-handler",
        "prefill-header-handler",
        "prefix-based-pd-decider",
    ),
    "flow-control": (
        "concurrency-detector",
        "edf-ordering-policy",
        "fcfs-ordering-policy",
        "global-strict-fairness-policy",
        "priority-holdback-policy",
        "priority-then-time-eviction-order-policy",
        "program-aware-fairness",
        "round-robin-fairness-policy",
        "sheddable-eviction-filter",
        "slo-deadline-ordering-policy",
        "soft-reflective-ceiling-policy",
        "static-usage-limit-policy",
        "utilization-detector",
    ),
    "latency": ("latency-scorer", "latency-slo-admitter", "predicted-latency-producer", "slo-headroom-tier-filter"),
    "admission": ("probabilistic-admitter",),
    "multimodal": ("mm-embeddings-cache-producer", "mm-embeddings-cache-scorer"),
}
FIRST_PARTY_TYPES: Final[Mapping[str, str]] = {name: package for package, names in _FAMILIES.items() for name in names}
"""Type -> the package that comes with the host and provides it, for a hint to who configured another source in its place."""

_KUBERNETES: Final = "it works on objects of a cluster's API, which this release does not read; "
_PARSER: Final = "no package that comes with the host has this parser: one with the point parse would provide it; "
_MULTICLUSTER: Final = "it works on numbers of other clusters' pools, which this release does not gather: one host has one pool of endpoints; "
WOULD_PROVIDE: Final[Mapping[str, str]] = {
    "k8s-notification-source": _KUBERNETES + "object-directory-source tells of objects that lie in a folder as files",
    "topology-extractor": _KUBERNETES
    + "give endpoints their topology as labels: topology-affinity-scorer and topology-affinity-filter read those",
    "disaggregatedset-rollout-pod-extractor": _KUBERNETES
    + "a package with the points extract and screen would provide it",
    "disaggregatedset-rollout-screener": _KUBERNETES + "a package with the point screen would provide it",
    "request-attribute-reporter": "it reports to a proxy that asks over ext_proc, which this release does not speak; "
    "a package with the point response_body gets the same numbers",
    "destination-endpoint-served-verifier": "it checks a proxy's own answers in tests; "
    "a package with the point response_headers sees which endpoint answered",
    "vllmgrpc-parser": _PARSER + "requests come as HTTP with JSON here",
    "sglanghttp-parser": _PARSER + "passthrough-parser lets its requests through unread",
    "vertexai-parser": _PARSER + "passthrough-parser lets its requests through unread",
    "multicluster-metrics-data-source": _MULTICLUSTER + "metrics-data-source reads the metrics of this one's endpoints",
    "multicluster-metrics-extractor": _MULTICLUSTER
    + "core-metrics-extractor reads the metrics of this one's endpoints",
    "multicluster-file-discovery": _MULTICLUSTER + "file-discovery names endpoints of any cluster that can be reached",
    "multicluster-approx-prefix-cache-producer": _MULTICLUSTER + "approx-prefix-cache-producer covers this one's",
    "multicluster-queue-scorer": _MULTICLUSTER + "queue-scorer rates this one's endpoints",
    "multicluster-kv-cache-utilization-scorer": _MULTICLUSTER
    + "kv-cache-utilization-scorer rates this one's endpoints",
    "multicluster-prefix-cache-scorer": _MULTICLUSTER + "prefix-cache-scorer rates this one's endpoints",
    "multicluster-session-affinity-filter": _MULTICLUSTER + "session-affinity-filter keeps to this one's endpoints",
}
"""Types that the reference has and nobody here: what would provide them, or what does the same."""
