"""A decision as JSON: what `hotbay explain -o json` prints and the admin socket answers. Pure.

The form is stable: keys may come, none goes or means something else. Endpoints are named by id. Times of steps are microseconds,
`at_s` seconds since the epoch. A score that is no finite number is null: it counts as 0.
"""

from collections.abc import Mapping, Sequence

from hotbay.gateway.admin_operations import Page
from hotbay.scheduling.decision import Decision, Picked
from hotbay.scheduling.explained import Explained, ProfileRun, Step

__all__ = ["explain_page", "summary_page"]

_DIGITS = 6


def explain_page(told: Explained, *, at_s: float, age_s: float) -> Page:
    """The decision; `at_s` and `age_s` say when it was made."""
    return {
        **summary_page(told, at_s=at_s, age_s=age_s),
        "candidates": list(told.candidates),
        "others": dict(told.others),
        "probe": told.probe,
        "steps": _steps(told),
        "handler": _ref(told.handler),
        "profiles": [_run(told, run) for run in told.profiles],
    }


def summary_page(told: Explained, *, at_s: float, age_s: float) -> Page:
    """The same without steps, profiles and endpoints."""
    calls_us = _calls_us(told.steps)
    return {
        "request": told.request,
        "at_s": round(at_s, 3),
        "age_s": round(age_s, 1),
        "plan": told.plan,
        "snapshot": told.epoch,
        "arm": _arm(told.decision),
        "decision": _decision(told),
        "candidate_count": len(told.candidates),
        "degraded": [{"ref": ref, "reason": reason, "policy": policy} for ref, reason, policy in told.degraded],
        "generations": [
            {"plugin": plugin, "version": version, "generation": generation}
            for plugin, version, generation in dict.fromkeys((s.plugin, s.version, s.generation) for s in told.steps)
        ],
        "us": {
            "total": _us(told.duration_us),
            "calls": _us(calls_us),
            "host": _us(max(0.0, told.duration_us - calls_us)),
        },
    }


def _decision(told: Explained) -> Page:
    decision = told.decision
    if not isinstance(decision, Picked):
        return {"status": decision.status, "reason": decision.reason, "message": decision.message}
    return {"picked": list(told.picked), "profile": decision.profile, "port": decision.port}


def _arm(decision: Decision) -> Page | None:
    return None if decision.arm is None else {"rollout": decision.arm.rollout, "canary": decision.arm.canary}


def _steps(told: Explained) -> list[Page]:
    """In their order, and of what leaves some out, which those are: of the ids that the one before it left."""
    pages: list[Page] = []
    left: dict[str, Sequence[str]] = {}
    for step in told.steps:
        dropped: list[str] | None = None
        if step.survivors is not None:
            kept = frozenset(step.survivors)
            before = left.get(step.profile, told.candidates if step.profile else (*told.candidates, *told.others))
            if not kept.issubset(before):
                # The profile began anew, with those that were ejected.
                before = (*told.candidates, *told.others)
            dropped = [one for one in before if one not in kept]
            left[step.profile] = step.survivors
        pages.append(_step(step, dropped))
    return pages


def _step(step: Step, dropped: Sequence[str] | None) -> Page:
    page: dict[str, object] = {
        "point": str(step.point),
        "refs": list(step.refs),
        "type": step.type,
        "profile": step.profile or None,
        "plugin": step.plugin,
        "version": step.version,
        "generation": step.generation,
        "started_us": _us(step.started_us),
        "us": _us(step.duration_us),
        "batch": step.batch,
        "error": step.error or None,
    }
    if step.survivors is not None:
        page |= {"survivors": list(step.survivors), "dropped": dropped}
    if step.scores is not None:
        page |= {"weight": step.weight, "scores": _numbers(step.scores), "weighted": _numbers(step.weighted or {})}
    if step.said:
        page["said"] = step.said
    return page


def _ref(ref: tuple[str, str]) -> Page:
    name, type_name = ref
    return {"ref": name, "type": type_name}


def _run(told: Explained, run: ProfileRun) -> Page:
    filters = [s.survivors for s in told.steps if s.profile == run.profile and s.survivors is not None]
    chosen = frozenset((*run.candidates, *(run.picked or ())))
    return {
        "profile": run.profile,
        "picker": _ref(told.pickers.get(run.profile, ("", ""))),
        "candidates": list(run.candidates),
        # Filters left them in; their share of requests is small, or it was not their turn.
        "held_back": [one for one in (filters[-1] if filters else told.candidates) if one not in chosen],
        "totals": _numbers(run.totals),
        "picked": None if run.picked is None else list(run.picked),
    }


def _numbers(values: Mapping[str, float]) -> dict[str, float | None]:
    return {name: round(value, _DIGITS) if value - value == 0.0 else None for name, value in values.items()}


def _us(microseconds: float) -> float:
    return round(microseconds, 1)


def _calls_us(steps: Sequence[Step]) -> float:
    """How long at least one call was out: calls of a stage go out together."""
    total, until = 0.0, float("-inf")
    for begin, end in sorted((step.started_us, step.started_us + step.duration_us) for step in steps):
        total += max(0.0, end - max(begin, until))
        until = max(until, end)
    return total
