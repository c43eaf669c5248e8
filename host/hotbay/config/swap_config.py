"""How a new version takes over from the live one: the `swap` of a HostConfig. Pure.

The defaults are the numbers of the rollout's table: shadow 2 s or 200 calls, canary 10 % for 10 s and at least 100
requests, guard 30 s and at least 200 calls. Each step can be `off`.
"""

from typing import Annotated, Final, Literal

from pydantic import BeforeValidator, Field, GetJsonSchemaHandler, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from hotbay.config.host_fields import Duration, PositiveDuration, Section

__all__ = ["Canary", "Guard", "OrOff", "Shadow", "Swap", "off_is_none"]


_OFF: Final = "off"


class OrOff:
    """Lets editors know that a step may be the word `off`; without a step the field is None."""

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"anyOf": [handler(core), {"const": _OFF}]}


def off_is_none(value: object) -> object:
    """The word `off` as the value of a field that is not there."""
    return None if value == _OFF else value


class Shadow(Section):
    """A sample of live calls is copied to the candidate until one of the bounds is reached; answers are compared.

    `max_difference` is the largest difference of one score that passes; without it differences are only reported.
    """

    sample: float = Field(default=0.1, gt=0, le=1)
    calls: int = Field(default=200, ge=1)
    for_s: PositiveDuration = Field(default=2.0, alias="for")
    max_difference: Annotated[float, Field(ge=0, le=1)] | None = None


class Canary(Section):
    """A share of the requests runs on the candidate for this long, and until so many of them did."""

    share: float = Field(default=0.1, gt=0, lt=1)
    for_s: PositiveDuration = Field(default=10.0, alias="for")
    min_requests: int = Field(default=100, ge=1)


class Guard(Section):
    """The version before is kept ready for this long after the cut over, and until so many calls were made."""

    for_s: PositiveDuration = Field(default=30.0, alias="for")
    calls: int = Field(default=200, ge=1)

    @model_validator(mode="before")
    @classmethod
    def _duration_alone(cls, value: object) -> object:
        return {"for": value} if isinstance(value, str) else value


class Swap(Section):
    """The steps of a swap; one that is `off` is None.

    `overlap` starts the new version beside the old; `handover` stops the old one first.
    """

    mode: Literal["overlap", "handover"] = "overlap"
    shadow: Annotated[Shadow | None, BeforeValidator(off_is_none), OrOff()] = Shadow()
    canary: Annotated[Canary | None, BeforeValidator(off_is_none), OrOff()] = Canary()
    guard: Annotated[Guard | None, BeforeValidator(off_is_none), OrOff()] = Guard()
    approve: Literal["auto", "manual"] = "auto"
    drain_s: Duration = Field(default=30.0, alias="drain")
