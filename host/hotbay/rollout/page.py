"""One plugin as the status page shows it: what runs, what is tried and what decides, and what went wrong. Pure; reads only."""

from collections.abc import Mapping

from hotbay.errors import printable
from hotbay.packages.package_blobs import Progress
from hotbay.rollout.gathered import Gathered
from hotbay.rollout.rows import ErrorShown, Row, VerdictShown, phase_text
from hotbay.rpc.leases import Generation, Origin

__all__ = ["plugin_row", "strikes"]


def plugin_row(row: Row, generations: Mapping[int, Generation], now: float) -> dict[str, object]:
    """The row. `generations` are those that run, by number; `now` is monotonic seconds, of the row's times."""
    live = generations.get(row.live_generation) if row.live_generation is not None else None
    return {
        "plugin": row.plugin,
        "phase": phase_text(row),
        "paused": row.paused,
        "live": _live(row),
        "leases": 0 if live is None else live.leases,
        "process": None if live is None else dict(live.client.figures),
        "candidate": _build(row.candidate, row.candidate_pid),
        "previous": _build(row.previous, None),
        "target": row.target,
        "pin": None if row.pin is None else {"rev": row.pin.rev, "digest": row.pin.digest, "by": row.pin.by},
        "below": list(row.below),
        "awaiting_grant": list(row.awaiting_grant),
        "asked": list(row.asked),
        "progress": _progress(row.progress),
        "verdict": _verdict(row.verdict),
        "restarts": row.restarts,
        "swaps": row.swaps,
        "rollbacks": row.rollbacks,
        "strikes": strikes(row, now),
        "cold": printable(row.cold),
        "retry_in_s": None if row.retry_at_s is None else max(0.0, round(row.retry_at_s - now, 1)),
        "selection": row.selection.value,
        "last_error": _failure(row.last_error, now),
    }


def _live(row: Row) -> Mapping[str, object] | None:
    if row.live is None:
        return None
    return {
        "version": row.live.version,
        "rev": row.live.rev,
        "digest": row.live.digest,
        "generation": row.live_generation,
        "pid": row.live_pid,
        "state": row.live_state,
        "since_s": row.live_since_s,
    }


def _build(origin: Origin | None, pid: int | None) -> Mapping[str, object] | None:
    if origin is None:
        return None
    return {"version": origin.version, "rev": origin.rev, "digest": origin.digest, "pid": pid}


def _progress(progress: Progress | None) -> Mapping[str, object] | None:
    if progress is None:
        return None
    return {
        "phase": progress.phase,
        "digest": progress.digest,
        "bytes": progress.bytes_done,
        "total_bytes": progress.bytes_total,
    }


def _verdict(shown: VerdictShown | None) -> Mapping[str, object] | None:
    """The figure that decides, or is nearest to it, and in which step of which build; shares are 0 to 1."""
    if shown is None:
        return None
    verdict = shown.verdict
    return {
        "phase": str(shown.phase),
        "rev": shown.of.rev,
        "digest": shown.of.digest,
        "ruling": str(verdict.ruling),
        "figure": verdict.figure,
        "candidate": verdict.candidate,
        "live": verdict.live,
        "bound": verdict.bound,
        "limit_s": verdict.limit_s,
        "gathered": _gathered(verdict.gathered),
    }


def _gathered(gathered: Gathered | None) -> Mapping[str, object] | None:
    """How far the step is: what is still missing for its verdict."""
    if gathered is None:
        return None
    return {
        "counted": gathered.counted,
        "count": gathered.count,
        "wanted": gathered.wanted,
        "elapsed_s": round(gathered.elapsed_s, 1),
        "for_s": gathered.for_s,
        "at_most_s": gathered.at_most_s,
    }


def strikes(row: Row, now: float) -> int:
    """How many failures count towards the budget."""
    return sum(1 for until_s in row.strikes_until_s if until_s > now)


def _failure(failure: ErrorShown | None, now: float) -> Mapping[str, object] | None:
    if failure is None:
        return None
    return {
        "code": failure.code,
        "message": printable(failure.message),
        "hint": printable(failure.hint),
        "digest": failure.digest,
        "s_ago": round(now - failure.at_s, 1),
    }
