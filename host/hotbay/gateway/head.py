"""Rewrites heads on their way through: which headers go on, which are added, how the body is framed.

Pure. Headers are pairs of bytes, names in lower case, in the order received. Invariants: no hop-by-hop header passes,
nor one that `Connection` names; a head that leaves here has exactly one framing; routing headers come from this host
only, so a client cannot name an endpoint and an upstream cannot forge a reason. Every head has this gateway in its `Via`, by a
name of its own (RFC 9110, 7.6.3): a request that has it already came back.
"""

import enum
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

__all__ = [
    "DESTINATION",
    "HOP_BY_HOP",
    "NO_EDITS",
    "Framing",
    "Header",
    "Headers",
    "nominated",
    "passed_before",
    "request_head",
    "response_framing",
    "response_head",
    "text_headers",
]

Header = tuple[bytes, bytes]
Headers = Sequence[Header]

DESTINATION = b"x-gateway-destination-endpoint"

NO_EDITS: Final[Mapping[bytes, bytes | None]] = MappingProxyType({})

HOP_BY_HOP = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-connection",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)
# By these a model server's sidecar is told where to have work done: from a client they would be requests to anywhere.
_ROUTING = frozenset(
    {
        b"x-prefiller-host-port",
        b"x-encoder-hosts-ports",
        b"x-data-parallel-host-port",
        b"x-kv-cache-source-host-port",
    }
)
_NOT_UPSTREAM = HOP_BY_HOP | _ROUTING | {b"host", b"content-length", b"expect", b"http2-settings", b"x-request-id"}
_NOT_DOWNSTREAM = HOP_BY_HOP | {b"content-length", b"x-request-id"}
# Words between a client and the router, in both directions. The first was named by Envoy's endpoint picker protocol.
_CONTROL_PREFIXES = (b"x-gateway-", b"x-llm-d-", b"x-hotbay-")
# What Connection may not name: these end a message or say whose it is, and without them the next hop reads another one;
# and without Via a request could go in circles for ever.
_NEVER_NOMINATED = frozenset(
    {b"content-length", b"transfer-encoding", b"host", b"content-type", b"authorization", b"via"}
)
# A header that may come several times and whose values must not be joined by a comma.
_JOINED_BY_SEMICOLON = frozenset({b"cookie"})


class Framing(enum.Enum):
    """How the end of a response's body is told to the client."""

    NONE = "none"
    LENGTH = "length"
    CHUNKED = "chunked"
    CLOSE = "close"


def nominated(headers: Headers) -> frozenset[bytes]:
    """Names that `Connection` declares to be for this hop only."""
    values = [value for name, value in headers if name == b"connection"]
    if not values:
        return frozenset()
    return frozenset(token.strip().lower() for value in values for token in value.split(b",")) - _NEVER_NOMINATED


def passed_before(headers: Headers, via: bytes) -> bool:
    """Whether a request came through the gateway of this name before."""
    for name, value in headers:
        # Each hop is a protocol, a name and maybe a comment.
        if name == b"via" and any(hop.split()[1:2] == [via] for hop in value.split(b",")):
            return True
    return False


def request_head(
    method: bytes,
    target: bytes,
    headers: Headers,
    *,
    authority: str,
    request_id: str,
    peer: str,
    via: bytes,
    body_bytes: int | None,
    destinations: str = "",
    edits: Mapping[bytes, bytes | None] = NO_EDITS,
) -> bytes:
    """Head of the request to the upstream. `via` is this gateway; `body_bytes` None: no body and no length.

    `destinations` says where the request goes and where it would go next; `edits` replace headers, or take them away. They
    were found to be allowed.
    """
    dropped = _NOT_UPSTREAM | nominated(headers)
    if edits:
        dropped |= edits.keys()
    parts = [b"%b %b HTTP/1.1\r\nhost: %b\r\n" % (method, target, authority.encode())]
    forwarded: list[bytes] = []
    passed: list[bytes] = []
    for name, value in headers:
        if name in dropped or name.startswith(_CONTROL_PREFIXES):
            continue
        if name == b"x-forwarded-for":
            forwarded.append(value)
        elif name == b"via":
            passed.append(value)
        else:
            parts += (name, b": ", value, b"\r\n")
    _add(parts, edits)
    if destinations:
        parts.append(b"%b: %b\r\n" % (DESTINATION, destinations.encode()))
    if body_bytes is not None:
        parts.append(b"content-length: %d\r\n" % body_bytes)
    parts.append(
        b"x-request-id: %b\r\nx-forwarded-for: %b\r\nvia: %b\r\n\r\n"
        % (request_id.encode(), b", ".join([*forwarded, peer.encode()]), b", ".join([*passed, b"1.1 " + via]))
    )
    return b"".join(parts)


def _add(parts: list[bytes], edits: Mapping[bytes, bytes | None]) -> None:
    for name, value in edits.items():
        if value is not None:
            parts += (name, b": ", value, b"\r\n")


def response_framing(status: int, length: int | None, *, http_1_0: bool) -> Framing:
    """How to frame a response whose upstream gave `length`, or None when its end shows otherwise."""
    if status in (204, 304):
        return Framing.NONE
    if length is not None:
        return Framing.LENGTH
    return Framing.CLOSE if http_1_0 else Framing.CHUNKED


def response_head(
    status: int,
    reason: bytes,
    headers: Headers,
    *,
    framing: Framing,
    length: int | None,
    keep_alive: bool,
    http_1_0: bool,
    request_id: str,
    destination: str,
    via: bytes,
    edits: Mapping[bytes, bytes | None] = NO_EDITS,
) -> bytes:
    """Head of the response to the client; `via` is this gateway. `edits` as in `request_head`."""
    dropped = _NOT_DOWNSTREAM | nominated(headers)
    if edits:
        dropped |= edits.keys()
    parts = [b"HTTP/1.1 %d %b\r\n" % (status, reason)]
    passed: list[bytes] = []
    for name, value in headers:
        if name == b"via":
            passed.append(value)
        elif name not in dropped and not name.startswith(_CONTROL_PREFIXES):
            parts += (name, b": ", value, b"\r\n")
    _add(parts, edits)
    if framing is Framing.LENGTH:
        parts.append(b"content-length: %d\r\n" % (length or 0))
    elif framing is Framing.CHUNKED:
        parts.append(b"transfer-encoding: chunked\r\n")
    if not keep_alive:
        parts.append(b"connection: close\r\n")
    elif http_1_0:
        parts.append(b"connection: keep-alive\r\n")
    parts.append(
        b"x-request-id: %b\r\n%b: %b\r\nvia: %b\r\n\r\n"
        % (request_id.encode(), DESTINATION, destination.encode(), b", ".join([*passed, b"1.1 " + via]))
    )
    return b"".join(parts)


def text_headers(headers: Iterable[Header]) -> dict[str, str]:
    """Headers for the scheduler: text, repeated ones joined; without those that only this host may set."""
    joined: dict[bytes, bytes] = {}
    for name, value in headers:
        if name.startswith(DESTINATION):
            continue
        if name in joined:
            separator = b"; " if name in _JOINED_BY_SEMICOLON else b", "
            value = joined[name] + separator + value
        joined[name] = value
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in joined.items()}
