"""The wheels hold what the source folders hold, and the SDK's pulls msgpack alone."""

import subprocess
import sys
from email import message_from_bytes
from email.message import Message
from pathlib import Path
from zipfile import ZipFile

import pytest

ROOT = Path(__file__).parents[2]
BUILD_TIMEOUT_S = 60


@pytest.fixture(scope="module", params=["sdk", "host"])
def built(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """The distribution's folder, and its wheel."""
    folder = tmp_path_factory.mktemp(request.param)
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT / request.param, check=True, capture_output=True, timeout=BUILD_TIMEOUT_S)
    (wheel,) = folder.glob("*.whl")
    return request.param, wheel


def metadata(wheel: Path) -> Message:
    with ZipFile(wheel) as archive:
        (name,) = (n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
        return message_from_bytes(archive.read(name))


def test_wheel_holds_the_package_and_nothing_else(built: tuple[str, Path]):
    folder, wheel = built
    package = "hotbay_sdk" if folder == "sdk" else "hotbay"
    source = ROOT / folder
    expected = {
        str(file.relative_to(source))
        for file in (source / package).rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }

    with ZipFile(wheel) as archive:
        found = {name for name in archive.namelist() if ".dist-info/" not in name}

    assert found == expected
    assert f"{package}/py.typed" in found


def test_wheel_carries_the_licence(built: tuple[str, Path]):
    _, wheel = built

    assert metadata(wheel)["License-Expression"] == "Apache-2.0"
    with ZipFile(wheel) as archive:
        assert any(name.endswith(".dist-info/licenses/LICENSE") for name in archive.namelist())


def test_sdk_wheel_requires_msgpack_alone(built: tuple[str, Path]):
    folder, wheel = built
    required = [entry.split(">")[0] for entry in metadata(wheel).get_all("Requires-Dist", [])]

    assert folder == "host" or required == ["msgpack"]
