"""Which configuration holds for whom while another one is on its way. Pure.

Until a configuration is in force, what the one before needs learns nothing of it; what only the new one needs obeys it,
because it is brought up first. Of several on their way the newest counts.
"""

from collections.abc import Callable

from hotbay.config.host_config import HostConfig

__all__ = ["InForce"]


class InForce:
    """See the module. `is_only_incoming` says whether a routine's name is needed by nothing that is in force.

    `changed` is told whenever `config` or `incoming` is another one.
    """

    def __init__(self, config: HostConfig) -> None:
        self.config = config
        self.incoming: HostConfig | None = None
        self.is_only_incoming: Callable[[str], bool] = lambda name: False
        self.changed: Callable[[], None] = lambda: None

    def of(self, name: str) -> HostConfig:
        """What holds for a routine."""
        if self.incoming is not None and self.is_only_incoming(name):
            return self.incoming
        return self.config

    def offer(self, config: HostConfig) -> None:
        """A configuration is on its way."""
        self.incoming = config
        self.changed()

    def take(self, config: HostConfig) -> None:
        """It is in force. A newer one may be on its way already."""
        self.config = config
        self.give_up(config)

    def give_up(self, config: HostConfig) -> None:
        """It is on its way no more."""
        if self.incoming is config:
            self.incoming = None
        self.changed()
