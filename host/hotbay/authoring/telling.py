"""What a discovery or a watch tells, in its order, as a host reads it: until it says ready, or for as long as is wanted.

A run that a host would not hear is an error: one that does not say ready in time, ends before it, tells what is no record, or
does not come to an end when it is over. What a host would refuse of what it tells is one, too.
"""

import math
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from time import monotonic
from typing import Final

import anyio
import anyio.abc

from hotbay.authoring.runner import Target
from hotbay.datalayer.endpoint import EndpointMetadata, format_authority
from hotbay.datalayer.endpoint_rows import wire_row
from hotbay.datalayer.remote.object_records import ObjectReader, PackedObject
from hotbay.datalayer.remote.records import Gone, Named, RecordReader, Refused
from hotbay.datalayer.remote.records import Told as Ready
from hotbay.datalayer.remote.wire_events import object_kind_of
from hotbay.errors import HostError, PluginFault, Problem
from hotbay.rpc.wire import Outcome

__all__ = ["Bound", "Ran", "Told", "tell"]

READY_WITHIN_S: Final = 15.0
"""A host counts a run as failing that has not said ready by then."""
ENDED_WITHIN_S: Final = 10.0
"""A host replaces a process whose run goes on so long after it is over."""


@dataclass(frozen=True, slots=True)
class Bound:
    """How long to listen: until ready, or on and on, `for_s` seconds at most, until a signal comes."""

    follow: bool = False
    for_s: float = math.inf
    ready_within_s: float = READY_WITHIN_S


@dataclass(frozen=True, slots=True)
class Told:
    """One record: `upsert`, `delete`, `ready` or `refused`.

    `name` is the id of an endpoint or the key of an object; `thing` what is said of it; `why` what is wrong with one that is
    refused; `where` is the authority of an endpoint. `after_s` is from the call on; `count` how many things are there now.
    """

    what: str
    name: str
    after_s: float
    count: int
    thing: object = None
    where: str = ""
    why: Problem | None = None


@dataclass(frozen=True, slots=True)
class Ran:
    """How a run went. `ready_s` is None where it never said ready; `ended` says that it ended by itself."""

    point: str
    told: tuple[Told, ...]
    ready_s: float | None
    ended: bool
    errors: tuple[HostError, ...]


async def tell(target: Target, point: str, bound: Bound, told: Callable[[str, Told], None]) -> Ran:
    """Begin a run, listen, and end it. `told` is given every record as it comes. Needs the main thread.

    What goes wrong with the run, the end of its process too, is among the errors. Raises `HostError` when the call could
    not be made.
    """
    return await _Run(target, point, told).run(bound)


class _Run:
    def __init__(self, target: Target, point: str, told: Callable[[str, Told], None]) -> None:
        self._point = point
        self._tell = told
        self._read = _reader(target, point)
        self._begun_s = monotonic()
        self._news = anyio.Event()
        self._outcome: list[Outcome] = []
        self._known: set[str] = set()
        self._told: list[Told] = []
        self._errors: list[HostError] = []
        self._ready_s: float | None = None
        self._flow = target.begin_run(point, self._came, self._ended)

    def _came(self) -> None:
        self._news.set()

    def _ended(self, outcome: Outcome) -> None:
        self._outcome.append(outcome)
        self._news.set()

    async def run(self, bound: Bound) -> Ran:
        try:
            with anyio.move_on_after(bound.ready_within_s):
                await self._listen(lambda: self._ready_s is not None)
            if self._ready_s is None and not self._outcome:
                self._fail("DEADLINE_EXCEEDED", f"it did not say ready within {bound.ready_within_s:g} s", _SAY_READY)
            elif bound.follow and not self._outcome:
                await self._follow(bound.for_s)
        except PluginFault as fault:
            self._errors.append(fault)
        ended = bool(self._outcome)
        if ended:
            self._judge_end(self._outcome[0])
        else:
            await self._end()
        return Ran(self._point, tuple(self._told), self._ready_s, ended, tuple(self._errors))

    async def _follow(self, for_s: float) -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(_cancel_on_signal, group.cancel_scope)
            try:
                with anyio.move_on_after(for_s):
                    await self._listen(lambda: False)
            except PluginFault as fault:
                # Not through the group, which would wrap it.
                self._errors.append(fault)
            group.cancel_scope.cancel()

    async def _listen(self, enough: Callable[[], bool]) -> None:
        """Take what comes until it is enough or the run is over. Raises `PluginFault` for what is no record."""
        while True:
            self._news = anyio.Event()
            for record in self._read(self._flow.take()):
                self._take(record)
                if enough():
                    # What it told behind it is read when somebody listens on.
                    return
            if self._outcome:
                return
            await self._news.wait()

    def _take(self, record: object) -> None:
        after_s = monotonic() - self._begun_s
        match record:
            case Named(item):
                self._known.add(item.id)
                made = Told("upsert", item.id, after_s, len(self._known), *_thing(item))
            case Gone(name):
                self._known.discard(name)
                made = Told("delete", name, after_s, len(self._known))
            case Refused(name, problem):
                made = Told("refused", name, after_s, len(self._known), why=problem)
                found = (
                    f": {problem.path}: expected {problem.expected}, found {problem.found}" if problem.expected else ""
                )
                self._fail(problem.code, f"{problem.message}{found}", problem.hint)
            case Ready():
                if self._ready_s is None:
                    self._ready_s = after_s
                made = Told("ready", "", after_s, len(self._known))
            case _:
                raise AssertionError("a reader gives records")
        self._told.append(made)
        self._tell(self._point, made)

    def _judge_end(self, outcome: Outcome) -> None:
        if isinstance(outcome, HostError):
            self._errors.append(outcome)
        elif self._ready_s is None:
            self._fail("BAD_RESULT", "it returned before it said ready", _SAY_READY)

    async def _end(self) -> None:
        self._flow.cancel()
        with anyio.move_on_after(ENDED_WITHIN_S):
            while not self._outcome:
                self._news = anyio.Event()
                await self._news.wait()
            return
        hint = "what it waits in must end when the run is over, as notifier.wait does"
        self._fail("DEADLINE_EXCEEDED", f"it still went on {ENDED_WITHIN_S:g} s after it was over", hint)

    def _fail(self, code: str, message: str, hint: str) -> None:
        self._errors.append(PluginFault(code, message, hint=hint))


_SAY_READY: Final = "call notifier.ready() once all that is there was told: a host hears nothing of a run before"


def _reader(target: Target, point: str) -> Callable[[bytes], Iterator[object]]:
    name = target.declaration.type
    if point == "discover":
        return RecordReader(name).feed
    try:
        kind = object_kind_of(target.declaration.data.payload)
    except (TypeError, ValueError) as error:
        raise PluginFault("INVALID_PACKAGE", f"its payload is none: {error}") from error
    if kind is None:
        raise PluginFault("INVALID_PACKAGE", "what watches declares object:GROUP/VERSION/KIND as its payload")
    return ObjectReader(name, kind).feed


def _thing(item: EndpointMetadata | PackedObject) -> tuple[object, str]:
    if isinstance(item, PackedObject):
        return item.document(), ""
    return wire_row(item), format_authority(item.address, item.port)


async def _cancel_on_signal(scope: anyio.CancelScope) -> None:
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async for _ in signals:
            scope.cancel()
            return
