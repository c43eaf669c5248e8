"""Decisions: one scorer call and whole decisions, with real plugin processes over the real protocol."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from benchmarks.figure import Bound, Chart, Figure, Goal
from benchmarks.figures.floor import FAN_OUT, PIPE
from benchmarks.probes import Probe, Room, Sample, TakeSample, percentiles
from benchmarks.product import SCORERS, Bench, Decider, check_undegraded, open_bench, snapshot_of

from hotbay.datalayer.store import EndpointStore
from hotbay.rpc.leases import Generation

SIZES = (10, 100, 1000, 5000)
LOADS = (1, 16, 64)
CALLS = 2000
DECISIONS = 6000


def scorer_probe(endpoints: int) -> Probe:
    """One scorer in one process, one decision at a time: the call is nearly all of it."""

    @contextmanager
    def open_scorer(room: Room) -> Iterator[TakeSample]:
        with open_bench(room) as bench:
            generation = bench.run(bench.start(1, SCORERS[:1]))
            yield _sampler(bench, endpoints, [generation], count=CALLS, in_flight=1)

    return Probe(f"scorer.{endpoints}", open_scorer)


def decision_probe(processes: int, in_flight: int) -> Probe:
    """Whole decisions with three scorers in one or three processes, E = 100."""

    @contextmanager
    def open_decisions(room: Room) -> Iterator[TakeSample]:
        with open_bench(room) as bench:
            groups = [SCORERS] if processes == 1 else [(name,) for name in SCORERS]
            generations = [bench.run(bench.start(n, names)) for n, names in enumerate(groups, 1)]
            count = CALLS if in_flight == 1 else DECISIONS
            yield _sampler(bench, 100, generations, count=count, in_flight=in_flight)

    return Probe(decision_name(processes, in_flight), open_decisions)


def decision_name(processes: int, in_flight: int) -> str:
    """Name of a decision probe."""
    return f"decision.{processes}x{in_flight}"


def _sampler(
    bench: Bench, endpoints: int, generations: Sequence[Generation], *, count: int, in_flight: int
) -> TakeSample:
    store = snapshot_of(endpoints)
    decider = bench.run(_decider(store, generations))

    def take() -> Sample:
        begun = time.perf_counter()
        times = bench.run(decider.decide(count, in_flight))
        elapsed = time.perf_counter() - begun
        check_undegraded(decider.metrics)
        return {**percentiles(times), "per_s": count / elapsed}

    return take


async def _decider(store: EndpointStore, generations: Sequence[Generation]) -> Decider:
    """A router takes the running loop, so it is made on it."""
    return Decider(store, generations)


PROBES = (
    *(scorer_probe(size) for size in SIZES),
    *(decision_probe(processes, load) for processes in (1, 3) for load in LOADS),
)

FIGURES = (
    *(
        Figure(f"scorer-{size}", f"one scorer, one decision, E = {size}", f"scorer.{size}:p50_us", f"{PIPE}:p50_us")
        for size in SIZES
        if size != 100
    ),
    Figure(
        "G2",
        "one scorer, one decision, E = 100 ÷ pipe floor",
        "scorer.100:p50_us",
        f"{PIPE}:p50_us",
        goal=Goal(Bound.AT_MOST, 7.5),
    ),
    Figure(
        "G3", "one scorer, E = 5000 ÷ E = 10", "scorer.5000:p50_us", "scorer.10:p50_us", goal=Goal(Bound.AT_MOST, 1.8)
    ),
    Figure(
        "G4",
        "whole decision, 3 processes, E = 100 ÷ fan-out floor",
        "decision.3x1:p50_us",
        f"{FAN_OUT}:p50_us",
        goal=Goal(Bound.AT_MOST, 5.5),
    ),
    Figure("G4-tail", "the same, p99 ÷ p50", "decision.3x1:p99_us", "decision.3x1:p50_us", goal=Goal(Bound.AT_MOST, 3)),
    Figure(
        "G5",
        "decisions/s, 64 in flight, 3 processes ÷ pipe exchanges/s",
        "decision.3x64:per_s",
        f"{PIPE}:per_s",
        goal=Goal(Bound.AT_LEAST, 0.4),
    ),
    *(
        Figure(
            f"decisions-{processes}x{load}",
            f"decisions/s, {processes} process(es), {load} in flight",
            f"{decision_name(processes, load)}:per_s",
        )
        for processes in (1, 3)
        for load in LOADS
    ),
)

CHARTS = (
    Chart(
        "scorer",
        "One decision with one isolated scorer",
        "endpoints",
        "µs, median",
        {"one scorer": [(size, f"scorer.{size}:p50_us") for size in SIZES]},
    ),
    Chart(
        "decisions",
        "Decisions a second, three scorers, E = 100",
        "in flight",
        "decisions/s",
        {f"{p} process(es)": [(load, f"{decision_name(p, load)}:per_s") for load in LOADS] for p in (1, 3)},
    ),
)
