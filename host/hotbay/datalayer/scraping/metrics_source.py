"""The polling source of metrics: asks an endpoint for its page and reads it, for the core extractor and all others.

One instance serves all endpoints; polls of different ones overlap, of one never. What is kept of an endpoint (its
connection, and what its last page said) lives until it is forgotten or moves.
"""

import ssl
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from hotbay.config.data_parameters import Tls
from hotbay.datalayer.endpoint import EndpointMetadata, format_authority, split_authority
from hotbay.datalayer.fetching.http_answer import Buffers
from hotbay.datalayer.fetching.metrics_client import MetricsClient, MetricsFetchError
from hotbay.datalayer.pages.engines import EngineSet
from hotbay.datalayer.pages.exposition import ExpositionError, form_of
from hotbay.datalayer.pages.extraction import EndpointMemory, MetricsPage, MetricsReader
from hotbay.datalayer.source import SourceError

__all__ = ["MIN_INTERVAL_S", "POLL_BUDGET_S", "MetricsPoller"]

MIN_INTERVAL_S: Final = 0.05
"""Reading costs the loop; nothing here is worth knowing more often."""

POLL_BUDGET_S: Final = 1.0


@dataclass(slots=True)
class _Known:
    """What is kept of one endpoint."""

    authority: str
    client: MetricsClient
    memory: EndpointMemory
    costs_s: tuple[float, float] = (0.0, 0.0)


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
    """

    type = "metrics-data-source"
    payload = MetricsPage

    def __init__(
        self,
        engines: EngineSet | None = None,
        *,
        path: str = "/metrics",
        port: int | None = None,
        tls: ssl.SSLContext | None = None,
        tls_files: Tls | None = None,
        interval_s: float = MIN_INTERVAL_S,
        budget_s: float = POLL_BUDGET_S,
        at_node: bool = False,
        name: str = "metrics-data-source",
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
        self._buffers = Buffers()
        self._known: dict[str, _Known] = {}
        self._wanted: frozenset[str] = frozenset()
        self._reader = MetricsReader(engines or EngineSet())

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
        connects = known.client.connects
        try:
            text, content_type = await known.client.fetch(self.budget_s)
        except MetricsFetchError as error:
            raise SourceError(error.reason, str(error)) from error
        finally:
            self.connects += known.client.connects - connects
        began_s = time.thread_time()
        try:
            return self._reader.read(text, endpoint.labels, form_of(content_type), known.memory)
        except ExpositionError as error:
            raise SourceError(error.reason, str(error)) from error
        finally:
            known.client.release()
            known.costs_s = (known.costs_s[1], time.thread_time() - began_s)

    def cost_s(self, endpoint_id: str) -> float:
        """What reading the endpoint's page takes of the thread: the less of the last two, as one is dear by chance now and then."""
        known = self._known.get(endpoint_id)
        return 0.0 if known is None else min(known.costs_s)

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
            host, port, authority=authority, path=self.path, tls=self._tls, buffers=self._buffers
        )  # fmt: skip
        known = self._known[endpoint.id] = _Known(authority, client, EndpointMemory())
        return known
