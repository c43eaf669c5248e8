"""The life of one instance (one OS process of one package) as a table. Pure.

    NEW → STARTING → CONFIGURING → READY → DRAINING → TERMINATING → KILLING → EXITED

Forward only: a restart is another instance with another generation. A pair that is not listed raises
`IllegalTransition`, which is our own fault. Deadlines belong to who waits: every state between NEW and EXITED but
READY is waited in with one, and running out of it leads on towards EXITED.

- STARTING: ARMED, GO, HELLO, WELCOME, state of a predecessor, until READY comes.
- CONFIGURING: refs are made in it for the first time; later ones are made in READY.
- DRAINING: no new leases; the last one ends, then GOAWAY lets it close by itself.
- TERMINATING: SIGTERM and its grace. KILLING: SIGKILL of everything.
"""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final

__all__ = ["TABLE", "IllegalTransition", "InstanceEvent", "InstanceState", "advance"]


class InstanceState(StrEnum):
    """In order of life. The value is what status shows."""

    NEW = "new"
    STARTING = "starting"
    CONFIGURING = "configuring"
    READY = "ready"
    DRAINING = "draining"
    TERMINATING = "terminating"
    KILLING = "killing"
    EXITED = "exited"


class InstanceEvent(StrEnum):
    """What happens to an instance, by its owner's doing or by its own."""

    LAUNCHED = "launched"
    PLUGIN_READY = "plugin ready"
    CONFIGURED = "configured"
    RETIRE = "retire"
    TERMINATE = "terminate"
    KILL = "kill"
    EXITED = "exited"


class IllegalTransition(Exception):
    """This event cannot happen in this state: our own code is wrong."""


_S, _E = InstanceState, InstanceEvent
_RUNNING: Final = (_S.STARTING, _S.CONFIGURING, _S.READY, _S.DRAINING)

TABLE: Final[Mapping[tuple[InstanceState, InstanceEvent], InstanceState]] = MappingProxyType(
    {
        (_S.NEW, _E.LAUNCHED): _S.STARTING,
        (_S.NEW, _E.EXITED): _S.EXITED,
        (_S.STARTING, _E.PLUGIN_READY): _S.CONFIGURING,
        (_S.CONFIGURING, _E.CONFIGURED): _S.READY,
        (_S.READY, _E.RETIRE): _S.DRAINING,
        # What never served has no lease to wait for, and is told to go at once.
        (_S.STARTING, _E.RETIRE): _S.DRAINING,
        (_S.CONFIGURING, _E.RETIRE): _S.DRAINING,
        **{(state, _E.TERMINATE): _S.TERMINATING for state in _RUNNING},
        **{(state, _E.KILL): _S.KILLING for state in (*_RUNNING, _S.TERMINATING)},
        **{(state, _E.EXITED): _S.EXITED for state in (*_RUNNING, _S.TERMINATING, _S.KILLING)},
        # Said again, said late, or overtaken by the end: nothing changes. Several may stop one instance.
        (_S.READY, _E.CONFIGURED): _S.READY,
        (_S.DRAINING, _E.RETIRE): _S.DRAINING,
        **{(_S.TERMINATING, event): _S.TERMINATING for event in (_E.RETIRE, _E.TERMINATE)},
        **{(_S.KILLING, event): _S.KILLING for event in (_E.RETIRE, _E.TERMINATE, _E.KILL)},
        **{(_S.EXITED, event): _S.EXITED for event in (_E.RETIRE, _E.TERMINATE, _E.KILL, _E.EXITED)},
        # Answers that were on their way when it was told to go.
        **{
            (state, event): state
            for state in (_S.DRAINING, _S.TERMINATING, _S.KILLING, _S.EXITED)
            for event in (_E.PLUGIN_READY, _E.CONFIGURED)
        },
    }
)


def advance(state: InstanceState, event: InstanceEvent) -> InstanceState:
    """One event. Raises `IllegalTransition` for a pair that the table does not list."""
    after = TABLE.get((state, event))
    if after is None:
        raise IllegalTransition(f"{event.name} in {state.name}")
    return after
