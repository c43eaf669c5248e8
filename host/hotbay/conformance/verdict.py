"""What a rule can come to, and the rules' results as TAP. Pure."""

import enum
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from hotbay_sdk.protocol import MalformedMessageError

from hotbay.errors import printable

_LOG_LINES: Final = 12

__all__ = ["BrokenRuleError", "InapplicableError", "Result", "Verdict", "expect", "tap_lines", "well_formed"]


class BrokenRuleError(Exception):
    """The peer did not keep the rule. The text says what was expected and what was found."""


class InapplicableError(Exception):
    """The rule cannot be asked of this peer, for the reason that the text gives."""


class Verdict(enum.Enum):
    KEPT = enum.auto()
    BROKEN = enum.auto()
    SKIPPED = enum.auto()


@dataclass(frozen=True, slots=True)
class Result:
    """What came of one rule. `reason` is empty for one that was kept; `log` is the end of the peer's log."""

    rule: str
    title: str
    verdict: Verdict
    reason: str = ""
    log: str = ""


def expect(condition: object, otherwise: str) -> None:
    """Raise `BrokenRuleError` unless the condition holds."""
    if not condition:
        raise BrokenRuleError(otherwise)


class well_formed:
    """Turns a malformed body, inside the block, into a broken rule."""

    def __init__(self, what: str) -> None:
        self._what = what

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, MalformedMessageError):
            raise BrokenRuleError(f"{self._what}: {error}") from error


def tap_lines(number: int, result: Result) -> Iterable[str]:
    """Lines of one result in a TAP 14 document."""
    status = "not ok" if result.verdict is Verdict.BROKEN else "ok"
    line = f"{status} {number} - {result.rule}: {_one_line(result.title)}"
    if result.verdict is Verdict.SKIPPED:
        line += f" # SKIP {_one_line(result.reason)}"
    yield line
    if result.verdict is Verdict.BROKEN:
        yield "  ---"
        yield f"  message: {_quoted(result.reason)}"
        log = result.log.splitlines()[-_LOG_LINES:]
        if log:
            yield "  log:"
            yield from (f"    - {_quoted(text)}" for text in log)
        yield "  ..."


def _one_line(text: str) -> str:
    """A `#` begins a directive in TAP, and a line break a new line: neither may come from a text."""
    return printable(" ".join(text.split())).replace("\\", "\\\\").replace("#", "\\#")


def _quoted(text: str) -> str:
    """A YAML scalar in double quotes, of printable characters."""
    shown = "".join(c if c.isprintable() else f"\\u{ord(c):04x}" if ord(c) < 0x10000 else "?" for c in _escaped(text))
    return f'"{shown}"'


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')
