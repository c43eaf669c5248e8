"""What a host makes of what its scraping process says; the process is two pipes here."""

import os
import time
from dataclasses import dataclass, replace

import anyio
import pytest
from hotbay.datalayer.endpoint import EndpointMetadata, Metrics
from hotbay.datalayer.pages.extraction import MetricsPage
from hotbay.datalayer.scraping.frames import Frames, framed
from hotbay.datalayer.scraping.link import ScrapeLink
from hotbay.datalayer.scraping.metrics_source import MetricsPoller
from hotbay.datalayer.scraping.process import ScrapeProcess
from hotbay.datalayer.scraping.wire import (
    Arrived,
    Batch,
    EndpointSaid,
    Failed,
    Order,
    SamplesWanted,
    ScrapeSettings,
    WireEncoder,
    order_of,
)
from hotbay.datalayer.store import EndpointStore

pytestmark = pytest.mark.anyio

A = EndpointMetadata("default/a", "a", "10.0.0.1", 8000)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@dataclass
class Pipes:
    """A `HelperProcess`, and the ends of it that a process would have."""

    pid: int
    write_fd: int
    read_fd: int
    orders_fd: int
    batches_fd: int

    async def close(self, grace_s: float) -> str:
        for fd in (self.write_fd, self.read_fd, self.orders_fd, self.batches_fd):
            os.close(fd)
        return "exit code 0"

    def orders(self) -> list[Order]:
        return [order_of(value) for value in Frames().feed(os.read(self.orders_fd, 1 << 16))]

    def say(self, *batches: Batch) -> None:
        os.write(self.batches_fd, b"".join(WireEncoder().batch(batch) for batch in batches))


def pipes() -> Pipes:
    (orders, write), (read, batches) = os.pipe(), os.pipe()
    for fd in (write, read):
        os.set_blocking(fd, False)
    return Pipes(1, write, read, orders, batches)


def page(running: float) -> MetricsPage:
    return MetricsPage("vllm", Metrics(running=running, engine="vllm"))


async def test_only_what_is_said_of_an_endpoint_as_it_is_now_counts(caplog: pytest.LogCaptureFixture) -> None:
    store, process, heard = EndpointStore(), pipes(), anyio.Event()
    store.upsert(A)
    told: list[float | None] = []

    def on_page(_: EndpointMetadata, it: MetricsPage) -> None:
        told.append(it.metrics.running)
        if it.metrics.running == 4.0:
            heard.set()

    factors: list[float] = []
    one = ScrapeProcess(
        store, MetricsPoller(), start=lambda _: process, on_page=on_page, widened=lambda _: factors.append(one.factor)
    )
    async with anyio.create_task_group() as tasks:
        await tasks.start(one.run)
        settings, first = process.orders()
        store.upsert(replace(A, port=8001))
        (second,) = process.orders()
        assert isinstance(first, EndpointSaid)
        assert isinstance(second, EndpointSaid)
        assert second.number > first.number
        assert second.endpoint.port == 8001
        now = time.monotonic()
        process.say(
            Batch((Arrived(A.id, second.number, now, None),)),
            Batch((Arrived(A.id, first.number, now, page(1.0)), Failed(A.id, first.number, "status", "old"))),
            Batch((Arrived(A.id, second.number, now, page(2.0)), Arrived(A.id, second.number, now, None))),
            Batch((Arrived("default/gone", 1, now, page(9.0)), Failed(A.id, second.number, "status", "new"))),
            Batch((Arrived(A.id, second.number, now, page(4.0)),), ((30, "odd"),), connects=3, factor=2.0),
        )
        with anyio.fail_after(10):
            await heard.wait()
        tasks.cancel_scope.cancel()
    assert settings.interval_s == 0.05  # type: ignore[union-attr]  # settings come first
    assert told == [2.0, 2.0, 4.0]
    assert dict(one.counts.errors) == {"status": 1}
    assert (one.counts.scrapes, one.counts.connects, factors) == (4, 3, [2.0])
    assert "scraper: odd" in caplog.text
    assert "scrape_interval_widened interval_s=0.1" in caplog.text


async def test_samples_that_are_wanted_later_are_told_once() -> None:
    process = pipes()
    one = ScrapeProcess(EndpointStore(), MetricsPoller(), start=lambda _: process)
    one.want(["x"])
    async with anyio.create_task_group() as tasks:
        await tasks.start(one.run)
        (settings,) = process.orders()
        one.want(["x"])
        one.want(["y"])
        (told,) = process.orders()
        tasks.cancel_scope.cancel()
    assert isinstance(settings, ScrapeSettings)
    assert (settings.wanted, told) == ({"x"}, SamplesWanted(frozenset({"x", "y"})))


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (framed(b"\xc1"), "ValueRefusedError"),
        (framed(b"\x05"), "TypeError"),
        (framed(b"\x95\x01\x01\x01\x01\x01"), "TypeError"),
    ],
    ids=["no-value", "no-batch", "no-outcomes"],
)
async def test_a_process_that_cannot_be_understood_is_replaced(
    caplog: pytest.LogCaptureFixture, said: bytes, why: str
) -> None:
    started: list[Pipes] = []
    second = anyio.Event()

    def start(_: str) -> Pipes:
        started.append(pipes())
        if len(started) == 2:
            second.set()
        return started[-1]

    one = ScrapeProcess(EndpointStore(), MetricsPoller(), start=start, first_pause_s=0.0)
    async with anyio.create_task_group() as tasks:
        await tasks.start(one.run)
        os.write(started[0].batches_fd, said)
        with anyio.fail_after(10):
            await second.wait()
        tasks.cancel_scope.cancel()
    assert one.counts.errors["scraper_ended"] == 1
    assert f"what it says cannot be taken over: {why}" in caplog.text


async def test_one_batch_is_taken_over_in_a_turn_of_the_loop() -> None:
    process, taken, done = pipes(), list[int](), anyio.Event()

    def take(batch: Batch) -> None:
        taken.append(batch.connects)
        if batch.connects == 19:
            done.set()

    link = ScrapeLink(process, take)
    process.say(*(Batch(connects=number) for number in range(20)))
    link.open()
    most = 0
    with anyio.fail_after(10):
        while not done.is_set():
            before = len(taken)
            await anyio.lowlevel.checkpoint()
            most = max(most, len(taken) - before)
    link.close()
    await process.close(0.0)
    assert taken == list(range(20))
    assert most <= 2


async def test_outcomes_that_are_too_old_to_tell_are_counted() -> None:
    process, told = pipes(), anyio.Event()
    one = ScrapeProcess(
        EndpointStore(), MetricsPoller(), start=lambda _: process, widened=lambda _: told.set()
    )  # fmt: skip
    async with anyio.create_task_group() as tasks:
        await tasks.start(one.run)
        process.say(Batch(factor=2.0, superseded={"": 5, "timeout": 3}))
        with anyio.fail_after(10):
            await told.wait()
        tasks.cancel_scope.cancel()
    assert (one.counts.scrapes, dict(one.counts.errors)) == (8, {"timeout": 3})
