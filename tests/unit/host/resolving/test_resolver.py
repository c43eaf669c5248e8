"""Looking names up in threads, with a system's resolver that a test answers for."""

import asyncio
import contextlib
import socket
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest
from hotbay.resolving.names import FRESH_S, MAX_AGE_S, MAX_LOOKUPS, Told
from hotbay.resolving.resolver import NameLookupError, Resolver, _Waiter, connect, system_addresses

pytestmark = pytest.mark.anyio

WAIT_S = 10.0


@pytest.fixture(params=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, object]]:
    return "asyncio", {"use_uvloop": request.param == "uvloop"}


class System:
    """A system's resolver: names of `answers` are answered at once, `stuck` ones when it is told to."""

    def __init__(self) -> None:
        self.answers: dict[str, tuple[str, ...] | Exception] = {}
        self.asked: Counter[str] = Counter()
        self.now = 0.0
        self.let_go = threading.Event()

    def clock(self) -> float:
        return self.now

    def look_up(self, host: str) -> tuple[str, ...]:
        self.asked[host] += 1
        if host not in self.answers:
            assert self.let_go.wait(WAIT_S)
            return ("10.9.9.9",)
        answer = self.answers[host]
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture
async def system(anyio_backend: object) -> AsyncIterator[System]:
    system = System()
    yield system
    system.let_go.set()


async def answer_of(resolver: Resolver, host: str) -> tuple[str, ...]:
    with anyio.fail_after(WAIT_S):
        return await resolver.addresses(host)


async def test_literals_are_not_looked_up(system: System) -> None:
    resolver = Resolver(system.look_up)
    for literal in ("10.0.0.1", "::1", "fe80::1%lo"):
        assert await resolver.addresses(literal) == (literal,)
    assert not system.asked


async def test_who_gives_up_on_a_stuck_name_starts_no_further_lookup_and_all_hear_the_answer(system: System) -> None:
    resolver = Resolver(system.look_up)
    for _ in range(5):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.001):
                await resolver.addresses("stuck")
    heard: list[tuple[str, ...]] = []

    async def wait() -> None:
        heard.append(await resolver.addresses("stuck"))

    with anyio.fail_after(WAIT_S):
        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(wait)
            await anyio.lowlevel.checkpoint()
            assert resolver.is_waited_for("stuck")
            system.let_go.set()
    assert heard == [("10.9.9.9",)] * 3
    assert system.asked == {"stuck": 1}
    assert not resolver.is_waited_for("stuck")


async def test_however_many_names_hang_others_are_answered(system: System) -> None:
    resolver = Resolver(system.look_up, clock=system.clock)
    system.answers["good"] = ("10.0.0.1",)
    assert await answer_of(resolver, "good") == ("10.0.0.1",)
    async with anyio.create_task_group() as tasks:
        for number in range(2 * MAX_LOOKUPS):
            tasks.start_soon(resolver.addresses, f"stuck{number}")
        await anyio.lowlevel.checkpoint()
        system.now, system.answers["good"] = FRESH_S, ("10.0.0.2",)
        # Not the last good addresses: the lookup is made.
        with anyio.fail_after(WAIT_S):
            while await resolver.addresses("good") != ("10.0.0.2",):
                pass
        assert sum(system.asked[f"stuck{number}"] for number in range(2 * MAX_LOOKUPS)) < MAX_LOOKUPS
        system.let_go.set()


async def test_names_that_wait_hear_it_when_there_is_no_thread_more(system: System) -> None:
    started: list[Callable[[], None]] = []

    def start(work: Callable[[], None]) -> None:
        if is_full:
            raise RuntimeError("can't start new thread")
        started.append(work)

    is_full = False
    resolver = Resolver(system.look_up, clock=system.clock, start=start)
    system.let_go.set()
    with anyio.fail_after(WAIT_S):
        async with anyio.create_task_group() as tasks:
            told: list[str] = []

            async def wait(name: str) -> None:
                with contextlib.suppress(NameLookupError):
                    await resolver.addresses(name)
                told.append(name)

            for number in range(4 * MAX_LOOKUPS):
                tasks.start_soon(wait, f"n{number}")
            await anyio.wait_all_tasks_blocked()
            is_full = True
            first, *hanging = started
            assert len(hanging) < MAX_LOOKUPS
            await anyio.to_thread.run_sync(first)
            while len(told) < 4 * MAX_LOOKUPS - len(hanging):
                await anyio.lowlevel.checkpoint()
            for work in hanging:
                await anyio.to_thread.run_sync(work)
    assert len(told) == 4 * MAX_LOOKUPS


async def test_the_last_good_addresses_serve_while_a_lookup_hangs_and_while_it_fails(system: System) -> None:
    resolver = Resolver(system.look_up, clock=system.clock)
    system.answers["a"] = ("10.0.0.1",)
    assert await answer_of(resolver, "a") == ("10.0.0.1",)
    system.now += FRESH_S
    system.answers["a"] = socket.gaierror(socket.EAI_AGAIN, "try again")
    assert await answer_of(resolver, "a") == ("10.0.0.1",)
    system.now += FRESH_S
    del system.answers["a"]
    for _ in range(3):
        assert await answer_of(resolver, "a") == ("10.0.0.1",)
    assert system.asked["a"] == 3
    system.now += MAX_AGE_S
    system.let_go.set()
    assert await answer_of(resolver, "a") == ("10.9.9.9",)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (socket.gaierror(socket.EAI_NONAME, "not known"), "no address of 'a': not known"),
        (UnicodeError("label too long"), "no address of 'a': label too long"),
        ((), "no address of 'a': it has none"),
    ],
)
async def test_a_name_without_addresses_is_an_error_that_says_why(
    system: System, error: Exception | tuple[()], text: str
) -> None:
    resolver = Resolver(system.look_up, clock=system.clock)
    system.answers["a"] = error
    for _ in range(2):
        with pytest.raises(NameLookupError) as caught:
            await answer_of(resolver, "a")
        assert str(caught.value) == text
    assert system.asked["a"] == 1
    system.now += FRESH_S
    system.answers["a"] = ("10.0.0.1",)
    assert await answer_of(resolver, "a") == ("10.0.0.1",)
    system.now += MAX_AGE_S
    system.answers["a"] = error
    with pytest.raises(NameLookupError):
        await answer_of(resolver, "a")


def test_a_loop_that_ended_meanwhile_is_no_fault() -> None:
    loop = asyncio.new_event_loop()
    waiter = _Waiter(loop)
    loop.close()
    waiter.tell_from_thread(Told())


async def test_addresses_are_tried_in_their_order_until_one_takes_the_connection(system: System) -> None:
    resolver = Resolver(system.look_up)
    listener = await asyncio.start_server(lambda _reader, writer: writer.close(), "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    system.answers["here"] = ("127.0.0.9", "127.0.0.1")
    system.answers["nowhere"] = ("127.0.0.9", "127.0.0.8")
    system.answers["one"] = ("127.0.0.9",)
    async with listener:
        protocol = await connect(asyncio.Protocol, "here", port, resolver=resolver)
        assert isinstance(protocol, asyncio.Protocol)
        with pytest.raises(OSError, match="none of the 2 addresses of 'nowhere'"):
            await connect(asyncio.Protocol, "nowhere", port, resolver=resolver)
        with pytest.raises(ConnectionRefusedError):
            await connect(asyncio.Protocol, "one", port, resolver=resolver)


def test_the_system_is_asked_with_its_files_and_in_its_order() -> None:
    assert "127.0.0.1" in system_addresses("localhost")
    assert len(set(system_addresses("localhost"))) == len(system_addresses("localhost"))
    with pytest.raises(UnicodeError):
        system_addresses("a" * 300)
