"""A lock that the configuration names, or names no more, waits for `apply`; a start acts upon it at once."""

from pathlib import Path

import pytest
from hotbay.errors import InputError
from hotbay.operator_files import OperatorFiles
from hotbay.store.digests import Digest
from hotbay.store.world.engine import Put
from hotbay.store.world.memory import MemoryWorld
from hotbay.store.world.records import Locked, ManifestRef

pytestmark = pytest.mark.anyio
LINE = Locked("sample", "L", Digest("sha256:" + "ab" * 32), 1, "")
LOCK = f"apiVersion: hotbay/v1alpha1\nkind: Lock\npackages:\n- {{id: sample, platform: L, digest: '{LINE.digest}', rev: 1}}\n"


class Bay:
    """A lock file that a configuration may name, and a world."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "hotbay.lock"
        self.path.write_text(LOCK)
        self.named: Path | None = None
        self.world = MemoryWorld()
        self.files = OperatorFiles(lambda: self.named)
        self.files.view = lambda: self.world.view

    async def hold(self) -> None:
        await self.world.transact(lambda _: [Put(LINE)])

    def told(self) -> list[str]:
        return [str(problem) for problem in self.files.problems]


@pytest.fixture
def bay(tmp_path: Path) -> Bay:
    return Bay(tmp_path)


async def test_lock_that_the_configuration_names_no_more_stays_in_force_and_is_told(bay: Bay) -> None:
    await bay.hold()
    (problem,) = bay.told()
    assert problem.startswith("LOCK_WAITS: the lock stays in force, though the configuration names none")
    assert "`hotbay apply` ends it" in problem


async def test_lock_that_a_reload_adds_waits_and_is_told_until_it_is_applied(bay: Bay) -> None:
    bay.named = bay.path
    bay.files.lock_lines()
    (problem,) = bay.told()
    assert "hotbay.lock says is not in force yet" in problem
    assert bay.world.view.all(Locked) == ()
    await bay.hold()
    assert bay.told() == []


async def test_changed_lock_file_that_was_looked_at_is_told_until_it_is_applied(bay: Bay) -> None:
    bay.named = bay.path
    await bay.hold()
    bay.path.write_text(LOCK.replace("rev: 1", "rev: 2"))
    assert bay.told() == [], "nobody looked"
    bay.files.lock_lines()
    (problem,) = bay.told()
    assert "is not in force yet" in problem


async def test_lock_file_without_a_line_is_none(bay: Bay) -> None:
    bay.path.write_text("apiVersion: hotbay/v1alpha1\nkind: Lock\npackages: []\n")
    bay.named = bay.path
    bay.files.lock_lines()
    assert bay.told() == []


async def test_start_obeys_a_first_lock_at_once(bay: Bay) -> None:
    bay.named = bay.path
    await bay.files.obey_lock(bay.world)
    assert bay.world.view.all(Locked) == (LINE,)
    assert bay.told() == []


@pytest.mark.parametrize(("rev", "is_refused"), [(1, False), (2, True)])
async def test_line_of_a_digest_that_the_world_knows_as_another_revision_is_refused(
    bay: Bay, rev: int, is_refused: bool
) -> None:
    await bay.world.transact(lambda _: [Put(ManifestRef("sample", rev, "L", LINE.digest, "mine", "", b""))])
    bay.named = bay.path
    if not is_refused:
        assert bay.files.lock_lines() == (LINE,)
        return
    with pytest.raises(InputError, match=r"hotbay\.lock:4:\d+: .*rev 2 of sample for L, not rev 1"):
        bay.files.lock_lines()
