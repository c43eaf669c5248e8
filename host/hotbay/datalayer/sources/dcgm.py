"""`dcgm-extractor`: how busy an endpoint's GPUs are, from the page of NVIDIA's DCGM exporter, as attributes.

| attribute | unit | of several GPUs | family |
|---|---|---|---|
| `gpu_utilization` | 0 to 1 | the largest | DCGM_FI_DEV_GPU_UTIL, per cent |
| `gpu_memory_utilization` | 0 to 1 | the largest | DCGM_FI_DEV_FB_USED and DCGM_FI_DEV_FB_FREE, MiB |
| `gpu_temperature_celsius` | °C | the largest | DCGM_FI_DEV_GPU_TEMP |
| `gpu_power_watts` | W | the sum | DCGM_FI_DEV_POWER_USAGE |

All are in the exporter's default set (`default-counters.csv` of dcgm-exporter). A sample that names a pod, as an exporter for a
whole machine writes them, counts for the endpoint of that name only, and of its ranks. The first must be there, for an endpoint
whose GPUs nobody reports is a mistake; the others are written where the page has them. DCGM writes numbers beyond 2^46 for values
that there are not (`DCGM_INT64_BLANK`, `DCGM_FP64_BLANK` and what follows them): they are no values.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from hotbay.datalayer.attributes import AttributeValue
from hotbay.datalayer.endpoint import Endpoint, EndpointMetadata
from hotbay.datalayer.pages.exposition import Sample
from hotbay.datalayer.pages.extraction import MetricsPage

__all__ = ["COLUMNS", "FAMILIES", "DcgmExtractor", "GpusMissingError", "read_gpus"]

UTILIZATION: Final = "DCGM_FI_DEV_GPU_UTIL"
USED: Final = "DCGM_FI_DEV_FB_USED"
FREE: Final = "DCGM_FI_DEV_FB_FREE"
TEMPERATURE: Final = "DCGM_FI_DEV_GPU_TEMP"
POWER: Final = "DCGM_FI_DEV_POWER_USAGE"
FAMILIES: Final = frozenset({UTILIZATION, USED, FREE, TEMPERATURE, POWER})

COLUMNS: Final[Mapping[str, str]] = {
    "gpu_utilization": "f32",
    "gpu_memory_utilization": "f32",
    "gpu_temperature_celsius": "f32",
    "gpu_power_watts": "f32",
}
"""The attributes, as columns."""

INTERVAL_S: Final = 1.0
"""The exporter asks its GPUs every 30 s unless it is told otherwise: more often is for those that were told."""

_BLANK: Final = float(1 << 46)
_FULL: Final = 100.0


class GpusMissingError(Exception):
    """The page says nothing of this endpoint's GPUs."""


def read_gpus(samples: Mapping[str, tuple[Sample, ...]], endpoint: EndpointMetadata) -> Mapping[str, float | None]:
    """What a page says of an endpoint's GPUs: attribute -> value, None where it says nothing.

    Raises:
        GpusMissingError: it has no utilization of them.
    """
    own = {name: [s for s in samples.get(name, ()) if _is_of(s.labels, endpoint)] for name in FAMILIES}
    utilization = [value for value in _values(own[UTILIZATION]) if value <= _FULL]
    if not utilization:
        found = f"{len(samples.get(UTILIZATION, ()))} of others" if samples.get(UTILIZATION) else "none"
        raise GpusMissingError(f"expected samples of {UTILIZATION} for {endpoint.id}, found {found}")
    return {
        "gpu_utilization": max(utilization) / _FULL,
        "gpu_memory_utilization": max(_memory(own[USED], own[FREE]), default=None),
        "gpu_temperature_celsius": max(_values(own[TEMPERATURE]), default=None),
        "gpu_power_watts": sum(power) if (power := _values(own[POWER])) else None,
    }


def _values(samples: Iterable[Sample]) -> list[float]:
    # A comparison with what is not a number is false.
    return [sample.value for sample in samples if 0.0 <= sample.value < _BLANK]


def _memory(used: Iterable[Sample], free: Iterable[Sample]) -> list[float]:
    """Shares in use, by GPU: its two samples have the same labels."""
    room = {frozenset(sample.labels.items()): sample.value for sample in free if 0.0 <= sample.value < _BLANK}
    shares = []
    for sample in used:
        left = room.get(frozenset(sample.labels.items()))
        if left is not None and 0.0 <= sample.value < _BLANK and sample.value + left > 0.0:
            shares.append(sample.value / (sample.value + left))
    return shares


def _is_of(labels: Mapping[str, str], endpoint: EndpointMetadata) -> bool:
    pod, namespace = labels.get("pod", ""), labels.get("namespace", "")
    if not pod:
        return True
    if namespace and endpoint.id != f"{namespace}/{endpoint.name}":
        return False
    return endpoint.name == pod or endpoint.name.startswith(f"{pod}-rank-")


class DcgmExtractor:
    """See the module."""

    type = "dcgm-extractor"
    payload = MetricsPage
    families = FAMILIES
    columns = COLUMNS

    def __init__(self, name: str) -> None:
        self.name = name

    async def extract(self, payload: object, endpoint: Endpoint) -> Mapping[str, AttributeValue | None]:
        assert isinstance(payload, MetricsPage)
        return read_gpus(payload.samples, endpoint.metadata)
