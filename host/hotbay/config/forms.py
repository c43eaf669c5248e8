"""Reads plain values of a document field by field and collects what is wrong with them.

Pure. A `Form` never raises for what stands in the document: it reports and returns nothing for that value,
so that one pass finds all problems. A null counts as an absent field.
"""

import math
from collections.abc import Collection, Mapping
from typing import Final

from hotbay.config.documents import Document
from hotbay.config.wording import Path, Value, described, not_supported, path_text, quoted, unknown_field
from hotbay.errors import Problem

_LONGEST_NAME: Final = 253
_QUOTE_IT: Final = "put it in quotes if a text is meant"


class Form:
    """A document under reading, with the problems and warnings found so far."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.problems: list[Problem] = []
        self.warnings: list[Problem] = []

    def report(
        self, path: Path, code: str, message: str, *, expected: str = "", found: str = "", hint: str = ""
    ) -> None:
        """Report what is wrong with the value at `path`."""
        place = self.document.place(path)
        self.problems.append(Problem(code, message, place, path_text(path), expected, found, hint))

    def warn(self, path: Path, code: str, message: str, *, hint: str = "") -> None:
        """Note what is accepted but should be known."""
        self.warnings.append(Problem(code, message, self.document.key_place(path), path_text(path), hint=hint))

    def fields(
        self,
        value: Value,
        path: Path,
        known: Collection[str],
        *,
        renamed: Mapping[str, str] | None = None,
        later: Mapping[str, str] | None = None,
    ) -> dict[str, Value]:
        """Return the known fields of a mapping that are not null, and report all others.

        Args:
            value: what stands at `path`.
            path: where.
            known: names of fields that are read.
            renamed: old names, each with the one that is used today.
            later: names that the format knows and this release does not carry out, each with a remark.
        """
        if not isinstance(value, dict):
            self.expected(path, "a mapping", value)
            return {}
        for name in value:
            if name not in known:
                self._report_field((*path, name), known, renamed or {}, later or {}, is_null=value[name] is None)
        return {name: item for name, item in value.items() if name in known and item is not None}

    def _report_field(
        self, path: Path, known: Collection[str], renamed: Mapping[str, str], later: Mapping[str, str], *, is_null: bool
    ) -> None:
        name = str(path[-1])
        place = self.document.key_place(path)
        if name in renamed:
            hint = f"today's key is {quoted(renamed[name])}"
            self.problems.append(
                Problem("UNKNOWN_FIELD", f"old spelling {quoted(name)}", place, path_text(path), hint=hint)
            )
        elif name not in later:
            self.problems.append(unknown_field(path, place, known))
        elif not is_null:
            self.problems.append(not_supported(path, place, later[name]))

    def items(self, value: Value, path: Path) -> list[tuple[Path, Value]]:
        """Return the items of a list with their paths; nothing for an absent list."""
        if value is None:
            return []
        if not isinstance(value, list):
            self.expected(path, "a list", value)
            return []
        return [((*path, index), item) for index, item in enumerate(value)]

    def text(self, value: Value, path: Path) -> str | None:
        """Return a text that is not empty."""
        if isinstance(value, str) and value:
            return value
        is_scalar = isinstance(value, (bool, int, float))
        expected = "a text that is not empty" if value == "" else "a text"
        self.expected(path, expected, value, hint=_QUOTE_IT if is_scalar else "")
        return None

    def name(self, value: Value, path: Path) -> str | None:
        """Return a text that can be a name: printable, of bounded length."""
        text = self.text(value, path)
        if text is None or (len(text) <= _LONGEST_NAME and text.isprintable()):
            return text
        self.expected(path, f"a printable name of at most {_LONGEST_NAME} characters", value)
        return None

    def boolean(self, value: Value, path: Path) -> bool | None:
        """Return a boolean."""
        if isinstance(value, bool):
            return value
        self.expected(path, "true or false", value)
        return None

    def number(
        self, value: Value, path: Path, *, minimum: float = -math.inf, maximum: float = math.inf
    ) -> float | None:
        """Return a finite number within the bounds."""
        if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value):
            if minimum <= value <= maximum:
                return float(value)
            bounds = f"at least {minimum:g}" if maximum == math.inf else f"from {minimum:g} to {maximum:g}"
            self.expected(path, f"a number {bounds}", value)
        else:
            self.expected(path, "a finite number", value)
        return None

    def expected(self, path: Path, expected: str, value: Value, *, hint: str = "") -> None:
        """Report a value that is not what is due."""
        message = "not a value for this field"
        self.report(path, "CONFIG_INVALID", message, expected=expected, found=described(value), hint=hint)
