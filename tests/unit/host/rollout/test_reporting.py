"""The row of a routine after a step: what is told of a trial, and of a version that nothing will choose."""

import logging
from dataclasses import dataclass, field, replace
from types import MappingProxyType, SimpleNamespace

import pytest
from hotbay.rollout.reporting import MAX_BELOW, Reporter
from hotbay.rollout.rows import Row, VerdictShown, phase_text
from hotbay.rollout.selection import Candidate, Pin, Policy
from hotbay.rollout.state import Attempt, Build, Facts, Life, Phase, State
from hotbay.rollout.verdicts import Ruling, Verdict
from hotbay.rpc.leases import Origin
from hotbay.store.digests import Digest
from hotbay.store.world.engine import Put
from hotbay.store.world.memory import MemoryWorld
from hotbay.store.world.records import History

pytestmark = pytest.mark.anyio

LIVE, OTHER = (Digest("sha256:" + mark * 64) for mark in "ab")
POLICY = Policy(platforms=("L",))
RUNS = Candidate(LIVE, 9, "L", complete=True)
FACTS = Facts(revision=1, candidates=(RUNS,), policy=POLICY)


@dataclass
class Bench:
    """A reporter, and what it says."""

    world: MemoryWorld = field(default_factory=MemoryWorld)
    row: Row = field(default_factory=lambda: Row("sample"))
    told: list = field(default_factory=list)

    def __post_init__(self) -> None:
        services = SimpleNamespace(
            world=self.world,
            now=lambda: 0.0,
            manifest=lambda digest: SimpleNamespace(version="1.0.0", rev=9, capabilities=()),
            happened=self.told.append,
        )
        self.reporter = Reporter(self.row, services)
        self.state = State(Phase.IDLE, facts=FACTS, live=Attempt(1, Build(LIVE, 9), Life.READY))

    def show(self, **changes: object) -> Row:
        before, self.state = self.state, replace(self.state, **changes)
        self.reporter.show(before, self.state, {}, 0.0)
        return self.row

    def learn(self, *candidates: Candidate, policy: Policy = POLICY) -> Row:
        return self.show(facts=replace(FACTS, candidates=(RUNS, *candidates), policy=policy))


def verdict(ruling: Ruling, phase: Phase = Phase.GUARD) -> VerdictShown:
    return VerdictShown(Verdict(ruling, "memory", 1.0, 1.0, 2.0), phase, Origin("sample", "1.0.0", 9, LIVE))


@pytest.mark.parametrize("phase", [Phase.IDLE, Phase.RETIRING, Phase.STAGING, Phase.DISABLED])
def test_verdict_that_waits_goes_with_its_trial(phase: Phase) -> None:
    bench = Bench()
    bench.show(phase=Phase.GUARD)
    bench.row.verdict = verdict(Ruling.WAIT)
    assert bench.show().verdict is not None
    assert bench.show(phase=phase).verdict is None


@pytest.mark.parametrize("ruling", [Ruling.PASS, Ruling.FAIL])
def test_final_verdict_stays(ruling: Ruling) -> None:
    bench = Bench()
    bench.show(phase=Phase.GUARD)
    bench.row.verdict = verdict(ruling)
    assert bench.show(phase=Phase.IDLE).verdict == verdict(ruling)


def test_verdict_that_waits_goes_with_a_routine_that_breaks() -> None:
    bench = Bench()
    bench.row.verdict = verdict(Ruling.WAIT)
    bench.reporter.broke(RuntimeError("x"))
    assert bench.row.verdict is None


LOWER = Candidate(OTHER, 2, "L")


def test_version_found_below_what_runs_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    with caplog.at_level(logging.INFO):
        assert bench.learn(LOWER).below == (2,)
        bench.learn(LOWER)
    said = [record.getMessage() for record in caplog.records if "package_below" in record.getMessage()]
    assert len(said) == 1
    assert "rev=2" in said[0]
    assert "`hotbay pin sample@2`" in said[0]
    assert bench.learn().below == ()


def test_other_content_of_a_revision_is_a_conflict_and_not_below(caplog: pytest.LogCaptureFixture) -> None:
    """`pin` by the revision would run the content that ran."""
    bench, ran = Bench(), Candidate("sha256:" + "c" * 64, 2, "L", complete=True)
    with caplog.at_level(logging.INFO):
        assert bench.learn(ran, LOWER).below == ()
    assert [r.getMessage().partition(" ")[0] for r in caplog.records] == ["digest_conflict"]


def test_conflicts_are_told_each_with_its_own_revision(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    ran = Candidate("sha256:ran", 2, "L", complete=True)
    bench.learn(ran, Candidate("sha256:x", 2, "L"), Candidate("sha256:y", 9, "L"), Candidate("sha256:z", 9, "L"))
    told = bench.row.last_error
    assert told.code == "DIGEST_CONFLICT"
    assert told.message == (
        "rev 9 of sample exists with other content: sha256:y, sha256:z is not used; "
        "rev 2 of sample exists with other content: sha256:x is not used"
    )
    assert told.digest == "sha256:y"
    assert told.hint == "publish changed content under a new rev; `hotbay pin sample@DIGEST` runs the one that you want"
    warned = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert [line.partition(": ")[0] for line in warned] == [
        "digest_conflict plugin=sample rev=9",
        "digest_conflict plugin=sample rev=2",
    ]


@pytest.mark.parametrize(
    ("candidate", "policy"),
    [
        (replace(LOWER, rev=10), POLICY),
        (replace(LOWER, complete=True), POLICY),
        (replace(LOWER, platform="X"), POLICY),
        (LOWER, replace(POLICY, pin=Pin(rev=2))),
    ],
)
def test_version_that_may_run_ran_or_is_for_others_is_not_below(candidate: Candidate, policy: Policy) -> None:
    assert Bench().learn(candidate, policy=policy).below == ()


async def test_version_that_was_live_is_not_below() -> None:
    bench = Bench()
    await bench.world.transact(lambda _: [Put(History("sample", 1, OTHER, 2, "1.0.0", 1, 0.0, "", ""))])
    assert bench.learn(LOWER).below == ()


def test_what_was_there_at_the_start_is_not_news() -> None:
    bench = Bench()
    bench.state = replace(bench.state, facts=Facts())
    assert bench.learn(LOWER).below == ()


@pytest.mark.parametrize("count", [MAX_BELOW, MAX_BELOW + 1])
def test_no_more_than_a_few_are_kept(count: int) -> None:
    bench = Bench()
    bench.state = replace(bench.state, facts=FACTS, live=Attempt(1, Build(LIVE, 999), Life.READY))
    found = [Candidate(f"sha256:{rev}", rev, "L") for rev in range(10, 10 + count)]
    # The highest of all is on its way.
    assert len(bench.learn(*found, Candidate("sha256:top", 998, "L")).below) == MAX_BELOW


def test_phase_is_one_word_in_status_and_log(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    bench.reporter.show(bench.state, replace(bench.state, phase=Phase.GUARD), {1: _Instance()}, 0.0)
    before = replace(bench.state, phase=Phase.GUARD)
    with caplog.at_level(logging.INFO):
        bench.reporter.show(before, bench.state, {1: _Instance()}, 0.0)
    assert phase_text(bench.row) == "live"
    assert caplog.records[-1].getMessage() == "phase plugin=sample phase=live"
    assert bench.told[-1].fields == {"phase": "live", "before": "guard"}


class _Instance:
    """A process that runs."""

    child = SimpleNamespace(pid=7)
    state = "ready"
    cold = MappingProxyType({})
