"""A plugin's project as its author writes it: `[project]` and `[tool.hotbay]` of pyproject.toml. Pure.

Strict: a key that nobody reads is refused, and all problems are reported at once with file and line.
"""

import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Final, TypeVar

from hotbay.capabilities import CAPABILITIES, unknown_capabilities
from hotbay.errors import InputError, Place, Problem
from hotbay.packages.manifest import (
    Channel,
    TypeFactsEntry,
    check_entrypoint,
    check_label,
    check_version,
    parse_channel,
)
from hotbay.packages.project_types import read_types, without_requests

_KEYS: Final = (
    *("capabilities", "channel", "data_types", "entrypoint", "id", "one_shot", "publisher", "stability", "types"),
)
_TABLE: Final = "tool.hotbay"
_Value = TypeVar("_Value")

__all__ = ["PluginProject", "parse_project"]


@dataclass(frozen=True, slots=True)
class PluginProject:
    """What `hotbay pack` takes from a plugin's pyproject.toml. `types`, `data_types` and `capabilities` are sorted."""

    name: str
    version: str
    description: str
    license: str
    id: str
    publisher: str
    types: tuple[str, ...]
    entrypoint: str
    capabilities: tuple[str, ...]
    channel: Channel
    one_shot: bool = False
    data_types: tuple[str, ...] = ()
    type_facts: Mapping[str, TypeFactsEntry] = field(default_factory=dict)


def parse_project(text: str, *, file: str) -> PluginProject:
    """Raises InputError with every problem found."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        at = re.search(r"line (\d+), column (\d+)", str(error))
        place = Place(file, int(at[1]), int(at[2])) if at else Place(file)
        raise InputError([Problem("CONFIG_INVALID", str(error), place=place)]) from error
    reader = _Reader(text, file)
    project = reader.table(document, "project")
    tool = reader.table(document, "tool")
    hotbay = reader.table(tool, _TABLE)
    if reader.problems:
        raise InputError(reader.problems)
    reader.unknown(hotbay)
    types, facts = read_types(hotbay, reader.report)
    legacy_license = isinstance(project.get("license"), Mapping)
    parsed = PluginProject(
        name=reader.text(project, "project", "name", str),
        version=reader.text(project, "project", "version", check_version),
        description=reader.text(project, "project", "description", str, default=""),
        # The older table form names a file or holds the whole text; it is not copied.
        license=reader.text(project, "project", "license", str, default="") if not legacy_license else "",
        id=reader.text(hotbay, _TABLE, "id", check_label),
        publisher=reader.text(hotbay, _TABLE, "publisher", check_label),
        types=types,
        entrypoint=reader.text(hotbay, _TABLE, "entrypoint", check_entrypoint),
        capabilities=reader.capabilities(hotbay),
        channel=reader.text(hotbay, _TABLE, "channel", parse_channel, default="dev"),
        one_shot=reader.flag(hotbay, "one_shot"),
        data_types=reader.data_types(hotbay, types) if "data_types" in hotbay else without_requests(facts),
        type_facts=facts,
    )
    if reader.problems:
        raise InputError(reader.problems)
    return parsed


class _Reader:
    """Collects problems while values are taken out of the document."""

    def __init__(self, text: str, file: str) -> None:
        self._lines = text.splitlines()
        self._file = file
        self.problems: list[Problem] = []

    def table(self, parent: Mapping[str, object], path: str) -> Mapping[str, object]:
        found = parent.get(path.rpartition(".")[2])
        if isinstance(found, Mapping):
            return found
        if not self.problems:
            self.report("CONFIG_INVALID", path, "", "this table is missing", hint=f"Add [{path}] to {self._file}.")
        return {}

    def unknown(self, table: Mapping[str, object]) -> None:
        for key in sorted(set(table) - set(_KEYS)):
            near = get_close_matches(key, _KEYS, n=1)
            hint = f"Did you mean {near[0]}?" if near else f"Known keys: {', '.join(_KEYS)}."
            self.report("UNKNOWN_FIELD", _TABLE, key, "unknown key", hint=hint)

    def text(
        self,
        table: Mapping[str, object],
        path: str,
        key: str,
        check: Callable[[str], _Value],
        *,
        default: str | None = None,
    ) -> _Value:
        value = table.get(key, default)
        if not isinstance(value, str):
            found = "nothing" if value is None else type(value).__name__
            hint = "It must be static: hotbay does not run the build to find it." if key == "version" else ""
            self.report("CONFIG_INVALID", path, key, "must be a text", expected="a text", found=found, hint=hint)
            return check(_STAND_IN.get(key, "x"))
        try:
            return check(value)
        except ValueError as error:
            self.report("CONFIG_INVALID", path, key, str(error), found=repr(value[:80]))
            return check(_STAND_IN.get(key, "x"))

    def flag(self, table: Mapping[str, object], key: str) -> bool:
        value = table.get(key, False)
        if not isinstance(value, bool):
            self.report("CONFIG_INVALID", _TABLE, key, "must be true or false", found=repr(value)[:80])
            return False
        return value

    def labels(self, table: Mapping[str, object], key: str) -> tuple[str, ...]:
        value = table.get(key, [])
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            self.report("CONFIG_INVALID", _TABLE, key, "must be a list of texts", found=type(value).__name__)
            return ()
        for item in value:
            try:
                check_label(item)
            except ValueError as error:
                self.report("CONFIG_INVALID", _TABLE, key, str(error), found=repr(item[:80]))
        if len(set(value)) != len(value):
            self.report("CONFIG_INVALID", _TABLE, key, "names something twice")
        return tuple(sorted(value))

    def data_types(self, table: Mapping[str, object], types: tuple[str, ...]) -> tuple[str, ...]:
        """Those of the types that see no request."""
        found = self.labels(table, "data_types")
        unknown = [name for name in found if types and name not in types]
        if unknown:
            text = "names what `types` does not"
            self.report("CONFIG_INVALID", _TABLE, "data_types", text, found=", ".join(unknown)[:80])
        return found

    def capabilities(self, table: Mapping[str, object]) -> tuple[str, ...]:
        """Labels that are capabilities: what nothing is granted for is asked for by mistake."""
        before = len(self.problems)
        found = self.labels(table, "capabilities")
        if len(self.problems) == before:
            known = f"some of {', '.join(CAPABILITIES)}"
            for name, near in unknown_capabilities(found).items():
                hint = f"Did you mean {near}?" if near else ""
                text = "unknown capability"
                self.report("INVALID_PACKAGE", _TABLE, "capabilities", text, expected=known, found=name, hint=hint)
        return found

    def report(
        self, code: str, path: str, key: str, message: str, *, expected: str = "", found: str = "", hint: str = ""
    ) -> None:
        """Note a problem with the value of `key` in the table `path`."""
        place = Place(self._file, self._line(path, key))
        full = f"{path}.{key}" if key else path
        self.problems.append(Problem(code, message, place, full, expected, found, hint))

    def _line(self, path: str, key: str) -> int | None:
        """Line of a key below its table's header, or of the header; tomllib keeps no positions."""
        header: int | None = None
        for number, line in enumerate(self._lines, start=1):
            if line.lstrip().startswith("["):
                if header is not None:
                    return header
                if line.split("#")[0].replace(" ", "").strip() == f"[{path}]":
                    header = number
            elif header is not None and key and re.match(rf"\s*[\"']?{re.escape(key)}[\"']?\s*=", line):
                return number
        return header


# Lets reading go on after a problem, so that all are found; never leaves this module.
_STAND_IN: Final = {"version": "0.0.0", "entrypoint": "x:x", "channel": "dev"}
