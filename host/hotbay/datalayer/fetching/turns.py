"""Takes the steps of a piece of work, with a turn of the loop between two of them, and counts what they took."""

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

from hotbay.datalayer.pages.steps import Steps

__all__ = ["in_turns"]

_Result = TypeVar("_Result")


async def in_turns(steps: Steps[_Result], spent: Callable[[float], None]) -> _Result:
    """Take all steps; `spent` is told the seconds of the thread that each took. Raises what they raise."""
    while True:
        began_s = time.thread_time()
        try:
            next(steps)
        except StopIteration as end:
            result: _Result = end.value
            return result
        finally:
            spent(time.thread_time() - began_s)
        await asyncio.sleep(0)
