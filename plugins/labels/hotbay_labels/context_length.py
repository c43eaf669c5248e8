"""`context-length-aware`: endpoints are made for lengths of context, which a label of theirs tells."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
from hotbay_sdk import Context, Endpoints, Filter, ParameterError, Request, Scorer

from hotbay_labels.label_filters import INELIGIBLE
from hotbay_labels.label_tables import LABELS, Bools, LabelColumn
from hotbay_labels.package import plugin
from hotbay_labels.ranges import Doubles, fits, rate_ranges, read_range

DEFAULT_LABEL: Final = "llm-d.ai/context-length-range"
NO_LABEL_RATING: Final = 0.5
BAD_LABEL_RATING: Final = 0.0
_MOST_WARNINGS: Final = 16
"""Labels come from whoever runs endpoints: they do not get to fill the log."""


@dataclass(frozen=True, slots=True)
class ContextLengthParameters:
    """`label`: has `min-max` in tokens. `enableFiltering`: endpoints whose range does not have the length are dropped, too."""

    label: str = DEFAULT_LABEL
    enableFiltering: bool = False

    def __post_init__(self) -> None:
        if not self.label:
            raise ParameterError("label", "expected the name of a label, found ''")


class _Ranges:
    """The different texts of the label as arrays: ranges, and which of them are ranges."""

    __slots__ = ("has_label", "highest", "is_range", "lowest", "texts")

    def __init__(self, texts: Sequence[str | None]) -> None:
        read = [None if text is None else read_range(text) for text in texts]
        self.texts = texts
        self.has_label: Bools = np.array([text is not None for text in texts], dtype=np.bool_)
        self.is_range: Bools = np.array([found is not None for found in read], dtype=np.bool_)
        self.lowest: Doubles = np.array([found[0] if found else 0 for found in read], dtype=np.float64)
        self.highest: Doubles = np.array([found[1] if found else 0 for found in read], dtype=np.float64)

    def rate(self, length: int) -> npt.NDArray[np.float32]:
        """The ratings of the texts."""
        rated = np.where(self.is_range, rate_ranges(length, self.lowest, self.highest), BAD_LABEL_RATING)
        ratings: npt.NDArray[np.float32] = np.where(self.has_label, rated, NO_LABEL_RATING).astype(np.float32)
        return ratings

    def keep(self, length: int) -> Bools:
        """Which texts let the length through: none at all does, and a range that has it."""
        kept: Bools = ~self.has_label | (self.is_range & fits(length, self.lowest, self.highest))
        return kept


@plugin.type(
    "context-length-aware",
    reads=[LABELS, "request.tokens_estimate"],
    parameters=ContextLengthParameters,
    drained=INELIGIBLE,
)
class ContextLengthAware(Filter, Scorer):
    """Rates endpoints by how well their range suits the request's length, and if asked drops those out of range."""

    def __init__(self, context: Context, parameters: ContextLengthParameters) -> None:
        self._logger = context.logger
        self._label = parameters.label
        self._filters = parameters.enableFiltering
        self._column = LabelColumn(parameters.label)
        self._ranges = _Ranges(())
        self._warned: set[str] = set()

    def keep_batch(self, requests: Sequence[Request], endpoints: Endpoints) -> Sequence[Bools]:
        """One row of flags per request; requests of one length share the array."""
        if not self._filters:
            return [np.ones(len(endpoints), dtype=np.bool_)] * len(requests)
        texts, places = self._column.read(endpoints)
        ranges = self._read(texts)
        lengths = [request.tokens_estimate for request in requests]
        kept = {length: ranges.keep(length)[places] for length in set(lengths)}
        return [kept[length] for length in lengths]

    def score_batch(self, requests: Sequence[Request], endpoints: Endpoints) -> Sequence[npt.NDArray[np.float32]]:
        """One row of ratings per request; requests of one length share the array."""
        texts, places = self._column.read(endpoints)
        ranges = self._read(texts)
        lengths = [request.tokens_estimate for request in requests]
        rated = {length: ranges.rate(length)[places] for length in set(lengths)}
        return [rated[length] for length in lengths]

    def _read(self, texts: Sequence[str | None]) -> _Ranges:
        if texts is not self._ranges.texts:
            self._ranges = _Ranges(texts)
            for text, is_range in zip(texts, self._ranges.is_range, strict=True):
                if text is not None and not is_range and text not in self._warned:
                    self._warn(text)
        return self._ranges

    def _warn(self, text: str) -> None:
        if len(self._warned) < _MOST_WARNINGS:
            self._warned.add(text)
            self._logger.warning(
                "label %s is %s, expected MIN-MAX in tokens as in 0-8192: such endpoints rate 0",
                self._label,
                ascii(text[:80]),
            )
