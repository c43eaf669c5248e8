"""Splits a text of several YAML documents into texts of one, each with its documents' lines where they stood. Pure.

A line that begins with `---` or `...` ends a document whatever stands around it: YAML allows neither inside a block of text
(1.2, 9.1.2), so that no parser is needed to find them.
"""

import re
from typing import Final

from hotbay.config.documents import is_blank

__all__ = ["split_documents"]

_LINE: Final = re.compile("[^\r\n\x85\u2028\u2029]*(?:\r\n|[\r\n\x85\u2028\u2029])|[^\r\n\x85\u2028\u2029]+\\Z")
_MARKER: Final = re.compile(r"(---|\.\.\.)(?=\s|\Z)")


def split_documents(text: str) -> tuple[str, ...]:
    """Return the documents that are not blank, each after as many line breaks as lines stand before it."""
    documents: list[str] = []
    lines: list[str] = []
    begun_at = 0

    def end(next_at: int) -> None:
        nonlocal lines, begun_at
        document = "".join(lines)
        if not is_blank("".join(line for line in lines if not line.startswith("%"))):
            documents.append("\n" * begun_at + document)
        lines, begun_at = [], next_at

    for number, line in enumerate(_LINE.findall(text.removeprefix("\ufeff"))):
        marker = _MARKER.match(line)
        if marker is not None and lines:
            end(number)
        if marker is None or marker[1] == "---":
            lines.append(line)
        else:
            begun_at = number + 1
    end(0)
    return tuple(documents)
