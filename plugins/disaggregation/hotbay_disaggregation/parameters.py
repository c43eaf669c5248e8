"""Parameters of the handlers, in both of their forms, as one. Pure.

The flat form is the one of earlier releases. A map that has names of both is refused: which of them is meant is not known.
Every defect raises `ParameterError` with the field's path.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from hotbay_sdk import ParameterError

DECODE: Final = "decode"
PREFILL: Final = "prefill"
ENCODE: Final = "encode"
DEFAULT_DECIDER: Final = "prefix-based-pd-decider"
MAX_PORT: Final = 65_535

_FLAT: Final = (
    "decodeProfile",
    "prefillProfile",
    "encodeProfile",
    "prefillDeciderPluginName",
    "deciderPluginName",
    "encodeDeciderPluginName",
)


class StageOrder(StrEnum):
    """Which stage runs first."""

    DECODE_FIRST = "decode-first"
    PREFILL_FIRST = "prefill-first"


_ORDERS: Final = {
    "": StageOrder.DECODE_FIRST,
    "decode": StageOrder.DECODE_FIRST,
    "decodefirst": StageOrder.DECODE_FIRST,
    "prefill": StageOrder.PREFILL_FIRST,
    "prefillfirst": StageOrder.PREFILL_FIRST,
}
"""By the text without `-` and `_`, in lower case: the reference reads it so."""


@dataclass(frozen=True, slots=True)
class Profiles:
    """Names of the stages' profiles; an empty one is the stage's own name."""

    decode: str = ""
    prefill: str = ""
    encode: str = ""


@dataclass(frozen=True, slots=True)
class Deciders:
    """Names of the plugins that say whether a stage runs for a request; empty: it never does."""

    prefill: str = ""
    encode: str = ""


@dataclass(frozen=True, slots=True)
class DisaggParameters:
    """What the operator writes, nested or flat."""

    stageOrder: str = ""
    profiles: Profiles = field(default_factory=Profiles)
    deciders: Deciders = field(default_factory=Deciders)
    decodeProfile: str = ""
    prefillProfile: str = ""
    encodeProfile: str = ""
    prefillDeciderPluginName: str = ""
    encodeDeciderPluginName: str = ""
    deciderPluginName: str = ""

    def __post_init__(self) -> None:
        """Refuse what cannot be meant."""
        flat = self.flat
        if flat and (self.profiles != Profiles() or self.deciders != Deciders()):
            raise ParameterError(
                flat[0], "is of the flat form, which profiles and deciders replace: use one of the two forms"
            )
        order = stage_order(self.stageOrder)
        if order is StageOrder.PREFILL_FIRST and self.stages.deciders.prefill:
            raise ParameterError(
                self.path_of(PREFILL),
                "a decider looks at the decode endpoint, which is not known in stageOrder prefill-first: leave it out",
            )

    @property
    def flat(self) -> tuple[str, ...]:
        """Fields of the flat form that are used."""
        return tuple(name for name in _FLAT if getattr(self, name))

    @property
    def stages(self) -> "Stages":
        """What both forms come to."""
        return Stages(
            stage_order(self.stageOrder),
            Profiles(
                self.profiles.decode or self.decodeProfile or DECODE,
                self.profiles.prefill or self.prefillProfile or PREFILL,
                self.profiles.encode or self.encodeProfile or ENCODE,
            ),
            Deciders(
                self.deciders.prefill or self.prefillDeciderPluginName or self.deciderPluginName,
                self.deciders.encode or self.encodeDeciderPluginName,
            ),
        )

    def path_of(self, stage: str) -> str:
        """Where the name of a stage's decider stands."""
        if getattr(self.deciders, stage):
            return f"deciders.{stage}"
        return (
            "deciderPluginName"
            if stage == PREFILL and not self.prefillDeciderPluginName
            else f"{stage}DeciderPluginName"
        )


@dataclass(frozen=True, slots=True)
class Stages:
    """Complete names of profiles, and of deciders where there are any."""

    order: StageOrder
    profiles: Profiles
    deciders: Deciders


@dataclass(frozen=True, slots=True)
class PdParameters:
    """Of the deprecated handler. `prefixPluginType` and `prefixPluginName` never meant anything and are taken for old files."""

    decodeProfile: str = DECODE
    prefillProfile: str = PREFILL
    deciderPluginName: str = DEFAULT_DECIDER
    primaryPort: int = 0
    prefixPluginType: str = ""
    prefixPluginName: str = ""

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        if not self.deciderPluginName:
            raise ParameterError("deciderPluginName", "expected the name of a decider, found an empty text")
        if not 0 <= self.primaryPort <= MAX_PORT:
            raise ParameterError("primaryPort", f"expected 1 to {MAX_PORT}, or 0 for none, found {self.primaryPort}")


@dataclass(frozen=True, slots=True)
class PrefixDeciderParameters:
    """`nonCachedTokens` 0 never disaggregates; `promptTokens` 0 asks nothing of the prompt's length."""

    nonCachedTokens: int = 0
    promptTokens: int = 0
    prefixMatchInfoProducerName: str = ""

    def __post_init__(self) -> None:
        """Refuse negative numbers."""
        for name in ("nonCachedTokens", "promptTokens"):
            if getattr(self, name) < 0:
                raise ParameterError(name, f"expected a whole number from 0 up, found {getattr(self, name)}")


@dataclass(frozen=True, slots=True)
class HeaderParameters:
    """Of the deprecated types that only set headers."""

    prefillProfile: str = PREFILL
    encodeProfile: str = ENCODE


def stage_order(text: str) -> StageOrder:
    """The order of a text. Raises `ParameterError`."""
    order = _ORDERS.get(text.replace("-", "").replace("_", "").lower())
    if order is None:
        raise ParameterError("stageOrder", f"expected {' or '.join(StageOrder)}, found {text[:80]!a}")
    return order
