"""Parameters of approx-prefix-cache-producer and prefix-cache-scorer: from the operator's map to checked values. Pure, strict.

Every defect raises `ParameterError` with the field's name.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from hotbay_sdk import ParameterError

DEFAULT_BLOCK_TOKENS: Final = 64


@dataclass(frozen=True, slots=True)
class ProducerParameters:
    """`max_prefix_tokens` 0 hands over to `max_prefix_blocks`; 0 in both matches the whole prompt."""

    auto_tune: bool = True
    block_tokens: int = DEFAULT_BLOCK_TOKENS
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
    """`length_weight` is the share of the score that goes to the match's absolute length.

    `producer` is the name of the ref that makes the data, or empty for the only one, or the default one.
    """

    producer: str = ""
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
_BLOCK_FIELDS: Final = ("blockSizeTokens", "blockSize")
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
        field: _whole(raw[key], key, least=1 if key == "lruCapacityPerServer" else 0)
        for key, field in _PRODUCER_FIELDS.items()
        if key in raw and key not in ("autoTune", *_BLOCK_FIELDS)
    }
    return ProducerParameters(auto_tune=auto_tune, block_tokens=_block_tokens(raw, auto_tune=auto_tune), **numbers)


def _block_tokens(raw: Mapping[str, object], *, auto_tune: bool) -> int:
    """The configured size; what is not above 0 leaves it to us, but where the operator does not want it tuned."""
    for key in _BLOCK_FIELDS:
        value = raw.get(key, DEFAULT_BLOCK_TOKENS)
        if type(value) is not int or (value <= 0 and not auto_tune):
            least = "a whole number" if auto_tune else "a whole number from 1 up where autoTune is false"
            raise ParameterError(key, f"expected {least}, found {value!r}")
        if key in raw:
            return value if value > 0 else DEFAULT_BLOCK_TOKENS
    return DEFAULT_BLOCK_TOKENS


def parse_scorer(raw: Mapping[str, object]) -> ScorerParameters:
    """Parameters of `prefix-cache-scorer`."""
    _refuse_unknown(raw, _SCORER_FIELDS)
    producer = raw.get("prefixMatchInfoProducerName", "")
    if not isinstance(producer, str):
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
