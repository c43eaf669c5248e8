"""Archives that are made to exhaust whoever reads them."""

import re
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hotbay.packages.manifest import Manifest

pytestmark = pytest.mark.timeout(120)

MEASURE = """
import resource, sys
from pathlib import Path
from hotbay.errors import PackageError
from hotbay.packages.archive import screen_wheel
path = Path(sys.argv[1])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    screen_wheel(path, path.name)
except PackageError as error:
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, error.message)
"""


def zeros(path: Path) -> None:
    """50 MB of them, listed in RECORD with their true hash."""
    with zipfile.ZipFile(path) as archive:
        content = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in content.items():
            archive.writestr(name, data)


def many_entries(path: Path) -> None:
    with zipfile.ZipFile(path, "a") as archive:
        for number in range(60_000):
            archive.writestr(zipfile.ZipInfo(f"sample/{number}"), b"")


def more_entries_than_fit(path: Path) -> None:
    with zipfile.ZipFile(path, "a") as archive:
        for number in range(100_000):
            archive.writestr(zipfile.ZipInfo(f"sample/{number}"), b"")


def nested(path: Path) -> None:
    """Nothing unpacks what is inside a file; the file itself is bound by its own ratio."""
    inner = path.with_suffix(".zip")
    with zipfile.ZipFile(inner, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("zeros", bytes(50 << 20))
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive:
        for number in range(50):
            archive.writestr(f"sample/{number}.zip", inner.read_bytes())


def lying_header(path: Path) -> None:
    zeros(path)
    content = bytearray(path.read_bytes())
    name = b"sample/zeros"
    # Where a name stands after its header, in the table and before the content, and where the size is in it.
    for start, at in ((content.index(name) - 30, 22), (content.rindex(name) - 46, 24)):
        content[start + at : start + at + 4] = (100).to_bytes(4, "little")
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (zeros, "unpacks to more than 200 times its size"),
        (many_entries, "entries, allowed 50000"),
        (more_entries_than_fit, "its end is not that of a plain one"),
        (nested, "RECORD does not list it"),
        (lying_header, "no readable zip archive|with another hash|unpacks to more than"),
    ],
)
def test_p07_bomb_stops_at_its_cap_without_memory_or_disk(
    write_plugin: Callable[..., Manifest], tmp_path: Path, make: Callable[[Path], None], reason: str
) -> None:
    """In a process of its own, whose memory is looked at. 100,000 entries need the 64-bit form, 60,000 do not."""
    write_plugin(tmp_path / "p", files={"sample/__init__.py": b"", "sample/zeros": bytes(50 << 20)})
    (path,) = (tmp_path / "tiny-wheels").iterdir()
    make(path)
    before = sorted(path.parent.iterdir())
    done = subprocess.run([sys.executable, "-c", MEASURE, path], capture_output=True, text=True, check=True)
    grown_kib, message = done.stdout.split(" ", 1)
    assert re.search(reason, message), message
    assert int(grown_kib) < 30 << 10
    assert sorted(path.parent.iterdir()) == before
