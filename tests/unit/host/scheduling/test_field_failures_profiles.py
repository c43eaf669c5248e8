"""Field failures of whole profiles: first-party packages in the scheduling core, over the host's own figures, at the cases' numbers."""

import sys
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from hotbay.datalayer.endpoint import EndpointMetadata, Metrics
from hotbay.scheduling.decision import Picked, Rejected
from hotbay.scheduling.sent_tables import FEATURE as SIDE_TABLES

PLUGINS = Path(__file__).resolve().parents[4] / "plugins"
# The packages are not installed here: they are imported from their projects, when this module is.
sys.path[:0] = [
    str(PLUGINS / name)
    for name in ("attributes", "disaggregation", "flow-control", "labels", "prefix-cache", "standard")
]

from hotbay_attributes import plugin as attributes  # noqa: E402 - see above
from hotbay_disaggregation import plugin as disaggregation  # noqa: E402
from hotbay_flow_control import plugin as flow_control  # noqa: E402
from hotbay_labels import plugin as labels  # noqa: E402
from hotbay_prefix_cache import plugin as prefix_cache  # noqa: E402
from hotbay_standard import plugin as standard  # noqa: E402

QUEUE, KV, PREFIX = "queue-scorer", "kv-cache-utilization-scorer", "prefix-cache-scorer"
LONG = 400
"""Bytes of a prompt of more than one block."""


def default_profile(bay, *more: tuple[str, float]) -> None:
    """The reference's default: queue and KV use weigh 2, prefixes 3; `more` are further scorers of loads."""
    bay.plugin(standard, [(name, name, {}) for name in (QUEUE, KV, *dict(more))])
    bay.plugin(prefix_cache, [(name, name, {}) for name in ("approx-prefix-cache-producer", PREFIX)])
    bay.publish((QUEUE, 2.0), (KV, 2.0), (PREFIX, 3.0), *more)


async def go(bay, prompt: str) -> str:
    """One request that is decided and sent; where it went."""
    (picked,) = await bay.decide(prompt=prompt)
    assert isinstance(picked, Picked)
    assert picked.degraded == ()
    bay.store.ledger.started(picked.endpoint.id)
    bay.store.publish(0.5)
    return picked.endpoint.name


async def totals_of(bay, prompt: str = "x" * LONG) -> Mapping[str, float]:
    await bay.decide(prompt=prompt)
    (run,) = bay.router.explain(bay.requests[-1].id).profiles
    return {name.removeprefix("default/"): total for name, total in run.totals.items()}


# -- S13, S19, S39: the default profile ------------------------------------------------------------


@pytest.mark.parametrize("extra", [(), (("active-request-scorer", 3.0),)], ids=["default", "and-in-flight"])
def test_s13_burst_within_one_scrape_interval_is_spread(
    in_loop: Callable, extra: tuple[tuple[str, float], ...]
) -> None:
    """A queue 0, B queue 1, eight requests one after the other, none of which any scrape has seen."""

    async def body(bay) -> None:
        bay.endpoints(a=Metrics(waiting=0.0, kv_usage=0.1), b=Metrics(waiting=1.0, kv_usage=0.1))
        default_profile(bay, *extra)
        names = Counter([await go(bay, f"{n}" * LONG) for n in range(8)])
        assert max(names.values()) <= 6
        assert set(names) == {"a", "b"}

    in_loop(body)


@pytest.mark.parametrize("pool", ["abc", "a"])
@pytest.mark.parametrize("waiting", [0.0, 7.0])
def test_s19_equal_figures_give_equal_finite_totals_in_the_default_profile(
    in_loop: Callable, pool: str, waiting: float
) -> None:
    async def body(bay) -> None:
        bay.endpoints(**dict.fromkeys(pool, Metrics(waiting=waiting, kv_usage=0.0)))
        default_profile(bay)
        assert await totals_of(bay) == dict.fromkeys(pool, 4.0)

    in_loop(body)


def test_s39_on_a_miss_load_decides_and_not_the_size_of_an_index(in_loop: Callable) -> None:
    """A is busy and has a small index, B idle and a big one; a hundred new prompts."""

    async def body(bay) -> None:
        default_profile(bay)
        bay.endpoints(b=Metrics(waiting=0.0, kv_usage=0.5))
        for number in range(50):
            await go(bay, f"big {number:04}" * LONG)
        bay.endpoints(a=Metrics(waiting=0.0, kv_usage=0.5))
        await go(bay, "small" * LONG)
        bay.endpoints(a=Metrics(waiting=50.0, kv_usage=0.5), b=Metrics(waiting=0.0, kv_usage=0.5))
        names = Counter([await go(bay, f"new {number:04}" * LONG) for number in range(100)])
        assert names["b"] >= 80

    in_loop(body)


def test_s39_busy_endpoint_wins_by_a_hit_alone(in_loop: Callable) -> None:
    async def body(bay) -> None:
        bay.endpoints(a=Metrics(waiting=0.0, kv_usage=0.5))
        default_profile(bay)
        await go(bay, "known" * LONG)
        bay.store.upsert(EndpointMetadata("default/b", "b", "10.0.0.1", 8000))
        bay.store.update_metrics("default/a", Metrics(waiting=50.0, kv_usage=0.5), 0.5)
        bay.store.update_metrics("default/b", Metrics(waiting=0.0, kv_usage=0.5), 0.5)
        bay.store.publish(0.5)
        assert await totals_of(bay, "known" * LONG) == {"a": pytest.approx(1 + 3), "b": pytest.approx(2 + 1)}
        assert [await go(bay, prompt * LONG) for prompt in ("known", "other")] == ["a", "b"]

    in_loop(body)


# -- S01, S02: nobody is left ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("plugin", "type_name", "parameters", "status", "reason"),
    [
        (labels, "label-selector-filter", {"matchLabels": {"pool": "none"}}, 503, "rejected-no-endpoints"),
        (labels, "by-label", {"label": "pool", "validValues": ["none"]}, 503, "rejected-no-endpoints"),
        (labels, "prefill-filter", {}, 503, "rejected-no-endpoints"),
        (
            attributes,
            "utilization-filter",
            {"conditions": [{"metric": "waiting-queue", "maxValue": 5}]},
            429,
            "rejected-saturated",
        ),
        (flow_control, "concurrency-detector", {"maxConcurrency": 1}, 429, "rejected-saturated"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_s01_drained_by_a_filter_of_ours_is_never_500(
    in_loop: Callable, plugin, type_name: str, parameters: dict[str, object], status: int, reason: str
) -> None:
    async def body(bay) -> None:
        bay.plugin(plugin, [("f", type_name, parameters)])
        bay.started[-1].features = frozenset({SIDE_TABLES})
        bay.publish("f")
        for name in ("a", "b"):
            bay.store.upsert(EndpointMetadata(f"default/{name}", name, "10.0.0.1", 8000, labels={"pool": "some"}))
            bay.store.update_metrics(f"default/{name}", Metrics(waiting=6.0), 0.0)
            bay.store.ledger.started(f"default/{name}")
        bay.store.publish(0.0)
        answers = await bay.decide(20)
        assert {(answer.status, answer.reason) for answer in answers} == {(status, reason)}
        assert all(answer.message for answer in answers)
        for name in ("a", "b"):
            bay.store.delete(f"default/{name}")
        bay.store.publish(0.0)
        assert {(answer.status, answer.reason) for answer in await bay.decide(20)} == {(503, "rejected-no-endpoints")}

    in_loop(body)


@pytest.mark.parametrize("priority", [0, -1])
def test_s02_empty_pool_is_503_and_no_saturation_whoever_may_be_shed(in_loop: Callable, priority: int) -> None:
    """A detector counts an empty pool as full, as the reference's does; nobody is told "try again" because of it."""

    async def body(bay) -> None:
        client = bay.plugin(flow_control, [("d", "utilization-detector", {})])
        bay.publish(detector="d")
        answers = await bay.decide(20, priority=priority)
        assert {(answer.status, answer.reason) for answer in answers} == {(503, "rejected-no-endpoints")}
        assert client.arguments == [], "the detector was not even asked"

    in_loop(body)


# -- S11: figures that nobody renews ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "queue_of_b", "shed"),
    [("saturated", 3.0, False), ("saturated", 5.0, True), ("ignore", 3.0, False), ("ignore", 5.0, True)],
)
def test_s11_detector_judges_by_the_hosts_figures_and_their_age(
    in_loop: Callable, policy: str, queue_of_b: float, shed: bool
) -> None:
    """A stands still at queue 0, B is live: A as if full (0.6 and 1 are 0.8 of five), or not at all."""

    async def body(bay) -> None:
        bay.plugin(flow_control, [("d", "utilization-detector", {"stalenessPolicy": policy})])
        bay.publish(detector="d")
        bay.endpoints(a=Metrics(waiting=0.0, kv_usage=0.0), b=Metrics(waiting=0.0, kv_usage=0.0))
        assert isinstance((await bay.decide(priority=-1))[0], Picked), "both are live and idle"
        bay.store.update_metrics("default/b", Metrics(waiting=queue_of_b, kv_usage=0.0), 10.0)
        assert bay.store.publish(10.1).stale["waiting"] == 1
        (answer,) = await bay.decide(priority=-1)
        assert isinstance(answer, Rejected) is shed
        assert isinstance((await bay.decide(priority=0))[0], Picked), "who may not be shed is served"

    in_loop(body)


@pytest.mark.parametrize(("policy", "shed"), [("saturated", True), ("ignore", False)])
def test_s11_pool_of_one_stale_endpoint_is_full_or_usable_by_the_policy(
    in_loop: Callable, policy: str, shed: bool
) -> None:
    async def body(bay) -> None:
        bay.plugin(flow_control, [("d", "utilization-detector", {"stalenessPolicy": policy})])
        bay.plugin(standard, [(QUEUE, QUEUE, {})])
        bay.publish("d", QUEUE, detector="d")
        bay.endpoints(a=Metrics(waiting=0.0, kv_usage=0.0))
        bay.store.publish(60.0)
        (answer,) = await bay.decide(priority=-1)
        if shed:
            assert (answer.status, answer.reason) == (429, "rejected-saturated")
        else:
            assert answer.endpoint.name == "a"
        assert await bay.names(20) == ["a"] * 20

    in_loop(body)


# -- EP14: stages that find no endpoint -------------------------------------------------------------


@pytest.mark.parametrize("order", ["prefill-first", "decode-first"])
def test_ep14_request_without_an_endpoint_to_decode_on_never_goes_to_the_prefill_server(
    in_loop: Callable, order: str
) -> None:
    """Decode finds no endpoint, more often than a breaker takes faults, whether prefill found one or not; then it finds one."""

    async def body(bay) -> None:
        def there(name: str, number: int) -> None:
            at = EndpointMetadata(f"default/{name}", name, f"10.0.0.{number}", 8000, labels={"role": name})
            bay.store.upsert(at)
            bay.store.publish(float(number))

        there("prefill", 1)
        bay.plugin(labels, [("decodes", "by-label", {"label": "role", "validValues": ["decode"]})])
        bay.plugin(disaggregation, [("h", "disagg-profile-handler", {"stageOrder": order})])
        for generation in bay.started:
            generation.features |= {SIDE_TABLES}
        bay.publish(profiles={"prefill": [], "decode": ["decodes"]})
        for _ in range(6):
            (answer,) = await bay.decide()
            assert isinstance(answer, Rejected), answer
            assert (answer.status, answer.reason) == (503, "rejected-no-endpoints")
        assert bay.tally.errors == []
        there("decode", 2)
        (found,) = await bay.decide()
        assert isinstance(found, Picked), found
        assert (found.endpoint.name, found.profile, found.degraded) == ("decode", "decode", ())

    in_loop(body)
