"""`header-label-affinity-scorer`: a header of the request says which value of a label it prefers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
from hotbay_sdk import Context, Endpoints, ParameterError, Request, Scorer

from hotbay_labels.label_tables import LABELS, LabelColumn
from hotbay_labels.package import plugin

_FIELDS: Final[Mapping[str, Sequence[str]]] = {
    "headerName": ("headerName", "header"),
    "labelKey": ("labelKey", "label"),
}
"""Parameter → its spellings: the reference's, and a short one."""


@dataclass(frozen=True, slots=True)
class HeaderLabelParameters:
    """`header_name` is in lower case."""

    header_name: str
    label_key: str


def parse_header_label(raw: Mapping[str, object]) -> HeaderLabelParameters:
    """Parameters of `header-label-affinity-scorer`. Raises ParameterError."""
    known = [spelling for spellings in _FIELDS.values() for spelling in spellings]
    for name in raw:
        if name not in known:
            raise ParameterError(str(name), f"unknown field, expected {' and '.join(_FIELDS)}")
    texts = []
    for name, spellings in _FIELDS.items():
        given = [spelling for spelling in spellings if spelling in raw]
        if len(given) > 1:
            raise ParameterError(given[1], f"is another spelling of {given[0]}, which is given too")
        if not given:
            raise ParameterError(name, "missing, expected text")
        value = raw[given[0]]
        if not isinstance(value, str) or not value:
            raise ParameterError(given[0], f"expected a text that is not empty, found {ascii(value)[:80]}")
        texts.append(value)
    return HeaderLabelParameters(texts[0].lower(), texts[1])


@plugin.type("header-label-affinity-scorer", reads=[LABELS, "request.headers[*]"], parameters=parse_header_label)
class HeaderLabelAffinityScorer(Scorer):
    """1 for endpoints whose label has the value of the request's header, 0 for all others, and for all without the header."""

    def __init__(self, context: Context, parameters: HeaderLabelParameters) -> None:
        self.reads = [f"request.headers[{parameters.header_name}]"]
        self._header = parameters.header_name
        self._column = LabelColumn(parameters.label_key)

    def score_batch(self, requests: Sequence[Request], endpoints: Endpoints) -> Sequence[npt.NDArray[np.float32]]:
        """One row of ratings per request; requests with one value share the array."""
        texts, places = self._column.read(endpoints)
        wanted = [request.header(self._header) or None for request in requests]
        # A text that nobody has gets a place that no row has.
        place = {text: number for number, text in enumerate(texts)} | {None: -1}
        rated = {text: (places == place.get(text, -1)).astype(np.float32) for text in set(wanted)}
        return [rated[text] for text in wanted]
