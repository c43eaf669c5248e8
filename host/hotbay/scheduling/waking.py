"""Holds requests while a plugin that they need is woken or exchanged, and says which plugins to wake.

Invariants: while nothing sleeps and nothing is exchanged, a request costs one comparison; a plugin is asked for once until a
plan is published in which it is awake.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from hotbay.scheduling.decision import Decision
from hotbay.scheduling.holding import Done, Held
from hotbay.scheduling.request import InferenceRequest

__all__ = ["WAKE_WITHIN_S", "Waking"]

logger = logging.getLogger(__name__)

WAKE_WITHIN_S: Final = 10.0
"""What a request waits for a plugin that sleeps: a start takes a second, a client waits longer for a first token."""


class Waking:
    """See the module. Lives on the loop that made it.

    Set `wake` to be told of plugins that a request needs and that sleep. `hold_s`: how long a request that comes now is to be
    held, 0 for not at all.
    """

    def __init__(
        self,
        let_go: Callable[[InferenceRequest, Callable[[Decision], None]], None],
        *,
        changed: Callable[[int], None],
        wake_within_s: float,
    ) -> None:
        self.wake: Callable[[str], None] | None = None
        self.held = Held(let_go, changed=changed)
        self.hold_s = 0.0
        self._loop = asyncio.get_running_loop()
        self._wake_within_s = wake_within_s
        self._dormant: tuple[str, ...] = ()
        self._woken: set[str] = set()
        self._quiesced: dict[int, float] = {}

    def published(self, dormant: tuple[str, ...]) -> None:
        """Take which plugins sleep under the plan of now."""
        self._dormant = dormant
        self._woken.intersection_update(dormant)
        self._set_hold()

    def quiesce(self, generation: int, within_s: float) -> None:
        """See `Router.quiesce`."""
        self._quiesced[generation] = within_s
        self._set_hold()

    def resume(self, generation: int) -> None:
        """See `Router.resume`."""
        self._quiesced.pop(generation, None)
        self._set_hold()

    def hold(self, request: InferenceRequest, done: Done) -> bool:
        """Keep a request back and wake what sleeps; false when too many wait already."""
        taken = self.held.take(request, done, self.hold_s)
        self._wake_dormant()
        return taken

    def _set_hold(self) -> None:
        before_s, asleep_s = self.hold_s, self._wake_within_s if self._dormant else 0.0
        self.hold_s = max(asleep_s, *self._quiesced.values(), 0.0)
        if not self.hold_s:
            self.held.release()
        elif self.hold_s < before_s:
            self.held.shorten(self.hold_s)
        if asleep_s and self.held:
            # What waits for another plugin waits for this one too. Not now: who publishes is in the middle of a step.
            self._loop.call_soon(self._wake_for_held)

    def _wake_for_held(self) -> None:
        if self.held:
            self._wake_dormant()

    def _wake_dormant(self) -> None:
        for plugin_id in self._dormant:
            if plugin_id not in self._woken:
                self._woken.add(plugin_id)
                try:
                    if self.wake is not None:
                        self.wake(plugin_id)
                except Exception:
                    # Named boundary: who wakes is not ours, and the request may go on without the plugin.
                    logger.exception("wake_failed plugin=%s", plugin_id)
