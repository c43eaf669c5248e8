"""What the admin socket answers: paths, methods, and the arguments that each of them takes.

Pure. The table is data. Arguments come in the path, in the query of a GET and in the JSON object of a POST; one that
the route does not know is refused, so that a mistyped `dry_run` deletes nothing.
"""

import enum
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import orjson

from hotbay.errors import InputError, Problem

__all__ = ["ACTIONS", "ROUTES", "AdminRoute", "Argument", "Arguments", "Kind", "read_call"]

ACTIONS: Final = ("pause", "resume", "promote", "abort", "approve")
"""What can be done to a rollout."""

_TEXT_LIMIT_CHARS: Final = 256
_TEXTS_LIMIT_COUNT: Final = 64
_IDS_LIMIT_COUNT: Final = 4_000
"""Endpoints by id in one command, which takes effect as a whole: of the longest ids so many are a body that is read."""
_TEXTS_LOGGED: Final = 5
_COUNT_LIMIT: Final = 2**64 - 1
_SEGMENT: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}")
_ENCODED: Final = re.compile(rb"%([0-9A-Fa-f]{2})")
_QUERY: Final = re.compile(r"(?:[a-z_]+=[A-Za-z0-9._:-]*(?:&[a-z_]+=[A-Za-z0-9._:-]*)*)?")

Value = str | int | bool | tuple[str, ...]


class Kind(enum.StrEnum):
    """What an argument is made of."""

    TEXT = "text"
    COUNT = "count"
    FLAG = "flag"
    TEXTS = "texts"


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of a route. `low` and `high` bound a count, `choices` a text, `most` how many texts."""

    name: str
    kind: Kind = Kind.TEXT
    required: bool = False
    choices: tuple[str, ...] = ()
    low: int = 0
    high: int = _COUNT_LIMIT
    most: int = _TEXTS_LIMIT_COUNT


class Arguments:
    """Checked arguments of one call; asking for one in a wrong way is our own bug."""

    def __init__(self, values: Mapping[str, Value]) -> None:
        self._values = values

    def __str__(self) -> str:
        return " ".join(f"{name}={_logged(value)}" for name, value in self._values.items()) or "-"

    def text(self, name: str) -> str:
        """A text that the route requires."""
        value = self._values[name]
        assert isinstance(value, str), "the route's table says that it is a text"
        return value

    def optional_text(self, name: str) -> str | None:
        """A text, or None."""
        return self.text(name) if name in self._values else None

    def optional_count(self, name: str) -> int | None:
        """A count, or None."""
        value = self._values.get(name)
        assert value is None or isinstance(value, int), "the route's table says that it is a count"
        return value

    def flag(self, name: str) -> bool:
        """Whether it was set."""
        return self._values.get(name) is True

    def texts(self, name: str) -> tuple[str, ...]:
        """Texts; none where the route does not require them and none are given."""
        value = self._values.get(name, ())
        assert isinstance(value, tuple), "the route's table says that these are texts"
        return value


def _logged(value: Value) -> str:
    if not isinstance(value, tuple) or len(value) <= _TEXTS_LOGGED:
        return str(value)
    return f"{value[:_TEXTS_LOGGED]} and {len(value) - _TEXTS_LOGGED} more"


@dataclass(frozen=True, slots=True)
class AdminRoute:
    """`path` may end in `/{NAME}`, which is an argument then. `about` is one line for the guide.

    A plugin's id stands there as it is; of others, what no path may have is percent-encoded.
    """

    method: str
    path: str
    name: str
    about: str
    arguments: tuple[Argument, ...] = ()


_PLUGIN: Final = Argument("plugin", required=True)
_ENDPOINTS: Final = (Argument("ids", Kind.TEXTS, most=_IDS_LIMIT_COUNT), Argument("selector"))
"""Which endpoints: one of the two."""
# Ten pages a second are a film already; a minute is a heartbeat.
_INTERVAL: Final = Argument("interval_ms", Kind.COUNT, low=100, high=60_000)
_DECISIONS: Final = Argument("last", Kind.COUNT, low=1, high=100)

ROUTES: Final = (
    AdminRoute("GET", "/status", "status", "what runs now"),
    AdminRoute(
        "GET",
        "/status/stream",
        "status_stream",
        "the status again and again",
        (_INTERVAL,),
    ),
    AdminRoute("GET", "/endpoints", "endpoints", "the model servers, and what keeps requests from them"),
    AdminRoute("GET", "/endpoints/stream", "endpoints_stream", "the same again and again", (_INTERVAL,)),
    AdminRoute("GET", "/events", "events", "what happens to plugins, as it happens"),
    AdminRoute("GET", "/plan", "plan", "what would change"),
    AdminRoute("GET", "/history/{plugin}", "history", "what was live, since when and why"),
    AdminRoute("GET", "/quarantine", "quarantine", "digests that are not run"),
    AdminRoute(
        "GET",
        "/logs/{plugin}",
        "logs",
        "the last lines of a plugin; with `follow=true` the next ones, too",
        (Argument("lines", Kind.COUNT, high=10_000), Argument("follow", Kind.FLAG)),
    ),
    AdminRoute("GET", "/lock", "lock", "a lock file of what is complete"),
    AdminRoute("GET", "/explain", "explain_latest", "why the newest decisions came out so", (_DECISIONS,)),
    AdminRoute("GET", "/explain/{id}", "explain", "the same of one request, by the id of its answer and log line"),
    AdminRoute("GET", "/debug/plugins/state", "dump", "what plugins and the host know"),
    AdminRoute("GET", "/debug/plugins/state/{ref}", "dump_ref", "what one plugin ref, or part of the host, knows"),
    AdminRoute("POST", "/apply", "apply", "put what waits in force"),
    AdminRoute(
        "POST",
        "/pin",
        "pin",
        "run this revision or digest",
        (_PLUGIN, Argument("rev", Kind.COUNT), Argument("digest")),
    ),
    AdminRoute("POST", "/unpin", "unpin", "select by revision again", (_PLUGIN,)),
    AdminRoute("POST", "/rollback", "rollback", "back to what was live before", (_PLUGIN,)),
    AdminRoute("POST", "/enable", "enable", "start a disabled plugin", (_PLUGIN,)),
    AdminRoute("POST", "/disable", "disable", "drain and stop a plugin", (_PLUGIN, Argument("force", Kind.FLAG))),
    AdminRoute(
        "POST",
        "/rollout",
        "rollout",
        "steer the rollout under way",
        (_PLUGIN, Argument("action", required=True, choices=ACTIONS)),
    ),
    AdminRoute(
        "POST",
        "/quarantine/clear",
        "clear_quarantine",
        "let a digest, or a plugin's, be run again",
        (Argument("target", required=True),),
    ),
    AdminRoute(
        "POST",
        "/grant",
        "grant",
        "allow a plugin these capabilities",
        (_PLUGIN, Argument("capabilities", Kind.TEXTS, required=True)),
    ),
    AdminRoute("POST", "/endpoints/cordon", "cordon", "give endpoints nothing new", _ENDPOINTS),
    AdminRoute("POST", "/endpoints/uncordon", "uncordon", "give them requests again", _ENDPOINTS),
    AdminRoute(
        "POST",
        "/endpoints/weight",
        "weigh",
        "give them this share, 0 to 1, or `default`",
        (*_ENDPOINTS, Argument("weight", required=True)),
    ),
    AdminRoute("POST", "/gc", "gc", "remove what nothing needs", (Argument("dry_run", Kind.FLAG),)),
)
_PLUGIN_STEM: Final = "/{plugin}"
_STEMS: Final = (_PLUGIN_STEM, "/{id}", "/{ref}")


def read_call(method: bytes, target: bytes, body: bytes) -> tuple[AdminRoute, Arguments]:
    """The route of a request, and its arguments.

    Raises:
        InputError: NOT_FOUND, METHOD_NOT_ALLOWED, or CONFIG_INVALID with every argument that is wrong.
    """
    path, _, query = target.decode("latin-1").partition("?")
    named: dict[str, Value] = {}
    routes = [route for route in ROUTES if route.path == path]
    if not routes:
        routes, named = _named(path)
    if not routes:
        raise _refusal("NOT_FOUND", "there is nothing at this path", hint="GET /status is a good start")
    wanted = method.decode("latin-1")
    route = next((route for route in routes if route.method == wanted), None)
    if route is None:
        allowed = ", ".join(route.method for route in routes)
        raise _refusal("METHOD_NOT_ALLOWED", "this path takes another method", expected=allowed, found=wanted)
    given = _query(query) if route.method == "GET" else _object(body)
    arguments = _check(route.arguments, given, from_text=route.method == "GET")
    return route, Arguments({**arguments, **named})


def _named(path: str) -> tuple[list[AdminRoute], dict[str, Value]]:
    """The routes that end in an argument, and that argument."""
    stem, _, segment = path.rpartition("/")
    for end in _STEMS:
        routes = [route for route in ROUTES if route.path == stem + end]
        if routes:
            text = segment if end == _PLUGIN_STEM else _decoded(segment)
            is_one = _SEGMENT.fullmatch(text) if end == _PLUGIN_STEM else _is_text(text)
            return (routes, {end[2:-1]: text}) if is_one else ([], {})
    return [], {}


def _decoded(segment: str) -> str:
    """Empty, which is no argument, if it is no text."""
    try:
        return _ENCODED.sub(lambda found: bytes.fromhex(found[1].decode()), segment.encode("latin-1")).decode()
    except UnicodeDecodeError:
        return ""


def _query(query: str) -> dict[str, object]:
    if not _QUERY.fullmatch(query):
        raise _refusal("CONFIG_INVALID", "the query is not understood", expected="name=value&name=value", found=query)
    pairs = [item.partition("=") for item in query.split("&") if item]
    return {name: value for name, _, value in pairs}


def _object(body: bytes) -> dict[str, object]:
    try:
        value = orjson.loads(body) if body else {}
    except orjson.JSONDecodeError as error:
        raise _refusal("CONFIG_INVALID", f"the body is no JSON: {error}") from error
    if not isinstance(value, dict):
        raise _refusal("CONFIG_INVALID", "the body is no JSON object")
    return value


def _check(known: Iterable[Argument], given: Mapping[str, object], *, from_text: bool) -> dict[str, Value]:
    by_name = {argument.name: argument for argument in known}
    problems = [
        Problem(
            "CONFIG_INVALID", "unknown argument", None, name, " or ".join(by_name) or "no argument", repr(name)[:80]
        )
        for name in given
        if name not in by_name
    ]
    values: dict[str, Value] = {}
    for name, argument in by_name.items():
        raw = given.get(name)
        if raw is None:
            if argument.required:
                problems.append(Problem("CONFIG_INVALID", "is missing", path=name, expected=_expected(argument)))
            continue
        value = _value(argument, _typed(argument.kind, raw) if from_text and isinstance(raw, str) else raw)
        if value is None:
            shown = _shown(argument, raw)
            problems.append(Problem("CONFIG_INVALID", "not as it should be", None, name, _expected(argument), shown))
        else:
            values[name] = value
    if problems:
        raise InputError(problems)
    return values


def _typed(kind: Kind, text: str) -> object:
    """What a query's text stands for."""
    if kind is Kind.COUNT:
        return int(text) if text.isascii() and text.isdigit() and len(text) <= 20 else text
    if kind is Kind.FLAG:
        return {"true": True, "1": True, "false": False, "0": False}.get(text, text)
    return text


def _value(argument: Argument, raw: object) -> Value | None:
    """The value as it should be, or None."""
    match argument.kind, raw:
        case Kind.FLAG, bool():
            return raw
        case Kind.COUNT, int() if not isinstance(raw, bool) and argument.low <= raw <= argument.high:
            return raw
        case Kind.TEXT, str() if _is_text(raw) and (not argument.choices or raw in argument.choices):
            return raw
        case Kind.TEXTS, list() if raw and len(raw) <= argument.most and all(_is_text(item) for item in raw):
            return tuple(raw)
    return None


def _is_text(value: object) -> bool:
    return isinstance(value, str) and 0 < len(value) <= _TEXT_LIMIT_CHARS and value.isprintable()


def _shown(argument: Argument, raw: object) -> str:
    """What was found: how many where they are too many, and the first that is none."""
    if argument.kind is not Kind.TEXTS or not isinstance(raw, list) or not raw:
        return repr(raw)[:80]
    if len(raw) > argument.most:
        return f"{len(raw)} texts"
    return repr(next(item for item in raw if not _is_text(item)))[:80]


def _expected(argument: Argument) -> str:
    if argument.choices:
        return " or ".join(argument.choices)
    if argument.kind is Kind.COUNT:
        return f"a whole number from {argument.low} to {argument.high}"
    return {
        Kind.TEXT: f"a text of 1 to {_TEXT_LIMIT_CHARS} printable characters",
        Kind.FLAG: "true or false",
        Kind.TEXTS: f"1 to {argument.most} texts of 1 to {_TEXT_LIMIT_CHARS} printable characters",
    }[argument.kind]


def _refusal(code: str, message: str, *, expected: str = "", found: str = "", hint: str = "") -> InputError:
    return InputError([Problem(code, message, expected=expected, found=found[:80], hint=hint)])
