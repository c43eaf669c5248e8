"""Hands pages that somebody else fetched to extractors: of each endpoint one at a time, and always the newest.

Whoever fetches must not wait for extractors, nor one plugin for another: pages wait for each extractor in a process of its own apart.
A page that comes while the one before it is being read takes the place of any that waits: figures are about now, and a slow
extractor sees fewer of them. What a page says is of the endpoint that it was fetched from: one that was removed, moved or put
back meanwhile gets nothing of it.
"""

from collections.abc import Callable
from functools import partial

import anyio
from anyio.abc import TaskStatus

from hotbay.datalayer.endpoint import Endpoint, EndpointMetadata
from hotbay.datalayer.sources.extracting import Extraction

__all__ = ["PageExtraction"]


class PageExtraction:
    """See the module. `arrived` is called on the event loop; nothing happens while `run` does not run.

    Args:
        extraction: what is done with a page.
        current: the live object of an endpoint, None when it is gone.
    """

    def __init__(self, extraction: Extraction, current: Callable[[str], Endpoint | None]) -> None:
        self._extraction = extraction
        self._current = current
        self._newest: dict[tuple[str, str], tuple[object, Callable[[], bool]]] = {}
        self._busy: set[tuple[str, str]] = set()
        self._news = anyio.Event()

    @property
    def busy(self) -> bool:
        """Whether a page waits or is being read."""
        return bool(self._newest or self._busy)

    def arrived(self, endpoint: EndpointMetadata, page: object) -> None:
        """A page of this endpoint came."""
        life = self._current(endpoint.id)
        arrived = page, partial(self._is_of, life, _place(endpoint))
        for lane in self._extraction.lanes:
            self._newest[endpoint.id, lane] = arrived
        self._news.set()

    def _is_of(self, life: Endpoint | None, place: tuple[str, int, str]) -> bool:
        return life is not None and self._current(life.metadata.id) is life and _place(life.metadata) == place

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Extract until cancelled. Run it once at a time."""
        self._newest.clear()
        self._busy.clear()
        async with anyio.create_task_group() as group:
            task_status.started()
            while True:
                await self._news.wait()
                self._news = anyio.Event()
                for place in self._newest.keys() - self._busy:
                    self._busy.add(place)
                    group.start_soon(self._extract, place)

    async def _extract(self, place: tuple[str, str]) -> None:
        endpoint_id, lane = place
        try:
            while place in self._newest:
                page, is_wanted = self._newest.pop(place)
                await self._extraction.run(page, endpoint_id, is_wanted, lane=lane)
        finally:
            self._busy.discard(place)


def _place(endpoint: EndpointMetadata) -> tuple[str, int, str]:
    return endpoint.address, endpoint.port, endpoint.metrics_host
