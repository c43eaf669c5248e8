"""A discovery in plugin processes: what its runs tell of endpoints, told to the one notifier of the host's own run.

Whose word counts, and from when on, is `runs`' to say. Here is what is of endpoints alone: the host's run is ready once the first of
the plugin's has told everything; no more endpoints are taken than there is room for; and one that is named where no model
server of a plugin is counts as refused.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Protocol

import anyio
from hotbay_sdk.protocol import Method

from hotbay.datalayer.discovery.allowed import ADDRESS_REFUSED, RESERVED
from hotbay.datalayer.discovery.places import Own
from hotbay.datalayer.discovery.session import TooManyEndpointsError
from hotbay.datalayer.endpoint import EndpointMetadata
from hotbay.datalayer.remote.calls import CallOutcomes, Generations
from hotbay.datalayer.remote.records import RecordReader
from hotbay.datalayer.remote.runs import RunKind, Runs
from hotbay.errors import PluginFault, Problem

__all__ = ["Notifier", "RemoteDiscovery"]


class Notifier(Protocol):
    """Where it is told what exists; one task calls."""

    @property
    def held(self) -> Mapping[str, EndpointMetadata]: ...
    @property
    def most(self) -> int: ...
    def upsert(self, endpoint: EndpointMetadata) -> None: ...
    def delete(self, endpoint_id: str) -> None: ...
    def replace(self, endpoints: "tuple[EndpointMetadata, ...]", *, is_all: bool) -> None: ...
    def report(self, problems: "tuple[Problem, ...]") -> None: ...
    def refuse(self, reason: str) -> None: ...


class RemoteDiscovery:
    """An `EndpointDiscovery`; one object is one run of the host's, over any number of processes.

    Args:
        ref: the plugin ref.
        generations: where it is answered.
        outcomes: told of every run that ended by itself, or does not tell everything.
        now: monotonic seconds.
        own: whether an address and a port are the host's own.
    """

    def __init__(
        self,
        ref: str,
        generations: Generations,
        outcomes: CallOutcomes,
        *,
        now: Callable[[], float] = anyio.current_time,
        own: Own = lambda _address, _port: False,
    ) -> None:
        self.name = f"discovery '{ref}'"
        self.ready = anyio.Event()
        self._notifier: Notifier | None = None
        kind: RunKind[EndpointMetadata] = RunKind(
            Method.DISCOVER,
            "discover",
            self.name,
            "endpoints",
            partial(RecordReader, self.name, own),
            lambda _live: None,
            refused=self._refused,
        )
        self._runs = Runs(ref, kind, generations, outcomes, now=now)

    async def run(self, notifier: Notifier) -> None:
        """Tell what exists until cancelled."""
        self._notifier = notifier
        await self._runs.run(_Pool(self.name, notifier, self.ready))

    def _refused(self, problem: Problem) -> None:
        """An endpoint that cannot be used costs its plugin nothing; where it may not be, is the operator's to know."""
        assert self._notifier is not None, "nothing is told before it runs"
        if problem.code == ADDRESS_REFUSED:
            self._notifier.refuse(RESERVED)


class _Pool:
    """What is heard, on its way to the notifier. It always has room: what is told there is in force when the call returns."""

    has_room = True

    def __init__(self, name: str, notifier: Notifier, ready: anyio.Event) -> None:
        self._name = name
        self._notifier = notifier
        self._ready = ready

    @property
    def held(self) -> Mapping[str, EndpointMetadata]:
        return self._notifier.held

    @property
    def most(self) -> int:
        return self._notifier.most

    def upsert(self, item: EndpointMetadata) -> None:
        try:
            self._notifier.upsert(item)
        except TooManyEndpointsError as error:
            raise self._too_many(error) from error

    def delete(self, item_id: str) -> None:
        self._notifier.delete(item_id)

    def replace(self, items: tuple[EndpointMetadata, ...]) -> None:
        """A run has told everything: it is heard from now on, and the host's run is ready."""
        try:
            self._notifier.replace(items, is_all=True)
        except TooManyEndpointsError as error:
            raise self._too_many(error) from error
        self._ready.set()

    def report(self, problems: tuple[Problem, ...]) -> None:
        self._notifier.report(problems)

    def _too_many(self, error: TooManyEndpointsError) -> PluginFault:
        return PluginFault("BAD_RESULT", f"{self._name}: {error}")
