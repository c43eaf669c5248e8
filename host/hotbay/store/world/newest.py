"""The newest view of an engine, and the waiting for a newer one. For the loop's thread."""

import anyio

from hotbay.store.world.engine import WorldView

__all__ = ["Newest"]


class Newest:
    """Holds the view. Publishing wakes everybody who waits; a view published before the wait is not missed."""

    def __init__(self, view: WorldView) -> None:
        self.view = view
        self._replaced = anyio.Event()

    def publish(self, view: WorldView) -> None:
        """Takes the view's place. Revisions only grow."""
        assert view.revision >= self.view.revision
        self.view = view
        replaced, self._replaced = self._replaced, anyio.Event()
        replaced.set()

    async def above(self, revision: int) -> WorldView:
        """Waits until the revision is above the given one; returns the newest view."""
        while self.view.revision <= revision:
            await self._replaced.wait()
        return self.view
