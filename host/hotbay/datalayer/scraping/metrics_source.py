"""The polling source of metrics: asks an endpoint for its page and reads it, for the core extractor and all others.

One instance serves all endpoints; polls of different ones overlap, of one never. What is kept of an endpoint (its
connection, and what its last page said) lives until it is forgotten or moves.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from hotbay.config.data_parameters import Tls
from hotbay.datalayer.endpoint import EndpointMetadata, format_authority, split_authority
from hotbay.datalayer.fetching.buffers import Buffers
from hotbay.datalayer.fetching.metrics_client import MetricsClient, MetricsFetchError
from hotbay.datalayer.fetching.tls import ClientTls
from hotbay.datalayer.fetching.turns import in_turns
from hotbay.datalayer.pages.engines import EngineSet
from hotbay.datalayer.pages.exposition import ExpositionError, form_of
from hotbay.datalayer.pages.extraction import EndpointMemory, MetricsPage, MetricsReader
from hotbay.datalayer.source import SourceError
from hotbay.errors import Problem
from hotbay.resolving.resolver import SYSTEM, Resolver

__all__ = ["MIN_INTERVAL_S", "POLL_BUDGET_S", "MetricsPoller"]

MIN_INTERVAL_S: Final = 0.05
"""Reading costs the loop; nothing here is worth knowing more often."""

POLL_BUDGET_S: Final = 1.0

COST_POLLS: Final = 8
"""Polls that an endpoint's cost is the mean of, so that a dear page now and then counts for what it takes."""


@dataclass(slots=True)
class _Known:
    """What is kept of one endpoint."""

    authority: str
    client: MetricsClient
    memory: EndpointMemory
    costs_s: deque[float] = field(default_factory=lambda: deque((0.0,) * COST_POLLS, COST_POLLS))


class MetricsPoller:
    """A `PollingSource` of `MetricsPage`.

    Args:
        engines: mappings to read pages by.
        path: of the page, printable ASCII.
        port: of the page, instead of the endpoint's own.
        tls: for https; None for http.
        tls_files: what `tls` was made of, with absolute paths: for a process that has to make it again.
        interval_s: from one page of an endpoint to the next.
        budget_s: time for a whole answer, connecting included.
        at_node: `port` is one of the machine that the endpoint runs on; it is the endpoint's own where that is not known.
        name: of this source.
        resolver: knows the addresses of endpoints that are named.
    """

    type = "metrics-data-source"
    payload = MetricsPage

    def __init__(
        self,
        engines: EngineSet | None = None,
        *,
        path: str = "/metrics",
        port: int | None = None,
        tls: ClientTls | None = None,
        tls_files: Tls | None = None,
        interval_s: float = MIN_INTERVAL_S,
        budget_s: float = POLL_BUDGET_S,
        at_node: bool = False,
        name: str = "metrics-data-source",
        resolver: Resolver = SYSTEM,
    ) -> None:
        self.name = name
        self.interval_s = interval_s
        self.connects = 0
        self.path = path
        self.port = port
        self.tls_files = tls_files
        self.budget_s = budget_s
        self.at_node = at_node
        self._tls = tls
        self._resolver = resolver
        self._buffers = Buffers()
        self._known: dict[str, _Known] = {}
        self._wanted: frozenset[str] = frozenset()
        self._reader = MetricsReader(engines or EngineSet())

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Why files of TLS that changed do not count. A process that polls in place of this one logs them."""
        return () if self._tls is None else self._tls.problems

    @property
    def engines(self) -> EngineSet:
        return self._reader.engines

    @property
    def wanted(self) -> frozenset[str]:
        """The names that `want` was called with."""
        return self._wanted

    def want(self, names: Iterable[str]) -> None:
        """Read these sample names, too, from the next page on: `MetricsPage.samples` has them."""
        wanted = self._wanted | frozenset(names)
        if wanted != self._wanted:
            self._wanted = wanted
            self.read_by(self.engines)

    def read_by(self, engines: EngineSet) -> None:
        """Read by these mappings from the next page on."""
        self._reader = MetricsReader(engines, self._wanted)
        for known in self._known.values():
            known.memory = EndpointMemory()

    async def poll(self, endpoint: EndpointMetadata) -> MetricsPage:
        """Return the page of the endpoint; the very object that the last poll returned if it says the same.

        Raises:
            SourceError: there is none, whole and in time.
        """
        known = self._known_of(endpoint)
        connects, spent_s = known.client.connects, known.client.spent_s
        read_s: list[float] = []
        try:
            text, content_type = await known.client.fetch(self.budget_s)
            try:
                reading = self._reader.reading(text, endpoint.labels, form_of(content_type), known.memory)
                return await in_turns(reading, read_s.append)
            finally:
                known.client.release()
        except (MetricsFetchError, ExpositionError) as error:
            raise SourceError(error.reason, str(error)) from error
        finally:
            self.connects += known.client.connects - connects
            known.costs_s.append(known.client.spent_s - spent_s + sum(read_s))

    def cost_s(self, endpoint_id: str) -> float:
        """What a poll of the endpoint takes of the thread, whether a page comes of it or not: framing, decoding and reading.

        The mean of the last COST_POLLS, or the less of the last two, if that is more: one alone is dear by chance now and then.
        """
        known = self._known.get(endpoint_id)
        if known is None:
            return 0.0
        return max(sum(known.costs_s) / COST_POLLS, min(known.costs_s[-1], known.costs_s[-2]))

    def forget(self, endpoint_id: str) -> None:
        """The endpoint is gone: close its connection."""
        known = self._known.pop(endpoint_id, None)
        if known is not None:
            known.client.close()

    def close(self) -> None:
        """Forget all."""
        for endpoint_id in tuple(self._known):
            self.forget(endpoint_id)

    def authority(self, endpoint: EndpointMetadata) -> str:
        """Where the endpoint's page is asked for, `host:port`."""
        if self.at_node and self.port is not None:
            return format_authority(endpoint.node_address or endpoint.address, self.port)
        if self.port is None or endpoint.metrics_host:
            return endpoint.metrics_authority
        return format_authority(endpoint.address, self.port)

    def _known_of(self, endpoint: EndpointMetadata) -> _Known:
        known, authority = self._known.get(endpoint.id), self.authority(endpoint)
        if known is not None and known.authority == authority:
            return known
        self.forget(endpoint.id)
        host, port = split_authority(authority)
        client = MetricsClient(
            host,
            port,
            authority=authority,
            path=self.path,
            tls=self._tls,
            buffers=self._buffers,
            resolver=self._resolver,
        )
        known = self._known[endpoint.id] = _Known(authority, client, EndpointMemory())
        return known
