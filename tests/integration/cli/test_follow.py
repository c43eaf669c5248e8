"""Configuration files of a running host: which are followed, and what a bad change does.

Deadlines are five times the 1.5 s of the field failures: other work shares the machine.
"""

from contextlib import asynccontextmanager

import anyio
import pytest
from hotbay.cli.run import Given, follow_files, load

DEADLINE_S = 7.5
HOST = "apiVersion: hotbay/v1alpha1\nkind: HostConfig\nstate_dir: /s\n"
PICKER = "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\nplugins: [{name: NAME, type: queue-scorer}]\n"

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend():
    return "asyncio"


class FakeHost:
    """Takes what it is given and tells of it."""

    def __init__(self):
        self.adopted = []
        self.problems = ()
        self._news = anyio.Event()

    async def adopt(self, config, picker):
        self.adopted.append((config, picker))
        self._tell()

    def report_problems(self, problems):
        self.problems = problems
        self._tell()

    def _tell(self):
        self._news.set()
        self._news = anyio.Event()

    async def until(self, condition):
        with anyio.fail_after(DEADLINE_S):
            while not condition():
                await self._news.wait()

    def names(self):
        return [[plugin.name for plugin in picker.plugins] for _, picker in self.adopted]


@asynccontextmanager
async def following(path):
    given, host = Given(path), FakeHost()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(follow_files, host, given, load(given))
        yield host
        tasks.cancel_scope.cancel()


async def test_file_that_a_change_names_is_followed_from_then_on(tmp_path):
    path, picker = tmp_path / "host.yaml", tmp_path / "picker.yaml"
    path.write_text(HOST)
    async with following(path) as host:
        picker.write_text(PICKER.replace("NAME", "first"))
        path.write_text(HOST + "scheduling: {file: picker.yaml}\n")
        await host.until(lambda: host.names() == [["first"]])
        picker.write_text(PICKER.replace("NAME", "second"))
        await host.until(lambda: host.names() == [["first"], ["second"]])


async def test_u17_correction_of_a_file_that_a_bad_change_named_is_picked_up(tmp_path):
    path, picker = tmp_path / "host.yaml", tmp_path / "picker.yaml"
    path.write_text(HOST)
    async with following(path) as host:
        path.write_text(HOST + "scheduling: {file: picker.yaml}\n")
        await host.until(lambda: host.problems)
        picker.write_text(PICKER.replace("NAME", "[}"))
        await host.until(lambda: host.problems and host.problems[0].place.line == 3)
        picker.write_text(PICKER.replace("NAME", "good"))
        await host.until(lambda: host.names() == [["good"]] and not host.problems)


async def test_c09_emptied_file_changes_nothing_and_is_reported(tmp_path):
    path = tmp_path / "host.yaml"
    path.write_text(HOST + "endpoints: [{url: 'http://a:1'}]\n")
    async with following(path) as host:
        path.write_text("")
        await host.until(lambda: host.problems)
        assert [problem.code for problem in host.problems] == ["EMPTY_CONFIG"]
        path.write_text(HOST + "endpoints: [{url: 'http://a:2'}]\n")
        await host.until(lambda: host.adopted and not host.problems)
        assert [str(entry.url) for entry in host.adopted[0][0].endpoints] == ["http://a:2"]
    assert len(host.adopted) == 1
