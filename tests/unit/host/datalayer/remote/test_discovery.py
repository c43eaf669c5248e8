"""A discovery over one process after the other: what is in force, who is followed, and who is let go."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from hotbay.datalayer.discovery.session import DiscoverySession, TooManyEndpointsError
from hotbay.datalayer.endpoint import EndpointMetadata
from hotbay.datalayer.remote import runs
from hotbay.datalayer.remote.discovery import RemoteDiscovery
from hotbay.datalayer.remote.runs import READY_S, RECORDS_A_TURN, RECORDS_AT_ONCE, RECORDS_PER_S, SETTLE_S
from hotbay.datalayer.remote.succession import MAX_ENDPOINTS
from hotbay.errors import Problem

pytestmark = pytest.mark.anyio

WAIT_S = 10.0


class Notifier:
    """What is in force, and every change that was told, in order."""

    most = MAX_ENDPOINTS

    def __init__(self) -> None:
        self.pool: dict[str, EndpointMetadata] = {}
        self.told: list[str] = []
        self.problems: tuple[Problem, ...] = ()
        self.refused: list[str] = []
        self.tasks: set[int] = set()
        self.is_full = False

    @property
    def held(self) -> Mapping[str, EndpointMetadata]:
        return self.pool

    def upsert(self, endpoint: EndpointMetadata) -> None:
        self._enter()
        if self.is_full:
            raise TooManyEndpointsError
        self.pool[endpoint.id] = endpoint
        self.told.append(f"+{endpoint.name}")

    def delete(self, endpoint_id: str) -> None:
        self._enter()
        self.pool.pop(endpoint_id, None)
        self.told.append(f"-{endpoint_id.rpartition('/')[2]}")

    def replace(self, endpoints: tuple[EndpointMetadata, ...], *, is_all: bool) -> None:
        assert is_all, "of an earlier run nothing is kept beside it"
        self._enter()
        self.pool = {endpoint.id: endpoint for endpoint in endpoints}
        self.told.append("=" + "".join(sorted(endpoint.name for endpoint in endpoints)))

    def report(self, problems: tuple[Problem, ...]) -> None:
        self._enter()
        self.problems = problems

    def refuse(self, reason: str) -> None:
        self._enter()
        self.refused.append(reason)

    def _enter(self) -> None:
        self.tasks.add(anyio.get_current_task().id)

    @property
    def names(self) -> str:
        return "".join(sorted(endpoint.name for endpoint in self.pool.values()))


def up(*names: str, **fields: object) -> list[list[object]]:
    return [["upsert", {"id": f"default/{name}", "address": "10.0.0.1", "port": 8000, **fields}] for name in names]


def gone(*names: str) -> list[list[object]]:
    return [["delete", f"default/{name}"] for name in names]


READY = ["ready"]


class Running:
    """A discovery that runs. Its time is the bay's; what waits for it is woken by `wake`."""

    def __init__(self, bay: Any) -> None:
        self.bay = bay
        self.notifier = Notifier()
        self.discovery = RemoteDiscovery("ref", bay, bay, now=lambda: bay.now)

    async def settle(self) -> None:
        with anyio.fail_after(WAIT_S):
            await anyio.wait_all_tasks_blocked()

    async def tell(self, client: Any, *records: list[object]) -> None:
        client.flows[-1].tell(*records)
        await self.settle()

    async def go_live(self, live: Any) -> Any:
        self.bay.go_live(live)
        await self.settle()
        return live.generation.client

    async def swap(self) -> Any:
        return await self.go_live(self.bay.process())

    async def later(self, seconds: float) -> None:
        self.bay.now += seconds
        self.discovery._runs.note()
        await self.settle()


@asynccontextmanager
async def running(bay: Any, notifier: Notifier | None = None) -> AsyncIterator[Running]:
    found = Running(bay)
    found.notifier = notifier or found.notifier
    async with anyio.create_task_group() as group:
        group.start_soon(found.discovery.run, found.notifier)
        await found.settle()
        yield found
        group.cancel_scope.cancel()
    assert bay.watchers == []
    assert len(found.notifier.tasks) <= 1


async def test_nothing_is_ready_before_a_process_has_told_everything(bay: Any) -> None:
    async with running(bay) as it:
        assert not it.discovery.ready.is_set()
        client = await it.swap()
        await it.tell(client, *up("a", "b"))
        assert (it.notifier.names, it.discovery.ready.is_set()) == ("", False)
        await it.tell(client, READY)
        assert it.discovery.ready.is_set()
        await it.tell(client, *up("c"), *gone("a"))
        assert (it.notifier.names, it.notifier.told) == ("bc", ["=ab", "+c", "-a"])


async def test_an_endpoint_where_no_plugins_server_is_counts_as_refused_and_one_that_is_wrong_does_not(
    bay: Any,
) -> None:
    async with running(bay) as it:
        client = await it.swap()
        await it.tell(client, *up("a", address="169.254.169.254"), *up("b", port=0), *up("c"), READY)
        assert (it.notifier.names, it.notifier.refused) == ("c", ["reserved"])
        assert [problem.code for problem in it.notifier.problems] == ["ADDRESS_REFUSED", "CONFIG_INVALID"]


async def test_no_endpoint_at_all_is_ready_too(bay: Any) -> None:
    async with running(bay) as it:
        await it.tell(await it.swap(), READY)
        assert (it.discovery.ready.is_set(), it.notifier.told) == (True, ["="])


async def test_old_version_is_followed_and_kept_until_the_new_one_has_told_everything(bay: Any) -> None:
    async with running(bay) as it:
        old = await it.swap()
        old_live = bay.live
        await it.tell(old, *up("a", "b"), READY)
        new = await it.swap()
        old_live.generation.leave()
        await it.settle()
        assert old_live.generation.leases == 1, "it is told to go, and what it tells still counts"
        await it.tell(new, *up("b", "c"))
        await it.tell(old, *up("d"), *gone("b"))
        assert it.notifier.names == "ad"
        await it.tell(new, READY)
        # What the old one said last holds until the new one has had time to look again.
        assert (it.notifier.names, old_live.generation.leases, bay.live.generation.leases) == ("cd", 0, 1)
        assert old.flows[0].cancelled
        await it.tell(old, *gone("c"))
        await it.tell(new, *up("e"))
        assert (it.notifier.names, it.notifier.told[-2:]) == ("cde", ["=cd", "+e"])
        await it.later(SETTLE_S - 0.1)
        assert it.notifier.names == "cde"
        await it.later(0.2)
        assert (it.notifier.names, it.notifier.told[-1]) == ("bce", "=bce")
    assert bay.live.generation.leases == 0


async def test_version_that_is_taken_back_before_it_told_everything_was_never_heard(bay: Any) -> None:
    async with running(bay) as it:
        old = await it.swap()
        old_live = bay.live
        await it.tell(old, *up("a"), READY)
        new = await it.swap()
        await it.tell(new, *up("x"))
        await it.go_live(old_live)
        await it.tell(old, *up("b"))
        assert (it.notifier.names, new.flows[0].cancelled, len(old.flows)) == ("ab", True, 1)


async def test_version_that_is_taken_back_later_is_heard_anew(bay: Any) -> None:
    async with running(bay) as it:
        old = await it.swap()
        old_live = bay.live
        await it.tell(old, *up("a"), READY)
        new = await it.swap()
        await it.tell(new, *up("x"), READY)
        await it.go_live(old_live)
        assert it.notifier.names == "x"
        await it.tell(old, *up("a", "b"), READY)
        assert (it.notifier.names, len(old.flows)) == ("ab", 2)


async def test_swap_during_a_swap_lets_the_newest_take_over(bay: Any) -> None:
    async with running(bay) as it:
        first = await it.swap()
        await it.tell(first, *up("a"), READY)
        second = await it.swap()
        await it.tell(second, *up("b"))
        third = await it.swap()
        assert second.flows[0].cancelled
        await it.tell(first, *up("z"))
        await it.tell(third, *up("c"), READY)
        assert it.notifier.names == "cz"
        await it.tell(third, *gone("z"))
        assert it.notifier.names == "c"


async def test_crash_empties_no_pool_and_the_replacement_takes_over_when_it_is_ready(bay: Any) -> None:
    async with running(bay) as it:
        old = await it.swap()
        dead = bay.live
        await it.tell(old, *up("a", "b"), READY, *up("c"))
        old.die()
        await it.settle()
        assert (it.notifier.names, dead.generation.leases) == ("abc", 0)
        new = await it.swap()
        await it.tell(new, *up("b"))
        assert it.notifier.names == "abc"
        await it.tell(new, READY)
        assert it.notifier.names == "b"
        assert bay.outcomes == [], "that a process died is told by others"


async def test_last_words_of_a_process_that_died_count(bay: Any) -> None:
    async with running(bay) as it:
        client = await it.swap()
        await it.tell(client, *up("a"), READY)
        client.flows[0].tell(*up("b"))
        client.die()
        await it.settle()
        assert it.notifier.names == "ab"


@pytest.mark.parametrize("outcome", [None, "died"])
async def test_run_that_ended_by_itself_is_begun_again_each_time_later(bay: Any, outcome: object, died: Any) -> None:
    async with running(bay) as it:
        client = await it.swap()
        await it.tell(client, *up("a"), READY)
        client.flows[0].done(died if outcome else None)
        await it.settle()
        assert (it.notifier.names, len(client.flows)) == ("a", 1)
        assert bay.outcomes == [(1, "discover", "CRASHED" if outcome else "PLUGIN_ERROR")]
        await it.later(0.49)
        assert len(client.flows) == 1
        await it.later(0.02)
        assert len(client.flows) == 2
        client.flows[1].done(None)
        await it.settle()
        await it.later(0.9)
        assert len(client.flows) == 2
        await it.later(0.2)
        await it.tell(client, *up("b"), READY)
        assert it.notifier.names == "b"


async def test_another_version_does_not_wait_for_the_pause_of_the_one_before(bay: Any) -> None:
    async with running(bay) as it:
        client = await it.swap()
        client.flows[0].done(None)
        await it.settle()
        assert len((await it.swap()).flows) == 1


@pytest.mark.parametrize("data", [b"\xff\xff\xff\xff", b"\x00\x00\x00\x01\xc1"])
async def test_run_that_tells_no_records_is_ended_and_what_was_told_stays(bay: Any, data: bytes) -> None:
    async with running(bay) as it:
        client = await it.swap()
        await it.tell(client, *up("a"), READY)
        client.flows[0].tell_bytes(data)
        await it.settle()
        assert (it.notifier.names, client.flows[0].cancelled) == ("a", True)
        assert bay.outcomes == [(1, "discover", "BAD_RESULT")]


async def test_more_endpoints_than_a_pool_has_end_the_run(bay: Any) -> None:
    async with running(bay) as it:
        client = await it.swap()
        await it.tell(client, *up(*(f"e{n}" for n in range(MAX_ENDPOINTS))), READY)
        assert (len(it.notifier.pool), bay.outcomes) == (MAX_ENDPOINTS, [])
        await it.tell(client, *up("more"))
        assert bay.outcomes == [(1, "discover", "BAD_RESULT")]


async def test_plugin_that_tells_without_end_is_read_at_a_pace(bay: Any) -> None:
    async with running(bay) as it:
        client = await it.swap()
        client.flows[0].tell(READY, *gone(*["a"] * (RECORDS_AT_ONCE + int(RECORDS_PER_S))), *up("late"))
        with anyio.move_on_after(0.5):
            await it.settle()
        assert it.notifier.names == ""
        bay.now += 2.0
        with anyio.fail_after(WAIT_S):
            while it.notifier.names != "late":
                await anyio.lowlevel.checkpoint()


async def test_endpoint_that_cannot_be_used_is_reported_and_keeps_its_last_good_form(bay: Any) -> None:
    async with running(bay) as it:
        client = await it.swap()
        await it.tell(client, *up("a"), READY, *up("a", "b", address="nowhere"))
        assert it.notifier.names == "a"
        assert [problem.message for problem in it.notifier.problems] == [
            "discovery 'ref': an endpoint is refused: default/a",
            "discovery 'ref': an endpoint is refused: default/b",
        ]
        await it.tell(client, *up("a", "b"))
        assert (it.notifier.names, it.notifier.problems) == ("ab", ())


async def test_process_that_has_to_go_before_its_successor_comes_is_not_kept(bay: Any) -> None:
    async with running(bay) as it:
        client = await it.swap()
        live = bay.live
        await it.tell(client, *up("a"), READY)
        assert live.generation.leases == 1
        live.generation.leave()
        await it.settle()
        assert live.generation.leases == 0
        await it.tell(client, *up("b"))
        assert it.notifier.names == "ab", "what it tells on its way out is heard"


async def test_others_have_their_turn_while_much_is_taken(bay: Any) -> None:
    taken: list[int] = []

    async def watch() -> None:
        while len(it.notifier.told) < 20 * RECORDS_A_TURN:
            taken.append(len(it.notifier.told))
            await anyio.lowlevel.checkpoint()

    async with running(bay) as it:
        client = await it.swap()
        client.flows[-1].tell(READY, *up(*map(str, range(20 * RECORDS_A_TURN))))
        with anyio.fail_after(WAIT_S):
            await watch()
    assert max(after - before for before, after in pairwise(taken)) <= RECORDS_A_TURN
    assert len(set(taken)) >= 20


async def test_version_that_does_not_tell_everything_is_told_of_and_counts_as_failing_until_it_does(bay: Any) -> None:
    async with running(bay) as it:
        old = await it.swap()
        await it.tell(old, *up("a"), READY)
        assert bay.live.generation.untold == set()
        new = await it.swap()
        candidate = bay.live.generation
        await it.tell(new, *up("b"))
        await it.later(READY_S - 0.1)
        assert (bay.outcomes, it.notifier.problems, candidate.untold) == ([], (), {"ref"})
        await it.later(0.2)
        assert bay.outcomes == [(2, "discover", "DEADLINE_EXCEEDED")]
        assert ["has not told everything" in problem.message for problem in it.notifier.problems] == [True]
        await it.later(READY_S)
        assert (len(bay.outcomes), it.notifier.names) == (2, "a")
        await it.tell(new, READY)
        assert (it.notifier.names, it.notifier.problems, candidate.untold) == ("b", (), set())


async def test_version_that_is_taken_back_leaves_no_mark_and_no_problem(bay: Any) -> None:
    async with running(bay) as it:
        old = await it.swap()
        old_live = bay.live
        await it.tell(old, *up("a"), READY)
        await it.swap()
        candidate = bay.live.generation
        await it.later(READY_S)
        await it.go_live(old_live)
        assert (candidate.untold, old_live.generation.untold, it.notifier.problems) == (set(), set(), ())


async def test_version_whose_run_ends_is_marked_until_another_one_told_everything(bay: Any) -> None:
    async with running(bay) as it:
        client = await it.swap()
        client.flows[0].done(None)
        await it.settle()
        assert bay.live.generation.untold == {"ref"}
        await it.later(1.0)
        await it.tell(client, READY)
        assert bay.live.generation.untold == set()
        client.flows[1].done(None)
        await it.settle()
    assert bay.live.generation.untold == set(), "a host that does not ask any more waits for nobody"


async def test_run_is_not_begun_again_at_a_process_that_is_still_in_the_one_before(bay: Any) -> None:
    async with running(bay) as it:
        client = await it.swap()
        await it.tell(client, READY)
        client.flows[0].keeps_on = True
        client.flows[0].tell_bytes(b"\xff\xff\xff\xff")
        await it.settle()
        await it.later(1.0)
        assert (client.flows[0].cancelled, len(client.flows)) == (True, 1)
        client.flows[0].done(None)
        await it.settle()
        assert len(client.flows) == 2


async def test_nothing_is_left_at_a_process_that_was_followed(bay: Any) -> None:
    for _ in range(3):
        async with running(bay) as it:
            client = await it.swap() if bay.live is None else bay.live.generation.client
            await it.tell(client, READY)
    assert bay.live.generation._told_to_go == []


async def test_each_run_has_an_allowance_of_its_own(bay: Any) -> None:
    async with running(bay) as it:
        old = await it.swap()
        await it.tell(old, *up("a"), READY)
        old.flows[0].tell(*gone(*["x"] * (RECORDS_AT_ONCE + 10)))
        with anyio.move_on_after(0.5):
            await it.settle()
        new = bay.swap()
        with anyio.fail_after(WAIT_S):
            while not new.flows:
                await anyio.lowlevel.checkpoint()
            new.flows[0].tell(*up("b"), READY)
            while it.notifier.names != "b":
                await anyio.lowlevel.checkpoint()


async def test_records_that_are_refused_cost_more(bay: Any) -> None:
    async with running(bay) as it:
        client = await it.swap()
        client.flows[0].tell(READY, *up(*["a"] * (RECORDS_AT_ONCE // 10), address="nowhere"), *up("late"))
        with anyio.move_on_after(0.5):
            await it.settle()
        assert it.notifier.names == ""


class Full(Notifier):
    """What is in force is kept by a session, as in a host."""

    def __init__(self, earlier: int = 0, most: int = MAX_ENDPOINTS) -> None:
        super().__init__()
        self.most = most
        names = [f"old{n}" for n in range(earlier)]
        left = {f"default/{n}": EndpointMetadata(f"default/{n}", n, "10.0.0.1", 1) for n in names}
        self.session = DiscoverySession(left, most=most)

    @property
    def held(self) -> Mapping[str, EndpointMetadata]:
        return self.session.held

    @property
    def names(self) -> str:
        return "".join(sorted(endpoint.name for endpoint in self.held.values()))

    def upsert(self, endpoint: EndpointMetadata) -> None:
        self.session.upsert(endpoint)

    def delete(self, endpoint_id: str) -> None:
        self.session.delete(endpoint_id)

    def replace(self, endpoints: tuple[EndpointMetadata, ...], *, is_all: bool) -> None:
        self.session.replace(endpoints, is_all=is_all)
        self.told.append("=")


@pytest.mark.parametrize("earlier", [0, MAX_ENDPOINTS])
async def test_pool_whose_names_are_all_others_than_before_is_ready_however_large_it_is(bay: Any, earlier: int) -> None:
    it = Running(bay)
    it.notifier = full = Full(earlier)
    async with anyio.create_task_group() as group:
        group.start_soon(it.discovery.run, full)
        await it.settle()
        client = await it.swap()
        await it.tell(client, *up(*(f"e{n}" for n in range(MAX_ENDPOINTS))), READY)
        assert (it.discovery.ready.is_set(), bay.outcomes, len(full.held)) == (True, [], MAX_ENDPOINTS)
        group.cancel_scope.cancel()


async def test_endpoints_that_do_not_fit_are_the_plugins_failure(bay: Any) -> None:
    async with running(bay) as it:
        client = await it.swap()
        await it.tell(client, *up("a"), READY)
        it.notifier.is_full = True
        await it.tell(client, *up("b"))
        assert bay.outcomes == [(1, "discover", "BAD_RESULT")]


@pytest.mark.parametrize("is_taken_back", [False, True])
async def test_a_version_that_names_too_many_leaves_the_one_before_heard(bay: Any, is_taken_back: bool) -> None:
    async with running(bay, Full(most=2)) as it:
        old = await it.swap()
        old_live = bay.live
        await it.tell(old, *up("a"), READY)
        new = await it.swap()
        await it.tell(new, *up("x", "y", "z"), READY)
        assert (bay.outcomes, new.flows[0].cancelled) == ([(2, "discover", "BAD_RESULT")], True)
        assert (it.notifier.names, bay.live.generation.untold) == ("a", {"ref"})
        if is_taken_back:
            await it.go_live(old_live)
        await it.tell(old, *up("b"), *gone("a"))
        assert (it.notifier.names, len(old.flows)) == ("b", 1)
        if not is_taken_back:
            await it.later(1.0)
            await it.tell(new, *up("x", "y"), READY)
            assert (it.notifier.names, old.flows[0].cancelled) == ("xy", True)


async def test_what_the_version_before_added_meanwhile_makes_no_version_too_large(bay: Any) -> None:
    async with running(bay, Full(most=3)) as it:
        old = await it.swap()
        await it.tell(old, READY)
        new = await it.swap()
        await it.tell(new, *up("x", "y"))
        await it.tell(old, *up("a", "b"))
        await it.tell(new, READY)
        assert (bay.outcomes, it.notifier.names) == ([], "axy")


@pytest.mark.parametrize("is_over", [False, True])
async def test_a_version_that_proves_too_large_as_the_other_ones_word_lapses_ends_nothing_but_its_run(
    bay: Any, is_over: bool
) -> None:
    async with running(bay, Full(most=2)) as it:
        old = await it.swap()
        await it.tell(old, *up("x"), READY)
        new = await it.swap()
        await it.tell(new, *up("x", "y", "z"))
        await it.tell(old, *gone("x"))
        await it.tell(new, READY)
        assert (bay.outcomes, it.notifier.names) == ([], "yz")
        if is_over:
            new.die()
        await it.later(SETTLE_S + 0.1)
        assert it.notifier.names == "yz"
        assert bay.outcomes == ([] if is_over else [(2, "discover", "BAD_RESULT")])
        if is_over:
            new = await it.swap()
        else:
            await it.later(1.0)
        await it.tell(new, *up("y"), READY)
        assert it.notifier.names == "y"


async def test_looking_where_nothing_has_come_costs_a_run_nothing(bay: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "RECORDS_AT_ONCE", 3)
    async with running(bay) as it:
        client = await it.swap()
        for _ in range(5):
            await it.tell(client)
            await it.later(0.0)
        await it.tell(client, *up("a", "b"), READY)
        assert it.notifier.names == "ab"
        with anyio.move_on_after(0.5):
            await it.tell(client, *up("c"))
        assert it.notifier.names == "ab", "what comes is paid for"
