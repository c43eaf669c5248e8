"""Decisions: one scorer call and whole decisions, with real plugin processes over the real protocol."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from hotbay.datalayer.store import EndpointStore
from hotbay.scheduling.plan import Plan

from benchmarks.figure import Bound, Chart, Figure, Goal
from benchmarks.figures.floor import FAN_OUT, PIPE
from benchmarks.packages import SCORERS, STANDARD, first_party, wide_package
from benchmarks.probes import Probe, Room, Sample, TakeSample, percentiles
from benchmarks.product import (
    Bench,
    Decider,
    check_undegraded,
    generation_of,
    open_bench,
    plan_of,
    store_of,
    unbatched,
)

SIZES = (10, 100, 1000, 5000)
LOADS = (1, 16, 64)
SAMPLE_S = 0.5
ENDPOINTS = 100
UNBATCHED = "decision.unbatched"
SHARED, FRAMES = "wide.shared", "wide.frames"

NAMES = tuple(SCORERS)
NOTE = (
    "guard, metrics and batches on; isolation none; no prefix index; snapshots published every 20 ms, in shared memory "
    "where a call reads 24 KiB of columns, else in frames"
)


def scorer_probe(endpoints: int) -> Probe:
    """One scorer in one process, one decision at a time: the call is nearly all of it."""
    return _probe(f"scorer.{endpoints}", [NAMES[:1]], endpoints=endpoints, in_flight=1)


def decision_probe(processes: int, in_flight: int) -> Probe:
    """Whole decisions with three scorers in one or three processes."""
    return _probe(decision_name(processes, in_flight), _groups(processes), in_flight=in_flight)


def unbatched_probe() -> Probe:
    """As three processes with most in flight, but every call carries one request."""
    return _probe(UNBATCHED, _groups(3), in_flight=LOADS[-1], change=unbatched)


def wide_probe(*, shared: bool) -> Probe:
    """One scorer that reads ten columns of the largest pool, out of shared memory or out of frames."""

    @contextmanager
    def open_decisions(room: Room) -> Iterator[TakeSample]:
        with open_bench(room) as bench:
            generation = generation_of(bench.start(wide_package(room), ["wide-scorer"]))
            if not shared:
                generation.features = frozenset()
            decider = bench.run(_decider(store_of(SIZES[-1]), plan_of([generation])))
            yield lambda: _sample(bench, decider, 1)

    return Probe(SHARED if shared else FRAMES, open_decisions)


def decision_name(processes: int, in_flight: int) -> str:
    """Name of a decision probe."""
    return f"decision.{processes}x{in_flight}"


def _groups(processes: int) -> Sequence[Sequence[str]]:
    return [NAMES] if processes == 1 else [(name,) for name in NAMES]


def _probe(
    name: str,
    groups: Sequence[Sequence[str]],
    *,
    in_flight: int,
    endpoints: int = ENDPOINTS,
    change: Callable[[Plan], Plan] = lambda plan: plan,
) -> Probe:
    @contextmanager
    def open_decisions(room: Room) -> Iterator[TakeSample]:
        layout = first_party(room, STANDARD)
        with open_bench(room) as bench:
            generations = [generation_of(bench.start(layout, names)) for names in groups]
            decider = bench.run(_decider(store_of(endpoints), change(plan_of(generations))))
            yield lambda: _sample(bench, decider, in_flight)

    return Probe(name, open_decisions)


def _sample(bench: Bench, decider: Decider, in_flight: int) -> Sample:
    begun = time.perf_counter()
    times = bench.run(decider.decide(SAMPLE_S, in_flight))
    elapsed = time.perf_counter() - begun
    check_undegraded(decider.metrics)
    return {**percentiles(times), "per_s": len(times) / elapsed}


async def _decider(store: EndpointStore, plan: Plan) -> Decider:
    """A router takes the running loop, so it is made on it."""
    return Decider(store, plan)


PROBES = (
    *(scorer_probe(size) for size in SIZES),
    *(decision_probe(processes, load) for processes in (1, 3) for load in LOADS),
    unbatched_probe(),
    wide_probe(shared=True),
    wide_probe(shared=False),
)


def _scorer_figure(size: int) -> Figure:
    title = f"one scorer call, E = {size}"
    if size == ENDPOINTS:
        goal = Goal(Bound.AT_MOST, 7.5)
        return Figure("G2", title, f"scorer.{size}:p50_us", f"{PIPE}:p50_us", goal, note=NOTE)
    return Figure(f"E{size}", title, f"scorer.{size}:p50_us", f"{PIPE}:p50_us", note=NOTE)


def _rate_figure(processes: int, load: int) -> Figure:
    title = f"decisions, {processes} process{'es' if processes > 1 else ''}, {load} in flight"
    value = f"{decision_name(processes, load)}:per_s"
    if (processes, load) == (3, 64):
        return Figure("G5", title, value, f"{PIPE}:per_s", Goal(Bound.AT_LEAST, 0.4), note=NOTE)
    return Figure(f"D{processes}x{load}", title, value, f"{PIPE}:per_s", note=NOTE)


FIGURES = (
    *(_scorer_figure(size) for size in SIZES),
    Figure("G3", "one scorer call, E = 5000 ÷ E = 10", "scorer.5000:p50_us", "scorer.10:p50_us",
           Goal(Bound.AT_MOST, 1.8), note=NOTE),
    Figure("G4", "decision, 3 processes, E = 100", "decision.3x1:p50_us", f"{FAN_OUT}:p50_us",
           Goal(Bound.AT_MOST, 5.5), note=NOTE),
    Figure("G4p99", "the same, p99 ÷ p50", "decision.3x1:p99_us", "decision.3x1:p50_us",
           Goal(Bound.AT_MOST, 3), note=NOTE),
    *(_rate_figure(processes, load) for processes in (1, 3) for load in LOADS),
    Figure("G6", "the same, batched ÷ unbatched", "decision.3x64:per_s", f"{UNBATCHED}:per_s",
           Goal(Bound.AT_LEAST, 3), note=NOTE),
    Figure("C5000", "10 columns, E = 5000, p99 ÷ in frames", f"{SHARED}:p99_us",
           f"{FRAMES}:p99_us", note=NOTE + "; of some forty calls a tick the first brings the columns"),
)  # fmt: skip

CHARTS = (
    Chart("scorer", "One decision with one isolated scorer", "endpoints", "µs, median",
          {"one scorer": [(size, f"scorer.{size}:p50_us") for size in SIZES],
           "floor: C, 100 B": [(size, f"{PIPE}:p50_us") for size in SIZES]}),
    Chart("decisions", "Decisions with three scorers, E = 100", "in flight", "decisions/s",
          {f"{p} process{'es' if p > 1 else ''}": [(load, f"{decision_name(p, load)}:per_s") for load in LOADS]
           for p in (1, 3)}),
)  # fmt: skip
