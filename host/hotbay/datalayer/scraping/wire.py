"""What a host and its scraping process say to each other: frames of one msgpack value, each after its length.

To the process: what to do, first and once, then endpoints that come, change and go, and further names to read. From it:
batches of outcomes, those of an endpoint in the order in which they happened; a page that says what the last one of its
endpoint said is told without its content. A batch is bounded in outcomes and bytes, far below what a frame may carry. An
endpoint's number grows with every change of it, and outcomes of an older number concern nobody. Both ends are one version
of one program, and neither doubts the other's values. Pure.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias, cast

from hotbay_sdk.protocol.values import Encoder

from hotbay.config.data_parameters import Tls
from hotbay.config.engine_parameters import CustomMetric, EngineMapping, EngineParameters
from hotbay.config.metric_specs import MetricSpec
from hotbay.datalayer.endpoint import EndpointMetadata, Metrics
from hotbay.datalayer.pages.exposition import Sample
from hotbay.datalayer.pages.extraction import MetricsPage
from hotbay.datalayer.scraping.frames import framed

__all__ = [
    "BATCH_BYTES",
    "BATCH_OUTCOMES",
    "MAX_OUTCOME_BYTES",
    "Arrived",
    "Batch",
    "EndpointGone",
    "EndpointSaid",
    "Failed",
    "Order",
    "Outcome",
    "SamplesWanted",
    "ScrapeSettings",
    "WireEncoder",
    "batch_of",
    "order_of",
]

BATCH_OUTCOMES: Final = 128
"""What the host takes over in one turn of its loop: some milliseconds, when every page says something new."""
BATCH_BYTES: Final = 256 * 1024
"""A batch that is so long takes no further outcome: it is at most an outcome longer."""
MAX_OUTCOME_BYTES: Final = 1 << 20
"""A thousand LoRA label sets are a quarter of it. Reading so much takes the host's loop 10 ms."""

_BATCH_HEAD: Final = b"\x95"
"""msgpack: an array of five."""
_ARRAY_32: Final = b"\xdd"

_METRICS: Final = tuple(it.name for it in dataclasses.fields(Metrics) if it.name != "updated_at")


@dataclass(frozen=True, slots=True)
class ScrapeSettings:
    """What to fetch, how, and how it is read. `tls` None: over http."""

    path: str = "/metrics"
    port: int | None = None
    interval_s: float = 0.05
    budget_s: float = 1.0
    tls: Tls | None = None
    engines: EngineParameters = field(default_factory=EngineParameters)
    wanted: frozenset[str] = frozenset()
    at_node: bool = False


@dataclass(frozen=True, slots=True)
class EndpointSaid:
    """An endpoint came, or is now like this."""

    number: int
    endpoint: EndpointMetadata


@dataclass(frozen=True, slots=True)
class EndpointGone:
    endpoint_id: str


@dataclass(frozen=True, slots=True)
class SamplesWanted:
    """Read these sample names besides."""

    names: frozenset[str]


Order: TypeAlias = ScrapeSettings | EndpointSaid | EndpointGone | SamplesWanted


@dataclass(frozen=True, slots=True)
class Arrived:
    """A page came, `at` monotonic seconds, which are the machine's; None: it says what the last one said."""

    endpoint_id: str
    number: int
    at: float
    page: MetricsPage | None


@dataclass(frozen=True, slots=True)
class Failed:
    endpoint_id: str
    number: int
    reason: str
    message: str


Outcome: TypeAlias = Arrived | Failed


@dataclass(frozen=True, slots=True)
class Batch:
    """Outcomes since the last batch, log records as level and text, and how things are.

    `superseded` counts outcomes that are not told, as the host did not read and there was a newer one of their endpoint:
    by the reason of failures, "" for pages.
    """

    outcomes: tuple[Outcome, ...] = ()
    logs: tuple[tuple[int, str], ...] = ()
    connects: int = 0
    factor: float = 1.0
    superseded: Mapping[str, int] = field(default_factory=dict)


class WireEncoder:
    """Orders and batches to frames."""

    def __init__(self) -> None:
        self._encoder = Encoder()

    def order(self, order: Order) -> bytes:
        if isinstance(order, ScrapeSettings):
            plain = dataclasses.asdict(order) | {"wanted": sorted(order.wanted)}
            return self._frame(["settings", plain])
        if isinstance(order, EndpointGone):
            return self._frame(["gone", order.endpoint_id])
        if isinstance(order, SamplesWanted):
            return self._frame(["want", sorted(order.names)])
        it = order.endpoint
        said = [it.id, it.name, it.address, it.port, it.metrics_host, it.node_address, dict(it.labels)]
        return self._frame(["said", order.number, *said])

    def outcome(self, outcome: Outcome) -> bytes:
        """One outcome, for `batch_of_packed`. Raises `ValueRefusedError` for more than a frame can carry."""
        if isinstance(outcome, Arrived):
            page = None if outcome.page is None else _page_values(outcome.page)
            return self._encoder.pack([outcome.endpoint_id, outcome.number, outcome.at, page])
        return self._encoder.pack([outcome.endpoint_id, outcome.number, outcome.reason, outcome.message, False])

    def batch_of_packed(self, outcomes: Sequence[bytes], rest: Batch) -> bytes:
        """These outcomes, and all of `rest` but its own."""
        told = _ARRAY_32 + len(outcomes).to_bytes(4, "big") + b"".join(outcomes)
        pack = self._encoder.pack
        others = (rest.logs, rest.connects, rest.factor, dict(rest.superseded))
        return framed(b"".join((_BATCH_HEAD, told, *(pack(it) for it in others))))

    def batch(self, batch: Batch) -> bytes:
        return self.batch_of_packed([self.outcome(it) for it in batch.outcomes], batch)

    def _frame(self, value: object) -> bytes:
        return framed(self._encoder.pack(value))


def order_of(value: list[object]) -> Order:
    """Undo `WireEncoder.order`."""
    match value:
        case ["settings", dict() as plain]:
            return _settings(cast("dict[str, object]", plain))
        case ["gone", str() as endpoint_id]:
            return EndpointGone(endpoint_id)
        case ["want", list() as names]:
            return SamplesWanted(frozenset(names))
        case [
            "said",
            int() as number,
            str() as it,
            str() as name,
            str() as address,
            int() as port,
            str() as host,
            str() as node,
            labels,
        ]:
            metadata = EndpointMetadata(
                it, name, address, port, host, labels=cast("Mapping[str, str]", labels), node_address=node
            )
            return EndpointSaid(number, metadata)
        case _:
            raise AssertionError(f"not an order of this version: {value!r:.200}")


def batch_of(value: list[object]) -> Batch:
    """Undo `WireEncoder.batch`."""
    outcomes, logs, connects, factor, superseded = cast(
        "tuple[list[list[object]], list[list[object]], int, float, dict[str, int]]", tuple(value)
    )
    return Batch(
        tuple(_outcome(outcome) for outcome in outcomes),
        tuple(cast("tuple[int, str]", tuple(log)) for log in logs),
        connects,
        factor,
        superseded,
    )


def _outcome(value: list[object]) -> Outcome:
    if len(value) == 4:
        endpoint_id, number, at, page = cast("tuple[str, int, float, list[object] | None]", tuple(value))
        return Arrived(endpoint_id, number, at, None if page is None else _page(page))
    endpoint_id, number, reason, message, _ = cast("tuple[str, int, str, str, bool]", tuple(value))
    return Failed(endpoint_id, number, reason, message)


def _page_values(page: MetricsPage) -> list[object]:
    values = (getattr(page.metrics, name) for name in _METRICS)
    metrics = [dict(value) if isinstance(value, Mapping) else value for value in values]
    samples = {
        name: [[dict(sample.labels), sample.value] for sample in series] for name, series in page.samples.items()
    }
    return [
        page.engine, metrics, samples, dict(page.attributes), page.missing, page.invalid, page.bad_lines,
        page.duplicates,
    ]  # fmt: skip


def _page(value: list[object]) -> MetricsPage:
    engine, metrics, samples, attributes, missing, invalid, bad_lines, duplicates = cast(
        "tuple[str, list[object], dict[str, list[tuple[dict[str, str], float]]], dict[str, float], list[str], list[str], int, int]",
        tuple(value),
    )
    return MetricsPage(
        engine,
        Metrics(**dict(zip(_METRICS, metrics, strict=True))),  # type: ignore[arg-type]  # as the other end had them
        {name: tuple(Sample(labels, number) for labels, number in series) for name, series in samples.items()},
        attributes,
        tuple(missing),
        tuple(invalid),
        bad_lines,
        duplicates,
    )


def _settings(plain: dict[str, object]) -> ScrapeSettings:
    fields = dict(plain)
    tls, engines = cast("dict[str, object] | None", fields["tls"]), cast("dict[str, object]", fields["engines"])
    fields["tls"] = None if tls is None else Tls(**tls)  # type: ignore[arg-type]  # as the other end had them
    mappings = (_mapping(mapping) for mapping in cast("list[dict[str, object]]", engines["engines"]))
    custom = _customs(engines["custom"])
    fields["engines"] = EngineParameters(**(engines | {"engines": tuple(mappings), "custom": custom}))  # type: ignore[arg-type]  # see above
    fields["wanted"] = frozenset(cast("list[str]", fields["wanted"]))
    return ScrapeSettings(**fields)  # type: ignore[arg-type]  # see above


def _mapping(plain: dict[str, object]) -> EngineMapping:
    fields = {name: _spec(value) if isinstance(value, dict) else value for name, value in plain.items()}
    return EngineMapping(**(fields | {"custom": _customs(plain["custom"])}))  # type: ignore[arg-type]  # see above


def _customs(values: object) -> tuple[CustomMetric, ...]:
    plain = cast("list[dict[str, object]]", values)
    return tuple(
        CustomMetric(cast("str", it["attribute"]), _spec(cast("dict[str, object]", it["spec"]))) for it in plain
    )


def _spec(plain: dict[str, object]) -> MetricSpec:
    labels = cast("list[list[str]]", plain["labels"])
    return MetricSpec(cast("str", plain["name"]), tuple((label, value) for label, value in labels))
