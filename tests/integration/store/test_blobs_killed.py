"""Many hosts over one store, and hosts that are killed at every point: one whole blob, nothing fetched twice."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from hotbay.store.blobs import BlobStore
from hotbay.store.digests import digest_of

pytestmark = [pytest.mark.process, pytest.mark.timeout(180)]
PROCESSES = 8
ROUNDS = 20
PIECE = 64 << 10
PIECES = 24

# What the parent and the children make their blobs from.
CONTENT = """
import random
def content(seed, size):
    return random.Random(seed).randbytes(size)
"""

# Fetches the blob of every number that it reads, as soon as it reads it; says whether it was the one who stored it.
FETCHER = (
    CONTENT
    + """
import sys
from pathlib import Path
from hotbay.store.blobs import BlobStore
from hotbay.store.digests import digest_of
store = BlobStore(Path(sys.argv[1]))
piece, size = int(sys.argv[2]), int(sys.argv[3])
for line in sys.stdin:
    data = content(int(line), size)
    stored = store.put_stream((data[n : n + piece] for n in range(0, size, piece)), digest_of(data), size)
    assert store.read(digest_of(data), limit_bytes=size) == data
    print(int(stored), flush=True)
"""
)

# Fetches one blob per number that it reads, in a process of its own each, piece by piece, from where the last ended;
# says before each piece where it stands, and goes on when it is told to.
RESUMER = (
    CONTENT
    + """
import os
import sys
from pathlib import Path
from hotbay.store.blobs import BlobStore
from hotbay.store.digests import digest_of
store = BlobStore(Path(sys.argv[1]))
piece, size = int(sys.argv[2]), int(sys.argv[3])
data = content(1, size)

def fetch():
    with store.part(digest_of(data), size) as part:
        if part.present:
            os.write(1, b"present\\n")
            return
        while part.offset < size:
            os.write(1, b"%d %d\\n" % (os.getpid(), part.offset))
            sys.stdin.readline()
            part.write(data[part.offset : part.offset + piece])
        os.write(1, b"%d %d\\n" % (os.getpid(), part.offset))
        sys.stdin.readline()
        part.finish()
    os.write(1, b"stored\\n")

for _ in iter(sys.stdin.readline, ""):
    pid = os.fork()
    if not pid:
        fetch()
        os._exit(0)
    os.waitpid(pid, 0)
    os.write(1, b"gone\\n")
"""
)


def content(seed: int, size: int) -> bytes:
    """The same bytes as in the children."""
    names: dict[str, object] = {}
    exec(CONTENT, names)
    made = names["content"]
    assert callable(made)
    return bytes(made(seed, size))


@contextmanager
def started(script: str, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", script, *map(str, arguments)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1) as child:
        try:
            yield child
        finally:
            assert child.stdin is not None
            child.stdin.close()


def tell(child: subprocess.Popen[str], line: str) -> None:
    assert child.stdin is not None
    child.stdin.write(f"{line}\n")
    child.stdin.flush()


def said(child: subprocess.Popen[str]) -> str:
    assert child.stdout is not None
    return child.stdout.readline().strip()


def test_p03_hosts_that_fetch_one_digest_at_once_store_it_once_and_no_reader_sees_a_piece(tmp_path: Path) -> None:
    """Eight processes, twenty blobs; a reader looks at the blob's name all the time."""
    store = BlobStore(tmp_path / "store")
    size = PIECE * 16
    contents = [content(number, size) for number in range(ROUNDS)]
    bad: list[int] = []
    ended = threading.Event()

    def watch() -> None:
        while not ended.is_set():
            for number, data in enumerate(contents):
                path = store.path(digest_of(data))
                if path.exists() and path.read_bytes() != data:
                    bad.append(number)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        with ExitStack() as stack:
            children = [stack.enter_context(started(FETCHER, store.root, PIECE, size)) for _ in range(PROCESSES)]
            for number in range(ROUNDS):
                for child in children:
                    tell(child, str(number))
                assert sorted(said(child) for child in children) == ["0"] * (PROCESSES - 1) + ["1"]
    finally:
        ended.set()
        watcher.join(25)
    assert bad == []
    assert len(store.present()) == ROUNDS
    assert list((store.root / "parts").iterdir()) == []


def test_hb10_fetch_killed_after_every_block_goes_on_without_fetching_any_again(tmp_path: Path) -> None:
    """Killed once after each of the blob's blocks, the last one included, and each time resumed."""
    store = BlobStore(tmp_path / "store")
    size = PIECE * PIECES - 7
    digest = digest_of(content(1, size))
    with started(RESUMER, store.root, PIECE, size) as child:
        for block in range(PIECES + 1):
            tell(child, "start")
            pid, offset = map(int, said(child).split())
            assert offset == min(size, max(0, block - 1) * PIECE), "bytes that were here are fetched again"
            if block:
                tell(child, "go on")
                pid, offset = map(int, said(child).split())
            assert offset == min(size, block * PIECE)
            assert not store.has(digest)
            os.kill(pid, signal.SIGKILL)
            assert said(child) == "gone"
            assert not store.has(digest)
            assert store.sweep() == (block == 0), "a host that starts again keeps what was fetched"
        tell(child, "start")
        assert said(child).split()[1] == str(size)
        tell(child, "go on")
        assert [said(child), said(child)] == ["stored", "gone"]
    assert store.read(digest, limit_bytes=size) == content(1, size)
    assert list((store.root / "parts").iterdir()) == []
