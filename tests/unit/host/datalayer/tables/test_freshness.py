"""How figures age: limits on both sides, what is shown then, and health from scraping."""

import math

import pytest
from hotbay.datalayer.endpoint import EndpointMetadata, Metrics
from hotbay.datalayer.store import EndpointStore
from hotbay.datalayer.tables.freshness import (
    FRESHNESS_FIELDS,
    MISSED_SCRAPES,
    Freshness,
    StalePolicy,
    healthiness,
    scraped_health,
)
from hypothesis import given
from hypothesis import strategies as st

FULL = Metrics(3.0, 2.0, 0.5, 160, 16, 10, 4.0, {"x": 0}, {"y": 0}, "m", "vllm")
COLUMNS = {field: tuple(f"endpoint.{name}" for name in names) for field, names in FRESHNESS_FIELDS.items()}


def store_of(*names: str, freshness: Freshness | None = None) -> EndpointStore:
    store = EndpointStore(freshness)
    for name in names:
        store.upsert(EndpointMetadata(f"default/{name}", name, "10.0.0.1", 8000))
    return store


def is_unknown(value: float) -> bool:
    return math.isnan(value) or value == -1


@pytest.mark.parametrize(("age_s", "is_stale"), [(2.0, False), (2.001, True)])
@pytest.mark.parametrize("policy", StalePolicy)
def test_a_figure_older_than_the_limit_is_unknown_or_as_it_was(
    age_s: float, is_stale: bool, policy: StalePolicy
) -> None:
    store = store_of("a", freshness=Freshness(policy=policy))
    store.update_metrics("default/a", FULL, 10.0)
    snapshot = store.publish(10.0 + age_s)
    is_hidden = is_stale and policy is StalePolicy.UNKNOWN
    for columns in COLUMNS.values():
        assert [is_unknown(snapshot.columns[name][0]) for name in columns] == [is_hidden] * len(columns)
    facts = snapshot.facts[0]
    assert facts is not None
    assert (facts.active_models, facts.waiting_models) == ((None, None) if is_hidden else ({"x": 0}, {"y": 0}))
    assert (facts.engine, facts.model) == ("vllm", "m"), "what is served does not age"
    assert snapshot.stale == dict.fromkeys(FRESHNESS_FIELDS, int(is_stale))
    assert snapshot.oldest_stale_s == (dict.fromkeys(FRESHNESS_FIELDS, pytest.approx(age_s)) if is_stale else {})
    assert snapshot.live.tolist() == [True]
    assert snapshot.columns["endpoint.age_waiting"][0] == pytest.approx(age_s)


def test_fields_age_by_limits_of_their_own() -> None:
    store = store_of("a", freshness=Freshness(stale_after_s=1.0, fields={"lora": 5.0, "cache": 3.0}))
    store.update_metrics("default/a", FULL, 10.0)
    stale = {now: {field for field, count in store.publish(now).stale.items() if count} for now in (12.0, 14.0, 16.0)}
    quick = {"waiting", "running", "kv_usage"}
    assert stale == {12.0: quick, 14.0: quick | {"cache"}, 16.0: quick | {"cache", "lora"}}


def test_the_age_that_is_told_is_that_of_the_oldest_that_is_stale() -> None:
    store = store_of("a", "b", "never", freshness=Freshness(stale_after_s=2.0, fields={"lora": 5.0}))
    store.update_metrics("default/a", FULL, 10.0)
    store.update_metrics("default/b", FULL, 11.0)
    store.update_metrics("default/b", Metrics(waiting=1.0), 12.5)
    oldest_s = store.publish(13.5).oldest_stale_s
    assert oldest_s == {name: pytest.approx(3.5) for name in ("waiting", "running", "kv_usage", "cache")}
    store.update_metrics("default/a", Metrics(waiting=1.0), 13.6)
    assert "waiting" not in store.publish(13.6).oldest_stale_s


def test_what_was_never_reported_is_unknown_and_not_stale() -> None:
    store = store_of("a")
    store.update_metrics("default/a", Metrics(waiting=1.0), 10.0)
    assert store.publish(20.0).stale == {**dict.fromkeys(FRESHNESS_FIELDS, 0), "waiting": 1}


def test_a_stale_figure_is_back_with_the_next_page_that_has_it_even_if_it_is_the_same() -> None:
    store = store_of("a", "b")
    store.update_metrics("default/a", FULL, 10.0)
    store.update_metrics("default/b", FULL, 10.0)
    store.update_metrics("default/b", Metrics(waiting=7.0), 12.5)
    assert store.publish(12.5).columns["endpoint.waiting"].tolist() == [pytest.approx(math.nan, nan_ok=True), 7.0]
    store.update_metrics("default/a", FULL, 12.51)
    back = store.publish(12.51)
    assert back.columns["endpoint.waiting"].tolist() == [3.0, 7.0]
    assert back.stale["waiting"] == 0
    facts = back.facts[0]
    assert facts is not None
    assert facts.active_models == {"x": 0}


def test_another_freshness_acts_at_the_next_publication() -> None:
    store = store_of("a")
    store.update_metrics("default/a", FULL, 10.0)
    store.record_scrape_failure("default/a", "x")
    assert is_unknown(store.publish(15.0).columns["endpoint.waiting"][0])
    store.freshness = Freshness(policy=StalePolicy.IGNORE, failures=1)
    columns = store.publish(15.0).columns
    assert columns["endpoint.waiting"].tolist() == [3.0]
    assert columns["endpoint.healthy"].tolist() == [0.0]


@pytest.mark.parametrize(
    ("interval_s", "stale_after_s", "lora_s"), [(0.05, 2.0, 1.0), (0.5, 2.0, 1.5), (1.0, 3.0, 3.0), (10.0, 30.0, 30.0)]
)
def test_limits_are_never_below_three_intervals(interval_s: float, stale_after_s: float, lora_s: float) -> None:
    freshness = Freshness(fields={"lora": 1.0, "attribute.x": 0.1}).for_interval(interval_s)
    assert MISSED_SCRAPES == 3
    assert (freshness.limit_s("waiting"), freshness.limit_s("lora")) == (stale_after_s, lora_s)
    assert freshness.limit_s("attribute.x") == 0.1, "who puts attributes does so at intervals of its own"
    assert freshness.limit_s("attribute.y") == math.inf


@pytest.mark.parametrize(
    ("has_succeeded", "consecutive_errors", "health"),
    [
        (False, 0, None),
        (False, 2, None),
        (False, 3, 0.0),
        (True, 0, 1.0),
        (True, 2, 1.0),
        (True, 3, 0.0),
        (True, 9, 0.0),
    ],
)
def test_scrapes_that_fail_in_a_row_make_an_endpoint_unhealthy(
    has_succeeded: bool, consecutive_errors: int, health: float | None
) -> None:
    found = scraped_health(has_succeeded=has_succeeded, consecutive_errors=consecutive_errors, failures=3)
    assert math.isnan(found) if health is None else found == health


def test_health_follows_scraping_and_comes_back_with_one_success() -> None:
    store = store_of("a", freshness=Freshness(failures=2))

    def healthy() -> float:
        return float(store.publish(1.0).columns["endpoint.healthy"][0])

    assert math.isnan(healthy()), "never scraped"
    seen = []
    for success in (True, False, False, True):
        if success:
            store.update_metrics("default/a", Metrics(), 1.0)
        else:
            store.record_scrape_failure("default/a", "answered 500")
        seen.append(healthy())
    assert seen == [1.0, 1.0, 0.0, 1.0]
    assert store.snapshot.live.tolist() == [True], "health is a figure, not a verdict"


@given(st.floats(0, 1) | st.just(math.nan), st.floats(0, 1) | st.just(math.nan))
def test_health_is_the_worse_of_what_is_known(scraped: float, served: float) -> None:
    known = [value for value in (scraped, served) if not math.isnan(value)]
    found = healthiness(scraped, served)
    assert found == min(known) if known else math.isnan(found)
