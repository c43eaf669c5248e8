"""The life of one instance (one OS process of one package), as a table. Pure.

    NEW → STARTING → CONFIGURING → READY → DRAINING → TERMINATING → KILLING → EXITED

Forward only: a restart is another instance with another generation number. `step` looks the pair (state, event) up;
a pair that is not listed raises `IllegalTransition`, which is our own fault and never caught. Pairs that may happen
and mean nothing are listed with no effect and no change. Every state that waits for the plugin has a deadline, and
running out of it always leads towards EXITED. Effects are data; the supervisor carries them out in order.

- A process that cannot be started at all is STARTING, then EXITED with the cause as its reason.
- STARTING waits for READY (ARMED and HELLO have deadlines of their own in the handshake).
- DRAINING: no new leases; when the last one ended, GOAWAY lets the plugin close by itself and exit 0.
- TERMINATING: SIGTERM to the plugin's own pid, and its grace.
- KILLING: SIGKILL to everything; repeated, because a process in an uninterruptible call outlives the first.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from types import MappingProxyType
from typing import Final

__all__ = [
    "DEADLINES",
    "TABLE",
    "Deadlines",
    "Effect",
    "Event",
    "IllegalTransition",
    "Instance",
    "State",
    "Transition",
    "step",
]


class State(Enum):
    """In order of life; the value is the rank."""

    NEW = 0
    STARTING = 1
    CONFIGURING = 2
    READY = 3
    DRAINING = 4
    TERMINATING = 5
    KILLING = 6
    EXITED = 7


class Event(Enum):
    LAUNCH = "launch"
    PLUGIN_READY = "plugin_ready"  # READY came, with the types of the manifest
    CONFIGURED = "configured"  # every ref has its handle
    REFUSED = "refused"  # the plugin answered with an error: it can be asked to leave
    FAULT = "fault"  # it broke the protocol, its channel, or its word: it is not asked
    RECYCLE = "recycle"  # the plugin itself sent GOAWAY
    STOP = "stop"
    DRAINED = "drained"  # the last lease ended
    KILL = "kill"
    DEADLINE = "deadline"
    EXITED = "exited"  # the pidfd says so


class Effect(Enum):
    START_PROCESS = "start_process"
    CONFIGURE = "configure"
    OPEN_LEASES = "open_leases"
    CLOSE_LEASES = "close_leases"
    REQUEST_REPLACEMENT = "request_replacement"
    SEND_GOAWAY = "send_goaway"
    SEND_SIGTERM = "send_sigterm"
    KILL_ALL = "kill_all"
    REPORT_EXIT = "report_exit"


@dataclass(frozen=True, slots=True)
class Deadlines:
    """Seconds that each waiting state may last, and what is left for closing after GOAWAY."""

    starting_s: float = 30.0
    configuring_s: float = 5.0
    draining_s: float = 10.0
    closing_s: float = 2.0
    terminating_s: float = 2.0
    killing_s: float = 5.0

    def of(self, state: State) -> float | None:
        """None for the states that wait for nobody."""
        return {
            State.STARTING: self.starting_s,
            State.CONFIGURING: self.configuring_s,
            State.DRAINING: self.draining_s,
            State.TERMINATING: self.terminating_s,
            State.KILLING: self.killing_s,
        }.get(state)


DEADLINES: Final = Deadlines()


class IllegalTransition(Exception):
    """This event cannot happen in this state: our own code is wrong."""


@dataclass(frozen=True, slots=True)
class Instance:
    """`deadline` is on the clock of `now`; `reason` is the first cause of the end, and stays."""

    state: State = State.NEW
    deadline: float | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Transition:
    """`reason` is used when the event brings none."""

    to: State
    effects: tuple[Effect, ...] = ()
    reason: str = ""


_S, _E, _F = State, Event, Effect
_EXIT: Final = Transition(_S.EXITED, (_F.REPORT_EXIT,), "exited unasked")
_EXIT_OPEN: Final = Transition(_S.EXITED, (_F.CLOSE_LEASES, _F.REPORT_EXIT), "exited unasked")
_NEVER_STARTED: Final = Transition(_S.EXITED, (_F.REPORT_EXIT,), "stopped")
_TERMINATE: Final = Transition(_S.TERMINATING, (_F.SEND_SIGTERM,), "stopped")


def _kill(reason: str, *before: Effect) -> Transition:
    return Transition(_S.KILLING, (*before, _F.KILL_ALL), reason)


def _ignored(state: State, *events: Event) -> dict[tuple[State, Event], Transition]:
    return {(state, event): Transition(state) for event in events}


TABLE: Final[Mapping[tuple[State, Event], Transition]] = MappingProxyType(
    {
        (_S.NEW, _E.LAUNCH): Transition(_S.STARTING, (_F.START_PROCESS,)),
        (_S.NEW, _E.STOP): _NEVER_STARTED,
        (_S.NEW, _E.KILL): _NEVER_STARTED,
        #
        (_S.STARTING, _E.PLUGIN_READY): Transition(_S.CONFIGURING, (_F.CONFIGURE,)),
        (_S.STARTING, _E.REFUSED): Transition(_S.TERMINATING, (_F.SEND_SIGTERM,), "refused to start"),
        (_S.STARTING, _E.FAULT): _kill("fault at start"),
        (_S.STARTING, _E.DEADLINE): _kill("READY_TIMEOUT"),
        (_S.STARTING, _E.STOP): _TERMINATE,
        (_S.STARTING, _E.KILL): _kill("killed"),
        (_S.STARTING, _E.EXITED): _EXIT,
        #
        (_S.CONFIGURING, _E.CONFIGURED): Transition(_S.READY, (_F.OPEN_LEASES,)),
        (_S.CONFIGURING, _E.REFUSED): Transition(_S.TERMINATING, (_F.SEND_SIGTERM,), "refused its configuration"),
        (_S.CONFIGURING, _E.FAULT): _kill("fault while configured"),
        (_S.CONFIGURING, _E.DEADLINE): _kill("DEADLINE_EXCEEDED"),
        (_S.CONFIGURING, _E.STOP): _TERMINATE,
        (_S.CONFIGURING, _E.KILL): _kill("killed"),
        (_S.CONFIGURING, _E.EXITED): _EXIT,
        #
        (_S.READY, _E.STOP): Transition(_S.DRAINING, (_F.CLOSE_LEASES,), "stopped"),
        (_S.READY, _E.RECYCLE): Transition(_S.READY, (_F.REQUEST_REPLACEMENT,)),
        (_S.READY, _E.FAULT): _kill("fault", _F.CLOSE_LEASES),
        (_S.READY, _E.KILL): _kill("killed", _F.CLOSE_LEASES),
        (_S.READY, _E.EXITED): _EXIT_OPEN,
        #
        (_S.DRAINING, _E.DRAINED): Transition(_S.DRAINING, (_F.SEND_GOAWAY,)),
        (_S.DRAINING, _E.FAULT): _kill("fault while draining"),
        (_S.DRAINING, _E.DEADLINE): Transition(_S.TERMINATING, (_F.SEND_SIGTERM,)),
        (_S.DRAINING, _E.KILL): _kill("killed"),
        (_S.DRAINING, _E.EXITED): Transition(_S.EXITED, (_F.REPORT_EXIT,)),
        #
        (_S.TERMINATING, _E.FAULT): _kill("fault while stopping"),
        (_S.TERMINATING, _E.DEADLINE): _kill("no exit after SIGTERM"),
        (_S.TERMINATING, _E.KILL): _kill("killed"),
        (_S.TERMINATING, _E.EXITED): Transition(_S.EXITED, (_F.REPORT_EXIT,)),
        #
        (_S.KILLING, _E.DEADLINE): Transition(_S.KILLING, (_F.KILL_ALL,)),
        (_S.KILLING, _E.EXITED): Transition(_S.EXITED, (_F.REPORT_EXIT,)),
        # Nothing that a plugin sends is a bug of ours, however odd its moment.
        (_S.STARTING, _E.RECYCLE): Transition(_S.TERMINATING, (_F.SEND_SIGTERM,), "went away before it was ready"),
        (_S.CONFIGURING, _E.RECYCLE): Transition(_S.TERMINATING, (_F.SEND_SIGTERM,), "went away before it was ready"),
        (_S.CONFIGURING, _E.PLUGIN_READY): _kill("PROTOCOL_VIOLATION"),
        (_S.READY, _E.PLUGIN_READY): _kill("PROTOCOL_VIOLATION", _F.CLOSE_LEASES),
        (_S.DRAINING, _E.PLUGIN_READY): _kill("PROTOCOL_VIOLATION"),
        # What arrives late, or is asked for twice, changes nothing. A running instance may be configured again.
        **_ignored(_S.READY, _E.CONFIGURED, _E.REFUSED, _E.DRAINED),
        **_ignored(_S.DRAINING, _E.STOP, _E.RECYCLE, _E.REFUSED, _E.CONFIGURED),
        **_ignored(_S.TERMINATING, _E.STOP, _E.DRAINED, _E.RECYCLE, _E.REFUSED, _E.PLUGIN_READY, _E.CONFIGURED),
        **_ignored(
            _S.KILLING,
            *(_E.STOP, _E.KILL, _E.FAULT, _E.DRAINED, _E.RECYCLE, _E.REFUSED, _E.PLUGIN_READY, _E.CONFIGURED),
        ),
        **_ignored(
            _S.EXITED,
            *(_E.STOP, _E.KILL, _E.FAULT, _E.DRAINED, _E.RECYCLE, _E.REFUSED, _E.PLUGIN_READY, _E.CONFIGURED),
        ),
    }
)


def step(
    instance: Instance, event: Event, now: float, *, reason: str = "", deadlines: Deadlines = DEADLINES
) -> tuple[Instance, tuple[Effect, ...]]:
    """One transition. A DEADLINE event before the instance's deadline is a late timer and changes nothing.

    Raises IllegalTransition for a pair that the table does not list.
    """
    if event is Event.DEADLINE and (instance.deadline is None or now < instance.deadline):
        return instance, ()
    transition = TABLE.get((instance.state, event))
    if transition is None:
        raise IllegalTransition(f"{event.name} in {instance.state.name}")
    if not transition.effects and transition.to is instance.state:
        return instance, ()
    ending = transition.to.value > State.READY.value
    kept = instance.reason or (reason or transition.reason if ending else "")
    return replace(
        instance, state=transition.to, deadline=_deadline(instance, transition, now, deadlines), reason=kept
    ), transition.effects


def _deadline(instance: Instance, transition: Transition, now: float, deadlines: Deadlines) -> float | None:
    if Effect.SEND_GOAWAY in transition.effects:
        assert instance.deadline is not None, "DRAINING waits"
        return min(instance.deadline, now + deadlines.closing_s)
    allowed = deadlines.of(transition.to)
    return None if allowed is None else now + allowed
