"""A scheduler without processes: refs answered by the SDK's own dispatcher over a pair of real connections."""

import asyncio
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import pytest
from hotbay.datalayer.endpoint import EndpointMetadata, Metrics
from hotbay.datalayer.store import EndpointStore
from hotbay.errors import HostError, PluginFault
from hotbay.rpc.faults import UnsendableError, fault_from_wire
from hotbay.rpc.leases import Generation, Origin
from hotbay.scheduling.binding import BindingOptions
from hotbay.scheduling.compiler import compile_plan
from hotbay.scheduling.decision import Picked, Rejected
from hotbay.scheduling.plan import Plan, PlanInput, ProfileEntryPlan, ProfileInput, RefPlan
from hotbay.scheduling.request import InferenceRequest
from hotbay.scheduling.router import Router
from hotbay_sdk import Plugin
from hotbay_sdk._dispatch import Dispatcher, answer
from hotbay_sdk.protocol import (
    CallReceived,
    CancelReceived,
    Connection,
    ErrorReceived,
    LateAnswerDropped,
    Method,
    NoticeReceived,
    ReplyReceived,
    Role,
    ValueRefusedError,
)
from hotbay_sdk.protocol.calls import InstanceFacts

TIMEOUT_S = 5.0


class MemoryClient:
    """The client's interface over two connections in memory.

    `hold` keeps answers back until `release`, `keeps` those of calls with arguments of which it is true. `told` are the
    notices that were sent, with `deaf` none is taken.
    """

    def __init__(self, dispatcher: Dispatcher, label: str) -> None:
        self.fault: HostError | None = None
        self.label = label
        self.batches: list[int] = []
        self.arguments: list[list[object]] = []
        self.hold = False
        self.keeps: Callable[[Sequence[object]], bool] = lambda args: False
        self.refuses: HostError | None = None
        self.deaf: HostError | None = None
        self.told: list[tuple[int, Sequence[object]]] = []
        self.cancelled: list[int] = []
        self.tamper: Callable[[object], object] | None = None
        self._dispatcher = dispatcher
        self._host = Connection(Role.HOST)
        self._plugin = Connection(Role.PLUGIN)
        self._calls: dict[int, tuple[Callable[[object], None], Callable[[], None] | None]] = {}
        self._held: list[CallReceived] = []
        self._told: set[int] = set()

    def start_call(
        self,
        method: int,
        args: Sequence[object],
        *,
        deadline_s: float,
        done: Callable[[object], None],
        freed: Callable[[], None] | None = None,
        reply_limit_bytes: int | None = None,
        epoch: int = 0,
    ) -> int:
        if self.fault is not None:
            raise self.fault
        if self.refuses is not None:
            raise self.refuses
        try:
            stream, data = self._host.start_call(
                method, args, deadline_us=int(deadline_s * 1e6), reply_limit_bytes=reply_limit_bytes, epoch=epoch
            )
        except ValueRefusedError as error:
            raise UnsendableError("FRAME_TOO_LARGE", str(error)) from error
        self._calls[stream] = (done, freed)
        for event in self._plugin.feed(data):
            if isinstance(event, CallReceived):
                if self._dispatcher.overlapping:
                    # As the reading thread does: views count in the order of arrival.
                    self._dispatcher.overlaps(event)
                self._held.append(event)
        if not self.hold:
            asyncio.get_running_loop().call_soon(self.release)
        return stream

    def cancel(self, stream: int) -> None:
        self.cancelled.append(stream)
        for event in self._plugin.feed(self._host.cancel(stream, "cancelled")):
            assert isinstance(event, CancelReceived)

    def notify(self, method: int, args: Sequence[object], *, epoch: int = 0) -> None:
        if self.fault is not None or self.deaf is not None:
            raise self.fault or self.deaf  # type: ignore[misc]  # one of them is there
        self.told.append((method, args))
        for event in self._plugin.feed(self._host.send_notice(method, args, epoch=epoch)):
            if isinstance(event, NoticeReceived):
                self._dispatcher.call(event.meta.method, event.args)

    def share(
        self, areas: Mapping[int, int], drop: Sequence[int], done: Callable[[object], None], *, writable: bool = False
    ) -> None:
        args = [list(areas), list(drop), *([list(areas)] if writable else [])]
        refused = self._dispatcher.share(args, tuple(map(os.dup, areas.values())))
        asyncio.get_running_loop().call_soon(done, None if refused is None else fault_from_wire(refused, self.label))

    @property
    def holding(self) -> int:
        """Calls that are out and not answered."""
        return len(self._held)

    def release(self, *, newest: bool = False) -> None:
        """Answer what was called and is not kept; with `newest` the last call alone."""
        calls = [call for call in self._held if not self.keeps(call.args)]
        if newest:
            calls = calls[-1:]
        self._held = [call for call in self._held if call not in calls]
        for call in calls:
            self.arguments.append(call.args)
            requests = next(
                (a for a in call.args if isinstance(a, list) and len(a) == 5 and isinstance(a[3], dict)), [1]
            )
            assert isinstance(requests[0], int)
            self.batches.append(requests[0])
            result = self._dispatcher.call(call.meta.method, call.args)
            if self.tamper is not None:
                result = self.tamper(result)
            self._settle(answer(self._plugin, call.stream, result))

    def time_out(self) -> None:
        """Let the deadline of everything outstanding pass; the plugin goes on working."""
        for stream, (done, _) in list(self._calls.items()):
            for event in self._plugin.feed(self._host.cancel(stream, "deadline")):
                assert isinstance(event, CancelReceived)
            if stream not in self._told:
                self._told.add(stream)
                done(PluginFault("DEADLINE_EXCEEDED", "too late"))

    def die(self) -> None:
        """The process ends."""
        self.fault = PluginFault("CRASHED", "killed")
        self._held = []
        calls, self._calls = self._calls, {}
        for stream, (done, freed) in calls.items():
            if stream not in self._told:
                done(self.fault)
            if freed is not None:
                freed()

    def _settle(self, data: bytes) -> None:
        for event in self._host.feed(data):
            assert isinstance(event, (ReplyReceived, ErrorReceived, LateAnswerDropped)), event
            done, freed = self._calls.pop(event.stream)
            if freed is not None:
                freed()
            if isinstance(event, ReplyReceived):
                done(event.result)
            elif isinstance(event, ErrorReceived):
                done(fault_from_wire(event.error, self.label))
            elif event.stream not in self._told:
                done(PluginFault("CANCELLED", "given up"))


@dataclass
class Tally:
    """What the router observed."""

    degradations: list[tuple[str, str]] = field(default_factory=list)
    invalid: dict[str, int] = field(default_factory=dict)
    errors: list[tuple[str, str, str]] = field(default_factory=list)
    decisions: int = 0
    mixed: int = 0
    waiting: list[int] = field(default_factory=list)
    timed: Counter[tuple[str, str]] = field(default_factory=Counter)

    def degraded(self, binding: str, reason: str) -> None:
        self.degradations.append((binding, reason))

    def decision(self, duration_s: float) -> None:
        assert duration_s >= 0
        self.decisions += 1

    def invalid_scores(self, ref: str, count: int) -> None:
        self.invalid[ref] = self.invalid.get(ref, 0) + count

    def plugin_error(self, point: str, ref: str, code: str) -> None:
        self.errors.append((str(point), ref, code))

    def call_timer(self, plugin: str, point: str) -> Callable[[float], None]:
        def timed(duration_s: float) -> None:
            assert duration_s >= 0
            self.timed[plugin, point] += 1

        return timed

    def mixed_cycle(self) -> None:
        self.mixed += 1

    def held(self, count: int) -> None:
        self.waiting.append(count)


class Bay:
    """One store, one router, and as many in-memory plugins as a test needs."""

    def __init__(self) -> None:
        self.store = EndpointStore()
        self.tally = Tally()
        self.clients: dict[str, MemoryClient] = {}
        self.generations: dict[str, Generation] = {}
        self.started: list[Generation] = []
        self.refs: list[RefPlan] = []
        self.requests: list[InferenceRequest] = []
        self.sends = True
        """Whether requests are sent to what is picked, as a gateway does."""
        self._plans = 0
        self.router = Router(self.store, self.tally, seed=11)

    def endpoints(self, **metrics: Metrics) -> None:
        """Make the store hold exactly these."""
        for name in metrics:
            self.store.upsert(EndpointMetadata(f"default/{name}", name, "10.0.0.1", 8000))
        for one in self.store.endpoints():
            if one.name not in metrics:
                self.store.delete(one.id)
        for name, values in metrics.items():
            self.store.update_metrics(f"default/{name}", values, 0.0)
        self.store.publish(0.0)

    def plugin(
        self, plugin: Plugin, refs: Iterable[tuple[str, str, Mapping[str, object]]], *, number: int | None = None
    ) -> MemoryClient:
        """Start a plugin and configure refs (name, type, parameters); later refs of a name replace earlier ones."""
        number = len(self.started) + 1 if number is None else number
        dispatcher = Dispatcher(generation=number, seed=1, log_level="error")
        dispatcher.provide(plugin)
        client = MemoryClient(dispatcher, f"{plugin.name}#{number}")
        types = {d.type: d for d in plugin.declarations}
        generation = Generation(number, Origin(plugin.name, "1.0.0", 1, "sha256:0"), client, types, 1)  # type: ignore[arg-type]
        listed = list(refs)
        create = [
            {"handle": [number, n], "name": name, "type": type_name, "parameters": dict(parameters)}
            for n, (name, type_name, parameters) in enumerate(listed, 1)
        ]
        result = dispatcher.control_call(Method.CONFIGURE, [{"create": create, "drop": []}])
        assert isinstance(result, dict), result
        assert not result["errors"], result
        for n, (name, type_name, parameters) in enumerate(listed, 1):
            generation.handles[name] = n
            facts = InstanceFacts.from_wire(result["instances"][str(n)])
            generation.facts[name] = facts
            if facts.block_tokens:
                generation.block_tokens[name] = facts.block_tokens
            self.refs = [r for r in self.refs if r.name != name]
            self.refs.append(RefPlan(name, type_name, plugin.name, generation, types[type_name], parameters))
        self.clients[plugin.name] = client
        self.generations[plugin.name] = generation
        self.started.append(generation)
        return client

    def lose(self, name: str) -> None:
        """The process of a ref is gone for the plans to come; what its type declares is known."""
        self.refs = [replace(r, generation=None) if r.name == name else r for r in self.refs]

    def builtin(self, type_name: str, **parameters: object) -> None:
        """List a host built-in."""
        self.refs.append(RefPlan(type_name, type_name, None, None, None, parameters))

    def compile(
        self,
        *entries: str | tuple[str, float],
        profiles: Mapping[str, Sequence[str]] | None = None,
        options: Mapping[str, BindingOptions] | None = None,
        detector: str | None = None,
    ) -> Plan:
        """The plan of the refs as they are; entries are refs of the profile `default`, with a weight where given."""
        self._plans += 1
        listed = [ProfileEntryPlan(e) if isinstance(e, str) else ProfileEntryPlan(*e) for e in entries]
        made = (ProfileInput("default", tuple(listed)),) if entries else ()
        if profiles is not None:
            made = tuple(
                ProfileInput(name, tuple(ProfileEntryPlan(ref) for ref in refs)) for name, refs in profiles.items()
            )
        return compile_plan(self._plans, PlanInput(tuple(self.refs), made, options or {}, detector))

    def publish(
        self,
        *entries: str | tuple[str, float],
        profiles: Mapping[str, Sequence[str]] | None = None,
        options: Mapping[str, BindingOptions] | None = None,
        detector: str | None = None,
    ) -> None:
        """Compile and publish, see `compile`."""
        self.router.publish(self.compile(*entries, profiles=profiles, options=options, detector=detector))

    def start(
        self,
        count: int = 1,
        *,
        payloads: Sequence[Mapping[str, object]] = (),
        ids: Sequence[str] = (),
        **fields: object,
    ) -> list[asyncio.Future[Picked | Rejected]]:
        """Begin decisions in this tick; request n has `payloads[n]` and `ids[n]` if there are."""
        loop = asyncio.get_running_loop()
        futures = []
        for index in range(count):
            future: asyncio.Future[Picked | Rejected] = loop.create_future()
            prompt = str(fields.get("prompt", "hello"))
            headers = fields.get("headers", {})
            assert isinstance(headers, dict)
            request = InferenceRequest(
                id=ids[index] if index < len(ids) else f"r{index}",
                model="m",
                path="/v1/completions",
                headers=headers,
                body=prompt.encode(),
                payload=payloads[index] if index < len(payloads) else {"model": "m", "prompt": prompt},
                avoid=frozenset(map(str, fields.get("avoid", ()))),  # type: ignore[call-overload]  # ids
                priority=int(str(fields.get("priority", 0))),
            )
            self.requests.append(request)
            self.router.decide(request, partial(self._decided, request, future))
            futures.append(future)
        return futures

    def _decided(
        self, request: InferenceRequest, future: asyncio.Future[Picked | Rejected], decision: Picked | Rejected
    ) -> None:
        if isinstance(decision, Picked) and self.sends:
            self.router.sent(request, decision, decision.endpoint.id)
        future.set_result(decision)

    async def decide(
        self,
        count: int = 1,
        *,
        payloads: Sequence[Mapping[str, object]] = (),
        ids: Sequence[str] = (),
        **fields: object,
    ) -> list[Picked | Rejected]:
        """Make decisions that begin together."""
        started = self.start(count, payloads=payloads, ids=ids, **fields)
        return list(await asyncio.wait_for(asyncio.gather(*started), TIMEOUT_S))

    async def names(self, count: int = 1) -> list[str]:
        """Names of the endpoints picked."""
        picks = await self.decide(count)
        assert all(isinstance(p, Picked) for p in picks), picks
        return [p.endpoint.name for p in picks if isinstance(p, Picked)]


@pytest.fixture
def in_loop() -> Callable[[Callable[[Bay], object]], None]:
    """Runs an async test body with a bay on a loop of its own, and checks that every lease was given back."""

    def run(body: Callable[[Bay], object]) -> None:
        async def main() -> None:
            bay = Bay()
            await body(bay)  # type: ignore[misc]
            assert bay.router.deciding == 0
            assert bay.router.held == 0
            assert bay.router.mixed == 0
            assert all(g.leases == 0 for g in bay.started)

        asyncio.run(main())

    return run


@pytest.fixture(scope="session")
def make_bay() -> Callable[[], Bay]:
    """Makes a bay, inside a running loop."""
    return Bay
