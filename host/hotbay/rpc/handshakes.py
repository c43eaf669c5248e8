"""The frames of a start, for whoever waits for them: each type is expected once, and an end of the process ends every wait."""

import asyncio
from collections.abc import Collection

from hotbay_sdk.protocol import FrameType, HandshakeReceived, Value

from hotbay.errors import HostError


class Handshakes:
    """What a process said of itself at its start, and who waits for it. Lives on the loop that made it."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._futures: dict[FrameType, asyncio.Future[Value]] = {}
        self.features: Collection[Value] | None = None
        """What HELLO says that the plugin can do beside the first form of version 1; None before HELLO."""

    async def wait(self, frame_type: FrameType) -> Value:
        """The body of a frame, which may have come already. Raises the fault that ended the process instead."""
        return await self._futures.setdefault(frame_type, self._loop.create_future())

    def take(self, event: HandshakeReceived) -> None:
        """Take a frame; the first of its type counts."""
        future = self._futures.setdefault(event.type, self._loop.create_future())
        if future.done():
            return
        future.set_result(event.body)
        if event.type is FrameType.HELLO:
            features = event.body.get("features") if isinstance(event.body, dict) else None
            self.features = features if isinstance(features, list) else ()

    def fail(self, fault: HostError) -> None:
        """The process is gone."""
        for future in self._futures.values():
            if not future.done():
                future.set_exception(fault)
                # Nobody may be waiting: the exception is then seen by no one, which is no error.
                future.exception()
