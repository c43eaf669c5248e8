"""What extractors in plugin processes are given of what sources bring, and what polls of plugin processes bring."""

from collections.abc import Mapping, Sequence
from typing import Final

from hotbay_sdk.protocol import Value
from hotbay_sdk.protocol.messages import CONTROL_FRAME_BYTES, HOT_FRAME_BYTES

from hotbay.datalayer.pages.exposition import Sample
from hotbay.datalayer.pages.extraction import MetricsPage
from hotbay.datalayer.source import SourceError
from hotbay.datalayer.sources.models import ModelsPage, models_of
from hotbay.errors import PluginFault

__all__ = ["PAYLOAD_TYPES", "payload_limit", "payload_to_wire", "read_payload", "samples_to_wire"]

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


_FLAT: Final[Mapping[str, tuple[type, ...]]] = {"metrics": (str, bytes), "text": (str,), "bytes": (bytes,)}
"""Payloads that are one text or one row of bytes: they take no more memory than they have bytes."""


def payload_limit(payload: str) -> int:
    """Longest answer of a poll that brings this payload: values of values take many times their bytes once they are read."""
    return HOT_FRAME_BYTES if payload in _FLAT else CONTROL_FRAME_BYTES


def read_payload(found: Value, payload: str) -> object:
    """What a poll brought, in the form that extractors read; of `metrics` the page as bytes, unread.

    Raises `PluginFault` BAD_RESULT for what is no such payload.
    """
    if payload == "json":
        return found
    if payload == "models":
        if not isinstance(found, list):
            raise _bad("a list of models", found)
        try:
            return models_of(found, "models")
        except SourceError as error:
            raise PluginFault("BAD_RESULT", str(error)) from error
    kinds = _FLAT[payload]
    if not isinstance(found, kinds):
        raise _bad(" or ".join("a text" if kind is str else "bytes" for kind in kinds), found)
    return found.encode() if payload == "metrics" and isinstance(found, str) else found


def _bad(expected: str, found: Value) -> PluginFault:
    return PluginFault("BAD_RESULT", f"expected {expected} as payload, found {type(found).__name__}")
