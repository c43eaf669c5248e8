"""Runs one discovery for as long as the host does, through failures and through changes of its configuration.

A run that ends in an error is begun again, later each time; what the feed held stays, and is compared with what the next
run names once that one is ready. So it is when another discovery takes the place: the new run begins with what the old
one left, and takes away what it does not name when it is ready. At most one run goes on at a time.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

import anyio

from hotbay.datalayer.discovery.notifier import DiscoveryNotifier, EndpointDiscovery, NotifierEndedError, OrderError
from hotbay.datalayer.discovery.session import MAX_ENDPOINTS, DiscoverySession, TooManyEndpointsError
from hotbay.datalayer.discovery.told import first_told
from hotbay.datalayer.endpoint import EndpointEvent, EndpointMetadata
from hotbay.errors import CapacityError, HostError, InputError, Problem
from hotbay.observe.background import Background

__all__ = ["DiscoveryFeed", "FeedPlan", "discovery_failed"]

logger = logging.getLogger(__name__)

FIRST_S: Final = 0.5
FACTOR: Final = 2.0
MAX_S: Final = 30.0
"""Pauses before a run is begun again: a server that comes back is found within half a minute."""
STEADY_S: Final = 60.0
"""A run that was ready and went on for so long begins again with the first pause."""
MORE_KEY: Final = "discovery.plugin_endpoints"
"""Where an operator says how many endpoints a discovery of a package may name."""
KEPT: Final = "what it last named stays in force, and it is tried again"
_NOTHING_YET: Final = "it has named nothing yet, and it is tried again"


def discovery_failed(message: str, *, hint: str = "") -> CapacityError:
    """The error of a discovery that cannot find out now what exists."""
    return CapacityError("DISCOVERY_FAILED", message, hint=hint or KEPT)


async def _is_fine() -> None:
    """Nothing can be said before a run."""


@dataclass(frozen=True, slots=True)
class FeedPlan:
    """What is to be run. Plans are equal when they are the same configuration: a run of one is a run of the other.

    Args:
        slot: what it takes the place of: the plan of the same slot before it.
        name: what problems and warnings call it.
        settings: all that its runs depend on; compared.
        make: makes the object of one run.
        check: raises `InputError` when the configuration is wrong and known to be before a run.
        most: endpoints that it may name; compared.
        is_package: whether a package provides it.
    """

    slot: str
    name: str
    settings: object
    make: Callable[[], EndpointDiscovery] = field(compare=False)
    check: Callable[[], Awaitable[None]] = field(default=_is_fine, compare=False)
    most: int = MAX_ENDPOINTS
    is_package: bool = False

    def too_many(self, error: TooManyEndpointsError) -> Problem:
        """The problem of a run that names more."""
        hint = (
            KEPT if self.most == MAX_ENDPOINTS else f"raise `{MORE_KEY}` of the HostConfig if so many are meant; {KEPT}"
        )
        return Problem("DISCOVERY_FAILED", f"{self.name}: {error}", hint=hint)


class DiscoveryFeed:
    """See the module. `run` once; `replace` and `restart` at any time.

    Args:
        plan: what to run first.
        apply: puts events of the feed in force, in order.
        ready: called each time that a run is ready.
        background: the boundary around code that may be wrong.
        draw: uniform in [0, 1), so that hosts that failed together do not come back together.
        refused: called at each endpoint that a run refused for where it is, with why.
    """

    def __init__(
        self,
        plan: FeedPlan,
        apply: Callable[[tuple[EndpointEvent, ...]], None],
        ready: Callable[[], None],
        *,
        background: Background,
        draw: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]] = anyio.sleep,
        refused: Callable[[str], None] = lambda _reason: None,
    ) -> None:
        self.plan = plan
        self.problems: tuple[Problem, ...] = ()
        self.warnings: tuple[Problem, ...] = ()
        self.is_synced = False
        self.was_synced = False
        self._apply = apply
        self._became_ready = ready
        self._background = background
        self._draw = draw
        self._sleep = sleep
        self._refused = refused
        self._held: Mapping[str, EndpointMetadata] = {}
        self._held_by: FeedPlan | None = None
        self._scope = anyio.CancelScope()
        self._notifier: DiscoveryNotifier | None = None
        self._has_reported = False

    def replace(self, plan: FeedPlan) -> None:
        """Run another discovery from now on, with what this one left. The same plan goes on running."""
        if plan != self.plan:
            self.plan = plan
            self.restart()

    def restart(self) -> None:
        """Begin another run now, as when the process that is asked has been replaced. The old one is heard no more."""
        self.end()
        self.is_synced = False
        self._scope.cancel()

    def end(self) -> None:
        """Hear the run that goes on no more, before it is cancelled."""
        if self._notifier is not None:
            self._notifier.end()

    async def run(self) -> None:
        """Run until cancelled."""
        failures = 0
        while True:
            with anyio.CancelScope() as self._scope:
                began_s = anyio.current_time()
                await self._background.guard("discovery", self._run_once)
                steady = self.is_synced and anyio.current_time() - began_s >= STEADY_S
                self.is_synced = False
                failures = 0 if steady else failures
                await self._sleep(min(MAX_S, FIRST_S * FACTOR ** min(failures, 20)) * (0.5 + self._draw() / 2))
                failures += 1
            if self._scope.cancel_called:
                failures = 0

    async def _run_once(self) -> None:
        """One run and its problem. What is nobody's to act upon is raised: a fault of the discovery's own code."""
        plan = self.plan
        session = DiscoverySession(self._held, most=plan.most)
        discovery = plan.make()
        assert not discovery.ready.is_set(), "a discovery is made anew for each run"
        earlier = dict(self._held) if self._held_by == plan else {}
        notifier = self._notifier = DiscoveryNotifier(
            session,
            discovery.ready,
            self._apply,
            self._heard,
            earlier=earlier,
            refused=self._refused,
            too_many=plan.too_many,
        )
        self._has_reported = False
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(self._watch_ready, discovery.ready, notifier)
                await discovery.run(notifier)
                group.cancel_scope.cancel()
            raise discovery_failed("it ended by itself")
        except (HostError, OrderError, NotifierEndedError, TooManyEndpointsError, ExceptionGroup) as error:
            # What was ready before it failed has synced, though nobody had a turn to see it.
            self._take_sync(notifier)
            if self.plan is plan and not self._scope.cancel_called:
                self._failed(plan, error)
        finally:
            notifier.end()
            self._held, self._held_by = dict(session.held), plan

    async def _watch_ready(self, ready: anyio.Event, notifier: DiscoveryNotifier) -> None:
        await ready.wait()
        self._take_sync(notifier)

    def _take_sync(self, notifier: DiscoveryNotifier) -> None:
        if notifier is self._notifier and notifier.sync() and not self.is_synced:
            self.is_synced = self.was_synced = True
            if not self._has_reported:
                # Why an earlier run failed holds no more.
                self._report((), ())
            self._became_ready()

    def _heard(self, problems: tuple[Problem, ...], warnings: tuple[Problem, ...]) -> None:
        self._has_reported = True
        self._report(problems, warnings)

    def _failed(self, plan: FeedPlan, error: Exception) -> None:
        cause = error
        while isinstance(cause, ExceptionGroup) and len(cause.exceptions) == 1:
            cause = cause.exceptions[0]
        if isinstance(cause, InputError):
            problems = cause.problems
        elif isinstance(cause, HostError):
            problems = (Problem(cause.code, f"{plan.name}: {cause.message}", hint=cause.hint),)
        elif isinstance(cause, TooManyEndpointsError):
            problems = (plan.too_many(cause),)
        elif isinstance(cause, (OrderError, NotifierEndedError)):
            problems = (Problem("DISCOVERY_FAILED", f"{plan.name}: {cause}", hint=KEPT),)
        else:
            raise error
        if not self.was_synced and not self._held and (self._notifier is None or not self._notifier.held):
            problems = tuple(replace(one, hint=one.hint.replace(KEPT, _NOTHING_YET)) for one in problems)
        self._report(problems, self.warnings)

    def _report(self, problems: tuple[Problem, ...], warnings: tuple[Problem, ...]) -> None:
        """Log what is new, so that a look every second that fails writes one line. Only the first ones are kept."""
        problems, warnings = first_told(problems), first_told(warnings)
        for problem in problems:
            if problem not in self.problems:
                logger.error("discovery_problem last_good=kept: %s", problem)
        for warning in warnings:
            if warning not in self.warnings:
                event = "endpoint_key_ignored" if warning.code == "UNKNOWN_FIELD" else "endpoint_ambiguous"
                logger.warning("%s: %s", event, warning)
        self.problems, self.warnings = problems, warnings
