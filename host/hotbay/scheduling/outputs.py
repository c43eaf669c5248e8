"""Memory that one plugin process writes its scores into: regions of an area, lent to one call each.

A call may name a region; the process writes there what would be the scores of its reply, and answers with their length.
The host copies them once, before anything is checked, so what the process does to its memory later alters no
result. Invariants: a region is lent again only after its call was answered to the host and the process is done with
it, late answers included; an area is named only after it was acknowledged; a process has at most one area that is
named, of `REGIONS` regions of at most `MAX_REGION_BYTES`, and is passed `MAX_PASSED_BYTES` in its life, however often it is
published anew; without a region scores travel in the reply.
"""

import logging
from collections.abc import Callable
from typing import Final

from hotbay_sdk.protocol import Value

from hotbay.errors import HostError
from hotbay.rpc.leases import Generation
from hotbay.rpc.memfd import SharedArea
from hotbay.rpc.wire import Outcome

__all__ = ["FEATURE", "OutputAreas", "Region"]

logger = logging.getLogger(__name__)

FEATURE: Final = "output_areas"
"""What HELLO says of a plugin that writes scores into areas."""
OUTPUT_FROM_BYTES: Final = 16 * 1024
"""Scores of one reply that are shorter travel in it: below, that costs the same or less (decision 20)."""
REGIONS: Final = 4
"""Calls that may have a region at once; further ones are answered in the reply."""
LEAST_REGION_BYTES: Final = 64 * 1024
MAX_REGION_BYTES: Final = 1024 * 1024
"""What a batch's scores are kept below; those of a single request may be more, and travel."""
MAX_PASSED_BYTES: Final = 64 * 1024 * 1024
"""Of areas to one process in its life: one that lives through hundreds of shadows has all it wants, and a hostile one, which
may keep them all, not more than its own memory could be."""
GROWTH: Final = 4
"""From the least region to the largest there are two larger areas, not one for each size of a batch."""


class Region:
    """A part of an area that one call has until `give_back`."""

    __slots__ = ("_area", "_at", "size_bytes")

    def __init__(self, area: "_Area", at: int, size_bytes: int) -> None:
        self._area = area
        self._at = at
        self.size_bytes = size_bytes

    @property
    def place(self) -> list[int]:
        """[area, offset, bytes], as calls name it."""
        return [self._area.number, self._at, self.size_bytes]

    def taken(self, result: Value) -> Value:
        """A `run`'s result with the scores that lie here, copied, in the place of their length.

        A result that brings its scores, or states another length, stays as it is: whoever checks it judges it.
        """
        if isinstance(result, list) and len(result) == 3 and result[1] == self.size_bytes:
            return [result[0], self._area.copy(self._at, self.size_bytes), result[2]]
        return result

    def give_back(self) -> None:
        """Let other calls have it. Once."""
        self._area.give_back(self._at)


class _Area:
    """One area and its free regions. `drop` ends it at this end as soon as no call has a region of it."""

    __slots__ = ("_dropped", "_free", "_shared", "number", "region_bytes")

    def __init__(self, number: int, region_bytes: int, make: Callable[[str, int], SharedArea]) -> None:
        """Make the area. Raises OSError."""
        self.number = number
        self.region_bytes = region_bytes
        self._shared = make("hotbay-scores", REGIONS * region_bytes)
        self._free = [region * region_bytes for region in range(REGIONS)]
        self._dropped = False

    @property
    def descriptor(self) -> int:
        return self._shared.descriptor

    def lend(self, size_bytes: int) -> Region | None:
        # The one that came back last: its pages are there, and warm.
        return Region(self, self._free.pop(), size_bytes) if self._free else None

    def copy(self, at: int, size_bytes: int) -> bytes:
        return self._shared.memory[at : at + size_bytes]

    def give_back(self, at: int) -> None:
        self._free.append(at)
        self._close_when_idle()

    def drop(self) -> None:
        self._dropped = True
        self._close_when_idle()

    def _close_when_idle(self) -> None:
        if self._dropped and len(self._free) == REGIONS:
            self._shared.close()


class OutputAreas:
    """What one process writes its scores into.

    Args:
        numbers: gives the next area's number, which no area that any process was passed has had.
        make: makes an area of a name and a size in bytes; raises OSError where the kernel cannot.
        from_bytes: shorter scores travel.
    """

    __slots__ = ("_area", "_asking", "_closed", "_from_bytes", "_generation", "_make", "_numbers")

    def __init__(
        self,
        generation: Generation,
        numbers: Callable[[], int],
        make: Callable[[str, int], SharedArea] = SharedArea.output,
        *,
        from_bytes: int = OUTPUT_FROM_BYTES,
    ) -> None:
        self._generation = generation
        self._numbers = numbers
        self._make = make
        self._from_bytes = from_bytes
        self._area: _Area | None = None
        self._asking = False
        self._closed = FEATURE not in generation.features

    def region(self, size_bytes: int) -> Region | None:
        """A region for a call with so many bytes of scores; None if they are to travel in its reply.

        The process is passed an area when the first call could use one, and a larger one when a call needs it, so that
        later calls find it.
        """
        if self._closed or self._asking or not self._from_bytes <= size_bytes <= MAX_REGION_BYTES:
            return None
        if self._area is not None and size_bytes <= self._area.region_bytes:
            return self._area.lend(size_bytes)
        self._ask(size_bytes)
        return None

    def close(self) -> None:
        """No call follows, and the process is told that it need not keep its area. What is lent stays until it comes back.

        May be called again.
        """
        self._closed = True
        if self._area is not None:
            area, self._area = self._area, None
            self._take_back(area)

    def _take_back(self, area: _Area) -> None:
        area.drop()
        client = self._generation.client
        if self._generation.leaving or client.fault is not None:
            return
        try:
            client.share({}, [area.number], _unheeded, writable=True)
        except (HostError, OSError) as error:
            # It keeps the area until its end, which is near if it cannot be told anything.
            logger.debug("area_not_taken_back plugin=%s: %s", client.label, error)

    def _ask(self, size_bytes: int) -> None:
        region_bytes = LEAST_REGION_BYTES
        while region_bytes < size_bytes:
            region_bytes *= GROWTH
        if self._generation.output_bytes_passed + REGIONS * region_bytes > MAX_PASSED_BYTES:
            self._give_up("it was passed as much as a process may have")
            return
        try:
            area = _Area(self._numbers(), region_bytes, self._make)
        except OSError as error:
            self._give_up(str(error))
            return
        before, self._area = self._area, None
        if before is not None:
            before.drop()

        def answered(outcome: Outcome) -> None:
            self._asking = False
            if isinstance(outcome, HostError):
                area.drop()
                self._give_up(f"{outcome.code}: {outcome.message}")
            elif self._closed:
                self._take_back(area)
            else:
                self._area = area

        dropped = [] if before is None else [before.number]
        try:
            self._generation.client.share({area.number: area.descriptor}, dropped, answered, writable=True)
        except (HostError, OSError) as error:
            area.drop()
            self._give_up(str(error))
        else:
            self._asking = True
            self._generation.output_bytes_passed += REGIONS * region_bytes

    def _give_up(self, why: str) -> None:
        self.close()
        logger.info("scores_not_shared plugin=%s: %s; they travel in replies", self._generation.client.label, why)


def _unheeded(outcome: Outcome) -> None:
    """Nothing follows from how an area went back."""
