"""What would change, before it does: for `plan` and `apply`. Reads only."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from hotbay.rollout.choice import Choice, choose
from hotbay.rollout.facts import plugin_of
from hotbay.rollout.routine import Routine
from hotbay.rollout.selection import Candidate, Selection, Status
from hotbay.rollout.state import Phase, State
from hotbay.rollout.supervisor import Supervisor
from hotbay.store.world.records import Locked

__all__ = ["planned_changes"]


def planned_changes(supervisor: Supervisor, lock: Sequence[Locked] | None) -> list[Mapping[str, object]]:
    """One row for every plugin that is to change, under the lock file if there is one, and why."""
    now = supervisor.services.now()
    rows = (_row(supervisor, name, routine, lock, now) for name, routine in supervisor.routines.items())
    return [row for row in rows if row is not None]


def _row(
    supervisor: Supervisor, name: str, routine: Routine, lock: Sequence[Locked] | None, now: float
) -> Mapping[str, object] | None:
    state = routine.state
    facts = supervisor.facts(name)
    # A lock that the configuration names no more is in force until `apply`, too.
    mine = frozenset(str(line.digest) for line in lock if line.plugin_id == plugin_of(name)) if lock else None
    facts = replace(facts, policy=replace(facts.policy, locked=mine))
    choice = choose(replace(state, facts=facts), now)
    live = state.live.build.digest if state.live is not None else None
    target = choice.selection.target
    action = _action(state, choice, live, target)
    if action is None:
        return None
    return {
        "plugin": name,
        "action": action,
        "from": _version(supervisor, live),
        "to": _version(supervisor, target.digest if target is not None else None),
        "phase": str(state.phase),
        "why": "; ".join(_why(replace(state, facts=facts), choice.selection)),
    }


def _action(state: State, choice: Choice, live: str | None, target: Candidate | None) -> str | None:
    if not state.facts.runs:
        return "stop" if live is not None else None
    if target is None:
        return "stop" if choice.drop_live else None if live is not None else "wait"
    if live is None:
        return "start" if target.complete else "download and start"
    if target.digest == live:
        return "restart" if choice.start is not None else None
    assert state.live is not None, "something is live"
    word = (
        "upgrade" if target.rev > state.live.build.rev else "go back" if target.rev < state.live.build.rev else "move"
    )
    return word if target.complete else f"download and {word}"


def _why(state: State, selection: Selection) -> Iterator[str]:
    policy = state.facts.policy
    if selection.status is not Status.CURRENT:
        yield selection.status.value
    if policy.locked is not None:
        yield "in the lock file"
    elif policy.pin is None and selection.target is not None:
        yield "highest revision"
    if policy.pin is not None:
        yield f"pinned to {policy.pin.digest or f'rev {policy.pin.rev}'}"
    if selection.awaiting_grant:
        yield f"rev {selection.awaiting_grant[0].rev} awaits a grant"
    if state.phase is Phase.AWAITING_APPROVAL:
        yield "awaits approval"
    if state.paused:
        yield "paused"


def _version(supervisor: Supervisor, digest: str | None) -> Mapping[str, object] | None:
    if digest is None:
        return None
    manifest = supervisor.catalog.manifest(digest)
    return {"version": manifest.version, "rev": manifest.rev, "digest": digest}
