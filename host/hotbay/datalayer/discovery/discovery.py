"""Fills the store with what the host's configuration and its discoveries name, merged in their order.

The endpoints of the host's configuration come first and are in force at once; each discovery is a feed beside them, whose
endpoints count where the operator allows them (see `allowed`). A change of a feed reaches the store in the step in which it
is told: nothing is queued, so nothing is reordered.
"""

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Protocol

import anyio
from anyio.abc import TaskGroup, TaskStatus

from hotbay.datalayer.discovery.allowed import Gate
from hotbay.datalayer.discovery.feed import DiscoveryFeed, FeedPlan
from hotbay.datalayer.discovery.membership import Membership
from hotbay.datalayer.discovery.places import Own
from hotbay.datalayer.discovery.session import DiscoverySession
from hotbay.datalayer.discovery.told import and_more
from hotbay.datalayer.endpoint import Delete, EndpointEvent, EndpointMetadata, Upsert
from hotbay.errors import Problem
from hotbay.observe.background import Background

__all__ = ["Discovery", "DiscoveryEndpointStore"]

logger = logging.getLogger(__name__)

_CONFIGURATION: Final = "the host configuration"


class DiscoveryEndpointStore(Protocol):
    """What discovery needs of a store."""

    def upsert(self, endpoint: EndpointMetadata) -> bool: ...
    def delete(self, endpoint_id: str) -> bool: ...
    def __len__(self) -> int: ...


class Discovery:
    """See the module. `check`, then `run` for as long as the host does; `configure` and `follow` at any time.

    `ready` is set once every feed has been ready, zero endpoints included, and stays set: a feed that fails later, or
    that takes the place of another one, leaves a pool to serve from.

    Args:
        store: what is filled; nobody else adds to it or takes from it.
        configured: endpoints of the host's configuration.
        plans: the discoveries, the first having precedence, at most one for each slot.
        background: the boundary around code that may be wrong.
        draw: uniform in [0, 1), see `DiscoveryFeed`.
        allowed: networks that discoveries may name endpoints in; None for all.
        refused: called at each endpoint that a discovery may not name with why: `network`, `name`, or `reserved`.
        own: what the host listens on, which no discovery may name.
    """

    def __init__(
        self,
        store: DiscoveryEndpointStore,
        *,
        configured: Sequence[EndpointMetadata] = (),
        plans: Sequence[FeedPlan] = (),
        background: Background,
        draw: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]] = anyio.sleep,
        allowed: Sequence[str] | None = None,
        refused: Callable[[str], None] = lambda _reason: None,
        own: Own = lambda _host, _port: False,
    ) -> None:
        self.ready = anyio.Event()
        self._store = store
        self._background = background
        self._draw = draw
        self._sleep = sleep
        self._refused = refused
        self._gate = Gate(allowed, refused, own=own)
        self._configured = DiscoverySession()
        self._membership = Membership({_CONFIGURATION: _CONFIGURATION})
        self._feeds: dict[str, DiscoveryFeed] = {}
        self._scopes: dict[str, anyio.CancelScope] = {}
        self._group: TaskGroup | None = None
        self._warned: frozenset[tuple[str, str]] = frozenset()
        self._warned_of_more = False
        self._told_refused: frozenset[Problem] = frozenset()
        self._shown_refused = self._gate.shown
        self.follow(plans)
        self.configure(configured)

    @property
    def plans(self) -> tuple[FeedPlan, ...]:
        """What is run."""
        return tuple(feed.plan for feed in self._feeds.values())

    @property
    def problems(self) -> tuple[Problem, ...]:
        """What is wrong with the feeds as they are now, and which of their endpoints are not allowed."""
        told = (problem for feed in self._feeds.values() for problem in feed.problems)
        return (*told, *self._gate.problems)

    @property
    def warnings(self) -> tuple[Problem, ...]:
        """What was decided although it could be read in two ways."""
        told = [warning for feed in self._feeds.values() for warning in feed.warnings]
        ignored = tuple(self._membership.warnings.values())
        more = self._membership.ignored_count - len(ignored)
        return (*told, *ignored, *([and_more(ignored[-1].code, more)] if more else ()))

    @property
    def not_ready(self) -> tuple[str, ...]:
        """Why `ready` is not set, a text for each feed that is waited for."""
        if self.ready.is_set():
            return ()
        waiting = (feed.plan.name for feed in self._feeds.values() if not feed.was_synced)
        return tuple(f"{name} has not told its endpoints yet" for name in waiting) or ("discovery is starting",)

    async def check(self) -> None:
        """Refuse what is known to be wrong before it runs.

        Raises:
            InputError: with the problems of the first wrong plan.
        """
        for feed in self._feeds.values():
            await feed.plan.check()

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Run the feeds until cancelled."""
        async with anyio.create_task_group() as self._group:
            try:
                for slot in self._feeds:
                    self._start(slot)
                self._look_ready()
                task_status.started()
                await anyio.sleep_forever()
            finally:
                self._group = None
                self._scopes.clear()

    def configure(self, configured: Sequence[EndpointMetadata]) -> None:
        """Take over another list from the host's configuration, at once."""
        self._put(_CONFIGURATION, self._configured.replace(configured))

    def allow(self, networks: Sequence[str] | None) -> None:
        """Take over another list of networks, at once: what it does not hold goes, what the last one kept out may come."""
        for feed, events in self._gate.allow(networks).items():
            self._put(feed, events)
        self._warn()

    def follow(self, plans: Sequence[FeedPlan]) -> None:
        """Take over other discoveries. One that takes the place of another begins with what that one left, and what it
        does not name goes when it is ready; what a slot named that is left out goes at once. Equal plans go on running.
        """
        wanted = {plan.slot: plan for plan in plans}
        assert len(wanted) == len(plans), "a slot has one plan"
        for slot in self._feeds.keys() - wanted.keys():
            self._feeds.pop(slot).end()
            scope = self._scopes.pop(slot, None)
            if scope is not None:
                scope.cancel()
        feeds: dict[str, DiscoveryFeed] = {}
        for slot, plan in wanted.items():
            feed = self._feeds.get(slot)
            if feed is not None:
                feed.replace(plan)
            feeds[slot] = feed or self._feed(plan)
        self._feeds = feeds
        names = {_CONFIGURATION: _CONFIGURATION} | {slot: plan.name for slot, plan in wanted.items()}
        self._gate.arrange(names)
        self._carry_out(self._membership.arrange(names))
        for slot in wanted:
            self._start(slot)
        self._look_ready()

    def _feed(self, plan: FeedPlan) -> DiscoveryFeed:
        slot = plan.slot
        return DiscoveryFeed(
            plan,
            lambda events: self._apply(slot, events),
            self._look_ready,
            background=self._background,
            draw=self._draw,
            sleep=self._sleep,
            refused=self._refused,
        )

    def _start(self, slot: str) -> None:
        if self._group is not None and slot not in self._scopes:
            self._scopes[slot] = anyio.CancelScope()
            self._group.start_soon(self._run_feed, self._feeds[slot], self._scopes[slot])

    async def _run_feed(self, feed: DiscoveryFeed, scope: anyio.CancelScope) -> None:
        with scope:
            await feed.run()

    def _look_ready(self) -> None:
        if self._group is not None and all(feed.was_synced for feed in self._feeds.values()):
            self.ready.set()
        self._warn()

    def _apply(self, feed: str, events: Sequence[EndpointEvent]) -> None:
        self._put(feed, self._gate.take(feed, events))

    def _put(self, feed: str, events: Sequence[EndpointEvent]) -> None:
        if events:
            self._carry_out(self._membership.apply(feed, events))

    def _carry_out(self, events: Sequence[EndpointEvent]) -> None:
        for event in events:
            if isinstance(event, Upsert):
                self._store.upsert(event.endpoint)
            else:
                self._store.delete(event.endpoint.id)
        if events:
            deleted = sum(isinstance(event, Delete) for event in events)
            logger.info(
                "endpoints_changed upserted=%d deleted=%d total=%d", len(events) - deleted, deleted, len(self._store)
            )
        self._warn()

    def _warn(self) -> None:
        """Log ignored endpoints once, the first of them; not while a feed syncs: what an earlier run left is about to go."""
        self._warn_of_refused()
        if not all(feed.is_synced for feed in self._feeds.values()):
            return
        warnings = self._membership.warnings
        for key, warning in warnings.items():
            if key not in self._warned:
                logger.warning("endpoint_ambiguous: %s", warning)
        more = self._membership.ignored_count - len(warnings)
        if more and not self._warned_of_more:
            logger.warning("endpoint_ambiguous: more than %d endpoints are ignored", len(warnings))
        self._warned, self._warned_of_more = frozenset(warnings), more > 0

    def _warn_of_refused(self) -> None:
        # Problems are dear to word, and this is called at each event.
        shown = self._gate.shown
        if shown == self._shown_refused:
            return
        self._shown_refused = shown
        problems = self._gate.problems
        for problem in problems:
            if problem not in self._told_refused:
                logger.warning("endpoint_refused: %s", problem)
        self._told_refused = frozenset(problems)
