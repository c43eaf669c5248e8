"""A wheel with exchanged files is a wheel as any; bursts of saves are told once."""

import io
import zipfile
from pathlib import Path

import pytest
from hotbay.authoring.developing.repacking import exchanged, own_wheel, with_fields
from hotbay.authoring.developing.watching import settled_names
from hotbay.packages.archive import screen_wheel
from hotbay.packages.manifest import Blob, Manifest, ProtocolRange
from hotbay.packages.project_copy import is_never_built
from hotbay.store.digests import digest_of

NAME = "mine-0.1.0-py3-none-any.whl"


def wheel(files: dict[str, bytes]) -> bytes:
    """What `exchanged` makes of a wheel without hashes."""
    info = "mine-0.1.0.dist-info"
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: mine\nVersion: 0.1.0\n")
        archive.writestr(f"{info}/RECORD", "")
    return buffer.getvalue()


def test_a_wheel_with_exchanged_files_passes_the_screen(tmp_path: Path) -> None:
    made = exchanged(wheel({"mine/__init__.py": b"old", "mine/a,b.txt": b"text"}), {"mine/__init__.py": b"new"})
    (tmp_path / NAME).write_bytes(made)
    facts = screen_wheel(tmp_path / NAME, NAME)
    assert facts.has_module("mine")
    with zipfile.ZipFile(io.BytesIO(made)) as archive:
        assert archive.read("mine/__init__.py") == b"new"
        assert archive.read("mine/a,b.txt") == b"text"


def test_equal_content_gives_equal_bytes() -> None:
    old = wheel({"mine/__init__.py": b"old"})
    assert exchanged(old, {"mine/__init__.py": b"x"}) == exchanged(exchanged(old, {}), {"mine/__init__.py": b"x"})


def manifest() -> Manifest:
    blobs = [(NAME, b"1"), ("msgpack-1.0-py3-none-any.whl", b"2"), ("hotbay_sdk-0.1.0-py3-none-any.whl", b"3")]
    return Manifest(
        id="mine",
        publisher="me",
        rev=1,
        version="0.1.0",
        platform="python-cp311-linux-x86_64",
        entrypoint="mine:plugin",
        types=("mine-scorer",),
        protocol=ProtocolRange(first=1, last=1),
        blobs=tuple(Blob(name=name, digest=digest_of(data), size=1) for name, data in blobs),
    )


@pytest.mark.parametrize(
    ("distribution", "name"), [("mine", NAME), ("Mine", NAME), ("hotbay.SDK", "hotbay_sdk-0.1.0-py3-none-any.whl")]
)
def test_the_own_wheel_is_found_by_its_distribution(distribution: str, name: str) -> None:
    assert own_wheel(manifest(), distribution) == name


def test_other_fields_are_another_digest() -> None:
    old = manifest()
    digest = old.digest
    new = with_fields(old, rev=2)
    assert (new.rev, new.types) == (2, old.types)
    assert new.digest != digest
    assert with_fields(new, rev=1).digest == digest


def test_a_burst_names_each_file_once_and_no_passing_one() -> None:
    root = Path("/p")
    paths = ["/p/mine/a.py", "/p/mine/a.py", "/p/mine/a.py~", "/p/mine/.a.py.swp", "/p/mine/4913", "/p/pyproject.toml"]
    assert settled_names(paths, root) == ("mine/a.py", "pyproject.toml")


@pytest.mark.parametrize(
    ("name", "never"),
    [
        ("mine/a.py", False),
        ("mine/__pycache__/a.pyc", True),
        (".git/index", True),
        (".venv/x.py", False),
        ("a.pyc", True),
    ],
)
def test_what_no_build_reads_is_no_save(name: str, never: bool) -> None:
    assert is_never_built(Path(name)) is never
