"""Lines of a plugin's log carry when they were written, and by which process of which build."""

from contextlib import aclosing
from types import SimpleNamespace

import anyio
import anyio.lowlevel
import pytest
from hotbay.process.log import LogLine, LogSink
from hotbay.rollout.events import EventLog
from hotbay.rollout.operations import Operations, Ports

pytestmark = pytest.mark.anyio

NOW_S, WALL_S = 500.0, 1_760_000_000.0


def operations(lines: list[LogLine]) -> Operations:
    supervisor = SimpleNamespace(
        routines={"sample": None},
        services=SimpleNamespace(now=lambda: NOW_S, wall=lambda: WALL_S),
        catalog=SimpleNamespace(plugin_ids=lambda: ()),
    )
    return Operations(
        supervisor, EventLog(lambda: 0.0), Ports(status=dict, lines=lambda _: lines, collect=None, bindings=tuple)
    )


def written(*, rev: int | None = 4) -> LogSink:
    sink = LogSink("sample#7", now=lambda: NOW_S - 2.5, rev=rev)
    sink.take("stderr", b"hello", pid=31)
    return sink


async def test_lines_say_when_of_which_build_and_by_which_process() -> None:
    page = await operations(written().lines()).logs("sample", 5)
    line = {"at_s": WALL_S - 2.5, "rev": 4, "generation": 7, "pid": 31, "stream": "stderr", "line": "hello"}
    assert page == {"plugin": "sample", "lines": [line]}


async def test_followed_lines_say_it_too() -> None:
    lines = written(rev=None).lines()
    found: list[object] = []

    async def read() -> None:
        async with aclosing(operations(lines).follow("sample")) as following:
            found.append(await anext(following))

    async with anyio.create_task_group() as group:
        group.start_soon(read)
        await anyio.lowlevel.checkpoint()
        # What was there before it began is not told again.
        lines += written().lines()
    line = {"at_s": WALL_S - 2.5, "rev": 4, "generation": 7, "pid": 31, "stream": "stderr", "line": "hello"}
    assert found == [line]


async def test_marker_of_the_host_has_no_process() -> None:
    sink = LogSink("sample#7", now=lambda: NOW_S, rev=4)
    sink.drop(3)
    (line,) = (await operations(sink.lines()).logs("sample", 5))["lines"]
    assert (line["stream"], line["pid"], line["line"]) == ("host", None, "dropped 3 bytes")


@pytest.mark.parametrize(("count", "told"), [(0, 0), (1, 1), (9, 2)])
async def test_as_many_lines_as_are_asked_for(count: int, told: int) -> None:
    lines = [*written().lines(), *written().lines()]
    assert len((await operations(lines).logs("sample", count))["lines"]) == told
