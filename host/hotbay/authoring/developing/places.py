"""Where in the author's files something happened: installed paths in a traceback become the paths of the project. Pure.

A version is installed as `ENVIRONMENTS/KEY/site/PATH`, `PATH` being that inside the wheel; the file that it was made from
lies in the project. Paths of dependencies stay as they are. Lines are those of the version that ran: a file that was
edited since may have moved them.
"""

import re
from collections.abc import Mapping

__all__ = ["SourcePlaces"]


class SourcePlaces:
    """Args:
    environments: the folder of all environments, as processes see it.
    files: the author's file for each path inside the wheel.
    """

    def __init__(self, environments: str, files: Mapping[str, str]) -> None:
        self._files = files
        self._own = frozenset(files.values())
        self._installed = re.compile(re.escape(environments.rstrip("/")) + r"/[^/\s\"']+/site/([^\s\"':,)]+)")

    def mapped(self, text: str) -> str:
        """The text with the author's files in the place of installed ones."""
        return self._installed.sub(lambda found: self._files.get(found[1], found[0]), text)

    def place(self, mapped: str) -> str:
        """`FILE:LINE` of the innermost frame of the author's own code in a mapped traceback; empty without one."""
        frames = _FRAME.findall(mapped)
        own = [f"{file}:{line}" for file, line in frames if file in self._own]
        return own[-1] if own else ""

    def own_part(self, mapped: str) -> str:
        """A mapped traceback from the first frame of the author's own code on; all of it where there is none."""
        first = next((found for found in _FRAME.finditer(mapped) if found[1] in self._own), None)
        return mapped if first is None else mapped[mapped.rfind("\n", 0, first.start()) + 1 :]


_FRAME = re.compile(r'File "([^"\n]+)", line (\d+)')
"""As `traceback` and the interpreter itself write it."""
