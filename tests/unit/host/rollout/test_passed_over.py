"""Every newer version that is not chosen is told of, with the reason and what to do."""

from dataclasses import replace

import pytest
from hotbay.rollout.passed_over import MAX_BELOW, MAX_SHOWN, Known, passed_over
from hotbay.rollout.selection import Candidate, Pin, Policy, select

POLICY = Policy(platforms=("L",), channels=frozenset({"release"}))
LIVE = Candidate("d1", 1, "L", complete=True)
NEWER = Candidate("d2", 2, "L", complete=True)


def told(*candidates: Candidate, policy: Policy = POLICY, live_rev: int = 1, **known: object) -> list[tuple]:
    everything = (LIVE, *candidates)
    selection = select(everything, policy, live=LIVE)
    found = passed_over(everything, policy, selection, lambda _: Known("sample", **known), live_rev=live_rev)
    return [(passed.candidate.rev, passed.why, passed.hint) for passed in found]


def test_version_that_is_chosen_and_older_ones_are_not_told_of() -> None:
    assert told(NEWER) == []
    assert told(replace(NEWER, complete=False)) == []
    assert told(replace(NEWER, quarantined=True), Candidate("d3", 3, "L")) == []


@pytest.mark.parametrize(
    ("change", "policy", "why", "hint"),
    [
        ({"quarantined": True}, {}, "in quarantine: CRASHED: exit 3", "`hotbay quarantine clear d2`"),
        ({"granted": False}, {}, "asks for dial, wall", "`hotbay grant sample dial wall`"),
        ({"denied": True}, {}, "trust.denied names it", "take it off"),
        ({"channel": "dev"}, {}, "its channel dev is not followed", "`channel`"),
        ({"platform": "X"}, {}, "it is for X", "`hosts`"),
        ({"complete": False}, {"floor_rev": 3}, "below rev 3", "`hotbay pin sample@d2`"),
        ({}, {"pin": Pin(rev=1)}, "the pin is on rev 1", "`hotbay unpin sample`"),
        ({}, {"pin": Pin(digest="d1")}, "the pin is on d1", "`hotbay unpin sample`"),
        ({}, {"locked": frozenset({"d1"})}, "not in the lock file", "`hotbay apply`"),
    ],
)
def test_each_rule_has_its_reason(change: dict, policy: dict, why: str, hint: str) -> None:
    known = {"lacks": ("dial", "wall"), "grant": "hotbay grant sample dial wall", "quarantine": "CRASHED: exit 3"}
    ((rev, said, todo),) = told(replace(NEWER, **change), policy=replace(POLICY, **policy), pinned_here=True, **known)
    assert rev == 2
    assert why in said
    assert hint in todo


def test_pin_of_the_configuration_is_removed_there() -> None:
    ((_, _, todo),) = told(NEWER, policy=replace(POLICY, pin=Pin(rev=1)))
    assert todo == "`pin` in the configuration names it"


def test_other_content_of_a_newer_revision_is_told_of_only_while_nothing_of_it_is_chosen() -> None:
    one, other = Candidate("da", 2, "L", quarantined=True), Candidate("db", 2, "L")
    assert [(rev, why) for rev, why, _ in told(one, other)] == [
        (2, "it is in quarantine"),
        (2, "other content has rev 2 already"),
    ]


def test_builds_for_other_machines_are_told_of_only_where_this_one_has_none() -> None:
    assert told(NEWER, Candidate("x2", 2, "X")) == []
    assert [rev for rev, _, _ in told(replace(NEWER, quarantined=True), Candidate("x2", 2, "X"))] == [2]
    assert [rev for rev, _, _ in told(Candidate("x3", 3, "X"), Candidate("x4", 4, "X"))] == [4, 3]


@pytest.mark.parametrize(("count", "shown"), [(MAX_SHOWN, MAX_SHOWN), (MAX_SHOWN + 1, MAX_SHOWN)])
def test_newest_are_told_of_first_and_no_more_than_a_page(count: int, shown: int) -> None:
    bad = [Candidate(f"d{rev}", rev, "L", quarantined=True) for rev in range(2, 2 + count)]
    revs = [rev for rev, _, _ in told(*bad)]
    assert len(revs) == shown
    assert revs == sorted(revs, reverse=True)
    assert revs[0] == 1 + count


OLD = Candidate("d0", 3, "L")
RUNS = Candidate("d9", 9, "L", complete=True)


def below(*candidates: Candidate, policy: Policy = POLICY, ran: bool = False) -> list[tuple]:
    everything = (RUNS, *candidates)
    selection = select(everything, policy, live=RUNS)
    found = passed_over(everything, policy, selection, lambda _: Known("sample", ran=ran), live_rev=RUNS.rev)
    return [(passed.candidate.rev, passed.why, passed.hint) for passed in found]


def test_version_below_what_runs_that_never_ran_is_told_of_and_how_to_run_it() -> None:
    ((rev, why, hint),) = below(OLD)
    assert (rev, why) == (3, "it is below rev 9, and the highest runs")
    assert "`hotbay pin sample@3`" in hint
    assert "higher --rev" in hint


def test_other_content_of_a_version_below_is_offered_by_its_digest() -> None:
    """By the revision it is the content that ran which is pinned."""
    ((rev, _, hint),) = below(OLD, replace(OLD, digest="d1", complete=True))
    assert (rev, hint.partition(" runs it")[0]) == (3, "`hotbay pin sample@d0`")
    ((*_, hint),) = below(OLD, replace(OLD, digest="d1", platform="X"))
    assert "`hotbay pin sample@3`" in hint


def test_other_content_of_a_newer_version_is_offered_by_its_digest() -> None:
    hints = {why: hint for _, why, hint in told(replace(NEWER, quarantined=True), Candidate("d0", 2, "L"))}
    why, hint = max(hints.items())
    assert why == "other content has rev 2 already"
    assert "`hotbay pin sample@d0`" in hint


def test_what_the_pin_or_the_lock_leaves_out_is_told_before_other_content() -> None:
    one, other = replace(NEWER, quarantined=True), Candidate("d0", 2, "L")
    assert {why for _, why, _ in told(one, other, policy=replace(POLICY, pin=Pin(rev=1)))} == {"the pin is on rev 1"}


@pytest.mark.parametrize(
    ("change", "policy", "ran"),
    [({}, {}, True), ({"complete": True}, {}, False), ({"platform": "X"}, {}, False), ({}, {"pin": Pin(rev=3)}, False)],
)
def test_version_below_that_ran_is_complete_is_for_others_or_is_chosen_is_not_told_of(
    change: dict, policy: dict, ran: bool
) -> None:
    assert 3 not in [rev for rev, *_ in below(replace(OLD, **change), policy=replace(POLICY, **policy), ran=ran)]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"quarantined": True}, "it is in quarantine"),
        ({"granted": False}, "it asks for"),
        ({"denied": True}, "trust.denied names it"),
    ],
)
def test_what_a_pin_would_refuse_too_is_told_before_a_pin_is_offered(change: dict[str, bool], said: str) -> None:
    ((_, why, hint),) = below(replace(OLD, **change))
    assert why.startswith(said)
    assert "pin" not in hint


def test_what_refuses_a_version_below_whatever_its_revision_is_told_first() -> None:
    ((_, why, _),) = below(OLD, policy=replace(POLICY, pin=Pin(rev=9)))
    assert why == "the pin is on rev 9"
    ((_, why, _),) = below(OLD, policy=replace(POLICY, locked=frozenset({"d9"})))
    assert why == "it is not in the lock file"


@pytest.mark.parametrize("count", [MAX_BELOW, MAX_BELOW + 1])
def test_of_a_shelf_of_older_versions_the_highest_few_are_told_of(count: int) -> None:
    revs = [rev for rev, _, _ in below(*(Candidate(f"e{rev}", rev, "L") for rev in range(1, 1 + count)))]
    assert revs == [*range(count, count - MAX_BELOW, -1)]
