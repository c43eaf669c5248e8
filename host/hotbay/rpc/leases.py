"""Generations and the leases on them. Pure: an owner with `drained` told when the last lease ends.

A lease is a counted right to call one generation. A cycle takes one on every generation of its plan
and gives it back when it ends; a draining generation gets no new leases because no plan names it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from hotbay_sdk.protocol import TypeDeclaration
from hotbay_sdk.protocol.calls import InstanceFacts

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
    read prompt hashes to the block size that they want; `facts` what refs said of themselves, where that is more. `leaving` from when it is told to go: it ends what it has.
    `untold` are its discoveries, and its sources that watch, that are followed and have not told everything yet: it cannot
    take anybody's place before.
    `features` is what its HELLO says that it can do beside the first form of the protocol.
    `areas_passed` and `output_bytes_passed` count the shared memory that it was given in its life, to read and to write:
    it may keep all of it.
    """

    number: int
    origin: Origin
    client: PluginClient
    types: Mapping[str, TypeDeclaration]
    pid: int
    handles: dict[str, int] = field(default_factory=dict)
    block_tokens: dict[str, int] = field(default_factory=dict)
    facts: dict[str, InstanceFacts] = field(default_factory=dict)
    features: frozenset[str] = frozenset()
    untold: set[str] = field(default_factory=set)
    areas_passed: int = 0
    output_bytes_passed: int = 0
    leases: int = 0
    leaving: bool = False
    _drained: list[Callable[[], None]] = field(default_factory=list)
    _told_to_go: list[Callable[[], None]] = field(default_factory=list)

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

    def leave(self) -> None:
        """It is told to go; tells who waits for it. Later calls do nothing."""
        self.leaving = True
        waiters, self._told_to_go = self._told_to_go, []
        for told in waiters:
            told()

    def on_leaving(self, told: Callable[[], None]) -> Callable[[], None]:
        """Call `told` once, when it is told to go: at once if it was. What is returned ends it, and may be called again."""
        if self.leaving:
            told()
        else:
            self._told_to_go.append(told)

        def unsubscribe() -> None:
            # The same function may have been given twice: one of them is as good as the other.
            if told in self._told_to_go:
                self._told_to_go.remove(told)

        return unsubscribe


@dataclass(frozen=True, slots=True)
class LiveRef:
    """Where a plugin ref is answered now: the process, the handle inside it, and what its type declares."""

    generation: Generation
    handle: tuple[int, int]
    declaration: TypeDeclaration
