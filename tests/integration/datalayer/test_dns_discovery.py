"""DNS discovery against a name server that answers over UDP and TCP, and whose zone a test changes."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import dns.flags
import dns.message
import dns.rcode
import dns.rdatatype
import dns.rrset
import pytest
from hotbay.config.discovery_parameters import DnsDiscovery
from hotbay.datalayer.discovery.discovery import Discovery
from hotbay.datalayer.discovery.plans import discovery_plan
from hotbay.datalayer.endpoint import Delete, EndpointEvent, EndpointState, Upsert
from hotbay.datalayer.store import EndpointStore
from hotbay.observe.background import Background

from tests.integration.datalayer.conftest import Told

pytestmark = pytest.mark.anyio

WAIT_S = 15.0
GPU = "gpu.example."
LLM = "_llm._tcp.example."


class NameServer(asyncio.DatagramProtocol):
    """Answers for its zone: records by name and type, or a failure by name. `silent` names get no answer."""

    def __init__(self) -> None:
        self.zone: dict[tuple[str, str], list[str]] = {}
        self.failures: dict[str, dns.rcode.Rcode] = {}
        self.silent: set[str] = set()
        self.truncates = False
        self.questions: list[tuple[str, str, str]] = []
        self.port = 0
        self._transport: asyncio.DatagramTransport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]  # uvloop's is no subclass of asyncio's

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        answer = self._answer(data, "udp")
        if answer is not None:
            self._transport.sendto(answer, addr)

    async def serve_tcp(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            size = int.from_bytes(await reader.readexactly(2), "big")
            answer = self._answer(await reader.readexactly(size), "tcp") or b""
            writer.write(len(answer).to_bytes(2, "big") + answer)
            await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    def _answer(self, data: bytes, transport: str) -> bytes | None:
        query = dns.message.from_wire(data)
        (question,) = query.question
        name, kind = question.name.to_text(), dns.rdatatype.to_text(question.rdtype)
        self.questions.append((name, kind, transport))
        if name in self.silent:
            return None
        response = dns.message.make_response(query)
        known = {known for known, _ in self.zone}
        response.set_rcode(self.failures.get(name, dns.rcode.NOERROR if name in known else dns.rcode.NXDOMAIN))
        if response.rcode() != dns.rcode.NOERROR:
            return response.to_wire()
        if self.truncates and transport == "udp":
            response.flags |= dns.flags.TC
            return response.to_wire()
        for alias in self.zone.get((name, "CNAME"), []):
            response.answer.append(dns.rrset.from_text(name, 0, "IN", "CNAME", alias))
            name = alias
        records = self.zone.get((name, kind), [])
        if records:
            response.answer.append(dns.rrset.from_text(name, 0, "IN", kind, *records))
        return response.to_wire()


@pytest.fixture
async def server(anyio_backend: object) -> AsyncIterator[NameServer]:
    loop = asyncio.get_running_loop()
    found = NameServer()
    tcp = await asyncio.start_server(found.serve_tcp, "127.0.0.1", 0)
    found.port = tcp.sockets[0].getsockname()[1]
    transport, _ = await loop.create_datagram_endpoint(lambda: found, local_addr=("127.0.0.1", found.port))
    yield found
    transport.close()
    tcp.close()
    await tcp.wait_closed()


class Pool:
    """A store that a DNS discovery fills."""

    def __init__(self, server: NameServer, **changes: object) -> None:
        given: dict[str, object] = {
            "names": (GPU,),
            "port": 8000,
            "servers": (("127.0.0.1", server.port),),
            "shortest_s": 0.05,
            "longest_s": 0.1,
            "timeout_s": 10.0,
        }
        plan = discovery_plan("d", DnsDiscovery(**(given | changes)), Path())  # type: ignore[arg-type]  # a test's words
        self.store = EndpointStore()
        self.discovery = Discovery(self.store, plans=[plan], background=Background(), draw=lambda: 0.0)
        self.events: list[EndpointEvent] = []
        self._news = anyio.Event()
        self.store.subscribe(self._hear)

    def _hear(self, event: EndpointEvent) -> None:
        self.events.append(event)
        self._news.set()
        self._news = anyio.Event()

    @property
    def names(self) -> list[str]:
        return sorted(one.name for one in self.store.endpoints())

    async def until(self, condition: Callable[[], bool]) -> None:
        with anyio.fail_after(WAIT_S):
            while not condition():
                await self._news.wait()

    @asynccontextmanager
    async def running(self, *, ready: bool = True) -> AsyncIterator[None]:
        async with anyio.create_task_group() as tasks:
            await tasks.start(self.discovery.run)
            if ready:
                with anyio.fail_after(WAIT_S):
                    await self.discovery.ready.wait()
            yield
            tasks.cancel_scope.cancel()

    async def complains(self, text: str) -> None:
        """Return when a problem of discovery says so."""
        told = Told()
        with anyio.fail_after(WAIT_S):
            while not any(text in str(problem) for problem in self.discovery.problems):
                await told.next()


async def test_addresses_come_and_go_upserts_first(server: NameServer) -> None:
    server.zone[GPU, "A"] = ["10.0.0.1", "10.0.0.2"]
    pool = Pool(server)
    async with pool.running():
        assert pool.names == ["10.0.0.1:8000", "10.0.0.2:8000"]
        server.zone[GPU, "A"] = ["10.0.0.3", "10.0.0.2"]
        await pool.until(lambda: len(pool.events) == 4)
        assert pool.names == ["10.0.0.2:8000", "10.0.0.3:8000"]
        assert [type(event) for event in pool.events[2:]] == [Upsert, Delete]


async def test_addresses_behind_an_alias_and_of_ipv6_are_found(server: NameServer) -> None:
    server.zone[GPU, "CNAME"] = ["other.example."]
    server.zone["other.example.", "AAAA"] = ["fd00::10"]
    pool = Pool(server, type="AAAA")
    async with pool.running():
        assert [one.authority for one in pool.store.endpoints()] == ["[fd00::10]:8000"]


@pytest.mark.parametrize("failure", ["NXDOMAIN", "SERVFAIL", "REFUSED", "silence", "empty"])
async def test_what_is_no_answer_keeps_the_last_good_addresses_and_is_told(server: NameServer, failure: str) -> None:
    server.zone[GPU, "A"] = ["10.0.0.1"]
    pool = Pool(server, timeout_s=0.3 if failure == "silence" else 10.0)
    async with pool.running():
        match failure:
            case "silence":
                server.silent.add(GPU)
                told = "no answer for gpu.example. within 0.3 s"
            case "empty":
                server.zone[GPU, "A"] = []
                told = "gpu.example. answers without A records"
            case "NXDOMAIN":
                server.failures[GPU] = dns.rcode.NXDOMAIN
                told = "there is no name gpu.example."
            case _:
                server.failures[GPU] = dns.rcode.from_text(failure)
                told = failure
        await pool.complains(told)
        assert pool.names == ["10.0.0.1:8000"]
        assert pool.discovery.ready.is_set()
        server.silent.clear()
        server.failures.clear()
        server.zone[GPU, "A"] = ["10.0.0.2"]
        await pool.until(lambda: pool.names == ["10.0.0.2:8000"])
        assert pool.discovery.problems == ()


async def test_an_answer_without_records_empties_the_feed_when_that_is_configured(server: NameServer) -> None:
    server.zone[GPU, "A"] = ["10.0.0.1"]
    pool = Pool(server, on_empty="clear")
    async with pool.running():
        server.zone[GPU, "A"] = []
        await pool.until(lambda: pool.names == [])
        assert pool.discovery.problems == ()


async def test_a_name_without_records_is_ready_from_the_start(server: NameServer) -> None:
    server.zone[GPU, "A"] = []
    pool = Pool(server)
    async with pool.running():
        assert (pool.names, pool.discovery.problems) == ([], ())


async def test_ready_waits_for_the_first_answer_of_every_name(server: NameServer) -> None:
    server.zone[GPU, "A"] = ["10.0.0.1"]
    pool = Pool(server, names=(GPU, "later.example"))
    async with pool.running(ready=False):
        await pool.complains("there is no name later.example")
        assert not pool.discovery.ready.is_set()
        server.zone["later.example.", "A"] = ["10.0.0.2"]
        with anyio.fail_after(WAIT_S):
            await pool.discovery.ready.wait()
        assert pool.names == ["10.0.0.1:8000", "10.0.0.2:8000"]


async def test_one_name_that_fails_does_not_hold_the_others_back(server: NameServer) -> None:
    server.zone[GPU, "A"] = ["10.0.0.1"]
    server.zone["b.example.", "A"] = ["10.0.0.2"]
    pool = Pool(server, names=(GPU, "b.example"))
    async with pool.running():
        server.failures[GPU] = dns.rcode.SERVFAIL
        server.zone["b.example.", "A"] = ["10.0.0.3"]
        await pool.until(lambda: pool.names == ["10.0.0.1:8000", "10.0.0.3:8000"])


async def test_services_have_ports_weights_and_priorities(server: NameServer) -> None:
    server.zone[LLM, "SRV"] = ["1 10 8000 a.example.", "1 5 8001 a.example.", "2 0 8000 b.example.", "0 0 1 ."]
    server.zone["a.example.", "A"] = ["10.0.0.1"]
    server.zone["b.example.", "A"] = []
    server.zone["b.example.", "AAAA"] = ["fd00::2"]
    pool = Pool(server, names=(LLM,), type="SRV", port=None)
    async with pool.running():
        found = {one.authority: one for one in pool.store.endpoints()}
        assert {name: (one.weight, one.state, one.rank_index) for name, one in found.items()} == {
            "10.0.0.1:8000": (1.0, EndpointState.ACTIVE, 0),
            "10.0.0.1:8001": (0.5, EndpointState.ACTIVE, 1),
            "[fd00::2]:8000": (1.0, EndpointState.CORDONED, 0),
        }
        server.zone[LLM, "SRV"] = ["2 0 8000 b.example."]
        await pool.until(lambda: pool.names == ["[fd00::2]:8000"])
        assert pool.store.endpoints()[-1].state is EndpointState.ACTIVE


async def test_a_target_that_cannot_be_resolved_keeps_its_last_good_addresses(server: NameServer) -> None:
    server.zone[LLM, "SRV"] = ["0 0 8000 a.example."]
    server.zone["a.example.", "A"] = ["10.0.0.1"]
    pool = Pool(server, names=(LLM,), type="SRV", port=None)
    async with pool.running():
        server.failures["a.example."] = dns.rcode.SERVFAIL
        server.zone[LLM, "SRV"] = ["0 0 9000 a.example."]
        await pool.until(lambda: pool.names == ["10.0.0.1:9000"])
        await pool.complains("no answer for a.example")


async def test_s26_a_record_of_another_port_takes_the_place_of_the_old_one(server: NameServer) -> None:
    server.zone[LLM, "SRV"] = ["0 0 8000 a.example.", "0 0 8001 a.example."]
    server.zone["a.example.", "A"] = ["10.0.0.1"]
    pool = Pool(server, names=(LLM,), type="SRV", port=None)
    async with pool.running():
        assert pool.names == ["10.0.0.1:8000", "10.0.0.1:8001"]
        server.zone[LLM, "SRV"] = ["0 0 8001 a.example."]
        await pool.until(lambda: pool.names == ["10.0.0.1:8001"])
        assert pool.store.endpoints()[-1].rank_index == 0


async def test_a_truncated_answer_is_asked_for_again_by_tcp(server: NameServer) -> None:
    addresses = [f"10.0.{number // 250}.{number % 250 + 1}" for number in range(1000)]
    server.zone[GPU, "A"] = addresses
    server.truncates = True
    pool = Pool(server)
    async with pool.running():
        assert len(pool.store) == 1000
        assert {transport for _, _, transport in server.questions} == {"udp", "tcp"}


async def test_a_server_that_is_not_there_is_told_and_the_next_one_asked(server: NameServer) -> None:
    server.zone[GPU, "A"] = ["10.0.0.1"]
    # Nobody listens on port 1 of this machine.
    pool = Pool(server, servers=(("127.0.0.1", 1), ("127.0.0.1", server.port)), timeout_s=2.0)
    async with pool.running():
        assert pool.names == ["10.0.0.1:8000"]
    alone = Pool(server, servers=(("127.0.0.1", 1),), timeout_s=0.3)
    async with alone.running(ready=False):
        await alone.complains("dns-discovery 'd': no answer for gpu.example.")
        assert not alone.discovery.ready.is_set()
