"""The one asyncio loop of a process whose types have async methods.

It lives in a thread of its own, so what an author leaves running goes on between calls. Nothing
that an author's coroutine raises ends the loop.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence

from hotbay_sdk._context import Host
from hotbay_sdk._errors import CallFailedError, Failed
from hotbay_sdk.protocol.messages import CallError, ErrorCode, Executed

Job = Callable[[], Awaitable[object]]
_STOP_S = 1.0


class AsyncRunner:
    """Runs coroutines from threads that block for their outcomes, as `host` lets them wait."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="hotbay-async", daemon=True)
        self._thread.start()

    def outcomes(self, jobs: Sequence[Job], timeout_s: float | None) -> list[object]:
        """Run `jobs` at once; each result, or a `Failed` for what failed, was cancelled or was not done in time.

        Raises SystemExit if one of them did.
        """
        future = asyncio.run_coroutine_threadsafe(self._all(jobs, timeout_s), self._loop)
        results = self._host.outcomes(future)
        if results is None:
            future.cancel()
            given_up = CallError(ErrorCode.CANCELLED, "cancelled while it ran", executed=Executed.YES)
            return [Failed(CallFailedError(given_up)) for _ in jobs]
        for result in results:
            if isinstance(result, SystemExit):
                raise result
        return results

    async def _all(self, jobs: Sequence[Job], timeout_s: float | None) -> list[object]:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(_guarded(job, timeout_s)) for job in jobs]
        return [task.result() for task in tasks]

    def close(self) -> None:
        """Stop the loop; wait for its thread for a bounded time."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_STOP_S)
        if not self._thread.is_alive():
            self._loop.close()


async def _guarded(job: Job, timeout_s: float | None) -> object:
    limit = asyncio.timeout(timeout_s)
    try:
        async with limit:
            return await job()
    except SystemExit as leaving:
        return leaving
    except BaseException as fault:  # noqa: BLE001  # named boundary: an author's coroutine may raise anything
        if isinstance(fault, TimeoutError) and limit.expired():
            late = CallError(ErrorCode.DEADLINE_EXCEEDED, "cancelled at its deadline", executed=Executed.YES)
            return Failed(CallFailedError(late))
        return Failed(fault)
