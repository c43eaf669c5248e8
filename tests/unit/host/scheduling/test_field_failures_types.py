"""Every type of the reference is here, with its grade, or its absence is explained: a configuration that names one never guesses."""

from pathlib import Path

import pytest
from hotbay.errors import Place, Problem
from hotbay.packages.project import parse_project
from hotbay.scheduling.known_types import FIRST_PARTY_TYPES, WOULD_PROVIDE
from hotbay.scheduling.registry import TypeIndex

PLUGINS = Path(__file__).resolve().parents[4] / "plugins"
# As the reference lists them; A behind a name: alpha there, refused without being allowed.
PICKERS = "max-score-picker random-picker weighted-random-picker"
HANDLERS = (
    "single-profile-handler header-profile-handler:A data-parallel-profile-handler disagg-profile-handler "
    "pd-profile-handler always-disagg-pd-decider always-disagg-multimodal-decider prefix-based-pd-decider "
    "disagg-headers-handler prefill-header-handler"
)
FILTERS = (
    "label-selector-filter by-label-selector by-label decode-filter prefill-filter encode-filter utilization-filter:A "
    "endpoint-attribute-filter:A prefix-cache-affinity-filter slo-headroom-tier-filter session-affinity-filter:A "
    "topology-affinity-filter:A multicluster-session-affinity-filter:A header-based-testing-filter"
)
SCORERS = (
    "queue-scorer running-requests-size-scorer kv-cache-utilization-scorer lora-affinity-scorer load-aware-scorer "
    "active-request-scorer token-load-scorer prefix-cache-scorer precise-prefix-cache-scorer no-hit-lru-scorer "
    "session-affinity-scorer:A context-length-aware endpoint-attribute-scorer:A header-label-affinity-scorer:A "
    "topology-affinity-scorer:A mm-embeddings-cache-scorer latency-scorer multicluster-queue-scorer:A "
    "multicluster-kv-cache-utilization-scorer:A multicluster-prefix-cache-scorer:A"
)
OTHERS = (
    "approx-prefix-cache-producer precise-prefix-cache-producer burst-prefix-cache-producer:A inflight-load-producer "
    "token-producer tokenizer predicted-latency-producer session-id-producer mm-embeddings-cache-producer "
    "p2p-source-producer:A latency-slo-admitter probabilistic-admitter agent-identity:A "
    "disaggregatedset-rollout-screener:A request-attribute-reporter destination-endpoint-served-verifier"
)
PARSERS = "openai-parser anthropic-parser vllmhttp-parser vllmgrpc-parser sglanghttp-parser vertexai-parser passthrough-parser"
FLOW_CONTROL = (
    "global-strict-fairness-policy round-robin-fairness-policy program-aware-fairness fcfs-ordering-policy "
    "edf-ordering-policy slo-deadline-ordering-policy static-usage-limit-policy priority-holdback-policy:A "
    "soft-reflective-ceiling-policy:A sheddable-eviction-filter priority-then-time-eviction-order-policy:A "
    "utilization-detector concurrency-detector"
)
DATA = (
    "metrics-data-source models-data-source dcgm-data-source:A k8s-notification-source endpoint-notification-source "
    "core-metrics-extractor models-data-extractor dcgm-extractor:A topology-extractor:A "
    "disaggregatedset-rollout-pod-extractor file-discovery multicluster-metrics-data-source:A "
    "multicluster-metrics-extractor:A multicluster-file-discovery:A multicluster-approx-prefix-cache-producer:A"
)
TYPES = {
    name: grade == "A"
    for kind in (PICKERS, HANDLERS, FILTERS, SCORERS, OTHERS, PARSERS, FLOW_CONTROL, DATA)
    for name, _, grade in (entry.partition(":") for entry in kind.split())
}


def _index() -> TypeIndex:
    projects = [parse_project(file.read_text(), file=str(file)) for file in sorted(PLUGINS.glob("*/pyproject.toml"))]
    facts = {(one.id, name): entry.facts for one in projects for name, entry in one.type_facts.items()}
    return TypeIndex.build(((one.id, one.types) for one in projects), {}, facts=facts)


INDEX = _index()


@pytest.mark.parametrize(("name", "alpha"), sorted(TYPES.items()))
def test_type_of_the_reference_is_provided_with_its_grade_or_lacking_with_what_would_provide_it(
    name: str, alpha: bool
) -> None:
    found = INDEX.resolve(name, Place("picker.yaml", 3, 1))
    if isinstance(found, Problem):
        assert (found.code, found.hint) == ("UNKNOWN_TYPE", WOULD_PROVIDE[name])
        return
    assert found == FIRST_PARTY_TYPES.get(name), "the host's own, or of the package that a hint names"
    facts = INDEX.facts(name)
    assert facts is not None
    assert facts.points
    # A file that works there works here: what is no alpha there is none here, and the other way round.
    assert (facts.stability == "alpha") is alpha


def test_nothing_is_said_to_be_lacking_that_the_reference_does_not_have() -> None:
    assert WOULD_PROVIDE.keys() <= TYPES.keys()
    assert FIRST_PARTY_TYPES.keys() <= TYPES.keys()
