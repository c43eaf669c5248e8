"""Which configuration holds for whom while another one is on its way. Pure.

Until a configuration is in force, what the one before needs learns nothing of it; what only the new one needs obeys it,
because it is brought up first. Of several on their way the newest counts, and when that one is given up, the newest of
those that are left.
"""

from collections.abc import Callable
from itertools import takewhile

from hotbay.config.host_config import HostConfig

__all__ = ["InForce"]


class InForce:
    """See the module. `is_only_incoming` says whether a routine's name is needed by nothing that is in force.

    `changed` is told whenever `config` or `incoming` is another one.
    """

    def __init__(self, config: HostConfig) -> None:
        self.config = config
        self._on_their_way: list[HostConfig] = []
        self.is_only_incoming: Callable[[str], bool] = lambda name: False
        self.changed: Callable[[], None] = lambda: None

    @property
    def incoming(self) -> HostConfig | None:
        """The newest that is on its way."""
        return self._on_their_way[-1] if self._on_their_way else None

    def of(self, name: str) -> HostConfig:
        """What holds for a routine."""
        incoming = self.incoming
        return incoming if incoming is not None and self.is_only_incoming(name) else self.config

    def offer(self, config: HostConfig) -> None:
        """A configuration is on its way."""
        self._on_their_way.append(config)
        self.changed()

    def take(self, config: HostConfig) -> None:
        """It is in force, and what was offered before it has made way. A newer one may be on its way already."""
        self.config = config
        newer = takewhile(lambda other: other is not config, reversed(self._on_their_way))
        self._on_their_way = [*newer][::-1]
        self.changed()

    def give_up(self, config: HostConfig) -> None:
        """It is on its way no more."""
        self._on_their_way = [other for other in self._on_their_way if other is not config]
        self.changed()
