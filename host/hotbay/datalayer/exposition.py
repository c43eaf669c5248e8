"""Reads the samples of wanted names out of a Prometheus text page.

Pages are long and scraped often, so one search finds the lines of the wanted names and the others are never looked at:
HELP and TYPE do not matter, and a broken line counts only when it starts with a wanted name. Values, escapes and white
space are read as prometheus_client reads them. Invariant: whatever the bytes, the only error is ExpositionError. Pure.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType
from typing import Final, NamedTuple

__all__ = ["ExpositionError", "Page", "PageReader", "Sample"]

MAX_WANTED_LINES: Final = 4096
"""A page has a handful; a thousand LoRA label sets are a quarter of it. Bounds what one page may cost the loop."""

MAX_LINE_BYTES: Final = 64 * 1024
"""A label set of a thousand adapters is a tenth of it; longer lines count as bad."""

_REMEMBERED_LINES: Final = 2048
_REMEMBERED_LINE_BYTES: Final = 4096
"""Most lines are those of the last scrape, and one describes the whole engine in a hundred labels; 8 MiB at most."""

# Possessive throughout: a broken line must not send the matcher back over it.
_LABELS: Final = r'(?:[^"}]++|"(?:[^"\\]++|\\.)*+")*+'
_SAMPLE: Final = re.compile(
    rf"(?:\{{(?P<labels>{_LABELS})\}})?[ \t]*(?P<value>[^ \t]+)(?:[ \t]+-?[0-9]+)?[ \t]*\Z", re.DOTALL
)
_LABEL: Final = re.compile(
    r'[ \t]*([a-zA-Z_][a-zA-Z0-9_]*)[ \t]*=[ \t]*"((?:[^"\\]++|\\.)*+)"[ \t]*(?:,|\Z)', re.DOTALL
)
_ESCAPE: Final = re.compile(r'\\[\\n"]')
_ESCAPED: Final = {r"\\": "\\", r"\n": "\n", r"\"": '"'}
_PAGE_START: Final = re.compile(rb"[ \t\r\n]*(?:[#a-zA-Z_:{]|\Z)")


class ExpositionError(Exception):
    """The bytes are no metrics page at all; `found` shows their beginning."""

    def __init__(self, message: str, found: bytes) -> None:
        super().__init__(f"{message}: it starts with {found!r}")
        self.found = found


class Sample(NamedTuple):
    """One series: its labels and its value."""

    labels: Mapping[str, str]
    value: float


@dataclass(frozen=True, slots=True)
class Page:
    """What was wanted and found: series by sample name, in page order; of a series that stands twice, the last."""

    samples: Mapping[str, tuple[Sample, ...]] = field(default_factory=dict)
    bad_lines: int = 0
    duplicates: int = 0


class PageReader:
    """Reads the samples with the given names out of pages."""

    def __init__(self, names: Iterable[str]) -> None:
        choice = "|".join(re.escape(name) for name in sorted(set(names)))
        # A literal line feed in front lets the search skip whole lines; an anchor would try every byte.
        self._wanted = re.compile(rf"\n[ \t]*({choice})(?=[{{ \t\r\n]|\Z)([^\n]*)".encode("ascii"))

    def read(self, body: bytes) -> Page:
        """Read one page.

        Raises:
            ExpositionError: it is something else, such as HTML.
        """
        if not _PAGE_START.match(body):
            raise ExpositionError("not a Prometheus text page", bytes(body[:40]))
        lines = self._wanted.findall(b"\n" + body)
        if len(lines) > MAX_WANTED_LINES:
            raise ExpositionError(f"{len(lines)} lines of wanted names, at most {MAX_WANTED_LINES}", bytes(body[:40]))
        series: dict[str, dict[frozenset[tuple[str, str]], Sample]] = {}
        bad_lines = read = 0
        for name, rest in lines:
            sample = _parse(rest) if len(rest) > _REMEMBERED_LINE_BYTES else _parse_remembered(rest)
            if sample is None:
                bad_lines += 1
                continue
            read += 1
            series.setdefault(name.decode(), {})[frozenset(sample.labels.items())] = sample
        samples = {name: tuple(by_labels.values()) for name, by_labels in series.items()}
        return Page(samples, bad_lines, duplicates=read - sum(map(len, samples.values())))


def _parse(line: bytes) -> Sample | None:
    """Read labels and value; None for a bad line."""
    if len(line) > MAX_LINE_BYTES:
        return None
    try:
        match = _SAMPLE.match(line.decode("utf-8").strip())
    except UnicodeDecodeError:
        return None
    if match is None:
        return None
    value = _number(match["value"])
    labels = _labels(match["labels"] or "")
    return None if value is None or labels is None else Sample(MappingProxyType(labels), value)


_parse_remembered = lru_cache(_REMEMBERED_LINES)(_parse)


def _number(text: str) -> float | None:
    # Python would also read 1_000 and digits of other scripts.
    if "_" in text or not text.isascii():
        return None
    try:
        return float(text)
    except ValueError:
        return None


def _labels(text: str) -> dict[str, str] | None:
    labels: dict[str, str] = {}
    position, end = 0, len(text.rstrip())
    while position < end:
        match = _LABEL.match(text, position)
        if match is None or match[1] in labels:
            return None
        labels[match[1]] = _ESCAPE.sub(lambda escape: _ESCAPED[escape[0]], match[2]) if "\\" in match[2] else match[2]
        position = match.end()
    return labels
