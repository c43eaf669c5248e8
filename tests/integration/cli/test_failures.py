"""What commands say when the machine below them fails: one line and what to do, in the form that was asked for."""

import json
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from hotbay.cli.admin_client import AdminClient
from hotbay.errors import CapacityError
from hotbay.gateway import admin_connection
from hotbay.packages.layout import write_layout
from hotbay.packages.manifest import Blob, Manifest, ProtocolRange, host_platform
from hotbay.store.digests import digest_of

DEADLINE_S = 30.0
NOBODY_WRITES_HERE = "/proc/nowhere"


def hotbay(
    *arguments: object, folder: Path, stdout: int | None = subprocess.PIPE
) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "hotbay.cli", *map(str, arguments)]
    return subprocess.run(
        command, cwd=folder, stdout=stdout, stderr=subprocess.PIPE, text=True, timeout=DEADLINE_S, check=False
    )


def assert_told(done: "subprocess.CompletedProcess[str]", *, says: str, code: int = 1) -> None:
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr
    assert says in done.stderr
    assert done.returncode == code, done.stderr


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A package folder, whose one blob is no wheel: enough to be carried."""
    name, content = "part-1.0-py3-none-any.whl", b"content"
    manifest = Manifest(
        id="sample",
        publisher="tests",
        rev=1,
        version="1.0.0",
        platform=host_platform(),
        entrypoint="sample:plugin",
        types=("sample-scorer",),
        protocol=ProtocolRange(first=1, last=1),
        blobs=(Blob(name=name, digest=digest_of(content), size=len(content)),),
    )
    (tmp_path / name).write_bytes(content)
    write_layout(tmp_path / "built", manifest, {name: tmp_path / name})
    return tmp_path / "built"


@pytest.mark.parametrize("arguments", [["--help"], ["config", "schema"], ["config", "print-effective"], ["version"]])
def test_output_on_a_full_disk_is_told(tmp_path: Path, arguments: list[str]) -> None:
    with Path("/dev/full").open("wb") as full:
        done = hotbay(*arguments, folder=tmp_path, stdout=full.fileno())
    assert_told(done, says="error: RESOURCE_EXHAUSTED: the output: No space left on device")
    assert "what to do: free space there" in done.stderr


@pytest.mark.parametrize("layout", [[], ["--layout"]])
def test_folder_that_cannot_be_published_to_is_told(package: Path, tmp_path: Path, layout: list[str]) -> None:
    (tmp_path / "file").write_text("")
    target = f"{NOBODY_WRITES_HERE}/x"
    done = hotbay("publish", package, target, *layout, folder=tmp_path)
    assert_told(done, says=f"{target} cannot be written: No such file or directory")
    done = hotbay("publish", package, "./file", *layout, folder=tmp_path)
    if layout:
        assert_told(done, says="file holds something else", code=78)
    else:
        assert_told(done, says="file cannot be written: File exists")


def test_layout_that_cannot_be_written_is_told_in_the_form_that_was_asked_for(package: Path, tmp_path: Path) -> None:
    done = hotbay("publish", package, NOBODY_WRITES_HERE, "-o", "json", folder=tmp_path)
    assert_told(done, says="cannot be written")
    page = json.loads(done.stderr)
    assert (page["error"], page["code"]) == ("CapacityError", "RESOURCE_EXHAUSTED")
    assert page["hint"] == "free space there, or name another folder"


@pytest.mark.parametrize(
    ("arguments", "code"),
    [(["bundle", "out", "-c", "host.yaml"], 78), (["config", "print-effective", "nowhere.yaml"], 78)],
)
def test_failure_is_an_object_where_json_was_asked_for(tmp_path: Path, arguments: list[str], code: int) -> None:
    (tmp_path / "host.yaml").write_text("apiVersion: hotbay/v1alpha1\nkind: HostConfig\nstate_dir: state\n")
    done = hotbay(*arguments, "-o", "json", folder=tmp_path)
    assert_told(done, says="CONFIG_INVALID", code=code)
    assert json.loads(done.stderr)["problems"]
    assert "name the host's configuration with -c" not in done.stderr


def test_socket_without_a_name_is_wrong_usage(tmp_path: Path) -> None:
    for given in ("", "."):
        done = hotbay("status", "--socket", given, folder=tmp_path)
        assert_told(done, says="expected a socket such as STATE_DIR/admin.sock, found the folder '.'", code=2)


EVENT = b'{"event": "a"}\n'
PAGE = b'{"version": "1", "ready": true, "isolation": "none", "plugins": [], "endpoints": []}\n'


def answering(listener: socket.socket, line: bytes = EVENT) -> socket.socket:
    connection, _ = listener.accept()
    connection.settimeout(DEADLINE_S)
    connection.recv(65536)
    connection.sendall(b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n" + line)
    return connection


@pytest.fixture
def listener(tmp_path: Path):
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(tmp_path / "s"))
        made.listen(1)
        made.settimeout(DEADLINE_S)
        yield made


def asking(folder: Path, *arguments: str) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "hotbay.cli", *arguments, "--socket", "s"]
    # What is run in the background ignores interrupts, and hands that down: a handler of ours is not handed down.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize(
    ("arguments", "line", "shown"),
    [(["events"], EVENT, b"a\n"), (["status", "--watch"], PAGE, b"hotbay 1 ")],
)
def test_reader_that_has_enough_is_no_failure(
    tmp_path: Path, listener: socket.socket, arguments: list[str], line: bytes, shown: bytes
) -> None:
    with asking(tmp_path, *arguments) as process, answering(listener, line) as connection:
        assert process.stdout is not None
        assert process.stdout.readline().startswith(shown)
        process.stdout.close()
        connection.sendall(line * 3)
        assert process.stderr is not None
        assert process.stderr.read() == b""
        assert process.wait(DEADLINE_S) == 0


def test_events_end_with_an_interrupt(tmp_path: Path, listener: socket.socket) -> None:
    with asking(tmp_path, "events") as process, answering(listener):
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        assert process.stderr.read() == b""
        assert process.wait(DEADLINE_S) == 0


def test_interrupt_before_the_host_answers_says_nothing(tmp_path: Path, listener: socket.socket) -> None:
    with asking(tmp_path, "events") as process:
        connection, _ = listener.accept()
        with connection:
            process.send_signal(signal.SIGINT)
            assert process.stderr is not None
            assert process.stderr.read() == b""
            assert process.wait(DEADLINE_S) in (0, 130)


@pytest.fixture
def full(tmp_path: Path, listener: socket.socket) -> Iterator[None]:
    """The queue of the listener has no room."""
    listener.listen(0)
    with ExitStack() as waiting:
        while True:
            early = waiting.enter_context(socket.socket(socket.AF_UNIX))
            early.setblocking(False)
            try:
                early.connect(str(tmp_path / "s"))
            except BlockingIOError:
                break
        yield


@pytest.fixture(params=[False, True], ids=["undisturbed", "signals"])
def signals(request: pytest.FixtureRequest) -> Iterator[None]:
    """Nothing, or a signal again and again, as a process gets that has children or timers."""
    if not request.param:
        yield
        return
    before = signal.signal(signal.SIGUSR1, lambda number, frame: None)
    ended = threading.Event()

    def disturb() -> None:
        while not ended.wait(0.005):
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)

    disturber = threading.Thread(target=disturb)
    disturber.start()
    yield
    ended.set()
    disturber.join()
    signal.signal(signal.SIGUSR1, before)


@pytest.mark.usefixtures("full", "signals")
def test_host_whose_queue_is_full_is_there_and_busy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin_connection, "_CONNECT_TIMEOUT_S", 0.05)
    with pytest.raises(CapacityError, match="does not get round to its clients") as told:
        AdminClient(tmp_path / "s").get("/status")
    assert told.value.hint.startswith("repeat it")
    assert type(told.value) is CapacityError
