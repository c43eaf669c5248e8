"""`hotbay explain` and `hotbay dump`: what they ask of the host, and what they print."""

import json

import pytest

DECISION = {
    "request": "a/b", "at_s": 1_760_000_000.0, "age_s": 3.0, "plan": 1, "snapshot": 2, "arm": None,
    "decision": {"picked": ["default/a"], "profile": "default", "port": None}, "candidates": ["default/a"], "others": {},
    "probe": "", "steps": [], "handler": {"ref": "h", "type": "h"},
    "profiles": [{"profile": "default", "picker": {"ref": "best", "type": "max-score-picker"}, "candidates": ["default/a"],
                  "held_back": [], "totals": {"default/a": 1.0}, "picked": ["default/a"]}],
    "degraded": [], "generations": [], "us": {"total": 10.0, "calls": 4.0, "host": 6.0},
}  # fmt: skip
KEPT = {"decisions": 1, "bytes": 1, "max_decisions": 1000, "max_bytes": 2, "oldest_age_s": 3.0}
STATES = {
    "plugins": [
        {"ref": "my queue", "type": "q", "plugin": "standard", "generation": 4, "state": {"seen": [1, 2], "text": "\x9b2J"}},
        {"ref": "gone", "type": "q", "plugin": "other", "generation": None, "error": {"code": "UNAVAILABLE", "message": "no"}},
    ],
    "host": {"in-flight": {"total": 0, "first": {}}},
}  # fmt: skip


@pytest.fixture
def asked(bay, hotbay):
    """asked("explain", "x"): the command against the host, which answers with the pages above."""
    one = {"decisions": [DECISION], "kept": KEPT}
    bay.operations.pages |= {"explain": one, "latest": one, "dump": STATES}
    return lambda *arguments: hotbay(*arguments, "--socket", bay.socket)


def test_request_is_asked_for_by_its_id_whatever_is_in_it(asked, bay):
    ended = asked("explain", "a/b+c=@:1")
    assert (ended.code, ended.err) == (0, "")
    assert bay.operations.calls == [("explain", "a/b+c=@:1")]
    assert ended.out.splitlines()[0].startswith("request a/b · 2025-10-09 08:53:20Z, 3 s ago")
    assert "picked default/a by best" in ended.out
    page = json.loads(asked("explain", "x", "-o", "json").out)
    assert page == {"decisions": [DECISION], "kept": KEPT}


def test_several_decisions_for_one_id_are_told_one_after_the_other(asked, bay):
    bay.operations.pages["explain"] = {"decisions": [DECISION, DECISION], "kept": KEPT}
    out = asked("explain", "a/b").out
    assert out.count("request a/b") == 2
    assert "decision 2 of 2 for requests of this id" in out


@pytest.mark.parametrize(("given", "count"), [([], 1), (["1"], 1), (["100"], 100)])
def test_newest_decisions_are_asked_for_by_their_number(asked, bay, given, count):
    ended = asked("explain", "--last", *given)
    assert ended.code == 0
    assert bay.operations.calls == [("latest", count)]
    assert "a/b" in ended.out
    assert ended.out.endswith("1 of at most 1000 decisions are kept, the oldest 3 s ago\n")


@pytest.mark.parametrize("given", [["--last", "0"], ["--last", "101"], [], ["x", "--last", "2"]])
def test_wrong_use_is_refused(asked, bay, given):
    assert asked("explain", *given).code == 2
    assert bay.operations.calls == []


def test_nothing_kept_yet_is_no_error(asked, bay):
    bay.operations.pages["latest"] = {"decisions": [], "kept": {**KEPT, "decisions": 0, "oldest_age_s": None}}
    assert asked("explain", "--last").out == "0 of at most 1000 decisions are kept\n"


def test_request_that_is_not_kept_is_an_error_with_what_to_do(asked):
    ended = asked("explain", "unknown")
    assert ended.code == 78
    assert "no decision for request 'unknown' is kept" in ended.err
    assert "ask sooner" in ended.err


def test_states_are_shown_each_under_its_ref_and_errors_in_their_place(asked, bay):
    out = asked("dump").out
    assert "my queue (q of standard #4):\n  {\n" in out
    assert "gone (q of other):\n  UNAVAILABLE: no\n" in out
    assert "in-flight (of the host):" in out
    assert "\x9b" not in out
    asked("dump", "my queue")
    assert bay.operations.calls == [("dump", None), ("dump", "my queue")]
    assert json.loads(asked("dump", "-o", "json").out) == STATES


def test_nothing_to_show_is_said(asked, bay):
    bay.operations.pages["dump"] = {"plugins": [], "host": {}}
    assert asked("dump").out == "no plugin that runs shows its state\n"
