"""A folder of YAML objects that changes while it is followed."""

from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest
from hotbay.config.data_types import ObjectKind
from hotbay.datalayer.sources.objects import ObjectDirectorySource

pytestmark = pytest.mark.anyio

POD = ObjectKind("", "v1", "Pod")


def pod(name, rank):
    return f"apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec: {{rank: {rank}}}\n"


class Heard:
    """What was told, in order, and a wait for more of it."""

    def __init__(self):
        self.events = []
        self._news = anyio.Event()

    async def emit(self, event):
        self.events.append((str(event.type), event.key, event.object["spec"]["rank"]))
        self._news.set()
        self._news = anyio.Event()

    async def until(self, count):
        with anyio.fail_after(15):
            while len(self.events) < count:
                await self._news.wait()


@asynccontextmanager
async def following(folder: Path):
    # Looks without an event find what follows within a second.
    source, heard = ObjectDirectorySource("pods", folder, POD, resync_s=0.5), Heard()
    async with anyio.create_task_group() as group:
        group.start_soon(source.run, heard.emit)
        yield source, heard
        group.cancel_scope.cancel()


async def test_objects_are_told_as_they_come_change_and_go(tmp_path):
    (tmp_path / "a.yaml").write_text(pod("a", 1) + "---\n" + pod("b", 1))
    async with following(tmp_path) as (_, heard):
        await heard.until(2)
        (tmp_path / "a.yaml").write_text(pod("a", 2) + "---\n" + pod("b", 1))
        await heard.until(3)
        # Replaced as editors and atomic writers do it.
        (tmp_path / "new").write_text(pod("a", 3))
        (tmp_path / "new").rename(tmp_path / "a.yaml")
        await heard.until(5)
        (tmp_path / "a.yaml").rename(tmp_path / "z.yaml")
        (tmp_path / "c.yaml").write_text(pod("c", 1))
        await heard.until(6)
        (tmp_path / "z.yaml").unlink()
        await heard.until(7)
    assert heard.events == [
        ("add_or_update", "a", 1),
        ("add_or_update", "b", 1),
        ("add_or_update", "a", 2),
        ("add_or_update", "a", 3),
        ("delete", "b", 1),
        ("add_or_update", "c", 1),
        ("delete", "a", 3),
    ]


async def test_a_bad_file_is_reported_keeps_its_objects_and_recovers(tmp_path):
    (tmp_path / "a.yaml").write_text(pod("a", 1))
    async with following(tmp_path) as (source, heard):
        await heard.until(1)
        (tmp_path / "a.yaml").write_text("a: b: c\n")
        (tmp_path / "b.yaml").write_text(pod("b", 1))
        await heard.until(2)
        assert [problem.place.file for problem in source.problems] == [str(tmp_path / "a.yaml")]
        (tmp_path / "a.yaml").write_text(pod("a", 2))
        await heard.until(3)
        assert source.problems == ()
    assert heard.events[1:] == [("add_or_update", "b", 1), ("add_or_update", "a", 2)]


async def test_a_folder_that_appears_later_is_followed(tmp_path):
    folder = tmp_path / "objects"
    async with following(folder) as (_, heard):
        folder.mkdir()
        (folder / "a.yaml").write_text(pod("a", 1))
        await heard.until(1)
    assert heard.events == [("add_or_update", "a", 1)]


async def test_objects_behind_a_link_that_is_swapped_change_at_once(tmp_path):
    # As a mounted ConfigMap changes: files are links into a folder that a link names.
    for name, rank in (("one", 1), ("two", 2)):
        (tmp_path / f"..{name}").mkdir()
        (tmp_path / f"..{name}" / "a.yaml").write_text(pod("a", rank))
    (tmp_path / "..data").symlink_to("..one")
    (tmp_path / "a.yaml").symlink_to("..data/a.yaml")
    async with following(tmp_path) as (_, heard):
        await heard.until(1)
        (tmp_path / "..tmp").symlink_to("..two")
        (tmp_path / "..tmp").rename(tmp_path / "..data")
        await heard.until(2)
    assert heard.events == [("add_or_update", "a", 1), ("add_or_update", "a", 2)]


async def test_a_run_that_is_cut_off_goes_on_with_what_was_not_told(tmp_path):
    for name in "abc":
        (tmp_path / f"{name}.yaml").write_text(pod(name, 1))
    source, heard = ObjectDirectorySource("pods", tmp_path, POD, resync_s=0.5), Heard()

    async def emit_two(event):
        if len(heard.events) == 2:
            raise ZeroDivisionError("no more")
        await heard.emit(event)

    with pytest.raises(ExceptionGroup):
        await source.run(emit_two)
    async with anyio.create_task_group() as group:
        group.start_soon(source.run, heard.emit)
        await heard.until(3)
        group.cancel_scope.cancel()
    assert [key for _, key, _ in heard.events] == ["a", "b", "c"]


async def test_an_event_that_was_taken_before_the_run_is_cut_off_is_not_told_again(tmp_path):
    for name in "ab":
        (tmp_path / f"{name}.yaml").write_text(pod(name, 1))
    source, heard = ObjectDirectorySource("pods", tmp_path, POD, resync_s=0.5), Heard()

    async def cut_off_after(count):
        async with anyio.create_task_group() as group:

            async def emit(event):
                await heard.emit(event)
                if len(heard.events) == count:
                    group.cancel_scope.cancel()
                await anyio.lowlevel.checkpoint()

            group.start_soon(source.run, emit)

    await cut_off_after(1)
    await cut_off_after(2)
    (tmp_path / "a.yaml").unlink()
    await cut_off_after(3)
    (tmp_path / "c.yaml").write_text(pod("c", 1))
    await cut_off_after(4)
    assert [(what, key) for what, key, _ in heard.events] == [
        ("add_or_update", "a"),
        ("add_or_update", "b"),
        ("delete", "a"),
        ("add_or_update", "c"),
    ]


async def test_an_object_is_told_again_to_who_came_while_it_was_told(tmp_path):
    (tmp_path / "a.yaml").write_text(pod("a", 1))
    source, heard = ObjectDirectorySource("pods", tmp_path, POD, resync_s=0.5), Heard()
    async with anyio.create_task_group() as group:

        async def somebody_comes(event):
            await heard.emit(event)
            source.tell_again()
            group.cancel_scope.cancel()

        group.start_soon(source.run, somebody_comes)
    async with anyio.create_task_group() as group:
        group.start_soon(source.run, heard.emit)
        await heard.until(2)
        group.cancel_scope.cancel()
    assert [key for _, key, _ in heard.events] == ["a", "a"]
