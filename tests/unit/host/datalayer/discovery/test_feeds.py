"""Feeds as they run: the ordering contract, readiness, failures and changes of the configuration."""

import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

import anyio
import pytest
from hotbay.datalayer.discovery.discovery import Discovery
from hotbay.datalayer.discovery.feed import FIRST_S, MAX_S, FeedPlan, discovery_failed
from hotbay.datalayer.discovery.notifier import DiscoveryNotifier, NotifierEndedError, OrderError
from hotbay.datalayer.discovery.session import MAX_ENDPOINTS, DiscoverySession, TooManyEndpointsError
from hotbay.datalayer.discovery.static import StaticEndpoints
from hotbay.datalayer.discovery.told import MAX_TOLD
from hotbay.datalayer.endpoint import Delete, EndpointEvent, EndpointMetadata, Upsert
from hotbay.datalayer.store import EndpointStore
from hotbay.errors import InputError, Problem
from hotbay.observe.background import Background

pytestmark = pytest.mark.anyio

WAIT_S = 10.0
Step = Callable[["Run", DiscoveryNotifier], Awaitable[None]]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def endpoint(name: str, port: int = 1) -> EndpointMetadata:
    return EndpointMetadata(f"default/{name}", name, "10.0.0.1", port)


A, B, C = endpoint("a"), endpoint("b", 2), endpoint("c", 3)


class Run:
    """One run of a discovery, which does what a test says."""

    name = "a feed"

    def __init__(self, script: Step) -> None:
        self.ready = anyio.Event()
        self.began = anyio.Event()
        self.notifier: DiscoveryNotifier | None = None
        self._script = script

    async def run(self, notifier: DiscoveryNotifier) -> None:
        self.notifier = notifier
        self.began.set()
        await self._script(self, notifier)


class Feed:
    """A discovery whose runs follow their scripts in turn, the last one again and again."""

    def __init__(self, *scripts: Step) -> None:
        self.runs: list[Run] = []
        self._scripts = list(scripts)

    def make(self) -> Run:
        script = self._scripts.pop(0) if len(self._scripts) > 1 else self._scripts[0]
        self.runs.append(Run(script))
        return self.runs[-1]

    def plan(self, settings: object = "", *, name: str = "a feed", slot: str = "discovery") -> FeedPlan:
        return FeedPlan(slot, name, settings or id(self), self.make)


def names(*endpoints: EndpointMetadata, then: Step | None = None) -> Step:
    async def script(run: Run, notifier: DiscoveryNotifier) -> None:
        for one in endpoints:
            notifier.upsert(one)
        run.ready.set()
        await (then(run, notifier) if then is not None else anyio.sleep_forever())

    return script


async def fails(_run: Run, _notifier: DiscoveryNotifier) -> None:
    raise discovery_failed("nobody answers")


async def never_ready(_run: Run, _notifier: DiscoveryNotifier) -> None:
    await anyio.sleep_forever()


async def ends(_run: Run, _notifier: DiscoveryNotifier) -> None:
    return


class Pool:
    """A store that is filled by discovery, and all that it has heard."""

    def __init__(self) -> None:
        self.store = EndpointStore()
        self.events: list[EndpointEvent] = []
        self.sizes: list[int] = []
        self.pauses: list[float] = []
        self.refused: list[str] = []
        self.wake = anyio.Event()
        self.store.subscribe(self._hear)
        self.discovery: Discovery

    def _hear(self, event: EndpointEvent) -> None:
        self.events.append(event)
        self.sizes.append(len(self.store))

    async def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        await self.wake.wait()
        self.wake = anyio.Event()

    @asynccontextmanager
    async def filled(
        self, *plans: FeedPlan, configured: tuple[EndpointMetadata, ...] = (), allowed: tuple[str, ...] | None = None
    ) -> AsyncIterator[None]:
        background = Background()
        self.discovery = Discovery(
            self.store,
            configured=configured,
            plans=plans,
            background=background,
            draw=lambda: 0.5,
            sleep=self.pause,
            allowed=allowed,
            refused=self.refused.append,
        )
        async with anyio.create_task_group() as group:
            await group.start(self.discovery.run)
            yield
            group.cancel_scope.cancel()
        assert background.problems() == ()

    @property
    def ids(self) -> list[str]:
        return sorted(one.name for one in self.store.endpoints())

    async def until(self, condition: Callable[[], bool]) -> None:
        """Give others their turns until it holds: nothing here waits for anything outside of the loop."""
        with anyio.fail_after(WAIT_S):
            while not condition():
                await anyio.lowlevel.checkpoint()


# -- the ordering contract ---------------------------------------------------------------------------


def notifier(events: list[EndpointEvent]) -> DiscoveryNotifier:
    return DiscoveryNotifier(DiscoverySession(), anyio.Event(), events.extend, lambda *_: None, earlier={})


async def test_calls_count_in_the_order_in_which_they_come() -> None:
    events: list[EndpointEvent] = []
    told = notifier(events)
    for _ in range(3):
        told.upsert(A)
        told.delete(A.id)
    told.upsert(A)
    assert events == [Upsert(A), Delete(A)] * 3 + [Upsert(A)]


async def test_a_second_task_is_refused_however_the_calls_are_interleaved() -> None:
    events: list[EndpointEvent] = []
    told = notifier(events)
    refused: list[str] = []
    count = 50

    async def speak(port: int) -> None:
        for _ in range(count):
            try:
                told.upsert(endpoint("a", port))
                told.delete("default/a")
            except OrderError as error:
                refused.append(str(error))
            await anyio.lowlevel.checkpoint()

    async with anyio.create_task_group() as group:
        for port in range(1, 11):
            group.start_soon(speak, port, name=f"reader {port}")
    assert events == [Upsert(endpoint("a", 1)), Delete(endpoint("a", 1))] * count
    assert len(refused) == 9 * count
    assert all("expected all calls from one task, found one from the task 'reader " in text for text in refused)


@pytest.mark.parametrize("call", ["upsert", "delete", "replace", "report"])
async def test_every_call_of_a_second_task_is_refused(call: str) -> None:
    told = notifier([])
    told.upsert(A)

    async def speak() -> None:
        with pytest.raises(OrderError):
            getattr(told, call)({"upsert": A, "delete": A.id}.get(call, ()))

    async with anyio.create_task_group() as group:
        group.start_soon(speak)
    assert dict(told.held) == {A.id: A}


async def test_another_thread_is_refused() -> None:
    told = notifier([])
    refused: list[BaseException] = []

    def speak() -> None:
        try:
            told.upsert(A)
        except OrderError as error:
            refused.append(error)

    thread = threading.Thread(target=speak)
    thread.start()
    thread.join(WAIT_S)
    assert "another thread" in str(refused[0])
    assert not told.held


async def test_a_call_after_the_end_of_a_run_is_refused() -> None:
    told = notifier([])
    told.end()
    with pytest.raises(NotifierEndedError):
        told.upsert(A)


async def test_a_feed_that_speaks_with_two_tongues_fails_and_says_so() -> None:
    async def in_two_tasks(_run: Run, told: DiscoveryNotifier) -> None:
        async def speak(one: EndpointMetadata) -> None:
            told.upsert(one)

        async with anyio.create_task_group() as group:
            group.start_soon(speak, A)
            group.start_soon(speak, B)

    pool, feed = Pool(), Feed(in_two_tasks)
    async with pool.filled(feed.plan()):
        await pool.until(lambda: len(pool.pauses) == 1)
        (problem,) = pool.discovery.problems
        assert "a feed: expected all calls from one task" in str(problem)
        assert pool.ids == ["a"]


# -- readiness ---------------------------------------------------------------------------------------


async def test_ready_waits_for_every_feed_and_zero_endpoints_are_fine() -> None:
    opened = anyio.Event()

    async def later(run: Run, _told: DiscoveryNotifier) -> None:
        await opened.wait()
        run.ready.set()
        await anyio.sleep_forever()

    pool, first, second = Pool(), Feed(names(A)), Feed(later)
    async with pool.filled(first.plan(slot="x"), second.plan(slot="y", name="the second")):
        await anyio.wait_all_tasks_blocked()
        assert pool.ids == ["a"]
        assert not pool.discovery.ready.is_set()
        assert pool.discovery.not_ready == ("the second has not told its endpoints yet",)
        opened.set()
        with anyio.fail_after(WAIT_S):
            await pool.discovery.ready.wait()
        assert pool.discovery.not_ready == ()


async def test_without_a_discovery_the_pool_is_ready_at_once() -> None:
    pool = Pool()
    async with pool.filled(configured=(A,)):
        assert pool.discovery.ready.is_set()
        assert pool.ids == ["a"]


async def test_ready_stays_unset_while_a_feed_fails_and_is_set_once_one_run_is_ready() -> None:
    pool, feed = Pool(), Feed(fails, fails, names(A))
    async with pool.filled(feed.plan()):
        for count in (1, 2):
            await pool.until(lambda count=count: len(pool.pauses) == count)
            assert not pool.discovery.ready.is_set()
            assert "a feed: nobody answers" in str(pool.discovery.problems[0])
            pool.wake.set()
        await pool.until(pool.discovery.ready.is_set)
        assert pool.discovery.problems == ()
        assert [run.ready.is_set() for run in feed.runs] == [False, False, True]


# -- failures ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("steps", "said"),
    [((fails,), "it has named nothing yet"), ((names(A, then=fails), fails), "what it last named stays in force")],
)
async def test_a_feed_that_fails_says_what_stays_only_once_there_is_something(
    steps: tuple[Step, ...], said: str
) -> None:
    pool, feed = Pool(), Feed(*steps)
    async with pool.filled(feed.plan()):
        for count in range(1, len(steps) + 1):
            await pool.until(lambda count=count: len(pool.pauses) == count)
            assert said in pool.discovery.problems[0].hint
            pool.wake.set()


async def test_pauses_grow_up_to_their_most() -> None:
    pool, feed = Pool(), Feed(fails)
    async with pool.filled(feed.plan()):
        for count in range(1, 10):
            await pool.until(lambda count=count: len(pool.pauses) == count)
            pool.wake.set()
        assert pool.pauses[:3] == [FIRST_S * 0.75, FIRST_S * 1.5, FIRST_S * 3]
        assert max(pool.pauses) == MAX_S * 0.75


@pytest.mark.parametrize("ending", [fails, ends])
async def test_a_feed_that_fails_keeps_what_it_had_until_it_has_looked_again(ending: Step) -> None:
    pool, feed = Pool(), Feed(names(A, B, then=ending), fails, names(B, C))
    async with pool.filled(feed.plan()):
        await pool.until(lambda: len(pool.pauses) == 1)
        assert (pool.ids, len(pool.discovery.problems)) == (["a", "b"], 1)
        assert pool.discovery.ready.is_set()
        pool.wake.set()
        await pool.until(lambda: len(pool.pauses) == 2)
        assert pool.ids == ["a", "b"]
        pool.wake.set()
        await pool.until(lambda: pool.ids == ["b", "c"])
        assert pool.events == [Upsert(A), Upsert(B), Upsert(C), Delete(A)]
        assert pool.discovery.problems == ()


async def test_another_configuration_of_a_feed_is_no_failure_and_the_run_before_is_heard_no_more() -> None:
    pool, feed = Pool(), Feed(names(A, B), never_ready, names(B))
    async with pool.filled(feed.plan()):
        await pool.until(lambda: pool.ids == ["a", "b"])
        pool.discovery.follow([feed.plan("second")])
        first = feed.runs[0].notifier
        assert first is not None
        with pytest.raises(NotifierEndedError):
            first.delete(A.id)
        await pool.until(lambda: len(feed.runs) == 2)
        assert pool.ids == ["a", "b"]
        pool.discovery.follow([feed.plan("third")])
        await pool.until(lambda: pool.ids == ["b"])
        assert pool.pauses == []
        assert min(pool.sizes[1:]) >= 1


@pytest.mark.parametrize("count", [MAX_TOLD, MAX_TOLD + 1, 5_000])
async def test_of_many_problems_the_first_are_told_and_the_others_counted(
    count: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def complains(run: Run, told: DiscoveryNotifier) -> None:
        run.ready.set()
        told.report([Problem("CONFIG_INVALID", f"entry {number}") for number in range(count)])
        told.report([Problem("CONFIG_INVALID", f"entry {number}") for number in range(count)])
        await anyio.sleep_forever()

    pool = Pool()
    async with pool.filled(Feed(complains).plan()):
        await pool.until(lambda: pool.discovery.problems != ())
        problems = pool.discovery.problems
    assert [problem.message for problem in problems[:MAX_TOLD]] == [f"entry {number}" for number in range(MAX_TOLD)]
    more = [f"and {count - MAX_TOLD} more"] if count > MAX_TOLD else []
    assert [problem.message for problem in problems[MAX_TOLD:]] == more
    assert sum("discovery_problem" in record.message for record in caplog.records) == len(problems)


async def test_many_endpoints_of_one_server_are_warned_of_once_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    pool, same = Pool(), [endpoint(str(number)) for number in range(100)]
    more: list[EndpointMetadata] = []

    async def then(run: Run, told: DiscoveryNotifier) -> None:
        await pool.until(lambda: bool(more))
        for one in more:
            told.upsert(one)
        await anyio.sleep_forever()

    async with pool.filled(Feed(names(*same, then=then)).plan()):
        await pool.until(pool.discovery.ready.is_set)
        more += [endpoint(str(number)) for number in range(100, 200)]
        await pool.until(lambda: pool.discovery.warnings[-1].message == f"and {199 - MAX_TOLD} more")
        assert len(pool.discovery.warnings) == MAX_TOLD + 1
    assert sum("endpoint_ambiguous" in record.message for record in caplog.records) == MAX_TOLD + 1


async def test_a_feed_of_too_many_endpoints_fails_and_says_so() -> None:
    async def endless(_run: Run, told: DiscoveryNotifier) -> None:
        told.replace(endpoint(str(number), number % 60000 + 1) for number in range(MAX_ENDPOINTS + 1))

    pool = Pool()
    async with pool.filled(Feed(endless).plan(), configured=(A,)):
        await pool.until(lambda: len(pool.pauses) == 1)
        assert f"at most {MAX_ENDPOINTS} endpoints" in str(pool.discovery.problems[0])
        assert pool.ids == ["a"]


async def test_a_fault_of_a_discoverys_own_code_is_the_boundarys_and_the_feed_goes_on() -> None:
    async def broken(_run: Run, told: DiscoveryNotifier) -> None:
        told.upsert(A)
        raise KeyError("x")

    pool, feed, counted = Pool(), Feed(broken, names(A)), []
    discovery = Discovery(
        pool.store, plans=[feed.plan()], background=Background(counted.append), draw=lambda: 0.5, sleep=pool.pause
    )
    async with anyio.create_task_group() as group:
        group.start_soon(discovery.run)
        await pool.until(lambda: len(pool.pauses) == 1)
        assert (pool.ids, counted) == (["a"], ["discovery"])
        pool.wake.set()
        await pool.until(discovery.ready.is_set)
        group.cancel_scope.cancel()


# -- networks ----------------------------------------------------------------------------------------

FAR = EndpointMetadata("default/far", "far", "192.0.2.1", 1)


async def test_what_is_outside_of_the_allowed_networks_is_not_used_and_told(caplog: pytest.LogCaptureFixture) -> None:
    pool, own = Pool(), EndpointMetadata("default/own", "own", "192.0.2.9", 1)
    feed = Feed(names(A, FAR))
    async with pool.filled(feed.plan(name="discovery 'scan'"), configured=(own,), allowed=("10.0.0.0/8",)):
        await pool.until(pool.discovery.ready.is_set)
        assert pool.ids == ["a", "own"], "what the host's configuration lists is the operator's own word"
        (problem,) = pool.discovery.problems
        assert ("'default/far' of discovery 'scan'" in problem.message, problem.code) == (True, "ADDRESS_REFUSED")
        pool.discovery.configure([own])
        assert pool.refused == ["network"]
        assert [record.message.split(":")[0] for record in caplog.records if record.levelname == "WARNING"] == [
            "endpoint_refused"
        ]
        pool.discovery.allow(None)
        assert (pool.ids, pool.discovery.problems) == (["a", "far", "own"], ())
        pool.discovery.allow(("192.0.2.0/24",))
        assert pool.ids == ["far", "own"]
        assert [problem.found for problem in pool.discovery.problems] == ["10.0.0.1"]


async def test_what_is_not_allowed_stays_out_when_a_feed_begins_again_and_goes_with_its_discovery() -> None:
    pool = Pool()
    first, second = Feed(names(A, FAR, then=fails), names(FAR, A)), Feed(names(B))
    async with pool.filled(first.plan(), allowed=("10.0.0.0/8",)):
        await pool.until(lambda: len(pool.pauses) == 1)
        pool.wake.set()
        await pool.until(lambda: len(first.runs) == 2 and len(pool.discovery.problems) == 1)
        assert (pool.ids, pool.discovery.problems[0].code, pool.refused) == (["a"], "ADDRESS_REFUSED", ["network"])
        pool.discovery.follow([second.plan()])
        await pool.until(lambda: pool.ids == ["b"])
        assert pool.discovery.problems == ()
        pool.discovery.follow([])
        pool.discovery.allow(None)
        assert pool.ids == []


async def test_many_that_are_refused_write_as_many_lines_as_problems_are_told_and_one(
    caplog: pytest.LogCaptureFixture,
) -> None:
    count = MAX_TOLD + 5

    async def tell(run: Run, notifier: DiscoveryNotifier) -> None:
        for number in range(count):
            notifier.upsert(replace(FAR, id=f"default/far{number}", name=f"far{number}", port=number + 1))
        run.ready.set()
        await anyio.sleep_forever()

    pool = Pool()
    async with pool.filled(Feed(tell).plan(), allowed=("10.0.0.0/8",)):
        await pool.until(pool.discovery.ready.is_set)
        told = [record.message for record in caplog.records if record.levelname == "WARNING"]
        assert (len(told), "and 1 more" in told[-1]) == (MAX_TOLD + 1, True)
        assert pool.discovery.problems[-1].message == "and 5 more"
        caplog.clear()
        pool.discovery.allow(("192.0.2.0/24",))
        pool.discovery.allow(("10.0.0.0/8",))
        told = [record.message for record in caplog.records if record.levelname == "WARNING"]
        assert len(told) == MAX_TOLD + 1, "what is refused anew is told anew"


async def test_what_a_run_refuses_by_itself_is_counted() -> None:
    async def refuses(run: Run, notifier: DiscoveryNotifier) -> None:
        notifier.refuse("reserved")
        run.ready.set()
        await anyio.sleep_forever()

    pool = Pool()
    async with pool.filled(Feed(refuses).plan()):
        await pool.until(pool.discovery.ready.is_set)
        assert pool.refused == ["reserved"]


# -- changes of the configuration --------------------------------------------------------------------


async def test_another_discovery_takes_over_without_emptying_the_pool() -> None:
    pool, old, new = Pool(), Feed(names(A, B)), Feed(fails, names(C))
    async with pool.filled(old.plan("old")):
        await pool.until(lambda: pool.ids == ["a", "b"])
        pool.discovery.follow([new.plan("new", name="the new one")])
        await pool.until(lambda: len(pool.pauses) == 1)
        assert pool.ids == ["a", "b"]
        assert "the new one: nobody answers" in str(pool.discovery.problems[0])
        pool.wake.set()
        await pool.until(lambda: pool.ids == ["c"])
        assert pool.events[2:] == [Upsert(C), Delete(A), Delete(B)]
        assert pool.discovery.ready.is_set()


async def test_a_server_that_both_discoveries_name_changes_its_name_and_keeps_serving() -> None:
    pool, same = Pool(), endpoint("other", 1)
    async with pool.filled(Feed(names(A)).plan("old")):
        await pool.until(lambda: pool.ids == ["a"])
        pool.discovery.follow([Feed(names(same)).plan("new")])
        await pool.until(lambda: pool.ids == ["other"])
        assert pool.events == [Upsert(A), Upsert(same), Delete(A)]
        assert pool.discovery.warnings == ()


async def test_an_equal_plan_goes_on_running() -> None:
    pool, feed = Pool(), Feed(names(A))
    async with pool.filled(feed.plan("same")):
        await pool.until(lambda: pool.ids == ["a"])
        pool.discovery.follow([feed.plan("same")])
        await anyio.wait_all_tasks_blocked()
        assert len(feed.runs) == 1


async def test_a_discovery_that_is_left_out_goes_with_what_it_named() -> None:
    pool, feed = Pool(), Feed(names(A))
    async with pool.filled(feed.plan(), configured=(B,)):
        await pool.until(lambda: pool.ids == ["a", "b"])
        pool.discovery.follow([])
        assert pool.ids == ["b"]
        told = feed.runs[0].notifier
        assert told is not None
        with pytest.raises(NotifierEndedError):
            told.upsert(A)
        pool.discovery.follow([Feed(names(C)).plan()])
        await pool.until(lambda: pool.ids == ["b", "c"])


async def test_s23_the_configurations_endpoint_has_precedence_and_the_discoverys_takes_over_when_it_goes() -> None:
    pool, same = Pool(), endpoint("same", 1)
    async with pool.filled(Feed(names(same)).plan(name="endpoints.yaml"), configured=(A,)):
        await pool.until(pool.discovery.ready.is_set)
        assert pool.ids == ["a"]
        (warning,) = pool.discovery.warnings
        assert "endpoints.yaml" in str(warning)
        assert "the host configuration" in str(warning)
        pool.discovery.configure([])
        assert pool.ids == ["same"]
        assert pool.events[-2:] == [Upsert(same), Delete(A)]
        assert pool.discovery.warnings == ()


async def test_s28_a_label_that_changes_is_one_event_and_an_equal_list_is_none() -> None:
    pool = Pool()
    labelled = EndpointMetadata(A.id, A.name, A.address, A.port, labels={"role": "decode"})
    async with pool.filled(configured=(A,)):
        pool.discovery.configure([A])
        pool.discovery.configure([labelled])
        pool.discovery.configure([labelled])
        assert pool.events == [Upsert(A), Upsert(labelled)]


async def test_a_wrong_plan_is_refused_before_anything_runs() -> None:
    async def check() -> None:
        raise InputError([Problem("CONFIG_INVALID", "of no use")])

    plan = FeedPlan("discovery", "wrong", 0, lambda: StaticEndpoints("wrong", [A]), check)
    discovery = Discovery(EndpointStore(), plans=[plan], background=Background(), draw=lambda: 0.5)
    with pytest.raises(InputError, match="of no use"):
        await discovery.check()


async def test_static_endpoints_are_told_at_once_with_their_warnings() -> None:
    pool, warning = Pool(), Problem("DUPLICATE_NAME", "twice")
    plan = FeedPlan("discovery", "static", 0, lambda: StaticEndpoints("static", [A, B], [warning]))
    async with pool.filled(plan):
        await pool.until(pool.discovery.ready.is_set)
        assert (pool.ids, pool.discovery.warnings) == (["a", "b"], (warning,))


# -- how many ----------------------------------------------------------------------------------------


def listed(prefix: str, count: int) -> FeedPlan:
    found = [
        EndpointMetadata(f"default/{prefix}{n}", f"{prefix}{n}", f"10.0.{n >> 8}.{n & 255}", 1) for n in range(count)
    ]
    return FeedPlan("discovery", prefix, prefix, lambda: StaticEndpoints(prefix, found))


async def test_another_discovery_needs_no_room_for_what_the_one_before_named() -> None:
    pool, count = Pool(), MAX_ENDPOINTS // 2 + 1
    async with pool.filled(listed("x", count)):
        await pool.until(lambda: len(pool.store) == count)
        pool.discovery.follow([listed("y", count)])
        await pool.until(lambda: "default/y0" in {one.id for one in pool.store.endpoints()} or bool(pool.pauses))
        assert (pool.discovery.problems, pool.pauses, len(pool.store)) == ((), [], count)
        assert min(pool.sizes[count:]) >= count


async def test_a_plan_that_names_more_than_it_may_says_so_until_it_has_room() -> None:
    """As the discovery of a plugin does: its run goes on, and is told that there was no room."""
    go = [anyio.Event(), anyio.Event()]

    async def crowded(run: Run, told: DiscoveryNotifier) -> None:
        told.replace([A, B], is_all=True)
        run.ready.set()
        with pytest.raises(TooManyEndpointsError):
            told.upsert(C)
        told.report([Problem("X", "beside")])
        await go[0].wait()
        told.delete(A.id)
        told.upsert(C)
        await go[1].wait()
        told.replace([B, C])
        await anyio.sleep_forever()

    pool, feed = Pool(), Feed(crowded)
    async with pool.filled(replace(feed.plan(), most=2)):
        await pool.until(lambda: len(pool.discovery.problems) == 2)
        assert str(pool.discovery.problems[0]) == (
            "DISCOVERY_FAILED: a feed: expected at most 2 endpoints of one feed, found one more. raise "
            "`discovery.plugin_endpoints` of the HostConfig if so many are meant; what it last named stays in force, and it is "
            "tried again"
        )
        go[0].set()
        await pool.until(lambda: pool.ids == ["b", "c"])
        assert len(pool.discovery.problems) == 2, "that it could not name was not told anew"
        go[1].set()
        await pool.until(lambda: [str(problem) for problem in pool.discovery.problems] == ["X: beside"])


async def test_another_bound_is_another_plan() -> None:
    plan = Feed(names(A)).plan()
    assert replace(plan, most=2) != plan == replace(plan, most=MAX_ENDPOINTS)
