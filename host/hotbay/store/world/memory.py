"""A world that ends with the process: for `world: {engine: memory}`, for sources that are not stored, and for tests."""

from collections.abc import Callable, Iterable

import anyio.lowlevel

from hotbay.errors import CapacityError
from hotbay.store.world.changes import apply_changes
from hotbay.store.world.engine import Change, WorldView
from hotbay.store.world.newest import Newest

__all__ = ["MemoryWorld"]


class MemoryWorld:
    """See `World`; nothing outlives the object. Made inside a running loop."""

    def __init__(self, view: WorldView | None = None) -> None:
        self._newest = Newest(view or WorldView())
        self._closed = False

    @property
    def view(self) -> WorldView:
        """The newest view."""
        return self._newest.view

    async def transact(self, build: Callable[[WorldView], Iterable[Change]]) -> WorldView:
        """See `World.transact`. Raises CapacityError UNAVAILABLE after `close`."""
        await anyio.lowlevel.checkpoint()
        if self._closed:
            raise CapacityError("UNAVAILABLE", "the world in memory is closed")
        view, rows = apply_changes(self.view, build(self.view))
        if rows:
            self._newest.publish(view)
        return view

    async def changed(self, after: int) -> WorldView:
        """See `World.changed`."""
        return await self._newest.above(after)

    async def close(self) -> None:
        """Refuses transactions from now on; the view stays readable."""
        self._closed = True
