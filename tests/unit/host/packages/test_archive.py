"""Wheel screening: each rule refuses one wheel and names its entry."""

import io
import stat
import tarfile
import tempfile
import zipfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from hotbay.errors import PackageError
from hotbay.packages.archive import ArchiveLimits, WheelFacts, screen_package, screen_wheel
from hypothesis import given
from hypothesis import strategies as st

WheelFactory = Callable[..., Path]


def screen(path: Path, limits: ArchiveLimits | None = None) -> WheelFacts:
    return screen_wheel(path, path.name, limits=limits)


def refusal(path: Path, limits: ArchiveLimits | None = None) -> str:
    with pytest.raises(PackageError) as caught:
        screen(path, limits)
    assert caught.value.code == "INVALID_PACKAGE"
    assert path.name in caught.value.message
    return caught.value.message


def raw(name: str, mode: int = stat.S_IFREG | 0o644) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name)
    info.external_attr = mode << 16
    return info


def test_good_wheel_yields_its_facts(make_wheel: WheelFactory) -> None:
    facts = screen(make_wheel("my_plugin", requires=("msgpack>=1.1", 'x; extra == "y"')))
    assert (facts.distribution, str(facts.version)) == ("my-plugin", "1.0")
    assert [str(need) for need in facts.requires] == ["msgpack>=1.1", 'x; extra == "y"']
    assert facts.has_module("my_plugin")
    assert not facts.has_module("my_plug")


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("/etc/passwd", "absolute path"),
        ("C:/x.py", "absolute path, drive"),
        ("a\\b.py", "backslash"),
        ("../x.py", "leaves the package"),
        ("a/../../x.py", "leaves the package"),
        ("a//b.py", "not normal"),
        ("./a.py", "not normal"),
        ("a/x\x01.py", "not printable"),
        ("a" * 1025, "too long"),
        ("x.pth", "runs code at the start"),
        ("a/X.PTH", "runs code at the start"),
        ("sitecustomize.py", "runs at the start"),
        ("usercustomize/__init__.py", "runs at the start"),
        ("json/__init__.py", "hides the standard library's json"),
        ("asyncio.py", "hides the standard library's asyncio"),
        ("sample-1.0.data/purelib/a.py", "scripts and data only"),
        ("sample-1.0.data/data/x.pth", "runs code at the start"),
        ("sample-1.0.data/data/sitecustomize.py", "runs at the start"),
        ("sample/unlisted.py", "RECORD does not list it"),
    ],
)
def test_entry_is_refused_by_name(make_wheel: WheelFactory, name: str, reason: str) -> None:
    message = refusal(make_wheel(entries=((raw(name), b"x"),)))
    assert reason in message
    assert repr(name[:200]) in message


@pytest.mark.parametrize(("first", "second"), [("a/B.py", "a/b.py"), ("a/\u00e9.py", "a/e\u0301.py")])
def test_names_equal_on_some_file_system_are_refused(make_wheel: WheelFactory, first: str, second: str) -> None:
    assert "one file on some file systems" in refusal(make_wheel(files={first: b"", second: b""}))


@pytest.mark.parametrize("mode", [stat.S_IFLNK | 0o777, stat.S_IFIFO | 0o644, stat.S_IFCHR | 0o644])
def test_links_and_special_files_are_refused(make_wheel: WheelFactory, mode: int) -> None:
    assert "symbolic link or special file" in refusal(make_wheel(entries=((raw("sample/link", mode), b"/etc"),)))


def test_encrypted_and_exotic_compression_are_refused(make_wheel: WheelFactory) -> None:
    exotic = raw("sample/x")
    exotic.compress_type = zipfile.ZIP_LZMA
    assert "compression method 14" in refusal(make_wheel(entries=((exotic, b"x"),)))
    path = make_wheel()
    content = bytearray(path.read_bytes())
    at = content.index(b"PK\x01\x02")
    content[at + 8] |= 1
    path.write_bytes(content)
    assert "encrypted" in refusal(path)


def test_record_is_believed_in_both_directions(make_wheel: WheelFactory) -> None:
    wrong = {"sample/__init__.py": "sha256=AAAA"}
    assert "with another hash" in refusal(make_wheel(record=wrong))
    assert "the archive does not hold it" in refusal(make_wheel(record={"sample/ghost.py": "sha256=AAAA"}))
    assert "RECORD does not list it" in refusal(make_wheel(record={"sample/__init__.py": None}))
    assert "with another hash" in refusal(make_wheel(record={"sample/__init__.py": ""}))


def test_dist_info_must_be_one_and_its_own(make_wheel: WheelFactory) -> None:
    assert "belongs to another distribution" in refusal(make_wheel(info="other-1.0.dist-info"))
    assert "expected one .dist-info folder, found 2" in refusal(make_wheel(files={"b-1.dist-info/x": b""}))


@pytest.mark.parametrize(("allowed", "good"), [(4, True), (3, False)])
def test_count_of_entries_is_limited(make_wheel: WheelFactory, allowed: int, good: bool) -> None:
    limits = ArchiveLimits(entries=allowed)
    assert screen(make_wheel(), limits) if good else "allowed 3" in refusal(make_wheel(), limits)


@pytest.mark.parametrize(("allowed", "good"), [(5000, True), (3000, False)])
def test_unpacked_bytes_are_limited(make_wheel: WheelFactory, allowed: int, good: bool) -> None:
    path = make_wheel(files={"sample/data": bytes(range(256)) * 16})
    limits = ArchiveLimits(unpacked_bytes=allowed)
    assert screen(path, limits) if good else "unpacks to more than 3000 bytes" in refusal(path, limits)


def test_bomb_is_refused_by_ratio(make_wheel: WheelFactory) -> None:
    assert "200 times its size" in refusal(make_wheel(files={"sample/zeros": bytes(8 << 20)}))


@pytest.mark.parametrize("content", [b"", b"no zip", b"PK\x05\x06" + b"\0" * 18])
def test_no_archive_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "sample-1.0-py3-none-any.whl"
    path.write_bytes(content)
    refusal(path)


@pytest.mark.parametrize("cut", [10, 100, 400])
def test_damaged_archive_is_refused(make_wheel: WheelFactory, cut: int) -> None:
    path = make_wheel()
    path.write_bytes(path.read_bytes()[:-cut])
    refusal(path)


def test_flipped_byte_is_refused(make_wheel: WheelFactory) -> None:
    path = make_wheel(files={"sample/data": bytes(range(256))})
    content = bytearray(path.read_bytes())
    content[80] ^= 0xFF
    path.write_bytes(content)
    refusal(path)


def test_unreadable_requirement_is_refused(make_wheel: WheelFactory) -> None:
    assert "Requires-Dist" in refusal(make_wheel(requires=("???",)))


def test_file_from_two_wheels_is_refused(make_wheel: WheelFactory) -> None:
    one = screen(make_wheel("one", {"shared/x.py": b""}))
    two = screen(make_wheel("two", {"Shared/x.py": b""}))
    with pytest.raises(PackageError, match=r"two-1.*Shared/x\.py.*one-1.*brings it too"):
        screen_package([one, two])


def test_data_scheme_counts_as_the_file_it_becomes(make_wheel: WheelFactory) -> None:
    one = screen(make_wheel("one", {"shared/x.py": b""}))
    two = screen(make_wheel("two", {"two-1.0.data/data/shared/x.py": b""}))
    with pytest.raises(PackageError, match="brings it too"):
        screen_package([one, two])


def test_distribution_twice_is_refused(make_wheel: WheelFactory) -> None:
    wheels = [screen(make_wheel("one", version=version)) for version in ("1.0", "2.0")]
    with pytest.raises(PackageError, match="same distribution"):
        screen_package(wheels)


def test_only_the_sdk_brings_the_sdk(make_wheel: WheelFactory) -> None:
    screen_package([screen(make_wheel("hotbay_sdk"))])
    with pytest.raises(PackageError, match="only hotbay-sdk may bring hotbay_sdk"):
        screen_package([screen(make_wheel("evil", {"hotbay_sdk/x.py": b""}))])


# -- field failures ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["../x", "/abs", "a/../../b", "a\\..\\b", "C:x", "n\x00.py", "."])
def test_p05_name_that_escapes_is_refused_and_nothing_is_written(
    make_wheel: WheelFactory, tmp_path: Path, name: str
) -> None:
    """The library would rewrite most of them into the tree, and end the one with a NUL at it."""
    path = make_wheel(entries=((raw(name.replace("\0", "\x01")), b"x"),))
    path.write_bytes(path.read_bytes().replace(name.replace("\0", "\x01").encode(), name.encode()))
    before = sorted(tmp_path.rglob("*"))
    assert repr(name) in refusal(path)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("a/m.py", "a/m.py"),
        ("a/M.py", "a/m.py"),
        ("a/caf\u00e9.py", "a/cafe\u0301.py"),
        ("b", "b/c.py"),
        ("b/c.py", "b"),
        ("B", "b/c/d.py"),
    ],
)
def test_p08_ambiguous_names_are_refused_naming_the_pair(make_wheel: WheelFactory, first: str, second: str) -> None:
    message = refusal(make_wheel(entries=((raw(first), b""), (raw(second), b""))))
    assert repr(first) in message
    assert repr(second) in message


def test_p08_folder_with_an_entry_of_its_own_is_no_file(make_wheel: WheelFactory) -> None:
    assert screen(make_wheel(entries=((raw("sample/", stat.S_IFDIR | 0o755), b""),)))


def test_p10_tar_archive_is_no_wheel_whatever_it_is_called(tmp_path: Path) -> None:
    """Only wheels are read, by rules of their own: no default of an unpacking library is relied upon."""
    path = tmp_path / "sample-1.0-py3-none-any.whl"
    with tarfile.open(path, "w:gz") as archive:
        device = tarfile.TarInfo("device")
        device.type = tarfile.CHRTYPE
        setuid = tarfile.TarInfo("setuid")
        setuid.mode = 0o4755
        for entry in (tarfile.TarInfo("../t"), device, setuid):
            archive.addfile(entry)
    assert "no readable zip archive" in refusal(path)
    assert sorted(tmp_path.iterdir()) == [path]


def test_archive_with_something_beside_its_entries_is_refused(make_wheel: WheelFactory) -> None:
    """Another reader might find another table of entries in it."""
    path = make_wheel()
    good = path.read_bytes()
    path.write_bytes(b"#!/bin/sh\n" + good)
    assert "holds more than its entries" in refusal(path)
    path.write_bytes(good[:-2] + b"\x04\0" + b"more")
    assert "no readable zip archive" in refusal(path)


@given(st.binary(max_size=200), st.integers(0, 400), st.integers(0, 255))
def test_no_bytes_do_anything_but_pass_or_be_refused(content: bytes, at: int, value: int) -> None:
    """Arbitrary bytes, and a good archive with one byte replaced."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("sample/__init__.py", "x = 1")
    changed = bytearray(buffer.getvalue())
    changed[at % len(changed)] = value
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "sample-1.0-py3-none-any.whl"
        for candidate in (content, bytes(changed)):
            path.write_bytes(candidate)
            with suppress(PackageError):
                screen(path)
