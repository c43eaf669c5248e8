"""What a discovery is, and how it tells what it finds.

An `EndpointDiscovery` finds model servers: from a file, from DNS, in a plugin's process, in a cluster. One object is one
run. Whatever it finds it tells to the `DiscoveryNotifier` of its run, which keeps the ordering contract: calls come from
one task, one after the other, and count in that order; a call from another task or thread is refused, because nobody
could say which of two calls came first; so is a call after the run has ended, which would speak over the next one.

Kubernetes is not among the discoveries here: one that watches a cluster is another `EndpointDiscovery`, which gives the
ports of one pod as endpoints of one server (`rank_index` is a port's position) and is ready after its first list.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Protocol

import anyio

from hotbay.datalayer.discovery.session import DiscoverySession, TooManyEndpointsError
from hotbay.datalayer.endpoint import EndpointEvent, EndpointMetadata
from hotbay.errors import Problem

__all__ = ["DiscoveryNotifier", "EndpointDiscovery", "NotifierEndedError", "OrderError"]

Apply = Callable[[tuple[EndpointEvent, ...]], None]
Report = Callable[[tuple[Problem, ...], tuple[Problem, ...]], None]


class OrderError(RuntimeError):
    """A second task or thread spoke to a notifier: which of the two was first cannot be told."""


class NotifierEndedError(RuntimeError):
    """A run spoke after it was ended. Another one may speak by then."""


class EndpointDiscovery(Protocol):
    """One run of a discovery. Made for each start anew, `run` once.

    `name` is what problems and warnings call it. `ready` is set at most once, by `run`, and only after a whole first
    sync: all that exists has been told by then. No endpoint at all is fine; after a failure it stays unset.
    """

    @property
    def name(self) -> str: ...
    @property
    def ready(self) -> anyio.Event: ...

    async def run(self, notifier: "DiscoveryNotifier") -> None:
        """Tell what exists, set `ready`, and tell what changes until cancelled.

        May raise whatever a `HostError` says best: the feed is started again later, and keeps what it had. So it is
        when this returns, which counts as a failure.
        """


class DiscoveryNotifier:
    """Takes what one run says. All calls are synchronous, from one task: that of the first call.

    Args:
        session: the run's.
        ready: the run's; once it is set, the next call or `sync` takes away what the run did not name.
        apply: puts events in force, in order.
        report: takes the problems and the warnings that hold from now on.
        earlier: what runs of the same configuration left: a last good form of what this run finds unreadable.
        refused: called at each endpoint that the run refused for where it is, with why.
        too_many: the problem of a run that names more than it may, told beside its own until one has room for all.
    """

    def __init__(
        self,
        session: DiscoverySession,
        ready: anyio.Event,
        apply: Apply,
        report: Report,
        *,
        earlier: Mapping[str, EndpointMetadata],
        refused: Callable[[str], None] = lambda _reason: None,
        too_many: Callable[[TooManyEndpointsError], Problem] | None = None,
    ) -> None:
        self.earlier = earlier
        self._session = session
        self._ready = ready
        self._apply = apply
        self._report = report
        self._refused = refused
        self._too_many = too_many
        self._crowd: tuple[Problem, ...] = ()
        self._told: tuple[tuple[Problem, ...], tuple[Problem, ...]] = ((), ())
        self._thread = threading.get_ident()
        self._caller: int | None = None
        self._has_ended = False

    @property
    def held(self) -> Mapping[str, EndpointMetadata]:
        """What the feed holds now, by id; before the sync also what earlier runs left."""
        return self._session.held

    @property
    def most(self) -> int:
        """How many the run may name."""
        return self._session.most

    def upsert(self, endpoint: EndpointMetadata) -> None:
        """The endpoint exists, with this metadata from now on.

        Raises:
            OrderError: another task or thread calls than before.
            NotifierEndedError: the run is over.
            TooManyEndpointsError: nothing has changed.
        """
        self._enter()
        with self._room():
            self._apply(self._session.upsert(endpoint))

    def delete(self, endpoint_id: str) -> None:
        """The endpoint is gone; nothing happens when there is none. Raises as `upsert` does."""
        self._enter()
        self._apply(self._session.delete(endpoint_id))

    def replace(self, endpoints: Iterable[EndpointMetadata], *, is_all: bool = False) -> None:
        """These exist and no others, as one step: upserts in their order, then deletes. Raises as `upsert` does.

        `is_all`, or `ready` that is set before: they are all that there is, so that what earlier runs left makes room in the
        same step.
        """
        self._check_caller()
        with self._room():
            self._apply(self._session.replace(endpoints, is_all=is_all or self._ready.is_set()))
        if self._crowd:
            self._crowd = ()
            self._report(*self._told)

    def report(self, problems: Sequence[Problem], warnings: Sequence[Problem] = ()) -> None:
        """What is wrong from now on, in place of what was said before; empty when all is well. Raises as `upsert` does."""
        self._enter()
        self._told = tuple(problems), tuple(warnings)
        self._report((*self._crowd, *problems), self._told[1])

    def refuse(self, reason: str) -> None:
        """Count an endpoint that exists and may not be used for where it is; `report` says which. Raises as `upsert` does."""
        self._enter()
        self._refused(reason)

    def sync(self) -> bool:
        """For who runs the discovery: take the sync over if the run has set `ready`; whether it has."""
        if self._has_ended or not self._ready.is_set():
            return self._session.is_synced
        if not self._session.is_synced:
            self._apply(self._session.sync())
        return True

    def end(self) -> None:
        """For who runs the discovery: the run is over, and refused from now on."""
        self._has_ended = True

    @contextmanager
    def _room(self) -> Iterator[None]:
        try:
            yield
        except TooManyEndpointsError as error:
            if self._too_many is not None:
                self._crowd = (self._too_many(error),)
                self._report((*self._crowd, *self._told[0]), self._told[1])
            raise

    def _enter(self) -> None:
        self._check_caller()
        self.sync()

    def _check_caller(self) -> None:
        if self._has_ended:
            raise NotifierEndedError("this run of the discovery is over: expected no call after it was cancelled")
        if threading.get_ident() != self._thread:
            raise OrderError("expected calls from the task that runs the discovery, found one from another thread")
        task = anyio.get_current_task()
        if self._caller is None:
            self._caller = task.id
        elif self._caller != task.id:
            raise OrderError(
                f"expected all calls from one task, found one from the task {task.name!r}: calls of several tasks have "
                "no order; send what they find through one queue"
            )
