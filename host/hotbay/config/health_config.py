"""When an endpoint is ejected for its answers, and how slowly one begins: the `health` of a HostConfig. Pure.

The defaults, and where they come from, are those of `hotbay.datalayer.health.availability`; a unit test holds them equal.
"""

from typing import Annotated

from pydantic import BeforeValidator, Field, model_validator

from hotbay.config.host_fields import Duration, PositiveDuration, Section
from hotbay.config.swap_config import OrOff, off_is_none

__all__ = ["Eject", "HealthSection"]


class Eject(Section):
    """What ejects an endpoint, for how long, and how many at a time.

    `max` is a share of the endpoints that may be out; one may be where that is less than one, and the last one never is.
    """

    unreachable: int = Field(default=5, ge=1, le=1000)
    silent_s: PositiveDuration = Field(default=2.0, alias="silent")
    silent_whole_s: PositiveDuration = Field(default=60.0, alias="silent_whole")
    error_share: float = Field(default=0.5, gt=0, le=1)
    min_requests: int = Field(default=10, ge=1, le=100_000)
    slow_factor: float = Field(default=5.0, gt=1, le=1000)
    slow_s: Duration = Field(default=1.0, alias="slow")
    min_samples: int = Field(default=20, ge=1, le=60)
    interval_s: PositiveDuration = Field(default=10.0, alias="interval")
    base_s: PositiveDuration = Field(default=30.0, alias="base")
    longest_s: PositiveDuration = Field(default=300.0, alias="longest")
    max_share: float = Field(default=0.5, gt=0, le=1, alias="max")

    @model_validator(mode="after")
    def _longest_is_longest(self) -> "Eject":
        if self.longest_s < self.base_s:
            raise ValueError("`longest` is at least `base`: it bounds how far an ejection grows")
        return self


class HealthSection(Section):
    """How endpoints are judged by their answers; `eject: off` takes none out."""

    eject: Annotated[Eject | None, BeforeValidator(off_is_none), OrOff()] = Eject()
    slow_start_s: Duration = Field(default=30.0, alias="slow_start")
