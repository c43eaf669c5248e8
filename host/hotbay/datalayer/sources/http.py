"""Fetches one document from each endpoint over HTTP: what every polling source of the host has in common.

One kept-alive connection for each endpoint; nothing but a whole answer of status 200 and bounded size counts, redirects are not
followed (see `metrics_client`).
"""

from dataclasses import dataclass

from hotbay.datalayer.endpoint import EndpointMetadata, format_authority, split_authority
from hotbay.datalayer.fetching.metrics_client import Fetched, MetricsClient, MetricsFetchError
from hotbay.datalayer.fetching.tls import ClientTls
from hotbay.datalayer.source import STEP_TIMEOUT_S, SourceError

__all__ = ["DocumentClient", "Where"]


@dataclass(frozen=True, slots=True)
class Where:
    """Where an endpoint's document is. `port` None: where its metrics are; `tls` None: http."""

    path: str
    port: int | None = None
    tls: ClientTls | None = None

    def authority(self, endpoint: EndpointMetadata) -> str:
        """`host:port` of this endpoint's document: a written port is one of the endpoint's own address."""
        return endpoint.metrics_authority if self.port is None else format_authority(endpoint.address, self.port)


class DocumentClient:
    """Fetches documents; calls for one endpoint must not overlap."""

    def __init__(self, where: Where, *, accept: str, budget_s: float = STEP_TIMEOUT_S) -> None:
        self._where = where
        self._accept = accept
        self._budget_s = budget_s
        self._clients: dict[str, tuple[str, MetricsClient]] = {}

    async def fetch(self, endpoint: EndpointMetadata) -> Fetched:
        """Return the endpoint's document. Raises `SourceError`."""
        authority = self._where.authority(endpoint)
        known, client = self._clients.get(endpoint.id, ("", None))
        if client is None or known != authority:
            self.forget(endpoint.id)
            host, port = split_authority(authority)
            client = MetricsClient(
                host, port, authority=authority, path=self._where.path, accept=self._accept, tls=self._where.tls
            )
            self._clients[endpoint.id] = authority, client
        try:
            return await client.fetch(self._budget_s)
        except MetricsFetchError as error:
            raise SourceError(error.reason, f"{authority}: {error}") from error

    def forget(self, endpoint_id: str) -> None:
        """Close the endpoint's connection, if there is one."""
        known = self._clients.pop(endpoint_id, None)
        if known is not None:
            known[1].close()
