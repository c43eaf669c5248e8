"""A source in plugin processes that watches objects of one kind by itself, in the form of `hotbay.datalayer.source`.

What it tells is heard as `runs` says: version by version, each from its `ready` on. What that changes becomes events here, in
order: of a run that is heard each change is one event, and while one waits nothing more is read; when another run takes over,
its objects are compared with what was told, so that none is told twice, and none goes that is still there. What was told is
known as long as the host runs, whatever becomes of processes.
"""

import logging
from collections import deque
from collections.abc import Callable
from functools import partial

import anyio
from hotbay_sdk.protocol import Method

from hotbay.config.data_types import ObjectKind
from hotbay.config.endpoint_bounds import MAX_ENDPOINTS
from hotbay.datalayer.remote.calls import CallOutcomes, Generations
from hotbay.datalayer.remote.object_records import ObjectReader, PackedObject
from hotbay.datalayer.remote.runs import RunKind, Runs
from hotbay.datalayer.remote.succession import Drop, Put
from hotbay.datalayer.source import Emit, EventType, ObjectEvent
from hotbay.errors import PluginFault, Problem
from hotbay.rpc.leases import LiveRef

__all__ = ["RemoteWatchSource", "Telling"]

logger = logging.getLogger(__name__)


class Telling:
    """What is to be told of objects: a `Listener` that makes events of what exists. `news` is called when one waits.

    A document is made of an object as its event is taken, and of no other.

    `held` is what is known once all that waits is told; `has_room` while nothing does. Bounds: what waits is at most what one
    turn of a run brings, or, at a take-over, each object once; objects are shared by all who know them.
    """

    most = MAX_ENDPOINTS

    def __init__(self, kind: ObjectKind) -> None:
        self.held: dict[str, PackedObject] = {}
        self.problems: tuple[Problem, ...] = ()
        self.news: Callable[[], None] = lambda: None
        self._kind = kind
        self._told: dict[str, PackedObject] = {}
        self._again: set[str] = set()
        self._waiting: deque[Put[PackedObject] | Drop] = deque()

    @property
    def has_room(self) -> bool:
        return not self._waiting

    def upsert(self, item: PackedObject) -> None:
        if not item.says_the_same(self.held.get(item.id)):
            self.held[item.id] = item
            self._wait(Put(item))

    def delete(self, item_id: str) -> None:
        if self.held.pop(item_id, None) is not None:
            self._wait(Drop(item_id))

    def replace(self, items: tuple[PackedObject, ...]) -> None:
        """Another run is heard: whatever waits is told no more, and in its place what leads from what was told to this."""
        self.held = {item.id: item for item in items}
        self._waiting = deque(Put(item) for item in items if self._is_news(item))
        self._waiting.extend(Drop(item_id) for item_id in self._told if item_id not in self.held)
        self.news()

    def _is_news(self, item: PackedObject) -> bool:
        return item.id in self._again or not item.says_the_same(self._told.get(item.id))

    def tell_again(self) -> None:
        """When the next run is heard, tell all that was told, and is still there, as if it came."""
        self._again = set(self._told)

    def report(self, problems: tuple[Problem, ...]) -> None:
        for problem in problems:
            if problem not in self.problems:
                logger.error("source_problem last_good=kept: %s", problem)
        self.problems = problems

    def next_event(self) -> ObjectEvent | None:
        """The event that comes next, which counts as told from now on; None while nothing waits."""
        if not self._waiting:
            return None
        step = self._waiting.popleft()
        if isinstance(step, Drop):
            self._again.discard(step.item_id)
            gone = self._told.pop(step.item_id)
            return ObjectEvent(EventType.DELETE, self._kind, gone.id, gone.document())
        self._again.discard(step.item.id)
        self._told[step.item.id] = step.item
        return ObjectEvent(EventType.ADD_OR_UPDATE, self._kind, step.item.id, step.item.document())

    def _wait(self, step: Put[PackedObject] | Drop) -> None:
        self._waiting.append(step)
        self.news()


class RemoteWatchSource:
    """A `NotificationSource` that finds its objects itself.

    Args:
        type_name: the plugin type.
        kind: of its objects, as it declares.
        ref: the plugin ref.
        generations: where it is answered.
        outcomes: told of runs that end, do not tell everything, or tell what cannot be used.
        now: monotonic seconds.
    """

    def __init__(
        self,
        type_name: str,
        kind: ObjectKind,
        ref: str,
        generations: Generations,
        outcomes: CallOutcomes,
        *,
        now: Callable[[], float] = anyio.current_time,
    ) -> None:
        self.name = ref
        self.type = type_name
        self.kind = kind
        self._telling = Telling(kind)
        self._runs = Runs(ref, self._run_kind(), generations, outcomes, now=now)

    @property
    def problems(self) -> tuple[Problem, ...]:
        """What it told that cannot be used, and that it has not told everything for long."""
        return self._telling.problems

    async def notify(self, event: ObjectEvent) -> ObjectEvent | None:
        return event

    def tell_again(self) -> None:
        """See `TellsAgain`."""
        self._telling.tell_again()

    async def run(self, emit: Emit) -> None:
        """Emit what its processes tell, until cancelled; run again, it goes on from what was told. Once at a time."""
        telling, runs = self._telling, self._runs
        async with anyio.create_task_group() as group:
            group.start_soon(runs.run, telling)
            while True:
                news = anyio.Event()
                telling.news = news.set
                while (event := telling.next_event()) is not None:
                    await emit(event)
                runs.note()
                await news.wait()

    def _run_kind(self) -> RunKind[PackedObject]:
        name = f"source '{self.name}'"
        reader: Callable[[], ObjectReader] = partial(ObjectReader, name, self.kind)
        return RunKind(Method.SOURCE_WATCH, "watch", name, "objects", reader, self._check)

    def _check(self, live: LiveRef) -> None:
        """A version that is not what the ones before it were is not asked. Raises `PluginFault`."""
        declared = live.declaration
        if "watch" not in declared.points or declared.data.payload != self.kind.payload:
            raise PluginFault(
                "INVALID_PACKAGE",
                f"'{self.name}' stands where watch of {self.kind.payload} is asked for; its type '{declared.type}' answers "
                f"{', '.join(declared.points)} of {declared.data.payload or 'nothing'}",
                hint="a type goes on answering what it answered: give another one another name",
            )
