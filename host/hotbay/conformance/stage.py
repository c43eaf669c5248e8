"""What a rule is, and the processes that rules are tried on.

Most rules leave a peer as they found it and share one; a rule that ends its peer, or looks at its start, gets its own.
A shared peer that a rule broke is replaced for the next.
"""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass

from hotbay.conformance.link import Patience
from hotbay.conformance.peer import Conversation, Peer, started
from hotbay.process.launch import LaunchSpec

__all__ = ["Rule", "Stage"]


class Stage:
    """Peers on demand. `close` ends them all."""

    def __init__(self, spec: LaunchSpec, patience: Patience, parameters: Mapping[str, Mapping[str, object]]) -> None:
        self.patience = patience
        self._spec = spec
        self.parameters = parameters
        self._own = AsyncExitStack()
        self._common = AsyncExitStack()
        self._shared: Conversation | None = None
        self._last: Peer | None = None

    @property
    def log(self) -> str:
        """The end of the log of the peer that was used last."""
        return self._last.child.log.tail(2000) if self._last is not None else ""

    async def peer(self) -> Peer:
        """A process that was just started, for this rule alone."""
        self._last = await self._own.enter_async_context(started(self._spec, self.patience))
        return self._last

    async def talk(self) -> Conversation:
        """A process that is READY, for this rule alone."""
        return await Conversation.open(await self.peer(), self.parameters)

    async def shared(self) -> Conversation:
        """A process that is READY and that the rules before have left in order."""
        if self._shared is None:
            peer = self._last = await self._common.enter_async_context(started(self._spec, self.patience))
            self._shared = await Conversation.open(peer, self.parameters)
        self._last = self._shared.peer
        return self._shared

    async def end_rule(self, *, broken: bool) -> None:
        """Stop what was this rule's own, and a shared peer that is not as it was."""
        await self._own.aclose()
        if broken or (self._shared is not None and not self._shared.alive):
            await self.close()

    async def close(self) -> None:
        await self._own.aclose()
        self._shared = None
        await self._common.aclose()


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule. `check` returns when it is kept, and raises `BrokenRuleError` or `InapplicableError` otherwise."""

    id: str
    title: str
    check: Callable[[Stage], Awaitable[None]]
