"""A world that can be let go of and taken again, with everybody who holds it none the wiser.

While it is let go of, reading shows what was known last, `changed` waits, and `transact` is refused as UNAVAILABLE: for
the time in which another host has the state directory.
"""

from collections.abc import Awaitable, Callable, Iterable

import anyio

from hotbay.errors import taking_over
from hotbay.store.world.engine import Change, World, WorldView

__all__ = ["HeldWorld"]


class HeldWorld:
    """See the module; a `World`. `open_again` opens the engine that `take_again` goes on with."""

    def __init__(self, engine: World, open_again: Callable[[], Awaitable[World]]) -> None:
        self._engine = engine
        self._open_again = open_again
        self._exchanged = anyio.Event()
        self._is_held = True

    @property
    def view(self) -> WorldView:
        """The newest view."""
        return self._engine.view

    async def transact(self, build: Callable[[WorldView], Iterable[Change]]) -> WorldView:
        """See `World.transact`. Raises CapacityError UNAVAILABLE also while it is let go of."""
        if not self._is_held:
            raise taking_over()
        return await self._engine.transact(build)

    async def changed(self, after: int) -> WorldView:
        """See `World.changed`."""
        while self.view.revision <= after:
            async with anyio.create_task_group() as group:

                async def follow(engine: World, scope: anyio.CancelScope) -> None:
                    await engine.changed(after)
                    scope.cancel()

                group.start_soon(follow, self._engine, group.cancel_scope)
                await self._exchanged.wait()
                group.cancel_scope.cancel()
        return self.view

    async def let_go(self) -> None:
        """Close the engine; the last view stays."""
        self._is_held = False
        await self._engine.close()

    async def take_again(self) -> None:
        """Open it again. Raises what opening raises, with the world still let go of."""
        self._engine = await self._open_again()
        self._is_held = True
        exchanged, self._exchanged = self._exchanged, anyio.Event()
        exchanged.set()

    async def close(self) -> None:
        """See `World.close`."""
        await self._engine.close()
