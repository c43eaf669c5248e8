"""The cheapest call that the protocol has, over the product's own client and SDK: nothing of the scheduler is in it."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager

from hotbay.errors import HostError
from hotbay.rpc.leases import Generation
from hotbay.rpc.wire import Outcome
from hotbay_sdk.protocol import Connection, Method, Role
from hotbay_sdk.protocol.calls import POINT_SCORE

from benchmarks.figure import Bound, Chart, Figure, Goal
from benchmarks.figures.floor import PIPE
from benchmarks.packages import echo_package
from benchmarks.probes import Probe, Room, Sample, TakeSample, percentiles
from benchmarks.product import DEADLINE_S, generation_of, open_bench

CALLS = 3000
FRAME_BYTES = 100
EPOCH = 1
SCORER = "echo-scorer"
ECHO = "echo"


def call_arguments(handle: tuple[int, int], *, introduce: bool) -> list[object]:
    """A `run` with one scorer and one endpoint whose request id makes the frame `FRAME_BYTES` long.

    With `introduce` it carries the endpoint's id, which the process then holds.
    """
    view = [EPOCH, 1, 1, ["default/server-0"] if introduce else None, None]
    steps = [[POINT_SCORE, handle]]
    # Texts below 32 bytes have a shorter header.
    missing = FRAME_BYTES - len(_frame([steps, view, None, _requests("x" * 32)]))
    return [steps, view, None, _requests("x" * max(32, 32 + missing))]


def _requests(request_id: str) -> list[object]:
    return [1, [], None, {"request.id": [request_id]}, {}]


def _frame(args: list[object]) -> bytes:
    return Connection(Role.HOST).start_call(Method.RUN, args, deadline_us=int(DEADLINE_S * 1e6), epoch=EPOCH)[1]


@contextmanager
def open_echo(room: Room) -> Iterator[TakeSample]:
    """One echo process that knows its endpoint."""
    with open_bench(room) as bench:
        generation = generation_of(bench.start(echo_package(room), [SCORER]))
        handle = (generation.number, generation.handles[SCORER])
        bench.run(_repeat(generation, call_arguments(handle, introduce=True), 1))
        args = call_arguments(handle, introduce=False)

        def take() -> Sample:
            return percentiles(bench.run(_repeat(generation, args, CALLS)))

        yield take


async def _repeat(generation: Generation, args: list[object], count: int) -> list[float]:
    """Make `count` calls, one after the other, each from the callback of the one before; their times in seconds."""
    finished: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    times: list[float] = []
    begun = 0.0

    def call() -> None:
        nonlocal begun
        begun = time.perf_counter()
        generation.client.start_call(Method.RUN, args, deadline_s=DEADLINE_S, done=done, epoch=EPOCH)

    def done(outcome: Outcome) -> None:
        times.append(time.perf_counter() - begun)
        if isinstance(outcome, HostError):
            finished.set_exception(outcome)
        elif len(times) < count:
            call()
        else:
            finished.set_result(None)

    call()
    await finished
    return times


PROBES = (Probe(ECHO, open_echo),)

FIGURES = (
    Figure(
        "G1",
        "echo of 100 B",
        f"{ECHO}:p50_us",
        f"{PIPE}:p50_us",
        goal=Goal(Bound.AT_MOST, 3.6),
        note="PluginClient.start_call(run) to a scorer that looks at nothing: one request, one endpoint, a frame of "
        "100 B out, its score back in some 20 B; the floor carries 100 B both ways",
    ),
)

CHARTS: tuple[Chart, ...] = ()
