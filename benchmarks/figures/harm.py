"""What one bad plugin costs the others. Rows bear the ids of the field failures that ask for these ratios.

A crash loop is measured on a whole host; a plugin that stops reading, and one that cannot be stopped, beside decisions
and timers on the harness's own loop.
"""

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

from hotbay.errors import HostError
from hotbay.rollout.instance import Instance
from hotbay.rpc.leases import Generation
from hotbay.rpc.wire import Outcome
from hotbay_sdk.protocol import Method
from hotbay_sdk.protocol.calls import POINT_SCORE

from benchmarks.figure import Bound, Chart, Figure, Goal
from benchmarks.host import HostProcess, config_text, run_host
from benchmarks.load import Load, SteadyLoad, open_server
from benchmarks.packages import STANDARD, echo_package, first_party, light_package, write_copy
from benchmarks.probes import Probe, Room, Sample, TakeSample, percentiles
from benchmarks.product import Bench, Decider, check_undegraded, generation_of, open_bench, plan_of, store_of
from benchmarks.publishing import fresh_folder

CONNECTIONS: Final = 32
WINDOW_S: Final = 4.0
"""A loop that pauses 0.1 s, 0.2 s, 0.4 s … has started five times by then."""
FEWEST_STARTS: Final = 3
SCORER: Final = "queue-scorer"
ENDPOINTS: Final = 100

CALLS: Final = 10_000
CALLS_A_TICK: Final = 25
TICK_S: Final = 0.005
CALL_BYTES: Final = 4096
DECIDING_S: Final = CALLS / CALLS_A_TICK * TICK_S

LAG_TICK_S: Final = 0.002

CRASH_LOOP = "harm.crash_loop"
DEAF = "harm.deaf"
BUSY = "harm.busy"

_CRASHING: Final = b"plugin = None\nraise SystemExit(1)\n"
"""A package whose entry point is not there would be refused before it is started."""
_BUSY: Final = b'''"""Scores in one call into C that lasts for minutes; its handler of SIGTERM has no turn before its end."""
import signal

from hotbay_sdk import Plugin, Scorer

signal.signal(signal.SIGTERM, lambda *_: None)
plugin = Plugin("bench-busy")


@plugin.type("busy-scorer")
class Busy(Scorer):
    def score_batch(self, requests, endpoints):
        return [[float(sum(range(10**11)))]]
'''


# -- L13 -----------------------------------------------------------------------------------------


@contextmanager
def open_crash_loop(room: Room) -> Iterator[TakeSample]:
    """Each sample applies half of the host's capacity, first without and then with a plugin that ends at each start."""
    with ExitStack() as stack:
        folder = stack.enter_context(fresh_folder(room.build / "hosts" / "crash-loop"))
        port = stack.enter_context(open_server(room))
        write_copy(first_party(room, STANDARD), folder / "source" / STANDARD, name=STANDARD)
        crashing = light_package(room, "crashing", "crashing-scorer", _CRASHING)
        write_copy(crashing, folder / "source" / "crashing", name="bench-crashing")
        source = f"{{name: bench, directory: '{folder / 'source'}', fetch: once}}"
        more = ("supervise: {budget: {failures: 1000, within: 10m}}",)
        config = config_text([port], source=source, types={}, bound=(SCORER, "crashing"), more=more)
        host = stack.enter_context(run_host(folder, {"host.yaml": config, "picker.yaml": _PICKER}, plugins=1))
        _command(host, "disable")
        host.pause()

        def take() -> Sample:
            host.resume()
            capacity = Load(CONNECTIONS).run(room, host.port)
            load = SteadyLoad(capacity["per_s"] / 2, CONNECTIONS)
            before = load.run_during(room, host.port, lambda: time.sleep(WINDOW_S))
            _command(host, "enable")
            during = load.run_during(room, host.port, lambda: time.sleep(WINDOW_S))
            starts = _strikes(host)
            _command(host, "disable")
            host.pause()
            if starts < FEWEST_STARTS or before["failed"] or during["failed"]:
                raise RuntimeError(f"no crash loop was measured: {starts} starts, {before}, {during}")
            return {"before_p99_us": before["p99_us"], "during_p99_us": during["p99_us"]}

        yield take


_PICKER: Final = f"""\
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
- {{type: {SCORER}}}
- {{name: crashing, type: crashing-scorer}}
schedulingProfiles:
- name: default
  plugins: [{{pluginRef: {SCORER}}}, {{pluginRef: crashing}}]
"""


def _command(host: HostProcess, word: str) -> None:
    host.admin.post(f"/{word}", {"plugin": "bench-crashing"})


def _strikes(host: HostProcess) -> int:
    rows = host.admin.get("/status")["plugins"]
    assert isinstance(rows, list), "the status page lists plugins"
    return next(int(row["strikes"]) for row in rows if row["plugin"] == "bench-crashing")


# -- R15 -----------------------------------------------------------------------------------------


@contextmanager
def open_deaf(room: Room) -> Iterator[TakeSample]:
    """Each sample decides with one plugin, then does so again while another one reads nothing of 10,000 calls."""
    with open_bench(room) as bench:
        steady = generation_of(bench.start(first_party(room, STANDARD), [SCORER]))
        deaf = bench.start(echo_package(room), ["echo-scorer"])
        decider = bench.run(_decider(steady))

        def take() -> Sample:
            alone = percentiles(bench.run(decider.decide(DECIDING_S, 1)))
            os.kill(deaf.child.pid, signal.SIGSTOP)
            try:
                beside, refusals_s = bench.run(_decide_beside(decider, generation_of(deaf)))
            finally:
                os.kill(deaf.child.pid, signal.SIGCONT)
            bench.run(_until_it_answers(deaf))
            check_undegraded(decider.metrics)
            if not refusals_s:
                raise RuntimeError("a plugin that reads nothing took 10,000 calls")
            return {
                "alone_p99_us": alone["p99_us"],
                "beside_p99_us": percentiles(beside)["p99_us"],
                "refused_ms": max(refusals_s) * 1e3,
            }

        yield take


async def _decider(generation: Generation) -> Decider:
    return Decider(store_of(ENDPOINTS), plan_of([generation]))


async def _decide_beside(decider: Decider, deaf: Generation) -> tuple[list[float], list[float]]:
    """The times of decisions, and of calls that were refused, in seconds."""
    loop = asyncio.get_running_loop()
    refusals_s: list[float] = []
    args = _call_of(deaf, CALL_BYTES)
    made = 0

    def tick() -> None:
        nonlocal made
        for _ in range(CALLS_A_TICK):
            begun = time.perf_counter()
            try:
                deaf.client.start_call(Method.RUN, args, deadline_s=DECIDING_S * 10, done=_ignore)
            except HostError as error:
                if error.code != "RESOURCE_EXHAUSTED":
                    raise
                refusals_s.append(time.perf_counter() - begun)
        made += CALLS_A_TICK
        if made < CALLS:
            loop.call_later(TICK_S, tick)

    tick()
    return await decider.decide(DECIDING_S, 1), refusals_s


def _call_of(generation: Generation, size_bytes: int, type_name: str = "echo-scorer") -> list[object]:
    handle = (generation.number, generation.handles[type_name])
    view = [1, 1, 1, ["default/server-0"], None]
    return [[[POINT_SCORE, handle]], view, None, [1, [], None, {"request.id": ["x" * size_bytes]}, {}]]


def _ignore(_: Outcome) -> None:
    """What a stopped process answers at last is no figure."""


async def _until_it_answers(deaf: Instance) -> None:
    """Return when the process has worked off what waited for it and answers again."""
    generation, answered = generation_of(deaf), asyncio.Event()
    end = time.monotonic() + 60
    while generation.client.outstanding:
        if time.monotonic() > end or not deaf.answers:
            raise RuntimeError(f"{deaf.label} did not go on after SIGCONT: {generation.client.fault}")
        await asyncio.sleep(TICK_S)
    generation.client.start_call(
        Method.RUN, _call_of(generation, 32), deadline_s=10, done=lambda _: answered.set(), epoch=1
    )
    await answered.wait()


# -- L17 -----------------------------------------------------------------------------------------


@contextmanager
def open_busy(room: Room) -> Iterator[TakeSample]:
    """Each sample starts a plugin, has it enter a C loop, and stops it: how late timers are, and when it is gone."""
    layout = light_package(room, "busy", "busy-scorer", _BUSY)
    with open_bench(room) as bench:
        yield lambda: _stop_a_busy_one(bench, bench.start(layout, ["busy-scorer"]))


def _stop_a_busy_one(bench: Bench, busy: Instance) -> Sample:
    lags_s, took_s = bench.run(_lag_while_it_stops(busy))
    bench.stop()
    return {"lag_p99_ms": percentiles(lags_s)["p99_us"] / 1e3, "late_ms": (took_s - busy.spec.grace_s) * 1e3}


async def _lag_while_it_stops(busy: Instance) -> tuple[list[float], float]:
    """How late timers of `LAG_TICK_S` were, and how long the stop took, in seconds."""
    loop, generation = asyncio.get_running_loop(), generation_of(busy)
    args = _call_of(generation, 32, "busy-scorer")
    generation.client.start_call(Method.RUN, args, deadline_s=0.2, done=_ignore, epoch=1)
    # The call is under way by then, or no stop would find a C loop.
    await asyncio.sleep(0.3)
    lags_s: list[float] = []
    # The loop's own clock stands still within a turn: what happens in the turn is what is looked for.
    set_s = time.perf_counter()
    timer: asyncio.TimerHandle | None = None

    def tick() -> None:
        nonlocal set_s, timer
        now_s = time.perf_counter()
        lags_s.append(max(0.0, now_s - set_s - LAG_TICK_S))
        set_s = now_s
        timer = loop.call_later(LAG_TICK_S, tick)

    timer = loop.call_later(LAG_TICK_S, tick)
    begun_s = time.monotonic()
    await busy.kill()
    took_s = time.monotonic() - begun_s
    assert timer is not None, "it is set anew by each tick"
    timer.cancel()
    return lags_s, took_s


PROBES = (Probe(CRASH_LOOP, open_crash_loop), Probe(DEAF, open_deaf), Probe(BUSY, open_busy))

_LITTLE = Goal(Bound.AT_MOST, 1.1)
CRASH_NOTE = (
    "hotbay run, one scorer of 100 % of the decisions; open loop at half capacity for 4 s without, and then with, a "
    "second plugin that exits with 1 at import; its starts share the host's CPU; clients' p99"
)
DEAF_NOTE = (
    "router and clients in the harness; decisions with queue-scorer, E = 100, one at a time; beside them 5,000 calls/s "
    "of 4 KiB to a process under SIGSTOP, 10,000 in all; it has to answer again after SIGCONT"
)
BUSY_NOTE = (
    "Instance.kill during sum(range(10**11)) in a call, of a plugin with a handler of SIGTERM that cannot run, grace 2 s; "
    "a timer every 2 ms; both share one CPU"
)

FIGURES = (
    Figure("L13", "p99 beside a crash loop ÷ before", f"{CRASH_LOOP}:during_p99_us", f"{CRASH_LOOP}:before_p99_us",
           _LITTLE, note=CRASH_NOTE),
    Figure("R15", "p99 beside a deaf plugin ÷ alone", f"{DEAF}:beside_p99_us", f"{DEAF}:alone_p99_us",
           _LITTLE, note=DEAF_NOTE),
    Figure("R15full", "slowest refusal of a call to it", f"{DEAF}:refused_ms", goal=Goal(Bound.AT_MOST, 10),
           note=DEAF_NOTE),
    Figure("L17", "loop lag p99 beside a stop", f"{BUSY}:lag_p99_ms", goal=Goal(Bound.AT_MOST, 50), note=BUSY_NOTE),
    Figure("L17late", "end of the stop after its grace", f"{BUSY}:late_ms", goal=Goal(Bound.AT_MOST, 500),
           note=BUSY_NOTE),
)  # fmt: skip

CHARTS: tuple[Chart, ...] = ()
