"""Parameters of precise-prefix-cache-producer and -scorer, by the reference's names. Pure and strict.

What configures code that is not here (the reference's own hashing, its index backends, its pool of workers) is accepted, so
that a file which works there works here; the README says what has an effect.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from hotbay_sdk import ParameterError

DEFAULT_BLOCK_TOKENS: Final = 16
"""vLLM's own."""
_UNITS_S: Final = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_DURATION: Final = re.compile(r"(?:[0-9]+(?:\.[0-9]+)?(?:ns|us|µs|ms|s|m|h))+")
_DURATION_PART: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ns|us|µs|ms|s|m|h)")


@dataclass(frozen=True, slots=True)
class TokenProcessorConfig:
    """The size in which matches are told before an engine has said its own; the seed and the hash have no effect here."""

    blockSize: int = 0
    blockSizeTokens: int = 0
    hashSeed: str = ""
    hashAlgorithm: str = ""

    def __post_init__(self) -> None:
        for name in ("blockSize", "blockSizeTokens"):
            if getattr(self, name) < 0:
                raise ParameterError(name, f"expected a whole number from 0 up, found {getattr(self, name)}")

    @property
    def tokens(self) -> int:
        """Tokens of a block."""
        return self.blockSizeTokens or self.blockSize or DEFAULT_BLOCK_TOKENS


@dataclass(frozen=True, slots=True)
class PodDiscoveryConfig:
    """Where each endpoint publishes. The selector and the namespace have no effect: endpoints are those of the pool."""

    socketPort: int = 5557
    podLabelSelector: str = ""
    podNamespace: str = ""

    def __post_init__(self) -> None:
        if not 0 < self.socketPort < 65_536:
            raise ParameterError("socketPort", f"expected 1 to 65535, found {self.socketPort}")


@dataclass(frozen=True, slots=True)
class KvEventsConfig:
    """How engines' events get here: engines connect to `zmqEndpoint`, or we to each endpoint's `socketPort`."""

    zmqEndpoint: str = ""
    topicFilter: str = "kv@"
    discoverPods: bool = True
    podDiscoveryConfig: PodDiscoveryConfig = field(default_factory=PodDiscoveryConfig)
    concurrency: int = 4
    engineType: Literal["vllm"] = "vllm"
    tracing: bool = False

    def __post_init__(self) -> None:
        if self.zmqEndpoint and not self.zmqEndpoint.startswith(("tcp://", "ipc://")):
            raise ParameterError("zmqEndpoint", f"expected tcp://ADDRESS:PORT, found {self.zmqEndpoint!r:.80}")


@dataclass(frozen=True, slots=True)
class PreciseParameters:
    """`speculativeTTL` is a duration such as `2s`."""

    tokenProcessorConfig: TokenProcessorConfig = field(default_factory=TokenProcessorConfig)
    indexerConfig: Mapping[str, object] = field(default_factory=dict)
    kvEventsConfig: KvEventsConfig = field(default_factory=KvEventsConfig)
    speculativeIndexing: bool = False
    speculativeTTL: str = "2s"

    def __post_init__(self) -> None:
        if self.speculative_s <= 0:
            raise ParameterError(
                "speculativeTTL", f"expected a duration above 0, such as 2s, found {self.speculativeTTL!r:.80}"
            )

    @property
    def speculative_s(self) -> float:
        """Seconds for which a prediction holds; 0 for a text that is no duration."""
        if not _DURATION.fullmatch(self.speculativeTTL):
            return 0.0
        parts = _DURATION_PART.findall(self.speculativeTTL)
        return sum(float(number) * _UNITS_S[unit] for number, unit in parts)
