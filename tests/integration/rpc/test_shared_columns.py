"""Columns in real shared memory: a process reads what the host publishes, nothing torn, and nothing is left behind."""

import asyncio
import json
import os
import struct
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import hotbay_sdk
import msgpack
import numpy as np
import pytest
from hotbay.datalayer.endpoint import EndpointMetadata, Metrics
from hotbay.datalayer.store import EndpointStore
from hotbay.datalayer.tables.freshness import Freshness, StalePolicy
from hotbay.datalayer.tables.snapshot import EMPTY_SNAPSHOT, Snapshot
from hotbay.errors import HostError
from hotbay.observe.metrics import Metrics as HostMetrics
from hotbay.rpc.leases import Generation, Origin
from hotbay.rpc.memfd import SharedArea
from hotbay.scheduling import outputs
from hotbay.scheduling.outputs import OUTPUT_FROM_BYTES, REGIONS
from hotbay.scheduling.remote import Remote
from hotbay.scheduling.shared_view import FEATURE, Ring, SharedColumns
from hotbay.scheduling.statistics import CallCounters
from hotbay_sdk.protocol import DescriptorsReceived, Method
from hotbay_sdk.protocol.calls import POINT_SCORE

pytestmark = pytest.mark.process

TIMEOUT_S = 60.0
MEMFD = "memfd:hotbay-columns"
SCORES = "memfd:hotbay-scores"
COLUMNS = ("attribute.hits", "endpoint.in_flight", "endpoint.waiting")

SOURCE = """
    from hotbay_sdk import Plugin, Scorer
    NUMPY = False
    plugin = Plugin("served")

    @plugin.type("sums", reads=["endpoint.waiting", "endpoint.in_flight", "attribute.hits"])
    class Sums(Scorer):
        def score_batch(self, requests, endpoints):
            waiting, hits = endpoints.column("endpoint.waiting"), endpoints.column("attribute.hits")
            if NUMPY:
                import numpy as np
                row = np.asarray(waiting) + 100 * np.asarray(hits) + np.asarray(endpoints.column("endpoint.in_flight"))
                return np.tile(row.astype("f4"), (len(requests), 1))
            return [[e.waiting + 100 * e.column("attribute.hits") + e.in_flight for e in endpoints] for _ in requests]
"""


def hold(store: EndpointStore, names: Iterable[str]) -> None:
    """Make the store hold exactly these."""
    wanted = {f"default/{name}": name for name in names}
    for one, name in wanted.items():
        store.upsert(EndpointMetadata(one, name, "10.0.0.1", 8000))
    for endpoint in store.endpoints():
        if endpoint.id not in wanted:
            store.delete(endpoint.id)


class Served:
    """A process that scores, and what calls it as a router does."""

    def __init__(self, process: Any, *, from_bytes: int = 1) -> None:
        self.shared = SharedColumns(from_bytes=from_bytes)
        self.process = process
        features = frozenset({FEATURE, outputs.FEATURE})
        origin = Origin("served", "1.0.0", 1, "sha256:0")
        generation = Generation(1, origin, process.client, process.types, process.process.pid, features=features)
        self.generation = generation
        self.remote = self.published()
        self.store = EndpointStore(Freshness(policy=StalePolicy.IGNORE))
        self.store.declare_attributes({"hits": "i64"})
        self.now = 0.0
        self.in_areas = 0

    def published(self) -> Remote:
        """What a router makes for the process when it publishes it after it did not."""
        counters = CallCounters(HostMetrics())
        return Remote(self.generation, counters=counters, advance=lambda cycle: None, shared=self.shared)

    def publish(self, rows: int) -> Snapshot:
        self.now += 1.0
        hold(self.store, map(str, range(rows)))
        for row in range(rows):
            self.store.update_metrics(f"default/{row}", Metrics(waiting=self.now % 97), self.now)
            self.store.put_attributes(f"default/{row}", {"hits": row + int(self.now)}, self.now)
        return self.store.publish(self.now)

    def publish_few(self, rows: int, step: int) -> Snapshot:
        """Another membership, and one endpoint with other figures."""
        self.now += 1.0
        hold(self.store, map(str, range(rows)))
        self.store.update_metrics("default/0", Metrics(waiting=float(step % 89)), self.now)
        for row in range(rows):
            if self.store.snapshot.rows <= row:
                self.store.update_metrics(f"default/{row}", Metrics(waiting=1.0), self.now)
                self.store.put_attributes(f"default/{row}", {"hits": row}, self.now)
        return self.store.publish(self.now)

    async def score(self, snapshot: Snapshot) -> list[float]:
        view = self.remote.view(snapshot, COLUMNS)
        self.in_areas += len(view) == 6
        outcome = await self._run(view)
        if isinstance(outcome, HostError) and outcome.details.get("missing") == "columns":
            self.remote.forget_view()
            outcome = await self._run(self.remote.view(snapshot, COLUMNS))
        assert isinstance(outcome, list), outcome
        assert outcome[2] == [], outcome[2]
        return list(struct.unpack(f"<{snapshot.rows}f", outcome[1]))

    async def _run(self, view: list[object]) -> Any:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        args = [[[POINT_SCORE, [1, 1]]], view, None, [1, [], None, {}, {}]]
        self.process.client.start_call(Method.RUN, args, deadline_s=TIMEOUT_S, done=future.set_result)
        return await asyncio.wait_for(future, TIMEOUT_S)


def expected(snapshot: Snapshot) -> list[float]:
    columns = snapshot.columns
    sums = columns["endpoint.waiting"] + 100 * columns["attribute.hits"] + columns["endpoint.in_flight"]
    return [float(value) for value in sums.astype(np.float32)]


OUTPUT_ROWS = OUTPUT_FROM_BYTES // 4


class Writes(Served):
    """A process that writes its scores into areas, several calls at once."""

    def begin(self, snapshot: Snapshot, deadline_s: float = TIMEOUT_S) -> "asyncio.Future[Any]":
        """Begin a call; the future of its result as a router takes it, once the process is done with it."""
        view, region = self.remote.view(snapshot, COLUMNS), self.remote.region(4 * snapshot.rows)
        args = [[[POINT_SCORE, [1, 1]]], view, None, [1, [], None, {}, {}], *([] if region is None else [region.place])]
        told: list[Any] = []
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def done(outcome: Any) -> None:
            self.in_areas += isinstance(outcome, list) and type(outcome[1]) is int
            told.append(outcome if region is None else region.taken(outcome))
            finish()

        def finish() -> None:
            if told and freed and not future.done():
                if region is not None:
                    region.give_back()
                future.set_result(told[0])

        freed: list[bool] = []

        def free() -> None:
            freed.append(True)
            finish()

        client = self.process.client
        client.start_call(Method.RUN, args, deadline_s=deadline_s, done=done, freed=free)
        return future


@pytest.mark.parametrize("numpy", [False, True])
def test_a_process_writes_its_scores_into_its_area(with_process: Callable, numpy: bool) -> None:
    async def body(start: Callable) -> None:
        at = str(Path(np.__file__).parents[1])
        source = (
            SOURCE.replace("NUMPY = False", f"NUMPY = True; import sys; sys.path.append({at!r})") if numpy else SOURCE
        )
        process = await start(source).start()
        await process.configure([(1, "sums", "sums", {})])
        found = Writes(process)
        for rows in (OUTPUT_ROWS, OUTPUT_ROWS, OUTPUT_ROWS + 7, OUTPUT_ROWS - 1):
            snapshot = found.publish(rows)
            # More than there are regions: the last ones are answered in the reply.
            futures = [found.begin(snapshot) for _ in range(REGIONS + 2)]
            for result in await asyncio.wait_for(asyncio.gather(*futures), TIMEOUT_S):
                assert result[2] == []
                assert list(struct.unpack(f"<{rows}f", result[1])) == expected(snapshot)
        assert found.in_areas == 2 * REGIONS
        # One that is given up keeps its region until the process is done with it.
        late = found.begin(snapshot := found.publish(OUTPUT_ROWS), deadline_s=1e-6)
        found.remote.forget_view()
        in_time = found.begin(snapshot)
        assert list(struct.unpack(f"<{OUTPUT_ROWS}f", (await in_time)[1])) == expected(snapshot)
        assert isinstance(await late, HostError) or (await late)[2] == []
        pid = found.process.process.pid
        assert areas_of(pid, SCORES) == 1
        found.remote.close()
        found.shared.keep(())
        assert not any(SCORES in name for name in descriptors_of("self"))

    with_process(body)


def test_a_shadow_that_comes_and_goes_leaves_no_area_and_no_descriptor_at_either_end(with_process: Callable) -> None:
    async def body(start: Callable) -> None:
        process = await start(SOURCE).start()
        await process.configure([(1, "sums", "sums", {})])
        found = Writes(process)
        pid = process.process.pid
        snapshot = found.publish(OUTPUT_ROWS)

        def held() -> tuple[int, int, int, int]:
            return (
                len(descriptors_of("self")),
                len(descriptors_of(pid)),
                areas_of("self", SCORES),
                areas_of(pid, SCORES),
            )

        async def shadow() -> None:
            found.remote = found.published()
            # The first is answered in its reply, and asks for the area that the second has.
            await found.begin(snapshot)
            await settled()
            await found.begin(snapshot)
            found.remote.close()
            await settled()

        async def settled() -> None:
            # The process has then dealt with what was sent to it on that link before.
            await process.client.control_call(Method.CONFIGURE, [{"create": [], "drop": []}], deadline_s=TIMEOUT_S)

        await shadow()
        before, in_areas = held(), found.in_areas
        for _ in range(20):
            await shadow()
        assert found.in_areas - in_areas == 20
        assert held() == before
        assert before[2:] == (0, 0)
        found.shared.keep(())

    with_process(body)


async def served(start: Callable, source: str = SOURCE) -> Served:
    process = await start(source).start()
    await process.configure([(1, "sums", "sums", {})])
    return Served(process)


async def score_all(found: Served, rows: Sequence[int]) -> None:
    for count in rows:
        snapshot = found.publish(count)
        assert await found.score(snapshot) == expected(snapshot)


@pytest.mark.parametrize("numpy", [False, True])
def test_a_process_computes_on_what_lies_in_its_areas(with_process: Callable, numpy: bool) -> None:
    async def body(start: Callable) -> None:
        at = str(Path(np.__file__).parents[1])
        source = (
            SOURCE.replace("NUMPY = False", f"NUMPY = True; import sys; sys.path.append({at!r})") if numpy else SOURCE
        )
        found = await served(start, source)
        await score_all(found, [40] * 30)
        assert found.in_areas > 20
        # A group, an area: a map, and the descriptor that Python keeps with it.
        assert memfds_of(found.process.process.pid) == 3
        assert areas_of(found.process.process.pid) == 3
        found.shared.keep(())

    with_process(body)


def descriptors_of(pid: int | str) -> list[str]:
    names = []
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        try:
            names.append(str(entry.readlink()))
        except FileNotFoundError:
            # The descriptor of the listing itself.
            continue
    return names


def memfds_of(pid: int | str) -> int:
    return sum(MEMFD in name for name in descriptors_of(pid))


def areas_of(pid: int | str, name: str = MEMFD) -> int:
    return Path(f"/proc/{pid}/maps").read_text().count(name)


def test_a_thousand_memberships_leave_no_memory_and_no_descriptor_at_either_end(with_process: Callable) -> None:
    async def body(start: Callable) -> None:
        found = await served(start)
        pid = found.process.process.pid

        def held() -> tuple[int, int, int, int]:
            return len(descriptors_of("self")), areas_of("self"), len(descriptors_of(pid)), areas_of(pid)

        # Both capacities that occur have been there, one after the other.
        await score_all(found, [3, 80, 80, 3, 3, 80, 80])
        before, in_areas = held(), found.in_areas
        sizes = [3 + (7 * step) % 60 + (80 if step % 100 < 50 else 0) for step in range(1000)]
        for step, size in enumerate(sizes):
            snapshot = found.publish_few(size, step)
            np.testing.assert_array_equal(await found.score(snapshot), expected(snapshot))
        await score_all(found, [80, 80, 80])
        assert found.in_areas - in_areas > 800
        after = held()
        assert after[:3] == before[:3]
        # What is to be dropped is named with the next area of its group.
        assert after[3] <= 6
        found.shared.keep(())
        assert areas_of("self") == 0

    with_process(body)


def test_a_peer_that_never_answers_is_asked_once_and_no_area_is_kept_for_it(with_peer: Callable) -> None:
    async def body(peer: Any) -> None:
        shared = SharedColumns(from_bytes=1)
        generation = Generation(
            1, Origin("p", "1.0.0", 1, "sha256:0"), peer.client, {}, 1, features=frozenset({FEATURE})
        )
        counters = CallCounters(HostMetrics())
        remote = Remote(generation, counters=counters, advance=lambda cycle: None, shared=shared)
        store = EndpointStore()
        for step in range(100):
            names = [f"{n}" for n in range((10, 500)[step % 2])]
            hold(store, names)
            assert len(remote.view(store.publish(float(step)), ("endpoint.waiting",))) == 5
        # The area of now, with the descriptor of its map and the one to pass, and the one that is on its way.
        assert (memfds_of("self"), areas_of("self")) == (3, 1)
        shared.keep(())
        assert (memfds_of("self"), areas_of("self")) == (1, 0)
        # It was asked for the first alone.
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        data, ancillary, _, _ = peer.channel.peer_control.recvmsg(1 << 16, 64)
        passed = np.frombuffer(ancillary[0][2], np.int32).tolist()
        peer.control.take_descriptors(tuple(passed))
        event, call = peer.control.feed(data)
        assert isinstance(event, DescriptorsReceived)
        assert call.args == [[1], []]
        for descriptor in passed:
            os.close(descriptor)
        assert memfds_of("self") == 0

    with_peer(body)


# -- a writer at full speed ------------------------------------------------------------------------

ROWS = 4096
ENOUGH = 300
READER = """
import json, sys
sys.path[:0] = {paths}
from hotbay_sdk._areas import Area
area = Area.of({descriptor})
names = frozenset(["endpoint.waiting", "endpoint.num_blocks"])
layout = area.layout
found = dict(accepted=0, refused=0, torn=0)
while found["accepted"] < {enough} or found["refused"] < {enough} or ({checked} == 0 and found["torn"] < 3):
    stamps = [area._stamps[begin // 8] for begin in area._begins]
    # The slot that is written next.
    stamp = min(stamp for stamp in stamps if stamp)
    slot = stamps.index(stamp)
    if {checked}:
        copied = area.copy(slot, stamp, names, {rows})
    else:
        begin = area._begins[slot]
        copied = {{name: bytes(area._memory[begin + p.offset : begin + p.offset + {rows} * (8 if p.format == "q" else 4)])
                  for name, p in layout.columns.items()}}
        found["refused"] += area._stamps[begin // 8] != stamp
    if copied is None:
        found["refused"] += 1
        continue
    found["accepted"] += 1
    waiting = memoryview(copied["endpoint.waiting"]).cast("f")
    blocks = memoryview(copied["endpoint.num_blocks"]).cast("q")
    values = {{int(value) for value in waiting[::64]}} | set(blocks[::64])
    values |= {{int(waiting[-1]), blocks[-1]}}
    found["torn"] += values != {{stamp}}
print(json.dumps(found))
"""


def uniform(epoch: int) -> Snapshot:
    """Every figure is the epoch."""
    columns = {
        "endpoint.waiting": np.full(ROWS, epoch, np.float32),
        "endpoint.num_blocks": np.full(ROWS, epoch, np.int64),
    }
    return replace(EMPTY_SNAPSHOT, epoch=epoch, rows=ROWS, columns=columns)


def read_while_written(*, checked: bool) -> dict[str, int]:
    schema = (("endpoint.waiting", "endpoint.waiting", "f"), ("endpoint.num_blocks", "endpoint.num_blocks", "q"))
    ring = Ring(1, schema, ROWS, SharedArea.snapshot)
    paths = [str(Path(module.__file__ or "").parents[1]) for module in (hotbay_sdk, msgpack)]
    inherited = os.dup(ring.descriptor)
    code = READER.format(paths=paths, descriptor=inherited, rows=ROWS, enough=ENOUGH, checked=int(checked))
    command = [sys.executable, "-I", "-S", "-c", code]
    reader = subprocess.Popen(command, pass_fds=[inherited], stdout=subprocess.PIPE)
    os.close(inherited)
    try:
        # A float32 counts exactly so far.
        epoch = 0
        while reader.poll() is None and epoch < 1 << 24:
            epoch += 1
            ring.place(uniform(epoch))
        output, _ = reader.communicate(timeout=TIMEOUT_S)
    finally:
        reader.kill()
        reader.wait(TIMEOUT_S)
        ring.close()
    found: dict[str, int] = json.loads(output)
    return found


@pytest.mark.timeout(60)
def test_no_torn_read_is_accepted_from_a_writer_at_full_speed() -> None:
    found = read_while_written(checked=True)
    assert found["torn"] == 0
    assert found["accepted"] >= ENOUGH
    assert found["refused"] >= ENOUGH


@pytest.mark.timeout(60)
def test_without_the_check_after_the_copy_torn_reads_are_seen() -> None:
    assert read_while_written(checked=False)["torn"] >= 3
