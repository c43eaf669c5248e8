"""`models-data-source` and `models-data-extractor`: which models and adapters a server says that it serves.

The source asks `/v1/models`, as OpenAI's API has it; the extractor writes them to the attribute `/v1/models`, a list of
{id, parent}, `parent` only where the server names one: the key and the fields of the reference.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import orjson

from hotbay.datalayer.attributes import AttributeValue
from hotbay.datalayer.endpoint import Endpoint, EndpointMetadata
from hotbay.datalayer.source import SourceError
from hotbay.datalayer.sources.http import DocumentClient, Where
from hotbay.errors import Problem

__all__ = [
    "MAX_MODELS",
    "MODELS_ATTRIBUTE",
    "ModelsExtractor",
    "ModelsPage",
    "ModelsSource",
    "ServedModel",
    "models_of",
    "read_models",
]

MODELS_ATTRIBUTE: Final = "/v1/models"
MAX_MODELS: Final = 1024
"""Of one server; a name may have 253 characters, and all of them have to fit an attribute of 64 KiB all the same."""
_LONGEST_NAME: Final = 253
INTERVAL_S: Final = 5.0
"""Adapters are loaded and unloaded by people and deployments, not by requests."""


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A model or an adapter; `parent` is what an adapter is of, empty without."""

    id: str
    parent: str = ""


@dataclass(frozen=True, slots=True)
class ModelsPage:
    """What a server serves, in its order."""

    models: tuple[ServedModel, ...]


def read_models(body: bytes) -> ModelsPage:
    """Read an answer of `/v1/models`: `{"data": [{"id": …, "parent": …}]}`; other fields do not matter.

    Raises:
        SourceError: `not_models`, it is something else.
    """
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise SourceError("not_models", f"the list of models is no JSON: {error}") from error
    rows = document.get("data") if isinstance(document, dict) else None
    if not isinstance(rows, list):
        raise SourceError("not_models", f"expected an object with a list `data`, found {body[:40]!r}")
    return models_of(rows, "data")


def models_of(rows: Sequence[object], where: str) -> ModelsPage:
    """The models of a list of `{id, parent}`, which stands at `where`. Raises as `read_models`."""
    if len(rows) > MAX_MODELS:
        raise SourceError("not_models", f"expected at most {MAX_MODELS} models, found {len(rows)}")
    return ModelsPage(tuple(_model(row, f"{where}[{number}]") for number, row in enumerate(rows)))


def _model(row: object, where: str) -> ServedModel:
    fields = row if isinstance(row, dict) else {}
    name, parent = fields.get("id"), fields.get("parent")
    if not isinstance(name, str) or not 0 < len(name) <= _LONGEST_NAME:
        raise SourceError("not_models", f"{where}: expected an id of 1 to {_LONGEST_NAME} characters")
    return ServedModel(name, parent if isinstance(parent, str) and len(parent) <= _LONGEST_NAME else "")


class ModelsSource:
    """Polls the list of models."""

    type = "models-data-source"
    payload = ModelsPage

    def __init__(self, name: str, where: Where, *, interval_s: float = INTERVAL_S) -> None:
        self.name = name
        self.interval_s = interval_s
        self._client = DocumentClient(where, accept="application/json")
        self._tls = where.tls

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Why files of TLS that changed do not count."""
        return () if self._tls is None else self._tls.problems

    async def poll(self, endpoint: EndpointMetadata) -> object:
        return read_models((await self._client.fetch(endpoint)).body)

    def forget(self, endpoint_id: str) -> None:
        self._client.forget(endpoint_id)


class ModelsExtractor:
    """Writes the list of models to an attribute."""

    type = "models-data-extractor"
    payload = ModelsPage
    attributes = frozenset({MODELS_ATTRIBUTE})

    def __init__(self, name: str) -> None:
        self.name = name

    async def extract(self, payload: object, endpoint: Endpoint) -> Mapping[str, AttributeValue | None]:
        assert isinstance(payload, ModelsPage)
        models: list[AttributeValue] = [
            {"id": model.id, "parent": model.parent} if model.parent else {"id": model.id} for model in payload.models
        ]
        return {MODELS_ATTRIBUTE: models}
