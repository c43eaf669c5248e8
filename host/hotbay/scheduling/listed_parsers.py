"""The parsers that a configuration lists, the host's own among those of packages, as a front door asks for them.

Invariants: the order is that of the configuration; a listed parser of a package that was never ready
claims nothing where no manifest says what it is, and else whatever nobody listed before it does; the
same list is the same object, so that who made something of it need not make it again.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from hotbay.config.picker_config import PickerConfig
from hotbay.scheduling.parsing import ParseDone
from hotbay.scheduling.plan import Plan
from hotbay.scheduling.registry import BUILTIN_PARSERS
from hotbay.scheduling.router import Router

__all__ = ["ListedParsers"]

_DEFAULT: Final = ("openai-parser", "anthropic-parser", "vllmhttp-parser", "passthrough-parser")


class ListedParsers:
    """See the module. `router` knows those of packages."""

    def __init__(self, router: Router, picker: PickerConfig) -> None:
        self._router = router
        self._plan: Plan | None = None
        self._refs: tuple[tuple[str, str], ...] = ()
        self._listed: Sequence[tuple[str, str]] = ()
        self.take(picker)

    def take(self, picker: PickerConfig) -> None:
        """Another configuration is in force."""
        types = {entry.name: entry.type for entry in picker.plugins}
        names = [entry.ref for entry in picker.parsers] or _DEFAULT
        self._refs = tuple((name, types.get(name, name)) for name in names)
        self._list()

    @property
    def parsers(self) -> Sequence[tuple[str, str]]:
        """(path suffix, ref); a parser of the host's own is "" with its type."""
        if self._router.plan is not self._plan:
            self._plan = self._router.plan
            self._list()
        return self._listed

    def parse(self, ref: str, path: str, headers: Mapping[str, str], body: bytes, done: ParseDone) -> None:
        """See `Router.parse`."""
        self._router.parse(ref, path, headers, body, done)

    def _list(self) -> None:
        claims = self._router.parsers
        listed: list[tuple[str, str]] = []
        for name, type_name in self._refs:
            of_package = [claim for claim in claims if claim[1] == name]
            if not of_package and type_name in BUILTIN_PARSERS:
                of_package = [("", type_name)]
            listed += of_package
        if listed != list(self._listed):
            self._listed = tuple(listed)
