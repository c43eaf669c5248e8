"""Routing quality: our profiles beside other routers' own binaries, before the same simulated servers."""

from dataclasses import asdict, replace

from benchmarks.figure import Bound, Chart, Figure, Goal
from benchmarks.probes import Probe, Room
from benchmarks.routing import report
from benchmarks.routing.routers import OURS, PEERS, REFERENCES
from benchmarks.routing.study import SEEDS, Setting, run_study
from benchmarks.studies import Findings, Progress, Study

TRACE = "mooncake-conversation.jsonl"
BEST = Goal(Bound.AT_MOST, 0.9)
NOTE = (
    "8 simulated servers with prefix caches, a window of the trace a seed; time to first token in simulated ms; our profile "
    "with the lowest mean beside the best of the others by this quantity, ratios within a seed; every seed's result is "
    "under `studies`"
)
APART_NOTE = NOTE + "; our highest seed ÷ their lowest: below 1 the ranges over the seeds do not meet"


def take(room: Room, progress: Progress) -> Findings:
    """Every router, three seeds."""
    setting = Setting() if room.requests is None else replace(Setting(), count=room.requests)
    ours, peers = [router.name for router in OURS], [router.name for router in PEERS]
    results, missing = run_study(
        [*OURS, *PEERS, *REFERENCES],
        room.root / "benchmarks" / "data" / TRACE,
        room.build,
        setting=setting,
        load_cpu=room.load_cpu,
        router_cpu=room.cpus[0],
        progress=progress,
    )
    standing = report.standing_of(results, missing, ours=ours, peers=peers, seeds=SEEDS)
    return Findings(
        samples=report.samples_of(standing, ours),
        unavailable=report.unavailable_of(standing, ours=ours, peers=peers),
        details=report.details_of(standing, asdict(setting)),
        table=report.routers_table(standing, SEEDS),
        draw=lambda room: report.draw(standing, room.build / "routing.png"),
    )


STUDIES = (Study("routing", report.PROBES, take),)
PROBES: tuple[Probe, ...] = ()
CHARTS: tuple[Chart, ...] = ()

FIGURES = (
    Figure("Q1", "first token, mean: ours ÷ best other", "routing.ours:mean_ms", "routing.peer.mean:mean_ms", BEST, NOTE),
    Figure("Q1p90", "first token, p90: ours ÷ best other", "routing.ours:p90_ms", "routing.peer.p90:p90_ms", BEST, NOTE),
    Figure("Q1gap", "mean: our highest ÷ their lowest", "routing.apart.mean:highest_ms", "routing.apart.mean:lowest_ms",
           Goal(Bound.AT_MOST, 1), APART_NOTE),
    Figure("Q1gap90", "p90: our highest ÷ their lowest", "routing.apart.p90:highest_ms", "routing.apart.p90:lowest_ms",
           Goal(Bound.AT_MOST, 1), APART_NOTE),
    Figure("Q1p50", "p50, beside the best by mean", "routing.ours:p50_ms", "routing.peer.mean:p50_ms", note=NOTE),
    Figure("Q1hit", "tokens found in caches, the same", "routing.ours:hit_percent", "routing.peer.mean:hit_percent",
           note=NOTE),
    Figure("Q1fail", "requests failed by our profiles", "routing.own:failed_count", goal=Goal(Bound.AT_MOST, 0), note=NOTE),
)  # fmt: skip
