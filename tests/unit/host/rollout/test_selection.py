"""Selection: the table of what is live and what is wanted, and the rules that hold for every set of candidates."""

import hashlib
import itertools
import re
from dataclasses import replace

import pytest
from hotbay.rollout.selection import Candidate, Pin, Policy, Selection, Status, select
from hypothesis import given
from hypothesis import strategies as st

POLICY = Policy(platforms=("L", "J"))


def candidate(text: str) -> Candidate:
    """`L2*!` is platform L, rev 2, complete, quarantined; `?` asks for more than granted; a letter names the content."""
    match = re.fullmatch(r"([A-Z])(\d+)([a-z]?)([*!?]*)", text)
    assert match is not None
    platform, rev, content, marks = match.groups()
    return Candidate(
        digest=f"sha256:{content or '-'}{hashlib.sha256((platform + rev + content).encode()).hexdigest()}",
        rev=int(rev),
        platform=platform,
        complete="*" in marks,
        quarantined="!" in marks,
        granted="?" not in marks,
    )


def label(chosen: Candidate | None) -> str | None:
    return None if chosen is None else f"{chosen.platform}{chosen.rev}"


TABLE = [
    ("L1*", "L1", "L1", Status.CURRENT),
    ("L1* L2", "L1", "L2", Status.DOWNLOADING),
    ("L1* J2", "L1", "J2", Status.DOWNLOADING),
    ("L2* J2", "L2", "L2", Status.CURRENT),
    ("L2 J2*", "J2", "L2", Status.DOWNLOADING),
    ("L2 J1", None, "L2", Status.WAITING_FOR_DOWNLOAD),
    ("L1* L2 J1*", "L1", "L2", Status.DOWNLOADING),
    ("L1* L2*!", "L1", "L1", Status.CURRENT),
    ("L1* L2*?", "L1", "L1", Status.CURRENT),
    ("", None, None, Status.UNKNOWN),
    ("X1*", None, None, Status.NO_HOST),
    ("L1*!", None, None, Status.QUARANTINED),
    ("L1*?", None, None, Status.AWAITING_GRANT),
]


@pytest.mark.parametrize(("known", "live", "target", "status"), TABLE)
def test_table(known: str, live: str | None, target: str | None, status: Status) -> None:
    for order in itertools.permutations([candidate(text) for text in known.split()]):
        result = select(order, POLICY)
        assert (label(result.live), label(result.target), result.status) == (live, target, status)


def test_awaiting_grant_names_what_would_be_preferred() -> None:
    result = select([candidate(text) for text in ("L1*?", "L2*", "J3?", "L4*?", "L5*?!")], POLICY)
    assert [label(each) for each in result.awaiting_grant] == ["L4", "J3"]
    assert label(result.live) == "L2"


def test_hb01_live_stays_when_no_source_names_it() -> None:
    live = candidate("L1*")
    result = select([], POLICY, live=live)
    assert (result.live, result.target) == (live, live)


def test_hb02_moves_to_the_new_host() -> None:
    result = select([candidate("L1*"), candidate("J2*")], Policy(platforms=("J",)), live=candidate("L1*"))
    assert (label(result.live), label(result.target)) == ("J2", "J2")


def test_hb03_equal_rev_with_other_content_is_a_conflict_and_never_chosen() -> None:
    live, other = candidate("L7b*"), candidate("L7a*")
    result = select([live, other], POLICY, live=live)
    assert (result.live, result.target, result.conflicts) == (live, live, (other,))


SMALL, LARGE = Candidate("a", 2, "L"), Candidate("b", 2, "L")
NEWEST = Candidate("c", 3, "L", complete=True)
RAN = {"complete": True}

BUILDS_OF_ONE_REVISION = [
    ({}, {}, {}, None, "a"),
    ({}, RAN, {}, None, "b"),
    (RAN, RAN, {}, None, "a"),
    (RAN, RAN, {}, LARGE, "b"),
    ({}, {}, {"pin": Pin(digest="b")}, None, "b"),
    (RAN, {}, {"pin": Pin(digest="b")}, SMALL, "b"),
    ({}, RAN, {"pin": Pin(digest="a")}, LARGE, "a"),
    ({}, RAN, {"pin": Pin(rev=2)}, NEWEST, "b"),
    ({}, RAN, {"pin": Pin(digest="b"), "floor_rev": 3}, NEWEST, "b"),
    ({}, {}, {"locked": frozenset({"b"})}, None, "b"),
    (RAN, RAN, {"locked": frozenset({"b"})}, SMALL, "b"),
    ({"denied": True}, {}, {}, None, "b"),
    ({"denied": True} | RAN, {}, {}, SMALL, "b"),
    ({"channel": "dev"}, {}, {"channels": frozenset({"release"})}, None, "b"),
    ({"offered": False}, {}, {}, None, "b"),
    ({"offered": False} | RAN, {}, {}, None, "a"),
    # Neither quarantine nor a lacking grant makes way for other content: what mends it has a revision of its own.
    ({"quarantined": True}, {}, {}, None, None),
    ({"quarantined": True, "offered": False}, {}, {}, None, None),
    ({"quarantined": True} | RAN, RAN, {}, None, "b"),
    ({"quarantined": True}, RAN, {}, None, "b"),
    ({"granted": False}, {}, {}, None, None),
]


@pytest.mark.parametrize(("small", "large", "policy", "live", "kept"), BUILDS_OF_ONE_REVISION)
def test_one_content_of_a_revision_is_kept(
    small: dict, large: dict, policy: dict, live: Candidate | None, kept: str | None
) -> None:
    one, other = replace(SMALL, **small), replace(LARGE, **large)
    known = [one, other, *([NEWEST] if policy.get("pin") else [])]
    running = next((each for each in known if live is not None and each.digest == live.digest), None)
    for order in itertools.permutations(known):
        result = select(order, replace(POLICY, **policy), live=running)
        assert (result.target.digest if result.target else None) == kept
    expected = {"a": (other,), "b": (one,), None: (other,)}[kept]
    assert result.conflicts == tuple(each for each in expected if not each.denied)


def test_hb20_platform_order_decides_between_equal_revs_only() -> None:
    known = [candidate("L2*"), candidate("J2*"), candidate("L1*")]
    assert label(select(known, Policy(platforms=("J", "L"))).live) == "J2"


@pytest.mark.parametrize(("channels", "live"), [({"release"}, "L1"), ({"release", "dev"}, "L2"), ({"other"}, None)])
def test_channel_that_is_not_followed_is_never_chosen(channels: set[str], live: str | None) -> None:
    known = [candidate("L1*"), replace(candidate("L2*"), channel="dev")]
    result = select(known, replace(POLICY, channels=frozenset(channels)))
    assert label(result.live) == live
    assert result.status is (Status.CURRENT if live else Status.NONE_ALLOWED)


def test_pin_by_rev_and_by_digest() -> None:
    known = [candidate("L1*"), candidate("L2*"), candidate("J1*")]
    assert label(select(known, replace(POLICY, pin=Pin(rev=1))).live) == "L1"
    assert label(select(known, replace(POLICY, pin=Pin(digest=known[2].digest))).live) == "J1"
    assert select(known, replace(POLICY, pin=Pin(rev=9))).status is Status.PIN_UNKNOWN


@pytest.mark.parametrize("arguments", [{}, {"rev": 1, "digest": "sha256:x"}])
def test_pin_names_exactly_one(arguments: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="a rev or a digest"):
        Pin(**arguments)  # type: ignore[arg-type]  # wrong on purpose


@pytest.mark.parametrize(("known", "target"), [("L2", "L2"), ("L1", None), ("L1*", "L1")])
def test_floor_binds_offers_not_what_is_complete(known: str, target: str | None) -> None:
    assert label(select([candidate(known)], replace(POLICY, floor_rev=2)).target) == target


def test_floor_yields_to_a_pin_by_digest() -> None:
    old = candidate("L1")
    assert select([old], replace(POLICY, floor_rev=2, pin=Pin(digest=old.digest))).target == old


def test_two_views_of_one_digest_are_merged() -> None:
    one = candidate("L1")
    views = [replace(one, complete=True), one]
    assert [select(order, POLICY).live for order in (views, views[::-1])] == [views[0], views[0]]
    held = [replace(one, complete=True), replace(one, quarantined=True)]
    assert [select(order, POLICY).target for order in (held, held[::-1])] == [None, None]


candidates = st.builds(
    Candidate,
    digest=st.sampled_from([f"sha256:{n}" for n in range(40)]),
    rev=st.integers(0, 3),
    platform=st.sampled_from("LJX"),
    channel=st.sampled_from(["release", "dev"]),
    complete=st.booleans(),
    quarantined=st.booleans(),
    granted=st.booleans(),
    denied=st.booleans(),
    offered=st.booleans(),
)
# A digest covers rev and platform, so it appears with one pair of them.
known_sets = st.lists(candidates, max_size=12, unique_by=lambda each: each.digest)
pins = st.none() | st.builds(Pin, rev=st.integers(0, 3)) | st.builds(Pin, digest=candidates.map(lambda c: c.digest))
locks = st.none() | st.frozensets(candidates.map(lambda c: c.digest), max_size=4)
policies = st.builds(
    Policy,
    platforms=st.sampled_from([("L", "J"), ("J", "L"), ("L",), ()]),
    channels=st.sampled_from([frozenset({"release"}), frozenset({"release", "dev"})]),
    pin=pins,
    floor_rev=st.integers(0, 3),
    locked=locks,
)


@given(known_sets, policies, st.data())
def test_never_incomplete_quarantined_ungranted_or_unhosted(
    known: list[Candidate], policy: Policy, data: st.DataObject
) -> None:
    live = data.draw(st.none() | st.sampled_from(known)) if known else None
    result = select(known, policy, live=live)
    assert result.live is None or result.live.complete
    for chosen in (result.live, result.target):
        if chosen is not None:
            assert chosen.granted
            assert not chosen.quarantined
            assert not chosen.denied
            assert chosen.platform in policy.platforms
            assert chosen.channel in policy.channels if policy.locked is None else chosen.digest in policy.locked
            assert policy.pin is None or policy.pin.admits(chosen)
            assert chosen not in result.conflicts
    if result.live is not None:
        assert result.target is not None
        assert (result.target.rev, result.target.platform == result.live.platform) >= (result.live.rev, False)


@given(known_sets, policies, st.data())
def test_order_and_repetition_do_not_count(known: list[Candidate], policy: Policy, data: st.DataObject) -> None:
    live = data.draw(st.none() | st.sampled_from(known)) if known else None
    shuffled = data.draw(st.permutations(known)) + data.draw(st.lists(st.sampled_from(known))) if known else []
    assert select(known, policy, live=live) == select(shuffled, policy, live=live)


@given(known_sets, policies)
def test_running_what_was_selected_selects_it_again(known: list[Candidate], policy: Policy) -> None:
    first: Selection = select(known, policy)
    assert select(known, policy, live=first.live).live == first.live


@given(known_sets, policies, st.data())
def test_other_content_of_a_revision_takes_nothing_from_what_is_complete_pinned_or_locked(
    known: list[Candidate], policy: Policy, data: st.DataObject
) -> None:
    live = data.draw(st.none() | st.sampled_from(known)) if known else None
    before = select(known, policy, live=live)
    kept = before.target
    if kept is None or not (kept.complete or (policy.pin is not None and policy.pin.digest) or policy.locked):
        return
    # What a source shows later is complete nowhere; a lock names one digest of a build.
    later = Candidate(data.draw(st.sampled_from(["sha256:", "sha256:~"])), kept.rev, kept.platform)
    after = select([*known, later], policy, live=live)
    assert (after.target, after.live) == (kept, before.live)
    assert later in after.conflicts


@given(known_sets, policies, st.data())
def test_digest_that_is_pinned_runs_whatever_else_has_its_revision(
    known: list[Candidate], policy: Policy, data: st.DataObject
) -> None:
    if not known:
        return
    live, wanted = data.draw(st.none() | st.sampled_from(known)), data.draw(st.sampled_from(known))
    pinned = replace(policy, pin=Pin(digest=wanted.digest))
    alone = select([wanted], pinned, live=live if live == wanted else None)
    assert select(known, pinned, live=live).target == alone.target
