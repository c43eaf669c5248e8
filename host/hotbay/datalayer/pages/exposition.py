"""Reads the samples of wanted names out of a metrics page, in Prometheus' text form or in OpenMetrics'.

Pages are long and read often, so that only lines of wanted names are looked at: HELP and TYPE do not matter, and a
broken line counts only when it starts with a wanted name. Values, escapes and white space are read as prometheus_client
reads them; times and exemplars are read past, for ages count from when a page came. OpenMetrics has to end with its
`# EOF`, without which a page is not whole. A text without any sample is no page: neither `OK` nor nothing at all says how a
server is; but comments alone are one when they are those of a registry that is still empty. What a page costs is linear in its bytes, and has bounds for lines and for what is wanted, which cost more.
Invariant: whatever the bytes, the only error is ExpositionError. Pure.
"""

import enum
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias

from hotbay.datalayer.pages.line_search import MAX_LINES, FoundLine, LineMemory, LineSearch
from hotbay.datalayer.pages.steps import Steps, at_once
from hotbay.datalayer.pages.text import PageText

__all__ = [
    "FREE_PAGE_BYTES",
    "MAX_PAGE_LINES",
    "MAX_WANTED_BYTES",
    "ExpositionError",
    "Form",
    "Page",
    "PageMemory",
    "PageReader",
    "Sample",
    "form_of",
]

MAX_LINE_BYTES: Final = 64 * 1024
"""A label set of a thousand adapters is a tenth of it; longer lines count as bad."""
MAX_WANTED_BYTES: Final = 512 * 1024
"""Of all lines of wanted names, twice what a thousand LoRA label sets have: labels cost a fifth of a microsecond a byte."""
MAX_PAGE_LINES: Final = 128 * 1024
FREE_PAGE_BYTES: Final = 512 * 1024
"""Lines of a larger page are counted before they are looked at. A line costs as much as a hundred bytes of one."""

_REMEMBERED_LINES: Final = 2048
_REMEMBERED_LINE_BYTES: Final = 4096
"""Most lines are those of the last page, and one describes the whole engine in a hundred labels; 8 MiB at most."""

# Possessive throughout: a broken line must not send the matcher back over it.
_LABELS: Final = r'(?:[^"}]++|"(?:[^"\\]++|\\.)*+")*+'
_SERIES: Final = rf"(?:\{{(?P<labels>{_LABELS})\}})?[ \t]*+(?P<value>[^ \t]++)"
_NUMBER: Final = r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?"
_EXEMPLAR: Final = rf"[ \t]++\#[ \t]*+\{{(?P<exemplar>{_LABELS})\}}[ \t]*+{_NUMBER}(?:[ \t]++{_NUMBER})?"
_TEXT_SAMPLE: Final = re.compile(rf"{_SERIES}(?:[ \t]++-?[0-9]+)?[ \t]*+\Z", re.DOTALL)
_OPENMETRICS_SAMPLE: Final = re.compile(rf"{_SERIES}(?:[ \t]++{_NUMBER})?(?:{_EXEMPLAR})?[ \t]*+\Z", re.DOTALL)
_LABEL: Final = re.compile(
    r'[ \t]*(?:([a-zA-Z_][a-zA-Z0-9_]*)|"((?:[^"\\]++|\\.)++)")[ \t]*=[ \t]*"((?:[^"\\]++|\\.)*+)"[ \t]*(?:,|\Z)',
    re.DOTALL,
)
_ESCAPE: Final = re.compile(r'\\[\\n"]')
_ESCAPED: Final = {r"\\": "\\", r"\n": "\n", r"\"": '"'}
_PAGE_START: Final = re.compile(rb"[ \t\r\n]*+(?:[#a-zA-Z_:{]|\Z)")
_LINE_LABELS: Final = rb'\{(?:[^"}\n]++|"(?:[^"\\\n]++|\\.)*+")*+\}'
_ANY_SAMPLE: Final = re.compile(
    rb"\n[ \t]*+(?:[a-zA-Z_:][a-zA-Z0-9_:]*+(?:[ \t]*+" + _LINE_LABELS + rb"[ \t]*+|[ \t]++)|" + _LINE_LABELS
    + rb"[ \t]*+)[-+]?(?:\.?[0-9][0-9.eE+-]*+|[nN][aA][nN]|[iI][nN][fF](?:inity)?)(?:[ \t]++[-+]?[0-9.][0-9.eE+-]*+)?"
    rb"(?:[ \t]++\#[^\n]*+)?[ \t\r]*+(?:\n|\Z)"
)  # fmt: skip
_COMMENTS: Final = re.compile(rb"(?:[ \t\r]*+(?:\#[^\n]*+)?\n)*+[ \t\r]*+(?:\#[^\n]*+)?\Z")
_DECLARED: Final = re.compile(rb"\n[ \t]*+\#[ \t]*+(?:(?:HELP|TYPE)[ \t]++[^ \t\r\n]|EOF[ \t\r]*+(?:\n|\Z))")
_PAGE_END: Final = re.compile(rb"\n# EOF\r?\n?\Z")
_STEP_COST: Final = 16 * 1024
_LINE_COST: Final = 64
"""Of a step and of a line, in bytes that labels cost as much as: a step is some ms."""
_SHOWN_BYTES: Final = 40
_LONGEST_END: Final = len(b"\n# EOF\r\n")


class Form(enum.Enum):
    """How a page is written."""

    TEXT = "text"
    OPENMETRICS = "openmetrics"


def form_of(content_type: bytes) -> Form:
    """The form that a content type in lower case names; text if it names another one or nothing."""
    return Form.OPENMETRICS if content_type.startswith(b"application/openmetrics-text") else Form.TEXT


class ExpositionError(Exception):
    """The bytes are no whole metrics page; `reason` is a short fixed word, `found` shows what tells."""

    def __init__(self, message: str, found: bytes, *, reason: str = "not_metrics") -> None:
        super().__init__(message)
        self.reason = reason
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


class PageMemory:
    """What a reader keeps of the last page of one endpoint. Belongs to one reader."""

    __slots__ = ("form", "found", "lines", "page")

    def __init__(self) -> None:
        self.lines = LineMemory()
        self.found: list[FoundLine] | None = None
        self.form = Form.TEXT
        self.page = Page()


class PageReader:
    """Reads the samples with the given names out of pages."""

    def __init__(self, names: Iterable[str]) -> None:
        self._search = LineSearch(names)

    def read(self, page: PageText | bytes, form: Form = Form.TEXT, memory: PageMemory | None = None) -> Page:
        """Read one page. With a memory, wanted lines that are those of the last page give that page's very object.

        Raises:
            ExpositionError: it is something else, such as HTML, or not whole.
        """
        return at_once(self.reading(page, form, memory))

    def reading(self, page: PageText | bytes, form: Form = Form.TEXT, memory: PageMemory | None = None) -> Steps[Page]:
        """`read` in steps of some ms. What of the page is looked at is copied in the first one."""
        if isinstance(page, bytes):
            page = PageText.of(page)
        if not _PAGE_START.match(page.buffer, page.start, page.end):
            found = bytes(page.buffer[page.start : min(page.end, page.start + _SHOWN_BYTES)])
            raise ExpositionError(f"not a Prometheus text page: it starts with {found!r}", found)
        if len(page) > FREE_PAGE_BYTES and page.buffer.count(b"\n", page.start, page.end) > MAX_PAGE_LINES:
            raise ExpositionError(f"more than {MAX_PAGE_LINES} lines", b"", reason="too_large")
        last = max(page.start - 1, page.end - _LONGEST_END)
        ends = _PAGE_END.search(page.buffer, last, page.end) is not None
        if form is Form.OPENMETRICS and not ends:
            found = bytes(page.buffer[max(page.start, page.end - _SHOWN_BYTES) : page.end])
            raise ExpositionError(f"the page ends without `# EOF`, with {found!r}", found, reason="truncated")
        # What ends as OpenMetrics is written so, whatever its content type.
        form = Form.OPENMETRICS if ends else Form.TEXT
        lines = self._search.find(page, memory.lines if memory is not None else None)
        if not (lines or _ANY_SAMPLE.search(page.buffer, page.start - 1, page.end) or _declares_alone(page)):
            found = bytes(page.buffer[page.start : min(page.end, page.start + _SHOWN_BYTES)])
            what = f"it starts with {found!r}" if found else "it is empty"
            raise ExpositionError(f"not a Prometheus text page: there is no sample on it, {what}", found)
        if memory is not None and lines == memory.found and form is memory.form:
            return memory.page
        read = yield from _reading_lines(lines, form)
        if memory is not None:
            memory.found, memory.form, memory.page = lines, form, read
        return read


def _declares_alone(page: PageText) -> bool:
    """Whether there is nothing but comments, those of a page among them."""
    is_bare = _COMMENTS.match(page.buffer, page.start, page.end) is not None
    return is_bare and _DECLARED.search(page.buffer, page.start - 1, page.end) is not None


def _reading_lines(lines: Sequence[FoundLine], form: Form) -> Steps[Page]:
    if len(lines) > MAX_LINES:
        raise ExpositionError(f"more than {MAX_LINES} lines of wanted names", lines[0][0])
    if sum(len(rest) for _, rest in lines) > MAX_WANTED_BYTES:
        raise ExpositionError(f"lines of wanted names have more than {MAX_WANTED_BYTES} bytes", lines[0][0])
    series: dict[bytes, dict[_Key, Sample]] = {}
    bad_lines = read = cost = 0
    for name, rest in lines:
        cost += _LINE_COST + len(rest)
        if cost > _STEP_COST:
            cost = 0
            yield
        parsed = (_parse if len(rest) > _REMEMBERED_LINE_BYTES else _parse_remembered)(rest, form)
        if parsed is None:
            bad_lines += 1
            continue
        read += 1
        key, sample = parsed
        series.setdefault(name, {})[key] = sample
    samples = {name.decode(): tuple(by_labels.values()) for name, by_labels in series.items()}
    return Page(MappingProxyType(samples), bad_lines, duplicates=read - sum(map(len, samples.values())))


_Key: TypeAlias = frozenset[tuple[str, str]]


def _parse(line: bytes, form: Form) -> tuple[_Key, Sample] | None:
    """Read labels, as a key and as they are, and value; None for a bad line."""
    if len(line) > MAX_LINE_BYTES:
        return None
    pattern = _OPENMETRICS_SAMPLE if form is Form.OPENMETRICS else _TEXT_SAMPLE
    try:
        match = pattern.match(line.decode("utf-8").strip())
    except UnicodeDecodeError:
        return None
    if match is None:
        return None
    value = _number(match["value"])
    labels = _labels(match["labels"] or "")
    if value is None or labels is None:
        return None
    return frozenset(labels.items()), Sample(MappingProxyType(labels), value)


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
        name = None if match is None else match[1] or _unescaped(match[2])
        if match is None or name is None or name in labels:
            return None
        labels[name] = _unescaped(match[3])
        position = match.end()
    return labels


def _unescaped(text: str) -> str:
    return _ESCAPE.sub(lambda escape: _ESCAPED[escape[0]], text) if "\\" in text else text
