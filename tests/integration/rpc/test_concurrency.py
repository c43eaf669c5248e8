"""Overlapping calls, calls that are given up, and processes that hang, in real processes."""

import asyncio
import struct
import time
from collections.abc import Callable

import pytest
from hotbay.datalayer.endpoint import EndpointMetadata
from hotbay.datalayer.store import EndpointStore
from hotbay.errors import HostError
from hotbay.rpc.hanging import BUNDLE_S
from hotbay.rpc.leases import Generation, Origin
from hotbay.rpc.liveness import Patience
from hotbay.scheduling.binding import BindingOptions
from hotbay.scheduling.compiler import compile_plan
from hotbay.scheduling.plan import PlanInput, ProfileEntryPlan, ProfileInput, RefPlan
from hotbay.scheduling.request import InferenceRequest
from hotbay.scheduling.router import Router
from hotbay_sdk.protocol import CallReceived, ErrorCode, Method

pytestmark = pytest.mark.process

SOURCE = """
    import asyncio, ctypes, os, signal, threading, time
    from hotbay_sdk import Filter, Plugin, Scorer

    plugin = Plugin("served")
    lock = threading.Lock()
    running = most = 0

    class Work:
        def enter(self, change):
            global running, most
            with lock:
                running += change
                most = max(most, running)

        def work(self, request):
            self.enter(1)
            try:
                return self.score_one(request.model)
            finally:
                self.enter(-1)

        def score_one(self, model):
            word, _, rest = model.partition(" ")
            if word == "most":
                return most / 100
            if word == "gate":
                while not os.path.exists(rest):
                    time.sleep(0.001)
            if word == "sleep":
                time.sleep(float(rest))
            if word == "watch":
                begun = time.monotonic()
                open(rest + ".begun", "w").write("1")
                while not self.context.cancelled:
                    if time.monotonic() - begun > 60:
                        raise RuntimeError("was never told")
                    time.sleep(0.002)
                open(rest, "w").write(repr(time.monotonic()))
                # The host's own clock is to find a call late before its answer comes.
                time.sleep(0.05)
            if word == "hold":
                # A C function that keeps the GIL, and that no signal ends.
                signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGQUIT])
                ctypes.PyDLL(None).usleep(int(float(rest) * 1e6))
            if word == "hang":
                os.read(os.pipe()[0], 1)
            return 0.5

    @plugin.type("many", reads=["request.model"], concurrency=CONCURRENCY)
    class Many(Scorer, Work):
        def score(self, request, endpoint):
            return self.work(request)

    @plugin.type("few", reads=["request.model"], concurrency=2)
    class Few(Scorer, Work):
        def score(self, request, endpoint):
            return self.work(request)

    @plugin.type("one", reads=["request.model"])
    class One(Scorer, Work):
        def score(self, request, endpoint):
            return self.work(request)

    @plugin.type("later", reads=["request.model"])
    class Later(Scorer):
        async def score(self, request, endpoint):
            open(request.model + ".begun", "w").write("1")
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                open(request.model, "w").write(repr(time.monotonic()))
                raise
            return 0.5
"""
MANY, ONE, LATER, FEW = 1, 2, 3, 4


async def workers(start: Callable, concurrency: int = 4, **options: object):
    process = await start(SOURCE.replace("CONCURRENCY", str(concurrency)), **options).start()
    names = {MANY: "many", ONE: "one", LATER: "later", FEW: "few"}
    await process.configure([(number, name, name, {}) for number, name in names.items()])
    return process


def score_of(outcome: object) -> float:
    assert isinstance(outcome, list), outcome
    assert outcome[2] == [], outcome[2]
    return struct.unpack("<f", outcome[1])[0]


async def written(path) -> float:
    """What a plugin wrote there, once it did."""
    deadline = time.monotonic() + 10
    while not (path.exists() and path.read_text()):
        assert time.monotonic() < deadline, "nothing was written"
        await asyncio.sleep(0.002)
    return float(path.read_text())


# -- overlapping calls ---------------------------------------------------------------------------


def test_r14_one_long_call_does_not_block_short_ones(with_process: Callable) -> None:
    """1 call of 5 s, and 100 of 1 ms meanwhile."""

    async def body(start: Callable) -> None:
        process = await workers(start)
        _, long = process.begin_score("sleep 5", number=MANY)
        took: list[float] = []
        for number in range(100):
            begun = time.monotonic()
            assert score_of(await process.score("sleep 0.001", number=MANY)) == 0.5, number
            took.append(time.monotonic() - begun)
        assert not long.done()
        assert sorted(took)[98] < 0.1 * 5
        assert score_of(await long) == 0.5

    with_process(body)


class Counted:
    """Counts nothing that this file looks at."""

    def degraded(self, binding: str, reason: str) -> None: ...
    def decision(self, duration_s: float) -> None: ...
    def mixed_cycle(self) -> None: ...
    def held(self, count: int) -> None: ...
    def invalid_scores(self, ref: str, count: int) -> None: ...
    def plugin_error(self, point: str, ref: str, code: str) -> None: ...
    def call_timer(self, plugin: str, point: str) -> Callable[[float], None]:
        return lambda duration_s: None


def routed(process, concurrency_of: str) -> Callable[[str], asyncio.Future]:
    """A router whose only scorer is one of a process's; decides for a request of a model."""
    store = EndpointStore()
    store.upsert(EndpointMetadata("default/a", "a", "10.0.0.1", 8000))
    store.publish(0.0)
    origin = Origin("served", "1.0.0", 1, "sha256:0")
    generation = Generation(1, origin, process.client, process.types, process.process.pid, {"many": MANY, "one": ONE})
    declared = process.types[concurrency_of]
    ref = RefPlan(concurrency_of, concurrency_of, "served", generation, declared, {})
    profile = ProfileInput("default", (ProfileEntryPlan(concurrency_of),))
    options = {concurrency_of: BindingOptions(deadline_s=20.0)}
    router = Router(store, Counted())
    router.publish(compile_plan(1, PlanInput((ref,), (profile,), options)))

    def decide(model: str) -> asyncio.Future:
        future: asyncio.Future = asyncio.get_running_loop().create_future()
        request = InferenceRequest("r", model, "/v1/completions", {}, b"", {"model": model, "prompt": ""})
        router.decide(request, future.set_result)
        return future

    return decide


@pytest.mark.parametrize("name", ["many", "one"])
def test_r14_through_the_router_one_long_call_does_not_block_short_ones(with_process: Callable, name: str) -> None:
    """1 call of 5 s, and 100 of 1 ms meanwhile; of a type that takes one call at a time they wait for it."""

    async def body(start: Callable) -> None:
        process = await workers(start)
        decide = routed(process, name)
        long_s = 5 if name == "many" else 1
        long = decide(f"sleep {long_s}")
        await asyncio.sleep(0)
        took: list[float] = []
        for _ in range(100):
            begun = time.monotonic()
            picked = await asyncio.wait_for(decide("sleep 0.001"), 20)
            assert picked.degraded == ()
            took.append(time.monotonic() - begun)
        if name == "many":
            assert not long.done()
            assert sorted(took)[98] < 0.1 * 5
        else:
            assert took[0] > 0.5
        assert (await asyncio.wait_for(long, 20)).degraded == ()

    with_process(body)


@pytest.mark.parametrize("concurrency", [2, 3])
def test_no_more_calls_overlap_than_the_type_says(with_process: Callable, concurrency: int, tmp_path) -> None:
    async def body(start: Callable) -> None:
        process = await workers(start, concurrency)
        gate = tmp_path / "gate"
        calls = [process.begin_score(f"gate {gate}", number=MANY)[1] for _ in range(4 * concurrency)]
        # A serial type of the same process answers meanwhile, in the reading thread, and counts itself.
        most = 0.0
        async with asyncio.timeout(20):
            while most < concurrency + 0.99:
                most = score_of(await process.score("most", number=ONE)) * 100
        gate.touch()
        await asyncio.wait_for(asyncio.gather(*calls), 20)
        assert score_of(await process.score("most", number=ONE)) * 100 == pytest.approx(concurrency + 1)

    with_process(body)


def test_calls_to_two_types_at_once_run_in_the_reading_thread_within_the_slots(with_process: Callable) -> None:
    async def body(start: Callable) -> None:
        process = await workers(start, 2)
        steps = [[2, [1, MANY]], [2, [1, ONE]]]
        requests = [1, [], None, {"request.model": ["sleep 0.01"]}, {}]
        futures: list[asyncio.Future] = []
        for _ in range(10):
            future: asyncio.Future = asyncio.get_running_loop().create_future()
            futures.append(future)
            view = [1, 1, 1, ["a"], {}]
            process.client.start_call(Method.RUN, [steps, view, None, requests], deadline_s=20, done=future.set_result)
            futures.append(process.begin_score("sleep 0.01", number=MANY)[1])
        for outcome in await asyncio.wait_for(asyncio.gather(*futures), 20):
            assert outcome[2] == []
        # Two of the one type, and the reading thread with the other.
        assert score_of(await process.score("most", number=ONE)) * 100 <= 3.01

    with_process(body)


def test_calls_to_two_types_that_overlap_do_so_within_the_smaller_number(with_process: Callable, tmp_path) -> None:
    async def body(start: Callable) -> None:
        process = await workers(start, 4)
        gate = tmp_path / "gate"
        futures: list[asyncio.Future] = []

        def call(*numbers: int) -> None:
            future: asyncio.Future = asyncio.get_running_loop().create_future()
            futures.append(future)
            requests = [1, [], None, {"request.model": [f"gate {gate}"]}, {}]
            steps = [[2, [1, number]] for number in numbers]
            view = [1, 1, 1, ["a"], {}]
            process.client.start_call(Method.RUN, [steps, view, None, requests], deadline_s=20, done=future.set_result)

        for _ in range(4):
            call(MANY, FEW)
        # Two of them run; a third would be seen while a serial type answers in the reading thread.
        most = 0.0
        async with asyncio.timeout(20):
            while most < 2.99:
                most = score_of(await process.score("most", number=ONE)) * 100
        assert most == pytest.approx(3)
        call(MANY)
        async with asyncio.timeout(20):
            while most < 3.99:
                most = score_of(await process.score("most", number=ONE)) * 100
        gate.touch()
        for outcome in await asyncio.wait_for(asyncio.gather(*futures), 20):
            assert outcome[2] == []

    with_process(body)


@pytest.mark.parametrize("numbers", [(MANY,), (MANY, ONE)])
def test_views_complete_each_other_in_the_order_of_the_calls(with_process: Callable, numbers: tuple[int, ...]) -> None:
    async def body(start: Callable) -> None:
        process = await workers(start, 8)
        requests = [1, [], None, {"request.model": [""]}, {}]
        futures: list[asyncio.Future] = []
        for epoch in range(4, 200):
            # Every fourth brings another membership, which the three after it only name.
            whole = epoch % 4 == 0
            view = [epoch, 2, epoch // 4, ["a", "b"] if whole else None, {} if whole else None]
            future: asyncio.Future = asyncio.get_running_loop().create_future()
            futures.append(future)
            process.client.start_call(
                Method.RUN,
                [[[2, [1, numbers[epoch % len(numbers)]]]], view, None, requests],
                deadline_s=20,
                done=future.set_result,
            )
        for outcome in await asyncio.wait_for(asyncio.gather(*futures), 20):
            assert isinstance(outcome, list), outcome
            assert len(outcome[1]) == 8

    with_process(body)


def test_reload_waits_for_the_overlapping_calls_that_use_what_it_drops(with_process: Callable, tmp_path) -> None:
    async def body(start: Callable) -> None:
        process = await workers(start)
        gate = tmp_path / "gate"
        _, running = process.begin_score(f"gate {gate}", number=MANY)
        assert score_of(await process.score("", number=MANY)) == 0.5
        drop = asyncio.get_running_loop().create_task(
            process.client.control_call(Method.CONFIGURE, [{"create": [], "drop": [[1, MANY]]}], deadline_s=20)
        )
        # A new call no longer finds it; the one that runs still does, and the reload waits for it.
        while True:
            outcome = await process.score("", number=MANY)
            if isinstance(outcome, HostError):
                break
        assert outcome.code == ErrorCode.STALE_HANDLE
        assert not drop.done()
        gate.touch()
        assert score_of(await running) == 0.5
        await asyncio.wait_for(drop, 20)

    with_process(body)


def test_goaway_lets_overlapping_calls_end_and_the_process_leave(with_process: Callable, tmp_path) -> None:
    async def body(start: Callable) -> None:
        process = await workers(start)
        gate = tmp_path / "gate"
        calls = [process.begin_score(f"gate {gate}", number=MANY)[1] for _ in range(3)]
        assert score_of(await process.score("", number=ONE)) == 0.5
        process.client.goaway("retired")
        gate.touch()
        for outcome in await asyncio.wait_for(asyncio.gather(*calls), 20):
            assert score_of(outcome) == 0.5
        assert await asyncio.to_thread(process.process.wait, 20) == 0

    with_process(body)


# -- cancellation ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("number", "prefix"), [(MANY, "watch "), (ONE, "watch "), (LATER, "")])
def test_r27_cancel_reaches_the_handler_and_frees_the_slot(
    with_process: Callable, tmp_path, number: int, prefix: str
) -> None:
    """A call of 10 s is given up; within 200 ms (five times that here) the plugin knows."""

    async def body(start: Callable) -> None:
        process = await workers(start, 2)
        told = tmp_path / "told"
        freed = asyncio.Event()
        stream, future = process.begin_score(f"{prefix}{told}", number=number, deadline_s=10, freed=freed.set)
        await written(tmp_path / "told.begun")
        begun = time.monotonic()
        process.client.cancel(stream)
        assert await written(told) - begun < 0.2 * 5
        outcome = await asyncio.wait_for(future, 10)
        assert isinstance(outcome, HostError)
        assert outcome.code == "CANCELLED"
        await asyncio.wait_for(freed.wait(), 10)
        assert process.client.outstanding == 0
        assert score_of(await process.score("", number=ONE)) == 0.5

    with_process(body)


def test_r27_deadline_reaches_the_handler_as_well(with_process: Callable, tmp_path) -> None:
    async def body(start: Callable) -> None:
        process = await workers(start)
        told = tmp_path / "told"
        outcome = await process.score(f"watch {told}", number=ONE, deadline_s=0.1)
        assert outcome.code == "DEADLINE_EXCEEDED"
        await written(told)

    with_process(body)


def test_cancelled_is_false_while_somebody_waits_and_calls_behind_are_not_lost(
    with_process: Callable, tmp_path
) -> None:
    async def body(start: Callable) -> None:
        process = await workers(start)
        told = tmp_path / "told"
        stream, first = process.begin_score(f"watch {told}", number=ONE)
        behind = [process.begin_score("", number=ONE)[1] for _ in range(50)]
        late_cancel, victim = process.begin_score("", number=ONE)
        process.client.cancel(late_cancel)
        await written(tmp_path / "told.begun")
        assert not told.exists()
        process.client.cancel(stream)
        assert (await asyncio.wait_for(first, 10)).code == "CANCELLED"
        for outcome in await asyncio.wait_for(asyncio.gather(*behind), 10):
            assert score_of(outcome) == 0.5
        assert (await asyncio.wait_for(victim, 10)).code == "CANCELLED"

    with_process(body)


# -- handles ---------------------------------------------------------------------------------------


def test_l21_handles_of_a_dead_generation_are_stale_and_never_another_refs(with_process: Callable) -> None:
    """5 refs, 10 lives; 20 calls a ref and life instead of 100 a second."""
    source = """
        from hotbay_sdk import Plugin, Scorer

        plugin = Plugin("served")

        @plugin.type("own", parameters=lambda raw: raw)
        class Own(Scorer):
            def __init__(self, context, parameters):
                self.own = parameters["own"]

            def score(self, request, endpoint):
                return self.own
    """

    async def body(start: Callable) -> None:
        for life in range(1, 11):
            process = await start(source, generation=life).start()
            # The numbers turn round: the same handle number is another ref's in the next life.
            refs = [(1 + (n + life) % 5, f"p{n}", "own", {"own": n / 8}) for n in range(5)]
            await process.configure(refs)
            for _ in range(20):
                for number, _, _, parameters in refs:
                    assert score_of(await process.score(number=number)) == parameters["own"]
                    stale = await process.score(number=number, generation=life - 1)
                    assert stale.code == ErrorCode.STALE_HANDLE
            process.process.kill()
            assert (await process.gone()).code == "CRASHED"

    with_process(body)


# -- processes that hang -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("held_s", "deadline_s", "ping_s"),
    [(2, 5, 0.25), pytest.param(8, 20, 3.0, marks=[pytest.mark.slow, pytest.mark.timeout(120)])],
)
def test_l18_busy_plugin_that_holds_the_gil_is_not_killed_within_its_deadline(
    with_process: Callable, held_s: float, deadline_s: float, ping_s: float
) -> None:
    """GIL held for 8 s under a deadline of 20, three pings of 1 s missed; the default lane takes a quarter of it all."""

    async def body(start: Callable) -> None:
        patience = Patience(stuck_s=0.5, ping_interval_s=0.05, ping_s=ping_s)
        process = await workers(start, patience=patience)
        assert score_of(await process.score(f"hold {held_s}", number=ONE, deadline_s=deadline_s)) == 0.5
        # Long enough for a process that is suspected to be given up.
        assert score_of(await process.score(f"sleep {3 * BUNDLE_S}", number=ONE)) == 0.5
        assert process.lost == []
        begun = time.monotonic()
        outcome = await process.score("hold 20", number=ONE, deadline_s=ping_s + 1)
        assert outcome.code == "DEADLINE_EXCEEDED"
        fault = await process.gone()
        assert time.monotonic() - begun >= ping_s + 1
        assert fault.code == "DEADLINE_EXCEEDED"

    with_process(body)


def test_hanging_process_leaves_its_stacks_and_what_it_was_doing(with_process: Callable) -> None:
    async def body(start: Callable) -> None:
        process = await workers(start, patience=Patience(stuck_s=0.05))
        outcome = await process.score("hang", number=ONE, deadline_s=0.05)
        assert outcome.code == "DEADLINE_EXCEEDED"
        fault = await process.gone()
        [call] = [call for call in fault.details["calls"] if call["link"] == "call"]
        assert (call["method"], call["deadline_ms"]) == (Method.RUN, 50)
        await process.logged("in score_one")

    with_process(body)


def test_process_that_holds_the_gil_for_ever_leaves_its_stacks_all_the_same(with_process: Callable) -> None:
    async def body(start: Callable) -> None:
        process = await workers(start, patience=Patience(stuck_s=0.05))
        await process.score("hold 20", number=ONE, deadline_s=0.05)
        await process.gone()
        # No thread of it could answer: a signal made the dump.
        await process.logged("in score_one")

    with_process(body)


def test_silent_peer_is_asked_for_its_stacks_before_it_is_given_up(with_peer: Callable) -> None:
    asked: list[float] = []

    async def body(peer) -> None:
        loop = asyncio.get_running_loop()
        peer.client.start_call(Method.RUN, [], deadline_s=0.01, done=lambda _: None)
        while True:
            events = await peer.read_control()
            if any(isinstance(e, CallReceived) and e.meta.method == Method.DUMP_STATE for e in events):
                break
        assert (asked, peer.lost) == ([], [])
        fault = await peer.gone()
        assert fault.code == "DEADLINE_EXCEEDED"
        assert len(asked) == 1
        assert loop.time() > asked[0]
        assert fault.details["calls"] == [{"link": "call", "stream": 1, "method": 3, "deadline_ms": 10}]

    with_peer(body, Patience(stuck_s=0.02), ask_stacks=lambda: asked.append(asyncio.get_running_loop().time()))
