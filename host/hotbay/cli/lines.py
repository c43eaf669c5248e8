"""One line that a plugin wrote, for people: when, by which revision, generation and process, on which stream, what."""

from collections.abc import Mapping

from hotbay.cli.sheet import moment
from hotbay.errors import printable

__all__ = ["log_line"]


def log_line(line: Mapping[str, object]) -> str:
    """The line without what nobody knows of it, and without anything that acts on a terminal."""
    at_s = line.get("at_s")
    known = [moment(at_s)] if isinstance(at_s, int | float) else []
    for name, form in (("rev", "rev {}"), ("generation", "#{}"), ("pid", "pid {}"), ("stream", "{}")):
        if line.get(name) is not None:
            known.append(form.format(line[name]))
    text = printable(str(line.get("line", "")))
    return f"{printable(' '.join(known))}: {text}" if known else text
