"""A client's preference for an endpoint that has its prompt already: `Prefer: if-available`, as the reference understands it. Pure.

Who asks for it wants the request served where a part of its prompt is cached, or not at all: it has other ways to have the
prompt computed.
"""

from collections.abc import Mapping
from typing import Final

from hotbay.scheduling.decision import Rejected

__all__ = ["NOT_CACHED", "is_conditional"]

_IF_AVAILABLE: Final = "if-available"
NOT_CACHED: Final = Rejected(
    412, "precondition-failed", "no leading block of the prompt is known to be cached at the endpoint that was chosen"
)


def is_conditional(headers: Mapping[str, str]) -> bool:
    """Whether one of the preferences (RFC 7240: separated by commas, each maybe with a value and parameters) is this one."""
    given = headers.get("prefer")
    if given is None:
        return False
    return any(
        preference.partition(";")[0].partition("=")[0].strip().lower() == _IF_AVAILABLE
        for preference in given.split(",")
    )
