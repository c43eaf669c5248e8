"""What a rollout's machine wants done, in order; a shell carries it out and answers with events of `state`. Pure."""

from dataclasses import dataclass

from hotbay.rollout.state import Build, Failure, Phase

__all__ = [
    "Cancel",
    "Condemn",
    "CutOver",
    "Effect",
    "EndTrial",
    "Failed",
    "Fetch",
    "HandOver",
    "Kill",
    "Launch",
    "Record",
    "Release",
    "Retire",
    "Stage",
    "Trial",
]


@dataclass(frozen=True, slots=True)
class Fetch:
    """Download a build; ends in `Fetched` or `Broke`, or in nothing after `Cancel`."""

    n: int
    build: Build


@dataclass(frozen=True, slots=True)
class Stage:
    """Verify a complete build's environment; ends in `Staged` or `Broke`, or in nothing after `Cancel`."""

    n: int
    build: Build


@dataclass(frozen=True, slots=True)
class Cancel:
    """Give a download or a check up."""

    n: int


@dataclass(frozen=True, slots=True)
class Launch:
    """Start a process; ends in `Ready`, or in `Ended`. Its state comes from `heir_of`, if that can give any."""

    n: int
    build: Build
    heir_of: int | None = None


@dataclass(frozen=True, slots=True)
class HandOver:
    """Hold the plugin's calls back, take the live process's state, and retire it: ends in its `Ended`."""

    n: int


@dataclass(frozen=True, slots=True)
class Release:
    """Let calls that a hand-over holds back go, to their failure policies if nothing answers."""


@dataclass(frozen=True, slots=True)
class Trial:
    """Begin the shadow, canary or guard of a process; ends in `Judged`, or in nothing after `EndTrial`."""

    n: int
    phase: Phase


@dataclass(frozen=True, slots=True)
class EndTrial:
    """The trial is over: no sample and no share of the calls goes to it on its account any more."""

    n: int


@dataclass(frozen=True, slots=True)
class CutOver:
    """Publish the plan with this process as the live one; ends in `Published` or `Refused`, before anything else."""

    n: int


@dataclass(frozen=True, slots=True)
class Retire:
    """Let the process end its leases and go; ends in `Ended`."""

    n: int


@dataclass(frozen=True, slots=True)
class Kill:
    """End the process without waiting for leases; ends in `Ended`."""

    n: int


@dataclass(frozen=True, slots=True)
class Condemn:
    """Write the quarantine of a digest."""

    build: Build
    failure: Failure


@dataclass(frozen=True, slots=True)
class Record:
    """Write into the history what became live and why."""

    n: int
    build: Build
    why: str
    who: str


@dataclass(frozen=True, slots=True)
class Failed:
    """Tell of a failure: `phase` is where it happened; `was_live` says that what answered is gone."""

    build: Build
    phase: Phase
    failure: Failure
    was_live: bool = False


Effect = (
    Fetch
    | Stage
    | Cancel
    | Launch
    | HandOver
    | Release
    | Trial
    | EndTrial
    | CutOver
    | Retire
    | Kill
    | Condemn
    | Record
    | Failed
)
