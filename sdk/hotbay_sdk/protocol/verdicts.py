"""What is said of a request before and after it is scheduled: denials, attributes, header edits, parsed requests, responses.

Pure. Each `read_…` takes a value that a plugin sent, and raises `MalformedMessageError` for one of another form. Both ends hold
results to these rules: the SDK before they cross, a host when they came.

* A *verdict* is nil, or [code, reason, message]; the code is of `DENY_CODES`.
* An *answer* of `request_headers` is nil, {attributes: {name: text, int or float}} or {deny: verdict}.
* A *parsed request* is {model, prompt, messages, stream, max_tokens, skip_response}; `parse` answers {deny: verdict} as well.
* A *response*, as a host tells it: {endpoint, profile, status, headers} in `response_headers`, and {endpoint, profile, status,
  bytes, chunks, usage, end, cause, first_byte, ttft_us, elapsed_us} in `response_body`; `usage` is nil or {prompt_tokens,
  completion_tokens, cached_tokens}, `cause` is nil before the end.
"""

from __future__ import annotations

from hotbay_sdk.protocol.declarations import NamedTuple
from hotbay_sdk.protocol.handshake import is_attribute_name
from hotbay_sdk.protocol.messages import MAX_MESSAGE_BYTES, MalformedMessageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Final

    from hotbay_sdk.protocol.values import Value

DENY_CODES: Final[Mapping[str, int]] = {
    "bad-request": 400,
    "unauthorized": 401,
    "forbidden": 403,
    "not-found": 404,
    "precondition-failed": 412,
    "resource-exhausted": 429,
    "internal": 500,
    "unavailable": 503,
}
"""Code of a denial → HTTP status."""

_REASONS: Final = {"resource-exhausted": "rejected-saturated", "unavailable": "rejected-no-endpoints"}
CAUSES: Final = ("natural", "client-disconnect", "evicted", "error")
"""Why a response ended."""

MAX_REASON_CHARS: Final = 64
MAX_REQUEST_ATTRIBUTES: Final = 64
"""Attributes that one answer of `request_headers` may set."""
MAX_ATTRIBUTE_BYTES: Final = 4 * 1024
"""Longest text of an attribute of a request."""
RESERVED_HEADERS: Final = frozenset(
    {
        *("connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection", "te", "trailer"),
        *("transfer-encoding", "upgrade", "content-encoding", "content-length", "expect", "host", "http2-settings"),
        *("authorization", "cookie", "set-cookie", "via", "x-forwarded-for", "x-request-id"),
        "x-gateway-destination-endpoint",
    }
)
"""What no plugin sets: headers of one connection (RFC 9110, 7.6.1), and those that end a message, say whose it is or where it goes."""
MAX_HEADER_VALUE_BYTES: Final = 8 * 1024
MAX_MODEL_CHARS: Final = 1024
MAX_DUMP_BYTES: Final = 256 * 1024
"""Longest answer of `dump_state` of a ref."""
_MAX_INT: Final = 2**63 - 1
_TOKEN_SIGNS: Final = frozenset("!#$%&'*+-.^_`|~")
"""Of names of headers, beside letters and digits (RFC 9110, 5.6.2)."""


def default_reason(code: str) -> str:
    """The reason of a denial that names none."""
    return _REASONS.get(code, "denied")


def is_reason(value: object) -> bool:
    """Whether it may stand in the reason header: 1 to 64 of a-z, 0-9 and -."""
    return (
        isinstance(value, str)
        and 0 < len(value) <= MAX_REASON_CHARS
        and all(sign == "-" or "0" <= sign <= "9" or "a" <= sign <= "z" for sign in value)
    )


def is_header_name(value: object) -> bool:
    """Whether it names a header, in lower case."""
    return (
        isinstance(value, str)
        and 0 < len(value) <= 128
        and value.isascii()
        and value == value.lower()
        and all(sign.isalnum() or sign in _TOKEN_SIGNS for sign in value)
    )


def is_header_value(value: object) -> bool:
    """Whether a header may have it: text of at most 8 KiB without control characters, but for tabs, or white space around it."""
    return (
        isinstance(value, str)
        and len(value.encode("utf-8", "replace")) <= MAX_HEADER_VALUE_BYTES
        and value == value.strip()
        and all(sign == "\t" or (sign >= " " and sign != "\x7f") for sign in value)
    )


class Verdict(NamedTuple):
    """A denial. `reason` is never empty."""

    code: str
    reason: str
    message: str

    @property
    def status(self) -> int:
        """The HTTP status of the code."""
        return DENY_CODES[self.code]


def read_verdict(value: Value) -> Verdict | None:
    """None for a request that is admitted."""
    if value is None:
        return None
    if not isinstance(value, list) or len(value) != 3:
        raise MalformedMessageError("a verdict is nil or [code, reason, message]")
    code, reason, message = value
    if not isinstance(code, str) or code not in DENY_CODES:
        raise MalformedMessageError(f"the code of a denial is one of {', '.join(DENY_CODES)}, found {ascii(code)[:80]}")
    if reason != "" and not is_reason(reason):
        raise MalformedMessageError(
            f"the reason of a denial is 1 to {MAX_REASON_CHARS} of a-z, 0-9 and -, found {ascii(reason)[:80]}"
        )
    if not isinstance(message, str) or len(message.encode("utf-8", "replace")) > MAX_MESSAGE_BYTES:
        raise MalformedMessageError(f"the message of a denial is text of at most {MAX_MESSAGE_BYTES} bytes")
    assert isinstance(reason, str)
    return Verdict(code, reason or default_reason(code), message)


def read_attributes(value: Value) -> dict[str, str | int | float] | Verdict:
    """What an answer of `request_headers` sets, or the denial."""
    if value is None:
        return {}
    if not isinstance(value, dict) or len(value) != 1 or not value.keys() & {"attributes", "deny"}:
        raise MalformedMessageError("an answer is nil, {attributes: {…}} or {deny: [code, reason, message]}")
    if "deny" in value:
        return _denial(value["deny"])
    found = value["attributes"]
    if not isinstance(found, dict) or len(found) > MAX_REQUEST_ATTRIBUTES:
        raise MalformedMessageError(f"attributes are a map of at most {MAX_REQUEST_ATTRIBUTES}")
    return {name: _attribute(name, item) for name, item in found.items()}


def _attribute(name: str, value: Value) -> str | int | float:
    if not is_attribute_name(name):
        raise MalformedMessageError(
            f"an attribute's name is of 1 to 128 letters, digits and _ . : / -, found {ascii(name)[:80]}"
        )
    if isinstance(value, str) and len(value.encode("utf-8", "replace")) <= MAX_ATTRIBUTE_BYTES:
        return value
    if isinstance(value, float) or (type(value) is int and -_MAX_INT <= value <= _MAX_INT):
        return value
    raise MalformedMessageError(
        f"attribute {name} is a text of at most {MAX_ATTRIBUTE_BYTES} bytes, a whole number of 64 bits or a float, "
        f"found {type(value).__name__}"
    )


def _denial(value: Value) -> Verdict:
    verdict = read_verdict(value)
    if verdict is None:
        raise MalformedMessageError("deny is [code, reason, message]")
    return verdict


class Parsed(NamedTuple):
    """A parsed request. `prompt`, `messages` and `max_tokens` are None where there is none."""

    model: str
    prompt: str | None = None
    messages: list[Value] | None = None
    stream: bool = False
    max_tokens: int | None = None
    skip_response: bool = False

    def to_wire(self) -> dict[str, Value]:
        """The map that crosses the wire."""
        return dict(zip(self._fields, self, strict=True))


def read_parsed(value: Value) -> Parsed | Verdict:
    """What `parse` answered."""
    if not isinstance(value, dict):
        raise MalformedMessageError("a parsed request is a map")
    if "deny" in value:
        return _denial(value["deny"])
    model, prompt, messages = value.get("model"), value.get("prompt"), value.get("messages")
    if not isinstance(model, str) or not 0 < len(model) <= MAX_MODEL_CHARS:
        raise MalformedMessageError(f"model is a name of 1 to {MAX_MODEL_CHARS} characters, found {ascii(model)[:80]}")
    if prompt is not None and not isinstance(prompt, str):
        raise MalformedMessageError(f"prompt is text or nil, found {type(prompt).__name__}")
    if messages is not None and not isinstance(messages, list):
        raise MalformedMessageError(f"messages are a list or nil, found {type(messages).__name__}")
    stream, skip, most = value.get("stream", False), value.get("skip_response", False), value.get("max_tokens")
    if not isinstance(stream, bool) or not isinstance(skip, bool):
        raise MalformedMessageError("stream and skip_response are true or false")
    if most is not None and (type(most) is not int or not 0 <= most <= _MAX_INT):
        raise MalformedMessageError("max_tokens is a whole number from 0 up, or nil")
    return Parsed(model, prompt, messages, stream, most, skip)


class HeaderEdits(NamedTuple):
    """Headers to set, None to take one away."""

    request: Mapping[str, str | None]
    response: Mapping[str, str]


def read_edits(value: Value, *, request: frozenset[str], response: frozenset[str]) -> HeaderEdits | None:
    """What `pre_request` answered for one request; `request` and `response` are the headers that the instance says it sets."""
    if value is None:
        return None
    if not isinstance(value, dict) or not value.keys() <= {"request", "response"}:
        raise MalformedMessageError("edits are nil or {request: {…}, response: {…}}")
    sent = _headers(value.get("request", {}), request, "request")
    back = _headers(value.get("response", {}), response, "response")
    if None in back.values():
        raise MalformedMessageError("a header of the response is text")
    return HeaderEdits(sent, back)  # type: ignore[arg-type]  # no value of `back` is None


def _headers(value: Value, declared: frozenset[str], which: str) -> dict[str, str | None]:
    if not isinstance(value, dict):
        raise MalformedMessageError(f"headers of the {which} are a map")
    found: dict[str, str | None] = {}
    for name, item in value.items():
        if name not in declared:
            raise MalformedMessageError(
                f"edits set the {which}'s header {ascii(name)[:80]}: sets_{which}_headers does not name it"
            )
        if item is not None and not is_header_value(item):
            raise MalformedMessageError(
                f"the {which}'s header {name} is text without control characters, found {ascii(item)[:80]}"
            )
        found[name] = item if isinstance(item, str) else None
    return found
