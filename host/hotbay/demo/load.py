"""Load for a gateway until it is told to stop: conversations side by side, or the replay of a trace.

Stopping sends nothing more; what is under way is read to its end.
"""

from collections.abc import Callable, Sequence

import anyio

from hotbay.demo.client import Asker
from hotbay.demo.trace import Arrival
from hotbay.demo.workload import Conversation, conversation

__all__ = ["Load"]


class Load:
    """Drives one asker. Use either method once."""

    def __init__(self, asker: Asker, clock: Callable[[], float]) -> None:
        self._asker = asker
        self._clock = clock
        self._stopping = anyio.Event()

    def stop(self) -> None:
        """Let what is under way end, and begin nothing."""
        self._stopping.set()

    async def converse(self, seed: int, count: int) -> None:
        """Hold `count` conversations at a time; each that ends is followed by another."""
        async with anyio.create_task_group() as group:
            for first in range(count):
                group.start_soon(self._speaker, seed, first, count)

    async def _speaker(self, seed: int, number: int, step: int) -> None:
        while not self._stopping.is_set():
            await self._hold(conversation(seed, number))
            number += step

    async def _hold(self, script: Conversation) -> None:
        messages = [{"role": "system", "content": script.system}]
        for turn in script.turns:
            if await self._stopped_within(turn.think_s):
                return
            messages.append({"role": "user", "content": turn.question})
            answer = await self._asker.ask(messages, turn.answer_tokens)
            if answer.sample.error:
                return
            messages.append({"role": "assistant", "content": answer.text})

    async def replay(self, arrivals: Sequence[Arrival], *, limit: int) -> None:
        """Send each request at its time, or later when `limit` are under way; begin again when all were sent."""
        room = anyio.Semaphore(limit)
        async with anyio.create_task_group() as group:
            while True:
                begun_s = self._clock()
                for arrival in arrivals:
                    if await self._stopped_within(begun_s + arrival.at_s - self._clock()):
                        return
                    await room.acquire()
                    if self._stopping.is_set():
                        return
                    group.start_soon(self._send, arrival, room)

    async def _send(self, arrival: Arrival, room: anyio.Semaphore) -> None:
        try:
            await self._asker.ask([{"role": "user", "content": arrival.prompt}], arrival.answer_tokens)
        finally:
            room.release()

    async def _stopped_within(self, pause_s: float) -> bool:
        with anyio.move_on_after(max(0.0, pause_s)):
            await self._stopping.wait()
        return self._stopping.is_set()
