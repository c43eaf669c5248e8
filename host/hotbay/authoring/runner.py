"""One plugin process, one ref, and calls to it: what a host does, without a router around it."""

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import anyio
from hotbay_sdk.protocol import METHODS, Method, TypeDeclaration, Value
from hotbay_sdk.protocol.calls import POINT_FILTER, POINT_SCORE, InstanceFacts, attribute_kinds

from hotbay.authoring.arguments import Batch, Row, picked, produced, row_errors, scored, survivors
from hotbay.authoring.asking import ASKED_POINTS, Asked
from hotbay.authoring.request_calls import (
    ANSWERED_POINTS,
    TOLD_POINTS,
    answered_rows,
    arguments_of,
    parse_arguments,
    read_answer,
    shown_parsed,
)
from hotbay.authoring.runnable import Runnable
from hotbay.errors import HostError, InputError, PluginFault, Problem
from hotbay.process.log import LogSink
from hotbay.rollout.instance import Instance, StartOptions
from hotbay.rollout.refs import RefSpec
from hotbay.rpc.client import PluginClient
from hotbay.rpc.data import Flow
from hotbay.rpc.leases import Origin
from hotbay.rpc.wire import Outcome

REF: Final = "call"
GENERATION: Final = 1
DRAIN_S: Final = 2.0
PATIENCE_S: Final = 10.0
"""Deadline of a call. Longer than a host's, so that a slow answer is seen and its time told."""
MAX_TURNS: Final = 8
"""A profile handler is asked again until it names no profile; one that never does is at fault."""
RUN_POINTS: Final = ("discover", "watch")
"""Those whose calls go on, and tell what they find."""
POINTS: Final = (
    *("score", "filter", "pick", "produce", "profile_handler"),
    *ANSWERED_POINTS,
    "parse",
    *TOLD_POINTS,
    *ASKED_POINTS,
    *RUN_POINTS,
    "dump_state",
)

__all__ = ["POINTS", "RUN_POINTS", "Called", "Target", "running"]


@dataclass(frozen=True, slots=True)
class Called:
    """What calls gave. `rows` has one entry for each request, or call of the data layer, from the last round.

    Errors are by request, −1 for all.
    """

    point: str
    rows: Sequence[object]
    errors: Sequence[tuple[int, str]]
    latencies_s: Sequence[float]
    deadline_s: float


@dataclass(frozen=True, slots=True)
class Target:
    """A configured ref in a running process. `kinds` are those of the attributes that types of its package make."""

    declaration: TypeDeclaration
    facts: InstanceFacts
    kinds: Mapping[str, str]
    _client: PluginClient
    _handle: int

    def point(self, wanted: str | None) -> str:
        """The point to call: the one that is wanted, or the first that answers. Raises `InputError`."""
        points = [point for point in POINTS if point in self.declaration.points]
        if wanted is None and points:
            return points[0]
        if wanted is None or wanted not in points:
            wanted = wanted or "anything that can be called"
            hint = f"It answers {', '.join(self.declaration.points)}."
            raise InputError(
                [Problem("CONFIG_INVALID", f"{self.declaration.type} does not answer {wanted}", hint=hint)]
            )
        return wanted

    async def call(self, point: str, batch: Batch, *, picks: int, profiles: Sequence[str], repeat: int) -> Called:
        """Call `repeat` times, one after the other. Raises `HostError` for a call that fails as a whole."""
        calls: Mapping[str, Callable[[], Awaitable[tuple[Sequence[object], list[tuple[int, str]]]]]] = {
            "score": lambda: self._run(POINT_SCORE, batch),
            "filter": lambda: self._run(POINT_FILTER, batch),
            "pick": lambda: self._pick(batch, picks),
            "produce": lambda: self._produce(batch),
            "profile_handler": lambda: self._profiles(batch, profiles),
            "parse": lambda: self._parse(batch),
            "dump_state": self._dump,
        }
        one_way = point in TOLD_POINTS or (point == "pre_request" and not self._sets_headers)
        latencies_s = []
        for _ in range(repeat):
            begin_s = time.perf_counter()
            if point in calls:
                rows, errors = await calls[point]()
            elif one_way:
                rows, errors = await self._notify(point, batch)
            else:
                rows, errors = await self._answered(point, batch)
            latencies_s.append(time.perf_counter() - begin_s)
        return Called(point, rows, errors, latencies_s, METHODS[_METHOD[point]].deadline_ms / 1000)

    async def ask_each(self, point: str, asked: Sequence[Asked], *, repeat: int) -> Called:
        """Make these calls of the data layer, and all of them `repeat` times.

        An error is by the number of the call. Raises `HostError` when the process ended.
        """
        latencies_s: list[float] = []
        for _ in range(repeat):
            rows: list[object] = []
            errors: list[tuple[int, str]] = []
            for index, one in enumerate(asked):
                begin_s = time.perf_counter()
                try:
                    found = await self._client.control_call(
                        one.method, [self._handle_of, *one.args], deadline_s=PATIENCE_S
                    )
                    latencies_s.append(time.perf_counter() - begin_s)
                    rows.append(one.read(found))
                except HostError as error:
                    if self._client.fault is not None:
                        raise
                    latencies_s.append(time.perf_counter() - begin_s)
                    rows.append({})
                    errors.append((index, f"{error.code}: {error.message}"))
        return Called(point, rows, errors, latencies_s, METHODS[asked[0].method].deadline_ms / 1000)

    def begin_run(self, point: str, came: Callable[[], None], done: Callable[[Outcome], None]) -> Flow:
        """Make the call that goes on, `discover` or `watch`; see `PluginClient.follow`."""
        return self._client.follow(_METHOD[point], [self._handle_of], came=came, done=done)

    async def _run(self, number: int, batch: Batch) -> tuple[Sequence[Row], list[tuple[int, str]]]:
        args = [[[number, self._handle_of]], batch.view(), batch.mask(), batch.request_columns()]
        result = await self._ask(Method.RUN, args)
        return (scored if number == POINT_SCORE else survivors)(result, batch), _texts(result)

    async def _pick(self, batch: Batch, picks: int) -> tuple[Sequence[Row], list[tuple[int, str]]]:
        args = [self._handle_of, batch.view(), batch.mask(), batch.totals(), batch.request_columns(), picks]
        result = await self._ask(Method.PICK, args)
        return picked(result, batch), _texts(result)

    async def _produce(self, batch: Batch) -> tuple[Sequence[Row], list[tuple[int, str]]]:
        result = await self._ask(Method.PRODUCE, [self._handle_of, batch.view(), batch.mask(), batch.request_columns()])
        return produced(result, batch), _texts(result)

    @property
    def _sets_headers(self) -> bool:
        return bool(self.facts.request_headers or self.facts.response_headers)

    async def _answered(self, point: str, batch: Batch) -> tuple[Sequence[object], list[tuple[int, str]]]:
        result = await self._ask(ANSWERED_POINTS[point], arguments_of(point, self._handle_of, batch))
        return answered_rows(point, result, batch), [] if point == "saturation" else _texts(result)

    async def _parse(self, batch: Batch) -> tuple[Sequence[object], list[tuple[int, str]]]:
        rows: list[object] = []
        for args in parse_arguments(self._handle_of, batch):
            rows.append(read_answer(shown_parsed, await self._ask(Method.PARSE, args)))
        return rows, []

    async def _dump(self) -> tuple[Sequence[object], list[tuple[int, str]]]:
        found = await self._client.control_call(Method.DUMP_STATE, [self._handle_of], deadline_s=PATIENCE_S)
        return [found], []

    async def _notify(self, point: str, batch: Batch) -> tuple[Sequence[object], list[tuple[int, str]]]:
        self._client.notify(_METHOD[point], arguments_of(point, self._handle_of, batch))
        # Nothing answers a one-way call. A call behind it that does nothing says that it was handled.
        await self._ask(Method.RUN, [[], batch.view(), None, batch.request_columns()])
        return [], []

    async def _profiles(self, batch: Batch, profiles: Sequence[str]) -> tuple[Sequence[Row], list[tuple[int, str]]]:
        rows: list[Row] = []
        for request in batch.requests:
            one = replace(batch, requests=(request,))
            rows.append(await self._handle_profiles(one, profiles))
        return rows, []

    async def _handle_profiles(self, one: Batch, profiles: Sequence[str]) -> list[str]:
        """Profiles in the order in which they would run; each is taken to give every candidate."""
        results: dict[str, Value] = {}
        for _ in range(MAX_TURNS):
            named = await self._ask(
                Method.PROFILE_PICK, [self._handle_of, one.view(), one.request_columns(), list(profiles), results]
            )
            if not isinstance(named, list) or not all(isinstance(name, str) for name in named):
                raise PluginFault("BAD_RESULT", "a list of profile names expected")
            if not named:
                args = [self._handle_of, one.view(), one.request_columns(), results]
                merged = await self._ask(Method.PROFILE_PROCESS, args)
                primary = merged.get("primary") if isinstance(merged, dict) else None
                return [*results, f"primary: {primary!r}" if merged is not None else "nothing to go on with"]
            results |= {str(name): [*one.members] for name in named}
        raise PluginFault("BAD_RESULT", f"names profiles without end: {', '.join(results)[:200]}")

    @property
    def _handle_of(self) -> list[int]:
        return [GENERATION, self._handle]

    async def _ask(self, method: Method, args: Sequence[object]) -> Value:
        answered = anyio.Event()
        outcomes: list[Outcome] = []

        def done(outcome: Outcome) -> None:
            outcomes.append(outcome)
            answered.set()

        self._client.start_call(method, args, deadline_s=PATIENCE_S, done=done)
        await answered.wait()
        (outcome,) = outcomes
        if isinstance(outcome, HostError):
            raise outcome
        return outcome


_METHOD: Final = {
    "score": Method.RUN,
    "filter": Method.RUN,
    "pick": Method.PICK,
    "produce": Method.PRODUCE,
    "profile_handler": Method.PROFILE_PICK,
    **ANSWERED_POINTS,
    **TOLD_POINTS,
    "parse": Method.PARSE,
    "dump_state": Method.DUMP_STATE,
    "discover": Method.DISCOVER,
    "watch": Method.SOURCE_WATCH,
}


def _texts(result: Value) -> list[tuple[int, str]]:
    return [(request, f"{error.code}: {error.message}") for request, error in row_errors(result)]


@asynccontextmanager
async def running(
    runnable: Runnable, type_name: str, parameters: Mapping[str, object], work: Path, log: LogSink
) -> AsyncIterator[Target]:
    """Start the process, make one ref of the type, and retire it at the end. Raises `HostError`."""
    instance = Instance.launch(runnable.spec(work), log, lambda _: None)
    failures: list[HostError] = []
    async with anyio.create_task_group() as group:
        group.start_soon(instance.watch)
        try:
            yield await _configured(instance, runnable, type_name, parameters)
            await instance.retire(DRAIN_S)
        except HostError as error:
            # Raised below: a task group would wrap it.
            failures.append(error)
        finally:
            with anyio.CancelScope(shield=True):
                await instance.kill()
    if failures:
        raise failures[0]


async def _configured(
    instance: Instance, runnable: Runnable, type_name: str, parameters: Mapping[str, object]
) -> Target:
    options = StartOptions()
    origin = Origin(runnable.plugin_id, runnable.version, runnable.rev, runnable.digest)
    generation = await instance.handshake(origin, GENERATION, runnable.types, options)
    (created,) = await instance.create([RefSpec(REF, type_name, parameters)], options)
    kinds = attribute_kinds(generation.types.values())
    return Target(generation.types[type_name], created.facts, kinds, instance.client, created.handle)
