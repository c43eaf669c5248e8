"""What `hotbay dev` says: each thing that happens as a page for tools, and as a line for people. Pure.

A page has the word `event`; times are milliseconds. What a plugin said is made printable here.
"""

from collections.abc import Callable, Mapping
from typing import Final

from hotbay.errors import printable

__all__ = ["Page", "line_of"]

Page = Mapping[str, object]


def line_of(page: Page) -> str:
    """The page for people, without a newline at its end; a failure has what it tells in the lines below."""
    return printable(_LINES[str(page["event"])](page))


def _serving(page: Page) -> str:
    servers = _words(page["endpoints"])
    how = " (simulated)" if page["simulated"] else ""
    return (
        f"{page['plugin']} serves on {page['url']}, generation {page['generation']}, in front of {servers}{how}\n"
        f"  its types: {_words(page['types'])}; look at it with: hotbay status --socket {page['socket']}"
    )


def _live(page: Page) -> str:
    changes = "; ".join(_list(page["changes"])) or "types and parameters as before"
    how = "built" if page["built"] else "packed"
    return (
        f"saved {_words(page['files'])} → {how} {_ms(page['packed_ms'])} → live {_ms(page['live_ms'])}, "
        f"generation {page['generation']} ({changes})"
    )


def _refused(page: Page) -> str:
    goes_on = page["generation"]
    rest = f"generation {goes_on} goes on" if goes_on is not None else "nothing runs yet"
    where = f"{page['place']}: " if page["place"] else ""
    lines = [f"saved {_words(page['files'])} → not live: {rest}", f"  {where}{page['code']}: {page['message']}"]
    lines += [f"    {line}" for line in str(page["traceback"]).splitlines()]
    return "\n".join([*lines, *([f"  what to do: {page['hint']}"] if page["hint"] else [])])


def _crashed(page: Page) -> str:
    where = f"{page['place']}: " if page["place"] else ""
    return f"crashed: {where}{page['code']}: {page['message']}"


def _output(page: Page) -> str:
    where = f"{page['place']}: " if page["place"] else ""
    lines = [f"{page['plugin']} | {where}{page['line']}"]
    return "\n".join([*lines, *(f"    {line}" for line in str(page["traceback"]).splitlines())])


def _begun(page: Page) -> str:
    beside = " beside the bundled scorers" if page["bundled"] else ""
    return f"building {page['plugin']} and what it depends on{beside}: the first time takes some seconds"


_LINES: Final[Mapping[str, Callable[[Page], str]]] = {
    "back": lambda page: f"generation {page['generation']} answers in its place ({str(page['digest'])[:19]})",
    "begun": _begun,
    "crashed": _crashed,
    "debugger": lambda page: f"waiting for a debugger on {page['address']}: attach to go on",
    "host": lambda page: f"host | {page['line']}",
    "live": _live,
    "output": _output,
    "passed_over": lambda page: f"saved {_words(page['files'])} → passed over: a newer save came",
    "refused": _refused,
    "serving": _serving,
    "stopped": lambda _page: "stopped",
    "unchanged": lambda page: f"saved {_words(page['files'])} → the package is as before",
}


def _ms(value: object) -> str:
    return f"{value} ms"


def _words(value: object) -> str:
    return ", ".join(_list(value))


def _list(value: object) -> list[str]:
    return [str(each) for each in value] if isinstance(value, list | tuple) else []
