"""The endpoints that the host's configuration lists, which has checked them, as endpoints. Pure."""

from collections.abc import Iterable, Mapping
from typing import Final, Protocol

from hotbay.datalayer.endpoint import EndpointMetadata, EndpointState

__all__ = ["ConfiguredEndpoint", "configured_endpoints"]

_NAMESPACE: Final = "default"


class _Url(Protocol):
    @property
    def scheme(self) -> str: ...
    @property
    def host(self) -> str: ...
    @property
    def port(self) -> int: ...


class ConfiguredEndpoint(Protocol):
    """An entry of `endpoints:` in the host's configuration."""

    @property
    def url(self) -> _Url: ...
    @property
    def effective_name(self) -> str: ...
    @property
    def labels(self) -> Mapping[str, str]: ...
    @property
    def weight(self) -> float: ...
    @property
    def state(self) -> str: ...
    @property
    def metrics_host(self) -> str | None: ...
    @property
    def node_address(self) -> str | None: ...


def configured_endpoints(entries: Iterable[ConfiguredEndpoint]) -> tuple[EndpointMetadata, ...]:
    """Turn the host configuration's entries, which it has checked, into endpoints."""
    return tuple(
        EndpointMetadata(
            id=f"{_NAMESPACE}/{entry.effective_name}",
            name=entry.effective_name,
            address=entry.url.host,
            port=entry.url.port,
            metrics_host=entry.metrics_host or "",
            labels=entry.labels,
            scheme=entry.url.scheme,
            state=EndpointState(entry.state),
            weight=entry.weight,
            node_address=entry.node_address or "",
        )
        for entry in entries
    )
