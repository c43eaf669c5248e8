"""The whole product over HTTP, beside the same load on the server that it stands in front of.

Load generator and servers share one CPU, host and plugins the other. The direct figures have the load CPU alone.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from benchmarks.figure import Bound, Chart, Figure, Goal
from benchmarks.host import HostProcess, open_host
from benchmarks.load import Load, open_server
from benchmarks.probes import Probe, Room, Sample, TakeSample

SERVERS = 3
CONNECTIONS = 32

JSON = Load(CONNECTIONS)
STREAMED = Load(CONNECTIONS, streamed=True)
PICK = Load(CONNECTIONS, path="/pick", seconds=0.5)
"""Short, because picks stay unsettled: the table of a minute's picks is bounded."""
ONE = Load(1, seconds=0.5)

DIRECT = "direct"
PLAIN = "gateway"
PREFIX = "gateway+prefix"


@contextmanager
def open_direct(room: Room) -> Iterator[TakeSample]:
    """The server alone."""
    with open_server(room) as port:

        def take() -> Sample:
            return {
                **_named("json", JSON.run(room, port)),
                **_named("sse", STREAMED.run(room, port)),
            }

        yield take


@contextmanager
def open_plain(room: Room) -> Iterator[TakeSample]:
    """The host with three scorers; the one connection is measured right after the same on the server alone."""
    with _host(room, "plain", prefix_index=False) as (host, ports):

        def take() -> Sample:
            direct = ONE.run(room, ports[0])
            one = host.measure(room, ONE, endpoints=SERVERS)
            return {
                **_measured(host, room),
                **_named("sse", host.measure(room, STREAMED, endpoints=SERVERS)),
                "one.p50_us": one["p50_us"],
                "one.direct_p50_us": direct["p50_us"],
                "one.added_p50_us": one["p50_us"] - direct["p50_us"],
            }

        yield take


@contextmanager
def open_prefix(room: Room) -> Iterator[TakeSample]:
    """The host with three scorers and the prefix index."""
    with _host(room, "prefix", prefix_index=True) as (host, _):
        yield lambda: _measured(host, room)


@contextmanager
def _host(room: Room, name: str, *, prefix_index: bool) -> Iterator[tuple[HostProcess, list[int]]]:
    with ExitStack() as stack:
        ports = [stack.enter_context(open_server(room)) for _ in range(SERVERS)]
        yield stack.enter_context(open_host(room, name, ports, prefix_index=prefix_index)), ports


def _measured(host: HostProcess, room: Room) -> Sample:
    return {
        **_named("json", host.measure(room, JSON, endpoints=SERVERS)),
        **_named("pick", host.measure(room, PICK, endpoints=SERVERS)),
    }


def _named(name: str, sample: Sample) -> Sample:
    return {f"{name}.{quantity}": value for quantity, value in sample.items()}


PROBES = (Probe(DIRECT, open_direct), Probe(PLAIN, open_plain), Probe(PREFIX, open_prefix))

_FEATURES = (
    "hotbay run, 3 scorers in 3 processes, 3 servers scraped every 50 ms; isolation none; guard, metrics, retries and "
    "the request log (info, to a file) on; no authentication; deadlines 1 s; requests of 1 kB"
)
NOTE = f"{_FEATURES}; prefix index off"
PREFIX_NOTE = f"{_FEATURES}; prefix index on (a fourth process), every prompt equal: always a hit"
STREAM_NOTE = f"{NOTE}; 8 events a request, each a chunk and a send of its own"

FIGURES = (
    Figure("B5", "floor: C server, JSON, 32 clients", f"{DIRECT}:json.per_s"),
    Figure("B6", "floor: C server, SSE, 32 clients", f"{DIRECT}:sse.per_s"),
    Figure("H1", "gateway, JSON, 32 clients", f"{PLAIN}:json.per_s", f"{DIRECT}:json.per_s", note=NOTE),
    Figure("H2", "gateway, SSE, 32 clients", f"{PLAIN}:sse.per_s", f"{DIRECT}:sse.per_s", note=STREAM_NOTE),
    Figure("H3", "gateway, SSE, first byte", f"{PLAIN}:sse.first_p50_us", f"{DIRECT}:sse.first_p50_us", note=STREAM_NOTE),
    Figure("H4", "gateway, JSON, 1 client", f"{PLAIN}:one.p50_us", f"{PLAIN}:one.direct_p50_us", note=NOTE),
    Figure("H5", "gateway, JSON, 1 client, added", f"{PLAIN}:one.added_p50_us", note=NOTE),
    Figure("G13", "/pick, 32 clients", f"{PLAIN}:pick.per_s", f"{DIRECT}:json.per_s", Goal(Bound.AT_LEAST, 0.2),
           note=NOTE),
    Figure("H6", "gateway, JSON, prefix index on", f"{PREFIX}:json.per_s", f"{DIRECT}:json.per_s", note=PREFIX_NOTE),
    Figure("H7", "/pick, prefix index on", f"{PREFIX}:pick.per_s", f"{DIRECT}:json.per_s", note=PREFIX_NOTE),
)  # fmt: skip

CHARTS: tuple[Chart, ...] = ()
