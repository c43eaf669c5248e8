"""Running calls and waiters, and how overlapping calls are chosen, bounded and waited for."""

import threading
from time import monotonic

import pytest
from hotbay_sdk import Filter, Plugin, Scorer
from hotbay_sdk._calls import RunningCall, Waiter
from hotbay_sdk._dispatch import Dispatcher
from hotbay_sdk.protocol import CallError, CallMeta, CallReceived, ErrorCode, Method
from hotbay_sdk.protocol.calls import POINT_FILTER, POINT_SCORE

WAIT_S = 10.0
FAR = monotonic() + 1e6
VIEW: list = [1, 1, 1, ["a"], {}]
REQUESTS: list = [1, [], None, {}, {}]


# -- running calls and waiters ---------------------------------------------------------------------


def test_a_call_is_over_when_it_is_cancelled_or_late_or_its_parent_is() -> None:
    call = RunningCall(1, 3, FAR)
    child = RunningCall(3, 3, FAR, call)
    assert (call.over, child.over, child.depth) == (False, False, 1)
    assert RunningCall(5, 3, monotonic()).over
    call.cancel()
    assert (call.over, child.over) == (True, True)


def test_cancelling_tells_what_the_call_waits_for() -> None:
    call = RunningCall(1, 3, FAR)
    told: list[int] = []
    call.on_cancel = lambda: told.append(1)
    call.cancel()
    assert told == [1]


@pytest.mark.parametrize("how", ["finish", "cancel"])
def test_a_waiting_thread_goes_on_when_there_is_an_outcome_or_a_cancel(how: str) -> None:
    call, waiter = RunningCall(1, 3, FAR), Waiter()
    call.on_cancel = waiter.interrupt
    action = call.cancel if how == "cancel" else lambda: waiter.finish("answer")
    other = threading.Timer(0.01, action)
    other.start()
    waiter.wait(call, monotonic() + WAIT_S)
    other.join()
    assert (waiter.done, waiter.outcome) == ((True, "answer") if how == "finish" else (False, None))


def test_a_waiting_thread_runs_what_it_is_given_and_stops_at_its_deadline() -> None:
    ran: list[str] = []
    waiter = Waiter()
    waiter.give(lambda: ran.append("nested"))
    waiter.interrupt()
    waiter.wait(None, monotonic() + 0.02)
    assert (ran, waiter.done) == (["nested"], False)
    waiter.wait(None, monotonic() - 1)


def test_who_waits_elsewhere_is_woken_and_runs_its_jobs_itself() -> None:
    woken: list[int] = []
    ran: list[str] = []
    waiter = Waiter(lambda: woken.append(1))
    waiter.give(lambda: ran.append("nested"))
    waiter.finish(7)
    assert (len(woken), ran) == (2, [])
    waiter.run_jobs()
    waiter.run_jobs()
    assert ran == ["nested"]


# -- overlapping calls -----------------------------------------------------------------------------


class Gate:
    """Holds the calls that come to it."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.lock = threading.Lock()
        self.arrived = threading.Semaphore(0)
        self.running = self.most = 0

    def pass_through(self) -> None:
        with self.lock:
            self.running += 1
            self.most = max(self.most, self.running)
        self.arrived.release()
        assert self.open.wait(WAIT_S)
        with self.lock:
            self.running -= 1


def dispatcher_of(gate: Gate, concurrency: int = 2) -> Dispatcher:
    plugin = Plugin("overlapping")

    @plugin.type("many", concurrency=concurrency)
    class Many(Scorer):
        def score(self, request, endpoint):
            gate.pass_through()
            return 0.5

    @plugin.type("few", concurrency=2)
    class Few(Scorer):
        def score(self, request, endpoint):
            return 0.5

    @plugin.type("one")
    class One(Filter):
        def keep(self, request, endpoint):
            return True

    made = Dispatcher(generation=1)
    made.provide(plugin)
    create = [
        {"handle": [1, number], "name": name, "type": name, "parameters": {}}
        for number, name in ((1, "many"), (2, "one"), (3, "few"))
    ]
    assert made.control_call(Method.CONFIGURE, [{"create": create, "drop": []}])["errors"] == []
    return made


def run(steps: list, view: object = VIEW) -> CallReceived:
    return CallReceived(1, CallMeta(Method.RUN, 1, None, None, 0, 0, 1), [steps, view, None, REQUESTS])


MANY, ONE, FEW = [POINT_SCORE, [1, 1]], [POINT_FILTER, [1, 2]], [POINT_SCORE, [1, 3]]


@pytest.mark.parametrize(
    ("event", "threads"),
    [
        (run([MANY]), ("many", 3)),
        (run([MANY, MANY]), ("many", 3)),
        (run([MANY, FEW, MANY]), ("few+many", 2)),
        (run([FEW, ONE]), None),
        (run([ONE]), None),
        (run([ONE, MANY]), None),
        (run([[POINT_SCORE, [2, 1]]]), None),
        (run([[POINT_SCORE, [1, 9]]]), None),
        (run([[POINT_SCORE, "1"]]), None),
        (run([7]), None),
        (run("steps"), None),
        (run([MANY], "no view"), None),
        (run([MANY], [1, 1, 1, None, None]), None),
        (CallReceived(1, CallMeta(Method.RUN, 1, None, None, 0, 0, 1), []), None),
        (CallReceived(1, CallMeta(Method.PICK, 1, None, None, 0, 0, 1), [[1, 1], VIEW]), ("many", 3)),
        (CallReceived(1, CallMeta(Method.PICK, 1, None, None, 0, 0, 1), [[1, 2], VIEW]), None),
    ],
)
def test_only_calls_to_types_that_all_take_overlapping_ones_are_handed_over(event, threads) -> None:
    assert dispatcher_of(Gate(), 3).overlaps(event) == threads


def test_a_view_is_taken_in_the_order_of_the_calls_whoever_answers_them() -> None:
    gate = Gate()
    gate.open.set()
    dispatcher = dispatcher_of(gate)
    first, second = run([MANY]), run([MANY], [2, 1, 1, None, {}])
    assert dispatcher.overlaps(first)
    assert dispatcher.overlaps(second)
    for event in (second, first):
        result = dispatcher.overlapping_call(event.meta.method, event.args)
        assert isinstance(result, list), result
        assert len(result[1]) == 4


def start_calls(dispatcher: Dispatcher, count: int, results: list) -> list[threading.Thread]:
    def work() -> None:
        event = run([MANY])
        dispatcher.overlaps(event)
        results.append(dispatcher.overlapping_call(event.meta.method, event.args))

    threads = [threading.Thread(target=work) for _ in range(count)]
    for thread in threads:
        thread.start()
    return threads


def test_slots_bound_the_calls_that_overlap_those_of_the_reading_thread_included() -> None:
    gate, results = Gate(), []
    dispatcher = dispatcher_of(gate, 2)
    threads = start_calls(dispatcher, 4, results)
    reading = threading.Thread(
        target=lambda: results.append(dispatcher.call(Method.RUN, [[ONE, MANY], VIEW, None, REQUESTS]))
    )
    reading.start()
    for _ in range(2):
        assert gate.arrived.acquire(timeout=WAIT_S)
    gate.open.set()
    for thread in [*threads, reading]:
        thread.join(WAIT_S)
    assert (len(results), gate.most) == (5, 2)
    assert not any(isinstance(result, CallError) for result in results)


def test_a_reload_waits_for_overlapping_calls_that_began_before_it_and_for_no_others() -> None:
    gate, results = Gate(), []
    dispatcher = dispatcher_of(gate, 2)
    (thread,) = start_calls(dispatcher, 1, results)
    assert gate.arrived.acquire(timeout=WAIT_S)
    done = threading.Event()

    def drop() -> None:
        dispatcher.control_call(Method.CONFIGURE, [{"create": [], "drop": [[1, 1]]}])
        done.set()

    reload = threading.Thread(target=drop)
    reload.start()
    deadline = monotonic() + WAIT_S
    while True:
        late = dispatcher.call(Method.RUN, [[MANY], VIEW, None, [0, [], None, {}, {}]])
        if isinstance(late, CallError):
            break
        assert monotonic() < deadline
    assert late.code is ErrorCode.STALE_HANDLE
    assert not done.is_set()
    gate.open.set()
    assert done.wait(WAIT_S)
    for waiting in (thread, reload):
        waiting.join(WAIT_S)
    assert isinstance(results[0], list)


def test_a_nested_call_needs_neither_slot_nor_turn() -> None:
    gate = Gate()
    gate.open.set()
    dispatcher = dispatcher_of(gate, 2)
    with dispatcher._running:
        result = dispatcher.nested_call(Method.RUN, [[ONE, MANY], VIEW, None, REQUESTS])
    assert isinstance(result, list)
