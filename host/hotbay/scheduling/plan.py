"""What a plan is made of, and what it is made from. Pure values; `compiler` makes one from the other.

A cycle takes the current plan once and uses it to its end; publishing another is one assignment.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from hotbay_sdk.protocol import TypeDeclaration

from hotbay.errors import Place
from hotbay.rpc.leases import Generation
from hotbay.scheduling.binding import Binding, BindingOptions, Point
from hotbay.scheduling.builtin import PickRows
from hotbay.scheduling.calls import PickCall, ProfilePickCall, ProfileProcessCall, RemoteCall
from hotbay.scheduling.registry import BUILTIN_HANDLERS, BUILTIN_PICKERS


@dataclass(frozen=True, slots=True)
class RefPlan:
    """One configured plugin ref. `generation` is None while its package has no process that is READY.

    `plugin_id` is None for a host built-in. `declaration` is None when it was never READY: its points
    are then unknown, and every profile that names it counts it as unavailable. `dormant`: nothing failed, its process is
    started when a request needs it.
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

    def has(self, point: Point) -> bool:
        """Whether the ref's type answers `point`."""
        if self.plugin_id is None:
            if point is Point.PICK:
                return self.type in BUILTIN_PICKERS
            return point is Point.PROFILE_HANDLER and self.type in BUILTIN_HANDLERS
        return self.declaration is not None and str(point) in self.declaration.points


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
    `weight_sum` is that of the scorers, for the in-flight correction inside a batch.
    """

    name: str
    stages: tuple[tuple[RemoteCall, ...], ...]
    picker: Picker
    absent: tuple[Binding, ...]
    weight_sum: float

    @property
    def bindings(self) -> tuple[Binding, ...]:
        """Every use of a filter or scorer, with a process or without."""
        return (*(b for stage in self.stages for call in stage for b in call.bindings), *self.absent)


@dataclass(frozen=True, slots=True, eq=False)
class Handler:
    """A profile handler in a process, or None for both calls: the built-in single-profile handler."""

    binding: Binding
    pick: ProfilePickCall | None = None
    process: ProfileProcessCall | None = None
    absent: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Learner:
    """A ref that is told of each scheduled request (PreRequest). `fields` and `columns` go with what it is told."""

    binding: Binding
    generation: Generation
    handle: tuple[int, int]
    fields: tuple[str, ...]
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """Everything that a cycle needs, compiled. `number` grows with each plan; `generations` are those it may call.

    `absent` are bindings without a process whose policies decide before anything is called: producers, and those
    that refuse every request anyway. `fail_closed_absent` names refs for which readiness waits. `dormant` are the ids of
    the plugins that a request has to wake. `numbers` are those of `generations`.
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

    @property
    def calls(self) -> Mapping[tuple[object, ...], RemoteCall]:
        """Every call that a cycle may make, by where it is made and which refs answer it: comparable across plans."""
        found: dict[tuple[object, ...], RemoteCall] = {}
        for call in (call for stage in self.producers for call in stage):
            found["produce", _uses(call)] = call
        for asked in (self.handler.pick, self.handler.process):
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
        uses = [*self.absent, *(b for stage in self.producers for call in stage for b in call.bindings)]
        for profile in self.profiles.values():
            uses += [*profile.bindings, profile.picker.binding]
        uses += [self.handler.binding, *(learner.binding for learner in self.learners)]
        found: dict[tuple[str, str], Binding] = {}
        for use in uses:
            found.setdefault((use.ref, use.point), use)
        return tuple(found.values())


def _uses(call: RemoteCall) -> tuple[tuple[str, Point], ...]:
    return tuple((binding.ref, binding.point) for binding in call.bindings)


@dataclass(frozen=True, slots=True)
class PlanInput:
    """What a plan is made from: refs in configuration order, profiles, and the operator's binding options."""

    refs: tuple[RefPlan, ...]
    profiles: tuple[ProfileInput, ...]
    options: Mapping[str, BindingOptions]
