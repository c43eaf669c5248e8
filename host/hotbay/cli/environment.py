"""What of the process's environment counts."""

import os
from typing import Final

__all__ = ["ENVIRONMENT_NAMES", "environment"]

ENVIRONMENT_NAMES: Final = ("HOME", "XDG_STATE_HOME")
"""Where state goes by default. Nothing else of a host is set there."""


def environment() -> dict[str, str]:
    """The few names that count."""
    return {name: os.environ[name] for name in ENVIRONMENT_NAMES if name in os.environ}  # noqa: TID251 - the door
