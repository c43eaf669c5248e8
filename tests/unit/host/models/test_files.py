"""Files of models are followed, and their last good content keeps counting."""

import asyncio
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from hotbay.errors import InputError
from hotbay.models.files import ModelFiles

pytestmark = pytest.mark.anyio
DEADLINE_S = 20.0


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def objective(name: str, priority: int) -> str:
    return f"apiVersion: llm-d.ai/v1alpha2\nkind: InferenceObjective\nmetadata: {{name: {name}}}\nspec: {{priority: {priority}}}\n"


def priorities(files: ModelFiles) -> dict[str, int]:
    return {name: one.priority for name, one in files.rules.objectives.items()}


class Results:
    """What looks came to."""

    def __init__(self) -> None:
        self.told = asyncio.Queue[str]()

    async def next(self) -> str:
        async with asyncio.timeout(DEADLINE_S):
            return await self.told.get()


@asynccontextmanager
async def followed(*paths: Path):
    results = Results()
    files = ModelFiles(paths, changed=results.told.put_nowait, resync_s=0.05)
    await files.load()
    async with anyio.create_task_group() as group:
        group.start_soon(files.run)
        yield files, results
        group.cancel_scope.cancel()


async def test_files_and_folders_are_read_in_their_order(tmp_path):
    single, folder = tmp_path / "a.yaml", tmp_path / "d"
    folder.mkdir()
    single.write_text(objective("one", 1))
    (folder / "b.yml").write_text(objective("two", 2) + "---\n" + objective("three", 3))
    (folder / "c.json").write_text(
        '{"apiVersion": "llm-d.ai/v1alpha2", "kind": "InferenceObjective", "metadata": {"name": "four"}, "spec": {"priority": 4}}'
    )
    (folder / ".hidden.yaml").write_text("broken: [")
    (folder / "notes.txt").write_text("broken: [")
    files = ModelFiles([single, folder])
    await files.load()
    assert priorities(files) == {"one": 1, "two": 2, "three": 3, "four": 4}


async def test_first_load_tells_every_problem_of_every_file(tmp_path):
    (tmp_path / "a.yaml").write_text(objective("x", 1).replace("priority", "priorty"))
    (tmp_path / "b.yaml").write_text("kind: 7\n")
    (tmp_path / "c.yaml").write_text(objective("same", 1))
    (tmp_path / "d.yaml").write_text(objective("same", 2))
    with pytest.raises(InputError) as error:
        await ModelFiles([tmp_path, tmp_path / "absent.yaml"]).load()
    named = {Path(problem.place.file).name for problem in error.value.problems}
    assert named == {"a.yaml", "b.yaml", "d.yaml", "absent.yaml"}


async def test_change_counts_and_a_bad_one_keeps_what_was_good(tmp_path):
    path = tmp_path / "m.yaml"
    path.write_text(objective("x", 1))
    async with followed(path) as (files, results):
        path.write_text(objective("x", 2))
        assert await results.next() == "applied"
        assert priorities(files) == {"x": 2}
        path.write_text("kind: [")
        assert await results.next() == "refused"
        assert priorities(files) == {"x": 2}
        assert [problem.place.file for problem in files.problems] == [str(path)]
        path.write_text(objective("y", 3))
        assert await results.next() == "applied"
        assert (priorities(files), files.problems) == ({"y": 3}, ())


async def test_listed_file_that_goes_keeps_its_objects_and_one_of_a_folder_takes_them_along(tmp_path):
    folder = tmp_path / "d"
    folder.mkdir()
    listed, inside = tmp_path / "a.yaml", folder / "b.yaml"
    listed.write_text(objective("a", 1))
    inside.write_text(objective("b", 2))
    async with followed(listed, folder) as (files, results):
        listed.unlink()
        assert await results.next() == "refused"
        inside.unlink()
        await results.next()
        assert priorities(files) == {"a": 1}


async def test_other_paths_are_followed_once_they_were_found_good(tmp_path):
    first, second = tmp_path / "a.yaml", tmp_path / "b.yaml"
    first.write_text(objective("a", 1))
    second.write_text("kind: [")
    async with followed(first) as (files, results):
        with pytest.raises(InputError):
            await files.prepare([second])
        assert priorities(files) == {"a": 1}
        second.write_text(objective("b", 2))
        files.configure(await files.prepare([second]))
        assert priorities(files) == {"b": 2}
        second.write_text(objective("b", 3))
        assert await results.next() == "applied"
        assert priorities(files) == {"b": 3}


async def test_no_paths_are_no_rules():
    files = ModelFiles()
    await files.load()
    assert priorities(files) == {}


async def test_folder_that_is_away_for_a_while_keeps_what_its_files_said(tmp_path):
    folder, elsewhere = tmp_path / "d", tmp_path / "away"
    folder.mkdir()
    (folder / "a.yaml").write_text(objective("a", 1))
    async with followed(folder) as (files, results):
        folder.rename(elsewhere)
        assert await results.next() == "refused"
        assert priorities(files) == {"a": 1}
        (elsewhere / "a.yaml").write_text(objective("a", 2))
        elsewhere.rename(folder)
        assert await results.next() == "applied"
        assert (priorities(files), files.problems) == ({"a": 2}, ())


@pytest.mark.parametrize(("more", "good"), [(0, True), (1, False)])
async def test_folder_has_a_bounded_number_of_files(tmp_path, monkeypatch, more, good):
    monkeypatch.setattr("hotbay.models.files.MAX_FILES", 3)
    for number in range(3 + more):
        (tmp_path / f"{number}.yaml").write_text(objective(f"o{number}", number))
    files = ModelFiles([tmp_path])
    if good:
        await files.load()
        assert len(priorities(files)) == 3
    else:
        with pytest.raises(InputError, match="4 files, more than 3"):
            await files.load()
