"""Parsers in processes, asked through the router."""

import asyncio
from collections.abc import Callable, Mapping

import pytest
from hotbay.datalayer.endpoint import Metrics
from hotbay.errors import CapacityError
from hotbay.scheduling.compiler import compile_plan
from hotbay.scheduling.decision import Rejected
from hotbay.scheduling.plan import PlanInput
from hotbay_sdk import Denial, ParsedRequest, Parser, Plugin
from hotbay_sdk.protocol.verdicts import Parsed

IDLE = Metrics(waiting=0.0)


def parsers(seen: list[object] | None = None) -> Plugin:
    plugin = Plugin("parsers")

    @plugin.type("words", claims=["/v1/words", "/words"], reads=["request.headers[x-model]"])
    class Words(Parser):
        def parse(self, path: str, headers: Mapping[str, str], body: bytes) -> ParsedRequest | Denial:
            if seen is not None:
                seen.append((path, dict(headers), body))
            if body == b"raise":
                raise ValueError("no")
            if not body:
                return Denial("bad-request", "no-words", "say something")
            return ParsedRequest(headers.get("x-model", "m"), prompt=body.decode(), stream=True, max_tokens=5)

    @plugin.type("any")
    class Any(Parser):
        def parse(self, path: str, headers: Mapping[str, str], body: bytes) -> ParsedRequest:
            return ParsedRequest("m", messages=[{"role": "user"}], skip_response=True)

    return plugin


async def parsed(bay, ref: str, body: bytes = b"hello", **headers: str) -> Parsed | Rejected:
    future: asyncio.Future[Parsed | Rejected] = asyncio.get_running_loop().create_future()
    bay.router.parse(ref, "/v1/words", headers, body, future.set_result)
    return await asyncio.wait_for(future, 5)


def both(bay, seen: list[object] | None = None):
    bay.endpoints(a=IDLE)
    client = bay.plugin(parsers(seen), [("p", "words", {}), ("q", "any", {})])
    bay.publish()
    return client


def test_claims_are_those_of_the_plan_in_order_and_one_without_claims_takes_any_path(in_loop: Callable) -> None:
    async def body(bay) -> None:
        assert list(bay.router.parsers) == []
        both(bay)
        assert list(bay.router.parsers) == [("/v1/words", "p"), ("/words", "p"), ("", "q")]
        bay.router.publish(compile_plan(9, PlanInput(tuple(bay.refs), (), {}, parsers=("q", "openai-parser", "p"))))
        assert [ref for _, ref in bay.router.parsers] == ["q", "p", "p"]

    in_loop(body)


def test_request_is_parsed_with_the_declared_headers_alone(in_loop: Callable) -> None:
    async def body(bay) -> None:
        seen: list[object] = []
        both(bay, seen)
        found = await parsed(bay, "p", **{"x-model": "big", "authorization": "secret"})
        assert found == Parsed("big", "hello", None, True, 5, False)
        assert seen == [("/v1/words", {"x-model": "big"}, b"hello")]
        assert await parsed(bay, "q") == Parsed("m", None, [{"role": "user"}], False, None, True)

    in_loop(body)


def test_denial_of_a_parser_keeps_its_code_and_failures_close(in_loop: Callable) -> None:
    async def body(bay) -> None:
        client = both(bay)
        assert await parsed(bay, "p", b"") == Rejected(400, "no-words", "say something")
        failed = await parsed(bay, "p", b"raise")
        assert failed == Rejected(503, "plugin-unavailable", "parser 'p' gave no usable answer (PLUGIN_ERROR)")
        client.tamper = lambda result: {"model": ""}
        assert (await parsed(bay, "p")).message == "parser 'p' gave no usable answer (BAD_RESULT)"  # type: ignore[union-attr]
        assert bay.router.complaint(1).startswith("BAD_RESULT: model is a name")
        statistics = bay.router.statistics(1)
        assert (statistics.calls, statistics.errors, statistics.bad_results) == (3, 1, 1)

    in_loop(body)


def test_parser_that_is_absent_unknown_or_has_no_room_refuses_at_once(in_loop: Callable) -> None:
    async def body(bay) -> None:
        client = both(bay)
        assert (await parsed(bay, "ghost")).message == "parser 'ghost' gave no usable answer (UNAVAILABLE)"  # type: ignore[union-attr]
        client.refuses = CapacityError("RESOURCE_EXHAUSTED", "full")
        assert "RESOURCE_EXHAUSTED" in (await parsed(bay, "p")).message  # type: ignore[union-attr]
        bay.lose("p")
        bay.publish()
        assert "UNAVAILABLE" in (await parsed(bay, "p")).message  # type: ignore[union-attr]
        assert bay.router.plan.fail_closed_absent == ("p",)

    in_loop(body)


def test_bodies_at_which_a_parser_raises_close_it_to_nobody_else(in_loop: Callable) -> None:
    async def body(bay) -> None:
        client = both(bay)
        for _ in range(12):
            assert "PLUGIN_ERROR" in (await parsed(bay, "p", b"raise")).message  # type: ignore[union-attr]
        assert isinstance(await parsed(bay, "p"), Parsed), "a body is its client's, and opens no breaker"
        client.tamper = lambda result: {"model": ""}
        for _ in range(12):
            assert "BAD_RESULT" in (await parsed(bay, "p")).message  # type: ignore[union-attr]
        client.tamper = None
        assert isinstance(await parsed(bay, "p"), Parsed)
        assert bay.router.statistics(1).errors == 12, "they are counted"

    in_loop(body)


def test_parser_that_keeps_failing_is_left_alone_and_asked_again_later(in_loop: Callable) -> None:
    async def body(bay) -> None:
        client = both(bay)
        client.refuses = CapacityError("RESOURCE_EXHAUSTED", "full")
        for _ in range(4):
            assert "RESOURCE_EXHAUSTED" in (await parsed(bay, "p")).message  # type: ignore[union-attr]
        client.refuses = None
        asked = len(client.arguments)
        assert "BREAKER_OPEN" in (await parsed(bay, "p")).message  # type: ignore[union-attr]
        assert len(client.arguments) == asked
        [breaker] = [them for (ref, _), them in bay.router._parsers._breakers.items() if ref == "p"]
        breaker._next_probe = 0.0
        assert isinstance(await parsed(bay, "p"), Parsed)
        assert isinstance(await parsed(bay, "p"), Parsed)

    in_loop(body)


def test_what_the_caller_raises_is_logged_and_stays_with_it(
    in_loop: Callable, caplog: pytest.LogCaptureFixture
) -> None:
    async def body(bay) -> None:
        both(bay)

        def broken(found: object) -> None:
            raise ValueError("caller")

        bay.router.parse("p", "/words", {}, b"x", broken)
        assert isinstance(await parsed(bay, "p"), Parsed)
        assert "parsed_request_failed" in caplog.text

    in_loop(body)


def test_parser_is_held_until_it_has_answered(in_loop: Callable) -> None:
    async def body(bay) -> None:
        both(bay)
        [parser] = [it for it in bay.router.plan.parsers if it.binding.ref == "p"]
        future: asyncio.Future[Parsed | Rejected] = asyncio.get_running_loop().create_future()
        bay.router.parse("p", "/v1/words", {}, b"hello", future.set_result)
        assert parser.generation.leases == 1
        await asyncio.wait_for(future, 5)
        assert parser.generation.leases == 0
        bay.router.parse("p", "/v1/words", {}, b"raise", lambda _: None)
        assert parser.generation.leases == 1
        drained: list[bool] = []
        parser.generation.on_drained(lambda: drained.append(True))
        await parsed(bay, "p")
        assert (parser.generation.leases, drained) == (0, [True])

    in_loop(body)
