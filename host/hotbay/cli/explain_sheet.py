"""Why a request went where it went, as a sheet for people. Pure.

Endpoints of a profile stand in the order in which they were better. Of a wide pool the best ten are shown and what was picked,
unless all are asked for.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from hotbay.cli.endpoint_sheet import named
from hotbay.cli.sheet import Sheet, ago, mapping, moment, rows, texts
from hotbay.observe.tables import UNKNOWN, Grid, cell

__all__ = ["decision_sheet", "decisions_sheet", "kept_line"]

Page = Mapping[str, object]

_BEST_SHOWN: Final = 10
_NAMES_SHOWN: Final = 5
_ALL: Final = 1 << 30
_REASONS: Final = ("cordoned", "ejected", "screened", "tried before")


def decisions_sheet(pages: Sequence[Page]) -> Sheet:
    """One line for each decision, the newest last."""
    sheet = Sheet()
    lines = tuple(
        (
            cell(page.get("request")),
            ago(page.get("age_s")),
            _outcome(mapping(page.get("decision"))),
            cell(page.get("candidate_count")),
            _micros(mapping(page.get("us")).get("total")),
            "yes" if page.get("degraded") else "",
        )
        for page in pages
    )
    names = ("request", "when", "decision", "candidates", "µs", "degraded")
    sheet.show(Grid(names, (0, 2, 0, 4, 3, 1), lines))
    return sheet


def decision_sheet(page: Page, *, everything: bool) -> Sheet:
    """One decision, whole; `everything`: every endpoint by name."""
    sheet, most = Sheet(), _ALL if everything else _NAMES_SHOWN
    _add_head(sheet, page, most)
    steps = rows(page.get("steps"))
    if steps:
        sheet.show(_steps(steps))
    for step in steps:
        if dropped := texts(step.get("dropped")):
            sheet.say(f"{step.get('point')} {_refs(step)} left out: {named(dropped, most)}")
    for run in rows(page.get("profiles")):
        _add_run(sheet, run, steps, _ALL if everything else _BEST_SHOWN)
    for one in rows(page.get("degraded")):
        text = f"degraded: '{one.get('ref')}' gave no usable answer ({one.get('reason')}), so `{one.get('policy')}` decided"
        sheet.say(text, style="red")
    _add_times(sheet, mapping(page.get("us")))
    return sheet


def _add_head(sheet: Sheet, page: Page, most: int) -> None:
    at_s = page.get("at_s")
    when = f"{moment(at_s)}, {ago(page.get('age_s'))}" if isinstance(at_s, int | float) else UNKNOWN
    sheet.say(f"request {page.get('request')} · {when} · plan {page.get('plan')}, snapshot {page.get('snapshot')}")
    decision = mapping(page.get("decision"))
    refused = decision.get("reason") is not None
    sheet.say(_outcome(decision), style="red" if refused else "bold")
    if refused:
        sheet.say(f"because: {decision.get('message')}")
    if arm := mapping(page.get("arm")):
        side = "the candidate" if arm.get("canary") else "what is live"
        sheet.say(f"canary {arm.get('rollout')}: decided by {side}")
    candidates, others = texts(page.get("candidates")), mapping(page.get("others"))
    parts = [f"{len(candidates)} candidate{'s' * (len(candidates) != 1)} of {len(candidates) + len(others)} endpoints"]
    for reason in dict.fromkeys((*_REASONS, *map(str, others.values()))):
        if names := [name for name, why in others.items() if why == reason]:
            parts.append(f"{len(names)} {reason} ({named(names, most)})")
    sheet.say("; ".join(parts))
    if probe := page.get("probe"):
        sheet.say(f"it was to try {probe} again, which was ejected")


def _outcome(decision: Page) -> str:
    if decision.get("reason") is not None:
        return f"refused: {decision.get('status')} {decision.get('reason')}"
    first, *rest = texts(decision.get("picked")) or [UNKNOWN]
    port = "" if decision.get("port") is None else f" at port {decision.get('port')}"
    then = f", then {named(rest)}" if rest else ""
    return f"picked {first}{port}{then} by profile {decision.get('profile')}"


# -- steps -------------------------------------------------------------------------------------------


def _steps(steps: Sequence[Page]) -> Grid:
    lines = tuple(
        (
            cell(step.get("point")),
            cell(step.get("profile")),
            _refs(step),
            cell(step.get("type")),
            _said(step),
            f"{cell(step.get('plugin'))} {cell(step.get('version'))}",
            cell(step.get("generation")),
            cell(step.get("batch")),
            _micros(step.get("started_us")),
            _micros(step.get("us")),
        )
        for step in steps
    )
    names = ("step", "profile", "ref", "type", "answer", "plugin", "generation", "batch", "after µs", "µs")
    return Grid(names, (0, 4, 0, 7, 0, 6, 2, 5, 3, 1), lines)


def _refs(step: Page) -> str:
    return " + ".join(map(cell, texts(step.get("refs"))))


def _said(step: Page) -> str:
    if step.get("error"):
        return cell(step["error"])
    if "survivors" in step:
        return f"{len(texts(step['survivors']))} left"
    if "scores" in step:
        return f"{len(mapping(step['scores']))} scores × {_number(step.get('weight'))}"
    return cell(step.get("said"))


# -- profiles ----------------------------------------------------------------------------------------


def _add_run(sheet: Sheet, run: Page, steps: Sequence[Page], most: int) -> None:
    picked, candidates = texts(run.get("picked")), texts(run.get("candidates"))
    picker = mapping(run.get("picker"))
    by = f" by {picker.get('ref')}" if picker.get("ref") else ""
    what = f"picked {named(picked)}{by}" if picked else "nothing is left to pick from"
    sheet.say(f"profile {run.get('profile')}: {what}", style="bold")
    totals = mapping(run.get("totals"))
    ranked = sorted(dict.fromkeys((*candidates, *picked)), key=lambda one: _rank(one, picked, totals))
    shown = [one for at, one in enumerate(ranked) if at < most or one in picked]
    scorers = [step for step in steps if step.get("profile") == run.get("profile") and "scores" in step]
    if shown:
        sheet.show(_scores(shown, picked, totals, scorers))
    if more := len(ranked) - len(shown):
        sheet.say(f"and {more} more: --all shows them")
    if held_back := texts(run.get("held_back")):
        sheet.say(f"held back, for their share of requests is small: {named(held_back, max(most // 2, 1))}")


def _rank(one: str, picked: Sequence[str], totals: Page) -> tuple[float, float, str]:
    total = totals.get(one)
    place = picked.index(one) if one in picked else len(picked)
    return place, -total if isinstance(total, int | float) else 0.0, one


def _scores(shown: Sequence[str], picked: Sequence[str], totals: Page, scorers: Sequence[Page]) -> Grid:
    lines = tuple(
        (
            cell(one),
            *(_score(step, one) for step in scorers),
            _number(totals.get(one)),
            str(picked.index(one) + 1) if one in picked else "",
        )
        for one in shown
    )
    headings = [f"{_refs(step)} × {_number(step.get('weight'))}" for step in scorers]
    names = ("endpoint", *headings, "total", "picked")
    return Grid(names, (0, *range(1, len(scorers) + 1), 0, 0), lines)


def _score(step: Page, endpoint: str) -> str:
    """The score as it came, and what it added."""
    raw, weighted = (mapping(step.get(name)) for name in ("scores", "weighted"))
    if endpoint not in raw:
        return UNKNOWN
    given = "not finite" if raw[endpoint] is None else _number(raw[endpoint])
    return f"{given} → {_number(weighted.get(endpoint))}"


def _add_times(sheet: Sheet, us: Page) -> None:
    total, calls, host = (_micros(us.get(name)) for name in ("total", "calls", "host"))
    sheet.say(f"decided in {total} µs: {calls} µs while plugins were asked, {host} µs in the host")


def _number(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) and abs(value) < 1000 else cell(_whole(value))


def _micros(value: object) -> str:
    return f"{value:.0f}" if isinstance(value, int | float) else UNKNOWN


def _whole(value: object) -> object:
    return round(value) if isinstance(value, float) else value


def kept_line(kept: Page) -> str:
    """What is kept, and how far back it goes."""
    oldest = kept.get("oldest_age_s")
    since = f", the oldest {ago(oldest)}" if oldest is not None else ""
    return f"{kept.get('decisions')} of at most {kept.get('max_decisions')} decisions are kept{since}"
