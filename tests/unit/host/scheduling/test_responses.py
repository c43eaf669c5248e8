"""What processes are told of requests after their decisions: withdrawals, how they are answered, and the end, once."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest
from hotbay.datalayer.endpoint import Metrics
from hotbay.errors import CapacityError
from hotbay.rpc.faults import UnsendableError
from hotbay.scheduling import notices as notices_module
from hotbay.scheduling.binding import BindingOptions, Policy
from hotbay.scheduling.response_facts import NO_WANTS, ResponseFacts, ResponseWants, Usage
from hotbay_sdk import (
    Context,
    Endpoints,
    PickedTargets,
    Plugin,
    PreRequest,
    Request,
    Response,
    ResponseBodyProcessor,
    ResponseHeaderProcessor,
)
from hotbay_sdk.protocol import Method

IDLE = Metrics(waiting=0.0)
FULL = CapacityError("RESOURCE_EXHAUSTED", "it does not read")
END = ResponseFacts(200, 30, 3, Usage(7, 5, 2), end=True, cause="natural", first_byte=True, ttft_us=80, elapsed_us=900)


def listeners(told: list[object]) -> Plugin:
    """`heads`, `ends`, `chunks` and `learner`, that note what they are told by the names of their refs."""
    plugin = Plugin("listeners")

    @plugin.type("heads", reads=["request.id", "response.headers[x-served-by]"])
    class Heads(ResponseHeaderProcessor):
        def response_headers(self, request: Request, response: Response) -> None:
            told.append(("head", request.id, response.endpoint, response.status, dict(response.headers)))

    for name, every_chunk in (("ends", False), ("chunks", True)):

        class Bodies(ResponseBodyProcessor):
            def __init__(self, context: Context) -> None:
                self._name = context.name

            def response_body(self, request: Request, response: Response) -> None:
                told.append((self._name, request.id, request.prompt, response.chunks, response.end, response.cause))

        plugin.type(name, reads=["request.id", "request.prompt"], every_chunk=every_chunk)(Bodies)

    @plugin.type("learner", reads=["request.id"])
    class Learner(PreRequest):
        def pre_request(self, request: Request, picked: PickedTargets, endpoints: Endpoints) -> None:
            told.append(("sent", request.id, *picked.targets))

        def withdrawn(self, request: Request, picked: PickedTargets, endpoints: Endpoints) -> None:
            told.append(("withdrawn", request.id, *picked.targets))

    return plugin


async def sent(bay, refs: list[str], told: list[object]):
    """Publish these listeners and send one request; the client, the request and its decision."""
    bay.endpoints(a=IDLE)
    client = bay.plugin(listeners(told), [(ref, ref, {}) for ref in refs])
    bay.publish()
    [decision] = await bay.decide()
    await turn()
    return client, bay.requests[-1], decision


async def turn() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


def test_without_listeners_nobody_wants_anything_and_nothing_is_told(in_loop: Callable) -> None:
    async def body(bay) -> None:
        client, request, decision = await sent(bay, ["learner"], [])
        assert bay.router.hears_responses == NO_WANTS
        client.told.clear()
        bay.router.response_headers(request, decision, "default/a", 200, {"x-served-by": "z"})
        bay.router.response_body(request, decision, "default/a", END)
        await turn()
        assert client.told == []

    in_loop(body)


@pytest.mark.parametrize(
    ("refs", "wants"),
    [
        (["heads"], ResponseWants(frozenset({"x-served-by"}), body=False, chunks=False, usage=False)),
        (["ends"], ResponseWants(None, body=True, chunks=False, usage=True)),
        (["chunks", "heads"], ResponseWants(frozenset({"x-served-by"}), body=True, chunks=True, usage=True)),
    ],
    ids=["heads", "ends", "chunks+heads"],
)
def test_wants_are_those_of_the_listeners(in_loop: Callable, refs: list[str], wants: ResponseWants) -> None:
    async def body(bay) -> None:
        await sent(bay, refs, [])
        found = bay.router.hears_responses
        assert found._replace(fields=frozenset()) == wants
        assert found.fields == ({"request.id", "request.prompt"} if wants.body else frozenset())
        bay.refs = []
        bay.publish()
        assert bay.router.hears_responses == NO_WANTS

    in_loop(body)


def test_declared_headers_cross_and_no_others(in_loop: Callable) -> None:
    async def body(bay) -> None:
        told: list[object] = []
        client, request, decision = await sent(bay, ["heads"], told)
        headers = {"x-served-by": "z", "set-cookie": "secret"}
        bay.router.response_headers(request, decision, "default/a", 201, headers)
        await turn()
        assert told == [("head", "r0", "default/a", 201, {"x-served-by": "z"})]
        assert "secret" not in str(client.told)

    in_loop(body)


def test_chunks_of_one_tick_are_one_and_only_who_asks_for_them_is_told(in_loop: Callable) -> None:
    async def body(bay) -> None:
        told: list[object] = []
        client, request, decision = await sent(bay, ["ends", "chunks"], told)
        for chunks in (1, 2, 3):
            bay.router.response_body(request, decision, "default/a", ResponseFacts(200, 10 * chunks, chunks))
        await turn()
        assert told == [("chunks", "r0", "", 3, False, None)]
        bay.router.response_body(request, decision, "default/a", ResponseFacts(200, 40, 4))
        bay.router.response_body(request, decision, "default/a", END)
        await turn()
        assert sorted(told[1:]) == [("chunks", "r0", "", 3, True, "natural"), ("ends", "r0", "", 3, True, "natural")]
        assert "hello" not in str(client.told), "the prompt does not cross again"

    in_loop(body)


def test_end_of_a_request_that_was_sent_nowhere_is_told(in_loop: Callable) -> None:
    async def body(bay) -> None:
        told: list[object] = []
        bay.sends = False
        _, request, decision = await sent(bay, ["ends"], told)
        aborted = ResponseFacts(end=True, cause="client-disconnect")
        bay.router.response_body(request, decision, "default/a", aborted)
        await turn()
        assert told == [("ends", "r0", "", 0, True, "client-disconnect")]

    in_loop(body)


def test_facts_cross_whole(in_loop: Callable) -> None:
    async def body(bay) -> None:
        client, request, decision = await sent(bay, ["ends"], [])
        bay.router.response_body(request, decision, "default/a", END)
        await turn()
        [(method, args)] = client.told
        assert method == Method.RESPONSE_BODY
        assert args[2] == [
            {
                "endpoint": "default/a",
                "profile": "default",
                "status": 200,
                "bytes": 30,
                "chunks": 3,
                "usage": {"prompt_tokens": 7, "completion_tokens": 5, "cached_tokens": 2},
                "end": True,
                "cause": "natural",
                "first_byte": True,
                "ttft_us": 80,
                "elapsed_us": 900,
            }
        ]

    in_loop(body)


def test_ends_wait_for_a_process_that_does_not_read_and_chunks_do_not(in_loop: Callable) -> None:
    async def body(bay) -> None:
        told: list[object] = []
        client, request, decision = await sent(bay, ["chunks"], told)
        notices = bay.router._remotes[1].notices
        client.deaf = FULL
        bay.router.response_body(request, decision, "default/a", ResponseFacts(200, 10, 1))
        await turn()
        assert notices.waiting == 0
        bay.router.response_body(request, decision, "default/a", END)
        await turn()
        assert (told, notices.waiting) == ([], 1)
        client.deaf = None
        notices._flush()
        assert told == [("chunks", "r0", "", 3, True, "natural")]
        assert (notices.waiting, bay.tally.errors) == (0, [])

    in_loop(body)


def test_ends_that_wait_are_bounded_and_those_left_out_counted(in_loop: Callable, monkeypatch) -> None:
    monkeypatch.setattr(notices_module, "MAX_ENDS", 2)

    async def body(bay) -> None:
        told: list[object] = []
        client, _, _ = await sent(bay, ["ends"], told)
        picks = await bay.decide(3)
        client.deaf = FULL
        for request, decision in zip(bay.requests[1:], picks, strict=True):
            bay.router.response_body(request, decision, "default/a", END)
        await turn()
        client.deaf = None
        bay.router._remotes[1].notices._flush()
        assert [name for _, name, *_ in told] == ["r1", "r2"]
        assert bay.tally.errors == [("response_body", "ends", "RESOURCE_EXHAUSTED")]

    in_loop(body)


def test_a_process_that_is_gone_is_told_nothing_and_nothing_waits_for_it(in_loop: Callable) -> None:
    async def body(bay) -> None:
        client, request, decision = await sent(bay, ["ends"], [])
        client.die()
        bay.router.response_body(request, decision, "default/a", END)
        await turn()
        assert bay.router._remotes[1].notices.waiting == 0

    in_loop(body)


def test_withdrawal_is_told_to_who_was_told_of_the_request(in_loop: Callable) -> None:
    async def body(bay) -> None:
        told: list[object] = []
        client, request, decision = await sent(bay, ["learner"], told)
        bay.router.withdraw(request, decision, "default/a")
        await turn()
        assert told == [("sent", "r0", "default/a"), ("withdrawn", "r0", "default/a")]
        assert [len(args) for _, args in client.told] == [4, 5]
        assert client.told[1][1][4] is True

    in_loop(body)


def test_withdrawal_is_told_to_who_sets_headers(in_loop: Callable) -> None:
    told: list[object] = []
    plugin = Plugin("setters")

    @plugin.type("setter")
    class Setter(PreRequest):
        sets_request_headers = ("x-to",)

        def pre_request(self, request: Request, picked: PickedTargets, endpoints: Endpoints) -> None:
            told.append("asked")

        def withdrawn(self, request: Request, picked: PickedTargets, endpoints: Endpoints) -> None:
            told.append("withdrawn")

    async def body(bay) -> None:
        bay.endpoints(a=IDLE)
        bay.plugin(plugin, [("s", "setter", {})])
        bay.publish()
        [decision] = await bay.decide()
        bay.router.withdraw(bay.requests[0], decision, "default/a")
        await turn()
        assert told == ["asked", "withdrawn"]
        # A warm generation was not asked: it is told where the request goes, as a learner is.
        live = bay.generations["setters"]
        bay.plugin(plugin, [("s", "setter", {})])
        warm = bay.generations["setters"]
        bay.refs = [replace(ref, generation=live) for ref in bay.refs]
        bay.router.publish(bay.compile(), mirrors={live.number: [warm]})
        told.clear()
        [decision] = await bay.decide()
        await turn()
        assert told == ["asked", "asked"]
        bay.router.withdraw(bay.requests[1], decision, "default/a")
        await turn()
        assert told[2:] == ["withdrawn", "withdrawn"]

    in_loop(body)


@pytest.mark.parametrize("leaves", [True, False], ids=["client-leaves", "fail-closed"])
def test_end_is_told_of_a_request_that_is_refused_after_headers_were_asked_for(in_loop: Callable, leaves: bool) -> None:
    told: list[object] = []
    plugin = Plugin("setters")

    @plugin.type("setter", reads=["request.id"])
    class Setter(PreRequest, ResponseBodyProcessor):
        sets_request_headers = ("x-to",)

        def pre_request(self, request: Request, picked: PickedTargets, endpoints: Endpoints) -> None:
            told.append(request.id)
            if not leaves:
                raise ValueError("no")

        def response_body(self, request: Request, response: Response) -> None:
            told.append((request.id, response.endpoint, response.end, response.cause))

    async def body(bay) -> None:
        bay.endpoints(a=IDLE)
        client = bay.plugin(plugin, [("s", "setter", {})])
        bay.publish(options={} if leaves else {"s": BindingOptions(on_failure=Policy.FAIL_CLOSED)})
        client.hold = leaves
        [future] = bay.start()
        if leaves:
            await turn()
            bay.router.cancel(bay.requests[0])
            client.release()
        answer = await future
        assert answer.status == (499 if leaves else 503)
        await turn()
        cause = "client-disconnect" if leaves else "error"
        assert told == ["r0", ("r0", "default/a", True, cause)]

    in_loop(body)


def test_parallel_requests_of_one_tick_go_in_one_message(in_loop: Callable) -> None:
    async def body(bay) -> None:
        told: list[object] = []
        client, _, _ = await sent(bay, ["ends"], told)
        picks = await bay.decide(70)
        for request, decision in zip(bay.requests[1:], picks, strict=True):
            bay.router.response_body(request, decision, "default/a", END)
        await turn()
        assert [len(args[2]) for _, args in client.told] == [64, 6]
        assert len(told) == 70

    in_loop(body)


def test_a_request_that_cannot_cross_costs_the_others_of_its_tick_nothing(in_loop: Callable) -> None:
    async def body(bay) -> None:
        told: list[object] = []
        client, _, _ = await sent(bay, ["ends"], told)
        picks = await bay.decide(2, ids=["r1", "r2"])
        notify = client.notify

        def refusing(method: int, args: list, **more: object) -> None:
            if "r1" in args[1][3]["request.id"]:
                raise (UnsendableError("FRAME_TOO_LARGE", "too long") if len(args[2]) > 1 else KeyError("defect"))
            notify(method, args, **more)

        client.notify = refusing
        for request, decision in zip(bay.requests[1:], picks, strict=True):
            bay.router.response_body(request, decision, "default/a", END)
        await turn()
        assert [name for _, name, *_ in told] == ["r2"]
        assert bay.tally.errors == [("response_body", "ends", "HOST_ERROR")]

    in_loop(body)


def test_nobody_is_told_of_a_generation_that_is_gone(in_loop: Callable) -> None:
    async def body(bay) -> None:
        told: list[object] = []
        _, request, decision = await sent(bay, ["ends", "learner"], told)
        told.clear()
        bay.router.retire(1)
        bay.router.sent(request, decision, "default/a")
        bay.router.withdraw(request, decision, "default/a")
        bay.router.response_body(request, decision, "default/a", END)
        await turn()
        assert told == []

    in_loop(body)
