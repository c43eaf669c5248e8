"""Has a plugin's process wait for a debugger: before anything of the author's is imported, on an address that it prints.

The debugger is debugpy, from the plugin's own dependencies or from the environment that hotbay runs in. It is told which
of the author's files an installed one is, so that breakpoints hit.
"""

import re
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from hotbay.errors import InputError, Problem

ADDRESS: Final = re.compile(r"hotbay dev: waiting for a debugger on (\S+:\d+)")
"""What a process prints."""

_LOCKED: Final = re.compile(r"^debugpy\s*==", re.MULTILINE)

PROBE: Final = "HOTBAY_DEV_PROBE"
"""Set in the environment of a process that is only asked what it declares: nobody is waited for."""

# A `.pth` file runs single lines that begin with `import`. An address for each process: the version before still has its own.
_FIRST: Final = """\
import json, os, sys
sys.path.append({folder!r})
os.environ["PYDEVD_DISABLE_FILE_VALIDATION"] = "1"
os.environ["PATHS_FROM_ECLIPSE_TO_PYTHON"] = json.dumps([[{sources!r}, {site!r}]])
import debugpy
sys.path.remove({folder!r})
host, port = debugpy.listen(("127.0.0.1", 0))
print(f"hotbay dev: waiting for a debugger on {{host}}:{{port}}", file=sys.stderr, flush=True)
debugpy.wait_for_client()
"""

__all__ = ["ADDRESS", "PROBE", "debugger_folder", "first_lines"]


def debugger_folder(lock: str) -> Path | None:
    """The folder to import debugpy from; None when the project's lock has it among the plugin's dependencies.

    Raises:
        InputError: it is neither there nor where hotbay is installed.
    """
    if _LOCKED.search(lock):
        return None
    found = find_spec("debugpy")
    if found is None or found.origin is None:
        message = "--wait-for-debugger needs debugpy, which is not installed"
        hint = (
            "Run `python -m pip install debugpy` where hotbay is installed, or add it to the plugin's dependencies and run"
            " `hotbay deps`."
        )
        raise InputError([Problem("CONFIG_INVALID", message, hint=hint)])
    return Path(found.origin).parents[1]


def first_lines(folder: Path | None, sources: Path, site: Path) -> str:
    """What each process of a version in `site` runs first, whose modules lie below `sources` in the project. Pure."""
    program = _FIRST.format(folder=str(folder or site), sources=str(sources), site=str(site))
    return f"import os; os.environ.get({PROBE!r}) or exec({program!r})\n"
