"""What a child starts with, what stops it, and that a cycle of both leaves nothing behind."""

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest
from hotbay.errors import CapacityError, PluginFault
from hotbay.process.child import Child
from hotbay.process.log import LogSink
from hotbay_sdk.protocol import Armed, FrameType
from hotbay_sdk.protocol.values import unpack

pytestmark = [pytest.mark.process, pytest.mark.anyio]

WAIT_S = 5.0

TELLS_ITSELF = """
import os, resource, sys
from hotbay_sdk._serve import say

def descriptors():
    found = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            found[name] = os.readlink(f"/proc/self/fd/{name}")
        except FileNotFoundError:
            pass  # the descriptor that listed the directory
    return found

def main(*links):
    say(links[2], {
        "environment": dict(os.environ),
        "descriptors": descriptors(),
        "links": links,
        "inheritable": [fd for fd in links if os.get_inheritable(fd)],
        "directory": os.getcwd(),
        "session": os.getsid(0) == os.getpid() == os.getpgid(0),
        "core": resource.getrlimit(resource.RLIMIT_CORE),
        "path": sys.path,
    })
    os.read(links[2], 1)
"""


@pytest.fixture
def leaky_descriptors() -> Iterator[None]:
    """Descriptors that this process would pass on to any program, one of them as standard input."""
    opened = [*os.pipe(), os.dup(0)]
    for fd in opened:
        os.set_inheritable(fd, True)
    os.dup2(opened[0], 0)
    yield
    os.dup2(opened[2], 0)
    for fd in opened:
        os.close(fd)


async def test_armed_comes_first_and_claims_nothing(start_plugin):
    plugin = await start_plugin()
    armed = Armed.from_wire(unpack((await plugin.expect(FrameType.ARMED)).body))
    assert armed.enforced == ()
    assert len(armed.incarnation) == 16


async def test_child_has_exact_environment_and_descriptors(start_plugin, tmp_path, monkeypatch, leaky_descriptors):
    monkeypatch.setenv("SECRET_OF_THE_HOST", "1")
    plugin = await start_plugin(TELLS_ITSELF, extra_environment=(("GRANTED", "yes"),))
    await plugin.hello()
    told = await plugin.said()
    links = told["links"]
    assert told["environment"] == {
        "LANG": "C.UTF-8",
        "PATH": "/usr/bin",
        "TMPDIR": "/tmp",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "HOTBAY_CHANNEL": ",".join(map(str, links)),
        "GRANTED": "yes",
    }
    found = told["descriptors"]
    assert sorted(map(int, found)) == sorted([0, 1, 2, *links])
    assert found["0"] == "/dev/null"
    assert found["1"] == found["2"]
    assert found["1"].startswith("pipe:")
    assert told["inheritable"] == []
    assert told["directory"] == str(tmp_path)
    assert told["session"] is True
    assert told["core"] == [0, 0]
    assert str(Path(__file__).parents[3] / "host") not in told["path"]


async def test_garbage_of_the_plugin_is_collected(start_plugin):
    # Stage 0 stops the collector while the SDK is imported.
    plugin = await start_plugin("""
import gc, os
from hotbay_sdk._serve import say

def main(*links):
    say(links[2], [gc.isenabled(), gc.get_freeze_count() > 0])
    os.read(links[2], 1)
""")
    await plugin.hello()
    assert await plugin.said() == [True, True]


async def test_host_ends_neither_block_nor_leak(start_plugin):
    child = (await start_plugin()).child
    for fd in (child.call_in_fd, child.call_out_fd, child.control.fileno()):
        assert not os.get_blocking(fd)
        assert not os.get_inheritable(fd)
    assert child.call_in_bytes >= 4096
    assert child.call_out_bytes >= 4096


async def test_links_end_with_the_child(start_plugin):
    plugin = await start_plugin("def main(*links): pass\n")
    await plugin.hello()
    assert await plugin.control.next() is None
    assert await plugin.replies.next() is None
    # The kernel closes an ending process's descriptors one by one: only its exit says that all are closed.
    await plugin.ended()
    with pytest.raises(BrokenPipeError):
        os.write(plugin.child.call_out_fd, b"x")


@pytest.mark.parametrize(
    ("change", "hint"),
    [
        ({"interpreter": "/nonexistent/python3"}, "hosts[].interpreter"),
        ({"interpreter": "/etc/hostname"}, "hosts[].interpreter"),
        ({"working_directory": "/nonexistent"}, "directory"),
    ],
)
async def test_impossible_start_says_what_to_do(make_spec, change, hint):
    before = _open_descriptors()
    with pytest.raises(PluginFault, match="faulty#1 cannot start") as caught:
        Child.start(make_spec(**change), LogSink("faulty#1"))
    assert caught.value.code == "START_FAILED"
    assert hint in caught.value.hint
    assert next(iter(change.values())) in caught.value.message
    assert _open_descriptors() == before


async def test_start_without_descriptors_is_a_capacity_error(make_spec):
    spec = make_spec()
    taken = []
    try:
        while True:
            taken.append(os.open("/dev/null", os.O_RDONLY))
    except OSError:
        os.close(taken.pop())
    try:
        with pytest.raises(CapacityError, match="out of descriptors") as caught:
            Child.start(spec, LogSink("faulty#1"))
    finally:
        for fd in taken:
            os.close(fd)
    assert caught.value.code == "RESOURCE_EXHAUSTED"


async def test_level_that_is_not_built_is_refused(make_spec):
    with pytest.raises(PluginFault, match="strict") as caught:
        Child.start(make_spec(level="strict"), LogSink("faulty#1"))
    assert caught.value.code == "REFUSED_ISOLATION"
    assert "none" in caught.value.hint


async def test_start_outside_the_main_thread_is_our_own_bug(make_spec):
    errors: list[BaseException] = []

    def start() -> None:
        try:
            Child.start(make_spec(), LogSink("faulty#1"))
        except AssertionError as error:
            errors.append(error)

    thread = threading.Thread(target=start)
    thread.start()
    thread.join(WAIT_S)
    assert [str(e) for e in errors] == ["plugins are started from the main thread"]


GRACEFUL = """
import os, signal, time
from hotbay_sdk._serve import say

def leave(*_):
    time.sleep(0.5)
    os._exit(5)

def main(i, o, control):
    signal.signal(signal.SIGTERM, leave)
    say(control, "ready")
    while True:
        signal.pause()
"""

IGNORES_SIGTERM = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + TELLS_ITSELF


async def test_hb15_stop_leaves_the_grace_to_a_slow_handler(start_plugin):
    plugin = await start_plugin(GRACEFUL)
    await plugin.hello()
    await plugin.said()
    assert (await plugin.child.stop(10)).code == 5


async def test_stop_kills_after_the_grace(start_plugin):
    plugin = await start_plugin(IGNORES_SIGTERM)
    await plugin.hello()
    await plugin.said()
    with anyio.fail_after(WAIT_S):
        exit_ = await plugin.child.stop(0.1)
    assert exit_.signal == signal.SIGKILL
    assert await plugin.child.stop() == exit_


async def test_stop_finishes_although_cancelled(start_plugin):
    plugin = await start_plugin(IGNORES_SIGTERM)
    await plugin.hello()
    await plugin.said()
    with anyio.CancelScope() as scope:
        scope.cancel()
        await plugin.child.stop(0.1)
    assert plugin.child.exit is not None


async def test_twenty_cycles_leave_no_descriptor_and_no_child(make_spec):
    spec = make_spec(TELLS_ITSELF)
    before: tuple[set[str], set[str]] | None = None
    for _ in range(20):
        child = Child.start(spec, LogSink(spec.label))
        with anyio.fail_after(WAIT_S):
            await anyio.wait_readable(child.control)
            await child.stop(1)
        child.close()
        now = (_open_descriptors(), _children())
        assert before in (None, now)
        before = now


def _open_descriptors() -> set[str]:
    listed = list(Path("/proc/self/fd").iterdir())
    # Without the descriptor that listed the directory.
    return {path.name for path in listed if path.is_symlink()}


def _children() -> set[str]:
    mine = f" {os.getpid()} "
    found = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = stat.read_text()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if mine in text.rpartition(")")[2][:20]:
            found.add(stat.parent.name)
    return found
