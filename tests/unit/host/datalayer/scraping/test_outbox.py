"""What a scraping process tells a host that reads late: the newest of each endpoint, in batches of bounded size."""

import logging
from types import MappingProxyType

import pytest
from hotbay.datalayer.endpoint import EndpointMetadata, Metrics
from hotbay.datalayer.pages.exposition import Sample
from hotbay.datalayer.pages.extraction import MetricsPage
from hotbay.datalayer.scraping.frames import Frames
from hotbay.datalayer.scraping.outbox import ScrapeOutbox
from hotbay.datalayer.scraping.wire import (
    BATCH_BYTES,
    BATCH_OUTCOMES,
    MAX_OUTCOME_BYTES,
    Arrived,
    Batch,
    Failed,
    batch_of,
)


def endpoint(number: int) -> EndpointMetadata:
    return EndpointMetadata(f"default/{number}", str(number), "10.0.0.1", 8000)


def page(running: float, label_bytes: int = 0) -> MetricsPage:
    """With a wanted sample that has a label of so many bytes."""
    samples = {"x": (Sample(MappingProxyType({"a": "b" * label_bytes}), 1.0),)} if label_bytes else {}
    return MetricsPage("vllm", Metrics(running=running), samples)


class Box(ScrapeOutbox):
    """An outbox of endpoints 0 to `count`, whose batches are read."""

    def __init__(self, count: int = 1) -> None:
        self.numbers = {endpoint(number).id: number for number in range(count)}
        super().__init__(self.numbers)
        self.sizes: list[int] = []

    def read(self) -> Batch:
        frame = self.batch(0, 1.0)
        self.sizes.append(len(frame))
        (value,) = Frames().feed(frame)
        return batch_of(value)

    def read_all(self) -> list[Batch]:
        batches = [self.read()]
        while self.has_outcomes:
            batches.append(self.read())
        return batches


def test_of_each_endpoint_the_newest_waits_and_older_ones_are_counted() -> None:
    box = Box(2)
    for running in range(1000):
        box.arrived(endpoint(0), page(running))
        box.failed(endpoint(1), "timeout" if running else "connect", "late")
    batch = box.read()
    arrived, failed = batch.outcomes
    assert isinstance(arrived, Arrived)
    assert arrived.page == page(999)
    assert failed == Failed("default/1", 1, "timeout", "late")
    assert batch.superseded == {"": 999, "connect": 1, "timeout": 998}
    assert box.is_empty
    assert box.read() == Batch()


def test_a_page_that_says_the_same_is_told_without_its_content_and_again_after_the_endpoint_changed() -> None:
    box, same = Box(), page(1.0)
    pages = []
    for number in (0, 0, 7, 7):
        box.numbers["default/0"] = number
        box.arrived(endpoint(0), same)
        (outcome,) = box.read().outcomes
        assert isinstance(outcome, Arrived)
        pages.append(outcome.page)
    assert pages == [same, None, same, None]


def test_a_backlog_is_told_in_batches_of_so_many_outcomes() -> None:
    box = Box(2 * BATCH_OUTCOMES + 1)
    for number in range(2 * BATCH_OUTCOMES + 1):
        box.failed(endpoint(number), "status", "no")
    batches = box.read_all()
    assert [len(batch.outcomes) for batch in batches] == [BATCH_OUTCOMES, BATCH_OUTCOMES, 1]
    assert [outcome.number for batch in batches for outcome in batch.outcomes] == list(range(2 * BATCH_OUTCOMES + 1))


def test_an_endpoint_that_has_ever_more_to_say_keeps_no_other_from_its_turn() -> None:
    box = Box(BATCH_OUTCOMES + 1)
    for number in range(BATCH_OUTCOMES + 1):
        box.failed(endpoint(number), "status", "no")
    box.read()
    for number in range(BATCH_OUTCOMES):
        box.failed(endpoint(number), "status", "no")
    assert box.read().outcomes[0].number == BATCH_OUTCOMES


def test_large_pages_of_many_endpoints_are_told_in_batches_of_bounded_size() -> None:
    """40 MiB in all, of which a frame carries 16."""
    box = Box(80)
    for number in range(80):
        box.arrived(endpoint(number), page(number, MAX_OUTCOME_BYTES // 2))
    batches = box.read_all()
    told = [outcome for batch in batches for outcome in batch.outcomes]
    assert all(isinstance(outcome, Arrived) for outcome in told)
    assert len(told) == 80
    assert max(box.sizes) < BATCH_BYTES + MAX_OUTCOME_BYTES


@pytest.mark.parametrize("more", [False, True])
def test_a_page_of_too_many_samples_fails_its_endpoint_alone(more: bool) -> None:
    box = Box(2)
    box.arrived(endpoint(0), page(1.0, 1000))
    rest = len(box.batch(0, 1.0)) - 1000
    box.arrived(endpoint(0), page(1.0, MAX_OUTCOME_BYTES - rest - 100 + 200 * more))
    box.arrived(endpoint(1), page(2.0))
    first, second = (outcome for batch in box.read_all() for outcome in batch.outcomes)
    assert isinstance(first, Failed if more else Arrived)
    assert isinstance(second, Arrived)
    if isinstance(first, Failed):
        assert first.reason == "too_large"
        assert f"at most {MAX_OUTCOME_BYTES} bytes" in first.message


def test_a_page_that_even_a_frame_cannot_carry_fails_its_endpoint_each_time() -> None:
    box, huge = Box(), page(1.0, 17 << 20)
    for _ in range(2):
        box.arrived(endpoint(0), huge)
        (outcome,) = box.read().outcomes
        assert isinstance(outcome, Failed)
        assert outcome.reason == "too_large"
    box.arrived(endpoint(0), page(2.0))
    (outcome,) = box.read().outcomes
    assert isinstance(outcome, Arrived)


def test_logs_are_bounded_in_number_and_length() -> None:
    box = Box()
    for number in range(200):
        box.handle(logging.LogRecord("x", logging.WARNING, "", 0, f"{number} " + "x" * 5000, None, None))
    assert not box.is_empty
    logs = box.read().logs
    assert [text.split()[0] for _, text in logs] == [str(number) for number in range(100, 200)]
    assert max(len(text) for _, text in logs) == 1000
    assert box.is_empty
