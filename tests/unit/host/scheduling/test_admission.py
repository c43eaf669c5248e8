"""Ejected endpoints in decisions: one probe at a time, never against filters, and panic where nothing else is left."""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import pytest
from hotbay.datalayer.endpoint import EndpointMetadata, Metrics
from hotbay.scheduling.decision import Picked, Rejected
from hotbay.scheduling.request import InferenceRequest
from hotbay.scheduling.router import Router
from hotbay_sdk import Context, Endpoints, Filter, Picker, Plugin, Request, ScoredEndpoint

IDLE = Metrics(waiting=0.0)


@dataclass
class Admission:
    """Says who is out and who is due, as a test wants it."""

    ejected: list[str] = field(default_factory=list)
    due: list[str] = field(default_factory=list)
    returned: list[str] = field(default_factory=list)

    def probe(self) -> str | None:
        return self.due.pop() if self.due else None

    def unused(self, endpoint_id: str) -> None:
        self.returned.append(endpoint_id)


def with_admission(bay, *, out: Sequence[str], due: Sequence[str] = ()) -> Admission:
    """Endpoints a, b and c, of which some are out."""
    admission = Admission([f"default/{one}" for one in out], [f"default/{one}" for one in due])
    bay.router = Router(bay.store, bay.tally, seed=1, admission=admission)
    bay.endpoints(a=IDLE, b=IDLE, c=IDLE)
    for one in out:
        bay.store.set_availability(f"default/{one}", healthy=0.0, slow_start=1.0, admits=False)
    bay.store.publish(1.0)
    return admission


def only(*names: str) -> Plugin:
    plugin = Plugin("only")

    @plugin.type("only")
    class Only(Filter):
        def __init__(self, context: Context) -> None:
            """Nothing to set up."""

        def keep_batch(self, requests: Sequence[Request], endpoints: Endpoints) -> list[list[bool]]:
            return [[i.removeprefix("default/") in names for i in endpoints.ids] for _ in requests]

    return plugin


def test_ejected_endpoint_gets_nothing(in_loop: Callable) -> None:
    async def body(bay) -> None:
        with_admission(bay, out="b")
        bay.publish()
        assert set(await bay.names(60)) == {"a", "c"}

    in_loop(body)


def test_one_request_of_many_is_the_probe_with_another_as_its_fallback(in_loop: Callable) -> None:
    async def body(bay) -> None:
        admission = with_admission(bay, out="b", due="b")
        bay.publish()
        picks = await bay.decide(40)
        assert Counter(pick.endpoint.name for pick in picks)["b"] == 1
        (probe,) = [pick for pick in picks if pick.endpoint.name == "b"]
        assert [endpoint.name for endpoint in probe.fallbacks] in (["a"], ["c"])
        assert admission.returned == []

    in_loop(body)


def test_probe_goes_nowhere_that_filters_forbid(in_loop: Callable) -> None:
    async def body(bay) -> None:
        admission = with_admission(bay, out="b", due="b")
        bay.plugin(only("a", "c"), [("f", "only", {})])
        bay.publish("f")
        assert set(await bay.names(10)) <= {"a", "c"}
        assert admission.returned == ["default/b"]

    in_loop(body)


def test_probe_passes_filters_and_a_picker_in_a_process(in_loop: Callable) -> None:
    async def body(bay) -> None:
        plugin = only("b", "c")
        asked: list[list[str]] = []

        @plugin.type("first")
        class First(Picker):
            def __init__(self, context: Context) -> None:
                """Nothing to set up."""

            def pick(self, request: Request, candidates: Sequence[ScoredEndpoint], n: int) -> list[ScoredEndpoint]:
                asked.append([candidate.id for candidate in candidates])
                return list(candidates[:1])

        admission = with_admission(bay, out="b", due="b")
        bay.plugin(plugin, [("f", "only", {}), ("p", "first", {})])
        bay.publish("f", "p")
        (pick,) = await bay.decide()
        assert [pick.endpoint.name, *(endpoint.name for endpoint in pick.fallbacks)] == ["b", "c"]
        assert asked == [["default/c"]]
        assert admission.returned == []

    in_loop(body)


def test_probe_alone_is_picked_alone(in_loop: Callable) -> None:
    async def body(bay) -> None:
        with_admission(bay, out="b", due="b")
        bay.plugin(only("b"), [("f", "only", {})])
        bay.publish("f")
        (pick,) = await bay.decide()
        assert (pick.endpoint.name, pick.fallbacks) == ("b", ())

    in_loop(body)


def test_probe_of_an_endpoint_that_is_gone_is_given_back(in_loop: Callable) -> None:
    async def body(bay) -> None:
        admission = with_admission(bay, out=())
        admission.due = ["default/gone"]
        bay.publish()
        assert isinstance((await bay.decide())[0], Picked)
        assert admission.returned == ["default/gone"]

    in_loop(body)


def test_client_that_leaves_gives_its_probe_back(in_loop: Callable) -> None:
    async def body(bay) -> None:
        admission = with_admission(bay, out="b", due="b")
        client = bay.plugin(only("a", "b"), [("f", "only", {})])
        client.hold = True
        bay.publish("f")
        (future,) = bay.start()
        bay.router.cancel(bay.requests[0])
        assert (await future).reason == "client-left"
        assert admission.returned == ["default/b"]
        client.release()

    in_loop(body)


def test_request_that_filters_leave_nothing_for_goes_to_an_ejected_endpoint(in_loop: Callable) -> None:
    async def body(bay) -> None:
        with_admission(bay, out="b")
        bay.plugin(only("b"), [("f", "only", {})])
        bay.publish("f")
        assert set(await bay.names(5)) == {"b"}

    in_loop(body)


def test_request_that_nobody_may_answer_is_still_refused(in_loop: Callable) -> None:
    async def body(bay) -> None:
        with_admission(bay, out="b")
        bay.plugin(only("nobody"), [("f", "only", {})])
        bay.publish("f")
        (decided,) = await bay.decide()
        assert (decided.status, decided.reason) == (429, "rejected-saturated")

    in_loop(body)


def test_when_all_are_out_all_are_candidates(in_loop: Callable) -> None:
    async def body(bay) -> None:
        with_admission(bay, out="abc")
        bay.publish()
        assert set(await bay.names(60)) == {"a", "b", "c"}

    in_loop(body)


async def decide_without(bay, *names: str) -> Picked | Rejected:
    request = InferenceRequest(
        "r", "m", "/v1/completions", {}, b"x", {"prompt": "x"}, avoid=frozenset(f"default/{one}" for one in names)
    )
    future: asyncio.Future[Picked | Rejected] = asyncio.get_running_loop().create_future()
    bay.router.decide(request, future.set_result)
    return await asyncio.wait_for(future, 5)


def test_endpoints_that_failed_a_request_are_not_picked_for_it_again(in_loop: Callable) -> None:
    async def body(bay) -> None:
        with_admission(bay, out=(), due="a")
        bay.publish()
        for _ in range(20):
            pick = await decide_without(bay, "a", "c", "gone")
            assert pick.endpoint.name == "b"

    in_loop(body)


@pytest.mark.parametrize(("out", "expected"), [("", "rejected-no-endpoints"), ("b", "b")])
def test_without_all_that_failed_an_ejected_one_is_left_or_none(in_loop: Callable, out: str, expected: str) -> None:
    async def body(bay) -> None:
        with_admission(bay, out=out)
        bay.publish()
        decided = await decide_without(bay, "a", "c", *(() if out else ("b",)))
        assert (decided.endpoint.name if isinstance(decided, Picked) else decided.reason) == expected
        assert isinstance(await decide_without(bay, "a", "b", "c"), Rejected)

    in_loop(body)


@pytest.mark.parametrize("weight", [0.5, 0.1])
def test_weight_holds_in_decisions_whatever_a_plugin_prefers(in_loop: Callable, weight: float) -> None:
    async def body(bay) -> None:
        bay.endpoints(a=IDLE, b=IDLE)
        bay.store.upsert(replace(bay.store.get("default/b"), weight=weight))
        bay.store.publish(1.0)
        bay.publish()
        # One at a time: what is decided together is kept apart already.
        names = Counter([(await bay.names())[0] for _ in range(600)])
        assert names["b"] / names["a"] == pytest.approx(weight, rel=0.1)

    in_loop(body)


def test_weight_zero_gets_requests_when_the_others_are_gone(in_loop: Callable) -> None:
    async def body(bay) -> None:
        bay.endpoints(a=IDLE, b=IDLE)
        bay.store.upsert(replace(bay.store.get("default/b"), weight=0.0))
        bay.store.publish(1.0)
        bay.publish()
        assert set(await bay.names(30)) == {"a"}
        bay.store.delete("default/a")
        bay.store.publish(2.0)
        assert set(await bay.names(5)) == {"b"}

    in_loop(body)


def test_s13_burst_between_two_scrapes_is_spread_by_what_is_in_flight(in_loop: Callable) -> None:
    async def body(bay) -> None:
        bay.endpoints(a=Metrics(waiting=0.0), b=Metrics(waiting=1.0))
        bay.publish()
        names = Counter(await bay.names(8))
        assert max(names.values()) <= 6

    in_loop(body)


def test_s40_session_of_an_endpoint_that_fails_goes_elsewhere(in_loop: Callable) -> None:
    async def body(bay) -> None:
        with_admission(bay, out="a")
        bay.plugin(only("a", "b"), [("f", "only", {})])
        bay.publish("f")
        assert set(await bay.names(10)) == {"b"}
        bay.store.delete("default/a")
        bay.store.publish(2.0)
        assert set(await bay.names(10)) == {"b"}

    in_loop(body)


def test_endpoints_that_are_all_live_are_made_candidates_once_a_snapshot(in_loop: Callable) -> None:
    async def body(bay) -> None:
        bay.endpoints(a=IDLE)
        bay.publish()
        await bay.decide()
        shared = bay.router._pool.all_live
        await bay.decide(3)
        assert bay.router._pool.all_live is shared
        bay.store.upsert(EndpointMetadata("default/b", "b", "10.0.0.2", 1))
        bay.store.publish(1.0)
        assert set(await bay.names(20)) == {"a", "b"}
        assert bay.router._pool.all_live is not shared

    in_loop(body)


class Counted(dict[str, int]):
    """Rows by id that counts how often it is asked."""

    asked = 0

    def get(self, *args: object) -> int | None:  # type: ignore[override]
        self.asked += 1
        return super().get(*args)  # type: ignore[arg-type]


def test_who_is_out_is_looked_up_once_for_a_snapshot_and_again_when_others_are(in_loop: Callable) -> None:
    async def body(bay) -> None:
        admission = with_admission(bay, out="ab")
        bay.publish()
        rows = Counted(bay.store.snapshot.row_of)
        bay.store.snapshot = replace(bay.store.snapshot, row_of=rows)
        assert set(await bay.names(20)) == {"c"}
        assert rows.asked == 2
        bay.store.set_availability("default/c", healthy=0.0, slow_start=1.0, admits=False)
        bay.store.publish(2.0)
        admission.ejected = [f"default/{one}" for one in "abc"]
        assert set(await bay.names(60)) == {"a", "b", "c"}

    in_loop(body)
