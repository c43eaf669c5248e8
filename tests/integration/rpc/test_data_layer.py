"""Calls of the data layer to real processes: beside hot calls, in order, under credits, and to the end of the process."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from hotbay.config.data_types import ObjectKind
from hotbay.datalayer.remote.object_records import ObjectReader
from hotbay.datalayer.remote.payloads import payload_limit
from hotbay.datalayer.remote.records import Gone, Named, RecordReader, Refused, Told
from hotbay.errors import HostError
from hotbay.rpc.liveness import Patience
from hotbay_sdk.protocol import Method

pytestmark = pytest.mark.process

LIFE_S = 30.0
SOURCE = """
    import time
    from hotbay_sdk import Discovery, EventExtractor, Extractor, Plugin, PollingSource, Scorer, WatchSource

    plugin = Plugin("served")
    LOG = []

    @plugin.type("events", payload="endpoint", attributes={"seen": "value"})
    class Events(EventExtractor):
        def extract(self, event):
            if event["endpoint"]["id"] == "hang":
                time.sleep(3600)
            LOG.append(event["number"])
            return {event["endpoint"]["id"]: {"seen": list(LOG)}}

    @plugin.type("slow", payload="json", attributes={"a": "f32"}, concurrency=2)
    class Slow(Extractor):
        def extract(self, payload, endpoint):
            if payload["until"] == "cancelled":
                self.context.logger.info("waits")
            while not (payload["until"] == "cancelled" and self.context.cancelled):
                if payload["until"] == "now":
                    return {"a": 1}
                time.sleep(0.001)
            self.context.logger.info("saw the cancel")
            return {}

    @plugin.type("quick")
    class Quick(Scorer):
        def score(self, request, endpoint):
            return 1.0

    @plugin.type("waits")
    class Waits(Scorer):
        async def score(self, request, endpoint):
            return 1.0

    @plugin.type("many", parameters=lambda raw: raw)
    class Many(Discovery):
        def __init__(self, context, parameters):
            self.context, self.count, self.then = context, parameters.get("count", 2), parameters.get("then", "wait")

        def discover(self, notifier):
            for n in range(self.count):
                notifier.upsert({"id": f"default/e{n}", "address": "10.0.0.1", "port": 8000, "labels": {"n": str(n)}})
            notifier.delete("default/e0")
            notifier.upsert({"id": "default/bad", "address": "nowhere", "port": 8000})
            notifier.ready()
            if self.then == "raise":
                raise OSError("gone")
            if self.then == "wait":
                while not notifier.wait(3600):
                    pass
                self.context.logger.info("run over")
                notifier.upsert({"id": "late"})
            if self.then == "flood":
                while not self.context.cancelled:
                    notifier.delete("default/e1")
                self.context.logger.info("flood over")

        def close(self):
            self.context.logger.info("closed")

    @plugin.type("deaf")
    class Deaf(Discovery):
        def discover(self, notifier):
            notifier.ready()
            time.sleep(3600)

    @plugin.type("pods", payload="object:/v1/Pod", parameters=lambda raw: raw)
    class Pods(WatchSource):
        def __init__(self, context, parameters):
            self.context, self.count = context, parameters["count"]

        def watch(self, notifier):
            for n in range(self.count):
                notifier.upsert({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"p{n}"}, "note": "x" * 200})
            notifier.delete("p0")
            notifier.upsert({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "p1"}})
            notifier.ready()
            while not notifier.wait(3600):
                pass
            self.context.logger.info("watch over")

    @plugin.type("finds", payload="object:/v1/Pod")
    class Finds(Discovery, WatchSource):
        def discover(self, notifier):
            notifier.ready()
            while not notifier.wait(3600):
                pass

        def watch(self, notifier):
            self.discover(notifier)

    @plugin.type("texts", payload="text", concurrency=2)
    class Texts(PollingSource):
        def poll(self, endpoint):
            return "x" * endpoint["length"]

    """


class Run:
    """A `discover` call, or one like it, as a test sees it."""

    def __init__(
        self, process: object, number: int = 1, *, method: Method = Method.DISCOVER, reader: Any = None
    ) -> None:
        self.news = asyncio.Event()
        self.outcome: list[object] = []
        self.records: list[object] = []
        self._reader = reader or RecordReader("it")
        client = process.client  # type: ignore[attr-defined]  # the fixture's process
        handle = [process.generation, number]  # type: ignore[attr-defined]  # as above
        self.flow = client.follow(method, [handle], came=self.news.set, done=self._done)

    def _done(self, outcome: object) -> None:
        self.outcome.append(outcome)
        self.news.set()

    def take(self) -> None:
        self.records += self._reader.feed(self.flow.take())

    async def until(self, holds: Callable[[], object]) -> None:
        async with asyncio.timeout(LIFE_S):
            while True:
                self.news.clear()
                self.take()
                if holds():
                    return
                await self.news.wait()

    async def over(self) -> object:
        await self.until(lambda: self.outcome)
        return self.outcome[0]


async def with_types(start: Callable, *refs: tuple[str, dict], **options: object):
    process = await start(SOURCE, **options).start()
    answer = await process.configure([(n, f"r{n}", kind, given) for n, (kind, given) in enumerate(refs, 1)])
    assert answer["errors"] == []
    return process


def event(number: int, endpoint_id: str = "a") -> list[object]:
    return [number, {"type": "add_or_update", "endpoint": {"id": endpoint_id}}]


def test_events_are_answered_in_the_order_in_which_they_were_sent(with_process: Callable) -> None:
    async def body(start: Callable) -> None:
        process = await with_types(start, ("events", {}))
        calls = [
            process.client.control_call(Method.EVENT_EXTRACT, [[1, 1], *event(n)], deadline_s=LIFE_S)
            for n in range(1, 51)
        ]
        answers = await asyncio.gather(*calls)
        assert answers[-1] == {"a": {"seen": list(range(1, 51))}}

    with_process(body)


def test_a_call_that_waits_keeps_no_other_call_from_its_answer(with_process: Callable) -> None:
    async def body(start: Callable) -> None:
        process = await with_types(start, ("slow", {}), ("quick", {}))
        ask = process.client.control_call
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(
                ask(Method.POLL_EXTRACT, [[1, 1], {}, {"until": "cancelled"}], deadline_s=LIFE_S)
            )
            assert (await ask(Method.POLL_EXTRACT, [[1, 1], {}, {"until": "now"}], deadline_s=LIFE_S)) == {"a": 1.0}
            assert isinstance(await process.score(number=2), list)
            # A call that is cancelled before it begins does not begin.
            await process.logged("waits")
            waiting.cancel()
            await process.logged("saw the cancel")

    with_process(body)


def test_discovery_tells_in_order_under_credit_and_is_told_when_it_is_over(with_process: Callable) -> None:
    async def body(start: Callable) -> None:
        count = 3000
        process = await with_types(start, ("many", {"count": count}))
        run = Run(process)
        await run.until(lambda: Told() in run.records)
        named = [record for record in run.records if isinstance(record, Named)]
        assert [record.item.labels["n"] for record in named] == [str(n) for n in range(count)]
        assert [type(record) for record in run.records[count:]] == [Gone, Refused, Told]
        run.flow.cancel()
        await process.logged("run over")
        assert isinstance(await run.over(), HostError)
        # What it told afterwards is not heard, and the process is as usable as before.
        assert len(run.records) == count + 3
        again = Run(process)
        await again.until(lambda: Told() in again.records)
        assert process.lost == []

    with_process(body)


def test_a_source_that_watches_tells_in_order_under_credit_beside_what_it_is_asked_for(with_process: Callable) -> None:
    async def body(start: Callable) -> None:
        count = 1000
        process = await with_types(start, ("pods", {"count": count}), ("texts", {}))
        run = Run(process, method=Method.SOURCE_WATCH, reader=ObjectReader("it", ObjectKind("", "v1", "Pod")))
        ask = process.client.control_call
        assert await ask(Method.SOURCE_POLL, [[1, 2], {"length": 3}], deadline_s=LIFE_S) == "xxx"
        assert len(run.flow._data) <= 64 * 1024
        await run.until(lambda: Told() in run.records)
        named = [record.item.id for record in run.records if isinstance(record, Named)]
        assert named == [f"p{n}" for n in range(count)]
        assert [type(record) for record in run.records[count:]] == [Gone, Refused, Told]
        run.flow.cancel()
        await process.logged("watch over")
        assert isinstance(await run.over(), HostError)

    with_process(body)


def test_a_payload_is_bounded_and_a_longer_one_costs_its_poll_alone(with_process: Callable) -> None:
    async def body(start: Callable) -> None:
        process = await with_types(start, ("texts", {}))

        async def poll(length: int, payload: str) -> object:
            endpoint, limit = {"length": length}, payload_limit(payload)
            call = process.client.control_call
            return await call(Method.SOURCE_POLL, [[1, 1], endpoint], deadline_s=LIFE_S, reply_limit_bytes=limit)

        for payload, most in (("text", (1024 + 16) * 1024), ("json", 256 * 1024)):
            found = await poll(most - 5, payload)
            assert isinstance(found, str)
            assert len(found) == most - 5
            with pytest.raises(HostError) as failed:
                await poll(most, payload)
            assert failed.value.code == "FRAME_TOO_LARGE"
        assert process.lost == []

    with_process(body)


def test_a_flood_waits_for_who_takes_it(with_process: Callable) -> None:
    async def body(start: Callable) -> None:
        process = await with_types(start, ("many", {"then": "flood"}))
        run = Run(process)
        await run.until(lambda: Told() in run.records)
        taken = len(run.records)
        # Nothing is taken: what is under way ends at the credit of a stream, and pings and calls are answered beside it.
        for _ in range(20):
            assert (await process.configure([]))["errors"] == []
        assert len(run.flow._data) <= 64 * 1024
        await run.until(lambda: len(run.records) > taken + 5000)
        run.flow.cancel()
        await process.logged("flood over")
        await run.over()
        assert process.lost == []

    with_process(body)


@pytest.mark.parametrize(("then", "is_error"), [("return", False), ("raise", True)])
def test_a_run_that_ends_by_itself_was_heard_to_its_end(with_process: Callable, then: str, is_error: bool) -> None:
    async def body(start: Callable) -> None:
        process = await with_types(start, ("many", {"then": then}))
        run = Run(process)
        outcome = await run.over()
        assert run.records[-1] == Told()
        assert isinstance(outcome, HostError) is is_error
        if is_error:
            assert "OSError: gone" in str(outcome)

    with_process(body)


def test_a_run_that_comes_before_the_one_before_is_over_waits_for_it(with_process: Callable) -> None:
    async def body(start: Callable) -> None:
        process = await with_types(start, ("many", {}))
        first = Run(process)
        await first.until(lambda: Told() in first.records)
        second, third = Run(process), Run(process)
        third.flow.cancel()
        assert (await process.configure([]))["errors"] == []
        second.take()
        assert second.records == []
        first.flow.cancel()
        await second.until(lambda: Told() in second.records)
        assert isinstance(await first.over(), HostError)
        assert isinstance(await third.over(), HostError)
        assert third.records == []

    with_process(body)


def test_a_type_that_discovers_and_watches_does_both_at_a_time(with_process: Callable) -> None:
    async def body(start: Callable) -> None:
        process = await with_types(start, ("finds", {}))
        for method in (Method.DISCOVER, Method.SOURCE_WATCH):
            run = Run(process, method=method)
            await run.until(lambda run=run: Told() in run.records)

    with_process(body)


def test_what_a_killed_process_told_last_is_heard(with_process: Callable) -> None:
    async def body(start: Callable) -> None:
        process = await with_types(start, ("many", {}))
        run = Run(process)
        async with asyncio.timeout(LIFE_S):
            while b"ready" not in bytes(run.flow._data):
                run.news.clear()
                await run.news.wait()
        process.process.kill()
        process.client.close(await process.gone())
        await run.over()
        assert run.records[-1] == Told()

    with_process(body)


def test_dropping_a_ref_ends_its_run_before_it_is_closed(with_process: Callable) -> None:
    async def body(start: Callable) -> None:
        process = await with_types(start, ("many", {}))
        run = Run(process)
        await run.until(lambda: Told() in run.records)
        await process.client.control_call(Method.CONFIGURE, [{"create": [], "drop": [[1, 1]]}], deadline_s=LIFE_S)
        await process.logged("closed")
        await run.over()
        await process.logged("run over")

    with_process(body)


def test_a_process_that_is_told_to_go_ends_its_runs_and_exits(with_process: Callable) -> None:
    async def body(start: Callable) -> None:
        process = await with_types(start, ("many", {}), ("events", {}))
        run = Run(process)
        await run.until(lambda: Told() in run.records)
        answer = await process.client.control_call(Method.EVENT_EXTRACT, [[1, 2], *event(1)], deadline_s=LIFE_S)
        process.client.goaway("the test ends")
        await process.logged("closed")
        assert "run over" in process.log
        assert await asyncio.to_thread(process.process.wait, LIFE_S) == 0
        assert answer == {"a": {"seen": [1]}}

    with_process(body)


def test_a_process_whose_coroutines_have_a_loop_exits_by_itself_too(with_process: Callable) -> None:
    async def body(start: Callable) -> None:
        process = await with_types(start, ("waits", {}))
        assert isinstance(await process.score(), list)
        process.client.goaway("the test ends")
        assert await asyncio.to_thread(process.process.wait, LIFE_S) == 0

    with_process(body)


def test_an_extractor_that_hangs_is_found_out_like_a_scorer(with_process: Callable) -> None:
    async def body(start: Callable) -> None:
        process = await with_types(start, ("events", {}), patience=Patience(stuck_s=0.2))
        with pytest.raises(HostError, match="no answer within"):
            await process.client.control_call(Method.EVENT_EXTRACT, [[1, 1], *event(1, "hang")], deadline_s=0.1)
        assert "had not answered a call" in (await process.gone()).message

    with_process(body)


def test_a_run_without_end_is_no_reason_to_wait_for_a_stuck_process(with_process: Callable) -> None:
    async def body(start: Callable) -> None:
        process = await with_types(start, ("many", {}))
        run = Run(process)
        await run.until(lambda: Told() in run.records)
        assert process.client._calls.pending_s() < LIFE_S

    with_process(body)


def test_a_discovery_that_does_not_leave_its_run_when_it_is_told_to_is_found_out(with_process: Callable) -> None:
    async def body(start: Callable) -> None:
        process = await with_types(start, ("deaf", {}), patience=Patience(stuck_s=0.2))
        run = Run(process)
        await run.until(lambda: Told() in run.records)
        run.flow.cancel()
        assert "had not answered a call" in (await process.gone()).message

    with_process(body)
