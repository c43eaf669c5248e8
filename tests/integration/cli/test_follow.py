"""Configuration files of a running host: which are followed, and what a bad change does.

Deadlines are five times the 1.5 s of the field failures: other work shares the machine.
"""

import threading
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from shutil import rmtree
from tempfile import TemporaryDirectory

import anyio
import anyio.lowlevel
import pytest
from hotbay.cli.following import follow_files
from hotbay.cli.loading import Given, load
from hotbay.config.reload import watch_files
from hotbay.errors import CapacityError, HostError, InputError, Problem
from hotbay.observe.background import Background
from hotbay.operator_files import OperatorFiles
from hotbay.rollout.adoption import ReplacedError
from hypothesis import example, given, settings
from hypothesis import strategies as st

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
        self.directory = None
        self.problems = ()
        self.background = Background()
        self.files = OperatorFiles(lambda: None)
        self._news = anyio.Event()

    async def adopt(self, config, picker, *, directory, in_force):
        self.adopted.append((config, picker))
        self.directory = directory
        in_force()
        self._tell()

    def found_unchanged(self):
        pass

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
async def following(path, host=None):
    given, host = Given(path), host or FakeHost()
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


async def test_paths_in_a_file_that_a_change_names_count_from_its_folder(tmp_path):
    path, folder = tmp_path / "host.yaml", tmp_path / "other"
    path.write_text(HOST)
    folder.mkdir()
    (folder / "picker.yaml").write_text(PICKER.replace("NAME", "first"))
    async with following(path) as host:
        path.write_text(HOST + "scheduling: {file: other/picker.yaml}\n")
        await host.until(lambda: host.names() == [["first"]])
        assert host.directory == folder


async def test_what_acts_at_the_next_start_only_is_named_until_it_is_taken_back(tmp_path):
    path = tmp_path / "host.yaml"
    path.write_text(HOST)
    async with following(path) as host:
        await anyio.lowlevel.checkpoint()
        path.write_text(HOST + "scrape: {process: true}\n")
        await host.until(lambda: len(host.adopted) == 1)
        await host.until(lambda: list(host.files.next_start()) == ["scrape.process"])
        path.write_text(HOST + "types: {a: b}\n")
        await host.until(lambda: len(host.adopted) == 2)
        await host.until(lambda: list(host.files.next_start()) == [])


async def test_files_are_parsed_beside_the_loop_by_reloads_and_commands(tmp_path, monkeypatch):
    """A list of 2,500 endpoints takes seconds, in which no request would be answered."""
    path, threads = tmp_path / "host.yaml", []
    path.write_text(HOST + "reload: manual\n")

    def noted(*args, **options):
        threads.append(threading.get_ident())
        return load(*args, **options)

    monkeypatch.setattr("hotbay.cli.following.load", noted)
    async with following(path) as host:
        await anyio.lowlevel.checkpoint()
        path.write_text(HOST + "reload: manual\ntypes: {a: b}\n")
        assert await host.files.waiting() == ["types"]
        assert await host.files.apply() == ["types"]
        path.write_text(HOST + "types: [\n")
        await host.until(lambda: host.problems)
    assert len(threads) >= 3
    assert threading.get_ident() not in threads


@pytest.mark.parametrize("which", ["edit", "look"])
async def test_what_was_read_before_a_newer_edit_is_not_put_in_force_after_it(tmp_path, monkeypatch, which):
    path, go, began = tmp_path / "host.yaml", anyio.Event(), anyio.Event()
    path.write_text(HOST)
    reads = []

    async def first_is_slow(given, files):
        reads.append(given)
        is_first, found = len(reads) == 1, load(given, files, may_be_blank=False)
        if is_first:
            began.set()
            await go.wait()
        return found

    monkeypatch.setattr("hotbay.cli.following._read", first_is_slow)
    async with following(path) as host, anyio.create_task_group() as tasks:
        await anyio.lowlevel.checkpoint()
        path.write_text(HOST + "types: {a: b}\n")
        if which == "look":
            tasks.start_soon(host.files.apply)
        with anyio.fail_after(DEADLINE_S):
            await began.wait()
        path.write_text(HOST + "types: {a: c}\n")
        await host.until(lambda: host.adopted)
        go.set()
        await anyio.wait_all_tasks_blocked()
        assert [dict(config.types) for config, _ in host.adopted] == [{"a": "c"}]
        assert not host.problems


async def test_paths_of_a_volume_hold_when_its_data_link_is_swapped_and_the_version_before_is_gone(tmp_path):
    """A ConfigMap's volume: the files are links into `..data`, itself a link, which is renamed over."""

    def swap(version, name):
        (tmp_path / version).mkdir()
        (tmp_path / version / "host.yaml").write_text(HOST + "scheduling: {file: picker.yaml}\n")
        (tmp_path / version / "picker.yaml").write_text(PICKER.replace("NAME", name))
        (tmp_path / "..data_tmp").symlink_to(version)
        (tmp_path / "..data_tmp").replace(tmp_path / "..data")

    swap("..1", "first")
    for name in ("host.yaml", "picker.yaml"):
        (tmp_path / name).symlink_to(f"..data/{name}")
    async with following(tmp_path / "host.yaml") as host:
        await anyio.lowlevel.checkpoint()
        swap("..2", "second")
        rmtree(tmp_path / "..1")
        await host.until(lambda: host.names() == [["second"]] and not host.problems)
        assert host.directory == tmp_path
        swap("..3", "third")
        rmtree(tmp_path / "..2")
        await host.until(lambda: host.names() == [["second"], ["third"]])


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


async def test_apply_takes_what_the_files_say_now_and_refuses_what_is_wrong_with_them(tmp_path):
    """Nothing is waited for: the watch need not have seen any of it."""
    path = tmp_path / "host.yaml"
    manual = HOST + "reload: manual\n"
    path.write_text(manual)
    async with following(path) as host:
        await anyio.lowlevel.checkpoint()
        path.write_text(manual + "types: {a: b}\n")
        assert list(await host.files.waiting()) == ["types"]
        path.write_text(manual + "types: [\n")
        for refuses in (host.files.apply, host.files.apply):
            with pytest.raises(InputError, match=r"host\.yaml:\d+:\d+: CONFIG_INVALID"):
                await refuses()
        with pytest.raises(InputError, match=r"host\.yaml"):
            await host.files.waiting()
        assert host.adopted == [], "the valid edit before it is not put in force"
        path.write_text(manual + "types: {a: c}\n")
        assert list(await host.files.apply()) == ["types"]
        assert [config.types for config, _ in host.adopted] == [{"a": "c"}]
        path.write_text(manual + "types: {a: d}\n")
        path.write_text(manual + "types: {a: c}\n")
        assert list(await host.files.apply()) == []


async def test_invalid_edit_that_the_watch_saw_waits_in_place_of_the_valid_one_before(tmp_path):
    path = tmp_path / "host.yaml"
    manual = HOST + "reload: manual\n"
    path.write_text(manual)
    async with following(path) as host:
        await anyio.lowlevel.checkpoint()
        host.files.look = anyio.lowlevel.checkpoint
        path.write_text(manual + "types: [\n")
        await host.until(lambda: host.problems)
        with pytest.raises(InputError):
            await host.files.apply()
        path.write_text(manual)
        await host.until(lambda: not host.problems)
        assert list(await host.files.apply()) == []


async def test_automatic_reload_has_nothing_that_waits_and_says_what_is_wrong_with_a_file(tmp_path):
    path = tmp_path / "host.yaml"
    path.write_text(HOST)
    async with following(path) as host:
        await anyio.lowlevel.checkpoint()
        path.write_text(HOST + "types: [\n")
        with pytest.raises(InputError, match=r"host\.yaml:\d+:\d+: CONFIG_INVALID"):
            await host.files.waiting()
        with pytest.raises(InputError, match=r"host\.yaml:\d+:\d+: CONFIG_INVALID"):
            await host.files.apply()
        path.write_text(HOST)
        assert list(await host.files.waiting()) == list(await host.files.apply()) == []
        path.write_text(HOST + "types: {a: b}\n")
        assert list(await host.files.apply()) == ["types"], "sooner than the watch"
        assert list(await host.files.waiting()) == []


class RefusingHost(FakeHost):
    """Takes no configuration that says `types`, until it is `let`."""

    is_let = False

    async def adopt(self, config, picker, *, directory, in_force):
        if config.types and not self.is_let:
            raise InputError([Problem("UNKNOWN_TYPE", "nothing provides it")])
        await super().adopt(config, picker, directory=directory, in_force=in_force)


async def test_automatic_reload_that_was_refused_is_told_by_plan_and_tried_again_by_apply(tmp_path):
    path = tmp_path / "host.yaml"
    path.write_text(HOST)
    async with following(path, RefusingHost()) as host:
        await anyio.lowlevel.checkpoint()
        path.write_text(HOST + "types: {a: b}\n")
        await host.until(lambda: host.problems)
        with pytest.raises(InputError, match="nothing provides it"):
            await host.files.waiting()
        with pytest.raises(InputError, match="nothing provides it"):
            await host.files.apply()
        host.is_let = True
        assert list(await host.files.apply()) == ["types"]
        assert (list(await host.files.waiting()), host.problems) == ([], ())


class SlowHost(FakeHost):
    """Waits with the first configuration until another one comes, as a host does for its packages."""

    def __init__(self):
        super().__init__()
        self.is_asked = anyio.Event()
        self._newer = anyio.Event()

    async def adopt(self, config, picker, *, directory, in_force):
        if not self.is_asked.is_set():
            self.is_asked.set()
            await self._newer.wait()
            raise ReplacedError(["sample"])
        self._newer.set()
        await super().adopt(config, picker, directory=directory, in_force=in_force)


@pytest.mark.parametrize("newer", ["types: {a: c}\n", ""], ids=["another", "as before"])
async def test_newer_edit_takes_the_place_of_one_that_waits_for_packages(tmp_path, newer):
    path = tmp_path / "host.yaml"
    path.write_text(HOST)
    async with following(path, SlowHost()) as host:
        await anyio.lowlevel.checkpoint()
        path.write_text(HOST + "types: {a: b}\n")
        with anyio.fail_after(DEADLINE_S):
            await host.is_asked.wait()
        path.write_text(HOST + newer)
        await host.until(lambda: host.adopted)
        assert [dict(config.types) for config, _ in host.adopted] == [{"a": "c"} if newer else {}]
        await anyio.lowlevel.checkpoint()
        assert host.problems == ()


class LateHost(FakeHost):
    """Ends to put the first configuration in force only when it is let: a newer one is in force then."""

    def __init__(self):
        super().__init__()
        self.ends = anyio.Event()
        self.fails = False

    async def adopt(self, config, picker, *, directory, in_force):
        is_first = not self.adopted
        await super().adopt(config, picker, directory=directory, in_force=in_force)
        if is_first:
            await self.ends.wait()
        if self.fails:
            raise CapacityError("RESOURCE_EXHAUSTED", "the lock is not written")


async def test_what_is_in_force_is_the_newest_also_when_an_older_one_ends_after_it(tmp_path):
    path = tmp_path / "host.yaml"
    manual = HOST + "reload: manual\n"
    path.write_text(manual)
    async with following(path, LateHost()) as host, anyio.create_task_group() as tasks:
        await anyio.lowlevel.checkpoint()
        path.write_text(manual + "types: {a: b}\n")
        tasks.start_soon(host.files.apply)
        await host.until(lambda: host.adopted)
        path.write_text(manual + "types: {a: c}\n")
        assert list(await host.files.apply()) == ["types"]
        host.ends.set()
        for _ in range(5):
            await anyio.lowlevel.checkpoint()
        assert list(await host.files.waiting()) == []


async def test_configuration_of_which_a_part_failed_is_tried_again_as_a_whole(tmp_path):
    path = tmp_path / "host.yaml"
    manual = HOST + "reload: manual\n"
    path.write_text(manual)
    host = LateHost()
    host.ends.set()
    host.fails = True
    async with following(path, host):
        await anyio.lowlevel.checkpoint()
        path.write_text(manual + "types: {a: b}\n")
        with pytest.raises(CapacityError):
            await host.files.apply()
        assert list(await host.files.waiting()) == ["types"]


async def test_broken_edit_is_told_while_a_valid_one_waits_and_stays_told(tmp_path):
    path = tmp_path / "host.yaml"
    path.write_text(HOST)
    async with following(path, SlowHost()) as host:
        await anyio.lowlevel.checkpoint()
        path.write_text(HOST + "types: {a: b}\n")
        with anyio.fail_after(DEADLINE_S):
            await host.is_asked.wait()
        path.write_text(HOST + "types: [\n")
        await host.until(lambda: host.problems)
        host._newer.set()  # The valid one ends, whatever of it.
        for _ in range(5):
            await anyio.lowlevel.checkpoint()
        assert [problem.code for problem in host.problems] == ["CONFIG_INVALID"]


async def test_fault_of_our_own_while_a_file_is_taken_over_ends_nothing(tmp_path):
    path, counted = tmp_path / "host.yaml", []
    path.write_text(HOST)
    host = FakeHost()
    host.background = Background(counted.append)
    good, host.adopt = host.adopt, None
    async with following(path, host):
        await anyio.lowlevel.checkpoint()
        path.write_text(HOST + "types: {a: b}\n")
        with anyio.fail_after(DEADLINE_S):
            while not counted:
                await anyio.lowlevel.checkpoint()
        host.adopt = good
        await host.until(lambda: host.adopted)
    assert set(counted) == {"configuration files"}


async def test_save_back_right_after_an_apply_is_not_lost(tmp_path):
    """The watch has reported neither: what it saw last is what is saved again."""
    path = tmp_path / "host.yaml"
    path.write_text(HOST)
    async with following(path) as host:
        await anyio.lowlevel.checkpoint()
        path.write_text(HOST + "types: {a: b}\n")
        assert list(await host.files.apply()) == ["types"]
        path.write_text(HOST)
        await host.until(lambda: len(host.adopted) == 2)
        assert [dict(config.types) for config, _ in host.adopted] == [{"a": "b"}, {}]


async def test_file_that_an_apply_names_is_followed_from_then_on(tmp_path):
    path, picker = tmp_path / "host.yaml", tmp_path / "picker.yaml"
    path.write_text(HOST)
    async with following(path) as host:
        await anyio.lowlevel.checkpoint()
        picker.write_text(PICKER.replace("NAME", "first"))
        path.write_text(HOST + "scheduling: {file: picker.yaml}\n")
        assert await host.files.apply()
        picker.write_text(PICKER.replace("NAME", "second"))
        await host.until(lambda: host.names() == [["first"], ["second"]])


async def test_what_an_apply_could_not_put_in_force_stays_told(tmp_path):
    path = tmp_path / "host.yaml"
    path.write_text(HOST)
    async with following(path, RefusingHost()) as host:
        await anyio.lowlevel.checkpoint()
        path.write_text(HOST + "types: {a: b}\n")
        with pytest.raises(InputError, match="nothing provides it"):
            await host.files.apply()
        assert [problem.code for problem in host.problems] == ["UNKNOWN_TYPE"]
        path.write_text(HOST)
        await host.until(lambda: not host.problems)


class Queue(FakeHost):
    """Puts in force what it is let, the newest only; refuses `refused`. `in_force` is the last that it took."""

    def __init__(self):
        super().__init__()
        self.in_force = {}
        self.lets = True
        self._newest = None
        self._go = anyio.Event()

    def let(self, lets):
        self.lets = lets
        if lets:
            self._go.set()
            self._go = anyio.Event()

    async def adopt(self, config, picker, *, directory, in_force):
        mine = self._newest = object()
        if not self.lets:
            await self._go.wait()
        await anyio.lowlevel.checkpoint()
        if self._newest is not mine:
            raise ReplacedError(["sample"])
        if config.types.get("a") == "refused":
            raise InputError([Problem("UNKNOWN_TYPE", "nothing provides it")])
        in_force()
        self.in_force = dict(config.types)


CONTENTS = {"first": "{}", "second": "{a: b}", "third": "{a: c}", "refused": "{a: refused}", "broken": "["}
STEPS = st.one_of(
    st.sampled_from(list(CONTENTS)), st.sampled_from(["apply", "apply", "look", "look", "let", "hold", "cancel"])
)


@pytest.mark.parametrize("reload", ["watch", "manual"])
@settings(max_examples=25, deadline=None)
@example(steps=["second", "apply", "first"])
@given(steps=st.lists(STEPS, max_size=12))
def test_what_the_file_says_last_is_in_force_or_status_says_why(reload, steps):
    with TemporaryDirectory() as folder:
        anyio.run(_interleave, Path(folder) / "host.yaml", HOST + f"reload: {reload}\n", steps)


class Bench:
    """Saves, commands and looks in any order; a look follows each save some time, as an event of the folder does."""

    def __init__(self, path, begin):
        self.host, self._path, self._begin = Queue(), path, begin
        self._wakes, self._saved = anyio.Semaphore(0), False
        self._scope = anyio.CancelScope()
        self.save("first")
        self._saved = False

    async def watch(self, directories, stop):
        while True:
            await self._wakes.acquire()
            yield None

    def save(self, content):
        self._path.write_text(f"{self._begin}types: {CONTENTS[content]}\n")
        self._saved = True

    def wake(self):
        if self._saved:
            self._saved = False
            self._wakes.release()

    async def step(self, step, tasks):
        if step in CONTENTS:
            self.save(step)
        elif step == "apply":
            self._scope = anyio.CancelScope()
            tasks.start_soon(self._apply, self._scope)
            await anyio.lowlevel.checkpoint()
        elif step == "look":
            self.wake()
            await anyio.lowlevel.checkpoint()
        elif step == "cancel":
            self._scope.cancel()
        else:
            self.host.let(step == "let")
            await self.settle()

    async def _apply(self, scope):
        with scope, suppress(HostError):
            await self.host.files.apply()

    async def settle(self):
        # Two looks at a file, in threads, and the steps that follow.
        for _ in range(3):
            await anyio.sleep(0.002)
            await anyio.wait_all_tasks_blocked()

    @property
    def is_in_force(self):
        types = ", ".join(f"{key}: {value}" for key, value in self.host.in_force.items())
        return self._path.read_text() == f"{self._begin}types: {{{types}}}\n"

    async def waits(self):
        try:
            return bool(await self.host.files.waiting())
        except HostError:
            return True


async def read_and_tell_later(given, files):
    """As a thread does, whose result comes when others have had their turn."""
    try:
        found = load(given, files, may_be_blank=False)
    except InputError as error:
        found = error
    for _ in range(3):
        await anyio.lowlevel.checkpoint()
    return found


async def _interleave(path, begin, steps):
    bench = Bench(path, begin)
    host, given = bench.host, Given(path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hotbay.config.reload.SETTLE_S", 0.0)
        patch.setattr("hotbay.cli.following.watch_files", partial(watch_files, watch=bench.watch, resync_s=1000.0))
        patch.setattr("hotbay.cli.following._read", read_and_tell_later)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(follow_files, host, given, load(given))
            await bench.settle()
            for step in steps:
                await bench.step(step, tasks)
            bench.wake()
            await bench.settle()
            host.let(True)
            await bench.settle()
            assert bench.is_in_force or await bench.waits()
            assert bench.is_in_force or host.problems or "manual" in begin
            tasks.cancel_scope.cancel()
