"""The values of a rollout's machine: what is known, what runs, and what happened; `effects` are what is to be done. Pure.

An attempt is one try to run one build; its number is never reused within a routine, and names its task and its
process in every event and effect. Slots hold attempts: `live` gets the calls, `candidate` is being tried, `previous`
is kept warm while the one that replaced it is watched, `spare` stands by. `going` are processes on their way out.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from functools import partial

from hotbay.rollout.backoff import BackoffPolicy, BackoffState
from hotbay.rollout.selection import Candidate, Policy

__all__ = [
    "Abort",
    "Approve",
    "AskedToGo",
    "Attempt",
    "Broke",
    "Build",
    "Cause",
    "Command",
    "Ended",
    "Event",
    "Facts",
    "Failure",
    "Fetched",
    "Forgive",
    "GoTo",
    "Hold",
    "Judged",
    "Known",
    "Life",
    "Pause",
    "Phase",
    "Promote",
    "Published",
    "Ready",
    "Refused",
    "Resume",
    "Rules",
    "Staged",
    "State",
    "Tick",
]


class Phase(StrEnum):
    """Where a routine is. The value is what status shows."""

    IDLE = "idle"
    FETCHING = "fetching"
    STAGING = "staging"
    LAUNCHING = "launching"
    SHADOW = "shadow"
    CANARY = "canary"
    CUTOVER = "cut over"
    GUARD = "guard"
    RETIRING = "retiring"
    WAITING_FOR_DOWNLOAD = "waiting for a package"
    AWAITING_GRANT = "awaiting grant"
    AWAITING_APPROVAL = "awaiting approval"
    BACKOFF = "backing off"
    FAILED = "failed"
    DISABLED = "disabled"


class Life(Enum):
    """How far an attempt has come. It has a process from STARTED on, until its `Ended`."""

    PLANNED = "planned"
    STARTED = "started"
    READY = "ready"


class Cause(Enum):
    """Whose fault a failure is; this alone decides whether the digest is quarantined, counted or only tried later."""

    PACKAGE = "package"
    PLUGIN = "plugin"
    CAPACITY = "capacity"
    OUTSIDE = "outside"
    OPERATOR = "operator"


@dataclass(frozen=True, slots=True)
class Failure:
    """What went wrong. `chance`, uniform in [0, 1), spreads the pause that follows."""

    cause: Cause
    code: str
    message: str = ""
    hint: str = ""
    chance: float = 0.5


@dataclass(frozen=True, slots=True)
class Build:
    """What a process is made from: content and launch configuration. Equal builds make equal processes."""

    digest: str
    rev: int = 0
    launch: str = ""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One try to run a build. `plain`: it replaces without trials. `leaving`: it asked to be replaced.

    `platforms` is the order of preference under which it was chosen.
    """

    n: int
    build: Build
    life: Life = Life.PLANNED
    plain: bool = False
    leaving: bool = False
    why: str = ""
    who: str = "hotbay"
    platforms: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Hold:
    """Why a digest is not tried now. `not_before_s` is infinite once its budget of failures is used up."""

    backoff: BackoffState = field(default_factory=BackoffState)
    not_before_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Rules:
    """What the operator decided about swaps and restarts of one plugin."""

    shadow: bool = True
    canary: bool = True
    guard: bool = True
    handover: bool = False
    approve: bool = False
    standby: bool = False
    backoff: BackoffPolicy = field(default_factory=BackoffPolicy)


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of one plugin at one revision of the world.

    `last` is the digest that was live last, also before this host started. `wanted` is false while nothing refers to
    the plugin. While `asleep`, it is downloaded and not started, until a request needs it. `blocked`: a rollout of
    another plugin is on trial now. `pinned_by` is who set the pin by a command. `stale_at_s`, monotonic: from when on
    they may differ with nothing else changed, for a quarantine ends.
    """

    revision: int = 0
    candidates: tuple[Candidate, ...] = ()
    policy: Policy = field(default_factory=partial(Policy, platforms=()))
    rules: Rules = field(default_factory=Rules)
    launch: str = ""
    last: str | None = None
    wanted: bool = True
    asleep: bool = False
    disabled: bool = False
    blocked: bool = False
    pinned_by: str | None = None
    stale_at_s: float | None = None

    @property
    def runs(self) -> bool:
        """Whether a process of the plugin may be there at all."""
        return self.wanted and not self.asleep and not self.disabled


@dataclass(frozen=True, slots=True)
class State:
    """All that a routine remembers. `condemned` digests wait for their quarantine to show in the facts.

    `passed`: the trial's verdict is in, and the pause holds it back. `replaced` counts candidates that newer ones
    replaced in a row, `overtaken` downloads. `direct` is a digest that the operator wants without trials. `emptying`:
    what ran is not wanted any more, and has to be gone before anything starts. `held_calls`: calls wait for a hand-over
    to end. `asked_by` is who asked for the approved or direct digest. `finished` builds ran to their end, as they were
    meant to.
    """

    phase: Phase = Phase.WAITING_FOR_DOWNLOAD
    facts: Facts = field(default_factory=Facts)
    live: Attempt | None = None
    candidate: Attempt | None = None
    previous: Attempt | None = None
    spare: Attempt | None = None
    fetch: Attempt | None = None
    going: frozenset[int] = frozenset()
    holds: Mapping[str, Hold] = field(default_factory=dict)
    condemned: frozenset[str] = frozenset()
    attempts: int = 0
    last: Build | None = None
    before: Build | None = None
    paused: bool = False
    passed: bool = False
    replaced: int = 0
    overtaken: int = 0
    approved: str | None = None
    direct: str | None = None
    asked_by: str = "hotbay"
    emptying: bool = False
    held_calls: bool = False
    finished: frozenset[Build] = frozenset()
    wake_at_s: float | None = None

    @property
    def processes(self) -> int:
        """How many processes of the plugin there are."""
        slots = (self.live, self.candidate, self.previous, self.spare)
        return len(self.going) + sum(a is not None and a.life is not Life.PLANNED for a in slots)


# -- events ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Known:
    """The world, the configuration or the other rollouts changed. What is older than what is known is ignored."""

    facts: Facts


@dataclass(frozen=True, slots=True)
class Tick:
    """The time in `wake_at_s` has come. Spurious ones are fine."""


@dataclass(frozen=True, slots=True)
class Fetched:
    """A download is complete, and so it is in the facts."""

    n: int


@dataclass(frozen=True, slots=True)
class Staged:
    """The candidate's environment was verified."""

    n: int


@dataclass(frozen=True, slots=True)
class Broke:
    """A download, or the check of the candidate's environment, failed. No process is there."""

    n: int
    failure: Failure


@dataclass(frozen=True, slots=True)
class Ready:
    """A launched process is READY, configured, and its plan compiles."""

    n: int


@dataclass(frozen=True, slots=True)
class Ended:
    """A process is gone, or was never started. `failure` is None when it was told to go.

    `finished`: it went by itself, and is of a package that is meant to.
    """

    n: int
    failure: Failure | None = None
    finished: bool = False


@dataclass(frozen=True, slots=True)
class AskedToGo:
    """A process asks to be replaced; it goes on answering until it is. `failure` spreads the pause before."""

    n: int
    failure: Failure


@dataclass(frozen=True, slots=True)
class Judged:
    """A trial has its verdict: `failure` says which figure broke its bound, None that all held."""

    n: int
    trial: Phase
    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class Published:
    """The plan with the candidate is in force. Follows `CutOver` before any other event."""

    n: int


@dataclass(frozen=True, slots=True)
class Refused:
    """The plan with the candidate does not compile. Follows `CutOver` before any other event."""

    n: int
    failure: Failure


@dataclass(frozen=True, slots=True)
class Pause:
    """The operator wants no rollout to begin, or to go on to a next step.

    Failures still act, what dies still comes back, and what is as good as live (another process of the same build, or
    one that takes over from what is on its way out) still becomes it. Downloads go on, and so does a start; what is
    READY waits.
    """


@dataclass(frozen=True, slots=True)
class Resume:
    """The operator ends the pause."""


@dataclass(frozen=True, slots=True)
class Promote:
    """The operator ends the trial with success."""


@dataclass(frozen=True, slots=True)
class Abort:
    """The operator ends the rollout: the candidate goes, or the previous version comes back."""

    failure: Failure
    who: str = "hotbay"


@dataclass(frozen=True, slots=True)
class Approve:
    """The operator lets what waits for it begin."""

    who: str


@dataclass(frozen=True, slots=True)
class Forgive:
    """Failures are forgotten: the configuration changed, or the operator asked for it."""


@dataclass(frozen=True, slots=True)
class GoTo:
    """The operator wants this digest at once, without trials; what selects it is in the facts."""

    digest: str
    who: str


Command = Pause | Resume | Promote | Abort | Approve
Event = (
    Known
    | Tick
    | Fetched
    | Staged
    | Broke
    | Ready
    | Ended
    | AskedToGo
    | Judged
    | Published
    | Refused
    | Forgive
    | GoTo
    | Command
)
