"""What a routine does next: one look at what is eligible finds what looking again and again would."""

import math

from hotbay.rollout.choice import choose
from hotbay.rollout.selection import Candidate, Pin, Policy, select
from hotbay.rollout.state import Attempt, Build, Facts, Hold, Life, State
from hypothesis import given
from hypothesis import strategies as st

NOW_S = 10.0
DIGESTS = st.sampled_from("abcdefgh")
CANDIDATES = st.builds(
    Candidate,
    digest=DIGESTS,
    rev=st.integers(0, 4),
    platform=st.sampled_from("LJX"),
    channel=st.just("release"),
    complete=st.booleans(),
    quarantined=st.sampled_from([False, False, True]),
    granted=st.sampled_from([True, True, False]),
    fetchable=st.booleans(),
)
POLICIES = st.builds(
    Policy,
    platforms=st.sampled_from([("L", "J"), ("J", "L"), ("L",)]),
    pin=st.none() | st.builds(Pin, rev=st.integers(0, 4)) | st.builds(Pin, digest=DIGESTS),
    floor_rev=st.integers(0, 4),
)
HOLDS = st.dictionaries(
    DIGESTS, st.sampled_from([1.0, NOW_S, 11.0, 12.0, math.inf]).map(lambda at: Hold(not_before_s=at))
)


@st.composite
def states(draw: st.DrawFn) -> State:
    known = draw(st.lists(CANDIDATES, max_size=8, unique_by=lambda c: c.digest))
    policy = draw(POLICIES)
    builds = [Build(c.digest, c.rev) for c in known] or [Build("a", 1)]
    live = draw(st.none() | st.sampled_from(builds))
    return State(
        facts=Facts(candidates=tuple(known), policy=policy, last=draw(st.none() | DIGESTS)),
        live=None if live is None else Attempt(1, live, Life.READY, leaving=draw(st.booleans()), platforms=policy.platforms),
        last=live or draw(st.none() | st.sampled_from(builds)),
        holds=draw(HOLDS),
        finished=draw(st.frozensets(st.sampled_from(builds), max_size=1)),
    )  # fmt: skip


def picked_one_by_one(state: State) -> tuple[Build | None, Build | None]:
    """Select, leave out what may not be tried now, and select again."""
    facts, live = state.facts, state.live
    known = {c.digest: c for c in facts.candidates}
    anchor = live.build.digest if live else state.last.digest if state.last else facts.last
    for conflict in select(known.values(), facts.policy, live=known.get(anchor or "")).conflicts:
        del known[conflict.digest]
    given_up = {digest for digest, hold in state.holds.items() if math.isinf(hold.not_before_s)}
    held = {digest for digest, hold in state.holds.items() if hold.not_before_s > NOW_S}
    ended = {build.digest for build in state.finished}
    comes_back = anchor in known and anchor not in ended | given_up and select([known[anchor]], facts.policy).live
    if live is None and comes_back:
        known = {anchor: known[anchor]}
    fetch = None
    while (target := select(known.values(), facts.policy, live=known.get(anchor or "")).target) is not None:
        build, digest = Build(target.digest, target.rev), target.digest
        if not target.complete:
            fetch = fetch or (build if target.fetchable and digest not in held else None)
        elif build in state.finished or (live is not None and live.build == build and not live.leaving):
            return None, fetch
        elif digest not in held:
            return build, fetch
        elif digest == anchor and (live is not None or digest not in given_up):
            return None, fetch
        del known[digest]
    return None, fetch


@given(states())
def test_first_that_may_be_tried_is_started_and_the_first_preferred_to_it_is_fetched(state: State) -> None:
    choice = choose(state, NOW_S)
    assert (choice.start, choice.fetch) == picked_one_by_one(state)


def test_digest_of_two_sources_is_fetched_from_the_one_that_is_open() -> None:
    here, closed = Candidate("a", 1, "L"), Candidate("a", 1, "L", fetchable=False)
    for known in ((here, closed), (closed, here)):
        state = State(facts=Facts(candidates=known, policy=Policy(platforms=("L",))))
        assert choose(state, NOW_S).fetch == Build("a", 1)


def test_many_versions_that_are_not_there_yet_are_looked_at_once() -> None:
    """A look is linear in the versions: a thousand of them are no stall of everything else."""
    looked = _Counted.looked = []
    live = Build("v0", 0)
    known = tuple(_Counted(f"v{rev}", rev, "L", complete=rev == 0) for rev in range(300))
    facts = Facts(candidates=known, policy=Policy(platforms=("L",)))
    state = State(facts=facts, live=Attempt(1, live, Life.READY, platforms=("L",)), last=live)
    assert choose(state, NOW_S).fetch == Build("v299", 299)
    assert len(looked) <= 10 * len(known)


class _Counted(Candidate):
    """Notes that it was looked at."""

    looked: list[str]

    @property
    def barred(self) -> bool:
        type(self).looked.append(self.digest)
        return super().barred


def test_copies_are_made_of_condemned_ones_only() -> None:
    candidate = Candidate("a", 1, "L", complete=True)
    facts = Facts(candidates=(candidate,), policy=Policy(platforms=("L",)))
    assert choose(State(facts=facts), NOW_S).selection.target is candidate
    condemned = State(facts=facts, condemned=frozenset({"a"}))
    assert choose(condemned, NOW_S).selection.target is None
