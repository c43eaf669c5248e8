"""The only reader of YAML (and so of JSON): text in, plain values with the place of each out.

Decides what a document says and refuses what could be read in two ways:

- one document of at most 1 MiB, 100,000 keys and values (aliases expanded) and 32 levels;
- a key stands once; a key that comes only from two merged (`<<`) mappings is a duplicate too, while a
  mapping's own key beside `<<` overrides it;
- `true` and `false` are the only booleans, decimal numbers the only numbers. `yes`, `on`, `012`,
  `1_000`, `0x1F`, `1:30` and dates are texts, as a JSON reader would have it, so that whoever expects
  a number or a boolean reports them. Non-finite numbers and integers over 64 bits are refused;
- keys are texts; tags other than those of JSON's types are refused.

Invariants: no text makes this module raise anything but `InputError`, and every place it reports lies in
the text. All problems that do not stop the parser are reported at once. The verdict is the same on every
machine because libyaml, which accepts slightly different texts, is never used. Pure.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

import yaml
from yaml.composer import Composer
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from yaml.parser import Parser
from yaml.reader import Reader, ReaderError
from yaml.resolver import BaseResolver
from yaml.scanner import Scanner

from hotbay.config.wording import Path, Value, path_text, quoted
from hotbay.errors import InputError, Place, Problem

__all__ = [
    "MAX_BYTES",
    "MAX_DEPTH",
    "MAX_VALUES",
    "Document",
    "Reading",
    "decode_text",
    "is_blank",
    "load_document",
    "read_document",
    "refuse",
    "refused",
]

# As the reference's bound for discovery files; a configuration of a thousand plugins is a tenth of it.
MAX_BYTES: Final = 1 << 20
# Keys and values. Five thousand endpoints of a discovery file; some seconds of work for the parser.
MAX_VALUES: Final = 100_000
# As deep as values may be on the wire, so that parameters that load here can always be sent.
MAX_DEPTH: Final = 32
_MAX_PROBLEMS: Final = 100
# Texts of aliased scalars count as often as they appear, else 1 MiB of text could stand for 50 GB of it.
_MAX_CHARACTERS: Final = 4 * MAX_BYTES

_TAG: Final = "tag:yaml.org,2002:"
_NULL, _BOOL, _INT, _FLOAT, _STR, _MERGE, _MAP, _SEQ = (
    _TAG + name for name in ("null", "bool", "int", "float", "str", "merge", "map", "seq")
)
_NON_FINITE: Final = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_FORMS: Final = {
    _NULL: re.compile(r"(?:~|null|Null|NULL|)\Z"),
    _BOOL: re.compile(r"(?:true|True|TRUE|false|False|FALSE)\Z"),
    _INT: re.compile(r"[-+]?(?:0|[1-9][0-9]*)\Z"),
    _FLOAT: re.compile(
        rf"(?:[-+]?(?:\.[0-9]+|(?:0|[1-9][0-9]*)(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|{_NON_FINITE.pattern})\Z"
    ),
}
_FIRST: Final = {_NULL: ["~", "n", "N", ""], _BOOL: list("tTfF"), _INT: list("-+0123456789")}
_LINE_BREAK: Final = re.compile("\r\n|[\r\n\x85\u2028\u2029]")
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_BLANK: Final = re.compile(r"\s*(?:#.*|---\s*(?:#.*)?|\.\.\.\s*)?\Z")
_BYTE_ORDER_MARKS: Final = ((b"\xef\xbb\xbf", "utf-8"), (b"\xff\xfe", "utf-16-le"), (b"\xfe\xff", "utf-16-be"))


@dataclass(frozen=True, slots=True)
class _Spot:
    """Where a value, its members and their keys stand."""

    line: int
    column: int
    keys: dict[str, tuple[int, int]]
    members: "dict[str | int, _Spot]"


@dataclass(frozen=True, slots=True)
class Document:
    """What a text says, and where it says it. Two documents are equal when they say the same."""

    value: Value
    file: str = field(compare=False)
    _root: _Spot = field(compare=False, repr=False)

    @classmethod
    def of(cls, value: Value, *, name: str) -> "Document":
        """A document that nobody wrote as text: everything stands at its beginning."""
        return cls(value, name, _Spot(1, 1, {}, {}))

    def place(self, path: Sequence[str | int] = ()) -> Place:
        """Return where the value at `path` starts; for a path that does not exist, its nearest parent."""
        spot = self._spot(path)[0]
        return Place(self.file, spot.line, spot.column)

    def key_place(self, path: Sequence[str | int]) -> Place:
        """Return where the key that `path` ends with stands; as `place` when there is no such key."""
        if path and isinstance(path[-1], str):
            parent, depth = self._spot(path[:-1])
            if depth == len(path) - 1 and path[-1] in parent.keys:
                return Place(self.file, *parent.keys[path[-1]])
        return self.place(path)

    def _spot(self, path: Sequence[str | int]) -> tuple[_Spot, int]:
        spot = self._root
        for depth, part in enumerate(path):
            member = spot.members.get(part)
            if member is None:
                return spot, depth
            spot = member
        return spot, len(path)


@dataclass(frozen=True, slots=True)
class Reading:
    """A document with the problems found in it so far; usable only together with what else is wrong."""

    document: Document
    problems: tuple[Problem, ...]


def load_document(text: str, *, file: str) -> Document:
    """Read one document. `file` is the name that places carry.

    Raises:
        InputError: with every problem found. Codes: CONFIG_INVALID, DUPLICATE_KEY, CONFIG_TOO_LARGE.
    """
    reading = read_document(text, file=file)
    refuse(reading.problems)
    return reading.document


def read_document(text: str, *, file: str) -> Reading:
    """Read one document and leave it to the caller to add its own problems before it refuses.

    Raises:
        InputError: when the text cannot be parsed at all, or is too large.
    """
    _check_size(len(text.encode("utf-8", "surrogatepass")), file)
    root = _compose(text, file)
    if root is None:
        return Reading(Document(None, file, _Spot(1, 1, {}, {})), ())
    builder = _Builder(file)
    value, spot = builder.build(root, (), 0)
    return Reading(Document(value, file, spot), tuple(builder.problems.values()))


def refuse(problems: Iterable[Problem]) -> None:
    """Raise `InputError` if there are problems."""
    found = list(problems)
    if found:
        raise refused(found)


def refused(problems: Iterable[Problem]) -> InputError:
    """Make the error of one or more problems: in the order of their places, the number of them bounded."""
    ordered = sorted(problems, key=lambda p: (p.place.line or 0, p.place.column or 0) if p.place else (0, 0))
    if len(ordered) > _MAX_PROBLEMS:
        left = len(ordered) - _MAX_PROBLEMS
        ordered = [*ordered[:_MAX_PROBLEMS], Problem("CONFIG_INVALID", f"{left} more problems are not shown")]
    return InputError(ordered)


def decode_text(data: bytes, *, file: str) -> str:
    """Decode a document's bytes: UTF-8, or UTF-8 and UTF-16 with a byte order mark.

    Raises:
        InputError: not decodable (with the line), or over the size bound.
    """
    mark, encoding = next(((m, e) for m, e in _BYTE_ORDER_MARKS if data.startswith(m)), (b"", "utf-8"))
    _check_size(len(data) if encoding == "utf-8" else len(data) // 2, file)
    body = data[len(mark) :]
    try:
        return body.decode(encoding)
    except UnicodeDecodeError as e:
        place = _place_of_offset(body[: e.start].decode(encoding, "replace"), file)
        problem = Problem(
            "CONFIG_INVALID",
            f"not {encoding}: {e.reason}",
            place,
            expected=encoding.upper(),
            found=repr(body[e.start : e.end]),
        )
        raise InputError([problem]) from e


def is_blank(text: str) -> bool:
    """Tell whether a text holds nothing but spaces, comments and document markers."""
    return all(_BLANK.match(line) for line in text.removeprefix("\ufeff").splitlines())


def _check_size(size_bytes: int, file: str) -> None:
    if size_bytes > MAX_BYTES:
        raise InputError(
            [
                Problem(
                    "CONFIG_TOO_LARGE",
                    "the document is too large",
                    Place(file),
                    expected=f"at most {MAX_BYTES} bytes",
                    found=f"{size_bytes} bytes",
                )
            ]
        )


class _TooLargeError(Exception):
    """A bound of the document was passed; `place` is where."""

    def __init__(self, message: str, mark: yaml.Mark) -> None:
        super().__init__(message)
        self.message = message
        self.mark = mark


class _BoundedComposer(Reader, Scanner, Parser, Composer, BaseResolver):
    """PyYAML's composer with bounds on depth and count, and JSON's types in place of YAML 1.1's."""

    def __init__(self, text: str) -> None:
        Reader.__init__(self, text)
        Scanner.__init__(self)
        Parser.__init__(self)
        Composer.__init__(self)
        BaseResolver.__init__(self)
        self._depth = 0
        self._count = 0

    def scan_to_next_token(self) -> None:
        super().scan_to_next_token()
        # JSON may be indented with tabs; outside brackets they stay an error.
        while self.flow_level and self.peek() == "\t":
            self.forward()
            super().scan_to_next_token()

    def compose_node(self, parent: Node | None, index: object) -> Node | None:
        self._depth += 1
        self._count += 1
        if self._depth > MAX_DEPTH:
            raise _TooLargeError(f"nested deeper than {MAX_DEPTH} levels", self.get_mark())
        if self._count > MAX_VALUES:
            raise _TooLargeError(f"more than {MAX_VALUES} keys and values", self.get_mark())
        node: Node | None = super().compose_node(parent, index)  # type: ignore[arg-type]  # an int or a node
        self._depth -= 1
        return node


for _tag, _first in (*_FIRST.items(), (_FLOAT, list("-+.0123456789"))):
    _BoundedComposer.add_implicit_resolver(_tag, _FORMS[_tag], _first)
_BoundedComposer.add_implicit_resolver(_MERGE, re.compile(r"<<\Z"), ["<"])


def _compose(text: str, file: str) -> Node | None:
    try:
        composer = _BoundedComposer(text)
    except ReaderError as e:
        place = _place_of_offset(text[: e.position], file)
        message = f"the character U+{ord(text[e.position]):04X} is not allowed"
        raise InputError([Problem("CONFIG_INVALID", message, place, hint="write it as an escape in quotes")]) from e
    try:
        return composer.get_single_node()
    except _TooLargeError as e:
        raise InputError([Problem("CONFIG_TOO_LARGE", e.message, _place_of_mark(e.mark, file))]) from e
    except yaml.MarkedYAMLError as e:
        raise InputError([_syntax_problem(e, file)]) from e
    except (yaml.YAMLError, ValueError, OverflowError) as e:
        # PyYAML lets ValueError out for numbers of escapes and directives that Python cannot hold.
        problem = Problem("CONFIG_INVALID", f"not YAML: {quoted(str(e))}", _place_of_mark(composer.get_mark(), file))
        raise InputError([problem]) from e


def _syntax_problem(error: yaml.MarkedYAMLError, file: str) -> Problem:
    mark = error.problem_mark or error.context_mark
    message = ", ".join(" ".join(part.split()) for part in (error.context, error.problem) if part)
    hint = "indent and separate with spaces, not tabs" if "'\\t'" in message else ""
    return Problem("CONFIG_INVALID", f"not YAML: {message}", _place_of_mark(mark, file), hint=hint)


def _place_of_mark(mark: yaml.Mark | None, file: str) -> Place:
    return Place(file, mark.line + 1, mark.column + 1) if mark else Place(file)


def _place_of_offset(before: str, file: str) -> Place:
    lines = _LINE_BREAK.split(before)
    return Place(file, len(lines), len(lines[-1]) + 1)


_Pairs = dict[str, tuple[Node, Node]]


class _Builder:
    """Turns composed nodes into values and spots; collects problems, each place once however often aliased."""

    def __init__(self, file: str) -> None:
        self.problems: dict[tuple[str, int, int], Problem] = {}
        self._file = file
        self._values_left = MAX_VALUES
        self._characters_left = _MAX_CHARACTERS
        self._open: set[int] = set()
        self._merging: set[int] = set()
        self._pairs: dict[int, _Pairs] = {}

    def build(self, node: Node, path: Path, depth: int) -> tuple[Value, _Spot]:
        self._spend(node)
        if depth > MAX_DEPTH:
            self._too_large(node, f"nested deeper than {MAX_DEPTH} levels")
        spot = _Spot(node.start_mark.line + 1, node.start_mark.column + 1, {}, {})
        if isinstance(node, ScalarNode):
            return self._scalar(node, path), spot
        if id(node) in self._open:
            self._report(node, path, "CONFIG_INVALID", "an alias contains itself")
            return None, spot
        self._check_collection_tag(node, path)
        self._open.add(id(node))
        value: Value = (
            self._sequence(node, spot, path, depth)
            if isinstance(node, SequenceNode)
            else self._mapping(node, spot, path, depth)
        )
        self._open.discard(id(node))
        return value, spot

    def _sequence(self, node: SequenceNode, spot: _Spot, path: Path, depth: int) -> list[Value]:
        values: list[Value] = []
        for index, item in enumerate(node.value):
            value, spot.members[index] = self.build(item, (*path, index), depth + 1)
            values.append(value)
        return values

    def _mapping(self, node: Node, spot: _Spot, path: Path, depth: int) -> dict[str, Value]:
        values: dict[str, Value] = {}
        for key, (key_node, value_node) in self._pairs_of(node, path).items():
            self._spend(key_node)
            spot.keys[key] = (key_node.start_mark.line + 1, key_node.start_mark.column + 1)
            values[key], spot.members[key] = self.build(value_node, (*path, key), depth + 1)
        return values

    def _pairs_of(self, node: Node, path: Path) -> _Pairs:
        """Return a mapping's pairs with its merges applied; own keys override merged ones."""
        if id(node) in self._pairs:
            return self._pairs[id(node)]
        if id(node) in self._merging:
            self._report(node, path, "CONFIG_INVALID", "a mapping merges itself")
            return {}
        if len(self._merging) > MAX_DEPTH:
            self._too_large(node, f"more than {MAX_DEPTH} mappings merged into each other")
        self._merging.add(id(node))
        own: _Pairs = {}
        merge: tuple[Node, Node] | None = None
        for key_node, value_node in node.value:
            if key_node.tag == _MERGE:
                if merge:
                    self._report_duplicate("<<", merge[0], key_node, path)
                else:
                    merge = (key_node, value_node)
                continue
            key = self._key(key_node, path)
            if key is None:
                continue
            if key in own:
                self._report_duplicate(key, own[key][0], key_node, path)
            else:
                own[key] = (key_node, value_node)
        merged = self._merged(merge[1], own, path) if merge else {}
        self._merging.discard(id(node))
        self._pairs[id(node)] = merged | own
        return self._pairs[id(node)]

    def _merged(self, source: Node, own: _Pairs, path: Path) -> _Pairs:
        merged: _Pairs = {}
        for mapping in source.value if isinstance(source, SequenceNode) else [source]:
            if not isinstance(mapping, MappingNode):
                self._report(mapping, (*path, "<<"), "CONFIG_INVALID", "only mappings can be merged")
                continue
            for key, pair in self._pairs_of(mapping, path).items():
                self._spend(pair[0])
                if key in merged and merged[key][0] is not pair[0] and key not in own:
                    self._report_duplicate(key, merged[key][0], pair[0], path)
                merged.setdefault(key, pair)
        return merged

    def _key(self, node: Node, path: Path) -> str | None:
        if isinstance(node, ScalarNode) and node.tag == _STR:
            return self._text(node, path)
        kind = (
            f"{node.tag.removeprefix(_TAG)} {quoted(str(node.value))}"
            if isinstance(node, ScalarNode)
            else "a collection"
        )
        self._report(node, path, "CONFIG_INVALID", "a key has to be a text", found=kind, hint="put the key in quotes")
        return None

    def _scalar(self, node: ScalarNode, path: Path) -> Value:
        text: str = node.value
        tag = node.tag
        if tag in (_STR, _MERGE):
            return self._text(node, path)
        if tag not in _FORMS:
            self._report(node, path, "CONFIG_INVALID", f"the tag {quoted(tag)} is not allowed")
            return None
        if not _FORMS[tag].match(text):
            self._report(node, path, "CONFIG_INVALID", f"{quoted(text)} is no {tag.removeprefix(_TAG)}")
            return None
        if tag == _NULL:
            return None
        if tag == _BOOL:
            return text.lower() == "true"
        return self._integer(node, text, path) if tag == _INT else self._float(node, text, path)

    def _integer(self, node: Node, text: str, path: Path) -> int:
        # Twenty digits and a sign hold every 64-bit integer; Python refuses to parse very long ones.
        value = int(text) if len(text) <= 21 else 1 << 64
        if -(1 << 63) <= value < 1 << 64:
            return value
        self._report(
            node,
            path,
            "CONFIG_INVALID",
            "an integer has to fit 64 bits",
            found=quoted(text),
            hint="put it in quotes if it is a name or a digest",
        )
        return 0

    def _float(self, node: Node, text: str, path: Path) -> float:
        value = float("inf") if _NON_FINITE.match(text) else float(text)
        if value not in (float("inf"), float("-inf")):
            return value
        self._report(
            node, path, "CONFIG_INVALID", "not a finite number", expected="a finite number", found=quoted(text)
        )
        return 0.0

    def _text(self, node: ScalarNode, path: Path) -> str:
        text: str = node.value
        self._characters_left -= len(text)
        if not _SURROGATE.search(text):
            return text
        try:
            # JSON escapes characters beyond 16 bits as pairs.
            return text.encode("utf-16", "surrogatepass").decode("utf-16")
        except UnicodeDecodeError:
            self._report(node, path, "CONFIG_INVALID", "half of a surrogate pair is no character", found=quoted(text))
            return ""

    def _check_collection_tag(self, node: Node, path: Path) -> None:
        if node.tag != (_SEQ if isinstance(node, SequenceNode) else _MAP):
            self._report(node, path, "CONFIG_INVALID", f"the tag {quoted(node.tag)} is not allowed")

    def _report_duplicate(self, key: str, first: Node, second: Node, path: Path) -> None:
        lines = sorted((first.start_mark.line + 1, second.start_mark.line + 1))
        message = f"the key {quoted(key)} stands twice, on lines {lines[0]} and {lines[1]}"
        self._report(second, (*path, key), "DUPLICATE_KEY", message, hint="keep one of them")

    def _report(
        self, node: Node, path: Path, code: str, message: str, *, expected: str = "", found: str = "", hint: str = ""
    ) -> None:
        place = _place_of_mark(node.start_mark, self._file)
        problem = Problem(code, message, place, path_text(path), expected, found, hint)
        self.problems.setdefault((code, node.start_mark.line, node.start_mark.column), problem)

    def _spend(self, node: Node) -> None:
        self._values_left -= 1
        if self._values_left < 0:
            self._too_large(node, f"more than {MAX_VALUES} keys and values once aliases are expanded")
        if self._characters_left < 0:
            self._too_large(node, f"more than {_MAX_CHARACTERS} characters once aliases are expanded")

    def _too_large(self, node: Node, message: str) -> None:
        raise InputError([Problem("CONFIG_TOO_LARGE", message, _place_of_mark(node.start_mark, self._file))])
