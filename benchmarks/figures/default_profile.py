"""Decisions with the default profile, beside the same profile computed inside a process.

The prefix index is not empty: one endpoint in ten holds a part of the prompt, from a quarter of it to all.
"""

import asyncio
import random
import time
from array import array
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import numpy as np
from hotbay.datalayer.store import EndpointStore
from hotbay.scheduling.decision import Decision, Picked
from hotbay.scheduling.request import InferenceRequest

from benchmarks.figure import Chart, Figure
from benchmarks.figures.decision import SAMPLE_S
from benchmarks.in_process import WEIGHTS, Columns, Server, pick_column, pick_each, score_columns, score_each
from benchmarks.packages import PREFIX_CACHE, STANDARD, first_party
from benchmarks.probes import Probe, Room, Sample, TakeSample, percentiles
from benchmarks.product import Bench, Decider, check_undegraded, generation_of, open_bench, plan_of, store_of

SIZES = (10, 100, 1000)
BLOCK_TOKENS = 64
"""The producer's default."""
PROMPT_BLOCKS = 32
PARTS = 4
HOLDERS_EVERY = 10
IN_PROCESS_SAMPLE_S = SAMPLE_S / 2
TYPES: Mapping[str, tuple[str, ...]] = {
    STANDARD: ("queue-scorer", "kv-cache-utilization-scorer"),
    PREFIX_CACHE: ("approx-prefix-cache-producer", "prefix-cache-scorer"),
}
NOTE = (
    "queue 2, KV cache 2, prefix 3 with its producer, packages in two processes, one decision at a time; prompts of 2,048 tokens in "
    "32 blocks, their hashes made before; guard, metrics and batches on; isolation none; beside it the same formulas in a process, "
    "over figures of the same snapshot in objects made before: each = plain Python functions, endpoint by endpoint; "
    "columns = numpy over all endpoints"
)


def prompt_request(number: int, parts: int = PARTS) -> InferenceRequest:
    """A request with the first `parts` quarters of the prompt."""
    text = "".join(f"block {block:06d} " * 20 for block in range(PROMPT_BLOCKS))
    prompt = text[: BLOCK_TOKENS * 4 * PROMPT_BLOCKS * parts // PARTS]
    payload = {"model": "m", "prompt": prompt}
    return InferenceRequest(f"r{number}", "m", "/v1/completions", {}, prompt.encode(), payload)


def parts_held(row: int) -> int:
    """Quarters of the prompt that the endpoint of a row holds."""
    return 1 + row // HOLDERS_EVERY % PARTS if row % HOLDERS_EVERY == 0 else 0


def hashes_of(parts: int) -> list[int]:
    """Of the first quarters of the prompt; the longest lists begin with the shorter ones."""
    words = array("Q")
    words.frombytes(prompt_request(0, parts).prompt_hashes(BLOCK_TOKENS))
    return words.tolist()


def servers_of(store: EndpointStore) -> list[Server]:
    """The snapshot as objects."""
    columns = store.snapshot.columns
    figures = (columns[name].tolist() for name in ("endpoint.waiting", "endpoint.kv_usage"))
    return [
        Server(waiting, usage, frozenset(hashes_of(parts_held(row))))
        for row, (waiting, usage) in enumerate(zip(*figures, strict=True))
    ]


def columns_of(store: EndpointStore) -> Columns:
    """The snapshot as columns."""
    columns = store.snapshot.columns
    held = np.array([len(hashes_of(parts_held(row))) for row in range(store.snapshot.rows)])
    holders = {block: held > number for number, block in enumerate(hashes_of(PARTS))}
    waiting, usage = (np.asarray(columns[name], np.float32) for name in ("endpoint.waiting", "endpoint.kv_usage"))
    return Columns(waiting, usage, holders)


# -- the product -------------------------------------------------------------------------------------


def product_probe(endpoints: int) -> Probe:
    """Whole decisions, with processes."""

    @contextmanager
    def open_decisions(room: Room) -> Iterator[TakeSample]:
        with open_bench(room) as bench:
            generations = [generation_of(bench.start(first_party(room, name), types)) for name, types in TYPES.items()]
            store = store_of(endpoints)
            plan = plan_of(generations, WEIGHTS)
            decider = bench.run(_learned(store, lambda: Decider(store, plan, prompt_request)))
            yield lambda: _sample(bench, decider)

    return Probe(f"default.{endpoints}", open_decisions)


async def _learned(store: EndpointStore, make: Callable[[], Decider]) -> Decider:
    """A decider whose plugins know who holds what, and which then decides as the formulas do."""
    decider = make()
    for row, endpoint_id in enumerate(store.snapshot.ids):
        if parts_held(row):
            request = prompt_request(row, parts_held(row))
            decider.router.sent(request, await _decide(decider, request), endpoint_id)
    await decider.decide(SAMPLE_S, 1)
    check_undegraded(decider.metrics)
    picked = await _decide(decider, prompt_request(0))
    totals = score_each(servers_of(store), hashes_of(PARTS))
    if totals[store.snapshot.row_of[picked.endpoint.id]] < max(totals) - 1e-4:
        raise RuntimeError(
            f"{picked.endpoint.id} was picked, which the formulas do not rate best: nothing was learned?"
        )
    return decider


async def _decide(decider: Decider, request: InferenceRequest) -> Picked:
    made: asyncio.Future[Decision] = asyncio.get_running_loop().create_future()
    decider.router.decide(request, made.set_result)
    decision = await made
    if not isinstance(decision, Picked):
        raise RuntimeError(f"a request was refused while preparing: {decision}")
    return decision


def _sample(bench: Bench, decider: Decider) -> Sample:
    times = bench.run(decider.decide(SAMPLE_S, 1))
    check_undegraded(decider.metrics)
    return percentiles(times)


# -- inside a process --------------------------------------------------------------------------------


def in_process_probe(endpoints: int, *, columns: bool) -> Probe:
    """The same decisions as calls of functions."""

    @contextmanager
    def open_functions(_: Room) -> Iterator[TakeSample]:
        store, hashes, rng = store_of(endpoints), hashes_of(PARTS), random.Random(1)
        if columns:
            table = columns_of(store)
            yield lambda: _time(lambda: pick_column(score_columns(table, hashes), rng))
        else:
            servers = servers_of(store)
            yield lambda: _time(lambda: pick_each(score_each(servers, hashes), rng))

    return Probe(f"in_process.{'columns' if columns else 'each'}.{endpoints}", open_functions)


def _time(decide: Callable[[], int]) -> Sample:
    times = []
    end = time.perf_counter() + IN_PROCESS_SAMPLE_S
    while (begun := time.perf_counter()) < end:
        decide()
        times.append(time.perf_counter() - begun)
    return percentiles(times)


PROBES = (
    *(product_probe(size) for size in SIZES),
    *(in_process_probe(size, columns=columns) for size in SIZES for columns in (False, True)),
)

FIGURES = tuple(
    Figure(f"F{size}{suffix}", f"default profile, E = {size} ÷ {how}", f"default.{size}:p50_us", against, note=NOTE)
    for size in SIZES
    for suffix, how, against in (
        ("", "in-process", f"in_process.each.{size}:p50_us"),
        ("np", "with numpy", f"in_process.columns.{size}:p50_us"),
    )
)

CHARTS = (
    Chart("default-profile", "One decision with the default profile", "endpoints", "µs, median",
          {"plugins in two processes": [(size, f"default.{size}:p50_us") for size in SIZES],
           "plain Python in a process": [(size, f"in_process.each.{size}:p50_us") for size in SIZES],
           "numpy in a process": [(size, f"in_process.columns.{size}:p50_us") for size in SIZES]}),
)  # fmt: skip
