"""What `hotbay new` writes passes its own tests and an author's linter, for every extension point."""

import os
import subprocess
import sys
from pathlib import Path

import hotbay_sdk
import pytest
from hotbay.authoring.new_project import create_project
from hotbay.authoring.scaffold import POINTS
from hotbay.cli.new import new
from hotbay.errors import InputError
from hotbay.packages.tools import uv_binary

SDK = Path(hotbay_sdk.__file__).parents[1]
ROOT = Path(__file__).parents[2]
TIMEOUT_S = 180


@pytest.fixture
def projects(tmp_path: Path) -> list[Path]:
    """A project for each point."""
    made = (create_project(f"my-{point}", point, into=tmp_path, publisher="me", locked=False) for point in POINTS)
    return [created.directory for created in made]


@pytest.mark.process
@pytest.mark.timeout(TIMEOUT_S)
def test_a_new_project_passes_its_own_tests(projects: list[Path]) -> None:
    for project in projects:
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"]
        finished = subprocess.run(
            command,
            cwd=project,
            # Nothing of this checkout's own test tools is needed, or would be there.
            env={
                "PATH": os.defpath,
                "PYTHONPATH": str(SDK),
                "PYTHONDONTWRITEBYTECODE": "1",
                "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            },
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
        )
        assert finished.returncode == 0, f"{project.name}\n{finished.stdout}\n{finished.stderr}"
        assert "passed" in finished.stdout


@pytest.fixture(scope="module")
def author_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an author who installed the SDK's wheel and pytest, and no host."""
    folder = tmp_path_factory.mktemp("author")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, cwd=ROOT / "sdk", check=True, capture_output=True, timeout=TIMEOUT_S)
    (wheel,) = folder.glob("*.whl")
    venv, python = folder / "venv", folder / "venv" / "bin" / "python"
    subprocess.run(
        [uv_binary(), "venv", "--quiet", "--python", sys.executable, str(venv)], check=True, timeout=TIMEOUT_S
    )
    install = [uv_binary(), "pip", "install", "--quiet", "--python", str(python), str(wheel), "pytest"]
    subprocess.run(install, check=True, timeout=TIMEOUT_S)
    return python


@pytest.mark.process
@pytest.mark.timeout(TIMEOUT_S)
def test_sdk_and_harness_do_without_the_host(author_python: Path, projects: list[Path]) -> None:
    environment = {"PATH": os.defpath, "PYTHONDONTWRITEBYTECODE": "1"}

    def run(*arguments: str, cwd: Path) -> "subprocess.CompletedProcess[str]":
        command = [str(author_python), *arguments]
        return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S)

    # The control: what a project's tests would find of a host.
    assert "No module named 'hotbay'" in run("-c", "import hotbay", cwd=projects[0]).stderr
    listed = run("-c", "import msgpack, hotbay_sdk.testing", cwd=projects[0])
    assert (listed.returncode, listed.stderr) == (0, "")
    for project in projects:
        finished = run("-m", "pytest", "-q", "-p", "no:cacheprovider", "tests", cwd=project)
        assert finished.returncode == 0, f"{project.name}\n{finished.stdout}\n{finished.stderr}"


@pytest.mark.process
def test_a_new_project_is_clean_and_typed(projects: list[Path]) -> None:
    ruff = Path(sys.executable).with_name("ruff")
    checks = [str(ruff), "check", "--isolated", "--no-cache", "--line-length", "120", "--select", "E,F,I,UP,B,SIM"]
    finished = subprocess.run([*checks, *projects], capture_output=True, text=True, timeout=TIMEOUT_S)
    assert finished.returncode == 0, finished.stdout
    formatted = [str(ruff), "format", "--isolated", "--no-cache", "--line-length", "120", "--check"]
    finished = subprocess.run([*formatted, *projects], capture_output=True, text=True, timeout=TIMEOUT_S)
    assert finished.returncode == 0, finished.stdout


def test_the_command_offers_every_point() -> None:
    (option,) = (parameter for parameter in new.params if parameter.name == "point")
    assert tuple(option.type.choices) == POINTS  # type: ignore[attr-defined]  # a Choice has choices


def test_a_folder_that_is_there_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "work.txt").write_text("of years")
    with pytest.raises(InputError, match="is there already"):
        create_project("mine", "scorer", into=tmp_path, publisher="me", locked=False)
    assert [path.name for path in tmp_path.rglob("*")] == ["mine", "work.txt"]


def test_an_empty_folder_is_filled(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    created = create_project("mine", "scorer", into=tmp_path, publisher="me", locked=False)
    assert (created.directory / "pyproject.toml").is_file()


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be written"):
        create_project("mine", "scorer", into=tmp_path / "file", publisher="me", locked=False)
