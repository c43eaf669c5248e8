"""Requests that wait for a plugin: one that sleeps is woken once, one that is exchanged is waited for."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest
from hotbay.datalayer.endpoint import Metrics
from hotbay.scheduling.binding import BindingOptions, Policy
from hotbay.scheduling.decision import Picked, Rejected
from hotbay.scheduling.holding import Held
from hotbay.scheduling.plan import RefPlan
from hotbay.scheduling.request import InferenceRequest
from hotbay.scheduling.router import Router
from hotbay_sdk import DataProducer, Endpoint, Endpoints, Plugin, Request, Scorer

IDLE = Metrics(waiting=0.0)


async def turns(count: int) -> None:
    """Let the loop take some turns: what is due now happens."""
    for _ in range(count):
        await asyncio.sleep(0)


def sleeper(best: str = "a") -> Plugin:
    plugin = Plugin("sleeper")

    @plugin.type("scorer")
    class Scores(Scorer):
        def score(self, request: Request, endpoint: Endpoint) -> float:
            return 1.0 if endpoint.id == f"default/{best}" else 0.0

    @plugin.type("producer", produces={"Made.up": "request"})
    class Makes(DataProducer):
        def produce(self, request: Request, endpoints: Endpoints) -> dict[str, object]:
            return {"Made.up": 1.0}

    return plugin


def sleep(bay) -> None:
    """The plugin's processes are gone until a request needs one."""
    bay.refs = [replace(ref, generation=None, dormant=True) for ref in bay.refs]


def asleep(bay) -> list[str]:
    """A published plan whose scorer sleeps, and the ids of the plugins that are woken."""
    bay.endpoints(a=IDLE, b=IDLE)
    bay.plugin(sleeper(), [("s", "scorer", {})])
    sleep(bay)
    bay.publish("s")
    woken: list[str] = []
    bay.router.wake = woken.append
    return woken


def request(request_id: str) -> InferenceRequest:
    return InferenceRequest(request_id, "m", "/v1/completions", {}, b"{}", {})


# -- first use -----------------------------------------------------------------------------------


def test_l20_ten_calls_at_once_wake_a_sleeping_plugin_once_and_all_succeed(in_loop: Callable) -> None:
    """Idle for longer than its time, then 10 calls at once. The idle time is the routine's: here the plugin is gone."""

    async def body(bay) -> None:
        woken = asleep(bay)
        futures = bay.start(10)
        await turns(3)
        assert (woken, bay.router.held, bay.router.deciding) == (["sleeper"], 10, 0)
        # Another plugin's change while the start is under way does not wake it again.
        bay.publish("s")
        futures += bay.start(1)
        bay.plugin(sleeper("b"), [("s", "scorer", {})])
        bay.publish("s")
        decided = await asyncio.wait_for(asyncio.gather(*futures), 5)
        assert woken == ["sleeper"]
        assert [d.degraded for d in decided] == [()] * 11
        # The plugin says b; the others are where a batch was spread.
        assert decided[0].endpoint.name == "b"
        # It falls asleep again, and is woken again.
        sleep(bay)
        bay.publish("s")
        futures = bay.start(1)
        assert woken == ["sleeper", "sleeper"]
        bay.plugin(sleeper(), [("s", "scorer", {})])
        bay.publish("s")
        await asyncio.wait_for(futures[0], 5)

    in_loop(body)


def test_start_that_fails_lets_the_requests_go_on_by_the_failure_policies(in_loop: Callable) -> None:
    async def body(bay) -> None:
        asleep(bay)
        futures = bay.start(3)
        bay.refs = [replace(ref, dormant=False) for ref in bay.refs]
        bay.publish("s")
        decided = await asyncio.wait_for(asyncio.gather(*futures), 5)
        assert [d.degraded for d in decided] == [(("s", "UNAVAILABLE"),)] * 3

    in_loop(body)


def test_request_waits_no_longer_than_its_time(make_bay: Callable) -> None:
    async def body() -> None:
        bay = make_bay()
        bay.router = Router(bay.store, bay.tally, seed=1, wake_within_s=0.02)
        asleep(bay)
        decided = await bay.decide(2)
        assert [d.degraded for d in decided] == [(("s", "UNAVAILABLE"),)] * 2
        assert bay.router.held == bay.router.deciding == 0

    asyncio.run(body())


def test_client_that_leaves_while_it_waits_is_let_go(in_loop: Callable) -> None:
    async def body(bay) -> None:
        asleep(bay)
        first, second = bay.start(2)
        bay.router.cancel(bay.requests[0])
        assert (await first).reason == "client-left"
        assert bay.router.held == 1
        bay.router.cancel(bay.requests[1])
        assert isinstance(await second, Rejected)

    in_loop(body)


def test_waking_that_raises_is_logged_and_the_request_waits_on(
    in_loop: Callable, caplog: pytest.LogCaptureFixture
) -> None:
    def wake(plugin_id: str) -> None:
        raise RuntimeError("no bed")

    async def body(bay) -> None:
        asleep(bay)
        bay.router.wake = wake
        futures = bay.start(1)
        bay.plugin(sleeper(), [("s", "scorer", {})])
        bay.publish("s")
        assert (await futures[0]).degraded == ()

    in_loop(body)
    assert "wake_failed plugin=sleeper" in caplog.text


@pytest.mark.parametrize(
    ("type_name", "declared", "in_profile", "woken"),
    [
        ("scorer", True, True, ("sleeper",)),
        ("scorer", True, False, ()),
        ("producer", True, False, ("sleeper",)),
        ("scorer", False, False, ("sleeper",)),
    ],
)
def test_plugin_is_woken_for_what_requests_need(
    in_loop: Callable, type_name: str, declared: bool, in_profile: bool, woken: tuple[str, ...]
) -> None:
    async def body(bay) -> None:
        bay.endpoints(a=IDLE)
        bay.plugin(sleeper(), [("s", type_name, {})])
        ref = bay.refs[0]
        bay.refs = [replace(ref, generation=None, dormant=True, declaration=ref.declaration if declared else None)]
        bay.builtin("max-score-picker")
        assert bay.compile("s" if in_profile else "max-score-picker").dormant == woken

    in_loop(body)


def test_readiness_does_not_wait_for_a_plugin_that_sleeps(in_loop: Callable) -> None:
    async def body(bay) -> None:
        bay.endpoints(a=IDLE)
        bay.plugin(sleeper(), [("s", "scorer", {})])
        options = {"s": BindingOptions(on_failure=Policy.FAIL_CLOSED)}
        sleep(bay)
        assert bay.compile("s", options=options).fail_closed_absent == ()
        bay.refs = [replace(ref, dormant=False) for ref in bay.refs]
        assert bay.compile("s", options=options).fail_closed_absent == ("s",)

    in_loop(body)


def test_ref_with_a_process_is_awake() -> None:
    assert RefPlan("s", "t", "p", None, None, {}).dormant is False


# -- hand-over -----------------------------------------------------------------------------------


def test_quiesced_generation_gets_no_new_cycle_and_the_next_one_answers_what_waited(in_loop: Callable) -> None:
    async def body(bay) -> None:
        bay.endpoints(a=IDLE, b=IDLE)
        client = bay.plugin(sleeper("a"), [("s", "scorer", {})])
        old = bay.generations["sleeper"]
        bay.publish("s")
        client.hold = True
        under_way = bay.start(3)
        await turns(3)
        bay.router.quiesce(old.number, within_s=60.0)
        waiting = bay.start(4)
        assert (bay.router.held, old.leases) == (4, 3)
        client.release()
        assert [d.degraded for d in await asyncio.gather(*under_way)] == [()] * 3
        assert (bay.router.held, old.leases) == (4, 0)
        client.die()
        bay.router.retire(old.number)
        bay.publish("s")  # another plugin's change: still nobody there
        assert bay.router.held == 4
        bay.plugin(sleeper("b"), [("s", "scorer", {})])
        bay.publish("s")
        assert bay.router.held == 4
        bay.router.resume(old.number)
        bay.router.resume(old.number)
        decided = await asyncio.wait_for(asyncio.gather(*waiting), 5)
        assert [d.degraded for d in decided] == [()] * 4
        assert decided[0].endpoint.name == "b"

    in_loop(body)


def test_resume_without_a_new_plan_goes_back_to_the_old_generation(in_loop: Callable) -> None:
    async def body(bay) -> None:
        bay.endpoints(a=IDLE, b=IDLE)
        bay.plugin(sleeper("a"), [("s", "scorer", {})])
        old = bay.generations["sleeper"]
        bay.publish("s")
        bay.router.quiesce(old.number, within_s=60.0)
        waiting = bay.start(1)
        bay.router.resume(old.number)
        assert (await waiting[0]).endpoint.name == "a"

    in_loop(body)


def test_hand_over_that_takes_too_long_costs_the_plugin_not_the_request(in_loop: Callable) -> None:
    async def body(bay) -> None:
        bay.endpoints(a=IDLE)
        client = bay.plugin(sleeper("a"), [("s", "scorer", {})])
        old = bay.generations["sleeper"]
        bay.publish("s")
        bay.router.quiesce(old.number, within_s=0.02)
        client.die()
        decided = await bay.decide(2)
        assert [d.degraded for d in decided] == [(("s", "CRASHED"),)] * 2
        bay.router.resume(old.number)

    in_loop(body)


# -- the waiting room ----------------------------------------------------------------------------


def test_no_more_wait_than_fit_and_each_is_given_back_once() -> None:
    async def body() -> None:
        gone: list[str] = []
        counts: list[int] = []
        expired = asyncio.Event()

        def let_go(held_back: InferenceRequest, done: Callable) -> None:
            gone.append(held_back.id)
            expired.set()

        held = Held(let_go, changed=counts.append, most=3)
        requests = [request(str(n)) for n in range(4)]
        assert [held.take(r, lambda d: None, 60.0) for r in requests] == [True, True, True, False]
        assert held.cancel(requests[1]) is not None
        assert held.cancel(requests[1]) is None
        assert held.take(requests[3], lambda d: None, 0.0)
        await expired.wait()
        held.release()
        held.release()
        assert gone == ["3", "0", "2"]
        assert counts == [1, 2, 3, 2, 3, 2, 0]

    asyncio.run(asyncio.wait_for(body(), 5))


@pytest.mark.parametrize("how", ["release", "expire"])
def test_request_whose_end_raises_costs_no_other_that_waits(how: str, caplog: pytest.LogCaptureFixture) -> None:
    async def body() -> None:
        gone: list[str] = []
        all_gone = asyncio.Event()

        def let_go(held_back: InferenceRequest, done: Callable) -> None:
            gone.append(held_back.id)
            if len(gone) == 3:
                all_gone.set()
            if held_back.id == "1":
                raise RuntimeError("no gate")

        held = Held(let_go, changed=lambda count: None)
        requests = [request(str(n)) for n in range(3)]
        for each in requests:
            held.take(each, lambda d: None, 60.0 if how == "release" else 0.0)
        if how == "release":
            held.release()
        await all_gone.wait()
        assert gone == ["0", "1", "2"]
        assert len(held) == 0

    asyncio.run(asyncio.wait_for(body(), 5))
    assert "held_request_failed" in caplog.text
    assert "no gate" in caplog.text


def test_answer_that_nobody_can_take_is_logged_and_the_others_have_theirs(
    in_loop: Callable, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(decision: object) -> None:
        raise RuntimeError("the connection is gone")

    async def body(bay) -> None:
        bay.endpoints(a=IDLE)
        bay.plugin(sleeper(), [("s", "scorer", {})])
        old = bay.generations["sleeper"]
        bay.publish("s")
        bay.router.quiesce(old.number, within_s=60.0)
        bay.router.decide(request("broken"), broken)
        futures = bay.start(2)
        bay.endpoints()  # Nobody may take requests any more: each is refused at once.
        bay.router.resume(old.number)
        assert [d.reason for d in await asyncio.wait_for(asyncio.gather(*futures), 5)] == ["rejected-no-endpoints"] * 2
        bay.router.decide(late := request("late"), broken)
        bay.router.quiesce(old.number, within_s=60.0)
        bay.router.decide(late, broken)
        bay.router.cancel(late)
        bay.router.resume(old.number)

    in_loop(body)
    assert caplog.text.count("refusal_failed") == 3


def test_plugin_that_fell_asleep_meanwhile_is_woken_for_what_a_hand_over_held_back(in_loop: Callable) -> None:
    async def body(bay) -> None:
        bay.endpoints(a=IDLE, b=IDLE)
        bay.plugin(sleeper(), [("s", "scorer", {})])
        old = bay.generations["sleeper"]
        bay.publish("s")
        woken: list[str] = []
        bay.router.wake = woken.append
        bay.router.quiesce(old.number, within_s=60.0)
        futures = bay.start(2)
        sleep(bay)
        bay.publish("s")
        bay.router.resume(old.number)
        await turns(3)
        assert (woken, bay.router.held) == (["sleeper"], 2)
        bay.plugin(sleeper("b"), [("s", "scorer", {})])
        bay.publish("s")
        assert [d.degraded for d in await asyncio.wait_for(asyncio.gather(*futures), 5)] == [()] * 2

    in_loop(body)


def test_what_a_hand_over_held_back_waits_no_longer_for_a_sleeper_than_others(make_bay: Callable) -> None:
    async def body() -> None:
        bay = make_bay()
        bay.router = Router(bay.store, bay.tally, seed=1, wake_within_s=0.02)
        bay.endpoints(a=IDLE)
        bay.plugin(sleeper(), [("s", "scorer", {})])
        old = bay.generations["sleeper"]
        sleep(bay)
        bay.publish("s")
        bay.router.quiesce(old.number, within_s=600.0)
        futures = bay.start(2)
        await turns(3)
        assert bay.router.held == 2
        bay.router.resume(old.number)
        decided = await asyncio.wait_for(asyncio.gather(*futures), 5)
        assert [d.degraded for d in decided] == [(("s", "UNAVAILABLE"),)] * 2

    asyncio.run(body())


def test_request_that_finds_no_room_is_decided_without_the_plugin(in_loop: Callable) -> None:
    async def body(bay) -> None:
        woken = asleep(bay)
        bay.router._waking.held._most = 2
        futures = bay.start(3)
        last = await asyncio.wait_for(futures[2], 5)
        assert isinstance(last, Picked)
        assert last.degraded == (("s", "UNAVAILABLE"),)
        assert woken == ["sleeper"]
        bay.plugin(sleeper(), [("s", "scorer", {})])
        bay.publish("s")
        assert [(await f).degraded for f in futures[:2]] == [(), ()]

    in_loop(body)
