"""What of the operator's files waits, and the lock whose file cannot be used."""

from pathlib import Path

import pytest
from hotbay.errors import CapacityError, InputError, Problem
from hotbay.operator_files import HeldBack, OperatorFiles
from hotbay.store.digests import Digest
from hotbay.store.world.engine import Put
from hotbay.store.world.memory import MemoryWorld
from hotbay.store.world.records import Locked

pytestmark = pytest.mark.anyio
LINE = Locked("sample", "python-cp311-linux-x86_64", Digest("sha256:" + "ab" * 32), 1, "")
LOCK = (
    "apiVersion: hotbay/v1alpha1\nkind: Lock\npackages:\n"
    f"- {{id: sample, platform: python-cp311-linux-x86_64, digest: '{LINE.digest}', rev: 1, signer: ''}}\n"
)


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    return tmp_path / "hotbay.lock"


@pytest.fixture
def files(lock: Path) -> OperatorFiles:
    return OperatorFiles(lambda: lock)


async def fine() -> None: ...


async def test_change_that_cannot_be_applied_waits_on(files: OperatorFiles) -> None:
    async def fail() -> None:
        raise CapacityError("UNAVAILABLE", "not now")

    files.hold_back(HeldBack(("first",), fail))
    for _ in range(2):
        with pytest.raises(CapacityError):
            await files.apply()
        assert await files.waiting() == ("first",)


async def test_change_that_came_while_another_failed_to_apply_is_the_one_that_waits(files: OperatorFiles) -> None:
    newer = HeldBack(("newer",), fine)

    async def fail() -> None:
        files.hold_back(newer)
        raise CapacityError("UNAVAILABLE", "not now")

    files.hold_back(HeldBack(("first",), fail))
    with pytest.raises(CapacityError):
        await files.apply()
    assert await files.waiting() == ("newer",)
    assert await files.apply() == ("newer",)
    assert await files.apply() == ()


async def test_file_that_is_wrong_refuses_to_be_shown_and_applied_until_it_is_right(files: OperatorFiles) -> None:
    files.hold_back(HeldBack(("valid",), fine))
    files.hold_back(InputError([Problem("CONFIG_INVALID", "bad")]))
    for _ in range(2):
        with pytest.raises(InputError, match="bad"):
            await files.apply()
        with pytest.raises(InputError, match="bad"):
            await files.waiting()
    files.hold_back(None)
    assert await files.waiting() == await files.apply() == ()


async def test_what_waits_is_looked_for_before_it_is_shown_or_applied(files: OperatorFiles) -> None:
    names = iter("ab")

    async def look() -> None:
        files.hold_back(HeldBack((next(names),), fine))

    files.look = look
    assert await files.waiting() == ("a",)
    assert await files.apply() == ("b",)


@pytest.mark.parametrize("content", [None, "kind: Lock\n", "packages: [\n"])
async def test_lock_of_the_world_stays_in_force_when_its_file_cannot_be_used(
    files: OperatorFiles, lock: Path, content: str | None
) -> None:
    world = MemoryWorld()
    await world.transact(lambda _: [Put(LINE)])
    if content is not None:
        lock.write_text(content)  # noqa: ASYNC240 - a line, in a test
    await files.obey_lock(world)
    assert world.view.all(Locked) == (LINE,)
    problem = files.problems[0]
    assert problem.place is not None
    assert problem.place.file == str(lock)
    assert "the lock that was applied last stays in force" in problem.message
    with pytest.raises(InputError):
        files.lock_lines()
    lock.write_text(LOCK)  # noqa: ASYNC240 - a line, in a test
    assert files.lock_lines() == (LINE,)
    assert files.problems == ()


def test_lock_of_a_refused_configuration_leaves_nothing_behind(files: OperatorFiles, tmp_path: Path) -> None:
    other = tmp_path / "other.lock"
    other.write_text("packages: [\n")
    with pytest.raises(InputError, match=r"other\.lock"):
        files.read_lock(other)
    assert files.problems == (), "it is no problem of what is in force"


@pytest.mark.parametrize("refused", [None, "good"])
def test_problem_of_the_lock_in_force_outlives_a_refused_configuration_with_another_or_none(
    lock: Path, tmp_path: Path, refused: str | None
) -> None:
    in_force: list[Path | None] = [lock]
    files = OperatorFiles(lambda: in_force[0])
    lock.write_text("packages: [\n")
    with pytest.raises(InputError):
        files.lock_lines()
    other = tmp_path / refused if refused is not None else None
    if other is not None:
        other.write_text(LOCK)
    files.read_lock(other)
    (problem,) = files.problems
    assert problem.place is not None
    assert problem.place.file == str(lock)
    in_force[0] = other
    assert files.problems == (), "in force, the other one has no problem"
    lock.write_text(LOCK)
    files.read_lock(lock)
    in_force[0] = lock
    assert files.problems == ()


def test_problem_of_a_lock_that_a_reload_was_refused_for_is_told_once(files: OperatorFiles, lock: Path) -> None:
    lock.write_text("packages: [\n")
    with pytest.raises(InputError) as refused:
        files.read_lock(lock)
    other = Problem("CONFIG_INVALID", "something else")
    files.refuse([*refused.value.problems, other])
    assert [problem.message.endswith("stays in force") for problem in files.problems] == [False, True]
    assert files.problems[0] is other
    files.refuse(())
    assert len(files.problems) == 1


async def test_lock_file_that_cannot_be_used_is_an_error_where_the_world_holds_no_lock(
    files: OperatorFiles, lock: Path
) -> None:
    lock.write_text("kind: Lock\n")  # noqa: ASYNC240 - a line, in a test
    world = MemoryWorld()
    with pytest.raises(InputError, match=r"hotbay\.lock"):
        await files.obey_lock(world)
    lock.write_text(LOCK)  # noqa: ASYNC240 - a line, in a test
    await files.obey_lock(world)
    assert world.view.all(Locked) == (LINE,)


async def test_lock_ends_with_a_configuration_that_names_none() -> None:
    world = MemoryWorld()
    await world.transact(lambda _: [Put(LINE)])
    await OperatorFiles(lambda: None).obey_lock(world)
    assert world.view.all(Locked) == ()
