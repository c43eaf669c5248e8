"""What every engine of the world must do, whoever wrote it."""

from collections.abc import Iterable

import anyio
import pytest
from hotbay.errors import CapacityError
from hotbay.store.digests import Digest, digest_of
from hotbay.store.world.engine import Change, Delete, Put, World, WorldView
from hotbay.store.world.records import Completion, Floor, Grant, ManifestRef, Pin

pytestmark = pytest.mark.anyio
DEADLINE_S = 25.0


def floor(plugin_id: str, rev: int) -> Put:
    return Put(Floor(plugin_id, rev))


async def test_opened_empty_at_revision_zero(world: World) -> None:
    assert world.view.revision == 0
    assert world.view.all(Floor) == ()
    assert world.view.get(Floor, "a") is None


async def test_transaction_shows_at_once_and_returns_the_view(world: World) -> None:
    view = await world.transact(lambda _: [floor("b", 2), floor("a", 1)])
    assert view is world.view
    assert view.revision == 1
    assert view.all(Floor) == (Floor("a", 1), Floor("b", 2))
    assert view.get(Floor, "b") == Floor("b", 2)


async def test_every_kind_of_value_is_kept(world: World) -> None:
    ref = ManifestRef(
        "a", 2**64 - 1, "any", digest_of(b"m"), "s", "place\udcff\u00e9\x00", bytes(range(256)), offered=False
    )
    done = Completion(digest_of(b"m"), "a", 3, ((digest_of(b"w"), 0), (digest_of(b"v"), 2**40)), "e", "t", 1.5)
    pins = Pin("a", 4, None, "me", 0.0), Pin("b", None, digest_of(b"x"), "me", 1e9)
    grant = Grant("a", ("network", "clock"), "me", 2.0)
    view = await world.transact(lambda _: [Put(record) for record in (ref, done, *pins, grant)])
    assert view.all(ManifestRef) == (ref,)
    assert view.all(Completion) == (done,)
    assert view.all(Pin) == pins
    assert view.all(Grant) == (grant,)


async def test_put_replaces_and_delete_removes(world: World) -> None:
    await world.transact(lambda _: [floor("a", 1), floor("b", 1)])
    view = await world.transact(lambda _: [floor("a", 2), Delete("floor", "b"), Delete("floor", "never there")])
    assert view.all(Floor) == (Floor("a", 2),)


async def test_later_change_of_a_transaction_wins(world: World) -> None:
    view = await world.transact(lambda _: [floor("a", 1), Delete("floor", "a"), floor("a", 2), floor("b", 1)])
    assert view.all(Floor) == (Floor("a", 2), Floor("b", 1))
    view = await world.transact(lambda _: [floor("b", 7), Delete("floor", "b")])
    assert view.all(Floor) == (Floor("a", 2),)


@pytest.mark.parametrize(
    "changes", [[], [floor("a", 1)], [Delete("floor", "b")], [floor("b", 1), Delete("floor", "b")]], ids=repr
)
async def test_changing_nothing_is_no_event(world: World, changes: list[Change]) -> None:
    before = await world.transact(lambda _: [floor("a", 1)])
    assert await world.transact(lambda _: changes) is before
    assert world.view.revision == 1


async def test_old_views_stay_as_they_were(world: World) -> None:
    old = await world.transact(lambda _: [floor("a", 1)])
    await world.transact(lambda _: [floor("a", 2), floor("b", 1)])
    assert old.all(Floor) == (Floor("a", 1),)


async def test_error_of_the_function_is_raised_and_changes_nothing(world: World) -> None:
    def build(_: WorldView) -> Iterable[Change]:
        yield floor("a", 1)
        raise KeyError("second thoughts")

    with pytest.raises(KeyError, match="second thoughts"):
        await world.transact(build)
    assert world.view.revision == 0
    assert (await world.transact(lambda _: [floor("a", 3)])).get(Floor, "a") == Floor("a", 3)


async def test_record_that_cannot_be_kept_is_refused_whole(world: World) -> None:
    bad = Pin("p", 1, None, "me", float("nan"))
    with pytest.raises(ValueError, match="JSON compliant"):
        await world.transact(lambda _: [floor("a", 1), Put(bad), floor("z", 1)])
    assert world.view.revision == 0
    assert world.view.all(Floor) == ()


async def test_overlapping_transactions_lose_no_update(world: World) -> None:
    def increment(view: WorldView) -> list[Change]:
        present = view.get(Floor, "a")
        return [floor("a", present.rev + 1 if present else 1)]

    async with anyio.create_task_group() as tasks:
        for _ in range(40):
            tasks.start_soon(world.transact, increment)
    assert world.view.get(Floor, "a") == Floor("a", 40)
    assert world.view.revision == 40


async def test_watch_wakes_everybody_who_waits(world: World) -> None:
    seen: list[int] = []

    async def watch() -> None:
        seen.append((await world.changed(0)).revision)

    with anyio.fail_after(DEADLINE_S):
        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(watch)
            await anyio.wait_all_tasks_blocked()
            assert seen == []
            await world.transact(lambda _: [floor("a", 1), floor("b", 1)])
    assert seen == [1, 1, 1]


async def test_hb08_change_before_the_wait_is_not_lost_and_no_change_does_not_wake(world: World) -> None:
    await world.transact(lambda _: [floor("a", 1)])
    with anyio.fail_after(DEADLINE_S):
        assert (await world.changed(0)).revision == 1
        woken: list[WorldView] = []

        async def watch() -> None:
            woken.append(await world.changed(1))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(watch)
            await world.transact(lambda _: [floor("a", 1)])
            await anyio.wait_all_tasks_blocked()
            assert woken == []
            await world.transact(lambda _: [floor("a", 2)])
    assert [view.get(Floor, "a") for view in woken] == [Floor("a", 2)]


async def test_slow_watcher_gets_the_newest_view_only(world: World) -> None:
    for rev in (1, 2, 3):
        await world.transact(lambda _, rev=rev: [floor("a", rev)])
    assert (await world.changed(0)).get(Floor, "a") == Floor("a", 3)


async def test_cancelled_wait_disturbs_nobody(world: World) -> None:
    with anyio.move_on_after(0):
        await world.changed(0)
    with anyio.fail_after(DEADLINE_S):
        await world.transact(lambda _: [floor("a", 1)])
        assert (await world.changed(0)).revision == 1


async def test_cancelled_transaction_is_there_whole_or_not_at_all(world: World) -> None:
    with anyio.CancelScope() as scope:
        scope.cancel()
        await world.transact(lambda _: [floor("a", 1), floor("b", 1)])
    assert len(world.view.all(Floor)) == 2 * world.view.revision
    view = await world.transact(lambda _: [floor("c", 1)])
    assert view.get(Floor, "c") == Floor("c", 1)


async def test_closed_world_is_read_and_not_written(world: World) -> None:
    await world.transact(lambda _: [floor("a", 1)])
    await world.close()
    await world.close()
    assert world.view.all(Floor) == (Floor("a", 1),)
    with pytest.raises(CapacityError, match="UNAVAILABLE"):
        await world.transact(lambda _: [floor("a", 2)])


async def test_keys_of_kinds_do_not_meet(world: World) -> None:
    digest = Digest("sha256:" + "0" * 64)
    view = await world.transact(lambda _: [floor("a", 1), Put(Pin("a", None, digest, "me", 0.0))])
    view = await world.transact(lambda _: [Delete("pin", "a")])
    assert view.all(Floor) == (Floor("a", 1),)
    assert view.all(Pin) == ()
