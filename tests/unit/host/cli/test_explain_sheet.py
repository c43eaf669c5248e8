"""A decision for people: every part of it, wide pools cut, and nothing cut where all is asked for."""

import io

import pytest
from hotbay.cli.explain_sheet import decision_sheet, decisions_sheet, kept_line
from rich.console import Console


def names(count, first=0):
    return [f"default/e{n:03}" for n in range(first, count)]


def page(count=3, **changes):
    ids = names(count)
    scores = {one: 1 - n / 1000 for n, one in enumerate(ids)}
    base = {"plugin": "standard", "version": "1.0.0", "generation": 4, "batch": 1, "error": None, "profile": "default"}
    return {
        "request": "r-1", "at_s": 1_760_000_000.0, "age_s": 12.0, "plan": 7, "snapshot": 99, "arm": None,
        "decision": {"picked": ids[:1], "profile": "default", "port": None},
        "candidate_count": len(ids), "candidates": ids, "others": {"default/x": "ejected", "default/y": "cordoned", "default/z": "ejected"}, "probe": "",
        "steps": [
            {**base, "point": "filter", "refs": ["by-label", "decode"], "type": "l", "started_us": 1.0, "us": 100.0,
             "survivors": ids, "dropped": ["default/w"]},
            {**base, "point": "score", "refs": ["queue"], "type": "q", "started_us": 101.5, "us": 200.0, "weight": 2.0,
             "scores": scores, "weighted": {one: 2 * score for one, score in scores.items()}},
            {**base, "point": "score", "refs": ["kv"], "type": "k", "started_us": 101.5, "us": 250.0, "error": "DEADLINE_EXCEEDED"},
        ],
        "handler": {"ref": "single-profile-handler", "type": "single-profile-handler"},
        "profiles": [{"profile": "default", "picker": {"ref": "max-score-picker", "type": "max-score-picker"},
                      "candidates": ids, "held_back": [], "totals": {one: 2 * score for one, score in scores.items()},
                      "picked": ids[:1]}],
        "degraded": [{"ref": "kv", "reason": "DEADLINE_EXCEEDED", "policy": "neutral"}],
        "generations": [], "us": {"total": 812.4, "calls": 640.0, "host": 172.4},
        **changes,
    }  # fmt: skip


def lines(sheet, **terminal):
    file = io.StringIO()
    sheet.print(Console(file=file, **terminal))
    return file.getvalue().splitlines()


def told(*, everything=False, **changes):
    return lines(decision_sheet(page(**changes), everything=everything))


def test_every_part_is_told():
    out = told()
    assert out[0] == "request r-1 · 2025-10-09 08:53:20Z, 12 s ago · plan 7, snapshot 99"
    assert out[1] == "picked default/e000 by profile default"
    assert out[2] == "3 candidates of 6 endpoints; 1 cordoned (default/y); 2 ejected (default/x, default/z)"
    steps = [line.split() for line in out[3:7]]
    assert steps[0][:3] == ["step", "profile", "ref"]
    assert "by-label + decode" in out[4]
    assert "3 left" in out[4]
    assert "3 scores × 2" in out[5]
    assert "DEADLINE_EXCEEDED" in out[6]
    assert out[7] == "filter by-label + decode left out: default/w"
    assert out[8] == "profile default: picked default/e000 by max-score-picker"
    assert out[9].split() == ["endpoint", "queue", "×", "2", "total", "picked"]
    assert out[10].split() == ["default/e000", "1", "→", "2", "2", "1"]
    assert out[11].split() == ["default/e001", "0.999", "→", "1.998", "1.998"]
    assert out[-2] == "degraded: 'kv' gave no usable answer (DEADLINE_EXCEEDED), so `neutral` decided"
    assert out[-1] == "decided in 812 µs: 640 µs while plugins were asked, 172 µs in the host"


@pytest.mark.parametrize(("count", "more"), [(10, 0), (11, 1), (300, 290)])
def test_best_ten_are_shown_and_all_where_they_are_asked_for(count, more):
    out = told(count=count)
    assert sum("→" in line for line in out) == count - more
    assert (f"and {more} more: --all shows them" in out) == bool(more)
    everything = told(count=count, everything=True)
    assert sum("→" in line for line in everything) == count
    assert not any("more" in line for line in everything)


def test_what_was_picked_is_shown_wherever_it_stands():
    picked = {"picked": ["default/e020"], "profile": "default", "port": None}
    runs = [{**page(30)["profiles"][0], "picked": ["default/e020"]}]
    out = told(count=30, decision=picked, profiles=runs)
    assert next(line for line in out if "→" in line).split()[0] == "default/e020"
    assert "and 20 more: --all shows them" in out


def test_refusal_says_why_and_names_no_picker():
    refused = {"status": 429, "reason": "rejected-saturated", "message": "all are busy"}
    runs = [{**page(0)["profiles"][0], "candidates": [], "totals": {}, "picked": None}]
    out = told(count=0, decision=refused, profiles=runs)
    assert out[1:3] == ["refused: 429 rejected-saturated", "because: all are busy"]
    assert "profile default: nothing is left to pick from" in out


def test_canary_probe_fallbacks_port_and_those_that_were_held_back():
    decision = {"picked": ["default/p", "default/e000"], "profile": "x", "port": 9000}
    runs = [{**page(2)["profiles"][0], "held_back": ["default/e001"]}]
    arm = {"rollout": "r", "canary": True}
    out = told(count=2, decision=decision, profiles=runs, arm=arm, probe="default/p")
    assert out[1] == "picked default/p at port 9000, then default/e000 by profile x"
    assert out[2] == "canary r: decided by the candidate"
    assert "it was to try default/p again, which was ejected" in out
    assert "held back, for their share of requests is small: default/e001" in out


def test_score_that_is_no_number_is_said_to_be_none():
    step = {**page(1)["steps"][1], "scores": {"default/e000": None}, "weighted": {"default/e000": 0.0}}
    assert any("not finite → 0" in line for line in told(count=1, steps=[step]))


def test_nothing_on_a_terminal_is_cut_and_nothing_acts_on_it():
    out = lines(decision_sheet(page(request="r\x1b[2J"), everything=False), width=60, force_terminal=True)
    assert not any("\x1b[2J" in line for line in out)
    assert "left out for want of room" in "\n".join(out)


def test_several_decisions_are_a_line_each():
    other = page(request="r-2", decision={"status": 503, "reason": "x", "message": ""}, degraded=[])
    header, first, second = lines(decisions_sheet([page(), other]))
    assert header.split() == ["request", "when", "decision", "candidates", "µs", "degraded"]
    assert "picked default/e000 by profile default" in first
    assert first.endswith("yes")
    assert "refused: 503 x" in second


@pytest.mark.parametrize(
    ("oldest", "line"),
    [(None, "0 of at most 1000 decisions are kept"), (7.0, "0 of at most 1000 decisions are kept, the oldest 7 s ago")],
)
def test_says_what_is_kept(oldest, line):
    assert kept_line({"decisions": 0, "max_decisions": 1000, "oldest_age_s": oldest}) == line
