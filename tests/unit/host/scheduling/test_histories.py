"""Random plans under random histories: every request gets one decision, no lease stays, every window opens again,
and without failures the totals are those of a straightforward computation."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pytest
from hotbay.datalayer.endpoint import Metrics
from hotbay.scheduling.binding import BindingOptions, Policy
from hotbay.scheduling.decision import Picked, Rejected
from hotbay_sdk import Context, Endpoint, Endpoints, Filter, Plugin, Request, Scorer
from hotbay_sdk.protocol import CallError, ErrorCode, Executed
from hypothesis import given, settings
from hypothesis import strategies as st

NAMES = ("a", "b", "c", "d", "e")
PLUGINS = ("p0", "p1", "p2")
TAMPERS = (
    None,
    lambda r: None,
    lambda r: [r[0], b"", [[0, -1, {"code": "PLUGIN_ERROR"}]]],
    lambda r: CallError(ErrorCode.DEADLINE_EXCEEDED, "its own"),
    lambda r: CallError(ErrorCode.CANCELLED, "its own"),
    lambda r: CallError(ErrorCode.UNAVAILABLE, "", executed=Executed.NO, details={"missing": "ids"}),
)


@dataclass(frozen=True)
class Ref:
    name: str
    plugin: str
    type: str
    values: tuple[float, ...]
    weight: float
    policy: Policy | None


def plugin_of(plugin_id: str) -> Plugin:
    """Types that take one call at a time in the first plugin, two in the next, then three."""
    plugin, most = Plugin(plugin_id), 1 + PLUGINS.index(plugin_id)

    @plugin.type("drop", concurrency=most, parameters=lambda given: dict(given))
    class Drop(Filter):
        def __init__(self, context: Context, parameters: dict[str, object]) -> None:
            self._kept = {f"default/{n}" for n, value in parameters.items() if value}

        def keep(self, request: Request, endpoint: Endpoint) -> bool:
            return endpoint.id in self._kept

    @plugin.type("table", concurrency=most, reads=["endpoint.waiting"], parameters=lambda given: dict(given))
    class Table(Scorer):
        def __init__(self, context: Context, parameters: dict[str, object]) -> None:
            self._scores = parameters

        def score(self, request: Request, endpoint: Endpoint) -> object:
            return self._scores[endpoint.id.removeprefix("default/")]

    @plugin.type("share", concurrency=most, parameters=lambda given: {})
    class Share(Scorer):
        def score_batch(self, requests: Sequence[Request], endpoints: Endpoints) -> list[list[float]]:
            return [[1.0 / max(1, sum(endpoints.mask(b)))] * len(endpoints) for b in range(len(requests))]

    return plugin


def refs() -> st.SearchStrategy[list[Ref]]:
    scores = st.tuples(*[st.floats(0.0, 1.0, width=32) for _ in NAMES])
    kept = st.tuples(*[st.sampled_from((0.0, 1.0, 1.0, 1.0)) for _ in NAMES])
    policies = {
        "drop": (None, Policy.SKIP, Policy.FAIL_CLOSED),
        "table": (None, Policy.NEUTRAL, Policy.LAST_GOOD, Policy.FAIL_CLOSED),
        "share": (None, Policy.SKIP),
    }

    def one(kind: str) -> st.SearchStrategy[Ref]:
        return st.builds(
            Ref,
            name=st.just(""),
            plugin=st.sampled_from(PLUGINS),
            type=st.just(kind),
            values=kept if kind == "drop" else scores,
            weight=st.floats(0.0, 100.0, width=32),
            policy=st.sampled_from(policies[kind]),
        )

    return st.lists(st.sampled_from(tuple(policies)).flatmap(one), min_size=1, max_size=6).map(
        lambda found: [
            Ref(f"r{n}", *[getattr(r, f) for f in ("plugin", "type", "values", "weight", "policy")])
            for n, r in enumerate(found)
        ]
    )


def set_up(bay, listed: Sequence[Ref]) -> None:
    for plugin_id in PLUGINS:
        own = [r for r in listed if r.plugin == plugin_id]
        if own:
            bay.plugin(plugin_of(plugin_id), [(r.name, r.type, dict(zip(NAMES, r.values, strict=True))) for r in own])
    order = [r.name for r in listed]
    bay.refs.sort(key=lambda ref: order.index(ref.name))
    publish(bay, listed)


def publish(bay, listed: Sequence[Ref]) -> None:
    options = {r.name: BindingOptions(on_failure=r.policy, neutral=0.5) for r in listed}
    bay.publish(*[(r.name, float(r.weight)) for r in listed], options=options)


def endpoints(bay, count: int) -> None:
    bay.endpoints(**{name: Metrics(waiting=float(count)) for name in NAMES[:count]})


def expected(listed: Sequence[Ref], count: int) -> tuple[np.ndarray, np.ndarray]:
    """Candidates that are left, and totals by row."""
    mask = np.ones(count, bool)
    totals = np.zeros(count)
    for ref in listed:
        if ref.type == "drop":
            mask &= np.array(ref.values[:count]) > 0
    for ref in listed:
        if ref.type == "table":
            totals += np.array(ref.values[:count]) * ref.weight
        elif ref.type == "share":
            totals += ref.weight / max(1, mask.sum())
    return mask, totals


async def check_totals(bay, listed: Sequence[Ref], count: int) -> None:
    endpoints(bay, count)
    set_up(bay, listed)
    seen: list[np.ndarray | None] = []
    finish = bay.router._finish
    bay.router._finish = lambda cycle: (seen.append(cycle.totals), finish(cycle))
    answers = await bay.decide(3)
    mask, totals = expected(listed, count)
    for answer, found in zip(answers, seen, strict=True):
        if not mask.any():
            assert isinstance(answer, Rejected)
            assert (answer.status, answer.reason) == (429, "rejected-saturated")
            continue
        assert isinstance(answer, Picked)
        assert answer.degraded == ()
        assert mask[NAMES.index(answer.endpoint.name)]
        if found is not None:
            assert found[mask] == pytest.approx(totals[mask], rel=1e-5, abs=1e-6)
    if mask.any():
        [alone] = await bay.decide()
        assert isinstance(alone, Picked)
        best = totals[mask].max()
        assert totals[NAMES.index(alone.endpoint.name)] == pytest.approx(best, rel=1e-5, abs=1e-6)


@given(listed=refs(), count=st.integers(1, len(NAMES)))
@settings(deadline=None, max_examples=25)
def test_totals_without_failures_are_those_of_a_plain_computation(
    make_bay: Callable, listed: list[Ref], count: int
) -> None:
    run(make_bay, lambda bay: check_totals(bay, listed, count))


def run(make_bay, body) -> None:
    async def main() -> None:
        bay = make_bay()
        await body(bay)
        assert bay.router.deciding == 0
        assert all(g.leases == 0 for g in bay.generations.values())

    defects = Defects(logging.ERROR)
    logger = logging.getLogger("hotbay.scheduling")
    logger.addHandler(defects)
    try:
        asyncio.run(main())
    finally:
        logger.removeHandler(defects)
    assert defects.found == []


class Defects(logging.Handler):
    """Collects what the scheduler's boundaries caught: a second decision of a request would be among it."""

    def __init__(self, level: int) -> None:
        super().__init__(level)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.found.append(f"{record.getMessage()} {record.exc_info}")


Step = tuple[str, int, int]
STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            (
                "decide",
                "decide",
                "decide",
                "answer",
                "answer",
                "time_out",
                "die",
                "tamper",
                "publish",
                "endpoints",
                "cancel",
                "turn",
                "turn",
            )
        ),
        st.integers(0, len(PLUGINS) - 1),
        st.integers(0, 5),
    ),
    max_size=40,
)


class History:
    """Plays steps; counts what every request is told."""

    def __init__(self, bay, listed: Sequence[Ref]) -> None:
        self.bay = bay
        self.listed = listed
        self.told: dict[int, list[object]] = {}
        self.dead: set[str] = set()
        for client in bay.clients.values():
            client.hold = True

    async def play(self, step: Step) -> None:
        action, which, number = step
        client = self.bay.clients.get(PLUGINS[which])
        if action == "decide":
            self.decide(number + 1)
        elif action == "publish":
            publish(self.bay, self.listed)
        elif action == "endpoints":
            endpoints(self.bay, 1 + number % len(NAMES))
        elif action == "cancel" and self.bay.requests:
            self.bay.router.cancel(self.bay.requests[number % len(self.bay.requests)])
        elif action == "turn":
            await asyncio.sleep(0)
        elif client is not None and PLUGINS[which] not in self.dead:
            self.act(client, PLUGINS[which], action, number)

    def act(self, client, plugin_id: str, action: str, number: int) -> None:
        if action == "answer":
            client.release(newest=number % 2 == 1)
        elif action == "time_out":
            client.time_out()
        elif action == "tamper":
            client.tamper = TAMPERS[number % len(TAMPERS)]
        elif action == "die":
            self.dead.add(plugin_id)
            client.die()

    def decide(self, count: int) -> None:
        for future in self.bay.start(count):
            told = self.told[id(future)] = [future]
            future.add_done_callback(told.append)

    async def settle(self) -> None:
        """Let every plugin that lives answer what it still holds."""
        for client in self.bay.clients.values():
            client.tamper = None
        for _ in range(60):
            for plugin_id, client in self.bay.clients.items():
                if plugin_id not in self.dead:
                    client.release()
            await asyncio.sleep(0)


async def check_history(bay, listed: Sequence[Ref], steps: Sequence[Step]) -> None:
    endpoints(bay, 3)
    set_up(bay, listed)
    history = History(bay, listed)
    for step in steps:
        await history.play(step)
    await history.settle()
    assert bay.router.deciding == 0
    assert all(len(told) == 2 for told in history.told.values()), "told once each"
    assert all(g.leases == 0 for g in bay.generations.values())
    for remote in bay.router._remotes.values():
        for window in remote._windows.values():
            window._breaker.revived(0.0)
    # The first is the probe of every window whose breaker is open.
    for answer in [(await _decided(history))[0] for _ in range(4)][-1:]:
        if isinstance(answer, Picked):
            assert {binding for binding, _ in answer.degraded} <= {r.name for r in listed if r.plugin in history.dead}
        else:
            mask, _ = expected([r for r in listed if r.plugin not in history.dead], bay.store.snapshot.rows)
            closed = any(r.policy is Policy.FAIL_CLOSED for r in listed if r.plugin in history.dead)
            assert closed or not mask[bay.store.snapshot.live].any()


async def _decided(history: History) -> list[Picked | Rejected]:
    futures = history.bay.start(1)
    await history.settle()
    for remote in history.bay.router._remotes.values():
        for window in remote._windows.values():
            window._breaker.revived(0.0)
    return [future.result() for future in futures]


@given(listed=refs(), steps=STEPS)
@settings(deadline=None, max_examples=40)
def test_any_history_decides_every_request_once_and_leaves_the_scheduler_usable(
    make_bay: Callable, listed: list[Ref], steps: list[Step]
) -> None:
    run(make_bay, lambda bay: check_history(bay, listed, steps))
