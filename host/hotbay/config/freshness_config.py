"""How long figures of endpoints count: the `freshness` of a HostConfig. Pure."""

import re
from collections.abc import Mapping
from typing import Annotated, Final, Literal

from pydantic import BeforeValidator, Field

from hotbay.config.host_fields import PositiveDuration, Section, refusal

__all__ = ["Freshness"]

_FIELDS: Final = ("waiting", "running", "kv_usage", "lora", "cache")
_FIELD: Final = re.compile(rf"(?:{'|'.join(_FIELDS)}|attribute\.[A-Za-z0-9_.:/-]{{1,128}})")


def _field(value: object) -> object:
    if isinstance(value, str) and _FIELD.fullmatch(value) is None:
        raise refusal(f"one of {', '.join(_FIELDS)}, or attribute.NAME", value)
    return value


class Freshness(Section):
    """How long figures of endpoints count, what plugins see of older ones, and when an endpoint is unhealthy.

    `fields` sets other limits for some of them.
    """

    stale_after_s: PositiveDuration = Field(default=2.0, alias="stale_after")
    fields: Mapping[Annotated[str, BeforeValidator(_field)], PositiveDuration] = {}
    policy: Literal["unknown", "ignore"] = "unknown"
    failures: int = Field(default=3, ge=1, le=1000)
