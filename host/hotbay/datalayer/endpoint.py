"""An endpoint and what is known of it: values that cannot be changed, and the live object that holds the newest.

An endpoint is one model server address. Its id is `namespace/name` and names it for its whole life; address, labels,
state and weight may change under the same id. `Metrics` holds what a single page reported, or all pages so far: None
means that nothing was said about that field, which is not the same as zero.
"""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, TypeVar

from hotbay.datalayer.attributes import AttributeMap

__all__ = [
    "METRIC_NAMES",
    "Delete",
    "Endpoint",
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

    A `MappingProxyType` is taken as it is, so that endpoints share labels: nobody keeps the mapping that it is made of.

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
        node_address: of the machine that the server runs on, empty when not known.
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
    node_address: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.labels, MappingProxyType):
            object.__setattr__(self, "labels", MappingProxyType(dict(self.labels)))
        object.__setattr__(self, "state", EndpointState(self.state))

    def __str__(self) -> str:
        """One line for people: id, URL, and whatever differs from a plain endpoint."""
        parts = [self.id, self.url]
        if self.metrics_host:
            parts.append(f"metrics={self.metrics_host}")
        if self.rank_index:
            parts.append(f"rank={self.rank_index}")
        if self.state is not EndpointState.ACTIVE:
            parts.append(str(self.state))
        if self.weight != 1.0:
            parts.append(f"weight={self.weight:g}")
        if self.node_address:
            parts.append(f"node={self.node_address}")
        parts.extend(f"{name}={value}" for name, value in sorted(self.labels.items()))
        return " ".join(parts)

    def clone(self) -> "EndpointMetadata":
        """Return this value: nobody can change it, so that it is as good as a copy."""
        return self

    @property
    def authority(self) -> str:
        """`address:port`, with brackets around an IPv6 address."""
        return format_authority(self.address, self.port)

    @property
    def metrics_authority(self) -> str:
        """`host:port` that serves `/metrics`."""
        return self.metrics_host or self.authority

    @property
    def reached_at(self) -> tuple[str, int, str, str, str]:
        """What requests and polls go to: with another one it is another server, whatever its id."""
        return self.address, self.port, self.metrics_host, self.node_address, self.scheme

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


METRIC_NAMES: Final = (
    "waiting",
    "running",
    "kv_usage",
    "kv_capacity_tokens",
    "block_size",
    "num_blocks",
    "max_active_models",
    "active_models",
    "waiting_models",
    "model",
    "engine",
)
"""What a page can report: the fields of Metrics that `updated_at` may name."""

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Metrics:
    """What one page reported, or what all pages of an endpoint together did. None = not reported.

    Args:
        waiting: requests that wait in the engine.
        running: requests that it works on.
        kv_usage: share of the KV cache in use, 0 to 1.
        kv_capacity_tokens: what the KV cache holds, in tokens.
        block_size: tokens of a block of it.
        num_blocks: blocks of it.
        max_active_models: LoRA adapters that can be active at a time; this and the next two come from one series.
        active_models: adapter -> requests of it, 0 where the page names the adapter without a count.
        waiting_models: the same of adapters that requests wait for. One adapter may stand in both.
        model: name of the model that is served.
        engine: name of the engine mapping that the page was read by.
        updated_at: monotonic seconds by name of METRIC_NAMES, when it was last reported; a page's own has none.
    """

    waiting: float | None = None
    running: float | None = None
    kv_usage: float | None = None
    kv_capacity_tokens: int | None = None
    block_size: int | None = None
    num_blocks: int | None = None
    max_active_models: float | None = None
    active_models: Mapping[str, int] | None = field(default=None, hash=False)
    waiting_models: Mapping[str, int] | None = field(default=None, hash=False)
    model: str | None = None
    engine: str | None = None
    updated_at: Mapping[str, float] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "updated_at", MappingProxyType(dict(self.updated_at)))
        if self.active_models is not None:
            object.__setattr__(self, "active_models", MappingProxyType(dict(self.active_models)))
        if self.waiting_models is not None:
            object.__setattr__(self, "waiting_models", MappingProxyType(dict(self.waiting_models)))

    def __str__(self) -> str:
        """One line for people: what is known, and nothing of the rest."""
        parts = []
        for name in self.reported:
            value = getattr(self, name)
            if isinstance(value, Mapping):
                parts.append(f"{name}={','.join(sorted(value)) or '-'}")
            else:
                parts.append(f"{name}={value:g}" if isinstance(value, float) else f"{name}={value}")
        return " ".join(parts)

    def clone(self) -> "Metrics":
        """Return this value: nobody can change it, so that it is as good as a copy."""
        return self

    @property
    def reported(self) -> list[str]:
        """Those of METRIC_NAMES that are known."""
        return [name for name in METRIC_NAMES if getattr(self, name) is not None]

    def merged(self, report: "Metrics", now: float) -> "Metrics":
        """Return what is known once `report` came in at `now`: what it does not say stays as it was."""
        return Metrics(
            waiting=_newer(report.waiting, self.waiting),
            running=_newer(report.running, self.running),
            kv_usage=_newer(report.kv_usage, self.kv_usage),
            kv_capacity_tokens=_newer(report.kv_capacity_tokens, self.kv_capacity_tokens),
            block_size=_newer(report.block_size, self.block_size),
            num_blocks=_newer(report.num_blocks, self.num_blocks),
            max_active_models=_newer(report.max_active_models, self.max_active_models),
            active_models=_newer(report.active_models, self.active_models),
            waiting_models=_newer(report.waiting_models, self.waiting_models),
            model=_newer(report.model, self.model),
            engine=_newer(report.engine, self.engine),
            updated_at={**self.updated_at, **dict.fromkeys(report.reported, now)},
        )


class Endpoint:
    """One model server as it is now: its newest metadata and metrics, and its attributes.

    The store makes and updates those that it gives out; one that outlives its endpoint keeps the last it had. Readers
    may be in any thread: each value is replaced whole.

    Args:
        metadata: see EndpointMetadata.
        metrics: what is known so far.
        attributes: a map of its own.
    """

    __slots__ = ("_metrics", "attributes", "metadata")

    def __init__(
        self, metadata: EndpointMetadata, metrics: Metrics | None = None, attributes: AttributeMap | None = None
    ) -> None:
        self.metadata = metadata
        self.metrics = Metrics() if metrics is None else metrics
        self.attributes = AttributeMap() if attributes is None else attributes

    @property
    def metrics(self) -> Metrics:
        """What is known, with the time of each field."""
        known, again, at = self._metrics
        return known if again is None else known.merged(again, at)

    @metrics.setter
    def metrics(self, metrics: Metrics) -> None:
        self._metrics: tuple[Metrics, Metrics | None, float] = (metrics, None, 0.0)

    def renew(self, report: Metrics, now: float) -> None:
        """The report that was merged last came again: nothing is new but times, which a reader has put in."""
        self._metrics = self._metrics[0], report, now

    def __str__(self) -> str:
        """One line for people: metadata, metrics, and keys of attributes."""
        keys = self.attributes.keys()
        known = " ".join(("attributes", *keys)) if keys else ""
        return " | ".join(part for part in (str(self.metadata), str(self.metrics), known) if part)

    def clone(self) -> "Endpoint":
        """Return one that later news do not reach, and whose attributes are its own."""
        return Endpoint(self.metadata, self.metrics, self.attributes.clone())


def _newer(reported: _T | None, known: _T | None) -> _T | None:
    return known if reported is None else reported
