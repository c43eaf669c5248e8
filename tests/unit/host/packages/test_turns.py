"""Who fetches a blob when several want it."""

import anyio
import pytest
from hotbay.packages.turns import DisplacedError, Turns
from hotbay.store.digests import digest_of

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(60)]
BLOB, OTHER = digest_of(b"blob"), digest_of(b"other")


class Fetches:
    """Fetches that hold their turn until they are told to end. `log` is what happened, in order."""

    def __init__(self, patience_s: float = 0.05) -> None:
        self.turns = Turns(patience_s=patience_s)
        self.log: list[str] = []
        self.end = {name: anyio.Event() for name in "abc"}
        self.began = {name: anyio.Event() for name in "abc"}

    async def run(self, name: str, source: str, *, digest: str = BLOB) -> None:
        may_displace = True
        while True:
            try:
                async with self.turns.take(digest, source, may_displace=may_displace):  # type: ignore[arg-type]
                    self.log.append(f"{name} begins")
                    self.began[name].set()
                    await self.end[name].wait()
                    self.log.append(f"{name} ends")
            except DisplacedError:
                self.log.append(f"{name} displaced")
                may_displace = False
            else:
                return


async def test_turns_of_one_blob_follow_each_other_and_of_others_overlap() -> None:
    fetches = Fetches(patience_s=3600.0)
    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(fetches.run, "a", "x")
            await fetches.began["a"].wait()
            tasks.start_soon(fetches.run, "b", "y")
            tasks.start_soon(lambda: fetches.run("c", "x", digest=OTHER))
            await fetches.began["c"].wait()
            assert fetches.log == ["a begins", "c begins"]
            for name in "abc":
                fetches.end[name].set()
    assert fetches.log.index("a ends") < fetches.log.index("b begins")


async def test_who_stands_still_is_displaced_by_another_source_and_does_not_push_back() -> None:
    fetches = Fetches()
    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(fetches.run, "a", "x")
            await fetches.began["a"].wait()
            tasks.start_soon(fetches.run, "b", "y")
            await fetches.began["b"].wait()
            assert fetches.log == ["a begins", "a displaced", "b begins"]
            with anyio.move_on_after(0.3):  # six times the patience: nobody pushes back
                await anyio.sleep_forever()
            assert fetches.log[3:] == []
            fetches.end["a"].set()
            fetches.end["b"].set()
    assert fetches.log[3:] == ["b ends", "a begins", "a ends"]


async def test_same_source_displaces_nobody() -> None:
    fetches = Fetches()
    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(fetches.run, "a", "x")
            await fetches.began["a"].wait()
            tasks.start_soon(fetches.run, "b", "x")
            with anyio.move_on_after(0.3):
                await fetches.began["b"].wait()
            assert fetches.log == ["a begins"]
            fetches.end["a"].set()
            fetches.end["b"].set()


async def test_who_gets_on_is_not_displaced() -> None:
    turns = Turns(patience_s=0.2)
    second = anyio.Event()

    async def wait() -> None:
        async with turns.take(BLOB, "y", may_displace=True):
            second.set()

    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks, turns.take(BLOB, "x", may_displace=True) as turn:
            tasks.start_soon(wait)
            for _ in range(40):
                turn.moved()
                with anyio.move_on_after(0.01):
                    await second.wait()
            assert not second.is_set()


async def test_cancelled_waiter_leaves_no_trace() -> None:
    fetches = Fetches(patience_s=3600.0)
    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(fetches.run, "a", "x")
            await fetches.began["a"].wait()
            with anyio.move_on_after(0.05):
                await fetches.run("b", "y")
            fetches.end["a"].set()
        fetches.end["c"].set()
        await fetches.run("c", "z")
    assert fetches.log[-2:] == ["c begins", "c ends"]


async def test_of_two_who_lose_patience_at_once_one_gets_the_turn() -> None:
    fetches = Fetches()
    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(fetches.run, "a", "x")
            await fetches.began["a"].wait()
            tasks.start_soon(fetches.run, "b", "y")
            tasks.start_soon(fetches.run, "c", "z")
            await fetches.began["b"].wait()
            await fetches.began["c"].wait()
            for name in "abc":
                fetches.end[name].set()
    holders = 0
    for line in fetches.log:
        holders += 1 if line.endswith("begins") else -1
        assert holders <= 1, fetches.log
