"""The process under test, and the conversation with it up to READY and beyond."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

import anyio
from hotbay_sdk.protocol import (
    PROTOCOL_VERSION,
    Armed,
    ErrorReceived,
    Event,
    FrameType,
    GoAwayReceived,
    HandshakeReceived,
    Hello,
    LogReceived,
    Method,
    Ready,
    ReplyReceived,
    TypeDeclaration,
    Value,
    Welcome,
)
from hotbay_sdk.protocol.calls import InstanceFacts

from hotbay.conformance.calls import GENERATION, Probe, Shape, choices
from hotbay.conformance.data_calls import DataProbe, data_points, misfit
from hotbay.conformance.link import Answer, Link, Patience
from hotbay.conformance.request_calls import REQUEST_POINTS, RequestProbe
from hotbay.conformance.verdict import BrokenRuleError, InapplicableError, expect, well_formed
from hotbay.process.child import Child, Exit
from hotbay.process.launch import LaunchSpec
from hotbay.process.log import LogSink

SEED: Final = 1
LONG_US: Final = 10_000_000
"""Deadline of calls whose deadline is not what is looked at."""

__all__ = ["GENERATION", "Conversation", "Peer", "started"]


@dataclass(slots=True)
class Peer:
    """A started process with both of its links."""

    child: Child
    calls: Link
    control: Link
    patience: Patience
    armed: Armed | None = None
    _early_hello: HandshakeReceived | None = None

    @property
    def links(self) -> tuple[Link, Link]:
        return self.calls, self.control

    async def arm(self) -> None:
        """Take a peer that begins with stage 0 to where one of another language begins. Once is enough."""
        if self.armed is not None or self._early_hello is not None:
            return
        first = await self._handshake((FrameType.ARMED, FrameType.HELLO), self.patience.answer_s)
        if first.type is FrameType.ARMED:
            with well_formed("ARMED"):
                self.armed = Armed.from_wire(first.body)
        else:
            self._early_hello = first

    async def go(self) -> None:
        """Say GO to a peer that armed itself."""
        if self.armed is not None:
            await self.control.write(self.control.connection.send_handshake(FrameType.GO, {}))

    async def hello(self) -> Hello:
        """Up to HELLO."""
        await self.arm()
        await self.go()
        found = self._early_hello or await self._handshake((FrameType.HELLO,), self.patience.answer_s)
        with well_formed("HELLO"):
            return Hello.from_wire(found.body)

    def welcome(self, protocol: int = PROTOCOL_VERSION, *, state: bool = False) -> bytes:
        """The bytes of WELCOME; `state` says that a predecessor's state follows."""
        body = Welcome(protocol, GENERATION, SEED, state=state).to_wire()
        return self.control.connection.send_handshake(FrameType.WELCOME, body)

    async def ready(self) -> tuple[TypeDeclaration, ...]:
        """READY's types, after WELCOME."""
        found = await self._handshake((FrameType.READY,), self.patience.ready_s)
        with well_formed("READY"):
            types = Ready.from_wire(found.body).types
        expect(types, "READY declares no type")
        return types

    async def _handshake(self, expected: Sequence[FrameType], within_s: float) -> HandshakeReceived:
        names = " or ".join(kind.name for kind in expected)
        while True:
            try:
                event = await self.control.event(within_s)
            except BrokenRuleError as error:
                raise BrokenRuleError(f"waiting for {names}: {error}") from error
            if isinstance(event, HandshakeReceived) and event.type in expected:
                return event
            if isinstance(event, ErrorReceived):
                raise BrokenRuleError(f"waiting for {names}: {event.error.code}: {event.error.message}")
            if not isinstance(event, LogReceived):
                raise BrokenRuleError(f"expected {names}, found {told(event)}")

    async def exits(self) -> Exit:
        """The end of the process, in time."""
        with anyio.move_on_after(self.patience.exit_s):
            return await self.child.wait()
        raise BrokenRuleError(f"the process still runs after {self.patience.exit_s:g} s")

    async def gives_up(self, link: Link) -> None:
        """The peer ends the link, or itself, in time; it may say GOAWAY before."""
        with anyio.move_on_after(self.patience.exit_s):
            async with anyio.create_task_group() as group:

                async def first(wait_for_end: str) -> None:
                    await (link.until_ended() if wait_for_end == "link" else self.child.wait())
                    group.cancel_scope.cancel()

                group.start_soon(first, "link")
                group.start_soon(first, "process")
            return
        raise BrokenRuleError(f"the {link.name} link is still open after {self.patience.exit_s:g} s")


def told(event: Event) -> str:
    """An event in a few words."""
    if isinstance(event, HandshakeReceived):
        return event.type.name
    if isinstance(event, GoAwayReceived):
        return f"GOAWAY {event.code[:64]}: {event.message[:200]}"
    return type(event).__name__


@asynccontextmanager
async def started(spec: LaunchSpec, patience: Patience) -> AsyncIterator[Peer]:
    """Start the process; kill it and close its links at the end. Raises `HostError` when it cannot be started."""
    child = Child.start(spec, LogSink(spec.label))
    fd = child.control.fileno()
    peer = Peer(
        child,
        Link("call", child.call_in_fd, child.call_out_fd, patience),
        Link("control", fd, fd, patience, control=child.control),
        patience,
    )
    try:
        yield peer
    finally:
        await child.stop(0)
        child.close()


@dataclass(slots=True)
class Conversation:
    """A peer that is READY. `parameters` are those of its types, by name, for types that cannot do without.

    `features` are those of its HELLO.
    """

    peer: Peer
    declared: tuple[TypeDeclaration, ...]
    parameters: Mapping[str, Mapping[str, object]]
    features: frozenset[str] = frozenset()
    _next_handle: int = 1
    _epoch: int = 0
    _probe: Probe | None = field(default=None)
    _data_probes: tuple[DataProbe, ...] | None = field(default=None)
    _request_probes: tuple[RequestProbe, ...] | None = field(default=None)

    @classmethod
    async def open(cls, peer: Peer, parameters: Mapping[str, Mapping[str, object]]) -> "Conversation":
        """The whole start."""
        hello = await peer.hello()
        await peer.control.write(peer.welcome())
        return cls(peer, await peer.ready(), parameters, frozenset(hello.features))

    @property
    def alive(self) -> bool:
        """Whether more can be asked of it."""
        return self.peer.child.exit is None and not any(link.ended or link.broken for link in self.peer.links)

    def entry(self, type_name: str, name: str = "probe") -> tuple[list[Value], dict[str, object]]:
        """A handle of its own, and the entry of configure's `create` that makes it."""
        number, self._next_handle = self._next_handle, self._next_handle + 1
        given = self.parameters.get(type_name, {})
        handle: list[Value] = [GENERATION, number]
        return handle, {"handle": handle, "name": name, "type": type_name, "parameters": dict(given)}

    async def configure(
        self, create: Sequence[Mapping[str, object]] = (), drop: Sequence[Value] = ()
    ) -> tuple[dict[str, Value], list[Value]]:
        """Instances and errors of a configure call."""
        body = {"create": list(create), "drop": list(drop)}
        result = reply(await self.control_call(Method.CONFIGURE, [body]), "configure")
        expect(isinstance(result, dict), "configure's result is no map")
        assert isinstance(result, dict)
        instances, errors = result.get("instances"), result.get("errors")
        if not isinstance(instances, dict) or not isinstance(errors, list):
            raise BrokenRuleError("configure's result is not {instances: map, errors: list}")
        return instances, errors

    async def control_call(self, method: int, args: Sequence[object]) -> Answer:
        """One call on the control link."""
        link = self.peer.control
        stream, frame = link.connection.start_call(method, args, deadline_us=LONG_US)
        await link.write(frame)
        return await link.answer(stream, self.peer.patience.ready_s)

    async def probe(self) -> Probe:
        """A configured instance of the type that is easiest to call; asked for again, the same one."""
        if self._probe is None:
            self._probe = await self.new_probe()
        return self._probe

    async def new_probe(self) -> Probe:
        """Another instance of that type; of the next best one where it cannot be made without parameters."""
        refusal = ""
        for declaration, point in choices(self.declared):
            handle, facts, refused = await self.made(declaration.type)
            if facts is not None:
                return Probe(declaration, point, handle, facts.block_tokens)
            refusal = refusal or refused
        if refusal:
            raise InapplicableError(refusal)
        return Probe(self.declared[0], "", [GENERATION, 0], None)

    async def made(self, type_name: str) -> tuple[Value, InstanceFacts | None, str]:
        """A new instance: its handle and what it says of itself; or None, and why it cannot be made."""
        handle, entry = self.entry(type_name)
        instances, errors = await self.configure([entry])
        if errors:
            return handle, None, f"type {type_name} needs parameters: {repr(errors[0])[:200]}"
        told = instances.get(str(handle[1]))
        if not isinstance(told, dict):
            raise BrokenRuleError(f"configure's instances do not name the new handle {handle[1]!r}")
        with well_formed(f"what configure tells of an instance of {type_name}"):
            return handle, InstanceFacts.from_wire(told), ""

    async def request_probes(self) -> tuple[RequestProbe, ...]:
        """A configured instance of every type with each of its points around the cycle. Asked for again, the same ones."""
        if self._request_probes is None:
            self._request_probes = await self.new_request_probes()
        return self._request_probes

    async def new_request_probes(self) -> tuple[RequestProbe, ...]:
        """Other instances of them. Raises `InapplicableError` where there are none, or all of them need parameters."""
        found: list[RequestProbe] = []
        refusal = "no type of this package is called around the cycle"
        for declaration in self.declared:
            points = [point for point in REQUEST_POINTS if point in declaration.points]
            if not points:
                continue
            handle, facts, refused = await self.made(declaration.type)
            if facts is None:
                refusal = refused
            else:
                found += [RequestProbe(declaration, point, handle, facts) for point in points]
        if not found:
            raise InapplicableError(refusal)
        return tuple(found)

    async def data_probes(self, *points: str) -> tuple[DataProbe, ...]:
        """A configured instance of every type of the data layer with each of its points, or of these points.

        Asked for again, the same ones. Raises `InapplicableError` where all of them need parameters.
        """
        if self._data_probes is None:
            self._data_probes = await self.new_data_probes()
        return tuple(probe for probe in self._data_probes if not points or probe.point in points)

    async def new_data_probes(self) -> tuple[DataProbe, ...]:
        """Other instances of them."""
        made: list[DataProbe] = []
        refused = ""
        for declaration, point in data_points(self.declared):
            if misfit(declaration, point):
                continue
            handle, entry = self.entry(declaration.type)
            _, errors = await self.configure([entry])
            if errors:
                refused = f"type {declaration.type} needs parameters: {repr(errors[0])[:200]}"
            else:
                made.append(DataProbe(declaration, point, handle))
        if refused and not made:
            raise InapplicableError(refused)
        return tuple(made)

    def epoch(self) -> int:
        """A view of its own."""
        self._epoch += 1
        return self._epoch

    def call(self, probe: Probe, shape: Shape, *, deadline_us: int = LONG_US) -> tuple[int, bytes]:
        """Stream and bytes of a well-formed call."""
        args = probe.arguments(shape, self.epoch())
        return self.peer.calls.connection.start_call(
            probe.method, args, deadline_us=deadline_us, reply_limit_bytes=probe.reply_limit(shape)
        )

    async def ask(self, probe: Probe, shape: Shape) -> None:
        """One call that must be answered with a result of the right shape."""
        stream, frame = self.call(probe, shape)
        await self.peer.calls.write(frame)
        probe.check(await self.peer.calls.answer(stream), shape)

    async def still_serves(self) -> None:
        """Both links answer as before."""
        probe = await self.probe()
        await self.ask(probe, Shape())
        await self.configure()


def reply(answer: Answer, what: str) -> Value:
    """The result of a call that must not fail."""
    if isinstance(answer, ErrorReceived):
        raise BrokenRuleError(f"{what} failed with {answer.error.code}: {answer.error.message[:400]}")
    if not isinstance(answer, ReplyReceived):
        raise BrokenRuleError(f"{what} was answered after it was cancelled")
    return answer.result
