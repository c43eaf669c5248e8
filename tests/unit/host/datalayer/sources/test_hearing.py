"""A source and the extractors behind it, each with a queue of its own: who is late, and what is told of it."""

import logging
from contextlib import asynccontextmanager

import anyio
import pytest
from hotbay.datalayer.endpoint import EndpointMetadata
from hotbay.datalayer.source import EndpointNews, EventType
from hotbay.datalayer.sources import waiting as waiting_module
from hotbay.datalayer.sources.hearing import LATE_S, Audience, Kept

pytestmark = pytest.mark.anyio


class Clock:
    """Time that passes when a test says so."""

    def __init__(self):
        self.now_s = 0.0

    def __call__(self):
        return self.now_s


def news(name, type_=EventType.ADD_OR_UPDATE):
    return EndpointNews(type_, EndpointMetadata(f"n/{name}", name, "10.0.0.1", 8000))


@asynccontextmanager
async def hearing(kit, counts, *extractors, clock=None, source=None, **options):
    source = source or kit.watched()
    audience = Audience(
        source, source.notify_endpoint, extractors, lambda *_: None,
        counts=counts, step_s=60.0, now=clock or Clock(), **options,
    )  # fmt: skip
    async with anyio.create_task_group() as group:
        group.start_soon(audience.run)
        yield audience
        group.cancel_scope.cancel()


def hanging(extractor):
    """Have it hang until the event that is returned is set."""
    may_end = anyio.Event()

    async def found(event):
        await may_end.wait()
        return {}

    extractor.found = found
    return may_end


def said(audience):
    return [problem.message for problem in audience.problems]


async def test_plugin_that_is_late_is_a_problem_that_says_how_much_waits_and_since_when(kit, counts):
    slow, other, clock = kit.hears("slow"), kit.hears("other"), Clock()
    may_end = hanging(slow)
    async with hearing(kit, counts, slow, other, clock=clock) as audience:
        for name in "ab":
            audience.put(news(name))
        await counts.until(lambda: len(other.seen) == 2)
        clock.now_s = LATE_S - 0.1
        assert said(audience) == []
        clock.now_s = LATE_S
        assert said(audience) == ["'slow' is late: 2 events wait for it, the first, of 'n/a', for 15 s"]
        may_end.set()
        await counts.until(lambda: len(slow.seen) == 2)
        await anyio.wait_all_tasks_blocked()
        assert said(audience) == []


async def test_what_a_plugin_made_nothing_of_is_named_until_it_makes_something_of_a_newer_event(kit, counts, caplog):
    bad = kit.hears("bad")

    async def fail(event):
        raise ZeroDivisionError("no")

    bad.found = fail
    async with hearing(kit, counts, bad) as audience:
        with caplog.at_level(logging.ERROR):
            for name in "ab":
                audience.put(news(name))
            await counts.until(lambda: counts.seen["extract", "e", "bad"] == 2)
            await anyio.wait_all_tasks_blocked()
        assert said(audience) == ["'bad' made nothing of the last event of 'n/a', 'n/b'"]
        bad.found = bad._nothing
        audience.put(news("b"))
        await counts.until(lambda: len(bad.seen) == 3)
        await anyio.wait_all_tasks_blocked()
        assert said(audience) == ["'bad' made nothing of the last event of 'n/a'"]
    assert [r.getMessage() for r in caplog.records] == [
        "extract_failed source=e extractor=bad event=add_or_update of='n/a'"
    ]


async def test_source_that_fails_is_named_too(kit, counts):
    source, heard = kit.watched(), kit.hears("x")

    def fail(event):
        raise ZeroDivisionError("no")

    source.say = fail
    async with hearing(kit, counts, heard, source=source) as audience:
        audience.put(news("a"))
        await counts.until(lambda: counts.seen["event", "e", "failed"])
        await anyio.wait_all_tasks_blocked()
        assert said(audience) == ["'e' made nothing of the last event of 'n/a'"]


async def test_source_that_fails_at_every_event_writes_six_tracebacks_a_minute(kit, counts, caplog):
    source, clock = kit.watched(), Clock()

    def fail(event):
        raise ZeroDivisionError("no")

    source.say = fail
    async with hearing(kit, counts, source=source, clock=clock) as audience:
        for seconds in (0.0, 0.1, 9.9, 10.0, 19.9, 20.0):
            clock.now_s = seconds
            audience.put(news("a"))
            await anyio.wait_all_tasks_blocked()
    assert counts.seen["event", "e", "failed"] == 6
    assert [record.exc_info is not None for record in caplog.records] == [True] * 3


async def test_who_waits_for_room_goes_on_when_somebody_is_bound_no_more_or_all_is_over(kit, counts, monkeypatch):
    monkeypatch.setattr(waiting_module, "ROOM_BYTES", 10)
    slow, other = kit.hears("slow"), kit.hears("other")
    hanging(slow)
    async with hearing(kit, counts, slow, other, keep=lambda event: Kept(lambda: event, 6)) as audience:

        async def bring(name):
            audience.put(news(name))
            await audience.room()
            brought.append(name)

        brought = []
        with anyio.fail_after(5):
            async with anyio.create_task_group() as group:
                for name in "abcd":
                    group.start_soon(bring, name)
                    await anyio.wait_all_tasks_blocked()
                assert (brought, len(other.seen)) == (["a", "b", "c"], 4), (
                    "who hears of it last is seen at the next one"
                )
                audience.rebind((other,))
                await anyio.wait_all_tasks_blocked()
                assert brought == ["a", "b", "c", "d"]
                hanging(other)
                for name in "efgh":
                    group.start_soon(bring, name)
                    await anyio.wait_all_tasks_blocked()
                assert brought[4:] == ["e", "f", "g"]
                audience.close()
        assert brought[4:] == ["e", "f", "g", "h"]


async def test_events_that_are_passed_over_are_counted_and_all_of_them_named_in_few_lines(kit, counts, caplog):
    slow, clock = kit.hears("slow"), Clock()
    may_end = hanging(slow)
    async with hearing(kit, counts, slow, clock=clock, most_waiting=2) as audience:
        with caplog.at_level(logging.WARNING):
            for number in range(30):
                audience.put(news(f"x\n{number % 3}"))
                await anyio.wait_all_tasks_blocked()
            waiting = audience.waiting
            clock.now_s = 10.0
            may_end.set()
            await counts.until(lambda: len(slow.seen) == 1 + waiting["slow"])
            await anyio.wait_all_tasks_blocked()
    assert waiting["e"] == 0
    assert counts.seen["skip", "e", "slow", "superseded"] == 29 - waiting["slow"]
    lines = [r.getMessage() for r in caplog.records]
    names = r"'n/x\n0', 'n/x\n1', 'n/x\n2'"
    assert len(lines) == 2
    assert sum(int(line.split("count=")[1].split()[0]) for line in lines) == 29 - waiting["slow"]
    assert sorted(lines[1].split("of=")[1].split(", ")) == names.split(", ")


async def test_long_lists_of_names_are_cut(kit, counts):
    bad = kit.hears("bad")

    async def fail(event):
        raise ZeroDivisionError("no")

    bad.found = fail
    async with hearing(kit, counts, bad) as audience:
        for number in range(10):
            audience.put(news(str(number)))
        await counts.until(lambda: counts.seen["extract", "e", "bad"] == 10)
        await anyio.wait_all_tasks_blocked()
        (message,) = said(audience)
    assert message.endswith("'n/7' and 2 others")


async def test_audience_that_is_closed_before_it_ran_never_runs(kit, counts):
    heard = kit.hears("x")
    source = kit.watched()
    audience = Audience(source, source.notify_endpoint, (heard,), lambda *_: None, counts=counts)
    audience.put(news("a"))
    audience.close()
    with anyio.fail_after(5):
        await audience.run()
    assert heard.seen == []
