"""Which live plugins say that they are not ready yet: asked once a second, beside requests, and part of `/readyz`.

A process is asked over its control link, one question at a time. What it said last holds until it says something else: while its
instances are made anew it answers late, and is as ready as before. One that is gone or new is not waited for; failure policies
decide for it.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Final

import anyio
import anyio.abc
from hotbay_sdk.protocol import ErrorCode, Method, Value

from hotbay.errors import HostError, printable
from hotbay.rpc.leases import Generation

logger = logging.getLogger(__name__)

__all__ = ["INTERVAL_S", "Readiness"]

INTERVAL_S: Final = 1.0
_ANSWER_S: Final = 60.0
"""For one answer. It waits behind `configure`, which has half of that, and a call that goes on long after its deadline costs the
process its life."""
_NO: Final = frozenset({ErrorCode.DEADLINE_EXCEEDED, ErrorCode.PLUGIN_ERROR, ErrorCode.BAD_RESULT})
_NAMED: Final = 5
_TEXT_CHARS: Final = 200


class Readiness:
    """See the module. `live` gives plugin and generation of what answers requests now. `reasons` may be asked at any time."""

    def __init__(self, live: Callable[[], Iterable[tuple[str, Generation]]]) -> None:
        self._live = live
        self._said: dict[int, str] = {}
        self._asked: set[int] = set()

    @property
    def reasons(self) -> tuple[str, ...]:
        """One line for each live plugin that is not ready, with the refs that are not."""
        found = (
            (plugin, self._said.get(generation.number, ""))
            for plugin, generation in self._live()
            if generation.client.fault is None and not generation.leaving
        )
        return tuple(f"plugin {plugin} is not ready: {said}" for plugin, said in found if said)

    async def settle(self, patience_s: float) -> None:
        """Return when every live plugin is ready, and at the latest after so many seconds. Not beside `run`."""
        with anyio.move_on_after(patience_s):
            async with anyio.create_task_group() as group:
                self.look(group)
            while self.reasons:
                await anyio.sleep(INTERVAL_S)
                async with anyio.create_task_group() as group:
                    self.look(group)

    async def run(self) -> None:
        """Ask until cancelled."""
        async with anyio.create_task_group() as group:
            while True:
                self.look(group)
                await anyio.sleep(INTERVAL_S)

    def look(self, group: anyio.abc.TaskGroup) -> None:
        """Ask every live process that has answered what it was asked before."""
        live = {generation.number: generation for _, generation in self._live()}
        for number in self._said.keys() - live.keys():
            del self._said[number]
        for number, generation in live.items():
            if number not in self._asked and generation.client.fault is None:
                self._asked.add(number)
                group.start_soon(self._ask, generation)

    async def _ask(self, generation: Generation) -> None:
        number = generation.number
        try:
            answer = await generation.client.control_call(Method.CHECK_READY, [], deadline_s=_ANSWER_S)
        except HostError as error:
            # One that is gone, or knows no such question, is not waited for.
            says_no = error.code in _NO
            logger.debug("check_ready_failed plugin=%s: %s", generation.origin.plugin_id, error)
            self._take(generation, f"it did not say that it is ({error.code})" if says_no else "")
        else:
            self._take(generation, _waiting(answer))
        finally:
            self._asked.discard(number)

    def _take(self, generation: Generation, said: str) -> None:
        if said != self._said.get(generation.number, ""):
            plugin = generation.origin.plugin_id
            if said:
                logger.warning("plugin_not_ready plugin=%s generation=%d: %s", plugin, generation.number, said)
            else:
                logger.info("plugin_ready plugin=%s generation=%d", plugin, generation.number)
        self._said[generation.number] = said


def _waiting(answer: Value) -> str:
    """What a reply says: nothing where all are ready, or where it is none that can be understood."""
    if not isinstance(answer, Mapping) or answer.get("ready") is not False:
        return ""
    waiting = answer.get("waiting")
    names = (
        [printable(str(name)).replace("\n", "\\n")[:_TEXT_CHARS] for name in waiting]
        if isinstance(waiting, list)
        else []
    )
    more = [f"and {len(names) - _NAMED} more"] if len(names) > _NAMED else []
    return ", ".join([*names[:_NAMED], *more]) or "it waits"
