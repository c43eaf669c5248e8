"""Which paths the gateway answers, and with which methods.

Pure. The table is data; a method that its path does not take is 405. What is posted to a path that is not in it is for
a parser to know; anything else is 404. HEAD stands for GET without a body.
"""

import enum
import re
from collections.abc import Iterable
from typing import NamedTuple

import httptools

from hotbay.gateway.answers import Refusal
from hotbay.gateway.parsers.paths import original_target

__all__ = ["Match", "Route", "match_route"]


class Route(enum.StrEnum):
    """What a request is for; the value is the `route` label of metrics and log lines."""

    CHAT = "chat"
    COMPLETIONS = "completions"
    INFERENCE = "inference"
    PASSTHROUGH = "passthrough"
    MODELS = "models"
    HEALTH = "health"
    LIVE = "livez"
    READY = "readyz"
    METRICS = "metrics"
    PICK = "pick"
    PICK_DONE = "pick-done"
    UNKNOWN = "unknown"


class Match(NamedTuple):
    """A route with the target in origin form and, for `/pick/{id}/done`, the id."""

    route: Route
    target: bytes
    path: str
    pick_id: str = ""


_ROUTES: dict[bytes, tuple[Route, bytes]] = {
    b"/v1/chat/completions": (Route.CHAT, b"POST"),
    b"/v1/completions": (Route.COMPLETIONS, b"POST"),
    b"/v1/models": (Route.MODELS, b"GET"),
    b"/health": (Route.HEALTH, b"GET"),
    b"/livez": (Route.LIVE, b"GET"),
    b"/readyz": (Route.READY, b"GET"),
    b"/metrics": (Route.METRICS, b"GET"),
    b"/pick": (Route.PICK, b"POST"),
}
_PATHS = {path: path.decode() for path in _ROUTES}
# Nothing below it is ever a model server's.
_OWN = b"/pick/"
_PICK_DONE = re.compile(rb"/pick/([0-9A-Za-z_-]{1,64})/done")


def match_route(method: bytes, target: bytes, headers: Iterable[tuple[bytes, bytes]] = ()) -> Match | Refusal:
    """The route of a request line, or why there is none. `headers` say the path where the target does not."""
    origin = target if target.startswith(b"/") else _origin_form(target) or original_target(headers)
    path = origin.partition(b"?")[0]
    found = _ROUTES.get(path)
    if found is not None:
        route, wanted = found
        return _with_method(method, wanted, Match(route, origin, _PATHS[path]))
    done = _PICK_DONE.fullmatch(path)
    if done is not None:
        return _with_method(method, b"POST", Match(Route.PICK_DONE, origin, "/pick/done", done[1].decode()))
    if method == b"POST" and path and not path.startswith(_OWN):
        return Match(Route.INFERENCE, origin, path.decode("latin-1"))
    return Refusal(404, "not-found", "There is nothing at this path.")


def _with_method(method: bytes, wanted: bytes, match: Match) -> Match | Refusal:
    if method == wanted or (wanted == b"GET" and method == b"HEAD"):
        return match
    allow = b"GET, HEAD" if wanted == b"GET" else wanted
    message = f"This path takes {allow.decode()} only."
    return Refusal(405, "method-not-allowed", message, headers=[(b"allow", allow)])


def _origin_form(target: bytes) -> bytes:
    """Path and query of an absolute target; "" when it has none (`*`, an authority, a broken URL)."""
    try:
        url = httptools.parse_url(target)
    except httptools.HttpParserInvalidURLError:
        return b""
    if url.schema is None or url.path is None:
        return b""
    return url.path if url.query is None else url.path + b"?" + url.query
