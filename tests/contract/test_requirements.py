"""The committed requirements: pinned, hashed, and without the address of any index."""

import re
from pathlib import Path

import pytest

REQUIREMENTS = Path(__file__).parents[2] / "requirements"
FILES = ("dev.txt", "uv.txt")
PIN = re.compile(r"^(?P<name>[a-z0-9._-]+)==(?P<version>[^ ;]+)(?: ; [^\\]+)? \\$")


def entries(file: str) -> list[list[str]]:
    """Each requirement with the lines that belong to it."""
    found: list[list[str]] = []
    for line in (REQUIREMENTS / file).read_text().splitlines():
        if line.startswith(" "):
            found[-1].append(line.strip())
        else:
            found.append([line])
    return found


@pytest.mark.parametrize("file", FILES)
def test_every_requirement_is_pinned_and_hashed(file: str):
    for pin, *hashes in entries(file):
        assert PIN.match(pin), pin
        assert hashes, pin
        assert all(re.fullmatch(r"--hash=sha256:[0-9a-f]{64}( \\)?", line) for line in hashes), pin


@pytest.mark.parametrize("file", FILES)
def test_no_requirement_names_an_index(file: str):
    text = (REQUIREMENTS / file).read_text()

    assert "://" not in text
    assert not re.search(r"^-", text, re.MULTILINE)


def test_installer_is_the_one_of_the_environment():
    (installer,) = entries("uv.txt")

    assert installer in entries("dev.txt")
