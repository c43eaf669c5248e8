"""What comes with a host: the first-party packages, the samples and the SDK's wheel.

They lie inside an installed wheel, or in the `build` folder of a checkout. An installation of `./host` alone has
neither, and is told so; a folder that happens to stand where a checkout would have one is never taken for it.
"""

from enum import StrEnum
from pathlib import Path
from typing import Final

from hotbay.errors import Place, Problem

_PACKAGE: Final = Path(__file__).resolve().parent.parent
# What the workspace's root holds beside each other, and no folder of libraries does.
_CHECKOUT_FILES: Final = ("host/pyproject.toml", "sdk/pyproject.toml", "Makefile")

__all__ = ["Part", "absent", "bundled_folder"]


class Part(StrEnum):
    """A folder that comes with a host."""

    PACKAGES = "packages"
    SAMPLES = "samples"
    WHEELS = "wheels"


_CALLED: Final = {
    Part.PACKAGES: "first-party packages",
    Part.SAMPLES: "sample packages",
    Part.WHEELS: "SDK wheel",
}


def bundled_folder(part: Part, *, package: Path = _PACKAGE) -> Path:
    """Where the part lies, or would lie: `absent` says why it does not. `package` is the folder of `hotbay`."""
    inside = package / "_bundled" / part
    checkout = _checkout(package)
    return inside if checkout is None or inside.is_dir() else checkout / "build" / part


def absent(part: Part, *, package: Path = _PACKAGE) -> Problem:
    """What to say when the part's folder is not there."""
    place = Place(str(bundled_folder(part, package=package)))
    if _checkout(package) is not None:
        return Problem("FETCH_FAILED", f"this checkout has no {_CALLED[part]} yet", place, hint="Run `make setup`.")
    hint = "Run `make wheel && pip install dist/*.whl` in a checkout: that host brings them."
    return Problem("FETCH_FAILED", f"this installation carries no {_CALLED[part]}", place, hint=hint)


def _checkout(package: Path) -> Path | None:
    root = package.parent.parent
    is_checkout = package.parent.name == "host" and all((root / name).is_file() for name in _CHECKOUT_FILES)
    return root if is_checkout else None
