"""What the log and the store are told of pages and failures."""

import logging

import pytest
from hotbay.datalayer.endpoint import EndpointMetadata, Metrics
from hotbay.datalayer.health.watch import HealthWatch
from hotbay.datalayer.operations.page import page_row
from hotbay.datalayer.pages.engines import EngineSet
from hotbay.datalayer.pages.extraction import MetricsPage
from hotbay.datalayer.scraping.records import MOST_LINES, ScrapeRecords
from hotbay.datalayer.store import EndpointStore
from hotbay.observe.metrics import Metrics as Counts

A = EndpointMetadata("default/a", "a", "10.0.0.1", 8000)
MINUTE_S, INTERVAL_S = 60.0, 0.05


class Clock:
    """Time of a test."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def store() -> EndpointStore:
    store = EndpointStore()
    store.upsert(A)
    return store


def records_of(store: EndpointStore, clock: Clock) -> ScrapeRecords:
    return ScrapeRecords(store, EngineSet(), lambda endpoint: endpoint.authority, clock=clock)


@pytest.mark.parametrize("recovers_every", [0, 2, 7, 100])
@pytest.mark.parametrize(
    ("reason", "message"),
    [("status", "answered 401"), ("status", "answered 404"), ("not_metrics", "HTML"), ("connect", "refused")],
)
def test_m12_a_minute_of_failures_at_the_rate_of_scraping_writes_at_most_seven_lines(
    store: EndpointStore, caplog: pytest.LogCaptureFixture, reason: str, message: str, recovers_every: int
) -> None:
    clock, polls = Clock(), round(MINUTE_S / INTERVAL_S)
    records = records_of(store, clock)
    good = MetricsPage("vllm", Metrics(waiting=1.0))
    with caplog.at_level(logging.INFO):
        for number in range(polls):
            clock.now_s = number * INTERVAL_S
            if recovers_every and number % recovers_every == recovers_every - 1:
                records.arrived(A, good)
            else:
                records.failed(A, reason, message)
    assert polls == 1200
    assert 1 <= len(caplog.records) <= 7
    assert records.counts.scrapes == polls
    status = store.scrape_status(A.id)
    assert status is not None
    assert status.errors == records.counts.errors[reason] > polls / 3


def test_m12_each_further_minute_writes_as_few(store: EndpointStore, caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    records = records_of(store, clock)
    for number in range(10 * 1200):
        clock.now_s = number * INTERVAL_S
        records.failed(A, "status", "answered 401")
    assert 10 <= len(caplog.records) <= 70


def endpoints_of(store: EndpointStore, count: int) -> list[EndpointMetadata]:
    endpoints = [EndpointMetadata(f"default/{it}", f"e{it}", "10.0.0.1", 9000 + it) for it in range(count)]
    for endpoint in endpoints:
        store.upsert(endpoint)
    return endpoints


@pytest.mark.parametrize("count", [MOST_LINES, MOST_LINES + 1, 3000])
def test_m12_of_endpoints_that_fail_together_the_first_are_told_and_the_others_are_counted_each_second(
    store: EndpointStore, caplog: pytest.LogCaptureFixture, count: int
) -> None:
    clock = Clock()
    records = records_of(store, clock)
    for number, endpoint in enumerate(endpoints_of(store, count)):
        records.failed(endpoint, "connect" if number % 3 else "status", "wrong")
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == MOST_LINES
    assert all(line.startswith("scrape_failed endpoint=") for line in told)
    clock.now_s = 0.99
    records.arrived(A, MetricsPage("vllm", Metrics(waiting=1.0)))
    assert len(caplog.records) == MOST_LINES
    clock.now_s = 1.0
    records.arrived(A, MetricsPage("vllm", Metrics(waiting=1.0)))
    more = [record.getMessage() for record in caplog.records[MOST_LINES:]]
    if count == 3000:
        assert more == ["scrape_failed_more count=2980 reasons=connect:1987,status:993"]
    else:
        assert more == ["scrape_failed_more count=1 reasons=connect:1"] * (count - MOST_LINES)
    # The next second has lines of its own.
    records.failed(A, "timeout", "late")
    assert caplog.records[-1].getMessage().startswith("scrape_failed endpoint=default/a ")


def test_m12_a_summary_comes_with_whatever_is_told_next(store: EndpointStore, caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    records = records_of(store, clock)
    endpoints = endpoints_of(store, 2 * MOST_LINES)
    for endpoint in endpoints:
        records.failed(endpoint, "status", "answered 404")
    for now_s, forgets in ((5.0, False), (20.0, True)):
        clock.now_s = now_s
        caplog.clear()
        if forgets:
            for endpoint in endpoints:
                records.failed(endpoint, "status", "answered 404")
            clock.now_s += 1.0
            records.forget("default/0")
        else:
            records.failed(A, "status", "answered 404")
        assert "scrape_failed_more count=20 reasons=status:20" in [it.getMessage() for it in caplog.records]


def test_m13_of_endpoints_whose_pages_lack_the_same_the_first_are_told(
    store: EndpointStore, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock()
    records = records_of(store, clock)
    endpoints = endpoints_of(store, 500)
    lacking = MetricsPage("vllm", Metrics(waiting=1.0), missing=("kv_usage",))
    with caplog.at_level(logging.INFO):
        for endpoint in endpoints:
            records.failed(endpoint, "status", "answered 404")
        clock.now_s = 60.0
        caplog.clear()
        for endpoint in endpoints:
            records.arrived(endpoint, lacking)
        clock.now_s = 61.0
        records.arrived(A, MetricsPage("vllm", Metrics(waiting=1.0)))
    told = [record.getMessage() for record in caplog.records]
    for event, more in (
        ("scrape_recovered", "scrape_recovered_more count=480 reasons=answered:480"),
        ("scrape_incomplete", "scrape_incomplete_more count=480 reasons=vllm:480"),
    ):
        assert sum(line.startswith(f"{event} ") for line in told) == MOST_LINES
        assert told.count(more) == 1


def test_m13_the_store_knows_what_pages_lack_as_long_as_they_lack_it(store: EndpointStore) -> None:
    records = records_of(store, Clock())

    def lacks() -> tuple[str, ...]:
        status = store.scrape_status(A.id)
        assert status is not None
        return status.lacks

    records.arrived(A, MetricsPage("vllm", Metrics(waiting=1.0), missing=("kv_usage",), invalid=("running",)))
    assert len(lacks()) == 2
    assert lacks()[0].startswith("invalid running (")
    assert lacks()[1].startswith("missing kv_usage (")
    records.failed(A, "timeout", "late")
    assert len(lacks()) == 2
    records.arrived(A, MetricsPage("vllm", Metrics(waiting=1.0), missing=("kv_usage",)))
    assert len(lacks()) == 1
    records.arrived(A, MetricsPage("vllm", Metrics(waiting=1.0)))
    assert lacks() == ()


def test_m13_who_looks_at_endpoints_sees_what_their_pages_lack(store: EndpointStore) -> None:
    health = HealthWatch(store, Counts())
    assert page_row(store, health, A, None)["lacks"] == []
    records_of(store, Clock()).arrived(A, MetricsPage("vllm", Metrics(waiting=1.0), missing=("kv_usage",)))
    (lacks,) = page_row(store, health, A, None)["lacks"]  # type: ignore[misc]  # a list of one
    assert lacks.startswith("missing kv_usage (")
