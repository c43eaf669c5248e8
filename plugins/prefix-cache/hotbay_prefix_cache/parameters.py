"""Parameters of both types: from the operator's map to checked values. Pure and strict.

Every defect raises `ParameterError` with the field's name.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from hotbay_sdk import ParameterError

DEFAULT_PRODUCER: Final = "approx-prefix-cache-producer"


@dataclass(frozen=True, slots=True)
class ProducerParameters:
    """`max_prefix_tokens` 0 hands over to `max_prefix_blocks`; 0 in both matches the whole prompt."""

    auto_tune: bool = True
    block_tokens: int = 64
    max_prefix_tokens: int = 131_072
    max_prefix_blocks: int = 2048
    capacity_blocks: int = 31_250

    @property
    def max_blocks(self) -> int | None:
        """Blocks of a request that are matched and learned; None for all."""
        if self.max_prefix_tokens > 0:
            return max(1, self.max_prefix_tokens // self.block_tokens)
        return self.max_prefix_blocks or None


@dataclass(frozen=True, slots=True)
class ScorerParameters:
    """`length_weight` is the share of the score that goes to the match's absolute length."""

    producer: str = DEFAULT_PRODUCER
    length_weight: float = 0.0
    length_scale_tokens: float = 8192.0


_PRODUCER_FIELDS: Final = {
    "autoTune": "auto_tune",
    "blockSizeTokens": "block_tokens",
    "blockSize": "block_tokens",
    "maxPrefixTokensToMatch": "max_prefix_tokens",
    "maxPrefixBlocksToMatch": "max_prefix_blocks",
    "lruCapacityPerServer": "capacity_blocks",
}
_LEAST: Final = {"blockSizeTokens": 1, "blockSize": 1, "lruCapacityPerServer": 1}
_SCORER_FIELDS: Final = ("prefixMatchInfoProducerName", "matchLengthWeight", "matchLengthScaleTokens")


def parse_producer(raw: Mapping[str, object]) -> ProducerParameters:
    """Parameters of `approx-prefix-cache-producer`."""
    _refuse_unknown(raw, tuple(_PRODUCER_FIELDS))
    if "blockSize" in raw and "blockSizeTokens" in raw:
        raise ParameterError("blockSize", "is the old name of blockSizeTokens, which is given too")
    auto_tune = raw.get("autoTune", True)
    if not isinstance(auto_tune, bool):
        raise ParameterError("autoTune", f"expected true or false, found {auto_tune!r}")
    numbers = {
        field: _whole(raw[key], key, least=_LEAST.get(key, 0))
        for key, field in _PRODUCER_FIELDS.items()
        if key in raw and key != "autoTune"
    }
    return ProducerParameters(auto_tune=auto_tune, **numbers)


def parse_scorer(raw: Mapping[str, object]) -> ScorerParameters:
    """Parameters of `prefix-cache-scorer`."""
    _refuse_unknown(raw, _SCORER_FIELDS)
    producer = raw.get("prefixMatchInfoProducerName", DEFAULT_PRODUCER)
    if not isinstance(producer, str) or not producer:
        raise ParameterError("prefixMatchInfoProducerName", f"expected a producer's name, found {producer!r}")
    weight = _number(raw.get("matchLengthWeight", 0.0), "matchLengthWeight")
    if not 0 <= weight <= 1:
        raise ParameterError("matchLengthWeight", f"expected 0 to 1, found {weight}")
    scale = _number(raw.get("matchLengthScaleTokens", 8192), "matchLengthScaleTokens")
    if scale <= 0:
        raise ParameterError("matchLengthScaleTokens", f"expected more than 0, found {scale}")
    return ScorerParameters(producer, weight, scale)


def _refuse_unknown(raw: Mapping[str, object], known: tuple[str, ...]) -> None:
    for key in raw:
        if key not in known:
            raise ParameterError(str(key), f"unknown field, expected one of {', '.join(sorted(known))}")


def _whole(value: object, field: str, *, least: int) -> int:
    if type(value) is not int or value < least:
        raise ParameterError(field, f"expected a whole number from {least} up, found {value!r}")
    return value


def _number(value: object, field: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise ParameterError(field, f"expected a finite number, found {value!r}")
    return float(value)
