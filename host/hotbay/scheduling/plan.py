"""What a plan is made of, and what it is made from. Pure values; `compiler` makes one from the other.

A cycle takes the current plan once and uses it to its end; publishing another is one assignment. What a configuration
does not use is not in its plan, so that it costs no request anything.
"""

import enum
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from hotbay_sdk.protocol import TypeDeclaration
from hotbay_sdk.protocol.calls import InstanceFacts

from hotbay.errors import Place
from hotbay.rpc.leases import Generation
from hotbay.scheduling.binding import Binding, BindingOptions, Point
from hotbay.scheduling.builtin import PickRows
from hotbay.scheduling.builtin_handlers import ChooseProfiles
from hotbay.scheduling.builtin_producers import BUILTIN_COLUMNS, Give, PrefixMatch, TokenCounting
from hotbay.scheduling.calls import PickCall, RemoteCall
from hotbay.scheduling.edit_call import EditsCall
from hotbay.scheduling.explain import PlanFacts
from hotbay.scheduling.fields import NO_FACTS as NO_INSTANCE_FACTS
from hotbay.scheduling.handler_calls import ProfilePickCall, ProfileProcessCall
from hotbay.scheduling.registry import BUILTIN_HANDLERS, BUILTIN_PICKERS, DEFAULT_PRODUCERS

NO_FACTS: Final = PlanFacts(0, {}, 0)


@dataclass(frozen=True, slots=True)
class RefPlan:
    """One configured plugin ref. `generation` is None while its package has no process that is READY.

    `plugin_id` is None for a host built-in. `declaration` is None when it was never READY: then its `points` are those of its
    package's manifest, so that what fails closed does so from the start, and none where that does not say; every profile that
    names one of these counts it as a scorer that is unavailable. `dormant`: nothing failed, its process is
    started when a request needs it. `facts`: without a process, what the instance in the last one said of itself.
    """

    name: str
    type: str
    plugin_id: str | None
    generation: Generation | None
    declaration: TypeDeclaration | None
    parameters: Mapping[str, object]
    place: Place | None = None
    dormant: bool = False
    data: bool = False
    facts: InstanceFacts = NO_INSTANCE_FACTS
    points: frozenset[str] = frozenset()

    @property
    def is_known(self) -> bool:
        """Whether anybody said what its type answers: the host, a process that was READY, or a manifest."""
        return self.plugin_id is None or self.declaration is not None or bool(self.points)

    def has(self, point: Point) -> bool:
        """Whether the ref's type answers `point`. Of the host's own, what `plan` has no part in answers nothing here."""
        if self.plugin_id is None:
            if point is Point.PICK:
                return self.type in BUILTIN_PICKERS
            if point is Point.PRODUCE:
                return self.type in BUILTIN_COLUMNS
            return point is Point.PROFILE_HANDLER and self.type in BUILTIN_HANDLERS
        return str(point) in (self.points if self.declaration is None else self.declaration.points)

    @property
    def produces(self) -> tuple[str, ...]:
        """Data columns that it makes; none while nothing is known of it."""
        if self.plugin_id is None:
            return BUILTIN_COLUMNS.get(self.type, ())
        return () if self.declaration is None else self.declaration.produces


@dataclass(frozen=True, slots=True)
class ProfileEntryPlan:
    """A ref in a profile, with the weight that the operator gave it, if any."""

    ref: str
    weight: float | None = None
    place: Place | None = None


@dataclass(frozen=True, slots=True)
class ProfileInput:
    """A profile as configured."""

    name: str
    entries: tuple[ProfileEntryPlan, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Picker:
    """How a profile chooses: a built-in, or a call with the built-in to fall back to."""

    binding: Binding
    builtin: PickRows
    count: int
    call: PickCall | None = None
    absent: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Profile:
    """One compiled profile. `stages` run one after another, the calls of one stage side by side.

    `absent` are bindings whose process is not there: their failure policies decide at once.
    `weight_sum` is that of the scorers, `scraped_weight` of those of scraped figures, for the correction by what was picked
    since; totals that differ by at most `tie` are equal.
    """

    name: str
    stages: tuple[tuple[RemoteCall, ...], ...]
    picker: Picker
    absent: tuple[Binding, ...]
    weight_sum: float
    scraped_weight: float
    tie: float = 0.0

    @property
    def bindings(self) -> tuple[Binding, ...]:
        """Every use of a filter or scorer, with a process or without."""
        return (*(b for stage in self.stages for call in stage for b in call.bindings), *self.absent)


@dataclass(frozen=True, slots=True, eq=False)
class Handler:
    """Who says which profiles run: a process, a built-in by `choose`, or nobody: then the only profile does.

    `port`: what is picked is reached at this port of its address, and the request says in a header at which it was picked.
    """

    binding: Binding
    pick: ProfilePickCall | None = None
    process: ProfileProcessCall | None = None
    absent: bool = False
    choose: ChooseProfiles | None = None
    port: int | None = None
    asks: bool = False
    """Whether anybody is to be asked which profiles run."""


@dataclass(frozen=True, slots=True, eq=False)
class Learner:
    """A ref that is told of requests: at PRE_REQUEST where they go, at RESPONSE_HEADERS and RESPONSE_BODY how they are answered.

    `fields` and `columns` go with what it is told; `headers` are the names of those of a response that do. `every_chunk`: of
    a body it is told more than the end.
    """

    binding: Binding
    generation: Generation
    handle: tuple[int, int]
    fields: tuple[str, ...]
    columns: tuple[str, ...]
    headers: frozenset[str] = frozenset()
    every_chunk: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Parser:
    """A parser in a process. `claims` are the suffixes of its paths, none where it takes any; `headers` cross to it.

    Of one that was never READY nobody knows which paths are its own: it takes any, and refuses what nobody listed before it claims.
    """

    binding: Binding
    claims: tuple[str, ...]
    headers: frozenset[str] = frozenset()
    generation: Generation | None = None
    handle: tuple[int, int] = (0, 0)


class Before(enum.Enum):
    """What happens with the calls of a stage that comes before the profiles run."""

    HEADERS = enum.auto()
    SATURATION = enum.auto()
    SHED = enum.auto()
    SCREEN = enum.auto()
    SCREENED = enum.auto()
    GIVE = enum.auto()
    PRODUCE = enum.auto()
    ADMIT = enum.auto()


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """Everything that a cycle needs, compiled. `number` grows with each plan; `generations` are those it may call.

    `before` are the stages ahead of the profiles, in their order; those of `producers` are among them. `edits` are asked once
    it is known where a request goes. `absent` are bindings without a process whose policies decide before anything is called:
    producers and what else comes before the profiles, and those that refuse every request anyway. `fail_closed_absent` names
    refs for which readiness waits. `dormant` are the ids of the plugins that a request has to wake. `learners` are told where
    requests go, `listeners` of their responses. `numbers` are those of `generations`.
    `gives` are columns that the host makes itself. `counts_tokens` None: nobody wants to know how many tokens are in flight.
    `match` None: nobody tells what is cached. `withheld` are headers of clients that do not go on: who sets them is absent.
    """

    number: int
    profiles: Mapping[str, Profile]
    handler: Handler
    producers: tuple[tuple[RemoteCall, ...], ...]
    absent: tuple[Binding, ...]
    learners: tuple[Learner, ...]
    generations: tuple[Generation, ...]
    fail_closed_absent: tuple[str, ...]
    dormant: tuple[str, ...]
    numbers: frozenset[int]
    before: tuple[tuple[Before, tuple[RemoteCall, ...]], ...] = ()
    edits: tuple[EditsCall, ...] = ()
    listeners: tuple[Learner, ...] = ()
    setters: tuple[Learner, ...] = ()
    """Who sets headers by `edits`: told like learners where a request was withdrawn, and in warm generations where it goes."""
    parsers: tuple[Parser, ...] = ()
    gives: tuple[Give, ...] = ()
    counts_tokens: TokenCounting | None = None
    match: PrefixMatch | None = None
    withheld: frozenset[str] = frozenset()
    facts: PlanFacts = NO_FACTS
    """What is kept of it to explain decisions."""

    @property
    def told(self) -> tuple[Learner, ...]:
        """Every ref that is told of requests without being asked."""
        return (*self.learners, *self.listeners)

    @property
    def calls(self) -> Mapping[tuple[object, ...], RemoteCall]:
        """Every call that a cycle may make, by where it is made and which refs answer it: comparable across plans."""
        found: dict[tuple[object, ...], RemoteCall] = {}
        for kind, stage in self.before:
            for call in stage:
                found[kind, _uses(call)] = call
        for asked in (self.handler.pick, self.handler.process, *self.edits):
            if asked is not None:
                found[asked.method, _uses(asked)] = asked
        for name, profile in self.profiles.items():
            for call in (call for stage in profile.stages for call in stage):
                found["run", name, _uses(call)] = call
            if profile.picker.call is not None:
                found["pick", name, _uses(profile.picker.call)] = profile.picker.call
        return found

    @property
    def bindings(self) -> tuple[Binding, ...]:
        """Every use of a ref at a point, each once."""
        found: dict[tuple[str, str], Binding] = {}
        for use in self._uses():
            found.setdefault((use.ref, use.point), use)
        return tuple(found.values())

    def _uses(self) -> Iterator[Binding]:
        yield from self.absent
        for _, stage in self.before:
            yield from (binding for call in stage for binding in call.bindings)
        for profile in self.profiles.values():
            yield from (*profile.bindings, profile.picker.binding)
        yield self.handler.binding
        yield from (binding for call in self.edits for binding in call.bindings)
        yield from (learner.binding for learner in self.told)
        yield from (parser.binding for parser in self.parsers)


def _uses(call: RemoteCall) -> tuple[tuple[str, Point], ...]:
    return tuple((binding.ref, binding.point) for binding in call.bindings)


@dataclass(frozen=True, slots=True)
class PlanInput:
    """What a plan is made from: refs in configuration order, profiles, and the operator's binding options.

    `detector` is the ref whose word on saturation sheds requests, None for none. `default_producers`: key → the type whose
    instance is meant where several produce it. `parsers`: refs of parsers in the order in which they claim paths; None: all,
    in the order of `refs`. `withheld`: key → why no producer is made for it by itself.
    """

    refs: tuple[RefPlan, ...]
    profiles: tuple[ProfileInput, ...]
    options: Mapping[str, BindingOptions]
    detector: str | None = None
    default_producers: Mapping[str, str] = field(default_factory=lambda: DEFAULT_PRODUCERS)
    parsers: tuple[str, ...] | None = None
    withheld: Mapping[str, str] = field(default_factory=dict)
