"""What would change, before it does, and which newer versions would not be chosen: for `plan` and `apply`. Reads only.

What a pin would choose is asked here before one is written: a pin that nothing obeys stops a plugin at the next start.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from hotbay.capabilities import grant_command
from hotbay.rollout.choice import Choice, choose
from hotbay.rollout.facts import history_of, plugin_of, ungranted
from hotbay.rollout.passed_over import Known, Passed, passed_over, why_not
from hotbay.rollout.routine import Routine
from hotbay.rollout.rows import phase_text
from hotbay.rollout.selection import Candidate, Pin, Selection, Status
from hotbay.rollout.state import Facts, Phase, State
from hotbay.rollout.supervisor import Supervisor
from hotbay.store.world.records import Grant, Locked, Quarantine

__all__ = ["planned_changes", "under_pin", "versions_passed_over"]


def planned_changes(supervisor: Supervisor, lock: Sequence[Locked] | None) -> list[Mapping[str, object]]:
    """One row for every plugin that is to change, under the lock file if there is one, and why."""
    now = supervisor.services.now()
    rows = (_row(supervisor, name, routine, lock, now) for name, routine in supervisor.routines.items())
    return [row for row in rows if row is not None]


def _row(
    supervisor: Supervisor, name: str, routine: Routine, lock: Sequence[Locked] | None, now: float
) -> Mapping[str, object] | None:
    state = routine.state
    facts = _facts(supervisor, name, lock)
    choice = choose(replace(state, facts=facts), now)
    # Nothing is fetched for a lock that is not in force.
    is_ahead = state.facts.policy.locked != facts.policy.locked
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
        "phase": phase_text(routine.row),
        "why": "; ".join(_why(replace(state, facts=facts), choice.selection, is_ahead=is_ahead)),
    }


def _facts(supervisor: Supervisor, name: str, lock: Sequence[Locked] | None) -> Facts:
    facts = supervisor.facts(name)
    # A lock that the configuration names no more is in force until `apply`, too.
    mine = frozenset(str(line.digest) for line in lock if line.plugin_id == plugin_of(name)) if lock else None
    return replace(facts, policy=replace(facts.policy, locked=mine))


def versions_passed_over(supervisor: Supervisor, lock: Sequence[Locked] | None) -> list[Mapping[str, object]]:
    """One row for every version that is newer than what runs or is to run, or below it and never ran, why it is not chosen, and what to do."""
    now = supervisor.services.now()
    return [
        {
            "plugin": name,
            "version": supervisor.catalog.manifest(passed.candidate.digest).version,
            "rev": passed.candidate.rev,
            "why": passed.why,
            "digest": passed.candidate.digest,
            "hint": passed.hint,
        }
        for name, routine in supervisor.routines.items()
        for passed in _passed_over(supervisor, name, replace(routine.state, facts=_facts(supervisor, name, lock)), now)
    ]


def _passed_over(supervisor: Supervisor, name: str, state: State, now: float) -> list[Passed]:
    facts = state.facts
    candidates = [replace(c, quarantined=c.quarantined or c.digest in state.condemned) for c in facts.candidates]
    known = partial(_known, supervisor, name, facts.pinned_by is not None)
    live_rev = state.live.build.rev if state.live is not None else 0
    return passed_over(candidates, facts.policy, choose(state, now).selection, known, live_rev=live_rev)


def under_pin(supervisor: Supervisor, name: str, pin: Pin, digest: str) -> tuple[Candidate | None, str, str]:
    """What a pin would run, the complete first; None, why and what to do where that is nothing: told of this digest, which it admits."""
    facts, routine = supervisor.facts(name), supervisor.routines.get(name)
    # The command writes a digest, which the floor does not hold back.
    floor_rev = 0 if pin.digest is None else facts.policy.floor_rev
    policy = replace(facts.policy, pin=pin, floor_rev=floor_rev)
    state = replace(routine.state if routine is not None else State(), facts=replace(facts, policy=policy))
    selection = choose(state, supervisor.services.now()).selection
    found = selection.live or selection.target
    if found is not None:
        return found, "", ""
    named = next((c for c in facts.candidates if c.digest == digest), None)
    if named is None:
        hint = (
            "`publisher` of the package's entry says whose are used; the host's log names manifests that cannot be read"
        )
        return None, "it is of another publisher, or its manifest cannot be read", hint
    named = replace(named, quarantined=named.quarantined or digest in state.condemned)
    return None, *why_not(named, policy, selection, _known(supervisor, name, False, digest))


def _known(supervisor: Supervisor, name: str, pinned_here: bool, digest: str) -> Known:
    plugin_id, view = plugin_of(name), supervisor.world.view
    granted, quarantine = view.get(Grant, plugin_id), view.get(Quarantine, digest)
    lacks = ungranted(supervisor.catalog.manifest(digest), supervisor.services.settings(name), granted)
    # The command allows what it names alone: what others have is named again.
    had = granted.capabilities if granted is not None else ()
    return Known(
        plugin_id,
        lacks,
        grant_command(plugin_id, lacks[0], (*had, *lacks)) if lacks else "",
        f"{quarantine.code}: {quarantine.reason}" if quarantine is not None else "",
        pinned_here,
        not supervisor.catalog.ref(digest).offered or any(entry.digest == digest for entry in history_of(view, name)),
    )


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


def _why(state: State, selection: Selection, *, is_ahead: bool) -> Iterator[str]:
    policy = state.facts.policy
    if is_ahead:
        yield "at `hotbay apply`"
    elif selection.status is not Status.CURRENT:
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
