"""Calls of the data layer to real processes: beside hot calls, in order, under credits, and to the end of the process."""

import asyncio
from collections.abc import Callable

import pytest
from hotbay.datalayer.remote.records import Gone, Named, RecordReader, Refused, Told
from hotbay.errors import HostError
from hotbay.rpc.liveness import Patience
from hotbay_sdk.protocol import Method

pytestmark = pytest.mark.process

LIFE_S = 30.0
SOURCE = """
    import time
    from hotbay_sdk import Discovery, EventExtractor, Extractor, Plugin, Scorer

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
    """


class Run:
    """A `discover` call as a test sees it."""

    def __init__(self, process: object, number: int = 1) -> None:
        self.news = asyncio.Event()
        self.outcome: list[object] = []
        self.records: list[object] = []
        self._reader = RecordReader("it")
        client = process.client  # type: ignore[attr-defined]  # the fixture's process
        handle = [process.generation, number]  # type: ignore[attr-defined]  # as above
        self.flow = client.follow(Method.DISCOVER, [handle], came=self.news.set, done=self._done)

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
        assert [record.endpoint.labels["n"] for record in named] == [str(n) for n in range(count)]
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
        assert process.client._pending_s() < LIFE_S

    with_process(body)


def test_a_discovery_that_does_not_leave_its_run_when_it_is_told_to_is_found_out(with_process: Callable) -> None:
    async def body(start: Callable) -> None:
        process = await with_types(start, ("deaf", {}), patience=Patience(stuck_s=0.2))
        run = Run(process)
        await run.until(lambda: Told() in run.records)
        run.flow.cancel()
        assert "had not answered a call" in (await process.gone()).message

    with_process(body)
