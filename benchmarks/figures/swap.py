"""Swaps of a running host: what clients notice of one, how long it and its way back take, and what a thousand leave.

The host is the gateway's: three scorers in three processes, of which one is swapped. `LOAD` takes the swap through all
of its steps under load; `QUIET` has no load and no trial before the cut over, so that what is left is the host's own
work and the start of a process; `LEAK` swaps the cheapest plugin, as often as the command line says.
"""

import statistics
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Final

from hotbay.rollout.rows import LIVE
from hotbay.rollout.state import Phase

from benchmarks.figure import Bound, Chart, Figure, Goal
from benchmarks.figures.floor import SOCKET
from benchmarks.figures.start import BARE_PYTHON
from benchmarks.host import HostProcess, config_text, picker_text, run_host
from benchmarks.load import Load, SteadyLoad, open_server
from benchmarks.packages import SCORERS, STANDARD, echo_package, first_party, write_copy
from benchmarks.probes import Probe, Room, Sample, TakeSample
from benchmarks.publishing import Events, Held, Publisher, at_s, fresh_folder, wall_s

SERVERS: Final = 3
CONNECTIONS: Final = 32
BEFORE_S: Final = 2.0
REPEATS: Final = 3
WARM_UP_SWAPS: Final = 20
PLUGIN: Final = "standard-kv"
ECHO_PLUGIN: Final = "bench-echo"

LOAD = "swap.load"
QUIET = "swap.quiet"
LEAK = "swap.leak"

SHORT_STEPS: Final = (
    "swap:",
    "  shadow: {sample: 0.5, calls: 20, for: 300ms}",
    "  canary: {share: 0.2, for: 500ms, min_requests: 20}",
    "  guard: {for: 500ms, calls: 20}",
)
GUARD_ALONE: Final = ("swap: {shadow: off, canary: off, guard: {for: 60s, calls: 1000000}}",)
NO_STEPS: Final = ("swap: {shadow: off, canary: off, guard: off}",)


@contextmanager
def _swapping_host(room: Room, name: str, steps: tuple[str, ...]) -> Iterator[tuple[HostProcess, Publisher, Events]]:
    """The gateway's host over a watched folder, with the first revision of `PLUGIN` live."""
    with ExitStack() as stack:
        folder = stack.enter_context(fresh_folder(room.build / "hosts" / name))
        ports = [stack.enter_context(open_server(room)) for _ in range(SERVERS)]
        publisher = Publisher(folder, first_party(room, STANDARD), PLUGIN)
        for other in set(SCORERS.values()) - {PLUGIN}:
            write_copy(first_party(room, STANDARD), publisher.source / other, name=other)
        publisher.prepare()()
        source = f"{{name: bench, directory: '{publisher.source}'}}"
        config = config_text(ports, source=source, types=SCORERS, bound=tuple(SCORERS), more=steps)
        files = {"host.yaml": config, "picker.yaml": picker_text(prefix_index=False)}
        host = stack.enter_context(run_host(folder, files, plugins=len(SCORERS)))
        yield host, publisher, Events(host, PLUGIN)


@contextmanager
def open_load(room: Room) -> Iterator[TakeSample]:
    """Each sample finds the host's capacity, applies half of it, and swaps one plugin meanwhile."""
    with _swapping_host(room, "swap-load", SHORT_STEPS) as (host, publisher, events):
        host.pause()

        def take() -> Sample:
            host.resume()
            capacity = Load(CONNECTIONS).run(room, host.port)
            load = SteadyLoad(capacity["per_s"] / 2, CONNECTIONS)
            publish = publisher.prepare()
            degraded = host.degraded()
            before = load.run_during(room, host.port, lambda: time.sleep(BEFORE_S))

            def swap() -> None:
                since = events.mark()
                events.wait(since, "swapped", rev=publish())
                events.wait_idle(since)

            during = load.run_during(room, host.port, swap)
            degraded = host.degraded() - degraded
            host.pause()
            return {
                "before_p99_us": before["p99_us"],
                "during_p99_us": during["p99_us"],
                "failed_count": before["failed"] + during["failed"],
                "degraded_count": degraded,
                "rate_per_s": load.per_s,
            }

        yield take


@contextmanager
def open_quiet(room: Room) -> Iterator[TakeSample]:
    """Each sample publishes a version, and takes it back by a command as soon as it is live."""
    with _swapping_host(room, "swap-quiet", GUARD_ALONE) as (host, publisher, events):
        host.pause()

        def take() -> Sample:
            host.resume()
            times = [_there_and_back(host, publisher, events) for _ in range(REPEATS)]
            host.pause()
            return {name: statistics.median(each[name] for each in times) for name in times[0]}

        yield take


def _there_and_back(host: HostProcess, publisher: Publisher, events: Events) -> Mapping[str, float]:
    publish, since = publisher.prepare(), events.mark()
    published_s = wall_s()
    rev = publish()
    live = events.wait(since, "swapped", rev=rev)
    seen = events.wait(since, "phase", before=LIVE)
    events.wait(since, "phase", phase=str(Phase.GUARD))
    back, told_s = events.mark(), wall_s()
    host.admin.post("/rollout", {"plugin": PLUGIN, "action": "abort"})
    # The host reports the version that goes as failed, which here is what was asked for.
    returned = events.wait(back, "swapped", may_fail=True)
    events.wait_idle(back, may_fail=True)
    return {
        "published_us": (at_s(live) - published_s) * 1e6,
        "seen_us": (at_s(live) - at_s(seen)) * 1e6,
        "back_us": (at_s(returned) - told_s) * 1e6,
    }


@contextmanager
def open_leak(room: Room) -> Iterator[TakeSample]:
    """Swaps once, in the first round; every sample is of the same run: counts need no second one."""
    with ExitStack() as stack:
        folder = stack.enter_context(fresh_folder(room.build / "hosts" / "swap-leak"))
        port = stack.enter_context(open_server(room))
        publisher = Publisher(folder, echo_package(room), ECHO_PLUGIN)
        publisher.prepare()()
        source = f"{{name: bench, directory: '{publisher.source}'}}"
        config = config_text([port], source=source, types={}, bound=("echo",), more=NO_STEPS)
        files = {"host.yaml": config, "picker.yaml": _ECHO_PICKER}
        counts = folder / "counts.json"
        program = ("-m", "benchmarks.counted_host", str(counts))
        host = stack.enter_context(run_host(folder, files, plugins=1, program=program))
        events = Events(host, ECHO_PLUGIN)
        host.pause()
        found: dict[str, float] = {}

        def take() -> Sample:
            if not found:
                host.resume()
                _swap_often(publisher, events, WARM_UP_SWAPS)
                before, begun_s = Held.of(host, counts), time.monotonic()
                _swap_often(publisher, events, room.swaps)
                found["swaps_per_s"] = room.swaps / (time.monotonic() - begun_s)
                found.update(Held.of(host, counts).more_than(before))
                host.pause()
            return found

        yield take


_ECHO_PICKER: Final = """\
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
- {name: echo, type: echo-scorer}
schedulingProfiles:
- name: default
  plugins: [{pluginRef: echo}]
"""


def _swap_often(publisher: Publisher, events: Events, count: int) -> None:
    for _ in range(count):
        since, publish = events.mark(), publisher.prepare()
        events.wait(since, "swapped", rev=publish())
        events.wait_idle(since)


PROBES = (Probe(LOAD, open_load), Probe(QUIET, open_quiet), Probe(LEAK, open_leak))

_NONE = Goal(Bound.AT_MOST, 0)
NOTE = (
    "hotbay run, 3 scorers in 3 processes, 3 servers; one scorer (numpy, with the store warm) is swapped under an open "
    "loop at half of the rate that 32 connections reached just before; shadow 300 ms, canary 500 ms, guard 500 ms; from "
    "the publication until the old process is gone; a request's time counts from when it was due; host, plugins and "
    "the candidate's start share one CPU"
)
QUIET_NOTE = "the same host without load; shadow and canary off; median of 3 swaps; wheels and environment are there"
LEAK_NOTE = (
    "hotbay run with the echo plugin; no load; steps off; after 20 swaps that do not count; taken once a run; 1,000 "
    "swaps: ARGS='--only G20 --swaps 1000'"
)

FIGURES = (
    Figure("G19", "p99 during a swap ÷ before", f"{LOAD}:during_p99_us", f"{LOAD}:before_p99_us",
           Goal(Bound.AT_MOST, 2), note=NOTE),
    Figure("G19fail", "the same, failed requests", f"{LOAD}:failed_count", goal=_NONE, note=NOTE),
    Figure("G19deg", "the same, degraded requests", f"{LOAD}:degraded_count", goal=_NONE, note=NOTE),
    Figure("W1", "publication → cut over, warm store", f"{QUIET}:published_us", f"{BARE_PYTHON}:p50_us",
           note=f"{QUIET_NOTE}; from the rename into the watched folder"),
    Figure("W2", "manifest seen → cut over", f"{QUIET}:seen_us", f"{BARE_PYTHON}:p50_us",
           note=f"{QUIET_NOTE}; from the routine's first phase after the scan"),
    Figure("W3", "abort → old version live", f"{QUIET}:back_us", f"{SOCKET}:p50_us",
           note=f"{QUIET_NOTE}; from before the command is sent over the admin socket"),
    Figure("G20", "growth over many swaps, memory", f"{LEAK}:resident_percent", goal=Goal(Bound.AT_MOST, 5),
           note=LEAK_NOTE),
    Figure("G20fds", "the same, descriptors", f"{LEAK}:descriptors_count", goal=_NONE, note=LEAK_NOTE),
    Figure("G20thr", "the same, threads", f"{LEAK}:threads_count", goal=_NONE, note=LEAK_NOTE),
    Figure("G20task", "the same, tasks", f"{LEAK}:tasks_count", goal=_NONE, note=LEAK_NOTE),
    Figure("G20kids", "the same, child processes", f"{LEAK}:children_count", goal=_NONE, note=LEAK_NOTE),
    Figure("W4", "swaps of the cheapest plugin", f"{LEAK}:swaps_per_s", note=LEAK_NOTE),
)  # fmt: skip

CHARTS: tuple[Chart, ...] = ()
