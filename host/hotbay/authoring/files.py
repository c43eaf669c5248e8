"""Reads what an author names on a command line."""

from pathlib import Path

from hotbay.config.documents import decode_text
from hotbay.config.reload import read_content
from hotbay.errors import InputError, Place, Problem

__all__ = ["content_of"]


def content_of(path: Path | None, default: str) -> tuple[str, str]:
    """Text and name of a file, or the default for None. Raises `InputError` when it cannot be read."""
    if path is None:
        return default, "<default>"
    content = read_content(path)
    if content.data is None:
        problem = Problem("CONFIG_INVALID", f"cannot be read: {content.error}", Place(str(path)), hint="check its name")
        raise InputError([problem])
    return decode_text(content.data, file=str(path)), str(path)
