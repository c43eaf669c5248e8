"""What extractors in plugin processes are given of what sources of the host bring."""

from collections.abc import Mapping, Sequence
from typing import Final

from hotbay.datalayer.pages.exposition import Sample
from hotbay.datalayer.pages.extraction import MetricsPage
from hotbay.datalayer.sources.models import ModelsPage

__all__ = ["PAYLOAD_TYPES", "payload_to_wire", "samples_to_wire"]

PAYLOAD_TYPES: Final[Mapping[str, type]] = {
    "metrics": MetricsPage,
    "models": ModelsPage,
    "json": object,
    "text": str,
    "bytes": bytes,
}
"""What stands behind the words of declarations for what polls bring."""


def payload_to_wire(payload: object, families: tuple[str, ...]) -> object:
    """Of a metrics page the declared samples alone: name → [[labels, value], …]. Of models [{id, parent}, …]."""
    if isinstance(payload, MetricsPage):
        return samples_to_wire(payload.samples, families)
    if isinstance(payload, ModelsPage):
        return [{"id": one.id, "parent": one.parent} if one.parent else {"id": one.id} for one in payload.models]
    return payload


def samples_to_wire(samples: Mapping[str, Sequence[Sample]], families: tuple[str, ...]) -> dict[str, object]:
    """The declared samples of a page, those that it has."""
    found = ((name, samples.get(name, ())) for name in families)
    return {name: [[dict(one.labels), one.value] for one in series] for name, series in found if series}
