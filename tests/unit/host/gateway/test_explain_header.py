"""The header that says why: to whom it is given, what it says, and that it never has more than its bytes."""

import json
from types import SimpleNamespace

import pytest
from hotbay.datalayer.endpoint import EndpointMetadata
from hotbay.gateway.admin_explain import explain_page
from hotbay.gateway.explain_header import EXPLAIN, MAX_BYTES, explain_header, header_of, nothing
from hotbay.scheduling.binding import Point
from hotbay.scheduling.decision import BUSY, Arm, Picked
from hotbay.scheduling.explained import Explained, ProfileRun, Step
from hypothesis import given
from hypothesis import strategies as st


def endpoint(name):
    return EndpointMetadata(f"default/{name}", name, "10.0.0.1", 8000)


def step(point=Point.SCORE, ref="queue", profile="default", **changes):
    fields = {"type": "t", "plugin": "p", "version": "1.0.0", "generation": 3, "started_us": 10.0, "duration_us": 100.0}
    return Step(point, (ref,), profile=profile, **{**fields, "batch": 1, **changes})


def told(count=3, steps=1, decision=None, name="e", **changes):
    ids = tuple(f"default/{name}{n}" for n in range(count))
    totals = {one: 1.0 - n / 1000 for n, one in enumerate(ids)}
    picked = ids[:1] or None
    if decision is None:
        decision = Picked(endpoint(f"{name}0")) if ids else BUSY
    fields = {
        "request": "r",
        "plan": 1,
        "epoch": 2,
        "duration_us": 500.0,
        "ended_s": 9.0,
        "candidates": ids,
        "others": {},
        "probe": "",
        "pickers": {"default": ("best", "max-score-picker")},
        "handler": ("one", "single-profile-handler"),
        "steps": tuple(step(ref=f"s{n}", scores=totals, weight=2.0) for n in range(steps)),
        "profiles": (ProfileRun("default", ids, totals, picked),),
        "degraded": (),
        "decision": decision,
    }
    return Explained(**{**fields, **changes})


def asked(value="1"):
    return SimpleNamespace(id="r", headers={} if value is None else {EXPLAIN: value})


def test_says_what_was_picked_and_why():
    page = json.loads(explain_header(told(2, degraded=(("x", "TIMEOUT", "skip"),))))
    assert page == {
        "picked": ["default/e0"],
        "profile": "default",
        "us": 500,
        "candidates": 2,
        "steps": [{"point": "score", "refs": ["s0"], "generation": 3, "us": 100}],
        "profiles": [
            {
                "profile": "default",
                "scorers": ["s0"],
                "scores": {"default/e0": [1.0, 2.0], "default/e1": [0.999, 1.998]},
            }
        ],
        "degraded": [["x", "TIMEOUT", "skip"]],
    }


def test_refusal_canary_and_filters_are_said():
    kept = step(Point.FILTER, "f", survivors=("default/e0",))
    failed = step(Point.SCREEN, "g", "", error="TIMEOUT")
    found = told(steps=0, decision=BUSY._replace(arm=Arm("salt", True)), profiles=())
    page = json.loads(explain_header(told(decision=found.decision, profiles=(), steps=0)))
    assert (page["status"], page["reason"], page["canary"]) == (429, "rejected-saturated", True)
    page = json.loads(explain_header(Explained(**{**fields_of(found), "steps": (kept, failed)})))
    assert [one.get("left", one.get("error")) for one in page["steps"]] == [1, "TIMEOUT"]


def fields_of(found):
    return {name: getattr(found, name) for name in Explained.__dataclass_fields__}


@given(count=st.integers(0, 400), steps=st.integers(0, 60), length=st.integers(0, 60))
def test_never_longer_than_its_bytes_and_as_full_as_can_be(count, steps, length):
    found = told(count, steps, name="e" * length or "x")
    value = explain_header(found)
    assert len(value) <= MAX_BYTES
    assert value.isascii()
    assert b"\n" not in value
    page = json.loads(value)
    if "profiles" in page and isinstance(page["profiles"], list):
        [run] = page["profiles"]
        shown = list(run["scores"])
        assert shown == list(found.candidates[: len(shown)]), "the best stay"
        assert run.get("left_out", 0) == count - len(shown)
    else:
        assert page["left_out"] == {"steps": steps, "profiles": 1}


@pytest.mark.parametrize("count", [10, 1000])
def test_wide_pool_says_how_many_have_no_room(count):
    [run] = json.loads(explain_header(told(count)))["profiles"]
    assert len(run["scores"]) + run.get("left_out", 0) == count
    assert ("left_out" in run) == (count == 1000)


def test_names_that_nobody_chose_well_stay_in_one_line_of_ascii():
    value = explain_header(told(1, name="é\r\n\x00"))
    assert value.isascii()
    assert not set(value) & set(b"\r\n\x00")


@pytest.mark.parametrize(("value", "is_allowed", "is_said"), [
    ("1", True, True), ("1", False, False), (None, True, False), ("0", True, False), ("true", True, False),
])  # fmt: skip
def test_said_only_where_it_is_asked_for_and_allowed(value, is_allowed, is_said):
    found = told()
    looked = []

    def find(name):
        looked.append(name)
        return found

    headers = header_of(find, lambda: is_allowed)(asked(value), found.decision)
    assert bool(headers) == is_said
    assert bool(looked) == is_said, "nothing is made of what nobody asked for"


def test_decision_of_another_request_under_the_same_id_is_not_said():
    found = told()
    other = Picked(endpoint("e9"))
    explain = header_of(lambda name: found, lambda: True)
    assert explain(asked(), other) == {b"x-hotbay-explain": b'{"error":"not kept"}'}
    assert header_of(lambda name: None, lambda: True)(asked(), other) == explain(asked(), other)
    assert not nothing(asked(), other)


def test_page_has_every_part_in_a_stable_form():
    steps = (
        step(Point.SCREEN, "scr", "", survivors=("default/e0", "default/e1"), duration_us=50.0),
        step(Point.FILTER, "f", survivors=("default/e0",), started_us=100.0),
        step(Point.SCORE, "s", scores={"default/e0": 3.0, "default/e1": float("nan")}, weight=2.0, started_us=150.0),
    )
    runs = (ProfileRun("default", ("default/e0",), {"default/e0": 2.0}, ("default/e0",)),)
    page = explain_page(
        told(2, others={"default/x": "ejected"}, steps=0, profiles=runs, degraded=(("q", "T", "skip"),)),
        at_s=1.0,
        age_s=2.0,
    )
    assert list(page) == [
        "request", "at_s", "age_s", "plan", "snapshot", "arm", "decision", "candidate_count", "degraded", "generations", "us",
        "candidates", "others", "probe", "steps", "handler", "profiles",
    ]  # fmt: skip
    found = Explained(**{**fields_of(told(2, others={"default/x": "ejected"}, profiles=runs)), "steps": steps})
    page = explain_page(found, at_s=1.0, age_s=2.0)
    screen, kept, scored = page["steps"]
    assert (screen["survivors"], screen["dropped"]) == (["default/e0", "default/e1"], ["default/x"])
    assert kept["dropped"] == ["default/e1"]
    assert scored["scores"] == {"default/e0": 3.0, "default/e1": None}
    assert scored["weighted"] == {"default/e0": 2.0, "default/e1": 0.0}
    assert page["us"] == {"total": 500.0, "calls": 200.0, "host": 300.0}, "calls that were out together count once"
    assert page["generations"] == [{"plugin": "p", "version": "1.0.0", "generation": 3}]
    assert page["profiles"][0]["picker"] == {"ref": "best", "type": "max-score-picker"}
    assert page["handler"] == {"ref": "one", "type": "single-profile-handler"}


def test_what_filters_left_and_nobody_could_pick_is_held_back():
    runs = (ProfileRun("default", ("default/e0",), {}, ("default/e0",)),)
    page = explain_page(told(3, steps=0, profiles=runs), at_s=0.0, age_s=0.0)
    assert page["profiles"][0]["held_back"] == ["default/e1", "default/e2"]


@pytest.mark.parametrize("where", ["found", "written"])
def test_explanation_that_fails_costs_its_header_and_not_the_answer(where, caplog):
    decision = told().decision

    def find(name):
        if where == "found":
            raise IndexError("list index out of range")
        return SimpleNamespace(decision=decision)

    assert not header_of(find, lambda: True)(asked(), decision)
    assert [record.message for record in caplog.records] == ["decision_not_explained"]
