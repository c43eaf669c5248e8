"""What a build gets to see of a plugin's project."""

import os
from pathlib import Path

import pytest
from hotbay.errors import InputError
from hotbay.packages.project_copy import copy_project


def make(root: Path, *names: str) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)


def copied(project: Path, tmp_path: Path, out: Path | None = None) -> set[str]:
    copy = copy_project(project, tmp_path / "copy", out=out)
    assert copy.name == project.name
    return {str(path.relative_to(copy)) for path in copy.rglob("*") if path.is_file()}


def test_sources_are_copied_and_leftovers_are_not(tmp_path: Path) -> None:
    project = tmp_path / "project"
    kept = ("pyproject.toml", "requirements.lock", ".gitignore", "src/my/__init__.py", "src/my/build/part.py")
    make(project, *kept)
    make(
        project, ".git/HEAD", ".venv/pyvenv.cfg", "env/pyvenv.cfg", "env/bin/python", "build/lib/my/gone.py",
        "dist/my.whl", "src/my.egg-info/PKG-INFO", "src/my/__pycache__/a.pyc", "packages/mine/oci-layout", "out/index.json",
    )  # fmt: skip

    assert copied(project, tmp_path, project / "out") == set(kept)


def test_package_of_the_name_build_is_copied(tmp_path: Path) -> None:
    make(tmp_path / "project", "build/__init__.py")

    assert copied(tmp_path / "project", tmp_path) == {"build/__init__.py"}


def test_links_that_lead_upwards_or_nowhere_and_pipes_are_left_out(tmp_path: Path) -> None:
    project = tmp_path / "project"
    make(project, "my/__init__.py")
    make(tmp_path, "shared.py")
    (project / "my" / "up").symlink_to(project)
    (project / "my" / "nowhere").symlink_to(tmp_path / "absent")
    (project / "my" / "shared.py").symlink_to(tmp_path / "shared.py")
    os.mkfifo(project / "my" / "pipe")

    assert copied(project, tmp_path) == {"my/__init__.py", "my/shared.py"}


@pytest.mark.parametrize("out", [".", ".."])
def test_package_in_place_of_the_project_is_refused(tmp_path: Path, out: str) -> None:
    make(tmp_path / "project", "my/__init__.py")

    with pytest.raises(InputError, match="would replace the project"):
        copy_project(tmp_path / "project", tmp_path / "copy", out=tmp_path / "project" / out)
