"""The order of policies before real servers: three llama.cpp processes with a random model, and conversations.

Small numbers, and one machine for all: what is to be seen is which policy's clients wait less, and not by how much elsewhere.
"""

import asyncio
import http.client
import os
import random
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from urllib.parse import urlsplit

import anyio
from hotbay.datalayer.pages.exposition import PageReader
from hotbay.demo.llama import LlamaServer, LlamaSpec
from hotbay.demo.model import SHAPES, write_model
from hotbay.demo.parts import load_part
from hotbay.demo.workload import text
from hotbay.errors import HostError
from rich.box import SIMPLE_HEAD
from rich.table import Table

from benchmarks.figure import Bound, Chart, Figure, Goal
from benchmarks.host import config_text, run_host
from benchmarks.probes import Probe, Room, UnavailableError
from benchmarks.routing.fleet import MODEL
from benchmarks.routing.replay import ask_in_turn
from benchmarks.routing.trace import Sent
from benchmarks.studies import Findings, Progress, Study

SERVERS = 3
SLOTS = 4
SLOT_CONTEXT = 4096
SHAPE = SHAPES["small"]

REPEATS = 3
CONVERSATIONS = 9
TURNS = 4
OPENING_BYTES, TURN_BYTES = 1000, 200
"""A token of the model is a byte. The longest prompt fits into a slot."""
ANSWER_TOKENS = 4
IN_FLIGHT = SERVERS
"""Requests at a time; the next turn of a conversation is sent long after the last one was answered."""

_COMPUTED = "llamacpp:prompt_tokens_total"
_READER = PageReader([_COMPUTED])
_HEAD = "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\n"

POLICIES: Mapping[str, tuple[int, Sequence[str], str]] = {
    "random": (0, (), _HEAD + "plugins: [{type: random-picker}]\n"),
    "load": (1, ("active-request-scorer",), _HEAD + "plugins: [{type: active-request-scorer}]\n"),
    "prefix": (
        2,
        ("queue-scorer", "kv-cache-utilization-scorer", "approx-prefix-cache-producer", "prefix-cache-scorer"),
        _HEAD
        + """plugins:
- {type: queue-scorer}
- {type: kv-cache-utilization-scorer}
- {type: approx-prefix-cache-producer, parameters: {autoTune: false, blockSizeTokens: 16}}
- {type: prefix-cache-scorer}
schedulingProfiles:
- name: default
  plugins:
  - {pluginRef: queue-scorer, weight: 2}
  - {pluginRef: kv-cache-utilization-scorer, weight: 2}
  - {pluginRef: prefix-cache-scorer, weight: 3}
""",
    ),
}
"""Per policy: how many plugin processes it needs, the refs in them, its configuration. `prefix` is the default profile."""

NOTE = (
    f"{SERVERS} llama.cpp servers with {SLOTS} slots and one thread each, random model of 4 layers, fresh for each replay; "
    f"{CONVERSATIONS} conversations of {TURNS} turns, prompts of {OPENING_BYTES} to {OPENING_BYTES + (TURNS - 1) * TURN_BYTES} "
    f"tokens, {IN_FLIGHT} requests at a time; random-picker, fewest requests in flight, the default profile with blocks of 16 tokens; "
    f"{REPEATS} repeats, policies in turns, ratios within a repeat; the servers share the machine with host and clients"
)


def conversations(seed: int) -> list[Sent]:
    """Every conversation's turns, those of one after another; a turn's prompt begins with that of the turn before."""
    rng = random.Random(seed)
    scripts = [
        text(f"talk {seed} {number}", OPENING_BYTES + (TURNS - 1) * TURN_BYTES) for number in range(CONVERSATIONS)
    ]
    sent = []
    for turn in range(TURNS):
        rng.shuffle(scripts)
        for script in scripts:
            sent.append(Sent(0.0, script[: OPENING_BYTES + turn * TURN_BYTES], ANSWER_TOKENS))
    return sent


def take(room: Room, progress: Progress) -> Findings:
    """Each policy in turn, three times over."""
    folder = room.build / "real-servers"
    # What an earlier run's world knows is no part of this one; within it, environments are made once.
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    model = folder / "model.gguf"
    try:
        load_part("xllamacpp")
        write_model(model, SHAPE)
        samples = _samples(room, model, progress)
    except HostError as error:
        raise UnavailableError(str(error)) from error
    return Findings(
        samples, details={"note": NOTE, "order": order_of(samples), "samples": samples}, table=_table(samples)
    )


def _samples(room: Room, model: Path, progress: Progress) -> Mapping[str, Sequence[float]]:
    samples: dict[str, list[float]] = {}
    for repeat in range(1, REPEATS + 1):
        order = list(POLICIES)
        random.Random(repeat).shuffle(order)
        for policy in order:
            progress(f"llama.cpp, repeat {repeat} of {REPEATS}: {policy}")
            for quantity, value in _one(room, model, policy, conversations(repeat)).items():
                samples.setdefault(f"llama.{policy}:{quantity}", []).append(value)
    return samples


def order_of(samples: Mapping[str, Sequence[float]]) -> list[str]:
    """Policies by the median of the repeats' means, whose clients waited least first."""
    return sorted(POLICIES, key=lambda policy: median(samples[f"llama.{policy}:mean_ms"]))


def _one(room: Room, model: Path, policy: str, requests: Sequence[Sent]) -> Mapping[str, float]:
    plugins, bound, picker = POLICIES[policy]
    folder = model.parent
    own = os.sched_getaffinity(0)
    os.sched_setaffinity(0, set(room.cpus))
    try:
        with _servers(folder, model) as urls:
            ports = [urlsplit(url).port or 0 for url in urls]
            config = config_text(ports, source="{name: bundled}", types={}, bound=bound)
            with run_host(folder / policy, {"host.yaml": config, "picker.yaml": picker}, plugins=plugins) as host:
                # The first request of each server is slow whatever it asks.
                asyncio.run(ask_in_turn(host.port, [Sent(0.0, "are you there?", 1)] * (2 * SERVERS), SERVERS))
                before = sum(map(_computed, ports))
                answers = asyncio.run(ask_in_turn(host.port, requests, IN_FLIGHT))
                computed = sum(map(_computed, ports)) - before
                degraded = host.degraded()
    finally:
        os.sched_setaffinity(0, own)
    failed = sum(answer.status != 200 for answer in answers)
    if failed or degraded:
        raise RuntimeError(
            f"{policy}: {failed} of {len(answers)} requests failed, {degraded:.0f} decisions were degraded"
        )
    waits = sorted(answer.ttft_s * 1e3 for answer in answers)
    return {
        "mean_ms": sum(waits) / len(waits),
        "p50_ms": waits[len(waits) // 2],
        "p90_ms": waits[int(len(waits) * 0.9)],
        "computed_percent": computed / sum(len(sent.prompt) for sent in requests) * 100,
    }


@contextmanager
def _servers(folder: Path, model: Path) -> Iterator[list[str]]:
    """Fresh servers; what they computed before is gone."""
    with ExitStack() as stack:
        servers = []
        for number in range(SERVERS):
            spec = LlamaSpec(model, folder / f"llama-{number}.log", MODEL, 0, SLOTS, SLOT_CONTEXT)
            servers.append(LlamaServer.start(spec))
            stack.callback(anyio.run, servers[-1].stop)
        for server in servers:
            anyio.run(server.wait_ready)
        yield [server.url for server in servers]


def _computed(port: int) -> float:
    """Tokens of prompts that a server has computed, those that it found in its cache left out."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", "/metrics")
        page = _READER.read(connection.getresponse().read())
    finally:
        connection.close()
    return sum(sample.value for sample in page.samples.get(_COMPUTED, ()))


def _table(samples: Mapping[str, Sequence[float]]) -> Table:
    order = order_of(samples)
    table = Table(
        box=SIMPLE_HEAD,
        padding=0,
        show_edge=False,
        title=f"Q2: policies before {SERVERS} llama.cpp servers, time to first token",
        caption=f"medians (and range) over {REPEATS} repeats; order seen: {' < '.join(order)}",
    )
    for header in ("policy", "mean ms", "p50 ms", "p90 ms", "prompt tokens computed %"):
        table.add_column(header, justify="left" if header == "policy" else "right")
    for policy in order:
        quantities = ("mean_ms", "p50_ms", "p90_ms", "computed_percent")
        table.add_row(policy, *(_cell(samples[f"llama.{policy}:{quantity}"]) for quantity in quantities))
    return table


def _cell(values: Sequence[float]) -> str:
    return f"{median(values):.0f} ({min(values):.0f}–{max(values):.0f})"


STUDIES = (Study("real-servers", tuple(f"llama.{policy}" for policy in POLICIES), take),)
PROBES: tuple[Probe, ...] = ()
CHARTS: tuple[Chart, ...] = ()

FIGURES = (
    Figure("Q2", "llama.cpp, first token: prefix ÷ random", "llama.prefix:mean_ms", "llama.random:mean_ms",
           Goal(Bound.AT_MOST, 1), NOTE),
    Figure("Q2load", "the same, prefix ÷ least load", "llama.prefix:mean_ms", "llama.load:mean_ms", note=NOTE),
    Figure("Q2p90", "the same, p90, prefix ÷ random", "llama.prefix:p90_ms", "llama.random:p90_ms", note=NOTE),
    Figure("Q2own", "share computed, prefix ÷ random", "llama.prefix:computed_percent",
           "llama.random:computed_percent", note=NOTE),
)  # fmt: skip
