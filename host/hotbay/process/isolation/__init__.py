"""Isolation levels: what stands between a plugin process and the machine.

Import rule: may import `hotbay.errors`, `hotbay.process.launch` and `hotbay_sdk.protocol` (codes only).
A level that is not built is refused; no level is ever replaced by a weaker one.
"""

import logging
from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from hotbay_sdk.protocol import ErrorCode

from hotbay.errors import PluginFault
from hotbay.process.launch import LaunchSpec

__all__ = ["Level", "NoIsolation", "find_level"]

logger = logging.getLogger(__name__)


class Level(Protocol):
    """One way of confining a process. `name` is what the operator writes in `isolation.level`."""

    @property
    def name(self) -> str:
        """The level's name in configuration."""

    def wrap(self, argv: Sequence[str], spec: LaunchSpec) -> tuple[str, ...]:
        """Return the command line that runs `argv` confined."""

    def claims(self) -> tuple[str, ...]:
        """Names of what stage 0 must report as enforced, or the start is refused."""


class NoIsolation:
    """Level `none`: clean environment, closed descriptors, process group. For development, and it says so."""

    name = "none"

    def __init__(self) -> None:
        self._announced = False

    def wrap(self, argv: Sequence[str], spec: LaunchSpec) -> tuple[str, ...]:
        """Return `argv` as it is; warns at the first process of this host."""
        if not self._announced:
            self._announced = True
            logger.warning(
                "isolation_none: NO ISOLATION: plugin processes run with the host's own rights and can read its files and memory "
                "(isolation.level none, first process %s). For development only.",
                spec.label,
                extra={"event": "isolation_none", "plugin": spec.label},
            )
        return tuple(argv)

    def claims(self) -> tuple[str, ...]:
        """Nothing is claimed."""
        return ()


_LEVELS: Final[Mapping[str, Level]] = {level.name: level for level in (NoIsolation(),)}


def find_level(name: str) -> Level:
    """Return the level; raises `PluginFault` REFUSED_ISOLATION for one that this host does not have."""
    level = _LEVELS.get(name)
    if level is None:
        raise PluginFault(
            ErrorCode.REFUSED_ISOLATION,
            f"isolation level {name!r} is not built yet",
            hint=f"set isolation.level to one of: {', '.join(sorted(_LEVELS))}",
            details={"level": name},
        )
    return level
