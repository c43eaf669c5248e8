"""Any sequence of transactions, closings and reopenings leaves every engine where a dictionary would be."""

import asyncio
import shutil
import tempfile
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from pathlib import Path
from typing import TypeVar

import pytest
from hotbay.store.digests import digest_of
from hotbay.store.world.changes import view_of
from hotbay.store.world.codec import RECORD_KINDS
from hotbay.store.world.engine import Change, Delete, Put, World, WorldView
from hotbay.store.world.memory import MemoryWorld
from hotbay.store.world.records import Completion, Floor, Pin, Quarantine, Record
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

T = TypeVar("T")
Opener = Callable[[Path], Awaitable[World]]
IDS = st.sampled_from(["a", "b", "c"])
DIGESTS = st.sampled_from([digest_of(b"1"), digest_of(b"2"), digest_of(b"3")])
REVS = st.integers(0, 3)
RECORDS = st.one_of(
    st.builds(Floor, IDS, REVS),
    st.builds(Pin, IDS, st.none() | REVS, st.none() | DIGESTS, IDS, st.floats(0, 2)),
    st.builds(
        Quarantine, DIGESTS, IDS, REVS, IDS, st.text(max_size=3), REVS, st.just(0.0), st.none() | st.floats(0, 1)
    ),
    st.builds(Completion, DIGESTS, IDS, REVS, st.lists(st.tuples(DIGESTS, REVS)).map(tuple), IDS, IDS, st.just(1.0)),
)
DELETES = st.one_of(
    st.builds(Delete, st.sampled_from(["floor", "pin"]), IDS),
    st.builds(Delete, st.sampled_from(["quarantine", "completion"]), DIGESTS),
)
CHANGES = st.lists(st.one_of(RECORDS.map(Put), DELETES), max_size=6)


class WorldMachine(RuleBasedStateMachine):
    def __init__(self, opener: Opener) -> None:
        super().__init__()
        self._opener = opener
        self._folder = Path(tempfile.mkdtemp())
        self._runner = asyncio.Runner()
        self._model: dict[tuple[str, str], Record] = {}
        self._revision = 0
        self._world = self._run(self._open())

    def teardown(self) -> None:
        self._run(self._world.close())
        self._runner.close()
        shutil.rmtree(self._folder)

    @rule(changes=CHANGES)
    def transact(self, changes: Sequence[Change]) -> None:
        after = dict(self._model)
        for change in changes:
            if isinstance(change, Put):
                after[change.record.kind, change.record.key] = change.record
            else:
                after.pop((change.kind, change.key), None)
        self._revision += after != self._model
        self._model = after
        before = self._world.view
        view = self._run(self._world.transact(lambda _: changes))
        assert view is self._world.view
        for plugin_id in {*before.plugins, *view.plugins}:
            same = before.of(plugin_id) == view.of(plugin_id)
            assert (before.of(plugin_id) is view.of(plugin_id)) == same, "what did not change is the same object"

    @rule(changes=CHANGES)
    def fail(self, changes: Sequence[Change]) -> None:
        def build(_: WorldView) -> Sequence[Change]:
            raise LookupError

        with pytest.raises(LookupError):
            self._run(self._world.transact(build))

    @rule()
    def reopen(self) -> None:
        if not isinstance(self._world, MemoryWorld):
            self._run(self._world.close())
            self._world = self._run(self._open())

    @invariant()
    def agrees_with_the_model(self) -> None:
        view = self._world.view
        assert view.revision == self._revision
        assert view == view_of(self._revision, self._model.values()), "made by changes it is as made at once"
        assert view.count == len(self._model)
        for (kind, key), record in self._model.items():
            assert view.get(RECORD_KINDS[kind], key) == record
        assert list(view.plugins) == sorted(view.plugins)
        for records in view.plugins.values():
            assert all(records.tables.values()), "no empty table is left"
            for table in records.tables.values():
                assert list(table) == sorted(table)

    async def _open(self) -> World:
        return await self._opener(self._folder)

    def _run(self, work: Coroutine[object, object, T] | Awaitable[T]) -> T:
        async def waited() -> T:
            return await work

        return self._runner.run(waited())


@pytest.mark.timeout(120)
def test_world_agrees_with_a_dictionary(open_world: Opener) -> None:
    run_state_machine_as_test(lambda: WorldMachine(open_world))
