"""What a host answered to a command, as a sheet for people. Pure.

A page is shown by its shape: values by name, lists of objects as tables. The columns that people look for come first,
digests are short and go first when there is no room; times are of the wall clock in UTC.
"""

from collections.abc import Mapping
from typing import Final

from hotbay.cli.sheet import Sheet, moment, short_digests, size
from hotbay.observe.tables import UNKNOWN, Grid, cell

__all__ = ["answer_sheet"]

_FIRST: Final = (
    "plugin", "action", "event", "at_s", "from", "to", "version", "rev", "phase", "code", "why", "reason", "count", "who",
    "until_s", "generation",
)  # fmt: skip
_LEAST: Final = ("digest", "hint")
_TITLES: Final = {"cleared": "cleared, and may run again:", "not_chosen": "not chosen:"}
"""Tables whose rows do not say by themselves what they are."""
_ALWAYS_SHOWN: Final = 2
_MESSAGE: Final = "message"
_HINT: Final = "hint"


def answer_sheet(page: Mapping[str, object]) -> Sheet:
    """Everything on the page; `message` comes first and `hint` last."""
    sheet = Sheet()
    if page.get(_MESSAGE):
        sheet.say(short_digests(str(page[_MESSAGE])))
    for name, value in page.items():
        if name not in (_MESSAGE, _HINT):
            _add(sheet, name, value)
    if page.get(_HINT):
        sheet.say(f"what to do: {short_digests(str(page[_HINT]))}")
    return sheet


def _add(sheet: Sheet, name: str, value: object) -> None:
    if isinstance(value, dict):
        for key, inner in value.items():
            _add(sheet, f"{name} {key}", inner)
    elif isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
        if name in _TITLES:
            sheet.say(_TITLES[name])
        sheet.show(_table(value))
    elif isinstance(value, list):
        sheet.say(f"{_label(name)}: {', '.join(short_digests(str(item)) for item in value) or 'none'}")
    else:
        sheet.say(f"{_label(name)}: {_shown(name, value)}")


def _table(items: list[Mapping[str, object]]) -> Grid:
    names = list(dict.fromkeys(str(name) for item in items for name in item))
    names.sort(key=lambda name: (name in _LEAST, _FIRST.index(name) if name in _FIRST else len(_FIRST)))
    ranks = [0 if at < _ALWAYS_SHOWN else at for at in range(len(names))]
    lines = tuple(tuple(_shown(name, item.get(name)) for name in names) for item in items)
    return Grid(tuple(_label(name) for name in names), tuple(ranks), lines)


def _label(name: str) -> str:
    for unit in ("_at_s", "_s", "_bytes"):
        if name.endswith(unit) and name != unit:
            name = name.removesuffix(unit)
            break
    name = "size" if name == "bytes" else name
    return cell(name.replace("_", " "))


def _shown(name: str, value: object) -> str:
    """A value in the words of its unit, which its name tells."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float) and name.endswith(("at_s", "until_s", "since_s")):
        return moment(value)
    if isinstance(value, int) and (name.endswith("_bytes") or name == "bytes"):
        return size(value)
    if isinstance(value, dict):
        return _version(value)
    if isinstance(value, list):
        return ", ".join(cell(item) for item in value) or UNKNOWN
    return cell(short_digests(value) if isinstance(value, str) else value)


def _version(value: Mapping[str, object]) -> str:
    """Which build: its version and revision where it has them, else all that is said of it."""
    named = [f"rev {value['rev']}"] if value.get("rev") is not None else []
    if named:
        return " ".join(cell(part) for part in [value.get("version"), *named] if part is not None)
    return ", ".join(f"{cell(key)}={cell(inner)}" for key, inner in value.items()) or UNKNOWN
