"""A plugin's project as a folder, and the SDK's wheel that belongs to this host. Blocks; only reads."""

from pathlib import Path
from typing import Final

from hotbay.errors import InputError, Place, Problem
from hotbay.packages.bundled import Part, absent, bundled_folder
from hotbay.packages.project import PluginProject, parse_project

SDK: Final = "hotbay-sdk"
_PROJECT_LIMIT_BYTES: Final = 1 << 20

__all__ = ["SDK", "read_project", "sdk_wheel"]


def read_project(directory: Path) -> PluginProject:
    """Raises InputError with every problem of the folder's pyproject.toml."""
    file = directory / "pyproject.toml"
    try:
        with file.open("rb") as opened:
            content = opened.read(_PROJECT_LIMIT_BYTES + 1)
        if len(content) > _PROJECT_LIMIT_BYTES:
            raise InputError([Problem("CONFIG_INVALID", f"more than {_PROJECT_LIMIT_BYTES} bytes", Place(str(file)))])
        return parse_project(content.decode(), file=str(file))
    except OSError as error:
        hint = "Name the folder of a plugin's project."
        raise InputError(
            [Problem("CONFIG_INVALID", error.strerror or "cannot be read", Place(str(file)), hint=hint)]
        ) from error
    except UnicodeDecodeError as error:
        raise InputError([Problem("CONFIG_INVALID", "is not UTF-8", Place(str(file)))]) from error


def sdk_wheel(directory: Path | None = None) -> Path:
    """The one wheel of the SDK in `directory`, by default what comes with the host. Raises InputError."""
    folder = directory or bundled_folder(Part.WHEELS)
    found = sorted(folder.glob("hotbay_sdk-*.whl"))
    if directory is None and not found:
        raise InputError([absent(Part.WHEELS)])
    if len(found) != 1:
        message = f"expected one wheel of {SDK}, found {len(found)}"
        hint = "Name the folder that holds it with --wheels."
        raise InputError([Problem("CONFIG_INVALID", message, Place(str(folder)), hint=hint)])
    return found[0]
