"""The status page and the facts of the metrics, from what a host's parts say."""

from dataclasses import dataclass, field

import orjson
import pytest
from hotbay.datalayer.endpoint import EndpointMetadata
from hotbay.datalayer.endpoint import Metrics as Figures
from hotbay.datalayer.store import EndpointStore
from hotbay.datalayer.tables.freshness import Freshness, StalePolicy
from hotbay.errors import PackageError, Problem
from hotbay.observe.metrics import Metrics
from hotbay.packages.package_blobs import Progress
from hotbay.packages.ref_watch import SourceState, SourceStatus
from hotbay.rollout.gathered import Gathered
from hotbay.rollout.rows import ErrorShown, PinShown, Row, VerdictShown
from hotbay.rollout.state import Phase
from hotbay.rollout.verdicts import Ruling, Verdict
from hotbay.rpc.leases import Generation, Origin
from hotbay.status import StatusPage
from hotbay.store.budget import DiskUsage
from hotbay.store.digests import digest_of
from hotbay.store.world.changes import view_of
from hotbay.store.world.records import Quarantine

DIGEST = digest_of(b"x")
LIVE = Origin("sample", "1.0.0", 1, DIGEST)
NEXT = Origin("sample", "2.0.0", 2, digest_of(b"y"))


@dataclass
class Client:
    """A process's figures."""

    figures: dict = field(default_factory=lambda: {"rss_bytes": 1})


@dataclass
class Plugins:
    """What a supervisor tells."""

    rows: list = field(default_factory=list)
    generations: list = field(default_factory=list)
    problems: list = field(default_factory=list)


def usage(**changes):
    figures = {"blob_bytes": 90, "part_bytes": 0, "environment_bytes": 1, "limit_bytes": 100, "free_bytes": 500,
               "total_bytes": 1000}  # fmt: skip
    return DiskUsage(**{**figures, **changes})


@pytest.fixture
def page():
    made = StatusPage(EndpointStore(), Metrics(), isolation="none")
    row = Row(
        "sample",
        phase=Phase.CANARY,
        live=LIVE,
        live_generation=7,
        live_pid=70,
        live_state="ready",
        candidate=NEXT,
        candidate_pid=80,
        target=NEXT.digest,
        pin=PinShown(2, NEXT.digest, "ann"),
        below=(1,),
        verdict=VerdictShown(
            Verdict(Ruling.WAIT, "failures", 0.02, 0.01, 0.01, gathered=Gathered("calls", 7, 200, 1.26, 2.0)),
            Phase.SHADOW,
            NEXT,
        ),
        progress=Progress("sample", DIGEST, "fetch", 3, 9),
        strikes_until_s=(0.0, 1e12, 1e12),
        retry_at_s=0.0,
        last_error=ErrorShown("CRASHED", "signal 9 \x1b[2J", "look", DIGEST, 0.0),
    )
    generations = [
        Generation(number, origin, Client(), {}, pid, leases=leases)
        for number, origin, pid, leases in ((7, LIVE, 70, 3), (8, NEXT, 80, 1))
    ]
    made.supervisor = Plugins([row, Row("other")], generations, [Problem("FETCH_FAILED", "gone")])
    made.sources = lambda: [SourceStatus("mine", SourceState.FAILING, (), PackageError("FETCH_FAILED", "no \udcff"), 4)]
    return made


def test_row_tells_what_runs_what_is_tried_and_what_decides(page):
    row, other = page.render((), ())["plugins"]
    assert row["phase"] == "canary"
    assert row["live"] == {
        "version": "1.0.0", "rev": 1, "digest": DIGEST, "generation": 7, "pid": 70, "state": "ready", "since_s": None,
    }  # fmt: skip
    assert (row["leases"], row["process"], row["strikes"], row["retry_in_s"]) == (3, {"rss_bytes": 1}, 2, 0.0)
    assert row["candidate"] == {"version": "2.0.0", "rev": 2, "digest": NEXT.digest, "pid": 80}
    assert row["progress"] == {"phase": "fetch", "digest": DIGEST, "bytes": 3, "total_bytes": 9}
    assert row["verdict"]["ruling"] == "wait"
    # Of the step that it is from: the next one may have begun, or another version.
    assert [row["verdict"][name] for name in ("phase", "rev", "digest")] == ["shadow", 2, NEXT.digest]
    assert row["verdict"]["gathered"] == {
        "counted": "calls", "count": 7, "wanted": 200, "elapsed_s": 1.3, "for_s": 2.0, "at_most_s": None,
    }  # fmt: skip
    assert (row["pin"], row["below"]) == ({"rev": 2, "digest": NEXT.digest, "by": "ann"}, [1])
    assert (other["pin"], other["below"]) == (None, [])
    assert row["last_error"]["message"] == "signal 9 \\x1b[2J"
    assert (other["live"], other["candidate"], other["progress"], other["last_error"]) == (None,) * 4


def test_page_is_json_whatever_others_wrote(page):
    read = orjson.loads(orjson.dumps(page.render(("draining",), [Problem("X", "bad \udcff")])))
    assert (read["ready"], read["not_ready"]) == (False, ["draining"])
    assert read["problems"] == ["X: bad \\udcff", "FETCH_FAILED: gone"]
    assert read["sources"] == [
        {"source": "mine", "state": "failing", "scans": 4, "problems": 0, "last_error": "FETCH_FAILED: no \\udcff"}
    ]


@pytest.mark.parametrize(("limit", "alarm"), [(100, True), (102, False), (None, False)])
def test_store_raises_its_alarm(page, limit, alarm):
    page.store = lambda: usage(limit_bytes=limit)
    made = page.render((), ())
    parts = {"package_bytes": 90, "environment_bytes": 1}
    assert made["store"] == {"bytes": 91, **parts, "budget_bytes": limit, "free_bytes": 500, "alarm": alarm}
    assert any("hotbay gc" in problem for problem in made["problems"]) is alarm


@dataclass
class Polls:
    """Two sources, of which one is polled more rarely than it was asked to be."""

    asked_s: dict = field(default_factory=lambda: {"metrics-data-source": 0.05, "models": 0.125})
    intervals_s: dict = field(default_factory=lambda: {"metrics-data-source": 0.4, "models": 0.15})
    extractors: dict = field(default_factory=lambda: {"models": ("names", "mine"), "adapters": ("lora",)})


def test_polled_sources_tell_what_was_asked_for_and_what_is(page):
    assert page.render((), ())["polled"] == []
    page.polls = Polls()
    assert page.render((), ())["polled"] == [
        {"source": "metrics-data-source", "asked_s": 0.05, "interval_s": 0.4, "extractors": []},
        {"source": "models", "asked_s": 0.125, "interval_s": 0.15, "extractors": ["names", "mine"]},
    ]
    assert page.render((), ())["event_sources"] == [{"source": "adapters", "extractors": ["lora"]}]


def test_endpoints_stand_by_id_and_say_whether_scrapes_fail_now():
    store = EndpointStore()
    made = StatusPage(store, Metrics(), isolation="none")
    for name in "ba":
        store.upsert(EndpointMetadata(f"default/{name}", name, "10.0.0.1", 8000))
        store.record_scrape_failure(f"default/{name}", "answered 500")
    store.update_metrics("default/b", Figures(waiting=1.0), 10.0)
    found = made.render((), ())["endpoints"]
    assert [(row["id"], row["scrape_errors"], row["scrapes_failed_in_a_row"]) for row in found] == [
        ("default/a", 1, 1),
        ("default/b", 1, 0),
    ]


@pytest.mark.parametrize("policy", list(StalePolicy))
def test_figures_that_stand_still_are_told_with_their_age_and_limit(policy):
    store = EndpointStore(Freshness(stale_after_s=2.0, fields={"running": 9.0}, policy=policy))
    made = StatusPage(store, Metrics(), isolation="none")
    for name in "ab":
        store.upsert(EndpointMetadata(f"default/{name}", name, "10.0.0.1", 8000))
        store.update_metrics(f"default/{name}", Figures(waiting=1.0, running=1.0), 10.0 if name == "a" else 11.0)
    store.publish(12.0)
    assert made.render((), ())["stale"] == []
    store.publish(14.5)
    assert made.render((), ())["stale"] == [
        {"figure": "waiting", "endpoints": 2, "oldest_s": 4.5, "limit_s": 2.0, "shown": policy is StalePolicy.IGNORE}
    ]


@pytest.mark.parametrize(("found", "told"), [(0, 0), (50, 50), (51, 51), (500, 51)])
def test_warnings_are_told_beside_problems_and_no_more_than_anybody_reads(page, found, told):
    page.warnings = lambda: [Problem("DUPLICATE_NAME", f"bad \udcff {number}") for number in range(found)]
    made = orjson.loads(orjson.dumps(page.render((), ())))
    assert made["problems"] == ["FETCH_FAILED: gone"]
    assert len(made["warnings"]) == told
    assert made["warnings"][:1] == ["DUPLICATE_NAME: bad \\udcff 0"] * (found > 0)
    assert made["warnings"][50:] == [f"and {found - 50} more"] * (found > 50)


@pytest.mark.anyio
async def test_facts_are_those_of_the_page(page):
    page.store, page.polls = usage, Polls()
    record = Quarantine(DIGEST, "sample", 1, "CRASHED", "x", 1, 0.0)
    page.world = lambda: view_of(1, [record])
    facts = page.facts(("starting",), [Problem("X", "y")])
    sample, other = facts.plugins
    assert (facts.ready, facts.problems) == (False, 2)
    assert (sample.phase, sample.strikes) == ("canary", 2)
    assert (sample.live.number, sample.live.leases) == (7, 3)
    assert (sample.candidate.number, sample.candidate.rev) == (8, 2)
    assert (other.live, other.candidate) == (None, None)
    assert (facts.sources, facts.quarantined) == ({"mine": "failing"}, {"sample": 1})
    assert facts.store.budget_bytes == 100
    assert facts.intervals_s == {"metrics-data-source": 0.4, "models": 0.15}
    assert facts.tasks >= 1


@pytest.mark.anyio
async def test_host_that_has_nothing_yet_has_a_page():
    made = StatusPage(EndpointStore(), Metrics(), isolation="none")
    assert made.render((), ())["plugins"] == []
    assert made.facts((), ()).ready


class Router:
    """One of two plugins does not answer."""

    plan = None

    def broken(self):
        return [("my-queue", "PLUGIN_ERROR: KeyError: 'x'")]


@pytest.mark.anyio
async def test_plugin_that_runs_and_is_asked_no_more_is_a_problem():
    made = StatusPage(EndpointStore(), Metrics(), isolation="none")
    made.router = Router()
    (problem,) = made.render((), ())["problems"]
    assert problem.startswith("BREAKER_OPEN: the breaker of my-queue is open")
    for part in ("PLUGIN_ERROR: KeyError: 'x'", "`hotbay logs my-queue`", "`hotbay rollback my-queue`"):
        assert part in problem
    assert made.facts((), ()).problems == 0, "it is counted by binding"
