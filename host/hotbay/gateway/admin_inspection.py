"""What an operator can look into: why requests went where they went, and what plugins and the host know.

A request is named by its id, which clients may choose: of one that several requests had, the latest decisions are told.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Protocol

import anyio.lowlevel

from hotbay.errors import InputError, Problem
from hotbay.gateway.admin_explain import explain_page, summary_page
from hotbay.gateway.admin_operations import Page
from hotbay.scheduling.explain import Trace
from hotbay.scheduling.explained import explained

__all__ = ["Decisions", "Inspection"]

_OF_ONE_REQUEST: Final = 3
"""A request whose model server gives no answer is decided for again, so often."""


class Decisions(Protocol):
    """Decisions that are kept. Times are of the clock `now`, in seconds."""

    def __len__(self) -> int: ...
    @property
    def size_bytes(self) -> int: ...
    @property
    def max_count(self) -> int: ...
    @property
    def max_bytes(self) -> int: ...
    @property
    def oldest_s(self) -> float | None:
        """When the oldest was made; None without any."""
        ...

    def latest(self, count: int, /, request_id: str | None = None) -> Sequence[Trace]:
        """The newest, of one request or of any, the newest last."""
        ...


class Inspection:
    """See the module. `dump` gives the state of one ref, or of all and of the host. Calls may overlap.

    `decisions` gives those that are kept, `now` is the clock of decisions and `wall` that of people, in seconds.
    """

    def __init__(
        self,
        decisions: Callable[[], Decisions],
        dump: Callable[[str | None], Awaitable[Page]],
        *,
        now: Callable[[], float],
        wall: Callable[[], float],
    ) -> None:
        self._decisions = decisions
        self._dump = dump
        self._now = now
        self._wall = wall

    async def explain(self, request_id: str) -> Page:
        """`{decisions: [page], kept}`, the latest decision last. Raises `InputError` NOT_FOUND where none is kept."""
        page = await self._page(self._decisions().latest(_OF_ONE_REQUEST, request_id))
        if not page["decisions"]:
            raise InputError([self._unknown(request_id)])
        return page

    async def latest(self, count: int) -> Page:
        """The same for the newest decisions, of whichever requests; none is no error.

        Of several, pages are without steps, profiles and endpoints, which of a wide pool are megabytes.
        """
        return await self._page(self._decisions().latest(count), is_whole=count == 1)

    async def dump(self, ref: str | None) -> Page:
        """What a ref shows of its state, or all do; see `StateDumps`."""
        return await self._dump(ref)

    async def _page(self, found: Sequence[Trace], *, is_whole: bool = True) -> Page:
        now, wall = self._now(), self._wall()
        pages: list[Page] = []
        for trace in found:
            age_s = now - trace.ended_s
            pages.append((explain_page if is_whole else summary_page)(explained(trace), at_s=wall - age_s, age_s=age_s))
            # Of a thousand endpoints one takes milliseconds: requests are not to wait for all of them.
            await anyio.lowlevel.checkpoint()
        return {"decisions": pages, "kept": self._kept(now)}

    def _kept(self, now: float) -> Page:
        kept = self._decisions()
        return {
            "decisions": len(kept),
            "bytes": kept.size_bytes,
            "max_decisions": kept.max_count,
            "max_bytes": kept.max_bytes,
            "oldest_age_s": None if kept.oldest_s is None else round(now - kept.oldest_s, 1),
        }

    def _unknown(self, request_id: str) -> Problem:
        kept = self._decisions()
        if kept.oldest_s is None:
            how_many = "no decision is kept"
        else:
            are = "decision is" if len(kept) == 1 else "decisions are"
            how_many = f"{len(kept)} {are} kept, the oldest is {self._now() - kept.oldest_s:.0f} s old"
        return Problem(
            "NOT_FOUND",
            f"no decision for request '{request_id}' is kept: {how_many}",
            expected="the x-request-id of an answer, or the id of a line of the log",
            found=request_id,
            hint=(
                "one may be older than what is kept (`explain.keep` and `explain.bytes` of the HostConfig), or was "
                "refused before anybody was asked where it may go; `hotbay explain --last` shows the newest"
            ),
        )
