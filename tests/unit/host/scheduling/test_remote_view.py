"""What the host leaves out of a call's view is what the process holds: checked against the SDK's own memory of views."""

import asyncio
from collections.abc import Callable, Sequence

from hotbay.datalayer.endpoint import EndpointMetadata, Metrics
from hotbay.datalayer.store import EndpointStore
from hotbay.datalayer.tables.snapshot import Snapshot
from hotbay.scheduling.remote import Remote
from hotbay.scheduling.statistics import CallCounters
from hotbay_sdk._batch import HeldView, take_view
from hypothesis import given
from hypothesis import strategies as st

Call = tuple[int, tuple[str, ...]]
"""Which of SNAPSHOTS the cycle took, and the columns that the call needs."""

NOBODY_MAKES = "attribute.nobody_makes"
COLUMN_SETS = (
    (),
    ("endpoint.waiting",),
    ("endpoint.running", "endpoint.waiting"),
    (NOBODY_MAKES,),
    (NOBODY_MAKES, "endpoint.waiting"),
)


class Tally:
    def invalid_scores(self, ref: str, count: int) -> None: ...

    def plugin_error(self, point: str, ref: str, code: str) -> None: ...

    def call_timer(self, plugin: str, point: str) -> Callable[[float], None]:
        return lambda duration_s: None


def snapshots() -> list[Snapshot]:
    """Publications of one store: two of the same membership, then two of another."""
    store = EndpointStore()
    found = []
    for waiting, names in enumerate([("a", "b"), ("a", "b"), ("a", "b", "c"), ("a", "b", "c")], start=1):
        for name in names:
            store.upsert(EndpointMetadata(f"default/{name}", name, "10.0.0.1", 8000))
            store.update_metrics(f"default/{name}", Metrics(waiting=float(waiting)), float(waiting))
        store.publish(float(waiting))
        found.append(store.snapshot)
    assert len({snapshot.epoch for snapshot in found}) == len(found)
    return found


SNAPSHOTS = snapshots()


async def _call(calls: Sequence[Call]) -> None:
    # Views do not depend on what the generation is or answers.
    remote = Remote(None, counters=CallCounters(Tally()), advance=lambda cycle: None)  # type: ignore[arg-type]
    held: HeldView | None = None
    for index, columns in calls:
        snapshot = SNAPSHOTS[index]
        held = take_view(remote.view(snapshot, columns), held)
        assert held.rows == snapshot.rows
        for name in columns:
            assert held.columns is not None, (index, columns)
            assert held.columns.get(name) == (snapshot.column_bytes(name) if name != NOBODY_MAKES else None)


@given(st.lists(st.tuples(st.integers(0, len(SNAPSHOTS) - 1), st.sampled_from(COLUMN_SETS)), max_size=12))
def test_any_order_of_calls_finds_its_columns_held_or_sent(calls: list[Call]) -> None:
    asyncio.run(_call(calls))


def test_a_call_without_columns_on_an_older_snapshot_does_not_lose_the_newer_ones_columns() -> None:
    waiting = COLUMN_SETS[1]
    asyncio.run(_call([(0, waiting), (1, waiting), (0, ()), (1, waiting)]))


def test_a_type_that_reads_only_what_nobody_makes_is_answered_in_an_epoch_that_another_call_began() -> None:
    asyncio.run(_call([(0, ()), (0, (NOBODY_MAKES,)), (0, (NOBODY_MAKES,)), (1, ()), (1, (NOBODY_MAKES,))]))
