"""Parameters of the types that have more than a name or two. Pure and strict."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from hotbay_sdk import ParameterError

_UNITS_S: Final = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_PART: Final = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h)")
_NANOSECOND_S: Final = 1e-9


@dataclass(frozen=True, slots=True)
class ProducerParameters:
    """`sloBufferFactor` x the objective is what a prediction per output token is held against.

    `contextTTL`: how long a request is remembered of which nothing is heard: a duration as text, or in nanoseconds as the
    reference's files have it. `streamingMode`: time per output token is learned and counts. `endpointRoleLabel`: endpoints whose
    label of this name is `prefill` make no output tokens. `samplingMean` and `maxDecodeTokenSamplesForPrediction` mean
    nothing any more and are taken for old files.
    """

    samplingMean: float = 1000.0
    maxDecodeTokenSamplesForPrediction: int = 0
    sloBufferFactor: float = 1.0
    contextTTL: str | int = "5m"
    streamingMode: bool = False
    endpointRoleLabel: str = ""
    predictInProduce: bool = True
    prefixMatchInfoProducerName: str = ""

    def __post_init__(self) -> None:
        """Refuse what is out of range."""
        for name in ("samplingMean", "sloBufferFactor"):
            if getattr(self, name) <= 0:
                raise ParameterError(name, f"expected more than 0, found {getattr(self, name):g}")
        if self.maxDecodeTokenSamplesForPrediction < 0:
            found = self.maxDecodeTokenSamplesForPrediction
            raise ParameterError("maxDecodeTokenSamplesForPrediction", f"expected 0 or more, found {found}")
        seconds(self.contextTTL, "contextTTL")

    @property
    def context_ttl_s(self) -> float:
        """`contextTTL` in seconds."""
        return seconds(self.contextTTL, "contextTTL")


@dataclass(frozen=True, slots=True)
class ScorerParameters:
    """Weights of the two predictions, and of engine figures for when there is no prediction."""

    ttftWeight: float = 0.8
    tpotWeight: float = 0.2
    headroomSelectionStrategy: Literal["least", "most"] = "least"
    compositeKVWeight: float = 1.0
    compositeQueueWeight: float = 1.0
    compositePrefixWeight: float = 1.0
    latencyPredictionInfoProducerName: str = ""
    prefixMatchInfoProducerName: str = ""

    def __post_init__(self) -> None:
        """Refuse negative weights."""
        for name in ("ttftWeight", "tpotWeight", "compositeKVWeight", "compositeQueueWeight", "compositePrefixWeight"):
            if getattr(self, name) < 0:
                raise ParameterError(name, f"expected 0 or more, found {getattr(self, name):g}")


@dataclass(frozen=True, slots=True)
class FilterParameters:
    """`epsilonExploreNeg`: how often endpoints that would miss the objective get a request all the same."""

    epsilonExploreNeg: float = 0.01
    latencyPredictionInfoProducerName: str = ""

    def __post_init__(self) -> None:
        """Refuse what is no probability."""
        if not 0 <= self.epsilonExploreNeg <= 1:
            raise ParameterError("epsilonExploreNeg", f"expected 0 to 1, found {self.epsilonExploreNeg:g}")


@dataclass(frozen=True, slots=True)
class AdmitterParameters:
    """Whose predictions count."""

    latencyPredictionInfoProducerName: str = ""


def seconds(value: str | int, path: str) -> float:
    """Seconds above 0 of a duration such as `5m`, or of nanoseconds. Raises `ParameterError` at `path`."""
    if isinstance(value, int):
        total, whole = value * _NANOSECOND_S, True
    else:
        parts = _PART.findall(value)
        total = sum(float(number) * _UNITS_S[unit] for number, unit in parts)
        whole = "".join(number + unit for number, unit in parts) == value
    if not whole or not total > 0:
        raise ParameterError(path, f"expected a duration above 0, as 5m or 1m30s, found {value!a:.80}")
    return total


def objective_ms(text: str | None) -> float:
    """What a header asks for, in milliseconds; 0 where it asks for nothing that can be meant."""
    try:
        value = float(text or 0)
    except ValueError:
        return 0.0
    return value if math.isfinite(value) and value > 0 else 0.0


def stronger(weights: Mapping[str, float]) -> dict[str, float]:
    """Weights that sum to 1; all on the first one where the sum is 0."""
    total = sum(weights.values())
    if total <= 0:
        return {name: 1.0 if number == 0 else 0.0 for number, name in enumerate(weights)}
    return {name: weight / total for name, weight in weights.items()}
