"""The types of a plugin's project: `types` of [tool.hotbay], a list of names or a table of what each of them is. Pure."""

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Final, Protocol

from hotbay.config.data_types import Point
from hotbay.config.type_facts import KNOWN_POINTS, STABILITIES
from hotbay.packages.manifest import TypeFactsEntry, check_data_key, check_label, check_ref_path

__all__ = ["Report", "read_types", "without_requests"]

_FIELDS: Final = ("points", "produces_default", "refs", "stability")
_TABLE: Final = "tool.hotbay"


class Report(Protocol):
    """Takes a problem with the value of `key` in the table `path`."""

    def __call__(
        self, code: str, path: str, key: str, message: str, *, expected: str = "", found: str = "", hint: str = ""
    ) -> None: ...


def read_types(table: Mapping[str, object], report: Report) -> tuple[tuple[str, ...], dict[str, TypeFactsEntry]]:
    """Names, sorted, and what is said of them. `stability` of the package is that of types that write none."""
    value, default = table.get("types"), _stability(table, _TABLE, report)
    names: list[str] = []
    entries: dict[str, TypeFactsEntry] = {}
    if isinstance(value, list):
        names = _texts(value, _TABLE, "types", check_label, report)
        said = TypeFactsEntry.model_validate({"stability": default})
        entries = dict.fromkeys(sorted(names), said) if default is not None else {}
    elif isinstance(value, Mapping):
        for name in sorted(value):
            if right := _texts([name], _TABLE, "types", check_label, report):
                names += right
                entries[name] = _entry(value[name], f"{_TABLE}.types.{name}", default, report)
        # Nothing said of any type is what a plain list says, and the same manifest.
        entries = entries if any(entry != TypeFactsEntry() for entry in entries.values()) else {}
    else:
        kind = "nothing" if value is None else type(value).__name__
        expected = "a list of names, or a table [tool.hotbay.types.NAME] for each"
        report("CONFIG_INVALID", _TABLE, "types", "must be a list of texts or a table", expected=expected, found=kind)
        return (), {}
    if not value:
        report("CONFIG_INVALID", _TABLE, "types", "must name at least one", found="nothing")
    return tuple(sorted(names)), entries


def without_requests(facts: Mapping[str, TypeFactsEntry]) -> tuple[str, ...]:
    """Types all of whose points are the data layer's."""
    words = frozenset(str(point) for point in Point)
    return tuple(sorted(name for name, entry in facts.items() if entry.points and words.issuperset(entry.points)))


def _entry(value: object, path: str, default: str | None, report: Report) -> TypeFactsEntry:
    if not isinstance(value, Mapping):
        report("CONFIG_INVALID", path, "", "must be a table", expected="a table", found=type(value).__name__)
        return TypeFactsEntry()
    for key in sorted(set(value) - set(_FIELDS)):
        near = get_close_matches(key, _FIELDS, n=1)
        hint = f"Did you mean {near[0]}?" if near else f"Known keys: {', '.join(_FIELDS)}."
        report("UNKNOWN_FIELD", path, key, "unknown key", hint=hint)
    own = _stability(value, path, report)
    return TypeFactsEntry.model_validate(
        {
            "points": tuple(sorted(_texts(value.get("points", []), path, "points", _check_point, report))),
            "stability": default if own is None else own,
            "refs": tuple(_texts(value.get("refs", []), path, "refs", check_ref_path, report)),
            "produces_default": tuple(
                _texts(value.get("produces_default", []), path, "produces_default", check_data_key, report)
            ),
        }
    )


def _stability(table: Mapping[str, object], path: str, report: Report) -> str | None:
    value = table.get("stability")
    if value is None or value in STABILITIES:
        return value if isinstance(value, str) else None
    expected = " or ".join(STABILITIES)
    report("CONFIG_INVALID", path, "stability", "no stability", expected=expected, found=repr(value)[:80])
    return None


def _check_point(text: str) -> str:
    if text not in KNOWN_POINTS:
        near = get_close_matches(text, KNOWN_POINTS, n=1)
        raise ValueError("is no extension point" + (f"; did you mean {near[0]}?" if near else ""))
    return text


def _texts(value: object, path: str, key: str, check: Callable[[str], str], report: Report) -> list[str]:
    """Those of a list of texts that are right, each once."""
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        report("CONFIG_INVALID", path, key, "must be a list of texts", found=type(value).__name__)
        return []
    right = []
    for item in value:
        try:
            right.append(check(item))
        except ValueError as error:
            report("CONFIG_INVALID", path, key, str(error), found=repr(item[:80]))
    if len(set(value)) != len(value):
        report("CONFIG_INVALID", path, key, "names something twice")
    return list(dict.fromkeys(right))
