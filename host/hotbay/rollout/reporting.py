"""Keeps the status row of one routine, and says in the log and in the events what happened. Decides nothing."""

import logging
from itertools import groupby
from typing import Final

from hotbay.rollout.boundary import BROKEN_CODE
from hotbay.rollout.choice import choose
from hotbay.rollout.effects import Failed
from hotbay.rollout.facts import history_of, plugin_of
from hotbay.rollout.faults import MAX_SHOWN_CHARS
from hotbay.rollout.passed_over import never_chosen
from hotbay.rollout.processes import Processes
from hotbay.rollout.rows import ErrorShown, PinShown, Row, phase_text
from hotbay.rollout.selection import Candidate, Selection
from hotbay.rollout.services import Occurrence, Services
from hotbay.rollout.state import Attempt, Phase, State
from hotbay.rollout.verdicts import Ruling
from hotbay.rpc.leases import Generation, Origin

logger = logging.getLogger(__name__)

__all__ = ["MAX_BELOW", "Reporter"]

MAX_BELOW: Final = 10
"""Revisions below the live one that a row keeps: who publishes more of them knows by then."""
_ON_TRIAL: Final = (Phase.SHADOW, Phase.CANARY, Phase.GUARD)


class Reporter:
    """See the module. Called within each step."""

    def __init__(self, row: Row, services: Services) -> None:
        self._row = row
        self._services = services
        self._conflicts: tuple[str, ...] = ()

    def show(self, before: State, state: State, processes: Processes, now: float) -> None:
        """Bring the row up to date after a step."""
        row, phase_before = self._row, phase_text(self._row)
        selection = choose(state, now).selection
        row.selection = selection.status
        row.target = selection.target.digest if selection.target is not None else None
        row.pin = _pin(state)
        self._note_below(before, state, selection)
        row.awaiting_grant = tuple(c.digest for c in selection.awaiting_grant)
        row.asked = self._services.manifest(row.awaiting_grant[0]).capabilities if row.awaiting_grant else ()
        row.phase, row.paused, row.retry_at_s = state.phase, state.paused, state.wake_at_s
        within_s = state.facts.rules.backoff.budget_within_s
        row.strikes_until_s = tuple(at + within_s for hold in state.holds.values() for at in hold.backoff.failures)
        row.candidate, row.candidate_pid = self._origin(state.candidate), _pid(state.candidate, processes)
        row.previous = self._origin(state.previous)
        row.live_pid = _pid(state.live, processes)
        live = processes.get(state.live.n) if state.live is not None else None
        row.live_state = str(live.state) if live is not None else ""
        row.cold = "; ".join(f"{ref}: {why}" for ref, why in live.cold.items()) if live is not None else ""
        if state.fetch is None and state.phase is not Phase.STAGING:
            row.progress = None
        if state.phase not in _ON_TRIAL:
            self._drop_open_verdict()
        self._report_conflicts(selection)
        if state.live is None and state.candidate is None and row.last_error is None:
            row.last_error = self._nothing_to_run(state)
        if before.phase is not state.phase:
            phase = phase_text(row)
            logger.info("phase plugin=%s phase=%s", row.plugin, phase, extra={"plugin": row.plugin})
            self._happened("phase", phase=phase, before=phase_before)

    def cut_over(self, state: State, generation: Generation) -> None:
        """A plan with this generation is in force."""
        row, origin = self._row, generation.origin
        swapped = row.live is not None and row.live.digest != origin.digest
        if swapped:
            row.swaps += 1
            if state.candidate is not None and state.candidate.why.startswith("went back"):
                row.rollbacks += 1
            else:
                # What was wrong before concerns a version that no longer answers.
                row.last_error = None
        row.live, row.live_generation = origin, generation.number
        row.live_since_s = self._services.wall()
        logger.info(
            "cut_over plugin=%s rev=%s generation=%s",
            row.plugin,
            origin.rev,
            generation.number,
            extra={"plugin": row.plugin, "digest": origin.digest, "pid": generation.pid},
        )
        self._happened("swapped" if swapped else "started", rev=origin.rev, digest=origin.digest, pid=generation.pid)

    def failed(self, effect: Failed) -> None:
        """Something failed: the last error of the row, a line in the log, an event."""
        row, failure = self._row, effect.failure
        row.last_error = ErrorShown(
            failure.code, failure.message, failure.hint, effect.build.digest, self._services.now()
        )
        if effect.was_live:
            row.restarts += 1
        word = "crashed" if effect.was_live else "candidate_failed"
        logger.warning(
            "%s plugin=%s rev=%s phase=%s code=%s: %s",
            word,
            row.plugin,
            effect.build.rev,
            effect.phase,
            failure.code,
            failure.message,
            extra={
                "plugin": row.plugin, "digest": effect.build.digest, "code": failure.code, "hint": failure.hint
            },
        )  # fmt: skip
        self._happened(word, phase=str(effect.phase), code=failure.code, message=failure.message)

    def broke(self, error: Exception) -> None:
        """The routine itself broke; what answers goes."""
        row, name = self._row, self._row.plugin
        message = f"the routine of {name} broke: {type(error).__name__}: {error}"[:MAX_SHOWN_CHARS]
        hint = "a fault of hotbay itself: its traceback is in the host's log; the plugin is started again by itself"
        row.last_error = ErrorShown(BROKEN_CODE, message, hint, "", self._services.now())
        row.phase, row.candidate, row.candidate_pid, row.previous = Phase.BACKOFF, None, None, None
        row.live_pid, row.live_state, row.progress = None, "", None
        self._drop_open_verdict()
        self._happened("routine_broke", code=BROKEN_CODE, message=message)

    def pausing(self, until_s: float) -> None:
        """Nothing is left of it; it begins anew at this time, which is monotonic."""
        self._row.retry_at_s = until_s

    def _happened(self, event: str, **fields: object) -> None:
        self._services.happened(Occurrence(event, self._row.plugin, fields))

    def _origin(self, attempt: Attempt | None) -> Origin | None:
        if attempt is None:
            return None
        manifest = self._services.manifest(attempt.build.digest)
        return Origin(self._row.plugin, manifest.version, manifest.rev, attempt.build.digest)

    def _drop_open_verdict(self) -> None:
        """A trial that ended without a verdict waits for none any more."""
        shown = self._row.verdict
        if shown is not None and shown.verdict.ruling is Ruling.WAIT:
            self._row.verdict = None

    def _note_below(self, before: State, state: State, selection: Selection) -> None:
        """Say once of a version that came while a higher one was live that nothing will choose it."""
        row, live, facts = self._row, state.live, state.facts
        if live is None or before.facts is facts:
            return
        # Who has decided by a pin or a lock expects no other.
        is_free = facts.policy.pin is None and facts.policy.locked is None
        below = never_chosen(facts.candidates, facts.policy, selection, live.build.rev) if is_free else {}
        # Other content of a revision is told of as such.
        conflicts = {c.digest for c in selection.conflicts}
        waiting = {digest: candidate.rev for digest, candidate in below.items() if digest not in conflicts}
        known = {c.digest for c in before.facts.candidates}
        ran = {entry.digest for entry in history_of(self._services.world.view, row.plugin)}
        # What a host finds at its start is what there ever was, and no news.
        found = [d for d in waiting if d not in known and d not in ran] if before.facts.revision else []
        for rev in sorted({waiting[digest] for digest in found}):
            logger.info(
                "package_below plugin=%s rev=%s live_rev=%s: it is not chosen; `hotbay pin %s@%s` runs it, or a higher --rev",
                row.plugin, rev, live.build.rev, row.plugin, rev,
                extra={"plugin": row.plugin},
            )  # fmt: skip
        revs = {waiting[d] for d in found} | (set(row.below) & set(waiting.values()))
        row.below = tuple(sorted(revs, reverse=True)[:MAX_BELOW])

    def _report_conflicts(self, selection: Selection) -> None:
        """Say once of each set of conflicting packages that they are never chosen."""
        conflicts = selection.conflicts
        digests = tuple(sorted(c.digest for c in conflicts))
        if digests == self._conflicts:
            return
        self._conflicts = digests
        if conflicts:
            self._warn_of(conflicts)

    def _warn_of(self, conflicts: tuple[Candidate, ...]) -> None:
        name, sentences = self._row.plugin, []
        # As selection has them, the highest revision first.
        for rev, of_one in groupby(conflicts, key=lambda c: c.rev):
            digests = ", ".join(sorted(c.digest for c in of_one))
            sentences.append(f"rev {rev} of {name} exists with other content: {digests} is not used")
            logger.warning("digest_conflict plugin=%s rev=%s: %s", name, rev, sentences[-1])
        hint = (
            f"publish changed content under a new rev; `hotbay pin {plugin_of(name)}@DIGEST` runs the one that you want"
        )
        first = min(c.digest for c in conflicts if c.rev == conflicts[0].rev)
        self._row.last_error = ErrorShown("DIGEST_CONFLICT", "; ".join(sentences), hint, first, self._services.now())

    def _nothing_to_run(self, state: State) -> ErrorShown | None:
        if state.phase is not Phase.WAITING_FOR_DOWNLOAD:
            return None
        found = ", ".join(sorted({c.platform for c in state.facts.candidates}))
        here = ", ".join(state.facts.policy.platforms)
        return ErrorShown(
            "UNAVAILABLE",
            f"no source offers a package of '{self._row.plugin}' that can run here"
            + (f": found {found}, this host is {here}" if found else ""),
            "put one into a source; it is started as soon as it is there",
            "",
            self._services.now(),
        )


def _pid(attempt: Attempt | None, processes: Processes) -> int | None:
    instance = processes.get(attempt.n) if attempt is not None else None
    return instance.child.pid if instance is not None else None


def _pin(state: State) -> PinShown | None:
    pin = state.facts.policy.pin
    if pin is None:
        return None
    rev = next((c.rev for c in state.facts.candidates if c.digest == pin.digest), pin.rev)
    return PinShown(rev, pin.digest, state.facts.pinned_by)
