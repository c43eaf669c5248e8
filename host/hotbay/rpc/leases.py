"""Generations and the leases on them. Pure: an owner with `drained` told when the last lease ends.

A lease is a counted right to call one generation. A cycle takes one on every generation of its plan
and gives it back when it ends; a draining generation gets no new leases because no plan names it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from hotbay_sdk.protocol import TypeDeclaration

from hotbay.rpc.client import PluginClient


@dataclass(frozen=True, slots=True)
class Origin:
    """Which content a generation runs: identity is (plugin id, digest, generation)."""

    plugin_id: str
    version: str
    rev: int
    digest: str


@dataclass(slots=True, eq=False)
class Generation:
    """One process of one package that became READY, and what it can be asked.

    `handles` maps a plugin ref's name to its number inside the process; `block_tokens` maps refs that
    read prompt hashes to the block size that they want.
    """

    number: int
    origin: Origin
    client: PluginClient
    types: Mapping[str, TypeDeclaration]
    pid: int
    handles: dict[str, int] = field(default_factory=dict)
    block_tokens: dict[str, int] = field(default_factory=dict)
    leases: int = 0
    _drained: list[Callable[[], None]] = field(default_factory=list)

    def acquire(self) -> None:
        """Take a lease."""
        self.leases += 1

    def release(self) -> None:
        """Give a lease back; tells the drain waiters when it was the last."""
        self.leases -= 1
        if self.leases == 0 and self._drained:
            waiters, self._drained = self._drained, []
            for drained in waiters:
                drained()

    def on_drained(self, drained: Callable[[], None]) -> None:
        """Call `drained` once, when no lease is left: at once if there is none now."""
        if self.leases == 0:
            drained()
        else:
            self._drained.append(drained)
