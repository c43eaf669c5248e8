"""Where what comes with a host lies, and what is said when it does not."""

from pathlib import Path

import anyio
import pytest
from hotbay.errors import PackageError
from hotbay.packages.bundled import Part, absent, bundled_folder
from hotbay.packages.sources.folder import DirectorySource
from hotbay.packages.sources.source import Scan


def installation(root: Path) -> Path:
    package = root / "lib" / "python3.11" / "site-packages" / "hotbay"
    package.mkdir(parents=True)
    return package


def checkout(root: Path) -> Path:
    for name in ("host/pyproject.toml", "sdk/pyproject.toml", "Makefile"):
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).touch()
    package = root / "host" / "hotbay"
    package.mkdir()
    return package


def test_wheel_brings_its_folders(tmp_path: Path) -> None:
    package = installation(tmp_path)
    (package / "_bundled" / "packages").mkdir(parents=True)

    assert bundled_folder(Part.PACKAGES, package=package) == package / "_bundled" / "packages"


def test_plain_installation_takes_no_build_folder_and_says_what_to_install(tmp_path: Path) -> None:
    package = installation(tmp_path)
    (tmp_path / "lib" / "python3.11" / "build" / "wheels").mkdir(parents=True)

    assert bundled_folder(Part.WHEELS, package=package) == package / "_bundled" / "wheels"
    problem = str(absent(Part.WHEELS, package=package))
    assert "this installation carries no SDK wheel" in problem
    assert "`make wheel && pip install dist/*.whl`" in problem


def test_checkout_has_them_in_its_build_folder(tmp_path: Path) -> None:
    package = checkout(tmp_path)

    assert bundled_folder(Part.PACKAGES, package=package) == tmp_path / "build" / "packages"
    assert "make setup" in str(absent(Part.PACKAGES, package=package))


def test_source_tells_the_absence_in_its_own_words(tmp_path: Path) -> None:
    package = installation(tmp_path)
    folder, problem = bundled_folder(Part.PACKAGES, package=package), absent(Part.PACKAGES, package=package)

    source = DirectorySource(folder, "bundled", absent=problem)
    with pytest.raises(PackageError) as caught:
        anyio.run(source.scan)
    assert (caught.value.code, caught.value.hint) == (problem.code, problem.hint)
    assert problem.message in caught.value.message
    folder.mkdir(parents=True)
    assert anyio.run(source.scan) == Scan()
