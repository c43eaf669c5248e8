"""Reads what an author names on a command line."""

from pathlib import Path

from hotbay.config.reload import read_content

__all__ = ["content_of"]


def content_of(path: Path | None, default: str) -> tuple[str, str]:
    """Text and name of a file, or the default for None. Raises `InputError` when it cannot be read."""
    if path is None:
        return default, "<default>"
    return read_content(path).text(hint="check its name"), str(path)
