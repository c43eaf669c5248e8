"""What can be read out of what is kept of a decision: its steps, scores and picks, as values for whoever shows them.

Pure, and done only when somebody asks: what is kept are answers of plugins as they came, see `explain`.

Consecutive filters that one process answers in one call are one step: the process says what all of them left.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

import numpy as np
import numpy.typing as npt
from hotbay_sdk.protocol import Method, Value
from hotbay_sdk.protocol.calls import mask_bytes

from hotbay.scheduling.batch import row_errors
from hotbay.scheduling.binding import Binding, Point
from hotbay.scheduling.decision import Decision, Picked
from hotbay.scheduling.explain import Answered, Ran, Trace
from hotbay.scheduling.kept_answers import TOO_LONG

__all__ = ["Explained", "ProfileRun", "Step", "explained"]

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Step:
    """What one plugin, or consecutive filters of one process, made of a request.

    Args:
        point: where it was asked.
        refs: who was asked; several where filters were asked together.
        profile: in whose run; empty before and after the profiles run.
        plugin, version, generation: which process answered.
        started_us: microseconds from the decision's begin to the call.
        duration_us: from the call to its answer; calls of one process that went out together share it.
        batch: requests that the call carried.
        survivors: ids that were left, of filters and screeners.
        scores: id → score as it came, of a scorer: not clamped, and of all rows.
        weight: of a scorer in its profile.
        said: what else was answered, in words of the protocol: a verdict, names of profiles, a number.
        error: the code of what went wrong with it; empty if nothing did.
    """

    point: Point
    refs: tuple[str, ...]
    type: str
    profile: str
    plugin: str
    version: str
    generation: int
    started_us: float
    duration_us: float
    batch: int
    survivors: tuple[str, ...] | None = None
    scores: Mapping[str, float] | None = None
    weight: float = 1.0
    said: str = ""
    error: str = ""

    @property
    def weighted(self) -> Mapping[str, float] | None:
        """id → what the score added to the total: clamped to 0 to 1, not finite as 0, times the weight."""
        if self.scores is None:
            return None
        return {
            name: self.weight * (min(1.0, max(0.0, raw)) if math.isfinite(raw) else 0.0)
            for name, raw in self.scores.items()
        }

    def added(self, name: str) -> float | None:
        """The same of one endpoint; None where it got no score."""
        raw = None if self.scores is None else self.scores.get(name)
        if raw is None:
            return None
        return self.weight * min(1.0, max(0.0, raw)) if math.isfinite(raw) else 0.0


@dataclass(frozen=True, slots=True)
class ProfileRun:
    """One run of a profile.

    Args:
        candidates: ids that the picker chose among.
        totals: id → total that it chose by, of candidates; less than the sum of weighted scores where earlier picks of the
            same batch were counted against an endpoint. Empty where nothing was scored.
        picked: ids, best first; None where nothing was left.
    """

    profile: str
    candidates: tuple[str, ...]
    totals: Mapping[str, float]
    picked: tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class Explained:
    """One decision, told. Endpoints are named by id. Values only: whoever shows it renders it.

    Args:
        plan, epoch: numbers of the plan and of the snapshot that it was made by.
        duration_us: of the whole decision.
        ended_s: when it was made, by the performance counter.
        candidates: ids that the filters of each profile began with.
        others: id → what kept any other endpoint from being one: `cordoned`, `ejected`, `screened`, or `tried before` by the
            same request.
        probe: id of an ejected endpoint that this request was to try, if filters left it in; empty for none.
        pickers, handler: ref and type, of pickers by profile.
        steps: answers in their order.
        degraded: (ref, reason, policy) of each failure policy that decided.
    """

    request: str
    plan: int
    epoch: int
    duration_us: float
    ended_s: float
    candidates: tuple[str, ...]
    others: Mapping[str, str]
    probe: str
    pickers: Mapping[str, tuple[str, str]]
    handler: tuple[str, str]
    steps: tuple[Step, ...]
    profiles: tuple[ProfileRun, ...]
    degraded: tuple[tuple[str, str, str], ...]
    decision: Decision

    @property
    def generations(self) -> Mapping[str, int]:
        """Plugin id → the generation that answered."""
        return MappingProxyType({step.plugin: step.generation for step in self.steps})

    @property
    def picked(self) -> tuple[str, ...]:
        """Ids of where the request goes, the primary one first; none where it was refused."""
        decision = self.decision
        return (decision.endpoint.id, *(e.id for e in decision.fallbacks)) if isinstance(decision, Picked) else ()


def explained(trace: Trace) -> Explained:
    """Read what is kept of a decision."""
    steps = [step for note, index in trace.notes for step in _steps(trace, note, index)]
    return Explained(
        request=trace.request,
        plan=trace.plan.number,
        epoch=trace.epoch,
        duration_us=1e6 * (trace.ended_s - trace.begun_s),
        ended_s=trace.ended_s,
        candidates=_names(trace, trace.base),
        others=dict(_others(trace)),
        probe="" if trace.probe is None else trace.ids[trace.probe],
        pickers=trace.plan.pickers,
        handler=trace.plan.handler,
        steps=tuple(steps),
        profiles=tuple(_run(trace, ran) for ran in trace.ran),
        degraded=tuple((ref, reason, trace.plan.policies.get(ref, "")) for ref, reason in trace.degraded),
        decision=trace.decision,
    )


def _others(trace: Trace) -> Iterator[tuple[str, str]]:
    """Each endpoint that was no candidate, and why."""
    ejected = frozenset(trace.ejected)
    for row in np.flatnonzero(~trace.base).tolist():
        name = trace.ids[row]
        if not name:
            continue
        if name in trace.avoid:
            yield name, "tried before"
        elif name in ejected:
            yield name, "ejected"
        else:
            yield name, "screened" if trace.live[row] else "cordoned"


def _names(trace: Trace, mask: Mask) -> tuple[str, ...]:
    return tuple(trace.ids[row] for row in np.flatnonzero(mask).tolist())


def _run(trace: Trace, ran: Ran) -> ProfileRun:
    profile, mask, scored, chosen = ran
    rows = np.flatnonzero(mask).tolist()
    totals = {} if scored is None else {trace.ids[row]: float(scored[row]) for row in rows}
    picked = None if chosen is None else tuple(trace.ids[row] for row in chosen)
    return ProfileRun(profile, _names(trace, mask), totals, picked)


def _steps(trace: Trace, note: Answered, index: int) -> list[Step]:
    """An answer's part for one request. What holds for a batch was checked; one request's answer may be anything."""
    if note.facts.method is Method.RUN:
        return _run_steps(trace, note, index)
    [binding] = note.facts.bindings
    result = note.result
    errors: dict[tuple[int, int], str] = {}
    if isinstance(result, list) and len(result) == 2 and note.facts.method is not Method.PROFILE_PICK:
        errors = _errors(result[1], 1, note.requests)
        result = result[0]
    error = errors.get((0, index), "")
    step = _step(trace, note, (binding,), error=error)
    if error:
        return [step]
    if note.facts.method is Method.SCREEN:
        return [replace(step, survivors=_names(trace, _bits(result, index, len(trace.ids))))]
    said = TOO_LONG if result is TOO_LONG else _said(note.facts.method, result, index)
    return [replace(step, said=said)]


def _run_steps(trace: Trace, note: Answered, index: int) -> list[Step]:
    assert isinstance(note.result, list), "it was applied"
    bits, raw, listed = note.result
    errors, rows = _errors(listed, len(note.facts.bindings), note.requests), len(trace.ids)
    filters = tuple(b for b in note.facts.bindings if b.point is Point.FILTER)
    scorers = note.facts.bindings[len(filters) :]
    steps: list[Step] = []
    if filters:
        failed = [errors[step, index] for step in range(len(filters)) if (step, index) in errors]
        step = _step(trace, note, filters, error=", ".join(failed))
        steps.append(replace(step, survivors=_names(trace, _bits(bits, index, rows))))
    for number, binding in enumerate(scorers):
        error = errors.get((len(filters) + number, index), "")
        step = _step(trace, note, (binding,), error=error)
        if not error and isinstance(raw, bytes):
            row = np.frombuffer(raw, "<f4").reshape(len(scorers), note.requests, rows)[number, index]
            scores = {trace.ids[at]: float(row[at]) for at in range(rows) if trace.ids[at]}
            step = replace(step, scores=scores, weight=binding.weight)
        steps.append(step)
    return steps


def _step(trace: Trace, note: Answered, bindings: Sequence[Binding], *, error: str) -> Step:
    facts = note.facts
    return Step(
        point=bindings[0].point,
        refs=tuple(binding.ref for binding in bindings),
        type="+".join(dict.fromkeys(binding.type for binding in bindings)),
        profile=facts.profile,
        plugin=facts.plugin,
        version=facts.version,
        generation=facts.generation,
        started_us=1e6 * (note.sent_s - trace.begun_s),
        duration_us=1e6 * note.duration_s,
        batch=note.requests,
        error=error,
    )


def _bits(bits: Value, index: int, rows: int) -> Mask:
    assert isinstance(bits, bytes), "it was applied"
    width = mask_bytes(rows)
    packed = np.frombuffer(bits, np.uint8)[index * width : (index + 1) * width]
    return np.unpackbits(packed, count=rows, bitorder="little").view(np.bool_)


def _errors(listed: Value, steps: int, requests: int) -> dict[tuple[int, int], str]:
    """Codes by step and request; those of a whole batch hold for each."""
    found: dict[tuple[int, int], str] = {}
    for (step, request), code in row_errors(listed, steps, requests).items():
        found |= {(step, index): code for index in (range(requests) if request < 0 else (request,))}
    return found


def _said(method: Method, result: Value, index: int) -> str:
    """One request's answer in a line: names and verdicts, never a value that a header or an attribute has."""
    answer = result[index] if method in _BY_REQUEST and isinstance(result, list) else result
    if method is Method.ADMIT:
        return "admitted" if answer is None else _code(answer)
    if method is Method.PROFILE_PICK and isinstance(answer, list):
        return ", ".join(map(str, answer))
    if method is Method.PROFILE_PROCESS and isinstance(answer, dict):
        return str(answer.get("primary", ""))
    if method is Method.SATURATION:
        return str(answer)
    if isinstance(answer, dict):
        return ", ".join(sorted(str(name) for part in _parts(answer) for name in part))
    return ""


def _code(verdict: Value) -> str:
    """Of a denial; one that could not be used has maybe none."""
    code = verdict[0] if isinstance(verdict, list) and verdict else None
    return code if isinstance(code, str) else _UNREADABLE


def _parts(answer: Mapping[str, Value]) -> list[Mapping[str, Value]]:
    """The maps whose keys say what was set: an answer's own, or those inside it."""
    inside: list[Mapping[str, Value]] = [part for part in answer.values() if isinstance(part, dict)]
    return inside or [answer]


_UNREADABLE: Final = "unreadable"
_BY_REQUEST: Final = frozenset({Method.ADMIT, Method.REQUEST_HEADERS, Method.PRE_REQUEST})
"""Methods whose results list one answer for each request."""
