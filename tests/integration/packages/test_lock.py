"""`hotbay deps` with the real resolver."""

import re
from pathlib import Path

import pytest
from hotbay.errors import InputError, PackageError
from hotbay.packages.lock import lock_command
from hotbay.packages.pack import pack_command

pytestmark = [pytest.mark.process, pytest.mark.timeout(120)]


def names(lock: Path) -> list[str]:
    return re.findall(r"^([A-Za-z0-9._-]+)==", lock.read_text(), re.MULTILINE)


def test_lock_names_hashed_versions_but_no_place_and_can_be_packed(
    project: Path, wheel_directory: Path, tmp_path: Path
) -> None:
    (project / "requirements.lock").unlink()
    before = {path.name for path in project.iterdir()}

    file = lock_command(project, wheel_directory)

    text = file.read_text()
    assert names(file) == ["msgpack"]
    assert "--hash=sha256:" in text
    assert [line for line in text.splitlines() if "://" in line or line.startswith(("-", "#"))] == []
    assert str(wheel_directory) not in text
    assert {path.name for path in project.iterdir()} == before | {"requirements.lock"}
    assert pack_command(project, tmp_path / "out", 7, wheel_directory).id == "echo"


def test_project_that_cannot_be_satisfied_keeps_its_lock(project: Path, wheel_directory: Path) -> None:
    text = (project / "pyproject.toml").read_text()
    (project / "pyproject.toml").write_text(text.replace('"hotbay-sdk', '"msgpack<1", "hotbay-sdk'))
    before = (project / "requirements.lock").read_text()

    with pytest.raises(PackageError, match="cannot be resolved") as caught:
        lock_command(project, wheel_directory)

    assert caught.value.hint
    assert "hotbay-lock-" not in caught.value.message
    assert (project / "requirements.lock").read_text() == before


def test_no_sdk_wheel_is_named(project: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="expected one wheel of hotbay-sdk, found 0"):
        lock_command(project, tmp_path)
