"""An endpoint and what one scrape said about it, as values.

An endpoint is one model server address. Its id is `namespace/name` and names it for its whole life; address, labels,
state and weight may change under the same id. `Metrics` holds what a single page reported: None means that the page
said nothing about that field, which is not the same as zero.
"""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

__all__ = [
    "Delete",
    "EndpointEvent",
    "EndpointMetadata",
    "EndpointState",
    "Metrics",
    "Upsert",
    "format_authority",
    "split_authority",
]


class EndpointState(enum.StrEnum):
    """Whether an endpoint may be picked. A cordoned one finishes what it has and gets nothing new."""

    ACTIVE = "active"
    CORDONED = "cordoned"


def format_authority(address: str, port: int) -> str:
    """Host and port as a URL or a Host header spells them: an IPv6 literal goes into brackets."""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def split_authority(authority: str) -> tuple[str, int]:
    """Undo `format_authority`."""
    address, _, port = authority.rpartition(":")
    return address.removeprefix("[").removesuffix("]"), int(port)


@dataclass(frozen=True, slots=True)
class EndpointMetadata:
    """One model server. Equal when every field is equal; labels are copied and cannot be changed afterwards.

    Args:
        id: `namespace/name`, unique in a store.
        name: the part after the namespace.
        address: IPv4 or IPv6 literal without brackets, or a host name.
        port: 1 to 65535.
        metrics_host: `host:port` that serves `/metrics`; empty stands for the endpoint itself.
        labels: what selectors and label filters look at.
        rank_index: number of this data-parallel rank among those of the same server.
        scheme: `http` or `https`.
        state: see `EndpointState`.
        weight: operator's share, 0 to 1, where 1 is a full one.
    """

    id: str
    name: str
    address: str
    port: int
    metrics_host: str = ""
    labels: Mapping[str, str] = field(default_factory=dict, hash=False)
    rank_index: int = 0
    scheme: str = "http"
    state: EndpointState = EndpointState.ACTIVE
    weight: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "labels", MappingProxyType(dict(self.labels)))
        object.__setattr__(self, "state", EndpointState(self.state))

    @property
    def authority(self) -> str:
        """`address:port`, with brackets around an IPv6 address."""
        return format_authority(self.address, self.port)

    @property
    def metrics_authority(self) -> str:
        """`host:port` that serves `/metrics`."""
        return self.metrics_host or self.authority

    @property
    def url(self) -> str:
        """Scheme and authority, without a trailing slash."""
        return f"{self.scheme}://{self.authority}"


@dataclass(frozen=True, slots=True)
class Upsert:
    """The endpoint exists, with this metadata from now on."""

    endpoint: EndpointMetadata


@dataclass(frozen=True, slots=True)
class Delete:
    """The endpoint is gone; the metadata is what it last had."""

    endpoint: EndpointMetadata


EndpointEvent = Upsert | Delete


@dataclass(frozen=True, slots=True)
class Metrics:
    """What one page reported. None = not reported: the store keeps the field's last value and lets it age.

    `running`, `waiting` and `max_active_models` are counts, `kv_usage` is 0 to 1. The three LoRA fields come from
    one series and are reported together or not at all.
    """

    waiting: float | None = None
    running: float | None = None
    kv_usage: float | None = None
    kv_capacity_tokens: int | None = None
    block_size: int | None = None
    num_blocks: int | None = None
    max_active_models: float | None = None
    active_models: frozenset[str] | None = None
    waiting_models: frozenset[str] | None = None
    model: str | None = None
    engine: str | None = None
